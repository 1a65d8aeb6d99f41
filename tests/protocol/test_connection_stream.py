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
    listen,
    server_in_session,
)

from stompcodec.codec import Frame
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


@example(b"CONNECT\naccept-version:1.2\n\n\0\0")
@given(some.wires)
def test_whatever_comes_only_documented_errors_are_raised(wire):
    for connection in (Connection(Role.SERVER), server_in_session(), client_in_session(), server_in_session("1.0")):
        listen(connection, [wire])
        with suppress(RemoteProtocolError):
            connection.close(0.0)
        assert connection.state is State.CLOSED
