"""Outgoing: what waits to be written to a peer, and back-pressure: when it gets no more, and when it is not read."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from stompcodec.broker.errors import Refused
from stompcodec.broker.memory import sink_cost
from stompcodec.broker.storage.large import Parcel, head_of

if TYPE_CHECKING:
    from stompcodec.broker.context import Host
    from stompcodec.broker.message import LargeBody
    from stompcodec.broker.peer import Holder
    from stompcodec.broker.queues.consumer import Consumer
    from stompcodec.broker.queues.queue import Queue
    from stompcodec.broker.routing.topic import Topic
    from stompcodec.broker.storage.journal import Waiting
    from stompcodec.connection import Connection

__all__ = ["Outgoing"]

#: Octets of answers that may wait for a peer that does not read. Above, it is not read either.
_MOST_UNREAD = 2**20
#: Queues that a session remembers to have used.
_MOST_DECLARED = 1000


class Outgoing:
    """The outgoing half of a session.

    Args:
        broker: whose session it is.
        connection: what the peer is told by.
        whole_frames: each chunk of output has to be a whole frame.
    """

    __slots__ = (
        *("_blockers", "_open", "_paused_at", "_unread", "broker", "closing", "connection", "consumers", "dirty"),
        *("_rests", "_sinks_cost", "ended", "failing", "fixed", "flowing", "hopeless", "leaving", "outbox", "parcels"),
        *("declared", "paused", "room"),
        *("sinks", "stalled", "unwritten", "waiting", "whole_frames"),
    )

    def __init__(self, broker: Host, connection: Connection, whole_frames: bool) -> None:
        self.broker = broker
        self.connection = connection
        self.whole_frames = whole_frames
        self.consumers: dict[str, Consumer] = {}
        #: Destinations that it may send to, as far as it has.
        self.sinks: dict[str, Queue | Topic] = {}
        #: Queues that it has used, where their arguments are checked; None for none.
        self.declared: dict[str, None] | None = None
        self.outbox = connection.output
        self.dirty = False
        #: Octets of messages that fit into the outbox in this turn. 0 or less: its consumers have to wait.
        self.room = broker.room
        #: What is in the outbox goes out.
        self.flowing = True
        #: A consumer was passed over for lack of room.
        self.stalled = False
        self._unread = 0
        #: Bytes that the transport has not written yet, with those that wait behind a large message.
        self.unwritten = 0
        #: Bytes of memory that it takes: the connection, its subscriptions, and the destinations that it remembers.
        self.fixed = 0
        self._sinks_cost = 0
        #: Large messages on their way, behind which the outbox waits.
        self.parcels: Sequence[Parcel] = ()
        #: The transport takes more. `flowing` is also False as long as there are parcels.
        self._open = True
        #: Its receipts follow this commit.
        self.waiting: Waiting | None = None
        # What the shell looks at.
        self.closing = False
        self.hopeless = False
        #: Its transport is gone, but not all that came from there is done.
        self.leaving = False
        #: Something that its peer has sent was left for later.
        self._rests = False
        self.paused = False
        self._paused_at = 0.0
        self._blockers: set[Holder] = set()
        self.ended = False
        #: A message could not be written to it: it gets no more, and ends with this turn.
        self.failing = False

    def mark(self) -> None:
        """There is something for the shell to do at the end of this turn."""
        self.dirty = True
        self.broker.dirty.append(self)

    def take_turn(self, now: float) -> None:
        """Go on with what its peer has sent."""
        raise NotImplementedError

    def unread(self, octets: int) -> None:
        """So much more waits for the peer because of what it sent. If it is too much, it is not read."""
        if not self.flowing:
            self._unread += octets
            if self._unread > _MOST_UNREAD:
                self._look_paused()

    # ---- to the shell ----

    def take_output(self) -> list[bytes]:
        """Hand over what is to be written, and make room for more."""
        if self.paused:
            self._look_blockers()
        if self.parcels:
            return self._take_parcels()
        chunks = self.connection.take_output(self.broker.now)
        self.outbox = self.connection.output
        if self.flowing and not (self.ended or self.failing):
            self.room = self.broker.room
            if self.stalled:
                self.broker.resume(self)
        return chunks

    def writable(self, yes: bool, now: float) -> None:
        """The transport has taken enough (False), or has room again (True).

        Args:
            yes: whether messages may come.
            now: the time in seconds.
        """
        self._open = yes
        if self.parcels:
            if yes and not self.dirty:
                self.mark()
            return
        self.flowing = yes
        if self.ended or self.failing:
            return
        if yes:
            self.room = self.broker.room
            self._unread = 0
            self._look_paused()
            if self.stalled:
                self.broker.resume(self)
        else:
            self.room = 0

    def refill(self) -> int:
        """Let its consumers have more, since there is room again. Return how many messages that were."""
        if not self.stalled or self.room <= 0 or self.ended:
            return 0
        self.stalled = False
        return sum(consumer.queue.offer(consumer) for consumer in list(self.consumers.values()))

    # ---- large messages ----

    def send_large(self, head: bytes, tail: bytes, body: LargeBody, failed: Callable[[Exception], object]) -> None:
        """MESSAGE of a large message. Nothing else can go out before it is out.

        Args:
            head: of the consumer.
            tail: of the message, for the version of this session.
            body: of the message.
            failed: called if the body cannot be read to its end.

        Raises:
            OSError: the body cannot be read. Nothing of it is sent.
        """
        parcel = Parcel(self.outbox[:], head + head_of(tail, body), body, self.whole_frames, failed)
        parcel.check()
        self.parcels = (*self.parcels, parcel)
        self.outbox.clear()
        self.flowing = False
        self.room = 0
        if not self.dirty:
            self.mark()

    def _take_parcels(self) -> list[bytes]:
        if not self._open:
            return []
        parcel = self.parcels[0]
        try:
            chunks = parcel.take()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):  # that says nothing of the message
                self.broker.starved.append(self)
                return []
            self.broker.log.error("%s: a large message cannot be read: %s", self, error)
            parcel.failed(error)
            self.cut()
            return []
        if parcel.done:
            self.parcels = self.parcels[1:]
        if self.parcels:
            self.mark()
            return chunks
        self.writable(True, self.broker.now)
        self.closing = self.ended and self.waiting is None
        return chunks + self.take_output()

    def is_moving(self) -> bool:
        """Something of a large message went out since this was asked for the last time."""
        moved, self.parcels[0].moved = self.parcels[0].moved, False
        return moved

    def cut(self) -> None:
        """Close the transport, though it is in the middle of a large message."""
        self._give_up()
        self.closing = True
        if not self.dirty:
            self.mark()

    def _give_up(self) -> None:
        """What waits is not written any more."""
        self.parcels = ()
        self.outbox.clear()

    # ---- memory ----

    def charge(self, cost: int) -> None:
        """It has a subscription more, or remembers a destination; with a negative cost, one less."""
        self.fixed += cost
        self.broker.account.charge(cost)

    def check_memory(self, cost: int) -> None:
        """Whether it may have one subscription more.

        Raises:
            Refused: that would take too much memory.
        """
        if not self.broker.account.has_room(cost, self.fixed):
            remedy = "All subscriptions and destinations together take too much of the broker's limits.memory."
            raise Refused("no memory for another subscription", remedy)

    def remember(self, destination: str, sink: Queue | Topic) -> None:
        """Note where SENDs to a destination go."""
        cost = 0 if destination in self.sinks else sink_cost(destination)
        self.sinks[destination] = sink
        self.broker.senders[self] = None
        self._sinks_cost += cost
        self.charge(cost)

    def forget_sinks(self) -> None:
        """Look anew where SENDs go."""
        self.sinks.clear()
        if self._sinks_cost:
            self.charge(-self._sinks_cost)
            self._sinks_cost = 0

    def declare(self, queue: str) -> bool:
        """Note that it uses a queue. Return whether it has done so before, as far as that is remembered."""
        if self.declared is None:
            self.declared = {}
        if queue in self.declared:
            return True
        if len(self.declared) >= _MOST_DECLARED:
            oldest = next(iter(self.declared))
            del self.declared[oldest]
            self.charge(-sink_cost(oldest))
        self.declared[queue] = None
        self.charge(sink_cost(queue))
        return False

    def note_unwritten(self, octets: int) -> None:
        """The transport tells how many bytes it has not written yet."""
        if self.parcels:
            octets += self._unread + sum(parcel.waiting for parcel in self.parcels)
        account, more = self.broker.account, octets - self.unwritten
        self.unwritten = octets
        if self.ended:  # it is going, and holds up nobody
            account.used += more
        else:
            account.hold(more)

    # ---- who waits ----

    def block(self, holder: Holder) -> bool:
        """Wait until a queue, or the store, has room again. False: it does so already, or cannot.

        One that consumes the queue itself would wait for its own ACKs, for ever: its next SEND is refused.
        """
        if holder in self._blockers or self.ended or self.acknowledges(holder):
            self.forget_sinks()  # it is looked at again
            return False
        self._blockers.add(holder)
        self._look_paused()
        return True

    @property
    def waits_for_turn(self) -> bool:
        """Whether it has had its share of the loop, and not done all that its peer has sent."""
        return self.broker.turns in self._blockers

    @property
    def is_held_up(self) -> bool:
        """Whether a session that waits for its turn waits for something else, too."""
        return len(self._blockers) > 1 or (not self.flowing and self._unread > _MOST_UNREAD)

    def rest(self) -> None:
        """Leave what its peer has sent where it is, as long as the session waits for something."""
        self._rests = True
        self._blockers.add(self.broker.turns)
        self._look_paused()

    def _look_rest(self) -> None:
        """Have a turn when the session waits for nothing else any more."""
        if not self.is_held_up or self.leaving:
            self._rests = False
            self.broker.turns.line_up(self)

    def depart(self) -> None:
        """The transport is gone: what was read from it before still counts, and waits only for its turn."""
        self.leaving = True
        if self._rests:
            self._look_rest()

    def acknowledges(self, holder: object) -> bool:
        """Whether its own ACKs would make room there: in a queue that it consumes; where memory is short, in any."""
        consumers = self.consumers.values()
        if any(consumer.queue.home is holder and consumer.acks for consumer in consumers):
            return True
        short = getattr(holder, "is_too_large", False)
        return short and any(consumer.acks and consumer.unacked for consumer in consumers)

    def _look_blockers(self) -> None:
        """Do not wait for memory any more if by now there is something to acknowledge that would make room."""
        for holder in list(self._blockers):
            if getattr(holder, "is_too_large", False) and self.acknowledges(holder):
                holder.blocked.pop(self, None)
                self.unblock(holder)

    def unblock(self, holder: Holder) -> None:
        """There is room again."""
        self._blockers.discard(holder)
        self._look_paused()

    def _look_paused(self) -> None:
        if self._rests:
            self._look_rest()
        paused = bool(self._blockers) or (not self.flowing and self._unread > _MOST_UNREAD)
        if paused is self.paused:
            return
        now = self.broker.now
        if paused:
            self._paused_at = now
        else:
            self.connection.excuse(now - self._paused_at)
        self.paused = paused
        if not self.dirty:
            self.mark()
