"""The folders of a broker: marked as its own, and used by one broker at a time.

A small file marks a folder, so that no foreign files are ever mistaken for ours:

    examine_*   before anything is written: is it marked, or may it become ours?
    FolderLock  no other broker uses it
    mark        it is ours from now on

A broker that is killed between two of these steps leaves a folder that the next one accepts. A data folder is marked
once its database is on the disk with its tables. A marked folder without them has lost data, and is not started anew.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

from stompcodec.broker.storage.damage import examine_wal
from stompcodec.disk import GONE, PRIVATE, Access, create, lock, lock_folder, make_folder, sync_folder, unlock
from stompcodec.errors import StoreError

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


#: The application_id that marks a SQLite database as ours: "STMP".
APPLICATION = 0x53544D50
#: The database of a store.
DATABASE = "messages.sqlite"
#: Tables that a store of any version has, with its messages.
TABLES = ("message", "queue", "body", "state")

#: The file that marks a folder. Its one line reads: "stompcodec", the kind of the folder, and the version of its
#: layout.
MARKER = "stompcodec-folder"
#: The pattern of body names.
_BODY = re.compile(r"[0-9a-f]{16}-[0-9]{1,19}")
#: Foreign names that may be present: ext4 creates this one in the root of a disk.
_HARMLESS = ("lost+found",)
#: Folders of bodies in a data folder.
_PARTS = ("bodies", "incoming")
#: The write-ahead log of the database.
_LOG = f"{DATABASE}-wal"
_KINDS = {"data": "the data folder", "large": "the folder of large messages"}
_VERSION = 1
_LINE = re.compile(rb"stompcodec ([a-z]{1,20}) ([0-9]{1,9})\n")
#: Bytes read from a lock or marker.
_MOST = 64


#: A path, and the device and inode of the file there.
Noted = tuple[bytes, int, int]

_log = logging.getLogger("stompcodec.broker.storage")


class StoreGone(StoreError):
    """The files of a store were removed or replaced while a broker used them. It cannot go on."""


class Places:
    """Where a database and its WAL were when they were opened. SQLite goes on writing to a file that was removed or
    replaced, and the next broker does not find what it wrote.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "a.sqlite"); path.touch()
    >>> places = Places(path); places.note(); places.gone()
    >>> path.unlink(); places.gone() == str(path)
    True
    >>> folder.cleanup()
    """

    __slots__ = ("_database", "_log", "are_there", "noted")

    def __init__(self, database: Path) -> None:
        self._database, self._log = os.fsencode(database), os.fsencode(f"{database}-wal")
        self.noted: tuple[Noted, ...] = ()
        self.are_there = _are_there
        """Returns whether the files that are `noted` are at their paths. Raises OSError if that is unknown, as without
        the right to look. The hot path calls it by itself."""

    def note(self) -> None:
        """Note which files are there: the database once, and the WAL each time it is opened. It may be a new one."""
        paths = [self._log] if self.noted else [self._database, self._log]
        self.noted = (*self.noted[:1], *filter(None, map(_noted, paths)))

    def log_closed(self) -> None:
        """Forget the WAL: the last connection that is closed removes it."""
        self.noted = self.noted[:1]

    def put_aside(self) -> str | None:
        """Rename the WAL, and its index, if another database is at the path of the noted one: SQLite would copy the
        pages in it into that. Return the new path of the WAL; None if that is not so.
        """
        database, log = _noted(self._database), _noted(self._log)
        if database in (None, *self.noted[:1]) or log is None or log not in self.noted:
            return None
        ends = (b".replaced%b" % (b".%d" % number if number else b"") for number in count())
        end = next(end for end in ends if not os.path.lexists(self._log + end))
        index = self._database + b"-shm"
        os.rename(self._log, self._log + end)
        with suppress(FileNotFoundError):
            os.rename(index, index + end)
        return os.fsdecode(self._log + end)

    def gone(self) -> str | None:
        """Return the path where another file is, or none; None if both are where they were. Raise OSError if that is
        unknown.
        """
        return next((os.fsdecode(noted[0]) for noted in self.noted if _noted(noted[0]) != noted), None)


def _noted(path: bytes) -> Noted | None:
    """Return what tells a file from all others; None if there is none. Raise OSError if that is unknown. It is not
    opened: to close a database file would drop the locks that SQLite holds on it.
    """
    try:
        found = os.stat(path)
    except OSError as error:
        if error.errno in GONE:
            return None
        raise
    return path, found.st_dev, found.st_ino


def _all_there(noted: tuple[Noted, ...]) -> bool:
    return all(_noted(each[0]) == each for each in noted)


_are_there: Callable[[tuple[Noted, ...]], bool] = _all_there


def use(are_there: Callable[[tuple[Noted, ...]], bool]) -> None:
    """Have a quicker function tell whether files are at their paths."""
    global _are_there
    _are_there = are_there


class FolderLock:
    """A lock on a folder, held until `release` or the end of the process. The folder is created if it is missing.

    The folder itself is locked, where the system can do that, so that removing a file does not remove the lock. The
    file `lock` is locked as well. It names the process, and is all that Windows and network file systems can lock.

    `kind` is "data" or "large". Raise StoreError if another process holds it, or it cannot be used.

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

    def __init__(self, folder: Path, kind: str = "data", access: Access = PRIVATE) -> None:
        path = folder / "lock"
        self._folder: int | None = None
        self._owner = os.getpid()
        try:
            make_folder(folder, access)
            if os.path.lexists(path) and not is_lock(path):
                raise _foreign(folder, kind, ["lock"])
            self._folder = lock_folder(folder, partial(_warn, folder, kind))
            self._file = create(path, os.O_RDWR, access)
        except BlockingIOError:
            raise _in_use(folder, kind, _owner(_read(path))) from None
        except OSError as error:
            self._release_folder()
            raise _unusable(folder, kind, error) from error
        try:
            lock(self._file)
        except BlockingIOError:
            owner = _owner(_read(path))
            self.release()
            raise _in_use(folder, kind, owner) from None
        except OSError as error:
            self.release()
            raise StoreError(
                f"{_KINDS[kind]} {folder} cannot be used: its file system cannot lock {path.name}: {error.strerror} "
                "(mount it with locks, or name a folder on another disk)"
            ) from error
        os.ftruncate(self._file, 0)
        os.write(self._file, b"%d\n" % os.getpid())

    def release(self) -> None:
        """Release the folder. The lock file stays, because removing it would let two processes lock two files."""
        unlock(self._file, self._owner)
        self._release_folder()

    def _release_folder(self) -> None:
        folder, self._folder = self._folder, None
        if folder is not None:
            unlock(folder, self._owner)


def _warn(folder: Path, kind: str, error: OSError) -> None:
    _log.warning(
        "%s %s: its file system cannot lock folders (%s): only the file lock in it keeps other brokers away, so do not "
        "remove that",
        *(_KINDS[kind], folder, error.strerror),
    )


def is_lock(path: Path) -> bool:
    """Return whether a file is a lock of ours: a regular file that is empty or holds a process number."""
    octets = _read(path)
    return octets is not None and re.fullmatch(rb"([0-9]{1,20}\n)?", octets) is not None


def kind_of(folder: Path) -> str | None:
    """Return the kind that a folder is marked as; None without a marker, or with an incomplete one. Raise StoreError if
    the marker is not ours, or is from a newer version.
    """
    path = folder / MARKER
    octets = _read(path)
    if octets is None:
        if os.path.lexists(path):
            raise _no_marker(path)
        return None
    found = _LINE.fullmatch(octets)
    if found is None:
        whole = [_line(kind) for kind in _KINDS]
        if any(line.startswith(octets.rstrip(b"\0")) for line in whole):  # a crash interrupted its writing
            return None
        raise _no_marker(path)
    if int(found[2]) > _VERSION:
        raise StoreError(f"{folder} belongs to a newer version of stompcodec (install that, or name another folder)")
    return found[1].decode()


def mark(folder: Path, kind: str, access: Access = PRIVATE) -> None:
    """Mark a folder, which this process has locked, as ours, on the disk, unless it is marked already. `kind` is "data"
    or "large". Raise StoreError if that fails.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     mark(Path(name), "data")
    ...     kind_of(Path(name))
    'data'
    """
    try:
        if kind_of(folder) is not None:
            return
        sync_folder(folder)  # sync what the marker vouches for first
        file = create(folder / MARKER, os.O_RDWR, access)
        try:
            os.write(file, _line(kind))
            os.fsync(file)
        finally:
            os.close(file)
        sync_folder(folder)
    except OSError as error:
        raise _unusable(folder, kind, error) from error


def examine_data(folder: Path) -> None:
    """Raise StoreError unless a folder is the data folder of a broker, or may become one. Nothing is written.

    A folder without a marker, as a killed start leaves it, has our lock and perhaps our database. Foreign files in it
    are tolerated, except where bodies go, unless the folder is known to be ours.
    """
    try:
        marked = _check_kind(folder, "data")
        odd = [name for name in (DATABASE, *_PARTS) if not _is_plain(folder / name, name in _PARTS)]
        if odd:
            raise _foreign(folder, "data", odd)
        lost = find_loss(folder)
        if lost is not None:
            in_log = examine_wal(folder / _LOG).taken
            log = f", or rescue the rest of {_LOG} with stompcodec broker salvage" if in_log else ""
            raise StoreError(
                f"the data folder {folder} cannot be used: {lost} (restore the folder from a backup{log}; to start "
                "over, name another folder, or move all files of the old store out of this one)"
            )
        if marked:
            return
        application = _application_of(folder / DATABASE)
        locked = is_lock(folder / "lock")
        if application not in (None, APPLICATION, 0) or (application == 0 and not locked):
            raise StoreError(f"{folder / DATABASE} is not a stompcodec store (name another data folder)")
        if application is None or not locked:
            found = [f"{part}/{name}" for part in _PARTS for name in _foreign_in(folder / part)]
            if found:
                raise _foreign(folder, "data", found)
    except OSError as error:
        raise _unusable(folder, "data", error) from error


def find_loss(folder: Path) -> str | None:
    """Return what a data folder has evidently lost; None if nothing is missing, or the folder is new.

    Nothing is written, and damaged files are not detected. Raise StoreError if its marker is not ours, or is from a
    newer version.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     before = find_loss(Path(name))
    ...     mark(Path(name), "data")
    ...     before, find_loss(Path(name))
    (None, 'messages.sqlite is missing, with all messages of an earlier run')
    """
    database = folder / DATABASE
    if not _size(database):
        lost = f"{DATABASE} is {'empty' if os.path.lexists(database) else 'missing'}"
        if _size(folder / _LOG):
            return f"{lost}, and {_LOG} is left of an earlier run"
        if kind_of(folder) == "data":
            return f"{lost}, with all messages of an earlier run"
        if _has_bodies(folder / "bodies"):
            return f"{lost}, and files of messages are left of an earlier run in bodies"
    elif kind_of(folder) == "data" and _application_of(database) not in (None, APPLICATION):
        in_log = examine_wal(folder / _LOG).taken  # as the tables of a new database are at first
        return None if in_log else f"{DATABASE} has no tables of a store"
    return None


def examine_large(folder: Path) -> None:
    """Raise StoreError unless a folder holds large messages, or may hold them. Nothing is written."""
    try:
        above = folder.parent
        if folder.name in _PARTS and (kind_of(above) == "data" or _application_of(above / DATABASE) == APPLICATION):
            raise StoreError(
                f"the folder of large messages {folder} belongs to the data folder {above} (name another folder for "
                "messages.large_folder, or leave the key out)"
            )
        if _check_kind(folder, "large"):
            return
        found = _foreign_in(folder)
        if found:
            raise _foreign(folder, "large", found)
    except OSError as error:
        raise _unusable(folder, "large", error) from error


def is_body(name: str) -> bool:
    """Return whether a name is one of our body files.

    >>> is_body("0123456789abcdef-17"), is_body("orders.csv"), is_body("../0123456789abcdef-17")
    (True, False, False)
    """
    return _BODY.fullmatch(name) is not None


def _foreign_in(folder: Path) -> list[str]:
    """Return the foreign names in a folder: those that are neither a body, nor a lock, nor a marker."""
    found = []
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            regular = entry.is_file(follow_symlinks=False)
            ours = regular and (is_body(name) or name == MARKER or (name == "lock" and is_lock(folder / name)))
            if not ours and name not in _HARMLESS:
                found.append(name)
    return sorted(found)


def _is_plain(path: Path, folder: bool) -> bool:
    """Return whether a path is missing, or a plain file or folder as expected, but not a link."""
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return True
    return stat.S_ISDIR(mode) if folder else stat.S_ISREG(mode)


def _size(path: Path) -> int:
    """Return the size of a file; 0 if it is missing."""
    try:
        return os.lstat(path).st_size
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _has_bodies(folder: Path) -> bool:
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        return any(is_body(entry.name) and entry.is_file(follow_symlinks=False) for entry in entries)
    return False


def _application_of(database: Path) -> int | None:
    """Return the application_id of a database; None if the file is missing, empty, or not a database."""
    octets = _read(database, 100)
    if octets is None or len(octets) < 72 or not octets.startswith(b"SQLite format 3\0"):
        return None
    return int.from_bytes(octets[68:72], "big")


def _check_kind(folder: Path, kind: str) -> bool:
    """Return whether a folder is marked as being of a kind. Raise StoreError if it is marked as another."""
    found = kind_of(folder)
    if found is not None and found != kind:
        what = _KINDS.get(found, "a folder")
        raise StoreError(f"{folder} is {what} of a broker, and not {_KINDS[kind]} (name another folder)")
    return found is not None


def _foreign(folder: Path, kind: str, names: list[str]) -> StoreError:
    """Return the error for a folder with foreign files."""
    key = {"data": "store.data (--data)", "large": "messages.large_folder"}[kind]
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return StoreError(
        f"{_KINDS[kind]} {folder} cannot be used: {names[0]!r}{more} does not belong to this broker, but is where its "
        f"own files go (name another folder for {key}, or move it away)"
    )


def _unusable(folder: Path, kind: str, error: OSError) -> StoreError:
    """Return the error for a folder that the system refuses to open."""
    return StoreError(
        f"{_KINDS[kind]} {folder} cannot be used: {error.strerror} (name another one, or grant access to it)"
    )


def _in_use(folder: Path, kind: str, owner: str) -> StoreError:
    """Return the error for a folder that another process uses."""
    return StoreError(f"{_KINDS[kind]} {folder} is in use by {owner} (stop that broker, or name another folder)")


def _line(kind: str) -> bytes:
    return b"stompcodec %b %d\n" % (kind.encode(), _VERSION)


def _no_marker(path: Path) -> StoreError:
    return StoreError(f"{path} is not a marker of stompcodec (name another folder, or move that file away)")


def _read(path: Path, most: int = _MOST) -> bytes | None:
    """Return the beginning of a regular file; None for anything else. Links are not followed."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return None
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return None
    try:
        return os.read(file, most)
    except OSError:  # Windows does not let others read a locked file
        return b""
    finally:
        os.close(file)


def _owner(octets: bytes | None) -> str:
    """Return the words for the process that a lock names."""
    number = (octets or b"").decode("ascii", "replace").strip()
    return f"process {number}" if number.isdigit() else "another process"
