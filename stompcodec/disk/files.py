"""Locks of files, syncs to the disk, and whether an open file is still at its path, on each operating system."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

#: The byte that is locked on Windows, where locked bytes cannot be read. No file is that long.
_FAR = 2**62


def lock(file: int) -> None:
    """Lock an open file until it is closed, or the process ends. Raise OSError if it is locked already, by another
    process or by another descriptor of this one.
    """
    if sys.platform == "win32":
        os.lseek(file, _FAR, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        os.lseek(file, 0, os.SEEK_SET)
    else:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


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
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
            return False
        raise


def lock_folder(folder: Path) -> int | None:
    """Lock a folder until the returned descriptor is closed, or the process ends; return None where folders cannot be
    locked: on Windows, and on some network file systems. Raise BlockingIOError if it is locked already.
    """
    if sys.platform == "win32":
        return None
    file = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise
    except OSError:
        os.close(file)
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
