"""Files of large bodies: each is written once, then read or removed.

`Bodies` is the folder of a store, whose files the database refers to. `Body` is one file held by messages in memory; it
lives as long as any of them. `large.py` writes it piece by piece.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
import weakref
import zlib
from collections.abc import Callable, Container
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from stompcodec.broker.message import LargeBody
from stompcodec.broker.storage.folder_lock import is_body
from stompcodec.broker.storage.helper import HelperThread, Remover
from stompcodec.disk import NO_FOLLOW, PRIVATE, Access, create, grant, is_at, make_folder
from stompcodec.errors import StoreError


class BodyFolder:
    """A folder of bodies, whose names are never reused. It is created if it is missing; a symbolic link raises
    StoreError.

    `access` holds the permissions of the files, and of the folder if it is created. `helper` removes files; None for a
    thread.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     folder = BodyFolder(Path(name, "bodies"))
    ...     _ = (folder.path / "notes.txt").write_text("mine")
    ...     body = folder.new_name(); os.close(folder.create(body))
    ...     folder.sweep({body}), folder.sweep(()), os.listdir(folder.path)
    ...     folder.close()
    (0, 1, ['notes.txt'])
    """

    def __init__(self, path: Path, access: Access = PRIVATE, helper: HelperThread | None = None) -> None:
        self.path = path
        self.access = access
        self.remover = Remover(helper)
        #: No name is reused: otherwise a removed file could come back with other content before the commit that records
        #: it, or a later broker of this process could reuse a name while this one is still removing files.
        self._prefix = os.urandom(8).hex()
        self._count = 0
        self._closed = False
        self._file: int | None = None
        try:
            make_folder(path, access)
            if sys.platform != "win32":  # where a folder cannot be opened
                self._file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | NO_FOLLOW)
        except OSError as error:
            if path.is_symlink() or error.errno == errno.ELOOP:
                raise StoreError(
                    f"{path} is a symbolic link, and files are only removed from a folder of the broker's own "
                    "(put a folder there, or mount the other disk at it)"
                ) from error
            raise
        if self._file is not None:
            self._end = weakref.finalize(self, os.close, self._file)

    def is_there(self) -> bool:
        """Return whether the folder is still at its path: files in another one are not found by the next broker. Raise
        OSError if that is unknown.
        """
        return self._file is None or self._closed or is_at(self._file, self.path)

    def new_name(self) -> str:
        """Return a name that was never used before."""
        self._count += 1
        return f"{self._prefix}-{self._count}"

    def create(self, name: str) -> int:
        """Create a new file, and return its descriptor for writing."""
        if self._file is None:
            return create(self.path / name, os.O_WRONLY | os.O_EXCL, self.access)
        return create(name, os.O_WRONLY | os.O_EXCL, self.access, folder=self._file)

    def remove(self, name: str) -> bool:
        """Remove a file of ours at once, and return whether it is gone. Other files are left alone.

        In the loop's thread, use `discard`. If a file cannot be removed, `sweep` finds it at the next start.
        """
        if self._closed or not is_body(name):
            return False
        with suppress(OSError):
            if self._file is None:
                if stat.S_ISREG(os.lstat(self.path / name).st_mode):
                    os.unlink(self.path / name)
                    return True
            elif stat.S_ISREG(os.lstat(name, dir_fd=self._file).st_mode):
                os.unlink(name, dir_fd=self._file)
                return True
        return False

    def discard(self, name: str) -> None:
        """Have a file of ours removed, in the helper."""
        self.remover.put(lambda: self.remove(name))

    def names(self) -> list[str]:
        """Return the names of the files that follow our pattern."""
        return [name for name in os.listdir(self.path if self._file is None else self._file) if is_body(name)]

    def sweep(self, known: Container[str]) -> int:
        """Remove unknown bodies, left by a crash, and return their number. Correct the permissions of the others."""
        count = 0
        for name in self.names():
            if name in known:
                self._guard(name)
            else:
                count += self.remove(name)
        return count

    def _guard(self, name: str) -> None:
        """Correct the permissions of a file made by an earlier broker."""
        if self._file is None:
            return
        with suppress(OSError):
            info = os.lstat(name, dir_fd=self._file)
            wrong = info.st_mode & 0o777 != self.access.mode or self.access.group not in (None, info.st_gid)
            if stat.S_ISREG(info.st_mode) and wrong:
                file = os.open(name, os.O_RDONLY | NO_FOLLOW, dir_fd=self._file)
                try:
                    grant(file, self.access, self.path / name)
                finally:
                    os.close(file)

    def clear(self) -> None:
        """Have the bodies that this object made removed, in the helper."""

        def work() -> None:
            with suppress(OSError):
                for name in self.names():
                    if name.startswith(self._prefix):
                        self.remove(name)

        self.remover.put(work)

    def sync(self) -> None:
        """Sync the names of new files to disk."""
        if self._file is not None:  # other systems cannot open a folder, and need not
            os.fsync(self._file)

    def close(self) -> None:
        """Wait until discarded files are removed, and release the folder. Closing twice does nothing."""
        self.remover.close()
        self._closed = True
        if self._file is not None:
            self._end()


class BodyFile(NamedTuple):
    """The record of a file in the database."""

    file: str
    size: int
    crc: int


class Body:
    """The body of a large message, in a file. Messages share it, and the last one to go removes it. `crc` is the CRC-32
    of zlib.

    `gone` is called with the file's name and size when no message holds the body any more, in any thread; it has to
    remove the file. It is None if the file belongs to somebody else, who may remove it: link it to keep it.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "body"); _ = path.write_bytes(b"hello")
    >>> body = Body(path, 5, zlib.crc32(b"hello"), print)
    >>> print(body)
    <Body of 5 bytes>
    >>> del body
    body 5
    >>> folder.cleanup()
    """

    __slots__ = ("__weakref__", "crc", "damaged", "path", "size")

    def __init__(self, path: Path, size: int, crc: int, gone: Callable[[str, int], object] | None = None) -> None:
        self.path = path
        self.size = size
        self.crc = crc
        #: The file was read and differs from what was written.
        self.damaged = False
        if gone is not None:
            weakref.finalize(self, gone, path.name, size)

    def __repr__(self) -> str:
        return f"<Body of {self.size} bytes>"


def link(path: Path, folder: BodyFolder, name: str) -> None:
    """Link a file into a folder under a `new_name`, or copy it where links are not possible. An OSError leaves no
    partial file.
    """
    try:
        os.link(path, folder.path / name)
    except FileNotFoundError:
        raise
    except OSError:  # on another disk, or on one without hard links
        file = folder.create(name)
        try:
            with open(path, "rb", buffering=0) as source, open(file, "wb", buffering=0) as target:
                shutil.copyfileobj(source, target, 2**18)
        except BaseException:
            folder.discard(name)
            raise


def file_crc(path: Path) -> int:
    """Return the CRC-32 of a file."""
    crc = 0
    with open(path, "rb") as file:
        while piece := file.read(2**20):
            crc = zlib.crc32(piece, crc)
    return crc


class Bodies:
    """The files of a store in a `BodyFolder`, whose arguments and errors are the same.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> bodies = Bodies(Path(folder.name, "bodies"))
    >>> body = bodies.write(b"x" * 70000)
    >>> bodies.sync()
    >>> read_body(bodies.folder.path, body) == b"x" * 70000
    True
    >>> bodies.folder.sweep({body.file}), bodies.folder.sweep(set())
    (0, 1)
    >>> bodies.folder.close(); folder.cleanup()
    """

    def __init__(self, folder: Path, access: Access = PRIVATE, helper: HelperThread | None = None) -> None:
        self.folder = BodyFolder(folder, access, helper)
        self._unsynced = False

    def write(self, octets: bytes) -> BodyFile:
        """Write a new file and sync its content to disk. Call `sync` to sync its name. An OSError leaves no partial
        file.
        """
        name = self.folder.new_name()
        self._unsynced = True
        try:
            with open(self.folder.create(name), "wb", buffering=0) as stream:
                rest = memoryview(octets)
                while rest:
                    rest = rest[stream.write(rest) :]
                os.fsync(stream.fileno())
        except BaseException:
            self.folder.discard(name)
            raise
        return BodyFile(name, len(octets), zlib.crc32(octets))

    def adopt(self, body: LargeBody) -> BodyFile:
        """Keep a body that is in a file already, and sync its content to disk. Call `sync` to sync its name.

        The file is hard-linked, or copied if it is on another disk. An OSError leaves no partial file here.
        """
        name = self.folder.new_name()
        self._unsynced = True
        try:
            link(body.path, self.folder, name)
            path = self.folder.path / name
            file = os.open(path, os.O_RDWR | NO_FOLLOW | getattr(os, "O_BINARY", 0))
            try:
                grant(file, self.folder.access, path)
                os.fsync(file)
            finally:
                os.close(file)
        except BaseException:
            self.folder.discard(name)
            raise
        return BodyFile(name, body.size, body.crc)

    def sync(self) -> None:
        """Sync the names of new files to disk. Do so before committing rows that refer to them."""
        if self._unsynced:
            self.folder.sync()
            self._unsynced = False


def stored_body(folder: Path, body: BodyFile, verify: bool = False) -> Body | None:
    """Return an adopted body of a folder, or None if its file is missing or damaged. `verify` compares the checksum
    now, not when it is delivered.
    """
    path = folder / body.file
    if not is_body(body.file):
        return None
    try:
        whole = path.stat().st_size == body.size and not (verify and file_crc(path) != body.crc)
    except (OSError, ValueError):
        return None
    return Body(path, body.size, body.crc) if whole else None


def read_body(folder: Path, body: BodyFile) -> bytes | None:
    """Return the content of a file, or None if it is missing or damaged. Raise StoreError if it exists but cannot be
    read.
    """
    path = folder / body.file
    if not is_body(body.file):
        return None
    try:
        octets = path.read_bytes()
    except (FileNotFoundError, ValueError):
        return None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror} (let the broker read it)") from error
    return octets if len(octets) == body.size and zlib.crc32(octets) == body.crc else None
