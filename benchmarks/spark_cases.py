"""Who reads frames into Spark, and how: by hand with stomp.py or with SQL, and with our source.

Spark's workers import this module, too. The hand-written ones are what a user gets to who does not want to work on it
for longer than an hour: plain, and with nothing slow in it that could be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

BATCH = 10_000
WHOLE = (
    "command string, destination string, message_id string, timestamp string, headers map<string,string>, body binary"
)
SOME = "destination string, message_id string, timestamp string, body binary"
#: Our narrow schema; a column that is not one of ours is the header of its name.
NARROW = "destination string, message_id string, sent_at timestamp, body binary"
#: All of our columns but the map of headers.
UNMAPPED = (
    "command string, destination string, message_id string, subscription string, ack string, content_type string, "
    "received_at timestamp, sent_at timestamp, redelivered boolean, body binary, spool string, pos long, length int, "
    "error string"
)
NOWHERE = "/topic/NOWHERE"


# ---- by hand ----


def _whole(frame: Any) -> tuple[Any, ...]:
    headers = frame.headers
    names = headers.get("destination"), headers.get("message-id"), headers.get("timestamp")
    return (frame.cmd, *names, headers, frame.body)


def _some(frame: Any) -> tuple[Any, ...]:
    headers = frame.headers
    return headers.get("destination"), headers.get("message-id"), headers.get("timestamp"), frame.body


def in_pandas(folder: Path, schema: str) -> Callable[[Any], Any]:
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
                    frames = map(parse_frame, octets[start : start + BATCH])
                    yield pandas.DataFrame([row(frame) for frame in frames if frame], columns=names)

    def table(spark: Any) -> Any:
        return spark.read.format("binaryFile").load(str(folder)).select("content").mapInPandas(parse, schema)

    return table


def _lines(spark: Any, folder: Path) -> Any:
    """The text between two NULs, each a row."""
    return spark.read.text(str(folder), lineSep="\0").where("length(value) > 1")


def in_udf(folder: Path, *, arrow: bool) -> Callable[[Any], Any]:
    """text, cut at NUL, and a Python UDF that calls parse_frame of stomp.py."""

    def parse(text: str) -> tuple[Any, ...]:
        from stomp.utils import parse_frame

        return _whole(parse_frame(text.encode()))

    def table(spark: Any) -> Any:
        function = F.udf(parse, WHOLE, useArrow=arrow)
        return _lines(spark, folder).select(function("value").alias("frame")).select("frame.*")

    return table


def in_sql(folder: Path) -> Callable[[Any], Any]:
    """text, cut at NUL, and nothing but SQL: wrong for escapes, for bodies with NULs, and for repeated headers."""

    def table(spark: Any) -> Any:
        frames = _lines(spark, folder).selectExpr("ltrim('\n', value) AS value")
        frames = frames.selectExpr("value", "substring_index(value, '\n\n', 1) AS head")
        frames = frames.selectExpr(
            "head",
            "substring_index(head, '\n', 1) AS command",
            "cast(substring(value, length(head) + 3) AS binary) AS body",
        )
        frames = frames.selectExpr(
            "command", "body", "str_to_map(substring(head, length(command) + 2), '\n', ':') AS headers"
        )
        named = [
            f"headers['{name}'] AS {name.replace('-', '_')}" for name in ("destination", "message-id", "timestamp")
        ]
        return frames.selectExpr("command", *named, "headers", "body")

    return table


# ---- ours ----


def ours(path: Path, schema: str | None = None, **options: str) -> Callable[[Any], Any]:
    """Return what reads a path by our source."""

    def table(spark: Any) -> Any:
        reader = spark.read.format("stompfile").options(**options)
        return (reader.schema(schema) if schema else reader).load(str(path))

    return table


# ---- Arrow or tuples ----


class Rows(DataSource):
    """The same rows again and again, made beforehand: as record batches, or as tuples."""

    @classmethod
    def name(cls) -> str:
        return "bench_rows"

    def schema(self) -> str:
        return "command string, destination string, message_id string, headers map<string,string>, body binary"

    def reader(self, schema: Any) -> RowsReader:
        return RowsReader(self.options["as"], int(self.options["rows"]))


class RowsReader(DataSourceReader):
    """Gives them out, half in each of two tasks."""

    def __init__(self, kind: str, rows: int) -> None:
        self._kind = kind
        self._rows = rows

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(2)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        import pyarrow as pa

        headers = {"content-type": "application/json", "priority": "4", "timestamp": "1700000000000"}
        body = b"x" * 500
        rows = [("MESSAGE", "/topic/TD_ALL_SIG_AREA", f"ID:host-1:{number}", headers, body) for number in range(8192)]
        times = self._rows // 2 // len(rows)
        if self._kind == "tuples":
            for _ in range(times):
                yield from rows
            return
        text = pa.string()
        kinds = (text, text, text, pa.map_(text, text), pa.binary())
        columns: list[Any] = list(zip(*rows))
        columns[3] = [list(pairs.items()) for pairs in columns[3]]
        names = ("command", "destination", "message_id", "headers", "body")
        schema = pa.schema(list(zip(names, kinds)))
        batch = pa.record_batch([pa.array(column, kind) for column, kind in zip(columns, kinds)], schema=schema)
        for _ in range(times):
            yield batch


def rows(kind: str, count: int) -> Callable[[Any], Any]:
    """A table of so many rows that were made beforehand: as "arrow" or "tuples"."""
    return lambda spark: spark.read.format("bench_rows").option("as", kind).option("rows", count).load()
