"""Write the table of docs/tricks.md from src/tricks.json and the counts in benchmarks/tricks.json.

tricks_page.py             write the block
tricks_page.py --check     exit status 1 if the block is stale
"""

from __future__ import annotations

import json
import sys
from typing import Any

from page_blocks import ROOT, run

TABLE = ROOT / "src" / "tricks.json"
COUNTS = ROOT / "benchmarks" / "tricks.json"


def line(trick: dict[str, Any], counts: dict[str, Any]) -> str:
    """Return the line of a trick in the table."""
    files = ", ".join(f"`{name}`" for name in trick["files"])
    row, macro = trick["row"], trick["macro"]
    with_it, without = counts["with all"].get(row), counts["without"].get(macro)
    figures = f"{row}: {with_it:,} | {without:,}" if with_it and without else f"{row}: not counted | not counted"
    return f"| **{trick['name']}.** {trick['does']} {files} | `{macro}` | {figures} |"


def draw() -> str:
    """Return the table, and what the counts were measured on."""
    counts = json.loads(COUNTS.read_text(encoding="utf-8"))
    head = "| trick | macro | with it | without |\n| --- | --- | --- | --- |"
    lines = [line(trick, counts) for trick in json.loads(TABLE.read_text(encoding="utf-8"))]
    return "\n".join([head, *lines, "", f"Counted on {counts['measured on']}."])


if __name__ == "__main__":
    sys.exit(run("tricks", draw, sys.argv[1:], ROOT / "docs" / "tricks.md"))
