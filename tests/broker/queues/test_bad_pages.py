"""Damage in the middle of a queue that is read from the store in pages: it is logged and passed over."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from broker.harness import AtOnce, Bench
from broker.large import settle

from stompcodec.broker.storage.salvage import check
from stompcodec.broker.storage.sqlite import SqliteStore

QUEUE = "/queue/a"
#: What happens to messages 20 and 21, and whether the broker knows which ones they are.
DAMAGE = {
    "missing": ("DELETE FROM message WHERE key IN (?, ?)", False),
    "checksum": ("UPDATE message SET tail = tail || x'00' WHERE key IN (?, ?)", True),
    "type": ("UPDATE message SET destination = x'ff' WHERE key IN (?, ?)", True),
    "index": ("DELETE FROM special WHERE key IN (?, ?)", False),
}


def opened(folder: Path) -> Bench:
    store = SqliteStore(folder, helper=AtOnce(), page_helper=AtOnce())
    return Bench(store, window_messages=3, priority=True)


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("restarted", [False, True])
def test_damage_in_the_middle_is_logged_and_passed_over(
    tmp_path: Path, kind: str, restarted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    bench = opened(tmp_path)
    sender = bench.peer()
    for number in range(40):
        sender.put(QUEUE, str(number), persistent="true", priority="7")
    if restarted:
        bench.store.close()
        bench = opened(tmp_path)
    statement, known = DAMAGE[kind]
    with closing(sqlite3.connect(tmp_path / "messages.sqlite", isolation_level=None)) as other:
        other.execute(statement, [key for (key,) in other.execute("SELECT key FROM message LIMIT 2 OFFSET 20")])
    taker = bench.peer()
    taker.subscribe(QUEUE, ack="client-individual")
    frames = [frame for frame in taker.take() if frame.command == "MESSAGE"]
    assert [int(frame.body) for frame in frames] == [number for number in range(40) if number not in (20, 21)]
    for frame in frames:
        taker.ack(frame)
    settle(bench)
    queue = bench.broker.queues["/", QUEUE]
    assert (queue.total, queue.count, queue.paging) == (0, 0, None)
    lines = [record.getMessage() for record in caplog.records]
    if known:
        assert sum("e-" in line and "damaged" in line for line in lines) == 2
    else:
        assert any(line.startswith("2 messages of /queue/a were not found") for line in lines)
    bench.peer().put(QUEUE, "more", persistent="true")
    settle(bench)
    bench.store.close()
    assert not check(tmp_path).whole
