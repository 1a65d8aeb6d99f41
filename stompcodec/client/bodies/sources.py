"""Sources of bodies that are sent piece by piece: paths, binary files and iterables of bytes."""

from __future__ import annotations

import io
import os
import stat
import tempfile
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Any, Protocol, TypeGuard

from stompcodec.client.bodies.upload import PIECE, BodySourceError


class BinaryFile(Protocol):
    """A file opened for reading bytes."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; b"" at the end."""


_WHOLE = (str, bytes, bytearray, memoryview)
#: A body that is not in memory.
Streamed = os.PathLike[str] | BinaryFile | Iterable[bytes]


def is_whole(body: object) -> TypeGuard[str | bytes]:
    """Return whether a body is text or bytes, and not a source of bytes.

    >>> is_whole("text"), is_whole(b"bytes"), is_whole(io.BytesIO()), is_whole([b"a", b"b"])
    (True, True, False, False)
    """
    return isinstance(body, _WHOLE)


def checked(piece: object) -> bytes:
    """Return a piece of a body as bytes; raise TypeError if it is something else."""
    if type(piece) is bytes:
        return piece
    if isinstance(piece, bytes | bytearray | memoryview):
        return bytes(piece)
    hint = ": open the file in binary mode" if isinstance(piece, str) else ""
    raise TypeError(f"the source of a body gave {type(piece).__name__}: it must give bytes{hint}")


class FileSource:
    """A file, from where it stands, or from `start` if it can seek."""

    def __init__(self, file: Any, size: int, start: int | None, own: bool) -> None:
        self.size = size
        self._file = file
        self._start = start
        self._at = 0
        self._own = own

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
    """Return the source for a body; None if its length is not known, so that it has to be spooled first.

    Raises:
        OSError: the file cannot be opened.
        TypeError, ValueError: it is no source of bytes, or the length is no number of bytes.
    """
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
    if not isinstance(body, Iterable | AsyncIterable):
        raise TypeError(f"body is {type(body).__name__}: it must be str, bytes, a Path, a binary file or an iterable")
    return None if length is None else Pieces(body, length)


def may_block(body: object) -> bool:
    """Return whether `opened` may take long: it does for what is no ordinary file, such as a pipe.

    >>> may_block(io.BytesIO()), may_block([b"a"])
    (False, False)
    """
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
        """Add a piece."""
        write_all(self._file, piece)
        self._size += len(piece)

    def fill(self, pieces: Iterable[bytes]) -> None:
        """Add all pieces."""
        for piece in pieces:
            self.write(checked(piece))

    def source(self) -> FileSource:
        """Return the source of all that was written."""
        self._file.seek(0)
        return FileSource(self._file, self._size, 0, own=True)

    def close(self) -> None:
        """Drop it."""
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
    """Write all bytes to an unbuffered file."""
    view = memoryview(octets)
    while view:
        view = view[file.write(view) :]
