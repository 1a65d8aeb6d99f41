"""Transient messages beyond the window, in the store: order, acknowledgements, restarts, a full disk."""

import gc
import time
from collections import Counter

import pytest
from broker.harness import AtOnce, Bench, FaultyStore
from broker.large import settle
from patience import patience

from stompcodec.broker.message import Message
from stompcodec.broker.storage.journal import Batch
from stompcodec.broker.storage.salvage import check
from stompcodec.broker.storage.sqlite import SqliteStore

QUEUE = "/queue/a"


def spooled(count, store=None, **config):
    """A broker with `count` messages, of which every third one is persistent."""
    bench = Bench(store, window_messages=3, transient="spool", **config)
    sender = bench.peer()
    for number in range(count):
        sender.put(QUEUE, str(number), **({} if number % 3 else {"persistent": "true"}))
    return bench, sender


def queue_of(bench, name=QUEUE):
    return bench.broker.queues["/", name]


def drain(peer, **headers):
    peer.subscribe(QUEUE, ack="client-individual", prefetch_count="2", **headers)
    seen = []
    while frames := [frame for frame in peer.take() if frame.command == "MESSAGE"]:
        seen += [int(frame.body) for frame in frames]
        for frame in frames:
            peer.ack(frame)
    return seen


def test_without_the_key_they_stay_in_memory():
    bench = Bench(window_messages=3)
    sender = bench.peer()
    for number in range(30):
        sender.put(QUEUE, str(number), **({"expiration": "60000"} if number % 2 else {}))
    assert queue_of(bench).count == 30
    assert not list(bench.store.load())


def left_behind(folder, killed=True, **config):
    """A folder with 17 persistent and 34 transient messages, one of them large."""
    store = SqliteStore(folder)
    bench, sender = spooled(50, store, **config)
    sender.put(QUEUE, "50" + " " * 100_000)
    settle(bench)
    assert len(list(folder.glob("bodies/*"))) == 1
    if killed:
        store._writer._release()
    else:
        store.close()


def started(folder, **config):
    store = SqliteStore(folder, helper=AtOnce(), page_helper=AtOnce())
    store._writer._db.execute("PRAGMA synchronous = OFF")  # nobody cuts the power
    return Bench(store, window_messages=3, transient="spool", **config)


def removed(bench):
    """Wait until the transient messages of the run before are gone."""
    give_up = time.monotonic() + patience(20)
    while bench.store._writer.leftovers.counts:
        assert time.monotonic() < give_up
        bench.wait(1)
    settle(bench)
    return True


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize("killed", [False, True])
def test_a_restart_drops_them_and_no_others(tmp_path, killed, waits, monkeypatch):
    """Also before they are removed, they are not counted, browsed or delivered."""
    left_behind(tmp_path, killed)
    remove = SqliteStore._remove_leftovers
    if waits:
        monkeypatch.setattr(SqliteStore, "_remove_leftovers", lambda *_: None)
    again = started(tmp_path)
    assert queue_of(again).total == 17
    browser = again.peer()
    browser.subscribe(QUEUE, browser="true", **{"browser-end": "false"})
    sender = again.peer()
    for number in range(51, 60):
        sender.put(QUEUE, str(number))
    expected = [*range(0, 50, 3), *range(51, 60)]
    taker = again.peer()
    taker.subscribe(QUEUE, ack="client-individual")
    frames = [frame for frame in taker.take() if frame.command == "MESSAGE"]
    assert [int(frame.body) for frame in frames] == expected
    assert queue_of(again).total == len(expected)
    taker.ack(frames[0])
    taker.lose()
    assert drain(again.peer()) == expected[1:]
    assert again.store._writer.leftovers.counts == ({1: 32} if waits else {})
    monkeypatch.setattr(SqliteStore, "_remove_leftovers", remove)
    assert removed(again)
    assert not list(tmp_path.glob("bodies/*"))
    assert again.store.damage.findings == 0
    again.store.close()
    assert check(tmp_path).record == {**check(tmp_path).record, "whole": True, "messages": 0}


def test_a_disk_that_fails_stops_their_producers_and_loses_none():
    store = FaultyStore()
    bench, sender = spooled(0, store, max_queue_octets=200)
    for number in range(9):
        sender.put(QUEUE, str(number))
    store.faulty = True
    number = 9
    while not queue_of(bench).blocked:
        sender.put(QUEUE, str(number))
        number += 1
        assert number < 300
    bench.wait(2)
    assert queue_of(bench).total == number
    assert {bool(message.persistent) for message in queue_of(bench).messages} == {False}, "they are back in memory"
    store.faulty = False
    bench.wait(5)
    assert drain(bench.peer()) == list(range(number))
    assert not queue_of(bench).blocked
    sender.put(QUEUE, "more", receipt="r")
    assert sender.next("RECEIPT")


def test_their_producers_wait_for_a_slow_disk(monkeypatch):
    monkeypatch.setattr("stompcodec.broker.storage.journal._MOST_PENDING", 5)
    store = FaultyStore(background=True)
    bench, sender = spooled(0, store)
    for number in range(30):
        sender.put(QUEUE, str(number))
        if bench.broker.journal.blocked:
            break
    assert 8 < number < 20
    for _ in range(5):
        if store.job is not None:
            store.finish()
            bench.turn()
    assert not bench.broker.journal.blocked
    store.background = False
    assert drain(bench.peer()) == list(range(number + 1))


# ---- limits ----

FREE = 100 * 2**20


class SmallStore(FaultyStore):
    """A store whose disk has so much room."""

    left = 10 * FREE

    def room(self):
        return self.left


def test_they_leave_space_on_the_disk_to_persistent_messages():
    """Their producers wait from twice `store_free` on. Persistent messages are taken until there is less than it."""
    store = SmallStore()
    bench, sender = spooled(50, store, max_queue_octets=200, store_free=FREE)
    store.left = 2 * FREE
    bench.wait(1.5)
    for number in range(50, 60):
        sender.put(QUEUE, str(number))
    assert (queue_of(bench).count, len(list(store.load()))) == (3, 58)
    store.left = 2 * FREE - 1
    bench.wait(1.5)
    number = 60
    while not queue_of(bench).blocked:
        sender.put(QUEUE, str(number))
        number += 1
        assert number < 1000
    assert len(list(store.load())) == 58
    other = bench.peer()
    store.left = FREE
    bench.wait(1.5)
    other.put("/queue/b", "kept", persistent="true", receipt="r")
    assert other.next("RECEIPT")
    store.left = FREE - 1
    bench.wait(1.5)
    other.put("/queue/b", "refused", persistent="true", receipt="r")
    assert other.error().headers["message"] == "the disk is full"
    store.left = 10 * FREE
    bench.wait(1.5)
    taker = bench.peer()
    assert drain(taker) == list(range(number))
    assert not queue_of(bench).blocked
    taker.lose()
    for number in range(9):
        sender.put(QUEUE, str(number))
    assert queue_of(bench).count == 3


@pytest.mark.parametrize("persistent", ["true", "false"])
def test_memory_does_not_grow_with_them(tmp_path, persistent):
    """After a commit for each message, and while some are delivered: objects, and bytes of the account."""
    bench = started(tmp_path)
    sender, account = bench.peer(), bench.broker.account
    for number in range(600):
        sender.put(QUEUE, "x" * 1000, persistent=persistent)
        if number == 100:
            before = account.used
    kinds = Counter(type(one) for one in gc.get_objects())
    assert kinds[Message] < 20
    assert kinds[Batch] < 5
    assert account.used == before
    taker = bench.peer()
    taker.subscribe(QUEUE, ack="client-individual", prefetch_count="10")
    for _ in range(10):
        for frame in taker.take():
            taker.ack(frame)
        assert account.used - before < 60_000
    bench.store.close()
