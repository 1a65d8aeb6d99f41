"""Captures: raw frames in segment files, each with an index of arrival times. docs/capture-format.md has the format.

    with CaptureWriter("feed.stompcap") as capture:             # one writer at a time
        capture.append(octets_of(frame), time_in_us)
        capture.sync()                                          # on the disk: now it may be acknowledged

    for offset, time, frame in Capture("feed.stompcap").frames():
        ...

Readers see synced frames, also while more are written, and lock nothing. They check the index against the segment: a
damaged index is reported, and the frames are found without it. This module reads; `writer` and `index` have the rest.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, BinaryIO, NamedTuple

from stompcodec.arguments import checks
from stompcodec.capture.index import (
    PIECE,
    ROW,
    UNKNOWN,
    CaptureBusyError,
    IndexDecoder,
    Row,
    all_names_of,
    fail,
    index_path,
    is_sealed,
    read_rows,
    read_trailer,
    rows_of,
    scan,
)
from stompcodec.capture.places import Place, open_place, place_of, size_of
from stompcodec.capture.writer import CHAIN, CaptureWriter, octets_of
from stompcodec.codec import Frame, Parser
from stompcodec.errors import FrameError, StoreError, moved
from stompcodec.spec import Limits

__all__ = [
    "CHAIN",
    "UNKNOWN",
    "Capture",
    "CaptureBusyError",
    "CaptureWriter",
    "Cursor",
    "Piece",
    "Row",
    "Segment",
    "is_sealed",
    "octets_of",
]


class Segment(NamedTuple):
    """A file of frames in a capture.

    >>> Segment("frames", 0, place_of("a.stompcap")).path.name
    'a.stompcap'
    """

    chain: str
    """The name of its chain."""
    base: int
    """The offset of its first byte in the chain."""
    path: Place
    """The file, here or in the archive of the capture."""


class Piece(NamedTuple):
    """Bytes of frames that arrived together; more than 1 MiB is split, at any byte.

    >>> Piece(100, 0, b"BEGIN\\ntransaction:1\\n\\n\\0").end
    122
    """

    offset: int
    """The offset of the first byte in the chain."""
    time: int
    """The arrival time of the last byte in us since 1970, UTC; 0 if it is not known."""
    data: bytes
    """The bytes."""

    @property
    def end(self) -> int:
        """The offset of its end."""
        return self.offset + len(self.data)


@checks("problem")
class Capture:
    """A reader of a capture: a folder of segments, or a single file. Segments in its archive belong to it, too.

    Args:
        path: the folder or file; or its URI, such as s3://bucket/feed.stompcap, for a file system of pyarrow.
        on_problem: called with a line of text for each problem, such as a damaged index; reading continues. None:
            problems are raised as errors.

    Raises:
        StoreError: the path does not exist or cannot be read; from methods, also for a problem without `on_problem`.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with CaptureWriter(folder.name + "/a.stompcap") as writer:
    ...     at = writer.append(b"MESSAGE\\ndestination:/queue/a\\n\\nhello\\0", 1_700_000_000_000_000)
    >>> list(Capture(folder.name + "/a.stompcap").frames())
    [(0, 1700000000000000, <Frame MESSAGE destination='/queue/a' body=5 bytes b'hello'>)]
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str], *, on_problem: Callable[[str], object] | None = None) -> None:
        self.path = place_of(path)
        self.single = not self.path.is_dir()
        self._on_problem = on_problem
        try:
            self.path.stat()
        except OSError as error:
            raise fail(self.path, "read", error) from error

    def problem(self, text: str) -> None:
        """Report a problem: to `on_problem`, or as a StoreError."""
        if self._on_problem is None:
            raise StoreError(text)
        self._on_problem(text)

    def segments(self, chain: str | None = None, *, after: Mapping[str, int] | None = None) -> list[Segment]:
        """Return the segments of a chain, or of all chains, in order.

        Args:
            chain: the name of the chain; None for all.
            after: offsets of chains, if what is before them is not needed: it may be left out.
        """
        found = [(CHAIN, 0, self.path)] if self.single else all_names_of(self.path, after)
        return [Segment(*each) for each in found if chain in (None, each[0])]

    def chains(self) -> list[str]:
        """Return the names of the chains."""
        return list(dict.fromkeys(segment.chain for segment in self.segments()))

    def rows(self, segment: Segment) -> Iterator[Row]:
        """Yield the rows of a segment's index, up to the last sync. If the index is damaged or missing, rows for the
        rest are made from the frames."""
        view = _View(self, segment)
        yield from view.rows()

    def cursor(self, chain: str = CHAIN, start: int | None = None) -> Cursor:
        """Return a reader of a chain that can continue later, when more was written.

        Args:
            chain: the name of the chain.
            start: the offset of the first frame to read; None for the first one of the chain.
        """
        return Cursor(self, chain, start)

    def pieces(self, chain: str = CHAIN, start: int | None = None) -> Iterator[Piece]:
        """Yield the present contents of a chain. Arguments are those of `cursor`."""
        return self.cursor(chain, start).pieces()

    def frames(
        self, chain: str = CHAIN, start: int | None = None, *, limits: Limits | None = None, lenient: bool = False
    ) -> Iterator[tuple[int, int, Frame]]:
        """Yield (offset, arrival time in us or 0, frame) for the present contents of a chain.

        Args:
            chain, start: as for `cursor`.
            limits, lenient: as for `stompcodec.Parser`.

        Raises:
            FrameError: a frame is malformed. The offset is counted from the start of the chain.
        """
        parser, end = None, 0
        for piece in self.pieces(chain, start):
            if parser is None or piece.offset != end:
                parser = _Frames(piece.offset, limits, lenient)
            end = piece.end
            for at, frame in parser.feed(piece.data):
                yield at, piece.time, frame

    def end(self, chain: str = CHAIN) -> int:
        """Return the offset of the present end of a chain."""
        segments = self.segments(chain)
        if not segments:
            return 0
        last = 0
        for row in self.rows(segments[-1]):
            last = row.end
        return segments[-1].base + last


class _Frames:
    """A parser that yields frames with their offsets."""

    def __init__(self, start: int, limits: Limits | None, lenient: bool) -> None:
        self._parser = Parser("1.2", limits=limits, heartbeats=True, lenient=lenient)
        self._start = self._fed = self._at = start

    def feed(self, data: bytes) -> Iterator[tuple[int, Frame]]:
        self._fed += len(data)
        try:
            for event in self._parser.feed(data):
                at, self._at = self._at, self._fed - self._parser.buffered
                if isinstance(event, Frame):
                    yield at, event
        except FrameError as error:
            raise moved(error, self._start) from None


class _View:
    """The state of reading a segment: its index, and how far it was read."""

    def __init__(self, capture: Capture, segment: Segment) -> None:
        self._capture = capture
        self.segment = segment
        self.decoder = IndexDecoder(segment.base)
        self.stream: BinaryIO
        self._size = 0
        self.whole = False
        """The segment is complete: it is sealed, or its frames were found without an index."""

    def rows(self) -> Iterator[Row]:
        """Yield the rows that are new since the last call. `stream` is open meanwhile."""
        if self.whole and not self._capture.single:
            return
        with ExitStack() as stack:
            self.stream = _opened(self.segment.path, stack)
            size = self.stream.seek(0, os.SEEK_END)
            if self.whole:  # a single file may have been opened again for writing
                if size == self._size and not index_path(self.segment.path).exists():
                    return
                self.decoder, self.whole = IndexDecoder(self.segment.base), False
            self._size = size
            index, start, length = self._index(stack)
            if index is None:
                if size and not self._capture.single:
                    self._capture.problem(f"{self.segment.path}: no index, so arrival times are unknown")
                yield from self._without(size)
                return

            # Invariant: frames are written before their rows. So a size read after the index covers all its rows.
            self._size = self.stream.seek(0, os.SEEK_END)
            size = start or self._size

            def read(octets: int) -> bytes:
                index.seek(start + self.decoder.position)  # the stream may be the one that frames are read from, too
                return index.read(octets) or b""

            for row in read_rows(read, self.decoder, length - self.decoder.position):
                if row.end > size:
                    self.decoder.damaged, self.decoder.end = True, row.start
                    break
                yield row
            if self.decoder.damaged:
                path = self.segment.path if start else index_path(self.segment.path)
                self._capture.problem(f"{path}: the index is damaged: the rest is read from the frames")
                yield from self._without(size)
            self.whole = self.whole or self.decoder.sealed

    def _index(self, stack: ExitStack) -> tuple[BinaryIO | None, int, int]:
        """Return the file with the index, its offset there, and its size. One beside a single file takes precedence."""
        try:
            beside = stack.enter_context(open_place(index_path(self.segment.path), ahead=True))
            return beside, 0, beside.seek(0, os.SEEK_END)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise fail(index_path(self.segment.path), "read", error) from error
        if self._capture.single:
            size = self.stream.seek(0, os.SEEK_END)  # it may have been sealed meanwhile
            self.stream.seek(max(0, size - ROW))
            start = read_trailer(self.stream.read(ROW), size)
            if start is not None:
                return self.stream, start, size - ROW - start
        return None, 0, 0

    def _without(self, size: int) -> Iterator[Row]:
        """Yield rows for the part that the index does not cover, found by parsing."""
        end = self.decoder.end
        for row in rows_of(self.stream, scan(self.stream, end, size), end):
            self.decoder.end = end = row.end
            yield row
        self.whole = bool(size)
        self.stream.seek(end)
        # Up to the size seen before: a writer may have appended since.
        if self.stream.read(min(ROW, max(0, size - end))).strip(b"\r\n"):
            self._capture.problem(f"{self.segment.path}: bytes {end} to {size} are not whole frames: skipped")


def _opened(path: Place, stack: ExitStack) -> Any:
    try:
        return stack.enter_context(open_place(path, ahead=True))
    except OSError as error:
        raise fail(path, "read", error) from error


class Cursor:
    """A position in a chain, from which `pieces` reads on. `Capture.cursor` makes it.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> writer = CaptureWriter(folder.name + "/a.stompcap")
    >>> cursor = Capture(folder.name + "/a.stompcap").cursor()
    >>> list(cursor.pieces())
    []
    >>> at = writer.append(b"BEGIN\\ntransaction:1\\n\\n\\0", 0); writer.sync()
    >>> [piece.data for piece in cursor.pieces()], cursor.offset
    ([b'BEGIN\\ntransaction:1\\n\\n\\x00'], 22)
    >>> writer.close(); folder.cleanup()
    """

    def __init__(self, capture: Capture, chain: str, start: int | None) -> None:
        self.offset = start
        """The offset of the next byte; None before the first read if no start was given."""
        self._capture = capture
        self.segment: Segment | None = None
        """The segment of the latest piece."""
        self._chain = chain
        self._view: _View | None = None
        self._complete = True

    def pieces(self) -> Iterator[Piece]:
        """Yield the present pieces after `offset`. A later call yields those that were written since.

        Raises:
            StoreError: bytes are missing, or the capture cannot be read; not if the capture has an `on_problem`.
        """
        if not self._complete:
            self._view = None  # the last iteration stopped early: its view has read on
        self._complete = False
        while self._find():
            view = self._view
            assert view is not None
            yield from self._new(view)
            if not self._followed(view.segment):
                break
            yield from self._new(view)  # rows from before it was sealed
            self.offset = max(self.offset or 0, view.segment.base + view.decoder.end)
            self._view = None
        self._complete = True

    def _new(self, view: _View) -> Iterator[Piece]:
        for row in view.rows():
            yield from self._cut(view, row)

    def _followed(self, segment: Segment) -> bool:
        return any(each.base > segment.base for each in self._capture.segments(self._chain))

    def _find(self) -> bool:
        """Open the segment with the next byte. Return False if there is none."""
        if self._view is not None:
            return True
        segments = self._capture.segments(self._chain)
        if not segments:
            return False
        if self.offset is None:
            self.offset = segments[0].base
        at = self.offset
        before = [each for each in segments if each.base <= at]
        if before and (self._began_behind(before[-1], at) or before[-1] == segments[-1]):
            segment = before[-1]
        else:
            segment = segments[len(before)]
        if segment.base > at:
            self._capture.problem(f"{self._capture.path}: bytes {at} to {segment.base} of {self._chain} are missing")
            self.offset = segment.base
        self._view = _View(self._capture, segment)
        return True

    def _began_behind(self, segment: Segment, at: int) -> bool:
        """Return whether a segment contains an offset, or may still grow to it."""
        if segment.base == at:
            return True
        try:
            return size_of(segment.path) > at - segment.base
        except OSError:
            return False

    def _cut(self, view: _View, row: Row) -> Iterator[Piece]:
        """Yield the part of a row after `offset`, in pieces. The checksum is verified if the whole row is read."""
        assert self.offset is not None
        segment, stream = view.segment, view.stream
        start = max(row.start, self.offset - segment.base)
        whole, total = start == row.start, 0
        while start < row.end:
            stream.seek(start)
            data = stream.read(min(PIECE, row.end - start))
            if not data:
                self._capture.problem(f"{segment.path}: it ends at byte {start}, before the end of its index")
                return
            total = zlib.crc32(data, total)
            if whole and start + len(data) == row.end and total != row.sum:
                self._capture.problem(
                    f"{segment.path}: bytes {row.start} to {row.end} do not match their checksum in the index"
                )
            start += len(data)
            self.offset, self.segment = segment.base + start, segment
            yield Piece(self.offset - len(data), row.time, data)
