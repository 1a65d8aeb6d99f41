"""SqliteStore against a dict: any operations in any order; closed, or left as in a crash, at any moment."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from patience import patience
from profiles import examples

from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.broker.storage.store import Stored

QUEUES = ["/\0/queue/a", "/\0/queue/b", "é\n", ""]
BIG = 70_000


def message(seq, size=10, **values):
    body = (b"%d " % seq * size)[:size]
    return Stored("", seq, f"m-{seq}", "/queue/a", b"a:b\n\n" + body + b"\0", **values)


class Model(RuleBasedStateMachine):
    """A dict, with an open batch beside it; the store is closed, or left as in a crash, at any moment."""

    @initialize()
    def begin(self):
        self.root = Path(tempfile.mkdtemp())
        self.folder = self.root / "0"
        self.store = SqliteStore(self.folder)
        self.kept, self.open, self.gone = {}, {}, set()
        self.seq = self.copies = 0

    @rule(queue=st.sampled_from(QUEUES), size=st.sampled_from([0, 10, 1000, BIG]), skip=st.integers(0, 3))
    def append(self, queue, size, skip):
        self.seq += skip + 1
        self.store.append(queue, message(self.seq, size))
        self.open[queue, self.seq] = message(self.seq, size)._replace(queue=queue)

    @rule(data=st.data())
    def remove(self, data):
        live = sorted((self.kept.keys() - self.gone) | self.open.keys())
        if live:
            key = data.draw(st.sampled_from(live))
            self.store.remove(key[0], message(key[1]))
            self.gone.add(key)
            self.open.pop(key, None)

    @rule(data=st.data(), attempts=st.integers(1, 9))
    def update(self, data, attempts):
        live = sorted((self.kept.keys() - self.gone) | self.open.keys())
        if live:
            key = data.draw(st.sampled_from(live))
            old = self.open.get(key) or self.kept[key]
            new = old._replace(attempts=attempts, redelivered=True)
            self.store.update(key[0], new)
            self.open[key] = new

    @rule(later=st.booleans())
    def commit(self, later):
        if later:
            called = []
            arrived = threading.Event()
            self.store.commit_later(called.append, lambda call: (call(), arrived.set()))
            if not called:
                assert arrived.wait(patience(20))
            assert called == [None]
        else:
            self.store.commit()
        self._committed()

    def _committed(self):
        self.kept = {key: kept for key, kept in self.kept.items() if key not in self.gone} | self.open
        self.open, self.gone = {}, set()

    @rule()
    def close_and_open(self):
        self.store.close()
        self._committed()
        self._reopen(unclean=False)

    @rule()
    def crash_and_open(self):
        self.store._settle()
        self.copies += 1
        crashed = self.root / str(self.copies)
        shutil.copytree(self.folder, crashed)  # as the disk would be found: nothing is closed
        self.store.close()
        shutil.rmtree(self.folder)
        self.folder = crashed
        self.open, self.gone = {}, set()
        self.kept = {key: kept._replace(redelivered=True) for key, kept in self.kept.items()}
        self._reopen(unclean=True)

    def _reopen(self, unclean):
        self.store = SqliteStore(self.folder)
        assert self.store.unclean is unclean
        found = list(self.store.load())
        assert [(one.queue, one.seq) for one in found] == sorted(
            self.kept, key=lambda key: (self.store._bases[key[0]], key[1])
        )
        assert {(one.queue, one.seq): one for one in found} == self.kept
        files = os.listdir(self.folder / "bodies")
        assert len(files) == sum(len(one.tail) >= 65536 for one in found)

    @invariant()
    def pending_counts_what_a_commit_writes(self):
        if hasattr(self, "store") and not self.open and not self.gone:
            assert self.store.pending == 0

    def teardown(self):
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.root)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=examples(25))  # each commit waits for the disk
