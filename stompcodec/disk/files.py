"""Locks of files, syncs to the disk, and whether an open file is still at its path, on each operating system."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

#: The byte that is locked on Windows, where locked bytes cannot be read. No file is that long.
_FAR = 2**62


def lock(file: int) -> None:
    """Lock an open file until `unlock`, or the process ends. Raise BlockingIOError if it is locked already, by another
    process or by another descriptor of this one; another OSError if it cannot be locked.
    """
    if sys.platform == "win32":
        os.lseek(file, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError(errno.EAGAIN, error.strerror) from error
        finally:
            os.lseek(file, 0, os.SEEK_SET)
    else:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def unlock(file: int, owner: int) -> None:
    """Close a locked file. `owner` is the process that locked it: there the lock ends, though a process that it forked
    still has the file open. In such a process nothing but its own descriptor is closed.
    """
    if sys.platform != "win32" and owner == os.getpid():
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)
    os.close(file)


#: What `stat` says of a path where nothing is. Others, such as EACCES and EIO, leave that unknown.
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


def is_at(file: int, path: str | os.PathLike[str]) -> bool:
    """Return whether an open file is still the one at its path: False once it, or a folder above it, was removed,
    renamed or replaced. Raise OSError if that is unknown.

    Always True on Windows, which keeps open files where they are. Names are compared, and not only the number of links:
    NFS renames an open file that is removed.
    """
    if sys.platform == "win32":
        return True
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except OSError as error:
        if error.errno in GONE:
            return False
        raise


def lock_folder(folder: Path, unable: Callable[[OSError], object] = lambda error: None) -> int | None:
    """Lock a folder until the returned descriptor is given to `unlock`, or the process ends. Return None where folders
    cannot be locked: on Windows, and on some file systems, of which `unable` is told. Raise BlockingIOError if it is
    locked already; another OSError if it cannot be opened.
    """
    if sys.platform == "win32":
        return None
    file = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise
    except OSError as error:
        os.close(file)
        unable(error)
        return None
    return file


def sync(file: int) -> None:
    """Write the data and the length of a file to the disk."""
    if sys.platform == "darwin":
        fcntl.fcntl(file, fcntl.F_FULLFSYNC)  # fsync does not empty the disk's cache there
    elif hasattr(os, "fdatasync"):
        os.fdatasync(file)
    else:
        os.fsync(file)


def sync_folder(folder: Path) -> None:
    """Write the names of new files to the disk. Windows has no such call and does not need it."""
    if sys.platform != "win32":
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
