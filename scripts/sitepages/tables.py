"""Tables of the reference, and the page of the rules of lint."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from stompcodec.cli.linting import titles


def cell(text: str) -> str:
    """Return a text for a cell of a table: code stays code, everything else is escaped."""
    parts = re.split(r"(`[^`]+`)", " ".join(text.split()))
    for place in range(0, len(parts), 2):
        parts[place] = re.sub(r"([*_\[\]\\])", r"\\\1", parts[place].replace("&", "&amp;").replace("<", "&lt;"))
    return "".join(parts).replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table; cells are Markdown already."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + " --- |" * len(head)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def pages() -> dict[str, str]:
    """Return the text of the page by its name."""
    return {"reference/lint-rules.md": "\n".join(_lint_rules()) + "\n"}


def _lint_rules() -> Iterator[str]:
    rules = titles()
    yield "# Rules of `stompcodec lint`\n"
    yield f"The {len(rules)} requirements that findings name, in our own words, by the version of STOMP: `S10` is 1.0,"
    yield "`S11` 1.1, `S12` 1.2, `LEG` the older worker dialect. `stompcodec lint FILE` prints the id, the offset and"
    yield "what to do; `--json`, and SARIF for code hosts, are formats of the same. What no requirement covers has a"
    yield "[kind of error](../troubleshooting.md#reading-and-writing-frames) as its id.\n"
    names = {"S10": "STOMP 1.0", "S11": "STOMP 1.1", "S12": "STOMP 1.2", "LEG": "The older worker dialect"}
    for prefix in dict.fromkeys(rule.partition("-")[0] for rule in rules):
        yield f"\n## {names.get(prefix, prefix)}\n"
        rows = ([f"`{rule}`", cell(text)] for rule, text in rules.items() if rule.startswith(f"{prefix}-"))
        yield from table(["rule", "it says"], rows)
