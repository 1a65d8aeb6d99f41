"""A client goes on behind malformed frames: all good frames come, however the stream is cut, and nothing else does."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import stompcodec
from stompcodec import Limits, connection
from stompcodec.connection import Connection, Role
from stompcodec.errors import RemoteProtocolError
from stompcodec.frame import END_OF_BODY, Frame

LIMITS = Limits(max_header_line=200, max_headers=20, max_body=2000)
HEAD = "MESSAGE\nsubscription:s1\nmessage-id:{}\ndestination:/queue/a\nack:{}\n"
texts = st.text("ab \n:", max_size=20).map(str.encode)
#: Nothing that could be taken for the beginning of a frame.
tails = st.sampled_from(
    [b"", b"\n", b"\r\n\n", b"in text", b"b\nc", b"ME", b"MESSAGE", b"MESSAGES\n", b"SEND\n\n", b" \n"]
)


@st.composite
def good_frames(draw, numbers):
    number = next(numbers)
    body, counts = draw(st.one_of(texts, st.binary(max_size=20))), draw(st.booleans())
    if draw(st.booleans()):
        return b"RECEIPT\nreceipt-id:%d\n\n\0" % number, ("RECEIPT", str(number), b"")
    if counts:
        body = draw(st.sampled_from([body, body + b"\0\nMESSAGE\nsubscription:s1\nack:forged\nno colon\n\n\0"]))
    else:
        body = body.replace(b"\0", b"")
    length = b"content-length:%d\n" % len(body) if counts else b""
    wire = HEAD.format(number, number).encode() + length + b"\n" + body + b"\0"
    return wire, ("MESSAGE", str(number), body)


@st.composite
def bad_frames(draw, numbers):
    """Octets, and what a client has of them: the beginning of a text with NULs."""
    number = next(numbers)
    head, text = HEAD.format(number, number).encode(), draw(texts)
    kind = draw(st.sampled_from(["line", "escape", "utf-8", "nul", "nuls", "length", "long", "receipt", "garbage"]))
    if kind in ("nul", "nuls"):
        rest = b"".join(b"\0" + draw(tails) for _ in range(1 if kind == "nul" else 3))
        return head + b"\n" + text + rest + b"\0", [("MESSAGE", str(number), text)]
    wires = {
        "line": head + b"new\nline:v\n\n" + text,
        "escape": head + b"a:\\q\n\n" + text,
        "utf-8": head + b"a:\xff\n\n" + text,
        "length": head + b"content-length:%d\n\n" % len(text) + text + b"more",
        "long": head + b"n:" + b"x" * 300 + b"\n\n" + text,
        "receipt": b"RECEIPT\nreceipt-id:x\n\n" + b"x" + text,
        "garbage": b"GET / HTTP/1.1\n" + text,
    }
    return wires[kind] + b"\0", [("named", str(number))] if b"MESSAGE" in wires[kind] else []


@st.composite
def streams(draw):
    numbers = iter(range(1000))
    wire, wanted = [], []
    for _ in range(draw(st.integers(1, 6))):
        eols = draw(st.sampled_from([b"", b"\n", b"\n", b"\n\n\n", b"\r\n"]))
        if draw(st.booleans()):
            octets, event = draw(good_frames(numbers))
            events = [event]
        else:
            octets, events = draw(bad_frames(numbers))
        wire.append(octets + eols)
        wanted += events
    octets, event = draw(good_frames(numbers))
    return b"".join([*wire, octets, b"\n"]), [*wanted, event]


def client_of(parser=None, version="1.2", **options):
    client = Connection(Role.CLIENT, versions=[version], heart_beat=(0, 1000), **options)
    client.send(Frame("CONNECT", {"host": "h"}))
    list(client.receive(b"CONNECTED\nversion:%b\nheart-beat:1000,0\n\n\0" % version.encode(), 0.0))
    return client


def follow(client, chunks):
    """The frames that came to their end, as (command, id, body), and the errors that were passed over."""
    found, errors = [], []

    def take(piece):
        found[-1][2:] = [found[-1][2], True] if piece is END_OF_BODY else [found[-1][2] + piece]

    client.on_piece = take
    for chunk in chunks:
        frames = iter(client.receive(chunk, 1.0))
        while frames is not None:
            try:
                for frame in frames:
                    whole = [] if frame.body is None else [True]
                    found.append(
                        [frame.command, frame.get("message-id") or frame.get("receipt-id"), frame.body or b"", *whole]
                    )
                break
            except RemoteProtocolError as error:
                errors.append(error)
                frames = client.go_on()
    return [tuple(each[:3]) for each in found if len(each) == 4], errors


def cuts(data, wire):
    size = data.draw(st.sampled_from([1, 2, 5, 64, 10**6]))
    return [wire[at : at + size] for at in range(0, len(wire), size)]


@pytest.fixture(scope="module", params=["c", "python"])
def parser(request):
    try:
        backend = stompcodec.codec.backend(request.param)
    except ImportError:
        pytest.skip("the C backend is not built")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "Parser", backend.Parser)
        yield request.param


@given(data=st.data(), stream=streams())
@example(data=None, stream=(b"RECEIPT\nx\n\n\0" * 3 + b"RECEIPT\nreceipt-id:1\n\n\0", [("RECEIPT", "1", b"")]))
def test_all_good_frames_come(parser, data, stream):
    wire, wanted = stream
    over = None if data is None else data.draw(st.sampled_from([None, 0, 8]))
    client = client_of(limits=LIMITS, stream_over=over)
    events, errors = follow(client, [wire] if data is None else cuts(data, wire))
    assert events == [event for event in wanted if event[0] != "named"]
    named = {error.frame.get("message-id") for error in errors if error.frame is not None}
    assert {event[1] for event in wanted if event[0] == "named"} <= named
    for error in errors:
        # What was read of it is of a frame that was sent so: never of the forged ones in bodies that are counted.
        assert error.frame is None or error.frame.get("ack") != "forged"
    assert client.next_deadline() is not None  # heart-beats go on


def without_near(error):
    """The excerpt shows what has come of the stream."""
    return re.sub(r"near b(['\"]).*?\1(:|$)", "", str(error))


@given(data=st.data(), stream=streams())
def test_errors_do_not_depend_on_the_cuts(parser, data, stream):
    wire, _ = stream
    _, whole = follow(client_of(limits=LIMITS), [wire])
    _, cut = follow(client_of(limits=LIMITS), cuts(data, wire))
    assert list(map(without_near, cut)) == list(map(without_near, whole))


def test_a_well_formed_frame_that_is_not_allowed_is_passed_over():
    client = client_of()
    wire = b"SEND\ndestination:a\n\n\0MESSAGE\nmessage-id:1\n\n\0RECEIPT\nreceipt-id:1\n\n\0"
    events, errors = follow(client, [wire])
    assert events == [("RECEIPT", "1", b"")]
    assert [str(error) for error in errors] == [
        "a server must not send SEND",
        "MESSAGE lacks destination, and subscription",
    ]
    assert [error.frame.command for error in errors] == ["SEND", "MESSAGE"]


def test_nothing_to_go_on_behind():
    client = Connection(Role.CLIENT)
    assert client.go_on() is None
    client.send(Frame("CONNECT", {"host": "h"}))
    with pytest.raises(RemoteProtocolError, match="malformed frame"):
        list(client.receive(b"HTTP/1.1 400 Bad Request\r\n", 0.0))
    assert client.go_on() is None  # no session
    client = client_of()
    with pytest.raises(RemoteProtocolError):
        list(client.receive(b"garbage\n", 1.0))
    client.close(2.0)
    assert client.go_on() is None
    server = Connection(Role.SERVER)
    with pytest.raises(RemoteProtocolError):
        list(server.receive(b"SEND\n\n\0", 0.0))
    assert server.go_on() is None


def test_work_is_bounded(monkeypatch):
    """Frames that are malformed each at its end would make each byte be read as often as there are frames behind it."""
    monkeypatch.setattr(connection, "_REREAD", 10_000)
    wire = (
        b"".join(b"\0MESSAGE\ncontent-length:%d\n\n" % (20_000 - 30 * number) for number in range(500)) + b"x" * 30_000
    )
    client = client_of()
    octets = 0
    frames = iter(client.receive(wire, 1.0))
    while frames is not None:
        with pytest.raises(RemoteProtocolError) as error:
            list(frames)
        octets += len(wire)
        frames = client.go_on()
    assert error.value.cause is not None
    assert octets < 100 * len(wire)
    assert list(client.receive(b"RECEIPT\nreceipt-id:1\n\n\0", 2.0)) == []


def test_a_seeker_keeps_the_end_alone():
    client = client_of()
    with pytest.raises(RemoteProtocolError):
        list(client.receive(b"garbage\n", 1.0))
    frames = client.go_on()
    assert list(frames) == []
    for _ in range(1000):
        list(client.receive(b"x" * 1000 + b"\0" + b"\n" * 1000, 2.0))
        assert 0 < client.buffered < 600
    found = [each for octet in b"\r\nRECEIPT\r\nreceipt-id:1\r\n\r\n\0" for each in client.receive(bytes([octet]), 3.0)]
    assert [frame.command for frame in found] == ["RECEIPT"]
    assert client.buffered == 0


@pytest.mark.parametrize(
    ("head", "shown"),
    [
        (b"MESSAGE\nsubscription:s1\npasscode:abc\nx\n\n\0", False),
        (b"MESSAGE\nsubscription:s1\nx\x1b[2J\n\n\0", True),
        (b"MESSAGE\nsubscription:s1\nx-token:abc\ncontent-length:1\n\nab\0", False),
        (b"MESSAGE\nsubscription:s1\na:a token\ncontent-length:1\n\nabc\0", False),
        (b"MESSAGE\nsubscription:s1\ncontent-length:1\n\nabc\x1b\0", True),
        (b"MESSAGE\nsubscription:s\x1b[2J" + b"y" * 5000 + b"\nx\n\n\0", True),
    ],
)
def test_the_text_is_printable_and_short_and_shows_no_secret(head, shown):
    client = client_of()
    with pytest.raises(RemoteProtocolError) as error:
        list(client.receive(head, 1.0))
    text = str(error.value)
    assert text.isprintable()
    assert len(text) < 1000
    assert shown or "abc" not in text
    assert ("near" in text) is shown
