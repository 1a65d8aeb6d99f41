"""What every store does, as a whole and in pages, against a dict; and SqliteStore over restarts and crashes."""

import asyncio
import os
import shutil
import sqlite3
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from random import Random
from threading import get_ident

import pytest
from broker.storage import storing
from broker.storage.storing import ALL, BIG, KEY, Unsure, commit_later, filled, inline, message, put, read, seqs, synced
from hypothesis import given
from hypothesis import strategies as st
from patience import patience

from stompcodec.broker.storage import sqlite, sqlite_reader, sqlite_writer, tables
from stompcodec.broker.storage.salvage import check
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.broker.storage.sqlite_writer import Timer, Writer
from stompcodec.broker.storage.store import MemoryStore, Stored, TimedPage
from stompcodec.broker.storage.tables import SEQ_BITS
from stompcodec.errors import StoreError


class Stores:
    def __init__(self, kind):
        self.kind, self.root, self.runs, self.now = kind, Path(tempfile.mkdtemp()), 0, None

    @property
    def folder(self):
        return self.root / str(self.runs)

    def start(self):
        self.now = MemoryStore() if self.kind == "memory" else SqliteStore(self.folder)
        return self.now

    def crash(self):
        """Go on with a copy of the files, as they are while the store is open."""
        self.now._settle()
        shutil.copytree(self.folder, self.root / str(self.runs + 1))
        self.now.close()
        self.runs += 1
        return self.start()

    def restart(self):
        self.now.close()
        return self.now if self.kind == "memory" else self.start()

    def close(self):
        self.now.close()
        shutil.rmtree(self.root)


@pytest.fixture(params=["memory", "sqlite"])
def each_store(request):
    stores = Stores(request.param)
    yield stores.start()
    stores.close()


def pages(reader, sizes):
    after, messages, turn = -1, [], 0
    while True:
        most, octets = sizes[turn % len(sizes)]
        turn += 1
        one = reader(after=after, most=most, octets=octets)
        assert len(one.messages) <= most
        assert sum(len(found.tail) for found in one.messages[:-1]) < octets
        assert all(after < found.seq <= one.last for found in one.messages)
        messages += one.messages
        if one.end:
            return messages
        assert one.last > after
        after = one.last


def timed(reader, sizes):
    after, messages, turn = (), [], 0
    while after is not None:
        most, octets = sizes[turn % len(sizes)]
        turn += 1
        found = []
        reader(after, most, octets, found.append, None)
        (one,) = found
        assert isinstance(one, TimedPage), one
        assert len(one.messages) <= most
        messages += one.messages
        after = one.after
    return messages


def test_what_was_committed_comes_back_as_it_was(each_store):
    full = message(7, bytes(range(256)), persistent=False, expires=1e9 + 0.5, priority=9, attempts=3, redelivered=True)
    there = [full._replace(queue="/\0queue-é"), message(0, due=1.0), message(3)]
    put(each_store, *there)
    assert set(each_store.load()) == set(there)
    assert (list(each_store.load("q")), list(each_store.load("nowhere"))) == (there[1:], [])


def test_a_page_is_bounded_by_bytes_and_holds_one_message_at_least(each_store):
    put(each_store, message(1, b"x" * 1000), message(2, b"x" * 1000), message(3, b"x" * 80_000), message(4))
    assert seqs(read(each_store, octets=1)) == [1]
    assert seqs(read(each_store, octets=1500)) == [1, 2]
    assert seqs(read(each_store, after=2, octets=1500)) == [3]
    assert seqs(read(each_store, after=2, octets=81_000)) == [3, 4]


def test_a_batch_of_removals_alone_is_told(each_store):
    put(each_store, message(1))
    each_store.remove("q", message(1))
    assert each_store.only_removes
    each_store.subscribe(storing.SUBSCRIPTION)
    assert not each_store.only_removes


TEXTS = st.text(st.characters(blacklist_categories=["Cs"]), max_size=6)
QUEUES = st.sampled_from(["q", "/\0/queue/a", '/\0é\n"\\', ""])
TIMES = st.none() | st.sampled_from([0.001, 1.5]) | st.floats(0.001, 4e9)
BODIES = st.binary(max_size=30) | st.binary(max_size=30) | st.just(bytes(BIG))
MESSAGES = st.builds(
    Stored,
    st.just(""),
    st.integers(0, 40) | st.integers(0, ALL),
    TEXTS,
    TEXTS,
    st.builds(lambda head, body: head + b"\n\n" + body + b"\0", st.sampled_from([b"", b"a:b"]), BODIES),
    expires=TIMES,
    priority=st.sampled_from([4, 4, 4, 0, 9]),
    attempts=st.sampled_from([0, 0, 3]),
    redelivered=st.booleans(),
    due=TIMES,
    persistent=st.just(True),
    body=st.none(),
)
SEQS = st.integers(-1, 45)
OPERATIONS = st.one_of(
    st.tuples(st.just("append"), QUEUES, MESSAGES),
    st.tuples(st.just("append"), QUEUES, MESSAGES),
    st.tuples(st.just("remove"), st.integers(0, 99)),
    st.tuples(st.just("update"), st.integers(0, 99), st.integers(0, 5)),
    st.tuples(st.just("clear"), QUEUES, SEQS, st.just(ALL) | SEQS, st.integers(1, 5), st.sets(SEQS, max_size=3)),
    st.tuples(st.just("commit"), st.booleans()),
    st.tuples(st.just("again"), st.booleans()),
)
SIZES = st.lists(st.tuples(st.integers(1, 7), st.sampled_from([1, 40, 10**6])), min_size=1, max_size=3)


class Model:
    def __init__(self, stores):
        self.stores, self.store, self.kept = stores, stores.start(), {}
        self.begin()

    def begin(self):
        self.puts, self.removes, self.clears, self.updates = {}, set(), [], {}

    def append(self, queue, one):
        key = queue, one.seq
        if key not in self.puts and (key not in self.kept or key in self.removes):
            self.store.append(queue, one)
            self.puts[key] = one._replace(queue=queue)

    def live(self, number):
        keys = sorted({*self.puts, *(self.kept.keys() - self.removes)})
        return keys[number % len(keys)] if keys else None

    def remove(self, number):
        key = self.live(number)
        if key is not None:
            self.store.remove(key[0], self.puts.get(key) or self.kept[key])
            if self.puts.pop(key, None) is None:
                self.removes.add(key)

    def update(self, number, attempts):
        key = self.live(number)
        if key is None:
            return
        old = self.puts.get(key) or self.kept[key]
        one = old._replace(attempts=attempts, redelivered=attempts > 0 or old.redelivered)
        self.store.update(key[0], one)
        (self.puts if key in self.puts else self.updates)[key] = one

    def clear(self, *values):
        self.store.clear(*values)
        self.clears.append(values)

    def commit(self, later=False):
        answers, calls = [], SimpleQueue()
        self.store.commit_later(answers.append, calls.put if later else None)
        if later and not answers:
            calls.get(timeout=patience(20))()
        assert (answers, self.store.pending) == ([None], 0)
        self.committed()

    def committed(self):
        for key in self.removes:
            del self.kept[key]
        for queue, after, upto, most, held in self.clears:
            there = sorted(key for key in self.kept if key[0] == queue and key[1] not in held)
            for key in [key for key in there if after < key[1] <= upto][:most]:
                del self.kept[key]
        self.kept.update({key: one for key, one in self.updates.items() if key in self.kept})
        self.kept.update(self.puts)
        self.begin()

    def again(self, crashed):
        """Close the store, which commits, or lose what is not committed; and start the next one."""
        if crashed and self.stores.kind == "sqlite":
            self.store = self.stores.crash()
            self.kept = {key: one._replace(redelivered=True) for key, one in self.kept.items()}
            self.begin()
            assert self.store.unclean
        else:
            self.commit()
            self.store = self.stores.restart()
        found = list(self.store.load())
        assert {(one.queue, one.seq): one for one in found} == self.kept
        if self.stores.kind == "sqlite":
            assert self.store.unclean is crashed
            assert self.store.damage.findings == 0
            assert found == sorted(found, key=lambda one: (self.store._bases[one.queue], one.seq))
            assert len(os.listdir(self.stores.folder / "bodies")) == sum(len(one.tail) >= 65536 for one in found)

    def compare(self, sizes):
        store, kept = self.store, [self.kept[key] for key in sorted(self.kept)]
        for queue in {one.queue for one in kept} | {"q"}:
            ready = [one for one in kept if one.queue == queue and one.due is None]
            for priority in (None, 4, 9):
                wanted = [one for one in ready if priority in (None, one.priority)]
                found = pages(partial(read, store, queue=queue, priority=priority), sizes)
                assert [one._replace(body=None) for one in found] == wanted
        found = timed(store.deferred, sizes)
        assert [one.due for one in found] == sorted(one.due for one in found)
        assert {one._replace(body=None) for one in found} == {one for one in kept if one.due is not None}
        found = timed(partial(store.expired, 1.5), sizes)
        assert [one.expires for one in found] == sorted(one.expires for one in found)
        old = {one for one in kept if one.due is None and one.expires is not None and one.expires <= 1.5}
        assert {one._replace(body=None) for one in found} == old

    def compare_held(self):
        held = list(self.store.held())
        for told in held:
            found = [one for (queue, _seq), one in sorted(self.kept.items()) if queue == told.queue]
            ready = [one for one in found if one.due is None]
            priorities = tuple(sorted({one.priority for one in ready} - {4}))
            ends = found[0].seq, found[-1].seq
            assert told == (told.queue, len(found), len(found) - len(ready), *ends, priorities, False)
        assert {told.queue for told in held} == {queue for queue, _seq in self.kept}


@given(operations=st.lists(OPERATIONS, max_size=30), sizes=SIZES)
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_pages_of_any_size_hold_what_was_committed(kind, operations, sizes):
    stores = Stores(kind)
    try:
        model = Model(stores)
        for name, *values in operations:
            getattr(model, name)(*values)
            if name in ("commit", "again"):
                model.compare(sizes)
        model.again(False)
        model.compare(sizes)
        model.compare_held()
    finally:
        stores.close()


# ---- SqliteStore: in the loop, or behind it ----
def kept(folder):
    return list(storing.content(folder)[0])


def test_the_loop_goes_on_while_the_disk_is_slow(data, store, monkeypatch):
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
        with closing(sqlite3.connect(data / "messages.sqlite")) as other:
            assert other.execute("SELECT count(*) FROM message").fetchone() == (0,)
        free.set()
        assert await first is await commit_later(store) is None

    asyncio.run(main())
    assert seqs(store.load()) == [0, 1, 2, 4, 5, 6, 7, 8, 9, 11]


def test_close_waits_for_what_is_under_way(data, store):
    async def main():
        for seq in range(1000):
            store.append("q", message(seq))
        waiting = asyncio.ensure_future(commit_later(store))
        await asyncio.sleep(0)
        store.append("q", message(1000))
        store.close()
        assert await waiting is None

    asyncio.run(main())
    assert len(kept(data)) == 1001


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


def test_names_of_queues_do_not_pile_up(data, store, monkeypatch):
    """Their names come from peers: those that are gone leave next to nothing, and their numbers are used again."""
    monkeypatch.setattr(sqlite, "_SWEEP", 100)
    put(store, message(1, queue="stays"))
    for first in range(0, 2000, 60):
        names = [f"queue-{number}" for number in range(first, first + 60 if first else 500)]
        put(store, *(message(1, queue=name) for name in names))
        for name in names:
            store.remove(name, message(1))
    store.commit()
    (rows,) = store._writer._db.execute("SELECT count(*) FROM queue").fetchone()
    assert max(rows, len(store._bases)) < 300
    assert store._next < 700
    put(store, message(1, queue="last"))
    store.close()
    assert kept(data) == [("stays", 1), ("last", 1)]


def test_clear_removes_files_and_keeps_totals(store, data):
    put(store, *(message(seq, b"x" * BIG if seq % 3 == 0 else b"", priority=seq % 2 * 9) for seq in range(9)))
    store._writer.checkpoint()  # counts them
    put(store, message(9), message(10, due=1.0))
    store.clear("q", 0, ALL, 4)
    store.commit()
    assert seqs(read(store)) == [0, 5, 6, 7, 8, 9]
    store.clear("q", -1, ALL, 100)
    store.commit()
    assert (seqs(read(store)), list((data / "bodies").iterdir())) == ([], [])
    store.close()
    assert (check(data).whole, store.damage.findings) == (True, 0)


def test_the_write_ahead_log_stays_short_while_a_long_queue_is_cleared(tmp_path, monkeypatch):
    filled(tmp_path, *(message(seq, b"x" * 100) for seq in range(20_000)))
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
    def __init__(self):
        self.calls, self.found = SimpleQueue(), []

    def page(self, store):
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
    filled(tmp_path, *(message(seq, 100, persistent=False) for seq in range(20_000)))
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
    monkeypatch.setattr(sqlite_reader, "_PASSED", 1000)
    filled(tmp_path, *(message(seq, persistent=seq in (0, 4999), priority=priority) for seq in range(5000)))
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
    queues, how = ["q"] * 40 + ["r"] * 10, [{"persistent": seq % 3 == 0, "priority": 4 + seq % 2} for seq in range(50)]
    filled(tmp_path, *(message(seq, queue=queues[seq], **how[seq]) for seq in range(50)))
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
    filled(tmp_path, message(1, persistent=False))
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
