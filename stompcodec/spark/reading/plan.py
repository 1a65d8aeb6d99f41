"""What to read: files of paths, globs and folders; splits of a batch; offsets and batches of a stream."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from stompcodec.capture import Capture
from stompcodec.capture.disk import fail, is_segment, names_of
from stompcodec.capture.index import index_path, read_trailer
from stompcodec.errors import StoreError
from stompcodec.spark.options.options import Choice, FileOptions
from stompcodec.spark.reading.chains import Chain, unit_of
from stompcodec.spark.reading.decode import Split
from stompcodec.spark.reading.splits import Unit, splits_of
from stompcodec.spark.reading.window import compression_of

__all__ = [
    "Offset",
    "Split",
    "batch_splits",
    "chains_of",
    "ends_of",
    "limit_chains",
    "limited",
    "splits_between",
    "spool_end",
    "spool_splits",
    "spool_start",
]

#: Name of a chain to the offset up to which it was read. Spark compares them as text, so names stand in order.
Offset = dict[str, int]

_SUFFIXES = (".stomp", ".stompcap")
_PACKED = (".gz", ".zst", ".zstd")
_THREADS = 4


class _Found(NamedTuple):
    """A capture, or a file of frames."""

    path: Path
    key: str
    """What stands before the names of its chains in an offset."""
    folder: bool


def _find(paths: Iterable[str], *, missing: bool = False) -> list[_Found]:
    """The captures and files at these paths, each once.

    Args:
        missing: a path may come later; if not, that is an error.
    """
    found: dict[Path, _Found] = {}
    paths = list(paths)
    for text in paths:
        path, root = Path(text), None if len(paths) > 1 else _root(text)
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


def _root(text: str) -> Path:
    """What the names of captures are relative to, so that a stream knows them again when all are moved."""
    if not glob.has_magic(text) or Path(text).exists():
        return Path(text)
    parts = list(takewhile(lambda part: not glob.has_magic(part), Path(text).parts))
    return Path(*parts)


def _at(path: Path, root: Path | None) -> list[_Found]:
    """A capture, a file, or those in a folder."""
    if not path.is_dir() or _is_capture(path):
        return [_found(path, root)]
    return [
        _found(each, root)
        for each in sorted(path.iterdir())
        if not each.name.startswith((".", "_")) and (_is_capture(each) if each.is_dir() else _is_ours(each.name))
    ]


def _found(path: Path, root: Path | None) -> _Found:
    name = path if root is None else path.relative_to(root)
    return _Found(path, "" if path == root else f"{name.as_posix()}/", path.is_dir())


def _is_ours(name: str) -> bool:
    """Whether a file in a folder is one of frames, by its name."""
    name = name.lower()
    for packed in _PACKED:
        name = name.removesuffix(packed)
    return name.endswith(_SUFFIXES)


def _is_capture(folder: Path) -> bool:
    return folder.suffix == ".stompcap" or bool(names_of(folder))


def _units(found: _Found, *, missing: bool = False) -> list[Unit]:
    """The files of a capture, or the one file.

    Args:
        missing: it may be gone meanwhile; if not, that is an error.
    """
    try:
        return _there(found)
    except OSError as error:
        problem = fail(found.path, "read", error)
    except StoreError as error:
        problem = error
    if missing and isinstance(problem.__cause__, FileNotFoundError):
        return []
    raise problem


def _there(found: _Found) -> list[Unit]:
    if found.folder:
        capture = Capture(found.path)
        return [unit_of(capture, segment) for segment in capture.segments()]
    path = found.path
    if is_segment(path.name) and index_path(path).exists():
        chain, _, base = path.stem.rpartition("-")
        return [Unit(str(path), str(path), chain, int(base), True)]
    packed = compression_of(path)
    if packed:
        return [Unit(str(path), str(path), compression=packed)]
    single = _is_single(path)
    return [Unit(str(path), str(path), capture=single, single=single)]


def _is_single(path: Path) -> bool:
    """Whether a file is a capture of its own."""
    if path.suffix == ".stompcap" or index_path(path).exists():
        return True
    with path.open("rb") as stream:
        size = path.stat().st_size
        stream.seek(max(0, size - 24))
        return read_trailer(stream.read(24), size) is not None


# ---- batches ----


def batch_splits(paths: Iterable[str], options: FileOptions) -> list[Split]:
    """All that is there now, in splits of about `splitBytes`.

    Args:
        paths: of captures, files, folders of them, and globs.
        options: its `choice` leaves out splits whose frames were all received at other times.

    Raises:
        StoreError: there is nothing, or it cannot be read.
    """
    units = [unit for found in _find(paths) for unit in _units(found)]
    with ThreadPoolExecutor(_THREADS) as threads:
        parts = list(threads.map(lambda unit: splits_of(unit, options), units))
    splits = [split for unit, part in zip(units, _with_gaps(units, parts)) for split in part]
    choice = options.choice
    return [split for split in splits if _is_chosen(split, choice)] if choice.is_timed else splits


def _with_gaps(units: list[Unit], parts: list[list[Split]]) -> list[list[Split]]:
    """Tell of segments that are missing in the middle of a chain."""
    for before, unit, part, splits in zip(units, units[1:], parts, parts[1:]):
        if unit.capture and before.spool == unit.spool and part and splits:
            end = before.base + (part[-1].stop or 0)
            if unit.base > end:
                text = f"missing: octets {end} to {unit.base} of chain {unit.chain} are not there"
                splits[0] = replace(splits[0], problem="; ".join(filter(None, [text, splits[0].problem])))
    return parts


def _is_chosen(split: Split, choice: Choice) -> bool:
    """Return whether a split may hold frames that were received when `choice` says."""
    if split.since is None or split.until is None:
        return False
    return (choice.since is None or split.until >= choice.since) and (
        choice.until is None or split.since < choice.until
    )


# ---- streams ----


def chains_of(paths: Iterable[str], options: FileOptions) -> dict[str, Chain]:
    """The chains at these paths that there are now, by their names in an offset, in order. Those of one capture are
    called as they are; of several, with the name of the capture before."""
    chains: dict[str, list[Unit]] = {}
    for found in _find(paths, missing=True):
        for unit in _units(found, missing=True):
            name = unit.chain if found.folder or not found.key else ""
            chains.setdefault((found.key + name).rstrip("/"), []).append(unit)
    return {key: Chain(key, chains[key], options) for key in sorted(chains)}


def ends_of(chains: Mapping[str, Chain], start: Mapping[str, int], target: Mapping[str, int] | None = None) -> Offset:
    """The offset behind the last synced frame of each chain.

    Args:
        start: no frame before is of interest.
        target: how far the chains were when the query began that reads only what was there.
    """
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
    """How far a batch goes: from `start` towards `end`, so many octets and frames at most, one frame at least. Chains
    share what there is, the one with the least to read first, so that none waits for ever."""
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
    """The splits between two offsets. A chain that `start` does not name begins with its first octet.

    Raises:
        StoreError: frames are missing, and the option failOnDataLoss is on.
    """
    splits = []
    for key, stop in end.items():
        chain = chains.get(key) or Chain(key, [], options)
        splits += chain.splits(start.get(key, chain.first), stop)
    return splits


# ---- one capture ----


def spool_start(capture_path: str) -> Offset:
    """The first offset of each chain of a capture."""
    return {key: chain.first for key, chain in _spool(capture_path).items()}


def spool_end(capture_path: str) -> Offset:
    """The offset behind the last synced frame of each chain of a capture."""
    return ends_of(_spool(capture_path), {})


def limited(
    capture_path: str,
    start: Mapping[str, int],
    end: Mapping[str, int],
    max_bytes: int | None,
    max_frames: int | None,
) -> Offset:
    """As `limit_chains`, for a capture."""
    return limit_chains(_spool(capture_path), start, end, max_bytes, max_frames)


def spool_splits(
    capture_path: str, start: Mapping[str, int], end: Mapping[str, int], options: FileOptions
) -> list[Split]:
    """As `splits_between`, for a capture."""
    return splits_between(_spool(capture_path, options), start, end, options)


def _spool(path: str, options: FileOptions | None = None) -> dict[str, Chain]:
    return chains_of([path], options or FileOptions()) if os.path.exists(path) else {}
