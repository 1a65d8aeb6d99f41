"""SQLite on a simulated disk: a VFS by ctypes, in the very library that Python's sqlite3 uses."""

import ctypes as c
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

from simulation.disk import Disk, DiskError, File

_OK, _IOERR, _BUSY, _CANTOPEN, _NOTFOUND, _FULL = 0, 10, 5, 14, 12, 13
_IOERR_SHORT_READ = _IOERR | 2 << 8
_POWERSAFE = 0x1000  # SQLITE_IOCAP_POWERSAFE_OVERWRITE
_UNLOCK, _SHARED = 1, 4  # flags of xShmLock; 2 is "lock", 8 "exclusive"
_I64, _P, _INT, _TEXT = c.c_int64, c.c_void_p, c.c_int, c.c_char_p


class _File(c.Structure):
    _fields_ = (("methods", _P), ("number", _I64))


#: The types of arguments, by letter.
_TYPES = {
    **{"p": _P, "i": _INT, "l": _I64, "t": _TEXT, "f": c.POINTER(_File), "P": c.POINTER(_P)},
    **{"I": c.POINTER(_INT), "L": c.POINTER(_I64), "D": c.POINTER(c.c_double)},
}


def _functions(first: str, functions: str) -> dict[str, Any]:
    """The types of functions that return a status, and have this first argument and those behind the colon."""
    pairs = (each.partition(":")[::2] for each in functions.split())
    return {name: c.CFUNCTYPE(_INT, *map(_TYPES.__getitem__, first + others)) for name, others in pairs}


#: The calls of a file, and of the file system, in SQLite's order.
_METHODS = _functions(
    "f",
    """Close Read:pil Write:pil Truncate:l Sync:i FileSize:L Lock:i Unlock:i CheckReservedLock:I FileControl:ip
    SectorSize DeviceCharacteristics ShmMap:iiiP ShmLock:iii ShmBarrier ShmUnmap:i""",
)
_NAMED = _functions("p", "Open:tfiI Delete:ti Access:tiI FullPathname:tip")
_OTHERS = _functions("p", "Randomness:ip Sleep:i CurrentTime:D GetLastError:ip CurrentTimeInt64:L")
#: What is always answered.
_ANSWERS = {"FileControl": _NOTFOUND, "SectorSize": 512, "DeviceCharacteristics": _POWERSAFE, "ShmBarrier": _OK}
#: Those that fail once the disk of the file has crashed.
_FAIL_WHEN_DEAD = ("Read", "Write", "Truncate", "Sync", "ShmMap")


class _IoMethods(c.Structure):
    _fields_ = (("version", _INT), *_METHODS.items())


class _Vfs(c.Structure):
    _fields_ = (
        *(("version", _INT), ("file_size", _INT), ("longest_path", _INT), ("next", _P), ("name", _TEXT), ("data", _P)),
        *_NAMED.items(),
        *((f"Dl{name}", _P) for name in ("Open", "Error", "Sym", "Close")),
        *_OTHERS.items(),
    )


class _Handle:
    """An open file: of which disk, in which of its lives, and what it has locked."""

    def __init__(self, disk: Disk, name: str, file: File) -> None:
        self.disk, self.name, self.file = disk, name, file
        self.generation, self.level = disk.generation, 0
        self.key = id(disk), disk.generation, name  # of its shared memory

    @property
    def dead(self) -> bool:
        return self.generation != self.disk.generation


class _Shm:
    """The shared memory of one database: regions, and who has which of its locks."""

    def __init__(self) -> None:
        self.regions, self.users = [], set()
        #: By slot: the handles that share it, or the one that has it alone.
        self.shared = [set() for _ in range(8)]
        self.alone = [None] * 8


class _Glue:
    """What SQLite calls. It stays for the whole process, since SQLite keeps pointers into it."""

    def __init__(self, library: Any) -> None:
        self.library, self.mounts, self.handles, self.shms = library, {}, {}, {}
        self.numbers = 0
        self.methods = _IoMethods(2, **{name: kind(partial(self._call, name)) for name, kind in _METHODS.items()})
        named = {name: kind(getattr(self, f"_{name.lower()}")) for name, kind in _NAMED.items()}
        others = {
            "Randomness": lambda _vfs, amount, out: c.memset(out, 7, amount) and amount,
            **{"Sleep": lambda _vfs, micro: micro, "CurrentTime": lambda _vfs, out: _put(out, 2460000.5)},
            **{"GetLastError": lambda *_rest: 0, "CurrentTimeInt64": lambda _vfs, out: _put(out, 212544043200000)},
        }
        others = {name: _OTHERS[name](function) for name, function in others.items()}
        self.vfs = _Vfs(2, c.sizeof(_File), 1024, None, b"stompcodec-simulation", None, **named, **others)

    def _call(self, name: str, file: Any, *arguments: Any) -> int:
        if name in _ANSWERS:
            return _ANSWERS[name]
        handle = self.handles[file.contents.number]
        if handle.dead and name in _FAIL_WHEN_DEAD:
            return _IOERR
        try:
            status: int = getattr(self, f"_{name.lower()}")(handle, *arguments)
        except DiskError as error:
            return _FULL if error.kind == "full" else _IOERR
        if name == "Close":
            del self.handles[file.contents.number]
        return status

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
        return _put(out, flags) if out else _OK

    def _delete(self, _vfs: Any, name: bytes, _sync: int) -> int:
        disk = self._disk(name.decode())
        if disk is not None:
            disk.files.pop(name.decode(), None)
        return _OK

    def _access(self, _vfs: Any, name: bytes, _flags: int, out: Any) -> int:
        disk = self._disk(name.decode())
        return _put(out, int(disk is not None and name.decode() in disk.files))

    def _fullpathname(self, _vfs: Any, name: bytes, _size: int, out: int) -> int:
        c.memmove(out, name + b"\0", len(name) + 1)
        return _OK

    # ---- a file ----
    def _close(self, handle: _Handle) -> int:
        return self._shmunmap(handle, 0)

    def _read(self, handle: _Handle, buffer: int, amount: int, offset: int) -> int:
        octets = bytes(handle.file.data[offset : offset + amount])
        c.memmove(buffer, octets, len(octets))
        if len(octets) < amount:
            c.memset(buffer + len(octets), 0, amount - len(octets))
            return _IOERR_SHORT_READ
        return _OK

    def _write(self, handle: _Handle, buffer: int, amount: int, offset: int) -> int:
        handle.disk.write(handle.file, offset, c.string_at(buffer, amount))
        return _OK

    def _truncate(self, handle: _Handle, size: int) -> int:
        handle.file.truncate(size)
        return _OK

    def _sync(self, handle: _Handle, _flags: int) -> int:
        handle.disk.sync(handle.file)
        return _IOERR if handle.dead else _OK

    def _filesize(self, handle: _Handle, out: Any) -> int:
        return _put(out, len(handle.file.data))

    # ---- locks between the connections of this process ----
    def _others(self, handle: _Handle) -> int:
        """The highest lock that another connection has on the file."""
        others = (other for other in self.handles.values() if other is not handle and other.file is handle.file)
        return max((other.level for other in others), default=0)

    def _lock(self, handle: _Handle, level: int) -> int:
        if self._others(handle) >= {1: 3, 2: 2, 4: 1}.get(level, 9):
            return _BUSY
        handle.level = max(handle.level, level)
        return _OK

    def _unlock(self, handle: _Handle, level: int) -> int:
        handle.level = level
        return _OK

    def _checkreservedlock(self, handle: _Handle, out: Any) -> int:
        return _put(out, int(self._others(handle) >= 2))

    # ---- shared memory ----
    def _shm(self, handle: _Handle) -> _Shm:
        return self.shms.setdefault(handle.key, _Shm())

    def _shmmap(self, handle: _Handle, region: int, size: int, extend: int, out: Any) -> int:
        shm = self._shm(handle)
        shm.users.add(handle)
        if region >= len(shm.regions) and not extend:
            return _put(out, None)
        while len(shm.regions) <= region:
            shm.regions.append(c.create_string_buffer(size))
        return _put(out, c.addressof(shm.regions[region]))

    def _shmlock(self, handle: _Handle, offset: int, count: int, flags: int) -> int:
        shm, slots = self._shm(handle), range(offset, offset + count)
        if flags & _UNLOCK:
            for slot in slots:
                shm.shared[slot].discard(handle)
                if shm.alone[slot] is handle:
                    shm.alone[slot] = None
            return _OK
        if any(shm.alone[slot] not in (None, handle) for slot in slots):
            return _BUSY
        if flags & _SHARED:
            for slot in slots:
                shm.shared[slot].add(handle)
            return _OK
        if any(shm.shared[slot] - {handle} for slot in slots):
            return _BUSY
        for slot in slots:
            shm.alone[slot] = handle
        return _OK

    def _shmunmap(self, handle: _Handle, _delete: int) -> int:
        shm = self.shms.get(handle.key)
        if shm is not None:
            self._shmlock(handle, 0, 8, _UNLOCK)
            shm.users.discard(handle)
            if not shm.users:
                del self.shms[handle.key]
        return _OK


def _put(out: Any, value: Any) -> int:
    out[0] = value
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
    register, before = glue.library.sqlite3_vfs_register, glue.library.sqlite3_vfs_find(None)
    register(c.byref(glue.vfs), 1)
    try:
        yield
    finally:
        register(c.c_void_p(before), 1)
        glue.library.sqlite3_vfs_unregister(c.byref(glue.vfs))


def mount(folder: str, disk: Disk) -> None:
    _glue().mounts[folder] = disk


def unmount(folder: str) -> None:
    glue = _glue()
    del glue.mounts[folder]


def unavailable() -> str:
    """Why SQLite cannot be put on a simulated disk here; "" if it can."""
    try:
        _glue()
    except (ImportError, OSError, AttributeError, TypeError) as error:
        return f"the SQLite of this Python cannot be reached by ctypes: {error}"
    return ""
