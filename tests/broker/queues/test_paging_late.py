"""Messages that take effect after their commit, in a queue that other messages fill meanwhile: they come behind later
ones, some of which are paged already, or on their way to somebody."""

from __future__ import annotations

import pytest
from broker.harness import Bench, FaultyStore, Peer
from broker.paged import QUEUE, numbers, queue_of


def send_late(peer: Peer, kind: str, *bodies: str) -> None:
    """Send persistent messages that take effect when they are stored."""
    more = {} if kind == "key" else {"transaction": "t"}
    if more:
        peer.send("BEGIN", transaction="t")
    for body in bodies:
        peer.put(QUEUE, body, persistent="true", **(more or {"idempotency_key": body}))
    if more:
        peer.send("COMMIT", transaction="t")


def finish(bench: Bench, store: FaultyStore) -> None:
    while store.job is not None:
        store.finish()
        bench.turn()


@pytest.mark.parametrize("transient", ["stop", "spool"])
@pytest.mark.parametrize("window", [1, 2, 3, 100])
@pytest.mark.parametrize("kind", ["key", "transaction"])
def test_they_come_before_what_was_paged_meanwhile(kind: str, window: int, transient: str) -> None:
    store = FaultyStore(background=True)
    bench = Bench(store, window_messages=window, transient=transient)
    sender, other = bench.peer(), bench.peer()
    other.put(QUEUE, "0")
    send_late(sender, kind, "1", "2", "3")
    for number in range(4, 10):
        other.put(QUEUE, str(number), persistent="true" if number % 3 or transient == "stop" else "false")
    finish(bench, store)
    queue = queue_of(bench)
    assert queue.total == 10
    taker = bench.peer()
    taker.subscribe(QUEUE)
    finish(bench, store)
    assert numbers(taker) == list(range(10))
    assert (queue.total, queue.paging) == (0, None)


@pytest.mark.parametrize("kind", ["key", "transaction"])
@pytest.mark.parametrize("settle", ["in a transaction", "at once"])
def test_what_somebody_has_is_not_taken_for_paged(kind: str, settle: str) -> None:
    store = FaultyStore(background=True)
    bench = Bench(store, window_messages=1)
    sender, other, holder = bench.peer(), bench.peer(), bench.peer()
    holder.subscribe(QUEUE, ack="client-individual", selector="color = 'red'")
    other.put(QUEUE, "0")
    send_late(sender, kind, "1")
    other.put(QUEUE, "2", persistent="true", color="red")
    message = holder.next("MESSAGE")
    if settle == "in a transaction":
        holder.send("BEGIN", transaction="t")
        holder.ack(message, transaction="t")
        finish(bench, store)
    else:
        store.finish()
        bench.turn()
        store.finish()
        holder.ack(message)
    other.put(QUEUE, "3", persistent="true")
    other.put(QUEUE, "4", persistent="true")
    taker = bench.peer()
    taker.subscribe(QUEUE)
    finish(bench, store)
    assert numbers(taker) == [0, 1, 3, 4]
    if settle == "in a transaction":
        holder.send("COMMIT", transaction="t")
    finish(bench, store)
    bench.wait(3.0)
    finish(bench, store)
    assert queue_of(bench).total == 0
    assert list(store.load()) == []


@pytest.mark.parametrize("name", [QUEUE, "/topic/t"])
@pytest.mark.parametrize("window", [1, 3, 100])
def test_what_comes_behind_a_transaction_is_read_after_its_own_commit(name: str, window: int) -> None:
    store = FaultyStore(background=True)
    bench = Bench(store, window_messages=window)
    sender, taker = bench.peer(), bench.peer("1.2", connect=False)
    taker.connect(client_id="c")
    taker.subscribe(name, durable_subscription_name="d", ack="client-individual", prefetch_count="1")
    finish(bench, store)
    sender.send("BEGIN", transaction="t")
    sender.put(name, "0", persistent="true", transaction="t")
    sender.send("COMMIT", transaction="t")
    for number in range(1, 9):
        sender.put(name, str(number), persistent="true")
    store.finish()  # that of the transaction
    bench.turn()
    for number in range(9):
        message = taker.inbox.pop(0) if taker.inbox else None
        if message is None:
            finish(bench, store)
            message = taker.next("MESSAGE")
        assert message.body == b"%d" % number
        taker.ack(message)
    finish(bench, store)
    assert list(store.load()) == []


def test_two_that_come_late_in_another_order() -> None:
    store = FaultyStore(background=True)
    bench = Bench(store, window_messages=1)
    sender, keyed, holder = bench.peer(), bench.peer(), bench.peer()
    holder.subscribe(QUEUE, ack="client-individual", selector="color = 'red'")
    sender.put(QUEUE, "0")
    sender.send("BEGIN", transaction="t")
    sender.put("/queue/other", "", persistent="true", transaction="t")
    sender.send("COMMIT", transaction="t")
    send_late(keyed, "key", "1")
    sender.put(QUEUE, "2", persistent="true", color="red")  # takes effect before the message in front of it
    store.finish()
    bench.turn()
    holder.send("BEGIN", transaction="t")
    holder.ack(holder.next("MESSAGE"), transaction="t")
    finish(bench, store)
    for number in (3, 4):
        sender.put(QUEUE, str(number), persistent="true")
    taker = bench.peer()
    taker.subscribe(QUEUE)
    finish(bench, store)
    assert numbers(taker) == [0, 1, 3, 4]
