"""Dead letters: their headers, NACK that asks for no more attempts, and where they came from, by their message-id."""

import itertools
import json

import pytest
from broker.harness import Bench
from broker.management.managing import Managed
from hypothesis import strategies as st
from patience import patience

import stompcodec.client as stomp
from stompcodec.broker.config import DIALECTS
from stompcodec.broker.message import OF_DURABLE, RETURNS, STRAYS
from stompcodec.broker.storage.salvage import salvage
from stompcodec.testing import StompBroker

#: What an attacker writes to make a message look like a dead letter.
FORGED = {
    **{"dead_letter_reason": "rejected", "original_destination": "/queue/secret", "original_message_id": "e-1"},
    **{"dead_letter_attempts": "6", "dead_letter_time": "1", "message_id": "e-dl-1", "amqMessageId": "e-dl-1"},
}


def bury(peer, destination, **headers):
    """Make dead letters of what waits there. Return what was refused."""
    peer.subscribe(destination, id="b", ack="client-individual", **headers)
    refused = [frame for frame in peer.take() if frame.command == "MESSAGE"]
    for frame in refused:
        peer.nack(frame, requeue="false")
    peer.send("UNSUBSCRIBE", id="b", destination=destination)
    peer.take()
    return refused


def rows(bench, queue):
    found = bench.result("messages", destination=queue)
    return found


def lying(bench):
    """How many messages each queue holds."""
    queues = bench.broker.virtual_host("/").queues.values()
    return {queue.name: queue.total for queue in queues if queue.total}


# What senders write does not count


def test_a_sender_cannot_make_a_letter_that_move_sends_to_a_queue_of_its_choice():
    bench = Managed()
    peer = bench.peer()
    peer.put("/queue/a", "good")
    bury(peer, "/queue/a")
    peer.put("/queue/DLQ.a", "evil", **FORGED)
    good, evil = rows(bench, "/queue/DLQ.a")
    assert (good["origin"], evil["origin"]) == ("/queue/a", None)
    assert ("original-destination", "/queue/secret") in [tuple(pair) for pair in evil["headers"]]  # it stays readable
    result = bench.result("move", destination="/queue/DLQ.a")
    assert (result["messages"], result["skipped"], result["stopped"]) == (1, 1, None)
    assert lying(bench) == {"/queue/DLQ.a": 1, "/queue/a": 1}


WAYS = {
    **{"plain": {}, "transaction": {"transaction": "t"}, "receipt": {"receipt": "r"}, "large": {}},
    **{"key": {"idempotency-key": "k"}, "delay": {"delay": "1"}, "group": {"message_group": "g"}},
    **{"expires": {"expiration": "5000"}, "reply": {"reply-to": "/temp-queue/r"}},
}


@pytest.mark.parametrize("refuses", [False, True])
def test_a_letter_of_a_full_queue_does_not_stop_the_others(refuses):
    bench = Managed(max_queue_messages=100 if refuses else 2)
    peer = bench.peer()
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "DLQ.all"}
    strict = {"x-max-length": "2", "x-overflow": "reject-publish", **letters}
    for name in ("a", "b"):
        peer.put(f"/queue/{name}", "1", **(strict if refuses else letters))
        bury(peer, f"/queue/{name}")
    peer.put("/queue/a", "2")
    peer.put("/queue/a", "3")
    result = bench.result("move", destination="/queue/DLQ.all")
    assert (result["messages"], result["skipped"], result["stopped"]) == (1, 1, None)
    assert lying(bench) == {"/queue/a": 2, "/queue/b": 1, "/queue/DLQ.all": 1}
    result = bench.result("move", destination="/queue/DLQ.all", to="/queue/a")
    assert (result["messages"], result["stopped"]) == (0, "/queue/a is full")


def test_a_letter_of_a_topic_does_not_go_to_a_queue_that_has_its_name_later():
    """In Artemis, `a` may be a topic, and a queue later."""
    bench = Managed(dialect="artemis")
    peer = bench.peer()
    peer.subscribe("a", id="1", ack="client-individual", **{"subscription-type": "MULTICAST"})
    peer.put("a", "x", **{"destination-type": "MULTICAST"})
    peer.nack(peer.next("MESSAGE"), requeue="false")
    peer.send("UNSUBSCRIBE", id="1")
    peer.put("a", "y", **{"destination-type": "ANYCAST"})
    (letters,) = (queue for queue in lying(bench) if "DLQ" in queue)
    assert bench.result("move", destination=letters)["skipped"] == 1
    assert lying(bench) == {letters: 1, "a": 1}


# The same queue, in all dialects

NAMES = st.text("ab/.,: *>#~-_é\\", min_size=1, max_size=12)
PREFIXES = ["", "/", "/queue/", "/amq/queue/", "queue/", "jms.queue.", "queue://", "/foo/", "/exchange/"]
CONFIGS = [*({"dialect": name} for name in DIALECTS)] + [
    {"dialect": "artemis", "anycast_prefix": "queue/", "multicast_prefix": "topic/"},
    {"dialect": "stompcodec", "queue_prefixes": ("jms.queue.", "/queue/")},
]


# Pages, restarts and older folders


def ask(broker, request, **fields):
    with stomp.connect(broker.url) as client:
        answer = json.loads(client.request(f"/management/{request}", json.dumps(fields), timeout=patience(20)).body)
    return answer


def fill(broker, count, persistent=True):
    """Have dead letters, small and large, and one that is forged behind them."""
    kept = {"persistent": "true"} if persistent else {}
    with stomp.connect(broker.url) as client:
        for number in range(count):
            body = b"%d" % number if number % 5 else b"%d" % number + bytes(70_000)
            client.send("/queue/a", body, {**kept, "priority": str(4 + number % 2)}, receipt=True)
        bad = client.subscribe("/queue/a", ack="client-individual")
        for _ in range(count):
            message = bad.get(timeout=patience(20))
            assert message is not None
            message.nack(requeue=False, receipt=True)
        forged = {name.replace("_", "-"): value for name, value in FORGED.items() if name != "message_id"}
        client.send("/queue/DLQ.a", b"forged", {**kept, **forged}, receipt=True)


def check_origins(broker, count):
    found = [row["origin"] for row in ask(broker, "messages", destination="/queue/DLQ.a", body=0)["rows"]]
    assert sorted(map(str, found)) == ["/queue/a"] * count + ["None"]
    result = ask(broker, "move", destination="/queue/DLQ.a")["result"]
    assert (result["messages"], result["skipped"]) == (count, 1)
    ready = {row["destination"]: row["ready"] for row in ask(broker, "destinations")["rows"]}
    assert (ready["/queue/a"], ready["/queue/DLQ.a"]) == (count, 1)


@pytest.mark.parametrize("ends", ["spool", "restart", "salvage"])
def test_the_origin_survives_pages_restarts_and_salvage(tmp_path, ends):
    config = {"data": str(tmp_path / "data"), "window_messages": 2}
    with StompBroker(**config) as broker:
        fill(broker, 12, persistent=ends != "spool")
        if ends == "spool":
            check_origins(broker, 12)
    if ends == "salvage":
        salvage(tmp_path / "data", tmp_path / "saved")
    if ends != "spool":
        config["data"] = str(tmp_path / ("saved" if ends == "salvage" else "data"))
        with StompBroker(**config) as broker:
            check_origins(broker, 12)


def test_the_marks_differ_and_are_not_part_of_other_ids():
    marks = (RETURNS, OF_DURABLE, STRAYS)
    assert not any(one in other for one, other in itertools.permutations(marks, 2))
    bench = Managed()
    assert bench.broker.ident.count(b"-") == 1


# ---- headers ----

DEAD = "/queue/DLQ.a"


def letter_of(bench):
    peer = bench.peer()
    peer.subscribe(DEAD)
    message = peer.next("MESSAGE")
    peer.lose()
    return message


@pytest.mark.parametrize("persistent", ["true", "false"])
def test_it_says_why(persistent):
    bench = Bench(max_attempts=2)
    peer = bench.peer()
    peer.put("/queue/a", "x", k="v", persistent=persistent, priority="7", dead_letter_reason="forged")
    peer.subscribe("/queue/a", ack="client")
    for _ in range(2):
        bench.date += 1
        peer.nack(peer.next("MESSAGE"))
    assert peer.take() == []
    letter = letter_of(bench)
    names = ("reason", "attempts", "time", "first-time")
    assert [letter.headers.getall(f"dead-letter-{name}") for name in names] == [
        ["max-attempts"],
        ["2"],
        ["1000002000"],
        ["1000002000"],
    ]
    assert letter.headers["original-destination"] == "/queue/a"
    assert letter.headers["original-message-id"] == "e-1"
    assert (letter.body, letter.headers["k"], letter.headers["priority"]) == (b"x", "v", "7")
    assert list(bench.store.load()) == []


@pytest.mark.parametrize("transaction", [None, "t"])
@pytest.mark.parametrize("value", ["false", "true"])
def test_requeue_false_gives_no_other_attempt(value, transaction):
    bench = Bench()
    peer = bench.peer()
    peer.put("/queue/a", "x")
    peer.subscribe("/queue/a", ack="client-individual")
    message = peer.next("MESSAGE")
    if transaction is None:
        peer.nack(message, requeue=value)
    else:
        peer.send("BEGIN", transaction="t")
        peer.nack(message, requeue=value, transaction="t")
        assert peer.take() == []
        peer.send("COMMIT", transaction="t")
    if value == "true":
        assert peer.next("MESSAGE").headers["redelivery-count"] == "1"
    else:
        assert peer.take() == []
        letter = letter_of(bench)
        assert letter.headers["dead-letter-reason"] == "rejected"
        assert letter.headers["dead-letter-attempts"] == "1"


def test_requeue_false_where_there_is_no_room_loses_nothing():
    bench = Bench(max_queue_messages=1)
    peer, sender = bench.peer(), bench.peer()
    for _ in range(2):
        sender.put(DEAD, "full")
    sender = bench.peer()
    sender.put("/queue/a", "x")
    peer.subscribe("/queue/a", ack="client")
    peer.nack(peer.next("MESSAGE"), requeue="false")
    assert peer.next("MESSAGE").headers["redelivered"] == "true"
