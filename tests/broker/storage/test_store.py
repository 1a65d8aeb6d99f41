"""What every store does, as a whole and in pages, against a dict; and SqliteStore over restarts and crashes."""

import os
import shutil
import tempfile
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import pytest
from broker.storage.storing import ALL, BIG, message, put, read, seqs
from hypothesis import given
from hypothesis import strategies as st
from patience import patience

from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.broker.storage.store import MemoryStore, Stored, TimedPage


class Stores:
    """Makes stores of a kind, in folders of their own, and closes them."""

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
def store(request):
    stores = Stores(request.param)
    yield stores.start()
    stores.close()


def pages(reader, sizes):
    """All messages of a queue, in pages of the given sizes, over and over."""
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
    """All messages with a time, in pages of the given sizes, over and over."""
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


def test_what_was_committed_comes_back_as_it_was(store):
    full = message(7, bytes(range(256)), persistent=False, expires=1e9 + 0.5, priority=9, attempts=3, redelivered=True)
    there = [full._replace(queue="/\0queue-é"), message(0, due=1.0), message(3)]
    put(store, *there)
    assert set(store.load()) == set(there)
    assert (list(store.load("q")), list(store.load("nowhere"))) == (there[1:], [])


def test_a_page_is_bounded_by_bytes_and_holds_one_message_at_least(store):
    put(store, message(1, b"x" * 1000), message(2, b"x" * 1000), message(3, b"x" * 80_000), message(4))
    assert seqs(read(store, octets=1)) == [1]
    assert seqs(read(store, octets=1500)) == [1, 2]
    assert seqs(read(store, after=2, octets=1500)) == [3]
    assert seqs(read(store, after=2, octets=81_000)) == [3, 4]


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
    """The expected content of a store: messages by queue and seq, and the changes of the open batch."""

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
        if later and self.stores.kind == "sqlite":
            answers, calls = [], SimpleQueue()
            self.store.commit_later(answers.append, calls.put)
            if not answers:
                calls.get(timeout=patience(20))()
            assert answers == [None]
            assert self.store.pending == 0
        else:
            self.store.commit()
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
        """Read the store in pages, and compare them with the model."""
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
        """Compare what the next broker is told of its queues with the model."""
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
