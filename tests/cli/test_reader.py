"""Where frames stand, which version holds, and where reading goes on behind broken frames."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompcodec import Frame, Limits, serialize
from stompcodec.cli.inputs import Broken, FrameReader


def cut(data, size):
    """Reads that never give more than `size` octets."""
    stream = io.BytesIO(data)
    return lambda wanted: stream.read(min(wanted, size))


def everything(data, size=2**18, **options):
    found = []
    for batch in FrameReader(cut(data, size), **options).places():
        if isinstance(batch, Broken):
            found.append(batch)
        else:
            found += batch
    return found


def starts(found):
    return [item.start for item in found]


FRAMES = st.lists(
    st.tuples(
        st.sampled_from([b"", b"\n", b"\r\n", b"\n\n\r\n"]),
        st.sampled_from(["SEND", "MESSAGE", "ACK"]),
        st.sampled_from([b"", b"x", b"hello\nworld", b"\0\0", b"x" * 50]),
    ),
    max_size=8,
)


@given(frames=FRAMES, size=st.integers(1, 60), stream_over=st.sampled_from([None, 0, 10]))
def test_places_are_exact(frames, size, stream_over):
    data, expected = b"", []
    for gap, command, body in frames:
        frame = Frame(command, {"id": "a:b"}, b"" if command == "ACK" else body)
        data += gap
        start = len(data)
        data += serialize(frame)
        expected.append((start, len(data) - 1 - len(frame.body), len(data), len(frame.body)))
    reader, found = FrameReader(cut(data, size), stream_over=stream_over), []
    for batch in reader.places():
        assert not isinstance(batch, Broken)
        for place in batch:
            assert stream_over is not None or reader.octets(place.start, place.end) == data[place.start : place.end]
        found += batch
    assert [(place.start, place.body, place.end, place.size) for place in found] == expected


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_lenient_reading_skips_nuls_and_legacy_reading_blank_lines(size):
    assert starts(everything(b"\0\n\0\0SEND\n\nhi\0\0SEND\n\n\0", size, lenient=True)) == [4, 14]
    legacy = b"  \r\n \nsend\ndestination:a\n\nhi\0\r\r\nSEND\n\n\0"
    assert starts(everything(legacy, size, version="legacy")) == [6, 32]


GOOD = b"SEND\ndestination:/queue/a\n\nhi\0"


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("broken", "kind", "offset"),
    [
        (b"SEND\na:\\q\n\nbody\0\n\n", "bad-escape", 7),
        (b"garbage that never was a frame\n{}\0\r\n", "unknown-command", 0),
        (b"SEND\nfoo\0", "unexpected-nul", 8),
        (b"SEND\ncontent-length:1\n\nlonger\0", "missing-null", 24),
        (b"SEND\ncontent-length:40\n\nshort\0", "missing-null", 64),
        (b"SEND\ncontent-length:9000\n\nshort\0", "truncated", None),
        (b"SEND\ncontent-length:x\n\n\0" + b"\n" * 300, "bad-content-length", 20),
    ],
)
def test_resync(broken, kind, offset, size):
    data = GOOD + broken + GOOD + GOOD
    found = everything(data, size, resync=True)
    assert starts(found) == [0, len(GOOD), len(GOOD + broken), len(GOOD + broken + GOOD)]
    problem = found[1]
    assert isinstance(problem, Broken)
    assert problem.resumed == len(GOOD + broken)
    assert problem.error.kind == kind
    assert problem.error.offset == (len(data) if offset is None else len(GOOD) + offset)
    assert problem.head.startswith(broken[:6])


def test_events_give_the_same_frames_and_errors():
    data = GOOD + b"\nCONNECTED\nversion:1.0\n\n\0MESSAGE\na:\\q\n\n\0" + b"SEND\ncontent-length:1\n\nxx\0"
    reader = FrameReader(cut(data, 7))
    *batches, broken = reader.events()
    frames = [event for batch in batches if isinstance(batch, list) for event in batch if isinstance(event, Frame)]
    assert [frame.command for frame in frames] == ["SEND", "CONNECTED", "MESSAGE"]
    assert isinstance(broken, Broken)
    assert broken.error.offset == len(data) - 2
    assert reader.seconds > 0


def test_limits():
    assert starts(everything(GOOD, limits=Limits(max_body=2))) == [0]
    (found,) = everything(GOOD, limits=Limits(max_body=1))
    assert isinstance(found, Broken)
    assert found.error.limit == "max_body"
