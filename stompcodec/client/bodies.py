"""Bodies that are received into a temporary file, and readers for them.

The I/O thread writes each piece to the file as it arrives, and delivers the message when the body is complete: a reader
never waits for the network, and a consumer that does not read holds up no heart-beats.
"""

from __future__ import annotations

import io
import os
import stat
import tempfile
import threading
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeGuard

from stompcodec.errors import StompError


class BinaryFile(Protocol):
    """A file opened for reading bytes."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; b"" at the end."""


_WHOLE = (str, bytes, bytearray, memoryview)
#: A body that is not in memory.
Streamed = os.PathLike[str] | BinaryFile | Iterable[bytes]


def is_whole(body: object) -> TypeGuard[str | bytes]:
    """Return whether a body is text or bytes, and not a source of bytes."""
    return isinstance(body, _WHOLE)


def checked(piece: object) -> bytes:
    """Return a piece of a body as bytes; raise TypeError if it is something else."""
    if type(piece) is bytes:
        return piece
    if isinstance(piece, bytes | bytearray | memoryview):
        return bytes(piece)
    what = f"the source of a body gave {type(piece).__name__}: it must give bytes"
    raise TypeError(f"{what}; open a file in binary mode, and send JSON as json.dumps(...)")


class FileSource:
    """A file, from where it stands, or from `start` if it can seek."""

    def __init__(self, file: Any, size: int, start: int | None, own: bool) -> None:
        self.size, self._file, self._start, self._own = size, file, start, own
        self._at = 0

    @property
    def can_rewind(self) -> bool:
        """True if the body can be read again."""
        return self._start is not None

    def read(self, at: int, most: int) -> bytes:
        """Return up to `most` bytes of the body from an offset on; b"" at the end."""
        if self._start is not None and self._at != at:
            self._file.seek(self._start + at)
        piece = self._file.read(most)
        if piece is None:
            raise BodySourceError("the source of a body is a file in non-blocking mode that has no bytes now")
        octets = checked(piece)
        self._at = at + len(octets)
        return octets

    def close(self) -> None:
        """Close the file, if the caller has not opened it."""
        if self._own:
            self._file.close()


class Pieces:
    """The pieces of an iterable, cut to the size that is asked for."""

    can_rewind = False

    def __init__(self, pieces: Iterable[bytes] | AsyncIterable[bytes], size: int) -> None:
        self.size = size
        self._pieces: Iterator[bytes] | AsyncIterator[bytes] = (
            aiter(pieces) if isinstance(pieces, AsyncIterable) else iter(pieces)
        )
        self._rest = memoryview(b"")

    @property
    def is_async(self) -> bool:
        """True if it has to be read by `aread`."""
        return isinstance(self._pieces, AsyncIterator)

    def read(self, _at: int, most: int) -> bytes:
        """Return up to `most` of the next bytes; b"" at the end."""
        assert isinstance(self._pieces, Iterator)
        while not self._rest:
            try:
                self._rest = memoryview(checked(next(self._pieces)))
            except StopIteration:
                return b""
        return self._cut(most)

    async def aread(self, _at: int, most: int) -> bytes:
        """Return the same of an asynchronous iterable."""
        assert isinstance(self._pieces, AsyncIterator)
        while not self._rest:
            try:
                self._rest = memoryview(checked(await anext(self._pieces)))
            except StopAsyncIteration:
                return b""
        return self._cut(most)

    def _cut(self, most: int) -> bytes:
        piece, self._rest = self._rest[:most], self._rest[most:]
        return bytes(piece)

    def close(self) -> None:
        """Drop what is left. A generator is closed with its last reference."""
        self._rest = memoryview(b"")


Source = FileSource | Pieces


def opened(body: Any, length: int | None) -> Source | None:
    """Return the source for a body; None if its length is not known, so that it has to be spooled first."""
    if length is not None and (type(length) is not int or length < 0):
        raise ValueError(f"length is {length!r:.40}: it must be a number of bytes, 0 or more")
    if isinstance(body, os.PathLike):
        return _opened_path(body, length)
    if isinstance(body, io.TextIOBase):
        raise TypeError("the file of a body is open in text mode: open it in binary mode")
    if hasattr(body, "read"):
        start, size = _extent(body)
        if size is None or length is not None:
            size = length
        return None if size is None else FileSource(body, size, start, own=False)
    if isinstance(body, Mapping) or not isinstance(body, Iterable | AsyncIterable):
        what = f"body is {type(body).__name__}: it must be str, bytes, a Path, a binary file or an iterable of bytes"
        raise TypeError(f"{what}; send JSON as json.dumps(...)")
    return None if length is None else Pieces(body, length)


def may_block(body: object) -> bool:
    """Return whether `opened` may take long: it does for what is no ordinary file, such as a pipe."""
    if isinstance(body, os.PathLike):
        try:
            return not stat.S_ISREG(os.stat(body).st_mode)
        except (OSError, ValueError):  # `opened` says why
            return False
    return hasattr(body, "read") and not isinstance(body, io.FileIO | io.BufferedReader | io.BytesIO)


def _opened_path(path: os.PathLike[str], length: int | None) -> Source | None:
    file = open(path, "rb", buffering=0)  # noqa: SIM115  # the source closes it
    try:
        status = os.fstat(file.fileno())
    except BaseException:
        file.close()
        raise
    if stat.S_ISREG(status.st_mode):
        return FileSource(file, status.st_size if length is None else length, 0, own=True)
    if length is not None:
        return FileSource(file, length, None, own=True)
    file.close()
    return None


def _extent(file: Any) -> tuple[int | None, int | None]:
    """Return where a file stands and how many bytes follow; None for what it cannot tell."""
    try:
        if not file.seekable():
            return None, None
        start: int = file.tell()
        size: int = max(file.seek(0, os.SEEK_END) - start, 0)
        file.seek(start)
    except (AttributeError, io.UnsupportedOperation):
        return None, None
    return start, size


class TemporaryFile(io.FileIO):
    """An unbuffered file without a name, closed when it is garbage-collected. Raises OSError if it cannot be created.

    Python finalizes garbage in any order. It warns if it reaches the file before the owner that would have closed it.
    """

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            super().__init__(os.dup(file.fileno()), "r+b")

    def __del__(self) -> None:
        self.close()


class Spool:
    """A temporary file that takes a source whose length is not known, and becomes one whose length is."""

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self._file = TemporaryFile(folder)
        self._size = 0

    def write(self, piece: bytes) -> None:
        write_all(self._file, piece)
        self._size += len(piece)

    def fill(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            self.write(checked(piece))

    def source(self) -> FileSource:
        self._file.seek(0)
        return FileSource(self._file, self._size, 0, own=True)

    def close(self) -> None:
        self._file.close()


def pieces_of(body: Any) -> Iterable[bytes] | AsyncIterable[bytes]:
    """Return the pieces of a body whose length is not known."""
    if isinstance(body, os.PathLike):
        return _pieces_of_path(body)
    if hasattr(body, "read"):
        return iter(lambda: FileSource(body, 0, None, own=False).read(0, PIECE), b"")
    pieces: Iterable[bytes] | AsyncIterable[bytes] = body
    return pieces


def _pieces_of_path(path: os.PathLike[str]) -> Iterator[bytes]:
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(PIECE):
            yield piece


def write_all(file: Any, octets: Any) -> None:
    view = memoryview(octets)
    while view:
        view = view[file.write(view) :]


#: The most bytes of one piece.
PIECE = 256 * 1024


class BodySourceError(StompError, ValueError):
    """A source that gave fewer or more bytes than it announced, or none in time. The broker drops what it has received.

    >>> issubclass(BodySourceError, StompError)
    True
    """


class ReceivedBody:
    """A body in a file, which is removed with the last message or reader that holds this."""

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self.size = 0
        self.error: OSError | None = None  # why it could not be kept
        self._file: TemporaryFile
        self._lock = threading.Lock()
        try:
            self._file = TemporaryFile(folder)
        except OSError as error:
            self.error = error

    def write(self, piece: bytes) -> None:
        """Add a piece. A full disk does not raise here, but for the reader."""
        self.size += len(piece)
        if self.error is not None:
            return
        try:
            write_all(self._file, piece)
        except OSError as error:
            self.error = error
            self._file.close()  # gives back the space

    def check(self) -> None:
        """Raise OSError if the body could not be kept."""
        if self.error is not None:
            said = f"the body of {self.size} bytes could not be kept in a temporary file: {self.error.strerror}"
            raise OSError(self.error.errno, said) from self.error

    def read_at(self, at: int, view: memoryview) -> int:
        """Read into a buffer from an offset on; return the number of bytes."""
        with self._lock:
            self._file.seek(at)
            count: int = self._file.readinto(view)
        return count


class BodyReader(io.RawIOBase):
    """A reader of one body, from its beginning. It is a binary file that can seek.

    To iterate over it gives pieces of up to 256 KiB; `io.BufferedReader(reader)` reads lines.

    >>> body = ReceivedBody(None)
    >>> body.write(b"hello")
    >>> with BodyReader(body) as reader:
    ...     reader.read(2), reader.size, list(reader)
    (b'he', 5, [b'llo'])
    """

    def __init__(self, body: ReceivedBody | bytes) -> None:
        super().__init__()
        self._memory = memoryview(body) if isinstance(body, bytes) else None
        self._body = None if isinstance(body, bytes) else body
        self._at = 0
        self.size = len(body) if isinstance(body, bytes) else body.size
        """The bytes of the whole body."""
        if self._body is not None:
            self._body.check()

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read into a buffer; return the number of bytes, 0 at the end."""
        self._check()
        view = memoryview(buffer).cast("B")[: max(self.size - self._at, 0)]
        if self._memory is not None:
            view[:] = self._memory[self._at : self._at + len(view)]
            count = len(view)
        else:
            assert self._body is not None
            count = self._body.read_at(self._at, view) if view else 0
        self._at += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to an offset; return it."""
        self._check()
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise ValueError(f"cannot seek to {base + offset}")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """Return the offset of the next byte."""
        self._check()
        return self._at

    def __iter__(self) -> Iterator[bytes]:  # pieces instead of lines
        while piece := self.read(PIECE):
            yield piece

    def close(self) -> None:
        """Let go of the body."""
        self._body = None
        super().close()

    def _check(self) -> None:
        if self.closed:
            raise ValueError("the reader is closed")
