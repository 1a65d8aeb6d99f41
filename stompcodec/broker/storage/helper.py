"""The store's helper: one thread that does what would hold up the loop, one job after the other."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Event, Thread
from typing import Protocol

__all__ = ["Helper", "HelperThread"]


class Helper(Protocol):
    """What the store asks of its helper. Jobs run in the order in which they are given, and raise nothing."""

    def give(self, job: Callable[[], object]) -> None:
        """Run a job soon, and return at once."""

    def wait(self) -> None:
        """Return when all jobs that were given have ended."""

    def stop(self) -> None:
        """Run what was given, then end. Nothing may be given afterwards."""


class HelperThread:
    """A `Helper` that is a thread. It starts with the first job.

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
        """As in Helper."""
        if self._thread is None:
            self._thread = Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def wait(self) -> None:
        """As in Helper."""
        if self._thread is not None:
            ended = Event()
            self._jobs.put(ended.set)
            ended.wait()

    def stop(self) -> None:
        """As in Helper."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # it holds messages
