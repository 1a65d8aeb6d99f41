"""Free space on the disk of a store, and a reserve for what must go on when the disk is full."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path

from stompcodec.disk import PRIVATE, Access, create

#: Bytes of the reserve. Acknowledgements need little, because the WAL is checkpointed early while the reserve is in
#: use.
RESERVE = 8 * 2**20


def free_space(folder: Path) -> int:
    """Return how many bytes the disk of a folder has left for us."""
    return shutil.disk_usage(folder).free


def is_full(error: BaseException | None) -> bool:
    """Return whether an error says that the disk is full.

    >>> is_full(OSError(28, "No space left on device")), is_full(ValueError("full"))
    (True, True)
    """
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return error is not None and "full" in str(error)


class Reserve:
    """A file that occupies space on the disk (0 bytes: none), to be released when the disk is full."""

    def __init__(self, path: Path, access: Access = PRIVATE, size: int = RESERVE) -> None:
        self._path = path
        self._access = access
        self._size = size
        #: The space was released, and has not been taken again.
        self.released = False
        #: The disk was nearly full when it was last looked at.
        self.is_near = False

    @property
    def held(self) -> bool:
        """True if the space is occupied, or none is wanted."""
        with suppress(OSError):
            return not self._size or self._path.stat().st_size >= self._size
        return False

    def take(self) -> bool:
        """Occupy the space if the disk has four times as much free, and return whether it is occupied."""
        if self.held:
            return True
        with suppress(OSError):
            if free_space(self._path.parent) < 4 * self._size:
                return False
            file = create(self._path, os.O_WRONLY, self._access)
            try:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file, 0, self._size)
                else:
                    os.write(file, bytes(self._size))
            finally:
                os.close(file)
            self.released = False
            return True
        return False

    def release(self) -> bool:
        """Release the space, and return whether there was any."""
        with suppress(OSError):
            if self._size and self._path.stat().st_size:
                os.truncate(self._path, 0)
                self.released = True
                return True
        return False
