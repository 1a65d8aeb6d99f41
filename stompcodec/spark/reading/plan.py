"""Planning: the files behind paths, globs and folders; splits of a batch; offsets and batches of a stream."""

from __future__ import annotations

import glob
import logging
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stompcodec.capture import Capture, Segment
from stompcodec.capture.index import all_names_of, fail, index_path, is_sealed, is_segment
from stompcodec.capture.places import Place, Remote, place_of, size_of
from stompcodec.errors import StoreError
from stompcodec.spark.options import EARLIEST, LATEST, Choice, FileOptions, OptionError
from stompcodec.spark.reading.splits import NO_INDEX, Split, Unit, open_index, splits_of, whole_frames
from stompcodec.spark.reading.window import compression_of

#: Chain name -> offset up to which it was read. Spark compares offsets as text, so the names are sorted.
Offset = dict[str, int]
_SUFFIXES = (".stomp", ".stompcap")
_PACKED = (".gz", ".zst", ".zstd")
#: Threads that plan: those of a disk are slowed by more, those of an object store wait for answers.
_THREADS, _WAITING = 4, 32


class _Found(NamedTuple):
    """A capture or a file of frames."""

    path: Place
    key: str
    """Prefix of the names of its chains in an offset."""
    folder: bool


def _find(paths: Iterable[str], *, missing: bool = False) -> list[_Found]:
    """Return the captures and files at these paths, each once; with `missing` they need not exist yet."""
    found: dict[Place, _Found] = {}
    paths = list(paths)
    for text in paths:
        path, root = place_of(text), None if len(paths) > 1 else _root(text)
        if path.exists():
            each = _at(path, root)
        elif glob.has_magic(text):
            each = [one for name in sorted(glob.glob(text, recursive=True)) for one in _at(Path(name), root)]
        else:
            each = []
        if not each and not missing:
            raise StoreError(f"{text}: there is nothing to read")
        found.update((one.path, one) for one in each if one.path not in found)
    return list(found.values())


def _root(text: str) -> Place:
    """Return the folder that names of captures are relative to, so that a stream recognizes them after a move."""
    place = place_of(text)
    if not glob.has_magic(text) or isinstance(place, Remote) or place.exists():
        return place
    parts = list(takewhile(lambda part: not glob.has_magic(part), Path(text).parts))
    return Path(*parts)


def _at(path: Any, root: Any) -> list[_Found]:
    """Return a capture or file, or those in a folder."""
    if not path.is_dir() or _is_capture(path):
        return [_found(path, root)]
    return [
        _found(each, root)
        for each in sorted(path.iterdir())
        if not each.name.startswith((".", "_")) and (_is_capture(each) if each.is_dir() else _is_ours(each.name))
    ]


def _found(path: Any, root: Any) -> _Found:
    name = path if root is None else path.relative_to(root)
    return _Found(path, "" if path == root else f"{name.as_posix()}/", path.is_dir())


def _is_ours(name: str) -> bool:
    """Return whether the name of a file in a folder is that of a stream of frames."""
    name = name.lower()
    for packed in _PACKED:
        name = name.removesuffix(packed)
    return name.endswith(_SUFFIXES)


def _is_capture(folder: Place) -> bool:
    return folder.suffix == ".stompcap" or bool(all_names_of(folder))


def _units(found: _Found, after: Mapping[str, int] | None = None, *, missing: bool = False) -> list[Unit]:
    """Return the files of a capture, or the one file; none if it was deleted meanwhile and `missing` allows that."""
    try:
        return _existing_units(found, after)
    except OSError as error:
        problem = fail(found.path, "read", error)
    except StoreError as error:
        problem = error
    if missing and isinstance(problem.__cause__, FileNotFoundError):
        return []
    raise problem


def _existing_units(found: _Found, after: Mapping[str, int] | None) -> list[Unit]:
    path = found.path
    if found.folder:
        capture = Capture(path)
        return [unit_of(capture, segment) for segment in capture.segments(after=after)]
    if is_segment(path.name) and index_path(path).exists():
        chain, _, base = path.stem.rpartition("-")
        return [Unit(str(path), str(path), chain, int(base), True)]
    packed = compression_of(path)
    if packed:
        return [Unit(str(path), str(path), compression=packed)]
    single = path.suffix == ".stompcap" or index_path(path).exists() or is_sealed(path)
    return [Unit(str(path), str(path), capture=single, single=single)]


# ---- batches ----
def batch_splits(paths: Iterable[str], options: FileOptions) -> list[Split]:
    """Return splits of what exists now, without those of other times than `choice`; StoreError if there is nothing."""
    units = [unit for found in _find(paths) for unit in _units(found)]
    with ThreadPoolExecutor(_WAITING if any("://" in unit.path for unit in units) else _THREADS) as threads:
        parts = list(threads.map(lambda unit: splits_of(unit, options), units))
    splits = [split for unit, part in zip(units, _with_gaps(units, parts)) for split in part]
    choice = options.choice
    return [split for split in splits if _is_chosen(split, choice)] if choice.is_timed else splits


def _with_gaps(units: list[Unit], parts: list[list[Split]]) -> list[list[Split]]:
    """Add a problem to splits before which segments of their chain are missing."""
    for before, unit, part, splits in zip(units, units[1:], parts, parts[1:]):
        if unit.capture and before.spool == unit.spool and part and splits:
            end = before.base + (part[-1].stop or 0)
            if unit.base > end:
                text = f"missing: bytes {end} to {unit.base} of chain {unit.chain}"
                splits[0] = replace(splits[0], problem="; ".join(filter(None, [text, splits[0].problem])))
    return parts


def _is_chosen(split: Split, choice: Choice) -> bool:
    """Return whether a split may hold frames received in the chosen time."""
    if split.since is None or split.until is None:
        return False
    return (choice.since is None or split.until >= choice.since) and (
        choice.until is None or split.since < choice.until
    )


# ---- streams ----
def chains_of(paths: Iterable[str], options: FileOptions, start: Mapping[str, int] | None = None) -> dict[str, Chain]:
    """Return the chains that exist at these paths, by their names in an offset, which begin with that of the capture if
    there are several. Files of an archive may be left out if nothing behind `start` is in them.
    """
    chains: dict[str, list[Unit]] = {}
    for found in _find(paths, missing=True):
        after = start and {key.removeprefix(found.key): at for key, at in start.items() if key.startswith(found.key)}
        for unit in _units(found, after, missing=True):
            name = unit.chain if found.folder or not found.key else ""
            chains.setdefault((found.key + name).rstrip("/"), []).append(unit)
    return {key: Chain(key, chains[key], options) for key in sorted(chains)}


def starts_of(chains: Mapping[str, Chain], position: str | int) -> Offset:
    """Return the offset of a position: the start or the end of each chain, or the first frame received at a time."""
    if position == LATEST:
        return ends_of(chains, {})
    return {key: each.first if position == EARLIEST else each.at(int(position)) for key, each in chains.items()}


def ends_of(chains: Mapping[str, Chain], start: Mapping[str, int], target: Mapping[str, int] | None = None) -> Offset:
    """Return the offset behind the last synced frame of each chain, or its `target`, with the trigger availableNow."""
    if target is not None:
        return {key: max(target[key], start.get(key, 0)) for key in sorted(target)}
    return {key: chains[key].end(start.get(key, chains[key].first)) for key in sorted(chains)}


def limit_chains(
    chains: Mapping[str, Chain],
    start: Mapping[str, int],
    end: Mapping[str, int],
    max_bytes: int | None,
    max_frames: int | None,
) -> Offset:
    """Return the end of a batch that goes from `start` towards `end` within limits, but takes one frame at least.

    Chains share the limits, beginning with the one that has the least to read, so that none starves.
    """
    result = dict(end)
    begins = {key: start.get(key, chain.first) for key, chain in chains.items()}
    waiting = [key for key in end if key in chains and end[key] > begins[key]]
    waiting.sort(key=lambda key: end[key] - begins[key])
    octets, frames, nothing = max_bytes, max_frames, True
    for place, key in enumerate(waiting):
        left = len(waiting) - place
        some = None if octets is None else octets // left
        many = None if frames is None else -(-frames // left)
        result[key], took, count = chains[key].limited(begins[key], end[key], some, many, at_least=int(nothing))
        nothing = nothing and result[key] == begins[key]
        octets = None if octets is None else max(0, octets - took)
        frames = None if frames is None else frames - count
    return result


def splits_between(
    chains: Mapping[str, Chain], start: Mapping[str, int], end: Mapping[str, int], options: FileOptions
) -> list[Split]:
    """Return the splits between two offsets; raise StoreError if frames are missing and failOnDataLoss is on."""
    splits = []
    for key, stop in end.items():
        chain = chains.get(key) or Chain(key, [], options)
        splits += chain.splits(start.get(key, chain.first), stop)
    return splits


# ---- chains: a position is the offset of the first unread byte; a bare stream is a chain, too ----
_log = logging.getLogger("stompcodec.spark")


def unit_of(capture: Capture, segment: Segment) -> Unit:
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
            raise fail(place_of(unit.path), "read", error) from error

    def at(self, time: int) -> int:
        """Return the offset of the first frame received at `time`, in µs since 1970, or later; the end if none was."""
        for unit in self._units:
            index = open_index(Path(unit.path), unit.base, single=unit.single) if unit.capture else None
            if index is None:
                raise OptionError(f"option startingPosition: {unit.path} has no times: use earliest or latest")
            with closing(index):
                last = [rows.times[-1] for rows in index.rows(max(0, index.count - 2))]
                for rows in index.rows() if not last or last[0] >= time else ():
                    late = np.flatnonzero(rows.times >= time)
                    if len(late):
                        return unit.base + (int(rows.ends[late[0] - 1]) if late[0] else rows.start)
        return self.end(self.first)

    def _end_in(self, unit: Unit, start: int) -> int:
        path = place_of(unit.path)
        if unit.compression:
            return size_of(path)
        if unit.capture:
            index = open_index(path, unit.base, single=unit.single)
            if index is not None:
                with closing(index):
                    last = index.last()
                if last is not None:
                    return last
        size = size_of(path)
        if start > size:
            return size
        end = start if not unit.capture else 0
        for ends in whole_frames(unit.path, end, size, self._options, every=2**40):
            end = int(ends[-1])
        return end

    def limited(
        self, start: int, end: int, octets: int | None, frames: int | None, at_least: int = 1
    ) -> tuple[int, int, int]:
        """Return the end of a batch, its bytes and, if limited, its frames, of which it takes `at_least` (1 or 0)."""
        if frames is None and (octets is None or end - start <= octets):
            return end, end - start, 0
        at, took, count = start, 0, 0
        for unit, follows in self._followed(end):
            if follows <= at or unit.compression:
                continue  # it may be gone: writers delete what was read
            stop = min(end - unit.base, size_of(place_of(unit.path)))
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
            stop = min(end, follows, unit.base + size_of(place_of(unit.path)))
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
