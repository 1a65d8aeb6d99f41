"""Connections in every state, and what comes out of them: helpers of the tests of `stompcodec.connection`."""

from typing import NamedTuple

import pytest

from stompcodec.codec import Frame, parse
from stompcodec.connection import Connection, Role
from stompcodec.errors import RemoteProtocolError
from stompcodec.spec import CLIENT_1_1, SERVER
from stompcodec.states import State

#: Every header that some command needs in some version.
ALL_HEADERS = {
    name: "1"
    for name in ("destination", "id", "message-id", "subscription", "transaction", "receipt-id", "session", "version")
}
COMMANDS = {Role.CLIENT: CLIENT_1_1, Role.SERVER: SERVER}
OTHER = {Role.CLIENT: Role.SERVER, Role.SERVER: Role.CLIENT}


def connect_wire(version="1.2", more=b""):
    """CONNECT as a client writes it that speaks one version."""
    accept = b"" if version == "1.0" else b"accept-version:%b\n" % version.encode()
    return b"CONNECT\n%bhost:a\n%b\n\0" % (accept, more)


def connected_wire(version="1.2", more=b""):
    return b"CONNECTED\nversion:%b\nsession:1\n%b\n\0" % (version.encode(), more)


def server_in_session(version="1.2", now=0.0, more=b"", **options):
    """A server that has sent CONNECTED; `more` are headers of CONNECT."""
    server = Connection(Role.SERVER, now=now, **options)
    for _ in server.receive(connect_wire(version, more), now):
        server.accept({"session": "1"})
    server.take_output()
    assert (server.state, server.version) == (State.CONNECTED, version)
    return server


def client_in_session(version="1.2", now=0.0, more=b"", **options):
    """A client that has CONNECTED; `more` are headers of CONNECTED."""
    client = Connection(Role.CLIENT, versions=[version], now=now, **options)
    client.send(Frame("CONNECT", {"host": "a"}))
    client.take_output()
    assert [frame.command for frame in client.receive(connected_wire(version, more), now)] == ["CONNECTED"]
    assert (client.state, client.version) == (State.CONNECTED, version)
    return client


def in_session(role, version="1.2", **options):
    return (client_in_session if role is Role.CLIENT else server_in_session)(version, **options)


def connection_in(role, state, version="1.2"):
    """A connection in a state; FAILED, in versions that know no such thing within a session, before it."""
    if state in (State.NEW, State.CONNECTING) or (state is State.FAILED and version != "1.2"):
        connection = Connection(role, versions=[version])
        if state is not State.NEW:
            if role is Role.CLIENT:
                connection.send(Frame("CONNECT", {"host": "a"}))
            else:
                list(connection.receive(connect_wire(version), 0.0))
    else:
        connection = in_session(role, version)
    error, bye = Frame("ERROR", {"message": "x"}), Frame("DISCONNECT")
    if state is State.FAILED:
        if role is Role.SERVER:
            connection.send(error)
        else:
            list(connection.receive(b"ERROR\nmessage:x\n\n\0", 0.0))
    elif state is State.DISCONNECTING:
        if role is Role.CLIENT:
            connection.send(bye)
        else:
            list(connection.receive(b"DISCONNECT\n\n\0", 0.0))
    elif state is State.CLOSED:
        connection.close(0.0)
    connection.take_output()
    assert connection.state is state
    return connection


def wire_of(connection):
    """What waits to be sent, as octets."""
    return b"".join(connection.take_output())


def sent_frames(connection):
    """What waits to be sent, as frames."""
    return parse(wire_of(connection), connection.version)


def full(command):
    """A frame with every header that may be required."""
    headers = dict(ALL_HEADERS)
    if command in ("CONNECT", "STOMP"):
        headers = {"accept-version": "1.0,1.1,1.2", "host": "a"}
    if command == "CONNECTED":
        headers = {"version": "1.2", "session": "1"}
    return Frame(command, headers)


def refused(connection, wire):
    """The error that the peer's octets raise."""
    with pytest.raises(RemoteProtocolError) as caught:
        list(connection.receive(wire, 0.0))
    return caught.value


class Outcome(NamedTuple):
    """What a connection made of a stream, in values that compare."""

    frames: list
    error: tuple
    state: State
    version: str
    sent: bytes


def listen(connection, pieces, answer=None, now=0.0):
    """Feed the pieces, answer CONNECT (or as `answer(connection, frame)` does), send what an error has ready."""
    frames, error = [], None
    for piece in pieces:
        try:
            for frame in connection.receive(piece, now):
                frames.append(frame)
                if answer is not None:
                    answer(connection, frame)
                elif frame.command in ("CONNECT", "STOMP"):
                    connection.accept({"session": "1"})
        except RemoteProtocolError as caught:
            assert error is None, "a second error"
            cause = caught.cause
            said = str(caught).partition(", near ")[0]  # it quotes as many octets as had come
            error = said, cause and (cause.kind, cause.offset, cause.limit)
            if caught.reply is not None:
                # The body shows octets around the error: as many as had come.
                error += (tuple(caught.reply.headers.pairs()),)
                connection.send(Frame("ERROR", caught.reply.headers.pairs()))
    return Outcome(frames, error, connection.state, connection.version, wire_of(connection))
