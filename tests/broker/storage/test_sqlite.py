"""SqliteStore: commits in the loop and behind it, pages meanwhile, many queues, and what earlier runs have left."""

import asyncio
import os
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from queue import SimpleQueue
from random import Random
from threading import get_ident

import pytest
from broker.storage import storing
from broker.storage.storing import ALL, BIG, KEY, commit_later, inline, message, put, read, seqs, synced
from broker.unsure import Unsure
from patience import patience

from stompcodec.broker.storage import sqlite, sqlite_reader, sqlite_writer, tables
from stompcodec.broker.storage.salvage import check
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.broker.storage.sqlite_writer import Timer, Writer
from stompcodec.broker.storage.tables import SEQ_BITS
from stompcodec.errors import StoreError


@pytest.fixture
def store(tmp_path):
    made = SqliteStore(tmp_path)
    yield made
    made.close()


def kept(folder):
    return list(storing.content(folder)[0])


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
        with closing(sqlite3.connect(tmp_path / "messages.sqlite")) as other:
            assert other.execute("SELECT count(*) FROM message").fetchone() == (0,)
        free.set()
        assert await first is await commit_later(store) is None

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


def test_a_body_and_its_name_are_synced_before_the_commit(store, monkeypatch):
    steps = synced(monkeypatch)
    put(store, message(1, BIG), message(2, BIG))
    assert steps == [*[f"{BIG + 6} octets"] * 2, *["folder"][: os.name == "posix"], "commit"]


def test_only_the_removed_messages_are_removed(store):
    """Consecutive ones go as a range, which must not take others with it."""
    rng = Random(18)
    put(store, *(message(seq, queue=queue) for seq in range(600) for queue in "pq"))
    there = set(range(600))
    while there:
        start = rng.choice(sorted(there))
        some = sorted(there & set(range(start, start + rng.choice((1, 15, 16, 17, 90)))))
        some = [seq for seq in some if rng.random() < rng.choice((0.9, 1.0))] or some
        rng.shuffle(some)
        for seq in some:
            store.remove("q", message(seq))
        store.commit()
        there -= set(some)
        assert seqs(store.load("q")) == sorted(there)
    assert (len(list(store.load("p"))), store.damage.findings) == (600, 0)


def test_a_seq_that_does_not_fit_is_refused(store):
    for seq in (-1, 2**SEQ_BITS):
        with pytest.raises(ValueError, match="seq is"):
            store.append("q", message(seq))
    put(store, message(2**SEQ_BITS - 1), message(0, queue="r"))
    assert [(one.queue, one.seq) for one in store.load()] == [("q", 2**SEQ_BITS - 1), ("r", 0)]


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


def test_clear_removes_files_and_keeps_totals(store, tmp_path):
    put(store, *(message(seq, b"x" * BIG if seq % 3 == 0 else b"", priority=seq % 2 * 9) for seq in range(9)))
    store._writer.checkpoint()  # counts them
    put(store, message(9), message(10, due=1.0))
    store.clear("q", 0, ALL, 4)
    store.commit()
    assert seqs(read(store)) == [0, 5, 6, 7, 8, 9]
    store.clear("q", -1, ALL, 100)
    store.commit()
    assert (seqs(read(store)), list((tmp_path / "bodies").iterdir())) == ([], [])
    store.close()
    assert (check(tmp_path).whole, store.damage.findings) == (True, 0)


def test_the_write_ahead_log_stays_short_while_a_long_queue_is_cleared(tmp_path, monkeypatch):
    with closing(SqliteStore(tmp_path)) as store:
        put(store, *(message(seq, b"x" * 100) for seq in range(20_000)))
    monkeypatch.setattr(sqlite_writer, "_WAL", 2**18)
    with closing(SqliteStore(tmp_path)) as store:
        for _ in range(40):
            store.clear("q", -1, ALL, 500)
            store.commit()
        assert seqs(read(store)) == []
        assert (tmp_path / "messages.sqlite-wal").stat().st_size < 2**20


def test_each_thread_keeps_one_file_open_that_says_how_long_it_waited(tmp_path, monkeypatch):
    """And opens it anew when it cannot be read: a new thread may have the number of one that has ended."""
    file = tmp_path / "schedstat"
    monkeypatch.setattr(sqlite_writer, "_SCHEDULED", str(file))

    def opened():
        links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
        return sum(os.path.exists(link) and os.path.samefile(link, file) for link in links)

    file.write_bytes(b"1 1000000000 1\n")
    timer, before = Timer(), opened()
    assert timer.waited() == timer.waited() == 1.0
    with ThreadPoolExecutor(1) as other:
        assert other.submit(timer.waited).result() == 1.0
    assert opened() == before + 2
    file.write_bytes(b"1 2000000000 1\n")  # it is read anew from its beginning
    assert timer.waited() == 2.0
    os.close(timer._files[get_ident()])
    timer._files[get_ident()] = os.open(file, os.O_WRONLY)
    assert [timer.waited(), timer.waited()] == [0.0, 2.0]
    timer.close()
    assert opened() == before


# ---- pages, while other things happen ----


class Calls:
    """A loop that runs what threads give it."""

    def __init__(self):
        self.calls, self.found = SimpleQueue(), []

    def page(self, store):
        """Read a page in the helper."""
        store.read("q", -1, ALL, 10, 10**6, self.found.append, self.calls.put)
        self.until(1)
        return self.found[0]

    def until(self, count):
        while len(self.found) < count:
            self.calls.get(timeout=patience(20))()


def fail(store, *messages):
    """A commit that fails, and is on the disk nevertheless."""
    store._writer._db = Unsure(store._writer._db)
    with pytest.raises(StoreError, match="disk I/O error"):
        put(store, *messages)


def test_what_a_commit_left_that_failed_meanwhile_is_not_read(store):
    put(store, message(1), message(9))
    page, done = store._reader.page, []

    def late(*values):
        if not done:
            done.append(fail(store, message(2), message(3)))
        return page(*values)

    store._reader.page = late
    assert seqs(Calls().page(store)) == [1, 9]


def test_pages_are_not_read_while_a_failed_commit_cannot_be_taken_back(store, monkeypatch):
    put(store, message(1))
    fail(store, message(2), message(3))
    monkeypatch.setattr(store._writer, "_opened", lambda: (_ for _ in ()).throw(StoreError("no way in")))
    assert isinstance(Calls().page(store), StoreError)
    assert isinstance(read(store), StoreError)
    monkeypatch.undo()
    assert seqs(read(store)) == seqs(Calls().page(store)) == [1]


def test_pages_arrive_in_the_order_of_the_calls(store):
    put(store, *map(message, range(10)))
    calls = Calls()
    note = lambda number: partial(lambda number, page: calls.found.append((number, page)), number)  # noqa: E731
    for seq in range(8):
        store.read("q", seq, seq + 1, 10, 10**6, note(seq), calls.calls.put)
    store.expired(5.0, (), 9, 9, note(8), calls.calls.put)
    store.read("nowhere", 0, 1, 10, 10**6, note(9), calls.calls.put)
    assert calls.found == []
    calls.until(10)
    assert [number for number, _ in calls.found] == list(range(10))
    assert [seqs(page) for _, page in calls.found[:8]] == [[seq + 1] for seq in range(8)]


def test_a_message_that_is_removed_while_it_is_read_is_not_damaged(store, monkeypatch):
    put(store, message(1, BIG), message(2))
    body = tables.read_body

    def late(folder, file):
        store.remove("q", message(1))
        store.commit()
        return body(folder, file)

    monkeypatch.setattr(tables, "read_body", late)
    page = read(store)
    assert (seqs(page), page.end, page.damaged, store.damage.findings) == ([2], True, 0, 0)


# ---- transient messages that earlier runs have left: they are not delivered, and are removed in shares ----


def leftovers(folder):
    with closing(sqlite3.connect(folder / "messages.sqlite")) as db:
        tables = ("message", "special")
        return [db.execute(f"SELECT count(*) FROM {name} WHERE persistent = 0").fetchone()[0] for name in tables]


def tidy(store, times):
    calls = []
    for _ in range(times):
        store.tidy(calls.append)
        while calls:
            calls.pop(0)()


def test_leftovers_are_removed_slowly_while_a_reader_keeps_the_write_ahead_log(tmp_path, monkeypatch):
    with closing(SqliteStore(tmp_path)) as store:
        put(store, *(message(seq, 100, persistent=False) for seq in range(20_000)))
    monkeypatch.setattr(sqlite_writer, "_WAL", 2**16)
    monkeypatch.setattr(sqlite_writer, "_LEFTOVERS", 100)
    store = inline(tmp_path)
    with closing(sqlite3.connect(tmp_path / "messages.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM message").fetchone()
        tidy(store, 5)
        assert leftovers(tmp_path)[0] > 10_000
        assert (tmp_path / "messages.sqlite-wal").stat().st_size < 2**20
    tidy(store, 3)
    assert leftovers(tmp_path) == [0, 0]
    store.close()


@pytest.mark.parametrize(("priority", "wanted"), [(4, None), (4, 4), (7, 7)])
def test_a_page_passes_over_a_bounded_number_of_leftovers(tmp_path, monkeypatch, priority, wanted):
    """They are not fetched, and one read does not go through all of them."""
    monkeypatch.setattr(sqlite_reader, "_PASSED", 1000)
    with closing(SqliteStore(tmp_path)) as store:
        put(store, *(message(seq, persistent=seq in (0, 4999), priority=priority) for seq in range(5000)))
    store = inline(tmp_path)
    store._reader.page(1, KEY, KEY, 1, 1, None)  # connects
    steps = []
    store._reader._db.set_progress_handler(lambda: steps.append(1), 1000)
    after, found, most = -1, [], 0
    for _ in range(6):
        steps.clear()
        page = read(store, after, 100, 10**6, priority=wanted)
        found, after, most = found + page.messages, page.last, max(most, len(steps))
        if page.end:
            break
    assert (page.end, seqs(found)) == (True, [0, 4999])
    assert most < 40, "thousands of steps of SQLite for a page"
    store.close()


@pytest.mark.parametrize("most", [1, 3, 100])
def test_a_queue_is_cleared_though_it_has_leftovers(tmp_path, most):
    """Each share takes as many messages as without leftovers."""
    with closing(SqliteStore(tmp_path)) as store:
        put(store, *(message(seq, persistent=seq % 3 == 0, priority=4 + seq % 2) for seq in range(40)))
        put(store, *(message(seq, queue="r", persistent=seq % 3 == 0) for seq in range(40, 50)))
    store = inline(tmp_path)
    before, expected = leftovers(tmp_path)[0], list(range(0, 40, 3))
    for _ in range(-(-len(expected) // most)):
        store.clear("q", -1, ALL, most, [12])
        store.commit()
        expected = [seq for seq in expected if seq == 12 or seq not in [one for one in expected if one != 12][:most]]
        assert seqs(read(store)) == expected
    assert expected == [12]
    assert leftovers(tmp_path)[0] == before
    while store._writer.remove_leftovers():
        pass
    assert seqs(store.load()) == [12, 42, 45, 48]
    store.close()
    assert check(tmp_path).whole


def test_the_number_of_a_queue_of_leftovers_is_not_given_to_another(tmp_path):
    """A queue that has nothing else is forgotten when they are gone, and not before."""
    with closing(SqliteStore(tmp_path)) as store:
        put(store, message(1, persistent=False))
    store = inline(tmp_path)
    assert list(store.held()) == []
    store._sweep_at = -1
    put(store, message(2, queue="r"))
    assert [(one.queue, one.seq) for one in store.load()] == [("r", 2)]
    assert store._bases["q"] != store._bases["r"]
    store._writer.remove_leftovers()
    store._sweep_at = -1
    put(store, message(3, queue="r"))
    assert "q" not in store._bases
    store.close()
    assert check(tmp_path).whole
