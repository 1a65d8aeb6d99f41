"""Calls and their outcomes: accepted, rejected, unknown; the outbox; transactions."""

import logging

import pytest
from client.scripted import Scripted, outcome

from stompcodec import Frame
from stompcodec.client.outbox import OutboxFullError
from stompcodec.errors import (
    ConnectionLostError,
    FrameError,
    LocalProtocolError,
    RejectedError,
    StaleAckError,
)


@pytest.fixture
def client():
    return Scripted().connect()


@pytest.mark.req("S12-CON-01", "S12-CON-06", "S12-CON-07", "S12-CON-08", "S12-CON-11", "S12-NEG-01", "S12-NEG-02")
@pytest.mark.req("S11-CON-07")
def test_connect_says_what_the_client_can():
    client = Scripted(heart_beat=(1000, 2000), client_id="me", headers={"x": "y"})
    client.open()
    (frame,) = client.frames()
    assert frame.command == "CONNECT"
    assert frame.headers.pairs() == [
        ("accept-version", "1.0,1.1,1.2"),
        ("heart-beat", "1000,2000"),
        ("host", "h"),
        ("login", "ann"),
        ("passcode", "s3cret"),
        ("client-id", "me"),
        ("x", "y"),
    ]


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_an_error_goes_to_the_call_that_it_names(version):
    client = Scripted(version=version).connect()
    first, second = client.send(receipt=True), client.send(receipt=True)
    _, frame = client.frames()
    client.error(frame, "no such queue")
    assert outcome(second) == "RejectedError"
    assert "no such queue" in str(second.error)
    assert second.error.frame.command == "ERROR"
    # 1.2 says that the session is over then; older servers go on.
    assert outcome(first) == ("ConnectionLostError" if version == "1.2" else "waits")
    assert (client.core.link.connection is None) == (version == "1.2")


def test_an_error_that_names_nobody_is_raised_from_iterators_and_logged(caplog):
    client = Scripted(version="1.1").connect()
    subscription = client.subscribed()
    client.error(None, "something is wrong")
    assert isinstance(subscription.news, RejectedError)
    assert "something is wrong" in caplog.text


def test_an_error_that_names_nobody_ends_the_client_that_does_not_reconnect(caplog):
    client = Scripted(reconnect=None).connect()
    subscription, call = client.subscribed(), client.send(receipt=True)
    client.error(None, "shutting down")
    assert client.core.link.state == "closed"
    assert isinstance(subscription.error, RejectedError)
    assert outcome(call) == "ConnectionLostError"
    assert isinstance(call.error.__cause__, RejectedError)


def test_time_runs_out_for_each_call_on_its_own(client):
    slow, quick = client.send(receipt=True, timeout=30.0), client.send(receipt=True, timeout=2.0)
    client.frames()
    client.wait(1.9)
    assert (outcome(slow), outcome(quick)) == ("waits", "waits")
    client.wait(0.2)
    assert (outcome(slow), outcome(quick)) == ("waits", "ReceiptTimeoutError")
    assert quick.error.sent
    client.wait(30)
    assert outcome(slow) == "ReceiptTimeoutError"


def test_a_loss_makes_the_outcome_unknown_and_what_never_left_says_so(client):
    sent = client.send(receipt=True)
    client.frames()
    client.lose(OSError("reset"))
    unsent = client.send(receipt=True, timeout=5.0)
    client.wait(6)
    assert [outcome(call) for call in (sent, unsent)] == ["ConnectionLostError", "ReceiptTimeoutError"]
    assert (sent.error.sent, unsent.error.sent) == (True, False)
    assert "reset" in str(sent.error)
    client.connect()
    assert client.commands() == []


def test_with_resend_it_is_sent_again_in_order():
    client = Scripted(resend=True).connect()
    calls = [client.send(b"%d" % number, receipt=True, resend=True) for number in range(3)]
    first, _, third = client.frames()
    client.receipt(first)
    client.lose()
    client.send(b"new")
    assert [outcome(call) for call in calls] == ["accepted", "waits", "waits"]
    client.connect(confirm=False)
    frames = client.confirm_all()
    assert [frame.body for frame in frames] == [b"1", b"2", b"new"]
    assert frames[1] == third
    assert [outcome(call) for call in calls] == ["accepted"] * 3


def test_nothing_overtakes_while_the_transport_is_full(client):
    subscription = client.subscribed("client-individual")
    message = client.deliver(subscription)
    client.core.link.writable(False)
    client.send(b"reply")
    client.ack(message)
    client.send(b"last")
    assert client.frames() == []
    client.core.link.writable(True)
    assert client.commands() == ["SEND", "ACK", "SEND"]


def test_the_outbox_is_bounded():
    client = Scripted(outbox_frames=3).connect()
    client.core.link.writable(False)
    for _ in range(3):
        client.send()
    assert not client.core.send(Frame("SEND", {"destination": "a"}), client.now)
    room = client.call("room")
    client.core.when_room(room, client.now, 10)
    client.core.link.take_output(client.now)
    assert outcome(room) == "waits"
    client.core.link.writable(True)
    assert client.commands() == ["SEND"] * 3
    assert outcome(room) == "accepted"


@pytest.mark.parametrize("full", ["block", "raise"])
def test_the_outbox_is_bounded_in_octets(full):
    client = Scripted(outbox_octets=10_000, outbox_full=full).connect()
    client.send(b"x" * 15_000)  # a frame that is larger than the outbox may come alone
    assert client.commands() == ["SEND"]
    client.lose()
    client.send(b"x" * 6000)
    large = Frame("SEND", {"destination": "a"}, b"x" * 6000)
    if full == "raise":
        with pytest.raises(OutboxFullError):
            client.core.send(large, client.now)
    else:
        assert not client.core.send(large, client.now)
    client.send(b"x" * 10)
    assert client.core.link.outbox.octets < 10_000


def test_acknowledgements_find_room_always():
    client = Scripted(outbox_frames=1).connect()
    subscription = client.subscribed("client-individual")
    messages = [client.deliver(subscription, f"m{number}") for number in range(5)]
    client.core.link.writable(False)
    client.send()
    for message in messages:
        client.ack(message)
    client.core.link.writable(True)
    assert client.commands() == ["SEND"] + ["ACK"] * 5


@pytest.mark.parametrize("connected", [True, False])
def test_a_frame_that_cannot_be_written_is_refused_at_once(client, connected):
    if not connected:
        client.lose()
    call = client.call()
    with pytest.raises(FrameError):
        client.core.send(Frame("SEND", {"destination": "\ud800"}), client.now, call)
    client.wait(60)
    assert client.core.link.calls.finished.count(call) == 0
    assert client.core.link.outbox.frames == 0


def test_a_frame_that_the_next_version_cannot_carry_fails_alone():
    client = Scripted(version="1.2").connect()
    client.lose()
    calls = []
    for name in ("a\nb", "ab"):
        call = client.call()
        frame = Frame("SEND", [("destination", "a"), ("x", name), ("receipt", call.id)])
        assert client.core.send(frame, client.now, call)
        calls.append(call)
    client.version = "1.0"
    client.connect()
    assert [outcome(call) for call in calls] == ["FrameError", "accepted"]


# ---- transactions ----


@pytest.mark.req("S12-TX-01", "S12-TX-02", "S12-TX-06", "S12-TX-07", "S12-SND-02", "S12-ACK-02")
def test_a_transaction_commits(client):
    subscription = client.subscribed("client-individual")
    message = client.deliver(subscription)
    transaction = client.begin()
    assert client.core.send(Frame("SEND", {"destination": "/queue/b"}, b"1"), client.now, transaction=transaction)
    client.ack(message, transaction=transaction)
    call = client.finish(transaction)
    frames = client.confirm_all()
    assert [frame.command for frame in frames] == ["BEGIN", "SEND", "ACK", "COMMIT"]
    assert {frame.headers["transaction"] for frame in frames} == {"t1"}
    assert (outcome(call), transaction.state) == ("accepted", "committed")
    with pytest.raises(LocalProtocolError, match="committed"):
        client.core.send(Frame("SEND", {"destination": "/queue/b"}), client.now, transaction=transaction)


def test_begin_waits_for_a_connection(client):
    from stompcodec.client.transaction import BaseTransaction

    client.lose()
    assert not client.core.begin(BaseTransaction("t9"), client.now)
    waits = client.call("connection")
    client.core.when_connected(client.now, waits)
    client.connect()
    assert outcome(waits) == "accepted"
    client.begin("t9")


# ---- the end ----


@pytest.mark.req("S12-LNG-03", "S12-DIS-04")
@pytest.mark.parametrize("how", ["lost", "silent"])
def test_close_copes_without_the_last_receipt(client, how):
    close = client.call("close", 60.0, command="")
    client.core.close(client.now, close)
    client.frames()
    if how == "lost":
        client.lose()
    else:
        client.wait(5.1)
    assert (outcome(close), client.core.link.state) == ("accepted", "closed")


def test_the_end_gives_every_call_an_outcome_and_tells_what_was_lost(client, caplog):
    sent = client.send(receipt=True)
    client.frames()
    client.lose()
    waiting = client.send(receipt=True)
    client.send(b"nobody waits for this one")
    subscribing = client.subscribe()
    connected = client.call("connected", command="")
    client.core.when_connected(client.now, connected)
    error = RejectedError("login", Frame("ERROR"))
    with caplog.at_level(logging.ERROR, "stompcodec.client"):
        client.core.link.end(error)
    assert outcome(sent) == "ConnectionLostError"
    assert isinstance(waiting.error, ConnectionLostError)
    assert not waiting.error.sent
    assert subscribing.call.error is error
    assert connected.error is error
    assert "1 frames were never sent" in caplog.text


@pytest.mark.req("S12-DIS-01", "S12-DIS-02", "S11-DIS-01", "S11-DIS-02", "S10-DIS-01")
def test_close_says_goodbye_behind_all_that_waits(client):
    message = client.deliver(client.subscribed("client-individual"))
    client.core.link.writable(False)
    client.send(b"last")
    close = client.call("close", command="")
    client.core.close(client.now, close)
    with pytest.raises(LocalProtocolError, match="closed"):
        client.send(b"too late")
    with pytest.raises(StaleAckError):
        client.ack(message)
    client.core.link.writable(True)
    send, disconnect = client.frames()
    assert (send.body, disconnect.command) == (b"last", "DISCONNECT")
    assert outcome(close) == "waits"
    client.receipt(disconnect)
    assert (outcome(close), client.core.link.state) == ("accepted", "closed")


def test_secrets_are_masked_in_the_trace():
    client = Scripted(on_frame=lambda *_: None)
    client.open()
    ((direction, frame),) = client.core.link.trace
    assert (direction, frame.headers["passcode"]) == ("out", "***")
