"""Durable subscriptions: what they are called, what they keep, how they end, and what a failing disk leaves behind."""

import asyncio
import signal
from functools import partial

import pytest
from broker.harness import Bench, FaultyStore
from broker.sockets import Client, send
from crash.process import BrokerProcess
from patience import patience

from stompcodec.broker.config import DIALECTS
from stompcodec.broker.message import Message

TOPIC = "/topic/a"
NAME = "durable-subscription-name"


def client(bench, client_id="c", version="1.2"):
    """Return a connected peer with a client-id."""
    peer = bench.peer(version, connect=False)
    peer.connect(client_id=client_id)
    return peer


def subscribe(peer, name="n", destination=TOPIC, id="1", **headers):
    peer.send("SUBSCRIBE", destination=destination, id=id, **{NAME: name}, **headers)


def names(bench):
    """Return the names of the durable subscriptions."""
    return sorted(bench.broker.virtual_host("/").destinations.durables.by_name)


def leave(peer):
    """DISCONNECT."""
    peer.send("DISCONNECT", receipt="bye")
    peer.lose()


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
    bench.wait(100)  # and it does not go for being idle
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
def test_unsubscribe_with_the_name_ends_it_and_without_the_name_leaves_it(attached):
    bench = Bench()
    sender, peer = bench.peer(), client(bench)
    subscribe(peer, ack="client-individual")
    peer.send("UNSUBSCRIBE", id="1")
    sender.put(TOPIC, "1", persistent="true")
    assert peer.take() == []
    if attached:
        subscribe(peer)
        assert peer.bodies() == [b"1"]
    peer.send("UNSUBSCRIBE", id="1", receipt="r", **{NAME: "n"})
    assert peer.next().command == "RECEIPT"
    assert (names(bench), list(bench.store.load()), list(bench.store.subscriptions())) == ([], [], [])
    sender.put(TOPIC, "2", persistent="true")
    subscribe(peer)
    assert peer.take() == []
    assert bench.octets == 0
    peer.send("UNSUBSCRIBE", id="2", **{NAME: "none"})
    assert peer.error().headers["message"] == "no such subscription"


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


@pytest.mark.parametrize("policy", ["block", "drop", "its own sender"])
def test_a_full_queue(policy):
    bench = Bench(durable_overflow=policy if policy == "drop" else "block", max_queue_messages=3)
    sender, peer = bench.peer(), client(bench)
    subscribe(peer, ack="client")
    if policy == "its own sender":
        sender = peer
    else:
        leave(peer)
    for number in range(10):
        if not (sender.closed or sender.session.paused):
            sender.put(TOPIC, str(number), persistent="true")
    if policy == "its own sender":
        assert sender.error().headers["message"] == "the queue is full"
        return
    assert sender.session.paused is (policy == "block")
    peer = client(bench)
    subscribe(peer)
    assert peer.bodies() == ([b"0", b"1", b"2", b"3", b"4"] if policy == "block" else [b"7", b"8", b"9"])
    bench.turn()
    assert not sender.session.paused
    bench.peer().put("/queue/x", "x", persistent="true")
    assert len(list(bench.store.load())) == 1


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


# ---- in the ways of RabbitMQ, and RECEIVE ----


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


# ---- the store ----


def test_the_receipt_waits_for_the_store():
    store = FaultyStore(background=True)
    bench = Bench(store)
    sender, peer = bench.peer(), client(bench)
    for frame in (
        partial(subscribe, peer, receipt="s", ack="client-individual"),
        partial(sender.put, TOPIC, "1", persistent="true", receipt="r"),
    ):
        frame()
        assert [got.command for got in (*peer.take(), *sender.take())] in ([], ["MESSAGE"])
        store.finish()
        bench.turn()
        assert "RECEIPT" in [got.command for got in (*peer.take(), *sender.take())]


def test_one_that_could_not_be_stored_is_not_there():
    store = FaultyStore()
    bench = Bench(store)
    peer = client(bench)
    store.faulty = True
    subscribe(peer, receipt="s")
    assert "stored" in peer.error().headers["message"]
    assert names(bench) == []
    store.faulty = False
    bench.peer().put("/queue/x", "1", persistent="true")
    assert list(store.subscriptions()) == []


def test_an_end_that_could_not_be_stored_is_stored_later():
    store = FaultyStore()
    bench = Bench(store)
    peer = client(bench)
    subscribe(peer)
    store.faulty = True
    peer.send("UNSUBSCRIBE", id="1", receipt="r", **{NAME: "n"})
    assert "stored" in peer.error().headers["message"]
    assert len(list(store.subscriptions())) == 1
    store.faulty = False
    bench.wait(5)
    assert list(store.subscriptions()) == []


@pytest.mark.long
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="nothing can be killed at once here")
def test_what_has_a_receipt_survives_a_kill(tmp_path):
    """Each broker is killed right after its receipts; the next one goes on."""
    attach = f"SUBSCRIBE\nid:1\ndestination:{TOPIC}\n{NAME}:n\nreceipt:s\nack:client\n\n\0"

    async def main(place):
        expected = []
        for run in range(4):
            link = await Client.connect(place, "client-id:c")
            if run in (0, 3):
                link.send(attach)
            for number in range(20):
                expected.append(f"{run}-{number}".encode())
                link.send(send(TOPIC, f"{run}-{number}", "persistent:true", "receipt:r"))
            found, receipts = [], 0
            while receipts < 20 + (run in (0, 3)) or (run == 3 and len(found) < len(expected)):
                frame = await link.frame()
                receipts += frame.command == "RECEIPT"
                found += [frame.body] * (frame.command == "MESSAGE")
            if run < 3:
                place.kill()
            await link.close()
            if run < 3:
                place.start()
        assert found == expected

    with BrokerProcess(tmp_path) as place:
        asyncio.run(asyncio.wait_for(main(place), patience(60)))
