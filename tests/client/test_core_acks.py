"""Acknowledgements, and what brokers call things."""

import pytest
from client.scripted import Scripted, outcome

from stompcodec.errors import LocalProtocolError, RemoteProtocolError, StaleAckError


@pytest.fixture
def client():
    return Scripted().connect()


# ---- acknowledgements ----


@pytest.mark.req("S12-ACK-01", "S12-NAK-01", "S11-ACK-01", "S11-ACK-02", "S11-NAK-01", "S10-ACK-01")
@pytest.mark.parametrize(
    ("version", "command", "headers"),
    [
        ("1.2", "ACK", {"id": "am1"}),
        ("1.2", "NACK", {"id": "am1"}),
        ("1.1", "ACK", {"message-id": "m1", "subscription": "s1"}),
        ("1.1", "NACK", {"message-id": "m1", "subscription": "s1"}),
        ("1.0", "ACK", {"message-id": "m1"}),
    ],
)
def test_each_version_names_the_message_in_its_way(version, command, headers):
    client = Scripted(version=version).connect()
    subscription = client.subscribed("client")
    client.ack(client.deliver(subscription), command)
    (frame,) = client.frames()
    assert (frame.command, dict(frame.headers)) == (command, headers)


def test_1_0_has_no_nack():
    client = Scripted(version="1.0").connect()
    message = client.deliver(client.subscribed("client"))
    with pytest.raises(LocalProtocolError, match="no NACK"):
        client.ack(message, "NACK")
    client.ack(message)
    assert client.commands() == ["ACK"]


def test_a_stale_ack_is_refused_and_never_sent(client):
    subscription = client.subscribed("client-individual")
    old = client.deliver(subscription)
    client.lose()
    with pytest.raises(StaleAckError):
        client.ack(old)
    client.connect()
    new = client.deliver(subscription, "m1")  # the very same message, again
    for command in ("ACK", "NACK"):
        with pytest.raises(StaleAckError):
            client.ack(old, command)
    assert client.frames() == []
    client.ack(new)
    assert client.commands() == ["ACK"]


def test_an_ack_that_waits_when_the_connection_goes_is_stale(client):
    subscription = client.subscribed("client-individual")
    message = client.deliver(subscription)
    client.core.writable(False)
    call = client.call("ACK", command="ACK")
    client.ack(message, call=call)
    client.lose()
    client.connect()
    assert outcome(call) == "StaleAckError"
    assert client.frames() == []


def test_messages_that_nobody_took_go_with_their_connection(client):
    explicit, auto = client.subscribed("client-individual"), client.subscribed("auto")
    for subscription in (explicit, auto):
        client.core.receive(
            b"MESSAGE\nsubscription:%s\nmessage-id:m\ndestination:d\nack:a\n\n\0" % subscription.id.encode(), 0
        )
    client.lose()
    assert client.take(explicit) == []  # they come again
    assert len(client.take(auto)) == 1  # they do not


def test_settling_twice(client):
    subscription = client.subscribed("client-individual")
    message = client.deliver(subscription)
    client.ack(message)
    call = client.call()
    client.ack(message, call=call)
    assert outcome(call) == "accepted"
    with pytest.raises(LocalProtocolError):
        client.ack(message, "NACK")
    assert client.commands() == ["ACK"]


def test_auto_messages_need_no_ack(client):
    message = client.deliver(client.subscribed("auto"))
    client.ack(message)
    with pytest.raises(LocalProtocolError):
        client.ack(message, "NACK")
    assert client.frames() == []


@pytest.mark.req("S11-SUB-08")
def test_an_ack_in_client_mode_covers_what_came_before(client):
    subscription = client.subscribed("client")
    messages = [client.deliver(subscription, f"m{number}") for number in range(4)]
    client.ack(messages[2])
    assert subscription.open == 1
    client.ack(messages[0])
    client.ack(messages[3])
    assert [frame.headers["id"] for frame in client.frames()] == ["am2", "am3"]
    assert subscription.open == 0


def test_a_stale_ack_in_client_mode(client):
    subscription = client.subscribed("client")
    old = client.deliver(subscription)
    client.lose()
    client.connect()
    with pytest.raises(StaleAckError):
        client.ack(old)


def test_after_unsubscribe_acks_are_stale(client):
    subscription = client.subscribed("client-individual")
    message = client.deliver(subscription)
    client.core.unsubscribe(subscription, client.now)
    with pytest.raises(StaleAckError):
        client.ack(message)
    assert client.commands() == ["UNSUBSCRIBE"]


def test_a_server_that_forgets_the_ack_header(client):
    subscription = client.subscribed("client-individual")
    pairs = {"subscription": subscription.id, "message-id": "m", "destination": "d"}
    client.answer("MESSAGE", pairs)
    (message,) = client.take(subscription)
    with pytest.raises(RemoteProtocolError, match="ack header"):
        client.ack(message)


# ---- what brokers call things ----


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("RabbitMQ/3.10.8", {"prefetch-count": "5", "durable": "true", "auto-delete": "false", "id": "daily"}),
        ("ActiveMQ/5.17.2", {"activemq.prefetchSize": "5", "activemq.subscriptionName": "daily", "id": "daily"}),
        ("ActiveMQ-Artemis/2.31", {"consumer-window-size": "5120", "durable-subscription-name": "daily"}),
        ("apache-apollo/1.7", {"credit": "5", "persistent": "true"}),
    ],
)
def test_prefetch_and_durable_in_the_words_of_the_broker(server, expected):
    client = Scripted(server=server, client_id="me").connect()
    client.subscribe("client", prefetch=5, durable="daily", headers={"ack": "client-individual"})
    (frame,) = client.frames()
    assert {name: frame.get(name) for name in expected} == expected
    assert frame.headers.getall("ack") == ["client-individual"]


def test_a_reconnect_to_another_broker_uses_its_words(client):
    client.server_name = "RabbitMQ/3.10.8"
    client.subscribed(prefetch=7)
    client.lose()
    client.connect()
    first, second = [frame for _, frame in client.seen if frame.command == "SUBSCRIBE"]
    assert first.get("activemq.prefetchSize") == first.get("prefetch-count") == "7"
    assert (second.get("activemq.prefetchSize"), second.get("prefetch-count")) == (None, "7")


def test_durable_needs_a_client_id_on_some(client):
    client = Scripted(server="ActiveMQ/5.17.2").connect()
    with pytest.raises(LocalProtocolError, match="client_id"):
        client.subscribe(durable="daily")
    assert not client.core.subscriptions
    assert Scripted(server="what is this").connect().core.dialect.name == "unknown"


@pytest.mark.parametrize("server", ["what is this", "stompcodec/0.1"])
def test_durable_is_refused_where_it_would_mean_nothing(server):
    client = Scripted(server=server).connect()
    with pytest.raises(LocalProtocolError, match="durable"):
        client.subscribe(durable="daily")
    assert client.frames() == []


def test_a_durable_subscription_of_activemq_is_deleted_in_two_steps():
    client = Scripted(server="ActiveMQ/5.17.2", client_id="me").connect()
    subscription = client.subscribed("client", durable="daily")
    client.core.unsubscribe(subscription, client.now, delete=True)
    assert [frame.get("activemq.subscriptionName") for frame in client.frames()] == [None, "daily"]


@pytest.mark.parametrize(
    ("server", "requeue", "headers"),
    [
        ("RabbitMQ/3", True, {"requeue": "true"}),
        ("RabbitMQ/3", False, {"requeue": "false"}),
        ("ActiveMQ/5", False, {}),
        ("ActiveMQ/5", True, None),
        ("stompcodec/1", True, {}),
        ("stompcodec/1", False, None),
    ],
)
def test_nack_in_the_words_of_the_broker(server, requeue, headers):
    client = Scripted(server=server).connect()
    message = client.deliver(client.subscribed("client-individual"))
    if headers is None:
        with pytest.raises(LocalProtocolError, match="cannot"):
            client.ack(message, "NACK", requeue=requeue)
        return
    client.ack(message, "NACK", requeue=requeue)
    (frame,) = client.frames()
    assert dict(frame.headers) == {"id": "am1", **headers}


@pytest.mark.parametrize(
    ("server", "headers", "attempt"),
    [
        ("stompcodec/1", {}, 1),
        ("stompcodec/1", {"redelivered": "true", "redelivery-count": "3"}, 4),
        ("ActiveMQ/5", {"redelivered": "true"}, 2),
        ("stompcodec/1", {"redelivered": "true", "redelivery-count": "9" * 5000}, 2),
    ],
)
def test_which_attempt_it_is(server, headers, attempt):
    client = Scripted(server=server).connect()
    message = client.deliver(client.subscribed(), **headers)
    assert (message.attempt, message.redelivered) == (attempt, "redelivered" in headers)
