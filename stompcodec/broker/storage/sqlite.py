"""SqliteStore: durable messages in one SQLite file, one transaction per batch.

The loop's thread writes the rows of a batch, which is quick. The COMMIT waits for the disk, so a helper thread does it,
in one call without the GIL. Meanwhile the loop serves clients and collects the next batch. On a fast disk a batch of a
few rows is committed at once, because handing it to the helper and back would take longer.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

from stompcodec.broker.storage.folder import HelperThread
from stompcodec.broker.storage.sqlite_reader import Reader, Run
from stompcodec.broker.storage.sqlite_writer import Writer
from stompcodec.broker.storage.store import (
    CallSoon,
    Done,
    Held,
    Page,
    PageDone,
    Place,
    SentKey,
    Storable,
    Stored,
    Subscribed,
    TimedDone,
    TimedPage,
)
from stompcodec.broker.storage.tables import MOST_SEQ, SEQ_BITS, Bad, Batch, Share, is_large
from stompcodec.disk import PRIVATE, Access
from stompcodec.errors import StoreError

#: While pages take less than _FAST_PAGES seconds, the loop may read small ones. A single one counts for at most _LONG.
_FAST_PAGES, _LONG = 0.002, 0.01
Answer = Run | StoreError
_Result = TypeVar("_Result")


class _Read(NamedTuple):
    """A page that was asked for."""

    job: Callable[[], Run]
    done: Callable[[Answer], object]
    call_soon: CallSoon


class PageReads:
    """The line of pages, which `reader` reads in the thread of `helper`. Only the loop's thread uses it. `store` says
    whether a failed commit may have left rows, which are removed before anything is read.
    """

    def __init__(self, reader: Reader, helper: HelperThread, store: SqliteStore, clock: Callable[[], float]) -> None:
        self._reader = reader
        self._helper = helper
        self._store = store
        self._line: deque[_Read] = deque()
        #: The failed commits before which the reader's connection was opened, as far as its thread knows.
        self._seen = store.failures
        self._clock = clock
        #: Moving average of the seconds that a page takes. A single one counts for at most `_LONG`.
        self._pace = 0.0

    def __len__(self) -> int:
        return len(self._line)

    @property
    def are_fast(self) -> bool:
        """True if a page can be read at once, and does not take long."""
        return not self._line and not self._store.in_doubt and self._pace < _FAST_PAGES

    def give(self, job: Callable[[], Run], done: Callable[[Answer], object], call_soon: CallSoon | None) -> None:
        """Have a page read. `done` is called in the loop's thread; without `call_soon`, before this method returns."""
        if call_soon is None:
            if self._line:
                self._helper.wait()
            cleared: list[StoreError | None] = [None]
            if self._store.in_doubt:
                self._store.clear_doubts(cleared.append, None)
            done(cleared[-1] or self._answer(job, self._store.failures))
            return
        self._line.append(_Read(job, done, call_soon))
        if len(self._line) == 1:
            self._start()

    def _start(self) -> None:
        first = self._line[0]
        if self._store.in_doubt:
            self._store.clear_doubts(self._cleared, first.call_soon)
        else:
            self._helper.give(partial(self._work, first, self._store.failures))

    def _cleared(self, error: StoreError | None) -> None:
        if error is None:
            self._start()
        else:
            self._end(error)

    def _work(self, read: _Read, failures: int) -> None:
        """Read a page, in the helper's thread."""
        answer = self._answer(read.job, failures)
        with suppress(RuntimeError):  # the loop is closed
            read.call_soon(partial(self._read, failures, answer))

    def _answer(self, job: Callable[[], Run], failures: int) -> Answer:
        start = self._clock()
        if failures != self._seen:  # the connection may cache pages that were misread
            self._reader.close()
            self._seen = failures
        try:
            return job()
        except StoreError as error:
            return error
        finally:
            self._pace += (min(self._clock() - start, _LONG) - self._pace) / 8

    def _read(self, failures: int, answer: Answer) -> None:
        """Deliver a page, unless a commit failed meanwhile: the page may have messages that were not stored."""
        if self._store.in_doubt or self._store.failures != failures:
            self._start()
        else:
            self._end(answer)

    def _end(self, answer: Answer) -> None:
        first = self._line.popleft()
        if self._line:
            self._start()
        first.done(answer)

    def close(self) -> None:
        """End the thread and the connection, and drop pages that were not delivered yet."""
        self._helper.stop()
        self._reader.close()


_MOST_QUEUES = 2 ** (63 - SEQ_BITS)
_SEQ = (1 << SEQ_BITS) - 1
#: A batch of at most _FEW operations is committed at once while commits take less than _FAST seconds. So is a batch of
#: at most _ADDED operations that adds messages, below _FAST_ADDED: its senders are waiting, and the helper would add
#: two thread switches to their wait.
_FEW, _FAST = 4, 0.0005
_ADDED, _FAST_ADDED = 200, 0.001
#: From this many operations on, the helper writes the rows too; otherwise the loop would be blocked for too long.
_MANY = 500
#: Queues checked in one sweep for empty ones that can be forgotten: twice as many as were added since the last sweep.
_SWEEP = 500


class SqliteStore:
    """A `Store` in a folder. Its methods are described at `Store`.

    Args:
        folder: used by this store alone. Created if it is missing.
        log: gets the problems that cannot be raised.
        helper: waits for the disk and removes files; a thread for each by default. The store stops it.
        page_helper: reads pages; a thread by default. The store stops it.
        clock: returns the time in seconds, to measure commits.
        access: permissions of the files, and of the folder if it is created.
        reserve: bytes to keep free, so that messages can be settled when the disk is full.
        space: returns how many bytes can be stored, given the writer and whether its connection is idle.

    Raises:
        StoreError: the folder is in use, belongs to a newer version, holds foreign files, or cannot be used.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = SqliteStore(folder.name)
    >>> store.append("q", Stored("q", 1, "m-1", "/queue/q", b"\\n\\nhi\\0"))
    >>> store.close()
    >>> store = SqliteStore(folder.name)
    >>> [message.tail for message in store.load()]
    [b'\\n\\nhi\\x00']
    >>> store.close(); folder.cleanup()
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        log: logging.Logger | None = None,
        *,
        helper: HelperThread | None = None,
        page_helper: HelperThread | None = None,
        clock: Callable[[], float] = perf_counter,
        access: Access = PRIVATE,
        reserve: int = 0,
        space: Callable[[Writer, bool], int | None] = Writer.room,
    ) -> None:
        self._log = log or logging.getLogger("stompcodec.broker")
        self._writer = Writer(Path(folder), self._log, clock, access, helper, reserve)
        self._open = Batch()
        self._totals = self._writer.totals
        #: The least key of each queue.
        self._bases = {name: number << SEQ_BITS for name, number in self._writer.queues.items()}
        #: The queue of each number.
        self._names = {number: name for name, number in self._writer.queues.items()}
        #: Numbers of queues that are not committed yet.
        self._unsaved: dict[str, int] = {}
        taken = set(self._writer.queues.values())
        self._next = max(taken, default=0) + 1
        self._free = [number for number in range(1, self._next) if number not in taken]
        self._sweep_at = len(taken) + _SWEEP // 2
        self._helper = HelperThread("stompcodec-store") if helper is None else helper
        pages = HelperThread("stompcodec-pages") if page_helper is None else page_helper
        self._reader = self._writer.reader(self._name_of)
        self._pages = PageReads(self._reader, pages, self, clock)
        #: The numbers of leftovers, and whether they are being removed.
        self._leftovers, self._removing = self._writer.leftovers.counts, False
        #: The helper is copying the WAL into the database, or has been asked to.
        self._copying = False
        #: Jobs handed to the helper, and finished jobs that the loop has seen. The writer counts those in between.
        self._given = self._known = 0
        #: Removals that the next commit leaves in the open batch.
        self._held: dict[int, None] = {}
        self._closed = False
        self._space = space
        #: The commit count at the last call of `tidy`, and whether there is nothing left to tidy since.
        self._tidied_at, self._tidied = -1, False
        #: True if the last broker did not close the store: it crashed or was killed.
        self.unclean = self._writer.unclean
        #: The damage found since the store was opened.
        self.damage = self._writer.damage

    @property
    def pending(self) -> int:
        return len(self._open)

    @property
    def incomplete(self) -> bool:
        return self._writer.incomplete

    def load(self, queue: str | None = None) -> Iterator[Stored]:
        """Yield every message, or those of a queue. Damaged ones are logged and left out, but stay in the file."""
        base = None if queue is None else self._bases.get(queue)
        if queue is not None and base is None:
            return
        for key, ident, destination, tail, *rest, attempts, redelivered, due, body in self._writer.rows(base):
            named = self._name_of(key >> SEQ_BITS)
            if named is None:
                self._writer.damage.message(ident, destination, "the name of its queue is lost")
                self._writer.keep_aside(key)
                continue
            name, suspect = named
            content: Any = (destination, tail, *rest, attempts, redelivered or key < suspect, body, due)
            yield Stored(name, key & _SEQ, ident, *content)

    def _name_of(self, number: int) -> tuple[str, int] | None:
        """Return the name of a queue, and the key below which its messages went through a crash."""
        name = self._names.get(number)
        return None if name is None else (name, self._writer.suspects.get(number, 0))

    def held(self) -> Iterator[Held]:
        return self._writer.held()

    def read(
        self,
        queue: str,
        after: int,
        upto: int,
        most: int,
        octets: int,
        done: PageDone,
        call_soon: CallSoon | None,
        priority: int | None = None,
    ) -> None:
        base = self._bases.get(queue, 0)
        keys = base + max(after, -1), base + min(upto, MOST_SEQ - 1)
        job = partial(self._reader.page, base >> SEQ_BITS, *keys, most, octets, priority, call_soon is None)
        if not base or after >= upto:
            job = partial(Run, [], True, base + upto)
        self._pages.give(job, partial(self._page_read, queue, upto, done), call_soon)

    @property
    def reads_fast(self) -> bool:
        return self._pages.are_fast

    def _page_read(self, queue: str, upto: int, done: PageDone, answer: Answer) -> None:
        if isinstance(answer, StoreError):
            done(answer)
            return
        messages, damaged = self._intact(answer)
        if answer.end:
            self._totals.read_up_to(self._bases.get(queue, 0) + min(upto, MOST_SEQ - 1))
        done(Page(messages, upto if answer.end else answer.last & _SEQ, answer.end, damaged))

    def _intact(self, run: Run) -> tuple[list[Stored], int]:
        """Return the intact messages, and the number of damaged ones, which are reported once."""
        damaged = 0
        for row in run.rows:
            if isinstance(row, Bad):
                damaged += 1
                if row.key not in self._totals.aside.get(row.key >> SEQ_BITS, ()):
                    self._writer.damage.message(row.id, row.destination, row.why)
                    self._writer.keep_aside(row.key)
        return [row for row in run.rows if isinstance(row, Stored)], damaged

    def deferred(self, after: Place, most: int, octets: int, done: TimedDone, call_soon: CallSoon | None) -> None:
        self._read_timed("due", after, inf, most, octets, done, call_soon)

    def expired(
        self, before: float, after: Place, most: int, octets: int, done: TimedDone, call_soon: CallSoon | None
    ) -> None:
        self._read_timed("expires", after, before, most, octets, done, call_soon)

    def _read_timed(
        self,
        column: str,
        after: Place,
        before: float,
        most: int,
        octets: int,
        done: TimedDone,
        call_soon: CallSoon | None,
    ) -> None:
        job = partial(self._reader.timed, column, after or (-inf, -1), before, most, octets)
        self._pages.give(job, partial(self._timed_read, done), call_soon)

    def _timed_read(self, done: TimedDone, answer: Answer) -> None:
        if isinstance(answer, StoreError):
            done(answer)
        else:
            messages, _ = self._intact(answer)
            bad = [divmod(row.key, 1 << SEQ_BITS) for row in answer.rows if isinstance(row, Bad)]
            damaged = [(self._names.get(number, ""), seq) for number, seq in bad]
            done(TimedPage(messages, None if answer.end else answer.place, damaged))

    @property
    def failures(self) -> int:
        """Number of commits that have failed."""
        return self._writer.failures

    @property
    def in_doubt(self) -> bool:
        """True if a failed commit may have written its batch after all."""
        return self._writer.in_doubt

    def clear_doubts(self, done: Done, call_soon: CallSoon | None) -> None:
        """Remove what a failed commit may have written after all, by the helper, and call `done` in the loop's
        thread."""
        if call_soon is None:
            self._settle()
            done(self._writer.clear_doubts())
            return
        self._run(self._writer.clear_doubts, done, call_soon)

    def clear(self, queue: str, after: int, upto: int, most: int, held: Collection[int] = ()) -> None:
        base = self._bases.get(queue)
        if base is not None and after < upto:
            keys = base + max(after, -1), base + min(upto, MOST_SEQ - 1)
            self._open.clears.append(Share(base >> SEQ_BITS, *keys, most, [base + seq for seq in held]))

    @property
    def keeps(self) -> bool:
        return True

    @property
    def mark(self) -> int:
        return self._writer.mark

    def reserve(self, seq: int) -> None:
        self._open.reserved = seq

    def subscriptions(self) -> list[Subscribed]:
        return self._writer.subscriptions()

    def subscribe(self, subscription: Subscribed) -> None:
        self._open.subscriptions[subscription.queue] = subscription

    def unsubscribe(self, queue: str) -> None:
        self._open.subscriptions[queue] = None

    def keys(self) -> Iterator[SentKey]:
        """Yield every idempotency key. Damaged ones are logged and left out."""
        return self._writer.keys()

    def remember(self, key: SentKey) -> None:
        self._open.keys[key.number] = key

    def forget(self, number: int) -> None:
        if self._open.keys.pop(number, None) is None:
            self._open.forgotten[number] = None

    def append(self, queue: str, message: Storable) -> None:
        seq, base = message.seq, self._bases.get(queue)
        if base is None or seq >> SEQ_BITS:
            base = self._key(queue, seq) - seq
        self._open.puts[base + seq] = message
        if seq <= self._totals.top:  # older than other seqs, which is rare
            self._open.late.append(base + seq)

    def intake(self, queue: str) -> tuple[dict[int, Storable], int, int] | None:
        base = self._bases.get(queue)
        return None if base is None else (self._open.puts, base, self._totals.top)

    def remove(self, queue: str, message: Storable) -> None:
        seq, base, batch = message.seq, self._bases.get(queue), self._open
        key = self._key(queue, seq) if base is None or seq >> SEQ_BITS else base + seq
        if batch.puts.pop(key, None) is None:
            batch.updates.pop(key, None)
            batch.removes[key] = None

    def update(self, queue: str, message: Storable) -> None:
        key, batch = self._key(queue, message.seq), self._open
        if key in batch.puts:
            batch.puts[key] = message
        else:
            batch.updates[key] = message

    def report(self, message: Storable) -> None:
        self._writer.damage.message(message.id, message.destination, "its body is damaged")

    def _key(self, queue: str, seq: int) -> int:
        if seq >> SEQ_BITS:
            raise ValueError(f"seq is {seq}: it must be 0 or more, and less than 2**{SEQ_BITS}")
        base = self._bases.get(queue)
        return seq + (self._register(queue) if base is None else base)

    def _register(self, queue: str) -> int:
        while True:
            if self._free:
                number = self._free.pop()
            else:
                number = self._next
                if number >= _MOST_QUEUES:
                    raise StoreError(f"{number} queues hold stored messages (use less)")
                self._next += 1
            if number not in self._totals.aside:
                break
        self._unsaved[queue] = number
        self._names[number] = queue
        base = self._bases[queue] = number << SEQ_BITS
        return base

    @property
    def only_removes(self) -> bool:
        return not self._open.puts and len(self._open) == len(self._open.removes)

    def hold_removals(self) -> bool:
        batch = self._open
        if not batch.removes or batch.clears or not batch.removes.keys().isdisjoint(batch.puts):
            return False
        self._held, batch.removes = batch.removes, {}
        return True

    def commit(self) -> None:
        """Write the open batch, and return when the files that it made obsolete are removed."""
        self._settle()
        if not len(self._open):
            return
        try:
            self._commit()
            if self._writer.due:
                self._writer.checkpoint()
        finally:
            self._writer.flush()

    def _commit(self) -> None:
        batch = self._take()
        error = self._writer.write(batch) or self._writer.commit(batch)
        if error is not None:
            raise error
        self._registered(batch)

    def commit_later(self, done: Done, call_soon: CallSoon | None) -> None:
        if self._leftovers and call_soon is not None:
            self._remove_leftovers(call_soon)
        size, idle = len(self._open), self._given == self._writer.ended
        if not size:
            self._open.removes, self._held = self._held, {}
            done(None)
            return
        if call_soon is None:
            _told(self.commit, done)
            return
        light = size < _MANY and not self._open.clears and not any(map(is_large, self._open.puts.values()))
        if light and idle and self._is_fast(size):
            _told(self._commit, done)
            self._look_at_wal(call_soon)
            return
        batch = self._take()
        staged = light and idle
        error = self._writer.write(batch) if staged else None
        if error is not None:
            done(error)
        else:
            self._given += 1
            answer = partial(self._done, batch, done, call_soon)
            self._helper.give(partial(self._writer.work, batch, staged, answer, call_soon))

    def _is_fast(self, size: int) -> bool:
        pace = self._writer.pace
        if size <= _FEW:
            return pace < _FAST
        return size <= _ADDED and pace < _FAST_ADDED and bool(self._open.puts or self._open.keys)

    def _look_at_wal(self, call_soon: CallSoon) -> None:
        """Start a checkpoint if one is due. It takes as long as 100 commits, so the helper does it, and commits wait.

        No second connection does it beside them: that is the pattern of a fault of SQLite up to 3.51.2, which loses
        what is written when the WAL starts over.
        """
        if not self._writer.due or self._copying:
            return
        if self._writer.is_short_of_space:
            self._writer.checkpoint()
        else:
            self._copying = True
            self._run(self._writer.checkpoint, self._copied, call_soon)

    def _copied(self, _nothing: None) -> None:
        self._copying = False

    def _take(self) -> Batch:
        """Return the open batch, and begin an empty one."""
        batch, self._open = self._open, Batch()
        if self._held:
            self._open.removes, self._held = self._held, {}
        full = len(self._bases) > self._sweep_at
        if full and self._given == self._writer.ended == self._known and not self._pages:
            self._sweep(batch)
        batch.queues = self._unsaved.copy()
        return batch

    def _sweep(self, batch: Batch) -> None:
        """Forget some of the queues that hold nothing. Their names came from clients, so they must not accumulate."""
        used = {key >> SEQ_BITS for key in batch.puts}
        for name in list(islice(self._bases, _SWEEP)):
            base = self._bases.pop(name)
            number = base >> SEQ_BITS
            if number in used or self._writer.holds(number):
                self._bases[name] = base  # moved to the end, so that others are checked next
            else:
                self._unsaved.pop(name, None)
                self._names.pop(number, None)
                self._writer.suspects.pop(number, None)
                self._free.append(number)
                batch.dropped.append(number)
        self._sweep_at = len(self._bases) + _SWEEP // 2

    def _registered(self, batch: Batch) -> None:
        for name in batch.queues:
            self._unsaved.pop(name, None)

    def _done(self, batch: Batch, done: Done, call_soon: CallSoon, error: StoreError | None) -> None:
        """Finish a job, in the loop's thread."""
        self._known += 1
        if error is None:
            self._registered(batch)
        done(error)
        if not self._closed:
            self._look_at_wal(call_soon)

    @property
    def written(self) -> int:
        return self._writer.written

    def size(self) -> int | None:
        return self._writer.size()

    def look(self) -> StoreError | None:
        return self._writer.look()

    def backup(self, new: Path) -> int:
        return self._writer.backup(new)

    def room(self) -> int | None:
        return self._space(self._writer, self._given == self._writer.ended)

    def tidy(self, call_soon: CallSoon, urgent: bool = False) -> None:
        """Tidy step by step, each a job of the helper, until there is a commit."""
        self._remove_leftovers(call_soon)
        commits = self._writer.commits
        if urgent:
            self._tidied_at = commits
            self._tidy_step(call_soon)
        elif commits != self._tidied_at:  # not idle
            self._tidied_at = commits
            self._tidied = False
        elif not self._tidied:
            self._tidy_step(call_soon)

    def _tidy_step(self, call_soon: CallSoon) -> None:
        if self._closed or len(self._open) or self._given != self._known or self._copying:
            return
        self._run(self._writer.tidy, partial(self._tidied_one, call_soon), call_soon)

    def _tidied_one(self, call_soon: CallSoon, more: bool) -> None:
        """Finish one step. Stop tidying if there was a commit meanwhile."""
        if self._writer.commits != self._tidied_at:
            return
        if more:
            self._tidy_step(call_soon)
        else:
            self._tidied = True

    def _remove_leftovers(self, call_soon: CallSoon) -> None:
        """Remove what earlier runs have left, a share in each of the helper's jobs."""
        if self._leftovers and not self._removing and not self._closed:
            self._removing = True
            self._run(self._writer.remove_leftovers, partial(self._removed, call_soon), call_soon)

    def _removed(self, call_soon: CallSoon, more: bool) -> None:
        """Finish one share. After an error the next one waits for a commit, or for `tidy`."""
        self._removing = self._tidied = False
        if more:
            self._remove_leftovers(call_soon)

    def _run(self, job: Callable[[], _Result], then: Callable[[_Result], object], call_soon: CallSoon) -> None:
        """Have the helper do a job of the writer, and the loop go on with its result."""
        self._given += 1
        self._helper.give(partial(self._work, job, then, call_soon))

    def _work(self, job: Callable[[], _Result], then: Callable[[_Result], object], call_soon: CallSoon) -> None:
        result = job()
        with suppress(RuntimeError):  # the loop is closed
            call_soon(partial(self._worked, then, result))
        self._writer.ended += 1

    def _worked(self, then: Callable[[_Result], object], result: _Result) -> None:
        self._known += 1
        then(result)

    def _settle(self) -> None:
        """Wait until the helper is idle."""
        if self._given != self._writer.ended:
            self._helper.wait()

    def close(self) -> None:
        """Commit the open batch and release the files. Closing twice does nothing.

        If that commit fails, or one whose end the loop has not seen, what was delivered may lack its mark in the store.
        The next start then takes this end for a crash, and marks all messages.
        """
        if self._closed:
            return
        self._closed = True
        unseen, clean = self._given != self._known, False
        try:
            self.commit()
            clean = not (unseen and self._writer.failures)
        finally:
            self._pages.close()
            self._helper.stop()
            self._writer.close(clean)


def _told(commit: Callable[[], None], done: Done) -> None:
    try:
        commit()
    except StoreError as error:
        done(error)
    else:
        done(None)
