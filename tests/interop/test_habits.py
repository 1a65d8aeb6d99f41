"""Our broker in the dialects of others beside the real ones: the same frames to both."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click")

from crash.process import BrokerProcess
from interop.habits import HABITS, Habit, Host


@pytest.mark.no_asan
@pytest.mark.peer("rabbitmq", "activemq")
@pytest.mark.parametrize("habit", list(dict.fromkeys(chain(*HABITS.values()))), ids=lambda habit: habit.__name__)
def test_a_habit_is_shared(peer: Any, habit: Habit, tmp_path: Path) -> None:
    dialect = peer.row.dialect
    if habit not in HABITS[dialect]:
        pytest.skip(f"it is no habit of {dialect}")
    ours = BrokerProcess(tmp_path, config=f'[broker]\ndialect = "{dialect}"\n', memory=True)
    with ours, Host("127.0.0.1", ours.port) as here, Host("127.0.0.1", peer.ports["stomp"]) as there:
        assert habit(here) == habit(there)
