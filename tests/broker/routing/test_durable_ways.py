"""Durable subscriptions in the ways of RabbitMQ, and what else meets them: RECEIVE, retained messages."""

import pytest
from broker.durables import TOPIC, client, names, subscribe
from broker.harness import Bench

import stompcodec
from stompcodec.broker.config.config import DIALECTS
from stompcodec.broker.storage.store import MemoryStore


def test_by_id_and_destination():
    """RabbitMQ's: several consumers share it."""
    bench = Bench(**DIALECTS["rabbitmq"])
    sender, one, two = bench.peer(), bench.peer(), bench.peer()
    one.subscribe(TOPIC, durable="true")
    two.subscribe(TOPIC, durable="true")
    other = bench.peer()
    other.subscribe("/topic/b", persistent="true")
    for number in range(4):
        sender.put(TOPIC, str(number))
    assert sorted(one.bodies() + two.bodies()) == [b"0", b"1", b"2", b"3"]
    assert other.take() == []
    one.lose()
    two.lose()
    sender.put(TOPIC, "4")
    three = bench.peer()
    three.subscribe(TOPIC, durable="true")
    assert three.bodies() == [b"4"]
    three.send("UNSUBSCRIBE", id="1", durable="true")
    assert names(bench) == ["1@/topic/b"]


def test_by_the_name_of_its_queue():
    bench = Bench(**DIALECTS["rabbitmq"])
    sender, one, two = bench.peer(), bench.peer(), bench.peer()
    one.send("SUBSCRIBE", destination=TOPIC, id="a", x_queue_name="shared")
    two.send("SUBSCRIBE", destination=TOPIC, id="b", x_queue_name="shared")
    reader = bench.peer()
    reader.subscribe("/amq/queue/shared")
    for number in range(3):
        sender.put(TOPIC, str(number))
    assert [len(peer.bodies()) for peer in (one, two, reader)] == [1, 1, 1]
    assert list(bench.store.subscriptions()) == []
    for peer in (one, two, reader):
        assert names(bench) == ["shared"]
        peer.lose()
    assert names(bench) == []


@pytest.mark.parametrize("durable", ["durable", "persistent"])
def test_a_named_one_can_stay(durable):
    store = MemoryStore()
    bench = Bench(store, **DIALECTS["rabbitmq"])
    peer = bench.peer()
    peer.send("SUBSCRIBE", destination=TOPIC, id="a", x_queue_name="stays", **{durable: "true"})
    peer.lose()
    bench.peer().put(TOPIC, "1", persistent="true")
    peer = Bench(store, **DIALECTS["rabbitmq"]).peer()
    peer.subscribe("/amq/queue/stays")
    assert peer.bodies() == [b"1"]


def test_a_new_one_gets_the_retained_message():
    bench = Bench(retain=True)
    sender, peer = bench.peer(), client(bench)
    sender.put(TOPIC, "kept", retain="set", persistent="true")
    for _ in range(2):
        subscribe(peer)
        peer.send("UNSUBSCRIBE", id="1")
    assert peer.bodies() == [b"kept"]


def test_receive_takes_one_of_what_it_holds():
    bench = Bench(**DIALECTS["rabbitmq"])
    sender, peer = bench.peer(), bench.peer()
    peer.parser = stompcodec.Parser("1.2", commands=("EMPTY",))

    def receive(*headers):
        peer.raw("\n".join(["RECEIVE", f"destination:{TOPIC}", "id:1", *headers, "", "\0"]).encode())
        return [frame.command for frame in peer.take()]

    sender.subscribe(TOPIC, id="1", **{"durable": "true"})
    sender.lose()
    bench.peer().put(TOPIC, "1")
    assert receive("durable:true", "receipt:r") == ["MESSAGE", "RECEIPT"]
    assert receive("durable:true", "receipt:r") == ["EMPTY", "RECEIPT"]
    assert len(list(bench.store.subscriptions())) == 1


@pytest.mark.parametrize("header", ["x-queue-name:q", "durable:true", "durable-subscription-name:d"])
def test_receive_makes_no_durable_subscription(header):
    """Its answer would be EMPTY, though a message may wait under the name that the program meant."""
    bench = Bench(**DIALECTS["rabbitmq"])
    peer = bench.peer(connect=False)
    peer.connect(**{"client-id": "me"})
    peer.raw("\n".join(["RECEIVE", f"destination:{TOPIC}", "id:1", header, "", "\0"]).encode())
    (error,) = peer.take()
    assert (error.command, error.headers["message"]) == ("ERROR", "no such durable subscription")
    assert names(bench) == []
    assert not list(bench.store.subscriptions())
