"""Connections in every state, and what comes out of them: helpers of the tests of `stompcodec.connection`."""

import re
import time
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from patience import patience

from stompcodec.codec import Frame, parse
from stompcodec.connection import Connection, Role
from stompcodec.errors import FrameError, RemoteProtocolError
from stompcodec.spec import CLIENT_1_1, SERVER
from stompcodec.states import State

#: Every header that some command needs in some version.
ALL_HEADERS = dict.fromkeys(
    ("destination", "id", "message-id", "subscription", "transaction", "receipt-id", "session", "version"), "1"
)
COMMANDS = {Role.CLIENT: CLIENT_1_1, Role.SERVER: SERVER}
OTHER = {Role.CLIENT: Role.SERVER, Role.SERVER: Role.CLIENT}


def answer(function, *args):
    """What a function returns, or the kind of its FrameError as vectors write it."""
    try:
        return function(*args)
    except FrameError as error:
        return {"error": error.kind}


@contextmanager
def linear(seconds):
    """What takes more time than this does not take linear time."""
    begin = time.perf_counter()
    yield
    assert time.perf_counter() - begin < patience(seconds)


def connect_wire(version="1.2", more=b""):
    accept = b"" if version == "1.0" else b"accept-version:%b\n" % version.encode()
    return b"CONNECT\n%bhost:a\n%b\n\0" % (accept, more)


def connected_wire(version="1.2", more=b""):
    return b"CONNECTED\nversion:%b\nsession:1\n%b\n\0" % (version.encode(), more)


def connecting_client(**options):
    client = Connection(Role.CLIENT, **options)
    client.send(Frame("CONNECT", {"host": "a"}))
    client.take_output()
    return client


def in_session(role, version="1.2", now=0.0, more=b"", **options):
    """A connection in a session; `more` are headers of its peer's first frame."""
    if role is Role.CLIENT:
        connection = connecting_client(versions=[version], now=now, **options)
        assert [frame.command for frame in connection.receive(connected_wire(version, more), now)] == ["CONNECTED"]
    else:
        connection = Connection(role, now=now, **options)
        for _ in connection.receive(connect_wire(version, more), now):
            connection.accept({"session": "1"})
        connection.take_output()
    assert (connection.state, connection.version) == (State.CONNECTED, version)
    return connection


def server_in_session(version="1.2", **options):
    return in_session(Role.SERVER, version, **options)


def client_in_session(version="1.2", **options):
    return in_session(Role.CLIENT, version, **options)


def connection_in(role, state, version="1.2"):
    """A connection in a state; FAILED, in versions that know no such thing within a session, before it."""
    client = role is Role.CLIENT
    if state in (State.NEW, State.CONNECTING) or (state is State.FAILED and version != "1.2"):
        connection = Connection(role, versions=[version])
        if state is not State.NEW and client:
            connection.send(Frame("CONNECT", {"host": "a"}))
        elif state is not State.NEW:
            list(connection.receive(connect_wire(version), 0.0))
    else:
        connection = in_session(role, version)
    if state is State.CLOSED:
        connection.close(0.0)
    for end, command, sender in (
        *((State.FAILED, "ERROR", Role.SERVER), (State.DISCONNECTING, "DISCONNECT", Role.CLIENT)),
    ):
        if state is end and role is sender:
            connection.send(Frame(command, {"message": "x"}))
        elif state is end:
            list(connection.receive(b"%b\nmessage:x\n\n\0" % command.encode(), 0.0))
    connection.take_output()
    assert connection.state is state
    return connection


def wire_of(connection):
    return b"".join(connection.take_output())


def sent_frames(connection):
    return parse(wire_of(connection), connection.version)


def full(command):
    first = {"accept-version": "1.0,1.1,1.2", "host": "a"}
    headers = {"CONNECT": first, "STOMP": first, "CONNECTED": {"version": "1.2", "session": "1"}}
    return Frame(command, headers.get(command, ALL_HEADERS))


def refused(connection, wire):
    with pytest.raises(RemoteProtocolError) as caught:
        list(connection.receive(wire, 0.0))
    return caught.value


EXCERPT = re.compile(r""", near b('([^'\\]|\\.)*'|"([^"\\]|\\.)*")""")
"""What an error quotes: as many octets as had come, perhaps none."""


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
            said = EXCERPT.sub("", str(caught))
            error = said, cause and (cause.kind, cause.offset, cause.limit)
            if caught.reply is not None:
                # The body shows octets around the error: as many as had come.
                error += (tuple(caught.reply.headers.pairs()),)
                connection.send(Frame("ERROR", caught.reply.headers.pairs()))
    return Outcome(frames, error, connection.state, connection.version, wire_of(connection))
