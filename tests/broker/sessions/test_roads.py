"""SENDs and ACKs that store something, on each of their roads: what is stored, and who waits for the disk."""

import pytest
from broker.harness import Bench, FaultyStore
from broker.sessions.test_plain_road import ROADS, frame, take

from stompcodec.broker.config import DIALECTS, Config

SENT = frame(b"SEND", b"destination:/queue/a", b"persistent:true", b"receipt:7", body=b"hi")


def test_a_message_of_another_rank_is_recorded_once():
    bench, sender = Bench.with_peers(1, FaultyStore(background=True), window_messages=2)
    sender.put("/queue/a", "first")
    for _ in range(4):
        sender.put("/queue/a", "hi", persistent="true", priority="9")
    queue = bench.queue()
    assert (queue.count, queue.total) == (3, 5)
    sender.raw(SENT)
    assert (queue.count, queue.total) == (4, 6)
    recorded = [message.seq for _queue, message in bench.broker.journal.batch.put]
    assert sorted(set(recorded)) == recorded


#: Headers by which a SEND goes one of several ways through the broker.
WAYS = {
    **{"plain": {}, "receipt": {"receipt": "r"}, "transaction": {"transaction": "t"}},
    **{"reply-to": {"reply_to": "/temp-queue/mine"}, "key": {"idempotency_key": "{}", "receipt": "r"}},
    **{"expires": {"expires": "9999999999999"}, "delay": {"delay": "1000"}},
}
PLACES = ("/queue/a", "/temp-queue/mine", "/topic/t", "/queue/a,/topic/t")


def sender_on(road, bench):
    """A peer of a broker whose SENDs go that road, with a durable subscription to the topic and a temporary queue."""
    take(road, bench)
    keeper = bench.client(client_id="keeper")
    keeper.subscribe("/topic/t", durable_subscription_name="all")
    keeper.lose()
    sender = bench.peer()
    sender.subscribe("/temp-queue/mine", ack="client-individual")
    for place in PLACES:  # the targets are cached from now on
        sender.put(place, "first", persistent="false")
    sender.take()
    return sender


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("durable", ["all", "persistent", "none"])
def test_a_message_to_a_queue_is_stored_unless_it_says_otherwise(road, durable):
    """A temporary queue is never stored, and a topic stores what says persistent:true, for its durable subscription."""
    for way, headers in WAYS.items():
        for said in (None, "true", "false"):
            bench = Bench(FaultyStore(), durable=durable, composite=True)
            sender = sender_on(road, bench)
            sender.send("BEGIN", transaction="t")
            for number, place in enumerate(PLACES):
                own = {name: value.format(number) for name, value in headers.items()}
                sender.put(place, place, **own, **({} if said is None else {"persistent": said}))
            sender.send("COMMIT", transaction="t", receipt="committed")
            if way == "delay":
                bench.date += 2
                bench.wait(2.0)
            asked = durable != "none" and said == "true"
            to_queue = asked or (durable == "all" and said is None)
            expected = {"/queue/a": to_queue, "/temp-queue/mine": False, "/topic/t": asked}
            both = [place for place in expected if place != "/temp-queue/mine" and expected[place]]
            stored = [place for place in expected if expected[place]] + ["/queue/a,/topic/t"] * len(both)
            assert sorted(bench.store.bodies) == sorted(stored), (way, said)


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize(
    ("place", "said", "waits"),
    [
        *(("/queue/a", None, True), ("/queue/a", "true", True), ("/queue/a", "false", False)),
        *(("/temp-queue/mine", None, False), ("/topic/t", None, False)),
    ],
)
def test_a_receipt_waits_for_the_disk_only_where_the_message_is_stored(road, place, said, waits):
    bench = Bench(FaultyStore(background=True), durable="all")
    sender = sender_on(road, bench)
    sender.take()
    sender.put(place, "x", receipt="r", **({} if said is None else {"persistent": said}))
    answers = [frame.command for frame in sender.take() if frame.command != "MESSAGE"]
    assert answers == ([] if waits else ["RECEIPT"])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_other_dialects_store_what_says_persistent(dialect):
    """So do their brokers. A value that is given wins."""
    assert Config(dialect=dialect).durable == ("all" if dialect == "stompcodec" else "persistent")
    assert Config(dialect=dialect, durable="all").durable == "all"


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("headers", [{}, {"transaction": "t"}, {"reply_to": "/queue/b"}])
def test_what_is_not_stored_is_taken_though_the_disk_is_full(road, headers):
    bench = Bench(FaultyStore(), durable="all")
    sender = sender_on(road, bench)
    sender.send("BEGIN", transaction="t")
    bench.broker.journal.short = True
    for place, said in (("/queue/a", "false"), ("/temp-queue/mine", ""), ("/topic/t", "")):
        sender.put(place, "x", receipt="r", **({"persistent": said} if said else {}), **headers)
    assert [frame.command for frame in sender.take() if frame.command != "MESSAGE"] == ["RECEIPT"] * 3
    sender.put("/queue/a", "x", receipt="r", **headers)
    assert sender.error().headers["message"] == "the disk is full"
    assert (bench.queue().count, bench.store.bodies) == (1 + (not headers.get("transaction")), [])
