"""Later: delayed messages that are in the store only, because they are due after those in memory.

Those of all queues are one line, in the order in which they are due. `horizon` is where those in the store begin:
whatever is stored and due earlier is in memory. So nothing that is due later is released before a page has been read.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from stompcodec.broker.loop_quota import AT_ONCE
from stompcodec.broker.message import Message
from stompcodec.broker.queues.limits import Window
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.storage.journal import Journal
from stompcodec.broker.storage.store import Place, TimedPage
from stompcodec.errors import StoreError


class Later:
    """The delayed messages of all queues that are in the store only.

    Args:
        journal: the journal of the queues.
        window: the most delayed messages in memory.
        low: returns whether so few are in memory that the next ones must be read.
        take: gets a message that has come into memory, and its queue.
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
