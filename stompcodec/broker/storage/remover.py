"""Remover: a thread that removes files, so that the loop and the store's commits need not wait for the disk."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from threading import Event, Thread, current_thread

from stompcodec.broker.storage.helper import Helper

_LOG = logging.getLogger("stompcodec.broker")
Job = Callable[[], object]


class Remover:
    """A thread that runs jobs in order. It starts with the first job, and ends at `close`.

    `put` may be called from any thread, even by the garbage collector in the middle of another call.

    Args:
        helper: runs the jobs instead of a thread. Its maker has to stop it.

    >>> remover = Remover()
    >>> remover.put(lambda: print("removed")); remover.flush()
    removed
    >>> remover.pending
    0
    >>> remover.close()
    """

    def __init__(self, helper: Helper | None = None) -> None:
        self._helper = helper
        # Invariant: no method takes a lock, because a finalizer might find it held by its own thread.
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._given = 0
        self._done: list[int] = [0]
        self._started = False
        self._closed = False
        self._thread: Thread | None = None
        weakref.finalize(self, self._jobs.put, None)

    @property
    def pending(self) -> int:
        """Number of jobs that are not done yet."""
        return self._given - self._done[0]

    def _start(self) -> None:
        """Start the thread, unless it runs already."""
        if self._started:
            return
        self._started = True
        thread = Thread(target=_work, args=(self._jobs, self._done), name="stompcodec-files", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads: the next job tries again
            self._started = False
        else:
            self._thread = thread

    def put(self, job: Job) -> None:
        """Have the thread run a job. It is ignored after `close`."""
        if self._closed:
            return
        self._given += 1
        if self._helper is not None:
            self._helper.give(lambda: _do(job, self._done))
            return
        self._jobs.put(job)
        self._start()

    def flush(self) -> None:
        """Wait until all jobs given so far are done."""
        if self._given == self._done[0] or self._closed:
            return
        if self._thread is current_thread():  # a finalizer may call this there
            return
        if self._helper is not None:
            self._helper.wait()
        elif self._thread is not None:
            done = Event()
            self.put(done.set)
            done.wait()

    def close(self) -> None:
        """Wait until all jobs are done, and end the thread. Closing twice does nothing."""
        if self._closed:
            return
        self.flush()
        self._closed = True
        self._jobs.put(None)
        if self._thread is None:
            _work(self._jobs, self._done)
        elif self._thread is not current_thread():
            self._thread.join()


def _work(jobs: SimpleQueue[Job | None], done: list[int]) -> None:
    while (job := jobs.get()) is not None:
        _do(job, done)
        del job  # it may refer to a folder
    jobs.put(None)


def _do(job: Job, done: list[int]) -> None:
    try:
        job()
    except Exception:
        _LOG.exception("a file could not be removed")
    done[0] += 1
