"""`Parser.failed`: what was not read because of a malformed frame, the same in both backends, however it was fed."""

import pytest
from codec import strategies as some
from codec.lockstep import WAYS, each_cut
from hypothesis import given
from hypothesis import strategies as st

from stompcodec import Limits
from stompcodec.errors import FrameError
from stompcodec.frame import END_OF_BODY

GOOD = b"MESSAGE\nmessage-id:1\n\nhello\0\n"
#: A stream, the bytes of the failed frame's head, and what follows: from the fault's frame or body on.
BAD = [
    (b"MESSAGE\nsubscription:s1\nnew\nline:v\n\nbody\0\n", 24),
    (b"in text\0\nMESSAGE\n\n\0", 7),
    (b"MESSAGE\r\nsubscription:s1\r\na:\\q\r\n\r\nbody\0", 28),
    (b"MESSAGE\ncontent-length:9\n\nshort\0\n", None),  # its end is in the next frame, whose bytes follow
    (b"MESSAGE\nsubscription:s1\ncontent-length:2\n\nlong\0\n", 2),
    (b"RECEIPT\nreceipt-id:1\n\nbody\0", 0),
    (b"MESSAGE\nsubscription:s1\n\n" + b"x" * 40 + b"\0", 32),
    (b"MESSAGE\ncontent-length:99999\n\n", 23),
    (b"\0\n", 0),
]


def follow(codec, chunks, way="feed", **options):
    """What a parser that is fed these chunks has `failed`, how many bytes it was fed, its error, and the bytes that it
    gave as pieces of the last body."""
    parser, fed, pieces = codec.Parser("1.2", **options), 0, b""
    for chunk in chunks:
        fed += len(chunk)
        try:
            for item in WAYS[way](parser, chunk):
                assert parser.failed is None
                pieces = pieces + item if type(item) is bytes else pieces if item is END_OF_BODY else b""
        except FrameError as error:
            return parser.failed, fed, error, pieces
    return parser.failed, fed, None, pieces


def plain(failed):
    frame, octets, at = failed
    return frame and (frame.command, frame.headers.pairs(), frame.body), octets, at


@pytest.mark.parametrize(("data", "at"), BAD)
@pytest.mark.parametrize("way", WAYS)
def test_it_has_the_frame_and_all_bytes_behind_it(codec, data, at, way):
    stream = GOOD + data + GOOD
    for chunks in each_cut(stream):
        failed, fed, error, _ = follow(codec, chunks, way, limits=Limits(max_body=32))
        frame, octets, here = failed
        assert error.offset is not None
        assert octets[here:] == stream[error.offset : fed]
        assert at in (None, here)
        assert octets == stream[len(GOOD) if frame is None else error.offset - here : fed]
        if frame is not None:
            assert frame.body is None
            assert stream[len(GOOD) :].startswith(frame.command.encode())


def test_it_is_none_without_a_malformed_frame_and_stays_until_the_next_feed(codec):
    parser, broken = codec.Parser("1.2"), b"MESSAGE\nbroken\n\n\0" + GOOD
    assert (parser.failed, len(list(parser.feed(GOOD)))) == (None, 1)
    for data, failed in ((broken, (None, broken, 8)), (None, (None, broken, 8)), (GOOD, None)):
        with pytest.raises(FrameError):
            list(parser if data is None else parser.feed(data))
        assert parser.failed == failed  # nothing is held for ever
    parser = codec.Parser("1.2")
    assert list(parser.feed(GOOD[:12])) == []
    with pytest.raises(FrameError, match="truncated"):
        parser.close()
    assert parser.failed is None


def test_pieces_that_were_handed_out_are_not_in_it(codec):
    head = b"MESSAGE\nsubscription:s1\ncontent-length:100\n\n"
    for chunks in each_cut(head + b"x" * 104 + b"\0" + GOOD):
        failed, _, error, pieces = follow(codec, chunks, stream_over=10)
        assert error.kind == "missing-null"
        assert pieces == b"x" * 100
        assert failed[0].headers["subscription"] == "s1"
        assert failed[1].startswith(b"xxxx"[: len(failed[1])])
        assert failed[2] == 0


@pytest.mark.c_only
@given(data=st.data(), wire=some.wires, lenient=st.booleans(), limits=some.limits)
def test_backends_agree(both, data, wire, lenient, limits):
    c, py = both
    chunks = data.draw(some.cut(wire))
    version, over = data.draw(some.versions), data.draw(st.sampled_from([None, 0, 3, 60]))
    parsers = [each.Parser(version, stream_over=over, lenient=lenient, limits=limits) for each in (c, py)]
    fed, lazy = 0, data.draw(st.booleans())  # whether frames are iterated when all has come
    for number, chunk in enumerate(chunks, 1):
        errors = []
        for parser in parsers:
            try:
                frames = parser.feed(chunk)
                list(() if lazy and number < len(chunks) else frames)
            except FrameError as error:
                errors.append(error)
        fed += len(chunk)
        if errors:
            one, other = (plain(parser.failed) for parser in parsers)
            assert one == other
            _, octets, at = one
            assert octets[at:] == wire[errors[0].offset : fed]
            return
        assert [parser.failed for parser in parsers] == [None, None]
