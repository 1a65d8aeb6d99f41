"""What is stored, who waits for which commit, and what is left of a turn whose commit failed."""

import gc

import pytest
from broker.harness import Bench, FaultyStore
from broker.moves import QUEUE, commit, finish, left, put_all, receive, taker

from stompcodec.broker.message import Message


@pytest.fixture
def bench():
    return Bench(FaultyStore())


def test_one_commit_a_turn_and_none_without_need(bench):
    peer, other = bench.peer(), bench.peer()
    for number in range(10):
        for sender in (peer, other):
            receive(sender, "SEND", b"%d" % number, destination=QUEUE, persistent="true", receipt="1")
    bench.turn()
    assert bench.store.commits == 1
    peer.put("/queue/b", "x", receipt="r")
    assert bench.store.commits == 1
    assert len(peer.take()) == 11


@pytest.mark.parametrize("receipt", [{}, {"receipt": "r"}])
def test_an_ack_that_is_not_stored_did_not_happen(bench, receipt):
    put_all(bench.peer(), range(3), persistent="true")
    peer = taker(bench, ack="client-individual")
    messages = peer.take()
    bench.store.faulty = True
    peer.ack(messages[1], **receipt)
    assert peer.error().get("receipt-id") == receipt.get("receipt")
    bench.store.faulty = False
    assert bench.store.bodies == ["0", "1", "2"]
    other = taker(bench, ack="client")
    frames = other.take()
    assert [(frame.body, frame.headers["redelivered"]) for frame in frames] == [(b"%d" % n, "true") for n in range(3)]
    other.ack(frames[-1])
    assert (bench.store.bodies, bench.octets) == ([], 0)


def test_what_went_out_in_auto_mode_is_removed_later(bench):
    bench.peer().put(QUEUE, "x", persistent="true")
    bench.store.faulty = True
    peer = taker(bench)
    assert (peer.bodies(), bench.store.bodies) == ([b"x"], ["x"])
    assert bench.broker.next_deadline() is not None
    bench.wait(5.0)
    bench.store.faulty = False
    bench.wait(2.0)
    assert bench.store.bodies == []
    commits = bench.store.commits
    bench.wait(20.0)
    assert (bench.store.commits, peer.closed) == (commits, False)


@pytest.mark.parametrize(
    ("config", "headers", "most"),
    [({}, {"persistent": "true"}, 13), ({"window_messages": 3, "transient": "spool"}, {}, 15)],
)
def test_senders_wait_for_a_slow_disk(monkeypatch, config, headers, most):
    """One message is under way, and eleven are pending; one more sees it, or a window of three is in memory."""
    monkeypatch.setattr("stompcodec.broker.storage.journal._MOST_PENDING", 10)
    bench = Bench(FaultyStore(background=True), **config)
    peer, quick = bench.peer(), bench.peer()
    sent = 0
    while sent < 100 and not peer.session.paused:
        peer.put(QUEUE, str(sent), **headers)
        quick.put(f"/queue/{sent}", "transient")
        sent += 1
    assert sent == most
    assert not quick.session.paused
    commit(bench)
    assert not peer.session.paused
    commit(bench)
    bench.store.background = False
    assert left(bench) == [b"%d" % number for number in range(sent)]


@pytest.mark.parametrize("lost", ["before", "after"])
def test_a_session_that_ended_keeps_no_messages_until_garbage_is_looked_for(lost):
    bench = Bench(FaultyStore(background=True))
    consumer, peer = taker(bench), bench.peer()
    gc.collect()
    gc.disable()
    before = [found for found in gc.get_objects() if isinstance(found, Message)]  # of other tests
    try:
        put_all(peer, range(20), persistent="true")
        if lost == "before":
            peer.lose()
        finish(bench)
        if lost == "after":
            peer.lose()
        assert len(consumer.bodies()) == 20
        assert sum(isinstance(found, Message) for found in gc.get_objects()) <= len(before)
    finally:
        gc.enable()
