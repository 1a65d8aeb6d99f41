"""Outbox: what waits to be written to one peer, and how much more its consumers may add."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from stompcodec.broker.queues.consumer import EOL
from stompcodec.broker.storage.large import Parcel, head_of

if TYPE_CHECKING:
    from stompcodec.broker.context import Host
    from stompcodec.broker.message import LargeBody

__all__ = ["Outbox"]

#: Bytes of answers that may wait for a peer that does not read. Above, it is not read either.
_MOST_UNREAD = 2**20


class Outbox:
    """The output of a session until the shell takes it.

    Args:
        broker: the broker of the session.
        session: the session, which the shell looks at when there is something to write.
        chunks: the output of its connection.
        whole_frames: each chunk has to be a whole frame.
    """

    __slots__ = (
        *("_broker", "_session", "chunks", "dirty", "flowing", "parcels", "send_budget", "starved", "unread"),
        "whole_frames",
    )

    def __init__(self, broker: Host, session: object, chunks: list[bytes], whole_frames: bool) -> None:
        self._broker = broker
        self._session: object | None = session
        self.chunks = chunks
        self.whole_frames = whole_frames
        #: The session is among those that the shell looks at when the turn ends.
        self.dirty = False
        #: Bytes of messages that may still be added in this turn. 0 or less: consumers have to wait.
        self.send_budget = broker.send_budget
        #: A consumer was passed over because the budget was spent.
        self.starved = False
        #: The transport takes what is in `chunks`: it is not full, and no large message is on its way.
        self.flowing = True
        #: Bytes of answers that were added while nothing flowed.
        self.unread = 0
        #: Large messages on their way, behind which the chunks wait.
        self.parcels: Sequence[Parcel] = ()

    def deliver(self, head: bytes, tail: bytes, size: int) -> None:
        """Add a MESSAGE, and take it off the budget."""
        if self.whole_frames:
            self.chunks.append(head + tail + EOL)
        else:
            self.chunks += (head, tail, EOL)
        self.send_budget -= size
        if not self.dirty:
            self.schedule_flush()

    def deliver_large(self, head: bytes, tail: bytes, body: LargeBody, failed: Callable[[Exception], object]) -> None:
        """Add the MESSAGE of a large message. Nothing else goes out before all of it has.

        Args:
            head: from the consumer.
            tail: of the message, for the version of this session.
            body: of the message.
            failed: called if the body cannot be read to its end.

        Raises:
            OSError: the body cannot be read. Nothing of it is sent.
        """
        parcel = Parcel(self.chunks[:], head + head_of(tail, body), body, self.whole_frames, failed)
        parcel.check()
        self.parcels = (*self.parcels, parcel)
        self.chunks.clear()
        self.flowing = False
        self.send_budget = 0
        self.schedule_flush()

    def schedule_flush(self) -> None:
        """Have the shell look at the session when the turn ends: there is something to write, or to close."""
        if not self.dirty and self._session is not None:
            self.dirty = True
            self._broker.dirty.append(self._session)

    def take_parcel(self) -> list[bytes]:
        """Hand over the next chunks of the first large message.

        Raises:
            OSError: its body cannot be read.
        """
        parcel = self.parcels[0]
        chunks = parcel.take()
        if parcel.done:
            self.parcels = self.parcels[1:]
        return chunks

    def is_moving(self) -> bool:
        """Return True if some of the first large message went out since the last call."""
        moved, self.parcels[0].moved = self.parcels[0].moved, False
        return moved

    @property
    def waiting(self) -> int:
        """Bytes that wait behind large messages."""
        return self.unread + sum(parcel.waiting for parcel in self.parcels) if self.parcels else 0

    @property
    def is_clogged(self) -> bool:
        """The peer does not read, and too many answers wait for it."""
        return not self.flowing and self.unread > _MOST_UNREAD

    def discard(self) -> None:
        """Drop what waits: it will not be written."""
        self.parcels = ()
        self.chunks.clear()

    def detach(self) -> None:
        """Drop what waits, and forget the session, whose transport is gone: else they would be a cycle of garbage."""
        self.discard()
        self._session = None
