"""The line of pages to be read from a store, one after another, in a thread of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

from stompcodec.broker.storage.helper import Helper
from stompcodec.broker.storage.sqlite_reader import Reader, Run
from stompcodec.broker.storage.store import CallSoon, Done
from stompcodec.errors import StoreError

#: While pages take less than _FAST seconds, the loop may read small ones. A single one counts for at most _LONG.
_FAST, _LONG = 0.002, 0.01

Answer = Run | StoreError


class Doubts(Protocol):
    """The writer's knowledge of rows that failed commits may have left. They are removed before anything is read."""

    @property
    def failures(self) -> int:
        """Number of commits that have failed."""

    @property
    def in_doubt(self) -> bool:
        """True if rows may be in the file of which the caller was told that they are not."""

    def clear_doubts(self, done: Done, call_soon: CallSoon | None) -> None:
        """Remove those rows, and call `done` in the loop's thread."""


class _Read(NamedTuple):
    """A page that was asked for."""

    job: Callable[[], Run]
    done: Callable[[Answer], object]
    call_soon: CallSoon


class PageReads:
    """The line of pages. Only the loop's thread uses it.

    Args:
        reader: reads them, in the helper's thread.
        helper: runs the reads. It is stopped by `close`.
        doubts: those of the writer.
        clock: returns seconds.
    """

    def __init__(self, reader: Reader, helper: Helper, doubts: Doubts, clock: Callable[[], float]) -> None:
        self._reader = reader
        self._helper = helper
        self._doubts = doubts
        self._line: deque[_Read] = deque()
        #: The failed commits before which the reader's connection was opened, as far as its thread knows.
        self._seen = doubts.failures

        self._clock = clock
        #: Moving average of the seconds that a page takes. A single one counts for at most `_LONG`.
        self._pace = 0.0

    def __len__(self) -> int:
        return len(self._line)

    @property
    def are_fast(self) -> bool:
        """True if a page can be read at once, and does not take long."""
        return not self._line and not self._doubts.in_doubt and self._pace < _FAST

    def give(self, job: Callable[[], Run], done: Callable[[Answer], object], call_soon: CallSoon | None) -> None:
        """Have a page read. `done` is called in the loop's thread; without `call_soon`, before this method returns."""
        if call_soon is None:
            if self._line:
                self._helper.wait()
            cleared: list[StoreError | None] = [None]
            if self._doubts.in_doubt:
                self._doubts.clear_doubts(cleared.append, None)
            done(cleared[-1] or self._answer(job, self._doubts.failures))
            return
        self._line.append(_Read(job, done, call_soon))
        if len(self._line) == 1:
            self._start()

    def _start(self) -> None:
        """Start the first one in the line."""
        first = self._line[0]
        if self._doubts.in_doubt:
            self._doubts.clear_doubts(self._cleared, first.call_soon)
        else:
            self._helper.give(partial(self._work, first, self._doubts.failures))

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
        if self._doubts.in_doubt or self._doubts.failures != failures:
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
