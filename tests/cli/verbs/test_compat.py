"""stompcodec compat check: what it prints, and its exit status."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("click")

from click.testing import CliRunner, Result

from stompcodec.cli.app import app
from stompcodec.cli.verbs import compat
from stompcodec.compat.check import PEERS, Verdict

GOOD = Verdict("stompman", "1.1.0", "ok", 2)
MISSING = Verdict("stomp.py", None, "missing", problem="not installed: pip install aiostomp")
UNKNOWN = Verdict("stompman", "9.0", "unknown", problem="stompman 9.0 is not supported")
BROKEN = Verdict("stomp.py", "9.0.0", "broken", 4, "AssertionError: an escaped header came back changed")


def run(monkeypatch: pytest.MonkeyPatch, verdicts: list[Verdict], *arguments: str) -> Result:
    monkeypatch.setattr(compat, "check_all", lambda peers: verdicts)
    return CliRunner().invoke(app, ["compat", "check", *arguments])


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [([GOOD], 0), ([GOOD, MISSING], 0), ([], 0), ([GOOD, UNKNOWN], 1), ([BROKEN, GOOD], 1)],
    ids=["good", "missing", "none", "unknown", "broken"],
)
def test_exit_status(monkeypatch: pytest.MonkeyPatch, verdicts: list[Verdict], status: int) -> None:
    result = run(monkeypatch, verdicts)
    assert result.exit_code == status
    lines = result.stdout.splitlines()
    assert len(lines) == len(verdicts)
    for line, verdict in zip(lines, verdicts):
        assert verdict.peer in line
        assert verdict.problem in line


def test_one_that_is_named_has_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, [MISSING], "stomp.py").exit_code == 1


def test_for_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, [GOOD, BROKEN], "--json")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert found[0] == {"peer": "stompman", "version": "1.1.0", "state": "ok", "seams": 2, "problem": ""}
    assert found[1]["state"] == "broken"


def test_an_unknown_name() -> None:
    result = CliRunner().invoke(app, ["compat", "check", "pika"])
    assert result.exit_code == 2
    assert "stompman" in result.stderr


def test_what_is_installed_here() -> None:
    result = CliRunner().invoke(app, ["compat", "check", "--json"])
    assert result.exit_code == 0, result.stdout
    assert [json.loads(line)["peer"] for line in result.stdout.splitlines()] == list(PEERS.values())
