"""Queues of which only a window is in memory: order, restarts, limits, browsers, expiry, purges and errors."""

import gc
import time
from collections import Counter

import pytest
from broker.harness import Bench, FaultyStore
from broker.moves import (
    QUEUE,
    Pages,
    client,
    commit,
    filled,
    finish,
    left,
    messages,
    numbers,
    put_all,
    queue_of,
    settle,
    taker,
    transaction,
)
from broker.storage.storing import KEY, MIB, SmallStore, change, inline
from patience import patience

from stompcodec import Limits, Parser
from stompcodec.broker.config import DIALECTS
from stompcodec.broker.message import Message
from stompcodec.broker.storage.journal import Batch
from stompcodec.broker.storage.salvage import check
from stompcodec.broker.storage.sqlite import SqliteStore

#: Limits that go with little memory.
SMALL = {"limits": Limits(max_body=10_000, max_headers=100, max_header_line=1000), "large": 10_000}


def drain(peer, look=lambda: None):
    peer.subscribe(QUEUE, ack="client-individual", prefetch_count="2")
    seen = []
    while frames := messages(peer):
        look()
        seen += [int(frame.body) for frame in frames]
        for frame in frames:
            peer.ack(frame)
    return seen


# ---- the window ----
def test_only_the_window_is_in_memory_and_the_order_is_kept():
    bench, _sender = filled(50)
    queue = queue_of(bench)
    assert (len(queue.messages), queue.count, queue.total) == (3, 3, 50)
    counts = []
    assert drain(bench.peer(), lambda: counts.append(queue.count)) == list(range(50))
    assert max(counts) <= 3 + 3 + 2
    assert (queue.paging, queue.total, list(bench.store.load())) == (None, 0, [])


def test_queues_are_paged_earlier_when_memory_is_short():
    bench = Bench(window_octets=2**20, memory=2**20, max_queue_octets=2**20, **SMALL)
    sender = bench.peer()
    for number in range(200):
        sender.put(QUEUE, f"{number:9000}", persistent="true")
        assert not sender.session.paused
    assert queue_of(bench).total == 200
    assert queue_of(bench).count < 60
    assert numbers(taker(bench)) == list(range(200))


def test_senders_wait_at_a_limit_of_messages_paged_ones_included():
    bench, sender = filled(10, max_queue_messages=10)
    assert not sender.session.paused
    sender.put(QUEUE, "10", persistent="true")
    assert sender.session.paused
    assert list(map(int, left(bench))) == list(range(11))
    assert not sender.session.paused


@pytest.mark.parametrize("argument", [{"x-max-length": "15"}, {"x-max-length-bytes": "1000"}])
@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish"])
def test_a_queue_with_a_length_is_not_paged(argument, overflow):
    bench = Bench(window_messages=3)
    taker(bench, **argument, **{"x-overflow": overflow}).send("UNSUBSCRIBE", id="1")
    put_all(bench.peer(), range(10), persistent="true")
    assert queue_of(bench).paging is None
    bench = Bench(bench.store, window_messages=3)
    sender, queue = bench.peer(), queue_of(bench)
    assert queue.paging is None
    for number in range(10, 40):
        if not sender.closed:
            sender.put(QUEUE, str(number), persistent="true")
    assert sender.closed is (overflow == "reject-publish")
    assert queue.paging is None
    assert queue.count == len(list(bench.store.load())) < 30
    found = numbers(taker(bench))
    assert found == list(range(found[0], found[-1] + 1))
    assert (found[0], found[-1]) == ((0, len(found) - 1) if sender.closed else (40 - len(found), 39))


@pytest.mark.parametrize("headers", [{}, {"browser": "true", "ack": "client", "browser_end": "false"}])
def test_a_page_that_cannot_be_read_is_read_again(headers):
    bench, sender = filled(10, store=Pages())
    bench.store.broken = True
    peer = taker(bench, **headers)
    assert numbers(peer) == [0, 1, 2]
    sender.put(QUEUE, "10", persistent="true")
    bench.wait(3.0)
    assert numbers(peer) == []
    bench.store.broken = False
    bench.wait(3.0)
    assert numbers(peer) == list(range(3, 11))


@pytest.mark.parametrize("kind", ["plain", "selecting", "browsing", "receiving"])
def test_a_broker_that_stops_while_a_page_is_read(kind):
    bench, _sender = filled(20, store=Pages())
    store = bench.store
    store.slow = True
    if kind == "receiving":
        bench = Bench(store, window_messages=3)
        peer = bench.peer()
        peer.raw(b"RECEIVE\ndestination:/queue/a\n\n\0")
    else:
        peer = taker(bench, **{"selecting": {"selector": "1 = 0"}, "browsing": {"browser": "true"}}.get(kind, {}))
    assert store.asked
    bench.broker.stop(bench.now)
    bench.turn()
    assert peer.closed
    kept = len(list(store.load()))
    store.answer()
    bench.turn()
    assert list(map(int, left(Bench(store, window_messages=3)))) == list(range(20 - kept, 20))


@pytest.mark.parametrize("window", [1, 2, 3, 100])
@pytest.mark.parametrize("looker", ["selector", "browser", "RECEIVE"])
def test_pages_of_which_others_have_all_are_passed_over(looker, window):
    bench = Bench(window_messages=window)
    sender, peer = bench.peer(), bench.peer()
    for number in range(20):
        color = "red" if 3 < number < 15 else "blue"
        sender.put(QUEUE, str(number), persistent="true", color=color, number=str(number))
    holder = taker(bench, ack="client-individual", selector="color = 'red'", prefetch_count="100")
    assert numbers(holder) == list(range(4, 15))
    if looker == "browser":
        peer.subscribe(QUEUE, browser="true")
        assert peer.bodies() == [*(b"%d" % number for number in (*range(4), *range(15, 20))), b""]
    elif looker == "selector":
        peer.subscribe(QUEUE, selector="number > 2")
        assert numbers(peer) == [3, *range(15, 20)]
    else:
        peer.raw(b"RECEIVE\ndestination:/queue/a\nselector:number = 16\n\n\0")
        assert numbers(peer) == [16]
    bench.turn()
    holder.lose()
    bench.wait(3.0)
    assert len(left(bench, ack="client-individual")) == {"browser": 20, "selector": 3, "RECEIVE": 19}[looker]


@pytest.mark.parametrize("window", [1, 3, 100])
@pytest.mark.parametrize("move", ["delayed", "dead"])
def test_what_is_written_again_is_not_read_before(move, window):
    name, store = "/queue/DLQ.a", FaultyStore()
    bench = Bench(store, window_messages=window, max_attempts=1)
    sender = bench.peer()
    put_all(sender, range(window), name, persistent="true")
    put_all(sender, (100, 101) if move == "dead" else (), persistent="true")
    store.background = True
    sender.put("/queue/other", "a commit that takes long", persistent="true")
    if move == "dead":
        peer = taker(bench, ack="client-individual")
        for frame in peer.take():
            peer.nack(frame)
    else:
        put_all(sender, (100, 101), name, persistent="true", delay="1")
        bench.date += 0.1
        bench.wait(0.1)
    commit(bench)
    store.faulty = True
    commit(bench)
    store.faulty = False
    queue = queue_of(bench, name)
    assert queue.total == window + 2
    peer = taker(bench, name)
    for _ in range(4):
        bench.wait(3.0)
        if store.job is not None:
            commit(bench)
    assert numbers(peer) == [*range(window), 100, 101]
    assert (queue.total, queue.paging, list(store.load(queue.key))) == (0, None, [])


#: What happens to messages 20 and 21, and whether the broker knows which ones they are.
DAMAGE = {
    "missing": ("DELETE FROM message WHERE key IN ({}, {})", False),
    "checksum": ("UPDATE message SET tail = tail || x'00' WHERE key IN ({}, {})", True),
    "type": ("UPDATE message SET destination = x'ff' WHERE key IN ({}, {})", True),
    "index": ("DELETE FROM special WHERE key IN ({}, {})", False),
}


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("restarted", [False, True])
def test_damage_in_the_middle_is_logged_and_passed_over(tmp_path, kind, restarted, caplog):
    bench = Bench(inline(tmp_path), window_messages=3, priority=True)
    put_all(bench.peer(), range(40), persistent="true", priority="7")
    if restarted:
        bench.store.close()
        bench = Bench(inline(tmp_path), window_messages=3, priority=True)
    statement, known = DAMAGE[kind]
    change(tmp_path, statement.format(KEY + 21, KEY + 22))
    peer = taker(bench, ack="client-individual")
    frames = messages(peer)
    assert [int(frame.body) for frame in frames] == [*range(20), *range(22, 40)]
    for frame in frames:
        peer.ack(frame)
    settle(bench)
    queue = queue_of(bench)
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
def send_late(peer, kind, bodies):
    """Send persistent messages that take effect when they are stored."""
    if kind == "key":
        for body in bodies:
            peer.put(QUEUE, body, persistent="true", idempotency_key=body)
    else:
        with transaction(peer):
            put_all(peer, bodies, persistent="true", transaction="t")


@pytest.mark.parametrize("transient", ["stop", "spool"])
@pytest.mark.parametrize("window", [1, 2, 3, 100])
@pytest.mark.parametrize("kind", ["key", "transaction"])
def test_they_come_before_what_was_paged_meanwhile(kind, window, transient):
    bench = Bench(FaultyStore(background=True), window_messages=window, transient=transient)
    sender, other = bench.peer(), bench.peer()
    other.put(QUEUE, "0")
    send_late(sender, kind, "123")
    for number in range(4, 10):
        other.put(QUEUE, str(number), persistent="true" if number % 3 or transient == "stop" else "false")
    finish(bench)
    queue = queue_of(bench)
    assert queue.total == 10
    peer = taker(bench)
    finish(bench)
    assert (numbers(peer), queue.total, queue.paging) == (list(range(10)), 0, None)


@pytest.mark.parametrize("kind", ["key", "transaction"])
@pytest.mark.parametrize("settle", ["in a transaction", "at once"])
def test_what_somebody_has_is_not_taken_for_paged(kind, settle):
    bench = Bench(FaultyStore(background=True), window_messages=1)
    sender, other, holder = bench.peer(), bench.peer(), taker(bench, ack="client-individual", selector="color = 'red'")
    other.put(QUEUE, "0")
    send_late(sender, kind, "1")
    other.put(QUEUE, "2", persistent="true", color="red")
    message = holder.next("MESSAGE")
    if settle == "in a transaction":
        holder.send("BEGIN", transaction="t")
        holder.ack(message, transaction="t")
        finish(bench)
    else:
        commit(bench)
        bench.store.finish()
        holder.ack(message)
    put_all(other, "34", persistent="true")
    peer = taker(bench)
    finish(bench)
    assert numbers(peer) == [0, 1, 3, 4]
    if settle == "in a transaction":
        holder.send("COMMIT", transaction="t")
    finish(bench)
    bench.wait(3.0)
    finish(bench)
    assert (queue_of(bench).total, list(bench.store.load())) == (0, [])


@pytest.mark.parametrize("name", [QUEUE, "/topic/t"])
@pytest.mark.parametrize("window", [1, 3, 100])
def test_what_comes_behind_a_transaction_is_read_after_its_own_commit(name, window):
    bench = Bench(FaultyStore(background=True), window_messages=window)
    sender, peer = bench.peer(), client(bench)
    peer.subscribe(name, durable_subscription_name="d", ack="client-individual", prefetch_count="1")
    finish(bench)
    with transaction(sender):
        sender.put(name, "0", persistent="true", transaction="t")
    put_all(sender, range(1, 9), name, persistent="true")
    commit(bench)  # that of the transaction
    for number in range(9):
        if not peer.inbox:
            finish(bench)
        message = peer.next("MESSAGE")
        assert message.body == b"%d" % number
        peer.ack(message)
    finish(bench)
    assert list(bench.store.load()) == []


# ---- transient messages beyond the window, in the store ----
def spooled(count, store=None, **config):
    bench = Bench(store, window_messages=3, transient="spool", **config)
    sender = bench.peer()
    for number in range(count):
        sender.put(QUEUE, str(number), **({} if number % 3 else {"persistent": "true"}))
    return bench, sender


def fill_up(bench, sender, number, most=1000):
    """Send numbers until the sender waits; the first one that was not sent."""
    while not queue_of(bench).blocked:
        sender.put(QUEUE, str(number))
        number += 1
        assert number < most
    return number


def test_without_the_key_they_stay_in_memory():
    bench = Bench(window_messages=3)
    sender = bench.peer()
    for number in range(30):
        sender.put(QUEUE, str(number), **({"expiration": "60000"} if number % 2 else {}))
    assert (queue_of(bench).count, list(bench.store.load())) == (30, [])


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize("killed", [False, True])
def test_a_restart_drops_them_and_no_others(tmp_path, killed, waits, monkeypatch):
    """Also before they are removed, they are not counted, browsed or delivered."""
    store = SqliteStore(tmp_path)
    bench, sender = spooled(50, store)  # 17 persistent ones, and 34 others, of which one is large
    sender.put(QUEUE, "50" + " " * 100_000)
    settle(bench)
    assert len(list(tmp_path.glob("bodies/*"))) == 1
    store._writer._release() if killed else store.close()
    remove = SqliteStore._remove_leftovers
    if waits:
        monkeypatch.setattr(SqliteStore, "_remove_leftovers", lambda *_: None)
    again, sender = spooled(0, inline(tmp_path))
    assert queue_of(again).total == 17
    taker(again, browser="true", **{"browser-end": "false"})
    put_all(sender, range(51, 60))
    expected = [*range(0, 50, 3), *range(51, 60)]
    peer = taker(again, ack="client-individual")
    frames = messages(peer)
    assert [int(frame.body) for frame in frames] == expected
    assert queue_of(again).total == len(expected)
    peer.ack(frames[0])
    peer.lose()
    assert drain(again.peer()) == expected[1:]
    assert again.store._writer.leftovers.counts == ({1: 32} if waits else {})
    monkeypatch.setattr(SqliteStore, "_remove_leftovers", remove)
    give_up = time.monotonic() + patience(20)
    while again.store._writer.leftovers.counts:
        assert time.monotonic() < give_up
        again.wait(1)
    settle(again)
    assert not list(tmp_path.glob("bodies/*"))
    assert again.store.damage.findings == 0
    again.store.close()
    assert check(tmp_path).record == {**check(tmp_path).record, "whole": True, "messages": 0}


def test_a_disk_that_fails_stops_their_producers_and_loses_none():
    bench, sender = spooled(0, FaultyStore(), max_queue_octets=200)
    put_all(sender, range(9))
    bench.store.faulty = True
    number = fill_up(bench, sender, 9, 300)
    bench.wait(2)
    assert queue_of(bench).total == number
    assert {bool(message.persistent) for message in queue_of(bench).messages} == {False}, "they are back in memory"
    bench.store.faulty = False
    bench.wait(5)
    assert drain(bench.peer()) == list(range(number))
    assert not queue_of(bench).blocked
    sender.put(QUEUE, "more", receipt="r")
    assert sender.next("RECEIPT")


def test_they_leave_space_on_the_disk_to_persistent_messages():
    """Their producers wait from twice `store_free` on. Persistent messages are taken until there is less than it."""
    store, free = SmallStore(), 100 * MIB
    bench, sender = spooled(50, store, max_queue_octets=200, store_free=free)

    def room(octets):
        store.left = octets
        bench.wait(1.5)

    room(2 * free)
    put_all(sender, range(50, 60))
    assert (queue_of(bench).count, len(list(store.load()))) == (3, 58)
    room(2 * free - 1)
    number = fill_up(bench, sender, 60)
    assert len(list(store.load())) == 58
    other = bench.peer()
    room(free)
    other.put("/queue/b", "kept", persistent="true", receipt="r")
    assert other.next("RECEIPT")
    room(free - 1)
    other.put("/queue/c", "volatile", receipt="v")
    assert other.next("RECEIPT")
    other.put("/queue/b", "refused", persistent="true", receipt="r")
    error = other.error()
    assert (error.headers["message"], error.headers["receipt-id"]) == ("the disk is full", "r")
    room(free)
    peer = bench.peer()
    peer.put("/queue/b", "taken again", persistent="true", receipt="r")
    assert (peer.next("RECEIPT").command, store.bodies[-2:]) == ("RECEIPT", ["kept", "taken again"])
    room(10 * free)
    assert (drain(peer), bool(queue_of(bench).blocked)) == (list(range(number)), False)
    peer.lose()
    put_all(sender, range(9))
    assert queue_of(bench).count == 3


@pytest.mark.parametrize("persistent", ["true", "false"])
def test_memory_does_not_grow_with_them(tmp_path, persistent):
    bench, sender = spooled(0, inline(tmp_path))
    account = bench.broker.account
    put_all(sender, ["x" * 1000] * 101, persistent=persistent)
    before = account.used
    put_all(sender, ["x" * 1000] * 499, persistent=persistent)
    kinds = Counter(type(one) for one in gc.get_objects())
    assert kinds[Message] < 20
    assert kinds[Batch] < 5
    assert account.used == before
    peer = taker(bench, ack="client-individual", prefetch_count="10")
    for _ in range(10):
        for frame in peer.take():
            peer.ack(frame)
        assert account.used - before < 60_000
    bench.store.close()


#: All messages are in memory.
ALL = 100_000
SCRIPTS = []


def script(function):
    SCRIPTS.append(function)
    return function


class Stage:
    def __init__(self, most, config):
        self.config = {"window_messages": most, **config}
        #: What clients saw, and whether messages were paged.
        self.store, self.seen, self.paged = FaultyStore(), [], False
        self.bench = Bench(self.store, **self.config)

    def peer(self, client_id=""):
        return client(self.bench, client_id)

    def fill(self, count=30, destination=QUEUE, **headers):
        """Send numbers. A header of several words gives each message the next one of them."""
        sender = self.peer()
        for number in range(count):
            values = {name: words.split()[number % len(words.split())] for name, words in headers.items()}
            sender.put(destination, str(number), **{"persistent": "true", **values})
        self.look()
        return sender

    def look(self):
        self.paged = self.paged or bool(self.bench.broker.journal.paged)

    def restart(self):
        finish(self.bench)
        date = self.bench.date
        self.bench = Bench(self.store, **self.config)
        self.bench.date = date
        self.look()

    def wait(self, seconds):
        for _ in range(round(seconds * 2)):
            self.bench.date += 0.5
            self.bench.wait(0.5)

    def see(self, peer, note=""):
        frames = peer.take()
        told = [(frame.command, frame.body, frame.get("redelivered"), frame.get("message")) for frame in frames]
        self.seen.append((note, told))
        return [frame for frame in frames if frame.command == "MESSAGE"]

    def settle(self, peer, rounds, command="ACK"):
        for _ in range(rounds):
            for frame in self.see(peer):
                peer.ack(frame, command)

    def drain(self, note="", destination=QUEUE, **headers):
        peer = self.peer()
        peer.subscribe(destination, **headers)
        self.see(peer, note)
        return peer


@script
def dead_letters_are_paged_too(stage):
    stage.fill(20)
    taker = stage.peer()
    taker.subscribe(QUEUE, ack="client-individual", prefetch_count="3")
    stage.settle(taker, 120, "NACK")
    stage.look()
    stage.restart()
    stage.drain("dead", "/queue/DLQ.a", ack="client-individual", prefetch_count="3")


@script
def selectors(stage):
    stage.fill(color="red blue blue green", priority="4 4 4 4 4 4 9 0")
    stage.drain("none", selector="color = 'black'")
    stage.drain("red", selector="color = 'red'", ack="client-individual", prefetch_count="2").lose()
    stage.drain("green", selector="color = 'green'")
    stage.restart()
    stage.drain("red", selector="color = 'red'")
    stage.drain("rest")


@script
def groups(stage):
    stage.fill(JMSXGroupID="a b c")
    stage.restart()
    first = stage.drain(ack="client-individual", prefetch_count="3")
    stage.settle(first, 4)
    second = stage.drain("has no group", ack="client-individual", prefetch_count="3")
    first.lose()
    stage.settle(second, 30)


@script
def browsers(stage):
    stage.fill()
    stage.drain("all", browser="true", **{"browser-end": "true"})
    stage.drain("from", browser="true", **{"browser-end": "true", "from-seq": "17"})
    stage.drain("some", browser="true", selector="1 = 0")
    follower = stage.drain("follows", browser="true", **{"browser-end": "false", "from-seq": "28"})
    stage.fill(5)
    stage.see(follower, "more")
    stage.drain()
    stage.see(follower)


@script
def received_one_by_one(stage):
    stage.fill(10, color="red blue")
    stage.restart()
    peer = stage.peer()
    peer.parser = Parser(None, commands=("EMPTY",))
    for selector in (*("selector:color = 'blue'\n", "", "selector:color = 'red'\n", "selector:1 = 0\n"), *[""] * 8):
        peer.raw(b"RECEIVE\ndestination:/queue/a\n%b\n\0" % selector.encode())
        stage.see(peer, selector)


@script
def expiry(stage):
    stage.fill(30, expiration="1000 60000 5000")
    stage.wait(3)
    stage.restart()
    stage.wait(3)
    stage.drain()
    stage.drain("dead", "/queue/DLQ.a")


@script
def transactions(stage):
    sender = stage.fill(10)
    for end in ("COMMIT", "ABORT", "COMMIT"):
        with transaction(sender, end):
            for number in range(10):
                sender.put(QUEUE, f"{end} {number}", persistent="true", transaction="t")
            sender.put(QUEUE, f"before {end}", persistent="true")
    taker = stage.drain(ack="client-individual", prefetch_count="6")
    for end in ("ABORT", "COMMIT", "ABORT", "COMMIT"):
        frames = stage.see(taker)
        with transaction(taker, end):
            for frame in frames:
                taker.ack(frame, transaction="t")
    taker.lose()
    stage.drain("rest")


@script
def durable_subscriptions(stage):
    durable = {"durable-subscription-name": "n", "activemq.subscriptionName": "n", "durable": "true"}
    durable |= {"auto-delete": "false", "persistent": "true"}
    for selector in ({}, {"selector": "color = 'red'"}):
        reader = stage.peer("ada")
        reader.subscribe("/topic/t", id="n", **durable, **selector)
        reader.lose()
        stage.fill(30, "/topic/t", color="red blue")
        reader = stage.peer("ada")
        reader.subscribe("/topic/t", id="n", ack="client-individual", prefetch_count="4", **durable, **selector)
        stage.settle(reader, 1)
        reader.lose()
        stage.restart()
        reader = stage.peer("ada")
        reader.subscribe("/topic/t", id="n", **durable, **selector)
        stage.see(reader)
        reader.send("UNSUBSCRIBE", id="n", **durable)
        reader.lose()


@script
def a_queue_that_expires(stage):
    stage.fill(20, **{"x-expires": "3000"})
    stage.fill(10, delay="60000", **{"x-expires": "3000"})
    stage.wait(40)
    assert stage.config.get("queue_arguments") or not list(stage.store.load())
    stage.fill(5)
    stage.drain()


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_client_sees_the_same(script, dialect):
    config = {"max_attempts": 3, "dead_letter_expired": True, **DIALECTS[dialect]}
    stages = [Stage(most, config) for most in (ALL, 1, 3)]
    for stage in stages:
        script(stage)
        finish(stage.bench)
    assert not stages[0].paged
    assert stages[1].paged
    assert any(frames for frames in stages[0].seen)
    assert (stages[1].seen, stages[2].seen) == (stages[0].seen, stages[0].seen)
    assert [message[:4] for message in stages[1].store.load()] == [message[:4] for message in stages[0].store.load()]
