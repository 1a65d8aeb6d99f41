"""Permissions of files that hold messages: 0600 in folders of 0700, whatever the umask, unless options widen them."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from stompcodec.errors import StoreError

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


#: For `os.open`: fail on a symbolic link, if the system can.
NO_FOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
_BINARY: int = getattr(os, "O_BINARY", 0)


class Access(NamedTuple):
    """The permissions of the files of a store, a capture or a spool."""

    mode: int = 0o600
    """Permission bits of files. In folders, each right to read comes with the right to enter."""
    group: int | None = None
    """The group of files and folders; None for the system's default."""

    @property
    def folder_mode(self) -> int:
        return self.mode | (self.mode & 0o444) >> 2


#: Access for the owner only.
PRIVATE = Access()


def access_of(mode: int | None = None, group: str | None = None) -> Access:
    """Return the permissions for two options: the bits of files, by default 0600, or 0640 with a group; and the name or
    number of the group, which raises ValueError if it is unknown.
    """
    if group is None:
        return PRIVATE if mode is None else Access(mode)
    return Access(0o640 if mode is None else mode, _number_of(group))


def _number_of(group: str) -> int:
    if sys.platform == "win32":
        raise ValueError("group: files have no group on Windows (leave it out)")
    if re.fullmatch("[0-9]{1,10}", group):
        return int(group)
    try:
        import grp
    except ImportError:  # Python in a browser has no groups
        raise ValueError("group: this system has no names of groups (use a number)") from None
    try:
        return grp.getgrnam(group).gr_gid
    except (KeyError, ValueError):
        raise ValueError(f"group: no group of this system is called {group!r}") from None


def create(
    path: str | os.PathLike[str],
    flags: int,
    access: Access = PRIVATE,
    *,
    folder: int | None = None,
    follow: bool = False,
) -> int:
    """Open a file, creating it with these permissions if it is missing, and return its descriptor. An existing file
    keeps its own.

    `flags` are those of `os.open`. `folder` is the descriptor of the folder that `path` is relative to. A symbolic link
    raises OSError unless `follow` is set, for names that the user chose. Permissions that cannot be set raise
    StoreError.
    """
    flags |= _BINARY | (0 if follow else NO_FOLLOW)
    try:
        file = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
    except FileExistsError:
        if flags & os.O_EXCL:
            raise
        return os.open(path, flags | os.O_CREAT, 0o600, dir_fd=folder)
    try:
        grant(file, access, path)
    except BaseException:
        os.close(file)
        raise
    return file


def grant(file: int, access: Access, path: str | os.PathLike[str]) -> None:
    """Set the permissions of an open file or folder, if they differ. A failure to set 0600 is ignored, since some file
    systems have no permissions; any other raises StoreError.
    """
    _give(file, os.fstat(file), access, path)


def guard(path: str | os.PathLike[str], access: Access) -> None:
    """Set the permissions of a file without opening it, if it exists: closing it would release the locks of SQLite.
    Raise StoreError if they cannot be set.
    """
    try:
        info = os.lstat(path)
    except OSError:
        return
    if stat.S_ISREG(info.st_mode):
        _give(path, info, access, path)


def _give(
    target: int | str | os.PathLike[str], info: os.stat_result, access: Access, path: str | os.PathLike[str]
) -> None:
    if sys.platform == "win32":
        return
    mode = access.folder_mode if stat.S_ISDIR(info.st_mode) else access.mode
    try:
        if access.group is not None and info.st_gid != access.group:
            os.chown(target, -1, access.group)
        if info.st_mode & 0o777 != mode:
            os.chmod(target, mode)
    except FileNotFoundError:  # SQLite removes its WAL
        return
    except OSError as error:
        if access != PRIVATE:
            remedy = "let its owner be a member of the group, or leave out mode and group"
            raise StoreError(f"{path}: cannot be given its mode and group: {error.strerror} ({remedy})") from error


def copy_access(path: str | os.PathLike[str], file: int) -> None:
    """Copy permissions and group of another file to an open file, as far as the system allows it."""
    if sys.platform == "win32":
        return
    try:
        info = os.stat(path)
        if info.st_gid != os.fstat(file).st_gid:
            os.fchown(file, -1, info.st_gid)
        os.fchmod(file, info.st_mode & 0o666)
    except OSError:
        return


def replace(path: Path, text: str, access: Access = PRIVATE) -> None:
    """Write a small file anew, atomically, also on the disk. Raises OSError."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    try:
        with open(new, "w", encoding="utf-8", opener=opener(access)) as stream:
            stream.write(text)
            stream.flush()
            sync(stream.fileno())
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
    sync_folder(path.parent)


def opener(access: Access = PRIVATE) -> Callable[[str, int], int]:
    """Return an `opener` for `open` that gives new files these permissions."""
    return lambda path, flags: create(path, flags & ~os.O_CREAT, access, follow=True)


def make_folder(path: Path, access: Access = PRIVATE) -> bool:
    """Make a folder and its missing parents. Return whether it was missing; an existing one is not changed. Raise
    StoreError if the permissions cannot be set.
    """
    try:
        try:
            os.mkdir(path, 0o700)
        except FileNotFoundError:
            if path.parent == path:
                raise
            make_folder(path.parent, access)
            os.mkdir(path, 0o700)  # once: a removed folder, and /proc, exist and take no others
    except FileExistsError:
        if not path.is_dir():
            raise
        return False
    if sys.platform != "win32":
        try:  # the umask may have removed the owner's permissions
            os.chmod(path, 0o700)
            file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | NO_FOLLOW)
        except PermissionError:  # a file system without permissions
            return True
        try:
            grant(file, access, path)
        finally:
            os.close(file)
    return True
