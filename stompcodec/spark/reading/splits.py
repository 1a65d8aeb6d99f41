"""Cutting a file of frames into splits exactly between frames, by its index if it has one, else by a light parse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stompcodec.capture.index import fail
from stompcodec.codec import Parser, frame_ends
from stompcodec.errors import FrameError
from stompcodec.spark.options import FileOptions
from stompcodec.spark.reading.decode import extra_of, most_of
from stompcodec.spark.reading.garbage import begins_at, begins_frame, clean, declared_end, looker
from stompcodec.spark.reading.identity import NO_INDEX, Split, mark_of
from stompcodec.spark.reading.index import IndexFile, open_index
from stompcodec.spark.reading.window import Window, opened
from stompcodec.spec import Limits

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
    """Return the splits of a file, between two offsets of frames; raise StoreError if it cannot be read.

    A `stop` of None means all that was synced, or the whole of a bare stream.
    """
    whole = Split(unit.path, start, stop, unit.base, unit.chain, unit.spool, unit.compression, single=unit.single)
    try:
        if not unit.capture:
            whole = replace(whole, version=version_of(unit, options))
        size = Path(unit.path).stat().st_size
        if unit.compression:
            splits = [whole]
        elif not unit.capture:
            splits = _scanned(replace(whole, stop=size if stop is None else stop), options)
        else:
            splits = _of_capture(whole, options, size)
        return [split if split.mark else replace(split, mark=mark_of(split)) for split in splits]
    except OSError as error:
        raise fail(Path(unit.path), "read", error) from error


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
    index = open_index(Path(whole.path), whole.base, single=whole.single)
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
        result = [each for split in splits for each in _not_too_large(split, options)]
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
        self.count = 0
        self.end = 0
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
    """Yield the splits without cuts inside a run of garbage.

    In a damaged file an index row may end inside one.
    """
    before: Split | None = None
    for split in splits:
        if before is None:
            before = split
        elif begins_at(split.path, split.start, extra_of(options)):
            yield before
            before = split
        else:
            times = [time for time in (before.since, before.until, split.since, split.until) if time is not None]
            since, until = (min(times), max(times)) if times else (None, None)
            before = replace(before, stop=split.stop, rows=before.rows + split.rows, since=since, until=until)
    if before is not None:
        yield before


def _not_too_large(split: Split, options: FileOptions) -> list[Split]:
    """Cut a split again if its single row covers too many bytes."""
    assert split.stop is not None
    return _scanned(split, options) if split.rows == 1 else [split]


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
    most, extra, size = most_of(options), extra_of(options), _PIECE
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
    """Return where the first frame of the view ends if that is behind the view; None if unknown.

    Its content-length is believed if there is a NUL where it says. Otherwise, if it exceeds the option maxBody, the
    frame ends at its first NUL.
    """
    end = declared_end(view)
    if end is None:
        return None
    if end > len(view) and offset + end <= stop and look(offset + end - 1) == b"\0":
        return end
    if offset + end > stop and end <= most_of(options):
        return None  # the rest of it may still be written
    ends = frame_ends(view, 1, 1, limits=_NONE)
    return int(ends[0]) if ends else None
