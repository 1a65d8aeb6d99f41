"""The state of a spool for the report: segments, times, and the progress of a query. Needs no Spark."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stompcodec.capture import Capture, Segment
from stompcodec.capture.index import ROW, index_path
from stompcodec.spark.receiver import identity_of, positions_of

_MOST_CHAINS = 100


def spool_state(path: str | os.PathLike[str], checkpoint: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Return the state of a capture, and how much of it a streaming query, by its checkpoint, has yet to process.

    It has `path`, `segments`, `octets`, `oldest` and `newest` (µs since 1970, or None), `open` (True if a segment is
    not sealed), `committed` and `behind` (bytes; None without a checkpoint), `chains` (the same for each), `problems`.
    Raises StoreError if the capture does not exist or cannot be read.
    """
    problems: deque[str] = deque(maxlen=20)
    capture = Capture(path, on_problem=problems.append)
    taken = None
    if checkpoint is not None:
        identity, taken = committed(checkpoint)
        if identity is not None and identity != identity_of(os.fspath(path)):
            problems.append(
                f"the checkpoint {os.fspath(checkpoint)} belongs to another spool: the backlog is not known"
            )
            taken = None
    chains = []
    for name in capture.chains()[:_MOST_CHAINS]:
        segments = capture.segments(name)
        chains.append(_chain(capture, name, segments, None if taken is None else taken.get(name, 0)))
    return state_of(path, chains, problems, taken is not None)


def state_of(
    path: str | os.PathLike[str], chains: list[dict[str, Any]], problems: Iterable[str], is_taken: bool
) -> dict[str, Any]:
    """Return the state of a spool with these chains."""
    known = [chain for chain in chains if chain["newest"] is not None]
    return {
        "path": os.fspath(path),
        "segments": sum(chain["segments"] for chain in chains),
        "octets": sum(chain["octets"] for chain in chains),
        "oldest": min((chain["oldest"] for chain in known), default=None),
        "newest": max((chain["newest"] for chain in known), default=None),
        "open": any(chain["open"] for chain in chains),
        "behind": sum(chain["behind"] for chain in chains) if is_taken else None,
        "chains": chains,
        "problems": list(problems),
    }


def _chain(capture: Capture, name: str, segments: list[Segment], taken: int | None) -> dict[str, Any]:
    """Return the state of one chain. Only its first and last index are read, for a spool may be large."""
    times: list[int] = []
    end = segments[-1].base
    for segment in (segments[0], segments[-1]) if len(segments) > 1 else segments:
        first = last = 0
        for row in capture.rows(segment):
            end, first, last = segment.base + row.end, first or row.time, row.time or last
        times += [time for time in (first, last) if time]
    return {
        "chain": name,
        "segments": len(segments),
        "start": segments[0].base,
        "end": end,
        "octets": end - segments[0].base,
        "oldest": min(times, default=None),
        "newest": max(times, default=None),
        "open": not _is_sealed(capture, segments[-1]),
        "committed": taken,
        "behind": None if taken is None else max(0, end - taken),
    }


def _is_sealed(capture: Capture, segment: Segment) -> bool:
    """Return whether the writer closed a segment; it did not if it is still writing or was killed."""
    index = index_path(segment.path)
    if capture.single:
        return not index.exists()
    try:
        with index.open("rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - ROW))
            row = stream.read(ROW)
    except OSError:
        return False
    return len(row) == ROW and bool(row[7] & 0x80)


def committed(checkpoint: str | os.PathLike[str]) -> tuple[str | None, dict[str, int]]:
    """Return the offsets that a streaming query has committed, by chain, and the identity of the spool that it reads.

    There are no offsets if nothing was committed or the checkpoint is not understood; the identity is None if unknown.
    """
    folder = Path(checkpoint)
    try:
        done = {int(entry.name) for entry in (folder / "commits").iterdir() if entry.name.isdecimal()}
        newest = max(done, default=None)
        if newest is None:
            return None, {}
        lines = (folder / "offsets" / str(newest)).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None, {}
    for line in lines[2:]:  # a version, Spark's own metadata, then a line for each source
        try:
            found = json.loads(line)
        except ValueError:
            continue
        try:
            return positions_of(found)
        except (AttributeError, TypeError, ValueError):  # another source
            continue
    return None, {}
