"""The notebooks: each page has the text and the code of its notebook, and the code runs."""

from __future__ import annotations

import ast
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "notebooks.py"

pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="without the scripts: this is not the whole tree")


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("notebooks_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load()


@pytest.fixture
def copied(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[Path, Path]]:
    """Copy a notebook and its page to a folder, where they may be changed."""

    def copy(name: str) -> tuple[Path, Path]:
        notebook, page = tmp_path / f"{name}.ipynb", tmp_path / f"{name}.md"
        notebook.write_bytes((script.NOTEBOOKS / notebook.name).read_bytes())
        page.write_bytes((script.PAGES / page.name).read_bytes())
        monkeypatch.setattr(script, "NOTEBOOKS", tmp_path)
        monkeypatch.setattr(script, "PAGES", tmp_path)
        return notebook, page

    return copy


NAMES = sorted(path.stem for path in (ROOT / "examples" / "notebooks").glob("*.ipynb"))


def cells(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((ROOT / "examples" / "notebooks" / f"{name}.ipynb").read_text("utf-8"))[
        "cells"
    ]
    return found


def test_there_are_notebooks() -> None:
    assert {"delta", "parquet", "scripts"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_page_has_the_text_and_the_code_of_the_notebook(script: ModuleType, name: str) -> None:
    assert script.stale(name) == ""


@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_a_run_without_errors_and_without_its_machine(script: ModuleType, name: str) -> None:
    text = (script.PAGES / f"{name}.md").read_text("utf-8")
    results = "".join(script._OUTPUT.findall(text))
    assert results.count(script._BEGIN) >= 2
    for word in ("Traceback", "/tmp/", "/home/", "/root", "127.0.0.1", "localhost"):
        assert word not in results


@pytest.mark.parametrize("name", NAMES)
def test_code_compiles_and_so_do_the_programs_in_it(script: ModuleType, name: str) -> None:
    for cell in cells(name):
        if cell["cell_type"] == "code":
            text = script.source(cell)
            ast.parse(text.partition("\n")[2] if text.startswith("%%writefile") else text)


def test_changed_code_makes_the_page_stale(script: ModuleType, copied: Callable[[str], tuple[Path, Path]]) -> None:
    notebook, page = copied("scripts")
    assert script.stale("scripts") == ""
    notebook.write_text(notebook.read_text("utf-8").replace("MESSAGES = 2000", "MESSAGES = 2001"), "utf-8")
    assert "not the text and code" in script.stale("scripts")
    page.unlink()
    assert "missing" in script.stale("scripts")


def test_changed_results_do_not(script: ModuleType, copied: Callable[[str], tuple[Path, Path]]) -> None:
    _, page = copied("scripts")
    page.write_text(page.read_text("utf-8").replace("| 2100 |", "| 2200 |"), "utf-8")
    assert script.stale("scripts") == ""


def test_results_in_a_notebook_are_refused(script: ModuleType, copied: Callable[[str], tuple[Path, Path]]) -> None:
    notebook, _ = copied("scripts")
    content = json.loads(notebook.read_text("utf-8"))
    next(cell for cell in content["cells"] if cell["cell_type"] == "code")["execution_count"] = 1
    notebook.write_text(json.dumps(content), "utf-8")
    assert "has results" in script.stale("scripts")


def _output(**data: str) -> dict[str, Any]:
    return {"output_type": "display_data", "data": {name.replace("_", "/"): text for name, text in data.items()}}


def test_results_become_markdown(script: ModuleType) -> None:
    table = "<table><tr><th></th><th>a|b</th></tr><tr><th>0</th><td>12</td></tr><tr><th>1</th><td>3</td></tr></table>"
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": ["one\n", "two\n"]},
        {"output_type": "stream", "name": "stderr", "text": "a warning"},
        _output(text_html=table, text_plain="not shown"),
        {"output_type": "display_data", "data": {"image/svg+xml": "<svg/>", "text/plain": "<Figure>"}},
        _output(text_plain="{'a': 1}"),
    ]
    cell = {"cell_type": "code", "source": "f()", "outputs": outputs}
    title = {"cell_type": "markdown", "source": ["# T"]}
    pictures: dict[str, bytes] = {}
    text = script.page({"cells": [title, cell]}, "x", pictures)
    assert text == (
        "# T\n\n<!-- written by scripts/notebooks.py from examples/notebooks/x.ipynb -->\n\n```python\nf()\n```\n\n"
        "<!-- output -->\n```text\none\ntwo\n```\n\n| a\\|b |\n| --: |\n| 12 |\n| 3 |\n\n"
        "![A plot of this run](x-1.svg)\n\n```text\n{'a': 1}\n```\n\n<!-- end of output -->\n"
    )
    assert pictures == {"x-1.svg": b"<svg/>"}
    assert script.written(text) == script.written(script.page({"cells": [title, {**cell, "outputs": []}]}, "x", {}))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_runs(script: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer messages; the notebooks assert that nothing is missing or doubled."""
    for package in ("nbclient", "nbformat", "ipykernel", "deltalake", "pyspark", "stomp"):
        pytest.importorskip(package)
    monkeypatch.setenv("NOTEBOOK_MESSAGES", "1200")
    script.execute(name)
