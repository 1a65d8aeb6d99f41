"""What is stored, who waits for which commit, and what is left of a turn whose commit failed."""

import gc

import pytest
from broker.harness import Bench, FaultyStore

from stompcodec.broker.memory import MESSAGE
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


@pytest.mark.parametrize("taken", [False, True])
def test_a_dead_letter_that_could_not_be_stored_is_stored_later(taken):
    bench = Bench(FaultyStore(), max_attempts=1)
    peer, other = bench.peer(), bench.peer()
    peer.put("/queue/a", "x", persistent="true")
    peer.subscribe("/queue/a", ack="client")
    if taken:
        other.subscribe("/queue/DLQ.a", ack="client")
    bench.store.faulty = True
    peer.nack(peer.next("MESSAGE"))
    assert [stored.destination for stored in bench.store.load()] == ["/queue/a"]
    peer.lose()
    bench.store.faulty = False
    if not taken:
        other.subscribe("/queue/DLQ.a", ack="client")
    letter = other.next("MESSAGE")
    assert (letter.body, letter.get("redelivered")) == (b"x", None)
    bench.wait(1.1)
    assert [stored.destination for stored in bench.store.load()] == ["/queue/DLQ.a"]
    other.ack(letter, receipt="r")
    assert [frame.command for frame in other.take()] == ["RECEIPT"]
    assert bench.store.bodies == []


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


def test_a_commit_that_fails_in_the_background_is_not_tried_again_at_once():
    bench = Bench(FaultyStore(background=True))
    sender, consumer = bench.peer(), bench.peer()
    consumer.subscribe("/queue/a")
    bench.store.faulty = True
    sender.put("/queue/a", "x", persistent="true")  # delivered, so it has to leave the store, whatever it takes
    before, until = bench.store.commits, bench.now + 10.0
    while bench.now < until:
        if bench.store.job is not None:
            bench.store.finish()
        bench.turn()
        bench.wait(0.01)
    assert bench.store.commits - before <= 12  # once a second
    bench.store.faulty = False
    bench.wait(2.0)
    if bench.store.job is not None:
        bench.store.finish()
    bench.turn()
    assert not bench.broker.journal.open


def test_a_transaction_removes_nothing_from_the_store_that_was_never_there():
    store = FaultyStore()
    bench = Bench(store, durable="all")
    sender, consumer = bench.peer(), bench.peer()
    consumer.subscribe("/topic/a", ack="client-individual")
    sender.put("/topic/a", "x")
    removed = []
    store.remove = lambda queue, message: removed.append(queue)
    consumer.send("BEGIN", transaction="t")
    consumer.ack(consumer.next("MESSAGE"), transaction="t")
    consumer.put("/queue/b", "y", transaction="t", persistent="true")
    consumer.send("COMMIT", transaction="t", receipt="r")
    assert consumer.next("RECEIPT").headers["receipt-id"] == "r"
    assert removed == []


# ---- commits that take their time ----


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


@pytest.mark.parametrize(("last", "answer"), [("DISCONNECT", "RECEIPT"), ("COMMIT", "ERROR")])
def test_the_last_answer_waits_too(last, answer):
    bench, store = background()
    peer = bench.peer()
    peer.put("/queue/a", "1", persistent="true", receipt="1")
    peer.send(last, receipt="2", **({"transaction": "none"} if last == "COMMIT" else {}))
    assert not peer.closed
    if last == "COMMIT":
        peer.put("/queue/a", "late", receipt="3")
    store.finish()
    bench.turn()
    assert [(frame.command, frame.get("receipt-id")) for frame in peer.take()] == [("RECEIPT", "1"), (answer, "2")]
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
