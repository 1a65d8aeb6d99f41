"""What the command line and middleware do with real brokers: files of pytest, and their results by broker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from interop.brokers import BROKERS
from interop.run import Outcome
from patience import patience

__all__ = ["TOOLS", "Tool", "outcomes_in", "run_tool", "selection"]

HERE = Path(__file__).parent
#: Seconds for one file.
_MOST = 900.0
#: Exit statuses of a pytest in which nothing failed: all passed, or there was nothing to run.
_GOOD = (0, 5)
_OURS = "stompcodec"
#: Tests of a wrong row that are shown by name.
_NAMED = 3


class Tool(NamedTuple):
    """A file of pytest. A test or its parameters name a broker, or "all_brokers"; the others run with ours."""

    title: str
    file: str
    """In tests/interop. What is not there is skipped."""
    clients: bool = False
    """It needs what pip installs into `rows.FOLDER`."""


TOOLS = (
    Tool("queue tools", "test_queue_tools.py"),
    Tool("HTTP proxies and SockJS", "test_proxies.py", clients=True),
    Tool("traces", "test_tracing.py"),
    Tool("bridge", "test_bridge.py"),
)


def selection(brokers: Iterable[str]) -> str:
    """The expression of `pytest -k` for the tests of some brokers; "" for all.

    >>> selection(["stompcodec", "rabbitmq"]), selection(["rabbitmq", "activemq"]), selection(BROKERS)
    ('not activemq', 'rabbitmq or activemq', '')
    """
    chosen = list(brokers)
    if _OURS in chosen:
        return " and ".join(f"not {name}" for name in BROKERS if name not in chosen)
    return " or ".join(chosen)


def _broker_of(name: str) -> str:
    return next((broker for broker in BROKERS if broker in name), _OURS)


def _case(case: ElementTree.Element) -> Outcome:
    for child in case:
        why = child.get("message") or ""
        if why.startswith("collection "):  # of the module: the text says more
            why = _reason(child.text or why)
        if child.tag in ("failure", "error"):
            return Outcome("FAIL", why)
        if child.tag == "skipped":
            return Outcome("n/a", why.removeprefix("Skipped: "))
    return Outcome("ok")


def _reason(text: str) -> str:
    """Return why a module was skipped, or the exception that ended it.

    >>> _reason("('test_it.py', 2, 'Skipped: no click')")
    'no click'
    """
    skipped = re.search(r"""['"]Skipped: (.*)['"]\)$""", text.strip())
    lines = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    return skipped[1] if skipped else (lines or text.strip().splitlines())[-1]


def _row(name: str) -> str:
    """The words of a test's name without its parameters and the broker.

    >>> _row("test_activemq_shows_selects[sync-1.2]"), _row("test_dead_letters_of_activemq_go_back")
    ('shows selects', 'dead letters go back')
    """
    words = name.partition("[")[0].removeprefix("test")
    return re.sub(rf"(_of|_at|_by)?_({'|'.join(BROKERS)})(?=_|$)", "", words).strip("_").replace("_", " ")


def _together(found: list[tuple[str, Outcome]]) -> Outcome:
    """One outcome for all tests of a cell."""
    failed = [(name, outcome.why) for name, outcome in found if outcome.word == "FAIL"]
    if failed:
        names = ", ".join(name for name, _ in failed[:_NAMED]) + (", …" if len(failed) > _NAMED else "")
        return Outcome("FAIL", f"{names}: {failed[0][1]}")
    if any(outcome.word == "ok" for _, outcome in found):
        return Outcome("ok")
    return found[0][1] if found else Outcome("n/a")  # the test is for another broker


def outcomes_in(report: Path, tool: Tool, brokers: Iterable[str]) -> dict[str, dict[str, Outcome]]:
    """Row -> broker -> outcome in a report of pytest: a row is a test function, with all its parameters.

    A file that was skipped as a whole is one row with its reason, and one that could not be collected one that failed.
    """
    chosen = list(brokers)
    cells: dict[str, dict[str, list[tuple[str, Outcome]]]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name, outcome = case.get("name") or "", _case(case)
        if not case.get("classname"):  # the module itself
            return {tool.title: dict.fromkeys(chosen, outcome)}
        row = cells.setdefault(f"{tool.title}: {_row(name)}", {broker: [] for broker in chosen})
        for broker in chosen if "all_brokers" in name else [_broker_of(name)]:
            row.setdefault(broker, []).append((name, outcome))
    if not cells:
        return {tool.title: dict.fromkeys(chosen, Outcome("n/a", "it has no test of these brokers"))}
    return {row: {broker: _together(found[broker]) for broker in chosen} for row, found in cells.items()}


def run_tool(tool: Tool, brokers: Iterable[str], folder: Path, here: Path = HERE) -> dict[str, dict[str, Outcome]]:
    """Run the file of a tool, and return its rows.

    Args:
        tool: one of TOOLS.
        brokers: names in BROKERS.
        folder: for the report and the log.
        here: where the file is.
    """
    chosen = list(brokers)
    if not (here / tool.file).is_file():
        return {tool.title: dict.fromkeys(chosen, Outcome("n/a", f"there is no tests/interop/{tool.file}"))}
    report, log = folder / f"{tool.file}.xml", folder / f"{tool.file}.log"
    command = [sys.executable, "-m", "pytest", str(here / tool.file), "-q", "-p", "no:cacheprovider", "--tb=short"]
    command += [f"--junitxml={report}", "-o", "junit_family=xunit1"]
    if expression := selection(chosen):
        command += ["-k", expression]
    with log.open("wb") as output:
        try:
            done = subprocess.run(
                command,
                cwd=HERE.parents[1],
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=patience(_MOST),
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {tool.title: dict.fromkeys(chosen, Outcome("FAIL", f"{tool.file} does not end"))}
    found = outcomes_in(report, tool, chosen) if report.exists() else {}
    failed = any(outcome.word == "FAIL" for row in found.values() for outcome in row.values())
    if failed or (found and done.returncode in _GOOD):
        return found
    last = log.read_text(errors="replace").strip().splitlines()[-1:]
    why = f"the exit status of pytest is {done.returncode}: {''.join(last)}"
    return {tool.title: dict.fromkeys(chosen, Outcome("FAIL", why))}
