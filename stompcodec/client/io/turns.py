"""The I/O thread's way to a lock that other threads take again and again."""

from __future__ import annotations

import threading


class Turns:
    """A lock, taken by one thread that may have to wait for it, in a `with` block.

    Whoever releases a lock and takes it again at once is faster than a thread that sleeps until it is free: that one
    would be woken with each message for nothing, at a high price. So while it `waits`, others `let_pass` first.

    >>> lock = threading.Lock()
    >>> turns = Turns(lock)
    >>> with turns:
    ...     lock.locked(), turns.waits
    (True, False)
    """

    __slots__ = ("_gate", "_lock", "waits")

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._gate = threading.Lock()
        self.waits = False

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._gate.acquire()
            self.waits = True
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if self.waits:
            self.waits = False
            self._gate.release()

    def let_pass(self) -> None:
        """Wait until the waiting thread has had its turn. Others call this before they take the lock."""
        with self._gate:
            pass
