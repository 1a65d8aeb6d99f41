"""Large messages in all that can happen to a message, and with the other features of the broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker.large import QUEUE, assert_empty, bench_of, files, pattern, settle, stored_bench

# ---- what else can happen to a message ----


def test_transactions() -> None:
    bench = bench_of()
    sender, consumer = bench.peer(), bench.peer()
    consumer.subscribe(QUEUE, ack="client-individual")
    for end in ("ABORT", "COMMIT"):
        sender.send("BEGIN", transaction="t")
        sender.put(QUEUE, pattern(5000), transaction="t")
        assert (files(bench), consumer.take()) == (1, [])
        sender.send(end, transaction="t")
        assert files(bench) == (end == "COMMIT")
    message = consumer.next("MESSAGE")
    assert message.body == pattern(5000)
    for end in ("ABORT", "COMMIT"):
        consumer.send("BEGIN", transaction="t")
        consumer.ack(message, transaction="t")
        consumer.send(end, transaction="t")
        assert files(bench) == (end == "ABORT")
    assert_empty(bench)


def test_a_dead_letter_keeps_its_body() -> None:
    bench = bench_of(max_attempts=2, dead_letter_expired=True)
    sender, consumer = bench.peer(), bench.peer()
    consumer.subscribe(QUEUE, ack="client-individual")
    sender.put(QUEUE, pattern(5000), color="red")
    consumer.nack(consumer.next("MESSAGE"))
    consumer.nack(consumer.next("MESSAGE"))
    consumer.send("UNSUBSCRIBE", id="1")
    sender.put(QUEUE, pattern(6000), expiration="1000")
    bench.date += 60
    bench.wait(60)
    consumer.subscribe("/queue/DLQ.a", id="2")
    dead, expired = consumer.take()
    assert (dead.body, dead.headers["color"], dead.headers["content-length"]) == (pattern(5000), "red", "5000")
    assert expired.body == pattern(6000)
    assert_empty(bench)


def test_a_topic_has_one_file_for_all() -> None:
    bench = bench_of(max_large_octets=10_000)
    sender = bench.peer()
    readers = [bench.peer(version) for version in ("1.2", "1.2", "1.0")]
    for reader, ack in zip(readers, ("auto", "client-individual", "auto")):
        reader.subscribe("/topic/t", ack=ack)
    for content in (b"before", pattern(9000), b"after"):
        sender.put("/topic/t", content)
    assert files(bench) == 1
    for reader in readers:
        assert [frame.body for frame in reader.inbox] == [b"before", pattern(9000), b"after"]
    for message in readers[1].take():
        readers[1].ack(message)
    assert_empty(bench)


def test_a_topic_without_subscribers() -> None:
    bench = bench_of()
    bench.peer().put("/topic/t", pattern(9000))
    assert_empty(bench)


def test_a_full_queue_takes_it_whole_and_then_blocks_its_sender() -> None:
    bench = bench_of(max_queue_messages=1)
    sender, consumer = bench.peer(), bench.peer()
    for _ in range(2):
        sender.put(QUEUE, pattern(5000))
    assert sender.session.paused
    consumer.subscribe(QUEUE)
    assert consumer.bodies() == [pattern(5000)] * 2
    assert not sender.session.paused


# ---- with other features ----


def test_received_by_receive() -> None:
    bench = bench_of()
    sender, receiver = bench.peer(), bench.peer()
    sender.put(QUEUE, pattern(5000))
    receiver.raw(b"RECEIVE\ndestination:/queue/a\nid:7\nreceipt:r\n\n\0")
    assert receiver.next("MESSAGE").body == pattern(5000)
    assert receiver.next("RECEIPT").headers["receipt-id"] == "r"
    assert_empty(bench)


def test_looked_at_by_a_browser_and_then_taken() -> None:
    bench = bench_of()
    sender, reader = bench.peer(), bench.peer()
    for content in (pattern(5000), b"small", pattern(6000)):
        sender.put(QUEUE, content)
    reader.subscribe(QUEUE, browser="true")
    bodies = [frame.body for frame in reader.take()]
    assert bodies == [pattern(5000), b"small", pattern(6000), b""]
    assert files(bench) == 2
    reader.subscribe(QUEUE, id="2")
    assert reader.bodies() == bodies[:3]
    assert_empty(bench)


def test_chosen_by_a_selector_and_in_a_group() -> None:
    pytest.importorskip("lark")
    bench = bench_of()
    sender, red, all_ = bench.peer(), bench.peer(), bench.peer()
    red.subscribe(QUEUE, selector="color = 'red'")
    for color in ("blue", "red"):
        sender.put(QUEUE, pattern(5000), color=color, message_group="g")
    assert [frame.headers["color"] for frame in red.take()] == ["red"]
    all_.subscribe(QUEUE)
    assert [(frame.headers["color"], frame.body) for frame in all_.take()] == [("blue", pattern(5000))]
    assert_empty(bench)


def test_a_window_in_octets_counts_the_body() -> None:
    bench = bench_of()
    sender, consumer = bench.peer(), bench.peer()
    for _ in range(3):
        sender.put(QUEUE, pattern(5000))
    consumer.subscribe(QUEUE, ack="client-individual", consumer_window_size="6000")
    first, second = consumer.take()
    consumer.ack(first)
    assert len(consumer.take()) == 1
    consumer.ack(second)


def test_delayed(tmp_path: Path) -> None:
    bench = stored_bench(tmp_path)
    sender = bench.peer()
    sender.put(QUEUE, pattern(5000), delay="5000", persistent="true")
    settle(bench)
    bench.store.close()
    bench = stored_bench(tmp_path)
    consumer = bench.peer()
    consumer.subscribe(QUEUE)
    assert consumer.take() == []
    bench.date += 6
    bench.wait(6)
    assert consumer.bodies() == [pattern(5000)]
    settle(bench)
    assert_empty(bench)
    bench.store.close()


def test_kept_by_a_durable_subscription(tmp_path: Path) -> None:
    bench = stored_bench(tmp_path)
    sender, reader = bench.peer(), bench.peer(connect=False)
    reader.connect(**{"client-id": "c"})
    reader.subscribe("/topic/t", durable_subscription_name="s")
    settle(bench)
    reader.lose()
    for content in (pattern(5000), b"small"):
        sender.put("/topic/t", content, persistent="true")
    settle(bench)
    bench.store.close()
    bench = stored_bench(tmp_path)
    reader = bench.peer(connect=False)
    reader.connect(**{"client-id": "c"})
    reader.subscribe("/topic/t", durable_subscription_name="s")
    assert reader.bodies() == [pattern(5000), b"small"]
    settle(bench)
    assert list((tmp_path / "bodies").iterdir()) == []
    bench.store.close()


def test_retained() -> None:
    bench = bench_of(retain=True)
    bench.peer().put("/topic/t", pattern(5000), retain="set")
    for _ in range(2):
        late = bench.peer()
        late.subscribe("/topic/t")
        assert late.bodies() == [pattern(5000)]
    bench.peer().put("/topic/t", "none", retain="remove")
    assert files(bench) == 0


def test_to_several_destinations_at_once() -> None:
    bench = bench_of(composite=True)
    sender, one, two = bench.peer(), bench.peer(), bench.peer()
    sender.put("/queue/a,/queue/b", pattern(5000))
    assert files(bench) == 1
    one.subscribe("/queue/a")
    two.subscribe("/queue/b")
    assert (one.bodies(), two.bodies()) == ([pattern(5000)], [pattern(5000)])
    assert_empty(bench)


def test_to_a_client_of_the_legacy_dialect() -> None:
    bench = bench_of()
    sender, legacy = bench.peer(), bench.peer(connect=False, listener="legacy")
    legacy.parser.version = "legacy"
    legacy.raw(b"connect\nusername:guest\npasscode:guest\n\n\0subscribe\ndestination:/queue/a\n\n\0")
    legacy.take()
    sender.put(QUEUE, pattern(5000))
    assert legacy.next("MESSAGE").body == pattern(5000)
    assert_empty(bench)
