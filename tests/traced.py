"""How much memory something takes, as Python's allocators count it."""

import gc
import sys
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

from patience import slowness


@contextmanager
def tracing() -> Iterator[None]:
    """Count from here on; also a decorator of tests. A thread that others left behind, or the one by which pytest-xdist
    hears of the next tests, is counted like the test. So none gets its turn for as long as the test does not wait."""
    turn = sys.getswitchinterval()
    sys.setswitchinterval(600)  # also while the machine is busy with others
    time.sleep(0.01 * slowness())  # who asked for a turn before that gets it now
    gc.collect()
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()
        sys.setswitchinterval(turn)


def peak() -> int:
    return tracemalloc.get_traced_memory()[1]


def held() -> int:
    """Octets that are held, and not only by what the garbage collector has yet to find."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
