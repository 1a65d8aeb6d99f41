"""A clock that can be set forward."""

from __future__ import annotations

import time


class ShiftedClock:
    """The clock of the machine plus an offset that only grows.

    >>> clock = ShiftedClock()
    >>> before = clock.monotonic()
    >>> clock.reach(before + 3600)
    >>> clock.monotonic() - before >= 3600, clock.time() - time.time() > 3590
    (True, True)
    """

    def __init__(self) -> None:
        self._ahead = 0.0

    def monotonic(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic() + self._ahead

    def time(self) -> float:
        """Return seconds since 1970."""
        return time.time() + self._ahead

    def reach(self, at: float) -> None:
        """Set the clock forward until `monotonic` returns at least `at`."""
        self._ahead = max(self._ahead, at - time.monotonic())
