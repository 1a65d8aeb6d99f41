"""RabbitMQ's ways: exchanges, queues made elsewhere, queues of a session, replies, and what is refused."""

import pytest
from broker.harness import Bench

from stompcodec.broker.auth import Rule, User, hash_passcode
from stompcodec.broker.dialects import DIALECTS

USERS = {name: User(name, hash_passcode("guest", n=16)) for name in ("ada", "bob")}


def bench_of(**config):
    bench = Bench(**{**DIALECTS["rabbitmq"], **config})
    return bench, bench.peer(), bench.peer()


def test_the_topic_exchange_is_that_of_topics():
    _bench, sender, consumer = bench_of()
    consumer.subscribe("/exchange/amq.topic/a.*", "1")
    consumer.subscribe("/topic/a.#", "2")
    sender.put("/exchange/amq.topic/a.b", "1")
    sender.put("/topic/a.b", "2")
    got = [(frame.headers["subscription"], frame.body) for frame in consumer.take()]
    assert sorted(got) == [("1", b"1"), ("1", b"2"), ("2", b"1"), ("2", b"2")]


@pytest.mark.parametrize(
    ("exchange", "pattern", "key", "fits"),
    [
        ("amq.direct", "a.b", "a.b", True),
        ("amq.direct", "a.*", "a.b", False),
        ("amq.direct", "a.*", "a.*", True),
        ("amq.fanout", "a", "b", True),
        ("orders", "a.*", "a.b", True),
        ("orders", "*.b", "a.b", True),
        ("orders", "a.*", "b.b", False),
        ("spread", "", "b", True),
    ],
)
def test_exchanges(exchange, pattern, key, fits):
    _bench, sender, consumer = bench_of(exchanges={"orders": "topic", "spread": "fanout"})
    consumer.subscribe(f"/exchange/{exchange}/{pattern}")
    sender.put(f"/exchange/{exchange}/{key}", "x")
    sender.put(f"/topic/{key}", "another exchange")
    assert consumer.bodies() == ([b"x"] if fits else [])


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
def test_an_unknown_exchange_is_refused(command):
    _bench, peer, _ = bench_of()
    peer.send(command, destination="/exchange/nothing/a", id="1")
    assert peer.error().headers["message"] == "no such exchange"


def test_without_the_key_it_is_a_name_like_others():
    bench = Bench()
    bench.peer().put("/exchange/nothing/a", "x")
    assert list(bench.broker.queues) == [("/", "/exchange/nothing/a")]


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
def test_a_queue_made_elsewhere(command):
    bench, sender, consumer = bench_of()
    sender.put("/queue/a", "1")
    sender.put("/amq/queue/a", "2")
    consumer.subscribe("/amq/queue/a")
    assert consumer.bodies() == [b"1", b"2"]
    assert list(bench.broker.queues) == [("/", "/queue/a")]
    sender.send(command, destination="/amq/queue/b", id="1")
    assert sender.error().headers["message"] == "no such queue"


def test_rules_hold_for_other_names_of_a_destination():
    rules = (
        Rule(destination="/queue/private", allow=False),
        Rule(destination="/topic/private", allow=False),
        Rule(destination="/queue/*"),
        Rule(destination="/topic/*"),
    )
    for destination in ("/amq/queue/private", "/exchange/amq.topic/private", "/exchange/amq.topic/#"):
        _bench, peer, _ = bench_of(rules=rules)
        peer.send("SUBSCRIBE", destination=destination, id="1")
        assert peer.error().headers["message"] == "not allowed to subscribe there"


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


def test_a_reply_to_subscribes_its_sender():
    bench, asking, answering = bench_of()
    answering.subscribe("/queue/ask")
    for number in range(2):
        asking.put("/queue/ask", str(number), reply_to="/temp-queue/back")
        question = answering.next("MESSAGE")
        answering.put(question.headers["reply-to"], f"answer {number}")
        answer = asking.next("MESSAGE")
        assert (answer.headers["subscription"], answer.body) == ("/temp-queue/back", b"answer %d" % number)
    other = bench.peer()
    other.put("/queue/ask", "2", reply_to=question.headers["reply-to"])  # somebody else's is passed on
    assert answering.next("MESSAGE").headers["reply-to"] == question.headers["reply-to"]
    assert len(other.session.consumers) == 0
    asking.send("UNSUBSCRIBE", id="/temp-queue/back", receipt="r")
    assert asking.next().command == "RECEIPT"


def test_a_message_id_is_refused():
    _bench, sender, _ = bench_of()
    for _ in range(2):
        sender.put("/queue/a", "x")
    sender.put("/queue/a", "x", message_id="1")
    assert sender.error().headers["message"] == "message-id must not be set"


def test_a_message_id_is_replaced_otherwise():
    bench = Bench()
    peer = bench.peer()
    peer.subscribe("/queue/a")
    peer.put("/queue/a", "x", message_id="1")
    assert peer.next("MESSAGE").headers["message-id"] == "e-1"


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
    assert "/queue/mine" in sender.session.sinks
    owner.lose()
    bench.peer().put("/queue/x", "x", persistent="true")
    assert [found.destination for found in bench.store.load()] == ["/queue/x"]
    assert list(bench.broker.queues) == [("/", "/queue/x")]
    sender.put("/queue/mine", "3")  # what it knew of the queue is forgotten
    late = bench.peer()
    late.subscribe("/queue/mine")
    assert late.bodies() == [b"3"]


def test_a_queue_that_was_made_for_everyone_is_not_exclusive():
    _bench, sender, peer = bench_of()
    sender.put("/queue/a", "x")
    peer.subscribe("/queue/a", exclusive="true")
    assert peer.error().headers["message"] == "the queue is not exclusive"


def test_an_auto_delete_queue_ends_with_its_last_consumer():
    bench, sender, one = bench_of()
    two = bench.peer()
    one.subscribe("/queue/a", auto_delete="true", ack="client", prefetch_count="1")
    two.subscribe("/queue/a", auto_delete="true", ack="client", prefetch_count="1")
    for number in range(4):
        sender.put("/queue/a", str(number), persistent="true")
    one.lose()
    assert bench.broker.queues["/", "/queue/a"].count == 4
    two.send("UNSUBSCRIBE", id="1", receipt="r")
    assert bench.broker.queues == {}
    assert list(bench.store.load()) == []
    assert bench.octets == 0


def test_others_stay():
    bench, sender, one = bench_of()
    sender.put("/queue/a", "0")
    one.subscribe("/queue/a", auto_delete="true", ack="client")  # it was there before
    one.lose()
    assert bench.broker.queues["/", "/queue/a"].count == 1


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
