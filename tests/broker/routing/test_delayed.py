"""Messages that are delivered later: by whichever header says so, in queues and topics, over restarts."""

import pytest
from broker.harness import Bench, FaultyStore

from stompcodec.broker.storage.sqlite import SqliteStore

SPELLINGS = ["delay", "AMQ_SCHEDULED_DELAY", "x-delay"]


def pass_time(bench, seconds):
    """Both clocks go on, in small steps."""
    for _ in range(int(seconds * 10)):
        bench.date += 0.1
        bench.wait(0.1)


def send(peer, destination, body, name="delay", value="5000", **headers):
    lines = "".join(f"{key}:{text}\n" for key, text in {name: value, **headers}.items())
    peer.raw(f"SEND\ndestination:{destination}\n{lines}\n{body}\0".encode())


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("persistent", ["true", "false"])
@pytest.mark.parametrize("listening", [True, False])
def test_a_message_waits_for_its_time(name, persistent, listening):
    bench = Bench()
    sender, peer = bench.peer(), bench.peer()
    if listening:
        peer.subscribe("/queue/a", ack="client")
    send(sender, "/queue/a", "late", name, persistent=persistent, receipt="r")
    assert sender.next("RECEIPT").headers["receipt-id"] == "r"
    sender.put("/queue/a", "early")
    if not listening:
        peer.subscribe("/queue/a", ack="client")
    assert peer.next("MESSAGE").body == b"early"
    pass_time(bench, 4.5)
    assert peer.take() == []
    assert bench.broker.queues["/", "/queue/a"].count == 2
    pass_time(bench, 1)
    message = peer.next("MESSAGE")
    assert (message.body, message.get("redelivered")) == (b"late", None)
    assert int(message.headers["message-id"].partition("-")[2]) == 3  # behind the messages that arrived meanwhile
    peer.ack(message)
    assert bench.broker.queues["/", "/queue/a"].count == 0
    assert bench.octets == 0
    assert list(bench.store.load()) == []
    assert (len(bench.broker.delayed), bench.broker.journal.batch.actions) == (0, [])


def test_the_timer_is_set_for_it():
    bench = Bench()
    sender = bench.peer()
    bench.broker._sweep_at = None
    send(sender, "/queue/a", "x", value="250")
    assert bench.broker.next_deadline() == pytest.approx(bench.now + 0.25)
    bench.date += 0.25
    bench.broker.tick(0.25)
    bench.turn()
    assert len(bench.broker.queues["/", "/queue/a"].messages) == 1


def test_they_come_in_the_order_of_their_times():
    bench = Bench()
    sender, peer = bench.peer(), bench.peer()
    peer.subscribe("/queue/a")
    for wait in (3000, 1000, 2000, 1000):
        send(sender, "/queue/a", str(wait), value=str(wait))
    pass_time(bench, 4)
    assert peer.bodies() == [b"1000", b"1000", b"2000", b"3000"]


def test_to_a_topic():
    bench = Bench()
    sender, peer, later = bench.peer(), bench.peer(), bench.peer()
    peer.subscribe("/topic/a")
    send(sender, "/topic/a", "x", persistent="true", receipt="r")
    assert sender.next("RECEIPT")
    later.subscribe("/topic/a")
    assert bench.octets > 0
    pass_time(bench, 6)
    assert peer.bodies() == later.bodies() == [b"x"]
    assert bench.octets == 0


@pytest.mark.parametrize("value", ["0", "", "soon", "-5", "1e3", "9" * 400])
def test_what_is_no_delay_is_none(value):
    """In a dialect that goes on with such values: our own refuses them."""
    bench = Bench(dialect="activemq")
    sender, peer = bench.peer(), bench.peer()
    peer.subscribe("/queue/a")
    send(sender, "/queue/a", "x", value=value)
    assert peer.bodies() == [b"x"]


@pytest.mark.parametrize("down", [1, 60])
def test_it_waits_over_a_restart(down):
    bench = Bench()
    bench.date = 1_790_000_000.0  # of today's size
    send(bench.peer(), "/queue/a", "x", value="30000", persistent="true")
    send(bench.peer(), "/queue/a", "y", value="30000")
    date = bench.date + down
    bench = Bench(bench.store)
    bench.date = date
    peer = bench.peer()
    peer.subscribe("/queue/a")
    if down < 30:
        assert peer.take() == []
        pass_time(bench, 30)
    else:
        bench.wait(1)
    assert peer.bodies() == [b"x"]
    assert list(bench.store.load()) == []
    assert bench.octets == 0


def test_one_that_is_forged_is_not_late():
    bench = Bench()
    sender, peer = bench.peer(), bench.peer()
    sender.put("/queue/a", "x", deliver_at="99999999999999", persistent="true")
    send(sender, "/queue/a", "y", value="100", persistent="true", **{"deliver-at": "99999999999999"})
    pass_time(bench, 1)
    bench = Bench(bench.store)
    peer = bench.peer()
    peer.subscribe("/queue/a")
    assert peer.bodies() == [b"x", b"y"]


def test_in_a_transaction():
    bench = Bench()
    sender, peer = bench.peer(), bench.peer()
    peer.subscribe("/queue/a")
    sender.send("BEGIN", transaction="t")
    send(sender, "/queue/a", "x", value="1000", persistent="true", transaction="t")
    sender.send("COMMIT", transaction="t", receipt="r")
    assert sender.next("RECEIPT")
    assert len(list(bench.store.load())) == 1
    assert peer.take() == []
    pass_time(bench, 2)
    assert peer.bodies() == [b"x"]
    assert list(bench.store.load()) == []


def test_one_that_could_not_be_stored_never_comes():
    store = FaultyStore()
    bench = Bench(store)
    sender, peer = bench.peer(), bench.peer()
    store.faulty = True
    send(sender, "/queue/a", "x", value="1000", persistent="true")
    assert sender.error().headers["message"] == "the message could not be stored"
    store.faulty = False
    peer.subscribe("/queue/a")
    pass_time(bench, 2)
    assert peer.take() == []
    assert bench.octets == 0


def test_a_fault_of_the_disk_when_it_is_due_loses_nothing():
    store = FaultyStore()
    bench = Bench(store)
    sender, peer = bench.peer(), bench.peer()
    send(sender, "/queue/a", "x", value="1000", persistent="true")
    store.faulty = True
    pass_time(bench, 2)
    store.faulty = False
    pass_time(bench, 2)
    peer.subscribe("/queue/a")
    assert b"x" in peer.bodies()
    assert len(list(bench.store.load())) == 0
    assert bench.octets == 0


@pytest.mark.parametrize("delivered", ["", "auto", "client", "acknowledged"])
def test_a_fault_of_the_disk_does_not_bring_it_back(delivered):
    """It has its new place already, and somebody may have got it: that is written again, and nothing comes twice."""
    store = FaultyStore(background=True)
    bench = Bench(store)
    sender, peer = bench.peer(), bench.peer()
    send(sender, "/queue/a", "x", value="1000", persistent="true")
    store.finish(at_once=True)
    sender.put("/queue/a", "y")
    if delivered:
        peer.subscribe("/queue/a", ack="auto" if delivered == "auto" else "client", include_seq="seq")
    pass_time(bench, 1.2)
    store.faulty = True
    if delivered == "acknowledged":
        *_rest, message = frames = peer.take()
        peer.ack(message)
    store.finish(at_once=True)
    commits = store.commits
    for _ in range(5):  # a disk that is full is not asked all the time
        bench.turn()
    assert (store.commits - commits, len(bench.broker.delayed)) == (0 if delivered != "acknowledged" else 1, 0)
    while store.job is not None:
        store.finish(at_once=True)
    assert len(store.bodies) == 1
    store.faulty = False
    for _ in range(3):
        pass_time(bench, 1.1)
        if store.job is not None:
            store.finish(at_once=True)
            bench.turn()
    if not delivered:
        peer.subscribe("/queue/a", include_seq="seq")
    if delivered != "acknowledged":
        frames = peer.take()
    assert [(frame.body, frame.get("redelivered")) for frame in frames] == [(b"y", None), (b"x", None)]
    seqs = [int(frame.headers["seq"]) for frame in frames]
    assert seqs == sorted(set(seqs))
    assert (peer.closed, peer.take()[:-1]) == (delivered == "acknowledged", [])  # its ACK was not stored
    if delivered == "client":
        assert [(stored.tail[-2:], stored.seq) for stored in store.load()] == [(b"x\0", seqs[-1])]
    else:
        bench.turn()
        while store.job is not None:
            store.finish(at_once=True)
            bench.turn()
        assert store.bodies == ([] if delivered != "acknowledged" else store.bodies)


def test_how_many_may_wait():
    bench = Bench(max_delayed=3)
    sender = bench.peer()
    for _ in range(3):
        send(sender, "/queue/a", "x")
    assert not sender.closed
    send(sender, "/queue/a", "x")
    assert sender.error().headers["message"] == "too many delayed messages"
    assert bench.broker.queues["/", "/queue/a"].count == 3


def test_a_sender_waits_when_the_queue_is_full_of_them():
    bench = Bench(max_queue_messages=2)
    sender = bench.peer()
    for _ in range(3):
        send(sender, "/queue/a", "x", value="1000")
    assert sender.session.paused
    pass_time(bench, 2)
    peer = bench.peer()
    peer.subscribe("/queue/a")
    assert len(peer.take()) == 3
    assert not sender.session.paused


def test_a_temporary_queue_that_is_gone_gets_nothing():
    bench = Bench()
    owner, sender = bench.peer(), bench.peer()
    owner.subscribe("/temp-queue/x")
    send(sender, f"/temp-queue/{owner.session.id}-x", "x", value="1000")
    owner.lose()
    pass_time(bench, 2)
    assert bench.octets == 0
    assert len(bench.broker.delayed) == 0


def test_a_group_and_a_delay():
    bench = Bench()
    sender, one, two = bench.peer(), bench.peer(), bench.peer()
    one.subscribe("/queue/a", ack="client")
    two.subscribe("/queue/a", ack="client")
    send(sender, "/queue/a", "g1", JMSXGroupID="g", value="0")
    send(sender, "/queue/a", "g2", JMSXGroupID="g", value="1000")
    pass_time(bench, 2)
    assert [one.bodies(), two.bodies()] in ([[b"g1", b"g2"], []], [[], [b"g1", b"g2"]])


def test_it_waits_in_a_store_on_the_disk(tmp_path):
    store = SqliteStore(tmp_path)
    bench = Bench(store)
    sender = bench.peer()
    send(sender, "/queue/a", "x", value="30000", persistent="true")
    sender.put("/queue/a", "y", persistent="true")
    latest = bench.broker.seq
    store.close()
    for last in (False, True):
        date, store = bench.date + 20, SqliteStore(tmp_path)
        bench = Bench(store)
        bench.date = date
        assert bench.broker.seq > latest
        pass_time(bench, 1)
        assert bench.broker.queues["/", "/queue/a"].count == 2
        assert len(bench.broker.delayed) == (not last)
        store.close()
    store = SqliteStore(tmp_path)
    bench = Bench(store)
    bench.date = date
    peer = bench.peer()
    peer.subscribe("/queue/a", include_seq="seq")
    bodies = [(frame.body, int(frame.headers["seq"]) > latest) for frame in peer.take()]
    assert bodies == [(b"y", False), (b"x", True)]
    store.close()
