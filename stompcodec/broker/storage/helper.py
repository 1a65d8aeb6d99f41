"""Threads for jobs that would block the loop or the store's commits: waiting for the disk, and removing files."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event, Thread, current_thread

_LOG = logging.getLogger("stompcodec.broker")
Job = Callable[[], object]


class HelperThread:
    """Runs jobs, which must not raise, in the order in which they are given: in a thread of its own, which starts with
    the first job. It ends with the last reference, too.

    Its methods may be called from any thread, even by the garbage collector in the middle of another call.

    >>> helper = HelperThread("example")
    >>> done = []
    >>> helper.give(lambda: done.append(1)); helper.wait(); helper.stop()
    >>> done
    [1]
    """

    def __init__(self, name: str) -> None:
        self._name = name
        # Invariant: no method takes a lock, because a finalizer might find it held by its own thread.
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._started = False
        self._thread: Thread | None = None
        weakref.finalize(self, self._jobs.put, None)

    def give(self, job: Job) -> None:
        """Have a job run soon, and return at once."""
        self._jobs.put(job)
        if self._started:
            return
        self._started = True
        thread = Thread(target=_work, args=(self._jobs,), name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads: do it here, and try again with the next job
            self._started = False
            with suppress(Empty):
                while waiting := self._jobs.get_nowait():
                    waiting()
        else:
            self._thread = thread

    def wait(self) -> None:
        """Wait until all jobs given so far have ended."""
        if self._thread not in (None, current_thread()):  # a finalizer may call this there
            ended = Event()
            self._jobs.put(ended.set)
            ended.wait()

    def stop(self) -> None:
        """Run the jobs given so far, then end. No job may be given afterwards."""
        self._jobs.put(None)
        if self._thread is not None and self._thread is not current_thread():
            self._thread.join()


def _work(jobs: SimpleQueue[Job | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # it holds messages, or a folder


class Remover:
    """Removes files by jobs of a helper; without one, of a thread that ends at `close`. Jobs may raise.

    >>> remover = Remover()
    >>> remover.put(lambda: print("removed")); remover.flush()
    removed
    >>> remover.pending
    0
    >>> remover.close()
    """

    def __init__(self, helper: HelperThread | None = None) -> None:
        self._helper = HelperThread("stompcodec-files") if helper is None else helper
        self._owns_helper = helper is None
        self._given = 0
        self._done: list[int] = [0]
        self._closed = False

    @property
    def pending(self) -> int:
        """Number of jobs that are not done yet."""
        return self._given - self._done[0]

    def put(self, job: Job) -> None:
        """Have a job run soon. It is ignored after `close`."""
        if not self._closed:
            self._given += 1
            self._helper.give(partial(_do, job, self._done))

    def flush(self) -> None:
        """Wait until all jobs given so far are done."""
        if self.pending and not self._closed:
            self._helper.wait()

    def close(self) -> None:
        """Wait until all jobs are done, and end the thread. Closing twice does nothing."""
        if not self._closed:
            self.flush()
            self._closed = True
            if self._owns_helper:
                self._helper.stop()


def _do(job: Job, done: list[int]) -> None:
    try:
        job()
    except Exception:
        _LOG.exception("a file could not be removed")
    done[0] += 1
