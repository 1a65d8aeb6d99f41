"""Outbox: the output that waits for one peer, and the budget for more."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from stompcodec.broker.message import LargeBody
from stompcodec.broker.queues.heads import frame_of
from stompcodec.broker.storage.large import Download, head_of

#: Sent after each frame, because a well-known client cannot read without it.
EOL = b"\n"
#: Bytes of answers that may wait for a peer that does not read. Above, it is not read either.
_MOST_UNREAD = 2**20


class Postman(Protocol):
    """The broker, as an outbox sees it. `Host` describes the members."""

    send_budget: int
    write_high: int
    dirty: list[Any]
    bound_output: Callable[[Any], object]


class Outbox:
    """The pending output of one session, in the output list of its connection. If `whole_frames`, each chunk must be a
    whole frame, as WebSocket requires.
    """

    __slots__ = (
        *("_broker", "_session", "chunks", "delivered", "dirty", "flowing", "downloads", "most", "send_budget"),
        *("starved", "unread", "whole_frames"),
    )

    def __init__(self, broker: Postman, session: object, chunks: list[bytes], whole_frames: bool) -> None:
        self._broker = broker
        self._session: object | None = session
        self.chunks = chunks
        self.whole_frames = whole_frames
        #: Messages that were added so far.
        self.delivered = 0
        #: The session is scheduled for a flush.
        self.dirty = False
        #: Bytes of messages that may still be added in this turn. At 0 or less, consumers wait.
        self.send_budget = broker.send_budget
        #: The greatest budget of a turn, beside that of the broker.
        self.most = sys.maxsize
        #: A consumer was skipped because the budget was used up.
        self.starved = False
        #: The transport is not full, and no large message is being written.
        self.flowing = True
        #: Bytes of answers added while not flowing.
        self.unread = 0
        #: Large messages being written; the chunks wait for them.
        self.downloads: Sequence[Download] = ()

    def deliver(self, head: bytes, tail: bytes, size: int) -> None:
        """Add a MESSAGE and deduct its size from the budget."""
        chunks = self.chunks
        if self.whole_frames or len(tail) < 2048:  # a copy costs less than three chunks: 15 % of a message of 100 bytes
            chunks.append(frame_of(head, tail))
        else:
            chunks.append(head)
            chunks.append(tail)
            chunks.append(EOL)
        self.send_budget -= size
        self.delivered += 1
        if not self.dirty:
            self.schedule_flush()

    def deliver_large(self, head: bytes, tail: bytes, body: LargeBody, failed: Callable[[Exception], object]) -> None:
        """Add a MESSAGE with a large body. Later output waits until all of it is written.

        `head` is the consumer's part of the head, `tail` the message's in the session's STOMP version. `failed` is
        called if the body cannot be read to its end. Raise OSError if it cannot be read at all; then nothing is sent.
        """
        download = Download(self.chunks[:], head + head_of(tail, body), body, self.whole_frames, failed)
        download.check()
        self.downloads = (*self.downloads, download)
        self.delivered += 1
        self.chunks.clear()
        self.flowing = False
        self.send_budget = 0
        self.schedule_flush()

    def bound(self) -> None:
        """Let no more than `write_high` bytes wait between the queues and the peer, kernel included.

        With ack:auto a message has left its queue when it is passed to the connection, and is lost with it.
        """
        if self.most == sys.maxsize and self._session is not None:
            self.most = max(1, self._broker.write_high // 2)
            self.send_budget = min(self.send_budget, self.most)
            self._broker.bound_output(self._session)

    def schedule_flush(self) -> None:
        """Have the shell flush the session when the turn ends, to write output or close the transport."""
        if not self.dirty and self._session is not None:
            self.dirty = True
            self._broker.dirty.append(self._session)

    def take_download(self) -> list[bytes]:
        """Return the next chunks of the first large message. Raise OSError if its body cannot be read."""
        download = self.downloads[0]
        chunks = download.take()
        if download.done:
            self.downloads = self.downloads[1:]
        return chunks

    def is_moving(self) -> bool:
        """Return True if part of the first large message was written since the last call."""
        moved, self.downloads[0].moved = self.downloads[0].moved, False
        return moved

    @property
    def waiting(self) -> int:
        """Bytes that wait for large messages to be written."""
        return self.unread + sum(download.waiting for download in self.downloads) if self.downloads else 0

    @property
    def is_clogged(self) -> bool:
        """The peer does not read, and too many answers are waiting."""
        return not self.flowing and self.unread > _MOST_UNREAD

    def discard(self) -> None:
        """Drop the pending output."""
        self.downloads = ()
        self.chunks.clear()

    def detach(self) -> None:
        """Drop the pending output and the reference to the session, which would form a cycle. The transport is lost."""
        self.discard()
        self._session = None
