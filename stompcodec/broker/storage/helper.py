"""The store's helper: one thread that runs jobs that would block the loop, in order."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Event, Thread
from typing import Protocol


class Helper(Protocol):
    """The interface of the store's helper. It runs jobs in the order in which they are given. Jobs must not raise."""

    def give(self, job: Callable[[], object]) -> None:
        """Have a job run soon, and return at once."""

    def wait(self) -> None:
        """Wait until all jobs given so far have ended."""

    def stop(self) -> None:
        """Run the jobs given so far, then end. No job may be given afterwards."""


class HelperThread:
    """A `Helper` with a thread of its own, which starts with the first job.

    >>> helper = HelperThread("example")
    >>> done = []
    >>> helper.give(lambda: done.append(1)); helper.wait(); helper.stop()
    >>> done
    [1]
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: Thread | None = None

    def give(self, job: Callable[[], object]) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def wait(self) -> None:
        if self._thread is not None:
            ended = Event()
            self._jobs.put(ended.set)
            ended.wait()

    def stop(self) -> None:
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # it holds messages
