"""Delayed: messages with a delay, which come into their queue or topic when they are due.

A persistent message is stored while it waits. When it is due it takes a new place behind all messages that came
meanwhile, so that the seqs of a queue only rise, as its readers by seq expect. Those that are due last are in the store
only: see `later.py`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from operator import itemgetter

from stompcodec.broker.connections import Peer
from stompcodec.broker.errors import Refused
from stompcodec.broker.loop_quota import AT_ONCE
from stompcodec.broker.memory import DELAY, LOW, MESSAGE, Account
from stompcodec.broker.message import Message
from stompcodec.broker.queues.limits import Window
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.queues.scheduling import make_due
from stompcodec.broker.routing.later import Later
from stompcodec.broker.routing.retained import RetainTarget
from stompcodec.broker.routing.topic import Topic
from stompcodec.broker.storage.journal import Journal

#: The least seconds until the next look: the wall clock is coarser than the timer, and may stand still.
_LEAST = 0.001

#: What a delayed message is for, when it is due.
_Find = Callable[[], Queue | Topic | RetainTarget | None]
#: When a message is due, a unique number, the message, a function that finds its queue or topic, and its bytes if it
#: may be left in the store, else 0. A queue has its deferred messages itself, so that they end with it: here are their
#: seqs.
_Entry = tuple[float, int, Message | int, _Find, int]


class Delayed:
    """The delayed messages of a broker, at most `most` in memory. `place` gives a message its message-id and its place
    in the order. `window` bounds those in memory that may be left in the store of the journal.
    """

    __slots__ = (
        *("_account", "_heap", "_later", "_most", "_number", "_place", "_stored", "_stored_octets", "_wall", "blocked"),
        *("cost",),
    )

    def __init__(
        self,
        account: Account,
        wall: Callable[[], float],
        place: Callable[[Message], None],
        most: int,
        journal: Journal,
        window: Window,
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
        self._heap: list[_Entry] = []
        #: The number of entries whose messages may be left in the store, and their bytes.
        self._stored = self._stored_octets = 0
        self._later = Later(journal, window, self._is_low, self._load)

    def __len__(self) -> int:
        return len(self._heap)

    def __str__(self) -> str:
        return f"delayed messages for topics ({self.cost} bytes)"

    @property
    def wait(self) -> float | None:
        """Seconds until the next message is due; None if none waits, or before it has been read from the store."""
        if not self._heap or self._later.reading or self._heap[0][0] > self._later.horizon:
            return None
        return max(_LEAST, self._heap[0][0] - self._wall())

    def check_room(self, count: int) -> None:
        """Raise Refused if this many more messages may not wait. At the limit, forget those whose queue has ended."""
        if len(self._heap) + count > self._most:
            self._keep([entry for entry in self._heap if not _is_gone(entry[2], entry[3])])
        if len(self._heap) + count > self._most:
            raise Refused("too many delayed messages", "Send them when they are due, or later than now.")

    def defer(
        self,
        message: Message,
        target: Queue | Topic | RetainTarget,
        find: _Find,
        stored: bool = False,
    ) -> bool:
        """Take a message that has its place in the order, but is not due. Return whether its sender should wait.

        `find` returns its queue or topic when the message is due, because topics come and go meanwhile. `stored`: the
        message is in the store already.
        """
        assert message.due is not None
        if not isinstance(target, Queue):
            self.cost += message.size + MESSAGE
            self._account.used += message.size + MESSAGE
            self._add(message.due, message, find)
            return self.is_too_large
        if message.due >= self._later.horizon and target.may_leave(message):
            self._later.put(target, message, message.due, stored)
            self._later.refill()
            return target.total > target.bound.total
        target.defer(message, stored)
        self._add(message.due, message.seq, find, message.size if target.may_leave(message) else 0)
        return target.full

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
        if queue.paging is not None and queue.paging.deferred:
            self._later.begin(queue)
        for message in queue.deferred.values():
            self._load(queue, message)

    def _load(self, queue: Queue, message: Message) -> None:
        assert message.due is not None
        self._add(message.due, message.seq, lambda: queue, message.size if queue.may_leave(message) else 0)

    def _add(self, due: float, message: Message | int, find: _Find, octets: int = 0) -> None:
        self._number += 1
        self._account.used += DELAY
        heapq.heappush(self._heap, (due, self._number, message, find, octets))
        if octets:
            self._stored += 1
            self._stored_octets += octets
            most = self._later.window
            too_many = self._stored > most.messages + min(most.messages, AT_ONCE)
            if (too_many or self._stored_octets > 2 * most.octets) and not self._later.reading:
                self._leave_last()

    def _is_low(self) -> bool:
        """Few messages are left in memory before those in the store."""
        if not self._heap or self._heap[0][0] > self._later.horizon:
            return True
        most = self._later.window
        return self._stored <= most.messages // 2 and self._stored_octets <= most.octets // 2

    def _leave_last(self) -> None:
        """Leave those that are due last in the store."""
        most, count, octets = self._later.window, 0, 0
        kept: list[_Entry] = []
        for entry in sorted(self._heap, key=itemgetter(0, 1)):
            due, _, seq, find, size = entry
            count, octets = count + bool(size), octets + size
            if not size or count == 1 or (count <= most.messages and octets <= most.octets):
                kept.append(entry)
                continue
            queue = find()
            if isinstance(queue, Queue) and isinstance(seq, int) and seq in queue.deferred:
                self._later.put(queue, queue.deferred[seq], due, True)
        self._keep(kept)

    def _keep(self, entries: list[_Entry]) -> None:
        """Forget the other entries."""
        self._account.used -= (len(self._heap) - len(entries)) * DELAY
        heapq.heapify(entries)
        self._heap = entries
        self._stored = sum(entry[4] > 0 for entry in entries)
        self._stored_octets = sum(entry[4] for entry in entries)

    def sweep(self) -> None:
        """Read again what could not be read. To be called now and then."""
        self._later.sweep()

    def release(self) -> None:
        """Put the messages that are due."""
        if self._later.reading:  # the page could have them
            return
        self._release()
        self._later.refill()

    def _release(self) -> None:
        now = min(self._wall(), self._later.horizon)
        for _ in range(AT_ONCE):  # the rest at the next call
            if not self._heap or self._heap[0][0] > now:
                break
            _due, _number, message, find, octets = heapq.heappop(self._heap)
            self._account.used -= DELAY
            self._stored -= octets > 0
            self._stored_octets -= octets
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


def _is_gone(message: Message | int, find: _Find) -> bool:
    """Return whether a message could not be stored, or ended with its queue."""
    target = find() if isinstance(message, int) else None
    return isinstance(target, Queue) and message not in target.deferred
