"""Persistent messages take shorter roads, in C and in Python: clients, books and store are the same as without them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from broker.harness import Bench, FaultyStore
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from stompcodec.broker.queues.paging import Paging
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.sessions import commands, plain
from stompcodec.broker.sessions import commit as acknowledge
from stompcodec.broker.storage import journal

ROADS = ["slow", "python", "c"] if plain.EXTENSION is not None else ["slow", "python"]


@pytest.fixture(autouse=True)
def _on() -> Iterator[None]:
    """The road in C is on after a test that has switched it off."""
    yield
    switch(True)


def switch(on: bool) -> None:
    if plain.EXTENSION is not None:
        plain.EXTENSION.switch(on)


def frame(command: str, *lines: str, body: str = "") -> bytes:
    return "\n".join([command, *lines, "", body]).encode() + b"\0"


# ---- random conversations ----

sends = st.builds(
    lambda destination, lines, body: frame("SEND", f"destination:{destination}", *lines, body=body),
    st.sampled_from(["/queue/a", "/queue/a", "/queue/a", "/queue/b", "/topic/t", "/temp-queue/q"]),
    st.sampled_from(
        [
            *(["persistent:true"], ["persistent:true", "receipt:7"], ["persistent:true", "receipt:8"]),
            *([], ["receipt:9"], ["persistent:false"], ["transaction:t"]),
        ]
    ),
    st.sampled_from(["hi", "", "x" * 900]),
)
special = st.builds(
    lambda line: frame("SEND", "destination:/queue/a", "persistent:true", line),
    st.sampled_from(["priority:9", "expires:1", "delay:5", "transaction:t", "reply-to:/queue/b"]),
)
commits = st.just(frame("COMMIT", "transaction:t", "receipt:9") + frame("BEGIN", "transaction:t"))
acks = st.tuples(st.sampled_from(["ACK", "ACK", "ACK", "NACK"]), st.integers(0, 3), st.sampled_from(["", "receipt:5"]))
subscribes = st.tuples(st.sampled_from(["auto", "client-individual"]), st.sampled_from(["1", "3", "100"]))
reads = st.lists(st.one_of(sends, sends, sends, sends, sends, special, commits), max_size=8)
EVENTS = ["turn", "written", "written", "fails", "short", "enough", "shut", "open", "lost"]
steps = st.lists(
    st.tuples(
        st.one_of(reads, reads, reads, st.lists(acks, max_size=4), subscribes, st.sampled_from(EVENTS)), st.booleans()
    ),
    max_size=12,
)
configs = st.fixed_dictionaries(
    {
        "window_messages": st.sampled_from([1, 3, 1000]),
        "max_queue_messages": st.sampled_from([None, 5, 20]),
        "write_high": st.sampled_from([1, 300, 262_144]),
        "transient": st.sampled_from(["stop", "spool"]),
        "durable": st.sampled_from(["all", "persistent"]),
    }
)


class World:
    """A broker with a sender and a consumer. On the slow road, no frame takes a shorter one."""

    def __init__(self, config: dict[str, Any], road: str, background: bool) -> None:
        self.road = road
        self.store = FaultyStore(background)
        self.bench = Bench(self.store, **config)
        self.bench.broker._entropy = bytes  # the ids of sessions are the same each time
        if road == "slow":
            slow = {"SEND": commands._send_any, "ACK": lambda *what: acknowledge._acknowledge(True, *what)}
            self.bench.broker.handlers = {**commands.HANDLERS, **slow}
        self.begin()

    def begin(self) -> None:
        """Let a new sender and a new consumer connect. The destinations of the sender are cached from now on."""
        self.sender, self.consumer = self.bench.peer(), self.bench.peer()
        self.sender.subscribe("/temp-queue/q", ack="client-individual")
        for destination in ("/queue/a", "/queue/b", "/topic/t", "/temp-queue/q"):
            self.sender.put(destination, "first")
        self.sender.take()
        self.sender.raw(frame("BEGIN", "transaction:t"))

    def step(self, what: Any, turns: bool) -> None:
        switch(self.road == "c")
        bench, account = self.bench, self.bench.broker.account
        if isinstance(what, list):
            octets = b"".join(self._octets(each) for each in what)
            peer = self.consumer if what and isinstance(what[0], tuple) else self.sender
            peer.session.receive(octets, bench.now)
        elif isinstance(what, tuple):
            mode, window = what
            self.consumer.subscribe("/queue/a", id=f"s{len(self.consumer.session.consumers)}", ack=mode, **{
                "prefetch-count": window
            })  # fmt: skip
        elif what == "written":
            if self.store.job is not None:
                self.store.finish()
        elif what == "fails":
            self.store.faulty = not self.store.faulty
        elif what in ("short", "enough"):
            account.first = account.used + 2000 if what == "short" else account.second
        elif what in ("shut", "open"):
            self.consumer.session.writable(what == "open", bench.now)
        elif what == "lost":
            self.consumer.lose()
            self.consumer = bench.peer()
        if turns or what == "turn":
            bench.turn()
        if self.sender.closed or self.consumer.closed:
            self.begin()

    def _octets(self, what: Any) -> bytes:
        if isinstance(what, bytes):
            return what
        command, at, receipt = what
        given = [each.headers["ack"] for each in self.consumer.inbox if each.get("ack")]
        id = given[-1 - at % len(given)] if given else "1-1"
        return frame(command, f"id:{id}", *([receipt] if receipt else []))

    def seen(self) -> Any:
        """What clients see, what the books say, and what is stored or waits for that."""
        broker, peers = self.bench.broker, (self.sender, self.consumer)
        journal, account = broker.journal, broker.account
        clients = [(each.octets, each.closed, each.session.paused, each.session.plain) for each in peers]
        queues = {name: _books(queue) for name, queue in broker.queues.items()}
        batches = [_changes(batch) for batch in (journal.batch, journal.busy) if batch is not None]
        stored = [(each.queue, each.id, each.tail) for each in self.store.load()]
        return clients, queues, batches, stored, broker.seq, account.used, account.held, journal.failures


def _books(queue: Queue) -> Any:
    paging = queue.paging
    paged = None if paging is None else (paging.count, [(span.cursor, span.last) for span in paging._spans.values()])
    unwritten = None if paging is None else [first for _batch, first in paging._unwritten]
    ready = [(each.id, each.tail, each.persistent) for each in queue.messages]
    unacked = [[each.id for each in consumer.unacked.values()] for consumer in queue.consumers]
    return queue.count, queue.octets, queue.newest, ready, unacked, paged, unwritten


def _changes(batch: Any) -> Any:
    moves = [[(queue.key, message.id) for queue, message in pairs] for pairs in (batch.put, batch.settled)]
    gone = [(key, message.id) for key, message in batch.gone]
    return moves, gone, batch.cost, batch.first, [waiter.receipts[:] for waiter in batch.waiters]


@given(configs, st.booleans(), steps)
@settings(max_examples=examples(150))
def test_all_roads_are_the_same(config: dict[str, Any], background: bool, steps: Any) -> None:
    worlds = [World(config, road, background) for road in ROADS]
    for what, turns in steps:
        seen = []
        for world in worlds:
            world.step(what, turns)
            seen.append(world.seen())
        assert all(each == seen[0] for each in seen)


# ---- that they are taken ----

SENT = frame("SEND", "destination:/queue/a", "persistent:true", "receipt:7", body="hi")


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[Any]:
    """Return a list of the calls of a method from now on."""
    calls: list[Any] = []
    method = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *what: (calls.append(what), method(*what))[1])
    return calls


@pytest.mark.skipif(plain.EXTENSION is None, reason="the plain road is not built, or switched off")
@pytest.mark.parametrize("ack", [None, "client-individual"])
def test_messages_in_memory_are_put_in_c(ack: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(FaultyStore())
    sender, consumer = bench.peer(), bench.peer()
    if ack is not None:
        consumer.subscribe("/queue/a", ack=ack)
    sender.put("/queue/a", "first")
    calls = counted(monkeypatch, Queue, "put") + counted(monkeypatch, Queue, "put_new")
    sender.raw(SENT * 3)
    assert not calls
    assert sum(queue.count for queue in bench.broker.queues.values()) == 4
    assert [each.command for each in sender.take()] == ["RECEIPT"] * 3
    assert bench.store.bodies == ["hi"] * 3


@pytest.mark.parametrize("past", [0, 1])
@pytest.mark.parametrize("on", [False, True])
def test_messages_behind_the_window_are_paged(past: int, on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(FaultyStore(), window_messages=3)
    sender = bench.peer()
    sender.put("/queue/a", "first")
    switch(on)
    sender.raw(SENT * (2 + past))
    (queue,) = bench.broker.queues.values()
    assert (queue.count, queue.total) == (3, 3 + past)
    calls, longer = counted(monkeypatch, Paging, "take_new"), counted(monkeypatch, Paging, "put")
    sender.raw(SENT * 5)
    # Without `past`, the first of them finds the window full, and begins to page by the long road.
    # In C, the first one of a batch that finds others paged, and the one behind it, are left to Python.
    assert (len(calls), len(longer)) == {
        (False, 0): (4, 1),
        (False, 1): (5, 0),
        (True, 0): (1, 1),
        (True, 1): (2, 0),
    }[on, past]
    assert (queue.count, queue.total) == (3, 8 + past)


@pytest.mark.parametrize("on", [False, True])
def test_the_disk_is_full(on: bool) -> None:
    bench = Bench(FaultyStore())
    sender = bench.peer()
    sender.put("/queue/a", "first")
    bench.broker.journal.short = True
    switch(on)
    sender.raw(SENT)
    assert "the disk is full" in sender.error().headers["message"]
    (queue,) = bench.broker.queues.values()
    assert (queue.count, bench.store.bodies) == (1, [])


def test_a_message_of_another_rank_is_recorded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(FaultyStore(background=True), window_messages=2)
    sender = bench.peer()
    sender.put("/queue/a", "first")
    for _ in range(4):
        sender.put("/queue/a", "hi", persistent="true", priority="9")
    (queue,) = bench.broker.queues.values()
    assert (queue.count, queue.total) == (3, 5)
    switch(False)
    calls = counted(monkeypatch, Paging, "take_new")
    sender.raw(SENT)
    assert len(calls) == 1
    recorded = [message.seq for _queue, message in bench.broker.journal.batch.put]
    assert sorted(set(recorded)) == recorded


@pytest.mark.parametrize("road", ROADS)
def test_receipts_wait_for_their_own_commit(road: str) -> None:
    """Also those of frames that come while an earlier batch, for which the session waits, is being written."""
    world = World({}, road, True)
    world.consumer.subscribe("/queue/a", ack="client-individual")
    world.step([SENT], True)
    world.step([SENT.replace(b"receipt:7", b"receipt:8")], True)
    assert world.sender.take() == []
    world.step("written", True)
    assert [each.headers["receipt-id"] for each in world.sender.take()] == ["7"]
    world.step("written", True)
    assert [each.headers["receipt-id"] for each in world.sender.take()] == ["8"]
    assert world.store.bodies == ["hi"] * 2


@pytest.mark.parametrize("road", ROADS)
def test_receipts_of_acks_wait_for_their_own_commit(road: str) -> None:
    world = World({}, road, True)
    world.consumer.subscribe("/queue/a", ack="client-individual")
    world.step([SENT * 4], True)
    world.step("written", True)
    world.step([("ACK", 0, "receipt:1"), ("ACK", 1, "receipt:2")], True)
    world.step([("ACK", 2, "receipt:3"), ("ACK", 3, "receipt:4")], True)
    assert b"RECEIPT" not in world.consumer.octets
    world.step("written", True)
    assert re.findall(rb"receipt-id:(.)", world.consumer.octets) == [b"1", b"2"]
    assert len(world.store.bodies) == 2
    world.step("written", True)
    assert re.findall(rb"receipt-id:(.)", world.consumer.octets) == [b"1", b"2", b"3", b"4"]
    assert world.store.bodies == []


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("pending", [3, 4])
def test_senders_wait_while_the_disk_is_slower(road: str, pending: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_MOST_PENDING", 2)
    world = World({}, road, True)
    world.step([SENT], True)  # it is being written
    world.step([SENT] * pending, False)
    assert world.sender.session.paused is (pending > 3)
    world.step("written", True)
    world.step("written", True)
    assert not world.sender.session.paused


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("pending", [3, 4])
def test_consumers_wait_while_the_disk_is_slower(road: str, pending: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({}, road, True)
    world.consumer.subscribe("/queue/a", ack="client-individual")
    world.step([SENT] * 4, True)
    world.step("written", True)
    monkeypatch.setattr(journal, "_MOST_PENDING", 2)
    world.step([SENT], True)  # it is being written
    world.step([("ACK", at, "") for at in range(pending)], False)
    assert world.consumer.session.paused is (pending > 3)
