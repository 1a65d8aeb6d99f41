"""A disk that fills up: what would be stored is refused in time, what is stored can be consumed; then it goes on."""

import os
import subprocess
import threading
from contextlib import suppress

import pytest
from broker.harness import Bench, FaultyStore
from broker.storage.storing import BIG, message, put, seqs
from crash.process import BrokerProcess
from patience import patience

from stompcodec import client as stomp
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.errors import StompError

MIB = 2**20
QUEUE = "/queue/a"


class SmallStore(FaultyStore):
    """A store whose disk has so much room."""

    def __init__(self):
        super().__init__()
        self.left = 1000 * MIB
        self.asked = 0

    def room(self):
        self.asked += 1
        return self.left


def bench_of(**config):
    store = SmallStore()
    return Bench(store, store_free=100 * MIB, **config), store


def test_persistent_messages_are_refused_and_taken_again():
    bench, store = bench_of()
    store.left = 100 * MIB - 1
    bench.wait(1.5)
    sender = bench.peer()
    sender.put(QUEUE, "volatile", receipt="1")
    assert sender.next("RECEIPT")
    sender.put(QUEUE, "stored", persistent="true", receipt="2")
    error = sender.error()
    assert error.headers["message"] == "the disk is full"
    assert error.headers["receipt-id"] == "2"
    store.left = 100 * MIB
    bench.wait(1.5)
    sender = bench.peer()
    sender.put(QUEUE, "stored", persistent="true", receipt="3")
    assert sender.next("RECEIPT")
    assert store.bodies == ["stored"]


def test_what_is_not_stored_needs_no_disk():
    """A topic that nobody keeps, also where all messages are stored; and a temporary queue."""
    bench, store = bench_of(durable="all")
    store.left = 0
    bench.wait(1.5)
    peer = bench.peer()
    peer.subscribe("/topic/t")
    peer.put("/topic/t", "hi", persistent="true", receipt="1")
    assert {frame.command for frame in peer.take()} == {"MESSAGE", "RECEIPT"}


def test_the_system_is_not_asked_for_each_message():
    bench, store = bench_of()
    sender = bench.peer()
    before = store.asked
    for _ in range(200):
        sender.put(QUEUE, "x" * 100, persistent="true")
    assert store.asked == before
    store.written = 1000 * MIB
    store.left = 0
    sender.put(QUEUE, "x", persistent="true")
    assert store.asked == before + 1, "but when much was written, not only once per second"
    sender.put(QUEUE, "x", persistent="true")
    assert sender.error()


# ---- the reserve ----


@pytest.mark.parametrize("when", ["write", "commit"])
def test_a_full_disk_uses_the_reserve_once(tmp_path, monkeypatch, when):
    """As long as the reserve is there the batch is tried again; after that it fails."""
    store = SqliteStore(tmp_path, reserve=MIB)
    reserve = tmp_path / "reserve"
    put(store, *map(message, range(10)))
    assert reserve.stat().st_size == MIB
    name = "BEGIN IMMEDIATE" if when == "write" else "COMMIT"
    connection = store._writer._db

    class Full:
        full = True

        def __getattr__(self, attribute):
            return getattr(connection, attribute)

        def execute(self, statement, *values):
            if statement == name and self.full and reserve.stat().st_size:
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
    store.close()
    store = SqliteStore(tmp_path)
    assert seqs(store.load()) == [5, 6, 7, 8, 9, 20]
    assert store.damage.findings == 0
    store.close()


@pytest.mark.parametrize(("free", "copied"), [(100, True), (1000, False)], ids=["near", "far"])
def test_near_the_end_of_the_disk_the_log_is_copied_early(tmp_path, monkeypatch, free, copied):
    """Copied in time, so that what is left to copy fits into the reserve, and not by the helper, which may be late."""
    monkeypatch.setattr("stompcodec.broker.storage.sqlite_writer.free_space", lambda _: free * MIB)
    store = SqliteStore(tmp_path, helper=NoHelper(), clock=lambda: 0.0)
    store.room()
    for seq in range(100):
        store.append("q", message(seq, 50_000))
        store.commit_later(lambda error: None, lambda job: None)
    assert ((tmp_path / "messages.sqlite").stat().st_size > 3 * MIB) is copied
    store.close()


class NoHelper:
    """A helper that never gets to its jobs."""

    def give(self, job):
        pass

    wait = stop = lambda self: None


# ---- a real disk ----


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
    not be copied before.
    """
    fields = {"store_free": 20 * MIB}
    broker = BrokerProcess(tmp_path / "broker", fields=fields, flags=("--data", str(disk / "data")))
    with broker:
        url = f"stomp://127.0.0.1:{broker.port}"
        sent = _fill(url)
        assert len(sent) > 100
        assert _free(disk) > 5 * MIB, "it stopped in time"
        if full:
            with suppress(OSError), open(disk / "other", "wb", buffering=0) as other:
                while other.write(bytes(4096)):
                    pass
            with pytest.raises(StompError):
                _send(url, b"refused")
        with stomp.connect(url) as consumer:
            subscription = consumer.subscribe(QUEUE, ack="client-individual")
            got = []
            for _ in sent:
                delivery = subscription.get(patience(30))
                got.append(delivery.body[:10])
                delivery.ack(receipt=True)
        assert got == sent
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


def _free(disk):
    stat = os.statvfs(disk)
    return stat.f_bavail * stat.f_frsize


def _send(url, body):
    with stomp.connect(url) as sender:
        sender.send(QUEUE, body, {"persistent": "true"}, receipt=True)


def _fill(url):
    """Send until the broker refuses; the beginnings of what has a receipt."""
    sent = []
    try:
        with stomp.connect(url) as sender:
            for number in range(5000):
                head = b"%010d" % number
                sender.send(QUEUE, head + bytes(50_000), {"persistent": "true"}, receipt=True)
                sent.append(head)
    except StompError as error:
        assert "the disk is full" in str(error)  # noqa: PT017
        return sent
    raise AssertionError("it takes everything")
