"""Bodies that are received into a temporary file, and readers for them.

The I/O thread writes each piece to the file as it arrives, and delivers the message when the body is complete: a reader
never waits for the network, and a consumer that does not read holds up no heart-beats.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator
from typing import Any

from stompcodec.client.bodies.sources import TemporaryFile, write_all
from stompcodec.client.bodies.upload import PIECE


class ReceivedBody:
    """A body in a file, which is removed with the last message or reader that holds this.

    >>> body = ReceivedBody(None)
    >>> body.write(b"hello")
    >>> BodyReader(body).read(), body.size
    (b'hello', 5)
    """

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
