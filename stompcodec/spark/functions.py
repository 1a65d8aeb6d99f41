"""Frames in columns of other sources, such as Kafka or files: `from_stomp` parses them, `to_stomp` makes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from stompcodec.arguments import checked
from stompcodec.codec import Frame, parse_columns, serialize
from stompcodec.errors import FrameError
from stompcodec.spark.base import SinkError
from stompcodec.spark.options import ALL, FileOptions, OptionError, parse_file
from stompcodec.spark.reading.schema import (
    FRAME_SCHEMA,
    MalformedError,
    Projection,
    Projector,
    Raw,
    SchemaError,
    error_text,
)
from stompcodec.spec import VERSIONS

#: Columns that tell where a frame was found, which values do not have.
_PLACES = ("spool", "pos", "received_at")
_MILLISECOND = timedelta(milliseconds=1)
#: Most bytes of a malformed value that its struct shows.
_SHOWN = 2**20
#: Order of the parser's columns.
_ORDER = ("command", "headers", "body", "offset", "length")
#: Fields of a struct that are headers of another name, and fields that are not headers.
_NAMES = {"message_id": "message-id", "content_type": "content-type", "sent_at": "timestamp"}
_NO_HEADERS = frozenset(["command", "headers", "body", "text", "error", "length", *_PLACES])
#: Fields that `from_stomp` converts from a header; a map, if there is one, has the original text.
_MADE = frozenset(["redelivered", "sent_at"])


@checked
def from_stomp(
    frame: Column | str,
    schema: T.StructType | str | None = None,
    *,
    version: str = "1.2",
    mode: str = "PERMISSIVE",
    decode: str = "none",
    max_body: int | str = "100m",
) -> Column:
    """Return a column of structs, each the frame in a value.

    Its fields are the columns of "stompfile" that do not tell of a file: `command`, `destination`, `message_id`,
    `subscription`, `ack`, `content_type`, `sent_at`, `redelivered`, `headers`, `body`, `length` and `error`. A value
    that is not exactly one frame is malformed. EOLs around a frame are heart-beats and ignored; a null, or a value of
    EOLs alone, gives null.

    Args:
        frame: binary column.
        schema: fields to return; a name that is not a column of frames is a header. None for all.
        version: STOMP version of the frames.
        mode: PERMISSIVE turns a malformed value into a struct with `error`, and its bytes in `body`; DROPMALFORMED into
            null; FAILFAST raises.
        decode: as the option of the source: none, gzip or auto.
        max_body: largest body in bytes; a frame with a larger one is malformed.

    Raises:
        SchemaError: a field is impossible.
        OptionError: another argument is invalid.

    >>> kafka = spark.readStream.format("kafka").options(...).load()               # doctest: +SKIP
    >>> frames = kafka.select(from_stomp("value").alias("f")).select("f.*")        # doctest: +SKIP
    """
    given = {"mode": mode, "decode": decode, "maxBody": max_body, "commands": ",".join(ALL)}
    options = parse_file(given)
    if version not in VERSIONS:
        raise OptionError(f"version is {version!r:.80}: it must be one of {', '.join(VERSIONS)}")
    kind = _fields(schema)
    reader = _Values(Projection(kind, options.decode), options, version)

    def each(values: pa.Array) -> pa.Array:
        return reader(values)

    def one(value: Any) -> Any:
        return _plain(each(pa.array([value], pa.binary()))[0].as_py())

    arrow_udf = getattr(F, "arrow_udf", None)  # new in PySpark 4.1: 4.0 gives single values
    made: Column = F.udf(one, kind, useArrow=False)(frame) if arrow_udf is None else arrow_udf(each, kind)(frame)
    return made


def _fields(schema: T.StructType | str | None) -> T.StructType:
    if schema is None:
        left_out = {*_PLACES, "text"}
        return T.StructType([field for field in FRAME_SCHEMA.fields if field.name not in left_out])
    kind = T.StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(kind, T.StructType):
        raise SchemaError(f"schema is {schema!r:.80}: it must name fields, as in destination string, body binary")
    for field in kind.fields:
        if field.name.lower() in _PLACES:
            raise SchemaError(f"column {field.name}: a value does not tell where a frame was found: leave it out")
        if not field.nullable:
            raise SchemaError(f"column {field.name} is NOT NULL: malformed values are null there: make it nullable")
    return kind


def _plain(value: Any) -> Any:
    """Return a struct as PySpark takes it: Arrow gives maps as pairs."""
    if value is None:
        return None
    return {name: dict(each) if name == "headers" and each is not None else each for name, each in value.items()}


class _Values:
    """Parser of frames in values. Small and picklable."""

    def __init__(self, projection: Projection, options: FileOptions, version: str) -> None:
        self._projection = projection
        self._options = options
        self._version = version

    def __call__(self, values: Any) -> Any:
        options = replace(
            self._options, mode="PERMISSIVE"
        )  # this class drops malformed rows itself, so that rows stay aligned
        projector = Projector(self._projection, options, "", 0, lambda places: places * 0)
        schema = projector.schema
        there = values.drop_null()
        parts = list(self._parts(there, 0, projector.raw))
        raws = [raw for _, raw in parts]
        if not raws:
            return pa.nulls(len(values), pa.struct(list(schema)))
        merged = pa.Table.from_batches(raws).combine_chunks().to_batches()
        rows = pa.Table.from_batches([batch for raw in merged for batch in projector.batches(raw)], schema=schema)
        arrays = [column.combine_chunks() for column in rows.columns]
        arrays = [array.chunk(0) if isinstance(array, pa.ChunkedArray) else array for array in arrays]
        structs = pa.StructArray.from_arrays(arrays, fields=list(schema))
        numbers = (number for first, raw in parts for number in range(first, first + raw.num_rows))
        row_of = {number: row for row, number in enumerate(numbers)}
        valid = [number for number, is_there in enumerate(values.is_valid().to_pylist()) if is_there]
        taken: list[int | None] = [None] * len(values)
        for number, place in enumerate(valid):
            taken[place] = row_of.get(number)
        return structs.take(pa.array(taken, pa.int64()))

    def _parts(self, values: Any, first: int, raw: Raw) -> Iterator[tuple[int, Any]]:
        """Yield raw batches of values, parsed together if each holds one frame, and the number of its first value."""
        rules: dict[str, Any] = {
            "names": raw.names,
            "columns": tuple(dict.fromkeys((*raw.columns, "offset", "length"))),
            "repeats": False,
            "limits": self._options.limits,
        }
        order = [name for name in _ORDER if name in rules["columns"]]
        todo = [(first, values)] if len(values) else []
        while todo:
            first, values = todo.pop()
            octets, ends = _buffer(values)
            columns: Any = parse_columns(octets, self._version, **rules) if len(octets) else None
            if columns is not None and columns.error is None and columns.rows == len(values):
                batch = pa.record_batch(columns)
                starts = batch.column("offset").to_numpy()
                inside = (starts >= ends[:-1]) & (starts + batch.column("length").to_numpy() <= ends[1:])
                if inside.all() and not bytes(octets[columns.consumed :][:_SHOWN]).strip(b"\r\n"):
                    for name in ("length", "offset"):  # from the back
                        if name not in raw.columns:
                            batch = batch.remove_column(order.index(name))
                    yield first, raw.frames(batch, 0)
                    continue
            if len(values) > 1:
                half = len(values) // 2
                todo += [(first + half, values.slice(half)), (first, values.slice(0, half))]
                continue
            error = None if columns is None else self._error(columns, octets)
            if error is None or self._options.mode == "DROPMALFORMED":
                continue
            if self._options.mode == "FAILFAST":
                raise MalformedError(f"a value: {error} (mode is FAILFAST: PERMISSIVE gives such values as rows)")
            shown = bytes(octets[:_SHOWN])
            yield first, raw.errors([{"offset": 0, "length": len(octets), "body": shown, "error": error}])

    def _error(self, columns: Any, octets: memoryview) -> str | None:
        """Return the problem of a value; None if it is one frame or none."""
        if columns.error:
            noticed = pa.record_batch(columns).column("length")[columns.rows - 1].as_py()
            return error_text(columns.error, columns.consumed + int(noticed))
        if bytes(octets[columns.consumed : columns.consumed + _SHOWN]).strip(b"\r\n"):
            return error_text("truncated", columns.consumed)
        if columns.rows > 1:
            return f"several-frames: the value holds {columns.rows} frames, where there has to be one"
        return None


def _buffer(values: Any) -> tuple[memoryview, Any]:
    """Return the bytes of binary values, concatenated, with the start of each and the end of the last."""
    values = values.cast(pa.large_binary())
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    if data is None:
        return memoryview(b""), ends - ends[0]
    return memoryview(data).cast("B")[int(ends[0]) : int(ends[-1])], ends - ends[0]


@checked
def to_stomp(frame: Column | str, *, version: str = "1.2") -> Column:
    """Return a column of frames, as bytes, made from a column of structs.

    `command` is the command (default SEND), `body` the body as string or binary, and `headers` a map of headers. Any
    other field is the header of its name, which overrides the map; null omits it. So a result of `from_stomp` becomes
    the frame again, with changed fields. Fields that only tell of reading (`error`, `length`, `text`, `spool`, `pos`
    and `received_at`) are ignored.

    A null gives null, and so does a struct with an `error`.

    Args:
        frame: column of structs.
        version: STOMP version to write.

    Raises:
        OptionError: the version is unknown.
        SinkError: raised in a task: a struct cannot become a frame.

    >>> rows.select(to_stomp(F.struct("destination", "body")).alias("value"))      # doctest: +SKIP
    """
    if version not in VERSIONS:
        raise OptionError(f"version is {version!r:.80}: it must be one of {', '.join(VERSIONS)}")

    def each(structs: pa.Array) -> pa.Array:
        if isinstance(structs, pa.Array) and not pa.types.is_struct(structs.type):
            if structs.null_count == len(structs):
                return pa.nulls(len(structs), pa.binary())
            raise _no_struct(structs.type)
        return pa.array([_octets(value, version) for value in structs.to_pylist()], pa.binary())

    def one(struct: Any, kind: str) -> bytes | None:
        if struct is not None and not kind.startswith("struct<"):
            raise _no_struct(kind)
        return None if struct is None else _octets(_moments(struct, kind), version)

    arrow_udf = getattr(F, "arrow_udf", None)
    made: Column = (
        F.udf(one, T.BinaryType(), useArrow=False)(frame, F.typeof(frame))
        if arrow_udf is None
        else arrow_udf(each, T.BinaryType())(frame)
    )
    return made


def _no_struct(kind: object) -> SinkError:
    return SinkError(f"to_stomp was given {kind}: it takes structs, as in to_stomp(F.struct(...))")


def _moments(row: Any, kind: str) -> dict[str, Any]:
    """Return a row of PySpark 4.0, where times are naive, as Arrow would give it, by its type as text."""
    made: dict[str, Any] = row.asDict()
    rest = kind.removeprefix("struct<")
    for name in row.__fields__:
        quoted = f"`{name.replace('`', '``')}`"
        rest = rest.removeprefix(quoted if rest.startswith(quoted) else name)
        value = made[name]
        if isinstance(value, datetime) and re.match(r":timestamp[,>]", rest):
            made[name] = value.astimezone(timezone.utc)
        depth = 0
        for place, sign in enumerate(rest):
            depth += (sign in "(<") - (sign in ")>")
            if depth == 0 and sign == ",":
                rest = rest[place + 1 :]
                break
    return made


def _octets(struct: dict[str, Any] | None, version: str) -> bytes | None:
    """Return the frame of a struct; None for null and for a malformed one."""
    if struct is None or struct.get("error") is not None:
        return None
    given = struct.get("headers")
    body = struct.get("body")
    octets = body.encode() if isinstance(body, str) else bytes(body or b"")
    headers = {name: value for name, value in dict(given or {}).items() if value is not None}
    if headers.get("content-length") not in (None, str(len(octets))):
        del headers["content-length"]  # that of another body
    for field, value in struct.items():
        if field in _NO_HEADERS or value is None:
            continue
        name = _NAMES.get(field, field)
        if field in _MADE and (name in headers or value is False):
            continue
        headers[name] = _text(field, value)
    if isinstance(body, str):
        headers.setdefault("content-type", "text/plain;charset=utf-8")
    try:
        return serialize(Frame(struct.get("command") or "SEND", headers, octets), version)
    except (FrameError, ValueError, TypeError) as error:
        raise SinkError(f"to_stomp: {error!s:.300}") from None


def _text(field: str, value: Any) -> str:
    """Return a value as the sink writes it into a header."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
        return str((moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // _MILLISECOND)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, (int, float)):
        return str(value)
    raise SinkError(f"to_stomp: field {field}: {type(value).__name__} cannot become a header: cast it to string")
