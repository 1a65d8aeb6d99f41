"""Delayed: messages with a delay, which come into their queue or topic when they are due.

A persistent message is stored while it waits. When it is due it takes a new place behind all messages that came
meanwhile, so that the seqs of a queue only rise, as its readers by seq expect. Those that are due last are in the store
only: see `later.py`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf
from operator import itemgetter

from stompcodec.broker.connections import Peer
from stompcodec.broker.loop_quota import AT_ONCE, Wall
from stompcodec.broker.memory import DELAY, LOW, MESSAGE, Account, Part
from stompcodec.broker.message import Message, make_due
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.queues.ready import Window
from stompcodec.broker.routing.topic import Topic
from stompcodec.broker.settings import Address, Pattern
from stompcodec.broker.storage.journal import Journal
from stompcodec.broker.storage.store import Place, TimedPage
from stompcodec.broker.values import Refused
from stompcodec.errors import StoreError


class Later:
    """The delayed messages of all queues that are in the store only, but for `window` of them. `low` returns whether so
    few are in memory that the next ones must be read; `take` gets a message that has come into memory, and its queue.
    """

    __slots__ = (
        *("_damaged", "_journal", "_least", "_low", "_queues", "_take", "_waits", "horizon", "reading", "window"),
    )

    def __init__(
        self, journal: Journal, window: Window, low: Callable[[], bool], take: Callable[[Queue, Message], None]
    ) -> None:
        self._journal = journal
        self.window = window
        self._low = low
        self._take = take
        #: No message that is in the store only is due before this time.
        self.horizon = inf
        #: The queues that have such messages, by their keys.
        self._queues: dict[str, Queue] = {}
        #: Damaged messages that were counted out, by queue and seq.
        self._damaged: set[tuple[str, int]] = set()
        #: A page is being read; meanwhile none may be released, because the page may have it.
        self.reading = False
        #: The earliest due time of messages that the page being read may lack.
        self._least = inf
        #: The next page is read after a commit, or at the next sweep.
        self._waits = False

    def begin(self, queue: Queue) -> None:
        """Note a queue whose delayed messages the store has kept."""
        self._queues[queue.key] = queue
        self.horizon = -inf

    def put(self, queue: Queue, message: Message, due: float, stored: bool) -> None:
        """Leave a message in the store. If it is due before the horizon, the horizon moves there."""
        self._queues[queue.key] = queue
        self.horizon, self._least = min(self.horizon, due), min(self._least, due)
        queue.leave_deferred(message, stored)

    def sweep(self) -> None:
        """Retry a read that has failed. To be called now and then."""
        self._waits = False
        self.refill()

    def refill(self) -> None:
        """Read the next page, if few are left in memory."""
        if self.reading or self._waits or not self._queues or not self._low():
            return
        batches = [batch for batch in (self._journal.busy, self._journal.batch) if batch is not None]
        dues = (message.due for batch in batches for _, message in batch.put if message.due is not None)
        self._least = min((due for due in dues if due >= self.horizon), default=inf)
        leaving = any(message.due is not None for batch in batches for _, message, _, _ in batch.moved)
        if leaving or self._least <= self.horizon:  # the page could have what has left, or lack what is first
            self._wait()
        else:
            self._read(())

    def _wait(self) -> None:
        self._waits = True
        self._journal.watch(self.sweep)

    def _read(self, after: Place) -> None:
        self.reading = True
        self._journal.deferred(after, min(self.window.messages, AT_ONCE), self.window.octets, self._turn_over)

    def _turn_over(self, page: TimedPage | StoreError) -> None:
        """Take a page that was read."""
        self.reading = False
        if isinstance(page, StoreError):
            self._waits = True
            return
        self._count_out(page)
        new, upto = self._load(page)
        if not new and upto == inf and page.after is not None:  # all were in memory, of queues that ended, or damaged
            self._read(page.after)
            return
        last = page.messages[-1].due if page.after is not None and page.messages else None
        self.horizon = min(upto, self._least, inf if last is None else last)
        if self.horizon == inf:
            for queue in self._queues.values():
                queue.end_deferred()
            self._queues.clear()
        elif upto <= self.horizon:
            self._wait()
        self.refill()

    def _count_out(self, page: TimedPage) -> None:
        """Count out damaged messages, once, so that only missing ones are left at the end."""
        for place in page.damaged:
            queue = self._queues.get(place[0])
            if queue is not None and place not in self._damaged:
                self._damaged.add(place)
                queue.take_deferred(place[1])

    def _load(self, page: TimedPage) -> tuple[bool, float]:
        """Bring messages into memory. Return whether there were any, and when the first is due that must stay."""
        new, horizon = False, self._journal.horizon
        for stored in page.messages:
            assert stored.due is not None
            queue = self._queues.get(stored.queue)
            if queue is None or not queue.has_left(stored.seq):
                continue
            if horizon is not None and stored.seq >= horizon:  # its transaction has not taken effect
                return new, stored.due
            try:
                found = self._journal.messages([stored])
            except StoreError:
                return new, stored.due
            new = True
            queue.take_deferred(stored.seq)
            for message in found:
                message.due = stored.due  # the header has only milliseconds
                queue.defer(message, stored=True)
                self._take(queue, message)
        return new, inf


#: Values of the header `retain`.
ACTIONS = ("set", "remove")


class Retained:
    """The retained messages of a virtual host, at most `most`, which take at most `part` of the account.

    `make` makes the queue for a topic from its name and that part. `words` returns the words of an address, as patterns
    match them.
    """

    def __init__(
        self, make: Callable[[str, Part], Queue], words: Callable[[str, str], tuple[str, ...]], most: int, part: Part
    ) -> None:
        self._make = make
        self._words = words
        self._most = most
        self.part = part
        #: The queues, and the words of the topics, by the name of the topic.
        self.queues: dict[str, Queue] = {}
        self._split: dict[str, tuple[str, ...]] = {}
        #: Names of topics whose message waits for the store.
        self._expecting: set[str] = set()

    def target(self, action: str, address: Address, topic: Topic | None) -> RetainTarget:
        """Return the target of a SEND with the header `retain`. Raise Refused if it is invalid or without room."""
        if action not in ACTIONS:
            raise Refused("unknown value of retain", "retain is set or remove.")
        if action == "set" and not self._has_room(address.name):
            raise Refused("too many retained messages", "Remove some by retain:remove.")
        return RetainTarget(self, action, address, topic)

    def _has_room(self, name: str) -> bool:
        """Return whether there is room for a message that replaces that of the same topic. Removes empty queues."""
        queue = self.queues.get(name)
        if queue is None and len(self.queues) >= self._most:
            self.sweep()
        if (queue is None and len(self.queues) >= self._most) or self.part.is_full:
            return False
        others = self.part.used - (0 if queue is None else queue.cost)
        if others >= self.part.limit:  # which includes the fixed cost of messages; the bound does not
            others = sum(other.octets for other in self.queues.values() if other is not queue)
        return others < self.part.limit

    def queue(self, address: Address, must: bool = False) -> Queue:
        """Return the queue of a topic, made if need be. Without room, it is closed, unless it `must` be made."""
        queue = self.queues.get(address.name)
        if queue is None:
            has_room = must or self._has_room(address.name)
            queue = self._make(address.name, self.part)
            if not has_room:
                queue.close()
                return queue
            self.queues[address.name] = queue
            self._split[address.name] = self._words(address.prefix, address.rest)
        return queue

    def expect(self, address: Address) -> Queue:
        """Return the queue for a message that the store is to write. It stays until then, though it is empty."""
        queue = self.queue(address)
        if not queue.closed:
            self._expecting.add(address.name)
        return queue

    def set(self, address: Address, message: Message, stored: bool) -> None:
        """Retain a message instead of the previous one, if there is room: it may have been in a transaction, or
        delayed, while others came."""
        queue = self.queue(address)
        self._expecting.discard(address.name)
        if not self._has_room(address.name):
            if stored and not queue.closed:
                queue.unstore((message,))
            return
        queue.put(message, stored)
        _trim(queue, 1)

    def remove(self, name: str) -> None:
        queue = self.queues.get(name)
        if queue is not None:
            _trim(queue, 0)

    def load(self, address: Address, message: Message) -> None:
        """Retain a message that the store had kept."""
        queue = self.queue(address, must=True)
        queue.load(message)
        _trim(queue, 1)

    def matching(self, address: Address, pattern: Pattern | None) -> Iterator[Message]:
        """Return the retained messages of a topic, or of the topics that match a pattern."""
        if pattern is None:
            queues = [self.queues[address.name]] if address.name in self.queues else []
        else:
            queues = [self.queues[name] for name, words in self._split.items() if words and pattern.matches(words)]
        return chain.from_iterable([*queue.messages][-1:] for queue in queues)  # an earlier one may have been requeued

    def sweep(self) -> None:
        """Remove empty queues."""
        for name in [name for name, queue in self.queues.items() if not queue.count]:
            journal = self.queues[name].journal
            if name in self._expecting and journal is not None and (journal.open or journal.busy):
                continue
            self._expecting.discard(name)
            self.queues.pop(name).close()
            del self._split[name]


def _trim(queue: Queue, count: int) -> None:
    """Remove all but the last `count` messages."""
    while len(queue.messages) > count:
        message = queue.messages.line.popleft()
        if message.persistent and queue.journal is not None:
            queue.journal.settle(queue, message)  # requeued if that cannot be stored
        queue.count_out(1, message.size)


@dataclass(eq=False, slots=True)
class RetainTarget:
    """The target of a SEND that sets or removes a retained message, by one of `ACTIONS`."""

    retained: Retained
    action: str
    address: Address
    topic: Topic | None

    def put(self, message: Message, stored: bool = False) -> bool:
        """Set or remove the retained message, and put the message into the topic."""
        if self.action == "set":
            self.retained.set(self.address, message, stored)
        else:
            self.retained.remove(self.address.name)
        return self.topic is not None and self.topic.put(message, stored)

    def stores(self, message: Message) -> Sequence[Queue]:
        if message.due is not None:  # it is stored when it is due
            return ()
        mine = self.retained.expect(self.address).stores(message) if self.action == "set" else ()
        return [*mine, *(() if self.topic is None else self.topic.stores(message))]

    def holders(self) -> Sequence[Queue]:
        """Return the queues that could block a sender for ever, if only its own ACKs make room there."""
        return () if self.topic is None else self.topic.holders()

    def block(self, session: Peer) -> None:
        """Make a session wait for slow subscriptions."""
        if self.topic is not None:
            self.topic.block(session)


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
        *("_account", "_ahead", "_heap", "_later", "_most", "_number", "_place", "_stored", "_stored_octets", "_wall"),
        *("blocked", "cost"),
    )

    def __init__(
        self,
        account: Account,
        wall: Wall,
        place: Callable[[Message], None],
        most: int,
        journal: Journal,
        window: Window,
    ) -> None:
        self._account = account
        self._wall = wall
        #: `Wall.ahead` when the times of the heap were right.
        self._ahead = wall.ahead
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
        now = self._now()
        return max(_LEAST, self._heap[0][0] - now)

    def _now(self) -> float:
        """Return the time, after moving all of the heap by what the clock was set."""
        now, step = self._wall(), self._wall.ahead - self._ahead
        if step:
            self._ahead += step
            self._heap = [(entry[0] + step, *entry[1:]) for entry in self._heap]
        return now

    def check_room(self, count: int) -> None:
        """Raise Refused if this many more messages may not wait. At the limit, forget those whose queue has ended."""
        if len(self._heap) + count > self._most:
            self._keep([entry for entry in self._heap if not _is_gone(entry[2], entry[3])])
        if len(self._heap) + count > self._most:
            raise Refused("too many delayed messages", "Send them when they are due, or later than now.")

    def defer(self, message: Message, target: Queue | Topic | RetainTarget, find: _Find, stored: bool = False) -> bool:
        """Take a message that has its place in the order, but is not due. Return whether its sender should wait.

        `find` returns its queue or topic when the message is due, because topics come and go meanwhile. `stored`: the
        message is in the store already.
        """
        assert message.due is not None
        if not isinstance(target, Queue):
            self.cost += message.size + MESSAGE
            self._account.use_messages(1, message.size)
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
        self._now()
        self._account.use(DELAY)
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
        self._account.use((len(entries) - len(self._heap)) * DELAY)
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
        now = min(self._now(), self._later.horizon)
        for _ in range(AT_ONCE):  # the rest at the next call
            if not self._heap or self._heap[0][0] > now:
                break
            _due, _number, message, find, octets = heapq.heappop(self._heap)
            self._account.use(-DELAY)
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
                self._account.use_messages(-1, -message.size)
            if target is not None:
                fresh = make_due(message)
                self._place(fresh)
                target.put(fresh)


def _is_gone(message: Message | int, find: _Find) -> bool:
    """Return whether a message could not be stored, or ended with its queue."""
    target = find() if isinstance(message, int) else None
    return isinstance(target, Queue) and message not in target.deferred
