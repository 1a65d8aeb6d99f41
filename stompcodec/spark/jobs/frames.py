"""Jobs on whole frames: archives and their replay, metrics, and dead letters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import Column as C
from pyspark.sql import DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.window import Window

from stompcodec.arguments import checked
from stompcodec.client import Client
from stompcodec.client.dialects import ARTEMIS_ID
from stompcodec.errors import ConfigError
from stompcodec.spark.jobs.output import Job, append_batch, check_sink, moment, run_id, start, write_new
from stompcodec.spark.reading.schema import FRAME_SCHEMA

# ---- archives: frames as Parquet by date and destination ----
#: Columns of an archive whose frames have all their columns.
ARCHIVE_SCHEMA = T.StructType(
    [*(field for field in FRAME_SCHEMA.fields if field.name != "text"), T.StructField("date", T.DateType())]
)
#: Most bytes of a destination in a folder name: file systems take 255, and escaping may triple them.
_LONGEST = 72
_DAY = 86_400


@checked
def archive(
    frames: DataFrame,
    path: str,
    *,
    checkpoint: str | None = None,
    every: str | None = None,
    name: str | None = None,
    dedupe: bool = True,
    within: str = "10 minutes",
    partition_by: Sequence[str] = ("date", "destination"),
    mode: str = "error",
) -> Job:
    """Write frames as Parquet (zstd) to folders date=/destination= under `path`, with all columns and all rows.

    Args:
        frames: a stream or a batch.
        path: output folder.
        checkpoint: checkpoint folder of a stream; None for a folder in `path`.
        every: stream: interval between batches, as in "1 minute", each of which writes one file per date and
            destination; None to write what exists now, and end.
        name: stream: name of the query, as Spark shows it; None for one that no other query has.
        dedupe: drop repeated frames, see `unique`.
        within: stream: how long a message is remembered.
        partition_by: folder levels: date, destination, or both.
        mode: batch: what to do if `path` exists: error, overwrite, or append.

    Returns:
        The job, which counts `frames` of a batch.

    Raises:
        ConfigError: stream: `path` was written with another checkpoint.

    >>> archive(frames, "archive")                                                    # doctest: +SKIP
    """
    rows = archived(unique(frames, within) if dedupe else frames, partition_by)
    if frames.isStreaming:
        checkpoint = checkpoint or f"{path}/_checkpoint"
        check_sink(frames.sparkSession, path, checkpoint)
        writer = rows.writeStream.format("parquet").option("path", path).option("compression", "zstd")
        return start(frames.sparkSession, writer.partitionBy(*partition_by), checkpoint, every, name, "archive")
    seen = Observation()
    rows = rows.observe(seen, F.count(F.lit(1)).alias("frames"))
    rows.write.mode(mode).option("compression", "zstd").partitionBy(*partition_by).parquet(path)
    return Job(seen.get)


def archived(frames: DataFrame, partition_by: Sequence[str] = ("date", "destination")) -> DataFrame:
    """Return frames as an archive has them: with `date` (UTC), and destinations that fit in folder names."""
    seconds = F.unix_seconds(moment(frames))
    rows = frames.withColumn("date", F.date_from_unix_date(F.floor(seconds / _DAY).cast("int")))
    if "destination" not in partition_by:
        return rows
    name = F.col("destination")
    short = F.concat(F.left(name, F.lit(_LONGEST - 33)), F.lit("…"), F.md5(name.cast("binary")))
    # The whole name stays in `headers`.
    return rows.withColumn("destination", F.when(F.octet_length(name) > _LONGEST, short).otherwise(name))


@checked
def unique(frames: DataFrame, within: str = "10 minutes") -> DataFrame:
    """Return the frames without repeated ones: same destination, `identity` and body.

    Message-ids alone are not enough, for a broker that was set up again reuses them. All frames without an identity
    are kept.

    Args:
        frames: a stream or a batch.
        within: stream: how long a message is remembered, by the clock of this machine; by times in the frames, late
            ones would be dropped.

    >>> unique(frames).count()                                                        # doctest: +SKIP
    """
    lasting = identity(frames)
    given = F.concat_ws("\n", F.coalesce("destination", F.lit("")), lasting)
    key = F.when(lasting.isNotNull(), given).otherwise(F.expr("uuid()"))
    body: C = F.xxhash64("body") if "body" in frames.columns else F.lit(0)
    keyed = frames.withColumn("_key", key).withColumn("_body", body)
    if not frames.isStreaming:
        return keyed.dropDuplicates(["_key", "_body"]).drop("_key", "_body")
    timed = keyed.withColumn("_now", F.current_timestamp()).withWatermark("_now", within)
    return timed.dropDuplicatesWithinWatermark(["_key", "_body"]).drop("_key", "_body", "_now")


def identity(frames: DataFrame) -> C:
    """Return the column with the lasting identity of frames, as in the client: null if they have none.

    Frames do not tell their broker, so the form of the message-id decides: "CONSUMER,MESSAGE" is that of Artemis, which
    needs the column `sent_at`. Any other message-id is the identity.

    >>> frames.select(identity(frames)).first()                                       # doctest: +SKIP
    """
    id = F.col("message_id")
    sent = F.unix_millis(F.col("sent_at").cast("timestamp")) if "sent_at" in frames.columns else F.lit(None)
    number = F.concat_ws(" ", F.substring_index(id, ",", -1), sent.cast("string"))
    return F.when(id.rlike(f"^(?:{ARTEMIS_ID})\\z"), F.when(sent > 0, number)).otherwise(id)


@checked
def read_archive(spark: SparkSession, path: str) -> DataFrame:
    """Return the frames of an archive, with `date`. Plain `spark.read.parquet` would guess types from folder names.

    >>> read_archive(spark, "archive").count()                                        # doctest: +SKIP
    """
    return spark.read.schema(ARCHIVE_SCHEMA).parquet(path)


# ---- replay: archived or captured frames to a broker, at their original pace or as fast as possible ----
#: Headers that belong to the old delivery or its time.
_PASSING = (
    "destination", "message-id", "subscription", "ack", "content-length", "redelivered", "receipt", "transaction",
    "expires",
)  # fmt: skip
#: Most messages in flight without a receipt.
_WINDOW = 500
_NAP = 0.5


def outgoing(
    frames: DataFrame,
    *more: C,
    destination: C | str | None = None,
    ids: str | None = None,
    requests: str | None = "/management/",
) -> DataFrame:
    """Return messages to send (destination, body, headers), from MESSAGE and SEND frames that name a destination.

    Headers are kept, except those of the old delivery, and `expires`, which has passed. `more` are further columns to
    keep, `destination` a name or column to use instead. `ids` is a header for an id that is the same in every replay,
    for brokers that drop duplicates by it (Artemis: _AMQ_DUPL_ID), or for consumers. Messages to names that begin with
    `requests` are left out, because our broker would take them as orders; None sends them, too.
    """
    here = set(frames.columns)
    good = F.col("destination").isNotNull()
    if "error" in here:
        good &= F.col("error").isNull()
    if "command" in here:
        good &= F.col("command").isin("MESSAGE", "SEND")
    where = F.col("destination") if destination is None else destination
    where = F.lit(where) if isinstance(where, str) else where
    if requests is not None:
        good &= ~F.startswith(F.trim(where), F.lit(requests))
    headers = F.col("headers") if "headers" in here else F.create_map().cast("map<string,string>")
    headers = F.map_filter(headers, lambda name, _value: ~name.isin(*_PASSING, *([ids] if ids else [])))
    if ids is not None:
        parts = [F.col(name).cast("string") for name in ("spool", "pos", "message_id") if name in here]
        digest = F.left(F.sha2(F.concat_ws("|", *parts, F.md5(F.col("body").cast("binary"))), 256), F.lit(32))
        headers = F.map_concat(headers, F.create_map(F.lit(ids), digest))
    return frames.filter(good).select(where.alias("destination"), F.col("body"), headers.alias("headers"), *more)


@checked
def replay(frames: DataFrame, options: Mapping[str, Any], **how: Any) -> int:
    """Send frames as fast as possible, all tasks in parallel, with the sink "stomp". Order is kept within a task only.

    Args:
        frames: frames to send.
        options: options of the sink: url, login, passcodeEnv, transaction, receiptEvery … See docs/spark-semantics.md.
        how: `destination`, `ids` and `requests`, as for `outgoing`.

    Returns:
        The number of messages sent.

    >>> replay(read_archive(spark, "archive"), {"url": "stomp://localhost:61613"})    # doctest: +SKIP
    """
    seen = Observation()
    rows = outgoing(frames, **how).observe(seen, F.count(F.lit(1)).alias("messages"))
    rows.write.format("stomp").options(**options).mode("append").save()
    return int(seen.get["messages"])


@checked
def paced(
    frames: DataFrame,
    client: Client,
    speed: float | None,
    *,
    on_sent: Callable[[int], object] = lambda _sent: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
    **how: Any,
) -> int:
    """Send frames in order over one connection, and return the number of messages that the broker has confirmed.

    Args:
        frames: frames to send.
        client: a connected client.
        speed: 2 sends twice as fast as the frames came, None as fast as possible. Frames without a time are sent at
            once.
        on_sent: called with the number of messages sent so far.
        clock, sleep: functions in seconds.
        how: `destination`, `ids` and `requests`, as for `outgoing`.

    Raises:
        StompError: a message was refused, or the connection was lost.

    >>> paced(read_archive(spark, "archive"), client, speed=10)                       # doctest: +SKIP
    """
    at = F.unix_micros(moment(frames)).alias("_at")
    order = [name for name in ("spool", "pos") if name in frames.columns]
    rows = outgoing(frames.select("*", at).orderBy("_at", *order), F.col("_at"), **how)
    sent = 0
    waiting: list[Any] = []
    for each in _in_time(rows.toLocalIterator(), speed, clock, sleep):
        body = bytes(each["body"] or b"")
        waiting.append(client.send_for_receipt(each["destination"], body, each["headers"]))
        sent += 1
        if len(waiting) >= _WINDOW:
            for receipt in waiting[: _WINDOW // 2]:
                receipt.wait()
            del waiting[: _WINDOW // 2]
        on_sent(sent)
    for receipt in waiting:
        receipt.wait()
    return sent


def _in_time(
    rows: Iterator[Row], speed: float | None, clock: Callable[[], float], sleep: Callable[[float], object]
) -> Iterator[Row]:
    """Yield each row when it is due; rows without a time, and all rows without a speed, at once."""
    start: tuple[float, int] | None = None
    for row in rows:
        if speed is not None and row["_at"]:
            start = start or (clock(), row["_at"])
            while (seconds := start[0] + (row["_at"] - start[1]) / 1e6 / speed - clock()) > 0:
                sleep(min(seconds, _NAP))
        yield row


# ---- metrics by destination and window of time: counts, bytes, lag, sizes and gaps ----
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


@checked
def metrics(
    frames: DataFrame, *, window: str = "1 minute", watermark: str = "10 minutes", sequence: str | None = None
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
    none = F.lit(False)
    return frames.select(
        moment(frames).alias("_at"),
        F.col("destination"),
        length.alias("_size"),
        _rounded(length).alias("_length"),
        _rounded(lag).alias("_lag"),
        number.alias("_number"),
        F.coalesce(F.col("redelivered").cast("boolean") if "redelivered" in here else none, none).alias("_again"),
        (F.col("error").isNotNull() if "error" in here else none).alias("_bad"),
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


@checked
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


@checked
def write_metrics(
    rows: DataFrame,
    path: str,
    *,
    checkpoint: str | None = None,
    every: str | None = None,
    name: str | None = None,
    mode: str = "error",
) -> Job:
    """Write the result of `metrics` as Parquet under `path`. A stream appends changed windows; see `read_metrics`.

    Args:
        rows: result of `metrics`.
        path: output folder.
        checkpoint, every, name, mode: see `archive`.

    Returns:
        The job, which counts `windows` of a batch.

    >>> write_metrics(metrics(frames), "metrics")                                     # doctest: +SKIP
    """
    if not rows.isStreaming:
        rows = rows.coalesce(1).persist()
        try:
            write_new(rows, path, mode)
            return Job({"windows": rows.count()})
        finally:
            rows.unpersist()

    folder = checkpoint or f"{path}/_checkpoint"

    def write(batch: DataFrame, number: int) -> None:
        append_batch(batch.coalesce(1), path, run_id(batch, number, folder))

    writer = rows.writeStream.outputMode("update").foreachBatch(write)
    return start(rows.sparkSession, writer, folder, every, name, "metrics")


@checked
def read_metrics(spark: SparkSession, path: str) -> DataFrame:
    """Return the rows of `metrics` under `path`: the latest of each window and destination.

    >>> read_metrics(spark, "metrics").show()                                         # doctest: +SKIP
    """
    rows = spark.read.schema(f"{METRICS_SCHEMA}, batch string").parquet(path)
    # A window only grows, so the row with the highest count is the latest; then the batch decides.
    order = Window.partitionBy("start", "destination").orderBy(F.desc("count"), F.desc("batch"))
    return rows.withColumn("_n", F.row_number().over(order)).filter("_n = 1").drop("_n", "batch")


# ---- dead letters: their original destination, the reason, and samples ----
#: Headers of our broker, ActiveMQ, Artemis and RabbitMQ; the first one present counts.
_ORIGINS = (
    "original-destination", "originalDestination", "amq6100_originalDestination", "_AMQ_ORIG_ADDRESS",
    "_AMQ_ORIG_QUEUE", "x-first-death-queue", "x-original-destination",
)  # fmt: skip
_REASONS = ("dead-letter-reason", "x-first-death-reason", "reason", "error", "x-error", "_AMQ_ACTUAL_EXPIRY")
_CAUSES = ("dlqDeliveryFailureCause", "x-exception-message", "x-exception", "exception", "x-exception-stacktrace")
#: Exception class in a cause, such as com.example.OddError.
_CLASS = r"([A-Za-z_][\w.$]*(?:Exception|Error|Throwable))"
_SHOWN = 500
_GROUPED = 200


@checked
def deadletters(frames: DataFrame, *, shown: int = _SHOWN) -> DataFrame:
    """Return dead letters by destination, original destination, reason and exception, the most frequent first.

    Args:
        frames: frames of dead letter queues, with `headers`. Write a stream in complete mode.
        shown: most characters of a body in a sample.

    Returns:
        destination; original, where the letter was sent to; reason; exception, its class or else the first line of the
            text; count; bytes; first, last, times; first_id, first_body, last_id, last_body, samples as text.

    Raises:
        ConfigError: `headers` is missing.

    >>> deadletters(frames).show()                                                    # doctest: +SKIP
    """
    if "headers" not in frames.columns:
        raise ConfigError("deadletters needs a column headers")
    cause = _first(_CAUSES)
    named = F.regexp_extract(cause, _CLASS, 1)
    line = F.left(F.trim(F.substring_index(cause, "\n", 1)), F.lit(_GROUPED))
    body = F.coalesce(F.col("body").cast("binary"), F.lit(b""))
    # Bytes are cut first, so that large bodies are not carried through the aggregation.
    text = F.left(F.make_valid_utf8(F.substring(body, 1, 4 * shown).cast("string")), F.lit(shown))
    expired = F.when(_first(("_AMQ_ACTUAL_EXPIRY",)).isNotNull(), F.lit("expired"))
    reason = F.coalesce(_first(_REASONS[:-1]), expired)
    rows = frames.select(
        "destination",
        F.left(_first(_ORIGINS), F.lit(_GROUPED)).alias("original"),
        F.left(reason, F.lit(_GROUPED)).alias("reason"),
        F.when(named != "", F.left(named, F.lit(_GROUPED))).otherwise(line).alias("exception"),
        moment(frames).alias("_at"),
        F.octet_length(body).cast("bigint").alias("_size"),
        F.struct(F.col("message_id").alias("id"), text.alias("body")).alias("_sample"),
    )
    grouped = rows.groupBy("destination", "original", "reason", "exception").agg(
        F.count(F.lit(1)).alias("count"),
        F.sum("_size").alias("bytes"),
        F.min("_at").alias("first"),
        F.max("_at").alias("last"),
        F.min_by("_sample", "_at").alias("_first"),
        F.max_by("_sample", "_at").alias("_last"),
    )
    kept = ("destination", "original", "reason", "exception", "count", "bytes", "first", "last")
    samples = [
        F.col(f"_{end}.{field}").alias(f"{end}_{field}") for end in ("first", "last") for field in ("id", "body")
    ]
    return grouped.select(*kept, *samples).orderBy(F.desc("count"), "destination", "original", "reason", "exception")


def _first(names: tuple[str, ...]) -> C:
    return F.coalesce(*(F.col("headers")[name] for name in names))
