"""Dead letters: their headers, NACK that asks for no more attempts, and where they came from, by their message-id."""

import itertools

import pytest
from broker.harness import Bench
from broker.management.managing import Managed
from broker.moves import QUEUE, messages, put_all, taker, transaction
from broker.storage.storing import inline

from stompcodec.broker.message import OF_DURABLE, RETURNS, STRAYS
from stompcodec.broker.storage.salvage import salvage

DEAD = "/queue/DLQ.a"
#: What an attacker writes to make a message look like a dead letter.
FORGED = {
    **{"dead-letter-reason": "rejected", "original-destination": "/queue/secret", "original-message-id": "e-1"},
    **{"dead-letter-attempts": "6", "dead-letter-time": "1", "amqMessageId": "e-dl-1"},
}


def letter_of(bench):
    peer = taker(bench, DEAD)
    message = peer.next("MESSAGE")
    peer.lose()
    return message


# ---- headers ----
@pytest.mark.parametrize("persistent", ["true", "false"])
def test_it_says_why(persistent):
    bench = Bench(max_attempts=2)
    headers = {"k": "v", "persistent": persistent, "priority": "7", "reply_to": "/queue/r"}
    bench.peer().put(QUEUE, "x", dead_letter_reason="forged", **headers)
    peer = taker(bench, ack="client")
    for _ in range(2):
        bench.date += 1
        peer.nack(peer.next("MESSAGE"))
    assert peer.take() == []
    letter = letter_of(bench)
    found = {key: letter.headers.getall(f"dead-letter-{key}") for key in ("reason", "attempts", "time", "first-time")}
    time = ["1000002000"]
    assert found == {"reason": ["max-attempts"], "attempts": ["2"], "time": time, "first-time": time}
    assert (letter.headers["original-destination"], letter.headers["original-message-id"]) == (QUEUE, "e-1")
    assert letter.body == b"x"
    assert all(letter.headers[name.replace("_", "-")] == value for name, value in headers.items())
    assert list(bench.store.load()) == []


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("value", ["false", "true"])
def test_requeue_false_gives_no_other_attempt(value, inside):
    bench = Bench()
    bench.peer().put(QUEUE, "x")
    peer = taker(bench, ack="client-individual")
    message = peer.next("MESSAGE")
    if inside:
        with transaction(peer):
            peer.nack(message, requeue=value, transaction="t")
            assert peer.take() == []
    else:
        peer.nack(message, requeue=value)
    if value == "true":
        assert peer.next("MESSAGE").headers["redelivery-count"] == "1"
    else:
        assert peer.take() == []
        headers = letter_of(bench).headers
        assert (headers["dead-letter-reason"], headers["dead-letter-attempts"]) == ("rejected", "1")


def test_requeue_false_where_there_is_no_room_loses_nothing():
    bench = Bench(max_queue_messages=1)
    put_all(bench.peer(), ["full"] * 2, DEAD)
    bench.peer().put(QUEUE, "x")
    peer = taker(bench, ack="client")
    peer.nack(peer.next("MESSAGE"), requeue="false")
    assert peer.next("MESSAGE").headers["redelivered"] == "true"


def test_the_marks_differ_and_are_not_part_of_other_ids():
    assert not any(one in other for one, other in itertools.permutations((RETURNS, OF_DURABLE, STRAYS), 2))
    assert Managed().broker.ident.count(b"-") == 1


def bury(peer, destination):
    """Make dead letters of what waits there."""
    peer.subscribe(destination, id="b", ack="client-individual")
    for frame in messages(peer):
        peer.nack(frame, requeue="false")
    peer.send("UNSUBSCRIBE", id="b", destination=destination)
    peer.take()


def move(bench, **fields):
    """How many were moved and left, and why no more."""
    result = bench.result("move", **fields)
    return result["messages"], result["skipped"], result["stopped"]


def lying(bench):
    queues = bench.broker.virtual_host("/").queues.values()
    return {queue.name: queue.total for queue in queues if queue.total}


@pytest.mark.parametrize("refuses", [False, True])
def test_a_letter_of_a_full_queue_does_not_stop_the_others(refuses):
    bench = Managed(max_queue_messages=100 if refuses else 2)
    peer = bench.peer()
    headers = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "DLQ.all"}
    if refuses:
        headers |= {"x-max-length": "2", "x-overflow": "reject-publish"}
    for name in (QUEUE, "/queue/b"):
        peer.put(name, "1", **headers)
        bury(peer, name)
    put_all(peer, "23")
    assert move(bench, destination="/queue/DLQ.all") == (1, 1, None)
    assert lying(bench) == {QUEUE: 2, "/queue/b": 1, "/queue/DLQ.all": 1}
    moved, _, stopped = move(bench, destination="/queue/DLQ.all", to=QUEUE)
    assert (moved, stopped) == (0, "/queue/a is full")


def test_a_letter_of_a_topic_does_not_go_to_a_queue_that_has_its_name_later():
    """In Artemis, `a` may be a topic, and a queue later."""
    bench = Managed(dialect="artemis", nack="requeue", dead_letter="/queue/DLQ.{name}", max_attempts=1)
    peer = taker(bench, "a", ack="client-individual", **{"subscription-type": "MULTICAST"})
    peer.put("a", "x", **{"destination-type": "MULTICAST"})
    peer.nack(peer.next("MESSAGE"))
    peer.send("UNSUBSCRIBE", id="1")
    peer.put("a", "y", **{"destination-type": "ANYCAST"})
    (letters,) = (queue for queue in lying(bench) if "DLQ" in queue)
    assert move(bench, destination=letters)[1] == 1
    assert lying(bench) == {letters: 1, "a": 1}


@pytest.mark.parametrize("ends", ["spool", "restart", "salvage"])
def test_the_origin_survives_pages_restarts_and_salvage(tmp_path, ends):
    """And no sender can make a letter that `move` sends to a queue of its choice."""
    data, kept = tmp_path / "data", {} if ends == "spool" else {"persistent": "true"}
    bench = Managed(inline(data), window_messages=2, transient="spool")
    peer = bench.peer()
    for number in range(12):  # small and large
        body = b"%d" % number + bytes(0 if number % 5 else 70_000)
        peer.put(QUEUE, body, priority=str(4 + number % 2), **kept)
    bury(peer, QUEUE)
    peer.put(DEAD, "forged", message_id="e-dl-1", **kept, **FORGED)
    if ends != "spool":
        bench.store.close()
        if ends == "salvage":
            salvage(data, data := tmp_path / "saved")
        bench = Managed(inline(data), window_messages=2)
    *letters, forged = sorted(bench.result("messages", destination=DEAD), key=lambda row: row["origin"] is None)
    assert [row["origin"] for row in (*letters, forged)] == [QUEUE] * 12 + [None]
    assert ["original-destination", "/queue/secret"] in map(list, forged["headers"]), "it stays readable"
    assert move(bench, destination=DEAD) == (12, 1, None)
    assert lying(bench) == {QUEUE: 12, DEAD: 1}
    bench.store.close()
