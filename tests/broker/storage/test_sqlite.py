"""SqliteStore: commits in the loop and behind it, large bodies, many queues, and what each commit costs."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from random import Random
from threading import get_ident

import pytest
from broker.harness import AtOnce, Bench
from broker.storage.storing import BIG, commit_later, content, message, put, seqs
from patience import patience

from stompcodec.broker.storage import sqlite, sqlite_writer
from stompcodec.broker.storage.sqlite import _FAST, SqliteStore
from stompcodec.broker.storage.sqlite_writer import Timer, Writer
from stompcodec.broker.storage.tables import SEQ_BITS


@pytest.fixture
def store(tmp_path):
    made = SqliteStore(tmp_path)
    yield made
    made.close()


def kept(folder):
    return list(content(folder)[0])


# ---- in the loop, or behind it ----


@pytest.mark.parametrize(
    ("count", "size", "removed", "pace", "at_once"),
    [
        (1, 10, 0, 0.0, True),
        (4, 10, 0, 0.0004, True),
        (4, 10, 0, 0.0005, False),
        (200, 10, 0, 0.0009, True),
        (201, 10, 0, 0.0, False),
        (200, 10, 0, 0.001, False),
        (1, BIG, 0, 0.0, False),
        (1, 10, 199, 0.0009, True),  # a sender waits
        (1, 10, 200, 0.0, False),
        (1, 10, 199, 0.001, False),
        (0, 10, 4, 0.0, True),
        (0, 10, 5, 0.0, False),  # nobody waits
    ],
)
def test_only_a_small_batch_on_a_fast_disk_keeps_the_loop_waiting(store, count, size, removed, pace, at_once):
    put(store, *map(message, range(removed)))
    store._writer.pace = pace
    for seq in range(removed, removed + count):
        store.append("q", message(seq, size))
    for seq in range(removed):
        store.remove("q", message(seq))
    answers, calls = [], SimpleQueue()
    store.commit_later(answers.append, calls.put)
    assert answers == ([None] if at_once else [])
    if not at_once:
        calls.get(timeout=patience(20))()
        assert answers == [None]


def test_the_loop_goes_on_while_the_disk_is_slow(tmp_path, store, monkeypatch):
    """What comes in meanwhile makes the next batch; nothing is answered before it is written."""
    free, begun = threading.Event(), threading.Event()
    commit = Writer.commit

    def slow(writer, batch):
        begun.set()
        assert free.wait(patience(20))
        return commit(writer, batch)

    async def main():
        monkeypatch.setattr(Writer, "commit", slow)
        store._writer.pace = 1.0
        for seq in range(10):
            store.append("q", message(seq))
        first = asyncio.ensure_future(commit_later(store))
        await asyncio.get_running_loop().run_in_executor(None, begun.wait, 20)
        store.append("q", message(10))
        store.remove("q", message(3))
        store.remove("q", message(10))
        store.append("q", message(11))
        assert (store.pending, first.done()) == (2, False)
        with sqlite3.connect(tmp_path / "messages.sqlite") as other:
            assert other.execute("SELECT count(*) FROM message").fetchone() == (0,)
        other.close()
        free.set()
        assert await first is None
        assert await commit_later(store) is None

    asyncio.run(main())
    assert seqs(store.load()) == [0, 1, 2, 4, 5, 6, 7, 8, 9, 11]


def test_close_waits_for_what_is_under_way(tmp_path, store):
    async def main():
        for seq in range(1000):
            store.append("q", message(seq))
        waiting = asyncio.ensure_future(commit_later(store))
        await asyncio.sleep(0)
        store.append("q", message(1000))
        store.close()
        assert await waiting is None

    asyncio.run(main())
    assert len(kept(tmp_path)) == 1001


def test_a_loop_that_is_gone_does_not_stop_the_helper(store):
    def closed(call):
        raise RuntimeError("the loop is closed")

    for seq in range(10):
        store.append("q", message(seq))
    store.commit_later(lambda error: None, closed)
    put(store, message(10))
    assert len(list(store.load())) == 11


def test_the_files_are_set_up_for_power_cuts(store):
    pragmas = [store._writer._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    assert pragmas == ["wal", 2]


def test_only_the_removed_messages_are_removed(store):
    """Consecutive ones go as a range, which must not take others with it."""
    rng = Random(18)
    put(store, *(message(seq, queue=queue) for seq in range(600) for queue in "pq"))
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
        assert seqs(store.load("q")) == sorted(left)
    assert len(list(store.load("p"))) == 600
    assert not store.damage.findings


def test_a_seq_that_does_not_fit_is_refused(store):
    for seq in (-1, 2**SEQ_BITS):
        with pytest.raises(ValueError, match="seq is"):
            store.append("q", message(seq))
    put(store, message(2**SEQ_BITS - 1), message(0, queue="r"))
    assert [(one.queue, one.seq) for one in store.load()] == [("q", 2**SEQ_BITS - 1), ("r", 0)]


def test_an_intake_is_of_its_batch(store):
    """What is put into it is stored with its batch; after that the store has another one."""
    assert store.intake("q") is None
    for seq in (1, 3):
        store.append("q", message(seq))
        puts, base, top = store.intake("q")
        assert top < seq
        puts[base + seq + 1] = message(seq + 1)
        assert store.pending == 2
        store.remove("q", message(seq + 1)) if seq == 3 else store.commit()
    store.commit()
    assert seqs(store.load()) == [1, 2, 3]


# ---- large bodies ----


def test_large_bodies_have_files_of_their_own(tmp_path, store):
    bodies = tmp_path / "bodies"
    store.append("q", message(3, BIG))
    store.remove("q", message(3))  # never written at all
    put(store, message(1, BIG), message(2, 1000))
    assert len(os.listdir(bodies)) == 1
    assert store._writer._db.execute("SELECT sum(length(tail)) FROM message").fetchone() == (1006,)
    store.remove("q", message(1))
    again = [message(1, BIG + 1), message(4, BIG)]  # the same seq, another file
    put(store, *again)
    assert sorted((bodies / name).stat().st_size for name in os.listdir(bodies)) == [BIG + 6, BIG + 7]
    store.close()
    found, _ = content(tmp_path)
    assert [found["q", 1], found["q", 4]] == again


@pytest.mark.parametrize("harm", ["cut", "changed", "gone"])
def test_a_torn_file_is_told_and_left_out(tmp_path, harm, caplog):
    """At each start until it is salvaged."""
    store = SqliteStore(tmp_path)
    put(store, message(1, BIG), message(2))
    store.close()
    (file,) = (tmp_path / "bodies").iterdir()
    if harm == "cut":
        os.truncate(file, BIG // 2)
    elif harm == "changed":
        file.write_bytes(file.read_bytes()[:-1] + b"x")
    else:
        file.unlink()
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.ERROR, "stompcodec.broker"):
            assert kept(tmp_path) == [("q", 2)]
        assert "message m-1 of /queue/a is lost" in caplog.text
    assert len(list((tmp_path / "bodies").iterdir())) == (harm != "gone")


def test_a_body_and_its_name_are_synced_before_the_commit(store, monkeypatch):
    steps = []
    sync, commit = os.fsync, Writer.commit
    kind = lambda file: "folder" if stat.S_ISDIR(os.fstat(file).st_mode) else "file"  # noqa: E731
    monkeypatch.setattr(os, "fsync", lambda file: (steps.append(kind(file)), sync(file)))
    monkeypatch.setattr(Writer, "commit", lambda writer, batch: (steps.append("commit"), commit(writer, batch))[1])
    put(store, message(1, BIG), message(2, BIG))
    assert steps == ["file", "file", *["folder"][: os.name == "posix"], "commit"]


# ---- queues that come and go ----


def test_names_of_queues_do_not_pile_up(tmp_path, store, monkeypatch):
    """Their names come from peers: those that are gone leave next to nothing, and their numbers are used again."""
    monkeypatch.setattr(sqlite, "_SWEEP", 100)
    put(store, message(1, queue="stays"))
    for first in range(0, 2000, 50):
        names = [f"queue-{number}" for number in range(first, first + 50)]
        put(store, *(message(1, queue=name) for name in names))
        for name in names:
            store.remove(name, message(1))
    store.commit()
    (rows,) = store._writer._db.execute("SELECT count(*) FROM queue").fetchone()
    assert max(rows, len(store._bases), store._next) < 300
    put(store, message(1, queue="last"))
    store.close()
    assert kept(tmp_path) == [("stays", 1), ("last", 1)]


def test_queues_are_forgotten_only_when_they_are_empty(tmp_path, store, monkeypatch):
    monkeypatch.setattr(sqlite, "_SWEEP", 3)
    for number in range(20):
        store.append(f"queue-{number}", message(number))
        if number % 3:
            store.remove(f"queue-{number}", message(number))
        store.commit()
    for number in range(20):
        put(store, message(100, queue=f"queue-{number}"))
    store.close()
    expected = {(f"queue-{number}", 100) for number in range(20)} | {(f"queue-{n}", n) for n in range(0, 20, 3)}
    assert set(kept(tmp_path)) == expected


# ---- what a commit costs ----


@pytest.fixture
def schedstat(tmp_path, monkeypatch):
    """The file in which the system says how long a thread has waited for a CPU."""
    file = tmp_path / "schedstat"
    monkeypatch.setattr(sqlite_writer, "_SCHEDULED", str(file))
    return file


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(b"123 1500000000 7\n", 1.5), (b"", 0.0), (b"0 x 0\n", 0.0), (b"12\n", 0.0), (None, 0.0)],
)
def test_the_time_for_which_a_thread_waited_is_the_second_number(text, seconds, schedstat):
    if text is not None:
        schedstat.write_bytes(text)
    timer = Timer()
    assert timer.waited() == seconds
    timer.close()


def test_each_thread_keeps_one_file_open(schedstat):
    """And opens it anew when it cannot be read: a new thread may have the number of one that has ended."""
    schedstat.write_bytes(b"1 1000000000 1\n")
    timer, before = Timer(), _open_files(schedstat)
    assert timer.waited() == timer.waited() == 1.0
    with ThreadPoolExecutor(1) as other:
        assert other.submit(timer.waited).result() == 1.0
    assert _open_files(schedstat) == before + 2
    schedstat.write_bytes(b"1 2000000000 1\n")  # it is read anew from its beginning
    assert timer.waited() == 2.0
    os.close(timer._files[get_ident()])
    timer._files[get_ident()] = os.open(schedstat, os.O_WRONLY)
    assert [timer.waited(), timer.waited()] == [0.0, 2.0]
    timer.close()
    assert _open_files(schedstat) == before


def _open_files(file):
    links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    return sum(os.path.exists(link) and os.path.samefile(link, file) for link in links)


@pytest.mark.parametrize(("share", "is_fast"), [(0.0, False), (0.8, False), (0.95, True), (1.5, True)])
def test_commits_that_wait_for_a_cpu_stay_in_the_loop(share, is_fast, tmp_path, monkeypatch):
    """Each takes 5 ms, a share of them in the line for a CPU."""
    looks = 0

    def clock():
        nonlocal looks
        looks += 1
        return looks * 0.005

    store = SqliteStore(tmp_path, clock=clock)
    monkeypatch.setattr(Timer, "waited", lambda timer: looks // 2 * 0.005 * share)  # a commit looks twice
    store._writer.pace = 0.001
    for seq in range(40):
        put(store, message(seq))
    assert (store._writer.pace < _FAST) is is_fast
    assert store._writer.pace >= 0
    store.close()


def test_the_system_is_not_asked_while_commits_are_fast(tmp_path, monkeypatch):
    store = SqliteStore(tmp_path, clock=lambda: 0.0)
    monkeypatch.setattr(Timer, "waited", lambda timer: pytest.fail("it was asked"))
    for seq in range(3):
        put(store, message(seq))
    store.close()


def _parts(thing, seen):
    """Yield an object of the broker, and those that it refers to."""
    if not type(thing).__module__.startswith("stompcodec.broker") or isinstance(thing, type) or id(thing) in seen:
        return
    seen.add(id(thing))
    yield thing
    for value in getattr(thing, "__dict__", {}).values():
        yield from _parts(value, seen)


def test_objects_that_each_commit_uses_have_few_attributes(tmp_path):
    """CPython shares the names of 29 at most in a class: with more, each object has a slow dict of its own."""
    bench = Bench(SqliteStore(tmp_path, helper=AtOnce(), page_helper=AtOnce()))
    bench.broker.journal.on_lost = lambda error: None
    sender = bench.peer()
    sender.put("/queue/a", b"m", persistent="true", receipt="r")
    assert sender.next("RECEIPT")
    counts = {type(each).__name__: len(getattr(each, "__dict__", ())) for each in _parts(bench.broker, set())}
    assert {"Journal", "SqliteStore", "Writer"} < set(counts)
    # One of each is there, and few of its attributes are used for a message.
    assert {name for name, count in counts.items() if count > 29} <= {"Broker", "Config"}
