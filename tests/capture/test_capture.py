"""Captures that are written and read as they should be: appends, rotation, seals, chains, retention, following."""

import math
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from capture.capturing import DEEDS, ONE, TIME, TWO, batches, octets, read, segment, without_length
from hypothesis import given
from hypothesis import strategies as st
from patience import patience

from stompcodec import Frame, FrameError, Limits, parse
from stompcodec.capture import UNKNOWN, Capture, CaptureBusyError, CaptureWriter, Piece, is_sealed, octets_of
from stompcodec.errors import StoreError

ROOT = Path(__file__).parents[2]


@given(
    st.lists(st.tuples(batches, st.booleans(), st.sampled_from(["frames", "b"])), max_size=12),
    st.integers(1, 4000),
    st.lists(st.integers(0, 11), max_size=3),
)
def test_what_is_written_is_read(tmp_path_factory, appends, segment_octets, reopened):
    path = tmp_path_factory.mktemp("capture") / "a.stompcap"
    writer = CaptureWriter(path, segment_octets=segment_octets)
    written = {"frames": [], "b": []}
    for number, (batch, syncs, chain) in enumerate(appends):
        if number in reopened:
            writer.close(seal=syncs)
            if not syncs:  # then what was not synced is lost, and is appended again
                for name in written:
                    written[name] = [each for each in written[name] if each[0] < Capture(path).end(name)]
            writer = CaptureWriter(path, segment_octets=segment_octets)
        at = writer.append(octets(batch), TIME + number, chain)
        for frame in batch:
            written[chain].append((at, TIME + number, frame))
            at += len(octets_of(frame))
        if syncs:
            writer.sync()
            assert writer.end(chain) == at == Capture(path).end(chain)
    writer.close()
    capture = Capture(path)
    for chain, expected in written.items():
        found = [(at, time, without_length(frame)) for at, time, frame in capture.frames(chain)]
        assert found == expected
        for at, time, frame in expected[::3]:  # every offset is a place to begin
            assert next(iter(capture.frames(chain, at)))[1] == time
            assert without_length(next(iter(capture.frames(chain, at)))[2]) == frame
        ends = 0
        for each in capture.segments(chain):
            assert each.base == ends
            data = each.path.read_bytes()
            rows = list(capture.rows(each))
            assert [row.end for row in rows][-1:] == ([len(data)] if data else [])
            for row in rows:  # rows begin and end with frames
                assert parse(data[row.start : row.end])
            ends += len(data)


def test_segments_by_size_and_age(path):
    size = len(ONE)
    with CaptureWriter(path, segment_octets=2 * size, segment_seconds=10) as writer:
        for time in (0, 1, 2, 5, 12, 13):  # in s: the third does not fit, and is 10 s old when the fifth comes
            writer.append(ONE, TIME + time * 10**6)
        writer.roll(TIME + 30 * 10**6)
        assert len(Capture(path).segments()) == 3
        writer.append(ONE, TIME + 31 * 10**6)
    segments = Capture(path).segments()
    assert [each.path.stat().st_size // size for each in segments] == [2, 2, 2, 1]
    assert [each.base for each in segments] == [0, 2 * size, 4 * size, 6 * size]
    cursor = Capture(path).cursor()
    assert cursor.segment is None
    found = [(piece.offset, cursor.segment) for piece in cursor.pieces()]
    assert found[::2] == [(each.base, each) for each in segments]


@pytest.mark.parametrize("single", [False, True])
def test_a_cursor_follows(path, single):
    writer = CaptureWriter(path, single=single, segment_octets=3 * len(ONE))
    cursor = Capture(path).cursor()
    assert list(cursor.pieces()) == []
    at = 0
    for number in range(10):
        writer.append(ONE, TIME + number)
        assert list(cursor.pieces()) == []
        writer.sync()
        assert list(cursor.pieces()) == [Piece(at, TIME + number, ONE)]
        at += len(ONE)
        assert cursor.offset == at
        if number == 5:
            writer.close()
            assert list(cursor.pieces()) == []
            writer = CaptureWriter(path, segment_octets=3 * len(ONE))
    writer.close()
    assert list(cursor.pieces()) == []
    assert [piece.offset for piece in Capture(path).pieces(start=4 * len(ONE))] == [n * len(ONE) for n in range(4, 10)]


def test_a_cursor_that_was_left_goes_on_where_it_was(path):
    with CaptureWriter(path) as writer:
        for number in range(5):
            writer.append(ONE, TIME + number)
    cursor = Capture(path).cursor()
    assert [next(cursor.pieces()).time - TIME for _ in range(2)] == [0, 1]
    assert [piece.time - TIME for piece in cursor.pieces()] == [2, 3, 4]


def test_large_frames_come_in_pieces(path):
    body = os.urandom(3 * 2**20)
    with CaptureWriter(path) as writer:
        writer.append(octets([Frame("SEND", {"destination": "a"}, body)]), TIME)
    pieces = list(Capture(path).pieces())
    assert max(len(piece.data) for piece in pieces) <= 2**20
    assert [piece.end for piece in pieces[:-1]] == [piece.offset for piece in pieces[1:]]
    assert [frame.body for frame in read(path)] == [body]
    with pytest.raises(FrameError, match="limit-exceeded"):
        list(Capture(path).frames(limits=Limits(max_body=2**20)))


@pytest.mark.parametrize("single", [False, True])
def test_one_writer(path, single):
    writer = CaptureWriter(path, single=single)
    with pytest.raises(CaptureBusyError, match="another process writes"):
        CaptureWriter(path)
    code = f"from stompcodec.capture import CaptureWriter; CaptureWriter({str(path)!r})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=patience(60), cwd=ROOT)
    assert b"CaptureBusyError" in result.stderr
    writer.close()
    writer.close()
    CaptureWriter(path).close()


def test_kinds_are_not_mixed(path):
    CaptureWriter(path).close()
    with pytest.raises(StoreError, match="is a folder, and not a file"):
        CaptureWriter(path, single=True)
    CaptureWriter(path.with_suffix(".one"), single=True).close()
    with pytest.raises(StoreError, match="is a file, and not a folder"):
        CaptureWriter(path.with_suffix(".one"), single=False)
    with pytest.raises(StoreError, match="cannot be read"):
        Capture(path.with_suffix(".none"))
    with pytest.raises(ValueError, match="chain is"), CaptureWriter(path) as writer:
        writer.append(ONE, TIME, "../x")


def test_retention(path):
    second = 10**6
    with CaptureWriter(path, segment_octets=1) as writer:
        for number in range(10):
            writer.append(ONE, TIME + number * second)
        assert writer.retain(TIME + 9 * second) == 0
        assert writer.retain(TIME + 9 * second, seconds=6.5) == 3  # those of second 0, 1 and 2
        assert writer.retain(TIME + 9 * second, octets=5 * len(ONE)) == 2
        assert writer.retain(TIME + 9 * second, octets=0, below={"frames": 6 * len(ONE)}) == 1
        assert writer.retain(TIME + 9 * second, octets=0, below={}) == 0
        assert writer.retain(TIME + 9 * second, octets=0) == 3
        assert writer.retain(TIME + 10**9 * second, seconds=0, octets=0) == 0  # what is written is never deleted
        writer.append(TWO, TIME)
    assert [piece.offset for piece in Capture(path).pieces()] == [9 * len(ONE), 10 * len(ONE)]
    with pytest.raises(StoreError, match=f"bytes 0 to {9 * len(ONE)} of frames are missing"):
        list(Capture(path).pieces(start=0))
    assert len(list(path.glob("*.idx"))) == 2


def test_a_missing_segment_is_noticed(path):
    with CaptureWriter(path, segment_octets=1) as writer:
        for count in (10, 1, 1):  # one append is never cut
            writer.append(ONE * count, TIME)
    segment(path, 1).unlink()
    problems = []
    assert len(read(path, problems=problems)) == 11
    assert ["are missing" in problem for problem in problems] == [True]
    assert len(list(path.glob("*.idx"))) == 3
    CaptureWriter(path).close()
    assert len(list(path.glob("*.idx"))) == 2, "an index without a segment is swept up"


def test_frames_of_other_versions():
    padded = Frame("MESSAGE", [("content-length", " 2 "), ("a", "b:c\r\n")], b"hi")
    assert parse(octets_of(padded))[0] == Frame("MESSAGE", [("a", "b:c\r\n"), ("content-length", "2")], b"hi")
    plain = parse(b"MESSAGE\na:b\\c\n\nhi\0", "1.0")[0]
    assert octets_of(plain) == b"MESSAGE\na:b\\\\c\n\nhi\0"  # no content-length is put in
    assert octets_of(Frame("PING", {}, b"")) == b"PING\n\n\0"
    assert UNKNOWN == 0


@pytest.mark.parametrize("seconds", [math.nan, math.inf, 1e300, 10**400, -1])
def test_an_age_of_segments_that_is_no_time_is_refused(tmp_path, seconds):
    with pytest.raises(ValueError, match="segment_seconds must be"):
        CaptureWriter(tmp_path / "a", segment_seconds=seconds)
    assert not (tmp_path / "a").exists()


def test_a_finished_chain_has_no_open_files_and_goes_on_after_its_end(path):
    def descriptors():
        return len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").is_dir() else 0

    with CaptureWriter(path) as writer:
        writer.append(ONE, TIME, "a")
        writer.sync()
        before = descriptors()
        for chain in ("a", "a", "never"):
            writer.finish(chain)
        assert descriptors() < before or not before
        assert writer.end("a") == len(ONE)
        assert writer.append(TWO, TIME + 1, "a") == len(ONE)
        writer.finish("a")
    found = [(at, time, frame.body) for at, time, frame in Capture(path).frames("a")]
    assert found == [(0, TIME, b"one"), (len(ONE), TIME + 1, b"two")]
    with CaptureWriter(path.with_name("b"), single=True) as single, pytest.raises(ValueError, match="one chain"):
        single.finish("frames")


def test_a_sealed_file_is_known_by_its_end(path):
    writer = CaptureWriter(path, single=True)
    writer.append(ONE, TIME)
    writer.sync()
    assert not is_sealed(path)
    writer.close()
    assert is_sealed(path)
    data = path.read_bytes()
    for other in (data[:-1], data[1:], data + b"\n", b"", ONE):
        path.write_bytes(other)
        assert not is_sealed(path)
    assert not is_sealed(path.parent)
    assert not is_sealed(path.parent / "none")


# A capture that is removed, renamed or replaced while it is written: its writer vouches for nothing more

not_windows = pytest.mark.skipif(sys.platform == "win32", reason="Windows removes no open files")


@not_windows
@pytest.mark.parametrize("deed", DEEDS)
def test_a_capture_that_is_not_at_its_path_any_more_is_told(path, deed):
    capture = CaptureWriter(path)
    capture.append(ONE, TIME)
    capture.sync()
    capture.check()
    end = capture.end()
    DEEDS[deed](path)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"replaced while it was being written.*start again"):
            capture.check()
        assert capture.failed
    with suppress(StoreError):
        capture.append(TWO, TIME)
        capture.sync()
    assert capture.end() == end or deed == "lock removed"
    capture.close()


@not_windows
def test_a_segment_that_is_deleted_for_its_age_is_no_removal(path):
    with CaptureWriter(path, segment_octets=100) as capture:
        for number in range(10):
            capture.append(octets([Frame("MESSAGE", {}, b"%d" % number)]), TIME)
            capture.sync()
            capture.check()
            capture.retain(TIME, octets=0)
        capture.check()
    bodies = [int(frame.body) for frame in read(path)]
    assert (bodies[-1], bodies[0] > 5) == (9, True)
