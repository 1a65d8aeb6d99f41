"""Columns: those of frames, those that are headers, what they can be cast to, bodies as text; and which frames."""

import gzip
import inspect
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

pytest.importorskip("pyspark")

from pyspark.sql.pandas.types import to_arrow_schema
from spark.making import START, batches, make_capture, make_stream, message, read, rows, rows_of, schema_of

from stompcodec import Frame
from stompcodec.spark.options import Choice, FileOptions
from stompcodec.spark.reading.plan import batch_splits
from stompcodec.spark.reading.schema import FRAME_SCHEMA, Projection, SchemaError

UTC = timezone.utc


def test_batches_have_the_schema_that_spark_asks_for(tmp_path):
    """Spark refuses any other, also where only a map's values could be null."""
    schema = schema_of(**dict.fromkeys(FRAME_SCHEMA.names, "frame"), priority="integer", price="decimal(9,2)")
    path = make_stream(tmp_path / "a.stomp", [message(1, priority="1"), b"bad\n\n\0"])
    (batch,) = batches(path, Projection(schema), FileOptions())
    zone = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}  # since 4.2
    assert batch.schema.equals(to_arrow_schema(schema, **zone))
    batch.validate(full=True)


def test_all_columns_of_a_frame(tmp_path):
    frame = message(7, body=b"{}", ack="a-1", content_type="application/json", redelivered="true", x="1")
    path = make_capture(tmp_path / "a.stompcap", [frame])
    (row,) = rows(path)
    assert row.pop("length") == path.joinpath("frames-00000000000000000000.stomp").stat().st_size
    assert dict(row.pop("headers"))["x"] == "1"
    assert row == {
        **{"command": "MESSAGE", "destination": "/topic/a", "message_id": "id-7", "subscription": "0", "ack": "a-1"},
        **{"content_type": "application/json", "redelivered": True, "body": b"{}", "text": "{}"},
        **{"spool": str(path), "pos": 0, "error": None, "received_at": datetime.fromtimestamp(START / 1e6, UTC)},
        "sent_at": datetime.fromtimestamp(START / 1e6 + 0.007, UTC),
    }


def test_only_what_is_asked_for_is_parsed():
    projection = Projection(schema_of(destination="frame"))
    assert (projection.columns, projection.names) == ((), ("destination",))
    assert Projection(schema_of(body="frame", pos="frame")).columns == ("body", "offset")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("integer", "5", 5),
        ("integer", " -5 ", -5),
        ("integer", "5.5", ...),
        ("integer", "99999999999", ...),
        ("byte", "128", ...),
        ("short", "-32768", -32768),
        ("long", "9223372036854775807", 2**63 - 1),
        ("long", "", ...),
        ("float", "1.5", 1.5),
        ("double", "1e3", 1000.0),
        ("double", "x", ...),
        ("boolean", "true", True),
        ("boolean", "0", False),
        ("boolean", "maybe", ...),
        ("decimal(9,2)", "12.34", Decimal("12.34")),
        ("decimal(3,1)", "12345", ...),
        ("binary", "é", "é".encode()),
        ("string", "", ""),
        ("timestamp", "1700000000123", datetime(2023, 11, 14, 22, 13, 20, 123000, UTC)),
        ("timestamp", "2023-11-14T22:13:20Z", datetime(2023, 11, 14, 22, 13, 20, 0, UTC)),
        ("timestamp", "2023-11-14 22:13:20.5", datetime(2023, 11, 14, 22, 13, 20, 500000, UTC)),
        ("timestamp", "2023-11-14T23:13:20+01:00", datetime(2023, 11, 14, 22, 13, 20, 0, UTC)),
        ("timestamp", "9223372036854775807", ...),
        ("timestamp", "99999999999999999999", ...),
        ("timestamp", "soon", ...),
        ("timestamp_ntz", "1700000000000", datetime(2023, 11, 14, 22, 13, 20)),
        ("date", "1700000000000", date(2023, 11, 14)),
        ("date", "2023-11-14", date(2023, 11, 14)),
    ],
)
def test_headers_are_cast(tmp_path, kind, text, value):
    """What cannot be is null, and the row tells; the rows beside it are as they would be without."""
    other = Frame("MESSAGE", {"h": "1" if kind != "date" else "2020-01-01"})
    path = make_stream(tmp_path / "a.stomp", [message(1), Frame("MESSAGE", {"h": text}), other])
    absent, row, other = rows(path, schema_of(h=kind, error="frame"))
    assert absent == {"h": None, "error": None}
    assert other["h"] is not None
    assert other["error"] is None
    if value is ...:
        assert row["h"] is None
        assert row["error"].startswith("bad-value: h is not ")
        assert text not in row["error"] or not text
    else:
        assert row == {"h": value, "error": None}


def test_a_bad_value_is_malformed_for_the_modes(tmp_path):
    path = make_stream(tmp_path / "a.stomp", [Frame("MESSAGE", {"h": "x"}), Frame("MESSAGE", {"h": "1"})])
    assert rows(path, schema_of(h="integer"), mode="DROPMALFORMED") == [{"h": 1}]
    with pytest.raises(ValueError, match="bad-value: h is not int32"):
        rows(path, schema_of(h="integer"), mode="FAILFAST")


def test_an_underscore_also_stands_for_a_dash(tmp_path):
    items = [{"a_b": "1"}, {"a-b": "2"}, {"a-b": "3", "a_b": "4"}, {}]
    path = make_stream(tmp_path / "a.stomp", [Frame("MESSAGE", pairs) for pairs in items])
    assert [row["a_b"] for row in rows(path, schema_of(a_b="string"))] == ["1", "2", "4", None]
    assert [row["a-b"] for row in rows(path, schema_of(**{"a-b": "string"}))] == [None, "2", "3", None]


def test_columns_of_frames_can_have_other_types(tmp_path):
    path = make_capture(tmp_path / "a.stompcap", [message(1, message_id="17"), message(2, body=b"\xff")])
    good, bad = rows(path, schema_of(message_id="integer", body="string", received_at="long", error="frame"))
    assert good == {"message_id": 17, "body": '{"n": 1}', "received_at": START, "error": None}
    assert bad["body"] is None
    assert bad["error"] == "bad-value: message_id is not int32; bad-value: body is not UTF-8"


@pytest.mark.parametrize(
    ("column", "kind"),
    [("h", {"type": "array", "elementType": "string", "containsNull": True}), ("headers", "string"), ("pos", "date")],
)
def test_a_schema_that_cannot_be_is_told_in_one_line(column, kind):
    with pytest.raises(SchemaError, match=rf"column {column}[^\n]*\Z"):
        Projection(schema_of(**{column: kind}))


def test_a_column_that_is_not_null_must_not_be(tmp_path):
    schema = schema_of(destination="frame")
    schema.fields[0].nullable = False
    assert rows(make_stream(tmp_path / "a.stomp", [message(1)]), schema) == [{"destination": "/topic/a"}]
    with pytest.raises(ValueError, match="column destination is NOT NULL"):
        rows(make_stream(tmp_path / "b.stomp", [Frame("MESSAGE")]), schema)


# ---- text, and bodies that are compressed ----

TEXT = schema_of(text="frame", error="frame")
PLAIN, GZIP = {"content-type": "text/plain"}, {"content-encoding": "gzip"}
UNTOLD = "bad-value: text is not what content-type says"


@pytest.mark.parametrize(
    ("headers", "body", "text", "error"),
    [
        ({}, "é".encode(), "é", None),
        ({}, b"\xff", None, None),
        (PLAIN, "é".encode(), "é", None),
        ({"content-type": "text/plain;charset=latin1"}, b"\xe9", "é", None),
        ({"content-type": "application/json"}, b"\xef\xbb\xbf1", "1", None),
        ({"content-type": "application/xml"}, "é".encode("utf-16"), "é", None),
        ({"content-type": "image/png"}, b"abc", None, None),
        ({**PLAIN, **GZIP}, gzip.compress(b"hi", mtime=0), "hi", None),
        (GZIP, gzip.compress(b"hi", mtime=0), "hi", None),
        (PLAIN, b"\xff", None, UNTOLD),
        ({"content-type": "text/plain;charset=klingon"}, b"a", None, UNTOLD),
        ({**PLAIN, **GZIP}, b"no gzip", None, "bad-content-encoding: "),
    ],
)
def test_text(tmp_path, headers, body, text, error):
    others = [Frame("MESSAGE", {}, b"a"), Frame("MESSAGE", PLAIN, b"b")]
    row, *good = rows(make_stream(tmp_path / "a.stomp", [Frame("MESSAGE", headers, body), *others]), TEXT)
    assert row["text"] == text
    assert (row["error"] or "").startswith(error or "")
    assert bool(row["error"]) == bool(error)
    assert good == [{"text": "a", "error": None}, {"text": "b", "error": None}]


def test_decode(tmp_path):
    packed = gzip.compress(b"<xml/>", mtime=0)
    bodies = [({}, packed), (GZIP, packed), ({"content-encoding": "br"}, b"plain"), ({}, b"plain"), (GZIP, packed[:-4])]
    path = make_stream(tmp_path / "a.stomp", [Frame("MESSAGE", *each) for each in bodies])
    inflated = [b"<xml/>", b"<xml/>", b"plain", b"plain", packed[:-4]]
    for options, wanted, wrong in [
        ({}, [body for _, body in bodies], []),
        ({"decode": "auto"}, inflated, [4]),
        ({"decode": "gzip"}, inflated, [2, 3, 4]),
    ]:
        found = rows(path, schema_of(body="frame", error="frame"), **options)
        assert [row["body"] for row in found] == wanted
        assert [number for number, row in enumerate(found) if row["error"]] == wrong
        assert all(found[number]["error"].startswith("bad-content-encoding: ") for number in wrong)
    assert rows(path, TEXT, decode="auto")[0] == {"text": "<xml/>", "error": None}


def test_what_inflates_to_much_comes_in_more_batches(tmp_path):
    body = gzip.compress(b"x" * 100_000)
    path = make_stream(tmp_path / "a.stomp", [Frame("MESSAGE", {}, body)] * 50)
    coded = make_stream(tmp_path / "b.stomp", [Frame("MESSAGE", GZIP, body)] * 50)
    forced = batches(path, Projection(schema_of(body="frame"), "gzip"), FileOptions(decode="gzip", batch_bytes=300_000))
    assert sum(part.num_rows for part in forced) == 50
    for parts in (forced, batches(coded, Projection(schema_of(text="frame")), FileOptions(batch_bytes=300_000))):
        assert max(part.num_rows for part in parts) == 3
    table = read(path, schema_of(body="frame", error="frame"), decode="gzip", maxBody=99_999)
    assert set(table["error"].to_pylist()) == {"limit-exceeded: the frame exceeds the limits"}


# ---- which frames ----

destinations = st.lists(st.sampled_from(["a", "ab", "b", "none", ""]), max_size=3).map(tuple)
moments = st.none() | st.integers(-1, 9).map(lambda second: START + second * 1_000_000)


@given(destinations, moments, moments, st.integers(1, 600))
@settings(max_examples=examples(100))
def test_options_choose_the_rows_that_a_filter_would(tmp_path_factory, names, since, until, split):
    """Malformed frames stay, unless they are known to have come at another time."""
    path = tmp_path_factory.getbasetemp() / "chosen.stompcap"
    if not path.exists():
        kinds = [("a", "a"), ("ab", "b"), ("b", "a"), ("abc", "b"), ("", "a")]
        items = [message(n, where, kind=kind) for n, (where, kind) in enumerate(kinds)]
        make_capture(path, [*items, b"bad\n\n\0", Frame("SEND", {"destination": "a"}), Frame("ERROR"), *items])
    schema = schema_of(destination="frame", message_id="frame", received_at="frame", pos="frame", error="frame")
    options = FileOptions(split_bytes=split, commands=("*",))
    chosen = replace(options, choice=Choice(names, since, until))
    everything, found = (
        rows_of(batch_splits([str(path)], each), Projection(schema), each) for each in (options, chosen)
    )

    def holds(row):
        came = round(row["received_at"].timestamp() * 1e6)
        in_time = (since is None or came >= since) and (until is None or came < until)
        return in_time and (not names or row["destination"] in names or row["error"] is not None)

    assert found == [row for row in everything if holds(row)]


def test_failfast_also_sees_what_is_not_chosen(tmp_path):
    """Which destination a malformed frame was for cannot be told, so it stays, and ends the query in FAILFAST."""
    path = make_stream(tmp_path / "a.stomp", [message(1), message(2, "/topic/b"), b"bad\n\n\0"])
    projection = Projection(schema_of(destination="frame"))
    options = FileOptions(choice=Choice(("/topic/a",)))
    assert [batch.num_rows for batch in batches(path, projection, options)] == [2]
    with pytest.raises(ValueError, match="mode is FAILFAST"):
        batches(path, projection, replace(options, mode="FAILFAST"))
