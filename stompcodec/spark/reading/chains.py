"""Chains as a stream reads them: their ends, the part that a batch takes, and its splits.

A position in a chain is the offset of its first unread byte. A bare stream is a chain, too.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from stompcodec.capture import Capture, Segment
from stompcodec.capture.index import fail
from stompcodec.errors import StoreError
from stompcodec.spark.options.options import FileOptions
from stompcodec.spark.reading.identity import NO_INDEX, Split
from stompcodec.spark.reading.index import open_index
from stompcodec.spark.reading.splits import Unit, splits_of, whole_frames

_log = logging.getLogger("stompcodec.spark")


def unit_of(capture: Capture, segment: Segment) -> Unit:
    """Return a segment as a unit to cut."""
    spool = str(capture.path) if segment.chain == "frames" else f"{capture.path}#{segment.chain}"
    return Unit(str(segment.path), spool, segment.chain, segment.base, True, capture.single)


class Chain:
    """A sequence of files; `name` is for messages."""

    def __init__(self, name: str, units: list[Unit], options: FileOptions) -> None:
        self.name = name
        self._units = units
        self._options = options

    @property
    def first(self) -> int:
        """First offset that still exists."""
        return self._units[0].base if self._units else 0

    def end(self, start: int) -> int:
        """Return the offset behind the last complete frame that was synced; frames before `start` do not matter."""
        if not self._units:
            return start
        unit = self._units[-1]
        try:
            return unit.base + self._end_in(unit, max(0, start - unit.base))
        except FileNotFoundError:
            return start
        except OSError as error:
            raise fail(Path(unit.path), "read", error) from error

    def _end_in(self, unit: Unit, start: int) -> int:
        path = Path(unit.path)
        if unit.compression:
            return path.stat().st_size
        if unit.capture:
            index = open_index(path, unit.base, single=unit.single)
            if index is not None:
                with closing(index):
                    last = index.last()
                if last is not None:
                    return last
        size = path.stat().st_size
        if start > size:
            return size
        end = start if not unit.capture else 0
        for ends in whole_frames(unit.path, end, size, self._options, every=2**40):
            end = int(ends[-1])
        return end

    def limited(
        self, start: int, end: int, octets: int | None, frames: int | None, at_least: int = 1
    ) -> tuple[int, int, int]:
        """Return the end of a batch that begins at `start`, and its numbers of bytes and frames.

        None stands for no limit; frames count only if limited. `at_least` (1 or 0) frames are taken in any case.
        """
        if frames is None and (octets is None or end - start <= octets):
            return end, end - start, 0
        at, took, count = start, 0, 0
        for unit, follows in self._followed(end):
            if follows <= at or unit.compression:
                continue  # it may be gone: writers delete what was read
            stop = min(end - unit.base, os.path.getsize(unit.path))
            at = max(at, unit.base)
            for ends in whole_frames(unit.path, at - unit.base, stop, self._options):
                fit = len(ends) if frames is None else min(len(ends), frames - count)
                if octets is not None:
                    fit = min(fit, int(ends.searchsorted(at - unit.base + octets - took, "right")))
                fit = max(fit, at_least - count)
                if fit > 0:
                    behind = unit.base + int(ends[fit - 1])
                    at, took, count = behind, took + behind - at, count + fit
                if fit < len(ends):
                    return at, took, count
        return (at if took else end), took, count

    def splits(self, start: int, end: int) -> list[Split]:
        """Return the splits between two offsets; raise StoreError if frames are missing and failOnDataLoss is on."""
        if end < start:
            self._lost(f"{self.name}: it ends at offset {end}, and was read to {start}: it was replaced")
            start = self.first
        at, splits = start, []
        for unit, follows in self._followed(end):
            if follows <= at or unit.base >= end or at >= end:
                continue
            if unit.compression:
                if start:
                    self._lost(f"{self.name}: it was read, and then it changed: a stream reads compressed files once")
                else:
                    splits += splits_of(unit, self._options)
                at = end
                continue
            if unit.base > at:
                self._lost(f"{self.name}: bytes {at} to {unit.base} were deleted before they were read")
                at = unit.base
            stop = min(end, follows, unit.base + os.path.getsize(unit.path))
            found = splits_of(unit, self._options, at - unit.base, stop - unit.base)
            if found and found[0].problem == NO_INDEX:
                self._lost(f"{unit.path}: its index is missing", "read its frames without times")
            splits += found
            at = stop
        if at < end:
            self._lost(f"{self.name}: bytes {at} to {end} were deleted before they were read")
        return splits

    def _followed(self, end: int) -> Iterator[tuple[Unit, int]]:
        """Yield each file with the offset where the next one begins."""
        return zip(self._units, [*(unit.base for unit in self._units[1:]), end])

    def _lost(self, text: str, otherwise: str = "continue behind them") -> None:
        if self._options.fail_on_data_loss:
            raise StoreError(f"{text} (set failOnDataLoss=false to {otherwise})")
        _log.warning("%s", text)
