"""Queue: ordered messages and their consumers.

A message in a queue is READY (in `messages`), UNACKED (in the `unacked` of a consumer), deferred (in `deferred`), or
waits for its next attempt (in `returned`).
Invariant: while a message is READY, no consumer in the ring can take it; so a new message is delivered at once if the
ring is not empty. Where consumers may have different messages, `Dispatcher` has the ring, and that of the queue is
empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from stompcodec.broker.connections import Maker, Peer
from stompcodec.broker.loop_quota import AT_ONCE, FEW, Line, LoopQuota, Wall, Work
from stompcodec.broker.memory import LOW, MESSAGE, Account
from stompcodec.broker.message import SPOOLED, Message, plain_message, shared, with_fault
from stompcodec.broker.queues.backlog import WAIT, Looked, Wait
from stompcodec.broker.queues.consumer import Consumer, Delivery, QueueArguments
from stompcodec.broker.queues.dispatcher import (
    UNDELIVERABLE,
    Dispatcher,
    Expiry,
    Returned,
    Undelivered,
    is_selective,
    is_undeliverable,
    pair_of,
)
from stompcodec.broker.queues.heads import head_of
from stompcodec.broker.queues.paging import Paging, leave_in_store
from stompcodec.broker.queues.ready import Bound, ReadyMessages, Tally, Window
from stompcodec.broker.storage.journal import Journal
from stompcodec.broker.values import Refused

#: Ended consumers are removed from the ring when one in this many has ended: to remove each at once takes time.
_MOST_ENDED = 8
#: Why a queue dropped a message.
DROPPED, EXPIRED = "max-length", "expired"


class Queue:
    """Ordered messages, each delivered to one consumer.

    Args:
        name: the destination.
        key: its name in the store.
        bound: above it, senders wait.
        account: where the memory of its messages is charged.
        journal: to the store; None for a queue that ends with its session or subscription.
        wall: returns the time in seconds since 1970.
        on_drop: called with a message that expired, made room or cannot be delivered, and the reason. Returns True if
            it became a dead letter. If not, an undeliverable message stays in the queue.
        ranked: messages of higher priority come first.
        quota: where work waits that takes longer than one turn should; None to do it at once.
        window: how much of it is in memory while the rest is in the store only; None if all of it is.
    """

    __slots__ = (
        *("_on_drop", "_ended", "account", "blocked", "bound", "closed", "count", "expiry", "deferred"),
        "idle",
        *("journal", "key", "maker", "members", "suspensions", "messages", "name", "newest", "octets", "overflow"),
        *(
            "dispatcher",
            "paging",
            "parked",
            "paused",
            "quota",
            "returned",
            "ring",
            "arguments",
            "sample",
            "tally",
            "used",
            "window",
        ),
    )

    def __init__(
        self,
        name: str,
        key: str,
        bound: Bound,
        account: Account,
        journal: Journal | None,
        wall: Wall,
        on_drop: Callable[[Queue, Message, str], bool] | None = None,
        ranked: bool = False,
        quota: LoopQuota | None = None,
        window: Window | None = None,
    ) -> None:
        self.name = name
        self.key = key
        self.bound = bound
        self.account = account
        self.journal = journal
        self.quota = quota
        self.window = window
        self._on_drop = on_drop
        #: The session that made it.
        self.maker: Maker | None = None
        self.arguments: QueueArguments | None = None
        self.used: float | None = None  # the last time that it had a consumer
        self.messages = ReadyMessages(ranked)
        self.paging: Paging | None = None  # None while all READY messages are in memory
        self.expiry = Expiry(wall)
        #: Messages that wait for their time, by seq.
        self.deferred: dict[int, Message] = {}
        self.returned = Returned()
        #: All of these messages, their bytes, and the highest seq of a persistent one that was put.
        self.count = self.octets = self.newest = 0
        self.blocked: dict[Peer, None] = {}  # sessions that wait for room
        self.closed = False
        self.members: dict[Consumer, None] = {}  # all consumers, in order
        self.dispatcher: Dispatcher | None = None  # not None where consumers differ; then `ring` is empty
        #: The ring: consumers that had credit when they were last looked at. The first one is next. At most `_ended` of
        #: them have ended since; they have no credit.
        self.ring: list[Consumer] = []
        self._ended = 0
        #: The ring while nothing is delivered: until the next turn, the next batch of the store, or the end of a
        #: requeue. None while messages are delivered.
        self.parked: list[Consumer] | None = None
        #: Calls of `suspend` without their `go_on`; and whether one of them is an order to pause.
        self.suspensions, self.paused = 0, False
        self.tally = Tally()
        self.sample: object = None  # earlier counts, for the rates that `management` computes
        #: Called when the bound is passed. Returns whether the sender has to wait; None for one that always has to.
        self.overflow: Callable[[], bool] | None = None

    @property
    def may_be_selective(self) -> bool:
        """Consumers may differ. The queue of a topic's subscription has one consumer, whose selector was applied."""
        return self.overflow is None or self.arguments is not None

    def __repr__(self) -> str:
        ready, consumers = len(self.messages), len(self.members)
        return f"<Queue {self.name!r}: {ready} ready, {self.count} in all, {consumers} consumers>"

    def __str__(self) -> str:
        return f"{self.name} ({self.total} messages, {self.octets} bytes in memory, {len(self.members)} consumers)"

    @property
    def consumers(self) -> list[Consumer]:
        """All consumers, as a new list."""
        return list(self.members)

    @property
    def home(self) -> Queue:
        return self

    def seqs(self) -> set[int]:
        unacked = {message.seq for consumer in self.members for message in consumer.unacked.values()}
        return {message.seq for message in self.messages} | self.deferred.keys() | self.returned.held.keys() | unacked

    @property
    def pages(self) -> Line:
        """The place to wait for the next page."""
        return self.paging or self.quota or LoopQuota()

    @property
    def drops(self) -> bool:
        """Messages are dropped or refused above a length. All of such a queue is in memory."""
        return self.overflow is not None or (self.arguments is not None and self.arguments.is_bounded)

    def is_paged(self, message: Message) -> bool:
        """Return whether a message is READY in the store only."""
        return self.paging is not None and self.paging.is_paged(self.messages.rank(message), message.seq)

    # ---- limits ----
    @property
    def full(self) -> bool:
        """The bound is passed, or memory is short and the queue is one of the largest."""
        return self.is_full()

    def is_full(self) -> bool:
        """Return `full`, which compiled is quicker as a method."""
        bound, account = self.bound, self.account
        return (
            self.count > bound.messages
            or self.octets > bound.octets
            or (account.used > account.first and account.is_large(self.cost))
            or (self.paging is not None and self.total > bound.total)
        )

    @property
    def total(self) -> int:
        """The number of its messages, paged ones included."""
        return self.count if self.paging is None else self.count + self.paging.count

    def depth(self) -> tuple[int, int, int]:
        """Return how many messages are READY, UNACKED and scheduled."""
        ready, scheduled, paging = len(self.messages.line), len(self.deferred) + len(self.returned.held), self.paging
        unacked = self.count - ready - scheduled
        if paging is not None:
            ready += paging.count - paging.deferred
            scheduled += paging.deferred
        return ready, unacked, scheduled

    def delivered(self) -> int:
        """Return how many messages were delivered since the start."""
        count = self.tally.sent + self.tally.ended
        for each in self.members:
            if each.acks and not each.request.browser:
                count += each.last
        return count

    @property
    def cost(self) -> int:
        """Bytes of memory that the messages take."""
        return self.octets + self.count * MESSAGE

    @property
    def is_low(self) -> bool:
        """There is room for more than one message: waiting senders can go on."""
        low = self.bound.is_low(self.count, self.octets) and not self.account.is_large(self.cost, LOW)
        return low and (self.paging is None or self.total <= self.bound.total * LOW) and not self.catches_up

    @property
    def may_grow(self) -> bool:
        """The queue is within its bound, and memory is left for senders that cannot wait."""
        bound = self.bound
        within = self.count <= bound.messages and self.octets <= bound.octets
        return within and self.account.used <= self.account.second

    @property
    def is_too_large(self) -> bool:
        """Memory is short, and the queue is one of the largest."""
        return self.account.is_large(self.cost)

    @property
    def refuses(self) -> bool:
        """The queue has reached its x-max-length, and x-overflow says that SENDs are refused then."""
        arguments = self.arguments
        if arguments is None or not arguments.reject_publish:
            return False
        most, octets = arguments.max_length, arguments.max_length_bytes
        return (most is not None and self.count >= most) or (octets is not None and self.octets >= octets)

    def count_in(self, message: Message) -> None:
        self.count += 1
        self.octets += message.size
        self.account.use_messages(1, message.size)

    def count_out(self, count: int, octets: int) -> None:
        """Count messages that are gone, and let senders go on if there is room now."""
        if self.closed:
            return
        self.count -= count
        self.octets -= octets
        self.account.use_messages(-count, -octets)
        if self.blocked and self.is_low:
            self.release_blocked()

    def _count_sent(self, octets: int) -> None:
        """Count a delivery in auto mode of a message that was READY."""
        self.tally.sent += 1
        self.count_out(1, octets)

    @property
    def _is_behind(self) -> bool:
        """Senders of messages that are not persistent wait for the store, too."""
        spools = self.window is not None and self.window.spools and self.overflow is None
        return spools and self.journal is not None and self.journal.behind

    @property
    def catches_up(self) -> bool:
        """A few READY messages wait for the next turn only. Senders of stored messages wait until those have left: a
        turn delivers few of them beside active sessions, so that with more coming the queue would stay behind for good,
        and everything would have to be stored.
        """
        if self.count >= AT_ONCE or self.paging is not None or self.suspensions:
            return False
        return bool(self.parked or (self.ring and self.messages.line))

    def block(self, session: Peer) -> None:
        """Make a session wait for room."""
        if self._is_behind and self.journal is not None and not self.full:
            if session.block(self.journal):
                self.journal.blocked[session] = None
        elif session.block(self):
            self.blocked[session] = None
            self.account.wait(self)

    def release_blocked(self) -> None:
        """Let waiting senders go on: all at once, or some in each turn as long as there is room."""
        self.account.waiting.pop(self, None)
        if len(self.blocked) > AT_ONCE and self.quota is not None:
            self.quota.line_up(Work(self._releasing(self.quota)))
            return
        blocked, self.blocked = self.blocked, {}
        for session in blocked:
            session.unblock(self)

    def _releasing(self, quota: LoopQuota) -> Iterator[Line]:
        while self.blocked and (self.closed or self.is_low):
            for session in list(islice(self.blocked, AT_ONCE)):
                del self.blocked[session]
                session.unblock(self)
            yield quota
        if self.blocked:
            self.account.wait(self)

    def drop_oldest(self) -> bool:
        """Drop the oldest READY messages until the queue is not full. Return False: no sender has to wait."""
        while self.messages.line and self.full:
            message = self.messages.line.popleft()
            self.unstore((message,))
            self.count_out(1, message.size)
            self.tally.dropped += 1
            if self._on_drop is not None:
                self._on_drop(self, message, DROPPED)
        return False

    # ---- in ----
    def put_new(self, message: Message) -> bool:
        """Do what `put` does with a persistent SEND without special headers. If it is paged, this takes fewer steps."""
        paging, journal = self.paging, self.journal
        simple = self.dispatcher is None and self.arguments is None and self.overflow is None
        if paging is None or journal is None or self.ring or self.closed or not simple:
            return self.put(message)
        journal.append(self, message)
        self.newest = message.seq
        if not paging.take_new(self.messages.rank(message), message):
            return self.put(message, False, True)
        self.tally.put += 1
        return self.count + paging.count > self.bound.total or self._is_behind

    def put_committed(self, messages: list[Message]) -> bool:
        """Do what `put` does with plain messages that are stored, in order. Return False, having done nothing, unless
        all of them have to wait, and no sender has to.
        """
        paging, journal, count, latest = self.paging, self.journal, len(messages), messages[-1].seq
        simple = self.dispatcher is None and self.arguments is None and self.overflow is None
        if self.ring or self.closed or journal is None or not simple or self.total + count > self.bound.total:
            return False
        if paging is None:
            taken = self._make_ready(journal, messages)
        else:
            taken = not self._is_behind and paging.take_stored(self.messages.rank(messages[0]), messages)
        if taken:
            self.tally.put += count
            self.newest = max(self.newest, latest)
        return taken

    def _make_ready(self, journal: Journal, messages: list[Message]) -> bool:
        """Make the messages of `put_committed` READY, if there is room in memory."""
        bound, most, account = self.bound, self.window or self.bound, self.account
        count, octets = self.count + len(messages), sum([message.size for message in messages])
        cost = octets + len(messages) * MESSAGE
        octets += self.octets
        if count > min(bound.messages, most.messages) or octets > min(bound.octets, most.octets):
            return False
        last = self.messages.last(self.messages.rank(messages[0]))
        if account.used + cost > account.first or not self.messages.extend(messages):
            return False
        self.count, self.octets = count, octets
        account.use(cost)
        if messages[0].seq < last:
            journal.late(self, messages[0].seq)
        return True

    def put(self, message: Message, stored: bool = False, recorded: bool = False) -> bool:
        """Take a message that has its place in the order, and deliver it if a consumer can take it. Return whether its
        sender should wait. `stored`: it is in the store already. `recorded`: the journal has been told.
        """
        self.tally.put += 1
        if self.arguments is not None:
            self.stamp(message)
        if message.persistent and not (stored or recorded) and self.journal is not None:
            self.journal.append(self, message)
            self.newest = message.seq
        elif stored and message.seq > self.newest:
            self.newest = message.seq
        if self.paging is not None and message.persistent:
            self.paging.keep_out(self.messages.rank(message), message.seq)  # until it is paged
        if message.expires is not None:
            self.expiry.pending = True
            if (self.ring or self.dispatcher is not None) and self.is_expired(message):  # while its sender was paused
                self.count_in(message)
                self.expire(message)
                return False
        if message.group is not None and self.dispatcher is None and self.may_be_selective:
            self.make_selective()
            if self.paging is not None:  # the consumers now look for what is in the store only
                self.line_up()
        try:
            if self.ring:
                consumer = self.deliver(message)
            else:
                consumer = None if self.dispatcher is None else self.dispatcher.give(message)
        except Undelivered as failure:
            return failure.message is not None and self.enqueue(failure.message)
        if consumer is None:
            return self.enqueue(message, stored)
        if not consumer.acks:
            self.tally.sent += 1
            return False
        self.count_in(message)
        return self.is_full() and (self.overflow is None or self.overflow())

    def stamp(self, message: Message) -> None:
        """Set the expiry time of a new message to that of the queue's x-message-ttl, if it is earlier."""
        if self.arguments is not None and self.arguments.message_ttl is not None:
            expires = self.expiry.wall.after(self.arguments.message_ttl)
            message.expires = expires if message.expires is None else min(expires, message.expires)

    def enqueue(self, message: Message, stored: bool = False) -> bool:
        """Take a message that no consumer can take now, which may be `stored` already. Return whether its sender should
        wait.
        """
        if self.closed:
            return False
        window, account = self.window, self.account
        if (
            window is not None
            and (
                self.paging
                or self.count >= window.messages
                or self.octets >= window.octets
                or account.used > account.first
            )
            and leave_in_store(self, message, stored)
        ):
            return self.total > self.bound.total or self._is_behind
        self.add_ready(message)
        self.count_in(message)
        if not self.is_full():
            return bool(message.persistent) and not stored and self.catches_up
        if self.overflow is not None:
            return self.overflow()
        # If only memory is short, the next one is paged.
        return window is None or not message.persistent or self.drops or not self.is_too_large

    def put_plain(self, destination: str, ident: bytes, seq: int, tail: bytes) -> bool:
        """Take a message that is not persistent and has no special headers. Return whether its sender should wait."""
        ring = self.ring
        if ring:
            consumer = ring[0]
            outbox = consumer.outbox
            if consumer.direct and not consumer.acks and outbox.send_budget > 0 and consumer.credit > 0:
                return self._put_through(consumer, destination, ident, seq, tail)
        message = plain_message(ident, seq, self.name if destination == self.name else shared(destination), tail, False)
        return self.put(message) if self.dispatcher is None else self.dispatcher.give_plain(message)

    def _put_through(self, consumer: Consumer, destination: str, ident: bytes, seq: int, tail: bytes) -> bool:
        """Deliver a message to a consumer that acknowledges nothing, so that no record of it is needed."""
        try:
            consumer.outbox.deliver(head_of(consumer.before, ident, consumer.after, 0), tail, len(tail))
        except Exception as error:
            left = self.delivery_failed(consumer, Message(ident, seq, destination, tail), error)
            return left is not None and self.put(left)
        self.count_through()
        self._turn_ring()
        return False

    def count_through(self) -> None:
        """Count a message that came and was delivered in auto mode."""
        self.tally.put += 1
        self.tally.sent += 1

    def _turn_ring(self) -> None:
        """Make the first consumer of the ring the last one."""
        ring = self.ring
        if len(ring) > 1:
            ring.append(ring.pop(0))

    def defer(self, message: Message, stored: bool = False) -> None:
        """Take a message that becomes READY later."""
        if message.persistent and not stored and self.journal is not None:
            self.journal.append(self, message)
        self.deferred[message.seq] = message
        self.count_in(message)

    def may_leave(self, message: Message) -> bool:
        """Return whether a message may be in the store only."""
        return self.window is not None and bool(message.persistent) and not self.drops

    def leave_deferred(self, message: Message, stored: bool) -> None:
        """Leave a message that becomes READY later in the store."""
        assert self.journal is not None
        if self.deferred.pop(message.seq, None) is not None:
            self.count_out(1, message.size)
        elif not stored:
            self.journal.append(self, message)
            self.journal.charge(self.journal.batch, message.size + MESSAGE)  # until it is written
        if self.paging is None:
            self.paging = Paging(self, self.journal)
        self.paging.leave_deferred(message.seq)

    def has_left(self, seq: int) -> bool:
        """Return whether a deferred message is in the store only."""
        return self.paging is not None and seq not in self.deferred and self.paging.has_deferred(seq)

    def take_deferred(self, seq: int) -> None:
        """Count out a deferred message that was in the store only."""
        if self.paging is not None:
            self.paging.take_deferred(seq)

    def end_deferred(self) -> None:
        """Note that all deferred messages are in memory, or damaged."""
        if self.paging is not None:
            self.paging.end_deferred()

    def release(self, message: Message) -> bool:
        """Remove a deferred message that is due, to be put again. Return False if it is gone already."""
        if self.closed or self.deferred.pop(message.seq, None) is None:
            return False
        if message.persistent and self.journal is not None:
            self.journal.settle(self, message)
        self.count_out(1, message.size)
        return True

    def requeue(self, messages: list[Message]) -> None:
        """Requeue UNACKED messages in their old places, many of them a share in each turn."""
        self.returned.requeue(self, messages)

    def add_ready(self, message: Message) -> None:
        """Make a message READY that no consumer can take now."""
        self.messages.append(message)
        if self.dispatcher is not None:
            self.dispatcher.note(message)

    def came_late(self, seq: int) -> None:
        """Note that a message was put behind later ones."""
        self.messages.add_late(seq)

    def put_in_order(self) -> None:
        """Move messages that came late to their places."""
        self.messages.sort()

    # ---- out ----
    def deliver(self, message: Message) -> Consumer | None:
        """Deliver a message to the next consumer that can take it, and return that; None if none can. The hot road.
        Raise Undelivered if it could not be written to a consumer, and no other can take it now.
        """
        ring = self.ring
        while ring:
            consumer = ring[0]
            outbox = consumer.outbox
            if consumer.credit > 0 and outbox.send_budget > 0:
                break
            del ring[0]  # it comes back with credit, or with a new budget
            consumer.in_ring = False
            if outbox.send_budget <= 0:
                outbox.starved = True
        else:
            return None
        self._turn_ring()
        try:
            if consumer.direct and not message.special:
                consumer.write(message)
            else:
                consumer.send(message)
        except Exception as error:
            return self._deliver_elsewhere(consumer, message, error)
        if message.persistent and not consumer.acks and self.journal is not None:
            self.journal.remove(self.key, message)
        return consumer

    def dispatch(self, count: int = 0) -> int:
        """Deliver READY messages while consumers can take them and the store keeps up. Return how many.

        After a step of the quota, the rest wait for the next turn. `count` messages of this step were delivered before.
        """
        if self.parked is not None:
            if self.paging is not None:
                self.paging.refill()  # what was requeued may come before all that is paged
            return 0
        step, paging, messages, journal, began = FEW, self.paging, self.messages.line, self.journal, 0.0
        if self.dispatcher is None:
            while messages and self.ring:
                message = messages.popleft()
                if paging is not None and not paging.allows(self.messages.place(message)):
                    messages.appendleft(message)
                    break
                if count >= step and self.quota is not None:
                    began = began or self.quota.clock()
                    step = self.quota.step if message.persistent else self.quota.step_after(count, began)
                    if count >= step:
                        messages.appendleft(message)
                        self._wait(self.quota)
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
                    self.requeue_failed(message, failure.message)
                    continue
                if consumer is None:
                    messages.appendleft(message)
                    count -= 1
                    break
                if not consumer.acks:
                    self._count_sent(message.size)
        if self.dispatcher is not None:  # from the start, or because a consumer has failed
            count += self.dispatcher.serve_all()
        if self.paging is not None:
            self.paging.refill()
        return count

    def _wait(self, line: Line) -> None:
        """Deliver nothing until this queue has its turn in a line."""
        self._park()
        line.line_up(self)

    def _park(self) -> None:
        if self.parked is None:
            self.parked, self.ring = self.ring, []
            if self.dispatcher is not None:
                self.dispatcher.pause()

    def suspend(self) -> None:
        """Deliver nothing until `go_on`, because messages are being requeued."""
        self.suspensions += 1
        self._park()
        if self.blocked and self.is_low:
            self.release_blocked()

    def go_on(self) -> None:
        """Undo `suspend`."""
        self.suspensions -= 1
        self.take_turn(0.0)

    def pause(self, paused: bool) -> bool:
        """Pause deliveries, or resume them, by an order. Return False if nothing had to be done."""
        if paused is self.paused:
            return False
        self.paused = paused
        if paused:
            self.suspend()
        else:
            self.go_on_later()
        return True

    def line_up(self) -> None:
        """Go on with deliveries in the next turn."""
        if self.quota is None:
            self.take_turn(0.0)
        else:
            self.quota.line_up(self)

    def go_on_later(self) -> None:
        """Undo `suspend` in the next turn."""
        self.suspensions -= 1
        self.line_up()

    def take_turn(self, now: float) -> None:
        """Go on with the deliveries that had to wait."""
        if self.suspensions:
            return
        if self.parked is not None:
            self.ring, self.parked = self.parked, None
        if not self.closed:
            self.dispatch()
            if self.blocked and self.is_low:
                self.release_blocked()

    def take_one(self, consumer: Consumer, looked: Looked) -> bool | Wait:
        """Deliver the first suitable message to a consumer outside the ring, whatever its credit is.

        Only the first `MOST_LOOKS` messages are tried. Return False if none is suitable, WAIT if the first one has to
        be read from the store. Raise Refused if the message cannot be written to that consumer.
        """
        if self.paused:
            return False
        message = (
            self.make_selective().take_one(consumer, looked)
            if consumer.selector is not None or self.dispatcher
            else self._first()
        )
        if message is None:
            return False
        if isinstance(message, Wait):
            return message
        try:
            self.deliver_to(consumer, message)
        except Exception as error:
            self.requeue_failed(message, self.delivery_failed(consumer, message, error))
            raise Refused("the message could not be written", "This session cannot receive it.") from None
        if not consumer.acks:
            self._count_sent(message.size)
        return True

    def _first(self) -> Message | Wait | None:
        line, paging = self.messages.line, self.paging
        for _ in range(min(len(line), AT_ONCE)):
            message = line.popleft()
            if paging is not None and not paging.allows(self.messages.place(message)):
                line.appendleft(message)
                break
            if not self.is_expired(message):
                return message
            self.expire(message)
        return WAIT if paging is not None and paging.has_ready else None

    def offer(self, consumer: Consumer) -> int:
        """Put a consumer that has credit, or a send budget, into the ring again. Return how many messages went out."""
        if self.dispatcher is not None:
            count = self.dispatcher.offer(consumer)
            if self.paging is not None:
                self.paging.refill()
            return count
        if not consumer.in_ring and not consumer.closed:
            consumer.in_ring = True
            (self.ring if self.parked is None else self.parked).append(consumer)
        return self.dispatch() if self.messages.line or self.paging is not None else 0

    def add(self, consumer: Consumer) -> None:
        self.members[consumer] = None
        if self.dispatcher is not None:
            self.dispatcher.join(consumer)
        elif is_selective(consumer) and self.may_be_selective:
            self.make_selective()
        self.offer(consumer)

    def drop(self, consumer: Consumer) -> list[Message]:
        """Remove the consumer of a subscription that ends. Return its UNACKED messages, to be requeued even if none."""
        del self.members[consumer]
        if consumer.acks:
            self.tally.ended += consumer.last
        if self.dispatcher is not None:
            self.dispatcher.drop(consumer)
            self.make_plain()
        elif consumer.in_ring:
            consumer.in_ring = False
            self._ended += 1
            ring = self.ring if self.parked is None else self.parked
            if self._ended * _MOST_ENDED >= len(ring):
                ring[:] = [other for other in ring if other.in_ring]
                self._ended = 0
        return consumer.close()

    def deliver_to(self, consumer: Consumer, message: Message) -> None:
        """Deliver a message that has left READY to a given consumer."""
        consumer.send(message)
        if message.persistent and not consumer.acks and self.journal is not None:
            self.journal.remove(self.key, message)

    # ---- failed deliveries: see `faults.py` ----
    def delivery_failed(self, consumer: Consumer, message: Message, error: Exception) -> Message | None:
        """Note that a message cannot be written to a consumer, whose session ends with this turn. Return the message
        that the queue keeps in its place; None if it became a dead letter.
        """
        consumer.session.fault(self, message, error)
        if consumer.address is not None or self.closed:  # of a topic: the queue ends with its consumer
            return message
        left = with_fault(message, pair_of(consumer))
        if self._is_buried(left):
            return None
        self.make_selective().look_again(left)
        return left

    def _is_buried(self, message: Message) -> bool:
        """Make a dead letter of a message that has failed for too many users. Return False if it stays."""
        if not is_undeliverable(message) or self._on_drop is None or not self._on_drop(self, message, UNDELIVERABLE):
            return False
        if message.persistent and self.journal is not None:
            self.journal.settle(self, message)
        return True

    def _deliver_elsewhere(self, consumer: Consumer, message: Message, error: Exception) -> Consumer:
        """Deliver a message to another consumer than the one that failed. Raise Undelivered if no other can take it
        now.
        """
        left = self.delivery_failed(consumer, message, error)
        other = None if left is None or self.dispatcher is None else self.dispatcher.give(left)
        if other is None:
            raise Undelivered(left)
        return other

    def requeue_failed(self, message: Message, left: Message | None) -> None:
        """Requeue what `delivery_failed` left of a message, which is still counted."""
        if left is None:
            self.count_out(1, message.size)
        elif self.closed:
            self.unstore((left,))
        elif self.dispatcher is None:
            self.messages.put_back([left])
        else:
            self.add_ready(left)

    def undeliver(self, consumer: Consumer, message: Message, error: Exception) -> None:
        """Undo the delivery of a large message whose file cannot be read. Without ACKs, leave it to salvage."""
        if not consumer.acks and self.journal is not None:
            self.journal.set_aside(self.key, message, left=True)
        if not consumer.undeliver(message):
            return
        if message.body is not None and message.body.damaged:
            self._set_aside(message)
        else:
            self.requeue_failed(message, self.delivery_failed(consumer, message, error))

    def _set_aside(self, message: Message) -> None:
        """Remove a message whose body is damaged. A stored one stays in the store, for salvage."""
        self.count_out(1, message.size)
        if self.journal is not None:
            self.journal.set_aside(self.key, message)

    def make_selective(self) -> Dispatcher:
        """Return the dispatcher, made if need be: from now on consumers may have different messages."""
        if self.dispatcher is None:
            self.dispatcher = Dispatcher(self, self.messages.indexed())
            ring = self.ring if self.parked is None else self.parked
            self.dispatcher.begin(self.members, (consumer for consumer in ring if consumer.in_ring))
            self.ring, self._ended = [], 0
            if self.parked is not None:
                self.parked = []
                self.dispatcher.pause()
        return self.dispatcher

    def make_plain(self) -> None:
        """Remove the dispatcher if a plain queue will do. Call `requeue` or `dispatch` afterwards."""
        if self.dispatcher is not None and not self.dispatcher.is_needed:
            ring, self.dispatcher = self.dispatcher.end(), None
            if self.parked is None:
                self.ring = ring
            else:
                self.parked = ring
            self.messages.simplify()

    # ---- settle, expire, end ----
    def settle(self, deliveries: Sequence[Delivery], stored: bool = False) -> None:
        """Remove acknowledged messages, which were UNACKED. `stored`: the store has removed them already."""
        octets = 0
        for _tag, message in deliveries:
            octets += message.size
            if message.persistent and not stored and self.journal is not None and not self.closed:
                self.journal.settle(self, message)
        self.count_out(len(deliveries), octets)

    def remove(self, message: Message) -> None:
        """Remove a message that is READY still, for a browser that acknowledges it."""
        if self.take_out(message):
            if message.persistent and self.journal is not None:
                self.journal.settle(self, message)
            self.count_out(1, message.size)

    def take_out(self, message: Message) -> bool:
        """Remove a message that is READY, in memory or in the store only. Return False if it is not."""
        if self.messages.indexed().remove(message) is not None:
            return True
        return self.paging is not None and self.paging.take_out(self.messages.rank(message), message)

    def load(self, message: Message) -> None:
        """Take a message that the store had kept."""
        if message.due is not None:
            self.defer(message, stored=True)
            return
        if message.group is not None:
            self.make_selective()
        self.add_ready(message)
        self.expiry.pending = self.expiry.pending or message.expires is not None
        self.count_in(message)

    def unsettle(self, messages: list[Message]) -> None:
        """Undo `settle`, which could not be stored: requeue the messages."""
        if not self.closed:
            for message in messages:
                self.count_in(message)
                if self.paging is not None:
                    self.paging.keep_out(self.messages.rank(message), message.seq)
            self.requeue(messages)

    def sweep(self, now: float) -> None:
        """Remove expired messages, and the dispatcher if a plain queue will do. To be called now and then."""
        if self.dispatcher is not None and self.dispatcher.has_faults:
            self._sweep_faults(self.dispatcher)
        if not self.messages.line and self.dispatcher is None:
            self.messages.simplify()
        self.expiry.sweep(self, now)
        if self.paging is not None:
            self.paging.sweep(bool(self.members))

    def _sweep_faults(self, dispatcher: Dispatcher) -> None:
        """Make the dead letters for which there was no room before."""
        for message in dispatcher.failed_messages():
            if is_undeliverable(message) and not self.is_expired(message) and self._is_buried(message):
                dispatcher.backlog.remove(message)
                self.count_out(1, message.size)
        if not dispatcher.has_faults:
            self.make_plain()
            self.dispatch()

    def is_expired(self, message: Message) -> bool:
        return message.expires is not None and self.expiry.wall.is_over(message.expires)

    def expire(self, message: Message) -> None:
        """Drop an expired message, which has left READY."""
        if message.persistent and self.journal is not None:
            self.journal.remove(self.key, message)
        self.count_out(1, message.size)
        self.tally.expired += 1
        if self._on_drop is not None:
            self._on_drop(self, message, EXPIRED)

    def withdraw(self, messages: list[Message]) -> None:
        """Remove messages that could not be stored, unless a consumer has them."""
        numbers = {message.seq for message in messages}
        gone = self.messages.take_last(numbers)
        gone += [self.deferred.pop(seq) for seq in numbers & self.deferred.keys()]
        self.count_out(len(gone), sum(message.size for message in gone))
        if self.paging is None:
            return
        back = [message for message in messages if message.persistent == SPOOLED and self.is_paged(message)]
        out = {message.seq for message in gone}
        for message in messages:
            if message.seq not in out:
                self.paging.withdraw(self.messages.rank(message), message)
        for message in back:  # they stay in memory
            message.persistent = False
            self.add_ready(message)
            self.count_in(message)
            self.came_late(message.seq)
        self.put_in_order()

    def unstore(self, messages: Iterable[Message]) -> None:
        """Remove messages from the store that will not be delivered."""
        for message in messages:
            if message.persistent and self.journal is not None:
                self.journal.remove(self.key, message)

    def stores(self, message: Message) -> Sequence[Queue]:
        """Return the queues that store a message: this one, or none."""
        if self.arguments is not None:
            self.stamp(message)
        return (self,) if message.persistent and self.journal is not None else ()

    def holders(self) -> Sequence[Queue]:
        """Return the queues that could block a sender for ever, if only its own ACKs make room there."""
        return (self,)

    def close(self) -> None:
        """End the queue, and forget its messages."""
        self.release_blocked()
        self.account.use(-self.cost)
        self.closed = True
        self.messages = ReadyMessages(False)
        if self.paging is not None:
            self.paging.end()
        self.deferred, self.returned = {}, Returned()
        self.count = self.octets = 0

    def delete(self, done: Callable[[], object] = lambda: None) -> bool:
        """End the queue and remove its messages from the store. Return True if that goes on in later turns; `done` is
        called at its end.
        """
        messages, paging = [*self.messages, *self.deferred.values(), *self.returned.held.values()], self.paging
        self.close()
        if (len(messages) > AT_ONCE or paging is not None) and self.quota is not None:
            self.quota.line_up(Work(self._unstoring(messages, paging, self.quota, done)))
            return True
        self.unstore(messages)
        return False

    def _unstoring(
        self, messages: list[Message], paging: Paging | None, quota: LoopQuota, done: Callable[[], object]
    ) -> Iterator[Line]:
        while messages:
            some = messages[-AT_ONCE:]
            del messages[-AT_ONCE:]
            self.unstore(some)
            if messages or paging is not None:
                yield quota if self.journal is None else self.journal.line
        if paging is not None:
            yield from paging.clear()
        done()
