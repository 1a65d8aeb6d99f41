"""A few rounds of kill -9 while messages come: `make crash WHAT=spark` runs many."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("click")

from spark.live_rounds import LANES, rounds


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="kill -9 is of POSIX")
def test_nothing_is_lost_or_doubled_when_parts_are_killed(tmp_path: Path) -> None:
    """Driver with JVM, recorder and broker, once each; the three ways into a sink at the same time."""
    figures = rounds(tmp_path, 3, seed=3, kinds=("driver", "recorder", "broker"))
    assert {lane: (each.missing, each.duplicates, each.left) for lane, each in figures.items()} == {
        lane: (0, 0, 0) for lane in LANES
    }
    assert all(each.sent > 100 for each in figures.values())
