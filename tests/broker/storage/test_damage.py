"""Damage of a store is noticed: rows, totals of queues, state, subscriptions, the WAL, and large bodies."""

import logging
import shutil
import sqlite3
from contextlib import closing

import pytest
from broker.harness import Peer
from broker.moves import QUEUE, Slow, messages, pattern, settle, stored_bench
from broker.storage.storing import BIG, KEY, change, content, deferred, fill, filled, flip, message, put, read, seqs

from stompcodec.broker.message import Message
from stompcodec.broker.storage.folder import examine_wal, is_body
from stompcodec.broker.storage.salvage import check, salvage
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.broker.storage.store import Page
from stompcodec.errors import StoreError

COLUMNS = {
    "tail": ("x'613a620a0a3200'", "'odd'", "'é' || x'00' || 'b'", "7", "NULL"),
    **{"id": ("'m-7'", "x'ff80'", "CAST(x'ff80' AS TEXT)", "5.5"), "destination": ("'/queue/b'", "5")},
    **{"expires": ("5.5", "'soon'", "2e10"), "priority": ("9", "'high'"), "attempts": ("3", "0.5")},
    **{"redelivered": ("1",), "persistent": ("0",), "crc": ("crc + 1", "'x'")},
    "key": ("key + 70", "key + (1 << 50)"),
}


@pytest.mark.parametrize("plain", [False, True], ids=["slow", "hot"])  # the ways into a row, see Writer._rows
@pytest.mark.parametrize(("column", "value"), [(column, value) for column in COLUMNS for value in COLUMNS[column]])
def test_a_damaged_row_is_reported_once_and_left_out(column, value, plain, data, caplog):
    """By pages, and by the next start; kept in the file, and counted by each start anew."""
    sent = [message(seq, expires=None if plain else 9.5, queue="q") for seq in range(6)]
    with closing(SqliteStore(data)) as store:
        for one in sent:
            made = Message(one.id.encode(), one.seq, one.destination, one.tail, True) if plain else one
            store.append("q", made)
    change(data, f"UPDATE message SET {column} = {value} WHERE key = {KEY + 2}")
    sent.pop(2)
    if column != "key":
        with closing(SqliteStore(data)) as store:
            for _ in range(2):
                assert read(store) == Page(sent, 2**42 - 1, True, 1)
            assert (store.damage.messages, store.damage.findings) == (1, 1)
            assert read(store, after=1, most=1)[:2] == ([], 2)
    for again in (False, True):
        caplog.clear()
        with closing(SqliteStore(data)) as store:
            assert list(store.load()) == sent
            strangers = column == "key" and not again  # a row is missing, and there is one too many
            assert store.damage.messages == 1 + strangers
            assert "is lost: its row is damaged" in caplog.text or "the name of its queue is lost" in caplog.text
            findings = store.damage.findings
            for one in sent if again else ():
                store.remove("q", one)
            store.commit()
    assert store.damage.findings == findings, "the total is right"


def test_files_that_are_missing_or_damaged_or_of_no_row_are_reported(store, data):
    put(store, message(1, BIG), message(2), message(3, BIG), message(4, BIG))
    files = sorted((data / "bodies").iterdir(), key=lambda path: int(path.name.rpartition("-")[2]))
    files[0].unlink()
    files[1].write_bytes(b"y" * 100)
    change(data, f"DELETE FROM body WHERE key = {KEY + 4}")
    page = read(store)
    assert (seqs(page), page.damaged, store.damage.messages) == ([2], 3, 3)


def test_a_damaged_due_time_is_reported(store, data):
    put(store, message(1, due=5.0), message(2, due=6.0))
    change(data, f"UPDATE special SET due = 5.5 WHERE key = {KEY + 1}")
    page = deferred(store)
    assert ([one.seq for one in page.messages], list(page.damaged), seqs(store.load())) == ([2], [("q", 1)], [2])


def test_check_finds_what_the_table_of_special_messages_lacks(data, new):
    filled(data, message(1, due=5.5), message(2, expires=5.0), message(3, priority=8), message(4))
    assert check(data).whole
    change(data, f"DELETE FROM special WHERE key = {KEY + 2}")
    change(data, f"UPDATE special SET priority = 7 WHERE key = {KEY + 3}")
    assert check(data).problems == ["2 messages are missing or wrong in the table special"]
    assert salvage(data, new).messages == 4
    with closing(SqliteStore(new)) as again:
        assert [one.due for one in deferred(again).messages] == [5.5]
        assert [seqs(read(again, priority=8)), seqs(read(again))] == [[3], [2, 3, 4]]
    assert check(new).whole


@pytest.mark.parametrize(("where", "missing"), [("key = (SELECT max(key) FROM message)", 1), ("key < 1 << 46", 5)])
def test_missing_rows_are_noticed_at_start(tmp_path, where, missing, caplog):
    fill(tmp_path)
    change(tmp_path, f"DELETE FROM message WHERE {where}")
    _, store = content(tmp_path)
    assert store.damage.messages == missing
    assert f"{missing} messages of the queue / /queue/" in caplog.text
    _, store = content(tmp_path)
    assert store.damage.findings == 0, "it was said"


@pytest.mark.parametrize("harm", ["missing", "left"])
def test_wrong_rows_are_noticed_when_a_queue_drains(tmp_path, harm):
    first = "(SELECT min(key) FROM message)"
    fill(tmp_path)
    store = SqliteStore(tmp_path)
    assert len(list(store.load())) == 10
    if harm == "missing":
        change(tmp_path, f"DELETE FROM message WHERE key = {first}")
    else:
        columns = "key - 1, 'x', 'y', tail, 1, NULL, 4, 0, 0, 0"
        change(tmp_path, f"INSERT INTO message SELECT {columns} FROM message WHERE key = {first}")
    for seq in range(1, 6):
        store.remove("/\0/queue/a", message(seq))
    store.commit()
    assert store.damage.findings == 1
    store.close()


def test_a_missing_row_is_noticed_when_the_queue_was_read_to_its_end(data):
    filled(data, *map(message, range(10)))
    change(data, f"DELETE FROM message WHERE key = {KEY + 4}")
    store = SqliteStore(data)
    assert [held.total for held in store.held()] == [10]
    assert (seqs(read(store)), store.damage.findings) == ([0, 1, 2, 3, 5, 6, 7, 8, 9], 0)
    store._writer.checkpoint()
    assert (store.damage.messages, store.damage.findings) == (1, 1)
    store.close()
    assert check(data).whole


def test_messages_of_no_queue_are_reported_at_the_start(data):
    filled(data, message(1), message(2))
    filled(data, message(5, queue="r"))
    change(data, "UPDATE queue SET name = 'x' WHERE id = 1")
    change(data, f"UPDATE message SET key = {(2 << 45) + 2**44} WHERE id = 'm-2'")
    store = SqliteStore(data)
    assert [tuple(held) for held in store.held()] == [("r", 1, 0, 5, 5, (), False)]
    assert store.damage.messages == 2
    put(store, message(9))
    assert seqs(read(store)) == [9]
    store.close()


def test_a_queue_whose_name_is_damaged_keeps_its_messages(tmp_path, caplog):
    fill(tmp_path)
    with closing(sqlite3.connect(tmp_path / "messages.sqlite")) as other:
        number, name = other.execute("SELECT min(id), name FROM queue").fetchone()
    change(tmp_path, f"UPDATE queue SET name = 'other' WHERE id = {number}")
    found, store = content(tmp_path)
    assert ({queue for queue, _ in found}, store.damage.messages) == ({"/\0/queue/b"}, 5)
    assert "the name of its queue is lost" in caplog.text
    with closing(SqliteStore(tmp_path)) as store:
        list(store.load())
        store.append("new", message(1))
    with closing(sqlite3.connect(tmp_path / "messages.sqlite", isolation_level=None)) as other:
        other.execute("UPDATE queue SET name = ? WHERE id = ?", (name, number))
    assert len(content(tmp_path)[0]) == 11, "its number was not given away"


@pytest.mark.parametrize("deed", ["UPDATE {} SET name = 'b'", "DELETE FROM {}", "UPDATE {} SET shared = 1"])
def test_a_damaged_subscription_is_noticed(tmp_path, deed):
    fill(tmp_path)
    change(tmp_path, deed.format("subscription"))
    with closing(SqliteStore(tmp_path)) as store:
        assert store.subscriptions() == []
        assert store.incomplete
        assert store.damage.findings == 1


@pytest.mark.parametrize("statement", ["UPDATE state SET seq = 5", "DELETE FROM state"])
def test_a_changed_state_counts_as_a_crash(tmp_path, statement):
    fill(tmp_path)
    change(tmp_path, statement)
    assert len(check(tmp_path).problems) == statement.startswith("UPDATE")
    for findings in (1, 0):
        found, store = content(tmp_path)
        assert (len(found), store.unclean, store.damage.findings) == (10, findings == 1, findings)


def crash(tmp_path, store):
    shutil.copytree(tmp_path / "running", tmp_path / "crashed")
    store.close()
    return tmp_path / "crashed"


@pytest.mark.parametrize("at", [0, 9, 17, 24, 8000])
@pytest.mark.parametrize("back", [1, 2, 4])
def test_commits_behind_a_bad_frame_are_reported(tmp_path, at, back, caplog):
    """A bit in the head or in the page of a frame, so many transactions before the end of the WAL."""
    crashed = crash(tmp_path, fill(tmp_path / "running", 8, close=False))
    wal = examine_wal(crashed / "messages.sqlite-wal")
    begins = [32, *(frame.offset + wal.page for frame in wal.taken if frame.commits)]
    flip(crashed / "messages.sqlite-wal", (begins[-1 - back] + at) * 8 + 3)
    found, store = content(crashed)
    assert found.keys() < {(f"/\0/queue/{name}", seq) for name in "ab" for seq in range(1, 9)}
    if back > 1:
        assert store.damage.findings == 1
        assert "has a bad frame" in caplog.text
        assert (crashed / "messages.sqlite-wal.damaged").exists()


@pytest.mark.parametrize("written_back", [False, True])
@pytest.mark.parametrize("bit", [3, 70, 200])
def test_a_damaged_head_of_the_wal_is_reported(tmp_path, bit, written_back):
    """If the tables were in the WAL alone, the broker does not start, and leaves the WAL as it is."""
    store = fill(tmp_path / "running", 2 if written_back else 8, close=False)
    if written_back:
        store._writer.checkpoint()
        for seq in range(3, 9):
            store.append("/\0/queue/a", message(seq))
            store.commit()
    crashed = crash(tmp_path, store)
    flip(crashed / "messages.sqlite-wal", bit)
    if written_back:
        assert content(crashed)[1].damage.findings >= 1
    else:
        before = (crashed / "messages.sqlite-wal").read_bytes()
        with pytest.raises(StoreError, match="restore the folder from a backup;"):
            content(crashed)
        assert (crashed / "messages.sqlite-wal").read_bytes() == before
        report = salvage(crashed, tmp_path / "new")
        assert (report.whole, report.messages) == (False, 0)


def test_what_is_left_of_earlier_runs_of_the_wal_is_no_damage(tmp_path):
    store = fill(tmp_path / "running", 8, close=False)
    store._writer.checkpoint()
    store.append("/\0/queue/a", message(100))
    store.commit()
    crashed = crash(tmp_path, store)
    wal = examine_wal(crashed / "messages.sqlite-wal")
    assert (wal.lost, wal.torn, bool(wal.taken)) == (0, False, True)
    assert content(crashed)[1].damage.findings == 0


def test_the_log_is_bounded(tmp_path, caplog):
    filled(tmp_path, *map(message, range(300)))
    change(tmp_path, "UPDATE message SET crc = 1")
    with caplog.at_level(logging.ERROR):
        _, store = content(tmp_path)
    assert store.damage.messages == 300
    assert len(caplog.records) < 150


@pytest.mark.long
@pytest.mark.parametrize(
    ("version", "whole_frames", "slow", "durable", "ack"),
    [
        *(("1.0", False, False, True, "auto"), ("1.1", True, False, False, "auto")),
        *(("1.2", False, True, True, "auto"), ("1.2", True, True, False, "client-individual")),
    ],
)
def test_a_damaged_large_body_is_not_delivered_and_kept(tmp_path, version, whole_frames, slow, durable, ack):
    """The frame never ends, the connection does. In auto mode it had left the store, and is put back, for salvage."""
    data, size = tmp_path / "data", 200_000 if whole_frames else 2_000_000
    where, named = ("/topic/a", {"durable-subscription-name": "n"}) if durable else (QUEUE, {})

    def consume(peer):
        peer.connect(**{"client-id": "c"})
        peer.subscribe(where, ack=ack, **named)
        return peer

    def bodies():
        return [path for path in (data / "bodies").iterdir() if is_body(path.name)]

    bench = stored_bench(data)
    if durable:
        consume(bench.peer(connect=False)).lose()
    for body in (pattern(size), b"small"):
        bench.peer().put(where, body, persistent="true")
    settle(bench)
    bench.store.close()
    (file,) = bodies()
    flip(file, size * 4)

    bench = stored_bench(data)
    consumer = consume((Slow if slow else Peer)(bench, version, whole_frames=whole_frames))
    for _ in range(100):
        if slow and not consumer.closed:
            settle(bench)
            consumer.drain()
    settle(bench)
    assert consumer.closed
    assert (messages(consumer), bench.store.damage.messages) == ([], 1)
    bench.audit()
    for _ in range(2):
        settle(bench)
        bench.store.close()
        assert [one["why"] for one in check(data).lost] == ["its file is missing or damaged"]
        assert check(data).problems == []
        assert [kept.stat().st_size for kept in bodies()] == [size]
        bench = stored_bench(data)
        assert bench.store.damage.messages == 1
    consumer = consume(bench.peer(connect=False))
    settle(bench)
    assert consumer.bodies() == [b"small"]
    settle(bench)
    bench.store.close()
    report = salvage(data, tmp_path / "new")
    assert (report.messages, len(report.lost)) == (int(ack != "auto"), 1)  # the small one is not acknowledged
