"""The connection: the order of frames, required headers, and what is put out."""

import itertools

import pytest
from protocol.talking import (
    ALL_HEADERS,
    COMMANDS,
    OTHER,
    client_in_session,
    connect_wire,
    connection_in,
    full,
    in_session,
    listen,
    refused,
    sent_frames,
    server_in_session,
    wire_of,
)

from stompcodec.codec import Frame, parse, serialize
from stompcodec.connection import Connection, Role, steady
from stompcodec.errors import (
    FrameError,
    LocalProtocolError,
    RemoteProtocolError,
)
from stompcodec.spec import CLIENT_1_0, VERSIONS
from stompcodec.states import REQUIRED_HEADERS, State, next_state

ROLES = list(Role)
EVERY_COMMAND = [*COMMANDS[Role.CLIENT], *COMMANDS[Role.SERVER]]


# ---- the table ----


@pytest.mark.req("S12-CON-01", "S12-CON-05", "S12-DIS-02", "S12-ERR-02", "S12-FRM-06", "S12-FRM-07", "S12-CMD-02")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("role", ROLES)
def test_what_comes_follows_the_table(role, state, version):
    for command in EVERY_COMMAND:
        connection = connection_in(role, state, version)
        known = connection.version
        after = next_state(OTHER[role].value, state, command, known)
        codec_knows = command in (*CLIENT_1_0, *COMMANDS[Role.SERVER]) or known != "1.0"
        frame = full(command)
        if command == "CONNECTED":
            frame = Frame("CONNECTED", {"version": version, "session": "1"})
        got = listen(connection, [serialize(frame)], answer=lambda *_: None)
        ended = state in (State.FAILED, State.CLOSED)
        last = role is Role.SERVER and state is State.DISCONNECTING
        waits = role is Role.SERVER and state is State.CONNECTING
        if ended or last or waits:
            assert got == ([], None, state, known, b""), command
        elif after is None or not codec_knows:
            assert got.frames == []
            assert got.error is not None, command
        else:
            assert got.frames == [frame]
            assert (got.error, got.state) == (None, after), command


@pytest.mark.req("S12-CON-01", "S12-DIS-02", "S12-ERR-02", "S12-FRM-06", "S12-FRM-07")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("role", ROLES)
def test_what_is_sent_follows_the_table(role, state, version):
    for command in EVERY_COMMAND:
        connection = connection_in(role, state, version)
        after = next_state(role.value, state, command, connection.version)
        frame = full(command)
        if after is None:
            with pytest.raises(LocalProtocolError, match=command):
                connection.send(frame)
            assert (connection.output, connection.state) == ([], state)
        elif connection.version == "1.0" and command in ("NACK", "STOMP"):
            with pytest.raises(FrameError, match="unknown-command"):
                connection.send(frame)
            assert (connection.output, connection.state) == ([], state)
        else:
            connection.send(frame)
            assert connection.state is after
            assert [sent.command for sent in sent_frames(connection)] == [command]


# ---- required headers ----

REQUIRED = [
    (version, Role(sender), command, entry)
    for (version, sender), table in REQUIRED_HEADERS.items()
    for command, names in table.items()
    for entry in names
    if version != "legacy" and command not in ("CONNECT", "STOMP", "CONNECTED")
]


@pytest.mark.req("S12-SND-01", "S12-SUB-01", "S12-UNS-01", "S12-ACK-01", "S12-NAK-01", "S12-TX-01", "S12-MSG-01")
@pytest.mark.req("S11-SND-01", "S11-SUB-01", "S11-ACK-01", "S10-SND-01", "S10-UNS-01", "S10-ACK-01", "S10-TX-01")
@pytest.mark.parametrize(("version", "sender", "command", "entry"), REQUIRED)
def test_each_required_header_is_missed_on_both_sides(version, sender, command, entry):
    left_out = entry.split("|")
    pairs = [(name, "1") for name in ALL_HEADERS if name not in left_out]
    frame = Frame(command, [*pairs, ("receipt", "r")])
    said = f"{command} lacks {' or '.join(left_out)}"
    with pytest.raises(LocalProtocolError, match=said):
        in_session(sender, version).send(frame)
    receiver = in_session(OTHER[sender], version)
    good = serialize(Frame(command, [*pairs, *[(name, "") for name in left_out[-1:]]]), version)
    outcome = listen(receiver, [good + serialize(frame, version) + good])
    assert len(outcome.frames) == 1, "one in front of it, none behind it"
    assert outcome.error[0] == said
    if receiver.role is Role.SERVER:
        (reply,) = parse(outcome.sent, version)
        assert (reply.headers["message"], reply.headers["receipt-id"]) == (said, "r")


def test_a_lenient_client_takes_what_lacks_headers_and_a_lenient_server_does_not():
    client = client_in_session("1.0", lenient=True)
    wire = b"MESSAGE\ndestination:/queue/a\n\nhi\0RECEIPT\n\n\0"
    assert [frame.command for frame in client.receive(wire, 0.0)] == ["MESSAGE", "RECEIPT"]
    assert "SEND lacks destination" in str(refused(server_in_session(lenient=True), b"SEND\n\nhi\0"))


# ---- output ----


@pytest.mark.parametrize("role", ROLES)
def test_large_bodies_are_not_copied_unless_chunks_are_frames(role):
    body = b"x" * 100_000
    frame = Frame("SEND" if role is Role.CLIENT else "MESSAGE", ALL_HEADERS, body)
    connection = in_session(role)
    connection.send(frame)
    chunks = connection.take_output()
    assert any(chunk is body for chunk in chunks)
    connection = in_session(role, whole_frames=True)
    connection.send(frame)
    connection.send(frame)
    whole = connection.take_output()
    assert whole == [b"".join(chunks)] * 2


def test_the_end_inside_a_frame():
    for piece, kind in ((b"SEND\ndest", "truncated"), (b"\n\n", None), (b"", None)):
        server = server_in_session()
        before = len(connect_wire())
        assert list(server.receive(piece, 1.0)) == []
        if kind:
            with pytest.raises(RemoteProtocolError) as caught:
                server.close(2.0)
            assert (caught.value.cause.kind, caught.value.reply) == (kind, None)
            assert caught.value.cause.offset == before + len(piece)
        else:
            server.close(2.0)
        assert server.state is State.CLOSED
        server.close(3.0)
        assert list(server.receive(b"SEND\n", 3.0)) == []


def test_what_is_not_iterated_comes_with_the_next_call():
    server = server_in_session()
    send = b"SEND\ndestination:a\n\n%d\0"
    server.receive(send % 1 + send % 2, 0.0)
    for frame in server.receive(send % 3, 0.0):
        assert frame.body == b"1"
        break
    assert [frame.body for frame in server.receive(b"", 0.0)] == [b"2", b"3"]
    server = Connection(Role.SERVER)
    server.receive(connect_wire(), 0.0)
    assert len(listen(server, [send % 1]).frames) == 2
    server = Connection(Role.SERVER)
    server.receive(connect_wire() + send % 1, 0.0)
    with pytest.raises(LocalProtocolError, match="iterate"):
        list(server.receive(b"", 0.0))


@pytest.mark.parametrize("whole_frames", [True, False])
@pytest.mark.parametrize("size", [0, 5, 8191, 8192, 100_000])
def test_a_server_writes_an_eol_behind_each_frame_and_a_client_none(size, whole_frames):
    """There is a client in use that cannot read a stream of frames without them."""
    for role, command, end in ((Role.SERVER, "MESSAGE", b"\0\n"), (Role.CLIENT, "SEND", b"\0")):
        frame = Frame(command, ALL_HEADERS, b"x" * size)
        connection = in_session(role, whole_frames=whole_frames)
        connection.send(frame)
        connection.send(frame)
        assert wire_of(connection) == (serialize(frame)[:-1] + end) * 2


def test_the_hot_road_knows_all_that_leaves_the_state_as_it_is():
    """The tables may only skip work, so that nothing else would notice a frame that they miss."""
    for version, state, role in itertools.product(VERSIONS, (State.CONNECTED, State.DISCONNECTING), ROLES):
        one, some = steady(role.value, state, version)
        for command in COMMANDS[role]:
            needs = REQUIRED_HEADERS[version, role.value].get(command, ())
            if next_state(role.value, state, command, version) is not state or needs == ("destination|id",):
                assert command not in one
                assert command not in some
            elif version != "1.0" or command != "NACK":
                assert (one[command],) == needs if len(needs) == 1 else some[command] == needs


def test_further_commands_need_nothing_and_only_go_in_a_session():
    server, client = server_in_session(commands=["PING"]), client_in_session(commands=["PING"])
    client.send(Frame("PING"))
    assert list(server.receive(wire_of(client), 0.0)) == [Frame("PING")]
    server.send(Frame("PING"))
    assert wire_of(server) == b"PING\n\n\0\n"
    server.send(Frame("ERROR"))
    with pytest.raises(LocalProtocolError, match="unknown command PING"):
        server.send(Frame("PING"))
    error = refused(Connection(Role.SERVER, commands=["PING"]), b"PING\n\n\0")
    assert str(error) == "unknown command PING"
    assert "SEND lacks destination" in str(refused(server_in_session(commands=["SEND"]), b"SEND\n\n\0"))
