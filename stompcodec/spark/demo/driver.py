"""The driver of the demonstration: a Spark program controlled by lines of JSON on standard input.

The first line is the order: `{"url", "folder", "frames", "title"}`. The driver streams the feed into `archive` until it
is killed or gets `{"messages": N}`: the feed has ended, and the archive must reach N messages. Then it makes the typed
tables and the metrics and prints the names of the sink's files. After `{"proof": {...}}` it writes the report. It
reports progress as lines of JSON on standard output, and ends when standard input ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stompcodec.spark.demo.feed import ID_HEADER, TD, TRUST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: Typed tables: name, destination, preset.
TABLES = (("td", TD, "networkrail-td"), ("trust", TRUST, "networkrail-trust"))
#: Seconds without progress after which the driver stops waiting.
_QUIET = 30.0
_PREFETCH = 2000
#: Faster for a JVM that lives for a minute: no optimizing compiler.
_SHORT = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def main() -> None:
    """Execute the order, from the session to the report."""
    orders: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=_listen, args=(orders,), name="orders", daemon=True).start()
    order = orders.get()
    folder = Path(order["folder"])
    from stompcodec.spark.sessions import session

    spark = session(name="stompcodec demo", cores=2, **_SHORT)
    assert spark._jvm is not None
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    _say("session", driver=os.getpid(), jvm=jvm)
    query = _stream(spark, order, folder)
    _follow(spark, query, folder, orders)
    query.stop()
    _say("streamed")
    files = _tables(spark, folder)
    _say("files", **files)
    _report(spark, order, folder, orders.get()["proof"])
    _say("report")
    spark.stop()


def _say(stage: str, **figures: Any) -> None:
    print(json.dumps({"stage": stage, **figures}), flush=True)


def _listen(orders: queue.Queue[dict[str, Any]]) -> None:
    """Queue the orders; exit when the pipe is closed, for then the caller is gone. Runs in a thread."""
    for line in sys.stdin:
        orders.put(json.loads(line))
    os._exit(1)


def _stream(spark: SparkSession, order: dict[str, Any], folder: Path) -> StreamingQuery:
    from stompcodec.spark import jobs

    frames = (
        spark.readStream.format("stomp")
        .option("url", order["url"])
        .option("destination", f"{TD},{TRUST}")
        .option("spoolDir", str(folder / "spool.stompcap"))
        .option("dedupe", f"header:{ID_HEADER}")
        .option("prefetch", _PREFETCH)
        .option("maxFramesPerTrigger", max(100, order["frames"] // 8))
        .load()
    )
    # The source drops duplicates, so the archive need not.
    query = jobs.archive(frames, str(folder / "archive"), checkpoint=str(folder / "checkpoint"), dedupe=False)
    assert not isinstance(query, int)
    return query


def _follow(spark: SparkSession, query: StreamingQuery, folder: Path, orders: queue.Queue[dict[str, Any]]) -> None:
    """Report the progress of the stream until the feed has ended and all of it is stored."""
    batches: dict[int, int] = {}

    def tell() -> None:
        before = dict(batches)
        for progress in query.recentProgress:
            batches[progress["batchId"]] = progress["numInputRows"]
        if batches != before:
            _say("stream", rows=sum(batches.values()), batches=sum(map(bool, batches.values())))

    ended: dict[str, Any] = {}
    while not ended:
        tell()
        failure = query.exception()
        if failure is not None:
            raise failure
        with contextlib.suppress(queue.Empty):
            ended = orders.get(timeout=0.2)
    stored, changed = -1, 0.0
    while stored < ended["messages"]:
        query.processAllAvailable()
        tell()
        before, stored = stored, _stored(spark, folder)
        if stored != before:
            changed = time.monotonic()
        elif time.monotonic() - changed > _QUIET:
            return
        else:
            time.sleep(0.5)


def _stored(spark: SparkSession, folder: Path) -> int:
    from stompcodec.spark import jobs

    return jobs.read_archive(spark, str(folder / "archive")).count()


def _tables(spark: SparkSession, folder: Path) -> dict[str, list[str]]:
    """Make typed tables and metrics from the archive, and return the files of the sink."""
    from stompcodec.spark import jobs

    archive = jobs.read_archive(spark, str(folder / "archive"))
    files: dict[str, list[str]] = {"archive": archive.inputFiles(), "rows": [], "quarantine": []}
    for name, destination, preset in TABLES:
        _say("explode", table=name)
        path = folder / "exploded" / name
        some = archive.where(archive.destination == destination)
        jobs.write_exploded(jobs.explode(some, preset=preset), str(path))
        for kind, sub in (("rows", "rows"), ("quarantine", "_quarantine")):
            files[kind] += _written(spark, path / sub)
    _say("metrics")
    jobs.write_metrics(jobs.metrics(archive, sequence=ID_HEADER), str(folder / "metrics"))
    return files


def _written(spark: SparkSession, path: Path) -> list[str]:
    """Return the files of a table; none if nothing was written."""
    if not any(path.rglob("*.parquet")):
        return []
    table: DataFrame = spark.read.parquet(str(path))
    return list(table.inputFiles())


def _report(spark: SparkSession, order: dict[str, Any], folder: Path, proof: dict[str, int]) -> None:
    from stompcodec.spark.report import report

    report(
        spark,
        str(folder / "archive"),
        str(folder / "report"),
        exploded=[str(folder / "exploded" / name) for name, _, _ in TABLES],
        metrics=str(folder / "metrics"),
        spool=str(folder / "spool.stompcap"),
        checkpoint=str(folder / "checkpoint"),
        title=order["title"],
        proof=proof,
    )


if __name__ == "__main__":
    main()
