"""The data file gives space back when the store is idle: in small steps, and never before other work."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from broker.storage.test_damage import content
from broker.storage.test_salvage import ENVIRONMENT, run
from patience import patience

from stompcodec.broker.storage.repair.compact import compact
from stompcodec.broker.storage.repair.salvage import check
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.broker.storage.sqlite_writer import Writer
from stompcodec.broker.storage.store import Stored
from stompcodec.errors import StoreError

MIB = 2**20


def message(seq: int, size: int = 40_000) -> Stored:
    return Stored("", seq, f"m-{seq}", "/queue/a", b"a:b\n\n" + (b"%d " % seq * size)[:size] + b"\0")


class Inline:
    """A helper without a thread: jobs run when they are asked for."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], object]] = []

    def give(self, job: Callable[[], object]) -> None:
        self.jobs.append(job)

    def wait(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()

    stop = wait


class Idle:
    """A store, its loop and its helper, one step at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.helper = Inline()
        self.store = SqliteStore(folder, helper=self.helper, page_helper=self.helper)
        self.soon: list[Callable[[], object]] = []

    def fill(self, count: int = 500, left: int = 0, first: int = 0) -> None:
        for seq in range(first, first + count):
            self.store.append("q", message(seq))
            if seq % 50 == 49:
                self.store.commit()
        self.store.commit()
        for seq in range(first + left, first + count):
            self.store.remove("q", message(seq))
        self.store.commit()

    def step(self) -> bool:
        """One job of the helper, and what it wants the loop to do. False: there is none."""
        if not self.helper.jobs:
            return False
        self.helper.jobs.pop(0)()
        while self.soon:
            self.soon.pop(0)()
        return True

    def rest(self, seconds: int) -> int:
        """So many seconds without a commit; how many steps they had."""
        steps = 0
        for _ in range(seconds):
            self.store.tidy(self.soon.append)
            while self.step():
                steps += 1
        return steps

    @property
    def sizes(self) -> tuple[int, int]:
        """Of the file and of the WAL."""
        return tuple((self.folder / f"messages.sqlite{end}").stat().st_size for end in ("", "-wal"))


def test_space_comes_back_after_a_drain(tmp_path: Path) -> None:
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


def test_each_step_is_small(tmp_path: Path) -> None:
    """Bytes written per step: a commit that comes meanwhile waits for no more than that."""
    idle = Idle(tmp_path)
    idle.fill()
    idle.store._writer._shrink_wal(idle.store._writer._db)
    pages: list[int] = []
    tidy = idle.store._writer.tidy

    def counted() -> bool:
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


def _pages(idle: Idle) -> int:
    db: Any = idle.store._writer._db
    return int(db.execute("PRAGMA page_count").fetchone()[0])


def test_nothing_is_done_while_there_is_work(tmp_path: Path) -> None:
    idle = Idle(tmp_path)
    idle.fill()
    for seq in range(1000, 1010):
        idle.store.tidy(idle.soon.append)
        idle.store.append("q", message(seq, 10))
        idle.store.tidy(idle.soon.append)
        assert idle.helper.jobs == []
        idle.store.commit()
    assert idle.sizes[0] > 15 * MIB or idle.sizes[1] > 15 * MIB
    idle.store.close()


def test_a_commit_ends_the_row_of_steps(tmp_path: Path) -> None:
    idle = Idle(tmp_path)
    idle.fill()
    idle.store._writer._shrink_wal(idle.store._writer._db)
    for _ in range(2):
        idle.store.tidy(idle.soon.append)
    assert idle.step()
    assert len(idle.helper.jobs) == 1
    idle.store.append("q", message(1000, 10))
    done: list[object] = []
    idle.store.commit_later(done.append, idle.soon.append)
    assert idle.step(), "one step was given before"
    while idle.step():
        pass
    assert done == [None]
    assert idle.sizes[0] > 10 * MIB
    idle.store.close()


def test_a_backlog_in_use_keeps_its_file(tmp_path: Path) -> None:
    idle = Idle(tmp_path)
    idle.fill(100, left=100)
    before, _ = idle.sizes
    idle.rest(5)
    assert idle.sizes[0] >= before
    idle.store.close()
    assert len(content(tmp_path)[0]) == 100


def old_file(folder: Path, count: int = 200, left: int = 5) -> None:
    """A file as an older version has made it, most of it empty."""
    with closing(sqlite3.connect(folder / "messages.sqlite")) as connection:
        connection.execute("PRAGMA auto_vacuum = NONE")
        connection.execute("VACUUM")
    store = SqliteStore(folder)
    for seq in range(count):
        store.append("q", message(seq))
    store.commit()
    for seq in range(left, count):
        store.remove("q", message(seq))
    store.close()


@pytest.fixture
def old(tmp_path: Path) -> Path:
    SqliteStore(tmp_path / "data").close()
    old_file(tmp_path / "data")
    return tmp_path / "data"


def test_an_older_file_keeps_its_size_until_it_is_compacted(old: Path) -> None:
    before = (old / "messages.sqlite").stat().st_size
    idle = Idle(old)
    idle.rest(5)
    idle.store.close()
    assert (old / "messages.sqlite").stat().st_size == before > 5 * MIB
    status, said = run("compact", old)
    assert (status, said.count(str(before))) == (0, 1)
    assert (old / "messages.sqlite").stat().st_size < MIB
    assert check(old).whole
    assert len(content(old)[0]) == 5
    idle = Idle(old)
    idle.fill(first=1000)
    idle.rest(5)
    idle.store.close()
    assert (old / "messages.sqlite").stat().st_size < 2 * MIB, "from now on it does so by itself"


def test_compact_refuses_what_it_cannot_do(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(old)
    status, said = run("compact", old)
    assert status == 2
    assert "in use" in said
    store.close()
    with pytest.raises(StoreError, match="not a broker's data folder"):
        compact(old.parent)
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("stompcodec.broker.storage.repair.compact.shutil.disk_usage", lambda _: usage)
    with pytest.raises(StoreError, match="1000 are free"):
        compact(old)


KILLED = """
import os, sys, threading
from stompcodec.broker.storage.repair.compact import compact
threading.Timer(float(sys.argv[2]), lambda: os.kill(os.getpid(), 9)).start()
compact(sys.argv[1])
os._exit(0)
"""


@pytest.mark.long
def test_killed_while_it_compacts(old: Path) -> None:
    for turn in range(6):
        command = [sys.executable, "-c", KILLED, str(old), str(0.002 * 3**turn)]
        subprocess.run(command, env=ENVIRONMENT, timeout=patience(60), check=False)
        assert check(old).whole
    assert len(content(old)[0]) == 5


def test_a_disk_that_is_full_does_not_stop_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    idle = Idle(tmp_path)
    idle.fill()

    def full(writer: Writer, db: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "_shrink_wal", full)
        idle.rest(3)
    idle.store.append("q", message(1, 10))
    idle.store.commit()
    idle.store.close()
    assert check(tmp_path).whole
