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


# ---- transactions, and the order ----


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


@pytest.mark.parametrize("name", ["VirtualTopic." + "a." * 64 + "*", "VirtualTopic." + "a" * 5000])
def test_a_name_that_cannot_be_matched_is_refused(name):
    bench = bench_of()
    peer = bench.peer()
    peer.subscribe(queue("A", name))
    assert peer.error()
    assert list(bench.broker.queues) == []
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
