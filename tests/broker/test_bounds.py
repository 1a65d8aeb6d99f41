"""Every bound at its limit and one past it, and memory in the hands of peers that misbehave."""

import pytest
from broker.harness import Bench

from stompcodec.broker.memory import OPERATION
from stompcodec.broker.message import shared


def test_subscriptions():
    bench = Bench(max_subscriptions=3)
    peer = bench.peer()
    for number in range(3):
        peer.subscribe(f"/queue/{number}", str(number))
    peer.send("UNSUBSCRIBE", id="1")
    peer.subscribe("/queue/x", "1")
    assert not peer.closed
    peer.subscribe("/queue/y", "4")
    assert peer.error().headers["message"] == "too many subscriptions"


def test_transactions():
    bench = Bench(max_transactions=3)
    peer = bench.peer()
    for number in range(3):
        peer.send("BEGIN", transaction=str(number))
    peer.send("ABORT", transaction="1")
    peer.send("BEGIN", transaction="1")
    assert not peer.closed
    peer.send("BEGIN", transaction="3")
    assert peer.error().headers["message"] == "too many transactions"


@pytest.mark.parametrize("kind", ["sends", "acks"])
def test_operations_in_transactions(kind):
    bench = Bench(max_transaction_octets=10 * OPERATION)
    peer = bench.peer()
    for _ in range(11):
        peer.put("/queue/a", "")
    peer.subscribe("/queue/a", ack="client-individual")
    messages = peer.take()
    for name in ("t", "u"):
        peer.send("BEGIN", transaction=name)
    tail = b"destination:/queue/b\n\n\0"
    for number in range(11):
        transaction = "tu"[number % 2]
        if kind == "acks":
            peer.ack(messages[number], transaction=transaction)
        elif (number + 1) * (OPERATION + len(tail)) <= 10 * OPERATION:
            peer.put("/queue/b", transaction=transaction)
        else:
            peer.put("/queue/b", transaction=transaction)
            break
        assert peer.closed is (number == 10)
    assert peer.error().headers["message"] == "transactions too large"
    assert bench.broker.queues["/", "/queue/a"].count == 11


def test_unacknowledged_messages_of_a_session():
    bench = Bench(max_unacked=10, prefetch=4)
    peer, sender = bench.peer(), bench.peer()
    for name in "abcd":
        for number in range(12):
            sender.put(f"/queue/{name}", str(number))
    peer.subscribe("/queue/a", "1", ack="client", prefetch_count="0")
    assert len(peer.take()) == 10
    peer.send("UNSUBSCRIBE", id="1")
    for name, count in (("b", 4), ("c", 4), ("d", 2)):
        peer.subscribe(f"/queue/{name}", name, ack="client")
        assert len(peer.take()) == count
    peer.subscribe("/topic/x", "auto")
    assert not peer.closed
    peer.subscribe("/queue/a", "5", ack="client")
    assert peer.error().headers["message"] == "too many unacknowledged messages"


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_destinations(kind):
    bench = Bench(max_destinations=3)
    sender, peer = bench.peer(), bench.peer()
    for number in range(3):
        peer.subscribe(f"/{kind}/{number}", str(number))
    peer.subscribe(f"/{kind}/0", "again")
    assert not peer.closed
    if kind == "topic":
        sender.put("/topic/unheard")
        assert not sender.closed
        sender.subscribe("/topic/3")
    else:
        sender.put("/queue/3")
    assert sender.error().headers["message"] == "too many destinations"
    peer.send("UNSUBSCRIBE", id="2")
    sender = bench.peer()
    sender.subscribe(f"/{kind}/3")  # an idle one makes room
    assert not sender.closed


@pytest.mark.long
def test_destinations_that_a_session_remembers():
    bench = Bench()
    peer = bench.peer()
    for number in range(1500):
        peer.put(f"/queue/{number}")
    assert len(peer.session.cached_targets) <= 1000


# ---- peers that misbehave ----


def octets_of(chunks):
    return sum(map(len, chunks))


def test_a_consumer_that_never_reads():
    bench = Bench(write_high=10_000, max_queue_octets=100_000)
    stuck, sender = bench.peer(), bench.peer()
    stuck.subscribe("/queue/a")
    stuck.reading = False
    held = 0
    while not sender.session.paused:
        sender.put("/queue/a", b"x" * 1000)
        held = max(held, octets_of(stuck.session.connection.output))
        assert held < 10_000 + 3000
    assert 100_000 < bench.octets < 103_000
    other = bench.peer()
    other.subscribe("/queue/b")
    other.put("/queue/b", "served")
    assert other.bodies() == [b"served"]


def test_a_consumer_of_a_long_queue_gets_a_little_each_turn():
    bench = Bench(write_high=10_000)
    sender, consumer = bench.peer(), bench.peer()
    for _ in range(100):
        sender.put("/queue/a", b"x" * 1000)
    consumer.session.receive(b"SUBSCRIBE\nid:1\ndestination:/queue/a\n\n\0", 0.0)
    turns = 0
    while True:
        sessions = list(bench.broker.turn(0.0))
        if not sessions and bench.broker.next_deadline() != 0.0:
            break
        for session in sessions:
            output = session.take_output()
            assert octets_of(output) < 10_000 + 3000
            consumer.inbox += consumer.parser.feed(b"".join(output))
        turns += 1
    assert turns > 8
    assert len(consumer.bodies()) == 100


def test_a_message_larger_than_all_bounds_of_the_outbox():
    bench = Bench(write_high=1000)
    peer = bench.peer()
    peer.subscribe("/queue/a")
    for number in range(3):
        peer.put("/queue/a", b"%d" % number * 100_000)
    assert [body[:1] for body in peer.bodies()] == [b"0", b"1", b"2"]


def test_a_consumer_that_never_acknowledges():
    bench = Bench(max_queue_messages=50)
    greedy, sender = bench.peer(), bench.peer()
    greedy.subscribe("/queue/a", ack="client", prefetch_count="0")
    sent = 0
    while not sender.session.paused:
        sender.put("/queue/a", "x")
        sent += 1
    assert sent == 51
    assert len(greedy.take()) == 51
    greedy.lose()
    assert sender.session.paused
    other = bench.peer()
    other.subscribe("/queue/a")
    assert len(other.bodies()) == 51
    assert not sender.session.paused


def test_a_sender_that_never_reads_its_receipts():
    bench = Bench()
    peer = bench.peer()
    peer.session.writable(False, 0.0)
    peer.reading = False
    frame = b"SEND\ndestination:/topic/a\nreceipt:" + b"x" * 1000 + b"\n\n\0"
    for _ in range(1000):
        peer.raw(frame)
    assert not peer.session.paused
    for _ in range(100):
        peer.raw(frame)
    assert peer.session.paused
    assert octets_of(peer.session.connection.output) < 2**20 + 200_000
    peer.reading = True
    peer.flush()
    peer.session.writable(True, 0.0)
    assert not peer.session.paused


def test_half_open_connections_are_small_and_go():
    bench = Bench(max_connections=10_000)
    for _ in range(3000):
        peer = bench.peer(connect=False)
        peer.session.receive(b"CONNECT\n", 0.0)
    assert len(bench.broker.sessions) == 3000
    bench.wait(11.0)
    closing = [session for session in bench.broker.sessions.values() if session.closing]
    assert len(closing) == 3000
    for session in closing:
        session.lost(bench.now)
    assert not bench.broker.sessions
    assert len(bench.broker._deadlines._heap) < 200


def test_names_of_destinations_are_shared_but_not_kept():
    first, second = "".join(["/topic/", "a" * 100]), "".join(["/topic/", "a" * 100])
    assert first is not second
    assert shared(first) is shared(second) is first
    kept = shared.cache_info().maxsize
    assert kept is not None
    for number in range(kept):
        shared(f"/topic/{number}")
    assert shared(second) is second
    assert shared.cache_info().currsize == kept
