"""The index of a segment: rows with the end, the arrival time and the checksum of a part of the segment.

A row is written after its part is on the disk, so that the part can be read after any crash. The checksum of a row
covers the rows before it too, so that changed, moved and lost rows are detected.

    header   "stompix1", base (u64), 0 (u32), checksum of these 20 bytes (u32)
    row      end (u64), time in us (i64), checksum of the segment's bytes since the row before (u32), checksum (u32)

Numbers are little-endian; a checksum is the CRC-32 of zlib. A seal is a row with the highest bit of `end` set.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from stompcodec.codec import END_OF_BODY, Parser
from stompcodec.errors import FrameError
from stompcodec.frame import HEARTBEAT
from stompcodec.spec import Limits

#: The time of frames whose arrival time is not known.
UNKNOWN = 0
#: Bytes of a row, of the header, and of the trailer of a single file.
ROW = 24
#: The largest read of a segment, in bytes.
PIECE = 2**20

#: The largest read of an index, in bytes.
_ROWS = 4096 * ROW

_MAGIC, _END = b"stompix1", b"stompend"
_HEADER = struct.Struct("<8sQI")
_ROW = struct.Struct("<QqI")
_SUM = struct.Struct("<I")
_SEAL = 2**63
_LARGEST = 2**62
#: The least bytes between two rows of a rebuilt index.
_APART = 64 * 1024
#: A scan streams bodies, so that their size does not matter.
_LIMITS = Limits(max_command_line=2**16, max_header_line=2**20, max_headers=4000, max_body=_LARGEST)


class Row(NamedTuple):
    """A row of an index: some whole frames of a segment.

    >>> Row(0, 38, 1_700_000_000_000_000, 0).end
    38
    """

    start: int
    """The offset of the first frame in the segment, in bytes."""
    end: int
    """The end of the last frame."""
    time: int
    """The arrival time in us since 1970, UTC; `UNKNOWN` if it is not known."""
    sum: int
    """The CRC-32 of these bytes."""


class IndexEncoder:
    """The writer of an index of a segment at offset `base`: each method returns bytes to append.

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
        """Return the next row. A time out of range is written as unknown."""
        if not self.end < end <= _LARGEST:
            raise ValueError(f"the end of a row is {end}, behind {self.end}")
        self.end = end
        self.time = time if -(2**63) <= time < 2**63 else UNKNOWN
        return self._closed(_ROW.pack(end, self.time, sum))

    def seal(self) -> bytes:
        """Return the seal, which ends the index. Its time is that of the last row."""
        return self._closed(_ROW.pack(_SEAL | self.end, self.time, 0))

    def follow(self, decoder: IndexDecoder) -> None:
        """Continue after the good rows of an index."""
        self.end, self.time, self._sum = decoder.end, decoder.time, decoder.state


class IndexDecoder:
    """The reader of an index. It returns rows up to the first damaged one.

    `base` is the offset of the segment in its chain, which the header must have.
    """

    def __init__(self, base: int) -> None:
        self._base = base
        self._rest = b""
        self._began = False
        self.state = 0
        """The checksum of the good rows."""
        self.octets = 0
        """Bytes of the index that are good."""
        self.end = 0
        """Bytes of the segment that the good rows cover."""
        self.time = UNKNOWN
        """The time of the last row."""
        self.sealed = False
        self.damaged = False
        """A row or the header is damaged. The rows after it are not read."""

    @property
    def position(self) -> int:
        """Bytes of the index that were fed, including an incomplete row."""
        return self.octets + len(self._rest)

    @property
    def torn(self) -> bool:
        """The last row is incomplete: it is being written, or its writer was killed."""
        return bool(self._rest) or not self._began

    def feed(self, data: bytes) -> list[Row]:
        """Return the rows that are complete now."""
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
    """Return the trailer of a sealed single file, whose index begins at `start`, after the last frame."""
    part = _HEADER.pack(_END, start, 0)
    return part + _SUM.pack(zlib.crc32(part))


def read_trailer(part: bytes, size: int) -> int | None:
    """Return the offset of the index in a single file of `size` bytes; None if `part` is not its trailer.

    >>> read_trailer(trailer(100), 100 + 3 * ROW), read_trailer(trailer(100), 90), read_trailer(b"", 0)
    (100, None, None)
    """
    if len(part) != ROW or _SUM.unpack_from(part, 20)[0] != zlib.crc32(part[:20]):
        return None
    magic, start, zero = _HEADER.unpack_from(part)
    fits = magic == _END and not zero and start + 2 * ROW <= size and (size - start) % ROW == 0
    return int(start) if fits else None


def is_sealed(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a sealed single-file capture, by its end; False if it cannot be read.

    Args:
        path: of the file.

    Raises:
        ValueError: the path has a NUL.

    >>> is_sealed("/dev/null")
    False
    """
    try:
        with open(path, "rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - ROW))
            return read_trailer(stream.read(ROW), size) is not None
    except OSError:
        return False


def checksum(stream: BinaryIO, start: int, end: int) -> int | None:
    """Return the CRC-32 of a part of a file, read in pieces; None if the file is shorter."""
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
    """Yield ends of frames between two offsets of a segment, found by parsing: about every 64 KiB, and the last one.

    Malformed data ends it. `start` is where a frame begins.
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
    """Yield rows without a time for parts that end at `ends`."""
    for end in ends:
        sum = checksum(stream, start, end)
        if sum is None:
            return
        yield Row(start, end, UNKNOWN, sum)
        start = end


def read_rows(read: Callable[[int], bytes], decoder: IndexDecoder, most: int) -> Iterator[Row]:
    """Yield the rows of an index, of which `read` returns up to n bytes, b"" at its end. At most `most` are read."""
    while most > 0 and not decoder.damaged:
        data = read(min(_ROWS, most))
        if not data:
            return
        most -= len(data)
        yield from decoder.feed(data)


def index_path(segment: Path) -> Path:
    """Return the path of the index of a segment, or of an unsealed single file.

    >>> index_path(Path("a.stompcap")).name, index_path(Path("frames-0.stomp")).name
    ('a.stompcap.idx', 'frames-0.idx')
    """
    return segment.with_suffix(".idx") if segment.suffix == ".stomp" else segment.with_name(segment.name + ".idx")
