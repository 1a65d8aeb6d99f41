"""Large messages: their bodies stay in files from the first byte to the last, and are never in memory as a whole.

    SEND, content-length:2147483648
        |  the parser emits the frame before its body (Connection: stream_over), and commands.py begins an Upload
        v
    Upload: each piece is written to a file of the spool (Draft)
        |  at the end of the body, the SEND is processed as usual, with a Body; no part was visible before
        v
    Message with `body`: its tail has no body; queues, topics, transactions and the store treat it like any other
        |  Consumer.send: first what the outbox holds, then the head, then the file
        v
    Download: while it is being sent, the session gets no other message, and its responses wait;
        each turn reads as much of the file as the transport accepts

A file is written once, then read or removed. `Body` is one that messages in memory hold: it lives as long as any of
them. `Bodies` is the folder of a store, which adopts a copy with the row of its message.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import stat
import sys
import tempfile
import time
import weakref
import zlib
from collections import Counter, deque
from collections.abc import Callable, Container
from contextlib import suppress
from io import FileIO
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from stompcodec.broker.config import Config
from stompcodec.broker.message import LargeBody, text_tail
from stompcodec.broker.storage.folder import FolderLock, HelperThread, Remover, examine_large, is_body, is_lock, mark
from stompcodec.broker.values import Refused, Unready
from stompcodec.codec import END_OF_BODY, Frame
from stompcodec.disk import NO_FOLLOW, PRIVATE, Access, create, grant, is_at, make_folder
from stompcodec.errors import StoreError
from stompcodec.transport.owner import Part


class Copies:
    """The folder of a backup, to which bodies are linked, or copied to another disk, by any thread; links become copies
    at its end. `error` tells why one could not be made.
    """

    def __init__(self, folder: BodyFolder) -> None:
        self._folder, self._lock = folder, Lock()
        self.error: OSError | None = None

    def keep(self, path: Path) -> None:
        """Link a body, unless that was done before, or it is gone."""
        with self._lock:  # one thread must not remove what the other one copies
            try:
                link(path, self._folder, path.name)
            except (FileExistsError, FileNotFoundError):
                pass
            except OSError as error:
                self.error = error


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
        #: A backup is being made: what is removed is kept there first.
        self.copies: Copies | None = None
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
        """Return whether the folder that is open is still at its path. Raise OSError if that is unknown."""
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
        if self.copies is not None:
            self.copies.keep(self.path / name)
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

    def copy_all(self) -> None:
        """Keep all bodies in the backup that is being made."""
        assert self.copies is not None
        for name in self.names():
            self.copies.keep(self.path / name)

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
    """Link a file into a folder under a `new_name`, or copy it. An OSError leaves no partial file."""
    try:
        os.link(path, folder.path / name)
    except FileNotFoundError:
        raise
    except OSError:  # on another disk, or on one without hard links
        copy(path, folder, name)


def copy(path: Path, folder: BodyFolder, name: str) -> Path:
    """Copy a file into a folder under a `new_name`, and return its path. An OSError leaves no partial file."""
    file = folder.create(name)
    try:
        with open(path, "rb", buffering=0) as source, open(file, "wb", buffering=0) as target:
            shutil.copyfileobj(source, target, 2**18)
    except BaseException:
        folder.discard(name)
        raise
    return folder.path / name


def file_crc(path: Path) -> int:
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
        """Write a new file and sync its content; `sync` syncs its name. An OSError leaves no partial file."""
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
    """Return an adopted body; None if its file is missing or, if `verify`, damaged. Delivery checks it otherwise."""
    path = folder / body.file
    if not is_body(body.file):
        return None
    try:
        whole = path.stat().st_size == body.size and not (verify and file_crc(path) != body.crc)
    except (OSError, ValueError):
        return None
    return Body(path, body.size, body.crc) if whole else None


def read_body(folder: Path, body: BodyFile) -> bytes | None:
    """Return the content of a file; None if it is missing or damaged. Raise StoreError if it cannot be read."""
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
        helper: HelperThread | None = None,
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
        while self._gone:
            octets = self._gone.popleft()
            self._octets -= octets
            self._leaving += octets
        while self._removed:
            self._leaving -= self._removed.popleft()
        return self._octets

    def open(self) -> None:
        """Take the folder, and remove files of an earlier run. Raise StoreError if it is another's or has others."""
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
        """Return a body that the store has read as one of the spool, which links its file, or raise StoreError."""
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
    """Return whether a broker has ever held a lock: it has a process number (not on Windows), or is old."""
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


def spool_of(config: Config, access: Access, helper: HelperThread | None) -> Spool:
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


_LOG = logging.getLogger("stompcodec.broker")
#: Bytes read from a file in one turn.
_PULL = 256 * 1024
#: Over WebSocket, a body of at most this many bytes is sent as one message, as text if possible. Larger ones are sent
#: as a binary message of many frames.
_WHOLE = 2**20
#: The end of a frame with a body.
_END = b"\0\n"


class Upload:
    """A large body that is being received, and written to a spool. It counts towards the share of `owner`.

    `done` is called at the end of the body with the SEND, without its content-length, and the body. Raise Refused if it
    cannot be kept.

    >>> upload = Upload(Spool(None, 100), Frame("SEND", {"destination": "/queue/a"}), print)
    >>> for piece in (b"hel", b"lo", END_OF_BODY): upload.take(piece)
    <Frame SEND destination='/queue/a'> <Body of 5 bytes>
    """

    __slots__ = ("_done", "_draft", "came", "cost", "frame", "looked", "still", "time")

    def __init__(self, spool: Spool, frame: Frame, done: Callable[[Frame, Body], object], owner: str = "") -> None:
        self.frame = without_body(frame)
        #: Memory used by the head, in bytes.
        self.cost = 3 * sum(len(name) + len(value) for name, value in self.frame.headers.pairs())
        #: Bytes received, and seconds during which the sender was read, since `why_stuck` began to measure.
        self.came, self.time = 0, 0.0
        #: Seconds since the last byte, not counting pauses; and the time of the last check.
        self.still = 0.0
        self.looked: float | None = None
        self._done = done
        self._draft: Draft | None = spool.draft(owner)

    def take(self, piece: Any) -> None:
        """Write the next piece, or finish with END_OF_BODY. Raise Refused if it cannot be kept, or if the SEND is
        refused.
        """
        draft = self._draft
        if draft is None:
            return
        if piece is END_OF_BODY:
            self._draft = None
            self._done(self.frame, draft.done())
        else:
            self.came += len(piece)
            self.still = -1.0
            draft.write(piece)

    def drop(self) -> None:
        """Discard what was received."""
        draft, self._draft = self._draft, None
        if draft is not None:
            draft.drop()


def is_streamed(frame: Any) -> bool:
    """Return whether the body of a frame is still to come.

    >>> is_streamed(Frame("SEND", {"destination": "/queue/a"}))
    False
    """
    return frame.body is None


def without_body(frame: Frame) -> Frame:
    """Return a SEND without its content-length, as if it had no body.

    >>> without_body(Frame("SEND", {"destination": "/queue/a", "content-length": "7"}))
    <Frame SEND destination='/queue/a'>
    """
    return Frame(frame.command, [pair for pair in frame.headers.pairs() if pair[0] != "content-length"])


def head_of(tail: bytes, body: LargeBody) -> bytes:
    """Return the part of a frame before the body: the tail of a large message, with its content-length.

    >>> head_of(b"a:b\\n\\n\\0", Body(None, 7, 0))
    b'a:b\\ncontent-length:7\\n\\n'
    """
    return b"%bcontent-length:%d\n\n" % (text_tail(tail)[:-2], body.size)


def why_stuck(upload: Upload, now: float, timeout: float, rate: int, paused: bool) -> str | None:
    """Return why a body arrives too slowly; None if it does not. Call it about once per second.

    After `timeout` seconds, a body without progress is stuck; over this time its average must reach `rate` bytes per
    second. While `paused`, the sender is not being read, and the time does not count.

    >>> upload = Upload(Spool(None, 100), Frame("SEND", {"destination": "/queue/a"}), print)
    >>> [why_stuck(upload, now, 10.0, 100, False) for now in (1.0, 10.5, 11.0)]
    [None, None, 'No data came for 10 s']
    >>> upload.drop()
    """
    looked, upload.looked = upload.looked, now
    if looked is None:
        upload.still = 0.0
    if looked is None or paused:
        return None
    upload.time += now - looked
    upload.still = 0.0 if upload.still < 0 else upload.still + now - looked
    if upload.still >= timeout:
        return f"No data came for {timeout:g} s"
    if upload.time >= timeout:
        if upload.came < rate * upload.time:
            return f"Less than {rate} bytes per second came for {timeout:g} s"
        upload.came, upload.time = 0, 0.0
    return None


class Download:
    """A large message that is being sent to a session: the chunks `before` it, its frame up to the body, and the body.

    If `whole_frames`, chunks must be whole frames or marked parts, as on WebSocket. `failed` is called if the file
    cannot be read to its end.
    """

    __slots__ = (*("_before", "_body", "_crc", "_head", "_left", "_whole_frames", "done", "failed", "moved"), "waiting")

    def __init__(
        self,
        before: list[bytes],
        head: bytes,
        body: LargeBody,
        whole_frames: bool,
        failed: Callable[[Exception], object],
    ) -> None:
        self._before = before
        self._head = head
        self._body = body  # keeps the file
        self._left = body.size
        self._crc = 0
        self._whole_frames = whole_frames
        self.failed = failed
        self.done = False
        #: Bytes in memory to send before the body.
        self.waiting = sum(map(len, before)) + len(head)
        #: True if anything was sent since this was last set to False.
        self.moved = True

    def check(self) -> None:
        """Raise OSError unless the file exists and has the size of its body."""
        if self._body.path.stat().st_size != self._body.size:
            raise OSError(f"{self._body.path} does not have the {self._body.size} bytes of its message")

    def take(self) -> list[bytes]:
        """Return the next chunks, limited in size. The file is open only meanwhile. Raise OSError if it cannot be read,
        or is too short. If no file descriptor was available, it can be retried.
        """
        with open(
            self._body.path, "rb", buffering=0, opener=lambda path, flags: os.open(path, flags | NO_FOLLOW)
        ) as file:
            octets = self._read(file)
        chunks, self._before, self.moved = self._before, [], True
        self._left -= len(octets)
        self._crc = zlib.crc32(octets, self._crc)
        self.done = self._left == 0
        if self.done and self._crc != self._body.crc:  # the end of the frame is not sent
            self.done, self._body.damaged = False, True
            raise OSError(f"{self._body.path} is damaged: it does not have its checksum")
        end = _END if self.done else b""
        if self._whole_frames:
            piece = b"%b%b%b" % (self._head, octets, end)
            chunks.append(piece if self.done else Part(piece))
        else:
            chunks += (chunk for chunk in (self._head, octets, end) if chunk)
        self._head, self.waiting = b"", 0
        return chunks

    def _read(self, file: FileIO) -> bytes:
        most = _WHOLE if self._whole_frames and self._body.size <= _WHOLE else _PULL
        file.seek(self._body.size - self._left)
        octets = file.read(min(most, self._left))
        if len(octets) == 0 < self._left:
            raise OSError(f"{self._body.path} is too short")
        return octets
