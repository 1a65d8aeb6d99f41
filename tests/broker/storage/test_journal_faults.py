"""What is stored, when receipts go out, and what is left of a turn whose commit failed."""

import pytest
from broker.harness import Bench, FaultyStore


def restarted(bench, **config):
    """The messages of a queue after the broker was started anew."""
    peer = Bench(bench.store, **config).peer()
    peer.subscribe("/queue/a", ack="client-individual", prefetch_count="0")
    return [(frame.body.decode(), frame.headers["message-id"]) for frame in peer.take()]


@pytest.mark.parametrize(("durable", "kept"), [("persistent", ["1"]), ("all", ["0", "1"]), ("none", [])])
def test_what_is_stored(durable, kept):
    bench = Bench(FaultyStore(), durable=durable)
    peer = bench.peer()
    peer.put("/queue/a", "0")
    peer.put("/queue/a", "1", persistent="true")
    peer.put("/queue/a", "2", persistent="false")
    peer.put("/topic/a", "3", persistent="true")
    assert bench.store.bodies == kept
    assert [body for body, _ in restarted(bench, durable=durable)] == kept


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


def test_ids_and_order_outlive_the_broker():
    bench = Bench(FaultyStore())
    peer = bench.peer()
    for number in range(5):
        peer.put("/queue/a", str(number), persistent="true")
    before = [stored.id for stored in bench.store.load()]
    again = Bench(bench.store)
    peer = again.peer()
    peer.put("/queue/a", "5", persistent="true")
    messages = restarted(again)
    assert [body for body, _ in messages] == ["0", "1", "2", "3", "4", "5"]
    assert [message_id for _, message_id in messages][:5] == before
    assert len({message_id for _, message_id in messages}) == 6


def test_acknowledged_messages_are_gone_from_the_store():
    bench = Bench(FaultyStore())
    peer = bench.peer()
    for number in range(4):
        peer.put("/queue/a", str(number), persistent="true")
    peer.subscribe("/queue/a", ack="client-individual", prefetch_count="3")
    messages = peer.take()
    peer.ack(messages[1], receipt="r")
    assert {frame.command for frame in peer.take()} == {"MESSAGE", "RECEIPT"}
    assert bench.store.bodies == ["0", "2", "3"]
    peer.nack(messages[0])
    (stored, *_) = bench.store.load()
    assert (stored.attempts, stored.redelivered) == (1, True)
    peer.lose()
    peer = bench.peer()
    peer.subscribe("/queue/a")
    assert len(peer.bodies()) == 3
    assert bench.store.bodies == []


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


def test_a_disconnect_in_the_same_turn_gets_no_false_receipt():
    bench = Bench(FaultyStore())
    peer = bench.peer()
    bench.store.faulty = True
    peer.raw(b"SEND\ndestination:/queue/a\npersistent:true\nreceipt:1\n\n\0DISCONNECT\nreceipt:2\n\n\0")
    assert [frame.command for frame in peer.take()] in ([], ["ERROR"])
    assert peer.closed


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


def test_a_transaction_that_is_not_stored_did_not_happen():
    bench = Bench(FaultyStore())
    peer, sender = bench.peer(), bench.peer()
    for number in range(3):
        sender.put("/queue/in", str(number))  # not stored themselves
    peer.subscribe("/queue/in", ack="client-individual")
    messages = peer.take()
    peer.send("BEGIN", transaction="t")
    peer.ack(messages[0], transaction="t")
    peer.put("/queue/out", "p", transaction="t", persistent="true")
    peer.put("/queue/out", "t", transaction="t")
    bench.store.faulty = True
    peer.send("COMMIT", transaction="t", receipt="c")
    assert peer.error().headers["receipt-id"] == "c"
    bench.store.faulty = False
    sender.subscribe("/queue/out", "1")
    assert sender.take() == []
    sender.subscribe("/queue/in", "2")
    assert sender.bodies() == [b"0", b"1", b"2"]
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


def test_the_store_works_again():
    bench = Bench(FaultyStore())
    for number in range(6):
        peer = bench.peer()
        bench.store.faulty = number % 2 == 0
        peer.put("/queue/a", str(number), persistent="true", receipt="r")
        assert peer.closed is bench.store.faulty
    assert [body for body, _ in restarted(bench)] == ["1", "3", "5"]


def test_a_frame_that_makes_itself_the_last_one_has_no_receipt():
    bench = Bench(FaultyStore(), topic_backlog=1)
    peer = bench.peer()
    peer.subscribe("/topic/a", ack="client")
    peer.session.receive(b"SEND\ndestination:/queue/a\npersistent:true\nreceipt:0\n\n\0", 0.0)
    large = b"SEND\ndestination:/topic/a\nreceipt:%d\n\n" + b"x" * 70_000 + b"\0"
    peer.raw(large % 1 + large % 2)
    frames = [frame for frame in peer.take() if frame.command != "MESSAGE"]
    assert [frame.get("receipt-id") for frame in frames] == ["0", "1", None]
    assert frames[-1].command == "ERROR"


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("put_too", [False, True])
def test_a_mark_of_redelivery_outlives_a_failed_commit(background, put_too):
    bench = Bench(FaultyStore(background))
    sender, consumer = bench.peer(), bench.peer()
    sender.put("/queue/a", "x", persistent="true")
    if background:
        bench.store.finish()
        bench.turn()
    consumer.subscribe("/queue/a", ack="client-individual")
    assert consumer.next("MESSAGE").get("redelivered") is None
    bench.store.faulty = True
    consumer.session.lost(bench.now)
    if put_too:
        sender.put("/queue/a", "y", persistent="true")  # goes with the mark, and fails with it
    for _ in range(3):
        bench.turn()
        if bench.store.job is not None:
            bench.store.finish()
        bench.wait(2.0)
    assert bench.broker.journal.failures >= 1
    bench.store.faulty = False
    for _ in range(3):
        bench.wait(2.0)
        bench.turn()
        if bench.store.job is not None:
            bench.store.finish()
            bench.turn()
    peer = Bench(bench.store).peer()
    peer.subscribe("/queue/a", ack="client-individual")
    marks = {frame.body: (frame.get("redelivered"), frame.get("redelivery-count")) for frame in peer.take()}
    assert marks == {b"x": ("true", "1")}


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
