"""What comes back after a loss; requests and draining."""

import pytest
from client.scripted import Scripted, outcome

from stompcodec.client.subscription import Subscription
from stompcodec.errors import LocalProtocolError, RejectedError


@pytest.fixture
def client():
    return Scripted().connect()


# ---- coming back ----


def test_subscriptions_come_back_before_anything_else(client):
    client.subscribed("client")
    client.subscribed("auto")
    client.lose()
    client.send(b"waits")
    client.connect(confirm=False)
    first, second = client.frames()
    assert {first.command, second.command} == {"SUBSCRIBE"}
    client.receipt(first)
    assert client.frames() == []
    assert client.core.link.state == "reconnecting"
    client.receipt(second)
    assert client.commands() == ["SEND"]
    assert client.core.link.state == "connected"


def test_a_first_message_confirms_as_well(client):
    subscription = client.subscribe("auto")
    client.frames()
    client.deliver(subscription)
    assert outcome(subscription.call) == "accepted"


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


def test_a_subscription_that_waits_for_its_receipt_survives_a_loss(client):
    subscription = client.subscribe()
    client.frames()
    client.lose()
    assert outcome(subscription.call) == "waits"
    client.connect()
    assert outcome(subscription.call) == "accepted"


def test_one_that_is_never_confirmed_is_given_up(client):
    subscription = client.subscribe(timeout=3.0)
    client.frames()
    client.wait(4)
    assert outcome(subscription.call) == "ReceiptTimeoutError"
    assert client.commands() == ["UNSUBSCRIBE"]
    assert not client.core.inbound.subscriptions


def test_two_subscriptions_with_one_id(client):
    client.subscribed(durable=None)
    with pytest.raises(LocalProtocolError, match="id"):
        client.core.inbound.subscribe(Subscription("/queue/x", id="s1"), client.now, client.call())


def test_1_0_may_leave_the_subscription_out():
    client = Scripted(version="1.0").connect()
    subscription = client.subscribed()
    client.answer("MESSAGE", {"message-id": "m", "destination": subscription.destination}, b"hi")
    assert [message.body for message in client.take(subscription)] == [b"hi"]


def test_messages_for_nobody_are_dropped(client):
    subscription = client.subscribed()
    client.core.inbound.unsubscribe(subscription, client.now)
    client.answer("MESSAGE", {"subscription": subscription.id, "message-id": "m", "destination": "d"}, b"late")
    assert client.core.inbound.backlog == 0


# ---- requests ----


def ask(client, timeout=30.0):
    call = client.call("request", timeout)
    assert client.core.request([("destination", "/queue/service")], b"?", client.now, call)
    return call


def test_a_reply_finds_its_request(client):
    first, second = ask(client), ask(client)
    subscribe, *asked = client.frames()
    assert (subscribe.command, subscribe.headers["destination"]) == ("SUBSCRIBE", "/temp-queue/replies")
    for frame in (subscribe, *asked):
        client.receipt(frame)
    assert (outcome(first), outcome(second)) == ("waits", "waits")
    for frame in reversed(asked):
        assert frame.headers["reply-to"] == "/temp-queue/replies"
        pairs = {"subscription": subscribe.headers["id"], "message-id": "m", "destination": "d"}
        key = frame.headers["correlation-id"]
        client.answer("MESSAGE", {**pairs, "correlation-id": key}, key.encode())
    assert [call.result.body for call in (first, second)] == [
        frame.headers["correlation-id"].encode() for frame in asked
    ]


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


def test_requests_end_with_their_connection(client):
    call = ask(client)
    client.confirm_all()
    client.lose()
    assert outcome(call) == "ConnectionLostError"
    client.connect(confirm=False)
    (subscribe,) = client.confirm_all()
    assert subscribe.headers["destination"] == "/temp-queue/replies"
    second = ask(client)
    assert outcome(second) == "waits"


def test_a_request_may_be_refused_or_time_out(client):
    late = ask(client, 2.0)
    refused = ask(client)
    *_, frame = client.frames()
    client.wait(3)
    assert outcome(late) == "ReceiptTimeoutError"
    client.error(frame)
    assert outcome(refused) == "RejectedError"
    assert not client.core.inbound.replies


# ---- draining ----


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
