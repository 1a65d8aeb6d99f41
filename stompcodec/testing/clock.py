"""A clock that can be set forward."""

from __future__ import annotations

import time

__all__ = ["ShiftedClock"]


class ShiftedClock:
    """The time of the machine, and what it was set forward by. It never goes back.

    >>> clock = ShiftedClock()
    >>> before = clock.monotonic()
    >>> clock.reach(before + 3600)
    >>> clock.monotonic() - before >= 3600, clock.time() - time.time() > 3590
    (True, True)
    """

    def __init__(self) -> None:
        self._ahead = 0.0

    def monotonic(self) -> float:
        """Seconds, from some point on."""
        return time.monotonic() + self._ahead

    def time(self) -> float:
        """Seconds since 1970."""
        return time.time() + self._ahead

    def reach(self, at: float) -> None:
        """Set it forward until `monotonic` is at least so much."""
        self._ahead = max(self._ahead, at - time.monotonic())
