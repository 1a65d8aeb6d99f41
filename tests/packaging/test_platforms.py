"""The table of platforms agrees with the workflow that builds wheels, and with pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "platforms.md"
WORKFLOW = ROOT / ".github" / "workflows" / "wheels.yml"  # not in the sdist

pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="there is no docs/ beside tests/")

#: How wheels of a runner are called.
WHEELS = {
    "ubuntu-latest": {"manylinux_x86_64", "musllinux_x86_64"},
    "ubuntu-24.04-arm": {"manylinux_aarch64", "musllinux_aarch64"},
    "macos-15": {"macosx_arm64"},
    "macos-15-intel": {"macosx_x86_64"},
    "windows-latest": {"win_amd64"},
    "windows-11-arm": {"win_arm64"},
    "ubuntu-24.04": {"pyodide_wasm32"},
}


def table() -> list[list[str]]:
    """Return the rows of the page: platform, wheel, runner, state, what was run."""
    rows = re.findall(r"^\| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)[2:]
    return [[cell.strip("`* ") for cell in row.split(" | ")] for row in rows]


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.mark.skipif(not WORKFLOW.is_file(), reason="there is no workflow here")
def test_the_workflow_builds_the_wheels_of_the_table() -> None:
    yaml = pytest.importorskip("yaml")
    matrix = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]["wheels"]["strategy"]["matrix"]
    runners = {*matrix["os"], *(each["os"] for each in matrix["include"])}
    built = {(runner, wheel) for _, wheel, runner, *_ in table() if wheel != "none"}
    assert built == {(runner, wheel) for runner in runners for wheel in WHEELS[runner]}


def test_each_supported_python_gets_wheels() -> None:
    settings = project()
    numbers = [each.rpartition(" ")[2] for each in settings["project"]["classifiers"] if "Python :: 3." in each]
    wanted = [f"cp{number.replace('.', '')}-*" for number in numbers]
    found = settings["tool"]["cibuildwheel"]["build"]
    assert [each for each in found if "t-" not in each] == wanted
    assert [each for each in found if "t-" in each] == ["cp314t-*", "cp315t-*"]
    assert settings["project"]["requires-python"] == f">={numbers[0]}"


def test_states_are_those_that_the_page_explains() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for *_, state, _ in table():
        assert state in ("run here", "simulated here", "compiled here", "never run"), state
        assert f"*{state.removesuffix(' here')}" in text
