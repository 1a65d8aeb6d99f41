"""Messages that are delivered later: by whichever header says so, in queues and topics, in memory and in the store."""

import sqlite3
from contextlib import closing

import pytest
from broker.harness import AtOnce, Bench, FaultyStore
from broker.paged import QUEUE, numbers, queue_of
from hypothesis import given, settings
from hypothesis import strategies as st

from stompcodec.broker.sessions import commit
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.errors import StoreError

SPELLINGS = ["delay", "AMQ_SCHEDULED_DELAY", "x-delay"]


def pass_time(bench, seconds, step=0.1):
    """Both clocks go on."""
    for _ in range(round(seconds / step)):
        bench.date += step
        bench.wait(step)


def send(peer, body, delay, destination=QUEUE, **headers):
    peer.put(destination, str(body), delay=str(delay), **{"persistent": "true", **headers})


def filled(count, window=3, store=None, **config):
    """Return a broker with delayed messages, due one after the other, a second apart, and sent in another order."""
    bench = Bench(store, window_messages=window, **config)
    sender = bench.peer()
    for number in sorted(range(count), key=lambda number: number * 7 % 10):
        send(sender, number, 1000 * (number + 1))
    return bench, sender


class Pages(FaultyStore):
    """A store whose pages of delayed messages come when it is told to give them, or cannot be read."""

    def __init__(self, background=False):
        super().__init__(background)
        self.asked = []
        self.reads = 0
        self.slow = self.broken = False

    def deferred(self, *args):
        self.reads += 1
        if self.broken:
            args[4](lambda: args[3](StoreError("the disk is gone")))
        elif self.slow:
            self.asked.append(args)
        else:
            super().deferred(*args)

    def answer(self):
        self.slow = False
        for args in self.asked:
            super().deferred(*args)
        self.asked.clear()


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("persistent", ["true", "false"])
@pytest.mark.parametrize("listening", [True, False])
def test_a_message_waits_for_its_time(name, persistent, listening):
    bench = Bench()
    sender, peer = bench.peer(), bench.peer()
    if listening:
        peer.subscribe(QUEUE, ack="client")
    lines = f"destination:{QUEUE}\n{name}:5000\npersistent:{persistent}\nreceipt:r"
    sender.raw(f"SEND\n{lines}\n\nlate\0".encode())
    assert sender.next("RECEIPT").headers["receipt-id"] == "r"
    sender.put(QUEUE, "early")
    if not listening:
        peer.subscribe(QUEUE, ack="client")
    assert peer.next("MESSAGE").body == b"early"
    pass_time(bench, 4.5)
    assert peer.take() == []
    assert queue_of(bench).count == 2
    pass_time(bench, 1)
    message = peer.next("MESSAGE")
    assert (message.body, message.get("redelivered")) == (b"late", None)
    assert int(message.headers["message-id"].partition("-")[2]) == 3  # behind the messages that arrived meanwhile
    peer.ack(message)
    assert (queue_of(bench).count, bench.octets, list(bench.store.load())) == (0, 0, [])
    assert (len(bench.broker.delayed), bench.broker.journal.batch.actions) == (0, [])


def test_one_that_is_forged_is_not_late():
    bench = Bench()
    sender, peer = bench.peer(), bench.peer()
    sender.put(QUEUE, "x", deliver_at="99999999999999", persistent="true")
    sender.put(QUEUE, "y", delay="100", persistent="true", **{"deliver-at": "99999999999999"})
    pass_time(bench, 1)
    bench = Bench(bench.store)
    peer = bench.peer()
    peer.subscribe(QUEUE)
    assert peer.bodies() == [b"x", b"y"]


def test_how_many_may_wait():
    bench = Bench(max_delayed=3)
    sender = bench.peer()
    for _ in range(3):
        sender.put(QUEUE, "x", delay="5000")
    assert not sender.closed
    sender.put(QUEUE, "x", delay="5000")
    assert sender.error().headers["message"] == "too many delayed messages"
    assert bench.broker.queues["/", QUEUE].count == 3


# ---- those that are in the store only ----


def test_only_those_that_are_due_first_are_in_memory():
    bench, _sender = filled(40)
    queue = queue_of(bench)
    taker = bench.peer()
    taker.subscribe(QUEUE)
    assert (queue.total, len(bench.broker.delayed)) == (40, queue.count)
    pass_time(bench, 0.5)
    for number in range(40):
        assert queue.count <= 6
        assert numbers(taker) == []
        pass_time(bench, 1)
        assert numbers(taker) == [number]
    assert (queue.total, queue.paging, list(bench.store.load())) == (0, None, [])
    assert bench.broker.delayed.wait is None


def test_their_bytes_are_bounded_too():
    bench = Bench(window_octets=3000)
    sender = bench.peer()
    for number in range(40):
        send(sender, f"{number:1000}", 1000 * (number + 1))
    assert queue_of(bench).octets <= 6000
    taker = bench.peer()
    taker.subscribe(QUEUE)
    pass_time(bench, 41)
    assert numbers(taker) == list(range(40))


def test_a_page_that_cannot_be_read_is_read_again():
    store = Pages()
    bench, _sender = filled(20, store=store)
    taker = bench.peer()
    taker.subscribe(QUEUE)
    store.broken = True
    pass_time(bench, 30)
    first = numbers(taker)
    assert first == list(range(len(first)))
    assert len(first) < 10
    store.broken = False
    pass_time(bench, 3)
    assert numbers(taker) == list(range(len(first), 20))


STEPS = st.one_of(
    st.tuples(st.just("send"), st.sampled_from("ab"), st.integers(1, 60), st.booleans(), st.booleans()),
    st.tuples(st.just("send"), st.sampled_from("ab"), st.integers(1, 60), st.just(True), st.just(False)),
    st.tuples(st.just("many"), st.sampled_from("ab"), st.lists(st.integers(1, 60), max_size=9)),
    st.tuples(st.just("transact"), st.sampled_from("ab"), st.lists(st.integers(1, 60), min_size=1, max_size=5)),
    st.tuples(st.just("pass"), st.integers(1, 20)),
    st.tuples(st.just("fail"), st.integers(1, 60)),
    st.tuples(st.just("restart")),
    st.tuples(st.just("commit"), st.sampled_from(["now", "later"])),
)


class Model:
    """A broker with delayed messages, and what it should deliver: body, and when it is due, in tenths of a second."""

    def __init__(self, window):
        self.window = window
        self.store = FaultyStore(background=False)
        self.bodies = 0
        self.wanted = []
        self.got = []
        self.date = self.slow_until = 1_000_000.0
        self.start()

    def start(self):
        self.bench = Bench(self.store, window_messages=self.window)
        self.bench.date = self.date
        self.taker = self.bench.peer()
        for name in "ab":
            self.taker.subscribe(f"/queue/{name}", id=name)

    def finish(self):
        while self.store.job is not None:
            self.store.finish(at_once=True)
            self.bench.turn()

    def send(self, name, delay, persistent, _again):
        self.many(name, [delay], persistent)

    def many(self, name, delays, persistent=True):
        sender = self.bench.peer()
        for delay in delays:
            due = self.bench.date + delay / 10
            self.wanted.append((due, self.bodies, "persistent" if persistent else "transient"))
            send(sender, self.bodies, delay * 100, f"/queue/{name}", persistent=str(persistent).lower())
            self.bodies += 1

    def transact(self, name, delays):
        """Send some in a transaction, so that they take effect after its commit."""
        sender = self.bench.peer()
        sender.send("BEGIN", transaction="t")
        for delay in delays:
            self.wanted.append((self.bench.date + delay / 10, self.bodies, "persistent"))
            send(sender, self.bodies, delay * 100, f"/queue/{name}", transaction="t")
            self.bodies += 1
        sender.send("COMMIT", transaction="t")

    def fail(self, delay):
        """A message cannot be stored."""
        self.commit("now")
        self.store.faulty = True
        sender = self.bench.peer()
        send(sender, -1, delay * 100, receipt="r")
        assert sender.closed
        self.store.faulty = False
        self.slow_until = self.bench.date + 2  # the next commit is not at once

    def commit(self, when):
        self.store.background = when == "later"
        if when == "now":
            self.finish()
            self.slow_until = self.bench.date + 1

    def restart(self):
        self.commit("now")
        self.pass_(25)  # what has gone has left the store, also after a failed commit
        self.collect()
        self.date = self.bench.date
        self.wanted = [one for one in self.wanted if one[2] == "persistent" or one[1] in self.got]
        self.start()

    def collect(self):
        self.got += numbers(self.taker)

    def check(self):
        self.collect()
        assert len(self.got) == len(set(self.got))
        due = {body for at, body, _ in self.wanted if at <= self.bench.date - 0.001}
        assert set(self.got) <= {body for at, body, _ in self.wanted if at <= self.bench.date + 0.001}
        if not self.store.background and self.bench.date > self.slow_until:
            assert set(self.got) >= due
        if not self.store.background:
            waiting = sum(queue.total for queue in self.bench.broker.queues.values())
            assert waiting >= len(self.wanted) - len(self.got)

    def pass_(self, tenths):
        pass_time(self.bench, tenths / 10)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([1, 3, 100]), st.lists(STEPS, max_size=30))
def test_all_come_in_their_time_whatever_happens(window, steps):
    model = Model(window)
    for name, *values in steps:
        getattr(model, "pass_" if name == "pass" else name)(*values)
        model.check()
    model.commit("now")
    model.pass_(61)
    model.check()
    assert set(model.got) == {body for _, body, _ in model.wanted}
    assert model.bench.broker.delayed.wait is None
    assert all(queue.total == 0 for queue in model.bench.broker.queues.values())
    assert list(model.store.load()) == []


# ---- what the store lacks, and what expires ----


def stored_folder(folder, window=3):
    """A broker with this folder, whose store works in this thread."""
    store = SqliteStore(folder, helper=AtOnce(), page_helper=AtOnce())
    store._writer._db.execute("PRAGMA synchronous = OFF")  # nobody cuts the power
    return Bench(store, window_messages=window)


#: What happens to two of them, and how many are missing and damaged then.
CHANGES = {
    "rows": ("DELETE FROM message WHERE key IN (?, ?)", 2, 0),
    "index": ("DELETE FROM special WHERE key IN (?, ?)", 2, 0),
    "checksums": ("UPDATE message SET tail = tail || x'00' WHERE key IN (?, ?)", 0, 2),
    "due times": ("UPDATE special SET crc = crc + 1 WHERE key IN (?, ?)", 0, 2),
    "sound": ("", 0, 0),
}


@pytest.mark.parametrize(
    ("kind", "restarted"),
    [(kind, after) for kind in CHANGES for after in (False, True) if (kind, after) != ("index", True)],
)
def test_missing_and_damaged_ones_are_told_apart(tmp_path, kind, restarted, caplog):
    change, missing, damaged = CHANGES[kind]
    bench = stored_folder(tmp_path)
    sender = bench.peer()
    for number in range(30):
        send(sender, number, 1000 * (number + 1))
    if restarted:
        bench.store.close()
    if change:
        with closing(sqlite3.connect(tmp_path / "messages.sqlite")) as other:
            other.execute(change, [(1 << 45) + seq for seq in (20, 21)])
            other.commit()
    if restarted:
        date, bench = bench.date, stored_folder(tmp_path)
        bench.date = date
    taker = bench.peer()
    taker.subscribe(QUEUE)
    pass_time(bench, 40, 0.5)
    found = numbers(taker)
    assert found[:19] == list(range(19))
    lost = [message.getMessage() for message in caplog.records if "were not found" in message.getMessage()]
    assert [text.split()[0] for text in lost] == [str(missing)] * bool(missing)
    assert queue_of(bench).total == 0
    if not missing:
        assert bench.store.damage.messages == damaged
    bench.store.close()


def in_steps(bench):
    """One turn of the loop."""
    while bench.soon:
        bench.soon.pop(0)()
    for session in bench.broker.turn(bench.now):
        if session in bench.peers:
            bench.peers[session].flush()


def test_a_page_leaves_out_a_transaction_that_takes_effect_later(monkeypatch):
    monkeypatch.setattr(commit, "AT_ONCE", 5)
    store = Pages()
    bench = Bench(store, window_messages=2)
    early, sender, late, taker = bench.peer(), bench.peer(), bench.peer(), bench.peer()
    for number in range(8):
        send(early, number, 1000 * (number + 1) if number < 2 else 100_000)
    store.slow = True
    pass_time(bench, 5)
    assert store.asked
    begin, end = (sender.octets_of(name, transaction="t") for name in ("BEGIN", "COMMIT"))
    headers = {"destination": QUEUE, "persistent": "true"}
    sends = [
        sender.octets_of("SEND", b"%d" % number, transaction="t", delay="10000", **headers) for number in range(8, 30)
    ]
    sender.session.receive(b"".join([begin, *sends, end]), bench.now)
    journal = bench.broker.journal
    store.background = True
    while journal.busy is None:
        in_steps(bench)
    late.session.receive(late.octets_of("SEND", b"30", delay="110000", **headers), bench.now)
    in_steps(bench)
    store.answer()
    in_steps(bench)
    assert journal.busy is not None
    store.background = False
    store.finish()
    bench.turn()
    taker.subscribe(QUEUE)
    pass_time(bench, 130, 1.0)
    assert numbers(taker) == [0, 1, *range(8, 30), *range(2, 8), 30]
    assert (queue_of(bench).total, queue_of(bench).count, list(bench.store.load())) == (0, 0, [])


def test_those_of_a_queue_that_is_being_removed_do_not_come_into_a_new_one_of_that_name():
    store = FaultyStore(background=False)
    bench, sender = Bench(store, window_messages=3), None
    sender = bench.peer()
    for number in range(30):
        send(sender, number, 10_000 + 1000 * (number + 1), **{"x-expires": "5000"})
    queue = queue_of(bench)
    pass_time(bench, 4.5)
    store.background = True
    while not queue.closed:
        pass_time(bench, 0.1)
    for number in range(100, 110):
        send(sender, number, 60_000 + 1000 * (number - 99))
    pass_time(bench, 10)  # those of the old queue that were in memory would be due
    while store.job is not None:
        assert queue_of(bench).total == 10
        store.finish(at_once=True)
        bench.turn()
    store.background = False
    taker = bench.peer()
    taker.subscribe(QUEUE)
    pass_time(bench, 90, 0.5)
    assert numbers(taker) == list(range(100, 110))
    assert list(store.load()) == []
