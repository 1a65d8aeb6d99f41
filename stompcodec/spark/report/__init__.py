"""`report`: one page that shows whether a feed is healthy, and its figures as JSON.

    from stompcodec.spark.report import report

    report(spark, "archive", "report", exploded="exploded", metrics="metrics", spool="feed.stompcap")

This writes report/report.html, a self-contained page, and report/report.json. All times in the JSON are µs since 1970
(UTC), all durations are seconds, and null means unknown. Its keys:

    report        1: version of these keys; keys may be added, but none changes its meaning
    title, archive, generated
    verdict       level (healthy, look, unhealthy), word, reasons: [{level, name, text, limit}]
    figures       frames, octets, destinations, first, last, seconds, per_second, per_second_peak, without_time,
                  with_lag, lag_p50_seconds, lag_p95_seconds, lag_p99_seconds, lag_max_seconds, sent_ahead, redelivered,
                  duplicates, malformed, silence_seconds (shortest silence), silences, silent_seconds,
                  longest_silence_seconds, sequence_gaps, records, quarantined, missing, sink_duplicates, stale_seconds,
                  backlog_octets (bytes in the spool that are not processed), age_seconds (of the newest frame)
    rate          start, bucket_seconds, buckets, destinations, other (true if the last of them is all others),
                  frames (a list for each destination), octets
    lag           p50, p95, p99: a number for each bucket of rate
    destinations  [{destination, frames, octets, redelivered, malformed, lag_p95_seconds, first, last}], the largest 20
    silences      [{start, end, seconds}], the longest 50
    gaps          [{destination, name, at, after, before, missing}], the largest 50 between windows of the metrics
    malformed     total, kinds, reasons: [{reason, count}], samples: [{reason, time, destination, id, raw}]
    quarantine    like malformed; null without exploded
    spool         path, segments, octets, oldest, newest, open, behind, chains, problems; null without spool
    proof         as given
    thresholds    [{name, meaning, unit, look, bad}]
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stompcodec.arguments import checked
from stompcodec.capture import Capture, Segment
from stompcodec.capture.index import ROW, index_path
from stompcodec.capture.places import open_place
from stompcodec.errors import StoreError
from stompcodec.shown import finite
from stompcodec.spark.report.page import page_of, thresholds_of, verdict_of

if TYPE_CHECKING:
    import pyspark.sql


__all__ = ["report"]
#: Most characters of a text in report.json.
_MOST = 500


@checked
def report(
    spark: pyspark.sql.SparkSession,
    archive: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    exploded: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    metrics: str | os.PathLike[str] | None = None,
    spool: str | os.PathLike[str] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    proof: Mapping[str, int] | None = None,
    title: str | None = None,
    thresholds: Mapping[str, tuple[float | None, float | None]] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    now: float | None = None,
) -> dict[str, Any]:
    """Write report.html and report.json to the folder `out`, and return the contents of report.json.

    Args:
        archive: folder that the job `archive` wrote.
        exploded: folder, or folders, that `explode` wrote, for the quarantine; missing ones are skipped.
        metrics: folder that `metrics` wrote, for gaps in sequences.
        spool: capture whose state is reported.
        checkpoint: checkpoint of the streaming query that reads the spool, for the backlog.
        proof: counts made by the producer of the feed: `produced`, `in_sink`, `missing`, `duplicates`, and others.
        thresholds: limits that replace those of `page.THRESHOLDS`: name -> (look here above, unhealthy above).
        since, until: report only frames that were received at or after `since` and before `until`.
        now: time of the report, in seconds since 1970; None for the current time.

    Raises:
        StoreError: the archive is missing, or the report cannot be written.
        ConfigError: a threshold has an unknown name or invalid limits.
    """
    from stompcodec.spark.report import data  # PySpark is imported on use

    limits = thresholds_of(thresholds)
    found: dict[str, Any] = {"report": 1, "title": title or "STOMP feed", "archive": os.fspath(archive)}
    found |= {"generated": int((time.time() if now is None else now) * 1e6), "verdict": None}
    found |= data.archived(spark, archive, since, until)
    figures = found["figures"]
    found |= {"quarantine": data.quarantine(spark, figures, exploded), "spool": _spool(found, spool, checkpoint)}
    found |= {"proof": dict(proof or {}) or None, "thresholds": [each._asdict() for each in limits]}
    found["gaps"] = data.gaps(spark, figures, metrics)
    figures["age_seconds"] = _seconds_between(figures["last"], found["generated"])
    figures["missing"], figures["sink_duplicates"] = ((proof or {}).get(name) for name in ("missing", "duplicates"))
    found["verdict"] = verdict_of(figures, limits)
    return _written(Path(out), _plain(found))


def _seconds_between(start: int | None, end: int) -> float | None:
    """Return the seconds between two times in µs, at least 0; None if the start is unknown."""
    return None if start is None else max(0.0, (end - start) / 1e6)


def _spool(found: dict[str, Any], spool: Any, checkpoint: Any) -> dict[str, Any] | None:
    """Return the state of the spool, and add the backlog and the time since the last frame to the figures."""
    figures = found["figures"]
    figures["stale_seconds"] = figures["backlog_octets"] = None
    if spool is None:
        return None
    try:
        state = spool_state(spool, checkpoint)
    except StoreError as error:
        state = state_of(spool, [], [str(error)], False)
    figures["backlog_octets"] = state["behind"]
    if state["open"]:
        figures["stale_seconds"] = _seconds_between(state["newest"], found["generated"])
    return state


def _plain(value: Any) -> Any:
    """Return a value that JSON can express, without NaN and long texts."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, str) and len(value) > _MOST:
        return value[: _MOST - 1] + "…"
    return value


def _written(folder: Path, found: dict[str, Any]) -> dict[str, Any]:
    """Write both files, and return the contents of report.json."""
    texts = {"report.json": json.dumps(found, indent=1, allow_nan=False) + "\n", "report.html": page_of(found)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            made = folder / f".{name}.new"
            made.write_text(text, encoding="utf-8", newline="\n")
            made.replace(folder / name)
    except OSError as error:
        raise StoreError(f"{folder}: the report cannot be written: {error.strerror or error}") from error
    return found


# ---- the state of a spool ----
_MOST_CHAINS = 100


def spool_state(path: str | os.PathLike[str], checkpoint: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Return the state of a capture, and how much of it a streaming query, by its checkpoint, has yet to process.

    It has `path`, `segments`, `octets`, `oldest` and `newest` (µs since 1970, or None), `open` (True if a segment is
    not sealed), `committed` and `behind` (bytes; None without a checkpoint), `chains` (the same for each), `problems`.
    Raises StoreError if the capture does not exist or cannot be read.
    """
    from stompcodec.spark.receiver import identity_of

    problems: deque[str] = deque(maxlen=20)
    capture = Capture(path, on_problem=problems.append)
    taken = None
    if checkpoint is not None:
        identity, taken = committed(checkpoint)
        if identity is not None and identity != identity_of(os.fspath(path)):
            where = os.fspath(checkpoint)
            problems.append(f"the checkpoint {where} belongs to another spool: the backlog is not known")
            taken = None
    names = capture.chains()[:_MOST_CHAINS]
    chains = [_chain(capture, name, None if taken is None else taken.get(name, 0)) for name in names]
    return state_of(path, chains, problems, taken is not None)


def state_of(
    path: str | os.PathLike[str], chains: list[dict[str, Any]], problems: Iterable[str], is_taken: bool
) -> dict[str, Any]:
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


def _chain(capture: Capture, name: str, taken: int | None) -> dict[str, Any]:
    """Return the state of one chain. Only its first and last index are read, for a spool may be large."""
    segments = capture.segments(name)
    times: list[int] = []
    end = segments[-1].base
    for segment in dict.fromkeys((segments[0], segments[-1])):
        first = last = 0
        for row in capture.rows(segment):
            end, first, last = segment.base + row.end, first or row.time, row.time or last
        times += filter(None, (first, last))
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
        with open_place(index) as stream:
            row = stream.read()[-ROW:]
    except OSError:
        return False
    return len(row) == ROW and bool(row[7] & 0x80)


def committed(checkpoint: str | os.PathLike[str]) -> tuple[str | None, dict[str, int]]:
    """Return the identity of the spool and the offsets that a streaming query has committed; None, {} if unknown."""
    from stompcodec.spark.receiver import positions_of

    try:
        newest = max(int(each.name) for each in Path(checkpoint, "commits").iterdir() if each.name.isdecimal())
        text = Path(checkpoint, "offsets", str(newest)).read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):  # nothing was committed
        return None, {}
    for line in text.splitlines()[2:]:  # a version, Spark's own metadata, then a line for each source
        with suppress(AttributeError, TypeError, ValueError):  # another source
            return positions_of(json.loads(line))
    return None, {}
