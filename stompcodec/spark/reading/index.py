"""Index rows of a capture as arrays: when frames were received, and where a file can be cut.

`stompcodec.capture.index` describes the rows; this module reads millions of them at once.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from stompcodec.capture.index import ROW, IndexDecoder, index_path, read_trailer

_LAYOUT = np.dtype([("end", "<u8"), ("time", "<i8"), ("sum", "<u4"), ("check", "<u4")])
_SEAL = np.uint64(2**63)
_LARGEST = 2**62
#: Rows read at once.
_MANY = 1 << 15


class Rows(NamedTuple):
    """Consecutive index rows."""

    first: int
    """Number of the first row."""
    start: int
    """Offset in the segment where their frames begin."""
    ends: Any
    """Offsets where the frames of each row end; int64."""
    times: Any
    """Times when they were received, in µs; 0 if unknown; int64."""
    sums: Any
    """CRC-32 of the frames of each row; uint32."""


class IndexFile:
    """An index on disk: `length` bytes of a stream from `start` on.

    `base` is the segment's offset in the chain, `size` its bytes of frames; a row that ends behind them is damaged.
    """

    def __init__(self, stream: BinaryIO, start: int, length: int, base: int, size: int) -> None:
        self._stream = stream
        self._start = start
        self._base = base
        self.size = size
        self.count = max(0, length // ROW - 1)
        """Number of complete rows, including the seal."""
        self.inside = start > 0
        """True if it is behind the frames in the same file."""
        self.sealed = False
        self.damaged = False
        """True once a damaged row was read; rows behind it are not believed."""

    def close(self) -> None:
        self._stream.close()

    def rows(self, first: int = 0, count: int | None = None, *, trusted: bool = False) -> Iterator[Rows]:
        """Yield rows from number `first` on, up to the seal, the end, or a damaged row. `trusted` skips their
        checksums, verified before."""
        stop = self.count if count is None else min(self.count, first + count)
        before = self._before(first)
        if before is None:
            self.damaged = self.count > 0 or self.damaged
            return
        start, check = before
        while first < stop:
            data = self._read(first + 1, min(_MANY, stop - first))
            if trusted:
                good, seal = len(data) // ROW, 0
            else:
                good, check, seal = _fitting(data, check)
            table = np.frombuffer(data, _LAYOUT, good)
            ends = table["end"].astype(np.int64)
            steps = np.diff(ends, prepend=start)
            wrong = np.flatnonzero((steps <= 0) | (ends > self.size) | (ends > _LARGEST))
            believed = int(wrong[0]) if len(wrong) else good
            self.damaged = believed < len(data) // ROW - seal
            self.sealed = bool(seal) and believed == good and not self.damaged
            if believed:
                table = table[:believed]
                yield Rows(first, start, ends[:believed], table["time"].astype(np.int64), table["sum"])
                start = int(ends[believed - 1])
            if self.damaged or seal or not data:
                return
            first += believed

    def find(self, place: int) -> int:
        """Return the number of the row whose frames contain an offset, provided that rows ascend."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            data = self._read(middle + 1, 1)
            end = int.from_bytes(data[:8], "little")
            if len(data) < ROW or end > place:
                high = middle
            else:
                low = middle + 1
        return low

    def last(self) -> int | None:
        """Return where the frames of the last row end; None if that takes a look at all rows."""
        first = max(0, self.count - 2)
        end = None if self.count else 0
        for rows in self.rows(first):
            end = int(rows.ends[-1])
        return None if self.damaged else end

    def check(self, row: int) -> int | None:
        """Return the checksum of a row, which covers all rows before it; None if the index ends before."""
        data = self._read(row + 1, 1)
        return int.from_bytes(data[20:], "little") if data else None

    def _before(self, first: int) -> tuple[int, int] | None:
        """Return where the frames of a row begin, and the checksum before it; None if the index is damaged."""
        data = self._read(first, 1)
        if first == 0:
            decoder = IndexDecoder(self._base)
            decoder.feed(data)
            return None if decoder.damaged or decoder.torn else (0, decoder.state)
        if len(data) < ROW:
            return None
        row = np.frombuffer(data, _LAYOUT, 1)[0]
        return int(row["end"]), int(row["check"])

    def _read(self, slot: int, count: int) -> bytes:
        self._stream.seek(self._start + slot * ROW)
        data = self._stream.read(count * ROW)
        return data[: len(data) // ROW * ROW]


def _fitting(data: bytes, check: int) -> tuple[int, int, int]:
    """Return the number of rows with correct checksums before a seal, the last checksum, and 1 if there is a seal."""
    with memoryview(data) as view:
        count = 0
        for at in range(0, len(data), ROW):
            found = zlib.crc32(view[at : at + 20], check)
            if found != int.from_bytes(view[at + 20 : at + ROW], "little"):
                break
            check = found
            if view[at + 7] & 0x80:
                return count, check, 1
            count += 1
    return count, check, 0


def open_index(path: Path, base: int, *, single: bool) -> IndexFile | None:
    """Open the index of a segment: the file beside it, or the one inside a single-file capture; None if it has none."""
    index = _beside(path, base)
    if index is None and single:
        index = _inside(path, base) or _beside(path, base)  # opening a single file to write moves it out again
    return index


def _beside(path: Path, base: int) -> IndexFile | None:
    size = path.stat().st_size
    try:
        beside = index_path(path).open("rb")
    except FileNotFoundError:
        return None
    return IndexFile(beside, 0, os.fstat(beside.fileno()).st_size, base, size)


def _inside(path: Path, base: int) -> IndexFile | None:
    stream = path.open("rb")
    size = os.fstat(stream.fileno()).st_size  # taken after the look beside: sealing moves the index in
    stream.seek(max(0, size - ROW))
    start = read_trailer(stream.read(ROW), size)
    if start is not None:
        return IndexFile(stream, start, size - ROW - start, base, start)
    stream.close()
    return None
