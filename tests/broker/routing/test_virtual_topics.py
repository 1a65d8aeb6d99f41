"""Virtual topics of ActiveMQ. What ActiveMQ 5.17 did with the same frames is expected."""

import pytest
from broker.harness import Bench, FaultyStore

from stompcodec.broker.auth import Rule
from stompcodec.broker.config import DIALECTS

TOPIC = "/topic/VirtualTopic.Orders"


def queue(name, topic="VirtualTopic.Orders"):
    return f"/queue/Consumer.{name}.{topic}"


def bench_of(store=None, **config):
    return Bench(store, **{**DIALECTS["activemq"], **config})


def consumer(bench, destination, **headers):
    peer = bench.peer(headers.pop("version", "1.2"))
    peer.subscribe(destination, **headers)
    assert not peer.closed, peer.take()
    return peer


def left(bench, destination):
    """Return the messages in a queue."""
    peer = consumer(bench, destination)
    bodies = peer.bodies()
    peer.lose()
    return bodies


def test_each_queue_gets_every_message_beside_plain_subscribers():
    bench = bench_of()
    first, second = consumer(bench, queue("A")), consumer(bench, queue("A"))
    other, plain = consumer(bench, queue("B")), consumer(bench, TOPIC)
    wild, elsewhere = consumer(bench, "/topic/VirtualTopic.>"), consumer(bench, queue("A", "VirtualTopic.Other"))
    strangers = [consumer(bench, name) for name in (queue("A.B"), "/queue/Consumer.VirtualTopic.Orders")]
    sender = bench.peer()
    for number in range(4):
        sender.put(TOPIC, str(number))
    assert (first.bodies(), second.bodies()) == ([b"0", b"2"], [b"1", b"3"])
    for peer in (other, plain, wild):
        assert peer.bodies() == [b"0", b"1", b"2", b"3"]
    for peer in (elsewhere, *strangers):
        assert peer.bodies() == []


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_the_destination_is_the_queue(version, ack):
    bench = bench_of()
    peer = consumer(bench, queue("A"), version=version, ack=ack)
    bench.peer().put(TOPIC, "x", persistent="true", priority="7", custom="1")
    bench.peer().put(queue("A"), "direct")
    first, second = peer.take()
    expected = {"destination": queue("A"), "original-destination": TOPIC, "priority": "7", "custom": "1"}
    assert expected.items() <= dict(first.headers).items()
    assert (second.headers["destination"], second.get("original-destination")) == (queue("A"), None)
    if ack != "auto":
        peer.nack(first) if version != "1.0" else peer.lose()
        if version == "1.0":
            peer = consumer(bench, queue("A"))
        again = next(frame for frame in peer.take() if frame.body == b"x")
        assert (again.headers["destination"], again.headers["redelivered"]) == (queue("A"), "true")


@pytest.mark.parametrize(
    ("name", "topics"),
    [
        ("VirtualTopic.Orders.>", ["VirtualTopic.Orders", "VirtualTopic.Orders.eu", "VirtualTopic.Orders.eu.de"]),
        ("VirtualTopic.*", ["VirtualTopic.Orders"]),
        ("VirtualTopic.Orders.*", ["VirtualTopic.Orders.eu"]),
        (
            "VirtualTopic.>",
            ["VirtualTopic", "VirtualTopic.Orders", "VirtualTopic.Orders.eu", "VirtualTopic.Orders.eu.de"],
        ),
        ("VirtualTopic", ["VirtualTopic"]),
        ("VirtualTopicX", []),
    ],
)
def test_wildcards(name, topics):
    bench = bench_of()
    peer, sender = consumer(bench, queue("W", name)), bench.peer()
    sent = [
        "VirtualTopic",
        "VirtualTopic.Orders",
        "VirtualTopic.Orders.eu",
        "VirtualTopic.Orders.eu.de",
        "VirtualTopicX",
    ]
    for topic in [*sent, "Orders"]:
        sender.put(f"/topic/{topic}", topic)
    sender.put("/queue/VirtualTopic.Orders", "a queue is no topic")
    assert peer.bodies() == [topic.encode() for topic in topics]


@pytest.mark.parametrize("first", ["SUBSCRIBE", "SEND"])
@pytest.mark.parametrize("persistent", ["true", "false"])
def test_a_queue_gets_messages_while_nobody_consumes_it(first, persistent):
    bench = bench_of()
    bench.peer().put(TOPIC, "before")
    if first == "SUBSCRIBE":
        consumer(bench, queue("A")).lose()
    else:
        bench.peer().put(queue("A"), "direct")
        assert left(bench, queue("A")) == [b"direct"]
    bench.wait(600)  # idle queues are removed meanwhile
    bench.peer().put(TOPIC, "while away", persistent=persistent)
    bench.peer().put(TOPIC, "and again", persistent=persistent)
    assert len(list(bench.store.load())) == (2 if persistent == "true" else 0)
    assert left(bench, queue("A")) == [b"while away", b"and again"]
    assert list(bench.store.load()) == []


@pytest.mark.parametrize("name", ["VirtualTopic.Orders", "VirtualTopic.>"])
def test_a_restart(name):
    bench = bench_of()
    for who in "AB":
        consumer(bench, queue(who, name)).lose()
    bench.peer().put(TOPIC, "stored", persistent="true")
    bench.peer().put(TOPIC, "lost")
    bench = bench_of(bench.store)
    assert left(bench, queue("B", name)) == [b"stored"]
    for _ in range(2):  # B is empty, and nobody consumes it
        bench = bench_of(bench.store)
        bench.wait(600)
        bench.peer().put(TOPIC, "after", persistent="true")
    peer = consumer(bench, queue("A", name))
    got = peer.take()
    assert [frame.body for frame in got] == [b"stored", b"after", b"after"]
    assert {frame.headers["destination"] for frame in got} == {queue("A", name)}
    assert left(bench, queue("B", name)) == [b"after", b"after"]


def test_another_dialect_knows_the_queues_as_plain_ones():
    bench = bench_of()
    consumer(bench, queue("A")).lose()
    bench.peer().put(TOPIC, "stored", persistent="true")
    bench = Bench(bench.store)
    bench.peer().put(TOPIC, "for topics only", persistent="true")
    assert left(bench, queue("A")) == [b"stored"]
    assert left(Bench(), queue("A")) == []
    bench = bench_of(bench.store)
    bench.peer().put(TOPIC, "again", persistent="true")
    assert left(bench, queue("A")) == [b"again"]


# ---- transactions, and the order ----


@pytest.mark.parametrize("persistent", ["true", "false"])
@pytest.mark.parametrize("end", ["COMMIT", "ABORT", "fails"])
def test_a_transaction(persistent, end):
    bench = bench_of(FaultyStore())
    peers = [consumer(bench, queue(name)) for name in "AB"]
    sender = bench.peer()
    sender.send("BEGIN", transaction="t")
    for body in ("1", "2"):
        sender.put(TOPIC, body, transaction="t", persistent=persistent)
    assert [peer.bodies() for peer in peers] == [[], []]
    bench.store.faulty = end == "fails"
    sender.send("ABORT" if end == "ABORT" else "COMMIT", transaction="t")
    bench.store.faulty = False
    done = end == "COMMIT" or (end == "fails" and persistent == "false")
    assert [peer.bodies() for peer in peers] == [[b"1", b"2"] if done else []] * 2
    bench.audit()


def test_a_queue_made_while_a_transaction_waits_for_the_disk():
    bench = bench_of(FaultyStore(background=True))
    peer, sender = consumer(bench, queue("A")), bench.peer()
    finish(bench)
    sender.send("BEGIN", transaction="t")
    sender.put(TOPIC, "1", transaction="t", persistent="true")
    sender.send("COMMIT", transaction="t")
    late = consumer(bench, queue("B"))
    finish(bench)
    assert peer.bodies() == [b"1"]
    assert late.bodies() == []  # it was not there, and the store does not have the message for it
    assert list(bench.store.load()) == []


def finish(bench):
    while bench.store.job is not None:
        bench.store.finish()
        bench.turn()


# ---- what consumers can ask for ----


def test_composites_browsers_and_receive():
    bench = bench_of()
    peer = consumer(bench, f"{queue('A')},{queue('B')}")
    bench.peer().put(f"{TOPIC},/queue/plain", "1")
    assert [frame.headers["destination"] for frame in peer.take()] == [queue("A"), queue("B")]
    peer.lose()
    bench.peer().put(TOPIC, "2")
    browser = consumer(bench, queue("A"), browser="true")
    assert browser.take()[0].headers["destination"] == queue("A")
    receiver = bench.peer()
    receiver.raw(f"RECEIVE\ndestination:{queue('A')}\n\n\0".encode())
    assert receiver.next("MESSAGE").headers["destination"] == queue("A")


def test_an_automatic_queue_ends_with_its_last_consumer():
    bench = bench_of()
    consumer(bench, queue("A"), auto_delete="true").lose()
    bench.peer().put(TOPIC, "nobody")
    assert list(bench.broker.queues) == []
    assert list(bench.store.subscriptions()) == []
    bench.wait(60)
    assert bench.peer().session.virtual_host.destinations.shares.count == 0
    bench.audit()


# ---- bounds and rules ----


def test_queues_count_among_destinations_and_in_the_account():
    bench = bench_of(max_destinations=8)
    peer = bench.peer()
    for number in range(20):
        if not peer.closed:
            peer.subscribe(queue("A", f"VirtualTopic.{number}"), str(number))
    assert peer.error().headers["message"] == "too many destinations"
    assert len(bench.broker.queues) == 2  # each is a queue and a topic: half of all are the share of a session
    bench.audit()


@pytest.mark.parametrize("name", ["VirtualTopic." + "a." * 64 + "*", "VirtualTopic." + "a" * 5000])
def test_a_name_that_cannot_be_matched_is_refused(name):
    bench = bench_of()
    peer = bench.peer()
    peer.subscribe(queue("A", name))
    assert peer.error()
    assert list(bench.broker.queues) == []
    bench.audit()


def test_a_full_queue_makes_the_sender_wait():
    bench = bench_of(max_queue_messages=3)
    consumer(bench, queue("A")).lose()
    sender = bench.peer()
    for number in range(10):
        sender.put(TOPIC, str(number))
    assert sender.session.paused
    peer = consumer(bench, queue("A"))
    assert peer.bodies() == [b"%d" % number for number in range(10)]
    bench.audit()


def test_rules_hold_for_the_topic_behind_the_queue():
    rules = (Rule(destination="/topic/VirtualTopic.private", allow=False), Rule())
    bench = bench_of(rules=rules)
    for name in ("VirtualTopic.private", "VirtualTopic.>"):
        peer = bench.peer()
        peer.subscribe(queue("A", name))
        assert peer.error().headers["message"] == "not allowed to subscribe there"
    assert list(bench.broker.queues) == []
    consumer(bench, queue("A"))


def test_a_queue_that_could_not_be_stored_is_stored_later():
    bench = bench_of(FaultyStore())
    bench.store.faulty = True
    bench.peer().put(queue("A"), "x")
    assert list(bench.store.subscriptions()) == []
    bench.store.faulty = False
    bench.peer().put("/queue/other", "x", persistent="true")
    assert len(list(bench.store.subscriptions())) == 1


def test_a_name_without_a_prefix_is_the_queue():
    """ActiveMQ takes NAME for /queue/NAME; so consumers of virtual topics by their bare names are fed, too."""
    bench = bench_of(rules=(Rule("*", "*", "/queue/secret", allow=False), Rule("*", "*", "*")), large=1000)
    bare = queue("A").removeprefix("/queue/")
    one, other = consumer(bench, bare), consumer(bench, queue("B").removeprefix("/queue/"))
    sender = bench.peer()
    sender.put(TOPIC, "fed" * 1000)
    assert (one.bodies(), other.bodies()) == ([b"fed" * 1000], [b"fed" * 1000])
    one.lose()
    sender.put(TOPIC, "kept")
    sender.put(bare, "sent")
    assert left(bench, queue("A")) == [b"kept", b"sent"]
    for name in ("secret", "/queue/secret"):
        peer = bench.peer()
        peer.put(name, "x")
        assert peer.error()
