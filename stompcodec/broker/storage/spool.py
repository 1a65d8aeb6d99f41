"""The spool: the folder where bodies of large messages are written on arrival and stay as long as a message holds them.

The files belong to one run of the broker; those of an earlier run are removed at the start. The store adopts the bodies
that must survive the run (`Bodies.adopt`) before it commits their messages.

A separate thread removes the files. Their size stops counting at once.
"""

from __future__ import annotations

import errno
import os
import tempfile
import time
import weakref
import zlib
from collections import Counter, deque
from contextlib import suppress
from pathlib import Path

from stompcodec.broker.config.config import Config
from stompcodec.broker.errors import Refused, Unready
from stompcodec.broker.message import LargeBody
from stompcodec.broker.storage.body_files import Body, link
from stompcodec.broker.storage.body_folder import BodyFolder
from stompcodec.broker.storage.folder_lock import FolderLock, examine_large, is_lock, mark
from stompcodec.broker.storage.helper import Helper
from stompcodec.disk import PRIVATE, Access, make_folder
from stompcodec.errors import StoreError

#: Prefix of the names of temporary folders.
_PREFIX = "stompcodec-large-"


#: Above this number of files waiting to be removed, no new ones are made, so that clients cannot outrun the disk.
_MOST_DISCARDED = 10_000
#: Seconds after which a lock that was created but never taken counts as abandoned.
_STARTING = 60.0


class Spool:
    """A folder of bodies.

    Args:
        folder: used by this broker alone; None for a temporary folder. Created when it is needed.
        limit: bytes in all files together. Above it, bodies are refused.
        access: permissions of the files, and of the folder if it is created.
        most: bodies that may be written at the same time. Each needs a file descriptor.
        owner_most: how many of them one owner may have; 0 for `most` less the part for others.
        others: the part of `most` that one owner leaves for others: 2 for a half, 4 for a quarter.
        share: names the kind of owner in errors.
        shared: the folder is part of a data folder, which the store has locked and marked.
        helper: removes files; None for a thread.

    >>> spool = Spool(None, 100)
    >>> draft = spool.draft(); draft.write(b"hel"); draft.write(b"lo")
    >>> body = draft.done(); print(body, spool.octets)
    <Body of 5 bytes> 5
    >>> del body; spool.octets
    0
    >>> spool.close()
    """

    def __init__(
        self,
        folder: Path | None,
        limit: int,
        access: Access = PRIVATE,
        *,
        most: int = 500,
        owner_most: int = 0,
        others: int = 2,
        share: str = "a user",
        shared: bool = False,
        helper: Helper | None = None,
    ) -> None:
        self._path = folder
        self.limit = limit
        self._access = access
        #: The most bodies that may be written at the same time, and the number being written now.
        self.most, self.drafts = most, 0
        #: The share of an owner, and how many each has.
        self._owner_most, self._others, self._share = owner_most, others, share
        self._owners: Counter[str] = Counter()
        self._shared = shared
        self._helper = helper
        self._folder: BodyFolder | None = None
        self._end: weakref.finalize[..., Spool] | None = None
        self._octets = 0
        #: Sizes of bodies that no message holds any more. The store's thread may have held the last one.
        self._gone: deque[int] = deque()
        #: Bytes in files that still have to be removed, and sizes of those that were removed.
        self._leaving = 0
        self._removed: deque[int] = deque()

    @property
    def octets(self) -> int:
        """Bytes in all files."""
        while self._gone:
            octets = self._gone.popleft()
            self._octets -= octets
            self._leaving += octets
        while self._removed:
            self._leaving -= self._removed.popleft()
        return self._octets

    def open(self) -> None:
        """Take the folder that was named, and remove the files that an earlier run left there. Raise StoreError if it
        is another broker's, or holds foreign files.
        """
        path = self._path
        if path is None or (self._shared and not os.path.lexists(path)):
            return
        if not os.path.lexists(path):
            with suppress(OSError):  # the sender of a large message gets the error
                self._claim(path)
            return
        try:
            self._claim(path).sweep(())
        except OSError as error:
            remedy = "name another folder for messages.large_folder, or grant access to it"
            raise StoreError(f"{path} cannot be used for large messages: {error.strerror} ({remedy})") from error

    def _claim(self, path: Path) -> BodyFolder:
        """Make a named folder ours."""
        if not self._shared:
            path = path.resolve()  # the named folder may be a link, but links inside it are not followed
            examine_large(path)
            make_folder(path, self._access)
            lock = FolderLock(path, "large", self._access)
            self._end = weakref.finalize(self, lock.release)
            mark(path, "large", self._access)
        self._folder = BodyFolder(path, self._access, self._helper)
        return self._folder

    def draft(self, owner: str = "") -> Draft:
        """Begin a body that counts towards the share of an owner; "" for nobody's. Raise Refused if the spool is full,
        the owner has too many bodies, or no file can be created.
        """
        if self.drafts >= self.most:
            raise Unready(
                "too many large messages at a time", f"At most {self.most} can be received at a time: send it later."
            )
        share = self._owner_most or self.most - self.most // self._others
        if owner and self._owners[owner] >= share:
            remedy = f"At most {share} of {self._share} can be received at a time: send it later."
            raise Refused("too many large messages at a time", remedy)
        try:
            folder = self._ready()
            if folder.remover.pending >= _MOST_DISCARDED:
                raise Unready("too many large messages at a time", "The broker's disk is behind: send it later.")
            return Draft(self, folder, owner)
        except (OSError, StoreError) as error:
            raise _refused(error) from error

    def keep(self, body: LargeBody) -> Body:
        """Return a body that the store has read as one of the spool: its file is linked here. Raise StoreError if it
        cannot be.
        """
        try:
            folder = self._ready()
            name = folder.new_name()
            link(body.path, folder, name)
        except OSError as error:
            remedy = "let messages.large_folder be on the disk of store.data, with room and rights for the broker"
            raise StoreError(f"{body.path} cannot be kept: {error.strerror} ({remedy})") from error
        self._octets += body.size
        return Body(folder.path / name, body.size, body.crc, self.discard)

    def _ready(self) -> BodyFolder:
        """Return the folder; create it if needed."""
        if self._folder is not None:
            if not self._folder.is_there():
                raise StoreError(f"{self._folder.path} was removed or replaced (put it back, or restart the broker)")
            return self._folder
        return self._temporary() if self._path is None else self._claim(self._path)

    def _temporary(self) -> BodyFolder:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        path.chmod(0o700)  # the umask may have removed our own permissions
        lock = FolderLock(path, "large")
        folder = BodyFolder(path, self._access, self._helper)
        self._end = weakref.finalize(self, _remove_temporary, folder, lock)
        self._folder = folder
        folder.remover.put(_remove_abandoned)
        return folder

    def began(self, owner: str) -> None:
        """Count a body that is being written."""
        self.drafts += 1
        if owner:
            self._owners[owner] += 1

    def ended(self, owner: str) -> None:
        """Stop counting a body that was being written."""
        self.drafts -= 1
        if owner:
            self._owners[owner] -= 1
            if not self._owners[owner]:
                del self._owners[owner]

    def more(self, octets: int) -> None:
        """Reserve bytes that are about to be written. Raise Refused if they would exceed the limit."""
        if self.octets + octets > self.limit or self._leaving > self.limit:
            raise Unready("no room for large messages", "Send it again when other large messages have been consumed.")
        self._octets += octets

    def discard(self, name: str, octets: int) -> None:
        """Stop counting a file, and have it removed soon. May be called from any thread."""
        self._gone.append(octets)
        folder, removed = self._folder, self._removed
        if folder is not None:

            def remove() -> None:
                folder.remove(name)
                removed.append(octets)

            folder.remover.put(remove)

    def flush(self) -> None:
        """Wait until discarded files are removed."""
        if self._folder is not None:
            self._folder.remover.flush()

    def close(self) -> None:
        """Remove the files of this run, and a temporary folder itself."""
        if self._folder is not None and self._path is not None:
            self._folder.clear()
            self._folder.close()
        if self._end is not None:
            self._end()


class Draft:
    """A body that is being written, made by `Spool.draft`."""

    __slots__ = ("_crc", "_file", "_owner", "_path", "_size", "_spool")

    def __init__(self, spool: Spool, folder: BodyFolder, owner: str = "") -> None:
        self._spool, self._owner = spool, owner
        self._size = self._crc = 0
        name = folder.new_name()
        self._path = folder.path / name
        self._file = open(folder.create(name), "wb", buffering=0)  # noqa: SIM115 - `done` or `drop` closes it
        spool.began(owner)

    def write(self, piece: bytes) -> None:
        """Write the next bytes. Raise Refused if they cannot be stored."""
        self._spool.more(len(piece))
        self._size += len(piece)
        self._crc = zlib.crc32(piece, self._crc)
        try:
            rest = memoryview(piece)
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise _refused(error) from error

    def done(self) -> Body:
        """Return the complete body."""
        self._close()
        return Body(self._path, self._size, self._crc, self._spool.discard)

    def drop(self) -> None:
        """Discard what was written."""
        self._close()
        self._spool.discard(self._path.name, self._size)

    def _close(self) -> None:
        self._file.close()
        self._spool.ended(self._owner)


def _refused(error: Exception) -> Refused:
    remedy = "The broker's disk is full or at fault: send it later."
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        remedy = "The broker has no file descriptor left: send it later."
    return Unready("the large message could not be kept", remedy)


def _remove_abandoned() -> None:
    """Remove temporary folders of brokers that were killed, which are those whose lock no process holds."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError, StoreError):
            if path.is_symlink() or not (os.path.lexists(path / "lock") and is_lock(path / "lock")):
                continue
            if not _was_held(path / "lock"):
                continue
            if hasattr(os, "getuid") and path.lstat().st_uid != os.getuid():
                continue
            lock = FolderLock(path, "large")
            folder = BodyFolder(path)
            folder.sweep(())
            folder.close()
            _remove_rest(path, lock)


def _was_held(lock: Path) -> bool:
    """Return whether a broker has ever held a lock, rather than just created it to take it in a moment.

    The holder writes its process number there (not on Windows). An empty lock counts as held once it is old.
    """
    found = lock.lstat()
    return found.st_size > 0 or time.time() - found.st_mtime > _STARTING


def _remove_temporary(folder: BodyFolder, lock: FolderLock) -> None:
    """Have a temporary folder removed, unless it holds foreign files."""
    folder.clear()
    folder.remover.put(lambda: _remove_rest(folder.path, lock))
    folder.close()


def _remove_rest(path: Path, lock: FolderLock) -> None:
    with suppress(OSError):
        os.unlink(path / "lock")
    lock.release()
    with suppress(OSError):
        os.unlink(path / "lock")  # Windows keeps an open file
    with suppress(OSError):
        os.rmdir(path)


def spool_of(config: Config, access: Access, helper: Helper | None) -> Spool:
    """Make the spool of a broker, on the store's disk by default, so that storing a large message needs no copy."""
    own = None if config.data is None else Path(config.data, "incoming")
    folder = own if config.large_folder is None else Path(config.large_folder)
    shared = folder is not None and own is not None and folder.resolve() == own.resolve()
    return Spool(
        own if shared else folder,
        config.max_large_octets,
        access,
        most=config.max_uploads,
        owner_most=config.user_uploads,
        others=4 if config.users is None else 2,  # several clients may share an address
        share="an address" if config.users is None else "a user",
        shared=shared,
        helper=helper,
    )
