"""Frames into Parquet, by date and destination, and out of it again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Column as C
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from stompcodec.spark.jobs.output import Running, check_sink, moment, save_mode, start
from stompcodec.spark.reading.schema import FRAME_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["ARCHIVE_SCHEMA", "archive", "archived", "read_archive", "unique"]

#: The columns of an archive of frames with all their columns.
ARCHIVE_SCHEMA = T.StructType(
    [*(field for field in FRAME_SCHEMA.fields if field.name != "text"), T.StructField("date", T.DateType())]
)
#: Octets that the name of a folder may have, on any file system; each character may become three.
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
    """Write frames as Parquet (zstd) under `path`, in folders date=/destination=. All columns and all rows are kept.

    Args:
        frames: of a stream, or not.
        path: the folder.
        checkpoint: of a stream; None: a folder in `path`.
        available_now: of a stream: end when all that there is now is written.
        every: of a stream, how often, as in "1 minute"; each time makes a file for each date and destination.
        dedupe: drop what came again: the same destination, message-id and body.
        within: of a stream, for how long a message-id is remembered.
        partition_by: of date and destination, what there are folders for.
        mode: of what is no stream, if `path` is there: errorifexists, overwrite, or append.

    Returns:
        The query, of a stream, else how many frames were written.

    Raises:
        ConfigError: of a stream: what is in `path` was written with another checkpoint.
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
    """Frames as they stand in an archive: with the column `date`, that of UTC, by which folders are called."""
    seconds = F.unix_seconds(moment(frames))
    rows = frames.withColumn("date", F.date_from_unix_date(F.floor(seconds / _DAY).cast("int")))
    if "destination" not in partition_by:
        return rows
    name = F.col("destination")
    short = F.concat(F.left(name, F.lit(_LONGEST - 33)), F.lit("…"), F.md5(name.cast("binary")))
    # The whole name stays in `headers`.
    return rows.withColumn("destination", F.when(F.octet_length(name) > _LONGEST, short).otherwise(name))


def unique(frames: DataFrame, within: str = "10 minutes") -> DataFrame:
    """Frames without those that came again: the same destination, message-id and body.

    Message-ids alone are not enough, for a broker that was set up anew gives them again. Frames without a message-id
    are all kept.

    Args:
        frames: of a stream, or not.
        within: of a stream, for how long a message-id is remembered, by the clock of this machine: by times in the
            frames, those that come late would be dropped.
    """
    given = F.concat_ws("\n", F.coalesce("destination", F.lit("")), F.col("message_id"))
    key = F.when(F.col("message_id").isNotNull(), given).otherwise(F.expr("uuid()"))
    body: C = F.xxhash64("body") if "body" in frames.columns else F.lit(0)
    keyed = frames.withColumn("_key", key).withColumn("_body", body)
    if not frames.isStreaming:
        return keyed.dropDuplicates(["_key", "_body"]).drop("_key", "_body")
    timed = keyed.withColumn("_now", F.current_timestamp()).withWatermark("_now", within)
    return timed.dropDuplicatesWithinWatermark(["_key", "_body"]).drop("_key", "_body", "_now")


def read_archive(spark: SparkSession, path: str) -> DataFrame:
    """The frames of an archive, with `date`. (Plain `spark.read.parquet` would guess types of the folders' names.)"""
    return spark.read.schema(ARCHIVE_SCHEMA).parquet(path)
