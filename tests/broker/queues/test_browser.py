"""Browsers: a queue shown in order, from a place on, without being taken; and taken by ACK."""

import pytest
from broker.harness import Bench, FaultyStore
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples


def filled(count=3, **headers):
    bench = Bench()
    sender = bench.peer()
    for number in range(count):
        sender.put("/queue/a", str(number), **headers)
    return bench, sender, bench.peer()


def queue_of(bench):
    return bench.broker.queues["/", "/queue/a"]


def shown(peer):
    """Bodies, and the end marker if it came last."""
    frames = peer.take()
    end = frames.pop() if frames and frames[-1].get("browser") == "end" else None
    assert all(frame.get("browser") is None for frame in frames)
    return [frame.body for frame in frames], end


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_browser_sees_all_and_takes_nothing(version):
    bench, sender, _ = filled()
    peer = bench.peer(version)
    peer.subscribe("/queue/a", browser="true")
    bodies, end = shown(peer)
    assert bodies == [b"0", b"1", b"2"]
    assert end is not None
    assert (end.command, end.body, end.headers["subscription"], end.get("ack")) == ("MESSAGE", b"", "1", None)
    sender.put("/queue/a", "3")
    assert peer.take() == []
    assert queue_of(bench).count == 4
    peer.send("UNSUBSCRIBE", id="1", receipt="r")
    peer.next("RECEIPT")
    peer.subscribe("/queue/a")
    assert peer.bodies() == [b"0", b"1", b"2", b"3"]
    assert queue_of(bench).dispatcher is None


def test_a_browser_that_does_not_end_sees_what_comes():
    bench, sender, peer = filled()
    peer.send("SUBSCRIBE", destination="/queue/a", id="1", browser="true", browser_end="false")
    sender.put("/queue/a", "3")
    assert peer.bodies() == [b"0", b"1", b"2", b"3"]
    other = bench.peer()
    other.subscribe("/queue/a")
    assert other.bodies() == [b"0", b"1", b"2", b"3"]


def test_from_seq_of_a_consumer_and_of_a_continuous_browser():
    bench, sender, peer = filled()
    peer.subscribe("/queue/a", "late", from_seq="-1")
    peer.send("SUBSCRIBE", destination="/queue/a", id="look", browser="true", browser_end="false", from_seq="-1")
    sender.put("/queue/a", "3")
    assert [(frame.headers["subscription"], frame.body) for frame in peer.take()] == [("late", b"3")]
    peer.subscribe("/queue/a", "from", from_seq="2")
    assert peer.bodies() == [b"1", b"2"]
    assert queue_of(bench).count == 1


@pytest.mark.parametrize("name", ["", "message-id", "content-length", "x" * 101])
def test_names_that_cannot_hold_a_seq(name):
    peer = Bench().peer()
    peer.subscribe("/queue/a", include_seq=name)
    assert peer.error().headers["message"] == "bad include-seq"


def test_include_seq_of_a_consumer_in_every_version():
    bench, sender, _ = filled(0)
    for version in ("1.0", "1.1", "1.2"):
        peer = bench.peer(version)
        peer.subscribe("/queue/a", include_seq="seq")
        sender.put("/queue/a", "x", seq="forged")
        assert peer.next("MESSAGE").headers["seq"] == str(bench.broker.seq)
        peer.lose()


# ---- ACK takes ----


@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize("persistent", ["true", "false"])
def test_ack_takes_what_is_still_there(version, persistent):
    bench, _sender, _ = filled(4, persistent=persistent)
    peer, other = bench.peer(version), bench.peer()
    peer.subscribe("/queue/a", ack="client-individual", browser="true")
    frames = peer.take()
    assert frames.pop().headers["browser"] == "end"
    other.subscribe("/queue/a", ack="client", prefetch_count="1")
    assert other.next("MESSAGE").body == b"0"
    peer.ack(frames[0], receipt="r0")  # it is another one's by now
    peer.ack(frames[2], receipt="r2")
    peer.nack(frames[3], receipt="r3")
    assert [frame.headers["receipt-id"] for frame in peer.take()] == ["r0", "r2", "r3"]
    other.lose()
    left = bench.peer()
    left.subscribe("/queue/a", ack="client")
    assert left.bodies() == [b"0", b"1", b"3"]
    assert len(list(bench.store.load())) == (3 if persistent == "true" else 0)
    assert bench.octets == queue_of(bench).octets


def test_ack_in_client_mode_covers_what_was_shown_before():
    bench, _sender, peer = filled(5)
    peer.subscribe("/queue/a", ack="client", browser="true")
    frames = peer.take()
    peer.ack(frames[2])
    peer.ack(frames[-1])  # the end: nothing is to be taken with it
    assert not peer.closed
    peer.ack(frames[2])
    assert peer.error().headers["message"] == "no such delivery"
    assert [message.frame.body for message in queue_of(bench).messages] == [b"3", b"4"]


def test_a_window_holds_a_browser_until_ack():
    bench, _sender, peer = filled(5)
    peer.subscribe("/queue/a", ack="client", browser="true", prefetch_count="2")
    first = peer.take()
    assert [frame.body for frame in first] == [b"0", b"1"]
    peer.ack(first[1])
    second = peer.take()
    assert [frame.body for frame in second] == [b"2", b"3"]
    peer.nack(second[0])  # as one that looked, and does not want it
    assert shown(peer)[0] == [b"4"]
    assert queue_of(bench).count == 3


def test_ack_of_a_browser_waits_for_the_store():
    store = FaultyStore()
    bench = Bench(store)
    sender, peer = bench.peer(), bench.peer()
    for number in range(3):
        sender.put("/queue/a", str(number), persistent="true")
    peer.subscribe("/queue/a", ack="client", browser="true")
    store.faulty = True
    peer.ack([frame for frame in peer.take() if frame.body][-1], receipt="r")
    assert peer.error().headers["receipt-id"] == "r"
    assert queue_of(bench).count == 3
    assert store.bodies == ["0", "1", "2"]


def test_a_browser_has_no_transactions():
    bench, _sender, peer = filled()
    peer.subscribe("/queue/a", ack="client", browser="true")
    peer.send("BEGIN", transaction="t")
    peer.ack(peer.take()[0], transaction="t")
    assert peer.error().headers["message"] == "a browser has no transactions"
    assert queue_of(bench).count == 3


# ---- seqs, and what takes effect late ----


@pytest.mark.parametrize("end", ["true", "false"])
@pytest.mark.parametrize("faulty", [False, True])
def test_nothing_is_passed_over_that_waits_for_the_store(end, faulty):
    """Messages 1 to 3 take their places first, and come into the queue after 4 to 6."""
    store = FaultyStore(background=True)
    bench = Bench(store)
    slow, sender, peer = bench.peer(), bench.peer(), bench.peer()
    slow.send("BEGIN", transaction="t")
    for number in "12":
        slow.put("/queue/a", number, transaction="t", persistent="true")
    slow.send("COMMIT", transaction="t")
    slow.put("/queue/a", "3")
    for number in "456":
        sender.put("/queue/a", number)
    peer.send("SUBSCRIBE", destination="/queue/a", id="1", browser="true", browser_end=end, include_seq="seq")
    early = [(frame.body, frame.headers["seq"]) for frame in peer.take()]
    assert early == ([(b"", "0")] if end == "true" else [])
    store.faulty = faulty
    store.finish()
    bench.turn()
    assert queue_of(bench).count == (4 if faulty else 6)
    if end == "false":
        assert b"".join(peer.bodies()) == (b"3456" if faulty else b"123456")
    sender.put("/queue/a", "7")
    assert peer.bodies() == ([] if end == "true" else [b"7"])


def test_seqs_are_reserved_before_they_are_given_away():
    bench = Bench()
    sender = bench.peer()
    bench.broker.seq = 2**20 - 5
    sender.put("/queue/a", "x")
    assert bench.store.mark > 2**20
    assert bench.store.mark > bench.broker.seq + 2**19


# ---- a reader that only notes how far it has come, whatever makes messages come late or in another order ----

STEPS = st.lists(
    st.sampled_from(["send", "persistent", "commit", "late", "delayed", "store", "read", "read", "let go", "restart"]),
    max_size=40,
)


class Reader:
    """SUBSCRIBE as a browser from the place it knows, up to the end marker, again and again."""

    def __init__(self):
        self.seq = 0
        self.seen = []
        self.bound = 0

    def read(self, bench):
        peer = bench.peer()
        peer.subscribe("/queue/a", browser="true", include_seq="seq", from_seq=str(self.seq + 1), ack="auto")
        while bench.store.job is not None and not (peer.inbox and "browser" in peer.inbox[-1].headers):
            bench.store.finish()  # what is in the store only is read after its commit
            bench.turn()
        frames = peer.take()
        end = frames.pop()
        assert end.headers["browser"] == "end"
        seqs = [int(frame.headers["seq"]) for frame in frames]
        assert seqs == sorted(set(seqs))
        assert all(self.seq < seq <= int(end.headers["seq"]) for seq in seqs)
        self.seen += [frame.body.decode() for frame in frames]
        self.seq = max(self.seq, int(end.headers["seq"]))
        peer.lose()

    def let_go(self, bench, waits=False):
        """Acknowledge the messages that it has seen. Those that are not stored yet may stay if the reader does not wait
        for the store.
        """
        peer = bench.peer()
        peer.subscribe("/queue/a", browser="true", ack="client", include_seq="seq", prefetch_count="1000")
        while bench.store.job is not None and not (peer.inbox and "browser" in peer.inbox[-1].headers):
            bench.store.finish()
            bench.turn()
        shown = [frame for frame in peer.take() if frame.body and int(frame.headers["seq"]) <= self.seq]
        if shown:
            peer.ack(shown[-1])
        while waits and bench.store.job is not None:
            bench.store.finish()
            bench.turn()
        assert not peer.closed
        peer.lose()


@given(steps=STEPS, window=st.sampled_from([1, 3, 100]))
@settings(max_examples=examples(150))
def test_nothing_is_missed_and_nothing_comes_twice(steps, window):
    bench, reader = Bench(FaultyStore(background=True), window_messages=window), Reader()
    sent = []
    kept = set()

    def store():
        while bench.store.job is not None:
            bench.store.finish()
            bench.turn()

    senders = [bench.peer(), bench.peer()]
    for number, step in enumerate(steps):
        slow, quick = senders
        body = f"m{number}"
        if step in ("send", "persistent", "late", "delayed"):
            sent.append(body)
        if step == "send":
            quick.put("/queue/a", body)
        elif step == "late":  # behind a transaction, if one waits for the store
            slow.put("/queue/a", body)
        elif step == "persistent":
            quick.put("/queue/a", body, persistent="true")
            kept.add(body)
        elif step == "delayed":
            quick.put("/queue/a", body, delay="2000", persistent="true")
            kept.add(body)
        elif step == "commit":
            slow.send("BEGIN", transaction="t")
            for part in "xy":
                slow.put("/queue/a", body + part, transaction="t", persistent="true")
                sent.append(body + part)
                kept.add(body + part)
            slow.send("COMMIT", transaction="t")
        elif step == "store":
            store()
            bench.date += 1
            bench.wait(1)
        elif step == "read":
            reader.read(bench)
        elif step == "let go":
            reader.let_go(bench)
        elif step == "restart":
            store()
            bench.broker.stop(bench.now)
            bench.turn()
            store()
            date = bench.date
            bench = Bench(bench.store, window_messages=window)
            bench.date = date
            senders = [bench.peer(), bench.peer()]
            sent = [body for body in sent if body in kept or body in reader.seen]
    store()
    bench.date += 10
    for _ in range(2 + len(steps)):  # delayed messages come page by page
        bench.wait(1)
        store()
    reader.read(bench)
    assert sorted(reader.seen) == sorted(sent)
    reader.let_go(bench, waits=True)
    store()
    assert bench.broker.queues.get(("/", "/queue/a")) is None or not bench.broker.queues["/", "/queue/a"].total
    assert list(bench.store.load()) == []
