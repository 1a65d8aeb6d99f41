"""Write the table of docs/platforms.md from scripts/platforms.json, or check it (--check)."""

from __future__ import annotations

import json
import sys

from page_blocks import ROOT, run

TABLE = ROOT / "scripts" / "platforms.json"


def draw() -> str:
    """Return the table: each platform, its wheel, where the workflow builds that, and what was tried."""
    lines = ["| platform | wheel | built by the workflow on | tried | what |", "| --- | --- | --- | --- | --- |"]
    for row in json.loads(TABLE.read_text(encoding="utf-8")):
        wheel, runner = (f"`{row[key]}`" if row[key] else "none" for key in ("wheel", "runner"))
        lines.append(f"| {row['platform']} | {wheel} | {runner} | **{row['state']}** | {row['what']} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(run("platforms", draw, sys.argv[1:], ROOT / "docs" / "platforms.md"))
