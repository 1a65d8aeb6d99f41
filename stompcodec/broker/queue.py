"""Queue: ordered messages and their consumers. It is the only thing that delivers.

A message in a queue is READY (in `messages`) or UNACKED (in a consumer's `unacked`). Whenever something is READY, no
consumer in the ring can take it; so a message that comes while the ring is not empty goes out at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from stompcodec.broker.bounds import Bound, Pool
from stompcodec.broker.consumer import EOL, Consumer, Delivery
from stompcodec.broker.journal import Journal
from stompcodec.broker.message import Message

if TYPE_CHECKING:
    from stompcodec.broker.session import Session

__all__ = ["Queue"]

#: What a queue has that never had anything READY: a deque of its own takes 600 octets.
_NONE: deque[Message] = deque(maxlen=0)


class Queue:
    """Messages in order, each for one consumer.

    Args:
        name: the destination.
        key: how the store knows it.
        bound: above it, senders wait.
        pool: what all queues share.
        journal: to the store; None for a queue that ends with its session or subscription.
        wall: the time in seconds since 1970.
        expired: told of an expired message that is gone, for the dead letters.
    """

    __slots__ = (
        *("_expired", "_wall", "blocked", "bound", "closed", "consumers", "count", "expiring", "idle", "journal"),
        *("key", "messages", "name", "octets", "overflow", "pool", "ready", "swept"),
    )

    def __init__(
        self,
        name: str,
        key: str,
        bound: Bound,
        pool: Pool,
        journal: Journal | None,
        wall: Callable[[], float],
        expired: Callable[[Queue, Message], object] | None = None,
    ) -> None:
        self.name = name
        self.key = key
        self.bound = bound
        self.pool = pool
        self.journal = journal
        self._wall = wall
        self._expired = expired
        #: READY, oldest first.
        self.messages = _NONE
        self.consumers: list[Consumer] = []
        #: The ring: consumers that had credit when they were last looked at. The first one is next.
        self.ready: list[Consumer] = []
        #: READY and UNACKED.
        self.count = 0
        self.octets = 0
        #: Sessions that wait until there is room.
        self.blocked: list[Session] = []
        #: What to do when the bound is passed, instead of making the sender wait. None in a queue of its own right.
        self.overflow: Callable[[], bool] | None = None
        self.closed = False
        #: Messages with a time to expire have come.
        self.expiring = False
        #: When expired messages are looked for next, in seconds.
        self.swept = 0.0
        #: Nothing has happened since the last sweep.
        self.idle = False

    def __repr__(self) -> str:
        ready, consumers = len(self.messages), len(self.consumers)
        return f"<Queue {self.name!r}: {ready} ready, {self.count} in all, {consumers} consumers>"

    # ---- in ----

    def put(self, message: Message, stored: bool = False) -> bool:
        """Take a message. True: the bound is passed, so whoever sent it should wait.

        Args:
            message: it has its place in the order.
            stored: it is in the store already.
        """
        if message.persistent and not stored and self.journal is not None:
            self.journal.append(self, message)
        if message.expires is not None:
            self.expiring = True
            if self.ready and message.expires <= self._wall():  # its sender was paused, or it came too late
                self._more(message)
                self._expire(message)
                return False
        if self.ready:
            consumer = self.deliver(message)
            if consumer is not None and not consumer.acks:
                return False
        else:
            consumer = None
        if consumer is None:
            if self.closed:
                return False
            self._own().append(message)
        self._more(message)
        return self.full and (self.overflow is None or self.overflow())

    def put_plain(self, destination: str, ident: bytes, seq: int, tail: bytes) -> bool:
        """As `put`, for a message that nothing special is about: the shortest road to the next consumer.

        Args:
            destination, seq, tail: of the message.
            ident: its message-id, with % for the seq.
        """
        ready = self.ready
        if not ready or not ready[0].direct or ready[0].credit <= 0 or ready[0].session.room <= 0:
            return self.put(Message(ident % seq, seq, destination, tail))
        consumer = ready[0]
        session, size, full = consumer.session, len(tail), False
        if not consumer.acks:
            session.outbox += (consumer.quick % seq, tail, EOL)
        else:
            consumer.last = tag = consumer.last + 1
            consumer.unacked[tag] = Message(ident % seq, seq, destination, tail)
            consumer.credit -= 1
            session.outbox += (consumer.quick % (seq, tag), tail, EOL)
            self.count += 1
            self.octets += size
            self.pool.octets += size
            full = self.full and (self.overflow is None or self.overflow())
        session.room -= size
        if len(ready) > 1:
            ready.append(ready.pop(0))
        if not session.dirty:
            session.mark()
        return full

    @property
    def full(self) -> bool:
        """The bound is passed, or that of all queues together."""
        bound, pool = self.bound, self.pool
        return self.count > bound.messages or self.octets > bound.octets or pool.octets > pool.limit

    def block(self, session: Session) -> None:
        """Make a session wait until there is room."""
        holder: Queue | Pool = self.pool if self.pool.full else self
        if session.block(holder):
            holder.blocked.append(session)

    def restore(self, messages: list[Message]) -> None:
        """UNACKED to READY: delivered in vain, and back in their old places, before all that came later."""
        if self.closed or not messages:
            return
        back = [message.again() for message in messages]
        if self.journal is not None:
            for message in back:
                if message.persistent:
                    self.journal.update(self.key, message)
        ready, latest = self._own(), max(message.seq for message in back)
        while ready and ready[0].seq < latest:  # others that came back before
            back.append(ready.popleft())
        back.sort(key=_seq)
        ready.extendleft(reversed(back))
        self.dispatch()

    @property
    def is_disordered(self) -> bool:
        """The latest message has an earlier place than the one before."""
        return len(self.messages) > 1 and self.messages[-1].seq < self.messages[-2].seq

    def sort_from(self, seq: int) -> None:
        """Messages of that seq and later ones came in another order than they have."""
        messages, out = self.messages, []
        while messages and messages[-1].seq >= seq:
            out.append(messages.pop())
        out.sort(key=_seq)
        messages.extend(out)

    def _own(self) -> deque[Message]:
        if self.messages is _NONE:
            self.messages = deque()
        return self.messages

    # ---- out ----

    def deliver(self, message: Message) -> Consumer | None:
        """Give a message to the next consumer that can take it; None: nobody can. The hot road."""
        ready = self.ready
        while ready:
            consumer = ready[0]
            session = consumer.session
            if consumer.credit > 0 and session.room > 0:
                break
            del ready[0]  # it comes back with credit, or with room
            consumer.waiting = False
            if session.room <= 0:
                session.stalled = True
        else:
            return None
        if len(ready) > 1:
            ready.append(ready.pop(0))
        if not consumer.direct or message.attempts:
            consumer.send(message)
        else:
            if consumer.acks:
                consumer.last = tag = consumer.last + 1
                consumer.unacked[tag] = message
                consumer.credit -= 1
                session.outbox += (consumer.head % (message.ident, tag), message.tail, EOL)
            else:
                session.outbox += (consumer.head % message.ident, message.tail, EOL)
            session.room -= message.size
            if not session.dirty:
                session.mark()
        if message.persistent and not consumer.acks and self.journal is not None:
            self.journal.remove(self.key, message)
        return consumer

    def dispatch(self) -> None:
        """Deliver what is READY, as long as somebody can take it."""
        messages = self.messages
        while messages and self.ready:
            message = messages.popleft()
            if message.expires is not None and message.expires <= self._wall():
                self._expire(message)
                continue
            consumer = self.deliver(message)
            if consumer is None:
                messages.appendleft(message)
                return
            if not consumer.acks:
                self.less(1, message.size)

    def offer(self, consumer: Consumer) -> None:
        """A consumer has got credit, or room: it may stand in the ring again."""
        if not consumer.waiting and not consumer.closed:
            consumer.waiting = True
            self.ready.append(consumer)
        if self.messages:
            self.dispatch()

    def add(self, consumer: Consumer) -> None:
        """A new subscription."""
        self.consumers.append(consumer)
        self.offer(consumer)

    def drop(self, consumer: Consumer) -> list[Message]:
        """The end of a subscription. Returns what it did not acknowledge: `restore` it."""
        self.consumers.remove(consumer)
        if consumer.waiting:
            consumer.waiting = False
            self.ready.remove(consumer)
        return consumer.close()

    # ---- gone ----

    def settle(self, deliveries: Sequence[Delivery], stored: bool = False) -> None:
        """UNACKED to gone: they were acknowledged.

        Args:
            deliveries: their messages.
            stored: the store has let them go already.
        """
        octets = 0
        for _tag, message in deliveries:
            octets += message.size
            if message.persistent and not stored and self.journal is not None and not self.closed:
                self.journal.settle(self, message)
        self.less(len(deliveries), octets)

    def less(self, count: int, octets: int) -> None:
        """Messages are gone: there is room for others."""
        if self.closed:
            return
        self.count -= count
        self.octets -= octets
        self.pool.octets -= octets
        if self.blocked and self.bound.is_low(self.count, self.octets):
            self.release()

    def release(self) -> None:
        """Let those that wait send again."""
        blocked, self.blocked = self.blocked, []
        for session in blocked:
            session.unblock(self)

    def drop_oldest(self) -> None:
        """Make room in a full queue, at the cost of what has waited longest."""
        while self.messages and (self.count > self.bound.messages or self.octets > self.bound.octets):
            self.less(1, self.messages.popleft().size)

    def load(self, message: Message) -> None:
        """READY, as the store gives it back."""
        self._own().append(message)
        self.expiring = self.expiring or message.expires is not None
        self._more(message)

    def unsettle(self, messages: list[Message]) -> None:
        """Undo `settle`: the ACK could not be stored, so they are READY again."""
        if not self.closed:
            for message in messages:
                self._more(message)
            self.restore(messages)

    def _more(self, message: Message) -> None:
        self.count += 1
        self.octets += message.size
        self.pool.octets += message.size

    def withdraw(self, numbers: set[int]) -> None:
        """Messages that could not be stored leave the queue, unless somebody has got them."""
        kept = deque(message for message in self.messages if message.seq not in numbers)
        gone = [message for message in self.messages if message.seq in numbers]
        self.messages = kept
        self.less(len(gone), sum(message.size for message in gone))

    def sweep(self, now: float) -> None:
        """Look for expired messages: not often in a long queue, for each one is looked at."""
        if not self.expiring or now < self.swept:
            return
        self.swept = now + max(1.0, len(self.messages) * 1e-5)
        wall = self._wall()
        gone = [message for message in self.messages if message.expires is not None and message.expires <= wall]
        if gone:
            self.messages = deque(
                message for message in self.messages if message.expires is None or message.expires > wall
            )
            for message in gone:
                self._expire(message)
        self.expiring = any(message.expires is not None for message in self.messages)

    def _expire(self, message: Message) -> None:
        if message.persistent and self.journal is not None:
            self.journal.remove(self.key, message)
        self.less(1, message.size)
        if self._expired is not None:
            self._expired(self, message)

    def close(self) -> None:
        """The end of the queue, and of all that is in it."""
        self.release()
        self.pool.octets -= self.octets
        self.closed = True
        self.messages = _NONE
        self.count = self.octets = 0


def _seq(message: Message) -> int:
    return message.seq
