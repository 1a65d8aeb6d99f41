"""Time that a commit waits for a CPU does not make the disk seem slow."""

from __future__ import annotations

from pathlib import Path

import pytest

from stompcodec.broker.storage import sqlite_writer
from stompcodec.broker.storage.sqlite import _FAST, SqliteStore
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
    assert sqlite_writer.waited_for_cpu() == seconds


def test_a_system_that_does_not_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_writer, "_SCHEDULED", str(tmp_path / "none"))
    assert sqlite_writer.waited_for_cpu() == 0.0


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
    monkeypatch.setattr(sqlite_writer, "waited_for_cpu", clock.waited)
    store = SqliteStore(tmp_path, clock=clock)
    store._writer.pace = 0.001
    for seq in range(40):
        store.append("q", Stored("q", seq, f"m-{seq}", "/queue/q", b"\n\nhi\0"))
        store.commit()
    assert (store._writer.pace < _FAST) is is_fast
    assert store._writer.pace >= 0
    store.close()


def test_nobody_asks_while_commits_are_fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(1.0)
    monkeypatch.setattr(sqlite_writer, "waited_for_cpu", clock.waited)
    store = SqliteStore(tmp_path, clock=lambda: 0.0)
    for seq in range(3):
        store.append("q", Stored("q", seq, f"m-{seq}", "/queue/q", b"\n\nhi\0"))
        store.commit()
    assert clock.asked == 0
    store.close()
