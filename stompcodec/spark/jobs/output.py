"""Where jobs write to, the same for streams and for what is complete."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["Running", "append_batch", "moment", "run_id", "start", "write_new"]

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@dataclass(frozen=True)
class Running:
    """How a stream runs."""

    checkpoint: str
    """The folder in which Spark keeps how far it is."""
    available_now: bool = False
    """End when all that there is now has been done."""
    every: str | None = None
    """How often a batch begins, as in "10 seconds"; None: when the one before is done."""
    name: str | None = None


@contextmanager
def _state_on_disk(spark: SparkSession) -> Iterator[None]:
    """The state of a query in RocksDB, not in the JVM's memory, unless it was said where."""
    if spark.conf.get(_PROVIDER, None) not in (None, "", _DEFAULT):
        yield
        return
    before = spark.conf.get(_PROVIDER, None)
    spark.conf.set(_PROVIDER, _ROCKSDB)
    try:
        yield
    finally:
        if before:
            spark.conf.set(_PROVIDER, before)
        else:
            spark.conf.unset(_PROVIDER)


_DEFAULT = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


def start(spark: SparkSession, writer: DataStreamWriter, how: Running) -> StreamingQuery:
    """Start a stream."""
    writer = writer.option("checkpointLocation", how.checkpoint)
    if how.name:
        writer = writer.queryName(how.name)
    if how.available_now:
        writer = writer.trigger(availableNow=True)
    elif how.every:
        writer = writer.trigger(processingTime=how.every)
    with _state_on_disk(spark):
        return writer.start()


def run_id(batch: DataFrame, number: int) -> str:
    """A name for a batch of a stream, the same when the batch is done again after a crash."""
    query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or ""
    return f"{query[:8]}-{number:010d}"


def append_batch(batch: DataFrame, path: str, name: str) -> None:
    """Write a batch of a stream as Parquet; what an attempt before left is replaced."""
    batch.write.mode("overwrite").option("compression", "zstd").parquet(f"{path}/batch={name}")


def write_new(frames: DataFrame, path: str, mode: str) -> None:
    """Write what is complete as Parquet, in the layout of streams.

    Args:
        mode: errorifexists, overwrite, or append.
    """
    named = frames.withColumn("batch", F.lit(f"run-{uuid.uuid4().hex[:12]}"))
    named.write.mode(mode).option("compression", "zstd").partitionBy("batch").parquet(path)


def moment(frames: DataFrame) -> Column:
    """When a frame came, or was sent, or 1970 where neither is known: no frame is without a time."""
    known = [F.col(name).cast("timestamp") for name in ("received_at", "sent_at") if name in frames.columns]
    return F.coalesce(*known, F.timestamp_millis(F.lit(0)))
