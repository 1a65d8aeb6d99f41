"""Large bodies, in files of their own: a folder where a file is written once, and read or removed later.

There are two kinds. `Bodies` is the folder of a store: files that a database knows of. `Body` is one file that messages
in memory hold, as long as any of them does; `spool.py` writes it, octet by octet as they come.
"""

from __future__ import annotations

import os
import shutil
import weakref
import zlib
from collections.abc import Callable, Container, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from stompcodec.broker.storage.body_folder import BodyFolder
from stompcodec.broker.storage.folder_lock import is_body
from stompcodec.disk.access import NO_FOLLOW, PRIVATE, Access, grant
from stompcodec.errors import StoreError

if TYPE_CHECKING:
    from stompcodec.broker.message import LargeBody
    from stompcodec.broker.storage.helper import Helper

__all__ = ["Bodies", "Body", "BodyFile", "file_crc", "link"]


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
        gone: called with the name of the file and the size when nobody holds it any more, in any thread: it has the
            file removed. None: the file is somebody else's, who removes it, so get it a name of one's own.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "body"); _ = path.write_bytes(b"hello")
    >>> body = Body(path, 5, zlib.crc32(b"hello"), print)
    >>> print(body)
    <Body of 5 octets>
    >>> del body
    body 5
    >>> folder.cleanup()
    """

    __slots__ = ("__weakref__", "crc", "damaged", "path", "size")

    def __init__(self, path: Path, size: int, crc: int, gone: Callable[[str, int], object] | None = None) -> None:
        self.path = path
        self.size = size
        self.crc = crc
        #: It was read, and is not what was written.
        self.damaged = False
        if gone is not None:
            weakref.finalize(self, gone, path.name, size)

    def __repr__(self) -> str:
        return f"<Body of {self.size} octets>"


def link(path: Path, folder: BodyFolder, name: str) -> None:
    """Give a file one more name: then it goes with the last one. Where that is not possible, it is copied.

    Args:
        path: of the file.
        folder: where it gets its new name.
        name: one of `BodyFolder.new_name`.

    Raises:
        OSError: it cannot be done. Nothing is left.
    """
    try:
        os.link(path, folder.path / name)
    except FileNotFoundError:
        raise
    except OSError:  # another disk, or one that knows no second names
        file = folder.create(name)
        try:
            with open(path, "rb", buffering=0) as source, open(file, "wb", buffering=0) as target:
                shutil.copyfileobj(source, target, 2**18)
        except BaseException:
            folder.discard(name)
            raise


def file_crc(path: Path) -> int:
    """Return the CRC-32 of a file.

    Raises:
        OSError: it cannot be read.
    """
    crc = 0
    with open(path, "rb") as file:
        while piece := file.read(2**20):
            crc = zlib.crc32(piece, crc)
    return crc


class Bodies:
    """A folder of files with names that are never used twice.

    Args:
        folder: made if it is missing.
        access: rights of the folder, if it is made, and of its files.
        helper: what removes files; None for a thread.

    Raises:
        OSError: it cannot be made.
        StoreError: it is a symbolic link.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> bodies = Bodies(Path(folder.name, "bodies"))
    >>> body = bodies.write(b"x" * 70000)
    >>> bodies.sync()
    >>> bodies.read(body) == b"x" * 70000, bodies.sweep({body.file}), bodies.sweep(set())
    (True, 0, 1)
    >>> bodies.close(); folder.cleanup()
    """

    def __init__(self, folder: Path, access: Access = PRIVATE, helper: Helper | None = None) -> None:
        self._folder = BodyFolder(folder, access, helper)
        self._unsynced = False

    def write(self, octets: bytes) -> BodyFile:
        """Writes a new file, and has its octets on the disk. Its name is on the disk after `sync`.

        Raises:
            OSError: it cannot be written. Nothing of it is left.
        """
        name = self._folder.new_name()
        self._unsynced = True
        try:
            with open(self._folder.create(name), "wb", buffering=0) as stream:
                rest = memoryview(octets)
                while rest:
                    rest = rest[stream.write(rest) :]
                os.fsync(stream.fileno())
        except BaseException:
            self._folder.discard(name)
            raise
        return BodyFile(name, len(octets), zlib.crc32(octets))

    def adopt(self, body: LargeBody) -> BodyFile:
        """Keeps a body that is a file already, and has its octets on the disk. Its name is there after `sync`.

        The file gets one more name, so nothing is written again, unless it lies on another disk.

        Raises:
            OSError: it cannot be kept. Nothing of it is left here.
        """
        name = self._folder.new_name()
        self._unsynced = True
        try:
            link(body.path, self._folder, name)
            path = self._folder.path / name
            file = os.open(path, os.O_RDWR | NO_FOLLOW | getattr(os, "O_BINARY", 0))
            try:
                grant(file, self._folder.access, path)
                os.fsync(file)
            finally:
                os.close(file)
        except BaseException:
            self._folder.discard(name)
            raise
        return BodyFile(name, body.size, body.crc)

    def body(self, body: BodyFile, verify: bool = False) -> Body | None:
        """What was adopted; None if the file is gone, or torn. It stays here until `remove`.

        Args:
            body: of which file.
            verify: read it, and compare the checksum. Otherwise that is done when it is delivered.
        """
        path = self._folder.path / body.file
        if not is_body(body.file):
            return None
        try:
            whole = path.stat().st_size == body.size and not (verify and file_crc(path) != body.crc)
        except (OSError, ValueError):
            return None
        return Body(path, body.size, body.crc) if whole else None

    def has(self, names: Iterable[str]) -> bool:
        """Return whether all these files are there.

        Raises:
            OSError: the folder cannot be read.
        """
        return set(names) <= set(self._folder.names())

    def sync(self) -> None:
        """Has the names of new files on the disk, before a commit speaks of them.

        Raises:
            OSError: the disk does not take them.
        """
        if self._unsynced:
            self._folder.sync()
            self._unsynced = False

    def read(self, body: BodyFile) -> bytes | None:
        """What was written; None if the file is gone or torn.

        Raises:
            StoreError: it is there, and cannot be read.
        """
        path = self._folder.path / body.file
        if not is_body(body.file):
            return None
        try:
            octets = path.read_bytes()
        except (FileNotFoundError, ValueError):
            return None
        except OSError as error:
            raise StoreError(
                f"{path} cannot be read: {error.strerror} (give the broker the right to read it)"
            ) from error
        return octets if len(octets) == body.size and zlib.crc32(octets) == body.crc else None

    def discard(self, file: str) -> None:
        """Have a file removed, in the thread for that. One that cannot be removed is found again by `sweep`."""
        self._folder.discard(file)

    def flush(self) -> None:
        """Wait until what was discarded is gone."""
        self._folder.remover.flush()

    def close(self) -> None:
        """Wait until what was discarded is gone, and let the folder go."""
        self._folder.close()

    def sweep(self, known: Container[str]) -> int:
        """Remove the bodies that nobody knows, left by a crash between file and commit, and return how many.

        Raises:
            OSError: the folder cannot be read.
        """
        return self._folder.sweep(known)
