"""Queues: order, who gets what, credit, back-pressure, priorities, expiry, and what is left when nobody listens."""

import pytest
from broker.harness import Bench
from hypothesis import strategies as st

from stompcodec.broker.queues import paging as ready_messages
from stompcodec.broker.queues.backlog import Backlog, Fifo


@pytest.mark.req("S12-HDR-02", "S12-HDR-05")
def test_what_the_broker_says_cannot_be_said_by_a_sender():
    bench = Bench()
    peer, old = bench.peer(), bench.peer("1.0")
    forged = {"message_id": "x", "subscription": "x", "ack": "x", "redelivered": "true", "redelivery_count": "9"}
    peer.put("/queue/a", **forged, receipt="r")
    peer.next("RECEIPT")
    peer.subscribe("/queue/a", ack="client")
    message = peer.next("MESSAGE")
    assert {name: message.headers.getall(name) for name in ("message-id", "subscription", "ack", "redelivered")} == {
        "message-id": ["e-1"],
        "subscription": ["1"],
        "ack": ["1-1"],
        "redelivered": [],
    }
    assert message.get("receipt") is None
    old.raw(b"SUBSCRIBE\ndestination:/queue/b\n\n\0")
    peer.put("/queue/b", **forged)
    message = old.next("MESSAGE")
    assert message.get("subscription") is None
    assert message.get("redelivery-count") is None


@pytest.mark.parametrize("sessions", [1, 2])
def test_round_robin(sessions):
    """Over two sessions, or two subscriptions of one session."""
    bench = Bench()
    peer, one, two = bench.peer(), bench.peer(), bench.peer()
    one.subscribe("/queue/a", "1")
    (two if sessions == 2 else one).subscribe("/queue/a", "2")
    for number in range(10):
        peer.put("/queue/a", str(number))
    frames = [*one.take(), *two.take()]
    for key, first in (("1", 0), ("2", 1)):
        mine = [frame.body for frame in frames if frame.headers["subscription"] == key]
        assert mine == [b"%d" % number for number in range(first, 10, 2)]


@pytest.mark.req("S12-SUB-06", "S11-SUB-05", "S12-SUB-03", "S11-SUB-03", "S12-SUB-07", "S11-SUB-06")
@pytest.mark.parametrize(("mode", "says"), [("auto", "subscription exists"), ("sometimes", "unknown ack mode")])
def test_an_id_in_use_and_an_unknown_ack_mode(mode, says):
    peer = Bench().peer()
    peer.subscribe("/queue/a")
    peer.subscribe("/queue/b", ack=mode)
    assert peer.error().headers["message"] == says


# ---- versions ----


text = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=8)


# ---- credit ----


@pytest.mark.parametrize(
    ("headers", "count"),
    [
        ({}, 100),
        ({"prefetch_count": "3"}, 3),
        ({"activemq.prefetchSize": "1"}, 1),
        ({"activemq.prefetchSize": "-1"}, 120),
        ({"credit": "7,1000"}, 7),
        ({"consumer_window_size": "0"}, 1),
        ({"consumer_window_size": "-1"}, 120),
        ({"prefetch_count": "0"}, 120),
    ],
)
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_prefetch(headers, count, version):
    bench = Bench()
    peer, other = bench.peer(version), bench.peer()
    for number in range(120):
        other.put("/queue/a", str(number))
    peer.subscribe("/queue/a", ack="client-individual", **headers)
    messages = peer.take()
    assert len(messages) == count
    for message in messages[:2]:
        peer.ack(message)
    assert len(peer.take()) == min(2, count, 120 - count)


# ---- back-pressure ----


@pytest.mark.parametrize("limit", [{"max_queue_messages": 10}, {"max_queue_octets": 10 * 60}])
def test_the_sender_to_a_full_queue_waits(limit):
    bench = Bench(**limit)
    peer, other, consumer = bench.peer(), bench.peer(), bench.peer()
    name = "/queue/a"
    size = 0
    while not peer.session.paused:
        peer.put(name, "x" * 10)
        size += 1
    queue = bench.broker.queues["/", name]
    assert queue.count == size
    assert queue.full
    assert (queue.count - 1 <= 10) or "max_queue_messages" not in limit
    assert bench.octets == queue.octets > 0
    assert not other.session.paused
    consumer.subscribe(name, ack="client-individual")
    messages = consumer.take()
    released = 0
    for message in messages:  # UNACKED counts too, so that a consumer that never acknowledges bounds it
        consumer.ack(message)
        if not peer.session.paused:
            released = released or queue.count
    assert 0 < released < size
    assert bench.octets == queue.octets == 0


# ---- priorities ----


def put_all(sender, priorities, **headers):
    for number, priority in enumerate(priorities):
        options = {} if priority == "-" else {"priority": priority}
        sender.put("/queue/a", f"{priority}{number}", **options, **headers)


@pytest.mark.parametrize("ack", ["auto", "client-individual"])
@pytest.mark.parametrize("priority", [True, False])
def test_higher_ones_come_first_if_priorities_count(ack, priority):
    bench = Bench(priority=priority)
    sender, peer = bench.peer(), bench.peer()
    put_all(sender, "-09-490")
    peer.subscribe("/queue/a", ack=ack)
    first, then = [b"92", b"95", b"-0", b"-3", b"44", b"01", b"06"], [b"-0", b"01", b"92", b"-3", b"44", b"95", b"06"]
    assert peer.bodies() == (first if priority else then)


def test_messages_without_a_priority_never_change_the_order():
    bench = Bench()
    sender = bench.peer()
    put_all(sender, "---4x")
    assert type(bench.broker.queues["/", "/queue/a"].messages.line) is Fifo


@pytest.mark.parametrize("few", [0, 10])
def test_the_order_is_plain_again_when_it_can_be(monkeypatch, few):
    monkeypatch.setattr(ready_messages, "_FEW", few)
    bench = Bench()
    sender, peer = bench.peer(), bench.peer()
    put_all(sender, "---")
    peer.subscribe("/queue/a", browser="true")
    queue = bench.broker.queues["/", "/queue/a"]
    assert type(queue.messages.line) is Backlog
    peer.send("UNSUBSCRIBE", id="1")
    assert type(queue.messages.line) is (Fifo if few else Backlog)
    put_all(sender, "-")
    peer.take()
    peer.subscribe("/queue/a", ack="client")
    assert peer.bodies() == [b"-0", b"-1", b"-2", b"-0"]
    bench.wait(2)
    assert type(queue.messages.line) is Fifo


# ---- expiry ----


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
