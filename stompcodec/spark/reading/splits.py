"""The splits of files: cut between frames, packed into tasks, and with proof that a task reads the planned file.

A file is cut by its index if it has one, else by a light parse. Spark plans on the driver and reads on executors, where
the same path may lead to another folder, or to none. So a split carries what its file held when it was planned, and a
task compares before it yields rows.
"""

from __future__ import annotations

import os
import platform
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from pyspark.sql.datasource import InputPartition

from stompcodec.capture.index import ROW, IndexDecoder, fail, index_path, read_trailer
from stompcodec.capture.places import Place, open_place, place_of, size_of
from stompcodec.codec import Parser, frame_ends
from stompcodec.errors import FrameError, StoreError
from stompcodec.spark.options import FileOptions
from stompcodec.spark.reading.window import Window, begins_at, begins_frame, clean, declared_end, looker, opened
from stompcodec.spec import Limits

#: Bytes at the start and at the end of a split that are compared.
_HEAD, _TAIL = 256, 4096
NO_INDEX = "damaged-index: it is missing, so the times of these frames are unknown"


class Mark(NamedTuple):
    """What a file held when one of its splits was planned. Files that grow keep it."""

    head: bytes
    """The first bytes of the split."""
    first: int | None
    """The checksum of the split's first index row; None without rows."""
    last: int
    """The checksum of the split's last index row, which covers all rows before it; without rows, of its last bytes."""
    stop: int
    """The bytes that the file had at least."""


@dataclass(frozen=True)
class Split(InputPartition):
    """Part of a file whose frames one task reads."""

    path: str
    start: int
    """Offset in the file where a frame begins."""
    stop: int | None
    """Offset in the file behind a frame; None for the end of a compressed file."""
    base: int = 0
    """Offset in the chain of the file's first byte."""
    chain: str = "frames"
    spool: str = ""
    """Value of the column `spool`."""
    compression: str | None = None
    version: str = "1.2"
    single: bool = False
    """True if the index may be inside the file itself."""
    row: int = 0
    """Number of the first index row of these frames."""
    rows: int = 0
    """Number of index rows; 0 if the times of the frames are unknown."""
    problem: str = ""
    """Problem found at the start of the split, other than a malformed frame. It gets a row of its own."""
    since: int | None = None
    until: int | None = None
    """Times when the first and the last frame were received, in µs; None if no time is known."""
    mark: Mark | None = field(default=None, repr=False)
    """What the file must hold where it is read; None if nothing is compared."""


def mark_of(split: Split, index: IndexFile | None = None) -> Mark:
    """Return the mark of a split that is being planned; `index` is open if the split has rows. Raises OSError."""
    with open_place(place_of(split.path)) as stream:
        stop = stream.seek(0, os.SEEK_END) if split.stop is None else split.stop
        head = _read(stream, split.start, min(_HEAD, stop - split.start))
        first, last = _ends_of(index, split)
        return Mark(head, first, _tail_of(stream, split.start, stop) if last is None else last, stop)


def check(split: Split, index: IndexFile | None, *, strict: bool) -> str:
    """Compare the file of a split with its mark, and return a problem for a row of its own, or "".

    Raises StoreError if the file cannot be opened or another one is at its path; with `strict` also if the file or its
    index is shorter than it was.
    """
    mark = split.mark
    if mark is None:
        return ""
    try:
        with open_place(place_of(split.path)) as stream:
            size = stream.seek(0, os.SEEK_END)
            head = _read(stream, split.start, len(mark.head))
            tail = None if split.rows or size < mark.stop else _tail_of(stream, split.start, mark.stop)
    except FileNotFoundError:
        raise _differs(split, "there is none (or it was deleted since)") from None
    except OSError as error:
        raise _differs(split, f"it cannot be read: {error.strerror or error}") from error
    first, last = _ends_of(index, split)
    last = tail if index is None else last
    sealed = index is not None and index.inside and index.size < mark.stop  # its index is where frames were
    if not mark.head.startswith(head) or first not in (None, mark.first) or last not in (None, mark.last) or sealed:
        raise _differs(split, "there is another one (or it was changed since)")
    if strict and size < mark.stop:
        raise shorter(split, mark.stop - size)
    if split.rows and last is None and size >= mark.stop:
        if strict:
            raise _differs(split, f"its index is {'missing' if index is None else 'shorter than it was'}")
        return NO_INDEX
    return ""


def shorter(split: Split, octets: int) -> StoreError:
    """Return the error for a file that lacks bytes of a split."""
    return _differs(split, f"it is {octets} bytes shorter than it was")


def _differs(split: Split, what: str) -> StoreError:
    path = place_of(split.path)
    need = "must be one that the driver and all executors share under the same path (docs/spark-cluster.md)"
    if isinstance(path, Path):
        path = path.absolute()
    return StoreError(f"executor {platform.node()} does not see the driver's file {path}: {what}; its folder {need}")


def _ends_of(index: IndexFile | None, split: Split) -> tuple[int | None, int | None]:
    """Return the checksums of the first and the last index row of a split; None for rows that do not exist."""
    return (None, None) if index is None else (index.check(split.row), index.check(split.row + split.rows - 1))


def _read(stream: BinaryIO, start: int, count: int) -> bytes:
    stream.seek(start)
    return stream.read(count) if count > 0 else b""


def _tail_of(stream: BinaryIO, start: int, stop: int) -> int:
    start = max(start, stop - _TAIL)
    return zlib.crc32(_read(stream, start, stop - start))


# ---- cutting ----
_PIECE = 8 * 2**20
_VERSIONS = ("1.0", "1.1", "1.2")
#: Limits that accept every content-length, or none.
_ALL, _NONE = Limits(max_body=2**62), Limits(max_body=0)


class Unit(NamedTuple):
    """A file of frames."""

    path: str
    spool: str
    chain: str = "frames"
    base: int = 0
    """Offset of its first byte in the chain."""
    capture: bool = False
    """True for a segment or a single-file capture, which has an index."""
    single: bool = False
    compression: str | None = None


def splits_of(unit: Unit, options: FileOptions, start: int = 0, stop: int | None = None) -> list[Split]:
    """Return the splits of a file between two offsets, or up to what was synced; raise StoreError if unreadable."""
    whole = Split(unit.path, start, stop, unit.base, unit.chain, unit.spool, unit.compression, single=unit.single)
    try:
        if not unit.capture:
            whole = replace(whole, version=version_of(unit, options))
        size = size_of(place_of(unit.path))
        if unit.compression:
            splits = [whole]
        elif not unit.capture:
            splits = _scanned(replace(whole, stop=size if stop is None else stop), options)
        else:
            splits = _of_capture(whole, options, size)
        return [split if split.mark else replace(split, mark=mark_of(split)) for split in splits]
    except OSError as error:
        raise fail(place_of(unit.path), "read", error) from error


def version_of(unit: Unit, options: FileOptions) -> str:
    """Return the STOMP version of a bare stream: that of its first frame if it is CONNECTED, else 1.2."""
    if options.version != "auto":
        return options.version
    with ExitStack() as stack:
        window = Window(opened(unit.path, unit.compression, 0, None, stack), 0)
        window.fill(4096)
        try:
            first = next(iter(Parser(None).feed(bytes(window.view))), None)
        except FrameError:
            return "1.2"
    if first is None or first.command != "CONNECTED":
        return "1.2"
    version = first.get("version") or "1.0"
    return version if version in _VERSIONS else "1.2"


def _of_capture(whole: Split, options: FileOptions, size: int) -> list[Split]:
    """Return the splits of a segment or a single-file capture."""
    index = open_index(place_of(whole.path), whole.base, single=whole.single)
    if index is None:
        whole = replace(whole, stop=size if whole.stop is None else whole.stop)
        problem = "" if whole.single else NO_INDEX
        return _scanned(replace(whole, problem=problem), options)
    with closing(index):
        splits = list(_by_rows(whole, index, options))
        if index.damaged and whole.start:  # the search may have hit the damaged row first
            splits = list(_by_rows(whole, index, options, find=False))
        splits = list(_outside_of_garbage(splits, options))
        covered = (splits[-1].stop or 0) if splits else whole.start
        stop = index.size if whole.stop is None and index.damaged else whole.stop
        result = [each for split in splits for each in (_scanned(split, options) if split.rows == 1 else [split])]
        result = [replace(split, mark=mark_of(split, index)) for split in result]
        if stop is not None and covered < stop:
            text = f"damaged-index: the times of the frames from offset {whole.base + covered} on are unknown"
            problem = text if index.damaged else ""
            result += _scanned(replace(whole, start=covered, stop=stop, problem=problem), options)
    return result


def _by_rows(whole: Split, index: IndexFile, options: FileOptions, *, find: bool = True) -> Iterator[Split]:
    """Yield splits of about equal size between rows, as far as the index is sound."""
    at = whole.start
    total = max(1, (index.size if whole.stop is None else whole.stop) - at)
    # Equal sizes, so that no task gets only a few bytes; the 2 % are for rows, which cannot be cut.
    most = round(1.02 * total / -(-total // options.split_bytes))
    part = _Rows(0)
    first = index.find(at) if find and at else 0
    for rows in index.rows(first):
        taken = int(np.searchsorted(rows.ends, at, "right"))
        last = len(rows.ends)
        if whole.stop is not None:
            last = min(last, int(np.searchsorted(rows.ends, whole.stop, "left")) + 1)
        if not part.count:
            part = _Rows(rows.first + taken)
        while taken < last:
            fit = min(last, int(np.searchsorted(rows.ends, at + most, "right")))
            if fit == taken and not part.count:
                fit += 1  # a single row larger than a split
            part.add(rows.times[taken:fit], int(rows.ends[fit - 1]) if fit > taken else part.end)
            taken = fit
            if taken < last:
                yield part.split(whole, at)
                at, part = part.end, _Rows(rows.first + taken)
        if whole.stop is not None and part.end >= whole.stop:
            break
    if part.count:
        yield part.split(whole, at)


class _Rows:
    """Index rows of a split that is being put together."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.count = self.end = 0
        self.since: int | None = None
        self.until: int | None = None

    def add(self, times: np.ndarray, end: int) -> None:
        self.count += len(times)
        self.end = end
        known = times[times != 0]
        if len(known):
            since, until = int(known.min()), int(known.max())
            self.since = since if self.since is None else min(since, self.since)
            self.until = until if self.until is None else max(until, self.until)

    def split(self, whole: Split, at: int) -> Split:
        end = self.end if whole.stop is None else min(self.end, whole.stop)
        return replace(whole, start=at, stop=end, row=self.first, rows=self.count, since=self.since, until=self.until)


def _outside_of_garbage(splits: list[Split], options: FileOptions) -> Iterator[Split]:
    """Yield the splits without cuts inside a run of garbage, where index rows of a damaged file may end."""
    before: Split | None = None
    for split in splits:
        if before is None:
            before = split
        elif begins_at(split.path, split.start, options.extra_commands):
            yield before
            before = split
        else:
            times = [time for time in (before.since, before.until, split.since, split.until) if time is not None]
            since, until = (min(times), max(times)) if times else (None, None)
            before = replace(before, stop=split.stop, rows=before.rows + split.rows, since=since, until=until)
    if before is not None:
        yield before


def _scanned(split: Split, options: FileOptions) -> list[Split]:
    """Cut a split between frames by parsing its bytes. Its problem stays with the first part."""
    assert split.stop is not None
    if split.stop - split.start <= options.split_bytes:
        return [split] if split.stop > split.start or split.problem else []
    cuts, at = [], split.start
    for ends in whole_frames(split.path, split.start, split.stop, options, every=max(1, options.split_bytes // 16)):
        for end in ends.tolist():
            if end - at >= options.split_bytes and split.stop - end >= options.split_bytes // 4:
                cuts.append(end)
                at = end
    bounds = [split.start, *cuts, split.stop]
    parts = [replace(split, start=start, stop=stop, problem="") for start, stop in pairwise(bounds)]
    return [replace(parts[0], problem=split.problem), *parts[1:]]


def whole_frames(path: str, start: int, stop: int, options: FileOptions, every: int = 1) -> Iterator[np.ndarray]:
    """Yield ascending arrays of the offsets where frames end: at least `every` bytes apart, and the last one of each
    piece.

    A frame begins at `start`. An incomplete one at the end is left out. A run of garbage is never cut: it counts with
    the frame before it. Memory holds one piece.
    """
    most, extra, size = options.most_octets, options.extra_commands, _PIECE
    look = looker(path, None)
    pending: int | None = None  # an end, until it is known that a frame begins behind it
    with ExitStack() as stack:
        window = Window(opened(path, None, start, stop, stack), start)
        while window.fill(size) or len(window):
            with window.view as view:
                if pending is not None and begins_frame(view, extra):
                    yield np.array([pending], np.int64)
                    pending = None
                ends = np.array(frame_ends(view, every, limits=_ALL), np.int64)
                if len(ends):
                    good = clean(view, ends, extra)
                else:
                    far = _far_end(view, window.offset, stop, options, look)
            if len(ends):
                if good.any():
                    yield ends[good] + window.offset
                pending = None if good[-1] else window.offset + int(ends[-1])
                window.take(int(ends[-1]))
            elif far is not None:
                window.skip(far)
                pending = window.offset
            elif window.ended:
                break
            elif len(window) < most:
                size = min(most, 2 * len(window))
                continue
            elif window.skip(None):
                pending = window.offset
            else:
                break
            size = _PIECE
    if pending is not None:
        yield np.array([pending], np.int64)


def _far_end(
    view: memoryview, offset: int, stop: int, options: FileOptions, look: Callable[[int], bytes]
) -> int | None:
    """Return where the first frame of the view ends if that is behind the view; None if unknown."""
    end = declared_end(view)
    if end is None:
        return None
    if end > len(view) and offset + end <= stop and look(offset + end - 1) == b"\0":
        return end
    if offset + end > stop and end <= options.most_octets:
        return None  # the rest of it may still be written
    ends = frame_ends(view, 1, 1, limits=_NONE)
    return int(ends[0]) if ends else None


# ---- packing: starting a Python task takes Spark about 55 ms, reading a small file about 1 ms ----
#: Most parts of a task: opening 4,096 tiny files takes some seconds.
_MOST = 4096
#: Assumed size of inflated frames, as a multiple of the compressed file.
_INFLATED = 8


@dataclass(frozen=True)
class Pack(InputPartition):
    """Partitions that one task reads, in this order."""

    parts: tuple[InputPartition, ...]


def pack(parts: Iterable[Split], most: int) -> list[Split | Pack]:
    """Return the partitions in their order, with neighbours packed while they have at most `most` bytes together."""
    found: list[Split | Pack] = []
    group: list[Split] = []
    total = 0

    def close() -> None:
        if group:
            found.append(group[0] if len(group) == 1 else Pack(tuple(group)))
            group.clear()

    for part in parts:
        own = octets_of(part)
        if total + own > most or len(group) >= _MOST:
            close()
            total = 0
        group.append(part)
        total += own
    close()
    return found


def octets_of(split: Split) -> int:
    """Return about how many bytes of frames a split has."""
    if split.stop is not None:
        return split.stop - split.start
    try:
        return _INFLATED * size_of(place_of(split.path))
    except OSError:  # the task reports it
        return 0


def parts_of(partition: InputPartition) -> Sequence[InputPartition]:
    """Return the partitions that a task reads one after the other."""
    return partition.parts if isinstance(partition, Pack) else (partition,)


# ---- index rows of a capture as arrays: millions of them are read at once ----
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
    """An index on disk, in `length` bytes of a stream, of a segment at `base` with `size` bytes of frames."""

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


def open_index(path: Place, base: int, *, single: bool) -> IndexFile | None:
    """Open the index of a segment: the file beside it, or the one inside a single-file capture; None if it has none."""
    index = _beside(path, base)
    if index is None and single:
        index = _inside(path, base) or _beside(path, base)  # opening a single file to write moves it out again
    return index


def _beside(path: Place, base: int) -> IndexFile | None:
    size = size_of(path)
    try:
        beside = open_place(index_path(path), ahead=True)
    except FileNotFoundError:
        return None
    return IndexFile(beside, 0, beside.seek(0, os.SEEK_END), base, size)


def _inside(path: Place, base: int) -> IndexFile | None:
    stream = open_place(path, ahead=True)
    size = stream.seek(0, os.SEEK_END)  # taken after the look beside: sealing moves the index in
    stream.seek(max(0, size - ROW))
    start = read_trailer(stream.read(ROW), size)
    if start is not None:
        return IndexFile(stream, start, size - ROW - start, base, start)
    stream.close()
    return None
