"""SqliteStore against a dict: any operations in any order; closed, or left as in a crash, at any moment."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from pathlib import Path

from broker.storage.storing import BIG, message
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from patience import patience
from profiles import examples

from stompcodec.broker.storage.sqlite import SqliteStore

QUEUES = ["/\0/queue/a", "/\0/queue/b", "é\n", ""]


class Model(RuleBasedStateMachine):
    """A dict, with an open batch beside it."""

    @initialize()
    def begin(self):
        self.root = Path(tempfile.mkdtemp())
        self.folder = self.root / "0"
        self.store = SqliteStore(self.folder)
        self.kept, self.open, self.gone = {}, {}, set()
        self.seq = self.copies = 0

    @property
    def live(self):
        return sorted((self.kept.keys() - self.gone) | self.open.keys())

    @rule(queue=st.sampled_from(QUEUES), size=st.sampled_from([0, 10, 1000, BIG]), skip=st.integers(0, 3))
    def append(self, queue, size, skip):
        self.seq += skip + 1
        one = message(self.seq, size, queue)
        self.store.append(queue, one)
        self.open[queue, self.seq] = one

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def remove(self, data):
        key = data.draw(st.sampled_from(self.live))
        self.store.remove(key[0], message(key[1]))
        self.gone.add(key)
        self.open.pop(key, None)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), attempts=st.integers(1, 9))
    def update(self, data, attempts):
        key = data.draw(st.sampled_from(self.live))
        new = (self.open.get(key) or self.kept[key])._replace(attempts=attempts, redelivered=True)
        self.store.update(key[0], new)
        self.open[key] = new

    @rule(later=st.booleans())
    def commit(self, later):
        if later:
            called, arrived = [], threading.Event()
            self.store.commit_later(called.append, lambda call: (call(), arrived.set()))
            if not called:
                assert arrived.wait(patience(20))
            assert called == [None]
        else:
            self.store.commit()
        self._committed()
        assert self.store.pending == 0

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
        ordered = sorted(self.kept, key=lambda key: (self.store._bases[key[0]], key[1]))
        assert found == [self.kept[key] for key in ordered]
        assert len(os.listdir(self.folder / "bodies")) == sum(len(one.tail) >= 65536 for one in found)

    @invariant()
    def nothing_is_damaged(self):
        assert not hasattr(self, "store") or self.store.damage.findings == 0

    def teardown(self):
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.root)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=examples(25))  # each commit waits for the disk
