"""Metrics of a feed by destination and window of time: counts, bytes, lag, sizes and gaps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column as C
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from stompcodec.spark.jobs.output import Running, append_batch, moment, run_id, start, write_new

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_SEQUENCES = "array<struct<name: string, first: bigint, last: bigint>>"
METRICS_SCHEMA = (
    "start timestamp, end timestamp, destination string, count bigint, bytes bigint, lag_p50 double, lag_p95 double,"
    " lag_p99 double, size_p50 double, size_p95 double, size_p99 double, gaps bigint, redelivered bigint,"
    f" errors bigint, sequences {_SEQUENCES}"
)
#: A larger step in a sequence is a restart of the numbers, not a gap.
RESTART = 1_000_000
_QUANTILES = (0.5, 0.95, 0.99)
#: Most digits of a sequence number.
_DIGITS = 15
#: Most sequences listed for a window.
_MOST_SEQUENCES = 1000


def metrics(
    frames: DataFrame,
    *,
    window: str = "1 minute",
    watermark: str = "10 minutes",
    sequence: str | None = None,
) -> DataFrame:
    """Return a row for each window of time and destination. Write a stream in update mode.

    A frame counts when it was received (see `moment`). The result does not depend on the order or the batches of the
    frames: quantiles are of values rounded to three significant digits, which need little memory.

    Args:
        frames: a stream or a batch.
        window: length of a window.
        watermark: stream: frames that are later than this are ignored.
        sequence: header that ends in a number which grows by one with each message, such as `message-id` of ActiveMQ;
            the text before the number names the sequence. Then `gaps` counts the missing numbers within the window, and
            `sequences` has first and last ones (see `sequence_gaps`).

    Returns:
        start, end, destination; count; bytes, of whole frames; lag_p50 … p99, from sent to received, in ms, null if
            unknown; size_p50 … p99, of whole frames, in bytes; gaps; redelivered; errors, malformed frames; sequences.

    >>> metrics(frames, window="5 minutes").show()                                    # doctest: +SKIP
    """
    rows = _measured(frames, sequence)
    grouped = rows.withWatermark("_at", watermark).groupBy(F.window("_at", window).alias("_window"), "destination")
    whole = grouped.agg(
        F.count(F.lit(1)).alias("count"),
        F.sum("_size").alias("bytes"),
        F.percentile("_lag", list(_QUANTILES)).alias("_lags"),
        F.percentile("_length", list(_QUANTILES)).alias("_sizes"),
        F.array_sort(F.collect_set("_number")).alias("_numbers"),
        F.count_if("_again").alias("redelivered"),
        F.count_if("_bad").alias("errors"),
    )
    return _named(whole, sequence is not None)


def _measured(frames: DataFrame, sequence: str | None) -> DataFrame:
    """Return the values of each frame that are aggregated."""
    here = set(frames.columns)
    size = [F.col("length")] if "length" in here else []
    size += [F.octet_length("body")] if "body" in here else []
    length = F.coalesce(*size, F.lit(0)).cast("bigint")
    lag = F.lit(None).cast("bigint")
    if {"received_at", "sent_at"} <= here:
        lag = (F.unix_micros("received_at") - F.unix_micros("sent_at")) / 1000
    number = F.lit(None).cast("struct<name: string, n: bigint>")
    if sequence is not None:
        number = _number(F.col("headers")[sequence])
    return frames.select(
        moment(frames).alias("_at"),
        F.col("destination"),
        length.alias("_size"),
        _rounded(length).alias("_length"),
        _rounded(lag).alias("_lag"),
        number.alias("_number"),
        _flag(frames, "redelivered").alias("_again"),
        (F.col("error").isNotNull() if "error" in here else F.lit(False)).alias("_bad"),
    )


def _named(whole: DataFrame, numbered: bool) -> DataFrame:
    quantiles = [
        F.get(F.col(f"_{kind}s"), F.lit(at)).alias(f"{kind}_p{round(share * 100)}")
        for kind in ("lag", "size")
        for at, share in enumerate(_QUANTILES)
    ]
    gaps = _missing(F.col("_numbers")) if numbered else F.lit(None).cast("bigint")
    sequences = _ends(F.col("_numbers")) if numbered else F.lit(None).cast(_SEQUENCES)
    return whole.select(
        F.col("_window.start").alias("start"),
        F.col("_window.end").alias("end"),
        "destination",
        "count",
        "bytes",
        *quantiles,
        gaps.alias("gaps"),
        "redelivered",
        "errors",
        sequences.alias("sequences"),
    )


def _flag(frames: DataFrame, name: str) -> C:
    return F.coalesce(F.col(name).cast("boolean"), F.lit(False)) if name in frames.columns else F.lit(False)


def _rounded(value: C) -> C:
    """Return a value rounded to three significant digits, as in 1234 to 1230, so that there are few distinct ones."""
    unit = F.pow(F.lit(10.0), F.floor(F.log10(F.abs(value))) - 2)
    return F.when(value == 0, F.lit(0.0)).otherwise(F.round(F.round(value / unit) * unit, 3))


def _number(text: C) -> C:
    """Return the number at the end of a header value, and the text before it."""
    digits = F.regexp_extract(text, f"(\\d{{1,{_DIGITS}}})$", 1)
    name = F.left(text, F.length(text) - F.length(digits))
    return F.when(digits != "", F.struct(name.alias("name"), digits.cast("bigint").alias("n")))


def _missing(numbers: C) -> C:
    """Return the count of numbers missing in a sorted list."""
    most = F.greatest(F.size(numbers) - 1, F.lit(0))
    steps = F.zip_with(
        F.slice(numbers, 1, most),
        F.slice(numbers, 2, most),
        lambda one, next: F.when(one["name"] == next["name"], next["n"] - one["n"] - 1).otherwise(F.lit(0)),
    )
    real = F.filter(steps, lambda step: step < RESTART)
    return F.aggregate(real, F.lit(0).cast("bigint"), lambda total, step: total + step)


def _ends(numbers: C) -> C:
    """Return the first and the last number of each sequence."""
    first = F.filter(numbers, lambda each, at: ~(F.get(numbers, at - 1)["name"].eqNullSafe(each["name"])))
    last = F.filter(numbers, lambda each, at: ~(F.get(numbers, at + 1)["name"].eqNullSafe(each["name"])))
    return F.zip_with(
        F.slice(first, 1, _MOST_SEQUENCES),
        F.slice(last, 1, _MOST_SEQUENCES),
        lambda one, other: F.struct(one["name"].alias("name"), one["n"].alias("first"), other["n"].alias("last")),
    )


def sequence_gaps(rows: DataFrame) -> DataFrame:
    """Return the gaps in sequences between windows, as a list.

    Args:
        rows: a batch of `metrics` with a `sequence`.

    Returns:
        destination; name of the sequence; at, the end of the window before the gap; after and before, the numbers
            around it; missing, their count.

    >>> sequence_gaps(read_metrics(spark, "metrics")).show()                          # doctest: +SKIP
    """
    each = rows.select("start", "end", "destination", F.explode("sequences").alias("s"))
    order = Window.partitionBy("destination", "s.name").orderBy("start")
    step = each.withColumn("_last", F.lag("s.last").over(order)).withColumn("_end", F.lag("end").over(order))
    missing = F.col("s.first") - F.col("_last") - 1
    return step.filter(missing.between(1, RESTART - 1)).select(
        "destination",
        F.col("s.name").alias("name"),
        F.col("_end").alias("at"),
        F.col("_last").alias("after"),
        F.col("s.first").alias("before"),
        missing.alias("missing"),
    )


def write_metrics(
    rows: DataFrame,
    path: str,
    *,
    checkpoint: str | None = None,
    available_now: bool = False,
    every: str | None = None,
    mode: str = "errorifexists",
) -> StreamingQuery | int:
    """Write the result of `metrics` as Parquet under `path`. A stream appends changed windows; see `read_metrics`.

    Args:
        rows: result of `metrics`.
        path: output folder.
        checkpoint, available_now, every, mode: see `archive`.

    Returns:
        The query of a stream, or the number of rows.

    >>> write_metrics(metrics(frames), "metrics")                                     # doctest: +SKIP
    """
    if not rows.isStreaming:
        rows = rows.coalesce(1).persist()
        try:
            write_new(rows, path, mode)
            return rows.count()
        finally:
            rows.unpersist()

    how = Running(checkpoint or f"{path}/_checkpoint", available_now, every, "metrics")

    def write(batch: DataFrame, number: int) -> None:
        append_batch(batch.coalesce(1), path, run_id(batch, number, how.checkpoint))

    writer = rows.writeStream.outputMode("update").foreachBatch(write)
    return start(rows.sparkSession, writer, how)


def read_metrics(spark: SparkSession, path: str) -> DataFrame:
    """Return the rows of `metrics` under `path`: the latest of each window and destination.

    >>> read_metrics(spark, "metrics").show()                                         # doctest: +SKIP
    """
    rows = spark.read.schema(f"{METRICS_SCHEMA}, batch string").parquet(path)
    # A window only grows, so the row with the highest count is the latest; then the batch decides.
    order = Window.partitionBy("start", "destination").orderBy(F.desc("count"), F.desc("batch"))
    return rows.withColumn("_n", F.row_number().over(order)).filter("_n = 1").drop("_n", "batch")
