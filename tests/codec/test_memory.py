"""Memory is taken by octets that came, never by numbers from the wire, and given back. No test looks at a clock."""

import ctypes
import sys
from contextlib import suppress

import pytest
from traced import held, peak, tracing

from stompcodec.errors import FrameError
from stompcodec.spec import Limits

pytestmark = pytest.mark.no_asan
MIB = 2**20
STEP = 3 * MIB // 2  # octets that a body may take at once, so that it need not be moved often


def flood(parser, piece, size):
    """Feed `size` octets of `piece` over and over; returns how many were taken before an error."""
    fed = 0
    with suppress(FrameError):
        while fed < size:
            for _ in parser.feed(piece):
                pass
            fed += len(piece)
    return fed


SMALL = Limits(max_body=100_000)


@pytest.mark.parametrize(
    ("begin", "piece", "limits", "most"),
    [
        pytest.param(b"", b"x" * 997, None, 65_536, id="command"),
        pytest.param(b"SEND\n", b"x" * 997, None, 8 * 65_536, id="line"),
        pytest.param(b"SEND\nname:", b"x" * 997, None, 8 * 65_536, id="value"),
        pytest.param(b"SEND\n", b"a:b\n" * 250, None, 200_000, id="headers"),
        pytest.param(b"SEND\n\n", b"x" * 997, SMALL, 800_000, id="body"),
        pytest.param(b"SEND\n\n", b"x" * 50_000, SMALL, 800_000, id="body in large pieces"),
        pytest.param(b"SEND\ncontent-length:100001\n\n", b"x" * 997, SMALL, 65_536, id="counted"),
        pytest.param(b"ACK\n\n", b"x" * 997, None, 65_536, id="no body"),
    ],
)
@tracing()
def test_a_frame_that_never_ends(codec, begin, piece, limits, most):
    parser = codec.Parser("1.2", limits=limits)
    with suppress(FrameError):
        list(parser.feed(begin))
    taken = flood(parser, piece, 10 * MIB)
    assert taken < MIB
    assert peak() < most
    flood(parser, piece, 1)
    assert held() < 65_536


@pytest.mark.parametrize("digits", [b"10000000000", b"4611686018427387904"])
@pytest.mark.parametrize("size", [1000, 65_536])
@tracing()
def test_a_huge_content_length(codec, digits, size):
    """A body of 10 GB is announced and allowed: what is held follows what came."""
    parser = codec.Parser("1.2", limits=Limits(max_body=2**62))
    list(parser.feed(b"SEND\ncontent-length:" + digits + b"\n\n"))
    assert peak() < 200_000
    piece = b"x" * size
    flood(parser, piece, 2 * MIB)
    assert parser.buffered >= 2 * MIB
    assert peak() < 12 * MIB
    del parser
    assert held() < 100_000


@pytest.mark.parametrize("stream_over", [0, 1000])
@pytest.mark.parametrize("head", [b"SEND\n\n", b"SEND\ncontent-length:99999999\n\n"])
@tracing()
def test_a_streamed_body_is_not_kept(codec, head, stream_over):
    parser = codec.Parser("1.2", stream_over=stream_over, limits=Limits(max_body=2**40))
    list(parser.feed(head))
    flood(parser, b"x" * 10_000, 20 * MIB)
    assert parser.buffered < 20_000
    assert peak() < 300_000


@pytest.mark.parametrize("part", [b"SEND\n\n", b"SEND\ncontent-length:600000\n\n", b"SEND\nname:"])
@tracing()
def test_a_peer_that_dribbles(codec, part):
    parser = codec.Parser("1.2", limits=Limits(max_header_line=400_000))
    list(parser.feed(part))
    for _ in range(100_000):
        for _ in parser.feed(b"x"):
            pass
    assert parser.buffered >= 100_000
    assert peak() < 4 * 100_000 + STEP


@tracing()
def test_eols_and_nuls_between_frames_are_dropped(codec):
    parser = codec.Parser("1.2", lenient=True)
    flood(parser, b"\n\r\n\0" * 5000, MIB // 2)
    assert parser.buffered == 0
    assert peak() < 200_000


@pytest.mark.parametrize("size", [1460, 65_536, MIB])
@tracing()
def test_a_large_body_is_given_back(codec, size):
    body = b"x" * (8 * MIB)
    data = b"SEND\n\n" + body + b"\0SEND\ncontent-length:%d\n\n" % len(body) + body + b"\0"
    start, parser, count = held(), codec.Parser("1.2"), 0
    for at in range(0, len(data), size):
        for frame in parser.feed(data[at : at + size]):
            count += len(frame.body)
            del frame
    assert count == 2 * len(body)
    assert held() - start < MIB
    assert peak() < start + 40 * MIB


@pytest.mark.parametrize(
    ("feed", "size"),
    [
        *((1460, size) for size in (2100, 70_000, 980_000, MIB)),
        *((65_536, size) for size in (2100, 70_000, 300_000, 700_000, 980_000, 10**6, MIB, 1_114_112, STEP)),
    ],
)
@tracing()
def test_kept_bodies_hold_little_more_than_themselves(codec, size, feed):
    """Also those that end at their NUL, for which room was made before their length was known."""
    body = b"x" * size
    data = b"SEND\n\n" + body + b"\0"
    parser, kept = codec.Parser("1.2"), []
    start = held()
    for _ in range(3):
        for at in range(0, len(data), feed):
            kept += [frame.body for frame in parser.feed(data[at : at + feed])]
        assert kept[-1] == body
        assert ctypes.c_char_p(kept[-1]).value == body  # there is a NUL behind it, as behind all bytes
    assert held() - start < 3 * size + 20_000


@tracing()
def test_frames_do_not_pin_what_was_fed(codec):
    parser, frames = codec.Parser("1.2"), []
    for i in range(50):
        piece = b"SEND\nn:%d\n\nhello\0" % i + b"SEND\n\n" + b"x" * 65_536 + b"\0"
        frames.append(next(parser.feed(piece)))
        list(parser)
    del piece
    assert held() < 500_000
    assert sum(map(sys.getsizeof, frames)) < 50_000


@pytest.mark.parametrize("mode", ["serialize", "serialize_parts", "serialize_many"])
@tracing()
def test_writing_takes_what_is_written(codec, mode):
    body = b"x" * (4 * MIB)
    frame, start = codec.Frame("SEND", {"a": "b"}, body), peak()
    written = getattr(codec, mode)([frame] if mode == "serialize_many" else frame)
    assert peak() - start < (20_000 if mode == "serialize_parts" else 13 * MIB)
    del written


@pytest.mark.c_only
@pytest.mark.parametrize(
    ("rest", "most"), [(b"", 1000), (b"SEND\nname:", 7000), (b"SEND\n\n", 1000), (b"SEND\ncontent-length:2\n\n", 1000)]
)
@tracing()
def test_idle_parsers_hold_next_to_nothing(both, rest, most):
    codec, _ = both
    data = b"SEND\n\nhello\0" * 10_000 + rest
    parsers = [codec.Parser("1.2") for _ in range(100)]
    start = held()
    for parser in parsers:
        assert sum(1 for _ in parser.feed(memoryview(bytearray(data)))) == 10_000
    assert held() - start < (4 if rest else 2) * len(data) + 100 * most  # what one gave back is for all
    for parser in parsers:
        assert len(list(parser.feed(b"\n\n\0" if rest else b"SEND\n\n\0"))) == 1
