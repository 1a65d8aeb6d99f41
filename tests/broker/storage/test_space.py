"""A disk that fills up: what would be stored is refused in time, what is stored can be consumed; then it goes on."""

import os
import sqlite3
import subprocess
import threading
from contextlib import suppress

import pytest
from broker.harness import Bench
from broker.moves import QUEUE, refusal
from broker.storage.storing import BIG, MIB, SmallStore, Unsure, content, message, put, seqs
from crash.process import BrokerProcess
from patience import patience

from stompcodec import client as stomp
from stompcodec.broker.storage import sqlite_writer
from stompcodec.broker.storage.salvage import check
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.broker.storage.sqlite_writer import Writer
from stompcodec.errors import StompError, StoreError


def test_the_system_is_not_asked_for_each_message():
    store = SmallStore()
    bench = Bench(store, store_free=100 * MIB)
    sender, before = bench.peer(), store.asked
    for _ in range(200):
        sender.put(QUEUE, "x" * 100, persistent="true")
    assert store.asked == before
    store.written, store.left = 1000 * MIB, 0
    sender.put(QUEUE, "x", persistent="true")
    assert store.asked == before + 1, "but when much was written, not only once per second"
    sender.put(QUEUE, "x", persistent="true")
    assert refusal(sender) == "the disk is full"


@pytest.mark.parametrize("when", ["BEGIN IMMEDIATE", "COMMIT"])
def test_a_full_disk_uses_the_reserve_once(tmp_path, when):
    """As long as the reserve is there the batch is tried again; after that it fails."""
    store, reserve = SqliteStore(tmp_path, reserve=MIB), tmp_path / "reserve"
    put(store, *map(message, range(10)))
    assert reserve.stat().st_size == MIB
    connection = store._writer._db

    class Full:
        def __getattr__(self, attribute):
            return getattr(connection, attribute)

        def execute(self, statement, *values):
            if statement == when and reserve.stat().st_size:
                raise OSError(28, "No space left on device")
            return connection.execute(statement, *values)

    store._writer._db = Full()
    for seq in range(5):
        store.remove("q", message(seq))
    put(store, message(20, BIG))
    assert reserve.stat().st_size == 0
    store._writer._db = connection
    assert store._writer.tidy() is False
    assert reserve.stat().st_size == MIB, "it is taken again when there is room"
    store._writer._db = Unsure(connection)
    with pytest.raises(StoreError, match="disk I/O error"):
        put(store, message(21), message(22))
    assert reserve.stat().st_size == MIB, "the disk was not full"
    put(store, message(23))
    store.close()
    found, store = content(tmp_path)
    assert ([seq for _, seq in found], store.damage.findings) == ([5, 6, 7, 8, 9, 20, 23], 0)


class Inline:
    def __init__(self):
        self.jobs = []
        self.give = self.jobs.append

    def wait(self):
        while self.jobs:
            self.jobs.pop(0)()

    stop = wait


@pytest.mark.parametrize(("free", "copied"), [(100, True), (1000, False)], ids=["near", "far"])
def test_near_the_end_of_the_disk_the_log_is_copied_early(tmp_path, monkeypatch, free, copied):
    """Copied in time, so that what is left to copy fits into the reserve, and not by the helper, which may be late."""
    monkeypatch.setattr("stompcodec.broker.storage.sqlite_writer.free_space", lambda _: free * MIB)
    store = SqliteStore(tmp_path, helper=Inline(), clock=lambda: 0.0)
    store.room()
    for seq in range(100):
        store.append("q", message(seq, 50_000))
        store.commit_later(lambda error: None, lambda job: None)
    assert ((tmp_path / "messages.sqlite").stat().st_size > 3 * MIB) is copied
    store.close()


class Idle:
    """A full store that was drained, its loop and its helper, one step at a time."""

    def __init__(self, folder, left=0):
        self.folder, self.helper, self.soon = folder, Inline(), []
        self.store = SqliteStore(folder, helper=self.helper, page_helper=self.helper)
        for first in range(0, 500, 50):
            put(self.store, *(message(seq, 40_000) for seq in range(first, first + 50)))
        for seq in range(left, 500):
            self.store.remove("q", message(seq, 0))
        self.store.commit()

    def tidy(self):
        self.store.tidy(self.soon.append)

    def step(self):
        if not self.helper.jobs:
            return False
        self.helper.jobs.pop(0)()
        while self.soon:
            self.soon.pop(0)()
        return True

    def rest(self, seconds):
        """So many seconds without a commit; how many steps they had."""
        steps = 0
        for _ in range(seconds):
            self.tidy()
            while self.step():
                steps += 1
        return steps

    def size(self, end=""):
        return (self.folder / f"messages.sqlite{end}").stat().st_size

    @property
    def pages(self):
        return self.store._writer._db.execute("PRAGMA page_count").fetchone()[0]


def test_the_write_ahead_log_starts_over_in_the_file_that_is_there(tmp_path, monkeypatch):
    idle = Idle(tmp_path)
    idle.rest(5)
    put(idle.store, *(message(seq, 40_000) for seq in range(500, 550)))
    assert (idle.rest(5) > 0, idle.rest(5)) == (True, 0)
    long = idle.size("-wal")
    assert long > 50 * 40_000
    put(idle.store, *(message(seq, 40_000) for seq in range(550, 590)))
    assert idle.size("-wal") == long
    idle.store._writer._reserve.is_near = True
    idle.rest(5)
    assert idle.size("-wal") == 0
    idle.store._writer._reserve.is_near = False
    put(idle.store, *(message(seq, 40_000) for seq in range(590, 630)))
    monkeypatch.setattr(sqlite_writer, "_WAL", 2 * idle.size("-wal") // 5)
    idle.rest(5)
    assert idle.size("-wal") < MIB, "a long one is cut off"


def test_space_comes_back_after_a_drain_in_small_steps(tmp_path):
    """A commit that comes meanwhile waits for no more than the bytes written in a step."""
    idle = Idle(tmp_path, left=3)
    idle.store._writer.checkpoint()
    assert idle.size() > 15 * MIB
    pages, tidy = [], idle.store._writer.tidy

    def counted():
        before, more = idle.pages, tidy()
        pages.append(before - idle.pages)
        return more

    idle.store._writer.tidy = counted
    idle.rest(5)
    assert sum(pages) > 15 * MIB / 8192
    assert max(pages) <= 130  # with those that say where others are
    assert 15 < len(pages) < 40
    assert idle.size() < 2 * MIB
    assert idle.rest(5) == 0, "all is done"
    idle.store.close()
    assert check(tmp_path).whole
    assert len(content(tmp_path)[0]) == 3


def test_commits_come_first(tmp_path):
    idle = Idle(tmp_path)
    idle.store._writer._shrink_wal(idle.store._writer._db)
    idle.tidy()
    idle.store.append("q", message(1000))
    idle.tidy()
    assert idle.helper.jobs == []
    idle.store.commit()
    idle.tidy()
    idle.tidy()
    assert idle.step()
    assert len(idle.helper.jobs) == 1
    idle.store.append("q", message(1001))
    done = []
    idle.store.commit_later(done.append, idle.soon.append)
    assert idle.step(), "one step was given before"
    while idle.step():
        pass
    assert done == [None]
    assert idle.size() > 10 * MIB
    idle.store.close()


def test_a_disk_that_is_full_does_not_stop_the_store(tmp_path, monkeypatch):
    idle = Idle(tmp_path)

    def full(writer, db):
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "_shrink_wal", full)
        idle.rest(3)
    put(idle.store, message(1))
    assert seqs(idle.store.load()) == [1]
    idle.store.close()
    assert check(tmp_path).whole


@pytest.fixture
def disk(tmp_path, request):
    """In memory, of a size in MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={request.param}m", "tmpfs", str(folder)]
    if os.name != "posix" or os.geteuid() or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("needs the right to mount a disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.long
@pytest.mark.parametrize(("disk", "full"), [(60, False), (42, True)], ids=["low", "full"], indirect=["disk"])
def test_a_disk_that_is_full_heals_by_consuming(disk, tmp_path, full):
    """With nothing left at all, too, because of somebody else's file. On the smaller disk the log of the database would
    not be copied before."""
    fields = {"store_free": 20 * MIB}
    with BrokerProcess(tmp_path / "broker", fields=fields, flags=("--data", str(disk / "data"))) as broker:
        url = f"stomp://127.0.0.1:{broker.port}"
        sent = _fill(url)
        assert len(sent) > 100
        stat = os.statvfs(disk)
        assert stat.f_bavail * stat.f_frsize > 5 * MIB, "it stopped in time"
        if full:
            with suppress(OSError), open(disk / "other", "wb", buffering=0) as other:
                while other.write(bytes(4096)):
                    pass
            with pytest.raises(StompError):
                _send(url, b"refused")
        with stomp.connect(url) as consumer:
            subscription = consumer.subscribe(QUEUE, ack="client-individual")
            for expected in sent:
                delivery = subscription.get(patience(30))
                assert delivery.body[:10] == expected
                delivery.ack(receipt=True)
        if full:
            (disk / "other").unlink()
        for _ in range(round(patience(300))):
            try:
                _send(url, b"again")
                break
            except StompError:
                threading.Event().wait(0.1)
        else:
            pytest.fail(f"it does not go on: {broker.tail()}")
        assert broker.stop() == 0


def _send(url, body):
    with stomp.connect(url) as sender:
        sender.send(QUEUE, body, {"persistent": "true"}, receipt=True)


def _fill(url):
    sent = []

    def send_all():
        with stomp.connect(url) as sender:
            for number in range(5000):
                head = b"%010d" % number
                sender.send(QUEUE, head + bytes(50_000), {"persistent": "true"}, receipt=True)
                sent.append(head)

    with pytest.raises(StompError, match="the disk is full"):
        send_all()
    return sent
