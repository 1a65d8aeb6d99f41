"""Queues of which only a window is in memory: order, restarts, limits, browsers, expiry, purges and errors."""

import sqlite3
from contextlib import closing

import pytest
from broker.harness import AtOnce, Bench, FaultyStore
from broker.large import settle
from broker.paged import QUEUE, filled, numbers, queue_of

from stompcodec import Limits
from stompcodec.broker.storage.salvage import check
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.broker.storage.store import MemoryStore
from stompcodec.errors import StoreError

#: Limits that go with little memory.
SMALL = {"limits": Limits(max_body=10_000, max_headers=100, max_header_line=1000), "large": 10_000}


# ---- the window ----


def test_only_the_window_is_in_memory_and_the_order_is_kept():
    bench, _sender = filled(50)
    queue = queue_of(bench)
    assert (len(queue.messages), queue.count, queue.total) == (3, 3, 50)
    taker = bench.peer()
    taker.subscribe(QUEUE, ack="client-individual", prefetch_count="2")
    seen = []
    while frames := [frame for frame in taker.take() if frame.command == "MESSAGE"]:
        seen += [int(frame.body) for frame in frames]
        assert queue.count <= 3 + 3 + 2
        for frame in frames:
            taker.ack(frame)
    assert seen == list(range(50))
    assert queue.paging is None
    assert queue.total == 0
    assert not list(bench.store.load())


def test_what_comes_while_a_page_is_read_does_not_overtake_it():
    bench, sender = filled(20)
    taker = bench.peer()
    asked = []
    read = bench.store.read
    bench.store.read = lambda *args: asked.append(args)
    taker.subscribe(QUEUE)
    assert numbers(taker) == [0, 1, 2]
    sender.put(QUEUE, "20", persistent="true")
    sender.put(QUEUE, "21")
    assert numbers(taker) == []
    bench.store.read = read
    for args in asked:
        read(*args)
    bench.turn()
    assert numbers(taker) == list(range(3, 22))


# ---- limits ----


def test_queues_are_paged_earlier_when_memory_is_short():
    bench = Bench(window_octets=2**20, memory=2**20, max_queue_octets=2**20, **SMALL)
    sender = bench.peer()
    for number in range(200):
        sender.put(QUEUE, f"{number:9000}", persistent="true")
        assert not sender.session.paused
    assert queue_of(bench).total == 200
    assert queue_of(bench).count < 60
    taker = bench.peer()
    taker.subscribe(QUEUE)
    assert numbers(taker) == list(range(200))


def test_senders_wait_at_a_limit_of_messages_paged_ones_included():
    bench, sender = filled(10, max_queue_messages=10)
    assert not sender.session.paused
    sender.put(QUEUE, "10", persistent="true")
    assert sender.session.paused
    taker = bench.peer()
    taker.subscribe(QUEUE)
    assert numbers(taker) == list(range(11))
    assert not sender.session.paused


@pytest.mark.parametrize("argument", ["x-max-length", "x-max-length-bytes"])
@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish"])
def test_a_queue_with_a_length_is_not_paged(argument, overflow):
    bench = Bench(window_messages=3)
    sender, taker = bench.peer(), bench.peer()
    taker.subscribe(QUEUE, **{argument: "1000" if "bytes" in argument else "15", "x-overflow": overflow})
    taker.send("UNSUBSCRIBE", id="1")
    for number in range(10):
        sender.put(QUEUE, str(number), persistent="true")
    assert queue_of(bench).paging is None
    again = Bench(bench.store, window_messages=3)
    sender = again.peer()
    assert queue_of(again).paging is None
    for number in range(10, 40):
        if not sender.closed:
            sender.put(QUEUE, str(number), persistent="true")
    assert sender.closed is (overflow == "reject-publish")
    queue = queue_of(again)
    assert queue.paging is None
    assert queue.count == len(list(again.store.load())) < 30
    taker = again.peer()
    taker.subscribe(QUEUE)
    found = numbers(taker)
    assert found == list(range(found[0], found[-1] + 1))
    assert (found[0], found[-1]) == ((0, len(found) - 1) if sender.closed else (40 - len(found), 39))


# ---- errors ----


class Unreadable(MemoryStore):
    """A store whose pages cannot be read for a while."""

    broken = True

    def read(self, *args):
        if self.broken:
            args[6](lambda: args[5](StoreError("the disk is gone")))
        else:
            super().read(*args)


@pytest.mark.parametrize("browser", ["false", "true"])
def test_a_page_that_cannot_be_read_is_read_again(browser):
    store = Unreadable()
    bench, sender = filled(10, store=store)
    taker = bench.peer()
    taker.subscribe(QUEUE, browser=browser, ack="auto" if browser == "false" else "client", browser_end="false")
    assert numbers(taker) == [0, 1, 2]
    sender.put(QUEUE, "10", persistent="true")
    bench.wait(3.0)
    assert numbers(taker) == []
    store.broken = False
    bench.wait(3.0)
    assert numbers(taker) == list(range(3, 11))


# ---- while a page is read ----


class Slow(FaultyStore):
    """A store whose pages come when it is told to give them, and are counted."""

    def __init__(self):
        super().__init__()
        self.slow = False
        self.asked = []
        self.reads = 0

    def read(self, *args):
        self.reads += 1
        if self.slow:
            self.asked.append(args)
        else:
            super().read(*args)

    def answer(self, bench):
        self.slow = False
        asked, self.asked = self.asked, []
        for args in asked:
            super().read(*args)
        bench.turn()


def under_way(store):
    """A broker that waits for a page, and its consumer, which has a message."""
    bench, _sender = filled(20, store=store)
    taker = bench.peer()
    store.slow = True
    taker.subscribe(QUEUE, ack="client-individual", prefetch_count="2")
    first, second = taker.take()
    taker.ack(first)
    taker.take()
    assert store.asked
    return bench, taker, second


@pytest.mark.parametrize("kind", ["plain", "selecting", "browsing", "receiving"])
def test_a_broker_that_stops_while_a_page_is_read(kind):
    store = Slow()
    bench, _sender = filled(20, store=store)
    taker = bench.peer()
    store.slow = True
    if kind == "receiving":
        bench = Bench(store, window_messages=3)
        taker = bench.peer()
        taker.raw(b"RECEIVE\ndestination:/queue/a\n\n\0")
    elif kind == "selecting":
        taker.subscribe(QUEUE, selector="1 = 0")
    else:
        taker.subscribe(QUEUE, **({"browser": "true"} if kind == "browsing" else {}))
    assert store.asked
    bench.broker.stop(bench.now)
    bench.turn()
    assert taker.closed
    left = len(list(store.load()))
    store.answer(bench)
    again = Bench(store, window_messages=3)
    taker = again.peer()
    taker.subscribe(QUEUE)
    assert numbers(taker) == list(range(20 - left, 20))


@pytest.mark.parametrize("window", [1, 2, 3, 100])
@pytest.mark.parametrize("looker", ["selector", "browser", "RECEIVE"])
def test_pages_of_which_others_have_all_are_passed_over(looker, window):
    bench = Bench(window_messages=window)
    sender, holder, peer = bench.peer(), bench.peer(), bench.peer()
    for number in range(20):
        color = "red" if 3 < number < 15 else "blue"
        sender.put(QUEUE, str(number), persistent="true", color=color, number=str(number))
    holder.subscribe(QUEUE, ack="client-individual", selector="color = 'red'", prefetch_count="100")
    assert numbers(holder) == list(range(4, 15))
    if looker == "browser":
        peer.subscribe(QUEUE, browser="true")
        assert [frame.body for frame in peer.take()] == [*(b"%d" % each for each in (*range(4), *range(15, 20))), b""]
    elif looker == "selector":
        peer.subscribe(QUEUE, selector="number > 2")
        assert numbers(peer) == [3, *range(15, 20)]
    else:
        peer.raw(b"RECEIVE\ndestination:/queue/a\nselector:number = 16\n\n\0")
        assert numbers(peer) == [16]
    bench.turn()
    holder.lose()
    bench.wait(3.0)
    rest = bench.peer()
    rest.subscribe(QUEUE, ack="client-individual")
    assert len(numbers(rest)) == {"browser": 20, "selector": 3, "RECEIVE": 19}[looker]


# ---- moved messages whose commit failed: they are written again, and read after that ----


def due(bench, sender, name):
    """Delayed messages are due before they are stored."""
    for number in (100, 101):
        sender.put(name, str(number), persistent="true", delay="1")
    bench.date += 0.1
    bench.wait(0.1)


def dead(bench, sender, name):
    """Messages become dead letters."""
    taker = bench.peer()
    taker.subscribe("/queue/a", ack="client-individual")
    for frame in taker.take():
        taker.nack(frame)


@pytest.mark.parametrize("window", [1, 3, 100])
@pytest.mark.parametrize("move", [due, dead])
def test_what_is_written_again_is_not_read_before(move, window):
    name, store = "/queue/DLQ.a", FaultyStore()
    bench = Bench(store, window_messages=window, max_attempts=1)
    sender = bench.peer()
    for number in range(window):
        sender.put(name, str(number), persistent="true")
    if move is dead:
        for number in (100, 101):
            sender.put("/queue/a", str(number), persistent="true")
    store.background = True
    sender.put("/queue/other", "a commit that takes long", persistent="true")
    move(bench, sender, name)
    store.finish()
    bench.turn()
    store.faulty = True
    store.finish()
    bench.turn()
    store.faulty = False
    queue, taker = queue_of(bench, name), bench.peer()
    assert queue.total == window + 2
    taker.subscribe(name)
    for _ in range(4):
        bench.wait(3.0)
        if store.job is not None:
            store.finish()
            bench.turn()
    assert numbers(taker) == [*range(window), 100, 101]
    assert (queue.total, queue.paging) == (0, None)
    assert list(store.load(queue.key)) == []


# ---- damage in the middle of a queue ----


#: What happens to messages 20 and 21, and whether the broker knows which ones they are.
DAMAGE = {
    "missing": ("DELETE FROM message WHERE key IN (?, ?)", False),
    "checksum": ("UPDATE message SET tail = tail || x'00' WHERE key IN (?, ?)", True),
    "type": ("UPDATE message SET destination = x'ff' WHERE key IN (?, ?)", True),
    "index": ("DELETE FROM special WHERE key IN (?, ?)", False),
}


def opened(folder):
    store = SqliteStore(folder, helper=AtOnce(), page_helper=AtOnce())
    return Bench(store, window_messages=3, priority=True)


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("restarted", [False, True])
def test_damage_in_the_middle_is_logged_and_passed_over(tmp_path, kind, restarted, caplog):
    bench = opened(tmp_path)
    sender = bench.peer()
    for number in range(40):
        sender.put(QUEUE, str(number), persistent="true", priority="7")
    if restarted:
        bench.store.close()
        bench = opened(tmp_path)
    statement, known = DAMAGE[kind]
    with closing(sqlite3.connect(tmp_path / "messages.sqlite", isolation_level=None)) as other:
        other.execute(statement, [key for (key,) in other.execute("SELECT key FROM message LIMIT 2 OFFSET 20")])
    taker = bench.peer()
    taker.subscribe(QUEUE, ack="client-individual")
    frames = [frame for frame in taker.take() if frame.command == "MESSAGE"]
    assert [int(frame.body) for frame in frames] == [number for number in range(40) if number not in (20, 21)]
    for frame in frames:
        taker.ack(frame)
    settle(bench)
    queue = bench.broker.queues["/", QUEUE]
    assert (queue.total, queue.count, queue.paging) == (0, 0, None)
    lines = [record.getMessage() for record in caplog.records]
    if known:
        assert sum("e-" in line and "damaged" in line for line in lines) == 2
    else:
        assert any(line.startswith("2 messages of /queue/a were not found") for line in lines)
    bench.peer().put(QUEUE, "more", persistent="true")
    settle(bench)
    bench.store.close()
    assert not check(tmp_path).whole


# ---- messages that take effect after their commit, behind later ones that are paged already ----


def send_late(peer, kind, *bodies):
    """Send persistent messages that take effect when they are stored."""
    more = {} if kind == "key" else {"transaction": "t"}
    if more:
        peer.send("BEGIN", transaction="t")
    for body in bodies:
        peer.put(QUEUE, body, persistent="true", **(more or {"idempotency_key": body}))
    if more:
        peer.send("COMMIT", transaction="t")


def finish(bench, store):
    while store.job is not None:
        store.finish()
        bench.turn()


@pytest.mark.parametrize("transient", ["stop", "spool"])
@pytest.mark.parametrize("window", [1, 2, 3, 100])
@pytest.mark.parametrize("kind", ["key", "transaction"])
def test_they_come_before_what_was_paged_meanwhile(kind, window, transient):
    store = FaultyStore(background=True)
    bench = Bench(store, window_messages=window, transient=transient)
    sender, other = bench.peer(), bench.peer()
    other.put(QUEUE, "0")
    send_late(sender, kind, "1", "2", "3")
    for number in range(4, 10):
        other.put(QUEUE, str(number), persistent="true" if number % 3 or transient == "stop" else "false")
    finish(bench, store)
    queue = queue_of(bench)
    assert queue.total == 10
    taker = bench.peer()
    taker.subscribe(QUEUE)
    finish(bench, store)
    assert numbers(taker) == list(range(10))
    assert (queue.total, queue.paging) == (0, None)


@pytest.mark.parametrize("kind", ["key", "transaction"])
@pytest.mark.parametrize("settle", ["in a transaction", "at once"])
def test_what_somebody_has_is_not_taken_for_paged(kind, settle):
    store = FaultyStore(background=True)
    bench = Bench(store, window_messages=1)
    sender, other, holder = bench.peer(), bench.peer(), bench.peer()
    holder.subscribe(QUEUE, ack="client-individual", selector="color = 'red'")
    other.put(QUEUE, "0")
    send_late(sender, kind, "1")
    other.put(QUEUE, "2", persistent="true", color="red")
    message = holder.next("MESSAGE")
    if settle == "in a transaction":
        holder.send("BEGIN", transaction="t")
        holder.ack(message, transaction="t")
        finish(bench, store)
    else:
        store.finish()
        bench.turn()
        store.finish()
        holder.ack(message)
    other.put(QUEUE, "3", persistent="true")
    other.put(QUEUE, "4", persistent="true")
    taker = bench.peer()
    taker.subscribe(QUEUE)
    finish(bench, store)
    assert numbers(taker) == [0, 1, 3, 4]
    if settle == "in a transaction":
        holder.send("COMMIT", transaction="t")
    finish(bench, store)
    bench.wait(3.0)
    finish(bench, store)
    assert queue_of(bench).total == 0
    assert list(store.load()) == []


@pytest.mark.parametrize("name", [QUEUE, "/topic/t"])
@pytest.mark.parametrize("window", [1, 3, 100])
def test_what_comes_behind_a_transaction_is_read_after_its_own_commit(name, window):
    store = FaultyStore(background=True)
    bench = Bench(store, window_messages=window)
    sender, taker = bench.peer(), bench.peer("1.2", connect=False)
    taker.connect(client_id="c")
    taker.subscribe(name, durable_subscription_name="d", ack="client-individual", prefetch_count="1")
    finish(bench, store)
    sender.send("BEGIN", transaction="t")
    sender.put(name, "0", persistent="true", transaction="t")
    sender.send("COMMIT", transaction="t")
    for number in range(1, 9):
        sender.put(name, str(number), persistent="true")
    store.finish()  # that of the transaction
    bench.turn()
    for number in range(9):
        message = taker.inbox.pop(0) if taker.inbox else None
        if message is None:
            finish(bench, store)
            message = taker.next("MESSAGE")
        assert message.body == b"%d" % number
        taker.ack(message)
    finish(bench, store)
    assert list(store.load()) == []
