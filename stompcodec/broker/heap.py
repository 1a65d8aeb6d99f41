"""The heap of the process: what a backlog has taken is given back to the system once it is gone.

glibc keeps freed memory that lies between what is still in use. After 70,000 messages of 1 KiB that is 40 MiB.
"""

from __future__ import annotations

__all__ = ["Heap", "give_back_large"]

#: Octets of messages that must be gone before it is worth while.
_LEAST = 16 * 2**20
#: A parameter of `mallopt`, and its value in bytes: the one that glibc begins with.
_MMAP_THRESHOLD, _LARGE = -3, 128 * 1024


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


def give_back_large() -> None:
    """Tell the C library to return large buffers to the system when they are freed. It holds for this process.

    By default glibc does so only with buffers that are larger than all that were freed before. Then what unfinished
    frames took is not to be had for messages, which are small.
    """
    _call("mallopt", _MMAP_THRESHOLD, _LARGE)


def _give_back() -> None:
    """It takes some milliseconds."""
    _call("malloc_trim", 0)


def _call(name: str, *arguments: int) -> None:
    """Call a function of the C library, if it has that: glibc does."""
    try:
        import ctypes

        getattr(ctypes.CDLL(None), name)(*arguments)
    except (ImportError, OSError, AttributeError, TypeError):
        return
