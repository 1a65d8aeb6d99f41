"""Queues: order, windows, priorities, expiry, pauses; late arguments, as of RabbitMQ 3.10 and ActiveMQ 5.17."""

import pytest
from broker.harness import Bench, FaultyStore
from broker.moves import QUEUE, finish, left, put_all, queue_of, refusal, taker, transaction

from stompcodec.broker.config import DIALECTS
from stompcodec.broker.queues.backlog import Fifo
from stompcodec.broker.settings import Pauses


@pytest.mark.req("S12-HDR-02", "S12-HDR-05")
def test_what_the_broker_says_cannot_be_said_by_a_sender():
    bench = Bench()
    peer, old = bench.peer(), bench.peer("1.0")
    forged = {"message_id": "x", "subscription": "x", "ack": "x", "redelivered": "true", "redelivery_count": "9"}
    peer.put(QUEUE, **forged, receipt="r")
    peer.next("RECEIPT")
    peer.subscribe(QUEUE, ack="client")
    message = peer.next("MESSAGE")
    names = ("message-id", "subscription", "ack", "redelivered", "receipt")
    assert [message.headers.getall(name) for name in names] == [["e-1"], ["1"], ["1-1"], [], []]
    old.raw(b"SUBSCRIBE\ndestination:/queue/b\n\n\0")
    peer.put("/queue/b", **forged)
    message = old.next("MESSAGE")
    assert (message.get("subscription"), message.get("redelivery-count")) == (None, None)


@pytest.mark.parametrize("sessions", [1, 2])
def test_round_robin(sessions):
    bench = Bench()
    one, two = taker(bench), bench.peer()
    (two if sessions == 2 else one).subscribe(QUEUE, "2")
    put_all(bench.peer(), range(10))
    frames = [*one.take(), *two.take()]
    for key, first in (("1", 0), ("2", 1)):
        mine = [frame.body for frame in frames if frame.headers["subscription"] == key]
        assert mine == [b"%d" % number for number in range(first, 10, 2)]


@pytest.mark.req("S12-SUB-06", "S11-SUB-05", "S12-SUB-03", "S11-SUB-03", "S12-SUB-07", "S11-SUB-06")
@pytest.mark.parametrize(("mode", "says"), [("auto", "subscription exists"), ("sometimes", "unknown ack mode")])
def test_an_id_in_use_and_an_unknown_ack_mode(mode, says):
    peer = taker(Bench())
    peer.subscribe("/queue/b", ack=mode)
    assert refusal(peer) == says


@pytest.mark.req("ART-FLW-01", "ART-FLW-02", "ART-FLW-03", "ART-FLW-04", "ART-FLW-05", "ART-FLW-06")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize(
    ("config", "ack", "headers", "count"),
    [
        *(({}, "client-individual", {}, 100), ({}, "client-individual", {"prefetch-count": "3"}, 3)),
        ({}, "client-individual", {"prefetch-count": "0"}, 120),
        ({}, "client-individual", {"activemq.prefetchSize": "1"}, 1),
        ({}, "client-individual", {"activemq.prefetchSize": "-1"}, 120),
        ({}, "client-individual", {"credit": "7,10000"}, 7),
        ({}, "client-individual", {"consumer-window-size": "0"}, 1),
        ({}, "client-individual", {"consumer-window-size": "1"}, 1),
        ({}, "client-individual", {"consumer-window-size": "1500"}, 2),
        ({}, "client-individual", {"consumer-window-size": "2100"}, 3),
        ({}, "client-individual", {"consumer-window-size": "-1"}, 120),
        ({"prefetch_octets": True}, "client", {"activemq.prefetchSize": "1500"}, 2),
        ({"prefetch_octets": True}, "client", {"activemq.prefetchSize": "-1", "consumer-window-size": "0"}, 1),
        ({"prefetch_octets": True}, "client", {"activemq.prefetchSize": "0", "consumer-window-size": "1500"}, 2),
        ({"prefetch_octets": True}, "client", {"consumer-window-size": "2500", "prefetch-count": "1"}, 1),
        *(({"window": 1500}, "auto", {}, 120), ({"window": 1500}, "client", {}, 2)),
        ({"window": 1500}, "client-individual", {}, 2),
        ({"window": 1500}, "client", {"consumer-window-size": "-1"}, 120),
        ({"window": 1500}, "client", {"consumer-window-size": "0"}, 1),
        ({"window": 1500}, "client", {"prefetch-count": "3"}, 3),
    ],
)
def test_a_window(config, ack, headers, count, version):
    bench = Bench(**config)
    put_all(bench.peer(), ["x" * 1000] * 120)
    peer = taker(bench, version=version, ack=ack, **headers)
    messages = peer.take()
    assert len(messages) == count
    for message in messages[:2] if ack == "client-individual" else ():
        peer.ack(message)
        assert len(peer.take()) == min(1, 120 - count)
    assert bench.octets == queue_of(bench).octets


def test_a_window_counts_what_a_transaction_gives_back():
    bench = Bench()
    put_all(bench.peer(), ["x" * 1000] * 6)
    peer = taker(bench, ack="client", consumer_window_size="1500")
    one, two = peer.take()
    with transaction(peer, "ABORT"):
        peer.ack(two, transaction="t")
        assert len(peer.take()) == 2
    assert peer.take() == []
    peer.ack(one)
    assert peer.take() == []


def test_credit_in_auto_mode():
    bench = Bench()
    put_all(bench.peer(), range(6))
    peer = taker(bench, credit="2,,false")
    assert len(peer.take()) == 2
    peer.send("ACK", id="0", subscription="1", credit="3", receipt="r")
    assert [frame.command for frame in peer.take()] == ["RECEIPT", *["MESSAGE"] * 3]
    peer.send("ACK", id="0", subscription="1", credit="100")
    assert len(peer.take()) == 1


@pytest.mark.parametrize("limit", [{"max_queue_messages": 10}, {"max_queue_octets": 10 * 60}])
def test_the_sender_to_a_full_queue_waits(limit):
    bench = Bench(**limit)
    peer, other = bench.peer(), bench.peer()
    size = 0
    while not peer.session.paused:
        peer.put(QUEUE, "x" * 10)
        size += 1
    queue = queue_of(bench)
    assert (queue.count, queue.full, other.session.paused) == (size, True, False)
    assert size == 11 or "max_queue_messages" not in limit
    assert bench.octets == queue.octets > 0
    consumer, released = taker(bench, ack="client-individual"), 0
    for message in consumer.take():  # UNACKED counts too, so that a consumer that never acknowledges bounds it
        consumer.ack(message)
        if not peer.session.paused:
            released = released or queue.count
    assert 0 < released < size
    assert bench.octets == queue.octets == 0


def put_ranked(sender, priorities):
    for number, priority in enumerate(priorities):
        sender.put(QUEUE, f"{priority}{number}", **({} if priority == "-" else {"priority": priority}))


@pytest.mark.parametrize("ack", ["auto", "client-individual"])
@pytest.mark.parametrize("priority", [True, False])
def test_higher_ones_come_first_if_priorities_count(ack, priority):
    bench = Bench(priority=priority)
    put_ranked(bench.peer(), "-09-490")
    first, then = [b"92", b"95", b"-0", b"-3", b"44", b"01", b"06"], [b"-0", b"01", b"92", b"-3", b"44", b"95", b"06"]
    assert left(bench, ack=ack) == (first if priority else then)


def test_a_lower_one_that_comes_back_stays_behind():
    bench = Bench(priority=True)
    put_ranked(bench.peer(), "0")
    peer = taker(bench, ack="client", prefetch_count="1")
    assert peer.bodies() == [b"00"]
    bench.wait(2)
    assert type(queue_of(bench).messages.line) is Fifo
    put_ranked(bench.peer(), "-")
    peer.lose()
    assert left(bench) == [b"-0", b"00"]


@pytest.mark.parametrize(
    ("header", "first"), [({"priority": "9"}, [b"second", b"early"]), ({"JMSXGroupID": "a"}, [b"early", b"second"])]
)
def test_a_message_that_came_late_has_its_place_before_priorities_count(header, first):
    """A transaction waits for the store, others send meanwhile, and then its second message changes the queue."""
    bench = Bench(FaultyStore(background=True))
    sender, other = bench.peer(), bench.peer()
    sender.send("BEGIN", transaction="t")
    sender.put(QUEUE, "early", transaction="t", persistent="true")
    sender.put(QUEUE, "second", transaction="t", persistent="true", **header)
    sender.send("COMMIT", transaction="t")
    for number in range(3):
        other.put(QUEUE, f"late {number}")
    finish(bench)
    assert left(bench, ack="client") == [*first, b"late 0", b"late 1", b"late 2"]


@pytest.mark.parametrize("headers", [{}, {"selector": "1 = 1"}, {"exclusive": "true"}, {"consumer_priority": "3"}])
@pytest.mark.parametrize("how", ["ack", "nack", "unsubscribe", "lose"])
def test_an_expired_message_may_be_acknowledged_and_is_not_delivered_again(headers, how):
    bench = Bench(dead_letter_expired=True)
    peer = taker(bench, ack="client-individual", **headers)
    bench.peer().put(QUEUE, "x", expiration="1000")
    message, other = peer.next("MESSAGE"), taker(bench, **headers)
    bench.date += 1.1
    if how == "lose":
        peer.lose()
    elif how == "unsubscribe":
        peer.send("UNSUBSCRIBE", id="1")
    else:
        peer.ack(message, how.upper())
    assert (peer.bodies(), other.bodies(), queue_of(bench).count) == ([], [], 0)
    other.subscribe("/queue/DLQ.a", id="2")
    assert [frame.headers["dead-letter-reason"] for frame in other.take()] == ["expired"] * (how != "ack")
    assert bench.octets == 0


GROWING = Pauses(1.0, 2.0, 30.0)


@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize("persistent", ["true", "false"])
def test_the_pauses_of_one_message_grow(version, persistent):
    bench = Bench(redelivery_delay=GROWING)
    bench.peer().put(QUEUE, "x", persistent=persistent)
    peer, times = taker(bench, version=version, ack="client-individual"), []
    for _ in range(400):
        for frame in peer.take():
            times.append(bench.now)
            peer.nack(frame)
        bench.wait(0.1)
    assert (times, len(bench.broker.retries)) == (pytest.approx([0, 1, 3, 7, 15, 31], abs=0.5), 0)
    peer.subscribe("/queue/DLQ.a", "2")
    assert peer.next("MESSAGE").get("dead-letter-attempts") == "6"


def test_others_are_delivered_meanwhile_and_it_comes_back_in_its_place():
    bench = Bench(redelivery_delay=GROWING, prefetch=1)
    put_all(bench.peer(), "123")
    peer = taker(bench, ack="client-individual")
    peer.nack(first := peer.next("MESSAGE"))
    second = peer.next("MESSAGE")
    assert second.body == b"2"
    bench.wait(1.5)
    peer.ack(second)
    back = peer.next("MESSAGE")
    assert (back.body, back.headers["message-id"]) == (b"1", first.headers["message-id"])
    assert back.get("redelivery-count") == "1"


def test_waiting_messages_are_bounded_and_end_with_their_queue():
    bench = Bench(redelivery_delay=GROWING, max_delayed=4)
    put_all(bench.peer(), "25", "/queue/b")
    for _ in range(2):  # they wait 4 s, then
        taker(bench, "/queue/b", ack="client").lose()
    bench.peer().put(QUEUE, "1")
    put_all(bench.peer(), "34", "/queue/c")
    peer = taker(bench, ack="client-individual")
    for name in "bc":
        peer.subscribe(f"/queue/{name}", name, ack="client-individual")
    frames = sorted(peer.take(), key=lambda frame: "12354".index(frame.body.decode()))
    for frame in frames:
        peer.nack(frame)
    bench.wait(0.1)  # until then they have no order
    again = peer.next("MESSAGE")
    assert (again.body, len(bench.broker.retries)) == (b"4", 4), "there was no room to wait"
    queue = queue_of(bench)
    queue.delete()
    assert not queue.returned.held
    peer.nack(again)
    assert (peer.take(), len(bench.broker.retries)) == ([], 4), "what was in the queue is forgotten"
    bench.wait(1.5)
    assert peer.bodies() == [b"3"]
    bench.wait(3)
    assert peer.bodies() == [b"4", b"2", b"5"]


def made(by, bench=None, **arguments):
    """Return a broker and a peer, with a message in a queue that a SEND has made, or a SUBSCRIBE that has ended."""
    bench = bench or Bench()
    peer = bench.peer()
    if by == "SUBSCRIBE":
        peer.subscribe(QUEUE, **arguments)
        peer.send("UNSUBSCRIBE", id="1")
    peer.put(QUEUE, "first", **(arguments if by == "SEND" else {}))
    assert not peer.closed, peer.take()
    return bench, peer


def use(peer, command, **headers):
    peer.put(QUEUE, "x", **headers) if command == "SEND" else peer.subscribe(QUEUE, **headers)


either = pytest.mark.parametrize("by", ["SEND", "SUBSCRIBE"])


@pytest.mark.parametrize("argument", [{"x_max_length": "2"}, {"x_max_length_bytes": "80"}])
def test_reject_publish(argument):
    bench, peer = made("SUBSCRIBE", x_overflow="reject-publish", **argument)
    peer.put(QUEUE, "second", receipt="r")
    assert peer.take()[-1].command == "RECEIPT"
    peer.put(QUEUE, "third", receipt="r3")
    error = peer.error()
    assert (error.headers["message"], error.headers["receipt-id"]) == ("the queue is full", "r3")
    assert left(bench) == [b"first", b"second"]
    other = bench.peer()
    other.put(QUEUE, "again")
    assert not other.closed


@either
def test_message_ttl(by):
    bench, peer = made(by, x_message_ttl="2000")
    peer.put(QUEUE, "short", expiration="1000", persistent="true")
    peer.put(QUEUE, "long", expiration="9000")
    bench.date += 1.5
    bench.wait(2)
    assert queue_of(bench).count == 2
    bench.date += 1
    bench.wait(2)
    assert (left(bench), list(bench.store.load())) == ([], [])


@pytest.mark.parametrize("reason", ["rejected", "expired", "max-length"])
def test_dead_letters_have_their_own_queue(reason):
    dead = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "graves"}
    bench, peer = made("SEND", **dead, **({"x_max_length": "1"} if reason == "max-length" else {}))
    if reason == "rejected":
        peer.subscribe(QUEUE, ack="client")
        peer.nack(peer.next("MESSAGE"), requeue="false")
    elif reason == "expired":
        peer.put(QUEUE, "old", expiration="1000")
        bench.date += 2
        bench.wait(2)
    else:
        peer.put(QUEUE, "second")
    letter = taker(bench, "/queue/graves").next("MESSAGE")
    assert letter.body == (b"old" if reason == "expired" else b"first")
    assert letter.headers["dead-letter-reason"] == reason


@either
@pytest.mark.parametrize("before", [{}, {"x_max_length": "5"}])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_queue_that_is_there_keeps_its_arguments(by, before, dialect):
    bench, _peer = made("SEND", Bench(**DIALECTS[dialect]), **before)
    other = bench.peer()
    use(other, by, **{"x-max-length": "1"})
    if dialect == "rabbitmq":
        assert refusal(other) == "the queue has other arguments"
        assert left(bench) == [b"first"]
        return
    assert not other.closed
    other.send("UNSUBSCRIBE", id="1")
    bench.peer().put(QUEUE, "last")
    assert left(bench) == ([b"last"] if by == "SUBSCRIBE" else [b"first", b"x", b"last"])


def test_a_store_with_arguments_that_mean_nothing_any_more():
    bench = Bench()
    bench.peer().put(QUEUE, "kept", persistent="true", **{"x-max-length": "1"})
    bench = Bench(bench.store, **DIALECTS["activemq"])
    assert queue_of(bench).arguments is None
    assert left(bench) == [b"kept"]


def test_what_a_session_remembers_of_queues_is_bounded_and_accounted_for():
    bench = Bench(**DIALECTS["rabbitmq"], session_destinations=10_000)
    peer = bench.peer()
    for number in range(1010):
        peer.put(f"/queue/{number}", "x")
    assert len(peer.session.declared) == 1000
    bench.audit()
    peer.lose()
    bench.audit()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("x-message-ttl", "soon"), ("x-expires", "0"), ("x-max-length", "-1"), ("x-max-length-bytes", "9" * 30)),
        *(("x-overflow", "explode"), ("x-dead-letter-exchange", "amq.topic"), ("x-dead-letter-exchange", "")),
        *(("x-queue-type", "stream"), ("x-queue-type", "quorum"), ("x-queue-type", "odd")),
    ],
)
@either
def test_what_cannot_be_served_is_refused(name, value, by):
    peer = Bench().peer()
    use(peer, by, **{name: value})
    assert (name in refusal(peer)) is (value not in ("stream", "quorum"))
