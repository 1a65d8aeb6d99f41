"""Large bodies, in files of their own: a folder where a file is written once, and read or removed later.

There are two kinds. `Bodies` is the folder of a store: files that a database knows of. `Body` is one file that messages
in memory hold, as long as any of them does; `spool.py` writes it, octet by octet as they come.
"""

from __future__ import annotations

import os
import shutil
import weakref
import zlib
from collections.abc import Callable, Container
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from stompcodec.errors import StoreError

__all__ = ["Bodies", "Body", "BodyFile", "link"]


class BodyFile(NamedTuple):
    """What the database remembers of a file."""

    file: str
    size: int
    crc: int


class Body:
    """The body of a large message: a file that holds nothing else. Messages share it, and it goes with the last one.

    Args:
        path: of the file.
        size: octets in it.
        crc: of them, by zlib.
        gone: called with the size when nobody holds it any more, after the file was removed. None: the file is
            somebody else's, who removes it, so get it a name of one's own.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "body"); _ = path.write_bytes(b"hello")
    >>> body = Body(path, 5, zlib.crc32(b"hello"), print)
    >>> print(body)
    <Body of 5 octets>
    >>> del body
    5
    >>> path.exists(); folder.cleanup()
    False
    """

    __slots__ = ("__weakref__", "crc", "path", "size")

    def __init__(self, path: Path, size: int, crc: int, gone: Callable[[int], object] | None = None) -> None:
        self.path = path
        self.size = size
        self.crc = crc
        if gone is not None:
            weakref.finalize(self, _remove, path, size, gone)

    def __repr__(self) -> str:
        return f"<Body of {self.size} octets>"


def _remove(path: Path, size: int, gone: Callable[[int], object]) -> None:
    """A file that cannot be removed, as one that is open on Windows, is found when the broker starts again."""
    with suppress(OSError):
        os.unlink(path)
    gone(size)


def link(path: Path, other: Path) -> None:
    """Give a file one more name: then it goes with the last one. Where that is not possible, it is copied.

    Raises:
        OSError: it cannot be done.
    """
    try:
        os.link(path, other)
    except FileNotFoundError:
        raise
    except OSError:  # another disk, or one that knows no second names
        shutil.copyfile(path, other)


class Bodies:
    """A folder of files with names that are never used twice.

    Args:
        folder: made if it is missing.

    Raises:
        OSError: it cannot be made.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> bodies = Bodies(Path(folder.name, "bodies"))
    >>> body = bodies.write(b"x" * 70000)
    >>> bodies.sync()
    >>> bodies.read(body) == b"x" * 70000, bodies.sweep({body.file}), bodies.sweep(set())
    (True, 0, 1)
    >>> folder.cleanup()
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)
        #: No name is used twice: a removed file must not come back with other octets before the commit that says so.
        self._prefix = os.urandom(8).hex()
        self._count = 0
        self._unsynced = False

    def write(self, octets: bytes) -> BodyFile:
        """Writes a new file, and has its octets on the disk. Its name is on the disk after `sync`.

        Raises:
            OSError: it cannot be written. Nothing of it is left.
        """
        self._count += 1
        name = f"{self._prefix}-{self._count}"
        path = self._folder / name
        self._unsynced = True
        try:
            with open(path, "xb", buffering=0) as stream:
                rest = memoryview(octets)
                while rest:
                    rest = rest[stream.write(rest) :]
                os.fsync(stream.fileno())
        except BaseException:
            self.remove(name)
            raise
        return BodyFile(name, len(octets), zlib.crc32(octets))

    def adopt(self, body: Body) -> BodyFile:
        """Keeps a body that is a file already, and has its octets on the disk. Its name is there after `sync`.

        The file gets one more name, so nothing is written again, unless it lies on another disk.

        Raises:
            OSError: it cannot be kept. Nothing of it is left here.
        """
        self._count += 1
        name = f"{self._prefix}-{self._count}"
        path = self._folder / name
        self._unsynced = True
        try:
            link(body.path, path)
            with open(path, "rb+", buffering=0) as stream:
                os.fsync(stream.fileno())
        except BaseException:
            self.remove(name)
            raise
        return BodyFile(name, body.size, body.crc)

    def body(self, body: BodyFile) -> Body | None:
        """What was adopted; None if the file is gone, or torn. It stays here until `remove`."""
        path = self._folder / body.file
        try:
            whole = path.stat().st_size == body.size
        except OSError:
            return None
        return Body(path, body.size, body.crc) if whole else None

    def sync(self) -> None:
        """Has the names of new files on the disk, before a commit speaks of them.

        Raises:
            OSError: the disk does not take them.
        """
        if not self._unsynced:
            return
        if os.name == "posix":  # elsewhere a folder cannot be opened, and need not be
            folder = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        self._unsynced = False

    def read(self, body: BodyFile) -> bytes | None:
        """What was written; None if the file is gone or torn.

        Raises:
            StoreError: it is there, and cannot be read.
        """
        path = self._folder / body.file
        try:
            octets = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(
                f"{path} cannot be read: {error.strerror} (give the broker the right to read it)"
            ) from error
        return octets if len(octets) == body.size and zlib.crc32(octets) == body.crc else None

    def remove(self, file: str) -> None:
        """Removes a file if it is there. One that cannot be removed is found again by `sweep`."""
        with suppress(OSError):
            os.unlink(self._folder / file)

    def sweep(self, known: Container[str]) -> int:
        """Removes the files that nobody knows, left by a crash between file and commit. Says how many.

        Raises:
            OSError: the folder cannot be read.
        """
        orphans = [name for name in os.listdir(self._folder) if name not in known]
        for name in orphans:
            self.remove(name)
        return len(orphans)
