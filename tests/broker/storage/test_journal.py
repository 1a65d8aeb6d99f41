"""What is stored, who waits for which commit, and what is left of a turn whose commit failed."""

import gc

import pytest
from broker.harness import Bench, FaultyStore

from stompcodec.broker.message import Message


@pytest.mark.parametrize(("durable", "kept"), [("persistent", ["1"]), ("all", ["0", "1"]), ("none", [])])
def test_what_is_stored(durable, kept):
    bench = Bench(FaultyStore(), durable=durable)
    peer = bench.peer()
    peer.put("/queue/a", "0")
    peer.put("/queue/a", "1", persistent="true")
    peer.put("/queue/a", "2", persistent="false")
    peer.put("/topic/a", "3", persistent="true")
    assert bench.store.bodies == kept
    again = Bench(bench.store, durable=durable).peer()
    again.subscribe("/queue/a")
    assert [body.decode() for body in again.bodies()] == kept


def test_one_commit_a_turn_and_none_without_need():
    bench = Bench(FaultyStore())
    peer, other = bench.peer(), bench.peer()
    for number in range(10):
        for sender in (peer, other):
            sender.session.receive(b"SEND\ndestination:/queue/a\npersistent:true\nreceipt:1\n\n%d\0" % number, 0.0)
    bench.turn()
    assert bench.store.commits == 1
    peer.put("/queue/b", "x", receipt="r")
    assert bench.store.commits == 1
    assert len(peer.take()) == 11


def test_receipts_follow_the_commit_and_keep_their_order():
    bench = Bench(FaultyStore())
    peer, quick = bench.peer(), bench.peer()
    peer.session.receive(
        b"SEND\ndestination:/queue/a\nreceipt:1\n\n\0"
        b"SEND\ndestination:/queue/a\nreceipt:2\npersistent:true\n\n\0"
        b"SEND\ndestination:/queue/a\nreceipt:3\n\n\0",
        0.0,
    )
    quick.session.receive(b"SEND\ndestination:/queue/a\nreceipt:1\n\n\0", 0.0)
    assert b"receipt-id:2" not in b"".join(peer.session.connection.output)
    order = []
    for session in bench.broker.turn(0.0):
        order.append((session, bench.store.commits))
        bench.peers[session].flush()
    assert (quick.session, 0) in order  # who stored nothing does not wait
    assert order[-1] == (peer.session, 1)
    assert [frame.headers["receipt-id"] for frame in peer.take()] == ["1", "2", "3"]


def test_a_failed_commit_is_an_error_and_no_receipt(caplog):
    bench = Bench(FaultyStore())
    peer, other, quick = bench.peer(), bench.peer(), bench.peer()
    bench.store.faulty = True
    peer.session.receive(
        b"SEND\ndestination:/queue/a\nreceipt:0\n\nt\0"
        b"SEND\ndestination:/queue/a\nreceipt:1\npersistent:true\n\np\0"
        b"SEND\ndestination:/queue/a\nreceipt:2\n\nt\0",
        0.0,
    )
    other.session.receive(b"SEND\ndestination:/queue/a\npersistent:true\n\np\0", 0.0)
    quick.session.receive(b"SEND\ndestination:/queue/a\nreceipt:1\n\nq\0", 0.0)
    bench.turn()
    frames = peer.take()
    assert [(frame.command, frame.get("receipt-id")) for frame in frames] == [("RECEIPT", "0"), ("ERROR", "1")]
    assert frames[-1].headers["message"] == "the message could not be stored"
    assert other.error().get("receipt-id") is None
    quick.next("RECEIPT")
    assert not quick.closed
    assert "the disk is full" in caplog.text
    bench.store.faulty = False
    quick.subscribe("/queue/a")
    assert quick.bodies() == [b"t", b"t", b"q"]
    assert bench.store.bodies == []
    assert bench.octets == 0


@pytest.mark.parametrize("receipt", [{}, {"receipt": "r"}])
def test_an_ack_that_is_not_stored_did_not_happen(receipt):
    bench = Bench(FaultyStore())
    peer, sender = bench.peer(), bench.peer()
    for number in range(3):
        sender.put("/queue/a", str(number), persistent="true")
    peer.subscribe("/queue/a", ack="client-individual")
    messages = peer.take()
    bench.store.faulty = True
    peer.ack(messages[1], **receipt)
    assert peer.error().get("receipt-id") == receipt.get("receipt")
    bench.store.faulty = False
    assert bench.store.bodies == ["0", "1", "2"]
    other = bench.peer()
    other.subscribe("/queue/a", ack="client")
    frames = other.take()
    assert [frame.body for frame in frames] == [b"0", b"1", b"2"]
    assert {frame.headers["redelivered"] for frame in frames} == {"true"}
    other.ack(frames[-1])
    assert bench.store.bodies == []
    assert bench.octets == 0


def test_what_went_out_in_auto_mode_is_removed_later():
    bench = Bench(FaultyStore())
    peer, sender = bench.peer(), bench.peer()
    sender.put("/queue/a", "x", persistent="true")
    bench.store.faulty = True
    peer.subscribe("/queue/a")
    assert peer.bodies() == [b"x"]
    assert bench.store.bodies == ["x"]
    assert bench.broker.next_deadline() is not None
    bench.wait(5.0)
    bench.store.faulty = False
    bench.wait(2.0)
    assert bench.store.bodies == []
    commits = bench.store.commits
    bench.wait(20.0)
    assert bench.store.commits == commits
    assert not peer.closed


# ---- commits that take their time ----


def background(**config):
    bench = Bench(FaultyStore(background=True), **config)
    return bench, bench.store


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
