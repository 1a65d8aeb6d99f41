"""docs/states.md says what the tables say."""

import importlib.util
from pathlib import Path

import pytest

from stompcodec.spec import CLIENT_1_1, SERVER
from stompcodec.states import State, next_state

SCRIPT = Path(__file__).parents[2] / "scripts" / "state_diagram.py"


@pytest.fixture(scope="module")
def diagram():
    if not SCRIPT.is_file():
        pytest.skip("scripts/ is not here")
    spec = importlib.util.spec_from_file_location("state_diagram", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_not_stale(diagram):
    assert diagram.PAGE.read_text("utf-8") == diagram.page(), "run scripts/state_diagram.py"


def test_every_legal_frame_is_drawn_once(diagram):
    for version in diagram.VERSIONS:
        drawn = [
            (sender, state, command, after)
            for (state, after), by in diagram.arrows(version).items()
            for sender, commands in by.items()
            for command in commands
        ]
        legal = [
            (sender, state, command, next_state(sender, state, command, version))
            for sender, commands in (("client", CLIENT_1_1), ("server", SERVER))
            for state in State
            for command in commands
            if next_state(sender, state, command, version) is not None
        ]
        assert sorted(map(str, drawn)) == sorted(map(str, legal))
        text = " ".join(diagram.diagram(version))
        assert all(f" {state.name} " in text for state in State)
