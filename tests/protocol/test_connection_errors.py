"""What a connection does about errors of its peer: the answer, the silence behind it, and that no secret is shown."""

import copy
import logging
import pickle
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol.talking import (
    connection_in,
    full,
    listen,
    refused,
    sent_frames,
    server_in_session,
    wire_of,
)

from stompcodec.codec import Frame, parse, serialize
from stompcodec.connection import Connection, Role
from stompcodec.errors import (
    ConfigError,
    ConnectionLostError,
    FrameError,
    LocalProtocolError,
    ReceiptTimeoutError,
    RejectedError,
    RemoteProtocolError,
)
from stompcodec.spec import VERSIONS, Limits
from stompcodec.states import State

# ---- errors of the peer, and the answer ----


@pytest.mark.req("S12-ERR-03", "S12-ERR-04", "S10-ERR-02", "S11-ERR-02", "S12-CMD-02")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("wire", "message", "receipt"),
    [
        (b"SEND\nreceipt:r/1\n\n\0", "SEND lacks destination", "r/1"),
        (b"MESSAGE\nreceipt:r\n\n\0", "a client must not send MESSAGE", "r"),
        (b"CONNECT\nreceipt:r\n\n\0", "CONNECT cannot come twice", None),
        (b"JUMP\nreceipt:r\n\n\0", "malformed frame (unknown-command)", None),
        (b"SEND\ndestination:a\nbroken\n\n\0", "malformed frame (bad-header-line)", None),
        (b"SEND\ncontent-length:1\n\nab\0", "malformed frame (missing-null)", None),
    ],
)
def test_the_answer_is_ready(version, wire, message, receipt):
    server = server_in_session(version)
    error = refused(server, wire)
    assert str(error) == message
    names = ["message", "content-type"] + ["receipt-id"] * (receipt is not None)
    assert [name for name, _ in error.reply.headers.pairs()] == names
    assert error.reply.get("receipt-id") == receipt
    assert error.reply.headers["content-type"] == "text/plain"
    assert error.reply.body
    assert b"\0" not in error.reply.body
    server.send(error.reply)
    sent = wire_of(server)
    assert b"content-length" not in sent.partition(b"\n\n")[0]
    assert parse(sent, version) == [error.reply]
    assert server.state is (State.FAILED if version == "1.2" else State.CONNECTED)


@pytest.mark.req("S12-ERR-04", "S12-ESC-01")
@given(st.sampled_from(VERSIONS), st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\n\r:")))
def test_the_receipt_comes_back_as_it_was(version, receipt):
    server = server_in_session(version)
    error = refused(server, serialize(Frame("SEND", {"receipt": receipt}), version))
    server.send(error.reply)
    assert sent_frames(server)[0].headers["receipt-id"] == receipt


@pytest.mark.req("S12-ERR-02", "S12-RCP-02")
@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_comes_behind_an_error(version):
    """Neither what came with it, nor what comes later, nor an error again, nor a heart-beat."""
    good = b"SEND\ndestination:a\nreceipt:1\n\n\0"
    server = server_in_session(version, heart_beat=(10, 10), more=b"heart-beat:10,10\n")
    outcome = listen(server, [good + b"SEND\n\n\0" + good, good, b"nonsense", good])
    assert len(outcome.frames) == 1
    assert outcome.sent.count(b"ERROR\n") == 1
    assert server.next_deadline() is None
    assert server.tick(1000.0)
    assert server.take_output() == []
    server.close(1000.0)


@pytest.mark.req("S12-DIS-02", "S12-RCP-04")
def test_nothing_comes_behind_disconnect_but_answers_go_out():
    server = server_in_session()
    wire = b"SEND\ndestination:a\nreceipt:1\n\n\0DISCONNECT\nreceipt:2\n\n\0SEND\n\n\0nonsense"
    outcome = listen(server, [wire, b"more", b"SEND\n\n\0"], lambda *_: None)
    assert [frame.command for frame in outcome.frames] == ["SEND", "DISCONNECT"]
    assert outcome.error is None
    server.send(Frame("RECEIPT", {"receipt-id": "1"}))
    server.send(Frame("RECEIPT", {"receipt-id": "2"}))
    server.close(0.0)
    assert wire_of(server).count(b"RECEIPT") == 2


def test_why_not_is_said_in_words():
    said = [
        (Role.SERVER, State.NEW, "SEND", "SEND cannot come before CONNECT"),
        (Role.CLIENT, State.NEW, "MESSAGE", "MESSAGE cannot come before CONNECT"),
        (Role.CLIENT, State.CONNECTING, "MESSAGE", "MESSAGE cannot come before CONNECTED"),
        (Role.CLIENT, State.CONNECTED, "CONNECTED", "CONNECTED cannot come twice"),
        (Role.SERVER, State.CONNECTED, "STOMP", "STOMP cannot come twice"),
        (Role.CLIENT, State.CONNECTED, "SEND", "a server must not send SEND"),
        (Role.CLIENT, State.DISCONNECTING, "CONNECTED", "CONNECTED cannot come after DISCONNECT"),
    ]
    for role, state, command, words in said:
        assert str(refused(connection_in(role, state), serialize(full(command)))) == words
    with pytest.raises(LocalProtocolError, match="STOMP cannot come twice"):
        connection_in(Role.CLIENT, State.CONNECTING).send(full("STOMP"))
    for state, end in (("FAILED", "ERROR"), ("CLOSED", "the end of the stream"), ("DISCONNECTING", "DISCONNECT")):
        with pytest.raises(LocalProtocolError, match=f"SEND cannot come after {end}"):
            connection_in(Role.CLIENT, State[state]).send(full("SEND"))
    odd = refused(server_in_session(lenient=True), b"caf\xc3\xa9" + b"x" * 100 + b"\n\n\0")
    assert str(odd) == "unknown command caf\\xe9" + "x" * 36


# ---- secrets ----


@given(st.data())
def test_no_passcode_is_shown(data):
    """Of a CONNECT with any fault, nothing that may be logged shows the passcode."""
    secret = "hunter2-geheim"
    lines = [b"accept-version:1.2", b"host:a", b"login:ann", b"passcode:" + secret.encode(), b"heart-beat:1,1"]
    lines = data.draw(st.permutations(lines))
    fault = data.draw(st.sampled_from([b"", b"broken", b"\xff:1", b"accept-version:9", b"heart-beat:x", b"a:\0"]))
    lines.insert(data.draw(st.integers(0, 5)), fault)
    command = data.draw(st.sampled_from([b"CONNECT", b"STOMP", b"connect", b"SEND"]))
    wire = b"\n".join([command, *filter(None, lines), b"", b""]) + b"\0"
    server = Connection(Role.SERVER, first_limits=data.draw(st.sampled_from([None, Limits(max_header_line=16)])))
    shown = [repr(server)]
    try:
        for frame in server.receive(wire, 0.0):
            record = logging.makeLogRecord({"msg": "came: %s, %r", "args": (frame, frame)})
            shown += [repr(frame), record.getMessage(), repr(frame.headers)]
            server.accept()
        server.close(0.0)
    except RemoteProtocolError as error:
        shown += [str(error), repr(error), repr(error.reply), *traceback.format_exception(error)]
        shown += [str(error.cause), error.reply.body.decode("latin-1") if error.reply else ""]
    shown += [repr(server), str(server.output)]
    assert secret not in "\n".join(shown)


# ---- the other errors ----


def test_errors_survive_pickling():
    reply = Frame("ERROR", {"message": "x"})
    cause = FrameError("truncated", 3)
    errors = [
        RemoteProtocolError("a", reply=reply, cause=cause),
        RejectedError("b", reply),
        ConfigError("c", file="f", line=2, key="k"),
        ConnectionLostError("d", sent=False),
        ReceiptTimeoutError("e", sent=False),
        LocalProtocolError("f"),
    ]
    for error in errors:
        for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert (type(twin), str(twin)) == (type(error), str(error))
            fields = {name: value for name, value in vars(error).items() if name != "cause"}
            assert {name: value for name, value in vars(twin).items() if name != "cause"} == fields


@pytest.mark.req("S12-ERR-02")
@pytest.mark.parametrize("version", VERSIONS)
def test_an_owner_that_sends_error_hears_no_more(version):
    """The frame it holds was the last: those behind it, good or bad, are dropped."""
    good = b"SEND\ndestination:a\n\n\0"
    for behind in (good, b"nonsense", b"SEND\n\n\0", b""):
        server = server_in_session(version)

        def answer(connection, frame):
            connection.send(Frame("ERROR", {"message": "no"}, b"why\n"))

        outcome = listen(server, [good + behind, good], answer)
        assert len(outcome.frames) == 1
        assert outcome.error is None
        assert outcome.sent == b"ERROR\nmessage:no\n\nwhy\n\0\n"
        server.close(0.0)
