"""Our broker in the dialects of others beside the real ones, where those are installed: the same frames to both."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

pytest.importorskip("click")

from crash.process import BrokerProcess
from interop.brokers import BROKERS
from interop.habits import HABITS, Habit, Host

pytestmark = [pytest.mark.slow, pytest.mark.no_asan]

Pair = tuple[str, tuple[str, int], tuple[str, int]]


@pytest.fixture(scope="module", params=HABITS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A real broker, and ours in its dialect."""
    dialect: str = request.param
    candidate = BROKERS[dialect]()
    if candidate.missing:
        pytest.skip(candidate.missing)
    folder: Path = tmp_path_factory.mktemp(dialect)
    ours = BrokerProcess(folder, config=f'[broker]\ndialect = "{dialect}"\n', memory=True)
    with candidate as target, ours:
        yield dialect, (target.host, target.port), ("127.0.0.1", ours.port)


@pytest.mark.parametrize("habit", list(dict.fromkeys(chain(*HABITS.values()))), ids=lambda habit: habit.__name__)
def test_a_habit_is_shared(pair: Pair, habit: Habit) -> None:
    dialect, real, ours = pair
    if habit not in HABITS[dialect]:
        pytest.skip(f"it is no habit of {dialect}")
    with Host(*ours) as here, Host(*real) as there:
        assert habit(here) == habit(there)
