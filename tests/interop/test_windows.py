"""Windows and transactions on other people's brokers: no program stalls that holds fewer messages than its prefetch."""

import json
from typing import Any
from uuid import uuid4

import pytest
from interop.taking import taken
from patience import patience

import stompcodec.client as stomp

#: What makes a destination a queue on both acceptors of Artemis.
_SENT, _TAKEN = {"destination-type": "ANYCAST", "persistent": "true"}, {"subscription-type": "ANYCAST"}
_WAIT = 20


def _fill(client: Any, queue: str, count: int, size: int, headers: dict[str, str]) -> list[bytes]:
    bodies = [b"%d " % number + bytes(size) for number in range(count)]
    client.send_many([(queue, body, headers) for body in bodies])
    return [body[:4] for body in bodies]


def _take(subscription: Any, count: int) -> list[Any]:
    taken = []
    while len(taken) < count and (message := subscription.get(patience(_WAIT))) is not None:
        taken.append(message)
    return taken


@pytest.mark.peer("artemis", "artemis-plain")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize("ack", ["client", "client-individual"])
@pytest.mark.parametrize(("count", "size"), [(100, 3_000), (5, 1_000_000)])
def test_a_program_may_hold_as_many_messages_as_its_prefetch_says(peer, count, size, ack, version):
    """Each comes once and in order, also after the acknowledgements, and none comes again."""
    queue = f"/queue/windows.{uuid4().hex}"
    with stomp.connect(peer.url, versions=[version]) as client:
        expected = _fill(client, queue, 2 * count, size, _SENT)
        subscription = client.subscribe(queue, ack=ack, prefetch=count, headers=_TAKEN)
        found = []
        for _ in range(2):
            taken = _take(subscription, count)
            found += [message.body[:4] for message in taken]
            for message in taken[-1:] if ack == "client" else taken:
                message.ack()
        assert found == expected
    with stomp.connect(peer.url) as client:
        client.send(queue, b"the end", _SENT, receipt=True)
        message = taken(client.subscribe(queue, ack="client", headers=_TAKEN))
        assert message.body == b"the end"
        message.ack(receipt=True)


@pytest.mark.peer("artemis")
def test_a_program_may_hold_messages_of_a_topic(peer: Any) -> None:
    topic = f"/topic/windows.{uuid4().hex}"
    with stomp.connect(peer.url) as client:
        subscription = client.subscribe(topic, ack="client-individual", prefetch=5)
        expected = _fill(client, topic, 5, 1_000_000, {})
        assert [message.body[:4] for message in _take(subscription, 5)] == expected


@pytest.mark.peer("artemis", "artemis-plain")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_a_queue_that_refuses_a_further_consumer_ends_one_connection_at_most(peer: Any, version: str) -> None:
    """Artemis names the id in the message of its ERROR, and gives no receipt-id; in 1.1 the session goes on."""
    queue, states = f"windows.{uuid4().hex}", []
    made = {"name": queue, "address": queue, "routing-type": "ANYCAST", "max-consumers": 1}
    managed = {"_AMQ_ResourceName": "broker", "_AMQ_OperationName": "createQueue"}
    with stomp.connect(peer.url, versions=[version], on_state=lambda state, _: states.append(state)) as client:
        client.send("activemq.management", json.dumps([json.dumps(made)]), managed, receipt=True)
        expected = _fill(client, queue, 4, 100_000, _SENT)
        subscription = client.subscribe(queue, ack="client-individual", prefetch=5, headers=_TAKEN)
        (held,) = _take(subscription, 1)
        for _ in range(2):
            held = subscription.get(1) or held  # after the reconnect it comes again
        found = [held.body[:4]]
        held.ack()
        for message in (_take(subscription, 1)[0] for _ in range(3)):
            found.append(message.body[:4])
            message.ack()
        assert found == expected
    assert states.count("reconnecting") == (version == "1.2")


@pytest.mark.peer("artemis", "artemis-plain")
def test_mode_auto_has_no_window(peer: Any) -> None:
    queue = f"/queue/windows.{uuid4().hex}"
    with stomp.connect(peer.url) as client:
        expected = _fill(client, queue, 20, 3_000, _SENT)
        subscription = client.subscribe(queue, prefetch=5, headers=_TAKEN)
        assert [message.body[:4] for message in _take(subscription, 20)] == expected
        with pytest.raises(ValueError, match="consumer-window-size"):
            client.subscribe(queue, headers={"consumer-window-size": "5120"})


@pytest.mark.peer("artemis")
def test_a_broker_without_a_name_gets_no_window_in_bytes(peer: Any) -> None:
    queue = f"/queue/windows.{uuid4().hex}"
    with stomp.connect(peer.url, versions=["1.0"]) as client:
        assert client.dialect == "unknown"
        expected = _fill(client, queue, 6, 1_000, {})
        subscription = client.subscribe(queue, ack="client")
        assert [message.body[:4] for message in _take(subscription, 6)] == expected


@pytest.mark.peer("artemis")
@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_an_ack_takes_effect_with_its_transaction(peer: Any, ack: str) -> None:
    """In mode `client`, a later ACK outside does not settle what an aborted transaction had acknowledged."""
    queue = f"/queue/windows.{uuid4().hex}"
    with stomp.connect(peer.url) as client:
        _fill(client, queue, 5, 10, _SENT)
        subscription = client.subscribe(queue, ack=ack, headers=_TAKEN)
        first, second, third, fourth, _ = _take(subscription, 5)
        with client.transaction() as kept:
            kept.ack(first)
            kept.send(queue + ".out", b"done", _SENT)
        dropped = client.transaction().begin()
        dropped.ack(second)
        third.ack()
        dropped.abort()
        if ack == "client-individual":
            fourth.ack()
        client.close()
    with stomp.connect(peer.url) as client:
        subscription = client.subscribe(queue, ack="client", headers=_TAKEN)
        again = ["1", "4"] if ack == "client-individual" else ["1", "2", "3", "4"]
        assert [message.text()[:1] for message in _take(subscription, len(again))] == again


@pytest.mark.peer("artemis")
def test_a_receive_that_a_transaction_stops_is_an_error(peer: Any) -> None:
    queue = f"/queue/windows.{uuid4().hex}"
    with stomp.connect(peer.url) as client:
        _fill(client, queue, 3, 3_000, _SENT)
        subscription = client.subscribe(queue, ack="client-individual", prefetch=2, headers=_TAKEN)
        with client.transaction() as transaction:
            for message in _take(subscription, 2):
                transaction.ack(message)
            with pytest.raises(stomp.LocalProtocolError, match="prefetch of 2"):
                subscription.get(patience(_WAIT))
        message = taken(subscription)
        assert message.body[:1] == b"2"


@pytest.mark.peer("activemq6", "activemq5")
def test_windows_that_mean_never_are_refused(peer: Any) -> None:
    queue = f"/queue/windows.{uuid4().hex}"
    with stomp.connect(peer.url) as client:
        for value in ("0", "-1", "abc", ""):
            with pytest.raises(ValueError, match="activemq takes 1 to"):
                client.subscribe(queue, ack="client", headers={"activemq.prefetchSize": value})
        expected = _fill(client, queue, 4, 3_000, {})
        subscription = client.subscribe(queue, prefetch=1)
        assert [message.body[:4] for message in _take(subscription, 4)] == expected
