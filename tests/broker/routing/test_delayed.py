"""Messages that are delivered later: by whichever header says so, in queues and topics, in memory and in the store."""

import pytest
from broker.harness import Bench, FaultyStore
from broker.moves import QUEUE, Pages, finish, numbers, queue_of, refusal, taker, transaction
from broker.storage.storing import KEY, change, inline
from hypothesis import given, settings
from hypothesis import strategies as st


def pass_time(bench, seconds, step=0.1):
    for _ in range(round(seconds / step)):
        bench.date += step
        bench.wait(step)


def send(peer, body, delay, destination=QUEUE, **headers):
    peer.put(destination, str(body), delay=str(delay), **{"persistent": "true", **headers})


def send_each_second(peer, numbers, first=1000, **headers):
    """Messages that are due one after the other, a second apart."""
    for place, number in enumerate(numbers):
        send(peer, number, first + 1000 * place, **headers)


def filled(count, store=None):
    bench = Bench(store, window_messages=3)
    sender = bench.peer()
    for number in sorted(range(count), key=lambda number: number * 7 % 10):
        send(sender, number, 1000 * (number + 1))
    return bench, taker(bench)


@pytest.mark.parametrize("name", ["delay", "AMQ_SCHEDULED_DELAY", "x-delay"])
@pytest.mark.parametrize("persistent", ["true", "false"])
@pytest.mark.parametrize("listening", [True, False])
def test_a_message_waits_for_its_time(name, persistent, listening):
    bench = Bench()
    sender, peer = bench.peer(), bench.peer()
    if listening:
        peer.subscribe(QUEUE, ack="client")
    sender.raw(f"SEND\ndestination:{QUEUE}\n{name}:5000\npersistent:{persistent}\nreceipt:r\n\nlate\0".encode())
    assert sender.next("RECEIPT").headers["receipt-id"] == "r"
    sender.put(QUEUE, "early")
    if not listening:
        peer.subscribe(QUEUE, ack="client")
    assert peer.next("MESSAGE").body == b"early"
    pass_time(bench, 4.5)
    assert (peer.take(), queue_of(bench).count) == ([], 2)
    pass_time(bench, 1)
    message = peer.next("MESSAGE")
    assert (message.body, message.get("redelivered")) == (b"late", None)
    assert int(message.headers["message-id"].partition("-")[2]) == 3  # behind the messages that arrived meanwhile
    peer.ack(message)
    assert (queue_of(bench).count, bench.octets, list(bench.store.load())) == (0, 0, [])
    assert (len(bench.broker.delayed), queue_of(bench).deferred, bench.broker.journal.batch.actions) == (0, {}, [])


@pytest.mark.parametrize("step", [3600.0, -3600.0, 20.0])
@pytest.mark.parametrize("kept", ["true", "false"])
def test_what_is_counted_from_now_keeps_its_length_when_the_clock_is_set(step, kept):
    """`expires` follows the clock. A step of more than a minute is logged once."""
    bench, warned = Bench(), []
    bench.broker.log.addFilter(log := lambda record: warned.append(record.getMessage()))
    sender = bench.peer()
    for number, headers in enumerate([{}, {"delay": "5000"}, {"expiration": "5000"}, {"expires": "1000005000"}]):
        sender.put(QUEUE, str(number), persistent=kept, **headers)
    sender.put("/queue/b", "6", x_message_ttl="5000")
    bench.date, bench.ahead = bench.date + step, step
    sender.put(QUEUE, "4", persistent=kept, delay="4000")
    sender.put(QUEUE, "5", persistent=kept, expiration="4000")
    pass_time(bench, 3)
    stays = [b"3"] if step < 0 else []
    assert (bench.ready(), bench.ready("/queue/b")) == ([b"0", b"2", *stays, b"5"], [b"6"])
    pass_time(bench, 3.5)
    assert (bench.ready(), bench.ready("/queue/b")) == ([b"0", *stays, b"4", b"1"], [])
    bench.broker.log.removeFilter(log)
    assert len(warned) == (abs(step) > 60)


def test_how_many_may_wait():
    bench = Bench(max_delayed=3)
    sender = bench.peer()
    for _ in range(3):
        sender.put(QUEUE, "x", delay="5000")
    assert not sender.closed
    sender.put(QUEUE, "x", delay="5000")
    assert refusal(sender) == "too many delayed messages"
    assert queue_of(bench).count == 3


# ---- those that are in the store only ----
def test_only_those_that_are_due_first_are_in_memory():
    bench, peer = filled(40)
    queue = queue_of(bench)
    assert (queue.total, len(bench.broker.delayed)) == (40, queue.count)
    pass_time(bench, 0.5)
    for number in range(40):
        assert queue.count <= 6
        assert numbers(peer) == []
        pass_time(bench, 1)
        assert numbers(peer) == [number]
    assert (queue.total, queue.paging, list(bench.store.load())) == (0, None, [])
    assert bench.broker.delayed.wait is None


def test_their_bytes_are_bounded_too():
    bench = Bench(window_octets=3000)
    send_each_second(bench.peer(), (f"{number:1000}" for number in range(40)))
    assert queue_of(bench).octets <= 6000
    peer = taker(bench)
    pass_time(bench, 41)
    assert numbers(peer) == list(range(40))


NAMES, DELAYS = st.sampled_from(["/queue/a", "/queue/b"]), st.lists(st.integers(1, 60), min_size=1, max_size=5)
STEPS = st.one_of(
    st.tuples(st.just("send"), NAMES, DELAYS, st.booleans()),
    st.tuples(st.just("send"), NAMES, DELAYS, st.just(True)),
    st.tuples(st.just("transact"), NAMES, DELAYS),
    st.tuples(st.just("wait"), st.integers(1, 20)),
    st.tuples(st.just("fail"), st.integers(1, 60)),
    st.tuples(st.just("restart")),
    st.tuples(st.just("commit"), st.sampled_from(["now", "later"])),
)


class Model:
    """A broker with delayed messages, and what it should deliver: body, and when it is due, in tenths of a second."""

    def __init__(self, window):
        self.window, self.store = window, FaultyStore(background=False)
        #: When they are due, their numbers, and whether they are persistent.
        self.wanted, self.got = [], []
        self.date, self.slow_until, self.count = 1_000_000.0, 1_000_000.0, 0
        self.start()

    def start(self):
        self.bench = Bench(self.store, window_messages=self.window)
        self.bench.date = self.date
        self.taker = taker(self.bench, "/queue/a", "a")
        self.taker.subscribe("/queue/b", "b")

    def send(self, name, delays, persistent, sender=None, **headers):
        sender = sender or self.bench.peer()
        for delay in delays:
            self.wanted.append((self.bench.date + delay / 10, self.count, persistent))
            send(sender, self.count, delay * 100, name, **{"persistent": str(persistent).lower(), **headers})
            self.count += 1

    def transact(self, name, delays):
        """Send some in a transaction, so that they take effect after its commit."""
        with transaction(sender := self.bench.peer()):
            self.send(name, delays, True, sender, transaction="t")

    def fail(self, delay):
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
            finish(self.bench)
            self.slow_until = self.bench.date + 1

    def restart(self):
        self.commit("now")
        self.wait(25)  # what has gone has left the store, also after a failed commit
        self.got += numbers(self.taker)
        self.date = self.bench.date
        self.wanted = [one for one in self.wanted if one[2] or one[1] in self.got]
        self.start()

    def check(self):
        self.got += numbers(self.taker)
        assert len(self.got) == len(set(self.got))
        due = {number for at, number, _ in self.wanted if at <= self.bench.date - 0.001}
        assert set(self.got) <= {number for at, number, _ in self.wanted if at <= self.bench.date + 0.001}
        if not self.store.background and self.bench.date > self.slow_until:
            assert set(self.got) >= due
        if not self.store.background:
            waiting = sum(queue.total for queue in self.bench.broker.queues.values())
            assert waiting >= len(self.wanted) - len(self.got)

    def wait(self, tenths):
        pass_time(self.bench, tenths / 10)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([1, 3, 100]), st.lists(STEPS, max_size=30))
def test_all_come_in_their_time_whatever_happens(window, steps):
    model = Model(window)
    for name, *values in steps:
        getattr(model, name)(*values)
        model.check()
    model.commit("now")
    model.wait(61)
    model.check()
    assert set(model.got) == {number for _, number, _ in model.wanted}
    assert model.bench.broker.delayed.wait is None
    assert all(queue.total == 0 for queue in model.bench.broker.queues.values())
    assert list(model.store.load()) == []


# ---- what the store lacks, and what takes effect later ----
#: What happens to two of them, and how many are missing and damaged then.
CHANGES = {
    "rows": ("DELETE FROM message WHERE key IN ({}, {})", 2, 0),
    "index": ("DELETE FROM special WHERE key IN ({}, {})", 2, 0),
    "checksums": ("UPDATE message SET tail = tail || x'00' WHERE key IN ({}, {})", 0, 2),
    "due times": ("UPDATE special SET crc = crc + 1 WHERE key IN ({}, {})", 0, 2),
    "sound": ("SELECT key FROM message WHERE key IN ({}, {})", 0, 0),
}


@pytest.mark.parametrize(
    ("kind", "restarted"),
    [(kind, after) for kind in CHANGES for after in (False, True) if (kind, after) != ("index", True)],
)
def test_missing_and_damaged_ones_are_told_apart(tmp_path, kind, restarted, caplog):
    statement, missing, damaged = CHANGES[kind]
    bench = Bench(inline(tmp_path), window_messages=3)
    send_each_second(bench.peer(), range(30))
    if restarted:
        bench.store.close()
    change(tmp_path, statement.format(KEY + 20, KEY + 21))
    if restarted:
        date, bench = bench.date, Bench(inline(tmp_path), window_messages=3)
        bench.date = date
    peer = taker(bench)
    pass_time(bench, 40, 0.5)
    assert numbers(peer)[:19] == list(range(19))
    lost = [record.getMessage() for record in caplog.records if "were not found" in record.getMessage()]
    assert [text.split()[0] for text in lost] == [str(missing)] * bool(missing)
    assert queue_of(bench).total == 0
    if not missing:
        assert bench.store.damage.messages == damaged
    bench.store.close()


def test_those_of_a_queue_that_is_being_removed_do_not_come_into_a_new_one_of_that_name():
    store = FaultyStore(background=False)
    bench = Bench(store, window_messages=3)
    sender = bench.peer()
    send_each_second(sender, range(30), 11_000, **{"x-expires": "5000"})
    queue = queue_of(bench)
    pass_time(bench, 4.5)
    store.background = True
    while not queue.closed:
        pass_time(bench, 0.1)
    send_each_second(sender, range(100, 110), 61_000)
    pass_time(bench, 10)  # those of the old queue that were in memory would be due
    assert queue_of(bench).total == 10
    finish(bench)
    assert queue_of(bench).total == 10
    store.background = False
    peer = taker(bench)
    pass_time(bench, 90, 0.5)
    assert (numbers(peer), list(store.load())) == (list(range(100, 110)), [])


def test_a_page_that_cannot_be_read_is_read_again():
    bench, peer = filled(20, Pages())
    bench.store.broken = True
    pass_time(bench, 30)
    first = numbers(peer)
    assert first == list(range(len(first)))
    assert len(first) < 10
    bench.store.broken = False
    pass_time(bench, 3)
    assert numbers(peer) == list(range(len(first), 20))
