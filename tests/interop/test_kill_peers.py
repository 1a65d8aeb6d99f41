"""The books of scripts/kill_peers.py: they find what was lost, came out of order, or came again."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from peering import load

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "kill_peers.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    load()
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location("kill_peers", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, None),
        ({"first": [0, 1]}, "queue: 1 lost, as [2]"),
        ({"first": [0, 2, 1]}, "queue: 1 out of order, as [(2, 1)]"),
        ({"first": [0, 1, 2, 3]}, None),  # of unknown outcome, and it came
        ({"after_ack": 1}, "queue: 1 came again after the RECEIPT of their ACK"),
        ({"answered": 4}, "requests: 0 wrong answers, 1 unanswered"),
        ({"wrong": 1}, "requests: 1 wrong answers, 0 unanswered"),
    ],
)
def test_the_books_find_what_is_wrong(script: ModuleType, change: dict[str, Any], problem: str | None) -> None:
    work = script.Work("stomp://127.0.0.1:1")
    for kind in ("queue", "durable"):
        work.receipted[kind], work.first[kind] = {0, 1, 2}, [0, 1, 2]
    work.asked = work.answered = 5
    for name, value in change.items():
        if isinstance(value, list) or name == "after_ack":
            getattr(work, name)["queue"] = value
        else:
            setattr(work, name, value)
    work.judge()
    assert work.problems == ([] if problem is None else [problem])
