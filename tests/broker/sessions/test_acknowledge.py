"""ACK, NACK, redelivery and dead letters, in all versions and ack modes."""

import pytest
from broker.harness import Bench

VERSIONS = ["1.0", "1.1", "1.2"]


def filled(count, **config):
    """A bench with `count` messages in /queue/a, and its sender."""
    bench = Bench(**config)
    sender = bench.peer()
    for number in range(count):
        sender.put("/queue/a", str(number))
    return bench, sender


def queue_of(bench, name="/queue/a"):
    return bench.broker.queues["/", name]


def left(bench, name="/queue/a"):
    """Bodies of what the queue still has, with the count of deliveries."""
    peer = bench.peer()
    peer.subscribe(name)
    frames = peer.take()
    return [(frame.body.decode(), int(frame.get("redelivery-count", "0"))) for frame in frames]


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_message_ids_that_never_were(version):
    bench, _ = filled(1)
    peer = bench.peer(version)
    peer.subscribe("/queue/a", ack="client")
    message_id = peer.next("MESSAGE").headers["message-id"]
    peer.send("ACK", message_id=message_id, subscription="2" if version == "1.1" else "1", receipt="r")
    if version == "1.0":
        peer.next("RECEIPT")
        peer.send("ACK", message_id=message_id)
    assert peer.error().headers["message"] == "no such delivery"


# ---- redelivery ----


@pytest.mark.req("S12-SUB-10", "S11-SUB-09")
@pytest.mark.parametrize("end", ["lose", "disconnect", "unsubscribe", "error"])
def test_what_is_not_acknowledged_comes_back_in_order(end):
    bench, sender = filled(5)
    peer = bench.peer()
    peer.subscribe("/queue/a", ack="client-individual")
    messages = peer.take()
    peer.ack(messages[1])
    sender.put("/queue/a", "late")
    peer.take()
    if end == "lose":
        peer.lose()
    elif end == "disconnect":
        peer.send("DISCONNECT")
    elif end == "unsubscribe":
        peer.send("UNSUBSCRIBE", id="1")
    else:
        peer.send("COMMIT", transaction="none")
    other = bench.peer()
    other.subscribe("/queue/a")
    frames = other.take()
    assert [frame.body for frame in frames] == [b"0", b"2", b"3", b"4", b"late"]
    assert {frame.headers["redelivered"] for frame in frames} == {"true"}
    assert {frame.headers["redelivery-count"] for frame in frames} == {"1"}
    assert queue_of(bench).count == 0


@pytest.mark.req("S12-NAK-01", "S12-NAK-02", "S11-NAK-01", "S11-NAK-02", "S11-SUB-04", "WISH-NAK-01")
@pytest.mark.parametrize("version", VERSIONS[1:])
def test_nack_delivers_again_in_front(version):
    bench, _ = filled(3)
    peer = bench.peer(version)
    peer.subscribe("/queue/a", ack="client-individual", prefetch_count="2")
    one, two = peer.take()
    peer.nack(one, receipt="n")
    receipt, again = peer.take()
    assert receipt.headers["receipt-id"] == "n"
    assert (again.body, again.headers["redelivered"], again.headers["redelivery-count"]) == (b"0", "true", "1")
    assert again.headers["message-id"] == one.headers["message-id"]
    assert two.get("redelivered") is None
    peer.ack(again)
    peer.ack(two)
    assert peer.bodies() == [b"2"]


def test_an_ack_of_a_subscription_that_ended():
    bench, _ = filled(1)
    peer = bench.peer()
    peer.subscribe("/queue/a", ack="client")
    message = peer.next("MESSAGE")
    peer.send("UNSUBSCRIBE", id="1")
    peer.ack(message)
    assert not peer.closed
    peer.subscribe("/queue/a", "1", ack="client")
    again = peer.next("MESSAGE")
    assert again.headers["ack"] != message.headers["ack"]
    peer.ack(message, receipt="r")
    assert peer.error().headers["receipt-id"] == "r"
    assert left(bench) == [("0", 2)]


# ---- dead letters ----


@pytest.mark.parametrize("attempts", [1, 6])
def test_after_the_last_attempt_it_is_a_dead_letter(attempts):
    bench = Bench(max_attempts=attempts)
    peer = bench.peer()
    peer.put("/queue/a", b"a\0b", x="a:b", persistent="true", reply_to="/queue/r")
    peer.subscribe("/queue/a", ack="client-individual")
    for number in range(attempts):
        message = peer.next("MESSAGE")
        assert int(message.get("redelivery-count", "0")) == number
        peer.nack(message)
    assert peer.take() == []
    assert [stored.destination for stored in bench.store.load()] == ["/queue/DLQ.a"]
    peer.subscribe("/queue/DLQ.a", "2", ack="client")
    letter = peer.next("MESSAGE")
    assert letter.body == b"a\0b"
    assert letter.headers["destination"] == "/queue/DLQ.a"
    assert letter.headers["original-destination"] == "/queue/a"
    assert letter.headers["dead-letter-reason"] == "max-attempts"
    assert (letter.headers["x"], letter.headers["persistent"], letter.headers["reply-to"]) == (
        "a:b",
        "true",
        "/queue/r",
    )
    assert letter.get("redelivered") is None
    for _ in range(3 * attempts):  # a dead letter does not die again
        peer.nack(letter)
        letter = peer.next("MESSAGE")
    peer.ack(letter)
    assert list(bench.store.load()) == []
    assert bench.octets == 0


@pytest.mark.parametrize("persistent", ["true", "false"])
@pytest.mark.parametrize(("end", "headers"), [("UNSUBSCRIBE", {"id": "1"}), ("DISCONNECT", {"receipt": "r"})])
def test_what_is_given_back_without_a_try_is_no_attempt(end, headers, persistent):
    """Unlike a lost connection: only redelivered:true is left of it. What failed before keeps its count."""
    bench = Bench()
    bench.peer().put("/queue/a", "x", persistent=persistent)
    for nacks in (0, 0, 3, 0, 0):
        peer = bench.peer()
        peer.subscribe("/queue/a", ack="client-individual")
        for _ in range(nacks):
            peer.nack(peer.next("MESSAGE"))
        peer.send(end, **headers)
    other = bench.peer()
    other.subscribe("/queue/a", ack="client-individual")
    message = other.next("MESSAGE")
    assert (message.get("redelivered"), message.get("redelivery-count")) == ("true", "4")


def test_a_full_dead_letter_queue_loses_nothing():
    bench, sender = filled(0, max_attempts=1, max_queue_messages=3)
    peer = bench.peer()
    peer.subscribe("/queue/a", ack="client-individual")
    for number in range(6):
        sender.put("/queue/a", str(number))
        peer.nack(peer.next("MESSAGE"))
    kept = [message.body for message in peer.take()]
    dead = queue_of(bench, "/queue/DLQ.a").count
    assert (len(kept), dead) == (2, 4)
    assert queue_of(bench).count == 2
