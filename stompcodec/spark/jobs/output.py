"""Output of jobs, for streams and for batches; and restarts of streams whose Spark process was killed."""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F

from stompcodec.arguments import checked
from stompcodec.errors import ConfigError, StompError
from stompcodec.spark.sessions import steady

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@dataclass(frozen=True)
class Job:
    """A job that writes: the query of a stream, or a batch, which has been written.

    Attributes:
        counts: what a batch has written; empty for a stream.
        query: the query of a stream; None for a batch.

    >>> Job({"frames": 5}).awaitTermination()
    True
    """

    counts: Mapping[str, int]
    query: StreamingQuery | None = None

    @checked
    def awaitTermination(self, timeout: float | None = None) -> bool:
        """Wait for the end, at most `timeout` seconds. Return whether it has come; raise the error of a query."""
        return self.query is None or self.query.awaitTermination(timeout) is not False  # type: ignore[arg-type]

    def stop(self) -> None:
        """Stop the query of a stream."""
        if self.query is not None:
            self.query.stop()


@contextmanager
def _state_on_disk(spark: SparkSession) -> Iterator[None]:
    """Keep the state of a query in RocksDB instead of the JVM's memory, unless the user chose a provider."""
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


def start(
    spark: SparkSession, writer: DataStreamWriter, checkpoint: str, every: str | None, name: str | None, job: str
) -> Job:
    """Start the query of a job. Without a name it gets one that no other query of the session has."""
    writer = writer.option("checkpointLocation", checkpoint).queryName(name or f"{job}-{uuid.uuid4().hex[:12]}")
    trigger: dict[str, Any] = {"processingTime": every} if every else {"availableNow": True}
    steady(spark)
    with _state_on_disk(spark):
        return Job({}, writer.trigger(**trigger).start())


def run_id(batch: DataFrame, number: int, checkpoint: str) -> str:
    """Return a name for a batch of a stream, the same when Spark repeats it. Spark Connect tells no id of a query."""
    spark = batch.sparkSession
    try:
        query = spark.sparkContext.getLocalProperty("sql.streaming.queryId") or ""
    except PySparkException:  # Spark Connect has no context
        text = spark.read.text(f"{checkpoint}/metadata").first()
        query = "" if text is None else json.loads(text[0])["id"]
    return f"{query[:8]}-{number:010d}"


def check_sink(spark: SparkSession, path: str, checkpoint: str) -> None:
    """Raise a ConfigError if a file sink has batches that the checkpoint does not know.

    Spark's file sink skips a batch whose number it has written, even if the number comes from a new checkpoint: the
    rows of that batch would be missing silently.
    """
    known = _last(spark, f"{checkpoint}/offsets")
    if _rows_of(spark, f"{path}/_spark_metadata/{_above(known)}") is None:
        return
    last = "no batch is" if known is None else f"the last batch is {known}"
    raise ConfigError(
        f"{path} holds later batches of a stream than the checkpoint {checkpoint}, where {last}: Spark would skip new "
        "batches with the numbers of old ones, and their rows would be missing (put the checkpoint back, or write to a "
        "new folder with a new checkpoint: the spool is read again from its start)"
    )


def _last(spark: SparkSession, folder: str) -> int | None:
    """Return the largest batch number among the names of files in a folder; None if there are none."""
    files = _rows_of(spark, folder)
    if files is None:
        return None
    number = F.regexp_extract("path", r"/(\d{1,18})$", 1).try_cast("bigint")
    row = files.agg(F.max(number)).first()
    return None if row is None else row[0]


def _rows_of(spark: SparkSession, path: str) -> DataFrame | None:
    """Return the files at a path as rows, None if there are none. Those in the log of Spark's own sink give no rows."""
    try:
        # Twice: of a single path that is not there, Spark logs a warning of a hundred lines.
        files = spark.read.format("binaryFile").load([path, path])
        _ = files.schema  # Spark Connect checks the path only on use
        return files
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return None
        raise


def _above(number: int | None) -> str:
    """Return a glob for file names that begin with a larger number.

    >>> _above(None), _above(0), _above(37)
    ('[0-9]*', '{[1-9]*,[1-9][0-9]*}', '{[4-9][0-9]*,3[8-9]*,[1-9][0-9][0-9]*}')
    """
    if number is None:
        return "[0-9]*"
    digits = str(number)
    parts = [
        f"{digits[:at]}[{int(digit) + 1}-9]{'[0-9]' * (len(digits) - at - 1)}*"
        for at, digit in enumerate(digits)
        if digit != "9"
    ]
    return "{" + ",".join([*parts, f"[1-9]{'[0-9]' * len(digits)}*"]) + "}"


def append_batch(batch: DataFrame, path: str, name: str) -> None:
    """Write a batch of a stream as Parquet, replacing what an earlier attempt left."""
    batch.write.mode("overwrite").option("compression", "zstd").parquet(f"{path}/batch={name}")


def write_new(frames: DataFrame, path: str, mode: str) -> None:
    """Write a batch as Parquet in the layout of streams; `mode` is error, overwrite, or append."""
    named = frames.withColumn("batch", F.lit(f"run-{uuid.uuid4().hex[:12]}"))
    named.write.mode(mode).option("compression", "zstd").partitionBy("batch").parquet(path)


def moment(frames: DataFrame) -> Column:
    """Return when a frame was received, else sent, else 1970: every frame has a time."""
    known = [F.col(name).cast("timestamp") for name in ("received_at", "sent_at") if name in frames.columns]
    return F.coalesce(*known, F.timestamp_millis(F.lit(0)))


# ---- restarts ----
_log = logging.getLogger("stompcodec.spark")
#: Spark's messages when the process behind a socket is gone. Errors raised by Python have a traceback.
_GONE = re.compile(
    r"Connection reset|Broken pipe|EOFException|SocketException|Socket closed|Stream closed|ClosedChannelException"
    r"|Python worker exited unexpectedly|Python worker failed to connect|AsynchronousCloseException"
    r"|terminated with exception:\s*(?:SQLSTATE|null|\(no cause|$)"
)
#: Begins the plan, with its options, behind the message.
_PLAN = "=== Streaming Query ==="
_RAISED = "Traceback (most recent call last)"
_WHAT = (
    "a Python process of Spark ended, most likely the one that runs the source: it was killed, or ran out of memory. "
    "Nothing is lost, for what was acknowledged is in the spool"
)


class _Running(Protocol):
    """A `StreamingQuery`, or an object that waits for one."""

    def awaitTermination(self) -> object: ...


class SourceDiedError(StompError):
    """Error for a query whose Python process was killed more often than it may be restarted.

    >>> issubclass(SourceDiedError, StompError)
    True
    """


def has_died(error: BaseException) -> bool:
    """Return whether a query ended because its Python process was gone, not by an error that Python, Spark or the
    broker raised.

    >>> has_died(RuntimeError("[STREAM_FAILED] Query terminated with exception: Connection reset"))
    True
    >>> has_died(RuntimeError("Traceback (most recent call last): Connection reset by the broker"))
    False
    """
    text = str(error).partition(_PLAN)[0]
    return _RAISED not in text and bool(_GONE.search(text))


@checked
def supervise(start: Callable[[], _Running], *, restarts: int = 10, within: float = 3600.0, pause: float = 1.0) -> None:
    """Run a query until it is stopped or fails, and restart it whenever its Spark process was killed.

    Spark ends a query when the Python process of its source is gone, for example after `kill -9` or when out of memory,
    with `Connection reset` or without a cause. Restarting it from its checkpoint neither loses nor duplicates frames.
    Other failures are raised unchanged.

    Args:
        start: makes and starts the query; called for each start, so it must name a checkpoint.
        restarts: most restarts within `within` seconds; one more is an error.
        within: seconds.
        pause: seconds before each restart.

    Raises:
        SourceDiedError: the process was killed too often.
        PySparkException: the query failed for another reason.

    >>> supervise(lambda: jobs.archive(frames, "archive", every="1 minute"))               # doctest: +SKIP
    """
    died: deque[float] = deque()
    while True:
        try:
            query = start()
            query.awaitTermination()
            return
        except PySparkException as error:
            if not has_died(error):
                raise
            now = time.monotonic()
            died.append(now)
            while died and now - died[0] > within:
                died.popleft()
            if len(died) > restarts:
                raise SourceDiedError(
                    f"{_WHAT}. It ended {len(died)} times within {within:g} s: look at the driver's memory, and at "
                    f"the log of the system for a process that was killed: {_first_line(error)}"
                ) from error
            _log.warning("%s. The query starts again from its checkpoint: %s", _WHAT, _first_line(error))
            time.sleep(pause)


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]
