"""SQLite that fails, in processes that are killed; and folders with one flipped bit, of which every loss is said."""

import asyncio
import json
import multiprocessing
import os
import random
import shutil
import signal
import threading

import pytest
from broker.moves import client, messages, pattern, settle, stored_bench
from broker.storage import storing
from broker.storage.storing import BIG, Unsure, commit_later, flip, message, put

from stompcodec.broker.storage import sqlite_writer
from stompcodec.broker.storage.folder import examine_wal, is_body
from stompcodec.broker.storage.large import Bodies
from stompcodec.broker.storage.salvage import check, salvage
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.errors import StoreError

pytestmark = pytest.mark.long
posix = pytest.mark.skipif(os.name != "posix", reason="needs signals and limits of POSIX")


def content(folder):
    found, _ = storing.content(folder)
    for one in found.values():
        assert one.tail == message(one.seq, len(one.tail) - 6).tail
    return {one.seq: len(one.tail) - 6 for one in found.values()}


def fill_on(folder, seed, seq, how, say):
    """Fill a store until this process is killed. A line "write [...]" before each commit says what it holds:
    [seq, size] of what is put, [seq] of what is removed. A line "done" says that it returned.
    """
    store, chance = SqliteStore(folder), random.Random(seed)
    live = [found.seq for found in store.load()]
    say("open")
    while True:
        operations = []
        for _ in range(chance.choice([1, 2, 20, 100, 600])):
            if live and chance.random() < 0.5:
                operations.append([live.pop(0)])
                store.remove("q", message(*operations[-1]))
            else:
                operations.append([seq, chance.choice([10, 1000, 1000, 5000, BIG]) if chance.random() < 0.1 else 10])
                store.append("q", message(*operations[-1]))
                live.append(seq)
                seq += 1
        say(f"write {json.dumps(operations)}")
        if how == "sync":
            store.commit()
        else:
            assert asyncio.run(commit_later(store)) is None
        say("done")


class Killed:
    """The model beside processes that are killed: what is surely there, and what may be there, as a whole."""

    def __init__(self, folder):
        self.folder, self.sure, self.next = folder, {}, 0

    def round(self, seed, how):
        """Have a process fill the store until it is killed. Return how many commits it made."""
        reader, writer = os.pipe()
        how_to = self.folder, seed, self.next, how, lambda line: os.write(writer, f"{line}\n".encode())
        process = multiprocessing.get_context("fork").Process(target=fill_on, args=how_to)
        process.start()
        os.close(writer)
        with open(reader, "rb") as said:
            assert said.readline() == b"open\n"
            timer = threading.Timer(random.Random(seed).uniform(0.0, 0.25), process.kill)
            timer.start()
            lines = said.read().split(b"\n")[:-1]  # the last one may be torn
            timer.join()
        process.join()
        assert process.exitcode == -signal.SIGKILL
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
        large = [size for size in found.values() if size >= 65530]
        assert len(os.listdir(self.folder / "bodies")) == len(large)
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


@posix
@pytest.mark.no_asan  # its allocator hangs in a child that was forked beside threads
@pytest.mark.parametrize("how", ["sync", "later"])
@pytest.mark.parametrize("seeds", [range(8), pytest.param(range(100, 200), marks=pytest.mark.slow)], ids=len)
def test_killed_at_random_moments(tmp_path, seeds, how):
    killed = Killed(tmp_path)
    assert sum(killed.round(seed, how) for seed in seeds) > 8


BATCHES = {"commit": (20, 5000), "few": (4, 60000), "some": (300, 3000), "many": (600, 1000), "large": (5, BIG)}


@pytest.fixture(params=BATCHES)
def fill(request):
    """Ways into the store: how many messages of what size a batch has, and how it is committed."""
    count, size = BATCHES[request.param]

    def commit(store, first):
        for seq in range(first, first + count):
            store.append("q", message(seq, size))
        if request.param == "commit":
            store.commit()
        elif error := asyncio.run(commit_later(store)):
            raise error
        return count

    return commit


def fails_as_a_whole(store, fill, data, harm, heal, says):
    """A batch goes in, two do not, one goes in again; a remove in a failed batch did not happen either."""
    count = fill(store, 0)
    store.update("q", message(0)._replace(attempts=5))
    harm()
    store.remove("q", message(1))
    for first, why in zip((1000, 2000), says if isinstance(says, tuple) else (says, says)):
        with pytest.raises(StoreError, match=why):
            fill(store, first)
        assert store.pending == 0
    heal()
    fill(store, 3000)
    store.close()
    assert list(content(data)) == [*range(count), *range(3000, 3000 + count)]
    return count


@pytest.mark.parametrize("fill", [*BATCHES][:4], indirect=True)  # large bodies are in files of their own
def test_a_full_disk(store, fill, data):
    def pages(most):
        store._writer._db.execute(f"PRAGMA max_page_count = {most}")

    fails_as_a_whole(store, fill, data, lambda: pages(1), lambda: pages(2**30), r"full \(free space")


@posix
@pytest.mark.parametrize("fill", ["some", "large"], indirect=True)
def test_a_limit_of_the_system(store, fill, data, request):
    resource = pytest.importorskip("resource")
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = lambda octets: resource.setrlimit(resource.RLIMIT_FSIZE, (octets, hard))  # noqa: E731
    try:
        says = "nothing could be stored|cannot be opened"
        count = fails_as_a_whole(store, fill, data, lambda: limit(65536), lambda: limit(soft), says)
    finally:
        limit(soft)
        signal.signal(signal.SIGXFSZ, before)
    assert len(os.listdir(data / "bodies")) == (2 * count if count == BATCHES["large"][0] else 0)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_a_device_that_cannot_be_written_or_read(store, fill, data):
    """The descriptor of the WAL leads there. Two batches fail, and the next one has a connection without a past."""

    def target(name):
        try:
            return os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            return ""

    def harm():
        wal = str(data / "messages.sqlite-wal")
        (descriptor,) = [int(name) for name in os.listdir("/proc/self/fd") if target(name) == wal]
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, descriptor)
        os.close(full)

    fails_as_a_whole(store, fill, data, harm, lambda: None, ("full", "disk I/O error"))


def test_a_failed_commit_that_is_on_the_disk_is_taken_back(store, fill, data):
    count = fill(store, 0)
    store._writer._db = Unsure(store._writer._db)
    with pytest.raises(StoreError, match="disk I/O error"):
        fill(store, 1000)
    put(store, message(5000))
    fill(store, 2000)
    store.close()
    assert list(content(data)) == [*range(count), *range(2000, 2000 + count), 5000]


def test_a_connection_that_is_broken_is_replaced(store, fill, data, monkeypatch):
    opened = sqlite_writer.open_database

    def broken(path):
        raise StoreError("nothing could be stored: no way in")

    def harm():
        store._writer._db.close()
        monkeypatch.setattr(sqlite_writer, "open_database", broken)

    def heal():
        monkeypatch.setattr(sqlite_writer, "open_database", opened)

    fails_as_a_whole(store, fill, data, harm, heal, "nothing could be stored|closed database")


def test_a_file_that_cannot_be_written_leaves_nothing(store, data, monkeypatch):
    write, calls = Bodies.write, []

    def failing(bodies, octets):
        calls.append(octets)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        return write(bodies, octets)

    monkeypatch.setattr(Bodies, "write", failing)
    with pytest.raises(StoreError, match=r"No space left on device \(check free space"):
        put(store, *(message(seq, BIG) for seq in range(4)))
    assert os.listdir(data / "bodies") == []
    put(store, message(9, BIG))
    store.close()
    assert list(content(data)) == [9]


FLIPS = int(os.environ.get("STOMPCODEC_FLIPS", "4"))
SEED = int(os.environ.get("STOMPCODEC_SEED", "1"))
#: Destinations, and headers of SUBSCRIBE.
PLACES = {"/queue/a": {}, "/queue/b": {}, "/topic/t": {"durable_subscription_name": "d"}}


def body_of(number):
    size = {7: 70_000, 11: 150_000}.get(number % 23, 20 + number * 37 % 900 + (3000 if number % 10 == 5 else 0))
    return pattern(size) if size > 60_000 else (b"%d " % number * size)[:size]


@pytest.fixture(scope="module")
def origins(tmp_path_factory):
    """Two folders and what was sent to them: of a broker that was killed, and of one that took its WAL over."""
    root, found = tmp_path_factory.mktemp("flips"), {}
    for name in ("killed", "closed"):
        sent, bench = {}, stored_bench(root / "running" / name)
        subscriber = client(bench)
        subscriber.subscribe("/topic/t", **PLACES["/topic/t"])
        subscriber.lose()
        sender = bench.peer()
        for number in range(120):
            destination = [*PLACES][number % 3]
            sent[str(number)] = destination, body_of(number)
            sender.put(destination, body_of(number), persistent="true", number=str(number), receipt="r")
            settle(bench)
        consumer = bench.peer()
        consumer.subscribe("/queue/a", ack="client-individual", prefetch_count="9")
        for each in consumer.take()[:5]:
            consumer.ack(each, receipt="r")
            sent.pop(each.headers["number"])
        settle(bench)
        if name == "closed":
            consumer.lose()
            settle(bench)
            bench.store.close()
        shutil.copytree(root / "running" / name, root / name)
        if name == "killed":
            bench.store.close()
        found[name] = root / name, sent
    return found


def delivered(bench):
    """All that comes out of a broker, by number; a session for each message that may end it."""
    found = {}
    for destination, headers in PLACES.items():
        for _ in range(20):
            peer = client(bench)
            peer.subscribe(destination, ack="client-individual", **headers)
            settle(bench)
            for frame in messages(peer):
                found[frame.headers["number"]] = destination, frame.body
                peer.ack(frame)
                settle(bench)
            again = peer.closed
            peer.lose()
            settle(bench)
            if not again:
                break
    bench.store.close()
    return found


def octets_in(folder):
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith("-shm")]
    return {path.name: path.read_bytes() for path in files}


@pytest.mark.parametrize("number", range(FLIPS))
@pytest.mark.parametrize("origin", ["killed", "closed"])
def test_one_flipped_bit(origins, origin, number, tmp_path):
    """Start, drain and check together say every loss; and what salvage copies is whole."""
    source, sent = origins[origin]
    image, new = tmp_path / "image", tmp_path / "new"
    shutil.copytree(source, image)
    chance = random.Random(f"{SEED} {origin} {number}")
    files = [image / "messages.sqlite", image / "messages.sqlite-wal"]
    files += sorted(path for path in (image / "bodies").iterdir() if is_body(path.name))
    files = [file for file in files if file.exists() and file.stat().st_size]
    file = chance.choice([*files[:2], *files[:2], *files])
    bit = chance.randrange(file.stat().st_size * 8)
    flip(file, bit)
    where = f"{file.name} bit {bit}"
    # A flip in the last transaction of the WAL cannot be told from a torn one.
    may_be_torn = "-wal" in where and not examine_wal(image / "messages.sqlite-wal").lost
    before, checked, report = octets_in(image), check(image), salvage(image, new)
    assert octets_in(image) == before, "they only read"

    said = not checked.whole
    try:
        bench = stored_bench(image)
    except StoreError:
        said, found = True, {}
    else:
        found = delivered(bench)
        said = said or bench.store.damage.findings > 0
    changed = {name for name, what in found.items() if name not in sent or sent[name] != what}
    lost = sent.keys() - found.keys()
    if may_be_torn and not said:
        assert len(lost) <= 1, where
    if (may_be_torn and not said) or (changed and said and "-wal" in where):  # the ACKs of some are lost
        changed -= {name for name in changed if name not in sent}
    assert not changed, where
    assert not lost or said or may_be_torn, f"{where}: nobody says that {lost} are lost"

    again = check(new)
    assert again.whole, (where, again)
    saved = delivered(stored_bench(new))
    assert all(sent[name] == what for name, what in saved.items() if name in sent), where
    assert saved.keys() >= found.keys() & sent.keys(), where
    assert sent.keys() <= saved.keys() or not report.whole or may_be_torn, where
