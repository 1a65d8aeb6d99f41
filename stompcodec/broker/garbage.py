"""Garbage collection of cycles in short steps, so that it never examines a million messages at once."""

from __future__ import annotations

import gc
from types import TracebackType

#: Python collects after every 10,000 new objects: first these, next time also the survivors, then all objects that are
#: new since the last freeze. That is at most 30,000 objects, or 25 ms.
_THRESHOLDS = (10_000, 0, 0)
#: Below this many bytes on the memory account, all objects are few enough to be examined.
_FEW = 64 * 2**20
#: After this many sessions all objects are examined, however many there are, because most cycles belong to sessions.
_MANY = 20_000


class Garbage:
    """A context in which Python collects cycles in short steps. It changes the settings of the whole process.

    Objects that survive a full collection are frozen (`gc.freeze`) and not examined again, so each collection is short,
    but cycles among them are not freed. Therefore they are unfrozen from time to time, preferably when little is in
    memory.

    >>> with Garbage() as garbage:
    ...     garbage.look(0, 0)
    """

    def __enter__(self) -> Garbage:
        self._before = gc.get_threshold()
        self._sessions = 0
        self._frozen = False
        gc.set_threshold(*_THRESHOLDS)
        gc.callbacks.append(self._collected)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        gc.callbacks.remove(self._collected)
        gc.set_threshold(*self._before)
        gc.unfreeze()

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == 2:
            gc.freeze()
            self._frozen = True

    def look(self, octets: int, sessions: int) -> None:
        """Unfreeze all objects if the memory account has few bytes, or many sessions have come since the last time."""
        if self._frozen and (octets < _FEW or sessions - self._sessions >= _MANY):
            gc.unfreeze()
            self._frozen, self._sessions = False, sessions
