"""Bounded pieces of plain and compressed files, seen through a moving window; and where frames begin in them.

A frame begins with a line that is a command. Everything else between two frames is garbage; a run of it is one row,
however many NULs it contains.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np

from stompcodec.capture.places import Place, open_place, place_of
from stompcodec.codec import frame_ends
from stompcodec.errors import MissingExtraError, StompError
from stompcodec.spec import Limits, dialect_of

_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}


class UnreadableError(StompError):
    """A damaged file that cannot be read any further."""


def compression_of(path: str | Place) -> str | None:
    """Return the compression of a file, by its first bytes: "gzip", "zstd" or None."""
    with open_place(place_of(path)) as stream:
        begin = stream.read(4)
    return next((name for magic, name in _MAGIC.items() if begin.startswith(magic)), None)


def opened(path: str, compression: str | None, start: int, stop: int | None, stack: ExitStack) -> Callable[[Any], int]:
    """Return a function that fills a buffer from a file, which `stack` closes; UnreadableError if it is damaged."""
    if compression == "gzip":
        stream = stack.enter_context(open_place(place_of(path), ahead=True))
        return _guarded(stack.enter_context(gzip.open(stream, "rb")))
    if compression == "zstd":
        return _guarded(stack.enter_context(_zstd(path)))
    stream = stack.enter_context(open_place(place_of(path)))
    stream.seek(start)
    return _Part(stream, None if stop is None else stop - start).readinto


class _Part:
    """A bounded number of bytes of a file."""

    def __init__(self, stream: Any, left: int | None) -> None:
        self._stream = stream
        self._left = left

    def readinto(self, buffer: memoryview) -> int:
        if self._left is not None:
            buffer = buffer[: self._left]
        count = self._stream.readinto(buffer) if buffer else 0
        if self._left is not None:
            self._left -= count
        return int(count)


def _zstd(path: str) -> Any:
    try:
        import pyarrow
    except ImportError:
        raise MissingExtraError("spark", "pyarrow") from None
    return pyarrow.input_stream(open_place(place_of(path)), compression="zstd")


def _guarded(stream: Any) -> Callable[[Any], int]:
    """Return a reader that tells damaged compressed data from a disk error."""

    def read(buffer: Any) -> int:
        try:
            return int(stream.readinto(buffer))
        except (OSError, EOFError, zlib.error) as error:
            if getattr(error, "errno", None):
                raise
            raise UnreadableError(f"the compressed data is damaged: {error!s:.200}") from error

    return read


#: Bytes read at once when they are skipped.
_CHUNK = 2**20
#: A free buffer for the next window: fresh memory costs more than reading into it.
_spare: list[bytearray] = []
_LARGEST_SPARE = 32 * 2**20


def _new_buffer(size: int) -> bytearray:
    with suppress(IndexError):
        if len(buffer := _spare.pop()) >= size:
            return buffer
    return bytearray(size)


class Window:
    """The part of a stream that is in memory."""

    def __init__(self, read: Callable[[Any], int], offset: int) -> None:
        self._read = read
        self._buffer = bytearray()
        self._start = self._stop = 0
        self.offset = offset
        """Offset of the first byte of the view."""
        self.ended = False
        """True if no bytes follow the view."""

    @property
    def view(self) -> memoryview:
        """The bytes. Release it before the window moves."""
        return memoryview(self._buffer)[self._start : self._stop]

    def __len__(self) -> int:
        return self._stop - self._start

    def take(self, count: int) -> None:
        """Drop the first bytes."""
        self._start += count
        self.offset += count

    def skip(self, count: int | None, fill: Callable[[int], object] | None = None) -> bool:
        """Drop `count` bytes, or with None all up to the first NUL; return False if the stream, or `fill`, ends."""
        nul = -1
        while nul < 0 and count != 0:
            if not len(self):
                (fill or self.fill)(_CHUNK)
                if not len(self):
                    return False
            with self.view as view:
                nul = find_nul(view) if count is None else -1
                some = nul + 1 if nul >= 0 else len(view) if count is None else min(count, len(view))
            self.take(some)
            count = None if count is None else count - some
        return True

    def fill(self, size: int) -> bool:
        """Read until the view has `size` bytes; return False if the stream ends before, or raise UnreadableError."""
        if len(self) < size and not self.ended:
            self._make_room(size)
            with memoryview(self._buffer) as view:
                while self._stop - self._start < size:
                    try:
                        count = self._read(view[self._stop : self._start + size])
                    except UnreadableError:
                        self.ended = True
                        raise
                    if not count:
                        self.ended = True
                        break
                    self._stop += count
        return len(self) >= size

    def close(self) -> None:
        buffer, self._buffer, self._start, self._stop = self._buffer, bytearray(), 0, 0
        if not _spare and len(buffer) <= _LARGEST_SPARE:
            _spare.append(buffer)

    def _make_room(self, size: int) -> None:
        if self._start + size <= len(self._buffer):
            return
        rest = len(self)
        if size <= len(self._buffer):
            self._buffer[:rest] = self._buffer[self._start : self._stop]
        else:
            new = _new_buffer(size + size // 2)  # spare room, so that bytes are moved rarely
            new[:rest] = self._buffer[self._start : self._stop]
            self._buffer = new
        self._start, self._stop = 0, rest


def frame_end(view: memoryview, complete: bool, limits: Limits | None = None) -> int | None:
    """Return where a malformed frame at the start of the view ends: at its content-length if there is a NUL, else at
    the first NUL, else with the view. None asks for more bytes, unless the view is `complete`."""
    ends = frame_ends(view, 1, 1, limits=limits)
    if ends:
        return int(ends[0])
    if not complete:
        return None
    nul = find_nul(view)
    return len(view) if nul < 0 else nul + 1


def find_nul(view: memoryview) -> int:
    for at in range(0, len(view), 65536):
        place = bytes(view[at : at + 65536]).find(0)
        if place >= 0:
            return at + place
    return -1


# ---- garbage, and the next frame behind it or behind an oversized one ----
_COMMANDS = tuple(sorted(name.encode() for name in dialect_of("1.2").commands))
_BEGIN = re.compile(rb"[^\r\n]")
_HEAD_END = re.compile(rb"\n\r?\n|\0")
_LENGTH = re.compile(rb"\ncontent-length:([^\n\0]*)\n")
_LINE = re.compile(rb"[\r\n\0]")
#: Bytes examined at once.
_SOME = 65536
#: EOLs behind a frame that are skipped for all frames at once; longer runs are examined one by one.
_EOLS = 4


def begins_frame(view: Any, extra: tuple[str, ...] = ()) -> bool:
    """Return whether bytes begin, after EOLs, with a command line or a part of one; `extra` are further commands."""
    for at in range(0, len(view), _SOME):
        found = _BEGIN.search(view, at, min(len(view), at + _SOME))
        if found:
            line = bytes(view[found.start() : found.start() + 256])
            commands = (*_COMMANDS, *(name.encode() for name in extra))
            end = _LINE.search(line)
            if end is None:
                return any(name.startswith(line) for name in commands)
            return line[: end.start()] in commands
    return False


def begins_at(path: str, place: int, extra: tuple[str, ...] = ()) -> bool:
    """Return whether a frame begins at an offset of a file, or the file ends there."""
    with open_place(place_of(path)) as stream:
        stream.seek(place)
        octets = stream.read(4096)
    return not octets or begins_frame(octets, extra)


def clean(view: memoryview, ends: Any, extra: tuple[str, ...] = ()) -> Any:
    """Return for each offset whether a frame begins there, after EOLs. The end of the view counts as no frame."""
    data = np.frombuffer(view, np.uint8)
    at = ends.copy()
    for _ in range(_EOLS):
        inside = np.minimum(at, len(data) - 1)
        eol = ((data[inside] == 10) | (data[inside] == 13)) & (at < len(data))
        if not eol.any():
            break
        at += eol
    found = np.zeros(len(ends), bool)
    for name in (*_COMMANDS, *(each.encode() for each in extra)):
        possible = np.flatnonzero(~found & (at + len(name) < len(data)))
        for place, octet in enumerate(name):
            possible = possible[data[at[possible] + place] == octet]
            if not len(possible):
                break
        behind = data[at[possible] + len(name)]
        found[possible[(behind == 10) | (behind == 13) | (behind == 0)]] = True
    inside = np.minimum(at, len(data) - 1)
    for row in np.flatnonzero(((data[inside] == 10) | (data[inside] == 13)) & (at < len(data))).tolist():
        begin = _BEGIN.search(view, int(at[row]))
        if begin and _LINE.search(view, begin.start(), begin.start() + 256):
            found[row] = begins_frame(view[begin.start() :], extra)
    return found


def declared_end(view: Any) -> int | None:
    """Return where the first frame ends by its content-length, perhaps behind the view; None if that is unknown."""
    begin = _BEGIN.search(view)
    head = _HEAD_END.search(view, begin.start()) if begin else None
    if not begin or not head or not view[head.end() - 1]:
        return None
    found = _LENGTH.search(view, begin.start(), head.end())
    digits = found[1].removesuffix(b"\r").strip(b" \t") if found else b""
    if not digits.isdigit() or len(digits.lstrip(b"0")) > 15:
        return None
    return head.end() + int(digits) + 1


def rest_of_run(view: memoryview, end: int) -> int:
    """Return where the NULs and EOLs behind an offset end, without trailing EOLs, which may be heart-beats."""
    octets = bytes(view[end : end + _SOME])
    run = octets[: len(octets) - len(octets.lstrip(b"\0\r\n"))]
    return end + len(run.rstrip(b"\r\n"))


def looker(path: str, compression: str | None) -> Callable[[int], bytes]:
    """Return a function that reads the byte at an offset of a file, slowly if compressed; b"" behind its end."""

    def look(place: int) -> bytes:
        if compression is None:
            with open_place(place_of(path)) as stream:
                stream.seek(place)
                return bytes(stream.read(1))
        with ExitStack() as stack:
            window = Window(opened(path, compression, 0, None, stack), 0)
            return bytes(window.view[:1]) if window.skip(place) and window.fill(1) else b""

    return look
