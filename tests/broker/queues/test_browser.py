"""Browsers: a queue shown in order, from a place on, without being taken; and taken by ACK."""

import pytest
from broker.harness import Bench, FaultyStore
from broker.moves import QUEUE, commit, finish, left, put_all, queue_of, refusal, taker, transaction
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples


def filled(count=3, store=None, **headers):
    bench = Bench(store)
    sender = bench.peer()
    put_all(sender, range(count), **headers)
    return bench, sender


def browser(bench, **headers):
    return taker(bench, **{"browser": "true", **headers})


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_browser_sees_all_and_takes_nothing(version):
    bench, sender = filled()
    peer = browser(bench, version=version)
    *shown, end = peer.take()
    assert [(frame.body, frame.get("browser")) for frame in shown] == [(b"0", None), (b"1", None), (b"2", None)]
    assert (end.command, end.body, end.get("browser"), end.get("ack")) == ("MESSAGE", b"", "end", None)
    assert end.headers["subscription"] == "1"
    sender.put(QUEUE, "3")
    assert (peer.take(), queue_of(bench).count) == ([], 4)
    peer.send("UNSUBSCRIBE", id="1", receipt="r")
    peer.next("RECEIPT")
    peer.subscribe(QUEUE)
    assert peer.bodies() == [b"0", b"1", b"2", b"3"]
    assert queue_of(bench).dispatcher is None


def test_from_seq_of_a_consumer_and_of_a_continuous_browser():
    bench, sender = filled()
    peer = taker(bench, id="late", from_seq="-1")
    peer.subscribe(QUEUE, "look", browser="true", browser_end="false", from_seq="-1")
    sender.put(QUEUE, "3")
    assert [(frame.headers["subscription"], frame.body) for frame in peer.take()] == [("late", b"3")]
    peer.subscribe(QUEUE, "from", from_seq="2")
    assert (peer.bodies(), queue_of(bench).count) == ([b"1", b"2"], 1)


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_include_seq_of_a_consumer_in_every_version(version):
    bench = Bench()
    peer = taker(bench, version=version, include_seq="seq")
    bench.peer().put(QUEUE, "x", seq="forged")
    assert peer.next("MESSAGE").headers["seq"] == str(bench.broker.seq)


def test_ack_in_client_mode_covers_what_was_shown_before():
    bench, _sender = filled(5)
    peer = browser(bench, ack="client")
    frames = peer.take()
    peer.ack(frames[2])
    peer.ack(frames[-1])  # the end: nothing is to be taken with it
    assert not peer.closed
    peer.ack(frames[2])
    assert refusal(peer) == "no such delivery"
    assert [message.frame.body for message in queue_of(bench).messages] == [b"3", b"4"]


@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize("persistent", ["true", "false"])
def test_ack_takes_what_is_still_there(version, persistent):
    bench, _sender = filled(4, persistent=persistent)
    peer = browser(bench, version=version, ack="client-individual")
    *frames, end = peer.take()
    assert end.headers["browser"] == "end"
    other = taker(bench, ack="client", prefetch_count="1")
    assert other.next("MESSAGE").body == b"0"
    peer.ack(frames[0], receipt="r0")  # it is another one's by now
    peer.ack(frames[2], receipt="r2")
    peer.nack(frames[3], receipt="r3")
    assert [frame.headers["receipt-id"] for frame in peer.take()] == ["r0", "r2", "r3"]
    other.lose()
    assert left(bench, ack="client") == [b"0", b"1", b"3"]
    assert len(list(bench.store.load())) == (3 if persistent == "true" else 0)
    assert bench.octets == queue_of(bench).octets


def test_ack_of_a_browser_waits_for_the_store():
    bench, _sender = filled(3, FaultyStore(), persistent="true")
    peer = browser(bench, ack="client")
    bench.store.faulty = True
    peer.ack(peer.take()[2], receipt="r")
    assert peer.error().headers["receipt-id"] == "r"
    assert (queue_of(bench).count, bench.store.bodies) == (3, ["0", "1", "2"])


def test_a_browser_has_no_transactions():
    bench, _sender = filled()
    peer = browser(bench, ack="client")
    peer.send("BEGIN", transaction="t")
    peer.ack(peer.take()[0], transaction="t")
    assert refusal(peer) == "a browser has no transactions"
    assert queue_of(bench).count == 3


# ---- seqs, and what takes effect late ----
@pytest.mark.parametrize("end", ["true", "false"])
@pytest.mark.parametrize("faulty", [False, True])
def test_nothing_is_passed_over_that_waits_for_the_store(end, faulty):
    """Messages 1 to 3 take their places first, and come into the queue after 4 to 6."""
    bench = Bench(FaultyStore(background=True))
    slow, sender = bench.peer(), bench.peer()
    with transaction(slow):
        put_all(slow, "12", transaction="t", persistent="true")
    slow.put(QUEUE, "3")
    put_all(sender, "456")
    peer = browser(bench, browser_end=end, include_seq="seq")
    early = [(frame.body, frame.headers["seq"]) for frame in peer.take()]
    assert early == ([(b"", "0")] if end == "true" else [])
    bench.store.faulty = faulty
    commit(bench)
    assert queue_of(bench).count == (4 if faulty else 6)
    if end == "false":
        assert b"".join(peer.bodies()) == (b"3456" if faulty else b"123456")
    sender.put(QUEUE, "7")
    assert peer.bodies() == ([] if end == "true" else [b"7"])


def test_seqs_are_reserved_before_they_are_given_away():
    bench = Bench()
    bench.broker.seq = 2**20 - 5
    bench.peer().put(QUEUE, "x")
    assert bench.store.mark > 2**20
    assert bench.store.mark > bench.broker.seq + 2**19


KINDS = ["send", "persistent", "transact", "late", "delayed", "store", "read", "read", "let_go", "restart"]


class Reader:
    """A broker, and who subscribes as a browser from the place it knows, up to the end marker, again and again."""

    def __init__(self, window):
        self.window, self.seq, self.seen, self.sent, self.kept = window, 0, [], [], set()
        self.start(FaultyStore(background=True), 1_000_000.0)

    def start(self, store, date):
        self.bench = Bench(store, window_messages=self.window)
        self.bench.date = date
        self.slow, self.quick = self.bench.peer(), self.bench.peer()

    def browse(self, **headers):
        """Up to the marker: what is in the store only is read after its commit."""
        peer = browser(self.bench, include_seq="seq", **headers)
        while self.bench.store.job is not None and not (peer.inbox and "browser" in peer.inbox[-1].headers):
            commit(self.bench)
        return peer, peer.take()

    def read(self, _body=""):
        peer, (*frames, end) = self.browse(from_seq=str(self.seq + 1))
        assert end.headers["browser"] == "end"
        seqs = [int(frame.headers["seq"]) for frame in frames]
        assert seqs == sorted(set(seqs))
        assert all(self.seq < seq <= int(end.headers["seq"]) for seq in seqs)
        self.seen += [frame.body.decode() for frame in frames]
        self.seq = max(self.seq, int(end.headers["seq"]))
        peer.lose()

    def let_go(self, _body="", waits=False):
        """Acknowledge what it has seen. Those that are not stored yet may stay if it does not wait for the store."""
        peer, frames = self.browse(ack="client", prefetch_count="1000")
        shown = [frame for frame in frames if frame.body and int(frame.headers["seq"]) <= self.seq]
        if shown:
            peer.ack(shown[-1])
        if waits:
            finish(self.bench)
        assert not peer.closed
        peer.lose()

    def put(self, peer, body, **headers):
        self.sent.append(body)
        if "persistent" in headers:
            self.kept.add(body)
        peer.put(QUEUE, body, **headers)

    def send(self, body):
        self.put(self.quick, body)

    def late(self, body):
        """Behind a transaction, if one waits for the store."""
        self.put(self.slow, body)

    def persistent(self, body):
        self.put(self.quick, body, persistent="true")

    def delayed(self, body):
        self.put(self.quick, body, persistent="true", delay="2000")

    def transact(self, body):
        with transaction(self.slow):
            for part in "xy":
                self.put(self.slow, body + part, transaction="t", persistent="true")

    def store(self, _body=""):
        finish(self.bench)
        self.bench.date += 1
        self.bench.wait(1)

    def restart(self, _body):
        finish(self.bench)
        self.bench.broker.stop(self.bench.now)
        self.bench.turn()
        finish(self.bench)
        self.start(self.bench.store, self.bench.date)
        self.sent = [body for body in self.sent if body in self.kept or body in self.seen]


@given(steps=st.lists(st.sampled_from(KINDS), max_size=40), window=st.sampled_from([1, 3, 100]))
@settings(max_examples=examples(150))
def test_nothing_is_missed_and_nothing_comes_twice(steps, window):
    reader = Reader(window)
    for number, step in enumerate(steps):
        getattr(reader, step)(f"m{number}")
    for _ in range(12 + len(steps)):  # delayed messages come page by page
        reader.store()
    finish(reader.bench)
    reader.read()
    assert sorted(reader.seen) == sorted(reader.sent)
    reader.let_go(waits=True)
    finish(reader.bench)
    queue = reader.bench.broker.queues.get(("/", QUEUE))
    assert queue is None or not queue.total
    assert list(reader.bench.store.load()) == []
