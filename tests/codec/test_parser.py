"""How a Parser behaves: iteration, errors that stay, versions, input of all kinds."""

import copy
import gc
import pickle
from collections.abc import Iterator
from itertools import chain, islice

import pytest
from codec.lockstep import answer_of, answers_of, same_in_every_cut
from codec.samples import SEND

from stompcodec.errors import FrameError, StompError
from stompcodec.frame import END_OF_BODY, HEARTBEAT
from stompcodec.spec import Limits


def answers(items):
    return [answer_of(item) for item in items]


def bodies(parser):
    return [frame.body for frame in parser]


# ---- iteration ----


@pytest.mark.req("S12-FRM-09")
def test_feed_gives_the_parser_itself(codec):
    parser = codec.Parser("1.2")
    assert parser.feed(SEND) is parser
    assert iter(parser) is parser
    assert isinstance(parser, Iterator)
    assert bodies(parser) == [b"hello"]
    assert list(parser) == []
    with pytest.raises(StopIteration):
        next(parser)


def test_frames_that_were_not_asked_for_stay(codec):
    parser = codec.Parser("1.2")
    parser.feed(SEND * 2)
    assert next(parser).body == b"hello"
    parser.feed(SEND[:10])
    assert parser.buffered == len(SEND) + 10
    assert bodies(parser) == [b"hello"]
    assert parser.buffered == 10
    assert bodies(parser.feed(SEND[10:])) == [b"hello"]
    assert parser.buffered == 0


def test_feed_during_an_iteration(codec):
    parser = codec.Parser("1.2")
    seen = []
    for frame in parser.feed(b"SEND\n\n0\0"):
        seen.append(frame.body)
        if len(seen) < 5:
            parser.feed(b"SEND\n\n%d\0" % len(seen))
    assert seen == [b"0", b"1", b"2", b"3", b"4"]


def test_feed_nothing(codec):
    parser = codec.Parser("1.2")
    assert list(parser.feed(b"")) == []
    parser.feed(SEND[:7])
    assert list(parser.feed(b"")) == []
    assert parser.buffered == 7


@pytest.mark.parametrize("large", [b"x" * 100, b"x" * 5000, b"x" * 200_000])
def test_feeds_that_pile_up(codec, large):
    """Many feeds, small and large, before anyone iterates."""
    parser = codec.Parser("1.2")
    frame = b"SEND\n\n" + large + b"\0"
    stream = frame * 7
    size = len(stream) // 20 + 1
    for at in range(0, len(stream), size):
        parser.feed(stream[at : at + size])
        assert parser.buffered == min(len(stream), at + size)
    assert bodies(parser) == [large] * 7
    assert parser.buffered == 0


def test_frames_outlive_the_parser_and_the_input(codec):
    data = bytearray(SEND)
    parser = codec.Parser("1.2")
    (frame,) = parser.feed(data)
    data[:] = b"\xff" * len(data)
    parser.feed(b"SEND\na:b\n\n" * 1000)
    del parser
    gc.collect()
    assert frame.headers.pairs() == [("destination", "/queue/a")]
    assert frame.body == b"hello"


def test_a_mix_of_frames_and_marks(codec):
    parser = codec.Parser("1.2", heartbeats=True, stream_over=3)
    items = list(parser.feed(b"\n\r\nSEND\n\nabcd\0\nACK\n\n\0"))
    assert items[:2] == [HEARTBEAT, HEARTBEAT]
    assert items[0] is HEARTBEAT
    assert items[2].body is None
    assert items[3:5] == [b"abcd", END_OF_BODY]
    assert answers(items[5:]) == [("heartbeat",), ("frame", "ACK", [], b"")]


@pytest.mark.req("S12-FRM-02", "S11-FRM-03", "S10-FRM-03")
@pytest.mark.parametrize("version", ["1.2", "1.1", "1.0", None, "legacy"])
def test_eols_between_frames(codec, version):
    """Every EOL is a heart-beat where they are asked for, else nothing."""
    stream = b"\n\nACK\n\n\0\n\n\nACK\n\n\0\n"
    ack = ("frame", "ACK", [], b"")
    beat = ("heartbeat",)
    assert same_in_every_cut(codec, stream, version=version) == [ack, ack]
    got = same_in_every_cut(codec, stream, version=version, heartbeats=True)
    assert got == [beat, beat, ack, beat, beat, beat, ack, beat]


def test_marks_show_what_they_are(codec):
    assert repr(HEARTBEAT) == "stompcodec.HEARTBEAT"
    assert repr(END_OF_BODY) == "stompcodec.END_OF_BODY"
    assert codec.HEARTBEAT is HEARTBEAT
    assert codec.END_OF_BODY is END_OF_BODY
    for mark in (HEARTBEAT, END_OF_BODY):
        assert pickle.loads(pickle.dumps(mark)) is mark
        assert copy.deepcopy(mark) is mark
        assert mark


# ---- errors ----


@pytest.mark.req("S12-ESC-05")
def test_good_frames_first_then_the_error_for_ever(codec):
    parser = codec.Parser("1.2")
    parser.feed(SEND + b"\n" + SEND + b"SEND\na:\\t\n\n\0" + SEND)
    assert [frame.body for frame in islice(parser, 2)] == [b"hello"] * 2
    with pytest.raises(FrameError) as first:
        next(parser)
    assert (first.value.kind, first.value.offset) == ("bad-escape", 2 * len(SEND) + 1 + 7)
    assert parser.buffered == 0
    for _ in range(3):
        with pytest.raises(FrameError) as again:
            next(parser)
        assert (again.value.kind, again.value.offset) == (first.value.kind, first.value.offset)
        assert parser.feed(SEND) is parser
        assert parser.buffered == 0
    with pytest.raises(FrameError):
        list(parser.feed(b""))
    view = parser.get_buffer()
    view[:3] = b"SEN"
    with pytest.raises(FrameError):
        list(parser.buffer_updated(3))


def test_an_error_that_was_not_met_yet(codec):
    """Octets behind an error may be fed; they change nothing."""
    parser = codec.Parser("1.2")
    parser.feed(b"NONSENSE\n")
    parser.feed(SEND)
    with pytest.raises(FrameError, match="unknown-command at octet 0"):
        next(parser)


def test_frame_error_says_what_where_and_what_to_do(codec):
    with pytest.raises(FrameError) as raised:
        list(codec.Parser("1.2").feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
    error = raised.value
    assert isinstance(error, StompError)
    assert isinstance(error, ValueError)
    assert (error.kind, error.offset, error.limit) == ("unknown-command", 0, None)
    for words in ("unknown-command", "octet 0", "GET / HTTP/1.1", "version"):
        assert words in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (again.kind, again.offset, str(again)) == (error.kind, error.offset, str(error))


@pytest.mark.parametrize(
    "stream",
    [
        b"CONNECT\nlogin:a\npasscode:hunter2\nbroken\n",
        b"CONNECT\nlogin:hunter2\nbroken\n",
        b"STOMP\nlogin:hunter2\nbroken\n",
        b"SEND\nauth-token:hunter2\nbroken\n",
        b"SEND\nbroken hunter2 password\n",
        b"SEND\npassword:x\n\nhunter2" + b"x" * 5,
        b"connect\npasscode:hunter2\n",
    ],
)
def test_errors_show_no_secret(codec, stream):
    for cut in (len(stream), len(stream) // 2, 1):
        parser = codec.Parser("1.2", limits=Limits(max_body=8))
        pieces = (stream[at : at + cut] for at in range(0, len(stream), cut))
        with pytest.raises(FrameError) as raised:
            list(chain.from_iterable(map(parser.feed, pieces)))
        assert "hunter" not in str(raised.value)
        assert "hunter" not in repr(raised.value)


def test_offsets_count_from_the_start_of_the_stream(codec):
    parser = codec.Parser("1.2")
    for _ in range(1000):
        assert len(list(parser.feed(SEND + b"\n\n"))) == 1
    with pytest.raises(FrameError) as raised:
        list(parser.feed(b"\0"))
    assert raised.value.offset == 1000 * (len(SEND) + 2)


# ---- the end of the stream ----


@pytest.mark.parametrize("stream", [b"", b"\n\n", SEND, SEND + b"\r\n"])
def test_close_in_a_clean_gap(codec, stream):
    parser = codec.Parser("1.2")
    list(parser.feed(stream))
    parser.close()
    parser.close()
    assert parser.buffered == 0


@pytest.mark.parametrize(
    "stream",
    [
        b"\r",
        b"S",
        b"SEND\n",
        b"SEND\n\n",
        b"SEND\n\nabc",
        b"SEND\ncontent-length:3\n\nabc",
        SEND + b"ACK",
        b"SEND\n\n\0\n\r",
    ],
)
@pytest.mark.parametrize("stream_over", [None, 0])
def test_close_inside_a_frame(codec, stream, stream_over):
    parser = codec.Parser("1.2", stream_over=stream_over)
    list(parser.feed(stream))
    for _ in range(2):
        with pytest.raises(FrameError) as raised:
            parser.close()
        assert (raised.value.kind, raised.value.offset) == ("truncated", len(stream))


def test_close_before_the_frames_were_taken(codec):
    parser = codec.Parser("1.2")
    parser.feed(SEND)
    with pytest.raises(FrameError, match="truncated"):
        parser.close()


def test_spaces_in_a_legacy_gap_are_no_end(codec):
    assert answers_of(codec, b"  ", version="legacy") == [("error", "truncated", 2, None)]
    assert answers_of(codec, b" \r\n", version="legacy") == []


# ---- the version ----


def test_version_as_given(codec):
    for version in ("1.0", "1.1", "1.2", "legacy", None):
        assert codec.Parser(version).version == version
        assert codec.Parser(version=version).version == version
    assert codec.Parser().version is None
    parser = codec.Parser("1.0")
    for wrong in ("1.3", "", "none", 1.2, b"1.2", ["1.2"]):
        with pytest.raises(ValueError, match="version"):
            codec.Parser(wrong)
        with pytest.raises(ValueError, match="version"):
            parser.version = wrong
    assert parser.version == "1.0"
    with pytest.raises((AttributeError, NotImplementedError)):
        del parser.version


@pytest.mark.req("S11-ESC-06", "S12-ESC-07")
def test_a_version_holds_from_the_next_frame_on(codec):
    """As a client does it: CONNECTED tells the version, what follows in the same feed is read by it."""
    message = b"MESSAGE\na:\\\\r\n\n\0"
    parser = codec.Parser(None)
    parser.feed(b"CONNECTED\nversion:1.1\nraw:a:\\q\n\n\0" + message + b"MESSAGE\nb:\\r\n\n\0")
    connected = next(parser)
    assert connected.headers["raw"] == "a:\\q"
    parser.version = connected.headers["version"]
    assert next(parser).headers["a"] == "\\r"
    with pytest.raises(FrameError, match="bad-escape"):
        next(parser)


def test_a_frame_keeps_the_version_it_began_with(codec):
    for cut in range(1, 12):
        stream = b"SEND\na:\\c\n\nx\0"
        parser = codec.Parser("1.0")
        list(parser.feed(stream[:cut]))
        parser.version = "1.2"
        frames = list(parser.feed(stream[cut:] + stream))
        assert [frame.headers["a"] for frame in frames] == ["\\c", ":"]


@pytest.mark.parametrize("begun", [b" a", b"\ra", b"  a", b" \ra"])
def test_a_legacy_frame_begins_with_its_first_octet(codec, begun):
    """A line that is more than spaces and CRs is no EOL, wherever it is cut: it belongs to a frame, and so do they."""
    for at in range(len(begun) + 1, len(begun) + 4):
        stream = begun + b"ck \n\n\0"
        parser = codec.Parser("legacy", lenient=True)
        list(parser.feed(stream[:at]))
        parser.version = "1.2"
        (frame,) = parser.feed(stream[at:])
        assert frame.command == begun.decode().upper() + "CK"


def test_a_version_set_in_a_gap_holds_at_once(codec):
    parser = codec.Parser("1.0")
    list(parser.feed(b"\n\n\n"))
    parser.version = "1.2"
    (frame,) = parser.feed(b"SEND\r\na:\\c\r\n\r\n\0")
    assert frame.headers["a"] == ":"


@pytest.mark.parametrize("body", [b"", b"SEND\ncontent-length:2\n\na"])
def test_a_version_set_between_feed_and_iteration(codec, body):
    parser = codec.Parser("1.2")
    list(parser.feed(body[:-1]))
    parser.feed(body[-1:] + (b"b\0" if body else b"") + b"SEND\na:\\c\n\nx\0")
    parser.version = "1.0"
    *_, last = parser
    assert (last.headers["a"], last.body) == ("\\c", b"x")
