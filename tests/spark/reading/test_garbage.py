"""What is no frame: a run of garbage is one row, and so is a frame that is too large, wherever it is cut."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from spark.making import make_capture, make_stream, message, octets
from spark.read_back import rows, schema_of
from spark.reading.test_decode import GARBAGE

from stompcodec.spark.options import FileOptions
from stompcodec.spark.reading import decode, splits
from stompcodec.spark.reading.plan import chains_of, ends_of, limit_chains, splits_between
from stompcodec.spark.reading.window import begins_frame, clean, declared_end, looker, rest_of_run

SCHEMA = schema_of(message_id="frame", pos="frame", length="frame", body="frame", error="frame")


@pytest.fixture(params=[8 * 2**20, 700])
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """What is looked at in one go to find the ends of frames."""
    monkeypatch.setattr(splits, "_PIECE", request.param)
    return int(request.param)


def frames(*numbers: int) -> list[bytes]:
    return [octets([message(number)]) for number in numbers]


def wrong(found: list[dict[str, Any]]) -> list[tuple[int, int, bytes]]:
    return [(row["pos"], row["length"], row["body"]) for row in found if row["error"]]


def right(found: list[dict[str, Any]]) -> list[str]:
    return [row["message_id"] for row in found if not row["error"]]


@pytest.mark.usefixtures("piece")
@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_a_batch_of_a_stream_is_not_cut_in_garbage(tmp_path: Path, garbage: bytes) -> None:
    path = make_stream(tmp_path / "a.stomp", [*frames(1, 2), garbage, *frames(3, 4), garbage])
    options = FileOptions()
    start, found = dict[str, int](), []
    while True:
        chains = chains_of([str(path)], options)
        end = limit_chains(chains, start, ends_of(chains, start), None, 1)
        if end == start:
            break
        (split,) = splits_between(chains, start, end, options)
        from stompcodec.spark.reading.schema import Projection

        batch = [row for each in decode.read_split(split, Projection(SCHEMA), options) for row in each.to_pylist()]
        assert len(batch) <= 2  # a frame, and the garbage behind it
        found += batch
        start = end
    assert right(found) == ["id-1", "id-2", "id-3", "id-4"]
    assert [body for _, _, body in wrong(found)] == [garbage, garbage]


def test_a_frame_that_is_not_chosen_ends_a_run(tmp_path: Path) -> None:
    path = make_stream(tmp_path / "a.stomp", [b"\0\0", b"RECEIPT\nreceipt-id:1\n\n\0", b"\0\n\n", *frames(1)])
    assert wrong(rows(path, SCHEMA)) == [(0, 2, b"\0\0"), (25, 1, b"\0")]
    assert right(rows(path, SCHEMA, commands="RECEIPT,OWN")) == [None]
    own = make_stream(tmp_path / "b.stomp", [b"\0\0", b"OWN\n\n\0", b"\0"])
    assert [body for _, _, body in wrong(rows(own, SCHEMA))] == [b"\0\0OWN\n\n\0\0"]
    assert [body for _, _, body in wrong(rows(own, SCHEMA, commands="OWN"))] == [b"\0\0", b"\0"]


def test_the_octets_of_a_long_run_are_bounded(tmp_path: Path) -> None:
    garbage = (b"x" * 2000 + b"\0\n") * 700
    path = make_stream(tmp_path / "a.stomp", [*frames(1), garbage, *frames(2)])
    found = rows(path, SCHEMA, splitBytes="100k")
    ((_, length, body),) = wrong(found)
    assert (length, body) == (len(garbage) - 1, garbage[: 2**20])
    assert right(found) == ["id-1", "id-2"]


def test_a_run_of_nuls_is_passed_over_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one they would cost a step each: a disk that lost its contents gives gigabytes of them."""
    steps = []

    def counted(view: memoryview, end: int) -> int:
        steps.append(end)
        return rest_of_run(view, end)

    monkeypatch.setattr(decode, "rest_of_run", counted)
    path = make_stream(tmp_path / "a.stomp", [*frames(1), b"\0" * 20_000, *frames(2)])
    assert [(length, body) for _, length, body in wrong(rows(path, SCHEMA))] == [(20_000, b"\0" * 20_000)]
    assert len(steps) <= 5


def test_garbage_in_a_capture_is_not_cut_at_the_rows_of_its_index(tmp_path: Path) -> None:
    """Damage: the octets of many frames that follow each other, each of which has a row in the index."""
    path = make_capture(tmp_path / "a.stompcap", [message(number) for number in range(100, 200)])
    (segment,) = path.glob("*.stomp")
    data, one = bytearray(segment.read_bytes()), len(octets([message(100)]))
    data[20 * one : 60 * one] = b"\0x" * (20 * one)
    segment.write_bytes(data)
    found = rows(path, SCHEMA, splitBytes=3 * one, checksums=False)
    assert wrong(found) == [(20 * one, 40 * one - 1, bytes(data[20 * one : 60 * one - 1]))] or wrong(found) == [
        (20 * one, 40 * one, bytes(data[20 * one : 60 * one]))
    ]


# ---- frames that are too large ----


def large(number: int, body: bytes, counted: bool = True) -> bytes:
    length = f"content-length:{len(body)}\n" if counted else ""
    return f"MESSAGE\nmessage-id:id-{number}\n{length}\n".encode() + body + b"\0"


#: Bodies above the limit of the tests; with NULs, with what looks like frames, and without either.
BODIES = {
    "text": b"x" * 300_000,
    "text without a length": b"y" * 300_000,
    "NULs": b"\0" * 300_000,
    "random octets": random.Random(2).randbytes(300_000),
    "frames": octets(frames(*range(3000))),
}
LIMIT = 100_000


def packed(path: Path, parts: list[bytes], how: str) -> Path:
    if how == "gzip":
        path = path.with_suffix(".stomp.gz")
        path.write_bytes(gzip.compress(b"".join(parts)))
        return path
    return make_capture(path, parts, group=2) if how == "capture" else make_stream(path, parts)


@pytest.mark.usefixtures("piece")
@pytest.mark.parametrize("how", ["stream", "gzip", "capture"])
@pytest.mark.parametrize("split", [2**25, 50_000])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_frame_that_is_too_large_is_one_row(
    tmp_path: Path, body: bytes, split: int, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileOptions, "most_octets", property(lambda options: options.max_body + 10_000))
    first = octets(frames(1))
    frame = large(7, body, counted=body[:1] != b"y")
    name = "a.stompcap" if how == "capture" else "a.stomp"
    path = packed(tmp_path / name, [first, frame, *frames(2), frame, *frames(3)], how)
    found = rows(path, SCHEMA, maxBody=LIMIT, splitBytes=split)
    assert right(found) == ["id-1", "id-2", "id-3"]
    second = 2 * len(first) + len(frame)
    assert [each[:2] for each in wrong(found)] == [(len(first), len(frame)), (second, len(frame))]
    for row in (row for row in found if row["error"]):
        assert row["error"].startswith("limit-exceeded: ")
        assert frame.startswith(row["body"])


@pytest.mark.parametrize("how", ["stream", "gzip"])
@pytest.mark.parametrize("counted", [300_000, 10**14, 10**40])
def test_a_length_that_lies_hides_nothing(tmp_path: Path, how: str, counted: int) -> None:
    """It leads behind the file, or to an octet that is no NUL: the frame ends at its first NUL."""
    liar = f"MESSAGE\ncontent-length:{counted}\n\nshort\0".encode()
    many = frames(*range(5000))
    path = packed(tmp_path / "a.stomp", [*frames(1), liar, *many], how)
    found = rows(path, SCHEMA, maxBody=LIMIT, splitBytes=50_000)
    assert len(right(found)) == 5001
    assert [body for _, _, body in wrong(found)] == [liar]


# ---- the parts ----


PARTS = [b"SEND\n", b"ACK\r\n", b"\n", b"\r\n", b"x\n", b"MESSAGE\0", b"MESS", b"\0"]


@given(st.lists(st.sampled_from(PARTS), max_size=9))
@example([b"\n"] * 9 + [b"SEND\n"])
def test_many_places_are_judged_as_one(parts: list[bytes]) -> None:
    data = b"".join(parts)
    if data:
        places = np.arange(len(data) + 1)
        with memoryview(data) as view:
            found = clean(view, places, ("OWN",)).tolist()
            for place, judged in zip(places.tolist(), found):
                line = data[place:].lstrip(b"\r\n")
                whole = any(end in line for end in (b"\n", b"\r", b"\0"))
                assert judged == (whole and begins_frame(view[place:], ("OWN",)))


def test_a_length_counts_once_the_head_is_whole() -> None:
    assert declared_end(b"\n\nSEND\ncontent-length: 3 \r\n\r\n") == 33
    for data in (b"", b"\n", b"SEND\ncontent-length:3\n", b"SEND\ncontent-length:x\n\n", b"SEND\0content-length:3\n\n"):
        assert declared_end(data) is None


def test_an_octet_of_a_file_is_found(tmp_path: Path) -> None:
    data = random.Random(3).randbytes(2_500_000)
    (tmp_path / "a").write_bytes(data)
    (tmp_path / "b").write_bytes(gzip.compress(data))
    for look in (looker(str(tmp_path / "a"), None), looker(str(tmp_path / "b"), "gzip")):
        for place in (0, 5, 2**20 - 1, 2**20, 2**20 + 1, len(data) - 1):
            assert look(place) == data[place : place + 1]
        assert look(len(data)) == b""
