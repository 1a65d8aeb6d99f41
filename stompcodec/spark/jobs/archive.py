"""Archives: frames written to Parquet by date and destination, and read back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Column as C
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from stompcodec.client.dialects import ARTEMIS_ID
from stompcodec.spark.jobs.output import Running, check_sink, moment, save_mode, start
from stompcodec.spark.reading.schema import FRAME_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: Columns of an archive whose frames have all their columns.
ARCHIVE_SCHEMA = T.StructType(
    [*(field for field in FRAME_SCHEMA.fields if field.name != "text"), T.StructField("date", T.DateType())]
)
#: Most bytes of a destination in a folder name: file systems take 255, and escaping may triple them.
_LONGEST = 72
_DAY = 86_400


def archive(
    frames: DataFrame,
    path: str,
    *,
    checkpoint: str | None = None,
    available_now: bool = False,
    every: str | None = None,
    dedupe: bool = True,
    within: str = "10 minutes",
    partition_by: Sequence[str] = ("date", "destination"),
    mode: str = "errorifexists",
) -> StreamingQuery | int:
    """Write frames as Parquet (zstd) to folders date=/destination= under `path`, with all columns and all rows.

    Args:
        frames: a stream or a batch.
        path: output folder.
        checkpoint: checkpoint folder of a stream; None for a folder in `path`.
        available_now: stream: stop once everything that exists now is written.
        every: stream: interval between batches, as in "1 minute"; each batch writes one file per date and destination.
        dedupe: drop repeated frames, see `unique`.
        within: stream: how long a message is remembered.
        partition_by: folder levels: date, destination, or both.
        mode: batch: what to do if `path` exists: errorifexists, overwrite, or append.

    Returns:
        The query of a stream, or the number of frames written.

    Raises:
        ConfigError: stream: `path` was written with another checkpoint.

    >>> archive(frames, "archive")                                                    # doctest: +SKIP
    """
    rows = archived(unique(frames, within) if dedupe else frames, partition_by)
    if frames.isStreaming:
        how = Running(checkpoint or f"{path}/_checkpoint", available_now, every, "archive")
        check_sink(frames.sparkSession, path, how.checkpoint)
        writer = rows.writeStream.format("parquet").option("path", path).option("compression", "zstd")
        return start(frames.sparkSession, writer.partitionBy(*partition_by), how)
    seen = Observation()
    rows = rows.observe(seen, F.count(F.lit(1)).alias("frames"))
    rows.write.mode(save_mode(mode)).option("compression", "zstd").partitionBy(*partition_by).parquet(path)
    return int(seen.get["frames"])


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


def read_archive(spark: SparkSession, path: str) -> DataFrame:
    """Return the frames of an archive, with `date`. Plain `spark.read.parquet` would guess types from folder names.

    >>> read_archive(spark, "archive").count()                                        # doctest: +SKIP
    """
    return spark.read.schema(ARCHIVE_SCHEMA).parquet(path)
