"""Octets to record batches: the same rows however they are cut, malformed frames as rows, bounded memory."""

from __future__ import annotations

import gzip
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from spark.making import START, make_capture, make_stream, message, octets
from spark.read_back import batches, read, rows, schema_of

from stompcodec import Frame, Parser
from stompcodec.spark.options import parse_file
from stompcodec.spark.reading import decode, splits, window
from stompcodec.spark.reading.plan import batch_splits
from stompcodec.spark.reading.schema import FRAME_SCHEMA, MalformedError, Projection
from stompcodec.spark.reading.window import begins_frame

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
NARROW = schema_of(message_id="frame", pos="frame", error="frame")
BAD = [
    b"GARBAGE\nno:thing\n\n\0",
    b"MESSAGE\nno colon\n\n\0",
    b"MESSAGE\na:\\z\n\n\0",
    b"MESSAGE\ncontent-length:3\n\nabcd\0",
    b"MESSAGE\ncontent-length:-1\n\n\0",
    b"MESSAGE\na:\xff\n\n\0",
    b"\x16\x03\x01\0",
    b"ACK\nid:1\n\nbody\0",
]
#: Runs of garbage, each of which is one row.
GARBAGE = [
    b"\0",
    b"\0" * 100,
    b"\0\n\0\r\n\r\n\0\n\n\0",
    b"GET / HTTP/1.1\r\nhost: h\r\n\r\n\0hello\nworld\n\n\0more\0",
    b"message\ndestination:/a\n\nx\0",
    b"MESSAGES\n\n\0MESSAGE \n\n\0SENDER\n\n\0MES\n\n\0",
    b"WHAT\ncontent-length:5\n\n\0\0\0\0\0\0",
]


def moment(us: int) -> datetime:
    return EPOCH + timedelta(microseconds=us)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows move often."""
    monkeypatch.setattr(decode, "_FIRST", 64)
    monkeypatch.setattr(decode, "_LEAST", 16)
    monkeypatch.setattr(splits, "_PIECE", 64)


text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
frames = st.builds(
    lambda pairs, body, length: Frame(
        "MESSAGE", [*pairs, *([("content-length", str(len(body)))] if length or b"\0" in body else [])], body
    ),
    st.lists(st.tuples(text.filter(bool).filter(lambda name: name != "content-length"), text), max_size=4),
    st.binary(max_size=80),
    st.booleans(),
)
parts = st.lists(
    st.one_of(frames, frames, st.sampled_from([*BAD, *GARBAGE]), st.sampled_from([b"\n", b"\r\n\n"])), max_size=12
)


def expected(items: list[Any]) -> list[dict[str, Any]]:
    """The rows of frames and malformed octets, by the parser."""
    result, at = list[dict[str, Any]](), 0
    for item in items:
        data = octets([item])
        run = result[-1] if result and result[-1]["headers"] is None and not begins_frame(result[-1]["body"]) else None
        if run is not None and data.strip(b"\r\n") and not begins_frame(data):  # garbage behind garbage
            run["body"] = octets(items)[run["pos"] : at + len(data)]
        elif data.strip(b"\r\n"):
            try:
                (frame,) = Parser("1.2").feed(data)
                first: dict[str, str] = {}
                for name, value in frame.headers.pairs():
                    first.setdefault(name, value)
                result.append({"headers": sorted(first.items()), "body": frame.body, "pos": at, "ok": True})
            except ValueError:
                result.append({"headers": None, "body": data, "pos": at, "ok": False})
        at += len(data)
    return result


def seen(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "headers": None if row["headers"] is None else sorted(row["headers"]),
            "body": row["body"],
            "pos": row["pos"],
            "ok": row["error"] is None,
        }
        for row in found
    ]


@given(parts, st.integers(1, 400), st.integers(1, 5), st.integers(1, 300), st.sampled_from(["stream", "gz", "zst"]))
@settings(max_examples=examples(100))
def test_rows_are_those_of_the_parser_however_octets_are_cut(
    tmp_path_factory: pytest.TempPathFactory, items: list[Any], split: int, batch: int, size: int, form: str
) -> None:
    path = tmp_path_factory.mktemp("rows") / "a.stomp"
    data = octets(items)
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


@given(st.lists(frames, max_size=20), st.integers(1, 300), st.integers(1, 4), st.integers(50, 500), st.booleans())
@settings(max_examples=examples(40))
def test_a_capture_gives_the_same_rows_and_when_they_came(
    tmp_path_factory: pytest.TempPathFactory, items: list[Frame], split: int, group: int, segment: int, single: bool
) -> None:
    folder = tmp_path_factory.mktemp("capture")
    path = make_capture(folder / "a.stompcap", items, group=group, segment_octets=segment, single=single)
    if not items:
        return
    found = rows(path, splitBytes=split)
    assert seen(found) == expected(items)
    assert [row["received_at"] for row in found] == [moment(START + n // group * 1_000_000) for n in range(len(items))]
    assert {row["spool"] for row in found} == {str(path)}


@given(parts, st.sampled_from(["PERMISSIVE", "DROPMALFORMED", "FAILFAST"]))
@settings(max_examples=examples(40))
def test_modes(tmp_path_factory: pytest.TempPathFactory, items: list[Any], mode: str) -> None:
    path = make_stream(tmp_path_factory.mktemp("modes") / "a.stomp", items)
    wanted = expected(items)
    if mode == "FAILFAST" and not all(row["ok"] for row in wanted):
        with pytest.raises(MalformedError, match="mode is FAILFAST") as caught:
            rows(path, commands="*", mode=mode)
        assert "\n" not in str(caught.value)
        return
    if mode == "DROPMALFORMED":
        wanted = [row for row in wanted if row["ok"]]
    assert seen(rows(path, commands="*", mode=mode)) == wanted


def test_a_malformed_frame_is_a_row_of_its_own(tmp_path: Path) -> None:
    path = make_stream(tmp_path / "a.stomp", [message(1), BAD[3], message(2)])
    good, bad, last = rows(path)
    assert (good["message_id"], last["message_id"]) == ("id-1", "id-2")
    at = len(octets([message(1)]))
    assert bad.pop("error").startswith("missing-null: no NUL follows a body of content-length bytes, at offset")
    assert {name: value for name, value in bad.items() if value is not None} == {
        "body": BAD[3],
        "pos": at,
        "length": len(BAD[3]),
        "spool": str(path),
    }


def test_a_stream_that_ends_inside_a_frame_says_so(tmp_path: Path) -> None:
    whole, torn = octets([message(1)]), octets([message(2)])[:-3]
    path = make_stream(tmp_path / "a.stomp", [whole, torn, b""])
    good, bad = rows(path)
    assert good["error"] is None
    assert bad["error"] == f"truncated: the stream ended inside a frame, at offset {len(whole)}"
    assert bad["body"] == torn


def test_a_content_length_that_goes_beyond_the_file_costs_one_frame(tmp_path: Path) -> None:
    """Nor does it cost more: all is read anew for none of them."""
    hostile = b"MESSAGE\ncontent-length:90000000\n\nhello\0"
    path = make_stream(tmp_path / "a.stomp", [hostile] * 3000 + [message(1)])
    found = rows(path, NARROW)
    assert [row["message_id"] for row in found] == [None] * 3000 + ["id-1"]
    assert [row["pos"] for row in found] == [len(hostile) * number for number in range(3001)]


def test_a_body_above_max_body_is_malformed(tmp_path: Path) -> None:
    path = make_stream(tmp_path / "a.stomp", [message(1, body=b"x" * 101), message(2, body=b"x" * 100)])
    bad, good = rows(path, NARROW, maxBody=100)
    assert bad["error"].startswith("limit-exceeded: ")
    assert good["message_id"] == "id-2"


def test_only_some_commands_become_rows(tmp_path: Path) -> None:
    items = [Frame("SEND", {"destination": "/a"}), Frame("ERROR", {"message": "no"}), message(1), Frame("RECEIPT")]
    path = make_stream(tmp_path / "a.stomp", items)
    only = schema_of(command="frame", error="frame")
    assert [row["command"] for row in rows(path, only)] == ["SEND", "MESSAGE"]
    assert [row["command"] for row in rows(path, only, commands="ERROR")] == ["ERROR"]
    assert [row["command"] for row in rows(path, only, commands="*")] == ["SEND", "ERROR", "MESSAGE", "RECEIPT"]
    path.write_bytes(b"NOTE\n\n\0")
    assert rows(path, only, commands="NOTE") == [{"command": "NOTE", "error": None}]


def test_versions_of_bare_streams(tmp_path: Path) -> None:
    """A capture is always read by the rules of 1.2."""
    only = schema_of(a="string")
    data = b"MESSAGE\na:x\\ty\n\n\0"
    escaped = [{"a": None}]
    for begin, version, wanted in [
        (b"", "auto", escaped),
        (b"", "1.0", [{"a": "x\\ty"}]),
        (b"CONNECTED\nsession:1\n\n\0", "auto", [{"a": "x\\ty"}]),
        (b"CONNECTED\nversion:1.2\n\n\0", "auto", escaped),
        (b"CONNECTED\nversion:9\n\n\0", "auto", escaped),
        (b"\0\0", "auto", [{"a": None}, *escaped]),
    ]:
        path = make_stream(tmp_path / "a.stomp", [begin, data])
        assert rows(path, only, version=version) == wanted, (begin, version)


# ---- damage ----


def test_octets_that_were_changed_are_told_and_the_frames_stay(tmp_path: Path) -> None:
    path = make_capture(tmp_path / "a.stompcap", [message(n) for n in range(10)], group=2)
    (segment,) = path.glob("*.stomp")
    data = bytearray(segment.read_bytes())
    data[data.index(b'"n": 5') + 5] = ord("9")
    segment.write_bytes(data)
    found = rows(path)
    (bad,) = [row for row in found if row["error"]]
    assert bad["error"].startswith("damaged-frames: bytes ")
    assert [row["message_id"] for row in found if not row["error"]] == [f"id-{n}" for n in range(10)]
    assert not any(row["error"] for row in rows(path, checksums="false"))


@pytest.mark.parametrize("row", [0, 1, 4, 9])
def test_a_damaged_index_loses_times_and_no_frames(tmp_path: Path, row: int) -> None:
    path = make_capture(tmp_path / "a.stompcap", [message(n) for n in range(10)], seal=False)
    (index,) = path.glob("*.idx")
    data = bytearray(index.read_bytes())
    data[24 * (row + 1) + 9] ^= 1
    index.write_bytes(data)
    for split in (50, 300, 100_000):
        found = rows(path, splitBytes=split)
        (bad,) = [each for each in found if each["error"]]
        assert bad["error"].startswith("damaged-index: ")
        good = [each for each in found if not each["error"]]
        assert [each["message_id"] for each in good] == [f"id-{n}" for n in range(10)]
        times = [moment(START + n * 1_000_000) if n < row else None for n in range(10)]
        assert [each["received_at"] for each in good] == times


def test_what_is_not_synced_yet_is_left_alone(tmp_path: Path) -> None:
    """Its writer may be alive: frames count once the index tells of them."""
    path = make_capture(tmp_path / "a.stompcap", [message(n) for n in range(3)], seal=False)
    (segment,) = path.glob("*.stomp")
    with segment.open("ab") as stream:
        stream.write(octets([message(3)]) + b"MESS")
    assert [row["message_id"] for row in rows(path, NARROW)] == ["id-0", "id-1", "id-2"]


def test_a_segment_that_is_missing_in_between_is_told(tmp_path: Path) -> None:
    path = make_capture(tmp_path / "a.stompcap", [message(n) for n in range(9)], segment_octets=250)
    second = sorted(path.glob("*.stomp"))[1]
    second.unlink()
    found = rows(path, NARROW)
    (bad,) = [row for row in found if row["error"]]
    assert bad["error"].startswith("missing: bytes ")
    assert found.index(bad) == 2


def test_a_file_that_got_shorter_after_planning_is_told(tmp_path: Path) -> None:
    path = make_stream(tmp_path / "a.stomp", [message(n) for n in range(10)])
    options = parse_file({})
    (split,) = batch_splits([str(path)], options)
    with path.open("r+b") as stream:
        stream.truncate(len(octets([message(0), message(1)])))
    projection = Projection(NARROW)
    found = [row for batch in decode.read_split(split, projection, options) for row in batch.to_pylist()]
    assert [row["message_id"] for row in found] == ["id-0", "id-1", None]
    assert found[2]["error"].startswith("truncated: the file is ")


@pytest.mark.parametrize("form", ["gz", "zst"])
def test_compressed_data_that_is_damaged_gives_what_comes_before(tmp_path: Path, form: str) -> None:
    data = octets([message(n, body=bytes([n % 251]) * 50) for n in range(2000)])
    packed = gzip.compress(data) if form == "gz" else pa.compress(data, codec="zstd", asbytes=True)
    path = tmp_path / f"a.stomp.{form}"
    path.write_bytes(packed[: len(packed) // 2])
    found = rows(path, NARROW)
    good = [row["message_id"] for row in found if not row["error"]]
    assert good == [f"id-{n}" for n in range(len(good))]
    told = [row["error"] for row in found if row["error"]]
    assert told[0].startswith(("unreadable: ", "truncated: "))


# ---- memory ----


def test_windows_stay_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where frames are wanted that are not there, and after one that was large."""
    largest = 0
    make_room = decode.Window._make_room

    def watched(self: Any, size: int) -> None:
        nonlocal largest
        make_room(self, size)
        largest = max(largest, len(self._buffer))

    monkeypatch.setattr(decode.Window, "_make_room", watched)
    monkeypatch.setattr(window, "_spare", [])  # not the buffer of another test
    items = [message(n, body=b"x" * 500) for n in range(4000)]
    path = make_stream(tmp_path / "a.stomp", [*items[:10], message(0, body=b"y" * 200_000), *items])
    table = read(path, batchBytes=20_000, splitBytes=10_000_000)
    assert table.num_rows == 4011
    assert 200_000 < largest < 1_000_000


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
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    pytest.importorskip("resource")
    part = octets([message(n, body=b"x" * 500) for n in range(1000)])
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
