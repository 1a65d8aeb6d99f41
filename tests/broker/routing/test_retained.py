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


def test_wildcards_and_selectors():
    pytest.importorskip("lark")
    bench, sender = bench_of(wildcards="rabbitmq")
    for number in range(4):
        sender.put(f"/topic/a.{number}", str(number), retain="set", n=str(number))
    assert late(bench, "/topic/a.#") == [b"0", b"1", b"2", b"3"]
    assert late(bench, "/topic/a.*", selector="n > 1") == [b"2", b"3"]
    assert late(bench, "/topic/a.2", selector="n > 2") == []


def test_it_expires():
    bench, sender = bench_of()
    sender.put("/topic/a", "1", retain="set", expiration="5000")
    assert late(bench) == [b"1"]
    bench.date += 6
    assert late(bench) == []
    bench.wait(30)
    assert bench.broker.virtual_host("/").destinations.retained.part.used == 0


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


@pytest.mark.parametrize("action", ["set", "remove"])
def test_the_one_before_is_there_if_the_next_could_not_be_stored(action):
    store = FaultyStore()
    bench, sender = bench_of(store)
    sender.put("/topic/a", "1", retain="set", persistent="true", receipt="r")
    store.faulty = True
    sender.put("/topic/a", "2", retain=action, persistent="true", receipt="s")
    assert "stored" in sender.error().headers["message"]
    assert late(bench) == [b"1"]
    store.faulty = False
    bench.peer().put("/queue/b", "", persistent="true", receipt="t")
    assert store.bodies[0] == "1"
    bench.peer().put("/topic/a", "3", retain="set", persistent="true", receipt="u")
    assert late(bench) == [b"3"]
    assert "1" not in store.bodies


@pytest.mark.parametrize("beside", ["", "/queue/q", "/topic/a"])
@pytest.mark.parametrize("action", ["set", "remove"])
def test_a_receipt_of_a_transaction_follows_the_commit_of_what_goes(action, beside):
    """A retained message is removed when the transaction is stored, if it has to be; then the removal is stored."""
    store = FaultyStore(background=True)
    bench, sender = bench_of(store)
    sender.put("/topic/a", "1", retain="set", persistent="true")
    store.finish(at_once=True)
    sender.send("BEGIN", transaction="t")
    if beside:
        sender.put(beside, "2", transaction="t", persistent="true")
    sender.put("/topic/a", "3", retain=action, transaction="t")
    commits = store.commits
    sender.send("COMMIT", transaction="t", receipt="r")
    sender.put("/queue/other", "4", receipt="s")
    for _ in range(3):
        if store.job is None:
            break
        assert sender.take() == []
        store.finish(at_once=True)
        bench.turn()
    assert [frame.headers["receipt-id"] for frame in sender.take()] == ["r", "s"]
    assert (store.bodies, store.commits - commits) == (["2"] if beside == "/queue/q" else [], 2 if beside else 1)
    assert late(bench) == ([b"3"] if action == "set" else [])


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
