"""Rows to frames, without Spark: what Arrow joins is what `serialize` would write, one frame after the other."""

import datetime
import inspect
import pickle
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

pytest.importorskip("pyspark")

from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema
from spark.making import pa

from stompcodec import Frame, parse, serialize
from stompcodec.client.shell import BLOCK
from stompcodec.spark import sink as sink_rows
from stompcodec.spark.base import SinkError
from stompcodec.spark.reading.schema import SchemaError, frame_schema
from stompcodec.spark.sink import Rows, Target

WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
NAMES = WORDS.filter(lambda name: name not in ("", "content_type", *sink_rows._TAKEN, "destination", "body", "headers"))
MAPS = st.none() | st.dictionaries(WORDS.filter(bool), st.none() | WORDS, max_size=3)
ZONE = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}  # since 4.3
V12 = Target("1.2")
OF_FRAME = {"subscription", "message-id", "ack", "redelivered", "receipt", "transaction", "content-length"}
TEXT, OCTETS, LONG = T.StringType(), T.BinaryType(), T.LongType()
MAP = T.MapType(TEXT, TEXT)


def schema_of(**columns):
    return T.StructType([T.StructField(name.replace("__", "-"), kind) for name, kind in columns.items()])


PLAIN = schema_of(destination=TEXT, body=OCTETS)


def batch_of(schema, rows):
    arrow = to_arrow_schema(schema, **ZONE)
    return pa.record_batch([pa.array(column, field.type) for column, field in zip(zip(*rows), arrow)], schema=arrow)


def sent(schema, rows, target=V12, destination=None, id_header=None, **options):
    made = Rows(schema, destination, id_header).frames(batch_of(schema, rows), target, **options)
    return parse(b"".join(made.to_pylist()), target.version)


@st.composite
def tables(draw):
    """A schema and rows of it: text or octets, with columns and a map or without."""
    text = draw(st.booleans())
    bodies = st.text(st.characters(exclude_categories=["Cs"]), max_size=9) if text else st.binary()
    fields = [("destination", TEXT, WORDS), ("body", TEXT if text else OCTETS, bodies)]
    fields += [(name, TEXT, st.none() | WORDS) for name in draw(st.lists(NAMES, max_size=3, unique_by=str.lower))]
    fields += [("headers", MAP, MAPS)] * draw(st.booleans())
    fields = draw(st.permutations(fields))
    schema = T.StructType([T.StructField(name, kind) for name, kind, _ in fields])
    return schema, draw(st.lists(st.tuples(*[values for _, _, values in fields]), min_size=1, max_size=6))


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
    made = pickle.loads(pickle.dumps(Rows(schema, None, None))).frames(batch, Target(version, jms))
    assert made.to_pylist() == [by_hand(schema, row, version, jms) for row in rows]


MOMENT = datetime.datetime(2023, 11, 14, 22, 13, 20, 123_999, tzinfo=datetime.timezone.utc)


@pytest.mark.parametrize(
    ("kind", "values", "written"),
    [
        (T.BooleanType(), [True, False, None], ["true", "false", None]),
        (LONG, [-(2**63), 0, 7], [str(-(2**63)), "0", "7"]),
        (T.ByteType(), [-1, 9], ["-1", "9"]),
        (T.DoubleType(), [0.1, -2.5], ["0.1", "-2.5"]),
        (T.DecimalType(20, 10), [Decimal("0.0000000001"), None], ["0.0000000001", None]),
        (T.DateType(), [datetime.date(2024, 1, 31)], ["2024-01-31"]),
        (T.TimestampType(), [MOMENT, None], ["1700000000123", None]),
        (T.TimestampNTZType(), [MOMENT.replace(tzinfo=None)], ["1700000000123"]),
        (TEXT, ["", "a:b\\\n\r", "ß"], ["", "a:b\\\n\r", "ß"]),
    ],
)
def test_values_are_spelled_as_stomp_users_do(kind, values, written):
    frames = sent(schema_of(destination=TEXT, body=OCTETS, x=kind), [("d", b"", value) for value in values])
    assert [frame.get("x") for frame in frames] == written


def test_a_destination_for_all_and_lines_that_come_first():
    target = Target("1.2", lines="transaction:t1\n")
    frames = sent(schema_of(body=OCTETS), [(b"1",), (b"2",)], target, destination="/queue/a:b")
    first = [("transaction", "t1"), ("destination", "/queue/a:b")]
    assert [frame.headers.pairs()[:2] for frame in frames] == [first] * 2
    assert sent(PLAIN, [("/queue/c", b"")], destination="/queue/a")[0].headers["destination"] == "/queue/c"


def test_frames_that_were_read_are_sent_without_what_tells_of_the_reading():
    schema = frame_schema()
    row = dict.fromkeys(schema.fieldNames())
    row.update(command="MESSAGE", destination="/topic/a", message_id="m1", content_type="a/b", body=b"{}", spool="/x")
    row.update(headers={"message-id": "m1", "subscription": "0", "destination": "/topic/a", "p": "4"}, pos=3, length=9)
    (frame,) = sent(schema, [tuple(row.values())])
    wanted = [("destination", "/topic/a"), ("content-type", "a/b"), ("p", "4"), ("content-length", "2")]
    assert frame.headers.pairs() == wanted
    own = schema_of(destination=TEXT, body=OCTETS, length=T.IntegerType(), content_type=TEXT)
    (frame,) = sent(own, [("d", b"", 5, "x/y")])
    assert (frame.headers["length"], frame.headers["content-type"]) == ("5", "x/y")


def test_blocks_are_cut_between_frames(monkeypatch):
    sizes = [0, BLOCK // 2, BLOCK // 2, 10, 3 * BLOCK, 5, 5, 5, 5, 5]
    batch = batch_of(PLAIN, [("d", bytes([number]) * size) for number, size in enumerate(sizes)])
    whole = b"".join(Rows(PLAIN, None, "id").frames(batch, V12, 100, "i").to_pylist())
    for at_once in (2**30, 1000):  # what is too much at once goes by halves
        monkeypatch.setattr(sink_rows, "_AT_ONCE", at_once)
        blocks = list(Rows(PLAIN, None, "id").blocks(batch, V12, 100, "i", 3))
        assert b"".join(block.body for block in blocks) == whole
        ids = [frame.headers["id"] for block in blocks for frame in block.frames()]
        assert ids == [f"i{n}" for n in range(100, 110)]
        for block in blocks:
            assert len(block.frames()) == block.count <= 3
            assert len(block.body) <= BLOCK or block.count == 1
            assert serialize(block.frames()[-1]) == block.body[block.last :]
        if at_once > 1000:
            assert [block.count for block in blocks] == [2, 2, 1, 3, 2]


# ---- what cannot be sent ----

BOTH = {"destination": TEXT, "body": TEXT}


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"body": OCTETS}, "no column destination in body: add one, or set the option"),
        ({}, "no column destination in no columns at all"),
        ({"destination": TEXT, "x": LONG}, "no column body in destination, x"),
        ({"destination": LONG, "body": OCTETS}, "column destination is bigint: it must be string"),
        ({"destination": TEXT, "body": LONG}, "column body is bigint: it must be string or binary"),
        ({**BOTH, "headers": TEXT}, "column headers is string: it must be map"),
        ({**BOTH, "headers": T.MapType(TEXT, LONG)}, "column headers is map<string,bigint>: it must be"),
        ({**BOTH, "x": T.ArrayType(TEXT)}, "column x: array<string> cannot become a header"),
        ({**BOTH, "x": OCTETS}, "column x: binary cannot become a header: cast it to string"),
        ({**BOTH, "content__length": LONG}, "column content-length: the sink writes that header itself"),
        ({**BOTH, "receipt": TEXT}, "column receipt: the sink writes"),
        ({**BOTH, "Body": TEXT}, "2 columns are called body"),
        ({**BOTH, "x\0": TEXT}, r"a column is named 'x\\x00'"),
        ({**BOTH, "id": TEXT}, "column id is the header of option dedupeHeader"),
    ],
)
def test_columns_that_cannot_be_sent(columns, says):
    with pytest.raises(SchemaError, match=rf"{says}[^\n]*\Z"):
        Rows(schema_of(**columns), None, "id")


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
    good = ("d", "b", None, {"a": "b"})
    *columns, maps = zip(good, good, row, good)
    entries = pa.array([list(each.items()) for each in maps], pa.map_(pa.binary(), pa.string()))
    maps = pa.MapArray.from_arrays(entries.offsets, as_text(entries.keys), entries.items)
    columns = [[each.encode() if isinstance(each, str) else each for each in column] for column in columns]
    columns = [as_text(pa.array(column, pa.binary())) for column in columns]
    batch = pa.record_batch([*columns, maps], names=["destination", "body", "x", "headers"])
    with pytest.raises(SinkError) as error:
        Rows(schema_of(**BOTH, x=TEXT, headers=MAP), None, None).frames(batch, V12, first=40)
    assert str(error.value) == says
