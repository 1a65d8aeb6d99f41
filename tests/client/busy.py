"""An I/O thread that is busy, to prove what is done without it."""

from __future__ import annotations

import contextlib
import threading

from patience import patience

from stompcodec.client import hub

__all__ = ["busy_hub"]

LONG = 60.0


@contextlib.contextmanager
def busy_hub():
    begun, go_on = threading.Event(), threading.Event()

    def steps():
        begun.set()
        go_on.wait(patience(LONG))
        yield from ()

    task = hub.run(steps())
    assert begun.wait(patience(LONG))
    try:
        yield
    finally:
        go_on.set()
        task.join(patience(LONG))
