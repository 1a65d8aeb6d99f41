"""Queue: ordered messages and their consumers. It is the only thing that delivers.

A message in a queue is READY (in `messages`) or UNACKED (in a consumer's `unacked`). Whenever something is READY, no
consumer in the ring can take it; so a message that comes while the ring is not empty goes out at once. Where consumers
differ in what they may have, the ring is that of `Picking`, and the one here stays empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from sys import intern

from stompcodec.broker.errors import Refused
from stompcodec.broker.loop_quota import AT_ONCE, Line, Work
from stompcodec.broker.memory import MESSAGE, Account, Part
from stompcodec.broker.message import Message
from stompcodec.broker.queues.backlog import Backlog, Fifo
from stompcodec.broker.queues.consumer import EOL, Consumer, Delivery
from stompcodec.broker.queues.dispatcher import Picking, is_picky
from stompcodec.broker.queues.faults import UNDELIVERABLE, Undelivered, is_undeliverable, pair_of
from stompcodec.broker.queues.limits import Bound
from stompcodec.broker.queues.scheduling import with_fault
from stompcodec.broker.queues.slices import forgetting, put_back, restoring, sweeping
from stompcodec.broker.queues.stock import Stock
from stompcodec.broker.storage.journal import Journal

__all__ = ["DROPPED", "EXPIRED", "Queue"]

#: More messages than these stay in a `Backlog` though a line would do, until they are gone: to move them takes time.
_FEW = 10_000
#: The ring is cleared of consumers that have ended when they may be one in so many: not for each of them anew.
_MOST_GONE = 8
#: Why a message is gone that nobody got.
DROPPED, EXPIRED = "max-length", "expired"


class Queue(Stock):
    """Messages in order, each for one consumer.

    Args:
        name: the destination.
        key: how the store knows it.
        bound: above it, senders wait.
        account: where what it holds is charged.
        journal: to the store; None for a queue that ends with its session or subscription.
        wall: the time in seconds since 1970.
        expired: told of a message that is gone, for it has expired, had to make room or cannot be delivered, and why.
            True: it is a dead letter now. False: it is none, and one that cannot be delivered is not gone.
        ranked: messages of higher priority come first.
    """

    __slots__ = ("_expired", "_gone", "members", "mending", "overflow", "parked", "picking", "ready")

    def __init__(
        self,
        name: str,
        key: str,
        bound: Bound,
        account: Account | Part,
        journal: Journal | None,
        wall: Callable[[], float],
        expired: Callable[[Queue, Message, str], bool] | None = None,
        ranked: bool = False,
    ) -> None:
        super().__init__(name, key, bound, account, journal, wall, ranked)
        self._expired = expired
        #: Where consumers differ; then `ready` is empty.
        self.picking: Picking | None = None
        #: All consumers, in the order of their subscriptions.
        self.members: dict[Consumer, None] = {}
        #: The ring: consumers that had credit when they were last looked at. The first one is next. Those that have
        #: ended since have no credit, and do not wait; there are `_gone` of them at most, which are few.
        self.ready: list[Consumer] = []
        self._gone = 0
        #: The ring, as long as nothing is delivered though somebody could have it: until the next turn, until the
        #: store has a new batch, or until all that comes back is in its place. None: messages are delivered.
        self.parked: list[Consumer] | None = None
        #: How often it was told to stay, or to wait for messages that come back.
        self.mending = 0
        #: What to do when the bound is passed, instead of making the sender wait. None in a queue of its own right.
        self.overflow: Callable[[], bool] | None = None

    @property
    def picks(self) -> bool:
        """Consumers may differ. Not so where there is one only, of a topic, which has picked already."""
        return self.overflow is None or self.terms is not None

    def __repr__(self) -> str:
        ready, consumers = len(self.messages), len(self.members)
        return f"<Queue {self.name!r}: {ready} ready, {self.count} in all, {consumers} consumers>"

    @property
    def consumers(self) -> list[Consumer]:
        """All consumers. For looking at; made anew each time."""
        return list(self.members)

    def seqs(self) -> set[int]:
        """Return the seqs of its messages: READY, held and UNACKED."""
        unacked = {message.seq for consumer in self.members for message in consumer.unacked.values()}
        return {message.seq for message in self.messages} | self.held.keys() | unacked

    # ---- in ----

    def put(self, message: Message, stored: bool = False) -> bool:
        """Take a message. True: the bound is passed, so whoever sent it should wait.

        Args:
            message: it has its place in the order.
            stored: it is in the store already.
        """
        if self.terms is not None:
            self.stamp(message)
        if message.persistent and not stored and self.journal is not None:
            self.journal.append(self, message)
        if message.expires is not None:
            self.expiring = True
            if (self.ready or self.picking is not None) and self.is_expired(message):  # its sender was paused
                self.more(message)
                self.expire(message)
                return False
        if message.group is not None and self.picking is None and self.picks:
            self.pick()
        try:
            if self.ready:
                consumer = self.deliver(message)
            else:
                consumer = None if self.picking is None else self.picking.give(message)
        except Undelivered as failure:
            return failure.message is not None and self.keep(failure.message)
        if consumer is None:
            return self.keep(message)
        if not consumer.acks:
            return False
        self.more(message)
        return self.full and (self.overflow is None or self.overflow())

    def keep(self, message: Message) -> bool:
        """The end of `put`, where nobody can take the message now."""
        if self.closed:
            return False
        self.add_ready(message)
        self.more(message)
        return self.full and (self.overflow is None or self.overflow())

    def put_plain(self, destination: str, ident: bytes, seq: int, tail: bytes) -> bool:
        """As `put`, for a message that nothing special is about: the shortest road to the next consumer.

        Args:
            destination, seq, tail: of the message.
            ident: its message-id, with % for the seq.
        """
        ready = self.ready
        if not ready or not ready[0].direct or ready[0].credit <= 0 or ready[0].session.room <= 0:
            message = Message(ident % seq, seq, self.name if destination == self.name else intern(destination), tail)
            return self.put(message) if self.picking is None else self.picking.give_plain(message)
        consumer = ready[0]
        session, size, full = consumer.session, len(tail), False
        try:
            if not consumer.acks:
                session.outbox += (consumer.quick % seq, tail, EOL)
            else:
                tag = consumer.last + 1
                session.outbox += (consumer.quick % (seq, tag), tail, EOL)
                consumer.last = tag
                name = self.name if destination == self.name else intern(destination)  # shared, for it may be large
                consumer.unacked[tag] = Message(ident % seq, seq, name, tail)
                consumer.credit -= 1
                self.count += 1
                self.octets += size
                self.account.used += size + MESSAGE
                full = self.full and (self.overflow is None or self.overflow())
        except Exception as error:
            left = self.failed(consumer, Message(ident % seq, seq, destination, tail), error)
            return left is not None and self.put(left)
        session.room -= size
        if len(ready) > 1:
            ready.append(ready.pop(0))
        if not session.dirty:
            session.mark()
        return full

    @property
    def home(self) -> Queue:
        """Where the messages of this one are: itself."""
        return self

    def hold(self, message: Message, stored: bool = False) -> None:
        """Take a message that is READY later."""
        if message.persistent and not stored and self.journal is not None:
            self.journal.append(self, message)
        self.held[message.seq] = message
        self.more(message)

    def let_go(self, message: Message) -> bool:
        """The time of a held message has come: it leaves, to come again. False: it has gone."""
        if self.closed or self.held.pop(message.seq, None) is None:
            return False
        if message.persistent and self.journal is not None:
            self.journal.settle(self, message)
        self.less(1, message.size)
        return True

    def restore(self, messages: list[Message]) -> None:
        """UNACKED to READY: delivered in vain, and back in their old places, before all that came later."""
        if self.closed:
            self.forget(messages)
            return
        if len(messages) > AT_ONCE and self.turns is not None:
            self.suspend()
            self.turns.line_up(Work(restoring(self, messages, self.turns)))
            return
        put_back(self, messages)
        self.dispatch()

    def add_ready(self, message: Message) -> None:
        """READY, for nobody can take it now."""
        if message.priority != 4:
            self.rank()
        self.own().append(message)
        if self.picking is not None:
            self.picking.note(message)

    def rank(self) -> None:
        """A message of another priority than most is about to be READY: the order is no longer that of seqs."""
        if self.ranked:
            self.indexed()

    # ---- out ----

    def deliver(self, message: Message) -> Consumer | None:
        """Give a message to the next consumer that can take it; None: nobody can. The hot road.

        Raises:
            Undelivered: it could not be written to one, and nobody else can take it now.
        """
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
        try:
            if not consumer.direct or message.special:
                consumer.send(message)
            else:
                if consumer.acks:
                    tag = consumer.last + 1
                    session.outbox += (consumer.head % (message.ident, tag), message.tail, EOL)
                    consumer.last = tag
                    consumer.unacked[tag] = message
                    consumer.credit -= 1
                else:
                    session.outbox += (consumer.head % message.ident, message.tail, EOL)
                session.room -= message.size
                if not session.dirty:
                    session.mark()
        except Exception as error:
            return self._deliver_elsewhere(consumer, message, error)
        if message.persistent and not consumer.acks and self.journal is not None:
            self.journal.remove(self.key, message)
        return consumer

    def dispatch(self) -> int:
        """Deliver what is READY, as long as somebody can take it and the store keeps up. Not more than `AT_ONCE`
        messages: the rest go in later turns. Return how many that were.
        """
        if self.parked is not None:
            return 0
        count = 0
        if self.picking is None:
            messages, journal = self.messages, self.journal
            while messages and self.ready:
                message = messages.popleft()
                if count >= AT_ONCE and self.turns is not None:
                    messages.appendleft(message)
                    self._wait(self.turns)
                    return count
                if message.persistent and journal is not None and journal.is_full and journal.store is not None:
                    messages.appendleft(message)
                    self._wait(journal)
                    return count
                count += 1
                if self.is_expired(message):
                    self.expire(message)
                    continue
                try:
                    consumer = self.deliver(message)
                except Undelivered as failure:
                    self.keep_left(message, failure.message)
                    continue
                if consumer is None:
                    messages.appendleft(message)
                    return count
                if not consumer.acks:
                    self.less(1, message.size)
        if self.picking is not None:  # from the start, or because a consumer has failed
            count += self.picking.serve_all()
        return count

    def _wait(self, line: Line) -> None:
        """Deliver nothing until the line has come to this queue."""
        self._park()
        line.line_up(self)

    def _park(self) -> None:
        if self.parked is None:
            self.parked, self.ready = self.ready, []
            if self.picking is not None:
                self.picking.forget_looks()

    def suspend(self) -> None:
        """Deliver nothing until `go_on`: messages are coming back."""
        self.mending += 1
        self._park()

    def go_on(self) -> None:
        """Undo `suspend`."""
        self.mending -= 1
        self.take_turn(0.0)

    def take_turn(self, now: float) -> None:
        """Go on with what had to wait."""
        if self.mending:
            return
        if self.parked is not None:
            self.ready, self.parked = self.parked, None
        if not self.closed:
            self.dispatch()

    def take_one(self, consumer: Consumer) -> bool:
        """Give the first message that it may have to a consumer that is not in the ring, whatever its credit is.

        It looks at so many messages only (`MOST_LOOKS`). False: there is none.

        Raises:
            Refused: it cannot be written to that consumer.
        """
        message = self.pick().take_one(consumer) if consumer.selector is not None or self.picking else self._first()
        if message is None:
            return False
        try:
            self.hand(consumer, message)
        except Exception as error:
            self.keep_left(message, self.failed(consumer, message, error))
            raise Refused("the message could not be written", "This session cannot carry it.") from None
        if not consumer.acks:
            self.less(1, message.size)
        return True

    def _first(self) -> Message | None:
        for _ in range(min(len(self.messages), AT_ONCE)):
            message = self.messages.popleft()
            if not self.is_expired(message):
                return message
            self.expire(message)
        return None

    def offer(self, consumer: Consumer) -> int:
        """Let a consumer that has credit, or room, stand in the ring again. Return how many messages went out."""
        if self.picking is not None:
            return self.picking.offer(consumer)
        if not consumer.waiting and not consumer.closed:
            consumer.waiting = True
            (self.ready if self.parked is None else self.parked).append(consumer)
        return self.dispatch() if self.messages else 0

    def add(self, consumer: Consumer) -> None:
        """A new subscription."""
        self.members[consumer] = None
        if self.picking is not None:
            self.picking.join(consumer)
        elif is_picky(consumer) and self.picks:
            self.pick()
        self.offer(consumer)

    def drop(self, consumer: Consumer) -> list[Message]:
        """The end of a subscription. Returns what it did not acknowledge: `restore` it, even if it is nothing."""
        del self.members[consumer]
        if self.picking is not None:
            self.picking.drop(consumer)
            self.pick_no_more()
        elif consumer.waiting:
            consumer.waiting = False
            self._gone += 1
            ring = self.ready if self.parked is None else self.parked
            if self._gone * _MOST_GONE >= len(ring):
                ring[:] = [other for other in ring if other.waiting]
                self._gone = 0
        return consumer.close()

    def hand(self, consumer: Consumer, message: Message) -> None:
        """Give a message, which is not READY any more, to a consumer that may have it. The slow road."""
        consumer.send(message)
        if message.persistent and not consumer.acks and self.journal is not None:
            self.journal.remove(self.key, message)

    # ---- what cannot be written: see `faults.py` ----

    def failed(self, consumer: Consumer, message: Message, error: Exception) -> Message | None:
        """Note that a message cannot be written to a consumer, whose session ends with this turn.

        Returns:
            What the queue keeps in its place; None if the message became a dead letter.
        """
        consumer.session.fault(self, message, error)
        if consumer.address is not None or self.closed:  # of a topic: the queue ends with its consumer
            return message
        left = with_fault(message, pair_of(consumer))
        if self._is_buried(left):
            return None
        self.pick().failed(left)
        return left

    def _is_buried(self, message: Message) -> bool:
        """Make a dead letter of a message that has failed for too many users, if there is room for it."""
        if not is_undeliverable(message) or self._expired is None or not self._expired(self, message, UNDELIVERABLE):
            return False
        if message.persistent and self.journal is not None:
            self.journal.settle(self, message)
        return True

    def _deliver_elsewhere(self, consumer: Consumer, message: Message, error: Exception) -> Consumer:
        """The end of `deliver` when the consumer has failed.

        Raises:
            Undelivered: nobody else can take the message now.
        """
        left = self.failed(consumer, message, error)
        other = None if left is None or self.picking is None else self.picking.give(left)
        if other is None:
            raise Undelivered(left)
        return other

    def keep_left(self, message: Message, left: Message | None) -> None:
        """Put what is left of a message that was counted, and has failed, back into its old place."""
        if left is None:
            self.less(1, message.size)
        elif self.closed:
            self.forget((left,))
        elif self.picking is None:
            self.put_back([left])
        else:
            self.add_ready(left)

    def take_back(self, consumer: Consumer, message: Message, error: Exception) -> None:
        """Undo the delivery of a large message whose file cannot be read. Without acknowledgements, only salvage it."""
        if not consumer.acks and self.journal is not None:
            self.journal.set_aside(self.key, message, left=True)
        if not consumer.take_back(message):
            return
        if message.body is not None and message.body.damaged:
            self._set_aside(message)
        else:
            self.keep_left(message, self.failed(consumer, message, error))

    def _set_aside(self, message: Message) -> None:
        """Nobody gets a message whose body is damaged. A stored one stays in the store, for salvage."""
        self.less(1, message.size)
        if self.journal is not None:
            self.journal.set_aside(self.key, message)

    def pick(self) -> Picking:
        """From now on consumers may differ in what they may have."""
        if self.picking is None:
            self.picking = Picking(self, self.indexed())
            ring = self.ready if self.parked is None else self.parked
            self.picking.begin(self.members, (consumer for consumer in ring if consumer.waiting))
            self.ready, self._gone = [], 0
            if self.parked is not None:
                self.parked = []
                self.picking.forget_looks()
        return self.picking

    def pick_no_more(self) -> None:
        """Back to a plain queue, if that is enough. Then comes `restore`, or `dispatch`."""
        if self.picking is not None and not self.picking.is_needed:
            ring, self.picking = self.picking.end(), None
            if self.parked is None:
                self.ready = ring
            else:
                self.parked = ring
            if len(self.messages) <= _FEW and (not self.ranked or all(m.priority == 4 for m in self.messages)):
                self.messages = Fifo(self.messages)

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

    def remove(self, message: Message) -> None:
        """READY to gone, if it is READY: somebody wants it to go without having got it."""
        if self.indexed().remove(message) is not None:
            if message.persistent and self.journal is not None:
                self.journal.settle(self, message)
            self.less(1, message.size)

    def load(self, message: Message) -> None:
        """READY, or held, as the store gives it back."""
        if message.due is not None:
            self.hold(message, stored=True)
            return
        if message.group is not None:
            self.pick()
        self.add_ready(message)
        self.expiring = self.expiring or message.expires is not None
        self.more(message)

    def unsettle(self, messages: list[Message]) -> None:
        """Undo `settle`, which could not be stored: they are READY again."""
        if not self.closed:
            for message in messages:
                self.more(message)
            self.restore(messages)

    def sweep(self, now: float) -> None:
        """Look for expired messages: not often in a long queue, for each one is looked at."""
        if self.picking is not None and self.picking.has_faults:
            self._sweep_faults(self.picking)
        if not self.messages and self.picking is None and isinstance(self.messages, Backlog):
            self.messages = Fifo()  # the order may be plain again
        if not self.expiring or now < self.swept:
            return
        if len(self.messages) > AT_ONCE and self.turns is not None:
            self.swept = inf
            Work(sweeping(self, now, self.turns)).take_turn(now)
            return
        self.swept = now + max(1.0, len(self.messages) * 1e-5)
        for message in self.messages.take_out(self.is_expired):
            self.expire(message)
        self.expiring = any(message.expires is not None for message in self.messages)

    def _sweep_faults(self, picking: Picking) -> None:
        """Try dead letters again that there was no room for. Without failed messages the queue is plain again."""
        for message in picking.failed_messages():
            if is_undeliverable(message) and not self.is_expired(message) and self._is_buried(message):
                picking.backlog.remove(message)
                self.less(1, message.size)
        if not picking.has_faults:
            self.pick_no_more()
            self.dispatch()

    def expire(self, message: Message) -> None:
        """Its time is over, and it has left READY."""
        if message.persistent and self.journal is not None:
            self.journal.remove(self.key, message)
        self.less(1, message.size)
        if self._expired is not None:
            self._expired(self, message, EXPIRED)

    def dropped(self, message: Message) -> None:
        """As in Stock."""
        if self._expired is not None:
            self._expired(self, message, DROPPED)

    def stores(self, message: Message) -> Sequence[Queue]:
        """The queues whose journal has to know of a message: this one, or none."""
        if self.terms is not None:
            self.stamp(message)
        return (self,) if message.persistent and self.journal is not None else ()

    def holders(self) -> Sequence[Queue]:
        """The queues that may make a sender wait for ever, if it is the one to acknowledge what they hold."""
        return (self,)

    def delete(self, done: Callable[[], object] = lambda: None) -> bool:
        """End the queue, whatever it holds. Return whether that goes in later turns; then `done` is called behind."""
        messages = [*self.messages, *self.held.values()]
        self.close()
        if len(messages) > AT_ONCE and self.turns is not None:
            self.turns.line_up(Work(forgetting(self, messages, self.turns, done)))
            return True
        self.forget(messages)
        return False
