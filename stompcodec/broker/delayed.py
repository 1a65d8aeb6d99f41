"""Delayed: messages that wait for their time, outside of what is READY, and then come into their queue or topic.

A persistent one is stored while it waits. When its time has come it takes a new place, behind all that came meanwhile:
so the seqs of a queue only rise, for whoever reads it by them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from stompcodec.broker.marks import timely
from stompcodec.broker.message import Message, Refused
from stompcodec.broker.queue import Queue
from stompcodec.broker.retained import Retaining
from stompcodec.broker.topic import Topic

if TYPE_CHECKING:
    from stompcodec.broker.bounds import Pool

__all__ = ["Delayed"]


#: Seconds between two looks, at least: the clock on the wall does not go as fine as the timer, and may stand still.
_LEAST = 0.001
#: Seconds until the next attempt, if the disk was at fault when a message was due.
_PAUSE = 1.0


class Delayed:
    """All messages of a broker that wait.

    Args:
        pool: the octets of all queues; what waits for a topic counts there.
        wall: the time in seconds since 1970.
        place: gives a message its message-id and its place in the order.
        most: messages that may wait.

    >>> from stompcodec.broker.bounds import Pool
    >>> Delayed(Pool(1000), lambda: 0.0, print, 10).wait is None
    True
    """

    __slots__ = ("_heap", "_most", "_number", "_place", "_pool", "_wall")

    def __init__(self, pool: Pool, wall: Callable[[], float], place: Callable[[Message], None], most: int) -> None:
        self._pool = pool
        self._wall = wall
        self._place = place
        self._most = most
        self._number = 0
        #: When, a number that makes it different from all others, what, and where it goes. A queue holds its messages
        #: itself, so that they go with it: here are their seqs.
        self._heap: list[tuple[float, int, Message | int, Callable[[], Queue | Topic | Retaining | None]]] = []

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def wait(self) -> float | None:
        """Seconds until something is due; None if nothing waits."""
        return max(_LEAST, self._heap[0][0] - self._wall()) if self._heap else None

    def check_room(self, count: int) -> None:
        """Whether so many more may wait. When in doubt, what has gone with its queue is forgotten.

        Raises:
            Refused: they may not.
        """
        if len(self._heap) + count > self._most:
            self._heap = [entry for entry in self._heap if not _is_gone(entry[2], entry[3])]
            heapq.heapify(self._heap)
        if len(self._heap) + count > self._most:
            raise Refused("too many delayed messages", "Send them when they are due, or later than now.")

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
        assert message.due is not None
        self._add(message.due, message.seq if isinstance(sink, Queue) else message, find)
        return sink.full if isinstance(sink, Queue) else self._pool.full

    def add_all(self, queue: Queue) -> None:
        """What a queue has held since before the broker was started anew."""
        for message in queue.held.values():
            assert message.due is not None
            self._add(message.due, message.seq, lambda: queue)

    def _add(self, due: float, message: Message | int, find: Callable[[], Queue | Topic | Retaining | None]) -> None:
        self._number += 1
        heapq.heappush(self._heap, (due, self._number, message, find))

    def _retry(self, seq: int, queue: Queue, committed: bool) -> None:
        """If the disk was at fault, the queue holds the message again: by its old place, it would be passed over."""
        if not committed:
            self._add(self._wall() + _PAUSE, seq, lambda: queue)

    def release(self) -> None:
        """What is due takes effect."""
        now = self._wall()
        while self._heap and self._heap[0][0] <= now:
            _due, _number, message, find = heapq.heappop(self._heap)
            sink = find()
            if isinstance(message, int):
                held = sink.held.get(message) if isinstance(sink, Queue) else None
                if held is None or not isinstance(sink, Queue) or not sink.let_go(held):
                    continue  # it could not be stored, or the queue is gone
                if held.persistent and sink.journal is not None:
                    sink.journal.batch.actions.append(partial(self._retry, message, sink))
                message = held
            else:
                self._pool.octets -= message.size
            if sink is not None:
                fresh = timely(message)
                self._place(fresh)
                sink.put(fresh)


def _is_gone(message: Message | int, find: Callable[[], Queue | Topic | Retaining | None]) -> bool:
    """It could not be stored, or went with its queue."""
    sink = find() if isinstance(message, int) else None
    return isinstance(sink, Queue) and message not in sink.held
