"""Further consumers of a subscription that the broker refuses, must not have, or whose message cannot be read."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from client.scripted import Scripted

from stompcodec import Frame
from stompcodec.client.handlers import holding
from stompcodec.errors import LocalProtocolError, RejectedError

ARTEMIS = "ActiveMQ-Artemis/2.40.0"
TYPED = {"subscription-type": "ANYCAST"}


def full(client: Scripted, subscription: Any, number: str = "m1") -> list[Frame]:
    """What the client sends once its window is full, while the program holds fewer messages than its prefetch."""
    client.deliver(subscription, number, body=bytes(100_000))
    client.core.waits(subscription, client.now, polls=False)
    return client.frames()


def spared(version: str = "1.2", server: str = ARTEMIS, **options: Any) -> tuple[Scripted, Any, Frame]:
    """A client, its subscription, and the SUBSCRIBE of a further consumer."""
    client = Scripted(server=server, version=version).connect()
    options = {"ack": "client-individual", "prefetch": 5, "headers": TYPED, **options}
    subscription = client.subscribed(**options)
    (spare,) = full(client, subscription)
    return client, subscription, spare


def refuse(client: Scripted, spare: Frame, how: str) -> None:
    if how == "named":
        client.error(spare)
    elif how == "said":  # as Artemis 2.40
        client.error(message=f"AMQ339016 Error creating subscription {spare.headers['id']}")
    elif how == "alone":
        client.error(message="no")
    if client.core.link.connection is not None and (how == "closed" or client.version == "1.2"):
        client.lose()


@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize("how", ["named", "said", "alone", "closed"])
def test_a_further_consumer_that_the_broker_refuses_is_not_asked_for_again(
    how: str, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the answer: else each connection would end by it. The log says once what to do."""
    client, subscription, spare = spared(version)
    asked, most = 1, 2 if how == "closed" else 1  # a connection may be lost by chance
    with caplog.at_level(logging.WARNING):
        refuse(client, spare, how)
        for number in range(5):
            if client.core.link.connection is None:
                client.connect()
            again = full(client, subscription, f"n{number}")
            asked += len(again)
            for frame in again:
                refuse(client, frame, how)
    assert asked == most
    said = [record.getMessage() for record in caplog.records if "further consumer" in record.getMessage()]
    assert len(said) == 1
    assert "consumer-window-size:-1" in said[0]
    assert subscription.news is subscription.error is None  # iterators do not raise it
    client.core.inbound.unsubscribe(subscription, client.now)
    assert [frame.get("id") for frame in client.frames()] == [subscription.id]
    anew = client.subscribed("client-individual", prefetch=5, headers=TYPED)
    assert len(full(client, anew)) == 1


def test_what_is_not_about_a_further_consumer_does_not_end_these() -> None:
    client, subscription, spare = spared("1.1")
    call = client.send(receipt=True)
    (send,) = client.frames()
    client.error(send)
    assert isinstance(call.error, RejectedError)
    client.receipt(spare)
    client.error(message="no")
    assert isinstance(subscription.news, RejectedError)
    client.lose()
    client.connect()
    assert [frame.command for frame in full(client, subscription)] == ["SUBSCRIBE"]


def test_connections_that_end_now_and_then_do_not_end_further_consumers() -> None:
    client, subscription, _ = spared()
    for confirmed in (True, False, True, False):
        client.lose()
        client.connect()
        (again,) = full(client, subscription)
        if confirmed:
            client.receipt(again)


def test_a_client_that_closes_says_nothing_of_further_consumers(caplog: pytest.LogCaptureFixture) -> None:
    client, subscription, _ = spared()
    client.lose()
    client.connect()
    assert len(full(client, subscription)) == 1
    client.core.close(client.now, client.call())
    client.confirm_all()
    assert not [record for record in caplog.records if "further consumer" in record.getMessage()]


@pytest.mark.parametrize("value", ["true", "TRUE"])
def test_a_subscription_that_browses_has_one_consumer(value: str) -> None:
    """To another one all messages would come again."""
    client = Scripted(server=ARTEMIS).connect()
    subscription = client.subscribed("client-individual", prefetch=5, headers={**TYPED, "browser": value})
    assert full(client, subscription) == []


def test_the_id_of_a_further_consumer_is_taken() -> None:
    client, _, spare = spared()
    with pytest.raises(LocalProtocolError, match="exists already"):
        client.subscribe("client", id=spare.headers["id"])


# ---- its messages ----


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_a_message_of_a_further_consumer_that_cannot_be_read_is_passed_over_as_its_subscription_says(
    version: str,
) -> None:
    client, subscription, spare = spared(version, on_unreadable="skip")
    client.receipt(spare)
    head = f"MESSAGE\nsubscription:{spare.headers['id']}\nmessage-id:m2\nack:am2\ndestination:/queue/s1\n"
    octets = f"{head}bad\\escape:\\x\n\n\0".encode()
    client.core.inbound.receive(octets, client.now)
    assert client.core.link.connection is not None
    (ack,) = client.frames()
    assert ack.command in ("ACK", "NACK")
    assert ack.get("id" if version == "1.2" else "message-id") == ("am2" if version == "1.2" else "m2")
    assert version == "1.2" or ack.get("subscription") == spare.headers["id"]
    assert subscription.open == 1


def test_what_is_sent_for_a_message_names_the_consumer_that_it_came_by() -> None:
    client, subscription, spare = spared(server="stompcodec/1 as artemis")
    client.receipt(spare)
    client.core.link.expect_handlers()
    pairs = {"subscription": spare.headers["id"], "message-id": "m2", "ack": "am2", "destination": "/queue/s1"}
    client.answer("MESSAGE", pairs, b"x")
    message = client.take(subscription)[-1]
    with holding(message):
        client.send()
    (sent,) = client.frames()
    assert (sent.get("ack"), sent.get("subscription")) == ("m2", spare.headers["id"])
