"""Commits that take their time: who waits for which batch, and when transactions take effect."""

import gc

import pytest
from broker.harness import Bench, FaultyStore

from stompcodec.broker.memory import MESSAGE
from stompcodec.broker.message import Message


def background(**config):
    bench = Bench(FaultyStore(background=True), **config)
    return bench, bench.store


def test_receipts_wait_for_their_own_batch():
    bench, store = background()
    peer, quick = bench.peer(), bench.peer()
    peer.put("/queue/a", "1", persistent="true", receipt="1")
    peer.put("/queue/a", "2", receipt="2")
    peer.put("/queue/a", "3", persistent="true", receipt="3")
    peer.put("/queue/a", "4", receipt="4")
    quick.put("/queue/b", "", receipt="q")
    quick.next("RECEIPT")
    assert peer.take() == []
    assert (store.commits, store.bodies) == (1, [])
    store.finish()
    assert peer.take() == []
    bench.soon.pop(0)()
    assert bench.woken
    bench.turn()
    assert [frame.headers["receipt-id"] for frame in peer.take()] == ["1", "2"]
    assert (store.commits, store.bodies) == (2, ["1"])
    store.finish()
    bench.turn()
    assert [frame.headers["receipt-id"] for frame in peer.take()] == ["3", "4"]
    assert store.bodies == ["1", "3"]
    assert store.commits == 2


def test_a_disconnect_waits_too():
    bench, store = background()
    peer = bench.peer()
    peer.put("/queue/a", "1", persistent="true", receipt="1")
    peer.send("DISCONNECT", receipt="2")
    assert not peer.closed
    store.finish()
    bench.turn()
    assert [frame.headers["receipt-id"] for frame in peer.take()] == ["1", "2"]
    assert peer.closed


def test_an_error_waits_too():
    bench, store = background()
    peer = bench.peer()
    peer.put("/queue/a", "1", persistent="true", receipt="1")
    peer.send("COMMIT", transaction="none", receipt="2")
    assert not peer.closed
    peer.put("/queue/a", "late", receipt="3")
    store.finish()
    bench.turn()
    assert [frame.command for frame in peer.take()] == ["RECEIPT", "ERROR"]
    assert peer.closed
    assert bench.broker.queues["/", "/queue/a"].count == 1


def test_a_failed_batch_and_one_behind_it():
    bench, store = background()
    one, two = bench.peer(), bench.peer()
    one.put("/queue/a", "1", persistent="true", receipt="1")
    one.put("/queue/a", "2", persistent="true", receipt="2")
    two.put("/queue/a", "3", persistent="true", receipt="3")
    store.faulty = True
    store.finish()
    store.faulty = False
    bench.turn()
    assert one.error().headers["receipt-id"] == "1"
    assert two.take() == []
    store.finish()
    bench.turn()
    two.next("RECEIPT")
    assert store.bodies == ["2", "3"]  # nobody knows of the second one: it may be there
    two.subscribe("/queue/a")
    assert two.bodies() == [b"2", b"3"]


@pytest.mark.parametrize("faulty", [False, True])
def test_a_transaction_takes_effect_when_it_is_on_the_disk(faulty):
    bench, store = background()
    peer, other, watcher = bench.peer(), bench.peer(), bench.peer()
    other.put("/queue/in", "0")
    other.put("/queue/in", "1")
    peer.subscribe("/queue/in", ack="client-individual")
    messages = peer.take()
    watcher.subscribe("/queue/out", "1")
    watcher.subscribe("/topic/out", "2")
    peer.send("BEGIN", transaction="t")
    peer.ack(messages[0], transaction="t")
    peer.nack(messages[1], transaction="t")
    peer.put("/queue/out", "2", transaction="t", persistent="true")
    peer.put("/queue/out", "3", transaction="t")
    peer.put("/topic/out", "4", transaction="t", persistent="true")
    peer.send("COMMIT", transaction="t", receipt="c")
    peer.put("/queue/out", "behind", receipt="b")
    peer.put("/queue/out", "behind too", persistent="true", receipt="p")
    assert watcher.take() == peer.take() == []
    assert bench.broker.queues["/", "/queue/in"].count == 2
    store.faulty = faulty
    store.finish()
    store.faulty = False
    bench.turn()
    got = [body.decode() for body in watcher.bodies()]
    if faulty:
        assert peer.error().headers["receipt-id"] == "c"
        assert got == ["behind", "behind too"]
    else:
        assert sorted(got) == ["2", "3", "4", "behind", "behind too"]
        assert [body for body in got if body != "4"] == ["2", "3", "behind", "behind too"]
        frames = peer.take()
        assert [frame.get("receipt-id") for frame in frames if frame.command == "RECEIPT"] == ["c", "b", "p"]
        assert [frame.body for frame in frames if frame.command == "MESSAGE"] == [b"1"]
    if store.job is not None:
        store.finish()
        bench.turn()
    peer.lose()
    other.subscribe("/queue/in")
    assert other.bodies() == ([b"0", b"1"] if faulty else [b"1"])
    assert store.bodies == []
    assert bench.octets == 0


def test_two_transactions_and_what_is_between_keep_their_order():
    bench, store = background()
    peer, watcher = bench.peer(), bench.peer()
    watcher.subscribe("/queue/a")
    for name in "ab":
        peer.send("BEGIN", transaction=name)
        peer.put("/queue/a", name, transaction=name, persistent="true")
        peer.send("COMMIT", transaction=name)
        peer.put("/queue/a", f"after {name}")
    peer.send("BEGIN", transaction="c")
    peer.put("/queue/a", "c", transaction="c")
    peer.send("COMMIT", transaction="c")
    assert watcher.take() == []
    store.finish()
    bench.turn()
    assert watcher.bodies() == [b"a", b"after a"]
    store.finish()
    bench.turn()
    assert watcher.bodies() == [b"b", b"after b", b"c"]
    peer.put("/queue/a", "at once")
    assert watcher.bodies() == [b"at once"]


def test_a_session_that_is_lost_while_its_transaction_is_written():
    bench, store = background()
    peer, watcher = bench.peer(), bench.peer()
    watcher.subscribe("/queue/a")
    peer.put("/queue/in", "0")
    peer.subscribe("/queue/in", ack="client")
    message = peer.next("MESSAGE")
    peer.send("BEGIN", transaction="t")
    peer.put("/queue/a", "x", transaction="t", persistent="true")
    peer.ack(message, transaction="t")
    peer.send("COMMIT", transaction="t")
    peer.lose()
    bench.wait(100.0)
    assert watcher.take() == []
    store.finish()
    bench.turn()
    assert watcher.bodies() == [b"x"]
    assert bench.broker.queues["/", "/queue/in"].count == 0


def test_senders_wait_for_a_slow_disk(monkeypatch):
    monkeypatch.setattr("stompcodec.broker.storage.journal._MOST_PENDING", 10)
    bench, store = background()
    peer, quick = bench.peer(), bench.peer()
    sent = 0
    while not peer.session.paused:
        peer.put("/queue/a", str(sent), persistent="true")
        quick.put("/queue/a", "transient")
        sent += 1
    assert sent == 13  # one under way, eleven pending, and the one that sees it
    assert not quick.session.paused
    store.finish()
    bench.turn()
    assert not peer.session.paused
    store.finish()
    bench.turn()
    assert len(store.bodies) == sent


def test_messages_count_as_held_until_it_is_written_that_they_are_gone():
    bench, store = background()
    peer, taker = bench.peer(), bench.peer()
    taker.subscribe("/queue/a")
    peer.put("/queue/a", bytes(1000), persistent="true")
    peer.put("/queue/a", bytes(1000), persistent="true")
    assert len(taker.take()) == 2
    assert bench.octets == 0
    journal = bench.broker.journal
    assert (journal.batch.cost, store.job) == (0, None)  # there was nothing to write
    taker.send("UNSUBSCRIBE", id="1")
    peer.put("/queue/a", bytes(1000), persistent="true")
    store.finish()
    bench.turn()
    taker.subscribe("/queue/a", ack="client")
    taker.ack(taker.next("MESSAGE"))
    assert bench.octets == 0
    assert 1000 < journal.batch.cost + (journal.busy.cost if journal.busy else 0) - MESSAGE < 1500


@pytest.mark.parametrize("lost", ["before", "after"])
def test_a_session_that_ended_keeps_no_messages_until_garbage_is_looked_for(lost):
    bench, store = background()
    taker, peer = bench.peer(), bench.peer()
    taker.subscribe("/queue/a")
    gc.collect()
    gc.disable()
    before = [found for found in gc.get_objects() if isinstance(found, Message)]  # of other tests
    try:
        for number in range(20):
            peer.put("/queue/a", str(number), persistent="true")
        if lost == "before":
            peer.lose()
        while store.job is not None:
            store.finish()
            bench.turn()
        if lost == "after":
            peer.lose()
        assert len(taker.bodies()) == 20
        assert sum(isinstance(found, Message) for found in gc.get_objects()) <= len(before)
    finally:
        gc.enable()


@pytest.mark.parametrize("config", [{"durable": "none"}, {}])
def test_a_receipt_comes_where_nothing_is_stored(config):
    bench = Bench(**config)
    peer = bench.peer()
    for number in range(3):  # the first one looks for its queue, the others know it
        peer.put("/queue/a", "x", persistent="true", receipt=str(number))
    assert [frame.headers["receipt-id"] for frame in peer.take()] == ["0", "1", "2"]
    peer.subscribe("/queue/a")
    assert peer.bodies() == [b"x"] * 3
