"""SqliteStore: commits in the loop and behind it, large bodies, many queues, and what each commit costs."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import get_ident

import pytest
from broker.storage.storing import BIG, commit_later, content, message, put, seqs
from patience import patience

from stompcodec.broker.storage import sqlite, sqlite_writer
from stompcodec.broker.storage.sqlite import SqliteStore
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


# ---- large bodies ----


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


# ---- what a commit costs ----


@pytest.fixture
def schedstat(tmp_path, monkeypatch):
    """The file in which the system says how long a thread has waited for a CPU."""
    file = tmp_path / "schedstat"
    monkeypatch.setattr(sqlite_writer, "_SCHEDULED", str(file))
    return file


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


def _parts(thing, seen):
    """Yield an object of the broker, and those that it refers to."""
    if not type(thing).__module__.startswith("stompcodec.broker") or isinstance(thing, type) or id(thing) in seen:
        return
    seen.add(id(thing))
    yield thing
    for value in getattr(thing, "__dict__", {}).values():
        yield from _parts(value, seen)
