"""Rows to frames, without Spark: what Arrow joins is what `serialize` would write, one frame after the other."""

import datetime
import inspect
import pickle
from decimal import Decimal

import pytest

pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")

from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from stompcodec import Frame, parse, serialize
from stompcodec.client.shell import BLOCK
from stompcodec.spark import sink as sink_rows
from stompcodec.spark.base import SinkError
from stompcodec.spark.reading.schema import SchemaError, frame_schema
from stompcodec.spark.sink import Rows, Target

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
NAMES = TEXT.filter(lambda name: name not in ("", "content_type", *sink_rows._TAKEN, "destination", "body", "headers"))
MAPS = st.none() | st.dictionaries(TEXT.filter(bool), st.none() | TEXT, max_size=3)
UTC = datetime.timezone.utc
ZONE = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}  # since 4.3
V12 = Target("1.2")
OF_FRAME = {"subscription", "message-id", "ack", "redelivered", "receipt", "transaction", "content-length"}


def schema_of(**columns):
    return T.StructType([T.StructField(name.replace("__", "-"), kind) for name, kind in columns.items()])


def batch_of(schema, rows):
    arrow = to_arrow_schema(schema, **ZONE)
    return pa.record_batch([pa.array(column, field.type) for column, field in zip(zip(*rows), arrow)], schema=arrow)


def sent(schema, rows, target=V12, destination=None, **options):
    made = Rows(schema, destination, options.pop("id_header", None)).frames(batch_of(schema, rows), target, **options)
    return parse(b"".join(made.to_pylist()), target.version)


def headers_of(kind, *values):
    """How the values of a column are written; None where there is no header."""
    schema = schema_of(destination=T.StringType(), body=T.BinaryType(), x=kind)
    return [frame.get("x") for frame in sent(schema, [("d", b"", value) for value in values])]


@st.composite
def tables(draw):
    """A schema and rows of it: text or octets, with columns and a map or without."""
    names = draw(st.lists(NAMES, max_size=3, unique_by=str.lower))
    text, has_map = draw(st.booleans()), draw(st.booleans())
    fields = [("destination", T.StringType(), TEXT), ("body", T.StringType() if text else T.BinaryType(), None)]
    fields[1] = (*fields[1][:2], st.text(st.characters(exclude_categories=["Cs"]), max_size=9) if text else st.binary())
    fields += [(name, T.StringType(), st.none() | TEXT) for name in names]
    if has_map:
        fields.append(("headers", T.MapType(T.StringType(), T.StringType()), MAPS))
    fields = draw(st.permutations(fields))
    schema = T.StructType([T.StructField(name, kind) for name, kind, _ in fields])
    rows = draw(st.lists(st.tuples(*[values for _, _, values in fields]), min_size=1, max_size=6))
    return schema, rows


def by_hand(schema, row, version, jms):
    """The octets of one row, as a simple program would make them."""
    given = dict(zip(schema.fieldNames(), row))
    destination, body, more = given.pop("destination"), given.pop("body"), given.pop("headers", None) or {}
    pairs = [("destination", destination), *[(name, value) for name, value in given.items() if value is not None]]
    mine = {*given, *OF_FRAME, "destination"}
    pairs += [(name, value) for name, value in more.items() if name not in mine and value is not None]
    text = isinstance(body, str)
    if text and not any(name == "content-type" for name, _ in pairs):
        pairs.append(("content-type", "text/plain;charset=utf-8"))
    octets = body.encode() if text else body
    never = text and jms and b"\0" not in octets
    return serialize(Frame("SEND", pairs, octets), version, content_length="never" if never else "always")


@settings(max_examples=examples(250))
@given(tables(), st.sampled_from(["1.1", "1.2"]), st.booleans(), st.integers(0, 2))
def test_the_octets_are_those_of_serialize(table, version, jms, offset):
    schema, rows = table
    batch = batch_of(schema, [*rows[:1] * offset, *rows]).slice(offset)  # a slice has its octets elsewhere
    made = Rows(schema, None, None).frames(batch, Target(version, jms))
    assert made.to_pylist() == [by_hand(schema, row, version, jms) for row in rows]


def test_values_are_spelled_as_stomp_users_do():
    assert headers_of(T.BooleanType(), True, False, None) == ["true", "false", None]
    assert headers_of(T.LongType(), -(2**63), 0, 7) == [str(-(2**63)), "0", "7"]
    assert headers_of(T.ByteType(), -1, 9) == ["-1", "9"]
    assert headers_of(T.DoubleType(), 0.1, -2.5) == ["0.1", "-2.5"]
    assert headers_of(T.DecimalType(20, 10), Decimal("0.0000000001"), Decimal("1.5"), None)[::2] == [
        "0.0000000001",
        None,
    ]
    assert headers_of(T.DateType(), datetime.date(2024, 1, 31)) == ["2024-01-31"]
    moment = datetime.datetime(2023, 11, 14, 22, 13, 20, 123_999, tzinfo=UTC)
    assert headers_of(T.TimestampType(), moment, None) == ["1700000000123", None]
    assert headers_of(T.TimestampNTZType(), moment.replace(tzinfo=None)) == ["1700000000123"]
    assert headers_of(T.StringType(), "", "a:b\\\n\r", "ß") == ["", "a:b\\\n\r", "ß"]


def test_a_column_wins_over_the_map_and_the_sink_over_both():
    kind = T.MapType(T.StringType(), T.StringType())
    schema = schema_of(destination=T.StringType(), body=T.BinaryType(), priority=T.IntegerType(), headers=kind)
    more = {"priority": "9", "destination": "elsewhere", "content-length": "77", "receipt": "r", "x": "y", "id": "no"}
    (frame,) = sent(schema, [("d", b"abc", 4, more)], id_header="id", ids="q-0-", first=7)
    assert frame.headers.pairs() == [
        ("destination", "d"),
        ("priority", "4"),
        ("id", "q-0-7"),
        ("x", "y"),
        ("content-length", "3"),
    ]


def test_a_destination_for_all_and_lines_that_come_first():
    schema = schema_of(body=T.BinaryType())
    frames = sent(schema, [(b"1",), (b"2",)], Target("1.2", lines="transaction:t1\n"), destination="/queue/a:b")
    assert [frame.headers.pairs()[:2] for frame in frames] == [
        [("transaction", "t1"), ("destination", "/queue/a:b")]
    ] * 2
    both = schema_of(destination=T.StringType(), body=T.BinaryType())
    assert sent(both, [("/queue/c", b"")], destination="/queue/a")[0].headers["destination"] == "/queue/c"


def test_frames_that_were_read_are_sent_without_what_tells_of_the_reading():
    schema = frame_schema()
    row = dict.fromkeys(schema.fieldNames())
    row.update(command="MESSAGE", destination="/topic/a", message_id="m1", content_type="a/b", body=b"{}", spool="/x")
    row.update(headers={"message-id": "m1", "subscription": "0", "destination": "/topic/a", "p": "4"}, pos=3, length=9)
    (frame,) = sent(schema, [tuple(row.values())])
    assert frame.headers.pairs() == [
        ("destination", "/topic/a"),
        ("content-type", "a/b"),
        ("p", "4"),
        ("content-length", "2"),
    ]
    own = schema_of(
        destination=T.StringType(), body=T.BinaryType(), length=T.IntegerType(), content_type=T.StringType()
    )
    (frame,) = sent(own, [("d", b"", 5, "x/y")])
    assert (frame.headers["length"], frame.headers["content-type"]) == ("5", "x/y")


# ---- blocks ----


def test_blocks_are_cut_between_frames(monkeypatch):
    schema = schema_of(destination=T.StringType(), body=T.BinaryType())
    sizes = [0, BLOCK // 2, BLOCK // 2, 10, 3 * BLOCK, 5, 5, 5, 5, 5]
    batch = batch_of(schema, [("d", bytes([number]) * size) for number, size in enumerate(sizes)])
    whole = b"".join(Rows(schema, None, "id").frames(batch, Target("1.2"), 100, "i").to_pylist())
    for at_once in (2**30, 1000):  # what is too much at once goes by halves
        monkeypatch.setattr(sink_rows, "_AT_ONCE", at_once)
        blocks = list(Rows(schema, None, "id").blocks(batch, Target("1.2"), 100, "i", 3))
        assert b"".join(block.body for block in blocks) == whole
        assert [frame.headers["id"] for block in blocks for frame in block.frames()] == [
            f"i{n}" for n in range(100, 110)
        ]
        for block in blocks:
            assert len(block.frames()) == block.count <= 3
            assert len(block.body) <= BLOCK or block.count == 1
            assert serialize(block.frames()[-1]) == block.body[block.last :]
        if at_once > 1000:
            assert [block.count for block in blocks] == [2, 2, 1, 3, 2]


# ---- what cannot be sent ----


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"body": T.BinaryType()}, "no column destination in body: add one, or set the option"),
        ({}, "no column destination in no columns at all"),
        ({"destination": T.StringType(), "x": T.LongType()}, "no column body in destination, x"),
        ({"destination": T.LongType(), "body": T.BinaryType()}, "column destination is bigint: it must be string"),
        ({"destination": T.StringType(), "body": T.LongType()}, "column body is bigint: it must be string or binary"),
        ({"headers": T.StringType()}, "column headers is string: it must be map"),
        ({"headers": T.MapType(T.StringType(), T.LongType())}, "column headers is map<string,bigint>: it must be"),
        ({"x": T.ArrayType(T.StringType())}, "column x: array<string> cannot become a header"),
        ({"x": T.BinaryType()}, "column x: binary cannot become a header: cast it to string"),
        ({"content__length": T.LongType()}, "column content-length: the sink writes that header itself"),
        ({"receipt": T.StringType()}, "column receipt: the sink writes"),
        ({"Body": T.StringType()}, "2 columns are called body"),
        ({"x\0": T.StringType()}, r"a column is named 'x\\x00'"),
        ({"id": T.StringType()}, "column id is the header of option dedupeHeader"),
    ],
)
def test_columns_that_cannot_be_sent(columns, says):
    if not {"destination", "body"} & set(columns) and columns:
        columns = {"destination": T.StringType(), "body": T.StringType(), **columns}
    if "Body" in columns:
        columns["body"] = T.StringType()
        columns["destination"] = T.StringType()
    with pytest.raises(SchemaError, match=says) as error:
        Rows(schema_of(**columns), None, "id")
    assert "\n" not in str(error.value)


KINDS = {"destination": T.StringType(), "body": T.StringType(), "x": T.StringType()}
MAP = T.MapType(T.StringType(), T.StringType())


def as_text(array):
    """Octets as strings, whatever they are; Spark does not look."""
    return pa.Array.from_buffers(pa.string(), len(array), array.buffers(), array.null_count)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ((None, "b", "x", {}), "row 42 has no destination: it is null"),
        (("d", None, "x", {}), "row 42 has no body: it is null"),
        (("d", "b", "x\0y", {}), "row 42: a header or text body holds a NUL"),
        (("d\0", "b", "x", {}), "row 42: a header or text body holds a NUL"),
        (("d", "b", b"x\xff", {}), "row 42: a header or text body is not UTF-8"),
        (("d", b"\xff", "x", {}), "row 42: a header or text body is not UTF-8"),
        (("d", "b", "x", {"k": "\0"}), "column headers: holds a NUL"),
        (("d", "b", "x", {b"\xff": "v"}), "column headers: is not UTF-8"),
    ],
)
def test_rows_that_cannot_be_sent(row, says):
    schema = schema_of(**KINDS, headers=MAP)
    good = ("d", "b", None, {"a": "b"})
    *columns, maps = zip(good, good, row, good)
    entries = pa.array([list(each.items()) for each in maps], pa.map_(pa.binary(), pa.string()))
    maps = pa.MapArray.from_arrays(entries.offsets, as_text(entries.keys), entries.items)
    columns = [[each.encode() if isinstance(each, str) else each for each in column] for column in columns]
    columns = [as_text(pa.array(column, pa.binary())) for column in columns]
    batch = pa.record_batch([*columns, maps], names=[*KINDS, "headers"])
    with pytest.raises(SinkError) as error:
        Rows(schema, None, None).frames(batch, Target("1.2"), first=40)
    assert str(error.value) == says


def test_it_can_be_pickled():
    schema = schema_of(destination=T.StringType(), body=T.BinaryType())
    rows = pickle.loads(pickle.dumps(Rows(schema, None, "id")))
    assert rows.frames(batch_of(schema, [("d", b"b")]), Target("1.2"), 3, "i").to_pylist() == [
        b"SEND\ndestination:d\nid:i3\ncontent-length:1\n\nb\0"
    ]
