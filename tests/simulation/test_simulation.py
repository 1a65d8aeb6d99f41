"""The simulation itself: a few hundred seeds without a fault, the same each time, and planted bugs that it finds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import patience
from simulation import vfs
from simulation.plan import Plan, Step, plan_of
from simulation.planted import BUGS, LATE, RARE, find, is_compiled, planted
from simulation.shrink import shrink
from simulation.world import run

pytestmark = pytest.mark.skipif(bool(vfs.unavailable()), reason=vfs.unavailable() or "SQLite is there")
#: Seeds that one test runs, how many such tests there are, and how many of them are slow.
_EACH, _TESTS, _SLOW = 20, 15, 10
_FIRST = [number * _EACH for number in range(_TESTS)]
_TRACE = "import sys; sys.path.insert(0, sys.argv[1]); from simulation.plan import plan_of; \
from simulation.world import run; run(plan_of(int(sys.argv[2])), lambda line: print(line))"


@pytest.mark.parametrize(
    "first", [*_FIRST[:-_SLOW], *(pytest.param(first, marks=pytest.mark.slow) for first in _FIRST[-_SLOW:])]
)
def test_nothing_breaks(first):
    outcomes = [run(plan_of(seed)) for seed in range(first, first + _EACH)]
    failed = {outcome.plan.seed: str(outcome.fault) for outcome in outcomes if outcome.fault is not None}
    assert failed == {}, "make simulate SEED=... shows the trace of a seed"
    assert sum(outcome.frames for outcome in outcomes) > 100 * _EACH


def _marks(bug):
    uncompiled = [pytest.mark.uncompiled] if is_compiled(BUGS[bug]) else []
    return [*uncompiled, *([pytest.mark.slow] if bug in LATE else [])]


@pytest.mark.parametrize("bug", [pytest.param(bug, marks=_marks(bug)) for bug in BUGS])
def test_planted_bugs_are_found(bug):
    assert find(BUGS[bug], RARE.get(bug, range(60))) is not None


def test_an_empty_queue_keeps_no_page():
    """Its last messages were read for a consumer that looked on, and again for the window."""
    assert run(plan_of(532)).fault is None


@pytest.mark.parametrize("group", [{"message_group": "h"}, {}], ids=["group", "none"])
@pytest.mark.parametrize("delay", [{"delay": 3000}, {}], ids=["delayed", "at once"])
def test_messages_of_a_group_that_become_due_are_delivered(delay, group):
    """The first of them gives the queue a dispatcher, while others are in the store only."""
    headers = {"color": "blue", "n": 8, "persistent": "true", **delay, **group}
    client = {"kind": "core", "versions": ("1.2",), "move": 0.0, "move_to": "/queue/a", "client_id": "id-c1"}
    client |= {"nack": 0.0, "hold": 0.0, "delay": 0.0, "subscriptions": []}
    quiet = dict.fromkeys(("latency", "splitting", "sync_cost", "turn_delay", "helper_delay"), 0.0) | {"faults": "none"}
    sent = {"headers": headers, "size": 100, "to": "/queue/b", "count": 3, "key": 36, "receipt": True}
    steps = (Step(1.5, "c1", "disconnect", {"again": 0.1}), Step(5.894, "c1", "send", sent))
    assert run(Plan(1240, {"window_messages": 1}, quiet, {"c1": client}, steps, 6.0, False)).fault is None


@pytest.mark.parametrize("seed", [0, 7])
def test_a_seed_gives_the_same_run_each_time(seed):
    traces = [[], []]
    for trace in traces:
        run(plan_of(seed), trace.append)
    assert len(traces[0]) > 50
    assert traces[0] == traces[1]
    for hashes in ("1", "2"):
        other = subprocess.run(
            [sys.executable, "-c", _TRACE, str(Path(__file__).parents[1]), str(seed)],
            env={**os.environ, "PYTHONHASHSEED": hashes, "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            check=True,
            timeout=patience(100),
        ).stdout.decode()
        assert other.splitlines() == traces[0]


def test_a_failing_plan_is_made_smaller():
    bug = BUGS["what comes back goes behind all others"]
    found = find(bug, range(60))
    assert found is not None
    plan = plan_of(found[0])
    with planted(bug):
        kind = run(plan).kind
        smaller, runs = shrink(plan, kind, 100)
        assert (run(smaller).kind, runs > 1) == (kind, True)
    assert len(smaller.steps) < len(plan.steps) / 2
    assert run(smaller).fault is None  # it is the bug that breaks it
