"""The folders of a broker: marked as its own, used by one broker at a time, and looked at for damage.

A small file marks a folder, so that no foreign files are ever mistaken for ours:

    examine_*   before anything is written: is it marked, or may it become ours?
    FolderLock  no other broker uses it
    mark        it is ours from now on

A broker that is killed between two of these steps leaves a folder that the next one accepts. A data folder is marked
once its database is on the disk with its tables. A marked folder without them has lost data, and is not started anew.

`Damage` logs and counts what is damaged in a store, and `examine_wal` looks for it in SQLite's write-ahead log. Each
frame of that log is one page, with a checksum over itself and all frames before it. Recovery stops at the first bad
frame and silently drops the rest. A torn write at a power cut looks the same, but can only affect the last commit,
because the broker syncs each commit before it begins the next. So an intact frame after a damaged commit means damage.

Waiting for the disk and removing files would block the loop or the store's commits: `HelperThread` and `Remover` do it.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import stat
import struct
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread, current_thread
from typing import BinaryIO, NamedTuple

from stompcodec.broker.hot import COMPILED
from stompcodec.disk import GONE, PRIVATE, Access, create, lock, lock_folder, make_folder, sync_folder, unlock
from stompcodec.errors import StoreError

#: Bytes of the reserve. Acknowledgements need little: the WAL is checkpointed early while the reserve is in use.
RESERVE = 8 * 2**20


def free_space(folder: Path) -> int:
    """Return how many bytes the disk of a folder has left for us."""
    return shutil.disk_usage(folder).free


#: Where Linux lists what is mounted, and how the names of file systems begin that other machines may write to.
_MOUNTS = "/proc/self/mountinfo"
_SHARED = (
    *("nfs", "cifs", "smb", "afs", "ceph", "coda", "lustre", "beegfs", "gpfs", "gluster"),
    *("fuse.ceph", "fuse.gluster", "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "fuse.davfs"),
)


def examine_place(folder: str) -> None:
    """Raise StoreError if a folder is, or would be made, on a file system of the network, as far as Linux tells."""
    path = Path(folder).absolute()
    with suppress(AttributeError, OSError):
        mounts = Path(_MOUNTS).read_bytes()
        device = os.stat(next(each for each in (path, *path.parents) if os.path.exists(each))).st_dev
        own = rf"^\d+ \d+ {os.major(device)}:{os.minor(device)} .* - (\S+)".encode()
        kind = b"".join(re.findall(own, mounts, re.MULTILINE)[-1:]).decode()
        if kind.startswith(_SHARED):
            raise StoreError(
                f"the data folder {folder} is on a file system of the network, {kind}, where SQLite's write-ahead log "
                "is not safe (name a folder on a disk of this machine, or accept that with --force-fs)"
            )


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
        """Return the path where another file is, or none; None if both are there. Raise OSError if that is unknown."""
        return next((os.fsdecode(noted[0]) for noted in self.noted if _noted(noted[0]) != noted), None)


def _noted(path: bytes) -> Noted | None:
    """Return what tells a file from all others, or None, without opening it: closing it would drop SQLite's locks."""
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
if COMPILED and os.name == "posix":
    _are_there = import_module("stompcodec.broker.storage.places").are_at


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
            raise _in_use(folder, kind) from None
        except OSError as error:
            self._release_folder()
            raise _unusable(folder, kind, error) from error
        try:
            lock(self._file)
        except BlockingIOError:
            self.release()
            raise _in_use(folder, kind) from None
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


def _in_use(folder: Path, kind: str) -> StoreError:
    """Return the error for a folder that another process uses, which its lock may name."""
    number = (_read(folder / "lock") or b"").decode("ascii", "replace").strip()
    owner = f"process {number}" if number.isdigit() else "another process"
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


#: Number of findings that are logged. Later ones are only counted.
_MOST_LINES = 100
_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
#: The lowest bit is set if checksums use big-endian words.
_MAGIC = 0x377F0682
_DEFAULT_PAGE = 8192
_MASK = 2**32 - 1


class Damage:
    """The damage found since the store was opened. Each finding is logged as an error.

    >>> damage = Damage(logging.getLogger("example"))
    >>> damage.messages, damage.findings
    (0, 0)
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        #: Messages that are damaged or missing.
        self.messages = 0
        #: All findings, including those that are not logged.
        self.findings = 0

    def message(self, ident: str, destination: str, why: str) -> None:
        """Report a damaged message, which is set aside."""
        self.messages += 1
        self.found(f"message {shown(ident)} of {shown(destination)} is lost: {why} (kept aside for broker salvage)")

    def missing(self, count: int, queue: str) -> None:
        """Report that a queue holds fewer messages than its total says, or more if the count is negative."""
        self.messages += max(count, 0)
        name = shown(queue.replace("\0", " ", 1))
        if count > 0:
            self.found(f"{count} messages of the queue {name} are missing: its total is {count} higher than its rows")
        else:
            self.found(f"the queue {name} holds {-count} rows more than its total says")

    def found(self, what: str) -> None:
        self.findings += 1
        if self.findings <= _MOST_LINES:
            self._log.error("the store is damaged: %s", what)
        if self.findings == _MOST_LINES:
            self._log.error("the store is damaged: no more is logged; stompcodec broker check lists everything")


def shown(name: str) -> str:
    """Return a name as printable text for the log.

    >>> shown("/queue/a"), shown("a\\nb")
    ('/queue/a', "'a\\\\nb'")
    """
    return name if name.isprintable() else ascii(name)


class Frame(NamedTuple):
    """A frame that belongs to the current run of the log."""

    number: int
    """Number of the page that it holds."""
    offset: int
    """Position of the page in the file."""
    commits: bool
    """True for the last frame of a transaction."""


class Wal(NamedTuple):
    """The result of `examine_wal`."""

    taken: list[Frame]
    """Frames that recovery applies: whole transactions up to the first bad frame."""
    lost: int
    """Least number of dropped transactions that had been synced."""
    torn: bool
    """The last transaction has all its marks but wrong checksums: a power cut, or damage."""
    page: int = _DEFAULT_PAGE
    """Bytes of a page."""


class _Scanned(NamedTuple):
    frame: Frame
    head: bytes
    salts: tuple[int, int]
    before: tuple[int, int]
    """The computed checksum of the previous frame."""
    stored: tuple[int, int]
    chained: tuple[int, int]
    """The checksum that follows from the stored one of the previous frame."""
    computed: tuple[int, int]
    """The checksum that follows from the computed one of the previous frame."""

    @property
    def intact(self) -> bool:
        return self.stored in (self.chained, self.computed)


def examine_wal(path: Path) -> Wal:
    """Read a `messages.sqlite-wal` to which nobody writes, and do not change it. A missing one has no frames."""
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below
    except FileNotFoundError:
        return Wal([], 0, False)
    with file:
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size:
            return Wal([], 0, False)
        return _examine(file, head)


def _examine(file: BinaryIO, head: bytes) -> Wal:
    magic, _version, page, _count, *salts, first, second = _HEADER.unpack(head)
    known = magic & ~1 == _MAGIC
    words = ("<", ">")[magic & 1] if known else ("<" if sys.byteorder == "little" else ">")
    sound = known and _checksum(words, head[:24], (0, 0)) == (first, second)
    if not 512 <= page <= 65536 or page & page - 1:
        page = _DEFAULT_PAGE
    scanned = list(_scan(file, page, words, (first, second)))
    usual = Counter(one.salts for one in scanned).most_common(1)  # for a damaged header
    run = (salts[0], salts[1]) if sound else usual[0][0] if usual else (0, 0)
    end = taken = 0
    while sound and end < len(scanned) and scanned[end].salts == run and scanned[end].stored == scanned[end].computed:
        end += 1
        if scanned[end - 1].frame.commits:
            taken = end
    good = [one.frame for one in scanned[:taken]]
    if end == len(scanned):
        return Wal(good, 0, False, page)
    last = end  # of the transaction with the bad frame, which may be torn
    while sound and last < len(scanned) - 1 and not scanned[last].frame.commits:
        last += 1
    later = [one for one in scanned[last + 1 :] if one.salts == run and one.intact]
    if not sound:
        later = [one for one in scanned if one.salts == run and one.intact]
    certain = sound and scanned[end].salts == run and _is_one_bit(scanned[end], words, file, page)
    ours = any(one.salts == run for one in scanned[end:])
    lost = sum(one.frame.commits for one in later)
    if (later and sound) or certain:
        lost += 1
    torn = not lost and ours and any(one.frame.commits and one.salts == run for one in scanned[end:])
    return Wal(good, lost, torn, page)


def _scan(file: BinaryIO, page: int, words: str, seed: tuple[int, int]) -> Iterator[_Scanned]:
    """Yield every frame of the file, including those of earlier runs."""
    computed, stored, offset = seed, seed, _HEADER.size
    while True:
        head, content = file.read(_FRAME.size), file.read(page)
        if len(content) < page:
            return
        number, size, *rest = _FRAME.unpack(head)
        before, seed = computed, stored
        stored = (rest[2], rest[3])
        chained = computed = _checksum(words, content, _checksum(words, head[:8], seed))
        if seed != before:
            computed = _checksum(words, content, _checksum(words, head[:8], before))
        frame = Frame(number, offset + _FRAME.size, size != 0)
        yield _Scanned(frame, head[:8], (rest[0], rest[1]), before, stored, chained, computed)
        offset += _FRAME.size + page


def _checksum(words: str, octets: bytes, seed: tuple[int, int]) -> tuple[int, int]:
    """Return SQLite's checksum of the log: two interleaved sums."""
    first, second = seed
    for one, two in struct.iter_unpack(words + "II", octets):
        first = first + one + second & _MASK
        second = second + two + first & _MASK
    return first, second


def _is_one_bit(bad: _Scanned, words: str, file: BinaryIO, page: int) -> bool:
    """Return whether one flipped bit in its head explains a bad frame, which a torn write would not cause."""
    wrong = (bad.stored[0] ^ bad.computed[0]) << 32 | bad.stored[1] ^ bad.computed[1]
    if bin(wrong).count("1") == 1:
        return True
    file.seek(bad.frame.offset)
    content, head = file.read(page), int.from_bytes(bad.head, "big")
    heads = ((head ^ 1 << bit).to_bytes(8, "big") for bit in range(64))
    return any(_checksum(words, content, _checksum(words, head, bad.before)) == bad.stored for head in heads)


_broker_log = logging.getLogger("stompcodec.broker")
Job = Callable[[], object]


class HelperThread:
    """Runs jobs, which must not raise, in the order in which they are given: in a thread of its own, which starts with
    the first job. It ends with the last reference, too.

    Its methods may be called from any thread, even by the garbage collector in the middle of another call.

    >>> helper = HelperThread("example")
    >>> done = []
    >>> helper.give(lambda: done.append(1)); helper.wait(); helper.stop()
    >>> done
    [1]
    """

    def __init__(self, name: str) -> None:
        self._name = name
        # Invariant: no method takes a lock, because a finalizer might find it held by its own thread.
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._started = False
        self._thread: Thread | None = None
        weakref.finalize(self, self._jobs.put, None)

    def give(self, job: Job) -> None:
        """Have a job run soon, and return at once."""
        self._jobs.put(job)
        if self._started:
            return
        self._started = True
        thread = Thread(target=_work, args=(self._jobs,), name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads: do it here, and try again with the next job
            self._started = False
            with suppress(Empty):
                while waiting := self._jobs.get_nowait():
                    waiting()
        else:
            self._thread = thread

    def wait(self) -> None:
        """Wait until all jobs given so far have ended."""
        if self._thread not in (None, current_thread()):  # a finalizer may call this there
            ended = Event()
            self._jobs.put(ended.set)
            ended.wait()

    def stop(self) -> None:
        """Run the jobs given so far, then end. No job may be given afterwards."""
        self._jobs.put(None)
        if self._thread is not None and self._thread is not current_thread():
            self._thread.join()


def _work(jobs: SimpleQueue[Job | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # it holds messages, or a folder


class Remover:
    """Removes files by jobs of a helper; without one, of a thread that ends at `close`. Jobs may raise.

    >>> remover = Remover()
    >>> remover.put(lambda: print("removed")); remover.flush()
    removed
    >>> remover.pending
    0
    >>> remover.close()
    """

    def __init__(self, helper: HelperThread | None = None) -> None:
        self._helper = HelperThread("stompcodec-files") if helper is None else helper
        self._owns_helper = helper is None
        self._given = 0
        self._done: list[int] = [0]
        self._closed = False

    @property
    def pending(self) -> int:
        """Number of jobs that are not done yet."""
        return self._given - self._done[0]

    def put(self, job: Job) -> None:
        """Have a job run soon. It is ignored after `close`."""
        if not self._closed:
            self._given += 1
            self._helper.give(partial(_do, job, self._done))

    def flush(self) -> None:
        """Wait until all jobs given so far are done."""
        if self.pending and not self._closed:
            self._helper.wait()

    def close(self) -> None:
        """Wait until all jobs are done, and end the thread. Closing twice does nothing."""
        if not self._closed:
            self.flush()
            self._closed = True
            if self._owns_helper:
                self._helper.stop()


def _do(job: Job, done: list[int]) -> None:
    try:
        job()
    except Exception:
        _broker_log.exception("a file could not be removed")
    done[0] += 1
