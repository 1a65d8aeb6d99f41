"""Frames as Arrow record batches, one part of a file at a time, in bounded memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa

from stompcodec.capture.places import place_of
from stompcodec.codec import parse_columns
from stompcodec.spark.options import ALL, FileOptions
from stompcodec.spark.reading.schema import Projection, Projector, error_text
from stompcodec.spark.reading.splits import IndexFile, Split, check, open_index, shorter
from stompcodec.spark.reading.window import (
    UnreadableError,
    Window,
    begins_frame,
    declared_end,
    frame_end,
    looker,
    opened,
    rest_of_run,
)

_FIRST = 256 * 1024
#: Most bytes of a malformed frame that its row shows.
_SHOWN = 2**20
_LEAST = 64 * 1024
#: Fewer rows than this, as after a filter or an error, or from a small file, wait for more before they go to Spark.
_FEW = 256


def read_split(split: Split, projection: Projection, options: FileOptions, *, strict: bool = False) -> Iterator[Any]:
    """Yield the frames of a split as record batches; raise MalformedError, OSError or StoreError, as `splits.check`."""
    with ExitStack() as stack:
        index = _index_of(split, stack)
        problem = check(split, index, strict=strict)
        times = _Times(index, split)
        batches = _Batches(Projector(projection, options, split.spool, split.base, times))
        window = Window(opened(split.path, split.compression, split.start, split.stop, stack), split.start)
        stack.callback(window.close)
        sums = _Checksums(index, split) if options.checksums and index is not None else None
        for text in filter(None, (split.problem, problem)):
            batches.error(split.start, text)
        look = looker(split.path, split.compression)
        yield from _Frames(window, projection, options, split, sums, batches, look, strict=strict).read()
        yield from batches.rest()


def _index_of(split: Split, stack: ExitStack) -> IndexFile | None:
    if not split.rows:
        return None
    try:
        index = open_index(place_of(split.path), split.base, single=split.single)
    except FileNotFoundError:
        return None  # there is no segment either, which `check` tells
    if index is not None:
        stack.callback(index.close)
    return index


class _Frames:
    """Parser of a window: many frames at once, one by one around malformed ones."""

    def __init__(
        self,
        window: Window,
        projection: Projection,
        options: FileOptions,
        split: Split,
        sums: _Checksums | None,
        batches: _Batches,
        look: Callable[[int], bytes] = lambda place: b"",
        *,
        strict: bool = False,
    ) -> None:
        self._window = window
        self._strict = strict
        self._options = options
        self._split = split
        self._sums = sums
        self._batches = batches
        self._look = look
        self._most = options.most_octets
        self._extra = options.extra_commands
        where: list[tuple[str, str, tuple[str, ...]]] = []
        if options.commands != ALL:
            where.append(("command", "in", options.commands))
        if options.choice.destinations:
            where.append(("destination", "in", options.choice.destinations))
        raw = batches.projector.raw
        columns = (*raw.columns, "length")
        self._rules: dict[str, Any] = {
            "names": raw.names,
            "columns": tuple(dict.fromkeys(columns)),
            "where": where,
            "repeats": False,
            "limits": options.limits,
            "commands": self._extra,
        }

    def read(self) -> Iterator[Any]:
        """Yield batches as they fill up."""
        window, size = self._window, _FIRST
        while self._fill(size):
            with window.view as view, view[:size] as part:
                columns: Any = parse_columns(part, self._split.version, **self._rules)
                self._batches.passed(part, columns.consumed)
            noticed = self._batches.frames(columns, window.offset)
            window.take(columns.consumed)
            if columns.error:
                size = self._malformed(columns.error, noticed, size)
            elif columns.consumed:
                # Rather too few, for one row too many makes two batches.
                wanted = self._options.batch_rows * columns.consumed * 31 // (max(columns.rows, 1) * 32)
                size = max(_LEAST, min(wanted, self._options.batch_bytes))
            elif size >= self._most or (window.ended and size >= len(window)):
                size = self._left_over()
            else:
                size = min(self._most, 2 * size)
            yield from self._batches.full()
        split = self._split
        if split.stop is not None and window.offset < split.stop:
            gone = split.stop - window.offset
            if self._strict:
                raise shorter(split, gone)
            self._batches.error(window.offset, f"truncated: the file is {gone} bytes shorter than it was")

    def _fill(self, size: int) -> bool:
        """Read on; return False at the end."""
        window, base = self._window, self._split.base
        at = window.offset + len(window)
        try:
            window.fill(size)
        except UnreadableError as error:
            self._batches.error(window.offset + len(window), f"unreadable: {error}")
        if self._sums is not None:
            with window.view as view, view[at - window.offset :] as new:
                for start, end in self._sums.feed(at, new):
                    place = f"bytes {base + start} to {base + end}"
                    self._batches.error(
                        start, f"damaged-frames: {place} are not as they were written, or the index is damaged"
                    )
        return len(window) > 0

    def _malformed(self, kind: str, noticed: int, size: int) -> int:
        """Skip the malformed frame or garbage at the start of the window; return how many bytes to look at next."""
        window, at = self._window, self._window.offset
        with window.view as view:
            is_frame = begins_frame(view, self._extra)
            end = self._end_of(view, at)
            if end is None and not window.ended and len(view) < self._most:
                return min(self._most, 2 * max(size, len(view)))
            if end is not None and end <= len(view) and not is_frame:
                end = rest_of_run(view, end)
            octets = bytes(view[: _SHOWN if end is None else min(end, _SHOWN)])
        window.skip(end, self._fill)
        self._wrong(is_frame, at, error_text(kind, self._split.base + at + noticed), window.offset - at, octets)
        return _LEAST

    def _end_of(self, view: memoryview, offset: int) -> int | None:
        """Return where the malformed frame at the start of the view ends; None if at the first NUL to come."""
        limits = self._options.limits
        end = declared_end(view)
        if end is not None and end > limits.max_body:
            if end <= len(view):
                ends = view[end - 1] == 0
            else:
                stop = self._split.stop
                ends = (stop is None or offset + end <= stop) and self._look(offset + end - 1) == b"\0"
            if ends:
                return end
        return frame_end(view, False, limits)

    def _wrong(self, is_frame: bool, offset: int, text: str, length: int, octets: bytes) -> None:
        """Add a row for a malformed frame; garbage joins the garbage before it."""
        add = self._batches.error if is_frame else self._batches.garbage
        add(offset, text, length, octets)

    def _left_over(self) -> int:
        """Handle bytes at the end that are not a complete frame."""
        window, at = self._window, self._window.offset
        with window.view as view:
            is_frame = begins_frame(view, self._extra)
            end = frame_end(view, True, self._options.limits) or len(view)
            octets = bytes(view[: min(end, _SHOWN)])
        if octets.strip(b"\r\n"):
            self._wrong(is_frame, at, error_text("truncated", self._split.base + at), end, octets)
        window.take(end)
        return _LEAST


class _Batches:
    """Rows gathered until there are enough for a batch."""

    def __init__(self, projector: Projector) -> None:
        self.projector = projector
        self._parts: list[Any] = []
        self._errors: list[dict[str, Any]] = []
        self._garbage: _Garbage | None = None
        self._rows = self._octets = 0

    def frames(self, columns: Any, offset: int) -> int:
        """Add the parsed frames of the bytes at an offset; return how far in a malformed one its error is."""
        if not columns.rows:
            return 0
        rows = columns.rows - (columns.error is not None)
        octets = columns.consumed
        batch = pa.record_batch(columns)
        noticed = batch.column("length")[rows].as_py() if columns.error else 0
        if rows:
            self.end_garbage()
            self._close_errors()
            self._parts.append(self.projector.raw.frames(batch.slice(0, rows), offset))
            self._rows += rows
            self._octets += octets
        return int(noticed)

    def error(self, offset: int, text: str, length: int = 0, octets: bytes | None = None) -> None:
        """Add a row for a problem."""
        if self._garbage is not None and offset >= self._garbage.offset + self._garbage.length:
            self.end_garbage()
        self._errors.append({"offset": offset, "length": min(length, 2**31 - 1), "body": octets, "error": text})
        self._rows += 1
        self._octets += len(octets or b"")

    # ---- garbage: one row for a run of it ----
    def passed(self, view: memoryview, count: int) -> None:
        """Note bytes that were read: EOLs may separate pieces of garbage, but any frame ends the run."""
        if self._garbage is not None and count:
            octets = bytes(view[: min(count, _LEAST)])
            if octets.strip(b"\r\n"):
                self.end_garbage()
            else:
                self._garbage.gap += octets

    def garbage(self, offset: int, text: str, length: int, octets: bytes) -> None:
        """Add bytes that are not a frame. The row shows the first problem of the run."""
        if self._garbage is None:
            self._garbage = _Garbage(offset, text)
        self._garbage.add(offset, length, octets)

    def end_garbage(self) -> None:
        """Finish the row of the current garbage."""
        garbage, self._garbage = self._garbage, None
        if garbage is not None:
            self.error(garbage.offset, garbage.text, garbage.length, b"".join(garbage.octets))

    def _close_errors(self) -> None:
        if self._errors:
            self._parts.append(self.projector.raw.errors(self._errors))
            self._errors = []

    def full(self) -> Iterator[Any]:
        """Yield batches if there are enough rows for one."""
        options = self.projector.options
        if self._rows >= min(_FEW, options.batch_rows) or self._octets >= options.batch_bytes:
            yield from self._all()

    def rest(self) -> Iterator[Any]:
        """Yield batches of all remaining rows."""
        self.end_garbage()
        yield from self._all()

    def _all(self) -> Iterator[Any]:
        self._close_errors()
        if not self._parts:
            return
        parts, octets = self._parts, self._octets
        raw = _one(parts)
        self._parts, self._rows, self._octets = [], 0, 0
        options = self.projector.options
        count = max(-(-raw.num_rows // options.batch_rows), -(-octets // (2 * options.batch_bytes)))
        step = -(-raw.num_rows // count)
        for start in range(0, raw.num_rows, step):
            yield from self.projector.batches(raw.slice(start, step))


def gathered(batches: Iterable[Any], options: FileOptions) -> Iterator[Any]:
    """Yield the record batches in their order, with small neighbours combined."""
    few: list[Any] = []
    rows = octets = 0
    for batch in batches:
        if few and (rows + batch.num_rows > options.batch_rows or octets + batch.nbytes > options.batch_bytes):
            yield _one(few)
            few, rows, octets = [], 0, 0
        if not few and (batch.num_rows >= _FEW or not batch.num_columns):
            yield batch
            continue
        few.append(batch)
        rows, octets = rows + batch.num_rows, octets + batch.nbytes
    if few:
        yield _one(few)


def _one(batches: list[Any]) -> Any:
    return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


class _Garbage:
    """A run of bytes that are not frames."""

    def __init__(self, offset: int, text: str) -> None:
        self.offset = offset
        self.text = text
        self.length = 0
        self.octets: list[bytes] = []
        self.gap = b""
        """EOLs behind the run."""
        self._shown = 0

    def add(self, offset: int, length: int, octets: bytes) -> None:
        """Append the next bytes."""
        self.length = offset + length - self.offset
        for part in (self.gap, octets):
            shown = part[: _SHOWN - self._shown]
            self.octets.append(shown)
            self._shown += len(shown)
        self.gap = b""


class _Times:
    """Times of frames, looked up at ascending offsets."""

    def __init__(self, index: IndexFile | None, split: Split) -> None:
        self._rows = iter(()) if index is None else index.rows(split.row, split.rows, trusted=True)
        self._ends = self._times = np.empty(0, np.int64)

    def __call__(self, places: Any) -> Any:
        """Return the times of the frames at these offsets of the file, in µs; 0 if unknown."""
        if not len(places):
            return np.empty(0, np.int64)
        behind, last = np.searchsorted(self._ends, places.min(), "right"), places.max()
        ends, times = [self._ends[behind:]], [self._times[behind:]]
        while not len(ends[-1]) or ends[-1][-1] <= last:
            rows = next(self._rows, None)
            if rows is None:
                break
            ends.append(rows.ends)
            times.append(rows.times)
        self._ends, self._times = np.concatenate(ends), np.concatenate(times)
        found = np.searchsorted(self._ends, places, "right")
        known = np.append(self._times, 0)
        return known[found]


class _Checksums:
    """Check of bytes against the checksums of the index, for rows that lie entirely in the split."""

    def __init__(self, index: IndexFile, split: Split) -> None:
        self._chunks = index.rows(split.row, split.rows, trusted=True)
        self._ends: list[int] = []
        self._sums: list[int] = []
        self._next = 0
        self._start = self._sum = 0
        self._load()
        self._part = self._start < split.start

    def _load(self) -> bool:
        """Load the next rows; return False if there are none."""
        rows = next(self._chunks, None)
        if rows is None:
            return False
        self._ends, self._sums, self._next, self._start = rows.ends.tolist(), rows.sums.tolist(), 0, rows.start
        return True

    def feed(self, at: int, data: memoryview) -> list[tuple[int, int]]:
        """Take the next bytes; return start and end of each row whose checksum differs."""
        wrong = []
        begin, stop = at, at + len(data)
        while at < stop and (self._next < len(self._ends) or self._load()):
            behind = bisect_right(self._ends, stop, self._next)
            for end, wanted in zip(self._ends[self._next : behind], self._sums[self._next : behind]):
                if crc32(data[at - begin : end - begin], self._sum) != wanted and not self._part:
                    wrong.append((self._start, end))
                at = self._start = end
                self._sum, self._part = 0, False
            self._next = behind
            if behind < len(self._ends):
                self._sum = crc32(data[at - begin :], self._sum)
                break
        return wrong
