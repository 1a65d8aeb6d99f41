"""Columns: those of frames, those that are headers, what they can be cast to, bodies as text; and which frames."""

from __future__ import annotations

import gzip
import inspect
from dataclasses import replace
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.pandas.types import to_arrow_schema
from spark.making import START, make_capture, make_stream, message
from spark.read_back import batches, read, rows, schema_of

from stompcodec import Frame
from stompcodec.spark.options import Choice, FileOptions
from stompcodec.spark.reading.schema import FRAME_SCHEMA, Projection, SchemaError, frame_schema

UTC = timezone.utc


def test_the_columns_of_frames() -> None:
    assert FRAME_SCHEMA.simpleString() == (
        "struct<command:string,destination:string,message_id:string,subscription:string,ack:string,"
        "content_type:string,received_at:timestamp,sent_at:timestamp,redelivered:boolean,headers:map<string,string>,"
        "body:binary,text:string,spool:string,pos:bigint,length:int,error:string>"
    )
    assert [name for name in FRAME_SCHEMA.names if name not in frame_schema().names] == ["text"]


def test_batches_have_the_schema_that_spark_asks_for(tmp_path: Path) -> None:
    """Spark refuses any other, also where only a map's values could be null."""
    schema = schema_of(**dict.fromkeys(FRAME_SCHEMA.names, "frame"), priority="integer", price="decimal(9,2)")
    path = make_stream(tmp_path / "a.stomp", [message(1, priority="1"), b"bad\n\n\0"])
    projection = Projection(schema)
    (batch,) = batches(path, projection, FileOptions())
    zone = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}  # since 4.2
    assert batch.schema.equals(to_arrow_schema(schema, **zone))
    batch.validate(full=True)


def test_all_columns_of_a_frame(tmp_path: Path) -> None:
    frame = message(7, body=b"{}", ack="a-1", content_type="application/json", redelivered="true", x="1")
    path = make_capture(tmp_path / "a.stompcap", [frame])
    (row,) = rows(path)
    length = row.pop("length")
    assert length == path.joinpath("frames-00000000000000000000.stomp").stat().st_size
    assert dict(row.pop("headers"))["x"] == "1"
    assert row == {
        "command": "MESSAGE",
        "destination": "/topic/a",
        "message_id": "id-7",
        "subscription": "0",
        "ack": "a-1",
        "content_type": "application/json",
        "received_at": datetime.fromtimestamp(START / 1e6, UTC),
        "sent_at": datetime.fromtimestamp(START / 1e6 + 0.007, UTC),
        "redelivered": True,
        "body": b"{}",
        "text": "{}",
        "spool": str(path),
        "pos": 0,
        "error": None,
    }


def test_only_what_is_asked_for_is_parsed() -> None:
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
        ("date", "1700000000000", datetime(2023, 11, 14).date()),
        ("date", "2023-11-14", datetime(2023, 11, 14).date()),
    ],
)
def test_headers_are_cast(tmp_path: Path, kind: str, text: str, value: Any) -> None:
    """What cannot be is null, and the row tells; the rows beside it are as they would be without."""
    others = [message(1), Frame("MESSAGE", {"h": "1" if kind != "date" else "2020-01-01"})]
    path = make_stream(tmp_path / "a.stomp", [others[0], Frame("MESSAGE", {"h": text}), others[1]])
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


def test_a_bad_value_is_malformed_for_the_modes(tmp_path: Path) -> None:
    path = make_stream(tmp_path / "a.stomp", [Frame("MESSAGE", {"h": "x"}), Frame("MESSAGE", {"h": "1"})])
    assert rows(path, schema_of(h="integer"), mode="DROPMALFORMED") == [{"h": 1}]
    with pytest.raises(ValueError, match="bad-value: h is not int32"):
        rows(path, schema_of(h="integer"), mode="FAILFAST")


def test_an_underscore_also_stands_for_a_dash(tmp_path: Path) -> None:
    items = [{"a_b": "1"}, {"a-b": "2"}, {"a-b": "3", "a_b": "4"}, {}]
    path = make_stream(tmp_path / "a.stomp", [Frame("MESSAGE", pairs) for pairs in items])
    assert [row["a_b"] for row in rows(path, schema_of(a_b="string"))] == ["1", "2", "4", None]
    assert [row["a-b"] for row in rows(path, schema_of(**{"a-b": "string"}))] == [None, "2", "3", None]


def test_columns_of_frames_can_have_other_types(tmp_path: Path) -> None:
    path = make_capture(tmp_path / "a.stompcap", [message(1, message_id="17"), message(2, body=b"\xff")])
    good, bad = rows(path, schema_of(message_id="integer", body="string", received_at="long", error="frame"))
    assert good == {"message_id": 17, "body": '{"n": 1}', "received_at": START, "error": None}
    assert bad["body"] is None
    assert bad["error"] == "bad-value: message_id is not int32; bad-value: body is not UTF-8"


@pytest.mark.parametrize(
    ("column", "kind"),
    [("h", {"type": "array", "elementType": "string", "containsNull": True}), ("headers", "string"), ("pos", "date")],
)
def test_a_schema_that_cannot_be_is_told_in_one_line(column: str, kind: Any) -> None:
    with pytest.raises(SchemaError, match=f"column {column}") as caught:
        Projection(schema_of(**{column: kind}))
    assert "\n" not in str(caught.value)


def test_a_column_that_is_not_null_must_not_be(tmp_path: Path) -> None:
    schema = schema_of(destination="frame")
    schema.fields[0].nullable = False
    good = make_stream(tmp_path / "a.stomp", [message(1)])
    assert rows(good, schema) == [{"destination": "/topic/a"}]
    with pytest.raises(ValueError, match="column destination is NOT NULL"):
        rows(make_stream(tmp_path / "b.stomp", [Frame("MESSAGE")]), schema)


# ---- text, and bodies that are compressed ----

TEXT = schema_of(text="frame", error="frame")


@pytest.mark.parametrize(
    ("headers", "body", "text"),
    [
        ({}, "é".encode(), "é"),
        ({}, b"\xff", None),
        ({"content-type": "text/plain"}, "é".encode(), "é"),
        ({"content-type": "text/plain;charset=latin1"}, b"\xe9", "é"),
        ({"content-type": "application/json"}, b"\xef\xbb\xbf1", "1"),
        ({"content-type": "application/xml"}, "é".encode("utf-16"), "é"),
        ({"content-type": "image/png"}, b"abc", None),
        ({"content-type": "text/plain", "content-encoding": "gzip"}, gzip.compress(b"hi", mtime=0), "hi"),
        ({"content-encoding": "gzip"}, gzip.compress(b"hi", mtime=0), "hi"),
    ],
)
def test_text(tmp_path: Path, headers: dict[str, str], body: bytes, text: str | None) -> None:
    others = [Frame("MESSAGE", {}, b"a"), Frame("MESSAGE", {"content-type": "text/plain"}, b"b")]
    path = make_stream(tmp_path / "a.stomp", [Frame("MESSAGE", headers, body), *others])
    assert rows(path, TEXT) == [{"text": each, "error": None} for each in (text, "a", "b")]


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"content-type": "text/plain"}, b"\xff"),
        ({"content-type": "text/plain;charset=klingon"}, b"a"),
        ({"content-type": "text/plain", "content-encoding": "gzip"}, b"no gzip"),
    ],
)
def test_text_that_is_none_is_told(tmp_path: Path, headers: dict[str, str], body: bytes) -> None:
    path = make_stream(tmp_path / "a.stomp", [Frame("MESSAGE", headers, body), message(1)])
    bad, good = rows(path, TEXT)
    assert bad["text"] is None
    assert bad["error"].startswith(
        "bad-content-encoding: " if "content-encoding" in headers else "bad-value: text is not what content-type says"
    )
    assert good == {"text": '{"n": 1}', "error": None}


def test_decode(tmp_path: Path) -> None:
    packed = gzip.compress(b"<xml/>", mtime=0)
    items = [
        Frame("MESSAGE", {}, packed),
        Frame("MESSAGE", {"content-encoding": "gzip"}, packed),
        Frame("MESSAGE", {"content-encoding": "br"}, b"plain"),
        Frame("MESSAGE", {}, b"plain"),
        Frame("MESSAGE", {"content-encoding": "gzip"}, packed[:-4]),
    ]
    path = make_stream(tmp_path / "a.stomp", items)
    schema = schema_of(body="frame", error="frame")
    raw = [frame.body for frame in items]
    assert [row["body"] for row in rows(path, schema)] == raw
    auto = rows(path, schema, decode="auto")
    assert [row["body"] for row in auto] == [b"<xml/>", b"<xml/>", b"plain", b"plain", raw[4]]
    assert [row["error"] for row in auto[:4]] == [None] * 4
    assert auto[4]["error"].startswith("bad-content-encoding: ")
    forced = rows(path, schema, decode="gzip")
    assert [row["body"] for row in forced] == [b"<xml/>", b"<xml/>", b"plain", b"plain", raw[4]]
    assert [bool(row["error"]) for row in forced] == [False, False, True, True, True]
    assert rows(path, TEXT, decode="auto")[0] == {"text": "<xml/>", "error": None}


def test_what_inflates_to_much_comes_in_more_batches(tmp_path: Path) -> None:
    body = gzip.compress(b"x" * 100_000)
    path = make_stream(tmp_path / "a.stomp", [Frame("MESSAGE", {}, body)] * 50)
    projection = Projection(schema_of(body="frame"), "gzip")
    parts = batches(path, projection, FileOptions(decode="gzip", batch_bytes=300_000))
    assert sum(part.num_rows for part in parts) == 50
    assert max(part.num_rows for part in parts) == 3
    coded = make_stream(tmp_path / "b.stomp", [Frame("MESSAGE", {"content-encoding": "gzip"}, body)] * 50)
    parts = batches(coded, Projection(schema_of(text="frame")), FileOptions(batch_bytes=300_000))
    assert max(part.num_rows for part in parts) == 3
    table = read(path, schema_of(body="frame", error="frame"), decode="gzip", maxBody=99_999)
    assert set(table["error"].to_pylist()) == {"limit-exceeded: the frame exceeds the limits"}


# ---- which frames ----

destinations = st.lists(st.sampled_from(["a", "ab", "b", "none", ""]), max_size=3).map(tuple)
moments = st.none() | st.integers(-1, 9).map(lambda second: START + second * 1_000_000)


@given(destinations, moments, moments, st.integers(1, 600))
@settings(max_examples=examples(100))
def test_options_choose_the_rows_that_a_filter_would(
    tmp_path_factory: pytest.TempPathFactory,
    names: tuple[str, ...],
    since: int | None,
    until: int | None,
    split: int,
) -> None:
    """Malformed frames stay, unless they are known to have come at another time."""
    path = tmp_path_factory.getbasetemp() / "chosen.stompcap"
    if not path.exists():
        kinds = [("a", "a"), ("ab", "b"), ("b", "a"), ("abc", "b"), ("", "a")]
        items: list[Any] = [message(n, where, kind=kind) for n, (where, kind) in enumerate(kinds)]
        make_capture(path, [*items, b"bad\n\n\0", Frame("SEND", {"destination": "a"}), Frame("ERROR"), *items])
    schema = schema_of(destination="frame", message_id="frame", received_at="frame", pos="frame", error="frame")
    options = FileOptions(split_bytes=split, commands=("*",))
    chosen = replace(options, choice=Choice(names, since, until))
    projection = Projection(schema)
    everything = [row for batch in batches(path, projection, options) for row in batch.to_pylist()]
    found = [row for batch in batches(path, projection, chosen) for row in batch.to_pylist()]

    def holds(row: dict[str, Any]) -> bool:
        came = round(row["received_at"].timestamp() * 1e6)
        in_time = (since is None or came >= since) and (until is None or came < until)
        return in_time and (not names or row["destination"] in names or row["error"] is not None)

    assert found == [row for row in everything if holds(row)]


def test_failfast_also_sees_what_is_not_chosen(tmp_path: Path) -> None:
    """Which destination a malformed frame was for cannot be told, so it stays, and ends the query in FAILFAST."""
    path = make_stream(tmp_path / "a.stomp", [message(1), message(2, "/topic/b"), b"bad\n\n\0"])
    projection = Projection(schema_of(destination="frame"))
    options = FileOptions(choice=Choice(("/topic/a",)))
    assert [batch.num_rows for batch in batches(path, projection, options)] == [2]
    with pytest.raises(ValueError, match="mode is FAILFAST"):
        batches(path, projection, replace(options, mode="FAILFAST"))
