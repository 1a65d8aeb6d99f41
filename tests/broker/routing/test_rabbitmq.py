"""RabbitMQ's ways: exchanges, queues made elsewhere, queues of a session, replies, and what is refused."""

import pytest
from broker.harness import Bench, bench_with_two

from stompcodec.broker.auth import Rule, User, hash_passcode
from stompcodec.broker.config import DIALECTS

USERS = {name: User(name, hash_passcode("guest", n=16)) for name in ("ada", "bob")}


def bench_of(**config):
    return bench_with_two(**{**DIALECTS["rabbitmq"], **config})


@pytest.mark.parametrize(
    ("exchange", "pattern", "key", "fits", "from_topic"),
    [
        ("amq.topic", "a.*", "a.b", True, True),
        ("amq.topic", "a.*", "b.b", False, False),
        ("amq.direct", "a.b", "a.b", True, False),
        ("amq.direct", "a.*", "a.b", False, False),
        ("amq.direct", "a.*", "a.*", True, False),
        ("amq.fanout", "a", "b", True, False),
        ("orders", "a.*", "a.b", True, False),
        ("orders", "*.b", "a.b", True, False),
        ("orders", "a.*", "b.b", False, False),
        ("spread", "", "b", True, False),
    ],
)
def test_exchanges(exchange, pattern, key, fits, from_topic):
    _bench, sender, consumer = bench_of(exchanges={"orders": "topic", "spread": "fanout"})
    consumer.subscribe(f"/exchange/{exchange}/{pattern}")
    sender.put(f"/exchange/{exchange}/{key}", "x")
    sender.put(f"/topic/{key}", "topics")
    assert consumer.bodies() == [b"x"] * fits + [b"topics"] * from_topic


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
def test_an_unknown_exchange_is_refused(command):
    _bench, peer, _ = bench_of()
    peer.send(command, destination="/exchange/nothing/a", id="1")
    assert peer.error().headers["message"] == "no such exchange"


def test_rules_hold_for_the_topic_behind_a_named_queue():
    rules = (Rule("ada", destination="/topic/private"), Rule(destination="/queue/*"))
    bench = Bench(**DIALECTS["rabbitmq"], rules=rules, users=USERS)
    ada, bob = bench.peer(connect=False), bench.peer(connect=False)
    ada.connect(login="ada")
    bob.connect(login="bob")
    ada.send("SUBSCRIBE", destination="/topic/private", id="1", x_queue_name="q", durable="true")
    ada.send("SUBSCRIBE", destination="/amq/queue/q", id="2", receipt="r")
    assert ada.next().command == "RECEIPT"
    bob.subscribe("/amq/queue/q")
    assert bob.error().headers["message"] == "not allowed to subscribe there"


def test_a_message_id_is_refused():
    _bench, sender, _ = bench_of()
    for _ in range(2):
        sender.put("/queue/a", "x")
    sender.put("/queue/a", "x", message_id="1")
    assert sender.error().headers["message"] == "message-id must not be set"


def test_an_exclusive_queue_is_its_sessions():
    bench, sender, owner = bench_of(refuse_message_id=False)
    owner.subscribe("/queue/mine", exclusive="true")
    other = bench.peer()
    other.subscribe("/queue/mine")
    assert "another session" in other.error().headers["message"]
    sender.put("/queue/mine", "1", persistent="true")
    assert owner.bodies() == [b"1"]
    owner.send("UNSUBSCRIBE", id="1")
    sender.put("/queue/mine", "2", persistent="true")
    assert len(list(bench.store.load())) == 1
    assert "/queue/mine" in sender.session.cached_targets
    owner.lose()
    bench.peer().put("/queue/x", "x", persistent="true")
    assert [found.destination for found in bench.store.load()] == ["/queue/x"]
    assert list(bench.broker.queues) == [("/", "/queue/x")]
    sender.put("/queue/mine", "3")  # what it knew of the queue is forgotten
    late = bench.peer()
    late.subscribe("/queue/mine")
    assert late.bodies() == [b"3"]


@pytest.mark.parametrize("before", [False, True])
def test_an_auto_delete_queue_ends_with_its_last_consumer_if_that_made_it(before):
    bench, sender, one = bench_of()
    two = bench.peer()
    if before:
        sender.put("/queue/a", "0")
        two.subscribe("/queue/a", exclusive="true")
        assert two.error().headers["message"] == "the queue is not exclusive"
        two = bench.peer()
    for peer in (one, two):
        peer.subscribe("/queue/a", auto_delete="true", ack="client", prefetch_count="1")
    for number in range(4):
        sender.put("/queue/a", str(number), persistent="true")
    one.lose()
    assert bench.broker.queues["/", "/queue/a"].count == 4 + before
    two.send("UNSUBSCRIBE", id="1", receipt="r")
    if before:
        assert bench.broker.queues["/", "/queue/a"].count == 5
    else:
        assert (bench.broker.queues, list(bench.store.load()), bench.octets) == ({}, [], 0)


@pytest.mark.parametrize("settled", [True, False])
def test_a_transaction_that_outlives_its_queue(settled):
    """It holds a delivery of a queue that is gone."""
    bench, sender, peer = bench_of()
    peer.subscribe("/queue/a", auto_delete="true", ack="client-individual")
    sender.put("/queue/a", "1", persistent="true")
    peer.send("BEGIN", transaction="t")
    peer.ack(peer.next("MESSAGE"), transaction="t")
    peer.send("UNSUBSCRIBE", id="1")
    peer.send("COMMIT" if settled else "ABORT", transaction="t")
    bench.peer().put("/queue/x", "x", persistent="true")
    assert [found.destination for found in bench.store.load()] == ["/queue/x"]
    assert list(bench.broker.queues) == [("/", "/queue/x")]


# ---- queues that SUBSCRIBE names ----

FORMS = ("Q", "/queue/Q", "/amq/queue/Q")


@pytest.mark.parametrize("topic", ["/topic/t", "/topic/t.#", "/exchange/amq.topic/t", "/exchange/amq.fanout/t"])
@pytest.mark.parametrize("how", [{}, {"durable": "true"}, {"durable": "true", "auto_delete": "false"}])
def test_a_queue_that_a_subscription_names_has_three_names(topic, how):
    bench, sender, peer = bench_of()
    for name in FORMS[:2]:  # what a session remembers of the names from before
        sender.put(name, "before")
        peer.subscribe(name, "before")
        assert peer.bodies() == [b"before"]
        peer.send("UNSUBSCRIBE", id="before")
    for version in ("1.0", "1.1", "1.2") if how else ("1.2",):
        peer = bench.peer(version)
        peer.subscribe(topic, "1", x_queue_name="Q", **how)
        for name in FORMS:
            sender.put(name, name, persistent="true")
        sender.put(topic.replace("#", "x"), "by the topic", persistent="true")
        assert peer.bodies() == [name.encode() for name in (*FORMS, "by the topic")]
        for name in FORMS:
            other = bench.peer(version)
            other.subscribe(name, "2", ack="client")
            for body in ("1", "2"):
                sender.put(topic.replace("#", "x"), body)
            assert sorted(peer.bodies() + other.bodies()) == [b"1", b"2"]
            other.lose()
            peer.take()
        bench.audit()
        if how:
            bench = Bench(bench.store, **DIALECTS["rabbitmq"])
            sender = bench.peer()


@pytest.mark.parametrize("persistent", ["true", "false"])
@pytest.mark.parametrize("name", FORMS[:2])
def test_a_queue_that_was_there_becomes_that_of_the_subscription(persistent, name):
    bench, sender, peer = bench_of()
    sender.put(name, "1", persistent=persistent)
    sender.put(name, "2", persistent=persistent)
    peer.subscribe("/topic/t", "1", x_queue_name="Q", durable="true", ack="client")
    sender.put("/topic/t", "3", persistent=persistent)
    sender.put(name, "4", persistent=persistent)
    assert peer.bodies() == [b"1", b"2", b"3", b"4"]
    assert list(bench.broker.queues) == []
    bench = Bench(bench.store, **DIALECTS["rabbitmq"])
    late = bench.peer()
    late.subscribe(name)
    assert late.bodies() == ([b"1", b"2", b"3", b"4"] if persistent == "true" else [])
    assert list(bench.store.load()) == []


@pytest.mark.parametrize("reason", ["a consumer", "unacknowledged", "not durable", "too many"])
def test_a_queue_that_is_in_use_cannot_be_named(reason):
    bench, sender, peer = bench_of()
    for _ in range(1001 if reason == "too many" else 1):
        sender.put("/queue/Q", "x")
    if reason in ("a consumer", "unacknowledged"):
        bench.peer().subscribe("/queue/Q", ack="auto" if reason == "a consumer" else "client")
    peer.subscribe("/topic/t", "1", x_queue_name="Q", **({} if reason == "not durable" else {"durable": "true"}))
    assert peer.error().headers["message"] == "a queue of that name exists"
    assert bench.broker.queues["/", "/queue/Q"].count == {"a consumer": 0, "too many": 1001}.get(reason, 1)


def test_without_exchanges_names_are_opaque():
    bench = Bench()
    peer = bench.peer()
    peer.subscribe("/topic/t", "1", x_queue_name="Q", durable="true")
    for name in FORMS:
        peer.put(name, "x")
    assert peer.take() == []
    assert len(bench.broker.queues) == 3
