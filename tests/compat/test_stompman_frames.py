"""stompman's parser and ours in its place give the same frames for any octets, however they are cut."""

import dataclasses
import enum
import itertools
import pickle
import typing

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

stompman = pytest.importorskip(
    "stompman", reason="stompman is not installed: pip install stompman", exc_type=ImportError
)

import stompman.serde as theirs

from stompcodec import HEARTBEAT, FrameError, Limits, Parser
from stompcodec.compat import stompman as ours

MESSAGE = b"MESSAGE\nsubscription:0\nmessage-id:ID\\cbroker-1\ndestination:/queue/a\ncontent-length:3\n\na\0b\0"
ODD = b"MESSAGE\nsubscription:0\nmessage-id:ID:broker-1\\r\ndestination:/queue/a\\\\c\n\nhello\0"

words = st.sampled_from(
    [
        *(b"SEND", b"MESSAGE", b"CONNECTED", b"CONNECT", b"NACK", b"STOMP", b"ERROR", b"RECEIPT", b"ACK"),
        *(b"message", b"X", b"\n", b"\n", b"\n\n", b"\r\n", b"\r", b"\x00", b"\n\n\x00", b"\n\nbody\x00"),
        *(b"\n\na\x00b\x00", b"a:1\n", b"a:2\n", b"a:b:c\n", b"a:\\c\n", b"\\c:1\n", b"a\\cb:\\n\\\\\n"),
        *(b"a:\\t\\\n", b"a:1\r\n", b":1\n", b":1\n", b"\xff:1\n", b"a:\xc3\xa9\n", b"a:\\\xc3\xa9\n"),
        *(b"no colon\n", b"\\", b":", b"\\\\", b"\\n", b"\\c", b"content-length:", b"content-length:3\n"),
        *(b"content-length:0\n", b"content-length:9\n", b"content-length: 3\n", b"Content-Length:2\n"),
        *(b"content-length:-1\n", b"content-length:x\n", b"content-length:3:4\n", b"1", b"abc", MESSAGE, MESSAGE),
        *(MESSAGE, ODD, b"CONNECTED\nversion:1.2\nserver:a\\cb\n\n\x00", b"\nRECEIPT\nreceipt-id:1\n\n\x00"),
    ]
)
streams = st.lists(words | st.binary(max_size=4), max_size=30).map(b"".join)


def cut(data, places):
    """`data` in pieces; some of them may be empty."""
    places = sorted(min(place, len(data)) for place in places)
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)])]


def ordered(frames):
    """The frames, and the order of their headers, which equality of dictionaries does not show."""
    return [(frame, list(getattr(frame, "headers", {}))) for frame in frames]


@given(streams, st.lists(st.integers(0, 400), max_size=12))
@example(MESSAGE * 3 + ODD + MESSAGE, [5, 90, 100])
@example(b"MESSAGE\nContent-Length:2\n\n\0\0\0" + MESSAGE, [20])
@example(b"MESSAGE\ncontent-length:1\n\nabc\0\n" + MESSAGE * 2, [30, 60])
@example(b"MESSAGE\na:x\\ry\n\n\0", [])  # the escape of CR, alone and behind a heart-beat
@example(b"\nMESSAGE\na:x\\ry\n\n\0", [])
@example(b"whatever\nCONNECTED\nheader:1\n\n\0\r\n\n", [])
def test_any_octets_in_any_pieces_give_the_frames_of_stompman(data, places):
    parser, wanted = ours.FrameParser(), theirs.FrameParser()
    for piece in cut(data, places):
        expected = ordered(wanted.parse_frames_from_chunk(piece))
        assert ordered(parser.parse_frames_from_chunk(piece)) == expected


@given(streams, st.lists(st.integers(0, 400), max_size=6), st.lists(st.integers(0, 3), min_size=7, max_size=7))
@example(ODD + b"X\n" + MESSAGE * 2, [5], [0, 1, 0, 0, 0, 0, 0])
def test_what_a_reader_leaves_is_there_for_the_next_one(data, places, takes):
    """stompman itself loses what stood behind CONNECTED in one read."""
    parser = ours.FrameParser()
    found = []
    for piece, most in zip(cut(data, places), takes):
        found += itertools.islice(parser.parse_frames_from_chunk(piece), most)
    found += parser.parse_frames_from_chunk(b"")
    assert found == list(theirs.FrameParser().parse_frames_from_chunk(data))


@given(streams, st.lists(st.integers(0, 400), max_size=12))
@example(MESSAGE + ODD.replace(b"\\r", b"") + b"X\n\n\0", [])
def test_strict_is_our_codec_as_it_is(data, places):
    plain, parser = Parser("1.2", heartbeats=True), ours.StrictFrameParser()
    wanted, found = [], []
    for piece in cut(data, places):
        refused = lost = None
        try:
            wanted += plain.feed(piece)
        except FrameError as error:
            refused = error
        try:
            found += parser.parse_frames_from_chunk(piece)
        except stompman.ConnectionLostError as error:
            lost = error.reason
        assert str(lost) == str(refused)
    assert [theirs.FRAMES_TO_COMMANDS.get(type(frame), b"").decode() for frame in found] == [
        getattr(frame, "command", "") for frame in wanted
    ]
    assert [(frame.headers, getattr(frame, "body", b"")) for frame in found if hasattr(frame, "headers")] == [
        (dict(frame.headers), frame.body) for frame in wanted if frame is not HEARTBEAT
    ]


def test_our_parser_reads_again_behind_an_odd_frame():
    """stompman's hands over at the next border between frames, not only at the end of a chunk."""
    parser = ours.FrameParser()
    for chunk, who in ((ODD + b"X\n" + MESSAGE[:20], True), (MESSAGE[20:] + MESSAGE[:20], False)):
        assert len(list(parser.parse_frames_from_chunk(chunk))) == 1
        assert (parser._theirs is not None) is who


def test_frames_are_as_stompman_makes_them():
    for parser in (ours.FrameParser(), ours.StrictFrameParser()):
        [found] = parser.parse_frames_from_chunk(MESSAGE)
        [wanted] = theirs.FrameParser().parse_frames_from_chunk(MESSAGE)
        assert found == wanted
        assert repr(found) == repr(wanted)
        assert type(found) is stompman.MessageFrame
        assert type(found.headers) is dict
        found.headers["own"] = "1"  # a program may
        with pytest.raises(dataclasses.FrozenInstanceError):
            found.body = b""
        assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.req("S12-LIM-01", "S12-LIM-02", "S12-LIM-03")
@pytest.mark.parametrize(
    ("data", "limit"),
    [
        (b"MESSAGE\ncontent-length:11\n\n", "max_body"),
        (b"MESSAGE\n\n" + b"x" * 11, "max_body"),
        (b"MESSAGE\nContent-Length:-1\n\n\0" + b"x\0" * 11, "max_body"),
        (b"MESSAGE\na\n\n" + b"x" * 11, "max_body"),
        (b"MESSAGE\nname:" + b"x" * 30, "max_header_line"),
        (b"MESSAGE\na:1\nb:1\nc:1\nd:1\ne:1\n\n", "max_headers"),
        (b"MESSAGE\na\n\nhello\0" + b"x" * 31, "max_header_line"),
    ],
)
@pytest.mark.parametrize("step", [1, 1000])
def test_limits_hold_whoever_reads(monkeypatch, data, limit, step):
    monkeypatch.setattr(ours.FrameParser, "limits", Limits(20, 30, 4, 10))
    parser, found, data = ours.FrameParser(), [], b"\n" + data

    def feed():
        for at in range(0, len(data), step):
            found.extend(parser.parse_frames_from_chunk(data[at : at + step]))

    with pytest.raises(stompman.ConnectionLostError) as lost:
        feed()
    assert lost.value.reason.limit == limit
    assert found[:1] == [stompman.HeartbeatFrame()]  # the frames before come


def test_large_limits_are_as_stompman():
    """At the limit, and behind it, where another limit holds."""
    data = b"MESSAGE\nname:" + b"x" * 65531 + b"\n\n" + b"b" * 100_000 + b"\0\n"
    parsers = ours.FrameParser(), theirs.FrameParser()
    found, wanted = (list(parser.parse_frames_from_chunk(data)) for parser in parsers)
    assert found == wanted


# ---- writing ----

texts = st.text(st.sampled_from("ab:\\\r\né€") | st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
headers = st.dictionaries(texts, texts, max_size=4)


def make(kind, headers, body=b""):
    """A frame; its body where the class has one."""
    return kind(headers=headers, body=body) if kind in theirs.FRAMES_WITH_BODY else kind(headers=headers)


@given(st.sampled_from(list(theirs.FRAMES_TO_COMMANDS)), headers, st.binary(max_size=8))
def test_what_is_written_is_what_stompman_writes(kind, headers, body):
    frame = make(kind, headers, body)
    assert ours.dump_frame(frame) == theirs.dump_frame(frame)


class Colour(str, enum.Enum):  # noqa: UP042 as programs have it; StrEnum's str() is its text
    """Text whose str() is another text."""

    RED = "r:ed"


class Text(str):
    """Text of a class of its own."""

    def __str__(self):
        return "another"


#: What programs put in a header that is not text, and what comes close to text.
ODD_VALUES = [
    *(None, 0, 123, True, False, 1.5, b"", b"bytes", bytearray(b"x"), memoryview(b"x"), object(), Colour),
    *([], ["x", ":"], ["x\n", 1], ("a",), ("a", None), {}, {"a": 1}, {1: "a"}, [["a"]], range(2), frozenset({"\r"})),
    *(Colour.RED, Text("a:b"), Text("plain"), "", "plain", "\ud800"),
]


def outcome(function, *arguments):
    """What a call gives, or the class of what it raises."""
    try:
        return function(*arguments)
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("kind", theirs.FRAMES_TO_COMMANDS, ids=lambda kind: kind.__name__)
def test_every_field_takes_and_refuses_the_values_that_stompman_does(kind):
    """None, numbers and bytes are a TypeError, not text; in CONNECT stompman writes them, and so does this."""
    raised = 0
    declared = sorted(typing.get_type_hints(typing.get_type_hints(kind)["headers"]))
    for name, value in itertools.product([*declared, "own-header"], ODD_VALUES):
        for headers in ({name: value}, {"a": "1", name: value, "z:": "2"}):
            frame = make(kind, headers)
            wanted = outcome(theirs.dump_frame, frame)
            assert outcome(ours.dump_frame, frame) == wanted, (name, value)
            raised += wanted is TypeError
            strict = outcome(ours.strict_dump_frame, frame)
            assert strict is TypeError or isinstance(value, str), (name, value, strict)
    assert bool(raised) == (kind is not stompman.ConnectFrame)


@pytest.mark.parametrize("kind", theirs.FRAMES_TO_COMMANDS, ids=lambda kind: kind.__name__)
def test_names_and_bodies_that_are_no_text_are_as_in_stompman(kind):
    names = [name for name in ODD_VALUES if outcome(hash, name) is not TypeError]
    frames = [make(kind, {name: "value"}) for name in names]
    if kind in theirs.FRAMES_WITH_BODY:
        frames += [make(kind, {"destination": "a"}, body) for body in ODD_VALUES]
    for frame in frames:
        assert outcome(ours.dump_frame, frame) == outcome(theirs.dump_frame, frame), frame


@given(texts, texts, st.lists(words | st.binary(max_size=3), max_size=8).map(b"".join))
def test_a_header_is_written_and_read_as_stompman_does(name, value, line):
    assert ours.dump_header(name, value) == theirs.dump_header(name, value)
    assert ours.parse_header(bytearray(line)) == theirs.parse_header(bytearray(line))


@pytest.mark.req("S12-ESC-01", "S12-ESC-02")
@given(st.dictionaries(texts.filter(bool), texts, max_size=4), st.binary(max_size=8))
def test_strict_comes_back_whole(headers, body):
    headers = {**headers, "content-length": str(len(body))}
    frame = stompman.MessageFrame(headers=headers, body=body)
    assert list(ours.StrictFrameParser().parse_frames_from_chunk(ours.strict_dump_frame(frame))) == [frame]
    for name, value in headers.items():
        assert ours.strict_parse_header(ours.strict_dump_header(name, value)[:-1]) == (name, value)


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        (stompman.ConnectFrame(headers={"passcode": "x\nhost:evil"}), "unencodable"),
        (stompman.SendFrame(headers={"destination": "a", "content-length": "3"}, body=b"hi"), "bad-content-length"),
        (stompman.SendFrame(headers={"destination": "a"}, body=b"\0"), "unencodable"),
    ],
)
def test_strict_refuses_what_is_no_stomp(frame, kind):
    with pytest.raises(FrameError) as refused:
        ours.strict_dump_frame(frame)
    assert refused.value.kind == kind
    assert "evil" not in str(refused.value)


@pytest.mark.parametrize("line", [b"a", b"", b":1", b"a:\\t", b"a:1\nb:2", b"a:\xff", b"a:\0"])
def test_strict_parse_header_refuses(line):
    assert ours.strict_parse_header(bytearray(line)) is None
