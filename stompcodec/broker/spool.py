"""Spool: where bodies of large messages lie as long as somebody holds them, and where they are written as they come.

The files are the memory of one run of the broker: those of an earlier run are removed when it starts. What has to
outlive it is adopted by the store (`Bodies.adopt`), before the commit that speaks of it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
import zlib
from collections import deque
from contextlib import suppress
from pathlib import Path

from stompcodec.broker.bodies import Body, link
from stompcodec.broker.folder import FolderLock
from stompcodec.broker.message import Refused
from stompcodec.errors import StoreError

__all__ = ["Draft", "Spool"]

#: What the names of folders for temporary files begin with.
_PREFIX = "stompcodec-large-"


class Spool:
    """A folder of bodies.

    Args:
        folder: of this broker alone; None for one among the temporary files of the system. Made when it is needed.
        limit: octets in all files together. Above, no more is taken.

    >>> spool = Spool(None, 100)
    >>> draft = spool.draft(); draft.write(b"hel"); draft.write(b"lo")
    >>> body = draft.done(); print(body, spool.octets)
    <Body of 5 octets> 5
    >>> del body; spool.octets
    0
    >>> spool.close()
    """

    def __init__(self, folder: Path | None, limit: int) -> None:
        self._folder = folder
        self.limit = limit
        self._made: Path | None = None
        self._end: weakref.finalize[..., Spool] | None = None
        #: No name is used twice, nor by a later broker of this process: bodies of ours may go when that one is there.
        self._prefix = os.urandom(8).hex()
        self._count = 0
        self._octets = 0
        #: Sizes of bodies that are gone. The store's thread may have held the last one.
        self._gone: deque[int] = deque()

    @property
    def octets(self) -> int:
        """In all files."""
        while self._gone:
            self._octets -= self._gone.popleft()
        return self._octets

    def sweep(self) -> int:
        """Remove what an earlier run has left in the folder that was named. Says how many files."""
        if self._folder is None or not self._folder.is_dir():
            return 0
        left = list(self._folder.iterdir())
        for path in left:
            with suppress(OSError):
                path.unlink()
        return len(left)

    def draft(self) -> Draft:
        """Begin a body.

        Raises:
            Refused: there is no room, or no file can be made.
        """
        try:
            return Draft(self, self._path())
        except OSError as error:
            raise _refused() from error

    def keep(self, body: Body) -> Body:
        """A body that the store has brought back, as one of ours: its file gets one more name here.

        Raises:
            StoreError: there is no way to keep it.
        """
        try:
            path = self._path()
            link(body.path, path)
        except OSError as error:
            remedy = "let messages.large_folder be on the disk of store.data, with room and rights for the broker"
            raise StoreError(f"{body.path} cannot be kept: {error.strerror} ({remedy})") from error
        self._octets += body.size
        return Body(path, body.size, body.crc, self.less)

    def _path(self) -> Path:
        """Of the next file."""
        if self._made is None:
            self._made = self._make()
        self._count += 1
        return self._made / f"{self._prefix}-{self._count}"

    def _make(self) -> Path:
        if self._folder is not None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return self._folder
        _remove_dead()
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = FolderLock(folder)
        self._end = weakref.finalize(self, _remove_folder, folder, lock)
        return folder

    def more(self, octets: int) -> None:
        """So many octets are to be written.

        Raises:
            Refused: there is no room for them.
        """
        if self.octets + octets > self.limit:
            raise Refused("no room for large messages", "Send it again when others have been taken out of the queues.")
        self._octets += octets

    def less(self, octets: int) -> None:
        """So many octets are gone. From any thread."""
        self._gone.append(octets)

    def close(self) -> None:
        """The end of the broker: a folder for temporary files goes."""
        if self._end is not None:
            self._end()


class Draft:
    """A body that is being written. `Spool.draft` makes it."""

    __slots__ = ("_crc", "_file", "_path", "_size", "_spool")

    def __init__(self, spool: Spool, path: Path) -> None:
        self._spool = spool
        self._path = path
        self._size = self._crc = 0
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115 - `done` or `drop` closes it

    def write(self, piece: bytes) -> None:
        """The next octets.

        Raises:
            Refused: they cannot be kept.
        """
        self._spool.more(len(piece))
        self._size += len(piece)
        self._crc = zlib.crc32(piece, self._crc)
        try:
            rest = memoryview(piece)
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise _refused() from error

    def done(self) -> Body:
        """All is there."""
        self._file.close()
        return Body(self._path, self._size, self._crc, self._spool.less)

    def drop(self) -> None:
        """The rest does not come."""
        self._file.close()
        self._spool.less(self._size)
        with suppress(OSError):
            self._path.unlink()


def _refused() -> Refused:
    return Refused("the large message could not be kept", "The broker's disk is full or at fault: send it later.")


def _remove_dead() -> None:
    """Folders of brokers that were killed: theirs is the lock in no process."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError, StoreError):
            if folder.is_symlink() or not (folder / "lock").is_file():
                continue
            if hasattr(os, "getuid") and folder.lstat().st_uid != os.getuid():
                continue
            _remove_folder(folder, FolderLock(folder))


def _remove_folder(folder: Path, lock: FolderLock) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    lock.release()
    shutil.rmtree(folder, ignore_errors=True)  # Windows keeps the lock as long as it is open
