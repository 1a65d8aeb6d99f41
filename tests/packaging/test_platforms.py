"""The table of platforms agrees with the workflow that builds wheels, with pyproject.toml and with its page."""

from __future__ import annotations

import importlib
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "scripts" / "platforms.json"
WORKFLOW = ROOT / ".github" / "workflows" / "wheels.yml"  # not in the sdist

pytestmark = pytest.mark.skipif(not TABLE.is_file(), reason="there is no scripts/ beside tests/")

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


def table() -> list[dict[str, str]]:
    return json.loads(TABLE.read_text(encoding="utf-8"))


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.mark.skipif(not WORKFLOW.is_file(), reason="there is no workflow here")
def test_the_workflow_builds_the_wheels_of_the_table() -> None:
    yaml = pytest.importorskip("yaml")
    matrix = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]["wheels"]["strategy"]["matrix"]
    runners = {*matrix["os"], *(each["os"] for each in matrix["include"])}
    built = {(row["runner"], row["wheel"]) for row in table() if row["wheel"]}
    assert built == {(runner, wheel) for runner in runners for wheel in WHEELS[runner]}


def test_each_supported_python_gets_wheels() -> None:
    settings = project()
    numbers = [each.rpartition(" ")[2] for each in settings["project"]["classifiers"] if "Python :: 3." in each]
    wanted = [f"cp{number.replace('.', '')}-*" for number in numbers]
    found = settings["tool"]["cibuildwheel"]["build"]
    assert [each for each in found if "t-" not in each] == wanted
    assert [each for each in found if "t-" in each] == ["cp314t-*", "cp315t-*"]
    assert settings["project"]["requires-python"] == f">={numbers[0]}"


def test_the_page_shows_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    page = importlib.import_module("platforms_page")
    status = page.run("platforms", page.draw, ["--check"], ROOT / "docs" / "platforms.md")
    assert status == 0, "run scripts/platforms_page.py"


def test_states_are_those_that_the_page_explains() -> None:
    text = (ROOT / "docs" / "platforms.md").read_text(encoding="utf-8")
    for row in table():
        assert row["state"] in ("run here", "simulated here", "compiled here", "never run"), row
        assert f"*{row['state'].removesuffix(' here')}" in text
