"""The columns of frames: those that exist, and those that a user's schema asks for.

A column that is not in `FRAME_SCHEMA` is the header of its name; `a_b` stands for `a-b` if the frame has no header
`a_b`. Its value is cast to the type of the column as Arrow casts text, with two additions: a timestamp or date may be
milliseconds since 1970, as brokers write them, and surrounding spaces are ignored.
"""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from stompcodec.errors import StompError

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
    """Error for a schema that asks for something that frames do not have: one line that names the column.

    >>> issubclass(SchemaError, ValueError)
    True
    """


def frame_schema(headers: bool = True) -> T.StructType:
    """Return the columns of a table without a user's schema.

    >>> "text" in frame_schema().fieldNames(), "headers" in frame_schema(headers=False).fieldNames()
    (False, False)
    """
    left_out = {"text"} if headers else {"text", "headers"}
    return T.StructType([field for field in FRAME_SCHEMA.fields if field.name not in left_out])


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
    """The columns that a schema asks for, and what must be parsed for them. Small and picklable.

    Raises SchemaError if the schema asks for an impossible column.

    >>> asked = T.StructType([T.StructField("destination", T.StringType()), T.StructField("priority", T.IntegerType())])
    >>> Projection(asked).names, Projection(asked).columns
    (('destination', 'priority'), ())
    """

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
