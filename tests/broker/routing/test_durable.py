"""Durable subscriptions: what they are called, what they keep, and how they end."""

import pytest
from broker.durables import NAME, TOPIC, client, leave, names, subscribe
from broker.harness import Bench

from stompcodec.broker.config.settings import Preset
from stompcodec.broker.message import Message
from stompcodec.broker.storage.store import MemoryStore


@pytest.mark.req("ART-DUR-01", "ART-DUR-04", "ART-DUR-05")
@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_it_keeps_what_comes_while_its_client_is_away(ack, version):
    bench = Bench()
    sender, peer = bench.peer(), client(bench, version=version)
    sender.put(TOPIC, "before")
    subscribe(peer, ack=ack)
    sender.put(TOPIC, "1")
    (first,) = peer.take()
    assert (first.body, first.headers["destination"]) == (b"1", TOPIC)
    leave(peer)
    assert names(bench) == ["c.n"]
    for number in (2, 3):
        sender.put(TOPIC, str(number))
    bench.wait(1000)  # and it does not go for being idle
    peer = client(bench, version=version)
    subscribe(peer, ack=ack)
    frames = peer.take()
    again = [] if ack == "auto" else [b"1"]
    assert [frame.body for frame in frames] == [*again, b"2", b"3"]
    assert [frame.body for frame in frames if frame.get("redelivered")] == again
    if ack != "auto":
        for frame in frames if ack == "client-individual" else frames[-1:]:
            peer.ack(frame)
    assert bench.octets == 0


@pytest.mark.req("ART-DUR-02")
@pytest.mark.parametrize("attached", [True, False])
def test_unsubscribe_with_the_name_ends_it(attached):
    store = MemoryStore()
    bench = Bench(store)
    sender, peer = bench.peer(), client(bench)
    subscribe(peer, ack="client-individual")
    sender.put(TOPIC, "1", persistent="true")
    if not attached:
        leave(peer)
        peer = client(bench)
    peer.take()
    peer.send("UNSUBSCRIBE", id="1", receipt="r", **{NAME: "n"})
    assert peer.next().command == "RECEIPT"
    assert (names(bench), list(store.load()), list(store.subscriptions())) == ([], [], [])
    sender.put(TOPIC, "2", persistent="true")
    subscribe(peer)
    assert peer.take() == []
    assert bench.octets == 0


def test_unsubscribe_without_the_name_leaves_it():
    bench = Bench()
    sender, peer = bench.peer(), client(bench)
    subscribe(peer)
    peer.send("UNSUBSCRIBE", id="1")
    sender.put(TOPIC, "1")
    assert peer.take() == []
    subscribe(peer)
    assert peer.bodies() == [b"1"]


@pytest.mark.req("ART-DUR-03")
def test_the_order_of_the_three_names():
    headers = {"durable-subscriber-name": "1", NAME: "2", "activemq.subscriptionName": "3"}
    for number, name in enumerate(list(headers), 1):
        bench = Bench()
        client(bench).send("SUBSCRIBE", destination=TOPIC, id="1", **headers)
        assert names(bench) == [f"c.{number}"]
        del headers[name]


@pytest.mark.req("ART-DUR-04")
def test_one_that_the_configuration_has():
    store = MemoryStore()
    presets = (Preset(TOPIC, "MULTICAST", ("desk.prices",)),)
    bench = Bench(store, presets=presets)
    bench.peer().put(TOPIC, "1", persistent="true")
    bench = Bench(store, presets=presets)
    bench.broker.virtual_host("/").destinations.sweep()
    peer = client(bench, "desk")
    subscribe(peer, "prices")
    assert peer.bodies() == [b"1"]


def test_what_is_needed_for_a_name():
    for headers, missing in (({NAME: "n"}, "client-id is missing"), ({"durable": "true"}, "id is missing")):
        peer = Bench().peer("1.0")
        peer.send("SUBSCRIBE", destination=TOPIC, **headers)
        assert peer.error().headers["message"] == missing


def test_one_consumer_at_a_time():
    bench = Bench(same_client="allow")
    one, two = client(bench), client(bench)
    subscribe(one)
    subscribe(two)
    assert two.error().headers["message"] == "the durable subscription is in use"
    three = client(bench)
    three.send("UNSUBSCRIBE", id="1", **{NAME: "n"})
    assert three.error().headers["message"] == "the durable subscription is in use"
    bench.peer().put(TOPIC, "x")
    assert one.bodies() == [b"x"]


def test_another_destination_or_selector_is_refused():
    pytest.importorskip("lark")
    for changed in ({"destination": "/topic/b"}, {"selector": "b = 1"}, {}):
        bench = Bench()
        peer = client(bench)
        subscribe(peer, **({"selector": "a = 1"}))
        peer.send("UNSUBSCRIBE", id="1")
        subscribe(peer, **changed)
        assert peer.error().headers["message"] == "the durable subscription differs"


def test_there_is_no_such_subscription():
    peer = client(Bench())
    peer.send("UNSUBSCRIBE", id="1", **{NAME: "n"})
    assert peer.error().headers["message"] == "no such subscription"


@pytest.mark.parametrize("policy", ["refuse", "replace", "allow"])
def test_two_sessions_with_one_client_id(policy):
    bench = Bench(same_client=policy)
    one, two = client(bench), bench.peer(connect=False)
    two.send("CONNECT", host="/", client_id="c", **{"accept-version": "1.2"})
    if policy == "refuse":
        assert two.error().headers["message"] == "client-id is in use"
    else:
        assert two.next().command == "CONNECTED"
    assert one.closed is (policy == "replace")
    one.lose()
    three = bench.peer(connect=False)
    three.send("CONNECT", host="/", client_id="c", **{"accept-version": "1.2"})
    assert (three.next().command == "CONNECTED") is (policy != "replace" or three.closed is False)


def test_a_client_id_is_free_when_its_session_has_ended():
    bench = Bench()
    leave(client(bench))
    client(bench).lose()
    client(bench)
    assert [name for _owner, name in bench.broker.virtual_host("/")._clients] == ["c"]


@pytest.mark.parametrize("policy", ["block", "drop"])
def test_a_full_queue(policy):
    bench = Bench(durable_overflow=policy, max_queue_messages=3)
    sender, peer = bench.peer(), client(bench)
    subscribe(peer)
    leave(peer)
    for number in range(10):
        if not sender.session.paused:
            sender.put(TOPIC, str(number), persistent="true")
    assert sender.session.paused is (policy == "block")
    peer = client(bench)
    subscribe(peer)
    assert peer.bodies() == ([b"0", b"1", b"2", b"3", b"4"] if policy == "block" else [b"7", b"8", b"9"])
    bench.turn()
    assert not sender.session.paused
    bench.peer().put("/queue/x", "x", persistent="true")
    assert len(list(bench.store.load())) == 1


def test_who_has_to_acknowledge_it_cannot_fill_it():
    bench = Bench(max_queue_messages=3)
    peer = client(bench)
    subscribe(peer, ack="client")
    for number in range(10):
        if not peer.closed:
            peer.put(TOPIC, str(number))
    assert peer.error().headers["message"] == "the queue is full"


def test_dead_letters_and_expiry():
    bench = Bench(max_attempts=1, dead_letter_expired=True)
    sender, peer = bench.peer(), client(bench)
    subscribe(peer, ack="client-individual")
    sender.put(TOPIC, "1")
    peer.nack(peer.next())
    leave(peer)
    sender.put(TOPIC, "2", expiration="1000")
    bench.date += 5
    bench.wait(30)
    reader = bench.peer()
    reader.subscribe("/queue/DLQ.c.n")
    assert reader.bodies() == [b"1", b"2"]


def test_they_are_bounded():
    bench = Bench(max_destinations=5)
    peer = client(bench)
    for number in range(10):
        if not peer.closed:
            subscribe(peer, f"n{number}", id=str(number))
    assert peer.error().headers["message"] == "too many destinations"
    assert len(names(bench)) < 5


def test_a_message_of_a_transaction_goes_before_those_that_came_while_it_was_stored():
    bench = Bench()
    reader = client(bench)
    subscribe(reader)
    leave(reader)
    (durable,) = bench.broker.virtual_host("/").destinations.durables
    late, early = (Message(b"%d" % seq, seq, TOPIC, b"\n\0") for seq in (8, 7))
    durable.take([late])
    durable.take([early], stored=True)
    assert [message.seq for message in durable.queue.messages] == [7, 8]
