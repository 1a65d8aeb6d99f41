"""SqliteStore when things go wrong: killed at any moment, a full disk, faults of the disk. Never half a batch."""

import asyncio
import json
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from broker.storage import storing
from broker.storage.storing import BIG, commit_later, message, put, seqs
from broker.unsure import Unsure
from patience import patience

import stompcodec
from stompcodec.broker.storage import sqlite_writer as writer_module
from stompcodec.broker.storage.large import Bodies
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.errors import StoreError

pytestmark = pytest.mark.long

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(stompcodec.__file__).parents[1])}
posix = pytest.mark.skipif(os.name != "posix", reason="needs signals and limits of POSIX")


def content(folder):
    """Sizes of bodies by seq, in the order of `load`."""
    found, _ = storing.content(folder)
    for one in found.values():
        assert one.tail == message(one.seq, len(one.tail) - 6).tail
    return {one.seq: len(one.tail) - 6 for one in found.values()}


class Killed:
    """The model beside processes that are killed: what is surely there, and what may be there, as a whole."""

    def __init__(self, folder):
        self.folder = folder
        self.sure = {}
        self.next = 0

    def round(self, seed, how):
        chance = random.Random(seed)
        command = [sys.executable, str(HERE / "store_child.py"), str(self.folder), str(seed), str(self.next), how]
        with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout.readline() == b"open\n"
                timer = threading.Timer(chance.uniform(0.0, 0.25), process.kill)
                timer.start()
                lines = process.stdout.read().split(b"\n")[:-1]  # the last one may be torn
                timer.join()
            finally:
                process.kill()
        open_batch = None
        for line in lines:
            word, _, rest = line.partition(b" ")
            if word == b"write":
                open_batch = self._applied(json.loads(rest))
            else:
                assert word == b"done"
                self.sure, open_batch = open_batch, None
        found = content(self.folder)
        assert list(found) == sorted(found)
        assert found in [self.sure] + ([open_batch] if open_batch is not None else [])
        self.sure = found
        return lines.count(b"done")

    def _applied(self, operations):
        after = dict(self.sure)
        for seq, *size in operations:
            if size:
                after[seq] = size[0]
                self.next = max(self.next, seq + 1)
            else:
                del after[seq]
        return after

    def check_files(self):
        large = [size for size in self.sure.values() if size >= 65530]
        assert len(os.listdir(self.folder / "bodies")) == len(large)


@posix
@pytest.mark.parametrize("how", ["sync", "later"])
def test_killed_at_random_moments(tmp_path, how):
    killed = Killed(tmp_path)
    commits = sum(killed.round(seed, how) for seed in range(8))
    killed.check_files()
    assert commits > 8


@posix
@pytest.mark.slow
@pytest.mark.parametrize("how", ["sync", "later"])
def test_killed_at_many_random_moments(tmp_path, how):
    killed = Killed(tmp_path)
    for seed in range(100, 200):
        killed.round(seed, how)
        killed.check_files()


@pytest.fixture
def store(tmp_path):
    made = SqliteStore(tmp_path / "data")
    yield made
    made.close()


BATCHES = {"commit": (20, 5000), "few": (4, 60000), "some": (300, 3000), "many": (600, 1000), "large": (5, BIG)}
SMALL = list(BATCHES)[:4]


@pytest.fixture(params=BATCHES)
def fill(request):
    """Ways into the store: how many messages of what size a batch has, and how it is committed."""
    count, size = BATCHES[request.param]

    def commit(store, first):
        for seq in range(first, first + count):
            store.append("q", message(seq, size))
        if request.param == "commit":
            store.commit()
        else:
            error = asyncio.run(commit_later(store))
            if error is not None:
                raise error
        return count

    return commit


def fails_as_a_whole(store, fill, folder, harm, heal, says):
    """A batch goes in, one does not, one goes in again; a remove in the failed batch did not happen either."""
    count = fill(store, 0)
    store.update("q", message(0)._replace(attempts=5))
    harm()
    store.remove("q", message(1))
    with pytest.raises(StoreError, match=says):
        fill(store, 1000)
    assert store.pending == 0
    with pytest.raises(StoreError, match=says):
        fill(store, 2000)
    heal()
    fill(store, 3000)
    store.close()
    assert list(content(folder)) == [*range(count), *range(3000, 3000 + count)]


@pytest.mark.parametrize("fill", SMALL, indirect=True)  # large bodies are in files of their own
def test_a_full_disk(store, fill, tmp_path):
    """As SQLite sees it when the file cannot grow."""

    def pages(most):
        store._writer._db.execute(f"PRAGMA max_page_count = {most}")

    fails_as_a_whole(store, fill, tmp_path / "data", lambda: pages(1), lambda: pages(2**30), r"full \(free space")


FULL = """
import resource, signal, sys
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.broker.storage.store import Stored
from stompcodec.errors import StoreError
store = SqliteStore(sys.argv[1])
size, count = int(sys.argv[2]), int(sys.argv[3])
def batch(first):
    for seq in range(first, first + count):
        store.append("q", Stored("", seq, f"m-{seq}", "/queue/a", b"a:b\\n\\n" + (b"%d " % seq * size)[:size] + b"\\0"))
    store.commit()
batch(0)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, hard))  # octets of a file; no writes beyond them
store.remove("q", Stored("", 0, "", "", b""))
for first in (1000, 2000):
    try:
        batch(first)
    except StoreError as error:
        print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
batch(3000)
store.close()
"""


@posix
@pytest.mark.parametrize(("size", "count"), [(5000, 100), (BIG, 3)])
def test_a_limit_of_the_system(tmp_path, size, count):
    """Real write() calls that fail, in the WAL or in a file of a large body."""
    command = [sys.executable, "-c", FULL, str(tmp_path), str(size), str(count)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=patience(60))
    assert done.stderr == ""
    assert done.stdout.count("nothing could be stored") + done.stdout.count("cannot be opened") == 2
    assert list(content(tmp_path)) == [*range(count), *range(3000, 3000 + count)]
    assert len(os.listdir(tmp_path / "bodies")) == (2 * count if size == BIG else 0)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_a_device_that_cannot_be_written_or_read(store, fill, tmp_path):
    """The descriptor of the WAL leads there. Two batches fail, and the next one has a connection without a past."""
    wal = str(tmp_path / "data" / "messages.sqlite-wal")
    count = fill(store, 0)
    (descriptor,) = [int(name) for name in os.listdir("/proc/self/fd") if _target(name) == wal]
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, descriptor)
    os.close(full)
    store.remove("q", message(1))
    for first, says in ((1000, "full"), (2000, "disk I/O error")):
        with pytest.raises(StoreError, match=says):
            fill(store, first)
    fill(store, 3000)
    store.close()
    assert list(content(tmp_path / "data")) == [*range(count), *range(3000, 3000 + count)]


def _target(name):
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        return ""


def test_a_failed_commit_that_is_on_the_disk_is_taken_back(store, fill, tmp_path):
    count = fill(store, 0)
    store._writer._db = Unsure(store._writer._db)
    with pytest.raises(StoreError, match="disk I/O error"):
        fill(store, 1000)
    put(store, message(5000))
    fill(store, 2000)
    store.close()
    assert list(content(tmp_path / "data")) == [*range(count), *range(2000, 2000 + count), 5000]


def test_a_connection_that_is_broken_is_replaced(store, fill, tmp_path, monkeypatch):
    """Where even ROLLBACK fails, the next batch begins anew."""
    opened = writer_module.open_database

    def harm():
        store._writer._db.close()
        monkeypatch.setattr(writer_module, "open_database", broken)

    def broken(path):
        raise StoreError("nothing could be stored: no way in")

    def heal():
        monkeypatch.setattr(writer_module, "open_database", opened)

    fails_as_a_whole(store, fill, tmp_path / "data", harm, heal, "nothing could be stored|closed database")


def test_a_file_that_cannot_be_written_leaves_nothing(store, tmp_path, monkeypatch):
    """The third of four large bodies fails: the files of the others go, too."""
    write, calls = Bodies.write, []

    def failing(bodies, octets):
        calls.append(octets)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        return write(bodies, octets)

    monkeypatch.setattr(Bodies, "write", failing)
    with pytest.raises(StoreError, match=r"No space left on device \(check free space"):
        put(store, *(message(seq, BIG) for seq in range(4)))
    assert os.listdir(tmp_path / "data" / "bodies") == []
    put(store, message(9, BIG))
    store.close()
    assert list(content(tmp_path / "data")) == [9]


def test_names_of_files_are_on_the_disk_before_the_commit(store, monkeypatch):
    """A message whose file has no name yet must not be committed."""
    monkeypatch.setattr(Bodies, "sync", lambda bodies: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    with pytest.raises(StoreError, match="Input/output error"):
        put(store, message(1, BIG))
    assert list(store.load()) == []
    put(store, message(2))
    assert seqs(store.load()) == [2]
