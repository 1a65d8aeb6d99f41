"""What is sent again on each connection, and ends each of them, is found by name; nothing else is convicted."""

import socket

import pytest
from client.scripted import Scripted, outcome
from client.shells import QUICK
from crash.process import BrokerProcess
from hypothesis import given
from hypothesis import strategies as st
from patience import patience

from stompcodec import Frame, serialize
from stompcodec.client.backoff import MOST_SHORT, STEP
from stompcodec.client.outbox import Block, Group, Upload
from stompcodec.errors import ConnectionLostError, RejectedError
from stompcodec.transport.owner import CloseCodeError


@pytest.fixture
def client():
    return Scripted().connect()


def sent(client):
    """What the client sends now, without waiting: (command, id or body)."""
    return [(frame.command, frame.get("id") or frame.body) for frame in client.frames()]


def flap(client, count=MOST_SHORT):
    """Connections that the server ends at once, the present one and others."""
    for _ in range(count):
        client.lose()
        client.connect(confirm=False)


# ---- the pace ----


@pytest.mark.parametrize("code", [None, 1001, 1012, 1013])
def test_ends_that_this_side_makes_and_a_server_that_goes_away_convict_nothing(client, code):
    subscriptions = [client.subscribed() for _ in range(2)]
    for _ in range(20):
        client.lose(CloseCodeError(code, "restarting") if code else ConnectionLostError("the server was silent"))
        client.connect(confirm=False)
        assert code or sent(client) == [("SUBSCRIBE", each.id) for each in subscriptions]
    client.connect()
    assert not any(each.closed for each in subscriptions)


# ---- refusals ----


def refuse(client, bad, how):
    """Answer what the client sends, and end each connection at which it sends what is refused; the connections."""
    for number in range(1, 20):
        client.connect(confirm=False)
        while client.core.link.connection is not None:
            frames = client.frames()
            if not frames:
                if client.core.link.phase == "up":
                    return number
                client.wait(STEP)
            for frame in frames:
                if bad(frame):
                    how(client)
                    break
                if frame.get("receipt") is not None:
                    client.receipt(frame)
    raise AssertionError("for ever")


def by_error(client):
    client.error(None, "bad selector")


def by_error_and_end(client):
    """As in 1.1, where the session could go on after an ERROR."""
    client.error(None, "bad selector")
    if client.core.link.connection is not None:
        client.lose()


def by_close_code(client):
    client.lose(CloseCodeError(1008, "bad selector"))


@pytest.mark.parametrize("confirm", [True, False])
@pytest.mark.parametrize(("version", "how"), [("1.1", by_error_and_end), ("1.2", by_close_code)])
def test_a_subscription_that_ends_each_connection_is_ended(version, how, confirm):
    client = Scripted(version=version).connect()
    good = [client.subscribed(confirm=False), client.subscribed()]
    bad = client.subscribed(confirm=confirm)
    good.append(client.subscribed())
    client.lose()
    assert refuse(client, lambda frame: frame.get("id") == bad.id, how) == MOST_SHORT - 1 + 2 + 1
    assert isinstance(bad.error, RejectedError if how is not by_close_code else ConnectionLostError)
    assert bad.destination in str(bad.error)
    assert "bad selector" in str(bad.error)
    assert list(client.core.inbound.subscriptions.values()) == good
    assert client.core.link.state == "connected"


# ---- messages that are sent again ----


@pytest.mark.parametrize("how", ["by_error", "by_close_code", "by_cut"])
def test_a_message_that_ends_each_connection_is_given_up_and_the_others_go_on(client, how):
    calls = [client.send(body, receipt=True, resend=True) for body in (b"1", b"bad", b"2", b"3")]
    client.frames()
    client.lose()
    ends = {"by_error": by_error, "by_close_code": by_close_code, "by_cut": Scripted.lose}
    assert refuse(client, lambda frame: frame.body == b"bad", ends[how]) == MOST_SHORT - 1 + 2 + 1
    assert [outcome(call) for call in (calls[0], *calls[2:])] == ["accepted"] * 3
    error = calls[1].error
    if how == "by_error":
        assert isinstance(error, RejectedError)
    else:
        assert isinstance(error, ConnectionLostError)
        assert error.sent
    last = [frame for number, frame in client.seen if number == client.connections and frame.command == "SEND"]
    assert [frame.body for frame in last] == [b"2", b"3"]


def block(client, bodies, call):
    frames = [Frame("SEND", [("receipt", call.id), ("destination", "/queue/a")], body) for body in bodies]
    octets = b"".join(serialize(frame, "1.2") for frame in frames)
    assert client.core.send_block(Block(octets, len(frames), "1.2"), client.now, call)


def test_what_keeps_an_order_stops_there(client):
    group = Group()
    calls = [client.call(f"block {number}", resend=True) for number in range(3)]
    for number, call in enumerate(calls):
        call.group = group
        block(client, [b"%d" % number], call)
    other = client.send(b"other", receipt=True, resend=True)
    client.frames()
    client.lose()
    refuse(client, lambda frame: frame.body == b"1", Scripted.lose)
    assert [outcome(call) for call in calls] == ["accepted", "ConnectionLostError", "ConnectionLostError"]
    assert all(call.error.sent for call in calls[1:])  # the last one was sent once, before
    assert outcome(other) == "accepted"


# ---- sessions that end for other reasons ----


@pytest.mark.parametrize("end", [by_error, by_close_code, Scripted.lose])
@pytest.mark.parametrize("count", [0, 3])
def test_a_server_that_ends_each_session_whatever_is_sent_convicts_nothing(client, end, count):
    """As one that has not started yet does, or one to whom the session of this user has expired."""
    subscriptions = [client.subscribed(confirm=False) for _ in range(count)]
    calls = [client.send(b"%d" % number, receipt=True, resend=True, timeout=1e6) for number in range(3)]
    client.frames()
    for _ in range(30):
        end(client)
        client.connect(confirm=False)
        client.frames()
        client.wait(STEP / 5)
    while client.core.link.phase != "up":
        client.confirm_all()
        client.wait(STEP)
    client.confirm_all()
    assert not any(each.closed for each in subscriptions)
    assert {outcome(call) for call in calls} == {"accepted"}


# ---- what programs do meanwhile ----


def test_a_body_that_is_sent_again_is_under_way_alone_too(client):
    call = client.call("SEND", 1e6, resend=True)
    upload = Upload("SEND to /queue/a", [("receipt", call.id), ("destination", "/queue/a")], 1000, 30.0, call)
    client.core.upload(upload, client.now)
    client.frames()
    flap(client)
    client.frames()
    new = client.subscribe(confirm=False)
    client.core.feed(upload, 0, b"x" * 1000, client.now)
    client.core.feed(upload, 1000, b"", client.now)
    assert client.commands() == ["SEND"]
    client.wait(STEP)
    assert sent(client) == [("SUBSCRIBE", new.id)]
    client.wait(STEP)
    assert (new.confirmed, client.core.link.phase) == (True, "up")


# ---- whatever the culprits are ----


@given(data=st.data())
def test_only_culprits_end_and_all_of_them_do(data):
    """Subscriptions and messages, some refused in one of the ways, at a server that answers receipts, late or never."""
    version = data.draw(st.sampled_from(["1.1", "1.2"]))
    client = Scripted(version=version).connect()
    answers = data.draw(st.booleans())
    subscriptions = [client.subscribe(confirm=False) for _ in range(data.draw(st.integers(0, 4)))]
    calls = [
        client.send(b"%d" % n, receipt=True, resend=True, timeout=1e6) for n in range(data.draw(st.integers(0, 4)))
    ]
    client.frames()
    bad_ids = data.draw(st.sets(st.sampled_from([each.id for each in subscriptions]))) if subscriptions else set()
    bad_bodies = data.draw(st.sets(st.sampled_from(range(len(calls))))) if calls else set()
    how = data.draw(st.sampled_from([by_error_and_end, by_close_code]))
    cuts = data.draw(st.lists(st.integers(0, 3), max_size=12))  # after so many frames of a connection
    left = list(cuts)
    client.lose()
    for _ in range(60):
        client.connect(confirm=False)
        seen = 0
        while client.core.link.connection is not None:
            frames = client.frames()
            if not frames:
                if client.core.link.phase == "up":
                    break
                client.wait(STEP)
            for frame in frames:
                seen += 1
                if frame.get("id") in bad_ids or (frame.command == "SEND" and int(frame.body) in bad_bodies):
                    how(client)
                    break
                if left and seen > left[0]:
                    left.pop(0)
                    client.lose()
                    break
                if answers and frame.get("receipt") is not None:
                    client.receipt(frame)
        if client.core.link.phase == "up":
            client.wait(2)
            break
    assert client.core.link.phase == "up"
    assert {each.id for each in subscriptions if each.closed} == bad_ids
    failed = {number for number, call in enumerate(calls) if call.error is not None}
    assert bad_bodies <= failed
    assert len(failed - bad_bodies) <= len(cuts) // 2  # twice alone under way: the outcome is unknown
    assert all(calls[number].error.sent for number in failed - bad_bodies)


# ---- a real process ----

KILLS = 8


def gets(client, subscription, body):
    """A message arrives by the subscription, after others that were sent before."""
    client.send(subscription.destination, body, {"persistent": "true"}, receipt=True, resend=True, timeout=patience(60))
    while (message := subscription.get(patience(60))).body != body:
        message.ack()
    message.ack()


@pytest.mark.slow
def test_kills_of_the_broker_end_nothing(shell, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with BrokerProcess(tmp_path / "broker", flags=("--port", str(port))) as broker:
        client = shell.connect(f"stomp://127.0.0.1:{broker.port}", reconnect=QUICK)
        options = {"ack": "client-individual"}
        subscriptions = [client.subscribe(f"/queue/{n}", confirm=n < 2, **options) for n in range(3)]
        for number in range(KILLS):
            gets(client, subscriptions[number % 3], b"%d" % number)
            broker.kill()
            broker.start()
        for subscription in subscriptions:
            gets(client, subscription, b"last")
        assert [each.error for each in subscriptions] == [None] * 3
