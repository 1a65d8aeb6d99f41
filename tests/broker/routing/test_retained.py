"""Retained messages: who gets them, and what becomes of them."""

import pytest
from broker.harness import Bench, FaultyStore

from stompcodec.broker.storage.store import MemoryStore


def bench_of(store=None, **config):
    bench = Bench(store, retain=True, **config)
    return bench, bench.peer()


def late(bench, destination="/topic/a", **headers):
    """Return the messages that a new subscriber gets."""
    peer = bench.peer()
    peer.subscribe(destination, **headers)
    bodies = peer.bodies()
    peer.lose()
    return bodies


def test_the_latest_one_is_for_those_who_come_later():
    bench, sender = bench_of()
    early = bench.peer()
    early.subscribe("/topic/a")
    sender.put("/topic/a", "1", retain="set")
    sender.put("/topic/a", "2", retain="set")
    sender.put("/topic/a", "3")
    assert early.bodies() == [b"1", b"2", b"3"]
    assert late(bench) == [b"2"]
    assert late(bench, ack="client") == [b"2"]
    assert late(bench, "/topic/b") == []
    sender.put("/topic/a", "4", retain="remove")
    assert early.bodies() == [b"4"]
    assert late(bench) == []
    bench.broker.virtual_host("/").destinations.sweep()
    retained = bench.broker.virtual_host("/").destinations.retained
    assert (bench.octets, retained.part.used, retained.queues) == (0, 0, {})


def test_an_unknown_value_is_refused():
    _bench, sender = bench_of()
    sender.put("/topic/a", "1", retain="yes")
    assert sender.error().headers["message"] == "unknown value of retain"


@pytest.mark.parametrize("bounds", [{"max_destinations": 3}, {"max_retained_octets": 250}])
def test_they_are_bounded(bounds):
    _bench, sender = bench_of(**bounds)
    for number in range(3):
        sender.put(f"/topic/{number}", "x" * 40, retain="set")
    for _ in range(3):  # those that are there may change
        sender.put("/topic/1", "x" * 40, retain="set")
    assert sender.take() == []
    sender.put("/topic/new", "x", retain="set")
    assert sender.error().headers["message"] == "too many retained messages"


def test_one_that_was_stored_half_is_the_latest():
    """A crash between two commits: the new one is stored, the old one is not removed yet."""
    store = MemoryStore()
    _bench, sender = bench_of(store)
    sender.put("/topic/a", "1", retain="set", persistent="true")
    (old,) = store.load()
    sender.put("/topic/a", "2", retain="set", persistent="true")
    store.append(old.queue, old)
    store.commit()
    again, _ = bench_of(store)
    assert late(again) == [b"2"]
    again.turn()
    again.peer().put("/topic/b", "x", persistent="true")
    assert len(list(store.load())) == 1


@pytest.mark.parametrize("together", [False, True])
def test_a_receipt_behind_a_transaction_follows_its_own_commit(together):
    """While the transaction is being written, later messages take effect after it."""
    store = FaultyStore(background=True)
    bench, sender = bench_of(store)
    sender.put("/topic/a", "1", retain="set", persistent="true")
    store.finish(at_once=True)
    sender.send("BEGIN", transaction="t")
    sender.put("/queue/q", "2", transaction="t", persistent="true")
    frames = [
        sender.octets_of("COMMIT", transaction="t", receipt="r"),
        sender.octets_of("SEND", b"3", destination="/topic/a", retain="remove", receipt="s"),
    ]
    for read in [b"".join(frames)] if together else frames:
        sender.raw(read)
    receipts = []
    while store.job is not None:
        assert "s" not in receipts
        store.finish(at_once=True)
        gone = "1" not in store.bodies
        bench.turn()
        receipts += [frame.headers["receipt-id"] for frame in sender.take()]
        assert gone or "s" not in receipts
    assert receipts == ["r", "s"]
    assert store.bodies == ["2"]


def test_a_later_one_wins_over_what_came_back():
    store = FaultyStore(background=True)
    bench, sender = bench_of(store)
    sender.put("/topic/a", "1", retain="set", persistent="true", receipt="r")
    store.finish(at_once=True)
    sender.put("/topic/a", "2", retain="set", persistent="true", receipt="s")
    bench.peer().put("/topic/a", "3", retain="set", persistent="true", receipt="t")
    store.faulty = True
    store.finish(at_once=True)
    store.faulty = False
    assert late(bench) == [b"3"]
