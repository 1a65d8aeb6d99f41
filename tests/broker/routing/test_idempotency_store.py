"""Idempotency keys and the disk: a key is stored with its message, goes with it, and outlives the broker with it."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from broker.harness import Bench, FaultyStore
from broker.keyed import QUEUE, held, receipts, send
from broker.large import settle

from stompcodec.broker.storage.salvage import check, salvage
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.broker.storage.store import MemoryStore

# ---- the disk ----


def test_the_receipt_of_a_second_send_waits_for_the_commit_of_the_first() -> None:
    store = FaultyStore(background=True)
    bench = Bench(store)
    first, second = bench.peer(), bench.peer()
    send(first, "k", persistent="true")
    assert store.job is not None
    send(second, "k", persistent="false")
    send(second, "l")
    assert (first.take(), second.take()) == ([], [])
    store.finish()
    bench.turn()
    assert (receipts(first), receipts(second)) == (1, 2)
    assert sorted(held(bench)) == ["x", "x"]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("open_batch", [False, True])
def test_a_failed_commit_fails_the_second_one_too_and_leaves_no_key(waits: bool, open_batch: bool) -> None:
    """Both come in one turn, or the second one while the batch of the first is written; it may have sent before."""
    store = FaultyStore(background=True)
    bench = Bench(store)
    first, second = bench.peer(), bench.peer()
    if open_batch:
        first.session.receive(
            first.octets_of("SEND", b"x", destination=QUEUE, persistent="true", idempotency_key="k"), 0.0
        )
    else:
        send(first, "k", persistent="true")
    if waits:
        send(second, None, "own", persistent="true")
    send(second, "k", persistent="true", receipt="second")
    assert second.take() == []
    store.faulty = True
    store.finish()
    store.faulty = False
    bench.turn()
    assert first.error().headers["message"] == second.error().headers["message"] == "the message could not be stored"
    if store.job is not None:
        store.finish()
        bench.turn()
    assert [body for body in held(bench) if body != "own"] == []
    again = bench.peer()
    send(again, "k", "again", persistent="true")
    store.finish()
    bench.turn()
    assert receipts(again) == 1
    assert "again" in held(bench)
    assert [key.number for key in store.keys()] == [max(key.number for key in store.keys())]


@pytest.mark.parametrize("persistent", ["true", "false"])
def test_a_transaction_whose_commit_fails_leaves_no_key(persistent: str) -> None:
    store = FaultyStore(background=True)
    bench = Bench(store)
    sender, other = bench.peer(), bench.peer()
    sender.send("BEGIN", transaction="t")
    send(sender, "k", transaction="t", persistent=persistent)
    send(sender, "stored", transaction="t", persistent="true")
    sender.send("COMMIT", transaction="t", receipt="c")
    send(other, "k", persistent=persistent)
    assert other.take() == []
    store.faulty = True
    store.finish()
    store.faulty = False
    bench.turn()
    assert other.error()
    assert held(bench) == []
    last = bench.peer()
    send(last, "k")
    assert receipts(last) == 1
    assert held(bench) == ["x"]


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_sent_behind_a_commit_is_confirmed_behind_it(fails: bool) -> None:
    """It is not stored itself, but it is there, or is not, when that commit has ended."""
    store = FaultyStore(background=True)
    bench = Bench(store)
    first, second = bench.peer(), bench.peer()
    send(first, "stored", persistent="true")
    send(first, "k", "volatile")
    send(second, "k", "volatile")
    assert second.take() == []
    assert held(bench) == []
    store.faulty = fails
    store.finish()
    store.faulty = False
    bench.turn()
    assert held(bench) == ([] if fails else ["x", "volatile"])
    if fails:
        assert second.error()
        second = bench.peer()
        send(second, "k", "volatile")
        assert held(bench) == ["volatile"]
    assert receipts(second) == 1


def test_many_second_sends_wait_as_one() -> None:
    """The frames that wait for a batch that is being written are bounded, however many come."""
    store = FaultyStore(background=True)
    bench = Bench(store)
    first, second = bench.peer(), bench.peer()
    send(first, "k", persistent="true")
    send(second, None, persistent="true")
    busy = bench.broker.journal.busy
    assert busy is not None
    for _ in range(50):
        send(second, "k")
    assert len(busy.waiters) == 2
    store.finish()
    bench.turn()
    store.finish()
    bench.turn()
    assert receipts(second) == 51


@pytest.mark.parametrize("destination", [QUEUE, "/topic/t"])
@pytest.mark.parametrize("fails", [False, True])
def test_nobody_gets_it_before_it_is_stored(fails: bool, destination: str) -> None:
    """After a crash in between it would come with another message-id, and unmarked."""
    store = FaultyStore(background=True)
    bench = Bench(store)
    sender, consumer = bench.peer(), bench.peer()
    consumer.subscribe(destination, ack="client")
    send(sender, "k", destination=destination, persistent="true")
    send(sender, None, "behind", destination=destination)
    assert consumer.take() == []
    store.faulty = fails
    store.finish()
    store.faulty = False
    bench.turn()
    assert consumer.bodies() == ([b"behind"] if fails else [b"x", b"behind"])


# ---- restarts ----


def test_keys_outlive_a_restart_and_a_crash(tmp_path: Path) -> None:
    bench = Bench(SqliteStore(tmp_path / "data"))
    sender = bench.peer()
    for number in range(5):
        send(sender, f"k{number}", str(number), persistent="true")
    send(sender, "volatile", "gone")
    assert receipts(sender) == 6
    shutil.copytree(tmp_path / "data", tmp_path / "crashed")
    bench.broker.stop(bench.now)
    bench.turn()
    bench.store.close()
    for name in ("data", "crashed"):
        found = check(tmp_path / name)
        assert (found.whole, found.keys) == (True, 5)
        again = Bench(SqliteStore(tmp_path / name))
        sender = again.peer()
        for number in range(6):
            send(sender, f"k{number}", str(number), persistent="true")
        send(sender, "volatile", "there")
        assert receipts(sender) == 7
        assert held(again) == ["0", "1", "2", "3", "4", "5", "there"]
        again.audit()
        again.store.close()


def test_a_store_in_memory_keeps_them_as_long_as_it_lives() -> None:
    store = MemoryStore()
    send(Bench(store).peer(), "k", persistent="true")
    again = Bench(store)
    send(again.peer(), "k", "y", persistent="true")
    assert held(again) == ["x"]
    assert again.broker.stats.duplicates_changed == 1


def test_salvage_keeps_them(tmp_path: Path) -> None:
    bench = Bench(SqliteStore(tmp_path / "data"))
    for number in range(3):
        send(bench.peer(), f"k{number}", persistent="true")
    bench.store.close()
    assert salvage(tmp_path / "data", tmp_path / "new").keys == 3
    store = SqliteStore(tmp_path / "new")
    assert len(list(store.keys())) == 3
    again = Bench(store)
    for number in range(3):
        send(again.peer(), f"k{number}", persistent="true")
    assert again.broker.stats.duplicates == 3
    store.close()


@pytest.mark.parametrize(
    "change",
    [
        "scope = x'00'",
        "key = x'00'",
        "body = body + 1",
        "at = at + 1",
        "crc = 0",
        "key = 7",
        "body = 'x'",
        "number = 99",
    ],
)
def test_a_damaged_key_is_reported_and_the_others_count(change: str, tmp_path: Path) -> None:
    bench = Bench(SqliteStore(tmp_path / "data"))
    for number in range(3):
        send(bench.peer(), f"k{number}", persistent="true")
    bench.store.close()
    with closing(sqlite3.connect(tmp_path / "data" / "messages.sqlite", isolation_level=None)) as other:
        other.execute(f"UPDATE sent SET {change} WHERE number = 2")
    found = check(tmp_path / "data")
    assert found.problems == ["1 rows of the table sent, idempotency keys, are damaged"]
    assert salvage(tmp_path / "data", tmp_path / "new").keys == 2
    again = Bench(SqliteStore(tmp_path / "data"))
    assert again.store.damage.findings == 1
    for number in (0, 2, 1, 1):
        send(again.peer(), f"k{number}", persistent="true")
    assert again.broker.stats.duplicates == 3
    again.store.close()


def test_a_failed_commit_that_is_on_the_disk_is_taken_back(tmp_path: Path) -> None:
    """The COMMIT says that it failed, and has written nevertheless."""

    class Unsure:
        def __init__(self, connection: Any) -> None:
            self.connection = connection

        def __getattr__(self, name: str) -> Any:
            return getattr(self.connection, name)

        def execute(self, statement: str, *values: Any) -> Any:
            result = self.connection.execute(statement, *values)
            if statement == "COMMIT":
                raise sqlite3.OperationalError("disk I/O error")
            return result

    store = SqliteStore(tmp_path / "data")
    bench = Bench(store)
    sender = bench.peer()
    writer = store._writer
    writer._db = Unsure(writer._db)
    sender.session.receive(
        sender.octets_of("SEND", b"x", destination=QUEUE, persistent="true", idempotency_key="k", receipt="r"), 0.0
    )
    settle(bench)
    assert sender.error()
    send(bench.peer(), "l", persistent="true")
    store.close()
    store = SqliteStore(tmp_path / "data")
    assert len(list(store.keys())) == len(list(store.load())) == 1
    store.close()
