"""Run the notebooks of examples/notebooks, and write each with its results as a page of docs/notebooks.

    python scripts/notebooks.py [NAME ...] [--check]

Each runs in a kernel of its own, in a temporary folder; one that raises an error ends this with its text, and its page
stays as it was. The executed notebook is written to build/notebooks, too. --check runs nothing: it says whether the
pages have the text and the code of the notebooks, and needs only Python.
"""

from __future__ import annotations

import argparse
import base64
import importlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "examples" / "notebooks"
PAGES = ROOT / "docs" / "notebooks"
EXECUTED = ROOT / "build" / "notebooks"
#: Most seconds for a cell.
_PATIENCE = 900
_BEGIN, _END = "<!-- output -->", "<!-- end of output -->"
_OUTPUT = re.compile(rf"{_BEGIN}\n.*?{_END}\n\n", re.DOTALL)
#: Plots are SVG, without the date.
_SETUP = """
import matplotlib_inline.backend_inline
matplotlib_inline.backend_inline.set_matplotlib_formats("svg", metadata={"Date": None})
"""
_MIMES = ("image/svg+xml", "image/png", "text/markdown", "text/html", "text/plain")


def names() -> list[str]:
    """Return the names of all notebooks.

    >>> names()
    ['delta', 'parquet', 'scripts']
    """
    return sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))


def source(cell: dict[str, Any]) -> str:
    """Return the text of a cell; the file format has a text or a list of lines.

    >>> source({"source": ["a\\n", "b"]})
    'a\\nb'
    """
    text = cell["source"]
    return text if isinstance(text, str) else "".join(text)


def page(notebook: dict[str, Any], name: str, pictures: dict[str, bytes]) -> str:
    """Return a notebook as Markdown.

    Args:
        notebook: as the file format has it, executed or not.
        name: of the notebook, with which the names of its pictures begin.
        pictures: gets the pictures, by their names.
    """
    link = f"examples/notebooks/{name}.ipynb"
    parts = [f"<!-- written by scripts/notebooks.py from {link} -->\n"]
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            parts.append(f"{source(cell)}\n")
            continue
        parts.append(f"```python\n{source(cell)}\n```\n")
        shown = [text for output in cell["outputs"] for text in _shown(output, name, pictures)]
        if shown and not source(cell).startswith("%%writefile"):
            parts.append("\n\n".join([_BEGIN, *shown, _END]).replace(f"{_BEGIN}\n\n", f"{_BEGIN}\n") + "\n")
    # The title comes first: the site takes it from there.
    return "\n".join([parts[1], parts[0], *parts[2:]])


def _shown(output: dict[str, Any], name: str, pictures: dict[str, bytes]) -> Iterator[str]:
    """Yield an output of a cell as Markdown; what goes to standard error is not shown."""
    if output["output_type"] == "stream":
        if output["name"] == "stdout" and _text(output["text"]).strip():
            yield f"```text\n{_text(output['text']).rstrip()}\n```"
        return
    data = output.get("data", {})
    for mime in _MIMES:
        if mime not in data:
            continue
        text = _text(data[mime])
        if mime.startswith("image/"):
            suffix, content = ("svg", text.encode()) if "svg" in mime else ("png", base64.b64decode(text))
            picture = f"{name}-{len(pictures) + 1}.{suffix}"
            pictures[picture] = content
            yield f"![A plot of this run]({picture})"
        elif mime == "text/html":
            yield _table(text)
        else:
            yield text if mime == "text/markdown" else f"```text\n{text.rstrip()}\n```"
        return


def _text(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


def _table(html: str) -> str:
    """Return the table that pandas shows as a table of Markdown."""
    rows = []
    for row in re.findall(r"<tr[^>]*>(.*?)</tr>", html, re.DOTALL):
        cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)
        rows.append([re.sub(r"<[^>]+>", "", cell).strip().replace("|", "\\|") for cell in cells])
    if all(row and row[0].isdigit() for row in rows[1:]):  # an index that only counts
        rows = [row[1:] for row in rows]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    numbers = [all(re.fullmatch(r"[\d,.]+", row[k]) for row in rows[1:]) for k in range(len(rows[0]))]
    return "\n".join([lines[0], "| " + " | ".join("--:" if each else "---" for each in numbers) + " |", *lines[1:]])


def written(text: str) -> str:
    """Return a page without its results: what a person has written.

    >>> written("a\\n\\n<!-- output -->\\n1\\n\\n<!-- end of output -->\\n\\nb\\n")
    'a\\n\\nb\\n'
    """
    return _OUTPUT.sub("", text if text.endswith("\n\n") else text + "\n").rstrip("\n") + "\n"


def stale(name: str) -> str:
    """Return why a page does not fit its notebook, or an empty text."""
    notebook = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))
    path = PAGES / f"{name}.md"
    if any(cell.get("outputs") or cell.get("execution_count") for cell in notebook["cells"]):
        return f"examples/notebooks/{name}.ipynb: has results; clear them: they belong to the page"
    if not path.is_file():
        return f"docs/notebooks/{name}.md: missing; run make notebooks"
    text = path.read_text("utf-8")
    if written(text) != written(page(notebook, name, {})):
        return f"docs/notebooks/{name}.md: not the text and code of its notebook; run make notebooks"
    return ""


def execute(name: str) -> dict[str, Any]:
    """Run a notebook, and return it with its results."""
    from nbclient import NotebookClient

    nbformat: Any = importlib.import_module("nbformat")  # without types
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(_SETUP))
    with tempfile.TemporaryDirectory(prefix="notebooks-") as folder:
        # Started there, the kernel imports the installed package, not this tree; and it leaves its files there.
        where = {"metadata": {"path": folder}}
        client = NotebookClient(notebook, timeout=_PATIENCE, kernel_name="python3", resources=where)
        client.execute(env={**os.environ, "TMPDIR": folder, "PYTHONPATH": str(ROOT / "examples")})
    del notebook.cells[0]
    result: dict[str, Any] = json.loads(nbformat.writes(notebook))
    return result


def run(name: str) -> None:
    """Run a notebook, and write its page and its pictures."""
    notebook = execute(name)
    for cell in notebook["cells"]:
        cell["metadata"].pop("execution", None)  # times of this machine
    EXECUTED.mkdir(parents=True, exist_ok=True)
    (EXECUTED / f"{name}.ipynb").write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")
    pictures: dict[str, bytes] = {}
    text = page(notebook, name, pictures)
    PAGES.mkdir(parents=True, exist_ok=True)
    for old in PAGES.glob(f"{name}-*"):
        old.unlink()
    for picture, content in pictures.items():
        (PAGES / picture).write_bytes(content)
    (PAGES / f"{name}.md").write_text(text, "utf-8")
    print(f"docs/notebooks/{name}.md: {text.count(chr(10))} lines, {len(pictures)} pictures", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(names())}; all of them")
    parser.add_argument("--check", action="store_true", help="run nothing; say whether pages are stale")
    arguments = parser.parse_args()
    chosen = arguments.names or names()
    if unknown := set(chosen) - set(names()):
        parser.error(f"no such notebook: {', '.join(sorted(unknown))}")
    if not arguments.check:
        for name in chosen:
            run(name)
        return 0
    wrong = [problem for problem in map(stale, chosen) if problem]
    print("\n".join(wrong) or f"{len(chosen)} pages of notebooks: up to date")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
