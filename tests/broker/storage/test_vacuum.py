"""The data file gives space back when the store is idle: in small steps, and never before other work."""

import sqlite3

from broker.storage.storing import content, message

from stompcodec.broker.storage.salvage import check
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.broker.storage.sqlite_writer import Writer

MIB = 2**20


class Inline:
    """A helper without a thread: jobs run when they are asked for."""

    def __init__(self):
        self.jobs = []

    def give(self, job):
        self.jobs.append(job)

    def wait(self):
        while self.jobs:
            self.jobs.pop(0)()

    stop = wait


class Idle:
    """A store, its loop and its helper, one step at a time."""

    def __init__(self, folder):
        self.folder = folder
        self.helper = Inline()
        self.store = SqliteStore(folder, helper=self.helper, page_helper=self.helper)
        self.soon = []

    def fill(self, count=500, left=0, first=0):
        for seq in range(first, first + count):
            self.store.append("q", message(seq, 40_000))
            if seq % 50 == 49:
                self.store.commit()
        self.store.commit()
        for seq in range(first + left, first + count):
            self.store.remove("q", message(seq, 0))
        self.store.commit()

    def step(self):
        """One job of the helper, and what it wants the loop to do. False: there is none."""
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
            self.store.tidy(self.soon.append)
            while self.step():
                steps += 1
        return steps

    @property
    def sizes(self):
        """Of the file and of the WAL."""
        return tuple((self.folder / f"messages.sqlite{end}").stat().st_size for end in ("", "-wal"))


def test_space_comes_back_after_a_drain(tmp_path):
    idle = Idle(tmp_path)
    idle.fill(left=3)
    idle.store._writer.checkpoint()
    before, _ = idle.sizes
    assert before > 15 * MIB
    idle.rest(5)
    after, wal = idle.sizes
    assert after < 2 * MIB
    assert wal == 0
    assert idle.rest(5) == 0, "all is done"
    idle.store.close()
    assert check(tmp_path).whole
    assert len(content(tmp_path)[0]) == 3


def test_each_step_is_small(tmp_path):
    """Bytes written per step: a commit that comes meanwhile waits for no more than that."""
    idle = Idle(tmp_path)
    idle.fill()
    idle.store._writer._shrink_wal(idle.store._writer._db)
    pages = []
    tidy = idle.store._writer.tidy

    def counted():
        before = _pages(idle)
        more = tidy()
        pages.append(before - _pages(idle))
        return more

    idle.store._writer.tidy = counted
    idle.rest(5)
    assert sum(pages) > 15 * MIB / 8192
    assert max(pages) <= 130  # with those that say where others are
    assert 15 < len(pages) < 40
    idle.store.close()


def _pages(idle):
    db = idle.store._writer._db
    return int(db.execute("PRAGMA page_count").fetchone()[0])


def test_commits_come_first(tmp_path):
    """Nothing is done while there is work, and a commit ends the row of steps."""
    idle = Idle(tmp_path)
    idle.fill()
    idle.store._writer._shrink_wal(idle.store._writer._db)
    idle.store.tidy(idle.soon.append)
    idle.store.append("q", message(1000))
    idle.store.tidy(idle.soon.append)
    assert idle.helper.jobs == []
    idle.store.commit()
    for _ in range(2):
        idle.store.tidy(idle.soon.append)
    assert idle.step()
    assert len(idle.helper.jobs) == 1
    idle.store.append("q", message(1001))
    done = []
    idle.store.commit_later(done.append, idle.soon.append)
    assert idle.step(), "one step was given before"
    while idle.step():
        pass
    assert done == [None]
    assert idle.sizes[0] > 10 * MIB
    idle.store.close()


def test_a_disk_that_is_full_does_not_stop_the_store(tmp_path, monkeypatch):
    idle = Idle(tmp_path)
    idle.fill()

    def full(writer, db):
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "_shrink_wal", full)
        idle.rest(3)
    idle.store.append("q", message(1))
    idle.store.commit()
    idle.store.close()
    assert check(tmp_path).whole
