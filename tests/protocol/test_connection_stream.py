"""The connection: however its stream is cut, whatever comes; and its heart-beats, by which a healthy one lives."""

import math
import re
from contextlib import suppress

import pytest
from codec import strategies as some
from hypothesis import example, given
from hypothesis import strategies as st
from model.conversation import converse
from protocol.talking import (
    ALL_HEADERS,
    client_in_session,
    connect_wire,
    connected_wire,
    connecting_client,
    in_session,
    listen,
    refused,
    server_in_session,
)

import stompcodec
from stompcodec import connection
from stompcodec.codec import Frame
from stompcodec.connection import Connection, Role
from stompcodec.errors import RemoteProtocolError
from stompcodec.frame import END_OF_BODY
from stompcodec.spec import VERSIONS, Limits
from stompcodec.states import Heartbeat, State, next_state

# ---- any cut gives the same ----
CLIENT_PIECES = [
    *(connect_wire(version, b"heart-beat:1,1\n") for version in (*VERSIONS, "1.0,1.1", "9")),
    connect_wire().replace(b"\n", b"\r\n").replace(b"CONNECT", b"STOMP"),
    *(b"SEND\ndestination:/queue/a\n%b\n%b\0" % pair for pair in [(b"", b"hi"), (b"content-length:3\n", b"a\0b")]),
    *(b"SEND\ndestination:a\\%b\n\n\0" % letter for letter in (b"n", b"r", b"q")),
    *(b"SEND\r\ndestination:a\r\n\r\n\0", b"SEND\nreceipt:1\n\n\0", b"SUBSCRIBE\nid:0\ndestination:/queue/a\n\n\0"),
    *(b"SUBSCRIBE\ndestination:/queue/a\n\n\0", b"UNSUBSCRIBE\ndestination:/queue/a\n\n\0"),
    *(b"ACK\nid:1\n\n\0", b"ACK\nmessage-id:1\nsubscription:0\n\n\0", b"NACK\nid:1\n\n\0"),
    *(b"BEGIN\ntransaction:t\n\n\0", b"COMMIT\n\n\0", b"DISCONNECT\nreceipt:9\n\n\0"),
    *(b"\n", b"\r\n", b"\n\n\n", b"\0", b"x", b"MESSAGE\n\n\0", b"SEND\ndestination:" + b"d" * 70 + b"\n\n\0"),
]
SERVER_PIECES = [
    *(connected_wire(version, b"heart-beat:1,1\n") for version in (*VERSIONS, "9")),
    b"CONNECTED\nsession:s\n\n\0",
    *(b"MESSAGE\n%b\n%b\0" % pair for pair in [(b"", b""), (b"destination:a\nmessage-id:1\nsubscription:0\n", b"hi")]),
    b"MESSAGE\ndestination:a\\n\nmessage-id:1\nsubscription:\\r\n\n\0",
    *(b"RECEIPT\nreceipt-id:1\n\n\0", b"RECEIPT\n\n\0", b"ERROR\nmessage:\\c\n\nno\0", b"ERROR\n\n\0"),
    *(b"\n", b"\r\n", b"\0", b"x", b"SEND\ndestination:a\n\n\0"),
]
LIMITS = [None, Limits(max_header_line=30), Limits(max_header_line=60, max_headers=3), Limits(max_body=1)]


def fresh(role, options):
    return connecting_client(**options) if role is Role.CLIENT else Connection(role, **options)


options = st.fixed_dictionaries(
    {
        **{"limits": st.sampled_from(LIMITS), "first_limits": st.sampled_from(LIMITS), "lenient": st.booleans()},
        "versions": st.sampled_from([VERSIONS, ("1.1",), ("1.0", "1.2")]),
    }
)


@st.composite
def conversations(draw):
    role = draw(st.sampled_from(list(Role)))
    pieces = SERVER_PIECES if role is Role.CLIENT else CLIENT_PIECES
    first = draw(st.sampled_from(pieces[:4]) | st.just(b""))
    wire = first + b"".join(draw(st.lists(st.sampled_from(pieces), max_size=7)))
    return role, draw(some.mutated(st.just(wire)) | st.just(wire))


@pytest.mark.req("S12-FRM-01", "S12-FRM-06", "S12-FRM-07", "S12-CMD-02", "S12-DIS-02", "S12-ERR-02")
@pytest.mark.req("S12-NEG-03", "S12-LIM-04")
@given(conversations(), options, st.data())
def test_nothing_depends_on_the_cuts_and_all_is_as_the_model_has_it(conversation, options, data):
    role, wire = conversation
    model, heard = converse(role.value, wire, **options), listen(fresh(role, options), [wire])
    assert listen(fresh(role, options), data.draw(some.cut(wire))) == heard
    assert (heard.frames, heard.version) == (model.frames, model.version)
    if model.fault is None:
        assert (heard.error, heard.state) == (None, model.state)
        return
    message, cause = heard.error[:2]
    assert cause == model.fault if cause else model.fault == (("headers",) if " lacks " in message else ("order",))
    if role is Role.SERVER:
        assert heard.state is next_state("server", model.state, "ERROR", model.version)


@pytest.mark.req("S12-LIM-01", "S12-LIM-02", "S12-LIM-03", "S12-LIM-04", "S11-LIM-04")
@pytest.mark.parametrize("field", ["max_command_line", "max_header_line", "max_headers"])
def test_first_limits_hold_up_to_connect_and_no_further(field):
    header = b"x:" + b"y" * 40
    first = b"CONNECT\naccept-version:1.2\n%b\n\n\0" % header
    at = {"max_command_line": 7, "max_header_line": len(header), "max_headers": 2}[field]
    behind = b"SUBSCRIBE\nid:%b\ndestination:/queue/a\n\n\0SEND\ndestination:a\n%b\n%b\0" % (
        *(b"i" * 500, b"a:1\n" * 50, b"z" * 5000),
    )
    small = Limits()._replace(**{field: at}, max_body=0)
    for pieces in ([first + behind], [first, behind], [bytes([octet]) for octet in first + behind]):
        got = listen(Connection(Role.SERVER, first_limits=small), pieces)
        assert [frame.command for frame in got.frames] == ["CONNECT", "SUBSCRIBE", "SEND"]
        assert got.error is None
        smaller = small._replace(**{field: at - 1})
        got = listen(Connection(Role.SERVER, first_limits=smaller), pieces)
        assert (got.frames, got.error[1][::2]) == ([], ("limit-exceeded", field))
        assert got.state is State.FAILED


def test_what_is_behind_connect_waits_for_the_answer():
    server, send = Connection(Role.SERVER), b"SEND\ndestination:a\n\n%d\0"
    assert [frame.command for frame in server.receive(connect_wire() + send % 1, 0.0)] == ["CONNECT"]
    assert list(server.receive(send % 2 + b"SEND\ndesti", 1.0)) == []
    server.accept(now=5.0)
    assert [frame.body for frame in server.receive(b"", 5.0)] == [b"1", b"2"]
    assert [frame.body for frame in server.receive(b"nation:a\n\n3\0", 6.0)] == [b"3"]
    assert server.state is State.CONNECTED


def test_not_too_much_may_wait():
    server = Connection(Role.SERVER)
    list(server.receive(connect_wire() + b"\n", 0.0))
    list(server.receive(b"x" * (2**20 - 1), 0.0))
    error = refused(server, b"x")
    assert "too many bytes follow CONNECT" in str(error)
    server.send(error.reply)
    assert server.state is State.FAILED
    assert list(server.receive(b"x", 0.0)) == []


def test_refused_while_others_wait():
    server = Connection(Role.SERVER)
    list(server.receive(connect_wire() + b"nonsense", 0.0))
    server.send(Frame("ERROR", {"message": "no"}))
    assert list(server.receive(b"", 0.0)) == []
    server = Connection(Role.SERVER)
    list(server.receive(connect_wire() + b"half a fra", 0.0))
    server.close(0.0)
    assert server.state is State.CLOSED


@example(b"CONNECT\naccept-version:1.2\n\n\0\0")
@given(some.wires)
def test_whatever_comes_only_documented_errors_are_raised(wire):
    for each in (Connection(Role.SERVER), server_in_session(), client_in_session(), server_in_session("1.0")):
        listen(each, [wire])
        with suppress(RemoteProtocolError):
            each.close(0.0)
        assert each.state is State.CLOSED


MODEST = Limits(max_header_line=200, max_headers=20, max_body=2000)
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
        **{"line": head + b"new\nline:v\n\n" + text, "escape": head + b"a:\\q\n\n" + text},
        "utf-8": head + b"a:\xff\n\n" + text,
        "length": head + b"content-length:%d\n\n" % len(text) + text + b"more",
        "long": head + b"n:" + b"x" * 300 + b"\n\n" + text,
        **{"receipt": b"RECEIPT\nreceipt-id:x\n\n" + b"x" + text, "garbage": b"GET / HTTP/1.1\n" + text},
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


def client_of(**options):
    return client_in_session(heart_beat=(0, 1000), more=b"heart-beat:1000,0\n", **options)


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
                    number, whole = (
                        *(frame.get("message-id") or frame.get("receipt-id"), [True] * (frame.body is not None)),
                    )
                    found.append([frame.command, number, frame.body or b"", *whole])
                break
            except RemoteProtocolError as error:
                errors.append(error)
                frames = client.go_on()
    return [tuple(each[:3]) for each in found if len(each) == 4], errors


@pytest.fixture(scope="module", params=["c", "python"])
def parser(request):
    try:
        backend = stompcodec.codec.backend(request.param)
    except ImportError:
        pytest.skip("the C backend is not built")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "Parser", backend.Parser)
        yield request.param


def without_near(error):
    """The excerpt shows what has come of the stream."""
    return re.sub(r"near b(['\"]).*?\1(:| \(|$)", "", str(error))


@given(data=st.data(), stream=streams())
@example(data=None, stream=(b"RECEIPT\nx\n\n\0" * 3 + b"RECEIPT\nreceipt-id:1\n\n\0", [("RECEIPT", "1", b"")]))
def test_all_good_frames_come(parser, data, stream):
    wire, wanted = stream
    over = None if data is None else data.draw(st.sampled_from([None, 0, 8]))
    client = client_of(limits=MODEST, stream_over=over)
    events, errors = follow(client, [wire] if data is None else data.draw(some.cut(wire)))
    _, whole = follow(client_of(limits=MODEST, stream_over=over), [wire])
    assert list(map(without_near, errors)) == list(map(without_near, whole)), "they do not depend on the cuts"
    assert events == [event for event in wanted if event[0] != "named"]
    named = {error.frame.get("message-id") for error in errors if error.frame is not None}
    assert {event[1] for event in wanted if event[0] == "named"} <= named
    for error in errors:
        # What was read of it is of a frame that was sent so: never of the forged ones in bodies that are counted.
        assert error.frame is None or error.frame.get("ack") != "forged"
    assert client.next_deadline() is not None  # heart-beats go on


def test_nothing_to_go_on_behind():
    assert Connection(Role.CLIENT).go_on() is None
    early, late, server = connecting_client(), client_of(), Connection(Role.SERVER)
    assert "malformed frame" in str(refused(early, b"HTTP/1.1 400 Bad Request\r\n"))
    refused(late, b"garbage\n")
    late.close(2.0)
    refused(server, b"SEND\n\n\0")
    assert early.go_on() is late.go_on() is server.go_on() is None


def test_behind_a_malformed_frame_a_legacy_command_has_any_case_and_spaces():
    client = Connection(Role.CLIENT, versions=["legacy"])
    client.send(Frame("CONNECT", {"username": "a", "passcode": "b"}))
    list(client.receive(b"CONNECTED\n\n\0", 0.0))
    refused(client, b"MESSAGE\nx\n\n\0receipt \nreceipt-id:1\n\n\0")
    assert [frame.command for frame in client.go_on()] == ["RECEIPT"]


def test_work_is_bounded(monkeypatch):
    """Frames that are malformed each at its end would make each byte be read as often as there are frames behind it."""
    monkeypatch.setattr(connection, "_REREAD", 10_000)
    wire = b"".join(b"\0MESSAGE\ncontent-length:%d\n\n" % (20_000 - 30 * number) for number in range(500))
    wire += b"x" * 30_000
    client, octets = client_of(), 0
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
    refused(client, b"garbage\n")
    assert list(client.go_on()) == []
    for _ in range(1000):
        list(client.receive(b"x" * 1000 + b"\0" + b"\n" * 1000, 2.0))
        assert 0 < client.buffered < 600
    found = [each for octet in b"\r\nRECEIPT\r\nreceipt-id:1\r\n\r\n\0" for each in client.receive(bytes([octet]), 3.0)]
    assert ([frame.command for frame in found], client.buffered) == (["RECEIPT"], 0)


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
    text = str(refused(client_of(), head))
    assert text.isprintable()
    assert len(text) < 1000
    assert shown or "abc" not in text
    assert ("near" in text) is shown


each_role = pytest.mark.parametrize("role", list(Role))
GRACE = {Role.CLIENT: 1.0, Role.SERVER: 0.0}
EOL = b"\n"


def beating(role, send_every, receive_every, now=0.0):
    """A connection in session whose intervals are these, in ms; its peer offers what is wanted."""
    header = b"heart-beat:%d,%d\n" % (receive_every, send_every)
    connection = in_session(role, heart_beat=(send_every, receive_every), more=header, now=now)
    assert connection.heartbeat == Heartbeat(send_every, receive_every)
    return connection


@pytest.mark.req("S12-HB-08", "S12-HB-11", "S12-HB-12", "S11-HB-08", "S11-HB-12")
@each_role
@pytest.mark.parametrize("octets", [b"\n", b"SE", b"MESSAGE\nd", b"\r"])
def test_silence_of_twice_the_interval_is_death(role, octets):
    connection, dead = beating(role, 0, 1000, now=10.0), 12.0 + GRACE[role]
    assert connection.next_deadline() == dead
    assert connection.tick(math.nextafter(dead, 0))
    assert not connection.tick(dead)
    list(connection.receive(octets, dead + 5))
    assert connection.tick(dead + 5)
    assert connection.next_deadline() == dead + 7.0 + GRACE[role]
    assert not connection.tick(dead + 7.0 + GRACE[role])


@pytest.mark.req("S12-HB-08")
@each_role
def test_no_excuse_reaches_into_the_time_to_come(role):
    connection = beating(role, 0, 1000)
    list(connection.receive(EOL, 5.0))
    connection.excuse(1e6)
    assert connection.next_deadline() == 5.0 + 2.0 + GRACE[role]
    connection.excuse(1e6, 6.0)
    assert connection.next_deadline() == 6.0 + 2.0 + GRACE[role]
    assert not connection.tick(6.0 + 2.0 + GRACE[role])


def test_beats_begin_with_connected():
    beats, server = b"heart-beat:1000,1000\n", Connection(Role.SERVER, heart_beat=(1000, 1000))
    list(server.receive(connect_wire("1.2", beats), 5.0))
    assert server.next_deadline() is None
    server.accept(now=60.0)
    assert server.tick(60.0)
    server.take_output()
    assert (server.next_deadline(), server.tick(61.9), server.tick(62.0)) == (60.5, True, False)
    client = connecting_client(heart_beat=(1000, 1000))
    list(client.receive(connected_wire("1.2", beats), 60.0))
    assert client.next_deadline() == 60.5


@pytest.mark.req("S12-HB-09", "S12-DIS-02")
def test_beats_go_on_until_the_receipt_of_disconnect():
    client = beating(Role.CLIENT, 1000, 1000)
    client.send(Frame("DISCONNECT", {"receipt": "1"}))
    client.take_output(now=0.0)
    assert client.tick(0.5)
    assert client.take_output() == [EOL]
    assert not client.tick(3.0)
    server = beating(Role.SERVER, 1000, 1000)
    list(server.receive(b"DISCONNECT\nreceipt:1\n\n\0", 0.0))
    assert server.tick(100.0), "a client that has said its last may be silent"
    assert server.take_output() == [EOL]


@pytest.mark.req("S12-HB-02", "S12-LIM-05")
def test_huge_intervals_are_harmless():
    huge = b"heart-beat:%b,%b\n" % (b"9" * 100, b"9" * 100)
    server = server_in_session(heart_beat=(1, 1), more=huge)
    assert server.next_deadline() > 1e90
    assert server.tick(1e9)


actions = st.lists(
    st.tuples(st.sampled_from(["receive", "nothing", "send", "take", "tick", "excuse"]), st.integers(0, 3000)),
    max_size=30,
)


@pytest.mark.req("S12-HB-06", "S12-HB-08", "S12-HB-09", "S12-HB-10", "S12-HB-11", "S12-HB-12", "S11-HB-09", "S11-HB-10")
@given(st.sampled_from(list(Role)), st.integers(0, 4).map((500).__mul__), st.integers(0, 4).map((500).__mul__), actions)
@example(Role.SERVER, 500, 500, [("tick", 250), ("take", 0), ("tick", 750)])
def test_deadlines_are_plain_arithmetic(role, send_every, receive_every, actions):
    """Against a model that knows but two points in time. The clock is in ms, so that no float is in the way."""
    connection = beating(role, send_every, receive_every)
    now = heard = sent = seen = 0
    waiting = 0
    for action, wait in actions:
        now += wait
        seen = seen if action in ("send", "excuse") else now
        if action in ("receive", "nothing"):
            list(connection.receive(EOL if action == "receive" else b"", now / 1000))
            heard = max(heard, now) if action == "receive" else heard
        elif action == "send":
            connection.send(Frame("MESSAGE" if role is Role.SERVER else "SEND", ALL_HEADERS))
            waiting += 1
        elif action == "take":
            assert len(connection.take_output(now / 1000)) == waiting
            sent, waiting = (now if waiting else sent), 0
        elif action == "excuse":
            connection.excuse(wait * 2 / 1000, now / 1000)
            heard = min(heard + wait * 2, now)
        else:
            dead = bool(receive_every) and now >= heard + 2 * receive_every + 1000 * (role is Role.CLIENT)
            assert connection.tick(now / 1000) is not dead
            if not dead and send_every and not waiting and now >= sent + send_every // 2:
                waiting += 1
                assert connection.output == [EOL]
        deadlines = [heard + 2 * receive_every + 1000 * (role is Role.CLIENT)] if receive_every else []
        deadlines += [(seen if waiting else sent) + send_every // 2] if send_every else []
        assert connection.next_deadline() == (pytest.approx(min(deadlines) / 1000) if deadlines else None)
