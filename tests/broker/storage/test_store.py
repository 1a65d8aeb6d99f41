"""What every store does: the memory one and the SQLite one, by the same cases."""

from __future__ import annotations

import pytest

from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.broker.storage.store import MemoryStore, Stored


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    made = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "data")
    yield made
    made.close()


def message(seq, body=b"hi", **values):
    return Stored("", seq, f"m-{seq}", "/queue/a", b"a:b\n\n" + body + b"\0", **values)


def seqs(store, queue="q"):
    return [found.seq for found in store.load() if found.queue == queue]


def test_what_was_committed_comes_back_as_it_was(store):
    full = message(7, bytes(range(256)), persistent=False, expires=1e9 + 0.5, priority=9, attempts=3, redelivered=True)
    store.append("/\0queue-é", full)
    store.append("/\0other", message(0))
    store.commit()
    assert set(store.load()) == {full._replace(queue="/\0queue-é"), message(0)._replace(queue="/\0other")}


def test_messages_come_in_the_order_of_seq(store):
    for seq in (5, 3, 2**40, 4):
        store.append("q", message(seq))
        store.append("r", message(seq + 1))
    store.commit()
    assert seqs(store) == [3, 4, 5, 2**40]
    assert seqs(store, "r") == [4, 5, 6, 2**40 + 1]


def test_nothing_is_there_before_the_commit(store):
    store.append("q", message(1))
    assert store.pending == 1
    assert seqs(store) == []
    store.commit()
    assert store.pending == 0
    assert seqs(store) == [1]


def test_a_put_and_a_remove_of_one_batch_cancel(store):
    store.append("q", message(1))
    store.append("q", message(2))
    store.update("q", message(1, attempts=1))
    store.remove("q", message(1))
    assert store.pending == 1
    store.commit()
    assert seqs(store) == [2]


def test_a_remove_takes_out_what_an_earlier_batch_put(store):
    store.append("q", message(1))
    store.append("q", message(2))
    store.commit()
    store.update("q", message(1, attempts=1))
    store.remove("q", message(1))
    store.commit()
    assert seqs(store) == [2]


def test_a_seq_may_be_used_again_after_its_remove(store):
    store.append("q", message(1, b"old"))
    store.commit()
    store.remove("q", message(1))
    store.append("q", message(1, b"new"))
    store.commit()
    assert [found.tail for found in store.load()] == [message(1, b"new").tail]
    store.remove("q", message(1))
    store.append("q", message(1, b"newer"))
    store.remove("q", message(1))
    store.commit()
    assert seqs(store) == []


def test_update_keeps_the_count_of_attempts(store):
    store.append("q", message(1))
    store.update("q", message(1, attempts=1, redelivered=True))
    store.commit()
    assert [(found.attempts, found.redelivered) for found in store.load()] == [(1, True)]
    store.update("q", message(1, attempts=2, redelivered=True))
    store.update("q", message(1, attempts=3, redelivered=True))
    store.update("q", message(9, attempts=1))  # not there, and not a fault
    store.commit()
    assert [(found.seq, found.attempts) for found in store.load()] == [(1, 3)]


def test_what_is_not_there_can_be_removed(store):
    store.remove("nowhere", message(1))
    store.commit()
    assert list(store.load()) == []


def test_commit_later_without_a_loop_is_done_at_once(store):
    answers = []
    store.commit_later(answers.append, None)
    assert answers == [None]
    for seq in range(600):
        store.append("q", message(seq))
    store.commit_later(answers.append, None)
    assert answers == [None, None]
    assert seqs(store) == list(range(600))


def test_close_commits_what_is_open(tmp_path):
    store = SqliteStore(tmp_path)
    store.append("q", message(1))
    store.close()
    store.close()
    store = SqliteStore(tmp_path)
    assert seqs(store) == [1]
    store.close()
