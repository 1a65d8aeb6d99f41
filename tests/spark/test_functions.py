"""`from_stomp` and `to_stomp`: frames in columns that other sources read, and columns that become frames."""

import gzip
import time
from datetime import date, datetime, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")
from pyspark.sql import Row
from pyspark.sql import functions as F
from spark.making import BAD, START, ids, make_stream, message, octets, pa, rows, schema_of

from stompcodec import Frame, Parser, serialize
from stompcodec.spark.base import SinkError
from stompcodec.spark.functions import _fields, _moments, _octets, _Values, from_stomp, to_stomp
from stompcodec.spark.options import FileOptions, OptionError
from stompcodec.spark.reading.schema import MalformedError, Projection, SchemaError

WRONG = [*BAD, b"\0", b"MESSAGE\n\nno end"]
PLACES = ("spool", "pos", "received_at")
UTC = timezone.utc


def taken(values, schema=None, version="1.2", **options):
    parsed = FileOptions(commands=("*",), **options)
    array = pa.array([None, b"x", *values], pa.binary()).slice(2)  # as a part of a larger one
    return _Values(Projection(_fields(schema), parsed.decode), parsed, version)(array).to_pylist()


values = st.one_of(
    st.none(),
    st.sampled_from([b"", b"\n", b"\r\n\n", *WRONG]),
    st.builds(
        lambda number, body, before, behind: before + octets([message(number, body=body)]) + behind,
        *(st.integers(0, 9), st.binary(max_size=20), st.sampled_from([b"", b"\n"]), st.sampled_from([b"", b"\r\n"])),
    ),
)


@given(st.lists(values, max_size=30))
def test_values_are_the_rows_of_the_source(tmp_path_factory, items):
    folder = tmp_path_factory.mktemp("values")
    for item, found in zip(items, taken(items)):
        if item is None or not item.strip(b"\r\n"):
            assert found is None
            continue
        (row,) = rows(make_stream(folder / "a.stomp", [item]), commands="*")
        wanted = {name: value for name, value in row.items() if name not in (*PLACES, "text")}
        if wanted["error"] is not None:  # the source leaves heart-beats out
            assert (found["error"], found["body"], found["headers"]) == (wanted["error"], item, None)
        else:
            assert found == wanted


def test_several_frames_in_a_value_are_malformed():
    two = octets([message(1), message(2)])
    first, second, third = taken([two, octets([message(3)]), b"SEND\n\n\0\n\0"])
    assert first["error"] == "several-frames: the value holds 2 frames, where there has to be one"
    assert (first["body"], second["message_id"]) == (two, "id-3")
    assert third["error"].startswith("unexpected-nul: ")
    # One value has none and its neighbour two: together that is one for each.
    assert all(row["error"] for row in taken([two[:40], two[40:]]))
    nothing, both = taken([b"\n", two])
    assert nothing is None
    assert both["error"].startswith("several-frames")


def test_modes():
    good = octets([message(1)])
    first, *dropped, last = taken([good, *WRONG, None, good], mode="DROPMALFORMED")
    assert dropped == [None] * (len(WRONG) + 1)  # not even a struct
    assert first["message_id"] == last["message_id"] == "id-1"
    for bad in WRONG:
        with pytest.raises(MalformedError, match="mode is FAILFAST"):
            taken([good, bad], mode="FAILFAST")
    assert len(taken([good, None, b"\n"], mode="FAILFAST")) == 3


def test_a_schema_asks_for_fields_and_headers():
    frame = octets([message(1, body='{"a": "é"}'.encode(), priority="7", content_type="application/json")])
    asked = schema_of(destination="frame", priority="integer", text="frame", sent_at="frame", body="string")
    row, bad = taken([frame, BAD[0]], asked)
    sent = datetime.fromtimestamp(START // 10**6, UTC).replace(microsecond=1000)
    wanted = {"destination": "/topic/a", "priority": 7, "sent_at": sent}
    assert row == {**wanted, "text": '{"a": "é"}', "body": '{"a": "é"}'}
    assert (bad["destination"], bad["body"]) == (None, BAD[0].decode())


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        *((schema_of(**{name: "frame"}), f"column {name}: a value does not tell") for name in PLACES),
        (schema_of(headers="integer"), "column headers is map"),
    ],
)
def test_schemas_that_cannot_be(schema, told):
    with pytest.raises(SchemaError, match=told):
        from_stomp("value", schema)


def test_versions_limits_and_codings():
    assert taken([b"MESSAGE\na:x\\ty\n\n\0"], schema_of(a="string"), version="1.0") == [{"a": "x\\ty"}]
    (large,) = taken([octets([message(1, body=b"12345")])], schema_of(error="frame"), max_body=4)
    assert large["error"].startswith("limit-exceeded")
    packed = octets([message(1, body=gzip.compress(b"hello"))])
    assert taken([packed], schema_of(body="frame"), decode="auto") == [{"body": b"hello"}]
    for call in (from_stomp, to_stomp):
        with pytest.raises(OptionError):
            call("value", version="1.3")


text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
FRAMES = st.builds(
    lambda command, pairs, body: Frame(command, dict(pairs), body if command in ("SEND", "MESSAGE", "ERROR") else b""),
    st.sampled_from(["SEND", "MESSAGE", "ERROR", "RECEIPT", "ACK"]),
    st.dictionaries(text.filter(bool).filter(lambda name: name != "content-length"), text, max_size=4),
    st.binary(max_size=30),
)


@given(st.lists(FRAMES, max_size=10))
def test_frames_become_structs_and_frames_again(frames):
    wire = [serialize(frame) for frame in frames]
    assert [_octets(row, "1.2") for row in taken(wire)] == wire


def test_fields_of_a_struct():
    left_out = {"command": None, "gone": None, "error": None, "length": 3, "text": "no", "spool": "s", "pos": 1}
    old = {"destination": "/queue/old", "x": "1", "none": None, "content-length": "99"}
    struct = {
        **{"destination": "/queue/a:b", "message_id": "m", "headers": old, "priority": 9, "flag": True, "ratio": 0.5},
        **{"price": Decimal("1E+2"), "day": date(2026, 1, 31), "at": datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)},
        **{"naive": datetime(1970, 1, 1, 0, 0, 2), "received_at": None, "body": b"\0", **left_out},
    }
    (frame,) = Parser("1.2").feed(_octets(struct, "1.2"))
    assert (frame.command, frame.body) == ("SEND", b"\0")
    assert dict(frame.headers.pairs()) == {
        **{"destination": "/queue/a:b", "x": "1", "message-id": "m", "priority": "9", "flag": "true", "price": "100"},
        **{"day": "2026-01-31", "at": "1500", "naive": "2000", "ratio": "0.5", "content-length": "1"},
    }
    assert b"content-type:text/plain;charset=utf-8\n" in _octets({"body": "hi"}, "1.2")
    assert _octets({"body": None}, "1.2") == b"SEND\n\n\0"


def test_what_is_no_frame():
    assert _octets(None, "1.2") is None
    assert [_octets(row, "1.2") for row in taken([*WRONG])] == [None] * len(WRONG)
    for struct in ({"a": ["list"]}, {"a": "x\0"}, {"command": "ACK", "body": b"x"}, {"command": "a b"}, {"": "x"}):
        with pytest.raises(SinkError, match="to_stomp: "):
            _octets(struct, "1.2")


@pytest.fixture
def new_york(monkeypatch):
    if not hasattr(time, "tzset"):
        pytest.skip("the time zone of a process is fixed here")
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_moments_of_single_values(new_york):
    """PySpark 4.0 gives local times: each becomes the moment it was, also in the hour that comes twice."""
    micros = [1_767_323_045_678_000, 1_793_509_200_000_000, 1_793_512_800_000_000]  # the last two: both 01:00 there
    local = [datetime.fromtimestamp(each / 10**6) for each in micros]
    row = Row(a=local[0], n=local[0], d=1, s=Row(x=local[0]), **{"o,d:d": local[1]}, b=local[2], z=None)
    kinds = "a:timestamp,n:timestamp_ntz,d:decimal(10,2),s:struct<x:timestamp,y:int>,o,d:d:timestamp,b:timestamp,z:int"
    for kind in (kinds, kinds.replace("o,d:d", "`o,d:d`")):
        made = _moments(row, f"struct<{kind}>")
        assert [made[name].timestamp() * 10**6 for name in ("a", "o,d:d", "b")] == micros
        assert (made["n"], made["d"], made["s"], made["z"]) == (local[0], 1, Row(x=local[0]), None)


def test_columns_of_spark(spark):
    wire = [octets([message(number, body=b"\0\xff")]) for number in range(50)]
    items = [*wire[:25], None, BAD[0], b"\n", *wire[25:]]
    frame = spark.createDataFrame(list(enumerate(items)), "n int, value binary")
    parsed = frame.select("n", "value", from_stomp("value").alias("f"))
    table = parsed.select("n", "f.*", to_stomp("f").alias("again"), "value").orderBy("n").collect()
    assert [row.message_id for row in table] == [*ids(*range(25)), None, None, None, *ids(*range(25, 50))]
    again = [None if row.again is None else bytes(row.again) for row in table]
    if not hasattr(F, "arrow_udf"):  # PySpark 4.0: headers of a map have no order
        again, wire = [each and bytes(sorted(each)) for each in again], [bytes(sorted(each)) for each in wire]
    assert again == [*wire[:25], None, None, None, *wire[25:]]
    assert table[0].headers["destination"] == "/topic/a"
    assert table[0].sent_at == datetime.fromtimestamp(START / 10**6)
    assert table[26].error.startswith("unknown-command: ")
    assert parsed.where("f is null").count() == 2
    narrow = frame.select(from_stomp(F.col("value"), "message_id string, `timestamp` long").alias("f")).select("f.*")
    assert narrow.where("message_id = 'id-7'").first().timestamp == START // 1000 + 7
    columns = "struct('/queue/a' destination, map('x', cast(id as string)) headers, 'hi' body) f"
    made = spark.range(3).selectExpr(columns).select(to_stomp("f").alias("value"))
    found = [next(iter(Parser("1.2").feed(bytes(row.value)))) for row in made.orderBy("value").collect()]
    expected = [("SEND", str(number), b"hi") for number in range(3)]
    assert [(each.command, each.headers["x"], each.body) for each in found] == expected
    parts = "timestamp'2026-01-02 03:04:05.678 UTC' a, timestamp_ntz'2026-01-02 03:04:05' n, date'2026-01-02' d"
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        made = spark.range(1).selectExpr(f"struct({parts}, 1.50BD c, x'00' body) f").select(to_stomp("f").alias("v"))
        (row,) = made.collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    headers = dict(next(iter(Parser("1.2").feed(bytes(row.v)))).headers)
    del headers["content-length"]
    assert headers == {"a": "1767323045678", "n": "1767323045000", "d": "2026-01-02", "c": "1.50"}
    for kind, told in (("destination string NOT NULL", "NOT NULL"), ("string", "it must name fields")):
        with pytest.raises(SchemaError, match=told):
            from_stomp("value", kind)
    with pytest.raises(Exception, match="it takes structs"):
        frame.select(to_stomp("value")).collect()
