"""Reading a capture: its segments, the pieces and frames of its chains, and what to do with damage."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from stompcodec.capture.disk import fail, names_of
from stompcodec.capture.index import (
    PIECE,
    ROW,
    IndexDecoder,
    Row,
    index_path,
    read_rows,
    read_trailer,
    rows_of,
    scan,
)
from stompcodec.capture.writer import CHAIN
from stompcodec.codec import Frame, Parser
from stompcodec.errors import FrameError, StoreError, moved
from stompcodec.spec import Limits

__all__ = ["Capture", "Cursor", "Piece", "Segment"]


class Segment(NamedTuple):
    """A file of frames in a capture, and where it stands in its chain."""

    chain: str
    base: int
    """The offset of its first octet in the chain."""
    path: Path


class Piece(NamedTuple):
    """Octets of frames that came together; of more than 1 MiB a part, which is cut anywhere."""

    offset: int
    """Of the first octet, in the chain."""
    time: int
    """When the last of them came, in us since 1970, UTC; 0 where that is not known."""
    data: bytes

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.offset + len(self.data)


class Capture:
    """Reads a capture: a folder of segments, or a single file.

    Args:
        path: of the folder or file.
        on_problem: called with a line about what is wrong, such as a damaged index; reading goes on then. None: that
            is raised as an error.

    Raises:
        StoreError: there is nothing that could be read, or, from the methods, something is wrong with it.

    >>> import tempfile
    >>> from stompcodec.capture import CaptureWriter
    >>> folder = tempfile.TemporaryDirectory()
    >>> with CaptureWriter(folder.name + "/a.stompcap") as writer:
    ...     at = writer.append(b"MESSAGE\\ndestination:/queue/a\\n\\nhello\\0", 1_700_000_000_000_000)
    >>> list(Capture(folder.name + "/a.stompcap").frames())
    [(0, 1700000000000000, <Frame MESSAGE destination='/queue/a' body=5 octets b'hello'>)]
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str], *, on_problem: Callable[[str], object] | None = None) -> None:
        self.path = Path(path)
        self.single = not self.path.is_dir()
        self._on_problem = on_problem
        try:
            self.path.stat()
        except OSError as error:
            raise fail(self.path, "read", error) from error

    def problem(self, text: str) -> None:
        """Something is wrong."""
        if self._on_problem is None:
            raise StoreError(text)
        self._on_problem(text)

    def segments(self, chain: str | None = None) -> list[Segment]:
        """The segments there are, in order; of one chain, or of all."""
        if self.single:
            found = [(CHAIN, 0, self.path)]
        else:
            found = names_of(self.path)
        return [Segment(*each) for each in found if chain in (None, each[0])]

    def chains(self) -> list[str]:
        """The names of the chains."""
        return list(dict.fromkeys(segment.chain for segment in self.segments()))

    def rows(self, segment: Segment) -> Iterator[Row]:
        """The rows of a segment's index, as far as it was synced. Where the index is damaged or missing, rows for what
        it does not cover are made of the frames."""
        view = _View(self, segment)
        yield from view.rows()

    def cursor(self, chain: str = CHAIN, start: int | None = None) -> Cursor:
        """Reads a chain, and goes on when there is more.

        Args:
            start: the offset to begin with, of the first octet of a frame; None for the first one that is there.
        """
        return Cursor(self, chain, start)

    def pieces(self, chain: str = CHAIN, start: int | None = None) -> Iterator[Piece]:
        """The octets of a chain that are there now; as `cursor`."""
        return self.cursor(chain, start).pieces()

    def frames(
        self, chain: str = CHAIN, start: int | None = None, *, limits: Limits | None = None, lenient: bool = False
    ) -> Iterator[tuple[int, int, Frame]]:
        """Offset, time in us (0: unknown), and frame, of all that are there now; as `cursor`.

        Raises:
            FrameError: something else stands there. Its offset is that of the chain.
        """
        parser, end = None, 0
        for piece in self.pieces(chain, start):
            if parser is None or piece.offset != end:
                parser = _Frames(piece.offset, limits, lenient)
            end = piece.end
            for at, frame in parser.feed(piece.data):
                yield at, piece.time, frame

    def end(self, chain: str = CHAIN) -> int:
        """The offset behind what can be read of a chain now."""
        segments = self.segments(chain)
        if not segments:
            return 0
        last = 0
        for row in self.rows(segments[-1]):
            last = row.end
        return segments[-1].base + last


class _Frames:
    """Frames, and where they begin."""

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
    """A segment as a reader sees it: where its index is, and how far it goes."""

    def __init__(self, capture: Capture, segment: Segment) -> None:
        self._capture = capture
        self.segment = segment
        self.decoder = IndexDecoder(segment.base)
        self.stream: BinaryIO
        self._size = 0
        self.whole = False
        """Nothing more will come: it is sealed, or the frames were found without an index."""

    def rows(self) -> Iterator[Row]:
        """The rows that are new since the last time. Meanwhile `stream` is open."""
        if self.whole and not self._capture.single:
            return
        with ExitStack() as stack:
            self.stream = _opened(self.segment.path, stack)
            size = os.fstat(self.stream.fileno()).st_size
            if self.whole:  # a single file may have been opened again for writing
                if size == self._size and not index_path(self.segment.path).exists():
                    return
                self.decoder, self.whole = IndexDecoder(self.segment.base), False
            self._size = size
            index, start, length = self._index(stack)
            if index is None:
                if size and not self._capture.single:
                    self._capture.problem(f"{self.segment.path}: it has no index: when its frames came is not known")
                yield from self._without(size)
                return

            # Frames are written before their rows: looked at after the index, the segment has all that those tell of.
            self._size = os.fstat(self.stream.fileno()).st_size
            size = start or self._size

            def read(octets: int) -> bytes:
                index.seek(start + self.decoder.position)  # the stream may be the one that frames are read from
                return index.read(octets) or b""

            for row in read_rows(read, self.decoder, length - self.decoder.position):
                if row.end > size:
                    self.decoder.damaged, self.decoder.end = True, row.start
                    break
                yield row
            if self.decoder.damaged:
                path = self.segment.path if start else index_path(self.segment.path)
                self._capture.problem(f"{path}: the index is damaged: what it does not tell is taken from the frames")
                yield from self._without(size)
            self.whole = self.whole or self.decoder.sealed

    def _index(self, stack: ExitStack) -> tuple[BinaryIO | None, int, int]:
        """The file that holds the index, where in it, and its octets. The one beside a single file counts first."""
        try:
            beside = stack.enter_context(index_path(self.segment.path).open("rb", buffering=0))
            return beside, 0, os.fstat(beside.fileno()).st_size
        except FileNotFoundError:
            pass
        except OSError as error:
            raise fail(index_path(self.segment.path), "read", error) from error
        if self._capture.single:
            size = os.fstat(self.stream.fileno()).st_size  # it may have been sealed just now
            self.stream.seek(max(0, size - ROW))
            start = read_trailer(self.stream.read(ROW), size)
            if start is not None:
                return self.stream, start, size - ROW - start
        return None, 0, 0

    def _without(self, size: int) -> Iterator[Row]:
        """Rows for what the index does not cover, as the frames say."""
        end = self.decoder.end
        for row in rows_of(self.stream, scan(self.stream, end, size), end):
            self.decoder.end = end = row.end
            yield row
        self.whole = bool(size)
        self.stream.seek(end)
        # No further than it went when it was looked at: a writer may have begun meanwhile.
        if self.stream.read(min(ROW, max(0, size - end))).strip(b"\r\n"):
            self._capture.problem(f"{self.segment.path}: octets {end} to {size} are no whole frames: left out")


def _opened(path: Path, stack: ExitStack) -> Any:
    try:
        return stack.enter_context(path.open("rb", buffering=0))
    except OSError as error:
        raise fail(path, "read", error) from error


class Cursor:
    """A place in a chain, and what follows it.

    >>> import tempfile
    >>> from stompcodec.capture import CaptureWriter
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
        """Of the next octet; None before the first, where no start was given."""
        self._capture = capture
        self._chain = chain
        self._view: _View | None = None
        self._complete = True

    def pieces(self) -> Iterator[Piece]:
        """What can be read now. Call it again for what came since.

        Raises:
            StoreError: octets are missing, or the capture cannot be read; not if the capture has an `on_problem`.
        """
        if not self._complete:
            self._view = None  # the last one to read did not take all that its view had looked at
        self._complete = False
        while self._find():
            view = self._view
            assert view is not None
            yield from self._new(view)
            if not self._followed(view.segment):
                break
            yield from self._new(view)  # what came before it was sealed
            self.offset = max(self.offset or 0, view.segment.base + view.decoder.end)
            self._view = None
        self._complete = True

    def _new(self, view: _View) -> Iterator[Piece]:
        for row in view.rows():
            yield from self._cut(view, row)

    def _followed(self, segment: Segment) -> bool:
        return any(each.base > segment.base for each in self._capture.segments(self._chain))

    def _find(self) -> bool:
        """Open the segment that holds the next octet."""
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
        elif len(before) < len(segments):
            segment = segments[len(before)]
        else:
            return False
        if segment.base > at:
            self._capture.problem(f"{self._capture.path}: octets {at} to {segment.base} of {self._chain} are missing")
            self.offset = segment.base
        self._view = _View(self._capture, segment)
        return True

    def _began_behind(self, segment: Segment, at: int) -> bool:
        """Whether a segment holds an octet, or may still get it."""
        if segment.base == at:
            return True
        try:
            return segment.path.stat().st_size > at - segment.base
        except OSError:
            return False

    def _cut(self, view: _View, row: Row) -> Iterator[Piece]:
        """The octets of a row behind `offset`, in pieces. Where all of them are read, the checksum is looked at."""
        assert self.offset is not None
        segment, stream = view.segment, view.stream
        start = max(row.start, self.offset - segment.base)
        whole, total = start == row.start, 0
        while start < row.end:
            stream.seek(start)
            data = stream.read(min(PIECE, row.end - start))
            if not data:
                self._capture.problem(f"{segment.path}: it ends at octet {start}, before its index does")
                return
            total = zlib.crc32(data, total)
            if whole and start + len(data) == row.end and total != row.sum:
                self._capture.problem(
                    f"{segment.path}: octets {row.start} to {row.end} are not what was written, or the index is not"
                )
            start += len(data)
            self.offset = segment.base + start
            yield Piece(self.offset - len(data), row.time, data)
