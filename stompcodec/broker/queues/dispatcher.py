"""What a queue does beyond handing on READY messages in order.

Dispatcher: delivery where not every consumer may have every message. Consumers differ by selector, priority, the
exclusive flag, and the message groups that they own. As in every queue, no consumer in the ring can take a READY
message. To keep that without searching a long queue again and again, each consumer remembers how far it has looked:
about one look per message and consumer.

Returned and Expiry: messages that are requeued, at once or after a pause, and those that expire.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter
from typing import Protocol

from stompcodec.broker.loop_quota import AT_ONCE, FEW, Line, LoopQuota, Wall, Work
from stompcodec.broker.message import Message, Pair
from stompcodec.broker.queues.backlog import START, Backlog, Looked, Place, Wait
from stompcodec.broker.queues.consumer import Consumer
from stompcodec.broker.queues.paging import PagedQueue, Paging
from stompcodec.broker.queues.ready import Tally
from stompcodec.broker.storage.journal import Journal
from stompcodec.broker.storage.store import Place as TimedPlace
from stompcodec.broker.storage.store import TimedPage
from stompcodec.errors import StoreError

#: The reason of the dead letter.
UNDELIVERABLE = "undeliverable"
#: A message that fails for this many users is itself at fault.
_MOST_USERS = 3


class Undelivered(Exception):
    """A delivery failed, and no consumer can take what the queue keeps: `message`; None for a dead letter."""

    def __init__(self, message: Message | None) -> None:
        super().__init__()
        self.message = message


def pair_of(consumer: Consumer) -> Pair:
    """Return the user and the version of a consumer. Without configured users, all sessions are one user."""
    return consumer.session.owner or "", consumer.session.version


def is_barred(consumer: Consumer, message: Message) -> bool:
    """Return whether a message has failed for the user and the version of this consumer."""
    return pair_of(consumer) in message.faults


def is_undeliverable(message: Message) -> bool:
    """Return whether a message has failed for enough users to be at fault itself.

    >>> from stompcodec.broker.message import with_fault
    >>> message = Message(b"m-1", 1, "/queue/a", b"\\n\\0")
    >>> for pair in (("ada", "1.0"), ("ada", "1.1"), ("bob", "1.0"), ("eve", "1.2")):
    ...     message = with_fault(message, pair)
    ...     print(is_undeliverable(message))
    False
    False
    False
    True
    """
    return len({user for user, _version in message.faults}) >= _MOST_USERS


class Ring:
    """Consumers by priority, highest first; those of one priority in the order in which they were added.

    Adding, removing and moving one takes constant time.

    >>> ring = Ring()
    >>> len(ring), ring.first is None
    (0, True)
    """

    __slots__ = ("_count", "_ranks", "_turns")

    def __init__(self) -> None:
        #: The consumers of each rank, which is the negative priority.
        self._turns: dict[int, OrderedDict[Consumer, None]] = {}
        #: The ranks, rising.
        self._ranks: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Consumer]:
        """Iterate over the consumers. The ring must not change meanwhile."""
        for rank in self._ranks:
            yield from self._turns[rank]

    @property
    def first(self) -> Consumer | None:
        """The first consumer of the highest priority; None in an empty ring."""
        return next(iter(self._turns[self._ranks[0]])) if self._ranks else None

    def add(self, consumer: Consumer) -> None:
        """Add a consumer behind the others of its priority."""
        rank = -consumer.request.priority
        turn = self._turns.get(rank)
        if turn is None:
            turn = self._turns[rank] = OrderedDict()
            insort(self._ranks, rank)
        turn[consumer] = None
        self._count += 1

    def remove(self, consumer: Consumer) -> None:
        rank = -consumer.request.priority
        turn = self._turns[rank]
        del turn[consumer]
        self._count -= 1
        if not turn:
            del self._turns[rank], self._ranks[bisect_left(self._ranks, rank)]

    def move(self, consumer: Consumer) -> None:
        """Move a consumer behind the others of its priority."""
        self._turns[-consumer.request.priority].move_to_end(consumer)


#: Messages that a consumer looks at in one turn.
MOST_LOOKS = 1000
#: Places to look at again that are remembered one by one. With more, the consumer goes back to the first of them.
_MOST_REVISITED = 1000
#: Groups are hashed to this many places, which bounds memory. The groups of a place have the same consumer.
_PLACES = 4096


class Contents(PagedQueue, Protocol):
    """A queue, as this file sees it. `Queue` says what each member means."""

    dispatcher: Dispatcher | None
    parked: list[Consumer] | None
    tally: Tally

    def put(self, message: Message, stored: bool = False) -> bool: ...
    def enqueue(self, message: Message) -> bool: ...
    def take_out(self, message: Message) -> bool: ...
    def requeue_failed(self, message: Message, left: Message | None) -> None: ...
    def deliver_to(self, consumer: Consumer, message: Message) -> None: ...
    def delivery_failed(self, consumer: Consumer, message: Message, error: Exception) -> Message | None: ...
    def is_expired(self, message: Message) -> bool: ...
    def count_out(self, count: int, octets: int) -> None: ...
    def count_through(self) -> None: ...
    def add_ready(self, message: Message) -> None: ...
    def dispatch(self) -> int: ...
    def go_on(self) -> None: ...
    def make_selective(self) -> Dispatcher: ...
    def unstore(self, messages: Iterable[Message]) -> None: ...


class Watcher(Protocol):
    """A browser, or one who walks through the queue, as the dispatcher sees it."""

    @property
    def page_cost(self) -> int:
        """Bytes of memory that its page takes."""

    def note(self, message: Message) -> None:
        """Note a message that has become READY."""

    def forget(self, seqs: set[int]) -> None:
        """Drop the copies of messages that are gone."""


@dataclass(eq=False, slots=True)
class _Cursor:
    """The progress of one consumer through the READY messages."""

    #: The lowest seq that it takes.
    least: int
    #: The epoch of the dispatcher for which this holds. In a later one the consumer starts over.
    epoch: int
    #: It cannot take the messages up to this place, except for those in `revisit`.
    place: Place = START
    revisit: set[Place] = field(default_factory=set)
    #: It is in the ring, and has looked at all READY messages.
    at_end: bool = False

    def note(self, place: Place) -> None:
        """Note the place of a message that has become READY."""
        if self.at_end:  # `give` asked its consumer
            self.place = max(self.place, place)
        elif place <= self.place:
            self.revisit.add(place)
            if len(self.revisit) > _MOST_REVISITED:
                rank, seq = min(self.revisit)
                self.place = rank, seq - 1
                self.revisit.clear()

    def note_paged(self, place: Place) -> None:
        """Note the place of a message that has become READY in the store only."""
        if self.at_end:
            self.place = max(self.place, place)
        elif place <= self.place:
            self.place = place[0], place[1] - 1

    def next(self, backlog: Backlog, paging: Paging | None) -> Message | Wait | None:
        """Return the next message to look at; None after the last, `WAIT` if it must be read first."""
        while self.revisit:
            place = min(self.revisit)
            self.revisit.remove(place)
            message = backlog.at(place)
            if message is not None:
                return message
        message = backlog.after(self.place)
        if paging is not None:
            found = paging.next(self.place, message, None if message is None else backlog.place(message))
            if isinstance(found, Wait):
                return found
            message = found
        if message is not None:
            self.place = backlog.place(message)
        return message


class Dispatcher:
    """The consumers of a selective queue, and the READY messages (`backlog`) that each may have."""

    __slots__ = (
        *("_at_end", "_cursors", "_epoch", "_exclusive", "_failed", "_grouped", "_holder", "_mine", "_owners"),
        *("_passed", "_queue", "_ring", "_selective", "backlog", "browsers", "only_consumer"),
    )

    def __init__(self, queue: Contents, backlog: Backlog) -> None:
        self._queue = queue
        self.backlog = backlog
        self.browsers: dict[Watcher, None] = {}
        #: Higher priorities first, then the consumer that has waited longest.
        self._ring = Ring()
        self._cursors: dict[Consumer, _Cursor] = {}
        #: Changes when all consumers have to look at all messages again.
        self._epoch = 0
        #: Consumers in the ring that have looked at all READY messages.
        self._at_end = 0
        #: The number of selective consumers, and the exclusive ones.
        self._selective = 0
        self._exclusive = Ring()
        #: The only consumer in the ring, if only its selector and its send budget matter; None if that is unknown.
        #: Invariant: whatever changes the ring resets it.
        self.only_consumer: Consumer | None = None
        #: The exclusive consumer that gets all messages.
        self._holder: Consumer | None = None
        #: The owner of each place of groups, the places of each owner, and the places that others have passed over.
        self._owners: dict[int, Consumer] = {}
        self._mine: dict[Consumer, set[int]] = {}
        #: Messages of groups have been READY, perhaps of a group without an owner.
        self._grouped = False
        self._passed: set[int] = set()
        #: Places of messages whose delivery has failed, also of some that have left.
        self._failed: set[Place] = set()

    # ---- consumers ----
    def begin(self, consumers: Iterable[Consumer], ring: Iterable[Consumer]) -> None:
        """Take over the consumers of the queue.

        If any is in the ring, no message is READY, so they have looked at all; unless one has just failed.
        """
        for consumer in consumers:
            self._add(consumer)
        is_empty = not self.backlog and self._queue.paging is None
        for consumer in ring:
            self._ring.add(consumer)
            self._cursors[consumer].at_end = is_empty
        self._at_end = len(self._ring) if is_empty else 0
        self._choose()

    def end(self) -> list[Consumer]:
        """Return the ring, for a plain queue without browsers."""
        return list(self._ring)

    def join(self, consumer: Consumer) -> None:
        self._add(consumer)
        self._choose()

    def _add(self, consumer: Consumer) -> None:
        self._cursors[consumer] = _Cursor(_least(consumer), self._epoch)
        self._selective += is_selective(consumer)
        if consumer.request.exclusive:
            self._exclusive.add(consumer)

    def leave(self, consumer: Consumer) -> None:
        """Take a consumer out of the ring: it has ended, or has no credit or send budget for now."""
        self.only_consumer = None
        if consumer.in_ring:
            consumer.in_ring = False
            self._ring.remove(consumer)
        cursor = self._cursor(consumer)
        if cursor is not None and cursor.at_end:
            cursor.at_end = False
            self._at_end -= 1

    def _cursor(self, consumer: Consumer) -> _Cursor | None:
        """Return the progress of a consumer; None if it is not known here."""
        cursor = self._cursors.get(consumer)
        if cursor is not None and cursor.epoch != self._epoch:
            cursor.place, cursor.at_end, cursor.epoch = START, False, self._epoch
            cursor.revisit.clear()
        return cursor

    def drop(self, consumer: Consumer) -> None:
        """Remove a consumer: messages that were reserved for it go to others."""
        self.leave(consumer)
        if self._cursors.pop(consumer, None) is not None:
            self._selective -= is_selective(consumer)
            if consumer.request.exclusive:
                self._exclusive.remove(consumer)
        mine = self._mine.pop(consumer, ())
        for place in mine:
            del self._owners[place]
        if mine:
            self._start_over()
        self._choose()

    @property
    def is_needed(self) -> bool:
        """A plain queue would not do: there are browsers, groups, selective consumers or failed messages."""
        return bool(self.browsers or self._owners or self._grouped or self._selective) or bool(
            self._failed and self.failed_messages()
        )

    def look_again(self, message: Message) -> None:
        """Let others look at a message that has failed for the consumer it was reserved for."""
        owner = None if message.group is None else self._owners.get(place_of(message.group))
        if any(keeper is not None and is_barred(keeper, message) for keeper in (self._holder, owner)):
            self._start_over()

    @property
    def has_faults(self) -> bool:
        """Messages may be READY whose delivery has failed."""
        return bool(self._failed)

    def failed_messages(self) -> list[Message]:
        """Return the READY messages whose delivery has failed."""
        found = [message for place in self._failed if (message := self.backlog.at(place)) is not None]
        self._failed = {self.backlog.place(message) for message in found}
        return found

    def _choose(self) -> None:
        """Make the first exclusive consumer of the highest priority the holder."""
        holder = self._exclusive.first
        if holder is not self._holder:
            self._holder = holder
            self._start_over()

    def _start_over(self) -> None:
        """Make all consumers look at all messages again. Each notices when it looks, because there may be many."""
        self._passed.clear()
        self._epoch += 1
        self._at_end = 0

    # ---- deliver ----
    def give(self, message: Message) -> Consumer | None:
        """Deliver a new or requeued message, and return its consumer; None if no consumer can take it now. Raise
        Undelivered if it could not be written to a consumer, and no other can take it now.
        """
        has_failed = False
        if self._queue.parked is not None:
            return None
        while True:
            ring, cursors, epoch = self._ring, self._cursors, self._epoch
            unable = []
            for consumer in ring if self._holder is None or message.faults else [self._holder]:
                cursor = cursors[consumer]
                if not cursor.at_end or cursor.epoch != epoch:
                    continue
                if (consumer.credit <= 0 or consumer.outbox.send_budget <= 0) and not self._is_able(consumer):
                    unable.append(consumer)
                elif self._may(consumer, message):
                    break
            else:
                consumer = None
            for other in unable:
                self.leave(other)
            if consumer is None:
                break
            try:
                if len(ring) > 1 or message.group is not None or message.persistent:
                    self._deliver_to(consumer, message)
                else:  # most
                    consumer.send(message)
                    if consumer.direct_selective:
                        self.only_consumer = consumer
                return consumer
            except Exception as error:
                left = self._queue.delivery_failed(consumer, message, error)
                self.leave(consumer)
                if left is None:
                    raise Undelivered(None) from None
                message, has_failed = left, True
        if has_failed:
            raise Undelivered(message)
        return None

    def give_plain(self, message: Message) -> bool:
        """Take a plain message by the shortest road to the only consumer. Return whether its sender should wait."""
        consumer = self.only_consumer
        if consumer is None:
            return self._queue.put(message)
        selector = consumer.selector
        if consumer.outbox.send_budget <= 0 or selector is None:
            return self._queue.put(message)
        try:
            if not selector.matches(message):
                self._queue.tally.put += 1
                return self._queue.enqueue(message)
            consumer.write(message)
        except Exception as error:
            left = self._queue.delivery_failed(consumer, message, error)
            self.leave(consumer)
            return left is not None and self._queue.put(left)
        self._queue.count_through()
        return False

    def note(self, message: Message) -> None:
        """Note a message that has become READY, because `give` found no consumer."""
        place = self.backlog.place(message)
        self._grouped = self._grouped or message.group is not None
        if message.faults:
            self._failed.add(place)
        for cursor in self._cursors.values():
            if cursor.epoch == self._epoch:
                cursor.note(place)
        for browser in self.browsers:
            browser.note(message)

    def note_paged(self, message: Message) -> None:
        """Note a message that is READY in the store only, because `give` found no consumer."""
        place = self.backlog.place(message)
        self._grouped = self._grouped or message.group is not None
        for cursor in self._cursors.values():
            if cursor.epoch == self._epoch:
                cursor.note_paged(place)
        for browser in self.browsers:
            browser.note(message)

    def forget(self, seqs: set[int]) -> None:
        """Have browsers drop the copies of messages that are gone."""
        for browser in self.browsers:
            browser.forget(seqs)

    def pause(self) -> None:
        """Note that deliveries pause: the ring will not have looked at the messages that come meanwhile."""
        self.only_consumer = None
        self._at_end = 0
        for consumer in self._ring:
            cursor = self._cursor(consumer)
            if cursor is not None:
                cursor.at_end = False

    def offer(self, consumer: Consumer) -> int:
        """Serve a consumer that has credit and a send budget. Return how many messages it looked at."""
        if consumer.closed or consumer not in self._cursors:
            return 0
        if not consumer.in_ring:
            self.only_consumer = None
            consumer.in_ring = True
            self._ring.add(consumer)
        return self._serve(consumer)

    def serve_all(self) -> int:
        """Deliver READY messages to the consumers in the ring. Return how many messages they looked at."""
        count, quota = 0, self._queue.quota
        most = MOST_LOOKS if quota is None else min(MOST_LOOKS, quota.step)
        if self._holder is not None:
            count = self._serve(self._holder)
        if (self._holder is None or self._failed) and self._at_end < len(self._ring):
            for consumer in list(self._ring):
                count += self._serve(consumer)
                if count >= 2 * most and self._queue.quota is not None:  # the other consumers have the next turn
                    self._queue.quota.line_up(self._queue)
                    break
        return count

    def _serve(self, consumer: Consumer) -> int:
        cursor, queue = self._cursor(consumer), self._queue
        if cursor is None or cursor.at_end or not consumer.in_ring or queue.parked is not None:
            return 0
        if self._holder not in (None, consumer) and not self._failed:
            return 0
        journal, quota, most = queue.journal, queue.quota, MOST_LOOKS
        for count in range(MOST_LOOKS):
            if count == FEW and quota is not None:
                most = min(most, quota.step)
            if count == most:
                break
            if not self._is_able(consumer):
                self.leave(consumer)
                return count
            if journal is not None and journal.is_full and journal.store is not None and len(self.backlog):
                journal.line_up(queue)
                return count
            message = cursor.next(self.backlog, queue.paging)
            if isinstance(message, Wait):
                return count
            if message is None:
                cursor.at_end = True
                self._at_end += 1
                return count
            if queue.is_expired(message):
                self._queue.take_out(message)
                queue.expire(message)
                continue
            try:
                if not self._may(consumer, message):
                    continue
                self._queue.take_out(message)
                self._deliver_to(consumer, message)
            except Exception as error:
                self._queue.take_out(message)
                self.leave(consumer)
                queue.requeue_failed(message, queue.delivery_failed(consumer, message, error))
                return count
            if not consumer.acks:
                queue.tally.sent += 1
                queue.count_out(1, message.size)
        consumer.outbox.starved = True  # served again in the next turn
        consumer.session.broker.resume(consumer.session)
        return most

    def take_one(self, consumer: Consumer, looked: Looked) -> Message | Wait | None:
        """Remove and return the first message that a consumer outside the ring may have; `WAIT` if it must be read
        first. Then call this again, to look on.
        """
        while looked.count < MOST_LOOKS:
            message = self._behind(looked.place)
            if message is None or isinstance(message, Wait):
                return message
            looked.count, looked.place = looked.count + 1, self.backlog.place(message)
            if self._queue.is_expired(message):
                self._queue.take_out(message)
                self._queue.expire(message)
            elif self._may(consumer, message):
                self._queue.take_out(message)
                return message
        return None

    def _behind(self, place: Place) -> Message | Wait | None:
        """Return the first READY message behind a place; `WAIT` if it must be read first."""
        message, paging = self.backlog.after(place), self._queue.paging
        if paging is None:
            return message
        return paging.next(place, message, None if message is None else self.backlog.place(message))

    def _is_able(self, consumer: Consumer) -> bool:
        if consumer.outbox.send_budget <= 0:
            consumer.outbox.starved = True
            return False
        return consumer.credit > 0

    def _may(self, consumer: Consumer, message: Message) -> bool:
        if message.faults and is_barred(consumer, message):
            return False
        holder = self._holder
        if holder is not None and consumer is not holder and not (message.faults and is_barred(holder, message)):
            return False
        cursor = self._cursors.get(consumer)  # `least` holds in any epoch
        selector = consumer.selector
        if cursor is not None and message.seq < cursor.least:
            return False
        if selector is not None and not selector.matches(message):
            return False
        if message.group is None:
            return True
        place = place_of(message.group)
        owner = self._owners.get(place)
        if owner is None or owner is consumer:
            return True
        if self._never_gets(owner, message):
            return True
        self._passed.add(place)
        return False

    def _deliver_to(self, consumer: Consumer, message: Message) -> None:
        if consumer.in_ring and len(self._ring) > 1:  # behind others of its priority
            self._ring.move(consumer)
        self._queue.deliver_to(consumer, message)
        if message.group is not None and consumer in self._cursors:
            self._own(consumer, message)

    @staticmethod
    def _never_gets(owner: Consumer, message: Message) -> bool:
        """Return whether the owner of a group cannot take one of its messages, so that others may."""
        if message.faults and is_barred(owner, message):
            return True
        return owner.selector is not None and not owner.selector.matches(message)

    def _own(self, consumer: Consumer, message: Message) -> None:
        """Note that a consumer owns the group of its message, until the last message of the group."""
        assert message.group is not None
        place = place_of(message.group)
        if not message.closes_group:
            if self._owners.setdefault(place, consumer) is consumer:
                self._mine.setdefault(consumer, set()).add(place)
        elif self._owners.get(place) is consumer:
            del self._owners[place]
            self._mine[consumer].discard(place)
            if place in self._passed:  # others may have its later messages
                mine = self._cursor(consumer)
                passed = self._passed - {place}
                self._start_over()
                self._passed = passed
                if mine is not None:
                    mine.epoch = self._epoch
                    self._at_end = int(mine.at_end)
                for other in self._ring:
                    if not other.outbox.starved:
                        other.outbox.starved = True
                        other.session.broker.resume(other.session)


def is_selective(consumer: Consumer) -> bool:
    """Return whether a consumer may not simply take the next message."""
    request = consumer.request
    return bool(consumer.selector is not None or request.exclusive or request.priority or request.from_seq)


def place_of(group: bytes) -> int:
    """Return the place of a group.

    >>> 0 <= place_of(b"orders") < 4096
    True
    """
    return zlib.crc32(group) % _PLACES


def _least(consumer: Consumer) -> int:
    """Return the lowest seq that a consumer takes."""
    least = consumer.request.from_seq or 0
    return least if least >= 0 else consumer.session.broker.seq + 1


class Returned:
    """The returned messages of one queue."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        #: Messages that wait for their next attempt, by seq.
        self.held: dict[int, Message] = {}

    def requeue(self, queue: Contents, messages: list[Message]) -> None:
        """Requeue UNACKED messages in their old places, many of them a share in each turn."""
        if queue.closed:
            queue.unstore(messages)
        elif len(messages) > AT_ONCE and queue.quota is not None:
            queue.suspend()
            queue.quota.line_up(Work(self._requeuing(queue, messages, queue.quota)))
        else:
            self._requeue(queue, messages)
            queue.dispatch()

    def _requeuing(self, queue: Contents, messages: list[Message], quota: LoopQuota) -> Iterator[Line]:
        """Requeue the last messages first, so that each has its place in front. The queue is parked meanwhile."""
        messages = sorted(messages, key=attrgetter("seq"))
        while messages:
            some = messages[-AT_ONCE:]
            del messages[-AT_ONCE:]
            if queue.closed:
                queue.unstore(some)
            else:
                self._requeue(queue, some)
            if messages:
                yield quota
        queue.go_on()

    def hold(self, queue: Contents, messages: list[Message]) -> list[Message]:
        """Take back UNACKED messages that wait for their next attempt, and return them as they will be delivered."""
        back = _again(queue, messages)
        self.held.update((message.seq, message) for message in back)
        return back

    def resume(self, queue: Contents, seqs: list[int]) -> None:
        """Make messages READY whose time for the next attempt has come, if they are still there."""
        back = [self.held.pop(seq) for seq in seqs if seq in self.held]
        if back:
            self._put_back(queue, back)
            queue.dispatch()

    def _requeue(self, queue: Contents, messages: list[Message]) -> None:
        self._put_back(queue, _again(queue, messages))

    def _put_back(self, queue: Contents, back: list[Message]) -> None:
        if any(message.group is not None or message.faults for message in back):
            queue.make_selective()
        dispatcher = queue.dispatcher
        if dispatcher is not None:
            for message in sorted(back, key=dispatcher.backlog.place):
                self._requeue_one(queue, dispatcher, message)
        elif back:
            queue.messages.put_back(back)

    def _requeue_one(self, queue: Contents, dispatcher: Dispatcher, message: Message) -> None:
        if queue.is_expired(message):
            queue.expire(message)
            return
        try:
            consumer = dispatcher.give(message)
        except Undelivered as failure:
            queue.requeue_failed(message, failure.message)
            return
        if consumer is None:
            queue.add_ready(message)
        elif not consumer.acks:
            queue.tally.sent += 1
            queue.count_out(1, message.size)


def _again(queue: Contents, messages: list[Message]) -> list[Message]:
    back = [message.again() for message in messages]
    queue.tally.redelivered += len(back)
    if queue.journal is not None:
        for message in back:
            if message.persistent:
                queue.journal.update(queue.key, message)
    return back


#: Messages that are looked at in one turn. To look at one takes a fifth of what it takes to deliver it.
_LOOKS = 5 * AT_ONCE
#: Seconds between two sweeps of a queue, at least, and for each message in it.
_LEAST, _EACH = 1.0, 1e-5


class Expiry:
    """The expired messages of one queue, by the time in seconds since 1970 (`wall`)."""

    __slots__ = ("_next", "pending", "wall")

    def __init__(self, wall: Wall) -> None:
        self.wall = wall
        #: A message with an expiry time has come since the last sweep, or was left by it.
        self.pending = False
        #: Time of the next sweep, in seconds.
        self._next = 0.0

    def sweep(self, queue: Contents, now: float) -> None:
        """Remove the expired messages, if there may be any. A long queue is swept rarely, a share in each turn."""
        if self.pending and now >= self._next:
            Work(self._sweep(queue, now)).take_turn(now)

    def _sweep(self, queue: Contents, now: float) -> Iterator[Line]:
        messages, is_over, quota = deque(queue.messages), self.wall.is_over, queue.quota
        length, others = len(messages), False
        found: list[int] = []
        self._next, self.pending = inf, False  # new messages set it again
        while messages:
            for _ in range(min(_LOOKS, len(messages))):
                message = messages.popleft()
                if message.expires is not None:
                    if is_over(message.expires):
                        found.append(message.seq)
                    else:
                        others = True
            if length > AT_ONCE and quota is not None:
                yield quota
        for at in range(0, len(found), AT_ONCE):
            for message in [] if queue.closed else queue.messages.take_seqs(set(found[at : at + AT_ONCE])):
                queue.expire(message)
            if length > AT_ONCE and quota is not None:
                yield quota if queue.journal is None else queue.journal.line
        self.pending = self.pending or others
        self._next = now + max(_LEAST, length * _EACH)


class PagedExpiry:
    """The expired messages of all queues that are in the store only. `wall` returns the time in seconds since 1970."""

    def __init__(self, journal: Journal, wall: Callable[[], float]) -> None:
        self._journal = journal
        self._wall = wall
        self._going_on = False
        #: When this sweep began, the messages that it has looked at, and when the next may begin.
        self._now, self._looks, self._next = 0.0, 0, 0.0

    def sweep(self, now: float) -> None:
        """Remove those that have expired, a page in each commit of the store. To be called now and then."""
        if self._journal.paged and not self._going_on and now >= self._next:
            self._now, self._looks = now, 0
            self._read(())

    def _read(self, after: TimedPlace) -> None:
        self._going_on = True
        self._journal.expired(self._wall(), after, self._take)

    def _take(self, page: TimedPage | StoreError) -> None:
        self._going_on = False
        if isinstance(page, StoreError):  # they are read again at the next sweep
            return
        for stored in page.messages:
            paging = self._journal.paged.get(stored.queue)
            if paging is not None:
                paging.expire(stored)
        self._looks += len(page.messages) if page.after is None else AT_ONCE
        self._next = self._now + self._looks * _EACH
        if page.after is not None:
            self._going_on = True
            self._journal.quota.line_up(Work(self._go_on(page.after)))

    def _go_on(self, after: TimedPlace) -> Iterator[Line]:
        yield self._journal.line
        self._read(after)
