"""Captures: appends, rotation, seals, chains, retention, following; after crashes, on full disks, in hostile hands."""

import contextlib
import errno
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import zlib
from contextlib import suppress
from pathlib import Path

import pytest
from capture.capturing import DEEDS, ONE, TIME, TWO, batches, octets, read, segment, without_length
from hypothesis import given
from hypothesis import strategies as st
from patience import patience

from stompcodec import Frame, FrameError, Limits, Parser, parse
from stompcodec.capture import UNKNOWN, Capture, CaptureBusyError, CaptureWriter, Piece, is_sealed, octets_of
from stompcodec.capture import writer as capture_segment
from stompcodec.capture.index import ROW, IndexEncoder, index_path, trailer
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
        assert [(at, time, without_length(frame)) for at, time, frame in capture.frames(chain)] == expected
        for at, time, frame in expected[::3]:  # every offset is a place to begin
            assert next(iter(capture.frames(chain, at)))[1] == time
            assert without_length(next(iter(capture.frames(chain, at)))[2]) == frame
        ends = 0
        for each in capture.segments(chain):
            assert each.base == ends
            data, rows = each.path.read_bytes(), list(capture.rows(each))
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
    assert (octets_of(Frame("PING", {}, b"")), UNKNOWN) == (b"PING\n\n\0", 0)


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


kinds = pytest.mark.parametrize("single", [False, True])


def crashed(path, writer):
    copy = path.with_name("copy.stompcap")
    if path.is_dir():
        shutil.copytree(path, copy)
    else:
        shutil.copy(path, copy)
        with contextlib.suppress(FileNotFoundError):
            shutil.copy(index_path(path), index_path(copy))
    with contextlib.suppress(StoreError):
        writer.close(seal=False)
    return copy


@given(st.lists(batches, max_size=5), st.lists(batches, max_size=3), st.booleans(), st.data())
def test_a_crash_at_any_octet(tmp_path_factory, synced, more, single, data):
    """What comes after a sync is cut anywhere, in the segment and in the index: the index is always behind."""
    path = tmp_path_factory.mktemp("capture") / "a.stompcap"
    writer = CaptureWriter(path, single=single)
    sure = [frame for batch in synced for frame in batch]
    for number, batch in enumerate(synced):
        writer.append(octets(batch), TIME + number)
    writer.sync()
    file = path if single else None
    before = index_path(path).stat().st_size if single else 0
    for batch in more:
        writer.append(octets(batch), TIME)
        file = file or segment(path)
    if file is not None:
        before = index_path(file).stat().st_size
        length = writer.end() + data.draw(st.integers(0, file.stat().st_size - writer.end()))
        whole = length == file.stat().st_size
        if whole and data.draw(st.booleans()):
            writer.sync()  # the octets are there: then rows may be, too
    copy = crashed(path, writer)
    everything = sure + [frame for batch in more for frame in batch]
    if file is not None:
        file = copy if single else segment(copy)
        os.truncate(file, length)
        os.truncate(index_path(file), data.draw(st.integers(before, index_path(file).stat().st_size)))
    problems = []
    seen = read(copy, problems=problems)
    assert (seen[: len(sure)], seen) == (sure, everything[: len(seen)])
    assert not problems
    with CaptureWriter(copy) as again:
        kept = read(copy)
        assert (kept[: len(seen)], kept) == (seen, everything[: len(kept)])
        assert again.end() == sum(len(octets_of(frame)) for frame in kept)
        again.append(ONE, TIME)
    assert read(copy) == [*kept, Frame("MESSAGE", {"destination": "/queue/a"}, b"one")]


@given(st.lists(batches, min_size=1, max_size=5), st.booleans(), st.booleans(), st.data())
def test_a_damaged_index_is_noticed_and_nothing_is_lost(tmp_path_factory, appends, single, sealed, data):
    path = tmp_path_factory.mktemp("capture") / "a.stompcap"
    writer = CaptureWriter(path, single=single)
    for number, batch in enumerate(appends):
        writer.append(octets(batch), TIME + number)
        writer.sync()
    writer.close(seal=sealed)
    file = path if single else segment(path)
    index = file if single and sealed else index_path(file)
    whole = bytearray(index.read_bytes())
    start = sum(map(len, map(octets, appends))) if single and sealed else 0
    at = data.draw(st.integers(start, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    index.write_bytes(whole)
    expected = [frame for batch in appends for frame in batch]
    problems = []
    assert read(path, problems=problems) == expected
    assert len(problems) >= 1
    with pytest.raises(StoreError):
        read(path)
    try:
        writer = CaptureWriter(path)
    except StoreError:
        assert (single, sealed) == (True, True)  # it is read only, from now on
        return
    writer.append(ONE, TIME)
    writer.close()
    assert len(read(path)) == len(expected) + 1
    times = [time for _, time, _ in Capture(path).frames()]
    assert set(times) <= {UNKNOWN, *range(TIME, TIME + len(appends))}


@given(st.lists(st.one_of(st.binary(max_size=60), st.sampled_from([ONE, b"\n", b"\0", trailer(0)])), max_size=6))
def test_any_octets_for_a_single_file(tmp_path_factory, parts):
    path = tmp_path_factory.mktemp("capture") / "a.stompcap"
    path.write_bytes(b"".join(parts))
    problems = []
    seen = list(Capture(path, on_problem=problems.append).pieces())
    whole = b"".join(piece.data for piece in seen)
    assert b"".join(parts).startswith(whole)
    try:
        writer = CaptureWriter(path)
    except StoreError as error:  # it is no capture: nothing is cut off
        assert "not only frames" in str(error)  # noqa: PT017
        assert path.read_bytes() == b"".join(parts)
        assert problems
        return
    writer.append(ONE, TIME)
    writer.close()
    assert [octets_of(frame) for frame in read(path)] == [*map(octets_of, parse(whole)), ONE]


def _made_up(path, *rows, base=0):
    """A segment whose index is in order by itself, but does not fit its octets."""
    path.mkdir(exist_ok=True)
    file = path / f"frames-{base:020}.stomp"
    file.write_bytes(ONE * 3)
    encoder = IndexEncoder(base)
    index_path(file).write_bytes(encoder.header() + b"".join(encoder.row(*row) for row in rows))
    return file


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([(2**62, TIME, 0)], ["the index is damaged"]),
        ([(3 * len(ONE) + 1, TIME, 0)], ["the index is damaged"]),
        ([(7, 2**63 - 1, 1), (3 * len(ONE), -(2**63), 2)], ["do not match their checksum"] * 2),
    ],
)
def test_rows_that_are_not_about_these_octets(path, rows, why):
    _made_up(path, *rows)
    problems = []
    assert len(read(path, problems=problems)) == 3
    assert [text in problem for text, problem in zip(why, problems, strict=True)] == [True] * len(why)
    if len(why) == 1:
        CaptureWriter(path).close()
        assert len(read(path)) == 3


def test_nothing_is_cut_by_the_index_of_something_else(path):
    file = _made_up(path, (len(ONE), TIME, 1))
    with pytest.raises(StoreError, match="the index of something else"):
        CaptureWriter(path)
    assert file.read_bytes() == ONE * 3
    CaptureWriter(path.with_name("other")).close()


def test_sparse_files_and_huge_bases(path):
    path.mkdir()
    (path / f"frames-{10**20 - 1}.stomp").write_bytes(ONE)  # no such offset can be
    CaptureWriter(path).close()
    assert Capture(path).segments() == []
    os.truncate(index_path(_made_up(path, base=2**62)), 2**40)  # zeros without end
    problems = []
    assert len(read(path, problems=problems)) == 3
    assert "the index is damaged" in problems[0]
    with pytest.raises(StoreError, match="is full"), CaptureWriter(path, segment_octets=1) as writer:
        writer.append(ONE, TIME)


@kinds
def test_an_index_that_is_gone_is_made_again(path, single):
    writer = CaptureWriter(path, single=single)
    for _ in range(100):
        writer.append(ONE * 40, TIME)
    writer.close(seal=False)
    writer = CaptureWriter(path)
    assert read(path) == []
    for _ in range(2):
        writer.append(ONE * 4000, TIME)
    writer.sync()
    writer.close(seal=False)
    file = path if single else segment(path)
    index_path(file).unlink()
    if not single:
        file.write_bytes(file.read_bytes() + ONE[:-1])
    again = CaptureWriter(path)
    assert again.lost == (0 if single else len(ONE) - 1)
    again.close()
    rows = list(Capture(path).rows(Capture(path).segments()[0]))
    assert len(rows) > 2  # places to begin with
    assert ({row.time for row in rows}, len(read(path))) == ({UNKNOWN}, 8000)


def test_sealing_a_single_file_is_cut_anywhere(path):
    writer = CaptureWriter(path, single=True)
    for number in range(3):
        writer.append(ONE, TIME + number)
    writer.sync()
    beside = index_path(path).read_bytes()
    writer.close()
    sealed = path.read_bytes()
    assert len(sealed) == 3 * len(ONE) + len(beside) + 2 * ROW
    for length in range(3 * len(ONE), len(sealed) + 1):
        path.write_bytes(sealed[:length])
        index_path(path).write_bytes(beside)
        assert len(read(path)) == 3
        CaptureWriter(path).close()
        assert path.read_bytes() == sealed
        assert not index_path(path).exists()


@kinds
@pytest.mark.parametrize("name", ["write", "sync"])
@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_full_disk(path, single, name, call, monkeypatch):
    writer = CaptureWriter(path, single=single)
    writer.append(ONE, TIME)
    writer.sync()
    calls, real, failed = [], getattr(capture_segment, name), False

    def fail(file, *data):
        calls.append(file)
        if len(calls) == call:
            if data:
                os.write(file, data[0][: len(data[0]) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(file, *data)

    def write():
        for _ in range(2):
            writer.append(ONE, TIME)
        writer.sync()

    with monkeypatch.context() as patch:
        patch.setattr(capture_segment, name, fail)
        try:
            write()
        except StoreError:
            failed = True
    assert (failed, writer.failed) == (call <= {"write": 3, "sync": 2}[name], False)
    if failed:
        assert len(read(path)) == 1
        write()
    assert len(read(path)) == 3
    writer.close()
    assert (len(read(path)), Capture(path).end()) == (3, 3 * len(ONE))


def test_octets_are_synced_before_the_rows_that_cover_them(path, monkeypatch):
    writer, steps = CaptureWriter(path), []
    writer.append(ONE, TIME)

    def noting(name, real):
        return lambda file, *data: (steps.append((name, file)), real(file, *data))

    with monkeypatch.context() as patch:
        for name in ("write", "sync"):
            patch.setattr(capture_segment, name, noting(name, getattr(capture_segment, name)))
        writer.append(ONE, TIME)
        writer.sync()
    (_, octets_file), (_, same), (_, rows_file), (_, again) = steps
    assert [name for name, _ in steps] == ["write", "sync", "write", "sync"]
    assert octets_file == same != rows_file == again
    writer.close()


_WRITER = """
import sys
from stompcodec import Frame
from stompcodec.capture import CaptureWriter, octets_of
writer = CaptureWriter(sys.argv[1], single=sys.argv[2] == "True" or None, segment_octets=20000)
number = int(sys.argv[3])
while True:
    for _ in range(7):
        writer.append(octets_of(Frame("SEND", {"n": str(number)}, b"x" * (number * 37 % 900))), number + 1)
        number += 1
    writer.sync()
    print(number, flush=True)
"""


def writing(path, single, number=0):
    command = [sys.executable, "-c", _WRITER, str(path), str(single), str(number)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)


@pytest.mark.skipif(os.name != "posix", reason="kill -9")
@kinds
def test_kill_9(path, single):
    roll, number = random.Random(7), 0
    for _ in range(8):
        with writing(path, single, number) as process:
            for _ in range(roll.randrange(1, 60)):
                said = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            said = int((process.stdout.read().split(b"\n")[:-1] or [b"%d" % said])[-1])
        found = list(Capture(path).frames())
        assert [int(frame.headers["n"]) for _, _, frame in found] == list(range(len(found)))
        assert all(time in (UNKNOWN, int(frame.headers["n"]) + 1) for _, time, frame in found)
        assert len(found) >= said
        with CaptureWriter(path) as writer:  # as the next one will find it
            number = len(list(Capture(path).frames()))
            assert number >= len(found)
            assert writer.end() == Capture(path).end()


@kinds
def test_following_a_writer_that_is_at_work(path, single):
    with writing(path, single) as process:
        process.stdout.readline()
        cursor, parser, numbers = Capture(path).cursor(), Parser("1.2"), []
        while len(numbers) < 300:
            for piece in cursor.pieces():
                numbers += [int(frame.headers["n"]) for frame in parser.feed(piece.data)]
                if len(numbers) >= 300:
                    break  # a writer that is quicker than we has more for each look at its files
            process.stdout.readline()
        process.kill()
        process.stdout.read()
    assert numbers == list(range(len(numbers)))


@pytest.mark.parametrize(("covered", "seals"), [(3, 0), (3, 2), (2, 1)])
def test_a_single_file_without_a_whole_index_is_left_alone(path, covered, seals):
    """Its index has no seal, a row behind the seal, or does not cover all frames."""
    encoder = IndexEncoder(0)
    index = encoder.header() + encoder.row(covered * len(ONE), TIME, zlib.crc32(ONE * covered))
    index += b"".join(encoder.seal() for _ in range(seals))
    data = ONE * 3 + index + trailer(3 * len(ONE))
    path.write_bytes(data)
    with pytest.raises(StoreError, match="no good index"):
        CaptureWriter(path)
    assert path.read_bytes() == data


def test_what_is_done_with_a_chain_touches_no_other(path):
    """Threads that write different chains rely on it."""
    with CaptureWriter(path) as capture:
        for chain in "ab":
            capture.append(ONE, TIME, chain)
        capture.sync("a")
        assert (capture.end("a"), capture.end("b")) == (len(ONE), 0)
        for file in path.glob("b*"):
            file.unlink()
        capture.check("a")
        with pytest.raises(StoreError, match="removed"):
            capture.check("b")
        with pytest.raises(StoreError, match="removed"):
            capture.check()
