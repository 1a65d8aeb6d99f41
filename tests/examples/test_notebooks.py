"""The notebooks: they are kept without results, and their code runs."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = Path(__file__).resolve().parents[2] / "examples" / "notebooks"
NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
#: Most seconds for a cell.
_PATIENCE = 900

pytestmark = pytest.mark.skipif(not NAMES, reason="without the examples: this is not the whole tree")


@pytest.mark.parametrize("name", NAMES)
def test_code_compiles_and_so_do_the_programs_in_it(name: str) -> None:
    cells: list[dict[str, Any]] = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells), "clear the results"
    for cell in cells:
        if cell["cell_type"] == "code":
            text = "".join(cell["source"])
            ast.parse(text.partition("\n")[2] if text.startswith("%%writefile") else text)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_runs(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With fewer messages; the notebooks assert that nothing is missing or doubled."""
    for package in ("ipykernel", "pyspark"):
        pytest.importorskip(package)
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    monkeypatch.setenv("NOTEBOOK_MESSAGES", "1200")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    # Started there, the kernel imports the installed package, not this tree; and it leaves its files there.
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=_PATIENCE, kernel_name="python3", resources=where).execute()
