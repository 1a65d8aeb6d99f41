"""The figures of a report, computed by Spark; the result is small, however large the feed.

Constants here bound the number of rows, Spark cuts texts before they are collected, and arithmetic on times from the
feed uses doubles, which do not overflow.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from stompcodec.errors import StoreError
from stompcodec.spark import jobs
from stompcodec.spark.jobs.frames import identity
from stompcodec.spark.report.page import step_of

if TYPE_CHECKING:
    from pyspark.sql import Column, Row, SparkSession

#: Most bars of a plot over time.
BUCKETS = 180
#: Most destinations with a row in the table, and with a colour of their own.
MOST_DESTINATIONS, COLOURED = 20, 6
_MOST_KINDS, _MOST_LISTED = 20, 50
#: Most characters of a text, and most bytes of a body.
_TEXT, _SAMPLE = 200, 400
_SECOND = 1_000_000
_HOUR = 3600
#: Seconds without a frame.
_SILENCE = 60.0


def bucket_width(first: float, last: float) -> int:
    """Return the width of a bar in µs: a round one that gives at most `BUCKETS` bars between two times in µs.

    >>> bucket_width(0, 3600e6), bucket_width(5, 5), bucket_width(-9.3e18, 9.3e18) > 10**16
    (30000000, 10000, True)
    """
    return round(max(0.01, step_of(max(0.0, last - first) / _SECOND, BUCKETS - 1, "time")) * _SECOND)


def _micros(column: str) -> Column:
    return F.unix_micros(F.col(column)).cast("double")


def _table_at(
    read: Callable[[SparkSession, str], DataFrame], spark: SparkSession, path: str | os.PathLike[str]
) -> DataFrame | None:
    """Return the table in a folder of Parquet; None if the folder is missing or has no files."""
    try:
        return read(spark, os.fspath(path))
    except AnalysisException as error:
        if error.getCondition() in ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"):
            return None
        raise


def archived(
    spark: SparkSession,
    archive: str | os.PathLike[str],
    since: datetime | None,
    until: datetime | None,
) -> dict[str, Any]:
    """Return the figures of an archive, and its malformed frames; a bound leaves out rows without a time."""
    frames = _table_at(jobs.read_archive, spark, archive)
    if frames is None:
        raise StoreError(f"{os.fspath(archive)}: there is no archive: write one with `stompcodec pipeline archive`")
    time = F.coalesce(_micros("received_at"), _micros("sent_at"))
    if since is not None:
        frames = frames.where(time >= since.timestamp() * _SECOND)
        frames = frames.where(F.col("date") >= (since.astimezone(timezone.utc) - timedelta(days=1)).date())
    if until is not None:
        frames = frames.where(time < until.timestamp() * _SECOND)
        frames = frames.where(F.col("date") <= (until.astimezone(timezone.utc) + timedelta(days=1)).date())
    found = figures(narrowed(frames))
    return {**found, "malformed": malformed(frames) if found["figures"]["malformed"] else None}


def narrowed(frames: DataFrame) -> DataFrame:
    """Return the columns of an archive that the figures need.

    They are `destination`, `id` (the lasting identity), `time` and `lag` (µs as double), `octets`, `redelivered`,
    `error`, and `hash` of the body. The time is that of arrival, or of sending if that is unknown.
    """
    received, sent = _micros("received_at"), _micros("sent_at")
    return frames.select(
        F.col("destination"),
        identity(frames).alias("id"),
        F.coalesce(received, sent).alias("time"),
        (received - sent).alias("lag"),
        F.col("length").cast("long").alias("octets"),
        F.col("redelivered").alias("redelivered"),
        F.col("error"),
        F.xxhash64("body").alias("hash"),
    )


def _quantiles() -> Column:
    return F.percentile_approx("lag", [0.5, 0.95, 0.99], 2000)


def _sums() -> list[Column]:
    """Return what is counted of all frames, and of each destination."""
    return [
        F.count(F.lit(1)).alias("frames"),
        F.coalesce(F.sum("octets"), F.lit(0)).alias("octets"),
        F.count_if("redelivered").alias("redelivered"),
        F.count("error").alias("malformed"),
        F.min("time").cast("long").alias("first"),
        F.max("time").cast("long").alias("last"),
    ]


def figures(rows: DataFrame) -> dict[str, Any]:
    """Return everything computed from `narrowed` rows, by the keys of report.json.

    A silence is longer than `_SILENCE` seconds, and longer than 20 mean intervals.
    """
    total = _totals(rows)
    top, many = _destinations(rows)
    total["destinations"] = many
    first, last, timed = total["first"], total["last"], total["frames"] - total["without_time"]
    seconds = None if first is None else (last - first) / _SECOND
    total |= {"seconds": seconds, "per_second": timed / seconds if seconds else None}
    total["silence_seconds"] = max(_SILENCE, 20 * seconds / timed if seconds else 0.0)
    total |= {"silences": 0, "longest_silence_seconds": None, "silent_seconds": 0.0, "per_second_peak": None}
    found: dict[str, Any] = {"figures": total, "destinations": top}
    found |= {"rate": None, "lag": None, "silences": []}
    if first is not None:
        found["rate"] = rate = _rate(rows, first, last, [each["destination"] for each in top[:COLOURED]], many)
        found["lag"] = _lag(rows, rate)
        total["per_second_peak"] = max(map(sum, zip(*rate["frames"]))) / rate["bucket_seconds"]
        found["silences"] = _silences(rows, total, first, last)
    total["duplicates"] = _duplicates(rows)
    return found


def _totals(rows: DataFrame) -> dict[str, Any]:
    (row,) = rows.agg(
        *_sums(),
        F.count("lag").alias("with_lag"),
        F.count_if(F.col("time").isNull()).alias("without_time"),
        F.count_if(F.col("lag") < -_SECOND).alias("sent_ahead"),
        _quantiles().alias("lags"),
        F.max("lag").alias("lag_max"),
    ).collect()
    found: dict[str, Any] = row.asDict()
    lags = [*(found.pop("lags") or [None] * 3), found.pop("lag_max")]
    for name, value in zip(("p50", "p95", "p99", "max"), lags):
        found[f"lag_{name}_seconds"] = None if value is None else value / _SECOND
    return found


def _destinations(rows: DataFrame) -> tuple[list[dict[str, Any]], int]:
    lag = (F.percentile_approx("lag", 0.95, 1000) / _SECOND).alias("lag_p95_seconds")
    grouped = rows.groupBy("destination").agg(*_sums(), lag).withColumn("many", _over_all(F.count(F.lit(1))))
    found = [row.asDict() for row in _best(grouped, "frames", "destination", MOST_DESTINATIONS)]
    many = [row.pop("many") for row in found]
    return found, many[0] if many else 0


def _over_all(value: Column) -> Column:
    """Return an aggregate of all rows, which a window gives in the same pass; Spark spills a large one."""
    return value.over(Window.partitionBy())


def _best(grouped: DataFrame, count: str, name: str, most: int) -> list[Row]:
    return grouped.orderBy(F.desc(count), F.asc(name)).limit(most).collect()


def _bucket(rate: Mapping[str, Any]) -> Column:
    """Return the number of the bar that a time is in."""
    number = F.floor((F.col("time") - F.lit(float(rate["start"]))) / F.lit(rate["bucket_seconds"] * _SECOND))
    return F.greatest(F.lit(0), F.least(F.lit(rate["buckets"] - 1), number.cast("int"))).alias("bucket")


def _rate(rows: DataFrame, first: float, last: float, names: Sequence[str | None], many: int) -> dict[str, Any]:
    """Return frames and bytes by bucket, and frames by destination, with one last row for all others."""
    width = bucket_width(first, last)
    start = math.floor(first / width) * width
    buckets = int((last - start) // width) + 1
    others = many > len(names)
    counts = [[0] * buckets for _ in range(len(names) + others)]
    octets = [0] * buckets
    rate: dict[str, Any] = {"start": start, "bucket_seconds": width / _SECOND, "buckets": buckets}
    rate |= {"destinations": [*names] + ["other"] * others, "other": others}
    rate |= {"frames": counts, "octets": octets}
    named = (F.when(F.col("destination").eqNullSafe(F.lit(name)), index) for index, name in enumerate(names))
    which = F.coalesce(*named, F.lit(len(names))).alias("which")
    for row in rows.where("time is not null").groupBy(_bucket(rate), which).agg(*_sums()).collect():
        index = row["bucket"]
        counts[row["which"]][index] += row["frames"]
        octets[index] += row["octets"]
    return rate


def _lag(rows: DataFrame, rate: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return quantiles of the lag by bucket, in seconds; None for a bucket without sending times."""
    grouped = rows.where("lag is not null").groupBy(_bucket(rate)).agg(_quantiles().alias("quantiles")).collect()
    found: dict[str, list[float | None]] = {name: [None] * rate["buckets"] for name in ("p50", "p95", "p99")}
    for row in grouped:
        for name, value in zip(found, row["quantiles"]):
            found[name][row["bucket"]] = value / _SECOND
    return dict(found) if grouped else None


def _duplicates(rows: DataFrame, key: str = "octets") -> int:
    """Return the number of frames with a destination, identity and body seen before. Few bodies are read."""
    grouped = rows.where("id is not null").groupBy("destination", "id", key).agg(F.count(F.lit(1)).alias("times"))
    ((more,),) = grouped.agg(F.coalesce(F.sum(F.col("times") - 1), F.lit(0))).collect()
    return _duplicates(rows, "hash") if more and key == "octets" else int(more)


def _silences(rows: DataFrame, total: dict[str, Any], first: float, last: float) -> list[dict[str, Any]]:
    """Return the longest silences, and add their number and sum to `total`.

    Seconds with frames are grouped into chunks of time, so that no task sorts all of them; silences between chunks are
    found here.
    """
    chunk = max(_HOUR, math.ceil((last - first) / _SECOND / 500))
    second, begin, before = (F.col(name) for name in ("second", "begin", "before"))
    seconds = (
        rows.where("time is not null")
        .groupBy(F.floor(F.col("time") / _SECOND).alias("second"))
        .agg(F.min("time").alias("begin"), F.max("time").alias("end"))
        .withColumn("chunk", F.floor(second / chunk))
        .withColumn("before", F.lag("end").over(Window.partitionBy("chunk").orderBy("second")))
    )
    least = total["silence_seconds"] * _SECOND
    gap = F.struct((begin - before).alias("long"), before.alias("start"), begin.alias("end"))
    long = F.when(begin - before > least, gap)
    grouped = seconds.groupBy("chunk").agg(
        F.min("begin").alias("first"),
        F.max("end").alias("last"),
        F.count(long).alias("many"),
        F.coalesce(F.sum(long["long"]), F.lit(0.0)).alias("sum"),
        F.coalesce(F.max(begin - before), F.lit(0.0)).alias("longest"),
        F.slice(F.sort_array(F.collect_list(long), asc=False), 1, _MOST_LISTED).alias("gaps"),
    )
    chunks = grouped.orderBy("chunk").collect()
    between = [(b["first"] - a["last"], a["last"], b["first"]) for a, b in itertools.pairwise(chunks)]
    apart = [each for each in between if each[0] > least]
    found = [*(tuple(gap) for row in chunks for gap in row["gaps"]), *apart]
    longest = max((long for long, *_ in (*between, *((row["longest"],) for row in chunks))), default=0.0)
    total["longest_silence_seconds"] = longest / _SECOND
    total["silences"] = len(apart) + sum(row["many"] for row in chunks)
    total["silent_seconds"] = (sum(row["sum"] for row in chunks) + sum(each[0] for each in apart)) / _SECOND
    found.sort(key=lambda each: -each[0])
    return [
        {"start": int(start), "end": int(end), "seconds": long / _SECOND} for long, start, end in found[:_MOST_LISTED]
    ]


def malformed(frames: DataFrame) -> dict[str, Any]:
    """Return the kinds of errors in an archive's frames, with the count and the first and last frame of each."""
    kind = F.substring(F.substring_index("error", ":", 1), 1, _TEXT).alias("reason")
    sample = F.struct(
        F.unix_micros(F.coalesce("received_at", "sent_at")).alias("time"),
        F.col("destination"),
        F.substring("error", 1, _TEXT).alias("id"),
        F.substring("body", 1, _SAMPLE).alias("raw"),
    )
    return _by_reason(frames.where(F.col("error").isNotNull()), kind, sample)


def quarantine(spark: SparkSession, figures: dict[str, Any], folders: Any) -> dict[str, Any] | None:
    """Return the reasons of records in quarantine, with the count and the first and last record of each; None if no
    folder has any records. Add the numbers of records to the figures.
    """
    rows, held = [], []
    for folder in [folders] if isinstance(folders, (str, os.PathLike)) else folders or ():
        rows.append(_table_at(lambda spark, path: spark.read.parquet(path), spark, os.path.join(folder, "rows")))
        held.append(_table_at(jobs.read_quarantine, spark, folder))
    good, bad = ([table for table in tables if table is not None] for tables in (rows, held))
    figures["records"] = figures["quarantined"] = None
    if not good and not bad:
        return None
    found: dict[str, Any] = {"total": 0, "kinds": 0, "reasons": [], "samples": []}
    if bad:
        columns = ("_reason", "_raw", "message_id", "destination", "received_at")
        reason = F.substring(F.coalesce(F.col("_reason"), F.lit("unknown")), 1, _TEXT).alias("reason")
        sample = F.struct(
            F.unix_micros("received_at").alias("time"),
            F.substring("destination", 1, _TEXT).alias("destination"),
            F.substring("message_id", 1, _TEXT).alias("id"),
            F.substring("_raw", 1, _SAMPLE).alias("raw"),
        )
        found = _by_reason(reduce(DataFrame.unionByName, [each.select(*columns) for each in bad]), reason, sample)
    figures["quarantined"] = found["total"]
    figures["records"] = sum(each.count() for each in good) + found["total"]
    return found


def _by_reason(rows: DataFrame, reason: Column, sample: Column) -> dict[str, Any]:
    many = F.count(F.lit(1))
    grouped = rows.groupBy(reason).agg(many.alias("count"), F.min(sample).alias("first"), F.max(sample).alias("last"))
    grouped = grouped.withColumn("all", _over_all(F.sum("count"))).withColumn("kinds", _over_all(many))
    best = _best(grouped, "count", "reason", _MOST_KINDS)
    samples = [
        {"reason": row["reason"], **each.asDict()}
        for row in best
        for each in [row["first"]] + ([row["last"]] if row["last"] != row["first"] else [])
    ]
    for each in samples:
        if isinstance(each["raw"], (bytes, bytearray)):
            each["raw"] = bytes(each["raw"]).decode("utf-8", "backslashreplace")
    return {
        "total": best[0]["all"] if best else 0,
        "kinds": best[0]["kinds"] if best else 0,
        "reasons": [{"reason": row["reason"], "count": row["count"]} for row in best],
        "samples": samples,
    }


def gaps(spark: SparkSession, figures: dict[str, Any], metrics: str | os.PathLike[str] | None) -> list[dict[str, Any]]:
    """Return the largest gaps between windows of the metrics, and add the count of missing sequence numbers to the
    figures, None if the metrics were made without a sequence.
    """
    figures["sequence_gaps"] = None
    counted = None if metrics is None else _table_at(jobs.read_metrics, spark, metrics)
    if counted is None:
        return []
    ((inside,),) = counted.agg(F.sum("gaps")).collect()
    if inside is None:
        return []
    across = jobs.sequence_gaps(counted).withColumn("at", F.unix_micros("at"))
    best = _best(across.withColumn("all", _over_all(F.sum("missing"))), "missing", "at", _MOST_LISTED)
    found = [row.asDict() for row in best]
    figures["sequence_gaps"] = int(inside) + sum([row.pop("all") for row in found][:1])
    return found
