"""A few rounds of kill -9 while messages come: `make crash WHAT=spark` runs many."""

import os

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("click")
from spark.live_rounds import LANES, rounds


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="kill -9 is of POSIX")
def test_nothing_is_lost_or_doubled_when_parts_are_killed(tmp_path):
    figures = rounds(tmp_path, 3, seed=3, kinds=("driver", "recorder", "broker"))
    found = {lane: (each.missing, each.duplicates, each.left) for lane, each in figures.items()}
    assert found == dict.fromkeys(LANES, (0, 0, 0))
    assert all(each.sent > 100 for each in figures.values())
