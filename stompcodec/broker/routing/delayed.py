"""Delayed: messages with a delay, which come into their queue or topic when they are due.

A persistent message is stored while it waits. When it is due it takes a new place behind all messages that came
meanwhile: so the seqs of a queue only rise, as its readers by seq expect.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from stompcodec.broker.errors import Refused
from stompcodec.broker.loop_quota import AT_ONCE
from stompcodec.broker.memory import DELAY, LOW, MESSAGE, Account
from stompcodec.broker.message import Message
from stompcodec.broker.peer import Peer
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.queues.scheduling import make_due
from stompcodec.broker.routing.retained import RetainTarget
from stompcodec.broker.routing.topic import Topic

#: The least seconds until the next look: the wall clock is coarser than the timer, and may stand still.
_LEAST = 0.001


class Delayed:
    """The delayed messages of a broker, at most `most`. `place` gives a message its message-id and its place in the
    order.

    >>> from stompcodec.broker.memory import Account
    >>> Delayed(Account(1000), lambda: 0.0, print, 10).wait is None
    True
    """

    __slots__ = ("_account", "_heap", "_most", "_number", "_place", "_wall", "blocked", "cost")

    def __init__(
        self, account: Account, wall: Callable[[], float], place: Callable[[Message], None], most: int
    ) -> None:
        self._account = account
        self._wall = wall
        self._place = place
        self._most = most
        #: Bytes of delayed messages for topics.
        self.cost = 0
        #: Sessions that wait until these are fewer bytes.
        self.blocked: dict[Peer, None] = {}
        self._number = 0
        #: When a message is due, a unique number, the message, and a function that finds its queue or topic. A queue
        #: has its deferred messages itself, so that they end with it: here are their seqs.
        self._heap: list[tuple[float, int, Message | int, Callable[[], Queue | Topic | RetainTarget | None]]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def __str__(self) -> str:
        return f"delayed messages for topics ({self.cost} bytes)"

    @property
    def wait(self) -> float | None:
        """Seconds until the next message is due; None if none waits."""
        return max(_LEAST, self._heap[0][0] - self._wall()) if self._heap else None

    def check_room(self, count: int) -> None:
        """Raise Refused if this many more messages may not wait. At the limit, forget those whose queue has ended."""
        if len(self._heap) + count > self._most:
            before = len(self._heap)
            self._heap = [entry for entry in self._heap if not _is_gone(entry[2], entry[3])]
            heapq.heapify(self._heap)
            self._account.used -= (before - len(self._heap)) * DELAY
        if len(self._heap) + count > self._most:
            raise Refused("too many delayed messages", "Send them when they are due, or later than now.")

    def defer(
        self,
        message: Message,
        target: Queue | Topic | RetainTarget,
        find: Callable[[], Queue | Topic | RetainTarget | None],
        stored: bool = False,
    ) -> bool:
        """Take a message that has its place in the order, but is not due. Return whether its sender should wait.

        `find` returns its queue or topic when the message is due, because topics come and go meanwhile. `stored`: the
        message is in the store already.
        """
        if isinstance(target, Queue):
            target.defer(message, stored)
        else:
            self.cost += message.size + MESSAGE
            self._account.used += message.size + MESSAGE
        assert message.due is not None
        self._add(message.due, message.seq if isinstance(target, Queue) else message, find)
        return target.full if isinstance(target, Queue) else self.is_too_large

    @property
    def is_too_large(self) -> bool:
        """Memory is short, and the delayed messages for topics take too much of it."""
        return self._account.is_large(self.cost)

    @property
    def is_low(self) -> bool:
        """There is room for more than one message: waiting senders can go on."""
        return not self._account.is_large(self.cost, LOW)

    def block(self, session: Peer) -> None:
        """Make a session wait for room."""
        if session.block(self):
            self.blocked[session] = None
            self._account.wait(self)

    def release_blocked(self) -> None:
        """Let waiting senders go on."""
        self._account.waiting.pop(self, None)
        blocked, self.blocked = self.blocked, {}
        for session in blocked:
            session.unblock(self)

    def add_all(self, queue: Queue) -> None:
        """Take the deferred messages of a queue that the store had kept."""
        for message in queue.deferred.values():
            assert message.due is not None
            self._add(message.due, message.seq, lambda: queue)

    def _add(self, due: float, message: Message | int, find: Callable[[], Queue | Topic | RetainTarget | None]) -> None:
        self._number += 1
        self._account.used += DELAY
        heapq.heappush(self._heap, (due, self._number, message, find))

    def release(self) -> None:
        """Put the messages that are due."""
        now = self._wall()
        for _ in range(AT_ONCE):  # the rest at the next call
            if not self._heap or self._heap[0][0] > now:
                break
            _due, _number, message, find = heapq.heappop(self._heap)
            self._account.used -= DELAY
            target = find()
            if isinstance(message, int):
                deferred = target.deferred.get(message) if isinstance(target, Queue) else None
                if deferred is None or not isinstance(target, Queue) or not target.release(deferred):
                    continue  # it could not be stored, or the queue is gone
                fresh = make_due(deferred)
                self._place(fresh)
                target.put(fresh)
                if target.journal is not None:
                    target.journal.move(target, deferred, target, fresh)
                continue
            else:
                self.cost -= message.size + MESSAGE
                self._account.used -= message.size + MESSAGE
            if target is not None:
                fresh = make_due(message)
                self._place(fresh)
                target.put(fresh)


def _is_gone(message: Message | int, find: Callable[[], Queue | Topic | RetainTarget | None]) -> bool:
    """Return whether a message could not be stored, or ended with its queue."""
    target = find() if isinstance(message, int) else None
    return isinstance(target, Queue) and message not in target.deferred
