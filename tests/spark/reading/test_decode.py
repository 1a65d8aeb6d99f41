"""Octets to record batches: the same rows however they are cut, malformed frames are rows, and columns and casts."""

import gzip
import random
import subprocess
import sys
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from profiles import examples

pytest.importorskip("pyspark")
from spark.making import (
    BAD,
    START,
    batches,
    ids,
    make_capture,
    make_stream,
    message,
    octets,
    pa,
    read,
    rows,
    rows_of,
    schema_of,
)

from stompcodec import Frame, Parser
from stompcodec.spark.options import Choice, FileOptions, parse_file
from stompcodec.spark.reading import decode, splits
from stompcodec.spark.reading.plan import batch_splits, chains_of, ends_of, limit_chains, splits_between
from stompcodec.spark.reading.schema import FRAME_SCHEMA, MalformedError, Projection, SchemaError
from stompcodec.spark.reading.window import begins_frame, clean

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
NARROW = schema_of(message_id="frame", pos="frame", length="frame", body="frame", error="frame")
#: Runs of garbage, each of which is one row.
GARBAGE = [
    *(b"\0", b"\0" * 100, b"\0\n\0\r\n\r\n\0\n\n\0", b"message\ndestination:/a\n\nx\0"),
    b"GET / HTTP/1.1\r\nhost: h\r\n\r\n\0hello\nworld\n\n\0more\0",
    *(b"MESSAGES\n\n\0MESSAGE \n\n\0SENDER\n\n\0MES\n\n\0", b"WHAT\ncontent-length:5\n\n\0\0\0\0\0\0"),
]


def moment(us):
    return EPOCH + timedelta(microseconds=us)


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(decode, "_FIRST", 64)
    monkeypatch.setattr(decode, "_LEAST", 16)
    monkeypatch.setattr(splits, "_PIECE", 64)


@pytest.fixture
def usual(monkeypatch):
    monkeypatch.undo()


@pytest.fixture(params=[8 * 2**20, 700])
def piece(request, usual, monkeypatch):
    """What is looked at in one go to find the ends of frames."""
    monkeypatch.setattr(splits, "_PIECE", request.param)


text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
frames = st.builds(
    lambda pairs, body, length: Frame(
        "MESSAGE", [*pairs, *([("content-length", str(len(body)))] if length or b"\0" in body else [])], body
    ),
    st.lists(st.tuples(text.filter(bool).filter(lambda name: name != "content-length"), text), max_size=4),
    st.binary(max_size=80),
    st.booleans(),
)
ODD = [*BAD, *GARBAGE, b"MESSAGE\ncontent-length:-1\n\n\0", b"\x16\x03\x01\0"]
parts = st.lists(st.one_of(frames, frames, st.sampled_from(ODD), st.sampled_from([b"\n", b"\r\n\n"])), max_size=12)


def expected(items):
    result, at = [], 0
    for item in items:
        data = octets([item])
        run = result[-1] if result and result[-1]["headers"] is None and not begins_frame(result[-1]["body"]) else None
        if run is not None and data.strip(b"\r\n") and not begins_frame(data):  # garbage behind garbage
            run["body"] = octets(items)[run["pos"] : at + len(data)]
        elif data.strip(b"\r\n"):
            try:
                (frame,) = Parser("1.2").feed(data)
                first = dict(reversed(frame.headers.pairs()))
                result.append({"headers": sorted(first.items()), "body": frame.body, "pos": at, "ok": True})
            except ValueError:
                result.append({"headers": None, "body": data, "pos": at, "ok": False})
        at += len(data)
    return result


def seen(found):
    return [
        {"headers": row["headers"] and sorted(row["headers"]), "body": row["body"], "pos": row["pos"]}
        | {"ok": row["error"] is None}
        for row in found
    ]


@given(parts, st.integers(1, 400), st.integers(1, 5), st.integers(1, 300), st.sampled_from(["stream", "gz", "zst"]))
@settings(max_examples=examples(100))
def test_rows_are_those_of_the_parser_however_octets_are_cut(tmp_path_factory, items, split, batch, size, form):
    path, data = tmp_path_factory.mktemp("rows") / "a.stomp", octets(items)
    if form == "gz":
        half = len(data) // 2
        path.write_bytes(gzip.compress(data[:half]) + gzip.compress(data[half:]))
    elif form == "zst":
        path.write_bytes(pa.compress(data, codec="zstd", asbytes=True) if data else data)
    else:
        path.write_bytes(data)
    options = {"splitBytes": split, "batchRows": batch, "batchBytes": size, "commands": "*"}
    assert seen(rows(path, **options)) == expected(items)
    parsed = parse_file({name: str(value) for name, value in options.items()})
    assert all(each.num_rows <= batch for each in batches(path, Projection(FRAME_SCHEMA), parsed))


@given(st.lists(frames, min_size=1, max_size=20), st.integers(1, 300), st.integers(1, 4), st.integers(50, 500))
@settings(max_examples=examples(40))
@pytest.mark.parametrize("single", [True, False])
def test_a_capture_gives_the_same_rows_and_when_they_came(tmp_path_factory, single, items, split, group, segment):
    folder = tmp_path_factory.mktemp("capture")
    path = make_capture(folder / "a.stompcap", items, group=group, segment_octets=segment, single=single)
    found = rows(path, splitBytes=split)
    assert seen(found) == expected(items)
    assert [row["received_at"] for row in found] == [moment(START + n // group * 1_000_000) for n in range(len(items))]
    assert {row["spool"] for row in found} == {str(path)}


@given(parts, st.sampled_from(["PERMISSIVE", "DROPMALFORMED", "FAILFAST"]))
@settings(max_examples=examples(40))
def test_modes(tmp_path_factory, items, mode):
    path = make_stream(tmp_path_factory.mktemp("modes") / "a.stomp", items)
    wanted = expected(items)
    if mode == "FAILFAST" and not all(row["ok"] for row in wanted):
        with pytest.raises(MalformedError, match=r"a\.stomp: .* at offset \d+ \(mode is FAILFAST[^\n]*\Z"):
            rows(path, commands="*", mode=mode)
        return
    wanted = [row for row in wanted if row["ok"] or mode != "DROPMALFORMED"]
    assert seen(rows(path, commands="*", mode=mode)) == wanted


def test_a_torn_frame_and_a_large_body_are_malformed(tmp_path):
    whole, torn = octets([message(1)]), octets([message(2)])[:-3]
    good, bad = rows(make_stream(tmp_path / "a.stomp", [whole, torn]))
    assert good["error"] is None
    assert bad["error"] == f"truncated: the stream ended inside a frame, at offset {len(whole)}"
    assert bad["body"] == torn
    path = make_stream(tmp_path / "a.stomp", [message(1, body=b"x" * 101), message(2, body=b"x" * 100)])
    bad, good = rows(path, NARROW, maxBody=100)
    assert bad["error"].startswith("limit-exceeded: ")
    assert good["message_id"] == "id-2"


def test_only_some_commands_become_rows(tmp_path):
    items = [Frame("SEND", {"destination": "/a"}), Frame("ERROR", {"message": "no"}), message(1), Frame("RECEIPT")]
    path, only = make_stream(tmp_path / "a.stomp", items), schema_of(command="frame", error="frame")
    assert [row["command"] for row in rows(path, only)] == ["SEND", "MESSAGE"]
    assert [row["command"] for row in rows(path, only, commands="ERROR")] == ["ERROR"]
    assert [row["command"] for row in rows(path, only, commands="*")] == ["SEND", "ERROR", "MESSAGE", "RECEIPT"]
    path.write_bytes(b"NOTE\n\n\0")
    assert rows(path, only, commands="NOTE") == [{"command": "NOTE", "error": None}]


@pytest.mark.parametrize(
    ("begin", "version", "found"),
    [
        *((b"", "auto", [None]), (b"", "1.0", ["x\\ty"]), (b"CONNECTED\nsession:1\n\n\0", "auto", ["x\\ty"])),
        *((b"CONNECTED\nversion:1.2\n\n\0", "auto", [None]), (b"CONNECTED\nversion:9\n\n\0", "auto", [None])),
        (b"\0\0", "auto", [None, None]),
    ],
)
def test_versions_of_bare_streams(tmp_path, begin, version, found):
    """A capture is always read by the rules of 1.2, which know no \\t."""
    path = make_stream(tmp_path / "a.stomp", [begin, b"MESSAGE\na:x\\ty\n\n\0"])
    assert [row["a"] for row in rows(path, schema_of(a="string"), version=version)] == found


def changed(path, change):
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


def told(found):
    return [row["message_id"] for row in found if not row["error"]], [row["error"] for row in found if row["error"]]


def test_octets_that_were_changed_are_told_and_the_frames_stay(tmp_path):
    path = make_capture(tmp_path / "a.stompcap", map(message, range(10)), group=2)
    (segment,) = path.glob("*.stomp")
    changed(segment, lambda data: data.__setitem__(data.index(b'"n": 5') + 5, ord("9")))
    good, (bad,) = told(rows(path))
    assert bad.startswith("damaged-frames: bytes ")
    assert good == ids(*range(10))
    assert told(rows(path, checksums="false")) == (good, [])


@pytest.mark.parametrize("row", [0, 1, 4, 9])
def test_a_damaged_index_loses_times_and_no_frames(tmp_path, row):
    path = make_capture(tmp_path / "a.stompcap", map(message, range(10)), seal=False)
    (index,) = path.glob("*.idx")
    changed(index, lambda data: data.__setitem__(24 * (row + 1) + 9, data[24 * (row + 1) + 9] ^ 1))
    for split in (50, 300, 100_000):
        found = rows(path, splitBytes=split)
        good, (bad,) = told(found)
        assert bad.startswith("damaged-index: ")
        assert good == ids(*range(10))
        times = [moment(START + n * 1_000_000) if n < row else None for n in range(10)]
        assert [each["received_at"] for each in found if not each["error"]] == times


def test_what_is_not_synced_yet_is_left_alone(tmp_path):
    """Its writer may be alive: frames count once the index tells of them."""
    path = make_capture(tmp_path / "a.stompcap", map(message, range(3)), seal=False)
    (segment,) = path.glob("*.stomp")
    changed(segment, lambda data: data.extend(octets([message(3)]) + b"MESS"))
    assert told(rows(path, NARROW)) == (ids(0, 1, 2), [])


def test_a_segment_that_is_missing_in_between_is_told(tmp_path):
    path = make_capture(tmp_path / "a.stompcap", map(message, range(9)), segment_octets=250)
    sorted(path.glob("*.stomp"))[1].unlink()
    found = rows(path, NARROW)
    assert [number for number, row in enumerate(found) if row["error"]] == [2]
    assert found[2]["error"].startswith("missing: bytes ")


@pytest.mark.parametrize("form", ["gz", "zst"])
def test_compressed_data_that_is_damaged_gives_what_comes_before(tmp_path, form):
    data = octets(message(n, body=bytes([n % 251]) * 50) for n in range(2000))
    packed = gzip.compress(data) if form == "gz" else pa.compress(data, codec="zstd", asbytes=True)
    path = tmp_path / f"a.stomp.{form}"
    path.write_bytes(packed[: len(packed) // 2])
    good, bad = told(rows(path, NARROW))
    assert good == ids(*range(len(good)))
    assert bad[0].startswith(("unreadable: ", "truncated: "))


def wrong(found):
    return [(row["pos"], row["length"], row["body"]) for row in found if row["error"]]


@pytest.mark.usefixtures("piece")
@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_a_batch_of_a_stream_is_not_cut_in_garbage(tmp_path, garbage):
    path = make_stream(tmp_path / "a.stomp", [message(1), message(2), garbage, message(3), message(4), garbage])
    options, start, found = FileOptions(), {}, []
    chains = chains_of([str(path)], options)
    while (end := limit_chains(chains, start, ends_of(chains, start), None, 1)) != start:
        batch = rows_of(splits_between(chains, start, end, options), Projection(NARROW), options)
        assert len(batch) <= 2  # a frame, and the garbage behind it
        found += batch
        start = end
    assert told(found)[0] == ids(1, 2, 3, 4)
    assert [body for _, _, body in wrong(found)] == [garbage, garbage]


def test_a_frame_that_is_not_chosen_ends_a_run(tmp_path):
    path = make_stream(tmp_path / "a.stomp", [b"\0\0", b"RECEIPT\nreceipt-id:1\n\n\0", b"\0\n\n", message(1)])
    assert wrong(rows(path, NARROW)) == [(0, 2, b"\0\0"), (25, 1, b"\0")]
    assert told(rows(path, NARROW, commands="RECEIPT,OWN"))[0] == [None]
    own = make_stream(tmp_path / "b.stomp", [b"\0\0", b"OWN\n\n\0", b"\0"])
    assert [body for _, _, body in wrong(rows(own, NARROW))] == [b"\0\0OWN\n\n\0\0"]
    assert [body for _, _, body in wrong(rows(own, NARROW, commands="OWN"))] == [b"\0\0", b"\0"]


def test_the_octets_of_a_long_run_are_bounded(tmp_path):
    garbage = (b"x" * 2000 + b"\0\n") * 700
    found = rows(make_stream(tmp_path / "a.stomp", [message(1), garbage, message(2)]), NARROW, splitBytes="100k")
    assert [each[1:] for each in wrong(found)] == [(len(garbage) - 1, garbage[: 2**20])]
    assert told(found)[0] == ids(1, 2)


#: Bodies above the limit of the tests; with NULs, with what looks like frames, and without either.
BODIES = {
    **{"text": b"x" * 300_000, "text without a length": b"y" * 300_000, "NULs": b"\0" * 300_000},
    **{"random octets": random.Random(2).randbytes(300_000), "frames": octets(map(message, range(3000)))},
}


def placed(folder, parts, how):
    if how == "capture":
        return make_capture(folder / "a.stompcap", parts, group=2)
    return make_stream(folder / {"stream": "a.stomp", "gzip": "a.stomp.gz"}[how], parts)


@pytest.mark.usefixtures("piece")
@pytest.mark.parametrize("how", ["stream", "gzip", "capture"])
@pytest.mark.parametrize("split", [2**25, 50_000])
@pytest.mark.parametrize("kind", BODIES)
def test_a_frame_that_is_too_large_is_one_row(tmp_path, kind, split, how, monkeypatch):
    monkeypatch.setattr(FileOptions, "most_octets", property(lambda options: options.max_body + 10_000))
    first, body = octets([message(1)]), BODIES[kind]
    length = "" if "without" in kind else f"content-length:{len(body)}\n"
    large = f"MESSAGE\nmessage-id:id-7\n{length}\n".encode() + body + b"\0"
    path = placed(tmp_path, [first, large, message(2), large, message(3)], how)
    found = rows(path, NARROW, maxBody=100_000, splitBytes=split)
    good, bad = told(found)
    assert good == ids(1, 2, 3)
    assert [each[:2] for each in wrong(found)] == [(at, len(large)) for at in (len(first), 2 * len(first) + len(large))]
    assert all(error.startswith("limit-exceeded: ") for error in bad)
    assert all(large.startswith(body) for _, _, body in wrong(found))


@pytest.mark.parametrize("how", ["stream", "gzip"])
@pytest.mark.parametrize(("counted", "liars"), [(300_000, 1), (10**14, 1000), (10**40, 1000)])
def test_a_length_that_lies_hides_nothing(usual, tmp_path, how, counted, liars):
    """It leads to an octet that is no NUL, or behind the file: the frame ends at its first NUL, and costs no other."""
    liar = f"MESSAGE\ncontent-length:{counted}\n\nshort\0".encode()
    path = placed(tmp_path, [message(1), *[liar] * liars, *map(message, range(5000))], how)
    found = rows(path, NARROW, maxBody=100_000, splitBytes=50_000)
    assert told(found)[0] == ids(1, *range(5000))
    first = len(octets([message(1)]))
    assert [(pos, body) for pos, _, body in wrong(found)] == [(first + n * len(liar), liar) for n in range(liars)]


LINES = [b"SEND\n", b"ACK\r\n", b"\n", b"\r\n", b"x\n", b"MESSAGE\0", b"MESS", b"\0"]


@given(st.lists(st.sampled_from(LINES), min_size=1, max_size=9).map(b"".join))
@example(b"\n" * 9 + b"SEND\n")
@example(b"SEND\n\r\n\r\nMESS")
def test_many_places_are_judged_as_one(data):
    places = np.arange(len(data) + 1)
    with memoryview(data) as view:
        for place, judged in zip(places.tolist(), clean(view, places, ("OWN",)).tolist()):
            line = data[place:].lstrip(b"\r\n")
            whole = any(end in line for end in (b"\n", b"\r", b"\0"))
            assert judged == (whole and begins_frame(view[place:], ("OWN",)))


_USED = """
import resource, sys
from stompcodec.spark.reading.decode import read_split
from stompcodec.spark.options import FileOptions
from stompcodec.spark.reading.plan import batch_splits
from stompcodec.spark.reading.schema import FRAME_SCHEMA, Projection
options = FileOptions(split_bytes=10**12)
for split in batch_splits(sys.argv[1:], options):
    for batch in read_split(split, Projection(FRAME_SCHEMA), options):
        pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.c_only
@pytest.mark.no_asan
def test_memory_does_not_grow_with_the_file(tmp_path):
    pytest.importorskip("resource")
    part = octets(message(n, body=b"x" * 500) for n in range(1000))
    used = {}
    for name, times in (("small.stomp", 40), ("large.stomp", 300), ("large.stomp.gz", 300)):
        path = tmp_path / name
        with gzip.open(path, "wb", compresslevel=1) if name.endswith("gz") else path.open("wb") as stream:
            for _ in range(times):
                stream.write(part)
        printed = subprocess.run([sys.executable, "-c", _USED, path], capture_output=True, check=True).stdout
        used[name] = int(printed) / (1 if sys.platform != "darwin" else 1024)
    assert used["large.stomp"] - used["small.stomp"] < 60_000  # KiB, of 160 MB more
    assert used["large.stomp.gz"] - used["small.stomp"] < 60_000


# ---- columns, what they can be cast to, and which frames ----
UTC = timezone.utc


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
        *(("integer", "5", 5), ("integer", "5.5", ...), ("integer", "99999999999", ...)),
        *(("long", "9223372036854775807", 2**63 - 1), ("long", "", ...), ("float", "1.5", 1.5)),
        *(("double", "1e3", 1000.0), ("boolean", "true", True), ("boolean", "maybe", ...)),
        *(("decimal(9,2)", "12.34", Decimal("12.34")), ("binary", "é", "é".encode()), ("string", "", "")),
        ("timestamp", "1700000000123", datetime(2023, 11, 14, 22, 13, 20, 123000, UTC)),
        ("timestamp", "2023-11-14 22:13:20.5", datetime(2023, 11, 14, 22, 13, 20, 500000, UTC)),
        ("timestamp", "2023-11-14T23:13:20+01:00", datetime(2023, 11, 14, 22, 13, 20, 0, UTC)),
        *(("timestamp", "9223372036854775807", ...), ("timestamp", "99999999999999999999", ...)),
        ("timestamp_ntz", "1700000000000", datetime(2023, 11, 14, 22, 13, 20)),
        ("date", "1700000000000", date(2023, 11, 14)),
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
    make_stream(path, [message(1), Frame("MESSAGE", {"h": "x"})])
    told = rf"a\.stomp: bad-value: h is not int32, at offset {len(octets([message(1)]))} "
    with pytest.raises(ValueError, match=told):
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


TEXT = schema_of(text="frame", error="frame")
PLAIN, GZIP = {"content-type": "text/plain"}, {"content-encoding": "gzip"}
UNTOLD = "bad-value: text is not what content-type says"


@pytest.mark.parametrize(
    ("headers", "body", "text", "error"),
    [
        *(({}, "é".encode(), "é", None), ({}, b"\xff", None, None)),
        ({"content-type": "text/plain;charset=latin1"}, b"\xe9", "é", None),
        ({"content-type": "application/json"}, b"\xef\xbb\xbf1", "1", None),
        ({"content-type": "application/xml"}, "é".encode("utf-16"), "é", None),
        ({"content-type": "image/png"}, b"abc", None, None),
        *(({**PLAIN, **GZIP}, gzip.compress(b"hi", mtime=0), "hi", None), (PLAIN, b"\xff", None, UNTOLD)),
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
        *(({}, [body for _, body in bodies], []), ({"decode": "auto"}, inflated, [4])),
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
    everything, found = (rows_of(batch_splits([str(path)], one), Projection(schema), one) for one in (options, chosen))

    def holds(row):
        came = round(row["received_at"].timestamp() * 1e6)
        in_time = (since is None or came >= since) and (until is None or came < until)
        return in_time and (not names or row["destination"] in names or row["error"] is not None)

    assert found == [row for row in everything if holds(row)]
