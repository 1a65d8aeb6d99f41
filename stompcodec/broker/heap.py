"""Returns freed memory of the process heap to the system after a backlog has drained.

glibc keeps freed memory that lies between used blocks: 40 MiB after 70,000 messages of 1 KiB.
"""

from __future__ import annotations

#: Least decrease of message bytes for which trimming pays.
_LEAST = 16 * 2**20
#: A parameter of `mallopt`, and its initial value in glibc, in bytes.
_MMAP_THRESHOLD, _LARGE = -3, 128 * 1024


class Heap:
    """A watch on the bytes held in queues.

    >>> heap = Heap()
    >>> heap.note(100 * 2**20)
    >>> heap.look(90 * 2**20), heap.look(1000), heap.look(1000)
    (False, True, False)
    """

    def __init__(self) -> None:
        self._most = 0

    def note(self, octets: int) -> None:
        """Record how many bytes are held now."""
        if octets > self._most:
            self._most = octets

    def look(self, octets: int) -> bool:
        """Trim the heap if enough was freed, given the bytes held now, and return whether it did."""
        if self._most - octets < _LEAST or octets > self._most // 2:
            return False
        self._most = octets
        _give_back()
        return True


def give_back_large() -> None:
    """Have the C library return large buffers to the system when they are freed, for the rest of the process.

    By default glibc raises the threshold to the largest buffer freed so far. The memory of unfinished frames would then
    not be available for messages, which are small.
    """
    _call("mallopt", _MMAP_THRESHOLD, _LARGE)


def _give_back() -> None:
    """Trim the heap, which takes some milliseconds."""
    _call("malloc_trim", 0)


def _call(name: str, *arguments: int) -> None:
    """Call a function of the C library if it exists, as in glibc."""
    try:
        import ctypes

        getattr(ctypes.CDLL(None), name)(*arguments)
    except (ImportError, OSError, AttributeError, TypeError):
        return
