"""Rights of the files that hold messages: 0600 in folders of 0700, whatever the umask, unless an option opens them."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from stompcodec.errors import StoreError

if sys.platform != "win32":
    import grp

__all__ = [
    "NO_FOLLOW",
    "PRIVATE",
    "Access",
    "access_of",
    "copy_access",
    "create",
    "grant",
    "guard",
    "make_folder",
    "mode_of",
    "opener",
]

#: For `os.open`: fail on a symbolic link, where the system can.
NO_FOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
_BINARY: int = getattr(os, "O_BINARY", 0)


class Access(NamedTuple):
    """Who may use the files of a store, a capture or a spool.

    >>> oct(Access(0o640).folder_mode)
    '0o750'
    """

    mode: int = 0o600
    """Permission bits of files. Folders get the right to enter with each right to read."""
    group: int | None = None
    """Group of files and folders; None leaves the one that the system gives."""

    @property
    def folder_mode(self) -> int:
        """Permission bits of folders."""
        return self.mode | (self.mode & 0o444) >> 2


#: The owner's alone.
PRIVATE = Access()


def mode_of(value: object) -> int:
    """Return the permission bits that a text such as "0640" means.

    Raises:
        ValueError: the owner could not read and write, others could write, or the bits are none of a file.

    >>> oct(mode_of("0640"))
    '0o640'
    """
    number = value if type(value) is int else -1
    if isinstance(value, str) and re.fullmatch(r"(0o?)?[0-7]{3}", value):
        number = int(value[-3:], 8)
    if number < 0 or number & ~0o666 or number & 0o600 != 0o600 or number & 0o002:
        raise ValueError('it must be the octal mode of a file, such as "0600", "0640" or "0660"')
    return number


def access_of(mode: int | None = None, group: str | None = None) -> Access:
    """Return the rights that two options ask for.

    Args:
        mode: permission bits of files. None: 0600, or 0640 where a group is named.
        group: a name, or a number.

    Raises:
        ValueError: there is no such group.

    >>> access_of() == PRIVATE, access_of(0o660).folder_mode == 0o770, access_of(None, "0").mode == 0o640
    (True, True, True)
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
    """Open a file and return its descriptor. One that is missing is made, with the rights; another one keeps its own.

    Args:
        path: of the file.
        flags: as for `os.open`. With O_EXCL, it must not exist.
        access: rights of a new file.
        folder: descriptor of the folder that `path` begins in; None for the current one.
        follow: go through a symbolic link, for names that the user chose.

    Raises:
        OSError: it cannot be opened, or is a symbolic link.
        StoreError: the file cannot have the rights.
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
    """Give an open file or folder its rights, if it has others.

    Args:
        file: a descriptor.
        access: the rights. 0600 is not insisted on, for not every file system keeps rights.
        path: of the file, for the error.

    Raises:
        StoreError: it cannot have them.
    """
    _give(file, os.fstat(file), access, path)


def guard(path: str | os.PathLike[str], access: Access) -> None:
    """Give a file its rights without opening it, if it is there: closing it would undo the locks of SQLite.

    Raises:
        StoreError: it cannot have them.
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
    """Give an open file the rights and the group of another one, as far as the system lets us."""
    if sys.platform == "win32":
        return
    try:
        info = os.stat(path)
        if info.st_gid != os.fstat(file).st_gid:
            os.fchown(file, -1, info.st_gid)
        os.fchmod(file, info.st_mode & 0o666)
    except OSError:
        return


def opener(access: Access = PRIVATE) -> Callable[[str, int], int]:
    """Return the `opener` for `open` that gives new files these rights.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, open(folder + "/a", "x", opener=opener()) as stream:
    ...     oct(os.fstat(stream.fileno()).st_mode & 0o077)
    '0o0'
    """
    return lambda path, flags: create(path, flags & ~os.O_CREAT, access, follow=True)


def make_folder(path: Path, access: Access = PRIVATE) -> bool:
    """Make a folder, and those above that are missing, and return whether it was. One that exists stays as it is.

    Raises:
        OSError: it cannot be made.
        StoreError: it cannot have its rights.
    """
    try:
        os.mkdir(path, 0o700)
    except FileNotFoundError:
        make_folder(path.parent, access)
        return make_folder(path, access)
    except FileExistsError:
        if not path.is_dir():
            raise
        return False
    if sys.platform != "win32":
        try:  # the umask may have taken the owner's rights, too
            os.chmod(path, 0o700)
            file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | NO_FOLLOW)
        except PermissionError:  # a file system without rights
            return True
        try:
            grant(file, access, path)
        finally:
            os.close(file)
    return True
