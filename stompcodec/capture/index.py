"""The index of a segment: rows that say how far the segment was written, when that came, and what the octets add up to.

A row is written after its octets are on the disk, so that whatever a row covers can be read after any crash. Each row's
checksum goes over the rows before it, too: a row that was changed, moved or lost is noticed.

    header   "stompix1", base (u64), 0 (u32), checksum of these 20 octets (u32)
    row      end (u64), time in us (i64), checksum of the segment's octets since the row before (u32), checksum (u32)

Numbers are little-endian; a checksum is the CRC-32 of zlib. A seal is a row with the highest bit of `end` set.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from stompcodec.codec import END_OF_BODY, Parser
from stompcodec.errors import FrameError
from stompcodec.frame import HEARTBEAT
from stompcodec.spec import Limits

__all__ = [
    "PIECE",
    "ROW",
    "UNKNOWN",
    "IndexDecoder",
    "IndexEncoder",
    "Row",
    "checksum",
    "read_trailer",
    "scan",
    "trailer",
]

#: The time of octets whose time of arrival is not known.
UNKNOWN = 0
#: Octets of a row, of the header, and of the trailer of a single file.
ROW = 24
#: The most octets that are read at once.
PIECE = 2**20

#: Octets of an index that are read at once.
_ROWS = 4096 * ROW

_MAGIC, _END = b"stompix1", b"stompend"
_HEADER = struct.Struct("<8sQI")
_ROW = struct.Struct("<QqI")
_SUM = struct.Struct("<I")
_SEAL = 2**63
_LARGEST = 2**62
#: Rows of an index that is made anew are at least so many octets apart.
_APART = 64 * 1024
#: A scan holds no body in memory, so their size does not matter.
_LIMITS = Limits(max_command_line=2**16, max_header_line=2**20, max_headers=4000, max_body=_LARGEST)


class Row(NamedTuple):
    """Some whole frames of a segment."""

    start: int
    """Octets from the start of the segment."""
    end: int
    """Just behind the last frame."""
    time: int
    """When they came, in us since 1970, UTC; `UNKNOWN` where that was lost."""
    sum: int
    """CRC-32 of these octets."""


class IndexEncoder:
    """Makes the octets of an index.

    >>> index, again = IndexEncoder(0), IndexDecoder(0)
    >>> again.feed(index.header() + index.row(10, 1_700_000_000_000_000, 0) + index.seal())
    [Row(start=0, end=10, time=1700000000000000, sum=0)]
    >>> again.sealed, again.damaged
    (True, False)
    """

    def __init__(self, base: int) -> None:
        self._base = base
        self._sum = 0
        self.end = 0
        self.time = UNKNOWN

    def _closed(self, part: bytes) -> bytes:
        self._sum = zlib.crc32(part, self._sum)
        return part + _SUM.pack(self._sum)

    def header(self) -> bytes:
        self._sum = 0
        return self._closed(_HEADER.pack(_MAGIC, self._base, 0))

    def row(self, end: int, time: int, sum: int) -> bytes:
        """One more row. Times outside of what fits count as unknown."""
        if not self.end < end <= _LARGEST:
            raise ValueError(f"the end of a row is {end}, behind {self.end}")
        self.end = end
        self.time = time if -(2**63) <= time < 2**63 else UNKNOWN
        return self._closed(_ROW.pack(end, self.time, sum))

    def seal(self) -> bytes:
        """The last row: nothing follows. Its time is that of the row before."""
        return self._closed(_ROW.pack(_SEAL | self.end, self.time, 0))

    def follow(self, decoder: IndexDecoder) -> None:
        """Go on behind the good rows of an index."""
        self.end, self.time, self._sum = decoder.end, decoder.time, decoder.state


class IndexDecoder:
    """Takes octets of an index, and gives its rows as far as they are good. It believes no row that does not fit.

    Args:
        base: the one that the index has to have.
    """

    def __init__(self, base: int) -> None:
        self._base = base
        self._rest = b""
        self._began = False
        self.state = 0
        """The checksum so far."""
        self.octets = 0
        """How many octets of the index are good."""
        self.end = 0
        """How many octets of the segment the good rows cover."""
        self.time = UNKNOWN
        """Of the last row."""
        self.sealed = False
        self.damaged = False
        """A row, or the header, is not what was written. Nothing is read behind it."""

    @property
    def position(self) -> int:
        """How many octets of the index were taken, with those of a row that is not complete."""
        return self.octets + len(self._rest)

    @property
    def torn(self) -> bool:
        """The last row is not complete: it is being written, or was when its writer ended."""
        return bool(self._rest) or not self._began

    def feed(self, data: bytes) -> list[Row]:
        """The rows that are complete now."""
        data = self._rest + data
        whole = len(data) - len(data) % ROW
        rows: list[Row] = []
        for at in range(0, whole, ROW):
            if self.damaged or not self._take(data[at : at + ROW], rows):
                self.damaged = True
                return rows
            self.octets += ROW
        self._rest = data[whole:]
        return rows

    def _take(self, part: bytes, rows: list[Row]) -> bool:
        state = zlib.crc32(part[:20], self.state if self._began else 0)
        if _SUM.unpack_from(part, 20)[0] != state or self.sealed:
            return False
        if not self._began:
            magic, base, zero = _HEADER.unpack_from(part)
            if (magic, base, zero) != (_MAGIC, self._base, 0):
                return False
            self._began = True
        else:
            end, time, sum = _ROW.unpack_from(part)
            if end & _SEAL:
                if end ^ _SEAL != self.end:
                    return False
                self.sealed = True
            elif self.end < end <= _LARGEST:
                rows.append(Row(self.end, end, time, sum))
                self.end = end
            else:
                return False
            self.time = time
        self.state = state
        return True


def trailer(start: int) -> bytes:
    """The last octets of a sealed single file. Its index begins at `start`, behind the last frame."""
    part = _HEADER.pack(_END, start, 0)
    return part + _SUM.pack(zlib.crc32(part))


def read_trailer(part: bytes, size: int) -> int | None:
    """Where the index of a single file of `size` octets begins; None if these octets are no trailer of it.

    >>> read_trailer(trailer(100), 100 + 3 * ROW), read_trailer(trailer(100), 90), read_trailer(b"", 0)
    (100, None, None)
    """
    if len(part) != ROW or _SUM.unpack_from(part, 20)[0] != zlib.crc32(part[:20]):
        return None
    magic, start, zero = _HEADER.unpack_from(part)
    fits = magic == _END and not zero and start + 2 * ROW <= size and (size - start) % ROW == 0
    return int(start) if fits else None


def checksum(stream: BinaryIO, start: int, end: int) -> int | None:
    """CRC-32 of octets of a file; None if it is shorter. Memory holds a piece of them."""
    stream.seek(start)
    total = 0
    while start < end:
        data = stream.read(min(PIECE, end - start))
        if not data:
            return None
        total = zlib.crc32(data, total)
        start += len(data)
    return total


def scan(stream: BinaryIO, start: int, stop: int) -> Iterator[int]:
    """Where frames end in a segment, as its octets say: about every 64 KiB, and the last one. Ends at what is no frame.

    Args:
        start: where a frame begins.
        stop: look no further.
    """
    parser = Parser("1.2", limits=_LIMITS, stream_over=_APART, heartbeats=True)
    fed = given = last = start
    inside = False
    try:
        while fed < stop:
            stream.seek(fed)
            data = stream.read(min(PIECE, stop - fed))
            if not data:
                break
            fed += len(data)
            for event in parser.feed(data):
                if event is HEARTBEAT or isinstance(event, bytes):
                    continue
                inside = event is not END_OF_BODY and event.body is None
                if inside:
                    continue
                last = fed - parser.buffered
                if last - given >= _APART:
                    given = last
                    yield last
    except FrameError:
        pass
    if last > given:
        yield last


def rows_of(stream: BinaryIO, ends: Iterable[int], start: int) -> Iterator[Row]:
    """Rows for octets whose time is not known."""
    for end in ends:
        sum = checksum(stream, start, end)
        if sum is None:
            return
        yield Row(start, end, UNKNOWN, sum)
        start = end


def read_rows(read: Callable[[int], bytes], decoder: IndexDecoder, most: int) -> Iterator[Row]:
    """The rows of an index, a few at a time.

    Args:
        read: gives up to so many octets of the index, b"" at its end.
        most: octets to read.
    """
    while most > 0 and not decoder.damaged:
        data = read(min(_ROWS, most))
        if not data:
            return
        most -= len(data)
        yield from decoder.feed(data)


def index_path(segment: Path) -> Path:
    """Where the index of a segment, or of a single file that grows, lies.

    >>> index_path(Path("a.stompcap")).name, index_path(Path("frames-0.stomp")).name
    ('a.stompcap.idx', 'frames-0.idx')
    """
    return segment.with_suffix(".idx") if segment.suffix == ".stomp" else segment.with_name(segment.name + ".idx")
