"""SqliteStore: in the background, with large bodies, many queues, and a WAL that stays small."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import stat
import threading
from queue import SimpleQueue
from random import Random

import pytest
from patience import patience

from stompcodec.broker.storage import sqlite
from stompcodec.broker.storage.rows import SEQ_BITS
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.broker.storage.sqlite_writer import Writer
from stompcodec.broker.storage.store import Stored

BIG = 70_000


def message(seq, size=10, **values):
    body = (b"%d " % seq * size)[:size]
    return Stored("", seq, f"m-{seq}", "/queue/a", b"a:b\n\n" + body + b"\0", **values)


def content(folder):
    """What a store holds, by opening it anew."""
    store = SqliteStore(folder)
    try:
        return {(found.queue, found.seq): found for found in store.load()}
    finally:
        store.close()


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, patience(60)))


async def commit_in_background(store):
    """As a broker does it: the answer comes in the thread of the loop."""
    loop = asyncio.get_running_loop()
    answered = loop.create_future()
    thread = threading.get_ident()

    def done(error):
        assert threading.get_ident() == thread
        answered.set_result(error)

    store.commit_later(done, loop.call_soon_threadsafe)
    return await answered


def test_batches_of_all_sizes_in_the_background(tmp_path):
    sizes = [1, 4, 5, 100, 499, 500, 1200, 3]

    async def main():
        store = SqliteStore(tmp_path)
        seq = 0
        for size in sizes:
            for _ in range(size):
                store.append("q", message(seq, BIG if seq == 20 else 10))
                seq += 1
            assert await commit_in_background(store) is None
        store.close()

    run(main())
    assert [seq for _, seq in content(tmp_path)] == list(range(sum(sizes)))


@pytest.mark.parametrize(
    ("count", "size", "pace", "at_once"),
    [
        (1, 10, 0.0, True),
        (4, 10, 0.0004, True),
        (4, 10, 0.0005, False),
        (200, 10, 0.0009, True),
        (201, 10, 0.0, False),
        (200, 10, 0.001, False),
        (1, BIG, 0.0, False),
    ],
)
def test_only_a_small_batch_on_a_fast_disk_keeps_the_loop_waiting(tmp_path, count, size, pace, at_once):
    store = SqliteStore(tmp_path)
    store._writer.pace = pace
    for seq in range(count):
        store.append("q", message(seq, size))
    assert_committed(store, at_once)


@pytest.mark.parametrize(
    ("put", "removed", "pace", "at_once"),
    [
        (1, 199, 0.0009, True),  # a sender waits
        (1, 200, 0.0, False),
        (1, 199, 0.001, False),
        (0, 4, 0.0, True),
        (0, 5, 0.0, False),  # nobody waits
    ],
)
def test_a_batch_that_adds_nothing_is_small_sooner(tmp_path, put, removed, pace, at_once):
    store = SqliteStore(tmp_path)
    for seq in range(removed):
        store.append("q", message(seq))
    store.commit()
    store._writer.pace = pace
    for seq in range(removed, removed + put):
        store.append("q", message(seq))
    for seq in range(removed):
        store.remove("q", message(seq))
    assert_committed(store, at_once)


def test_only_the_removed_messages_are_removed(tmp_path):
    """Consecutive ones go as a range, which must not take others with it."""
    rng = Random(18)
    store = SqliteStore(tmp_path)
    for seq in range(600):
        store.append("p", message(seq))
        store.append("q", message(seq))
    store.commit()
    left = set(range(600))
    while left:
        start = rng.choice(sorted(left))
        some = sorted(left & set(range(start, start + rng.choice((1, 15, 16, 17, 90)))))
        some = [seq for seq in some if rng.random() < rng.choice((0.9, 1.0))] or some
        rng.shuffle(some)
        for seq in some:
            store.remove("q", message(seq))
        store.commit()
        left -= set(some)
        assert [stored.seq for stored in store.load("q")] == sorted(left)
    assert len(list(store.load("p"))) == 600
    assert not store.damage.findings
    store.close()


def assert_committed(store, at_once):
    answers, calls = [], SimpleQueue()
    store.commit_later(answers.append, calls.put)
    assert answers == ([None] if at_once else [])
    if not at_once:
        calls.get(timeout=patience(20))()
        assert answers == [None]
    store.close()


def test_the_loop_goes_on_while_the_disk_is_slow(tmp_path, monkeypatch):
    """What comes in meanwhile makes the next batch; nothing is answered before it is written."""
    free, begun = threading.Event(), threading.Event()
    commit = Writer.commit

    def slow(writer, batch):
        begun.set()
        assert free.wait(patience(20))
        return commit(writer, batch)

    async def main():
        store = SqliteStore(tmp_path)
        monkeypatch.setattr(Writer, "commit", slow)
        store._writer.pace = 1.0
        for seq in range(10):
            store.append("q", message(seq))
        first = asyncio.ensure_future(commit_in_background(store))
        await asyncio.get_running_loop().run_in_executor(None, begun.wait, 20)
        store.append("q", message(10))
        store.remove("q", message(3))
        store.remove("q", message(10))
        store.append("q", message(11))
        assert store.pending == 2
        assert not first.done()
        with sqlite3.connect(tmp_path / "messages.sqlite") as other:
            assert other.execute("SELECT count(*) FROM message").fetchone() == (0,)
        other.close()
        free.set()
        assert await first is None
        assert await commit_in_background(store) is None
        store.close()

    run(main())
    assert [seq for _, seq in content(tmp_path)] == [0, 1, 2, 4, 5, 6, 7, 8, 9, 11]


def test_close_waits_for_what_is_under_way(tmp_path):
    async def main():
        store = SqliteStore(tmp_path)
        for seq in range(1000):
            store.append("q", message(seq))
        waiting = asyncio.ensure_future(commit_in_background(store))
        await asyncio.sleep(0)
        store.append("q", message(1000))
        store.close()
        assert await waiting is None

    run(main())
    assert len(content(tmp_path)) == 1001


def test_a_loop_that_is_gone_does_not_stop_the_helper(tmp_path):
    store = SqliteStore(tmp_path)

    def closed(call):
        raise RuntimeError("the loop is closed")

    for seq in range(10):
        store.append("q", message(seq))
    store.commit_later(lambda error: None, closed)
    store.append("q", message(10))
    store.commit()
    store.close()
    assert len(content(tmp_path)) == 11


def test_the_files_are_set_up_for_power_cuts(tmp_path):
    store = SqliteStore(tmp_path)
    pragmas = {
        name: store._writer._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
    }
    store.close()
    assert pragmas == {"journal_mode": "wal", "synchronous": 2}


def test_large_bodies_have_files_of_their_own(tmp_path):
    store = SqliteStore(tmp_path)
    bodies = tmp_path / "bodies"
    store.append("q", message(1, BIG))
    store.append("q", message(2, 1000))
    store.append("q", message(3, BIG))
    store.remove("q", message(3))  # never written at all
    store.commit()
    assert len(os.listdir(bodies)) == 1
    assert store._writer._db.execute("SELECT sum(length(tail)) FROM message").fetchone() == (1006,)
    store.append("q", message(4, BIG))
    store.remove("q", message(1))
    store.append("q", message(1, BIG + 1))  # the same seq, another file
    store.commit()
    assert sorted((bodies / name).stat().st_size for name in os.listdir(bodies)) == [BIG + 6, BIG + 7]
    store.close()
    found = content(tmp_path)
    assert found["q", 1].tail == message(1, BIG + 1).tail
    assert found["q", 4].tail == message(4, BIG).tail


@pytest.mark.parametrize("harm", ["cut", "changed", "gone"])
def test_a_torn_file_is_told_and_left_out(tmp_path, harm, caplog):
    store = SqliteStore(tmp_path)
    store.append("q", message(1, BIG))
    store.append("q", message(2))
    store.close()
    (file,) = (tmp_path / "bodies").iterdir()
    if harm == "cut":
        os.truncate(file, BIG // 2)
    elif harm == "changed":
        file.write_bytes(file.read_bytes()[:-1] + b"x")
    else:
        file.unlink()
    with caplog.at_level(logging.ERROR, "stompcodec.broker"):
        assert list(content(tmp_path)) == [("q", 2)]
    assert "message m-1 of /queue/a is lost" in caplog.text
    caplog.clear()
    assert list(content(tmp_path)) == [("q", 2)]
    assert "message m-1 of /queue/a is lost" in caplog.text, "it is kept for salvage, and said until that is done"
    assert len(list((tmp_path / "bodies").iterdir())) == (harm != "gone")


def test_files_that_nobody_knows_are_removed(tmp_path):
    store = SqliteStore(tmp_path)
    store.append("q", message(1, BIG))
    store.close()
    (tmp_path / "bodies" / "0123456789abcdef-1").write_bytes(b"x" * 100)
    assert list(content(tmp_path)) == [("q", 1)]
    assert len(list((tmp_path / "bodies").iterdir())) == 1


def test_a_body_and_its_name_are_synced_before_the_commit(tmp_path, monkeypatch):
    store = SqliteStore(tmp_path)
    steps = []
    sync, commit = os.fsync, Writer.commit
    monkeypatch.setattr(os, "fsync", lambda fd: (steps.append("folder" if _is_folder(fd) else "file"), sync(fd)))
    monkeypatch.setattr(Writer, "commit", lambda writer, batch: (steps.append("commit"), commit(writer, batch))[1])
    store.append("q", message(1, BIG))
    store.append("q", message(2, BIG))
    store.commit()
    store.close()
    assert steps == ["file", "file", *["folder"][: os.name == "posix"], "commit"]


def _is_folder(descriptor):
    return stat.S_ISDIR(os.fstat(descriptor).st_mode)


@pytest.mark.long
def test_names_of_queues_do_not_pile_up(tmp_path):
    """Their names come from peers: 20,000 that come and go leave next to nothing, and their numbers are used again."""
    store = SqliteStore(tmp_path)
    store.append("stays", message(1))
    for number in range(20_000):
        store.append(f"queue-{number}", message(number))
        if number % 100 == 99:
            store.commit()
            for old in range(number - 99, number + 1):
                store.remove(f"queue-{old}", message(old))
    store.commit()
    (rows,) = store._writer._db.execute("SELECT count(*) FROM queue").fetchone()
    assert max(rows, len(store._bases), store._next) < 2000
    store.append("last", message(1))
    store.close()
    assert list(content(tmp_path)) == [("stays", 1), ("last", 1)]


def test_queues_are_forgotten_only_when_they_are_empty(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "_SWEEP", 3)
    store = SqliteStore(tmp_path)
    for number in range(20):
        store.append(f"queue-{number}", message(number))
        if number % 3:
            store.remove(f"queue-{number}", message(number))
        store.commit()
    for number in range(20):
        store.append(f"queue-{number}", message(100))
        store.commit()
    store.close()
    expected = {(f"queue-{number}", 100) for number in range(20)} | {(f"queue-{n}", n) for n in range(0, 20, 3)}
    assert content(tmp_path).keys() == expected


@pytest.mark.long
def test_the_wal_is_taken_over_again_and_again(tmp_path):
    async def main():
        store = SqliteStore(tmp_path)
        for turn in range(100):
            for seq in range(turn * 20, turn * 20 + 20):
                store.append("q", message(seq, 60_000))
            for seq in range(turn * 20 - 20, turn * 20) if turn else ():
                store.remove("q", message(seq))
            assert await commit_in_background(store) is None
        largest = (tmp_path / "messages.sqlite-wal").stat().st_size
        store.close()
        return largest

    assert run(main()) < 64 * 2**20  # of 120 MB that went through it
    assert len(content(tmp_path)) == 20


def test_a_seq_that_does_not_fit_is_refused(tmp_path):
    store = SqliteStore(tmp_path)
    for seq in (-1, 2**SEQ_BITS):
        with pytest.raises(ValueError, match="seq is"):
            store.append("q", message(seq))
    store.append("q", message(2**SEQ_BITS - 1))
    store.append("r", message(0))
    store.close()
    assert list(content(tmp_path)) == [("q", 2**SEQ_BITS - 1), ("r", 0)]


def test_an_intake_is_of_its_batch(tmp_path):
    """What is put into it is stored with its batch; after that the store has another one."""
    store = SqliteStore(tmp_path)
    assert store.intake("q") is None
    for seq in (1, 3):
        store.append("q", message(seq))
        puts, base, top = store.intake("q")
        assert top < seq
        puts[base + seq + 1] = message(seq + 1)
        assert store.pending == 2
        store.remove("q", message(seq + 1)) if seq == 3 else store.commit()
    store.close()
    assert [seq for _, seq in content(tmp_path)] == [1, 2, 3]
