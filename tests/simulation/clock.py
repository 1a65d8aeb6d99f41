"""Simulated time: a heap of what happens when. Nothing else runs the simulation."""

import heapq
from collections.abc import Callable

EPOCH = 1_000_000.0  # Seconds since 1970 at the beginning.


class Clock:
    """The time in seconds from 0, and what is to happen.

    >>> clock, seen = Clock(), []
    >>> clock.after(2.0, lambda: seen.append(clock.now)); clock.run(10.0); seen, clock.now
    ([2.0], 10.0)
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._count = 0
        self.over = False

    def wall(self) -> float:
        return EPOCH + self.now

    def after(self, delay: float, action: Callable[[], object]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + delay, self._count, action))

    def run(self, until: float) -> None:
        events = self._events
        while events and events[0][0] <= until and not self.over:
            at, _, action = heapq.heappop(events)
            self.now = max(self.now, at)
            action()
        self.now = max(self.now, until)
