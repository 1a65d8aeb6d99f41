"""`receive` answers with a message, None, or an error: never with None while a message waits."""

from __future__ import annotations

import contextlib

import pytest
from client.broker import BrokerThread

import stompcodec.client as stomp


@pytest.fixture(scope="module")
def broker():
    with BrokerThread() as broker:
        yield broker


class Refusing(stomp.Middleware):
    """Middleware that raises for the first message, before or after the program would have it."""

    def __init__(self, after):
        self.after = after
        self.refused = 0

    @contextlib.contextmanager
    def receive(self, event):
        if self.after:
            yield
        if not self.refused:
            self.refused += 1
            raise ValueError("not this one")
        if not self.after:
            yield


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_a_message_that_middleware_refuses_is_given_back(shell, broker, mode, after):
    name = f"/queue/refused-{shell.name}-{mode}-{after}"
    client, other = shell.connect(broker.url, middleware=[Refusing(after)]), shell.connect(broker.url)
    client.send(name, b"1", receipt=True)
    with pytest.raises(ValueError, match="not this one"):
        client.receive(name, ack=mode)
    client.ping()  # the NACK has arrived
    message = other.receive(name)
    assert (message.body, message.attempt) == (b"1", 2)
    assert client.receive(name, ack=mode) is None


def test_in_mode_auto_the_error_is_all_that_is_left(shell, broker):
    name = f"/queue/refused-{shell.name}"
    client = shell.connect(broker.url, middleware=[Refusing(False)])
    client.send(name, b"1", receipt=True)
    with pytest.raises(ValueError, match="not this one"):
        client.receive(name)
    assert client.receive(name) is None


def test_receive_from_the_own_durable_subscription(shell, broker):
    name, topic = f"d-{shell.name}", f"/topic/{shell.name}"
    client, producer = shell.connect(broker.url, client_id=name), shell.connect(broker.url)
    with pytest.raises(stomp.RejectedError, match="no such durable subscription"):
        client.receive(topic, durable=name)
    client.wait_connected()
    subscription = client.subscribe(topic, durable=name, ack="client-individual")
    with pytest.raises(stomp.LocalProtocolError, match="exists already"):
        client.receive(topic, durable=name)
    subscription.unsubscribe()
    producer.send(topic, b"1", receipt=True)
    with pytest.raises(stomp.RejectedError, match="no such durable subscription"):
        client.receive(topic, headers={"durable-subscription-name": name})
    client.wait_connected()
    message = client.receive(topic, durable=name, ack="client-individual")
    assert message.body == b"1"
    message.ack(receipt=True)
    assert client.receive(topic, durable=name) is None


def test_receive_from_the_own_durable_subscription_in_the_manner_of_artemis(shell):
    with BrokerThread(dialect="artemis") as broker:
        client, producer = shell.connect(broker.url, client_id="me"), shell.connect(broker.url)
        subscription = client.subscribe("/topic/t", durable="d", ack="client-individual")
        with pytest.raises(stomp.RejectedError, match="in use"):
            client.receive("/topic/t", headers={"durable-subscription-name": "d"})
        client.wait_connected()
        subscription.unsubscribe()
        producer.send("/topic/t", b"1", receipt=True)
        assert client.receive("/topic/t", headers={"durable-subscription-name": "d"}).body == b"1"
