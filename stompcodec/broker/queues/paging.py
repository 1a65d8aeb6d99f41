"""Paging: the border between memory and store.

READY messages of a queue are in the store only because its window in memory is full.

    oldest                                                                      newest
    READY in memory: the window  |  READY in the store only: "paged"
                                 ^ cursor                                       ^ last

A queue of which nothing is paged has no `Paging`. The first persistent message that finds the window full begins one;
later ones are only counted. Before the window is empty the next page is read from the store, off the loop. While it is
empty nothing is delivered, so that no message overtakes paged ones. With priorities there is such a border for each.
Deferred messages can be in the store only, too; here they are only counted (see `routing/delayed.py`).

Transient messages are in memory only. Those behind the cursor wait there for the paged ones before them. Where the
window "spools", they are stored and paged like persistent ones, and the next start drops them.

Where consumers differ (see `dispatcher.py`), perhaps none of them can take the messages of the window. Then each
searches behind it, in a *chunk*: a page that is in memory for that search only. A message that is taken from there is
"out": its row is behind the cursor, but it is not paged any more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import Protocol

from stompcodec.broker.loop_quota import AT_ONCE, FEW, Line, LoopQuota, Waiter
from stompcodec.broker.memory import MESSAGE, Account
from stompcodec.broker.message import SPOOLED, Message
from stompcodec.broker.queues.backlog import WAIT, Place, Wait
from stompcodec.broker.queues.ready import ReadyMessages, Window
from stompcodec.broker.storage.journal import Batch, Journal, Undoable
from stompcodec.broker.storage.store import Held, Page, Stored
from stompcodec.errors import StoreError

#: What a window does not bound, for errors that say that a queue is full.
NOT_PAGED = (
    "Not paged, but in memory as a whole: messages that are not persistent, those not acknowledged yet, "
    "queues with x-max-length or x-max-length-bytes, and durable subscriptions with topics.durable_overflow = drop."
)


class Chunk:
    """Paged messages of one rank that are in memory for consumers to look at: all with `start` < seq <= `end`."""

    __slots__ = ("_messages", "_seqs", "cost", "end", "rank", "start")

    def __init__(self, rank: int, start: int, end: int, messages: list[Message]) -> None:
        self.rank = rank
        self.start = start
        self.end = end
        self._messages = messages
        self._seqs = [message.seq for message in messages]
        self.cost = sum(message.size + MESSAGE for message in messages)

    def after(self, seq: int) -> Message | None:
        """Return the first message with a higher seq; None after the last."""
        at = bisect_right(self._seqs, seq)
        return self._messages[at] if at < len(self._seqs) else None

    def remove(self, seq: int) -> int:
        """Remove a message. Return the bytes that it took."""
        at = bisect_right(self._seqs, seq) - 1
        if at < 0 or self._seqs[at] != seq:
            return 0
        cost = self._messages[at].size + MESSAGE
        del self._messages[at], self._seqs[at]
        self.cost -= cost
        return cost


#: Bytes of messages that are read at a time in the loop.
_LITTLE = 2**18
#: Messages that are read at a time for one browser, and their bytes.
_BROWSED, _BROWSED_OCTETS = 100, 65536
#: Takes a page that was read: its rank, the seq behind which it was read, the page, and those messages that are paged.
_Done = Callable[[int, int, Page, list[Message]], None]


class Lookers(Protocol):
    """A holder of copies of paged messages: a dispatcher, for its browsers."""

    def note_paged(self, message: Message) -> None:
        """Note a message that is READY in the store only."""

    def forget(self, seqs: set[int]) -> None:
        """Drop the copies of messages that are gone."""


class PagedQueue(Waiter, Undoable, Protocol):
    """A queue, as its paging sees it. `Queue` documents the members."""

    closed: bool

    @property
    def drops(self) -> bool: ...

    octets: int
    journal: Journal | None
    messages: ReadyMessages
    account: Account
    quota: LoopQuota | None
    window: Window | None

    @property
    def paging(self) -> Paging | None: ...
    @paging.setter
    def paging(self, value: Paging | None) -> None: ...

    newest: int

    @property
    def dispatcher(self) -> Lookers | None: ...
    def count_in(self, message: Message) -> None: ...
    def expire(self, message: Message) -> None: ...
    def line_up(self) -> None: ...
    def load(self, message: Message) -> None: ...
    def suspend(self) -> None: ...
    def go_on_later(self) -> None: ...
    @property
    def full(self) -> bool: ...
    @property
    def is_too_large(self) -> bool: ...


class Span:
    """The paged messages of one priority: those with seqs above `cursor`, up to `last`."""

    __slots__ = ("cursor", "last", "out")

    def __init__(self, cursor: int) -> None:
        self.cursor = self.last = cursor
        #: Seqs of stored messages behind the cursor that are in memory, or have left the queue.
        self.out: set[int] = set()


def leave_in_store(queue: PagedQueue, message: Message, stored: bool) -> bool:
    """Page a message if the window is full, or others of its rank are paged. Return False if it belongs in the window.
    It has been appended to the journal, or is `stored` already.
    """
    paging, rank, journal = queue.paging, queue.messages.rank(message), queue.journal
    if message.faults or journal is None or not (message.persistent or _may_spool(queue, journal, rank, message)):
        return False  # the store does not keep those
    if paging is None or not paging.covers(rank, message.seq):
        if not _may_page(queue, rank, message, stored):
            return False
        if paging is None:
            paging = queue.paging = Paging(queue, journal)
        paging.begin(rank, message.seq - 1, message.seq - 1)
    if not message.persistent:
        message, stored = message.copied(message.attempts), False  # other queues may hold it, too
        message.persistent = SPOOLED
        journal.append(queue, message)
        queue.newest = message.seq
    paging.put(rank, message, stored)
    if queue.dispatcher is not None:
        queue.dispatcher.note_paged(message)
    return True


def _may_page(queue: PagedQueue, rank: int, message: Message, stored: bool) -> bool:
    """Return whether the window is full, and this message comes after all others of its rank."""
    window, ready = queue.window, queue.messages.count(rank)
    if window is None or not ready or queue.drops:
        return False
    if ready < window.messages and queue.octets < window.octets and not queue.is_too_large:
        return False
    # What takes effect after its commit may come behind later ones. Some of those may be paged, or on their way out.
    return message.seq >= queue.newest and not (stored and message.seq < queue.messages.last(rank))


def _may_spool(queue: PagedQueue, journal: Journal, rank: int, message: Message) -> bool:
    """Return whether a transient message may be stored: it comes after all paged ones, and nothing has failed."""
    if queue.window is None or not queue.window.spools or message.body is not None:
        return False
    if journal.is_tight or journal.failing or queue.full:
        return False
    return queue.paging is None or queue.paging.comes_last(rank, message.seq)


def leave_all_in_store(queue: PagedQueue, held: Held) -> bool:
    """Page the messages that the store has kept. Return False if the queue must be in memory as a whole."""
    if queue.journal is None or queue.window is None or queue.drops:
        return False
    queue.paging = paging = Paging(queue, queue.journal)
    paging.count, paging.deferred, paging.deferred_seqs = held.total, held.deferred, (held.first, held.last)
    for rank in queue.messages.ranks(held.priorities):
        paging.begin(rank, held.first - 1, held.last)
    return True


class Paging:
    """The paged messages of one queue."""

    __slots__ = (
        *(
            "_chunk",
            "_forget_at",
            "_holds",
            "_journal",
            "_leaving",
            "_noted",
            "_noted_from",
            "_queue",
            "_reading",
            "_retries",
            "_spans",
        ),
        *("_unwritten", "_waiters", "_wanted", "count", "deferred", "deferred_seqs"),
    )

    def __init__(self, queue: PagedQueue, journal: Journal) -> None:
        self._queue = queue
        self._journal = journal
        #: The number of messages that are in the store only; of those, the deferred ones, and their lowest and highest
        #: seqs.
        self.count = self.deferred = 0
        self.deferred_seqs = (inf, -inf)
        #: By rank, the highest priority first.
        self._spans: dict[int, Span] = {}
        #: The batches on their way to the store that have paged messages, with the seqs of the first of them.
        self._unwritten: list[tuple[Batch, int]] = []
        #: The last of them, and that seq.
        self._noted: Batch | None = None
        self._noted_from = 0
        #: A page is being read.
        self._reading = False
        #: Deliveries are suspended until the next page is there.
        self._holds = False
        self._chunk: Chunk | None = None
        #: The first place behind which a consumer wants to look at a chunk.
        self._wanted: Place | None = None
        #: The batches with which messages leave the store that are out, by their seqs.
        self._leaving: dict[int, Batch] = {}
        self._forget_at = AT_ONCE
        #: Browsers whose page could not be read.
        self._retries: list[Callable[[], None]] = []
        #: The waiters for the next page.
        self._waiters: list[Waiter] = []
        journal.paged[queue.key] = self

    # ---- in ----
    def covers(self, rank: int, seq: int) -> bool:
        """Return whether a message belongs behind paged ones."""
        span = self._spans.get(rank)
        return span is not None and seq > span.cursor

    def comes_last(self, rank: int, seq: int) -> bool:
        """Return whether a message comes after all paged ones of its rank."""
        span = self._spans.get(rank)
        return span is None or seq > span.last

    def is_paged(self, rank: int, seq: int) -> bool:
        """Return whether a stored message is paged."""
        span = self._spans.get(rank)
        return span is not None and seq > span.cursor and seq not in span.out

    def begin(self, rank: int, cursor: int, last: int) -> None:
        """Note that all stored messages of a rank with seqs above `cursor`, up to `last`, are paged."""
        self._spans[rank] = span = Span(cursor)
        span.last = last
        self._spans = dict(sorted(self._spans.items()))

    def put(self, rank: int, message: Message, stored: bool) -> None:
        """Take a persistent message that `covers` is true for. It has been appended to the journal, or is `stored`
        already.
        """
        span = self._spans[rank]
        self.count += 1
        span.out.discard(message.seq)
        span.last = max(span.last, message.seq)
        if not stored or self._journal.may_write(message.seq):
            self.comes(message)

    def take_stored(self, rank: int, messages: list[Message]) -> bool:
        """Do what `keep_out` and `put` do with messages that are stored, in order.

        Return False, having done nothing, unless they come after paged ones of their rank, and the open batch writes
        none of them.
        """
        span = self._spans.get(rank)
        if span is None or messages[0].seq <= span.last or self._journal.may_write(messages[-1].seq):
            return False
        self.count += len(messages)
        span.last = messages[-1].seq
        return True

    def take_new(self, rank: int, message: Message) -> bool:
        """Do what `keep_out` and `put` do with a message that was appended to the journal just now.

        Return False, having done nothing, unless it comes after paged ones of its rank.
        """
        span, seq = self._spans.get(rank), message.seq
        if span is None or seq <= span.last:
            return False
        self.count += 1
        span.last = seq
        journal = self._journal
        if self._noted is journal.batch and self._noted_from < seq:
            journal.charge(journal.batch, message.size + MESSAGE)  # until it is written
        else:
            self.comes(message)
        return True

    def comes(self, message: Message) -> None:
        """Note that the open batch writes a paged message: for the first time, or again after a failed commit."""
        batch, unwritten, first = self._journal.batch, self._unwritten, message.seq
        if unwritten and unwritten[-1][0] is batch:
            first = min(first, unwritten.pop()[1])
        else:
            self._forget_written()
        unwritten.append((batch, first))
        self._noted, self._noted_from = batch, first
        self._journal.charge(batch, message.size + MESSAGE)  # until it is written

    def keep_out(self, rank: int, seq: int) -> None:
        """Note that a stored message behind the cursor is in memory: it is not paged."""
        if self.covers(rank, seq):
            self._spans[rank].out.add(seq)
            self._leaving.pop(seq, None)

    def leaves(self, seq: int, batch: Batch) -> None:
        """Note that the batch removes a message from the store."""
        if any(seq in span.out for span in self._spans.values()):
            self._leaving[seq] = batch
            if len(self._leaving) >= self._forget_at and not self._reading:
                self._forget()
                self._forget_at = max(AT_ONCE, 2 * len(self._leaving))

    def leave_later(self, batch: Batch, later: Batch) -> None:
        """Note that a later batch removes the messages which the batch was to remove."""
        for seq, leaving in self._leaving.items():
            if leaving is batch:
                self._leaving[seq] = later

    def withdraw(self, rank: int, message: Message) -> None:
        """Forget a message that could not be stored, if it is paged."""
        if message.due is not None:
            self.take_deferred(message.seq)
        elif self.is_paged(rank, message.seq):
            self.count -= 1

    # ---- deferred messages ----
    def leave_deferred(self, seq: int) -> None:
        """Count a deferred message that is in the store only."""
        first, last = self.deferred_seqs
        self.deferred_seqs = min(first, seq), max(last, seq)
        self.deferred += 1
        self.count += 1

    def has_deferred(self, seq: int) -> bool:
        """Return whether a deferred message can be of this queue, rather than of an ended one with the same key."""
        first, last = self.deferred_seqs
        return self.deferred > 0 and first <= seq <= last

    def take_deferred(self, seq: int) -> None:
        """Count out a deferred message that is in memory from now on, or gone."""
        if self.has_deferred(seq):
            self.deferred -= 1
            self.count -= 1

    def end_deferred(self) -> None:
        """Note that all deferred messages are in memory, or damaged. Log how many are missing."""
        if self.deferred > 0:
            self._journal.report_missing(self._queue.key, self.deferred)
        self.count -= self.deferred
        self.deferred = 0
        if not self._spans:
            self.end()

    def clear(self) -> Iterator[Line]:
        """Remove the paged messages of a closed queue from the store, some in each of its commits."""
        journal, key, spans = self._journal, self._queue.key, self._spans.values()
        first, last = self.deferred_seqs if self.deferred else (inf, -inf)
        after = int(min([first - 1] + [span.cursor for span in spans]))
        upto = int(max([last] + [span.last for span in spans]))
        held = {seq for span in spans for seq in span.out if seq not in self._leaving}  # whoever has them removes them
        for _ in range(2):  # what is in a batch now is not found
            yield journal
        while self._written(upto) < upto:
            yield journal
        for _ in range(0, self.count + len(self._leaving) + 1, AT_ONCE):
            journal.clear(key, after, upto, AT_ONCE, held)
            yield journal

    # ---- out: a plain queue ----
    def allows(self, place: Place) -> bool:
        """Return whether a READY message in memory comes before all paged ones."""
        for rank, span in self._spans.items():
            return place <= (rank, span.cursor)
        return True

    def sweep(self, has_members: bool) -> None:
        """Retry reads that have failed, unless the queue has no consumers. To be called now and then."""
        retries, self._retries = self._retries, []
        for retry in retries:
            retry()
        if not self.count:  # what the chunk still has, the window has had since
            self._drop_chunk()
        if has_members or self._waiters or not self.count:
            self.refill()

    def refill(self, *, taken: bool = False) -> None:
        """Read the next page if few messages of the window are left, and suspend deliveries while none is. `taken`: a
        page has just been taken.
        """
        queue, window = self._queue, self._queue.window
        if not self._spans or window is None:
            self._hold(False)
            self._drop_chunk()
            self._wake()
            if not self.deferred:
                self.end()
            return
        if queue.dispatcher is not None:
            self._hold(False)
            self._look_on(window)
            return
        rank, span = next(iter(self._spans.items()))
        line, ready = queue.messages.line, queue.messages.count(rank, span.cursor)
        self._hold(not (line and self.allows(queue.messages.place(line[0]))))
        is_low = ready <= window.messages // 2 and queue.octets <= window.octets // 2
        if self._reading or not (is_low or not ready):
            return
        most = min(window.messages - ready, self._most)
        if not self._journal.reads_at_once:
            self._read(rank, span.cursor, most, self._extend)
        elif ready < FEW and not taken:
            self._read(rank, span.cursor, min(most, FEW), self._extend, at_once=True)
        elif not ready:
            self._read(rank, span.cursor, most, self._extend)

    @property
    def _most(self) -> int:
        """The number of messages in a page: two steps, since a page costs about as much as half of them."""
        return AT_ONCE if self._queue.quota is None else min(2 * self._queue.quota.step, AT_ONCE)

    def _hold(self, holds: bool) -> None:
        """Suspend deliveries, or go on with them."""
        if holds is not self._holds:
            self._holds = holds
            if holds:
                self._queue.suspend()
            else:
                self._queue.go_on_later()

    def _read(self, rank: int, after: int, most: int, done: _Done, *, at_once: bool = False) -> bool:
        """Read what follows a seq of a rank. Return False if it has to reach the store first."""
        queue, journal, window = self._queue, self._journal, self._queue.window
        self._forget()
        upto = self._written(self._spans[rank].last)
        if upto <= after:
            journal.watch(self._go_on)
            return False
        assert window is not None
        self._reading = True
        take, priority = partial(self._take, rank, after, done), queue.messages.priority(rank)
        octets = min(window.octets // 2, _LITTLE) if at_once else window.octets // 2
        journal.read(queue.key, after, upto, most, octets, take, priority, at_once=at_once)
        return True

    def _forget(self) -> None:
        """Forget the messages that have left the store: the next page cannot have them."""
        on_the_way = (self._journal.batch, self._journal.busy)
        gone = {seq for seq, batch in self._leaving.items() if batch not in on_the_way}
        if gone:
            for seq in gone:
                del self._leaving[seq]
            for span in self._spans.values():
                span.out -= gone
            if self._queue.dispatcher is not None:
                self._queue.dispatcher.forget(gone)

    def _written(self, last: int) -> int:
        """Return the seq, at most `last`, up to which all messages of the queue are stored and have taken effect."""
        self._forget_written()
        firsts = [self._journal.horizon, self._unwritten[0][1] if self._unwritten else None]
        return min(first - 1 for first in (last + 1, *firsts) if first is not None)

    def _forget_written(self) -> None:
        """Forget the batches that have been written."""
        while self._unwritten and self._unwritten[0][0] not in (self._journal.batch, self._journal.busy):
            del self._unwritten[0]

    def _go_on(self) -> None:
        if not self._queue.closed and self._queue.paging is self:
            self.refill()

    def _take(self, rank: int, after: int, done: _Done, page: Page | StoreError) -> None:
        """Take a page that was read."""
        self._reading = False
        if self._queue.closed or self._queue.paging is not self or isinstance(page, StoreError):
            return  # after an error it is read again at the next sweep
        try:
            out = self._spans[rank].out
            messages = self._journal.messages(stored for stored in page.messages if stored.seq not in out)
        except StoreError:
            return
        done(rank, after, page, messages)
        self._wake()
        self.refill(taken=True)

    def line_up(self, waiter: Waiter) -> None:
        """Let a waiter go on when the next page has been read."""
        self._waiters.append(waiter)
        self.refill()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if self._queue.quota is not None:
                self._queue.quota.line_up(waiter)

    def _extend(self, rank: int, after: int, page: Page, fresh: list[Message]) -> None:
        """Add a page to the window."""
        queue, span = self._queue, self._spans[rank]
        self.count -= len(fresh) + page.damaged
        span.cursor = page.last
        is_last = span.cursor >= span.last
        if is_last:
            del self._spans[rank]
        if span.out:
            span.out = {seq for seq in span.out if seq > page.last}
        late = bool(fresh) and queue.messages.last(rank) > fresh[0].seq
        if late and len(queue.messages) > AT_ONCE:
            queue.messages.indexed()
        for message in fresh:
            queue.load(message)
        if late:
            queue.came_late(fresh[0].seq)
            queue.put_in_order()
        if queue.dispatcher is not None:
            queue.line_up()

    def end(self) -> None:
        """End, because nothing is paged any more or the queue is closed."""
        if self.count > 0 and not self._queue.closed:
            self._journal.report_missing(self._queue.key, self.count)
        self._hold(False)
        self._drop_chunk()
        self._wake()
        self._journal.paged.pop(self._queue.key, None)
        if self._queue.paging is self:
            self._queue.paging = None

    # ---- out: a queue whose consumers differ ----
    def next(self, place: Place, message: Message | None, upto: Place | None) -> Message | Wait | None:
        """Return the first message behind the place where a consumer looks on: a paged one if it comes before
        `message`, the next one in memory (None after the last), whose place is `upto`.
        """
        while True:
            hidden = self._hidden(place, upto)
            if hidden is None:
                return message
            rank, after = hidden
            chunk = self._chunk
            if chunk is None or chunk.rank != rank or not chunk.start <= after < chunk.end:
                self._wanted = hidden if self._wanted is None else min(self._wanted, hidden)
                return WAIT
            found = chunk.after(after)
            if found is not None:
                return found if upto is None or (rank, found.seq) < upto else message
            place = rank, chunk.end

    def _hidden(self, place: Place, upto: Place | None) -> Place | None:
        """Return the first place from `place` on, and before `upto`, behind which messages are paged."""
        for rank, span in self._spans.items():
            if rank < place[0]:
                continue
            after = max(span.cursor, place[1]) if rank == place[0] else span.cursor
            if after < span.last:
                return (rank, after) if upto is None or (rank, after + 1) < upto else None
        return None

    def expire(self, stored: Stored) -> None:
        """Remove an expired message, if it is paged."""
        for message in self._journal.messages([stored]):
            if self.take_out(self._queue.messages.rank(message), message):
                self._queue.expire(message)

    # ---- browse ----
    @property
    def last(self) -> int:
        """The highest seq that is paged, or was."""
        return max((span.last for span in self._spans.values()), default=-1)

    @property
    def has_ready(self) -> bool:
        """True if READY messages are paged."""
        return bool(self._spans)

    def first_after(self, seq: int) -> int | None:
        """Return the seq behind which the next paged messages above this seq are; None if there are none."""
        return min((max(span.cursor, seq) for span in self._spans.values() if seq < span.last), default=None)

    def browse(self, after: int, done: Callable[[int, list[Message]], None]) -> None:
        """Read some paged messages of all priorities with seqs above `after`, for a browser. `done` gets the seq up to
        which they were read, and copies of those that are paged.
        """
        queue, journal, window = self._queue, self._journal, self._queue.window
        upto = self._written(self.last)
        if upto <= after:
            journal.watch(lambda: done(after, []))
            return
        assert window is not None
        most, octets = min(window.messages, _BROWSED), min(window.octets, _BROWSED_OCTETS)
        journal.read(queue.key, after, upto, most, octets, partial(self._browsed, after, done), None)

    def _browsed(self, after: int, done: Callable[[int, list[Message]], None], page: Page | StoreError) -> None:
        try:
            if isinstance(page, StoreError):
                raise page
            done(page.last, self._journal.messages(page.messages))
        except StoreError:
            self._retries.append(lambda: done(after, []))

    def take_out(self, rank: int, message: Message) -> bool:
        """Take a paged message out, which counts as one in memory from now on. Return False if it is not paged."""
        if not message.persistent or not self.is_paged(rank, message.seq):
            return False
        self._spans[rank].out.add(message.seq)
        self.count -= 1
        if self._chunk is not None and self._chunk.rank == rank:
            self._queue.account.use(-self._chunk.remove(message.seq))
        self._queue.count_in(message)
        return True

    def _look_on(self, window: Window) -> None:
        """Read the messages that a consumer wants to look at: into the window while that has room, else as a chunk."""
        if self._reading or self._wanted is None:
            return
        (rank, after), self._wanted = self._wanted, None
        span = self._spans.get(rank)
        if span is None or after >= span.last:
            self._queue.line_up()
            return
        ready = self._queue.messages.count(rank)
        has_room = ready < window.messages and self._queue.octets < window.octets
        if after <= span.cursor and (has_room or not ready):
            asked = self._read(rank, span.cursor, min(window.messages - ready, self._most), self._extend)
        else:
            after = max(after, span.cursor)
            asked = self._read_chunk(rank, after, after, window)
        if not asked:
            self._wanted = rank, after

    def _read_chunk(self, rank: int, after: int, start: int, window: Window) -> bool:
        """Read what follows a seq. Nothing between `start` and there is paged."""
        return self._read(rank, after, min(window.messages, self._most), partial(self._show, start, window))

    def _show(self, start: int, window: Window, rank: int, _after: int, page: Page, found: list[Message]) -> None:
        """Make a page the chunk, or if others have all of it, the next one."""
        if not (found or page.end) and self._read_chunk(rank, page.last, start, window):
            return
        self._drop_chunk()
        self._chunk = Chunk(rank, start, page.last, found)
        self._queue.account.use(self._chunk.cost)
        self._queue.line_up()

    def _drop_chunk(self) -> None:
        if self._chunk is not None:
            self._queue.account.use(-self._chunk.cost)
            self._chunk = None

    @property
    def chunk_cost(self) -> int:
        """The bytes of the chunk in memory."""
        return 0 if self._chunk is None else self._chunk.cost
