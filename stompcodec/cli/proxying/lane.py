"""Bounded queues with a thread each, which keep slow work away from the stream."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")
#: Items that a thread takes at a time.
_BATCH = 200


class Lane(Generic[T]):
    """A bounded queue, and the thread that works on it. An item that does not fit is refused at once.

    Args:
        name: the name of the thread.
        work: called in the thread with the next items.
        most: the sum of the sizes of the items that wait, or are being worked on.
        failed: called in the thread with an exception of `work`. Later items are refused.

    >>> done = []
    >>> lane = Lane("example", done.extend, most=10)
    >>> lane.put("a", 10), lane.close(10.0), lane.put("b", 1), done
    (True, True, False, ['a'])
    """

    def __init__(
        self,
        name: str,
        work: Callable[[list[T]], object],
        most: int,
        failed: Callable[[Exception], object] = lambda error: None,
    ) -> None:
        self._work = work
        self._most = most
        self._failed = failed
        self._items: deque[tuple[T, int]] = deque()
        self._size = 0
        self._over = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"stompcodec-{name}", daemon=True)
        self._thread.start()

    def put(self, item: T, size: int) -> bool:
        """Add an item, and return False if it does not fit."""
        with self._changed:
            if self._over or (self._size and self._size + size > self._most):
                return False
            self._items.append((item, size))
            self._size += size
            self._changed.notify()
            return True

    def close(self, seconds: float) -> bool:
        """Refuse further items, and wait until the others are done. Return False if that takes longer."""
        with self._changed:
            self._over = True
            self._changed.notify()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while batch := self._next():
            try:
                self._work([item for item, _ in batch])
            except Exception as error:
                with self._changed:
                    self._over = True
                    self._items.clear()
                self._failed(error)
                return
            with self._changed:
                self._size -= sum(size for _, size in batch)

    def _next(self) -> list[tuple[Any, int]]:
        with self._changed:
            while not self._items and not self._over:
                self._changed.wait()
            return [self._items.popleft() for _ in range(min(_BATCH, len(self._items)))]
