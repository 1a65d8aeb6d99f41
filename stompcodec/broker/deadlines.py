"""Deadlines: one time for each of many names, and the first of them."""

from __future__ import annotations

from heapq import heapify, heappop, heappush


class Deadlines:
    """Names with one time each, in seconds.

    >>> deadlines = Deadlines()
    >>> deadlines.set("a", 1.0), deadlines.set("b", 2.0), deadlines.set("a", 3.0)
    (None, None, None)
    >>> deadlines.pop(2.5), deadlines.pop(2.5), deadlines.next
    (('b', 2.0), None, 3.0)
    """

    __slots__ = ("_heap", "_times")

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        #: Pairs of time and name. Pairs that do not match `_times` are stale.
        self._heap: list[tuple[float, str]] = []

    def set(self, name: str, at: float) -> None:
        """Set or replace the time of a name."""
        self._times[name] = at
        heappush(self._heap, (at, name))
        if len(self._heap) > 2 * len(self._times) + 100:  # most have been replaced or dropped
            self._heap = [(time, other) for other, time in self._times.items()]
            heapify(self._heap)

    def drop(self, name: str) -> None:
        """Forget a name, if it is there."""
        self._times.pop(name, None)

    @property
    def next(self) -> float | None:
        """The first time, or a little earlier if it was replaced; None without any."""
        return self._heap[0][0] if self._heap else None

    def pop(self, now: float) -> tuple[str, float] | None:
        """Remove and return the name with the first time, and that time. Return None if nothing is due."""
        while self._heap and self._heap[0][0] <= now:
            at, name = heappop(self._heap)
            if self._times.get(name) == at:
                del self._times[name]
                return name, at
        return None
