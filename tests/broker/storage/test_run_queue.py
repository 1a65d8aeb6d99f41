"""Time that a commit waits for a CPU does not make the disk seem slow."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import get_ident

import pytest

from stompcodec.broker.storage import sqlite_writer
from stompcodec.broker.storage.sqlite import _FAST, SqliteStore
from stompcodec.broker.storage.sqlite_writer import Timer
from stompcodec.broker.storage.store import Stored

SECONDS = 0.005  # of each commit


@pytest.mark.parametrize(
    ("content", "seconds"), [(b"123 1500000000 7\n", 1.5), (b"", 0.0), (b"0 x 0\n", 0.0), (b"12\n", 0.0)]
)
def test_it_is_the_second_number(
    content: bytes, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "schedstat"
    file.write_bytes(content)
    monkeypatch.setattr(sqlite_writer, "_SCHEDULED", str(file))
    timer = Timer()
    assert timer.waited() == seconds
    timer.close()


def test_a_system_that_does_not_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_writer, "_SCHEDULED", str(tmp_path / "none"))
    assert Timer().waited() == 0.0


def test_each_thread_keeps_one_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "schedstat"
    file.write_bytes(b"1 1000000000 1\n")
    monkeypatch.setattr(sqlite_writer, "_SCHEDULED", str(file))
    timer, before = Timer(), _open_files(file)
    assert timer.waited() == timer.waited() == 1.0
    with ThreadPoolExecutor(1) as other:
        assert other.submit(timer.waited).result() == 1.0
    assert _open_files(file) == before + 2
    file.write_bytes(b"1 2000000000 1\n")  # it is read anew from its beginning
    assert timer.waited() == 2.0
    timer.close()
    assert _open_files(file) == before


def test_the_file_of_an_ended_thread_is_opened_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new thread may have the number of one that has ended, whose file cannot be read any more."""
    file = tmp_path / "schedstat"
    file.write_bytes(b"1 1000000000 1\n")
    monkeypatch.setattr(sqlite_writer, "_SCHEDULED", str(file))
    timer = Timer()
    timer._files[get_ident()] = os.open(file, os.O_WRONLY)  # cannot be read
    assert timer.waited() == 0.0
    assert timer.waited() == 1.0
    timer.close()
    assert _open_files(file) == 0


def _open_files(file: Path) -> int:
    return sum(link.exists() and link.samefile(file) for link in Path("/proc/self/fd").iterdir())


class Clock:
    """A clock for which each commit takes `SECONDS`, a share of them in the line for a CPU."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.looks = self.asked = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.looks * SECONDS

    def waited(self) -> float:
        self.asked += 1
        return self.looks // 2 * SECONDS * self.share  # a commit looks twice


@pytest.mark.parametrize(("share", "is_fast"), [(0.0, False), (0.8, False), (0.95, True), (1.5, True)])
def test_commits_that_wait_for_a_cpu_stay_in_the_loop(
    share: float, is_fast: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(share)
    store = SqliteStore(tmp_path, clock=clock)
    monkeypatch.setattr(Timer, "waited", lambda timer: clock.waited())
    store._writer.pace = 0.001
    for seq in range(40):
        store.append("q", Stored("q", seq, f"m-{seq}", "/queue/q", b"\n\nhi\0"))
        store.commit()
    assert (store._writer.pace < _FAST) is is_fast
    assert store._writer.pace >= 0
    store.close()


def test_nobody_asks_while_commits_are_fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(1.0)
    store = SqliteStore(tmp_path, clock=lambda: 0.0)
    monkeypatch.setattr(Timer, "waited", lambda timer: clock.waited())
    for seq in range(3):
        store.append("q", Stored("q", seq, f"m-{seq}", "/queue/q", b"\n\nhi\0"))
        store.commit()
    assert clock.asked == 0
    store.close()
