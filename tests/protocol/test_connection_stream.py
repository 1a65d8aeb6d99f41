"""The connection and its stream: nothing depends on how it is cut, versions and limits change in the middle of a chunk,
and two connections understand each other."""

from contextlib import suppress

import pytest
from codec import strategies as some
from hypothesis import example, given
from hypothesis import strategies as st
from model.conversation import converse
from protocol.talking import (
    client_in_session,
    connect_wire,
    connected_wire,
    in_session,
    listen,
    server_in_session,
    wire_of,
)

from stompcodec.codec import Frame, serialize
from stompcodec.connection import Connection, Role
from stompcodec.errors import RemoteProtocolError
from stompcodec.spec import VERSIONS, Limits
from stompcodec.states import State, next_state

# ---- any cut gives the same ----

CLIENT_PIECES = [
    *(connect_wire(version, b"heart-beat:1,1\n") for version in (*VERSIONS, "1.0,1.1", "9")),
    connect_wire().replace(b"\n", b"\r\n").replace(b"CONNECT", b"STOMP"),
    *(b"SEND\ndestination:/queue/a\n%b\n%b\0" % pair for pair in [(b"", b"hi"), (b"content-length:3\n", b"a\0b")]),
    *(b"SEND\ndestination:a\\%b\n\n\0" % letter for letter in (b"n", b"r", b"q")),
    b"SEND\r\ndestination:a\r\n\r\n\0",
    b"SEND\nreceipt:1\n\n\0",
    b"SUBSCRIBE\nid:0\ndestination:/queue/a\n\n\0",
    b"SUBSCRIBE\ndestination:/queue/a\n\n\0",
    b"UNSUBSCRIBE\ndestination:/queue/a\n\n\0",
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
    connection = Connection(role, **options)
    if role is Role.CLIENT:
        connection.send(Frame("CONNECT", {"host": "a"}))
        connection.take_output()
    return connection


options = st.fixed_dictionaries(
    {
        "limits": st.sampled_from(LIMITS),
        "first_limits": st.sampled_from(LIMITS),
        "lenient": st.booleans(),
        "versions": st.sampled_from([VERSIONS, ("1.1",), ("1.0", "1.2")]),
    }
)


@st.composite
def conversations(draw):
    """A role, and what its peer says: mostly as it should be."""
    role = draw(st.sampled_from(list(Role)))
    pieces = SERVER_PIECES if role is Role.CLIENT else CLIENT_PIECES
    first = draw(st.sampled_from(pieces[:4]) | st.just(b""))
    wire = first + b"".join(draw(st.lists(st.sampled_from(pieces), max_size=7)))
    return role, draw(some.mutated(st.just(wire)) | st.just(wire))


@pytest.mark.req("S12-FRM-01", "S12-NEG-03", "S12-ERR-02", "S12-LIM-04")
@given(conversations(), options, st.data())
def test_nothing_depends_on_the_cuts(conversation, options, data):
    role, wire = conversation
    whole = listen(fresh(role, options), [wire])
    assert listen(fresh(role, options), data.draw(some.cut(wire))) == whole


@given(conversations(), options)
def test_every_single_cut(conversation, options):
    role, wire = conversation
    whole = listen(fresh(role, options), [wire])
    for at in range(0, len(wire), max(1, len(wire) // 60)):
        assert listen(fresh(role, options), [wire[:at], wire[at:]]) == whole


@pytest.mark.req("S12-FRM-06", "S12-FRM-07", "S12-CMD-02", "S12-DIS-02", "S12-ERR-02", "S12-LIM-04")
@given(conversations(), options, st.data())
def test_against_the_model(conversation, options, data):
    """Frames, faults with their offsets, version and state are those of a plain walk over the whole stream."""
    role, wire = conversation
    model = converse(role.value, wire, **options)
    heard = listen(fresh(role, options), data.draw(some.cut(wire)))
    assert (heard.frames, heard.version) == (model.frames, model.version)
    if model.fault is None:
        assert (heard.error, heard.state) == (None, model.state)
        return
    message, cause = heard.error[:2]
    assert cause == model.fault if cause else model.fault == (("headers",) if " lacks " in message else ("order",))
    if role is Role.SERVER:
        assert heard.state is next_state("server", model.state, "ERROR", model.version)


@given(conversations(), options)
def test_any_kind_of_octets_will_do(conversation, options):
    role, wire = conversation
    whole = listen(fresh(role, options), [wire])
    assert listen(fresh(role, options), [bytearray(wire)]) == whole
    assert listen(fresh(role, options), [memoryview(b"<" + wire + b">")[1:-1]]) == whole


# ---- the version changes inside a chunk ----

ESCAPED = b"SUBSCRIBE\nid:0\ndestination:a\\nb\n\n\0SEND\ndestination:c\\rd\nx:e\r\n\nbody\0"


@pytest.mark.req("S12-ESC-01", "S11-ESC-01", "S12-ESC-05", "S11-ESC-04", "S12-NEG-03", "S12-EOL-01")
@pytest.mark.parametrize(
    ("version", "subscribed", "sent", "cr"),
    [("1.2", "a\nb", "c\rd", "e"), ("1.1", "a\nb", None, None), ("1.0", "a\\nb", "c\\rd", "e\r")],
)
def test_what_is_behind_connect_is_read_by_its_version(version, subscribed, sent, cr):
    wire = connect_wire(version) + ESCAPED
    for at in range(len(wire) + 1):
        got = listen(Connection(Role.SERVER), [wire[:at], wire[at:]])
        assert got.frames[1].headers["destination"] == subscribed
        if sent is None:
            assert (len(got.frames), got.error[1][0]) == (2, "bad-escape")
            assert got.error[1][1] == wire.index(b"\\r")
        else:
            assert (got.frames[2].headers["destination"], got.frames[2].headers["x"]) == (sent, cr)
            assert got.error is None


@pytest.mark.req("S12-ESC-07", "S11-ESC-06")
def test_the_version_holds_behind_connected_too():
    for version, value in (("1.2", "a\rb"), ("1.0", "a\\rb")):
        client = Connection(Role.CLIENT)
        client.send(Frame("CONNECT", {"host": "a"}))
        message = b"MESSAGE\ndestination:a\\rb\nmessage-id:1\nsubscription:0\n\n\0"
        wire = connected_wire(version, b"x:\\q\n") + message
        got = listen(client, [wire])
        assert got.frames[0].headers["x"] == "\\q"
        assert got.frames[1].headers["destination"] == value


# ---- limits ----


@pytest.mark.req("S12-LIM-01", "S12-LIM-02", "S12-LIM-03", "S12-LIM-04", "S11-LIM-04")
@pytest.mark.parametrize("field", ["max_command_line", "max_header_line", "max_headers"])
def test_first_limits_hold_up_to_connect_and_no_further(field):
    """At the limit and one past it, with what follows in the same chunk far beyond."""
    header = b"x:" + b"y" * 40
    first = b"CONNECT\naccept-version:1.2\n%b\n\n\0" % header
    at = {"max_command_line": 7, "max_header_line": len(header), "max_headers": 2}[field]
    behind = b"SUBSCRIBE\nid:%b\ndestination:/queue/a\n\n\0SEND\ndestination:a\n%b\n%b\0" % (
        b"i" * 500,
        b"a:1\n" * 50,
        b"z" * 5000,
    )
    small = Limits()._replace(**{field: at}, max_body=0)
    for pieces in ([first + behind], [first, behind], [bytes([octet]) for octet in first + behind]):
        got = listen(Connection(Role.SERVER, first_limits=small), pieces)
        assert [frame.command for frame in got.frames] == ["CONNECT", "SUBSCRIBE", "SEND"]
        assert got.error is None
        smaller = small._replace(**{field: at - 1})
        got = listen(Connection(Role.SERVER, first_limits=smaller), pieces)
        assert got.frames == []
        assert got.error[1][::2] == ("limit-exceeded", field)
        assert got.state is State.FAILED


@pytest.mark.req("S12-LIM-03", "S12-LIM-04")
@pytest.mark.parametrize("whole", [True, False])
def test_limits_hold_behind_connect(whole):
    limits = Limits(max_header_line=20, max_headers=1, max_body=3)
    large = Limits(max_header_line=100)
    good = b"SEND\ndestination:%b\n\nabc\0" % (b"d" * 8)
    for bad, limit in (
        (b"SEND\ndestination:%b\n\n\0" % (b"d" * 9), "max_header_line"),
        (b"SEND\ndestination:a\nb:c\n\n\0", "max_headers"),
        (b"SEND\ndestination:a\n\nabcd\0", "max_body"),
    ):
        wire = connect_wire() + good + bad
        server = Connection(Role.SERVER, first_limits=large, limits=limits)
        got = listen(server, [wire] if whole else [wire[i : i + 1] for i in range(len(wire))])
        assert [frame.command for frame in got.frames] == ["CONNECT", "SEND"]
        assert got.error[1][::2] == ("limit-exceeded", limit)


@pytest.mark.req("S12-LIM-04")
def test_first_limits_of_a_client_hold_up_to_connected():
    for line, ok in ((b"x:" + b"y" * 38, True), (b"x:" + b"y" * 39, False)):
        client = Connection(Role.CLIENT, first_limits=Limits(max_header_line=40))
        client.send(Frame("CONNECT", {"host": "a"}))
        message = b"MESSAGE\ndestination:%b\nmessage-id:1\nsubscription:0\n\n\0" % (b"d" * 60)
        got = listen(client, [connected_wire("1.2", line + b"\n") + message])
        assert len(got.frames) == 2 * ok


def test_what_is_dropped_is_not_kept():
    flood = b"SEND\ndestination:a\n\n" + b"x" * 100_000
    for end in ("error", "disconnect", "refused", "closed"):
        server = server_in_session()
        if end == "error":
            server.send(Frame("ERROR"))
        elif end == "disconnect":
            list(server.receive(b"DISCONNECT\n\n\0", 0.0))
        elif end == "refused":
            with pytest.raises(RemoteProtocolError):
                list(server.receive(b"SEND\n\n\0" + flood, 0.0))
        else:
            server.close(0.0)
        assert list(server.receive(flood, 0.0)) == []
        assert server._parser.buffered == 0


# ---- a server that cannot answer at once ----


def test_what_is_behind_connect_waits_for_the_answer():
    server = Connection(Role.SERVER)
    send = b"SEND\ndestination:a\n\n%d\0"
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
    with pytest.raises(RemoteProtocolError, match="too many bytes follow CONNECT") as caught:
        list(server.receive(b"x", 0.0))
    server.send(caught.value.reply)
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


# ---- two connections ----

_names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
_texts = {
    # What a version can carry: 1.0 has no escapes, and a CR before the line's end is taken for no part of it.
    "1.0": st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\n"), max_size=8),
    "1.1": st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
}
_texts["1.2"] = _texts["1.1"]
_bodies = st.binary(max_size=30) | st.sampled_from([b"x" * 8192, b"\0" * 9000])


@st.composite
def frames(draw, role, version):
    """A frame that a side may send in a session, with odd headers."""
    texts = _texts[version]
    own = st.tuples(_names.filter(lambda name: version != "1.0" or not set(name) & {":", "\n"}), texts)
    if role is Role.CLIENT:
        command = draw(st.sampled_from(["SEND", "SUBSCRIBE", "ACK", "BEGIN"]))
        needs = ["destination"] if command == "SEND" else ["destination", "id", "message-id", "subscription"]
        needs = ["transaction"] if command == "BEGIN" else needs
    else:
        command = draw(st.sampled_from(["MESSAGE", "RECEIPT"]))
        needs = ["destination", "message-id", "subscription"] if command == "MESSAGE" else ["receipt-id"]
    pairs = [(name, draw(texts)) for name in needs] + draw(st.lists(own, max_size=3))
    pairs = [pair for pair in pairs if pair[0] != "content-length"]
    body = draw(_bodies) if command in ("SEND", "MESSAGE") else b""
    return Frame(command, pairs, body)


def uncounted(frame):
    """Without the header that `serialize` adds."""
    pairs = [pair for pair in frame.headers.pairs() if pair[0] != "content-length"]
    return frame.command, pairs, frame.body


@pytest.mark.req("S12-CON-02", "S12-HDR-01", "S12-CL-06", "S11-UTF-01")
@given(st.sampled_from(VERSIONS), st.booleans(), st.data())
def test_two_connections_understand_each_other(version, whole_frames, data):
    """Both talk at once, through cuts of any kind; each hears what the other said, in order, and nothing else."""
    client = Connection(Role.CLIENT, versions=[version], whole_frames=whole_frames)
    server = Connection(Role.SERVER, whole_frames=whole_frames)
    client.send(Frame("CONNECT", {"host": "a"}))
    said = {client: [], server: []}
    heard = {client: [], server: []}
    lines = {client: b"", server: b""}  # what is on its way from each
    other = {client: server, server: client}

    def deliver(sender, size):
        chunk, lines[sender] = lines[sender][:size], lines[sender][size:]
        for frame in other[sender].receive(chunk, 0.0):
            if frame.command == "CONNECT":
                server.accept({"session": "1"})
            elif frame.command != "CONNECTED":
                heard[other[sender]].append(uncounted(frame))

    for _ in range(data.draw(st.integers(2, 12))):
        for side in (client, server):
            if side.state is State.CONNECTED and data.draw(st.booleans()):
                frame = data.draw(frames(side.role, version))
                side.send(frame)
                said[side].append(uncounted(frame))
            chunks = side.take_output()
            if whole_frames:
                assert all(chunk.endswith((b"\0", b"\0\n")) for chunk in chunks)
            lines[side] += b"".join(chunks)
            deliver(side, data.draw(st.integers(0, 400)))
    for side in (client, server, client, server):
        lines[side] += wire_of(side)
        deliver(side, len(lines[side]))
    assert heard[server] == said[client]
    assert heard[client] == said[server]
    assert (client.version, server.version) == (version, version)
    client.close(0.0)
    server.close(0.0)


@pytest.mark.req("S12-FRM-01", "S12-HB-08")
@given(st.sampled_from(list(Role)), st.data())
def test_eols_between_frames_are_eaten(role, data):
    connection = in_session(role)
    frame = Frame("MESSAGE" if role is Role.CLIENT else "SEND", {"destination": "a", "message-id": "1"})
    frame = Frame(frame.command, [*frame.headers.pairs(), ("subscription", "0")], b"\n\n")
    gaps = data.draw(st.lists(st.sampled_from([b"", b"\n", b"\r\n", b"\n\n\n"]), min_size=1, max_size=5))
    wire = b"".join(gap + serialize(frame) for gap in gaps) + b"\n"
    got = listen(connection, data.draw(some.cut(wire)), lambda *_: None)
    assert [found.body for found in got.frames] == [b"\n\n"] * len(gaps)
    connection.close(0.0)


@example(b"CONNECT\naccept-version:1.2\n\n\0\0")
@given(some.wires)
def test_whatever_comes_only_documented_errors_are_raised(wire):
    for connection in (Connection(Role.SERVER), server_in_session(), client_in_session(), server_in_session("1.0")):
        listen(connection, [wire])
        with suppress(RemoteProtocolError):
            connection.close(0.0)
        assert connection.state is State.CLOSED
