"""The data folder: made when it is missing, and used by one broker at a time."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from stompcodec.errors import StoreError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = ["FolderLock"]


class FolderLock:
    """Holds a folder for this process, until `release` or its end, however it ends.

    Args:
        folder: made if it is missing, readable for nobody else.

    Raises:
        StoreError: another process holds it, or it cannot be used.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> first = FolderLock(Path(folder.name))
    >>> FolderLock(Path(folder.name))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    stompcodec.errors.StoreError: the data folder ... is in use by process ... (stop that broker, or ...)
    >>> first.release(); FolderLock(Path(folder.name)).release()
    >>> folder.cleanup()
    """

    def __init__(self, folder: Path) -> None:
        path = folder / "lock"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(
                f"the data folder {folder} cannot be used: {error.strerror} (name another one, or grant access to it)"
            ) from error
        try:
            _lock(self._file)
        except OSError:
            owner = _owner(self._file)
            os.close(self._file)
            raise StoreError(
                f"the data folder {folder} is in use by {owner} (stop that broker, or name another folder)"
            ) from None
        if sys.platform != "win32":  # there, what is locked cannot be read
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        """Lets others have it. The file stays: removing it would let two processes lock two files."""
        os.close(self._file)


def _lock(file: int) -> None:
    if sys.platform == "win32":
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _owner(file: int) -> str:
    try:
        number = os.read(file, 20).decode("ascii", "replace").strip()
    except OSError:
        number = ""
    return f"process {number}" if number.isdigit() else "another process"
