"""The heap of the process: what a backlog has taken is given back to the system once it is gone.

glibc keeps freed memory that lies between what is still in use. After 70,000 messages of 1 KiB that is 40 MiB.
"""

from __future__ import annotations

__all__ = ["Heap"]

#: Octets of messages that must be gone before it is worth while.
_LEAST = 16 * 2**20


class Heap:
    """Watches how many octets the queues hold.

    >>> heap = Heap()
    >>> heap.note(100 * 2**20)
    >>> heap.look(90 * 2**20), heap.look(1000), heap.look(1000)
    (False, True, False)
    """

    def __init__(self) -> None:
        self._most = 0

    def note(self, octets: int) -> None:
        """So many octets are held now."""
        if octets > self._most:
            self._most = octets

    def look(self, octets: int) -> bool:
        """Give memory back if it is time; whether it was.

        Args:
            octets: that are held now.
        """
        if self._most - octets < _LEAST or octets > self._most // 2:
            return False
        self._most = octets
        _give_back()
        return True


def _give_back() -> None:
    """Where the C library knows how: glibc does. It takes some milliseconds."""
    try:
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)
    except (ImportError, OSError, AttributeError, TypeError):
        return
