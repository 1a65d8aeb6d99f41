"""Spark's source beside hand-written code, in one session on two cores: `make bench WHAT=spark`.

Spark's workers import this module, too. The hand-written readers are what a user writes within an hour. SQL is wrong
for escapes, for bodies with NULs, and for repeated headers.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))

DATA = Path(__file__).resolve().parent.parent / "build" / "spark"
#: Frames, so that each contestant takes some seconds on two cores. By hand fewer, for rates are compared.
OURS, SQL, HAND = 1_600_000, 400_000, 120_000
ALL, FEW, CONVERT = "all columns", "narrow", "stompcodec convert"
Make = Callable[[Any], Any]
#: (row, column) of the table -> a DataFrame of our frames, and how many they are.
Readers = dict[tuple[str, str], tuple[Make, int]]
BATCH, TOGETHER = 10_000, 100  # rows of a pandas batch; frames that a busy recorder writes together
WHOLE = (
    "command string, destination string, message_id string, timestamp string, headers map<string,string>, body binary"
)
SOME = "destination string, message_id string, timestamp string, body binary"
#: Our narrow schema.
NARROW = "destination string, message_id string, sent_at timestamp, body binary"
START = 1_700_000_000_000
_HEAD = (
    "MESSAGE\nmessage-id:ID:opendata-backend.rockshore.net-35170-1645015525532-11:1:2:1:%d\ntransformation:jms-xml\n"
    "destination:/topic/TD_ALL_SIG_AREA\ntimestamp:%d\nexpires:%d\nsubscription:1\npersistent:true\npriority:4\n"
    "content-type:application/json\n\n"
)


def frames(count: int, first: int = 0) -> Iterator[bytes]:
    """Yield frames of about 700 bytes as Network Rail's train describer sends them: 9 headers, JSON, and a LF."""
    from railway import describer

    draw = random.Random(4)
    events = [json.dumps(describer(draw, START + draw.randrange(10**10))) for _ in range(4096)]
    draw.seed(first)
    for number in range(first, first + count):
        time = START + number * 20
        body = f"[{', '.join(draw.choices(events, k=4))}]"
        yield (_HEAD % (1_000_000 + number, time, time + 300_000) + f"{body}\0\n").encode()


def capture(path: Path, count: int) -> Path:
    """Write a capture with this number of frames, unless it exists already."""
    from stompcodec.capture import CaptureWriter

    if not (path / "whole").exists():
        path.mkdir(parents=True, exist_ok=True)
        each, number = frames(count), 0
        with CaptureWriter(path / "feed.stompcap") as writer:
            while block := b"".join(islice(each, TOGETHER)):
                writer.append(block, (START + number * 20) * 1000)
                number += TOGETHER
            writer.sync()
        (path / "whole").touch()
    return path / "feed.stompcap"


def files(path: Path, count: int) -> Path:
    """Write a folder of two files of frames, unless it is there."""
    if not path.exists():
        part = path.with_suffix(".part")
        part.mkdir(parents=True, exist_ok=True)
        for number in range(2):
            with open(part / f"td-{number:04}.stomp", "wb") as file:
                file.writelines(frames(count // 2, number * (count // 2)))
        part.rename(path)
    return path


def _whole(frame: Any) -> tuple[Any, ...]:
    headers = frame.headers
    names = headers.get("destination"), headers.get("message-id"), headers.get("timestamp")
    return (frame.cmd, *names, headers, frame.body)


def _some(frame: Any) -> tuple[Any, ...]:
    headers = frame.headers
    return headers.get("destination"), headers.get("message-id"), headers.get("timestamp"), frame.body


def in_pandas(folder: Path, schema: str) -> Make:
    """binaryFile, mapInPandas, `bytes.split`, and parse_frame of stomp.py."""
    names = [field.split()[0] for field in schema.replace("string,string", "").split(", ")]
    row = _whole if "command" in names else _some

    def parse(tables: Iterable[Any]) -> Iterator[Any]:
        import pandas
        from stomp.utils import parse_frame

        for table in tables:
            for content in table["content"]:
                octets = content.split(b"\0")
                for start in range(0, len(octets), BATCH):
                    found = map(parse_frame, octets[start : start + BATCH])
                    yield pandas.DataFrame([row(frame) for frame in found if frame], columns=names)

    return lambda spark: spark.read.format("binaryFile").load(str(folder)).select("content").mapInPandas(parse, schema)


def in_sql(folder: Path) -> Make:
    """text, cut at NUL, and nothing but SQL."""
    names = ("destination", "message-id", "timestamp")
    named = [f"headers['{name}'] AS {name.replace('-', '_')}" for name in names]
    body = "cast(substring(value, length(head) + 3) AS binary) AS body"
    steps = (
        ("ltrim('\n', value) AS value",),
        ("value", "substring_index(value, '\n\n', 1) AS head"),
        ("head", "substring_index(head, '\n', 1) AS command", body),
        ("command", "body", "str_to_map(substring(head, length(command) + 2), '\n', ':') AS headers"),
        ("command", *named, "headers", "body"),
    )

    def table(spark: Any) -> Any:
        found = spark.read.text(str(folder), lineSep="\0").where("length(value) > 1")
        for step in steps:
            found = found.selectExpr(*step)
        return found

    return table


def in_json(folder: Path) -> Make:
    """JSON lines with the same columns, written before; the body is text."""
    return lambda spark: spark.read.json(str(folder), WHOLE.replace("binary", "string"))


class Floor(DataSource):
    """A source whose Arrow batches are ready: what is left is the work of Spark itself."""

    def reader(self, schema: Any) -> Any:
        return Batches(Path(self.options["path"]))


class Batches(DataSourceReader):
    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*.arrow"))

    def partitions(self) -> list[InputPartition]:
        return list(map(InputPartition, self.paths))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        import pyarrow

        with pyarrow.memory_map(str(partition.value)) as file, pyarrow.ipc.open_file(file) as batches:
            yield from map(batches.get_batch, range(batches.num_record_batches))


def ours(path: Path, schema: str | None = None) -> Make:
    return lambda spark: spark.read.load(str(path), "stompfile", schema)


def derived(spark: Any, few: Path, count: int) -> Readers:
    """Write the frames of some files as JSON lines, as Parquet, and as Arrow batches. Return who reads those."""
    import pyarrow

    rows, paths = ours(few)(spark), {kind: DATA / f"{kind}-{count}" for kind in ("json", "parquet", "arrow")}
    whole = rows.selectExpr(
        "command", "destination", "message_id", "headers['timestamp'] AS timestamp", "headers", "cast(body AS string)"
    )
    whole.repartition(2).write.json(str(paths["json"]), "overwrite")
    rows.repartition(2).write.parquet(str(paths["parquet"]), "overwrite", compression="zstd")
    paths["arrow"].mkdir(exist_ok=True)
    table = rows.toArrow()
    for half in (0, 1):
        with pyarrow.ipc.new_file(paths["arrow"] / f"{half}.arrow", table.schema) as file:
            file.write_table(table.slice(half * (count // 2), count // 2), 8192)
    spark.dataSource.register(Floor)
    return {
        (ALL, "JSON lines"): (in_json(paths["json"]), count),
        (ALL, "Parquet"): (lambda spark: spark.read.parquet(str(paths["parquet"])), count),
        (ALL, "Arrow batches"): (
            lambda spark: spark.read.format("Floor").schema(rows.schema).load(str(paths["arrow"])),
            count,
        ),
    }


def converted(feed: Path, count: int) -> float:
    """Return how many frames `stompcodec convert` writes to Parquet per CPU second, its start included."""
    spent = -sum(os.times()[2:4])
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "stompcodec", "convert", str(feed), f"{folder}/feed.parquet"]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return count / (spent + sum(os.times()[2:4]))


def readers(less: int) -> Readers:
    """Return who reads, and which frames."""
    by_hand, by_sql, by_us = HAND // less, SQL // less, OURS // less
    few, some = files(DATA / f"files-{by_hand}", by_hand), files(DATA / f"files-{by_sql}", by_sql)
    feed = capture(DATA / f"capture-{by_us}", by_us)
    return {
        (ALL, "mapInPandas"): (in_pandas(few, WHOLE), by_hand),
        (ALL, "SQL"): (in_sql(some), by_sql),
        (ALL, "stompcodec"): (ours(feed), by_us),
        (FEW, "mapInPandas"): (in_pandas(few, SOME), by_hand),
        (FEW, "stompcodec"): (ours(feed, NARROW), by_us),
        ("destination alone", "stompcodec"): (ours(feed, "destination string"), by_us),
    }


def check(spark: Any, found: Readers) -> None:
    """See that all read the same: rows, bytes of the bodies, and a sum over the message-ids."""
    for (row, who), (make, count) in found.items():
        if who == "stompcodec":
            got, right = make(spark).count(), count
        else:
            got, right = same(make(spark)), same(ours(DATA / f"files-{count}")(spark))
        if got != right:
            raise SystemExit(f"{who}, {row}: {got} instead of {right} in {count} frames")


def same(table: Any) -> tuple[int, ...]:
    return tuple(table.selectExpr("count(*)", "sum(length(body))", "sum(crc32(cast(message_id AS binary)))").first())


def measure(args: Namespace) -> dict[str, Any]:
    """Check all; then each has its turn in each round, after some to warm up. The medians count."""
    here = str(Path(__file__).parent)  # Spark's workers import this module
    os.environ["PYTHONPATH"] = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    from stompcodec.spark import session

    less, rounds, warm = (100, 1, 0) if args.quick else (1, args.rounds or 5, 2)
    spark = session("benchmark", cores=2, **{"spark.ui.showConsoleProgress": False})
    rates: dict[tuple[str, str], list[float]] = {}
    try:
        found = readers(less)
        few, feed = SQL // less, OURS // less
        found |= derived(spark, files(DATA / f"files-{few}", few), few)
        check(spark, found)
        for turn in range(-warm, rounds):
            for key, (make, count) in found.items():
                start = time.perf_counter()
                make(spark).write.format("noop").mode("overwrite").save()
                rates.setdefault(key, []).append(count / (time.perf_counter() - start))
            rates.setdefault(("Parquet", CONVERT), []).append(converted(capture(DATA / f"capture-{feed}", feed), feed))
            print(f"round {turn + 1} of {rounds}" if turn >= 0 else "warming up", flush=True)
        java = spark.sparkContext._jvm.java.lang.System.getProperty("java.version")
    finally:
        spark.stop()
    tables: dict[str, dict[str, dict[str, float]]] = {"read": {}, "convert": {}}
    for (row, who), taken in rates.items():
        tables["convert" if who == CONVERT else "read"].setdefault(row, {})[who] = statistics.median(taken[warm:])
    versions = {name: metadata.version(name) for name in ("pyspark", "pyarrow", "stomp.py", "pandas")}
    facts = {"Spark": f"PySpark {versions['pyspark']}, local[2], Java {java}, pyarrow {versions['pyarrow']}"}
    facts["peers"] = f"stomp.py {versions['stomp.py']}, pandas {versions['pandas']}"
    return {"facts": facts, "tables": tables, "wrong": []}
