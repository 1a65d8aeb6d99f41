"""Python's collector of cycles, as a broker needs it: it must not look at a million messages in one go."""

from __future__ import annotations

import gc
from types import TracebackType

__all__ = ["Garbage"]

#: Objects made before Python looks for cycles: first among these, then also among what that has left, then among all
#: that came since the last such look. So that is 30,000 objects, or 25 ms.
_THRESHOLDS = (10_000, 0, 0)
#: Bytes of the memory account below which all objects are few enough to be looked at.
_FEW = 64 * 2**20
#: Sessions after which all objects are looked at, however many these are: cycles are most often parts of sessions.
_MANY = 20_000


class Garbage:
    """A context in which Python collects cycles in short steps. It changes the settings of the whole process.

    What a look at all objects has left is not looked at again (`gc.freeze`), so no look takes long, but cycles among
    those objects stay. So from time to time, most often when there is little else in memory, it forgets that.

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
        """Have all objects looked at next time, if these are few or many sessions have come since the last time.

        Args:
            octets: bytes of the memory account that are used.
            sessions: that have come since the start.
        """
        if self._frozen and (octets < _FEW or sessions - self._sessions >= _MANY):
            gc.unfreeze()
            self._frozen, self._sessions = False, sessions
