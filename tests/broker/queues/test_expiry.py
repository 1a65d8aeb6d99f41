"""Messages that expire: while they are READY or UNACKED, and invalid expiry times."""

import pytest
from broker.harness import Bench


@pytest.mark.parametrize("headers", [{"expires": "1000005000"}, {"expiration": "5000"}])
def test_expired_messages_are_dropped(headers):
    bench = Bench()
    peer = bench.peer()
    for number in range(3):
        peer.put("/queue/a", str(number), **(headers if number % 2 == 0 else {}))
    bench.date += 4.9
    bench.wait(2.0)
    queue = bench.broker.queues["/", "/queue/a"]
    assert queue.count == 3
    bench.date += 0.2
    if headers.get("expires"):
        bench.wait(2.0)  # found by the sweep
        assert queue.count == 1
    peer.subscribe("/queue/a")  # or when it is to be delivered
    assert peer.bodies() == [b"1"]
    assert queue.count == queue.octets == bench.octets == 0


@pytest.mark.parametrize("value", ["0", str(2**63 - 1)])
def test_zero_and_the_latest_time_never_expire(value):
    bench = Bench()
    peer = bench.peer()
    peer.put("/queue/a", "x", expires=value, expiration=value)
    bench.date += 10**6
    bench.wait(100)
    peer.subscribe("/queue/a")
    assert peer.bodies() == [b"x"]


def test_expired_messages_become_dead_letters():
    bench = Bench(dead_letter_expired=True)
    peer = bench.peer()
    peer.put("/queue/a", "x", expiration="1", persistent="true", k="v")
    bench.date += 1
    bench.wait(2.0)
    peer.subscribe("/queue/DLQ.a")
    message = peer.next("MESSAGE")
    assert (message.body, message.headers["k"], message.get("expiration")) == (b"x", "v", None)
    assert message.headers["dead-letter-reason"] == "expired"
    assert message.headers["original-destination"] == "/queue/a"
    assert list(bench.store.load()) == []


@pytest.mark.parametrize("persistent", ["true", "false"])
def test_nobody_gets_what_has_expired_when_it_comes(persistent):
    bench = Bench()
    peer, sender = bench.peer(), bench.peer()
    peer.subscribe("/queue/a", ack="client-individual")
    sender.put("/queue/a", "late", expires="1", persistent=persistent)
    sender.put("/queue/a", "in time", persistent=persistent)
    assert peer.bodies() == [b"in time"]
    assert bench.broker.queues["/", "/queue/a"].count == 1
    assert len(list(bench.store.load())) == (persistent == "true")


@pytest.mark.parametrize("headers", [{}, {"selector": "1 = 1"}, {"exclusive": "true"}, {"consumer_priority": "3"}])
@pytest.mark.parametrize("how", ["ack", "nack", "unsubscribe", "lose"])
def test_an_expired_message_may_be_acknowledged_and_is_not_delivered_again(headers, how):
    bench = Bench(dead_letter_expired=True)
    peer, other, sender = bench.peer(), bench.peer(), bench.peer()
    peer.subscribe("/queue/a", ack="client-individual", **headers)
    sender.put("/queue/a", "x", expiration="1000")
    message = peer.next("MESSAGE")
    other.subscribe("/queue/a", **headers)
    bench.date += 1.1
    if how == "lose":
        peer.lose()
    elif how == "unsubscribe":
        peer.send("UNSUBSCRIBE", id="1")
    else:
        peer.ack(message, how.upper())
    assert (peer.bodies(), other.bodies()) == ([], [])
    assert bench.broker.queues["/", "/queue/a"].count == 0
    other.subscribe("/queue/DLQ.a", id="2")
    assert [frame.headers["dead-letter-reason"] for frame in other.take()] == ["expired"] * (how != "ack")
    assert bench.octets == 0
