"""How long a test waits before it gives up: what a quiet machine would need, times how slow this one is now.

    from patience import patience

    assert arrived.wait(patience(10))

Nothing waits longer than it must: only a test that fails takes all of this time.
"""

import os
import time

__all__ = ["interval", "patience", "slowness"]
#: Wall seconds that `_work` takes on the quiet machine for which the waits of the tests were written.
_REFERENCE = 0.008
#: A measurement holds for so many seconds, and an older one fades by a tenth each time.
_HOLDS, _FADES = 2.0, 0.9
#: A machine that is slower than this is not waited for.
_MOST = 40.0
_measured_at = float("-inf")
_slowness = 1.0


def _work() -> None:
    """Compute for some milliseconds, long enough to be interrupted where others want the processor too."""
    total = 0
    for number in range(240_000):
        total += number & 7


def _load() -> float:
    """Return how many processes want each processor, as an average over the last minute."""
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except (AttributeError, OSError):  # not on Windows
        return 1.0


def slowness() -> float:
    """Return how many times slower than a quiet machine this one is now, from 1 to 40. The larger of two figures: wall
    time of a piece of work against what it takes on a quiet machine, and processes that want a processor. It rises at
    once and fades slowly, so that a wait which begins in a lull is long enough, too."""
    global _measured_at, _slowness
    now = time.monotonic()
    if now - _measured_at > _HOLDS:
        _work()
        took = time.monotonic() - now
        _measured_at = now + took
        _slowness = min(_MOST, max(1.0, took / _REFERENCE, _load(), _slowness * _FADES))
    return _slowness


def patience(seconds: float) -> float:
    """Return `seconds`, of a quiet machine, as seconds of this one."""
    return seconds * slowness()


def interval(milliseconds: int) -> int:
    """Return `milliseconds` between two heart-beats as this machine can keep them: at most five times as long. Tests
    wait for some of these, so they grow less than `patience`, for which only failing tests wait."""
    return round(milliseconds * min(5.0, slowness()))
