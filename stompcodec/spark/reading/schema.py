"""The columns of frames: those that exist, those that a user's schema asks for, and record batches of them.

A column that is not in `FRAME_SCHEMA` is the header of its name; `a_b` stands for `a-b` if the frame has no header
`a_b`. Its value is cast to the type of the column as Arrow casts text, with two additions: a timestamp or date may be
milliseconds since 1970, as brokers write them, and surrounding spaces are ignored.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from stompcodec.content import decode_content, encoding_of, text_of
from stompcodec.errors import ERROR_KINDS, FrameError, StompError
from stompcodec.spark.options import FileOptions

#: All columns of frames. Without a user's schema a table has all of them but `text`.
FRAME_SCHEMA = T.StructType(
    [
        T.StructField("command", T.StringType()),
        T.StructField("destination", T.StringType()),
        T.StructField("message_id", T.StringType()),
        T.StructField("subscription", T.StringType()),
        T.StructField("ack", T.StringType()),
        T.StructField("content_type", T.StringType()),
        T.StructField("received_at", T.TimestampType()),
        T.StructField("sent_at", T.TimestampType()),
        T.StructField("redelivered", T.BooleanType()),
        T.StructField("headers", T.MapType(T.StringType(), T.StringType())),
        T.StructField("body", T.BinaryType()),
        T.StructField("text", T.StringType()),
        T.StructField("spool", T.StringType()),
        T.StructField("pos", T.LongType()),
        T.StructField("length", T.IntegerType()),
        T.StructField("error", T.StringType()),
    ]
)
_TYPES = {field.name: field.dataType for field in FRAME_SCHEMA.fields}
#: Columns that hold a header, and its name.
_HEADERS = {
    "destination": "destination",
    "message_id": "message-id",
    "subscription": "subscription",
    "ack": "ack",
    "content_type": "content-type",
    "sent_at": "timestamp",
    "redelivered": "redelivered",
}
_STRUCT = ("command", "headers", "body", "offset", "length", "error")
#: Types that a header can be cast to.
_CASTS = (
    T.StringType, T.BinaryType, T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType,
    T.DoubleType, T.DecimalType, T.TimestampType, T.TimestampNTZType, T.DateType,
)  # fmt: skip


class SchemaError(StompError, ValueError):
    """Error for a schema that asks for something that frames do not have: one line that names the column."""


def frame_schema() -> T.StructType:
    """Return the columns of a table without a user's schema."""
    return T.StructType([field for field in FRAME_SCHEMA.fields if field.name != "text"])


class Column(NamedTuple):
    """A requested column and its source."""

    name: str
    """Name as the user writes it."""
    source: str
    """A column of `FRAME_SCHEMA`, or "header"."""
    headers: tuple[str, ...]
    """Headers to look up; the first one that a frame has counts."""
    is_text: bool
    """True if the values are the header's values, without a cast."""


class Projection:
    """Columns that a schema asks for, and what must be parsed for them. Raises SchemaError for an impossible one."""

    def __init__(self, schema: T.StructType, decode: str = "none") -> None:
        self.schema = schema
        self.decode = decode
        self.fields = tuple(_column(field) for field in schema.fields)
        sources = {column.source for column in self.fields}
        wanted = [name for column in self.fields for name in column.headers]
        if "text" in sources:
            wanted += ["content-type", "content-encoding"]
        elif "body" in sources and decode != "none":
            wanted += ["content-encoding"]
        self.names = tuple(dict.fromkeys(wanted))
        """Headers that are parsed into columns of their own."""
        needed = sources & {"command", "headers", "body", "length"}
        if "text" in sources:
            needed.add("body")
        if sources & {"pos", "received_at"}:
            needed.add("offset")
        self.columns = tuple(name for name in _STRUCT if name in needed)
        """Other columns that must be parsed."""
        self.timed = "received_at" in sources

    def arrow_schema(self) -> Any:
        """Return the schema of record batches exactly as Spark wants it."""
        if "timezone" in inspect.signature(to_arrow_schema).parameters:
            return to_arrow_schema(self.schema, timezone="UTC")
        return to_arrow_schema(self.schema)  # before PySpark 4.3


def _column(field: T.StructField) -> Column:
    name, kind = field.name.lower(), field.dataType
    if name not in _TYPES:
        if not isinstance(kind, _CASTS):
            raise SchemaError(
                f"column {field.name}: a header cannot become {kind.simpleString()}: ask for string, "
                "and parse that with from_json"
            )
        own = field.name
        names = (own, own.replace("_", "-")) if "_" in own else (own,)
        return Column(own, "header", names, isinstance(kind, T.StringType))
    headers = (_HEADERS[name],) if name in _HEADERS else ()
    usual = _TYPES[name]
    if type(kind) is type(usual):
        if name == "headers" and kind.simpleString() != usual.simpleString():
            raise SchemaError(f"column {field.name} is {usual.simpleString()}, and not {kind.simpleString()}")
        return Column(field.name, name, headers, bool(headers) and isinstance(kind, T.StringType))
    if isinstance(usual, T.StringType) and headers and isinstance(kind, _CASTS):
        return Column(field.name, "header", headers, False)
    if not _can_become(usual, kind):
        raise SchemaError(f"column {field.name} is {usual.simpleString()}, and cannot become {kind.simpleString()}")
    return Column(field.name, name, headers, False)


def _can_become(usual: T.DataType, kind: T.DataType) -> bool:
    """Return whether a column that is not a header can be read as another type."""
    if isinstance(usual, T.BinaryType):
        return isinstance(kind, T.StringType)
    if isinstance(usual, T.TimestampType):
        return isinstance(kind, (T.TimestampNTZType, T.LongType, T.DateType))
    if isinstance(usual, (T.LongType, T.IntegerType)):
        return isinstance(kind, (T.LongType, T.IntegerType, T.DoubleType))
    return False


# ---- parsed frames as these columns: times, casts, text, inflated bodies, and the problems of each row ----
_PARSED = {
    "command": pa.string(),
    "headers": pa.map_(pa.string(), pa.string()),
    "body": pa.binary(),
    "offset": pa.int64(),
    "length": pa.int32(),
}
#: Problems by row number.
Errors = dict[int, list[str]]
_GZIP = b"\x1f\x8b\x08"
#: Codings that `decode_content` knows. Bodies with others are passed on undecoded.
_CODINGS = frozenset(("identity", "gzip", "x-gzip", "deflate", "base64"))


class MalformedError(StompError, ValueError):
    """Error for a malformed frame with mode FAILFAST."""


def error_text(kind: str, offset: int) -> str:
    """Return the text of the column `error` for a malformed frame."""
    return f"{kind}: {ERROR_KINDS[kind].what}, at offset {offset}"


class Raw:
    """Layout of parsed frames before projection: keys of `_PARSED`, then headers, then the problem of the row."""

    def __init__(self, columns: tuple[str, ...], names: tuple[str, ...]) -> None:
        self.columns = columns
        self.names = names
        fields = [(f"#{name}", _PARSED[name]) for name in columns]
        self.schema = pa.schema([*fields, *((name, pa.string()) for name in names), ("#error", pa.string())])

    def frames(self, batch: Any, offset: int) -> Any:
        """Return rows made of a batch of `parse_columns`; `offset` is that of the parsed bytes."""
        arrays = [batch.column(index) for index in range(len(self.columns))]
        if "offset" in self.columns:
            place = self.columns.index("offset")
            arrays[place] = pc.add(arrays[place], offset)
        count = batch.num_columns - len(self.names)
        arrays += [batch.column(count + index) for index in range(len(self.names))]
        return pa.RecordBatch.from_arrays([*arrays, pa.nulls(batch.num_rows, pa.string())], schema=self.schema)

    def errors(self, rows: list[dict[str, Any]]) -> Any:
        """Return rows for problems, each given as `offset`, `length`, `body` and `error`."""
        given = [pa.array([row.get(name) for row in rows], _PARSED[name]) for name in self.columns]
        empty = [pa.nulls(len(rows), pa.string()) for _ in self.names]
        wrong = pa.array([row["error"] for row in rows], pa.string())
        return pa.RecordBatch.from_arrays([*given, *empty, wrong], schema=self.schema)


class Projector:
    """Maker of record batches for Spark. `base` is added to offsets, `times` returns the times of frames at offsets."""

    def __init__(
        self, projection: Projection, options: FileOptions, spool: str, base: int, times: Callable[[Any], Any]
    ) -> None:
        self._projection = projection
        self.options = options
        self._spool = spool
        self._base = base
        self._times = times
        self.schema = projection.arrow_schema()
        columns = {*projection.columns}
        if options.choice.is_timed or options.mode == "FAILFAST":
            columns.add("offset")
        self.raw = Raw(tuple(name for name in _PARSED if name in columns), projection.names)

    def batches(self, raw: Any) -> Iterator[Any]:
        """Yield the batches of a raw batch, several if bodies inflate a lot. Raises MalformedError as `mode` says."""
        self._fail_on(raw, raw["#error"])
        raw, times = self._in_range(raw)
        for start, part, bodies, contents, notes in self._inflated(raw):
            if part.num_rows:
                some = None if times is None else times[start : start + part.num_rows]
                yield from self._checked(part, *self._project(part, some, bodies, contents, notes))

    def _in_range(self, raw: Any) -> tuple[Any, Any]:
        """Return the rows received in the chosen time, and their times."""
        choice = self.options.choice
        if not (choice.is_timed or self._projection.timed):
            return raw, None
        times = self._times(raw["#offset"].to_numpy())
        if choice.is_timed:
            keep = times != 0
            if choice.since is not None:
                keep &= times >= choice.since
            if choice.until is not None:
                keep &= times < choice.until
            if not keep.all():
                return raw.filter(pa.array(keep)), times[keep]
        return raw, times

    # ---- bodies ----
    def _inflated(self, raw: Any) -> Iterator[tuple[int, Any, Any, Any, dict[int, str]]]:
        """Yield small parts of a batch: start, part, column `body`, bodies without coding, and problems by row."""
        bodies: Any = raw["#body"] if "body" in self.raw.columns else None
        rule = self.options.decode
        if rule == "none" and "text" in (column.source for column in self._projection.fields):
            rule = "named"
        if bodies is None or not self._any_coded(raw, rule):
            yield 0, raw, bodies, bodies, {}
            return
        codings, wrong = raw["content-encoding"].to_pylist(), raw["#error"].is_valid().to_pylist()
        start, size = 0, 0
        contents: list[bytes | None] = []
        notes: dict[int, str] = {}
        for row in range(raw.num_rows):
            body, note = bodies[row].as_py(), ""
            content = body
            if not wrong[row]:
                content, note = self._content(body, codings[row], rule)
            if size and size + len(content or b"") > self.options.batch_bytes:
                yield start, *self._part(raw.slice(start, row - start), contents, notes)
                start, size, contents, notes = row, 0, [], {}
            if note:
                notes[row - start] = note
            contents.append(content)
            size += len(content or b"")
        yield start, *self._part(raw.slice(start), contents, notes)

    def _part(self, part: Any, contents: list[bytes | None], notes: dict[int, str]) -> tuple[Any, Any, Any, Any]:
        inflated = pa.array(contents, pa.binary())
        bodies = part["#body"] if self.options.decode == "none" else pc.coalesce(inflated, part["#body"])
        return part, bodies, inflated, notes

    def _any_coded(self, raw: Any, rule: str) -> bool:
        if rule in ("none", "gzip"):
            return rule == "gzip"
        if raw["content-encoding"].null_count < raw.num_rows:
            return True
        return rule == "auto" and bool(pc.any(pc.starts_with(raw["#body"], _GZIP)).as_py())

    def _content(self, body: bytes, coding: str | None, rule: str) -> tuple[bytes | None, str]:
        """Return a body without its coding, None if that fails, and the problem."""
        if rule == "gzip":
            coding = "gzip"
        elif coding is None:
            coding = "gzip" if rule == "auto" and body.startswith(_GZIP) else "identity"
        elif not {part.strip().lower() for part in coding.split(",")} <= _CODINGS:
            return body, ""
        try:
            return decode_content(coding, body, max_size=max(self.options.max_body, len(body))), ""
        except FrameError as error:
            return None, f"{error.kind}: {error.detail or ERROR_KINDS[error.kind].what}"

    # ---- columns ----
    def _project(
        self, raw: Any, times: Any, bodies: Any, contents: Any, notes: dict[int, str]
    ) -> tuple[list[Any], Errors]:
        """Return the columns, and the problems found in their rows."""
        errors: Errors = {row: [note] for row, note in notes.items()}
        arrays: list[Any] = []
        for column, field in zip(self._projection.fields, self.schema):
            values: Any
            if column.source == "text":
                values, bad, why = *_texts(raw, contents), "is not what content-type says"
            else:
                values, bad, why = self._column(column, field.type, raw, times, bodies)
            for row in bad:
                errors.setdefault(row, []).append(f"bad-value: {column.name} {why}")
            arrays.append(values if values.type == field.type else values.cast(field.type))
        return arrays, errors

    def _column(self, column: Column, kind: Any, raw: Any, times: Any, bodies: Any) -> tuple[Any, list[int], str]:
        """Return the values, the rows with bad values, and what is wrong with them."""
        source = column.source
        if source == "header" or column.is_text:
            return *cast(_first(raw, column.headers), kind), f"is not {kind}"
        if source == "body":
            if pa.types.is_string(kind):
                return *utf8(bodies), "is not UTF-8"
            return bodies, [], ""
        return self._fixed(source, raw, times), [], ""

    def _fixed(self, source: str, raw: Any, times: Any) -> Any:
        """Return a column that never has bad values."""
        if source == "received_at":
            unknown = (times == 0) | (times < EARLIEST) | (times > LATEST)
            return pa.array(times, pa.int64(), mask=unknown).cast(pa.timestamp("us", "UTC"))
        if source == "sent_at":
            return milliseconds(raw["timestamp"])
        if source == "redelivered":
            is_frame = pc.is_null(raw["#error"])
            again = pc.fill_null(pc.equal(raw["redelivered"], "true"), False)
            return pc.if_else(is_frame, again, pa.scalar(None, pa.bool_()))
        if source == "spool":
            return pa.repeat(self._spool, raw.num_rows)
        if source == "pos":
            return pc.add(raw["#offset"], self._base)
        return raw[f"#{source}"]  # command, headers, length, error

    # ---- rows that are wrong ----
    def _fail_on(self, raw: Any, wrong: Any) -> None:
        if self.options.mode == "FAILFAST" and wrong.null_count < len(wrong):
            first = pc.index(wrong.is_valid(), True).as_py()
            text, offset = wrong[first].as_py(), self._base + raw["#offset"][first].as_py()
            text = text if ", at offset " in text else f"{text}, at offset {offset}"
            raise MalformedError(f"{self._spool}: {text} (mode is FAILFAST: PERMISSIVE gives such frames as rows)")

    def _checked(self, raw: Any, arrays: list[Any], errors: Errors) -> Iterator[Any]:
        """Yield the batch with its malformed rows treated as `mode` says."""
        wrong = raw["#error"]
        if errors:
            texts = [[text] if text else [] for text in wrong.to_pylist()]
            for row, more in errors.items():
                texts[row] += more
            wrong = pa.array(["; ".join(each) or None for each in texts], pa.string())
            self._fail_on(raw, wrong)
        for place, column in enumerate(self._projection.fields):
            if column.source == "error":
                arrays[place] = wrong
        for array, field in zip(arrays, self.schema):
            if not field.nullable and array.null_count:
                raise MalformedError(f"{self._spool}: column {field.name} is NOT NULL, and a row has no value there")
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema) if arrays else _empty(raw.num_rows)
        if self.options.mode == "DROPMALFORMED" and wrong.null_count < raw.num_rows:
            batch = batch.filter(pc.is_null(wrong))
        if batch.num_rows:
            yield batch


def _empty(rows: int) -> Any:
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))


def _first(raw: Any, names: tuple[str, ...]) -> Any:
    """Return the first of these headers that each frame has."""
    return raw[names[0]] if len(names) == 1 else pc.coalesce(*(raw[name] for name in names))


def _texts(raw: Any, contents: Any) -> tuple[Any, list[int]]:
    """Return bodies as text where they are text, and the rows where they should be but are not."""
    types, wrong = raw["content-type"], raw["#error"]
    if all(_is_utf8(each) for each in pc.unique(types).to_pylist()):
        texts, bad = utf8(contents)
        if not bad and not pc.any(pc.starts_with(contents, b"\xef\xbb\xbf")).as_py():
            return pc.if_else(pc.is_null(wrong), texts, pa.scalar(None, pa.string())), []
    rows = zip(contents.to_pylist(), types.to_pylist(), wrong.to_pylist())
    good = (None if content is None or error is not None else (content, kind) for content, kind, error in rows)
    return one_by_one(good, lambda row: _text(*row), pa.string())


def _is_own(content_type: str) -> bool:
    """Return whether a content type is text without naming a charset."""
    return content_type.partition(";")[0].strip().lower().endswith(("/json", "/xml", "+json", "+xml"))


def _is_utf8(content_type: str | None) -> bool:
    """Return whether a body of this content type is UTF-8 text if it is text at all."""
    if content_type is None:
        return True
    encoding = encoding_of(content_type)
    return encoding in ("utf-8", "utf8") or (encoding is None and _is_own(content_type))


class _Content:
    """Minimal message for `text_of`."""

    def __init__(self, body: bytes, content_type: str) -> None:
        self.body: bytes | None = body
        self._type = content_type

    def get(self, name: str, /) -> str | None:
        return self._type if name == "content-type" else None


def _text(body: bytes, content_type: str | None) -> str | None:
    """Return the text of a body; None if it is binary. Raises StompError if it should be text but is not."""
    if content_type is None:  # most JSON feeds name no type
        try:
            return body.decode()
        except UnicodeDecodeError:
            return None
    if encoding_of(content_type) is None and not _is_own(content_type):
        return None
    return text_of(_Content(body, content_type))


# ---- texts of headers as other types: what does not fit gives null, and is told by its row ----
#: Years 1 to 9999, in µs: Python and SQL cannot express others.
EARLIEST, LATEST = -62_135_596_800_000_000, 253_402_300_799_999_999
_DIGITS = r"^[+-]?[0-9]{1,18}$"


def cast(values: Any, kind: Any) -> tuple[Any, list[int]]:
    """Return an Arrow column of text cast to a type without nested ones, and the rows whose text does not fit."""
    if pa.types.is_string(kind):
        return values, []
    if pa.types.is_binary(kind):
        return values.cast(kind), []
    values = pc.utf8_trim_whitespace(values)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _moments(values, kind)
    try:
        return values.cast(kind), []
    except pa.ArrowException:
        return one_by_one(values, lambda value: value.cast(kind).as_py() if value.is_valid else None, kind)


def one_by_one(values: Iterable[Any], convert: Callable[[Any], Any], kind: Any) -> tuple[Any, list[int]]:
    """Convert each value alone, so that one bad value does not spoil the others; None stays None."""
    result, bad = [], []
    for row, value in enumerate(values):
        try:
            result.append(None if value is None else convert(value))
        except (pa.ArrowException, StompError, ValueError, OverflowError):
            result.append(None)
            bad.append(row)
    return pa.array(result, kind), bad


def _moments(values: Any, kind: Any) -> tuple[Any, list[int]]:
    """Cast times, written as milliseconds or as ISO 8601; without a zone they are UTC."""
    numbers = milliseconds(values)
    if numbers.null_count > values.null_count:
        others = pc.if_else(pc.is_valid(numbers), pa.scalar(None, pa.string()), values)
        numbers = pc.coalesce(numbers, _written(others))
    bad = pc.and_(pc.is_valid(values), pc.is_null(numbers))
    return numbers.cast(kind, safe=False), [row for row, wrong in enumerate(bad.to_pylist()) if wrong]


def _written(values: Any) -> Any:
    moments = []
    for text in values.to_pylist():
        moment = None
        for zone in (None, "UTC"):
            if text is not None and moment is None:
                try:
                    moment = pa.scalar(text).cast(pa.timestamp("us", zone)).value
                except pa.ArrowException:
                    continue
        moments.append(moment if moment is not None and EARLIEST <= moment <= LATEST else None)
    return pa.array(moments, pa.int64()).cast(pa.timestamp("us", "UTC"))


def milliseconds(values: Any) -> Any:
    """Return times written as digits, in ms since 1970; null for everything else."""
    try:
        numbers = values.cast(pa.int64())
    except pa.ArrowException:
        fits = pc.match_substring_regex(values, _DIGITS)
        numbers = pc.if_else(fits, values, pa.scalar(None, pa.string())).cast(pa.int64())
    sane = pc.and_(pc.greater_equal(numbers, EARLIEST // 1000), pc.less_equal(numbers, LATEST // 1000))
    numbers = pc.if_else(sane, numbers, pa.scalar(None, pa.int64()))
    return pc.multiply(numbers, 1000).cast(pa.timestamp("us", "UTC"))


def utf8(bodies: Any) -> tuple[Any, list[int]]:
    """Return bytes as text, and the rows that are not UTF-8."""
    try:
        return bodies.cast(pa.string()), []
    except pa.ArrowException:
        return one_by_one(bodies.to_pylist(), bytes.decode, pa.string())
