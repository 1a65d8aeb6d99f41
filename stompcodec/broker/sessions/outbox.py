"""Outbox: the output that waits for one peer, and the budget for more."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from stompcodec.broker.config.config import Config
from stompcodec.broker.context import Host
from stompcodec.broker.errors import Refused
from stompcodec.broker.message import LargeBody
from stompcodec.broker.queues.consumer import EOL, Consumer
from stompcodec.broker.storage.large import Download, head_of
from stompcodec.states import artemis_server_ping, artemis_ttl


class Windows:
    """The windows of the subscriptions of one session, which may leave `most` messages unacknowledged."""

    __slots__ = ("_consumers", "_most", "acking", "overdue", "parts", "total")

    def __init__(self, most: int, consumers: Mapping[str, Consumer]) -> None:
        self._most = most
        self._consumers = consumers
        #: Subscriptions that acknowledge; the sum of their windows; and the deliveries above their windows when those
        #: were last divided.
        self.acking = self.total = self.overdue = 0
        #: The shares into which `most` is divided.
        self.parts = 1

    def claim(self, asked: int) -> int:
        """Return the window of a new subscription, and make room for it. `asked` is the most unacknowledged messages
        that it may have, by its SUBSCRIBE or the defaults. Raise Refused if there are too many subscriptions, or too
        many unacknowledged messages.
        """
        parts = _parts(self.acking + 1)
        asked = min(asked, self._most)
        share = min(asked, _share(self._most, parts))
        if self._left < share:
            self._divide(parts)
        left = self._left
        if left < 1:
            raise Refused(
                "too many unacknowledged messages",
                f"The subscriptions of this session have {self._most - left} together: acknowledge some.",
            )
        return min(asked if self.parts == 1 else share, left)

    @property
    def _left(self) -> int:
        return self._most - self.total - self.overdue

    def join(self, window: int) -> None:
        """Count a new subscription with the window that it has claimed."""
        self.acking += 1
        self.total += window

    def leave(self, window: int) -> None:
        """Stop counting a subscription that was removed. When few are left, their windows grow again."""
        self.acking -= 1
        self.total -= window
        # The factor of 4 avoids resizing all windows each time when a session subscribes and unsubscribes in turn.
        if self.parts > 1 and (self.acking <= 1 or self.acking * 4 <= self.parts):
            self._divide(_parts(self.acking))

    def _divide(self, parts: int) -> None:
        """Give each subscription the window that it asks for, up to its share."""
        share = _share(self._most, parts)
        self.parts = parts
        self.total = self.overdue = 0
        grown: list[Consumer] = []
        for consumer in self._consumers.values():
            if not consumer.acks or consumer.closed:
                continue
            if not consumer.window:  # it holds the message of one RECEIVE
                self.total += 1
                continue
            size = min(consumer.request.window, share)
            if size > consumer.window:
                grown.append(consumer)
            consumer.resize(size)
            self.total += size
            self.overdue += max(0, len(consumer.unacked) - size)
        for consumer in grown:
            if not consumer.in_ring:
                consumer.queue.offer(consumer)


def _parts(count: int) -> int:
    """Return the number of shares for a number of subscriptions: a power of two, so that it seldom changes."""
    return 1 << max(0, count - 1).bit_length()


def _share(most: int, parts: int) -> int:
    return max(1, most // parts)


class Terms(NamedTuple):
    """The intervals that a client must keep, in ms."""

    heart_beat: tuple[int, int]
    """The heart-beat header of CONNECTED: how often the broker sends, and how often it expects bytes."""
    silence: int
    """The silence after which the client is dead."""


def terms(config: Config, version: str, heart_beat: str | None) -> Terms | None:
    """Return the terms of a new session; None if only the rules of STOMP apply. Rules: ART-TTL-02 to ART-TTL-09.

    `heart_beat` is the header of CONNECT. In 1.0 and in the legacy dialect it is ignored.
    """
    if not (config.ttl or config.ttl_override):
        return None
    if version in ("1.0", "legacy"):
        heart_beat = None
    acceptor: dict[str, object] = {
        "connectionTtlMin": config.ttl_min,
        "connectionTtlMax": config.ttl_max,
        "heartBeatToConnectionTtlModifier": config.ttl_modifier,
    }
    if config.ttl:
        acceptor["connectionTtl"] = config.ttl
    if config.ttl_override:
        acceptor["connection-ttl-override"] = config.ttl_override
    found = artemis_ttl(version, heart_beat, acceptor)
    beats = artemis_server_ping(heart_beat), found.get("connected_client_to_server", 0)
    return Terms(beats, max(found["connection_ttl"], 1))


def remedy(terms: Terms | None, version: str) -> str:
    """Return the remedy for a client that was silent for too long, by its terms (None for those of STOMP) and version.

    >>> remedy(Terms((0, 0), 60_000), "1.2")[:69]
    'Nothing was received for 60 s, and this client offers no heart-beats:'
    """
    if terms is None:
        return "Nothing was received for twice the agreed interval."
    silence = f"Nothing was received for {terms.silence / 1000:g} s"
    if terms.heart_beat[1]:
        return f"{silence}: the agreed heart-beat interval times the factor of the broker's sessions.ttl."
    how = "use STOMP 1.1 or 1.2 and" if version == "1.0" else "have it"
    return (
        f"{silence}, and this client offers no heart-beats: {how} offer some in CONNECT, such as "
        "heart-beat:10000,10000, or raise sessions.ttl in the broker's configuration."
    )


#: Bytes of answers that may wait for a peer that does not read. Above, it is not read either.
_MOST_UNREAD = 2**20


class Outbox:
    """The pending output of one session, in the output list of its connection. If `whole_frames`, each chunk must be a
    whole frame, as WebSocket requires.
    """

    __slots__ = (
        *("_broker", "_session", "chunks", "dirty", "flowing", "downloads", "most", "send_budget", "starved", "unread"),
        "whole_frames",
    )

    def __init__(self, broker: Host, session: object, chunks: list[bytes], whole_frames: bool) -> None:
        self._broker = broker
        self._session: object | None = session
        self.chunks = chunks
        self.whole_frames = whole_frames
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
        if self.whole_frames:
            self.chunks.append(b"".join((head, tail, EOL)))
        else:
            self.chunks += (head, tail, EOL)
        self.send_budget -= size
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
