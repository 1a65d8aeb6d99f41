"""The table of speed tricks, src/tricks.json, agrees with the code, the page, the Makefile and the workflow."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
TABLE = SRC / "tricks.json"
HEADER = SRC / "stomp_tricks.h"
#: An error kind, which happens to begin like a switch.
_OTHERS = {"STOMP_NO_MEMORY"}
#: Switches that decide what the preprocessor includes: they have no default of 0.
_CONDITIONS = {"STOMP_NO_SIMD", "STOMP_NO_AVX2"}

pytestmark = pytest.mark.skipif(not TABLE.is_file(), reason="there is no src/ beside tests/")


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let scripts be imported by their names."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    names = {"page_blocks", "private_build", "test_tricks", "tricks_page"}
    before = {name: sys.modules.pop(name) for name in names & sys.modules.keys()}
    yield
    for name in names & sys.modules.keys():
        del sys.modules[name]
    sys.modules.update(before)


def script(name: str) -> ModuleType:
    return importlib.import_module(name)


def table() -> list[dict[str, str]]:
    return json.loads(TABLE.read_text(encoding="utf-8"))


def sources() -> dict[Path, str]:
    """The text of all C and Cython by hand, but for the defaults of the switches."""
    paths = [path for path in SRC.rglob("*") if path.suffix in (".c", ".h", ".pyx", ".pxi")]
    return {path: path.read_text("utf-8") for path in paths if path.name not in ("_codec_c.c", HEADER.name)}


def switches(text: str) -> set[str]:
    return set(re.findall(r"\bSTOMP_NO_[A-Z0-9_]*[A-Z0-9]\b", text)) - _OTHERS


def test_the_table_has_the_switches_of_the_code() -> None:
    named = [trick["macro"] for trick in table()]
    assert len(named) == len(set(named))
    used = set().union(*map(switches, sources().values()))
    assert set(named) == used


def test_the_code_has_a_default_for_each_switch() -> None:
    defaults = re.findall(r"#ifndef (STOMP_NO_\w+)\n#define \1 0\n#endif\n", HEADER.read_text("utf-8"))
    assert sorted(defaults) == sorted({trick["macro"] for trick in table()} - _CONDITIONS)


def test_cython_knows_the_switches_that_it_uses() -> None:
    declared = switches((SRC / "stomp.pxd").read_text("utf-8"))
    used = set().union(*(switches(text) for path, text in sources().items() if path.suffix in (".pyx", ".pxi")))
    assert declared == used


@pytest.mark.parametrize("trick", table() if TABLE.is_file() else [], ids=lambda trick: trick["macro"])
def test_a_trick_is_in_the_files_that_its_entry_names(trick: dict[str, str]) -> None:
    texts = [(SRC / name).read_text("utf-8") for name in trick["files"]]
    parts = {
        "STOMP_NO_SIMD": "STOMP_NEON",
        "STOMP_NO_AVX2": "STOMP_AVX2",
        "STOMP_NO_UTF8_BLOCKS": "stomp_utf8_errors",
        "STOMP_NO_UTF8_TABLES": "stomp_utf8_tables",
    }
    part = parts.get(trick["macro"], trick["macro"].replace("_NO_", "_(NO_)?"))
    found = [bool(re.search(part, text) or trick["macro"] in text) for text in texts]
    assert all(found), dict(zip(trick["files"], found))


def test_each_trick_and_all_at_once_get_a_build(scripts: None) -> None:
    builds = script("test_tricks").builds()
    named = [trick["macro"] for trick in table()]
    assert list(builds.values()) == [*((macro,) for macro in named), tuple(named), ()]


def test_a_build_leaves_out_the_tests_of_its_own_gain(scripts: None) -> None:
    module = script("test_tricks")
    left_out = {name: module.gain_tests(name) for name in module.builds()}
    assert left_out["none"] == left_out["simd"] == []
    assert left_out["all"] == [test for name in left_out if name != "all" for test in left_out[name]]
    assert left_out["kept-heap"]
    assert left_out["known-names"]
    for option in left_out["all"]:
        path, name = option.removeprefix("--deselect=").split("::")
        assert f"\ndef {name}(" in (ROOT / path).read_text("utf-8"), option


def test_a_private_build_has_the_sources_of_setup(scripts: None) -> None:
    text = (ROOT / "setup.py").read_text("utf-8")
    names = re.search(r"^SHARED = \[(.*)\]$", text, re.MULTILINE)
    assert names is not None
    assert list(script("private_build").SHARED) == re.findall(r'"(.*?)"', names[1])
    assert text.count("        extension(") == 2


def test_the_page_shows_the_table_and_its_counts(scripts: None) -> None:
    page = script("tricks_page")
    assert page.run("tricks", page.draw, ["--check"], ROOT / "docs" / "tricks.md") == 0, "run scripts/tricks_page.py"
    counts = json.loads((ROOT / "benchmarks" / "tricks.json").read_text("utf-8"))
    assert set(counts["without"]) == {trick["macro"] for trick in table()}
    assert set(counts["with all"]) == {trick["row"] for trick in table()}


def test_make_runs_them() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert re.search(r"^test-tricks: .*\n\t@\$\(BIN\)/python scripts/test_tricks\.py ", makefile, re.MULTILINE)
    workflow = ROOT / ".github" / "workflows" / "ci.yml"  # not in the sdist
    if workflow.is_file():
        assert {"make test-tricks FUZZ=20000", "make test-${{ matrix.machine }}"} <= {
            line.strip().removeprefix("- run: ") for line in workflow.read_text("utf-8").splitlines()
        }
