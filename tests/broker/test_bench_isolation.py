"""The benchmark of isolation runs and prints what it measured; its times depend on the machine and are not judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import patience

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "bench_isolation.py"

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not BENCHMARK.exists(), reason="the benchmarks are not here"),
]


def measured(*options: str) -> Any:
    command = [sys.executable, str(BENCHMARK), "--seconds", "0.2", "--json", "--only", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(120))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_probes_beside_a_neighbour() -> None:
    (case,) = measured("storm")["cases"]
    assert (case["case"], case["who"]) == ("storm", "this")
    assert case["rounds"] >= 1
    longest = [probe["max"] for probe in case["probes"].values()]
    for probe in case["probes"].values():
        assert probe["count"] > 0
        assert 0 < probe["p50"] <= probe["p95"] <= probe["p99"] <= probe["max"]
    assert len(longest) == 2
    assert case["silence"] > 0


def test_another_interpreter_has_its_turn_in_each_case() -> None:
    found = measured("nothing", "--against", sys.executable)
    assert list(found["brokers"]) == ["this", "against"]
    assert [case["who"] for case in found["cases"]] == ["this", "against"]


def test_an_interpreter_without_stompcodec_is_refused(tmp_path: Path) -> None:
    missing = tmp_path / "python"
    command = [sys.executable, str(BENCHMARK), "--against", str(missing)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(120))
    assert done.returncode == 2
    assert f"{missing} cannot import stompcodec" in done.stderr
