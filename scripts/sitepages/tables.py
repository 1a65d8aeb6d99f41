"""Pages of the reference that are tables: options, limits, rules of lint."""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass
from importlib.resources import files
from typing import Any


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
    """Return the texts of all pages by their names."""
    makers = {"client-options": _client_options, "lint-rules": _lint_rules}
    return {f"reference/{name}.md": "\n".join(make()) + "\n" for name, make in makers.items()}


def _said_of_fields(kind: type) -> dict[str, str]:
    """Return what a class says of its fields: in its section Args, and in the docstrings below them."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    arguments = (inspect.getdoc(kind) or "").partition("Args:\n")[2].partition("\n\n")[0]
    said, name = dict(re.findall(r"^    (\w+): (.*(?:\n      .*)*)", arguments, re.MULTILINE)), ""
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        elif name and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            said[name] = inspect.cleandoc(str(node.value.value))
            name = ""
    return said


def _rows_of(kind: Any) -> Iterator[list[str]]:
    said = _said_of_fields(kind)
    for name, default in _defaults(kind).items():
        written = f"`{kind.__annotations__[name]}`".replace("|", "\\|")
        yield [f"`{name}`", written, f"`{default!r}`".replace("|", "\\|"), cell(said.get(name, ""))]


def _defaults(kind: Any) -> dict[str, Any]:
    """Return the defaults of a dataclass or a named tuple; each field has one."""
    if not is_dataclass(kind):
        return dict(kind._field_defaults)
    return {each.name: each.default if each.default is not MISSING else {} for each in fields(kind)}


def _client_options() -> Iterator[str]:
    from stompcodec.client import Options
    from stompcodec.client.options import Backoff
    from stompcodec.spec import Limits

    yield "# Client options\n"
    yield "Every option of `connect` and `connect_async`, written from `stompcodec.client.Options`. Times are in"
    yield "seconds, sizes in bytes. [The client](../client.md) explains them in context.\n"
    yield from table(["option", "type", "default", ""], _rows_of(Options))
    for title, kind in (("Delays between attempts: `Backoff`", Backoff), ("Sizes of frames: `Limits`", Limits)):
        yield f"\n## {title}\n\n{_first(kind)}\n"
        yield from table(["field", "type", "default", ""], _rows_of(kind))


def _first(found: object) -> str:
    return (inspect.getdoc(found) or "").split("\n\n")[0].replace("\n", " ")


def _lint_rules() -> Iterator[str]:
    titles: dict[str, str] = json.loads(files("stompcodec.cli").joinpath("rules.json").read_text("utf-8"))
    yield "# Rules of `stompcodec lint`\n"
    yield f"The {len(titles)} requirements that findings name, in our own words, by the version of STOMP: `S10` is 1.0,"
    yield "`S11` 1.1, `S12` 1.2, `LEG` the older worker dialect. `stompcodec lint FILE` prints the id, the offset and"
    yield "what to do; `--json`, and SARIF for code hosts, are formats of the same. What no requirement covers has a"
    yield "[kind of error](../error-messages.md#reading-and-writing-frames) as its id.\n"
    names = {"S10": "STOMP 1.0", "S11": "STOMP 1.1", "S12": "STOMP 1.2", "LEG": "The older worker dialect"}
    prefixes = list(dict.fromkeys(rule.partition("-")[0] for rule in titles))
    for prefix in prefixes:
        yield f"\n## {names.get(prefix, prefix)}\n"
        rows = ([f"`{rule}`", cell(text)] for rule, text in titles.items() if rule.startswith(f"{prefix}-"))
        yield from table(["rule", "it says"], rows)
