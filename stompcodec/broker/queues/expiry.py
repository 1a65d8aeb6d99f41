"""Expiry: when expired messages are looked for, and how they are removed without keeping the loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from math import inf
from typing import Protocol

from stompcodec.broker.loop_quota import AT_ONCE, Line, Work
from stompcodec.broker.queues.dispatcher import Contents
from stompcodec.broker.queues.ready_messages import ReadyMessages
from stompcodec.broker.storage.journal import Journal
from stompcodec.broker.storage.store import Place, TimedPage
from stompcodec.errors import StoreError

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
