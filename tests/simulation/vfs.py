"""SQLite on a simulated disk: a VFS by ctypes, in the very library that Python's sqlite3 uses.

While `installed()` lasts it is SQLite's default: every database that this process opens lies on the disk that is
mounted at its folder. Other folders cannot be opened.
"""

from __future__ import annotations

import ctypes as c
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from simulation.disk import Disk, DiskError, File

_OK, _IOERR, _BUSY, _CANTOPEN, _NOTFOUND, _FULL = 0, 10, 5, 14, 12, 13
_IOERR_SHORT_READ = _IOERR | 2 << 8
_POWERSAFE_OVERWRITE = 0x1000
_UNLOCK, _SHARED, _EXCLUSIVE = 1, 4, 8  # flags of xShmLock; 2 is "lock"
_I64 = c.c_int64
_P = c.c_void_p
_INT = c.c_int


class _File(c.Structure):
    _fields_ = (("methods", _P), ("number", _I64))


_ARGUMENTS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("Close", ()),
    ("Read", (_P, _INT, _I64)),
    ("Write", (_P, _INT, _I64)),
    ("Truncate", (_I64,)),
    ("Sync", (_INT,)),
    ("FileSize", (c.POINTER(_I64),)),
    ("Lock", (_INT,)),
    ("Unlock", (_INT,)),
    ("CheckReservedLock", (c.POINTER(_INT),)),
    ("FileControl", (_INT, _P)),
    ("SectorSize", ()),
    ("DeviceCharacteristics", ()),
    ("ShmMap", (_INT, _INT, _INT, c.POINTER(_P))),
    ("ShmLock", (_INT, _INT, _INT)),
    ("ShmBarrier", ()),
    ("ShmUnmap", (_INT,)),
)
_METHODS = {name: c.CFUNCTYPE(_INT, c.POINTER(_File), *types) for name, types in _ARGUMENTS}


class _IoMethods(c.Structure):
    _fields_ = (("version", _INT), *((f"x{name}", kind) for name, kind in _METHODS.items()))


_OPEN = c.CFUNCTYPE(_INT, _P, c.c_char_p, c.POINTER(_File), _INT, c.POINTER(_INT))
_DELETE = c.CFUNCTYPE(_INT, _P, c.c_char_p, _INT)
_ACCESS = c.CFUNCTYPE(_INT, _P, c.c_char_p, _INT, c.POINTER(_INT))
_FULLPATH = c.CFUNCTYPE(_INT, _P, c.c_char_p, _INT, _P)
_RANDOM = c.CFUNCTYPE(_INT, _P, _INT, _P)
_SLEEP = c.CFUNCTYPE(_INT, _P, _INT)
_TIME = c.CFUNCTYPE(_INT, _P, c.POINTER(c.c_double))
_LAST = c.CFUNCTYPE(_INT, _P, _INT, _P)
_TIME64 = c.CFUNCTYPE(_INT, _P, c.POINTER(_I64))


class _Vfs(c.Structure):
    _fields_ = (
        ("version", _INT),
        ("file_size", _INT),
        ("longest_path", _INT),
        ("next", _P),
        ("name", c.c_char_p),
        ("data", _P),
        ("xOpen", _OPEN),
        ("xDelete", _DELETE),
        ("xAccess", _ACCESS),
        ("xFullPathname", _FULLPATH),
        *((f"xDl{name}", _P) for name in ("Open", "Error", "Sym", "Close")),
        ("xRandomness", _RANDOM),
        ("xSleep", _SLEEP),
        ("xCurrentTime", _TIME),
        ("xGetLastError", _LAST),
        ("xCurrentTimeInt64", _TIME64),
    )


class _Handle:
    """An open file: of which disk, in which of its lives, and what it has locked."""

    __slots__ = ("disk", "file", "generation", "level", "name")

    def __init__(self, disk: Disk, name: str, file: File) -> None:
        self.disk, self.name, self.file = disk, name, file
        self.generation = disk.generation
        self.level = 0

    @property
    def dead(self) -> bool:
        return self.generation != self.disk.generation


class _Shm:
    """The shared memory of one database: regions, and who has which of its locks."""

    def __init__(self) -> None:
        self.regions: list[Any] = []
        self.users: set[int] = set()
        #: By slot: the handles that share it, or the one that has it alone.
        self.shared: list[set[int]] = [set() for _ in range(8)]
        self.alone: list[int | None] = [None] * 8


class _Glue:
    """What SQLite calls. It stays for the whole process, since SQLite keeps pointers into it."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.mounts: dict[str, Disk] = {}
        self.handles: dict[int, _Handle] = {}
        self.shms: dict[tuple[int, int, str], _Shm] = {}
        self.numbers = 0
        made = {f"x{name}": kind(getattr(self, f"_{name.lower()}")) for name, kind in _METHODS.items()}
        self.methods = _IoMethods(2, **made)
        self.vfs = _Vfs(
            2,
            c.sizeof(_File),
            1024,
            None,
            b"stompcodec-simulation",
            None,
            xOpen=_OPEN(self._open),
            xDelete=_DELETE(self._delete),
            xAccess=_ACCESS(self._access),
            xFullPathname=_FULLPATH(_full_path),
            xRandomness=_RANDOM(_randomness),
            xSleep=_SLEEP(lambda _vfs, micro: micro),
            xCurrentTime=_TIME(_current_time),
            xGetLastError=_LAST(lambda *_rest: 0),
            xCurrentTimeInt64=_TIME64(_current_time_64),
        )

    def _disk(self, name: str) -> Disk | None:
        return self.mounts.get(name.rpartition("/")[0])

    # ---- the file system ----

    def _open(self, _vfs: Any, name: bytes | None, file: Any, flags: int, out: Any) -> int:
        file.contents.methods = None
        path = "" if name is None else name.decode()
        disk = self._disk(path) if path else Disk(None)  # a temporary file has no faults
        if disk is None or disk.down:
            return _CANTOPEN
        found = disk.files.get(path)
        if found is None:
            if not flags & 4:  # SQLITE_OPEN_CREATE
                return _CANTOPEN
            if disk.full:
                disk.faults += 1
                return _CANTOPEN
            found = disk.files[path] = File()
        self.numbers += 1
        self.handles[self.numbers] = _Handle(disk, path, found)
        file.contents.number = self.numbers
        file.contents.methods = c.addressof(self.methods)
        if out:
            out[0] = flags
        return _OK

    def _delete(self, _vfs: Any, name: bytes, _sync: int) -> int:
        disk = self._disk(name.decode())
        if disk is not None:
            disk.files.pop(name.decode(), None)
        return _OK

    def _access(self, _vfs: Any, name: bytes, _flags: int, out: Any) -> int:
        disk = self._disk(name.decode())
        file = None if disk is None else disk.files.get(name.decode())
        out[0] = int(file is not None)
        return _OK

    # ---- a file ----

    def _close(self, file: Any) -> int:
        number = file.contents.number
        self._shmunmap(file, 0)
        self.handles.pop(number, None)
        return _OK

    def _read(self, file: Any, buffer: int, amount: int, offset: int) -> int:
        handle = self.handles[file.contents.number]
        if handle.generation != handle.disk.generation:
            return _IOERR
        octets = bytes(handle.file.data[offset : offset + amount])
        c.memmove(buffer, octets, len(octets))
        if len(octets) < amount:
            c.memset(buffer + len(octets), 0, amount - len(octets))
            return _IOERR_SHORT_READ
        return _OK

    def _write(self, file: Any, buffer: int, amount: int, offset: int) -> int:
        handle = self.handles[file.contents.number]
        if handle.generation != handle.disk.generation:
            return _IOERR
        try:
            handle.disk.write(handle.file, offset, c.string_at(buffer, amount))
        except DiskError as error:
            return _FULL if error.kind == "full" else _IOERR
        return _OK

    def _truncate(self, file: Any, size: int) -> int:
        handle = self.handles[file.contents.number]
        if handle.dead:
            return _IOERR
        handle.file.truncate(size)
        return _OK

    def _sync(self, file: Any, _flags: int) -> int:
        handle = self.handles[file.contents.number]
        if handle.dead:
            return _IOERR
        try:
            handle.disk.sync(handle.file)
        except DiskError:
            return _IOERR
        return _IOERR if handle.dead else _OK

    def _filesize(self, file: Any, out: Any) -> int:
        out[0] = len(self.handles[file.contents.number].file.data)
        return _OK

    def _filecontrol(self, _file: Any, _operation: int, _argument: Any) -> int:
        return _NOTFOUND

    def _sectorsize(self, _file: Any) -> int:
        return 512

    def _devicecharacteristics(self, _file: Any) -> int:
        return _POWERSAFE_OVERWRITE

    # ---- locks between the connections of this process ----

    def _others(self, handle: _Handle) -> int:
        """The highest lock that another connection has on the file."""
        return max(
            (other.level for other in self.handles.values() if other is not handle and other.file is handle.file),
            default=0,
        )

    def _lock(self, file: Any, level: int) -> int:
        handle = self.handles[file.contents.number]
        others = self._others(handle)
        if (level == 1 and others >= 3) or (level == 2 and others >= 2) or (level == 4 and others >= 1):
            return _BUSY
        handle.level = max(handle.level, level)
        return _OK

    def _unlock(self, file: Any, level: int) -> int:
        self.handles[file.contents.number].level = level
        return _OK

    def _checkreservedlock(self, file: Any, out: Any) -> int:
        out[0] = int(self._others(self.handles[file.contents.number]) >= 2)
        return _OK

    # ---- shared memory ----

    def _shm(self, handle: _Handle) -> _Shm:
        key = id(handle.disk), handle.generation, handle.name
        return self.shms.setdefault(key, _Shm())

    def _shmmap(self, file: Any, region: int, size: int, extend: int, out: Any) -> int:
        number = file.contents.number
        handle = self.handles[number]
        if handle.dead:
            return _IOERR
        shm = self._shm(handle)
        shm.users.add(number)
        if region >= len(shm.regions) and not extend:
            out[0] = None
            return _OK
        while len(shm.regions) <= region:
            shm.regions.append(c.create_string_buffer(size))
        out[0] = c.addressof(shm.regions[region])
        return _OK

    def _shmlock(self, file: Any, offset: int, count: int, flags: int) -> int:
        number = file.contents.number
        shm = self._shm(self.handles[number])
        slots = range(offset, offset + count)
        if flags & _UNLOCK:
            for slot in slots:
                shm.shared[slot].discard(number)
                if shm.alone[slot] == number:
                    shm.alone[slot] = None
            return _OK
        if flags & _SHARED:
            if any(shm.alone[slot] not in (None, number) for slot in slots):
                return _BUSY
            for slot in slots:
                shm.shared[slot].add(number)
            return _OK
        if any(shm.alone[slot] not in (None, number) or shm.shared[slot] - {number} for slot in slots):
            return _BUSY
        for slot in slots:
            shm.alone[slot] = number
        return _OK

    def _shmbarrier(self, _file: Any) -> int:
        return _OK

    def _shmunmap(self, file: Any, _delete: int) -> int:
        number = file.contents.number
        handle = self.handles.get(number)
        if handle is None:
            return _OK
        key = id(handle.disk), handle.generation, handle.name
        shm = self.shms.get(key)
        if shm is not None:
            self._shmlock(file, 0, 8, _UNLOCK)
            shm.users.discard(number)
            if not shm.users:
                del self.shms[key]
        return _OK


def _full_path(_vfs: Any, name: bytes, _size: int, out: int) -> int:
    c.memmove(out, name + b"\0", len(name) + 1)
    return _OK


def _randomness(_vfs: Any, amount: int, out: int) -> int:
    c.memset(out, 7, amount)
    return amount


def _current_time(_vfs: Any, out: Any) -> int:
    out[0] = 2460000.5
    return _OK


def _current_time_64(_vfs: Any, out: Any) -> int:
    out[0] = 212544043200000
    return _OK


@cache
def _glue() -> _Glue:
    """Registered, but not SQLite's default."""
    import _sqlite3

    library = c.CDLL(getattr(_sqlite3, "__file__", None))  # finds what it is linked to, too
    for function in (library.sqlite3_vfs_register, library.sqlite3_vfs_unregister):
        function.restype = _INT
    library.sqlite3_vfs_find.restype = _P
    library.sqlite3_libversion.restype = c.c_char_p
    if library.sqlite3_libversion().decode() != sqlite3.sqlite_version:
        raise OSError("it is another SQLite than that of Python's sqlite3")
    glue = _Glue(library)
    sqlite3.connect(":memory:").close()  # SQLite has to be initialised before its VFS changes
    return glue


@contextmanager
def installed() -> Iterator[None]:
    """SQLite's default VFS is this one."""
    glue = _glue()
    register = glue.library.sqlite3_vfs_register
    before = glue.library.sqlite3_vfs_find(None)
    register(c.byref(glue.vfs), 1)
    try:
        yield
    finally:
        register(c.c_void_p(before), 1)
        glue.library.sqlite3_vfs_unregister(c.byref(glue.vfs))


def mount(folder: str, disk: Disk) -> None:
    """The files of that folder lie on that disk."""
    _glue().mounts[folder] = disk


def unmount(folder: str) -> None:
    """Undo `mount`, and forget what is open there."""
    glue = _glue()
    del glue.mounts[folder]


def unavailable() -> str:
    """Why SQLite cannot be put on a simulated disk here; "" if it can."""
    try:
        _glue()
    except (ImportError, OSError, AttributeError, TypeError) as error:
        return f"the SQLite of this Python cannot be reached by ctypes: {error}"
    return ""
