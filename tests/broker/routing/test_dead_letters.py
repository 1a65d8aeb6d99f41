"""The headers of dead letters, and NACK that asks for no more attempts."""

import pytest
from broker.harness import Bench

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


def test_a_letter_that_is_sent_again_and_dies_again_keeps_the_first_time():
    bench = Bench(max_attempts=1)
    peer, sender = bench.peer(), bench.peer()
    sender.put("/queue/a", "x")
    peer.subscribe("/queue/a", ack="client")
    peer.nack(peer.next("MESSAGE"))
    first = letter_of(bench)
    bench.date += 5
    sender.put("/queue/a", first.body, **{"dead-letter-first-time": first.headers["dead-letter-first-time"]})
    peer.nack(peer.next("MESSAGE"))
    again = letter_of(bench)
    assert again.headers["dead-letter-first-time"] == "1000000000"
    assert again.headers["dead-letter-time"] == "1000005000"


def test_a_letter_of_a_delayed_message_is_not_delayed():
    bench = Bench(max_attempts=1)
    peer = bench.peer()
    peer.put("/queue/a", "x", delay="1000", persistent="true")
    peer.subscribe("/queue/a", ack="client")
    bench.date += 2
    bench.wait(2)
    peer.nack(peer.next("MESSAGE"))
    bench = Bench(bench.store)
    assert letter_of(bench).body == b"x"
