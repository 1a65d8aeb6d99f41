"""Delayed: messages that wait for their time, outside of what is READY, and then come into their queue or topic.

A persistent one is stored while it waits. When its time has come it takes a new place, behind all that came meanwhile:
so the seqs of a queue only rise, for whoever reads it by them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING

from stompcodec.broker.marks import timely
from stompcodec.broker.message import Message
from stompcodec.broker.queue import Queue
from stompcodec.broker.retained import Retaining
from stompcodec.broker.topic import Topic

if TYPE_CHECKING:
    from stompcodec.broker.bounds import Pool

__all__ = ["Delayed"]


#: Seconds between two looks, at least: the clock on the wall does not go as fine as the timer, and may stand still.
_LEAST = 0.001


class Delayed:
    """All messages of a broker that wait.

    Args:
        pool: the octets of all queues; what waits for a topic counts there.
        wall: the time in seconds since 1970.
        place: gives a message its message-id and its place in the order.

    >>> from stompcodec.broker.bounds import Pool
    >>> Delayed(Pool(1000), lambda: 0.0, print).wait is None
    True
    """

    __slots__ = ("_heap", "_number", "_place", "_pool", "_wall")

    def __init__(self, pool: Pool, wall: Callable[[], float], place: Callable[[Message], None]) -> None:
        self._pool = pool
        self._wall = wall
        self._place = place
        self._number = 0
        #: When, a number that makes it different from all others, what, and where it goes.
        self._heap: list[tuple[float, int, Message, Callable[[], Queue | Topic | Retaining | None]]] = []

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def wait(self) -> float | None:
        """Seconds until something is due; None if nothing waits."""
        return max(_LEAST, self._heap[0][0] - self._wall()) if self._heap else None

    def hold(
        self,
        message: Message,
        sink: Queue | Topic | Retaining,
        find: Callable[[], Queue | Topic | Retaining | None],
        stored: bool = False,
    ) -> bool:
        """Take a message that is not due. True: the bound is passed, so whoever sent it should wait.

        Args:
            message: it has its place in the order.
            sink: where it goes.
            find: the sink when it is due: topics come and go meanwhile.
            stored: it is in the store already.
        """
        if isinstance(sink, Queue):
            sink.hold(message, stored)
        else:
            self._pool.octets += message.size
        self._add(message, find)
        return sink.full if isinstance(sink, Queue) else self._pool.full

    def add_all(self, queue: Queue) -> None:
        """What a queue has held since before the broker was started anew."""
        for message in queue.held.values():
            self._add(message, lambda: queue)

    def _add(self, message: Message, find: Callable[[], Queue | Topic | Retaining | None]) -> None:
        assert message.due is not None
        self._number += 1
        heapq.heappush(self._heap, (message.due, self._number, message, find))

    def release(self) -> None:
        """What is due takes effect."""
        now = self._wall()
        while self._heap and self._heap[0][0] <= now:
            _due, _number, message, find = heapq.heappop(self._heap)
            sink = find()
            if isinstance(sink, Queue):
                if not sink.let_go(message):
                    continue  # it could not be stored, or the queue is gone
            else:
                self._pool.octets -= message.size
            if sink is not None:
                fresh = timely(message)
                self._place(fresh)
                sink.put(fresh)
