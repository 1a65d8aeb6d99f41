"""Messages that come back or go: expired ones, and those that are requeued, at once or after a pause."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from math import inf
from operator import attrgetter
from typing import Protocol

from stompcodec.broker.loop_quota import AT_ONCE, Line, LoopQuota, Work
from stompcodec.broker.message import Message
from stompcodec.broker.queues.dispatcher import Contents, Dispatcher, Undelivered
from stompcodec.broker.queues.paging import ReadyMessages
from stompcodec.broker.storage.journal import Journal
from stompcodec.broker.storage.store import Place, TimedPage
from stompcodec.errors import StoreError


class Home(Contents, Protocol):
    """A queue, as its returned messages see it. `Queue` says what each member means."""

    @property
    def closed(self) -> bool: ...
    @property
    def dispatcher(self) -> Dispatcher | None: ...
    @property
    def key(self) -> str: ...
    @property
    def messages(self) -> ReadyMessages: ...
    def add_ready(self, message: Message) -> None: ...
    def dispatch(self) -> int: ...
    def go_on(self) -> None: ...
    def make_selective(self) -> Dispatcher: ...
    def suspend(self) -> None: ...
    def unstore(self, messages: Iterable[Message]) -> None: ...


class Returned:
    """The returned messages of one queue."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        #: Messages that wait for their next attempt, by seq.
        self.held: dict[int, Message] = {}

    def requeue(self, queue: Home, messages: list[Message]) -> None:
        """Requeue UNACKED messages in their old places, many of them a share in each turn."""
        if queue.closed:
            queue.unstore(messages)
        elif len(messages) > AT_ONCE and queue.quota is not None:
            queue.suspend()
            queue.quota.line_up(Work(self._requeuing(queue, messages, queue.quota)))
        else:
            self._requeue(queue, messages)
            queue.dispatch()

    def _requeuing(self, queue: Home, messages: list[Message], quota: LoopQuota) -> Iterator[Line]:
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

    def hold(self, queue: Home, messages: list[Message]) -> list[Message]:
        """Take back UNACKED messages that wait for their next attempt, and return them as they will be delivered."""
        back = _again(queue, messages)
        self.held.update((message.seq, message) for message in back)
        return back

    def resume(self, queue: Home, seqs: list[int]) -> None:
        """Make messages READY whose time for the next attempt has come, if they are still there."""
        back = [self.held.pop(seq) for seq in seqs if seq in self.held]
        if back:
            self._put_back(queue, back)
            queue.dispatch()

    def _requeue(self, queue: Home, messages: list[Message]) -> None:
        self._put_back(queue, _again(queue, messages))

    def _put_back(self, queue: Home, back: list[Message]) -> None:
        if any(message.group is not None or message.faults for message in back):
            queue.make_selective()
        dispatcher = queue.dispatcher
        if dispatcher is not None:
            for message in sorted(back, key=dispatcher.backlog.place):
                self._requeue_one(queue, dispatcher, message)
        elif back:
            queue.messages.put_back(back)

    def _requeue_one(self, queue: Home, dispatcher: Dispatcher, message: Message) -> None:
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
            queue.tally.count_sent()
            queue.count_out(1, message.size)


def _again(queue: Home, messages: list[Message]) -> list[Message]:
    """Count an attempt of each message."""
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


class Swept(Contents, Protocol):
    """A queue, as its expiry sees it."""

    @property
    def closed(self) -> bool: ...
    @property
    def messages(self) -> ReadyMessages: ...


class Expiry:
    """The expired messages of one queue, by the time in seconds since 1970 (`wall`)."""

    __slots__ = ("_next", "pending", "wall")

    def __init__(self, wall: Callable[[], float]) -> None:
        self.wall = wall
        #: A message with an expiry time has come since the last sweep, or was left by it.
        self.pending = False
        #: Time of the next sweep, in seconds.
        self._next = 0.0

    def sweep(self, queue: Swept, now: float) -> None:
        """Remove the expired messages, if there may be any. A long queue is swept rarely, a share in each turn."""
        if self.pending and now >= self._next:
            Work(self._sweep(queue, now)).take_turn(now)

    def _sweep(self, queue: Swept, now: float) -> Iterator[Line]:
        messages, wall, quota = deque(queue.messages), self.wall(), queue.quota
        length, others = len(messages), False
        found: list[int] = []
        self._next, self.pending = inf, False  # new messages set it again
        while messages:
            for _ in range(min(_LOOKS, len(messages))):
                message = messages.popleft()
                if message.expires is not None:
                    if message.expires <= wall:
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
    """The expired messages of all queues that are in the store only.

    Args:
        journal: of the queues.
        wall: returns the time in seconds since 1970.
    """

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

    def _read(self, after: Place) -> None:
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

    def _go_on(self, after: Place) -> Iterator[Line]:
        yield self._journal.line
        self._read(after)
