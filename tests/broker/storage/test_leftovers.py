"""Transient messages that earlier runs have left in the store: they are not delivered, and are removed in shares."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from broker.harness import AtOnce
from broker.storage.storing import ALL, message, put, seqs

from stompcodec.broker.storage import sqlite_reader as reader_module
from stompcodec.broker.storage import sqlite_writer as writer_module
from stompcodec.broker.storage.salvage import check
from stompcodec.broker.storage.sqlite import SqliteStore

QUEUES = ("q", "r", "s")


def reopened(folder):
    """A store whose helpers work in this thread."""
    return SqliteStore(folder, helper=AtOnce(), page_helper=AtOnce())


def left(folder):
    with closing(sqlite3.connect(folder / "messages.sqlite")) as db:
        tables = ("message", "special")
        return [db.execute(f"SELECT count(*) FROM {name} WHERE persistent = 0").fetchone()[0] for name in tables]


def bodies(folder):
    return sorted(path.stat().st_size for path in (folder / "bodies").iterdir())


def pages(store, queue, priority, most, octets):
    """The messages of a queue, and how many pages they took."""
    after, found, count, end = -1, [], 0, False
    while not end:
        answers = []
        store.read(queue, after, ALL, most, octets, answers.append, None, priority)
        (page,) = answers
        assert page.end or page.last > after
        found, after, count, end = found + page.messages, page.last, count + 1, page.end
    return found, count


def timed(read):
    after, found = (), []
    while after is not None:
        answers = []
        read(after, 3, 10**6, answers.append, None)
        found, after = found + answers[0].messages, answers[0].after
    return found


def seen(store):
    """All that a broker can see of a store."""
    found = {("held", one.queue): (one.total, one.deferred) for one in store.held()}
    for queue in QUEUES:
        found["load", queue] = list(store.load(queue))
        for priority in (None, 4, 7):
            for sizes in ((1, 1), (3, 20), (1000, 10**6)):
                found["page", queue, priority, sizes] = pages(store, queue, priority, *sizes)[0]
    found["all"] = sorted(store.load())  # the stores number their queues differently
    found["due"] = sorted(timed(store.deferred))
    found["expired"] = sorted(timed(lambda *arguments: store.expired(5.0, *arguments)))
    return found


def run(calls):
    while calls:
        calls.pop(0)()


def test_they_are_removed_slowly_while_a_reader_keeps_the_write_ahead_log(tmp_path, monkeypatch):
    with closing(SqliteStore(tmp_path)) as store:
        put(store, *(message(seq, 100, persistent=False) for seq in range(20_000)))
    monkeypatch.setattr(writer_module, "_WAL", 2**16)
    monkeypatch.setattr(writer_module, "_LEFTOVERS", 100)
    store, calls = reopened(tmp_path), []
    with closing(sqlite3.connect(tmp_path / "messages.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM message").fetchone()
        for _ in range(5):
            store.tidy(calls.append)
            run(calls)
        assert left(tmp_path)[0] > 10_000
        assert (tmp_path / "messages.sqlite-wal").stat().st_size < 2**20
    for _ in range(3):
        store.tidy(calls.append)
        run(calls)
    assert left(tmp_path) == [0, 0]
    store.close()


@pytest.mark.parametrize(("priority", "wanted"), [(4, None), (4, 4), (7, 7)])
def test_a_page_passes_over_a_bounded_number(tmp_path, monkeypatch, priority, wanted):
    """They are not fetched, and one read does not go through all of them."""
    monkeypatch.setattr(reader_module, "_PASSED", 1000)
    with closing(SqliteStore(tmp_path)) as store:
        put(store, *(message(seq, persistent=seq in (0, 4999), priority=priority) for seq in range(5000)))
    store = reopened(tmp_path)
    store._reader.page(1, 1 << 45, 1 << 45, 1, 1, None)  # connects
    steps = []
    store._reader._db.set_progress_handler(lambda: steps.append(1), 1000)
    after, found, most = -1, [], 0
    for _ in range(6):
        steps.clear()
        answers = []
        store.read("q", after, ALL, 100, 10**6, answers.append, None, wanted)
        (page,) = answers
        found, after, most = found + page.messages, page.last, max(most, len(steps))
        if page.end:
            break
    assert page.end
    assert seqs(found) == [0, 4999]
    assert most < 40, "thousands of steps of SQLite for a page"
    store.close()


@pytest.mark.parametrize("most", [1, 3, 100])
def test_a_queue_is_cleared_though_it_has_leftovers(tmp_path, most):
    """Each share takes as many messages as without leftovers."""
    with closing(SqliteStore(tmp_path)) as store:
        put(store, *(message(seq, persistent=seq % 3 == 0, priority=4 + seq % 2) for seq in range(40)))
        put(store, *(message(seq, queue="r", persistent=seq % 3 == 0) for seq in range(40, 50)))
    store = reopened(tmp_path)
    left_over, expected = left(tmp_path)[0], list(range(0, 40, 3))
    for _ in range(-(-len(expected) // most)):
        store.clear("q", -1, ALL, most, [12])
        store.commit()
        expected = [seq for seq in expected if seq == 12 or seq not in [one for one in expected if one != 12][:most]]
        assert seqs(pages(store, "q", None, 9, 10**6)[0]) == expected
    assert expected == [12]
    assert left(tmp_path)[0] == left_over
    while store._writer.remove_leftovers():
        pass
    assert seqs(store.load()) == [12, 42, 45, 48]
    store.close()
    assert check(tmp_path).whole


def test_their_number_is_not_given_to_another_queue(tmp_path):
    """A queue that has nothing else is forgotten when they are gone, and not before."""
    with closing(SqliteStore(tmp_path)) as store:
        put(store, message(1, persistent=False))
    store = reopened(tmp_path)
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
