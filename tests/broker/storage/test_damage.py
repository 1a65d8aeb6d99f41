"""Damage of a store is noticed: totals of queues, state, subscriptions, the WAL, and large bodies.

That of rows is in `test_page_reads.py`.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from broker.harness import Peer
from broker.large import QUEUE, Slow, pattern, settle, stored_bench
from broker.storage.storing import change, content, fill, flip, message

from stompcodec.broker.storage.folder import examine_wal, is_body
from stompcodec.broker.storage.salvage import check, salvage
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.errors import StoreError

KEY = "(SELECT min(key) FROM message)"


def rename(folder: Path, number: int | None, name: str) -> tuple[int, str]:
    """Change the name of a queue; None is the first one. Returns which it was."""
    with closing(sqlite3.connect(folder / "messages.sqlite", isolation_level=None)) as other:
        row = other.execute("SELECT id, name FROM queue WHERE id = coalesce(?, (SELECT min(id) FROM queue))", (number,))
        old: tuple[int, str] = row.fetchone()
        other.execute("UPDATE queue SET name = ? WHERE id = ?", (name, old[0]))
        return old


# ---- totals ----


@pytest.mark.parametrize(("where", "missing"), [("key = (SELECT max(key) FROM message)", 1), ("key < 1 << 46", 5)])
def test_missing_rows_are_noticed_at_start(tmp_path: Path, where: str, missing: int, caplog: Any) -> None:
    fill(tmp_path)
    change(tmp_path, f"DELETE FROM message WHERE {where}")
    _, store = content(tmp_path)
    assert store.damage.messages == missing
    assert f"{missing} messages of the queue / /queue/" in caplog.text
    caplog.clear()
    _, store = content(tmp_path)
    assert store.damage.findings == 0, "it was said"


def test_missing_rows_are_noticed_when_a_queue_drains(tmp_path: Path) -> None:
    store = fill(tmp_path, close=False)
    change(tmp_path, f"DELETE FROM message WHERE key = {KEY}")
    for seq in range(1, 6):
        store.remove("/\0/queue/a", message(seq))
    store.commit()
    assert store.damage.findings == 1
    store.close()


def test_rows_that_are_left_are_noticed_when_a_queue_drains(tmp_path: Path) -> None:
    fill(tmp_path)
    store = SqliteStore(tmp_path)
    assert len(list(store.load())) == 10
    columns = "key - 1, 'x', 'y', tail, 1, NULL, 4, 0, 0, 0"
    change(tmp_path, f"INSERT INTO message SELECT {columns} FROM message WHERE key = {KEY}")
    for seq in range(1, 6):
        store.remove("/\0/queue/a", message(seq))
    store.commit()
    assert store.damage.findings == 1
    store.close()


def test_a_queue_whose_name_is_damaged_keeps_its_messages(tmp_path: Path, caplog: Any) -> None:
    fill(tmp_path)
    number, name = rename(tmp_path, None, "other")
    found, store = content(tmp_path)
    assert {queue for queue, _ in found} == {"/\0/queue/b"}
    assert store.damage.messages == 5
    assert "the name of its queue is lost" in caplog.text
    store = SqliteStore(tmp_path)
    list(store.load())
    store.append("new", message(1))
    store.close()
    rename(tmp_path, number, name)
    found, store = content(tmp_path)
    assert len(found) == 11, "its number was not given away"


# ---- subscriptions and state ----


@pytest.mark.parametrize(
    "statement",
    ["UPDATE subscription SET name = 'b'", "DELETE FROM subscription", "UPDATE subscription SET shared = 1"],
)
def test_a_damaged_subscription_is_noticed(tmp_path: Path, statement: str) -> None:
    fill(tmp_path)
    change(tmp_path, statement)
    store = SqliteStore(tmp_path)
    assert store.subscriptions() == []
    assert store.incomplete
    assert store.damage.findings == 1
    store.close()


@pytest.mark.parametrize("statement", ["UPDATE state SET seq = 5", "DELETE FROM state"])
def test_a_changed_state_counts_as_a_crash(tmp_path: Path, statement: str) -> None:
    fill(tmp_path)
    change(tmp_path, statement)
    for findings in (1, 0):
        found, store = content(tmp_path)
        assert (len(found), store.unclean, store.damage.findings) == (10, findings == 1, findings)


# ---- the WAL ----


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A folder whose broker was killed, with eight groups in the WAL."""
    store = fill(tmp_path / "running", 8, close=False)
    shutil.copytree(tmp_path / "running", tmp_path / "crashed")
    store.close()
    return tmp_path / "crashed"


def groups(folder: Path) -> list[tuple[int, int]]:
    """Where each transaction begins and ends in the WAL, in bytes."""
    wal = examine_wal(folder / "messages.sqlite-wal")
    found, begin = [], 32
    for frame in wal.taken:
        if frame.commits:
            found.append((begin, frame.offset + wal.page))
            begin = frame.offset + wal.page
    return found


@pytest.mark.parametrize("at", [0, 9, 17, 24, 8000])
@pytest.mark.parametrize("back", [1, 2, 4])
def test_commits_behind_a_bad_frame_are_reported(crashed: Path, at: int, back: int, caplog: Any) -> None:
    """A bit in the head or in the page of a frame, so many transactions before the end of the WAL."""
    begin, _ = groups(crashed)[-back]
    flip(crashed / "messages.sqlite-wal", (begin + at) * 8 + 3)
    found, store = content(crashed)
    assert found.keys() < {(f"/\0/queue/{name}", seq) for name in "ab" for seq in range(1, 9)}
    if back > 1:
        assert store.damage.findings == 1
        assert "has a bad frame" in caplog.text
        assert (crashed / "messages.sqlite-wal.damaged").exists()


@pytest.mark.parametrize("written_back", [False, True])
@pytest.mark.parametrize("bit", [3, 70, 200])
def test_a_damaged_head_of_the_wal_is_reported(tmp_path: Path, bit: int, written_back: bool) -> None:
    """If the tables were in the WAL alone, the broker does not start, and leaves the WAL as it is."""
    running, crashed = tmp_path / "running", tmp_path / "crashed"
    running_store = fill(running, 2 if written_back else 8, close=False)
    if written_back:
        running_store._writer.checkpoint()
        for seq in range(3, 9):
            running_store.append("/\0/queue/a", message(seq))
            running_store.commit()
    shutil.copytree(running, crashed)
    running_store.close()
    flip(crashed / "messages.sqlite-wal", bit)
    if written_back:
        _, store = content(crashed)
        assert store.damage.findings >= 1
    else:
        before = (crashed / "messages.sqlite-wal").read_bytes()
        with pytest.raises(StoreError, match="restore the folder from a backup;"):
            content(crashed)
        assert (crashed / "messages.sqlite-wal").read_bytes() == before
        report = salvage(crashed, tmp_path / "new")
        assert (report.whole, report.messages) == (False, 0)


def test_what_is_left_of_earlier_runs_of_the_wal_is_no_damage(tmp_path: Path) -> None:
    store = fill(tmp_path / "running", 8, close=False)
    store._writer.checkpoint()
    store.append("/\0/queue/a", message(100))
    store.commit()
    shutil.copytree(tmp_path / "running", tmp_path / "crashed")
    store.close()
    wal = examine_wal(tmp_path / "crashed" / "messages.sqlite-wal")
    assert (wal.lost, wal.torn) == (0, False)
    assert wal.taken
    _, store = content(tmp_path / "crashed")
    assert store.damage.findings == 0


def test_the_log_is_bounded(tmp_path: Path, caplog: Any) -> None:
    store = SqliteStore(tmp_path)
    for seq in range(300):
        store.append("q", message(seq))
    store.close()
    change(tmp_path, "UPDATE message SET crc = 1")
    with caplog.at_level(logging.ERROR):
        _, store = content(tmp_path)
    assert store.damage.messages == 300
    assert len(caplog.records) < 150


# ---- large bodies, which are read when they are delivered ----


@pytest.mark.long
@pytest.mark.parametrize(
    ("version", "whole_frames", "slow", "durable", "ack"),
    [
        ("1.0", False, False, True, "auto"),
        ("1.1", True, False, False, "auto"),
        ("1.2", False, True, True, "auto"),
        ("1.2", True, True, False, "client-individual"),
    ],
)
def test_a_damaged_large_body_is_not_delivered_and_kept(
    tmp_path: Path, version: str, whole_frames: bool, slow: bool, durable: bool, ack: str
) -> None:
    """The frame never ends, the connection does. In auto mode it had left the store, and is put back, for salvage."""
    data, size = tmp_path / "data", 200_000 if whole_frames else 2_000_000
    where = "/topic/a" if durable else QUEUE
    headers = {"client-id": "c"} if durable else {}
    named = {"durable-subscription-name": "n"} if durable else {}

    def consume(bench: Any, peer: Any) -> None:
        peer.connect(**headers)
        peer.subscribe(where, ack=ack, **named)

    bench = stored_bench(data)
    if durable:
        consume(bench, peer := bench.peer(connect=False))
        peer.lose()
    for body in (pattern(size), b"small"):
        bench.peer().put(where, body, persistent="true")
    settle(bench)
    bench.store.close()
    (file,) = (path for path in (data / "bodies").iterdir() if is_body(path.name))
    flip(file, size * 4)

    bench = stored_bench(data)
    consumer = (Slow if slow else Peer)(bench, version, whole_frames=whole_frames)
    consume(bench, consumer)
    for _ in range(100):
        if slow and not consumer.closed:
            settle(bench)
            consumer.drain()
    settle(bench)
    assert consumer.closed
    assert [frame for frame in consumer.take() if frame.command == "MESSAGE"] == []
    assert bench.store.damage.messages == 1
    bench.audit()
    for _ in range(2):
        settle(bench)
        bench.store.close()
        assert [one["why"] for one in check(data).lost] == ["its file is missing or damaged"]
        assert check(data).problems == []
        (kept,) = (path for path in (data / "bodies").iterdir() if is_body(path.name))
        assert kept.stat().st_size == size
        bench = stored_bench(data)
        assert bench.store.damage.messages == 1
    consume(bench, consumer := bench.peer(connect=False))
    settle(bench)
    assert consumer.bodies() == [b"small"]
    settle(bench)
    bench.store.close()
    report = salvage(data, tmp_path / "new")
    assert (report.messages, len(report.lost)) == (int(ack != "auto"), 1)  # the small one is not acknowledged


@pytest.mark.parametrize("size", [1, 3])
def test_an_older_seq_that_comes_late_is_counted(tmp_path: Path, size: int) -> None:
    store = SqliteStore(tmp_path)
    for seq in (10, 11):
        store.append("q", message(seq))
    store.commit()
    store._writer.checkpoint()
    for seq in range(size):
        store.append("q", message(seq))
    store.commit()
    store.remove("q", message(0))
    store.append("q", message(20))
    store.remove("q", message(11))
    store.close()
    found, store = content(tmp_path)
    assert (len(found), store.damage.findings) == (1 + size, 0)
