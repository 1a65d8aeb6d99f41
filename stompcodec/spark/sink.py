"""The sink "stomp": `df.write.format("stomp")` and `df.writeStream.format("stomp")`.

Each task has its own connection. With `transaction` (the default) its rows take effect together once the broker has
confirmed the COMMIT. A STOMP transaction belongs to one connection, so it covers one task, not a batch of several
tasks. When Spark repeats a task, or a micro-batch after a restart, the rows are sent again with the same ids in
`dedupeHeader`, so a broker that checks them, or a consumer, can recognize them.

Rows become SEND frames: `destination`, `body`, an optional map `headers`, and any other column as the header of its
name. Values become text as STOMP users write it: true and false, digits, ISO dates, timestamps as milliseconds since
1970. A null omits the header. Arrow makes the frames of many rows at once.
"""

from __future__ import annotations

import copy
import itertools
import uuid
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from stompcodec.client import Client, SendManyError, connect
from stompcodec.client.dialects import BROKERS
from stompcodec.client.outbox import Block
from stompcodec.client.shell import BLOCK
from stompcodec.errors import StompError
from stompcodec.spark.base import DataSourceStreamArrowWriter, Shipped, SinkError
from stompcodec.spark.link import SinkOptions, parse_sink
from stompcodec.spark.reading.schema import FRAME_SCHEMA, SchemaError

#: Bytes of a record batch that become frames at once.
_AT_ONCE = 32 * 2**20

#: Types that can become a header.
_PLAIN = (
    T.StringType, T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType,
    T.DecimalType, T.DateType, T.TimestampType, T.TimestampNTZType,
)  # fmt: skip
#: Headers that the sink writes, or that brokers add to a MESSAGE: ignored in the map.
_DROPPED = frozenset(
    ["destination", "content-length", "receipt", "transaction", "subscription", "message-id", "ack", "redelivered"]
)
_TAKEN = frozenset(["content-length", "receipt", "transaction"])
#: Rows with all of these columns are frames that our sources have read.
_FRAMES = frozenset(["spool", "pos", "length"])
#: Columns of such rows that are sent; the others tell how they were read.
_OF_FRAMES = frozenset(["destination", "body", "headers", "content_type"])


class _Header(NamedTuple):
    column: int
    name: str


class Rows:
    """Converter of rows into SEND frames.

    Small and picklable. Arrow joins the bytes, one column at a time, which costs a tenth of a `Frame` for each row.
    `destination` is for rows without that column, `id_header` for the id of each row. Raises SchemaError, in one line,
    if these columns cannot be sent.
    """

    def __init__(self, schema: T.StructType, destination: str | None, id_header: str | None) -> None:
        names = schema.fieldNames()
        self._constant = destination
        self._destination = _index(schema, "destination", (T.StringType,))
        if destination is None and self._destination is None:
            raise SchemaError(f"no column destination in {_shown(names)}: add one, or set the option")
        body = _index(schema, "body", (T.StringType, T.BinaryType))
        if body is None:
            raise SchemaError(f"no column body in {_shown(names)}: it must be string or binary")
        self._body = body
        self._map = _map_index(schema)
        are_frames = set(names) >= _FRAMES
        self._headers: list[_Header] = []
        for at, field in enumerate(schema.fields):
            if at in (self._destination, self._body, self._map):
                continue
            if are_frames and field.name in _READ_BY_US and field.name not in _OF_FRAMES:
                continue
            self._headers.append(_Header(at, _checked(field)))
        self.id_header: str | None = None
        if id_header is not None:
            self.id_header = self.with_ids(id_header).id_header

    def with_ids(self, header: str) -> Rows:
        """Return a copy with a header for ids; raise SchemaError if a column is already this header."""
        if any(each.name == header for each in self._headers):
            raise SchemaError(f"column {header} is the header of option dedupeHeader: leave out one of them")
        rows = copy.copy(self)
        rows.id_header = header
        return rows

    def blocks(self, batch: Any, target: Target, first: int, ids: str, most: int) -> Iterator[Block]:
        """Yield the frames of a record batch in blocks of at most `most`; `first` is the number of its first row."""
        if batch.nbytes > _AT_ONCE and batch.num_rows > 1:
            half = batch.num_rows // 2
            yield from self.blocks(batch.slice(0, half), target, first, ids, most)
            yield from self.blocks(batch.slice(half), target, first + half, ids, most)
            return
        frames = self.frames(batch, target, first, ids)
        _, offsets, data = frames.buffers()
        ends, octets = memoryview(offsets).cast("i"), memoryview(data)
        row, rows = 0, len(frames)
        while row < rows:
            stop = min(row + most, rows)
            stop = max(row + 1, bisect_right(ends, ends[row] + BLOCK, row + 1, stop + 1) - 1)
            start = ends[row]
            yield Block(bytes(octets[start : ends[stop]]), stop - row, target.version, ends[stop - 1] - start)
            row = stop

    def frames(self, batch: Any, target: Target, first: int = 0, ids: str = "") -> Any:
        """Return the frames of a record batch as an array of binary, all at once; see `blocks`."""
        line = Line(target, first)
        line.add("SEND\n" + target.lines)
        if self._destination is None:
            line.add(f"destination:{escaped(self._constant or '', target.version)}\n")
        else:
            line.header("destination", line.text(_required(batch, self._destination, "destination", first)))
        for header in self._headers:
            line.header(header.name, line.text(batch.column(header.column)))
        if self.id_header is not None:
            numbers = pa.array(range(first, first + batch.num_rows), pa.int64()).cast(pa.string())
            line.add(f"{escaped(self.id_header, target.version)}:{escaped(ids, target.version)}", numbers, "\n")
        if self._map is not None:
            mine = {header.name for header in self._headers} | ({self.id_header} if self.id_header else set())
            line.add(line.maps(batch.column(self._map), _DROPPED | mine))
        body = _required(batch, self._body, "body", first)
        is_text = not pa.types.is_binary(body.type) and not pa.types.is_large_binary(body.type)
        if is_text:
            line.check(body)
        if is_text and not any(header.name == "content-type" for header in self._headers):
            line.content_type(self._map is not None)
        body = body.cast(pa.binary())
        line.content_length(body, is_text and target.text)
        line.add("\n")
        head = line.joined()
        return pc.binary_join_element_wise(head.cast(pa.binary()), body, b"\0", b"")


_READ_BY_US = frozenset(FRAME_SCHEMA.fieldNames())


def _shown(names: list[str]) -> str:
    return ", ".join(names)[:200] or "no columns at all"


def _index(schema: T.StructType, name: str, kinds: tuple[type[T.DataType], ...]) -> int | None:
    """Return the index of a column; None if there is none."""
    found = [at for at, field in enumerate(schema.fields) if field.name.lower() == name]
    if not found:
        return None
    if len(found) > 1:
        raise SchemaError(f"{len(found)} columns are called {name}: rename all but one")
    field = schema.fields[found[0]]
    if not isinstance(field.dataType, kinds):
        wanted = " or ".join(kind.typeName() for kind in kinds)
        raise SchemaError(f"column {field.name} is {field.dataType.simpleString():.80}: it must be {wanted}")
    return found[0]


def _map_index(schema: T.StructType) -> int | None:
    at = _index(schema, "headers", (T.MapType,))
    if at is not None:
        kind = schema.fields[at].dataType
        if kind.simpleString() != "map<string,string>":
            raise SchemaError(f"column headers is {kind.simpleString():.80}: it must be map<string,string>")
    return at


def _checked(field: T.StructField) -> str:
    """Return the header that a column becomes."""
    kind = field.dataType
    if not isinstance(kind, _PLAIN):
        raise SchemaError(
            f"column {field.name}: {kind.simpleString():.80} cannot become a header: cast it to string, or leave it out"
        )
    name = "content-type" if field.name == "content_type" else field.name
    if name in _TAKEN:
        raise SchemaError(f"column {field.name}: the sink writes that header itself: rename it, or leave it out")
    if not name or "\0" in name:
        raise SchemaError(f"a column is named {name!r}: rename it, or leave it out")
    return name


def _required(batch: Any, at: int, what: str, first: int) -> Any:
    column = batch.column(at)
    if column.null_count:
        row = first + pc.index(column.is_null(), True).as_py()
        raise SinkError(f"row {row} has no {what}: it is null")
    return column


# ---- writers ----
#: Frames of a block when no receipts are asked for.
_MOST = 1000


@dataclass
class Sent(WriterCommitMessage):
    """Result of a task."""

    partition: int
    messages: int


class _Sink(Shipped):
    """Writer for both modes, made on the driver without a connection and shipped to the tasks."""

    def __init__(self, options: Mapping[str, Any], schema: T.StructType) -> None:
        self.options: SinkOptions = parse_sink(options)
        header = self.options.dedupe_header
        self._rows = Rows(schema, self.options.destination, None if header in ("none", "auto") else header)
        # Not the application's id, for two writes of one application are two batches.
        self._job = self.options.id_prefix or uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> Sent:
        """Send the rows of a task, where it runs; a row that was not accepted is a SinkError of one line."""
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        try:
            return Sent(partition, self._write(iterator, f"{self._ids(context)}-{partition}-"))
        except StompError as error:
            # Without its cause, which Spark would show with a long traceback.
            raise SinkError(f"partition {partition}: {_one_line(error, self.options.transaction)}") from None

    def _write(self, batches: Iterator[Any], ids: str) -> int:
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return 0
        options = self.options
        with self._connect() as client:
            dialect = BROKERS[client.dialect]
            rows = self._rows if options.dedupe_header != "auto" else self._rows.with_ids(dialect.duplicate)
            target = Target(client.version or "1.2", text=dialect.jms)
            every = options.receipt_every
            if not options.transaction:
                return client.send_many(_blocks(rows, target, first, batches, ids, every), receipt_every=every)
            with client.transaction() as transaction:
                target = target._replace(lines=f"transaction:{transaction.id}\n")
                blocks = _blocks(rows, target, first, batches, ids, every)
                return client.send_many(blocks, receipt_every=every, transaction=transaction)

    def _connect(self) -> Client:
        options = self.options
        return connect(
            list(options.link.addresses),
            startup_timeout=options.reconnect_timeout,
            receipt_timeout=options.receipt_timeout,
            versions=("1.1", "1.2"),  # 1.0 has no escapes, which many values need
            reconnect=None,  # frames in flight are in doubt then: the task must run again
            **options.link.arguments(),
        )

    def _ids(self, context: Any) -> str:
        """Return the prefix of the ids of this query and micro-batch."""
        if context is None:
            return self._job
        query = self.options.id_prefix or context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        return self._job if batch is None else f"{query or self._job}-{batch}"


class StompWriter(_Sink, DataSourceArrowWriter):
    """Writer of `df.write`."""


class StompStreamWriter(_Sink, DataSourceStreamArrowWriter):
    """Writer of `df.writeStream`."""


def _blocks(rows: Rows, target: Target, first: Any, batches: Iterator[Any], ids: str, every: int) -> Iterator[Block]:
    number = 0
    for batch in itertools.chain([first], batches):
        if batch.num_rows:
            yield from rows.blocks(batch, target, number, ids, every or _MOST)
            number += batch.num_rows


def _one_line(error: StompError, transaction: bool) -> str:
    """Return an error as one line, with the rows that took effect. `send_many` counts messages as rows are counted."""
    text = " ".join(str(error).split())
    if transaction and getattr(error, "sent", False):  # the COMMIT was sent
        return text
    if transaction:
        return f"{text}; no row of the task took effect"
    if isinstance(error, SendManyError):
        return f"{text}; {error.accepted} rows were accepted before"
    return text


# ---- header lines of many frames at once, escaped and checked as `serialize` does it ----
_TEXT = "content-type:text/plain;charset=utf-8\n"
#: The backslash comes first, for the other escapes add some.
_ESCAPES = (("\\", "\\\\"), (":", "\\c"), ("\n", "\\n"), ("\r", "\\r"))


class Target(NamedTuple):
    """Properties of the connection that frames are written for."""

    version: str
    """"1.2" or "1.1"; both have escapes."""
    text: bool = False
    """True to send text without content-length, for JMS brokers take a message with it as a bytes message."""
    lines: str = ""
    """Header lines that come first in all frames, such as that of the transaction."""


def escaped(text: str, version: str) -> str:
    """Return text escaped as part of a header line."""
    for octet, escape in _escapes(version):
        text = text.replace(octet, escape)
    return text


def _escapes(version: str) -> tuple[tuple[str, str], ...]:
    return _ESCAPES if version == "1.2" else _ESCAPES[:3]


class Line:
    """Builder of text for each row, from parts that are the same for all rows and arrays."""

    def __init__(self, target: Target, first: int) -> None:
        self._target = target
        self._first = first
        self._parts: list[Any] = []

    def add(self, *parts: Any) -> None:
        """Append texts, and arrays of strings without nulls."""
        for part in parts:
            if isinstance(part, str) and self._parts and isinstance(self._parts[-1], str):
                self._parts[-1] += part
            else:
                self._parts.append(part)

    def header(self, name: str, values: Any) -> None:
        """Append a header to the rows whose value is not null."""
        name = escaped(name, self._target.version)
        if values.null_count == 0:
            self.add(f"{name}:", values, "\n")
        elif values.null_count < len(values):
            self.add(pc.binary_join_element_wise(f"{name}:", values, "\n", "").fill_null(""))

    def joined(self) -> Any:
        """Return everything as one array, or as a scalar if all rows are the same."""
        if len(self._parts) == 1 and isinstance(self._parts[0], str):
            return pa.scalar(self._parts[0])
        return pc.binary_join_element_wise(*self._parts, "")

    # ---- values ----
    def text(self, column: Any) -> Any:
        """Return the values of a column as they are written."""
        kind = column.type
        if pa.types.is_timestamp(kind):
            return column.cast(pa.timestamp("ms", kind.tz), safe=False).cast(pa.int64()).cast(pa.string())
        if pa.types.is_decimal(kind):  # without an exponent
            texts = [None if value is None else format(value, "f") for value in column.to_pylist()]
            return pa.array(texts, pa.string())
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return self.check(column, header=True)
        return column.cast(pa.string())

    def check(self, column: Any, header: bool = False) -> Any:
        """Return strings, escaped if `header`; raise SinkError for one that is not UTF-8, or a header with a NUL."""
        column = column.cast(pa.string())
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            self._refuse(column, "is not UTF-8")
        if not header:
            return column
        octets = _octets(column)
        if b"\0" in octets:
            self._refuse(column, "holds a NUL")
        for octet, escape in _escapes(self._target.version):
            if octet.encode() in octets:
                column = pc.replace_substring(column, octet, escape)
        return column

    def _refuse(self, column: Any, why: str) -> None:
        """Raise an error that names the first bad row. Bytes under a null, or outside the slice, do not count."""
        for row, value in enumerate(column.cast(pa.binary()).to_pylist()):
            if value is not None and (b"\0" in value if why == "holds a NUL" else not _is_utf8(value)):
                raise SinkError(f"row {self._first + row}: a header or text body {why}")

    def maps(self, column: Any, without: set[str] | frozenset[str]) -> Any:
        offsets, keys, values = column.offsets, column.keys, column.items
        start, stop = offsets[0].as_py(), offsets[-1].as_py()
        keys, values = keys.slice(start, stop - start), values.slice(start, stop - start)
        wanted = pc.and_(pc.invert(pc.is_in(keys, pa.array(sorted(without), keys.type))), values.is_valid())
        pairs = Line(self._target, self._first)
        lines = pc.binary_join_element_wise(pairs._of_map(keys), ":", pairs._of_map(values), "\n", "")
        lines = pc.if_else(wanted, lines, "").fill_null("")
        lists = pa.ListArray.from_arrays(pc.subtract(offsets, start).cast(pa.int32()), lines)
        joined = pc.binary_join(lists, "")
        return joined if column.null_count == 0 else pc.if_else(column.is_valid(), joined, "")

    def _of_map(self, column: Any) -> Any:
        try:
            return self.check(column, header=True)
        except SinkError as error:
            raise SinkError(f"column headers: {str(error).partition(': a header or text body ')[2]}") from None

    # ---- headers for the body ----
    def content_type(self, may_have: bool) -> None:
        """Append the content-type of text, unless a map has its own."""
        if not may_have:
            self.add(_TEXT)
            return
        head = self.joined()
        self._parts = [head, pc.if_else(pc.match_substring(head, "\ncontent-type:"), "", _TEXT)]

    def content_length(self, body: Any, text: bool) -> None:
        """Append the length of the body; with `text` only if the body contains a NUL."""
        if text and b"\0" not in _octets(body):
            return
        lengths = pc.binary_length(body).cast(pa.string())
        if not text:
            self.add("content-length:", lengths, "\n")
            return
        lines = pc.binary_join_element_wise("content-length:", lengths, "\n", "")
        self.add(pc.if_else(pc.match_substring(body, b"\0"), lines, ""))


def _octets(column: Any) -> bytes:
    """Return the concatenated bytes of an array of string or binary."""
    _, offsets, data = column.buffers()
    if data is None or not len(column):
        return b""
    ends = memoryview(offsets).cast("i")
    return bytes(memoryview(data)[ends[column.offset] : ends[column.offset + len(column)]])


def _is_utf8(octets: bytes) -> bool:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True
