"""The leak rule of the simulation: an hour leaves nothing behind, and planted leaks are found."""

import os
from pathlib import Path

import pytest
from simulation import leaks

pytestmark = pytest.mark.skipif(bool(leaks.unavailable()), reason=leaks.unavailable() or "/proc is there")


@pytest.mark.slow
def test_an_hour_leaves_nothing_behind(tmp_path: Path) -> None:
    assert leaks.grown(str(tmp_path)) == []


@pytest.mark.parametrize("leak", ["bytes of memory", "descriptors"])
def test_a_planted_leak_is_found(tmp_path: Path, leak: str) -> None:
    kept: list[bytes] = []
    opened: list[int] = []
    plant = {
        "bytes of memory": lambda _bench: kept.append(os.urandom(2**20)),
        "descriptors": lambda _bench: opened.append(os.open(os.devnull, os.O_RDONLY)),
    }
    try:
        (found,) = leaks.grown(str(tmp_path), least=2, most=22, also=plant[leak])
    finally:
        for descriptor in opened:
            os.close(descriptor)
    assert f" {leak}, " in found
