"""Pages of SqliteStore when things are odd: damage, failed commits, files, other threads, and many rows."""

from __future__ import annotations

import random
import shutil
from contextlib import closing
from functools import partial
from queue import SimpleQueue

import pytest
from broker.storage.storing import ALL, BIG, change, message, put, seqs
from broker.unsure import Unsure
from patience import patience

from stompcodec.broker.message import Message
from stompcodec.broker.storage import sqlite_writer as writer_module
from stompcodec.broker.storage import tables as rows_module
from stompcodec.broker.storage.salvage import check, salvage
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.broker.storage.store import Page
from stompcodec.errors import StoreError

#: Of seq 0 of the first queue.
KEY = 1 << 45


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "data"


@pytest.fixture
def store(folder):
    made = SqliteStore(folder)
    yield made
    made.close()


def answer(store, after=-1, upto=ALL, most=1000, octets=10**8, queue="q", priority=None):
    """A page, which is the same in the loop and in the helper."""
    found, calls = [], SimpleQueue()
    store.read(queue, after, upto, most, octets, found.append, None, priority)
    store.read(queue, after, upto, most, octets, found.append, calls.put, priority)
    calls.get(timeout=60)()
    if all(isinstance(page, Page) for page in found):
        one, other = ([read._replace(body=None) for read in page.messages] for page in found)
        assert (one, found[0][1:]) == (other, found[1][1:])
    else:
        assert all(isinstance(page, StoreError) for page in found)
    return found[0]


def pages(store, most):
    """All messages of a queue, in pages."""
    found, after, end = [], -1, False
    while not end:
        page = answer(store, after=after, most=most)
        if isinstance(page, StoreError):  # SQLite cannot find its way in the file
            return []
        found += page.messages
        after, end = page.last, page.end
    return found


# ---- what comes back ----


def test_messages_before_a_crash_are_redelivered(folder, tmp_path):
    store = SqliteStore(folder)
    put(store, message(1), message(2, priority=9), message(3, due=5.0))
    shutil.copytree(folder, tmp_path / "killed")
    store.close()
    store = SqliteStore(tmp_path / "killed")
    put(store, message(4))
    found = []
    store.deferred((), 10, 10, found.append, None)
    again = answer(store).messages + answer(store, priority=9).messages + found[0].messages
    assert [(one.seq, one.redelivered) for one in again] == [(1, True), (2, True), (4, False), (2, True), (3, True)]
    store.close()


# ---- damage ----

COLUMNS = {
    "tail": ("x'613a620a0a3200'", "'odd'", "'é' || x'00' || 'b'", "7", "NULL"),
    "id": ("'m-7'", "x'ff80'", "CAST(x'ff80' AS TEXT)", "5.5"),
    "destination": ("'/queue/b'", "5"),
    "expires": ("5.5", "'soon'", "2e10"),
    "priority": ("9", "'high'"),
    "attempts": ("3", "0.5"),
    "redelivered": ("1",),
    "persistent": ("0",),
    "crc": ("crc + 1", "'x'"),
    "key": ("key + 70", "key + (1 << 50)"),
}


@pytest.mark.parametrize("plain", [False, True], ids=["slow", "hot"])  # the ways into a row, see Writer._rows
@pytest.mark.parametrize(("column", "value"), [(column, value) for column in COLUMNS for value in COLUMNS[column]])
def test_a_damaged_row_is_reported_once_and_left_out(column, value, plain, folder, caplog):
    """By pages, and by the next start; kept in the file, and counted by each start anew."""
    with closing(SqliteStore(folder)) as store:
        sent = [message(seq, expires=None if plain else 9.5, queue="q") for seq in range(6)]
        for one in sent:
            made = Message(one.id.encode(), one.seq, one.destination, one.tail, True) if plain else one
            store.append("q", made)
    change(folder, f"UPDATE message SET {column} = {value} WHERE key = {KEY + 2}")
    sent.pop(2)
    if column != "key":
        with closing(SqliteStore(folder)) as store:
            for _ in range(2):
                assert answer(store) == Page(sent, ALL, True, 1)
            assert (store.damage.messages, store.damage.findings) == (1, 1)
            assert answer(store, after=1, most=1)[:2] == ([], 2)
    for again in (False, True):
        caplog.clear()
        with closing(SqliteStore(folder)) as store:
            assert list(store.load()) == sent
            strangers = column == "key" and not again  # a row is missing, and there is one too many
            assert store.damage.messages == 1 + strangers
            assert "is lost: its row is damaged" in caplog.text or "the name of its queue is lost" in caplog.text
            findings = store.damage.findings
            for one in sent if again else ():
                store.remove("q", one)
            store.commit()
    assert store.damage.findings == findings, "the total is right"


def test_files_that_are_missing_or_damaged_or_of_no_row_are_reported(store, folder):
    put(store, message(1, BIG), message(2), message(3, BIG), message(4, BIG))
    files = sorted((folder / "bodies").iterdir(), key=lambda path: int(path.name.rpartition("-")[2]))
    files[0].unlink()
    files[1].write_bytes(b"y" * 100)
    change(folder, f"DELETE FROM body WHERE key = {KEY + 4}")
    page = answer(store)
    assert (seqs(page), page.damaged, store.damage.messages) == ([2], 3, 3)


def test_flipped_bits_in_rows_never_change_a_message(folder):
    """Whatever is flipped among rows, an intact one is delivered, or reported as missing with its page."""
    chance = random.Random(11)
    kinds = [{}, {"priority": 5}, {"expires": 1.1}]
    sent = {seq: message(seq, b"body %d" % seq * 3, **kinds[seq % 3]) for seq in range(60)}
    store = SqliteStore(folder)
    put(store, *sent.values())
    store.close()
    octets = (folder / "messages.sqlite").read_bytes()
    first, end = octets.index(b"body 59"), octets.index(b"body 0") + 50
    read = unread = 0
    for _ in range(40):
        flipped = bytearray(octets)
        for _ in range(3):
            flipped[chance.randrange(first, end)] ^= 1 << chance.randrange(8)
        (folder / "messages.sqlite").write_bytes(flipped)
        store = SqliteStore(folder)
        found = pages(store, chance.randrange(3, 70))
        assert all(one == sent[one.seq] for one in found)
        assert len({one.seq for one in found}) == len(found)
        read += len(found)
        unread += not found
        store.close()
    assert (unread, read > 40 * 50) == (0, True)


def test_a_message_that_is_removed_while_it_is_read_is_not_damaged(store, monkeypatch):
    put(store, message(1, b"x" * BIG), message(2))
    read = rows_module.read_body

    def late(folder, file):
        store.remove("q", message(1))
        store.commit()
        return read(folder, file)

    monkeypatch.setattr(rows_module, "read_body", late)
    page = answer(store)
    assert (seqs(page), page.end, page.damaged, store.damage.findings) == ([2], True, 0, 0)


def test_a_damaged_due_time_is_reported(store, folder):
    put(store, message(1, due=5.0), message(2, due=6.0))
    change(folder, f"UPDATE special SET due = 5.5 WHERE key = {KEY + 1}")
    found = []
    store.deferred((), 10, 10**6, found.append, None)
    assert ([one.seq for one in found[0].messages], list(found[0].damaged)) == ([2], [("q", 1)])
    assert [one.seq for one in store.load()] == [2]


def test_check_finds_what_the_table_of_special_messages_lacks(store, folder, tmp_path):
    put(store, message(1, due=5.5), message(2, expires=5.0), message(3, priority=8), message(4))
    store.close()
    assert check(folder).whole
    change(
        folder, f"DELETE FROM special WHERE key = {KEY + 2}", f"UPDATE special SET priority = 7 WHERE key = {KEY + 3}"
    )
    assert check(folder).problems == ["2 messages are missing or wrong in the table special"]
    assert salvage(folder, tmp_path / "new").messages == 4
    again = SqliteStore(tmp_path / "new")
    found = []
    again.deferred((), 10, 10**6, found.append, None)
    assert [one.due for one in found[0].messages] == [5.5]
    assert [seqs(answer(again, priority=8)), seqs(answer(again))] == [[3], [2, 3, 4]]
    again.close()
    assert check(tmp_path / "new").whole


def test_a_missing_row_is_noticed_when_the_queue_was_read_to_its_end(folder):
    store = SqliteStore(folder)
    put(store, *map(message, range(10)))
    store.close()
    change(folder, f"DELETE FROM message WHERE key = {KEY + 4}")
    store = SqliteStore(folder)
    assert [held.total for held in store.held()] == [10]
    assert seqs(answer(store)) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert store.damage.findings == 0
    store._writer.checkpoint()
    assert (store.damage.messages, store.damage.findings) == (1, 1)
    store.close()
    assert check(folder).whole


def test_messages_of_no_queue_are_reported_at_the_start(folder):
    store = SqliteStore(folder)
    put(store, message(1), message(2))
    put(store, message(5, queue="r"))
    store.close()
    change(
        folder,
        "UPDATE queue SET name = 'x' WHERE id = 1",
        f"UPDATE message SET key = {(2 << 45) + 2**44} WHERE id = 'm-2'",
    )
    store = SqliteStore(folder)
    assert [tuple(held) for held in store.held()] == [("r", 1, 0, 5, 5, (), False)]
    assert store.damage.messages == 2
    put(store, message(9))
    assert seqs(answer(store)) == [9]
    store.close()


def test_clear_removes_files_and_keeps_totals(store, folder):
    put(store, *(message(seq, b"x" * BIG if seq % 3 == 0 else b"", priority=seq % 2 * 9) for seq in range(9)))
    store.commit()
    store._writer.checkpoint()  # counts them
    put(store, message(9), message(10, due=1.0))
    store.clear("q", 0, ALL, 4)
    store.commit()
    assert seqs(answer(store)) == [0, 5, 6, 7, 8, 9]
    store.clear("q", -1, ALL, 100)
    store.commit()
    assert (seqs(answer(store)), list((folder / "bodies").iterdir())) == ([], [])
    store.close()
    assert check(folder).whole
    assert store.damage.findings == 0


def test_the_write_ahead_log_stays_short_while_a_long_queue_is_cleared(folder, monkeypatch):
    with closing(SqliteStore(folder)) as store:
        put(store, *(message(seq, b"x" * 100) for seq in range(20_000)))
    monkeypatch.setattr(writer_module, "_WAL", 2**18)
    with closing(SqliteStore(folder)) as store:
        for _ in range(40):
            store.clear("q", -1, ALL, 500)
            store.commit()
        assert seqs(answer(store)) == []
        assert (folder / "messages.sqlite-wal").stat().st_size < 2**20


# ---- commits ----


def fail(store, *messages):
    """A commit that fails, and is on the disk nevertheless."""
    store._writer._db = Unsure(store._writer._db)
    with pytest.raises(StoreError, match="disk I/O error"):
        put(store, *messages)


class Loop:
    """A loop that runs what threads give it."""

    def __init__(self):
        self.calls = SimpleQueue()
        self.soon = self.calls.put

    def until(self, done):
        while not done():
            self.calls.get(timeout=patience(20))()


def test_what_a_commit_left_that_failed_meanwhile_is_not_read(store):
    put(store, message(1), message(9))
    loop, found = Loop(), []
    read = store._reader.page
    jobs = []

    def page(*values):
        if not jobs:
            jobs.append(1)
            fail(store, message(2), message(3))
        return read(*values)

    store._reader.page = page
    store.read("q", -1, ALL, 10, 10**6, found.append, loop.soon)
    loop.until(lambda: found)
    assert [seqs(one) for one in found] == [[1, 9]]


def test_pages_are_not_read_while_a_failed_commit_cannot_be_taken_back(store, monkeypatch):
    put(store, message(1))
    fail(store, message(2), message(3))
    monkeypatch.setattr(store._writer, "_opened", lambda: (_ for _ in ()).throw(StoreError("no way in")))
    loop, found = Loop(), []
    store.read("q", -1, ALL, 10, 10**6, found.append, loop.soon)
    loop.until(lambda: found)
    assert isinstance(answer(store), StoreError)
    assert isinstance(found[0], StoreError)
    monkeypatch.undo()
    assert seqs(answer(store)) == [1]


def test_pages_arrive_in_the_order_of_the_calls(store):
    put(store, *map(message, range(10)))
    loop, found = Loop(), []
    for seq in range(8):
        store.read(
            "q", seq, seq + 1, 10, 10**6, partial(lambda number, page: found.append((number, page)), seq), loop.soon
        )
    store.expired(5.0, (), 9, 9, lambda page: found.append((8, page)), loop.soon)
    store.read("nowhere", 0, 1, 10, 10**6, lambda page: found.append((9, page)), loop.soon)
    assert found == []
    loop.until(lambda: len(found) == 10)
    assert [number for number, _ in found] == list(range(10))
    assert [seqs(page) for _, page in found[:8]] == [[seq + 1] for seq in range(8)]
