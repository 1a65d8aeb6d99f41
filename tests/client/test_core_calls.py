"""Calls and their outcomes, the outbox, transactions, what comes back after a loss, requests, time and limits."""

import logging

import pytest
from client.scripted import Scripted, outcome

from stompcodec import Frame
from stompcodec.client.messages import Subscription
from stompcodec.errors import LocalProtocolError, RejectedError, StaleAckError

LOST, LATE = "ConnectionLostError", "ReceiptTimeoutError"


def outcomes(*calls):
    return [outcome(call) for call in calls]


@pytest.mark.req("S12-CON-01", "S12-CON-06", "S12-CON-07", "S12-CON-08", "S12-CON-11", "S12-NEG-01", "S12-NEG-02")
@pytest.mark.req("S11-CON-07")
def test_connect_says_what_the_client_can_and_the_trace_masks_secrets():
    client = Scripted(heart_beat=(1000, 2000), client_id="me", headers={"x": "y"}, on_frame=lambda *_: None)
    client.open()
    (frame,) = client.frames()
    ((direction, traced),) = client.core.link.trace
    assert (frame.command, direction, traced.headers["passcode"]) == ("CONNECT", "out", "***")
    said = {"accept-version": "1.0,1.1,1.2", "heart-beat": "1000,2000", "host": "h", "login": "ann"}
    assert frame.headers.pairs() == [*said.items(), ("passcode", "s3cret"), ("client-id", "me"), ("x", "y")]


# ---- outcomes ----


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_an_error_goes_to_the_call_that_it_names(version):
    client = Scripted(version=version).connect()
    first, second = client.send(receipt=True), client.send(receipt=True)
    client.error(client.frames()[1], "no such queue")
    # 1.2 says that the session is over then; older servers go on.
    assert outcomes(first, second) == [LOST if version == "1.2" else "waits", "RejectedError"]
    assert "no such queue" in str(second.error)
    assert second.error.frame.command == "ERROR"
    assert (client.core.link.connection is None) == (version == "1.2")


@pytest.mark.parametrize("goes_on", [True, False])
def test_an_error_that_names_nobody_is_raised_from_iterators_and_logged(caplog, goes_on):
    """In 1.2 it ends a client that does not reconnect."""
    client = Scripted(version="1.1").connect() if goes_on else Scripted(reconnect=None).connect()
    subscription, call = client.subscribed(), client.send(receipt=True)
    client.error(None, "something is wrong")
    assert "something is wrong" in caplog.text
    assert isinstance(subscription.news if goes_on else subscription.error, RejectedError)
    assert (client.core.link.state, outcome(call)) == (("connected", "waits") if goes_on else ("closed", LOST))
    assert goes_on or isinstance(call.error.__cause__, RejectedError)


# ---- the outbox ----


def test_the_outbox_is_bounded_and_acknowledgements_find_room_always():
    client = Scripted(outbox_frames=3).connect()
    subscription = client.subscribed("client-individual")
    messages = [client.deliver(subscription, f"m{number}") for number in range(5)]
    client.core.link.writable(False)
    for _ in range(3):
        client.send()
    assert not client.core.send(Frame("SEND", {"destination": "a"}), client.now)
    for message in messages:
        client.ack(message)
    room = client.call("room")
    client.core.when_room(room, client.now, 10)
    client.core.link.take_output(client.now)
    assert outcome(room) == "waits"
    client.core.link.writable(True)
    assert client.commands() == ["SEND"] * 3 + ["ACK"] * 5
    assert outcome(room) == "accepted"


def test_a_frame_that_the_next_version_cannot_carry_fails_alone(client):
    client.lose()
    calls = [client.call(), client.call()]
    for call, name in zip(calls, ("a\nb", "ab"), strict=True):
        frame = Frame("SEND", [("destination", "a"), ("x", name), ("receipt", call.id)])
        assert client.core.send(frame, client.now, call)
    client.version = "1.0"
    client.connect()
    assert outcomes(*calls) == ["FrameError", "accepted"]


# ---- transactions ----


@pytest.mark.req("S12-TX-01", "S12-TX-02", "S12-TX-06", "S12-TX-07", "S12-SND-02", "S12-ACK-02")
def test_a_transaction_commits(client):
    message, transaction = client.deliver(client.subscribed("client-individual")), client.begin()
    assert client.core.send(Frame("SEND", {"destination": "/queue/b"}, b"1"), client.now, transaction=transaction)
    client.ack(message, transaction=transaction)
    call = client.finish(transaction)
    frames = client.confirm_all()
    assert [frame.command for frame in frames] == ["BEGIN", "SEND", "ACK", "COMMIT"]
    assert {frame.headers["transaction"] for frame in frames} == {"t1"}
    assert (outcome(call), transaction.state) == ("accepted", "committed")
    with pytest.raises(LocalProtocolError, match="committed"):
        client.core.send(Frame("SEND", {"destination": "/queue/b"}), client.now, transaction=transaction)


# ---- the end ----


@pytest.mark.req("S12-DIS-01", "S12-DIS-02", "S12-DIS-04", "S12-LNG-03", "S11-DIS-01", "S11-DIS-02", "S10-DIS-01")
@pytest.mark.parametrize("last", ["confirmed", "lost", "silent"])
def test_close_says_goodbye_behind_all_that_waits_and_copes_without_the_last_receipt(client, last):
    message = client.deliver(client.subscribed("client-individual"))
    client.core.link.writable(False)
    client.send(b"last")
    close = client.call("close", 60.0, command="")
    client.core.close(client.now, close)
    with pytest.raises(LocalProtocolError, match="closed"):
        client.send(b"too late")
    with pytest.raises(StaleAckError):
        client.ack(message)
    client.core.link.writable(True)
    send, disconnect = client.frames()
    assert (send.body, disconnect.command, outcome(close)) == (b"last", "DISCONNECT", "waits")
    {"confirmed": lambda: client.receipt(disconnect), "lost": client.lose, "silent": lambda: client.wait(5.1)}[last]()
    assert (outcome(close), client.core.link.state) == ("accepted", "closed")


def test_the_end_gives_every_call_an_outcome_and_tells_what_was_lost(client, caplog):
    sent = client.send(receipt=True)
    client.frames()
    client.lose()
    waiting = client.send(receipt=True)
    client.send(b"nobody waits for this one")
    subscribing, connected = client.subscribe().call, client.call("connected", command="")
    client.core.when_connected(client.now, connected)
    error = RejectedError("login", Frame("ERROR"))
    with caplog.at_level(logging.ERROR, "stompcodec.client"):
        client.core.link.end(error)
    assert (outcomes(sent, waiting), waiting.error.sent) == ([LOST, LOST], False)
    assert subscribing.error is connected.error is error
    assert "1 frames were never sent" in caplog.text


# ---- coming back ----


@pytest.mark.parametrize("when", ["at once", "on return", "unsubscribed"])
def test_what_is_refused_or_unsubscribed_does_not_come_back(client, when):
    good, bad = client.subscribed(), client.subscribe()
    if when == "unsubscribed":
        client.confirm_all()
        call = client.call("UNSUBSCRIBE", command="UNSUBSCRIBE")
        client.core.inbound.unsubscribe(bad, client.now, call)
        client.frames()
        client.lose()
        assert outcome(call) == "accepted"
    else:
        if when == "on return":
            client.confirm_all()
            client.lose()
            client.connect(confirm=False)
        client.error(client.frames()[-1], "access refused")
        assert isinstance(bad.error, RejectedError)
    client.connect()
    asked = [f.headers["id"] for number, f in client.seen if number == client.connections and f.command == "SUBSCRIBE"]
    assert asked == list(client.core.inbound.subscriptions) == [good.id]
    assert client.core.link.state == "connected"


def test_one_that_is_never_confirmed_is_given_up(client):
    subscription = client.subscribe(timeout=3.0)
    with pytest.raises(LocalProtocolError, match="id"):  # two with one id
        client.core.inbound.subscribe(Subscription("/queue/x", id=subscription.id), client.now, client.call())
    client.frames()
    client.wait(4)
    assert (outcome(subscription.call), client.commands()) == (LATE, ["UNSUBSCRIBE"])
    assert not client.core.inbound.subscriptions


def test_1_0_may_leave_the_subscription_out():
    client = Scripted(version="1.0").connect()
    subscription = client.subscribed()
    client.answer("MESSAGE", {"message-id": "m", "destination": subscription.destination}, b"hi")
    assert [message.body for message in client.take(subscription)] == [b"hi"]


# ---- requests ----


def ask(client, timeout=30.0):
    call = client.call("request", timeout)
    assert client.core.request([("destination", "/queue/service")], b"?", client.now, call)
    return call


@pytest.mark.parametrize(("server", "correlated"), [("test/1", False), ("RabbitMQ/3.10.8", True)])
def test_a_reply_can_be_told_if_only_one_waits_or_it_is_correlated(server, correlated):
    client = Scripted(server=server).connect()
    call = ask(client)
    *subscribes, send = client.confirm_all()
    assert len(subscribes) == (server == "test/1")  # RabbitMQ makes the reply queue by itself
    assert send.headers["reply-to"] == "/temp-queue/replies"
    key = {"correlation-id": send.headers["correlation-id"]} if correlated else {}
    pairs = {"subscription": "/temp-queue/replies", "message-id": "m", "destination": "d"}
    client.answer("MESSAGE", {**pairs, **key}, b"!")
    assert call.result.body == b"!"
    client.lose()
    client.connect(confirm=False)
    assert len(client.frames()) == len(subscribes)


def test_a_request_may_be_refused_or_time_out_and_ends_with_its_connection(client):
    late, lost, refused = ask(client, 2.0), ask(client), ask(client)
    *_, frame = client.frames()
    client.wait(3)
    client.error(frame)  # the connection ends, too
    assert outcomes(late, lost, refused) == [LATE, LOST, "RejectedError"]
    assert not client.core.inbound.replies
    client.connect(confirm=False)
    (subscribe,) = client.confirm_all()
    assert subscribe.headers["destination"] == "/temp-queue/replies"
    assert outcome(ask(client)) == "waits"


# ---- time, and servers that answer with something else ----


@pytest.mark.req("S12-HB-08", "S12-HB-09", "S12-HB-10", "S12-HB-11", "S12-HB-12")
def test_heart_beats_are_sent_and_a_dead_server_is_noticed_in_time():
    client = Scripted(heart_beat=(1000, 1000), server_beat=(1000, 1000)).connect()
    client.wait(0.6)
    assert client.core.link.take_output(client.now) == [b"\n"]
    client.core.inbound.receive(b"\n", client.now)
    at = client.now
    client.wait(2.9)
    assert client.core.link.connection is not None
    client.wait(0.2)
    assert client.core.link.connection is None
    assert client.now - at <= 3.2
    assert "silent" in str(client.core.link.error)


@pytest.mark.parametrize("how", ["stalled", "paused and ticked", "paused"])
def test_a_stall_or_a_pause_of_ours_is_not_held_against_the_server(how):
    client = Scripted(inbox_messages=10, heart_beat=(0, 1000), server_beat=(1000, 0)).connect()
    subscription = client.subscribed()
    if how == "stalled":
        client.now += 60
        client.core.link.tick(client.now, late=59.0)
    else:
        client.flood(subscription, 10)
        if how == "paused":
            client.now += 600
            client.send()  # the core learns what time it is
        else:
            client.wait(600)
        assert client.core.link.connection is not None
        client.take(subscription)
        client.wait(2.5)
    assert client.core.link.connection is not None
    client.wait(3.1 if how == "stalled" else 1)
    assert client.core.link.connection is None


_REFUSED = "login or passcode is wrong, or the virtual host is not open to this user."
_VHOST = "write the virtual host into the URL: stomp://host/%2F"


@pytest.mark.parametrize(
    ("message", "body", "said"),
    [
        ("Bad CONNECT", "Access refused for user 'ann'\n", "Bad CONNECT: Access refused for user 'ann'"),
        ("Bad CONNECT", "Virtual host '127.0.0.1' access denied", _VHOST),
        ("Virtual host 'h' is unknown", "", _VHOST),
        ("login refused", _REFUSED, f"CONNECT was rejected: login refused: {_REFUSED}"),
    ],
)
def test_a_refused_login_says_how_a_virtual_host_is_written(caplog, message, body, said):
    client = Scripted()
    client.open()
    client.frames()
    client.answer("ERROR", {"message": message}, body.encode())
    error = client.core.link.error
    assert client.core.link.connection is None
    assert isinstance(error, RejectedError)
    assert said in str(error)
    assert (_VHOST in str(error)) == (said == _VHOST)
    assert "s3cret" not in caplog.text + str(error)


# ---- too much ----


@pytest.mark.parametrize(("count", "size"), [(100, 10), (10, 1000)])
def test_reading_pauses_where_nobody_takes_and_goes_on_at_half(count, size):
    client = Scripted(inbox_messages=100, inbox_octets=10_000).connect()
    subscription, inbound = client.subscribed(), client.core.inbound
    client.flood(subscription, count - 1, size)
    assert not inbound.paused
    client.flood(subscription, 1, size)
    assert inbound.paused
    assert len(client.take(subscription)) == count
    assert (inbound.paused, inbound.backlog, inbound.backlog_octets) == (False, 0, 0)


def test_a_call_that_waits_for_a_receipt_does_not_wait_for_a_consumer():
    client = Scripted(inbox_messages=100).connect()
    subscription, inbound = client.subscribed(), client.core.inbound
    client.flood(subscription, 100)
    assert inbound.paused
    call = client.send(receipt=True)
    assert not inbound.paused  # its receipt is behind the messages
    (frame,) = client.frames()
    client.flood(subscription, 250)
    assert not inbound.paused
    client.flood(subscription, 50)
    assert inbound.paused  # even then there is a bound
    client.receipt(frame)
    assert outcome(call) == "accepted"


def test_drain_gives_back_what_was_not_handed_out(client):
    explicit, auto = client.subscribed("client-individual"), client.subscribed("auto")
    message = client.deliver(explicit, "m1")
    for subscription in (explicit, auto):
        client.flood(subscription, 3)
    client.core.drain(client.now)
    client.confirm_all()
    assert client.take(explicit) == []
    assert not client.core.is_quiet()  # one message is in hand, and three are to be taken
    client.ack(message)
    assert client.commands() == ["ACK"]
    assert not client.core.is_quiet()
    assert len(client.take(auto)) == 3
    assert client.core.is_quiet()
    client.flood(explicit, 1)
    assert client.core.inbound.backlog == 0
