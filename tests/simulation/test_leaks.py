"""The leak rule of the simulation: an hour leaves nothing behind, and planted leaks are found."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
from simulation import leaks

SCRIPT = Path(__file__).parents[2] / "scripts" / "simulate.py"
pytestmark = pytest.mark.skipif(bool(leaks.unavailable()), reason=leaks.unavailable() or "/proc is there")


@pytest.mark.slow
def test_an_hour_leaves_nothing_behind() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--leaks"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("leak", ["bytes of memory", "descriptors"])
def test_a_planted_leak_is_found(tmp_path: Path, leak: str) -> None:
    kept, opened = [], []
    plant = {
        "bytes of memory": lambda _bench: kept.append(os.urandom(leaks.held()[0] // 40)),
        "descriptors": lambda _bench: opened.append(os.open(os.devnull, os.O_RDONLY)),
    }
    gc.collect()  # what earlier tests left would make room for the leak
    try:
        (found,) = leaks.grown(str(tmp_path), least=2, most=22, also=plant[leak])
    finally:
        for descriptor in opened:
            os.close(descriptor)
    assert f" {leak}, " in found
