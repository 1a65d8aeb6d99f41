"""How a Parser behaves: iteration, errors that stay and what was not read then, versions, input of all kinds."""

import array
import copy
import pickle
from collections.abc import Iterator
from itertools import chain, islice

import pytest
from codec import strategies as some
from codec.lockstep import WAYS, answers_of, each_cut
from hypothesis import given
from hypothesis import strategies as st

from stompcodec import frame
from stompcodec.errors import FrameError, StompError
from stompcodec.spec import Limits

SEND = b"SEND\ndestination:/queue/a\n\nhello\0"


def bodies(parser):
    return [frame.body for frame in parser]


# ---- iteration ----
@pytest.mark.req("S12-FRM-09")
def test_feed_gives_the_parser_itself(codec):
    parser = codec.Parser("1.2")
    assert parser.feed(SEND) is parser
    assert iter(parser) is parser
    assert isinstance(parser, Iterator)
    assert (bodies(parser), list(parser)) == ([b"hello"], [])
    with pytest.raises(StopIteration):
        next(parser)


@pytest.mark.parametrize("name", ["HEARTBEAT", "END_OF_BODY"])
def test_marks_show_what_they_are(codec, name):
    mark = getattr(codec, name)
    assert mark is getattr(frame, name) is pickle.loads(pickle.dumps(mark)) is copy.deepcopy(mark)
    assert (repr(mark), bool(mark)) == (f"stompcodec.{name}", True)


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


@pytest.mark.parametrize("before", [b"", SEND + b"\n"])
def test_frame_error_says_what_where_and_what_to_do(codec, before):
    with pytest.raises(FrameError) as raised:
        list(codec.Parser("1.2").feed(before + b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
    error = raised.value
    assert issubclass(FrameError, StompError)
    assert issubclass(FrameError, ValueError)
    assert (error.kind, error.offset, error.limit) == ("unknown-command", len(before), None)
    assert error.near == b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[:24]
    for words in ("unknown-command", f"octet {len(before)}", "GET / HTTP/1.1", "version"):
        assert words in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (again.kind, again.offset, str(again)) == (error.kind, error.offset, str(error))


def test_an_error_in_a_body_shows_what_is_on_both_sides(codec):
    head = b"SEND\ndestination:/queue/a\ncontent-length:30\n\n"
    with pytest.raises(FrameError, match="missing-null") as raised:
        list(codec.Parser("1.2").feed(head + b"a" * 30 + b"b" * 30))
    assert (raised.value.offset, raised.value.near) == (len(head) + 30, b"a" * 24 + b"b" * 24)


@pytest.mark.parametrize(
    "stream",
    [
        *(b"CONNECT\nlogin:a\npasscode:hunter2\nbroken\n", b"CONNECT\nlogin:hunter2\nbroken\n"),
        *(b"STOMP\nlogin:hunter2\nbroken\n", b"connect\npasscode:hunter2\n", b"SEND\nauth-token:hunter2\nbroken\n"),
        *(b"SEND\nbroken hunter2 password\n", b"SEND\npassword:x\n\nhunter2" + b"x" * 5),
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


def test_version_as_given(codec):
    for version in ("1.0", "1.1", "1.2", "legacy", None):
        assert codec.Parser(version).version == version
    parser = codec.Parser("1.0")
    for wrong in ("1.3", "", "none", 1.2, b"1.2", ["1.2"]):
        with pytest.raises(ValueError, match="version"):
            parser.version = wrong
    assert parser.version == "1.0"
    with pytest.raises((AttributeError, NotImplementedError)):
        del parser.version


@pytest.mark.req("S11-ESC-06", "S12-ESC-07")
def test_a_version_holds_from_the_next_frame_on(codec):
    """As a client does it: CONNECTED tells the version, what follows in the same feed is read by it."""
    message, parser = b"MESSAGE\na:\\\\r\n\n\0", codec.Parser(None)
    parser.feed(b"CONNECTED\nversion:1.1\nraw:a:\\q\n\n\0" + message + b"MESSAGE\nb:\\r\n\n\0")
    connected = next(parser)
    assert connected.headers["raw"] == "a:\\q"
    parser.version = connected.headers["version"]
    assert next(parser).headers["a"] == "\\r"
    with pytest.raises(FrameError, match="bad-escape"):
        next(parser)


@pytest.mark.parametrize("begun", [b" a", b"\ra", b"  a", b" \ra"])
def test_a_legacy_frame_begins_with_its_first_octet(codec, begun):
    """A line that is more than spaces and CRs is no EOL, wherever it is cut: it belongs to a frame, and so do they."""
    for at in range(len(begun) + 1, len(begun) + 4):
        stream, parser = begun + b"ck \n\n\0", codec.Parser("legacy", lenient=True)
        list(parser.feed(stream[:at]))
        parser.version = "1.2"
        (frame,) = parser.feed(stream[at:])
        assert frame.command == begun.decode().upper() + "CK"


@pytest.mark.parametrize(
    "kind",
    [bytes, bytearray, memoryview, lambda data: array.array("B", data), lambda data: memoryview(data).cast("b")],
    ids=["bytes", "bytearray", "memoryview", "array", "signed"],
)
def test_bytes_like_input(codec, kind):
    assert bodies(codec.Parser("1.2").feed(kind(SEND))) == [b"hello"]


def test_parser_is_final_and_closed(codec):
    with pytest.raises(TypeError):
        type("Sub", (codec.Parser,), {})
    parser = codec.Parser("1.2")
    for name in ("anything", "buffered"):
        with pytest.raises(AttributeError):
            setattr(parser, name, 1)
    assert not hasattr(parser, "__dict__")
    for copied in (copy.copy, pickle.dumps):
        with pytest.raises(TypeError):
            copied(parser)


@pytest.mark.parametrize("head", [b"SEND\n\n", b"SEND\ncontent-length:30000\n\n"], ids=["open", "counted"])
@pytest.mark.parametrize("first", [1, 5000, 29_999, 30_000])
@pytest.mark.parametrize("behind", [0, 1, 100, 4094, 4095, 4096, 20_000])
@pytest.mark.parametrize("wrong", [b"", b"NONSENSE\n"])
def test_a_large_chunk_that_ends_a_body(codec, head, first, behind, wrong):
    """Its beginning goes to the body, and the rest of it is read where it lies: each octet once, at its offset."""
    rest = b"".join(b"ACK\nid:%06d\n\n\0" % number for number in range(behind // 16))
    data = head + b"x" * 30_000 + b"\0" + rest + b"\n" * (behind - len(rest)) + wrong
    at = len(head) + first
    assert answers_of(codec, [data[:at], data[at:]]) == answers_of(codec, data)
    parser = codec.Parser("1.2")
    list(parser.feed(data[:at]))
    parser.feed(data[at:])
    assert parser.buffered == len(data)


# ---- what was not read because of a malformed frame ----
GOOD = b"MESSAGE\nmessage-id:1\n\nhello\0\n"
#: A stream, the bytes of the failed frame's head, and what follows: from the fault's frame or body on.
BAD = [
    *((b"MESSAGE\nsubscription:s1\nnew\nline:v\n\nbody\0\n", 24), (b"in text\0\nMESSAGE\n\n\0", 7)),
    (b"MESSAGE\r\nsubscription:s1\r\na:\\q\r\n\r\nbody\0", 28),
    (b"MESSAGE\ncontent-length:9\n\nshort\0\n", None),  # its end is in the next frame, whose bytes follow
    *((b"MESSAGE\nsubscription:s1\ncontent-length:2\n\nlong\0\n", 2), (b"RECEIPT\nreceipt-id:1\n\nbody\0", 0)),
    *((b"MESSAGE\nsubscription:s1\n\n" + b"x" * 40 + b"\0", 32), (b"MESSAGE\ncontent-length:99999\n\n", 23)),
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
                pieces = pieces + item if type(item) is bytes else pieces if item is frame.END_OF_BODY else b""
        except FrameError as error:
            return parser.failed, fed, error, pieces
    return parser.failed, fed, None, pieces


def shown(failed):
    frame, octets, at = failed
    return frame and (frame.command, frame.headers.pairs(), frame.body), octets, at


@pytest.mark.parametrize(("data", "at"), BAD)
@pytest.mark.parametrize("way", WAYS)
def test_failed_has_the_frame_and_all_bytes_behind_it(codec, data, at, way):
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


def test_failed_is_none_without_a_malformed_frame_and_stays_until_the_next_feed(codec):
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


def test_failed_has_no_pieces_that_were_handed_out(codec):
    head = b"MESSAGE\nsubscription:s1\ncontent-length:100\n\n"
    for chunks in each_cut(head + b"x" * 104 + b"\0" + GOOD):
        failed, _, error, pieces = follow(codec, chunks, stream_over=10)
        assert (error.kind, pieces, failed[0].headers["subscription"]) == ("missing-null", b"x" * 100, "s1")
        assert failed[1].startswith(b"xxxx"[: len(failed[1])])
        assert failed[2] == 0


@pytest.mark.c_only
@given(data=st.data(), wire=some.wires, lenient=st.booleans(), limits=some.limits)
def test_backends_agree_on_failed(both, data, wire, lenient, limits):
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
            one, other = (shown(parser.failed) for parser in parsers)
            assert one == other
            _, octets, at = one
            assert octets[at:] == wire[errors[0].offset : fed]
            return
        assert [parser.failed for parser in parsers] == [None, None]
