"""Write docs/requirements.md: each rule of tests/requirements.tsv with the tests that prove it.

    python scripts/rules_page.py [--check]   --check writes nothing, and fails if the page is stale

A test proves a rule by `@pytest.mark.req("S12-ESC-01")`, a vector or scenario by its key `requirements`.
"""

from __future__ import annotations

import ast
import csv
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "requirements.md"
RULE = re.compile(r"\b(?:S10|S11|S12|LEG|WISH|ART)-[A-Z0-9]+-\d+\b")
#: Value of the column `protocol` -> title of its section.
PROTOCOLS = {
    "1.2": "STOMP 1.2",
    "1.1": "STOMP 1.1",
    "1.0": "STOMP 1.0",
    "legacy": "The older worker dialect",
    "artemis": "Artemis",
    "wishlist": "Beyond the specifications",
}
#: How many files a row names; the others are counted.
_MOST = 4


class Proof(NamedTuple):
    """A test that names a rule.

    Args:
        file: of the tests, with slashes.
        name: of the test, vector or scenario.
    """

    file: str
    name: str


def rules() -> list[dict[str, str]]:
    """Return the rows of tests/requirements.tsv."""
    with (ROOT / "tests" / "requirements.tsv").open(encoding="utf-8", newline="") as source:
        return list(csv.DictReader(source, delimiter="\t"))


def _requires(node: ast.AST) -> Iterator[ast.Call]:
    """Yield each `pytest.mark.req(…)` in the node."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.req":
            yield call


def _marked(text: str) -> Iterator[tuple[str, str]]:
    """Yield each rule of a mark with the name of its test; "" stands for the whole file, or a table of its cases."""
    tree = ast.parse(text)
    owners: dict[ast.Call, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            owners.update((call, node.name) for mark in node.decorator_list for call in _requires(mark))
    for call in _requires(tree):
        for rule in RULE.findall(ast.unparse(call)):
            yield rule, owners.get(call, "")


def _named_by_json(text: str) -> Iterator[tuple[str, str]]:
    """Yield each rule with the id of the vector or scenario that names it."""
    table = json.loads(text)
    for case in table if isinstance(table, list) else table.get("scenarios", table.get("vectors", [])):
        for rule in case.get("requirements", ()):
            yield rule, case["id"]


def proofs(tests: Path) -> dict[str, list[Proof]]:
    """Return the proofs of each rule, in the order of the files."""
    found: dict[str, dict[Proof, None]] = {}
    files = [*sorted(tests.glob("vectors/*.json")), *sorted(tests.glob("scenarios/*.json"))]
    for path in [*files, *sorted(tests.rglob("test_*.py"))]:
        text = path.read_text(encoding="utf-8")
        if RULE.search(text):
            for rule, name in (_named_by_json if path.suffix == ".json" else _marked)(text):
                found.setdefault(rule, {})[Proof(path.relative_to(tests).as_posix(), name)] = None
    return {rule: list(cases) for rule, cases in found.items()}


def counts(rows: list[dict[str, str]], found: dict[str, list[Proof]]) -> dict[str, tuple[int, int]]:
    """Return for each protocol how many of its rules are proven, and how many it has."""
    return {
        name: (sum(row["id"] in found for row in rows if row["protocol"] == name), len(own))
        for name in PROTOCOLS
        if (own := [row for row in rows if row["protocol"] == name])
    }


def cell(cases: list[Proof]) -> str:
    """Return the last cell of a row.

    >>> cell([Proof("vectors/a.json", "A-1"), Proof("vectors/a.json", "A-2"), Proof("b/test_c.py", "test_d")])
    '[vectors/a.json](../tests/vectors/a.json): A-1, A-2; [b/test_c.py](../tests/b/test_c.py): `test_d`'
    """
    files: dict[str, list[str]] = {}
    for case in cases:
        files.setdefault(case.file, []).append(f"`{case.name}`" if case.name.startswith("test_") else case.name)
    parts = []
    for file, names in list(files.items())[:_MOST]:
        shown = ", ".join(name for name in names[:3] if name) + (
            f" and {len(names) - 3} more" if len(names) > 3 else ""
        )
        parts.append(f"[{file}](../tests/{file})" + (f": {shown}" if shown else ""))
    more = f"; and {len(files) - _MOST} more files" if len(files) > _MOST else ""
    return "; ".join(parts) + more if parts else "**no test**"


def page() -> str:
    """Return the text of the page."""
    rows, found = rules(), proofs(ROOT / "tests")
    total = [sum(figures) for figures in zip(*counts(rows, found).values())]
    text = f"""# Requirements and their tests

Written by `scripts/rules_page.py`. {total[0]} of {total[1]} rules are named by a test: those of STOMP 1.0, 1.1 and
1.2, of the older worker dialect and of Artemis, and what users of other libraries asked for.
[tests/requirements.tsv](../tests/requirements.tsv) has the same list with the source of each rule. `make vectors` and
`make scenarios` run the files of JSON against our codec and broker, [conformance.md](conformance.md) says how
to run them against any other; [proofs.md](proofs.md) has what else was proven.
"""
    for protocol, (proven, number) in counts(rows, found).items():
        text += f"\n## {PROTOCOLS[protocol]}\n\n{proven} of {number} rules are named by a test.\n\n"
        text += "| rule | level | binds | what it says | proven by |\n| --- | --- | --- | --- | --- |\n"
        for row in rows:
            if row["protocol"] == protocol:
                says = row["requirement"].replace("|", "\\|").replace("<", "&lt;")
                binds = row["binds"].replace(",", ", ")
                text += f"| {row['id']} | {row['level']} | {binds} | {says} | {cell(found.get(row['id'], []))} |\n"
    return text


def main() -> int:
    text = page()
    if "--check" in sys.argv[1:]:
        if not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text:
            print(f"{PAGE.relative_to(ROOT)} is stale: run python scripts/rules_page.py")
            return 1
    else:
        PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
