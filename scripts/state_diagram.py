"""Write the diagrams and tables of docs/states.md from stompcodec/states.py; the text between them is written by hand.

state_diagram.py [--check]    with --check: exit status 1 if the page is not what the tables say
"""

from __future__ import annotations

import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path
from textwrap import wrap

from stompcodec.spec import CLIENT_1_0, CLIENT_1_1, SERVER
from stompcodec.states import REQUIRED_HEADERS, Sender, State, next_state

PAGE = Path(__file__).resolve().parents[1] / "docs" / "states.md"
COMMANDS: dict[Sender, tuple[str, ...]] = {"client": CLIENT_1_1, "server": SERVER}
VERSIONS = ("1.2", "1.1", "1.0")

#: What the page has of the tables: diagrams and tables, in the order of `page`.
BLOCK = re.compile(r"^```mermaid\n(?:.*\n)*?```\n|^(?:\|.*\n)+", re.MULTILINE)


def meanings() -> dict[str, str]:
    """Return the docstrings of the states: the strings behind them in the source."""
    found = re.findall(r'^    (\w+) = .*\n    """((?:.|\n)*?)"""', inspect.getsource(State), re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


def arrows(version: str) -> dict[tuple[State, State], dict[Sender, list[str]]]:
    """Return (from, to) -> sender -> commands."""
    found: dict[tuple[State, State], dict[Sender, list[str]]] = defaultdict(lambda: defaultdict(list))
    for state, (sender, commands) in product(State, COMMANDS.items()):
        for command in commands:
            if (after := next_state(sender, state, command, version)) is not None:
                found[state, after][sender].append(command)
    return found


def diagram(version: str) -> Iterator[str]:
    """Yield the arrows as a Mermaid state diagram."""
    yield f"```mermaid\nstateDiagram-v2\n    [*] --> {State.NEW.name}"
    for (state, after), by in arrows(version).items():
        lines = (wrap(f"{sender} {', '.join(commands)}", 32) for sender, commands in by.items())
        yield f"    {state.name} --> {after.name} : {'<br/>'.join(chain.from_iterable(lines))}"
    for state in (State.DISCONNECTING, State.FAILED):
        yield f"    {state.name} --> {State.CLOSED.name} : the stream ends"
    yield f"    {State.CLOSED.name} --> [*]\n```"


def state_table(version: str) -> Iterator[str]:
    """Yield what each side may send in each state."""
    yield "| state | meaning | the client may send | the server may send |\n| --- | --- | --- | --- |"
    for state in State:
        cells = [state.name, meanings()[state.name]]
        for sender in COMMANDS:
            parts = (
                f"{', '.join(by[sender])}{'' if after is state else f' → {after.name}'}"
                for (start, after), by in arrows(version).items()
                if start is state and sender in by
            )
            cells.append("; ".join(parts) or "nothing")
        yield f"| {' | '.join(cells)} |"


def header_table() -> Iterator[str]:
    """Yield which headers a frame needs, by version."""
    yield f"| frame | {' | '.join(VERSIONS)} |\n| --- |{' --- |' * len(VERSIONS)}"
    for sender, commands in COMMANDS.items():
        for command in commands:
            cells = [command]
            for version in VERSIONS:
                names = REQUIRED_HEADERS[version, sender].get(command, ())
                text = ", ".join(" or ".join(name.split("|")) for name in names)
                there = sender == "server" or version != "1.0" or command in CLIENT_1_0
                cells.append((text or "–") if there else "no such frame")
            yield f"| {' | '.join(cells)} |"


def page() -> str:
    """Return the page with the diagrams and tables of now."""
    assert arrows("1.0") == arrows("1.1"), "one more section is needed"
    parts = iter((diagram("1.2"), state_table("1.2"), header_table()))
    text = BLOCK.sub(lambda _: "\n".join(next(parts)) + "\n", PAGE.read_text("utf-8"))
    assert not list(parts), f"{PAGE.name} lacks a diagram or a table"
    return text


if __name__ == "__main__":
    text = page()
    if "--check" in sys.argv[1:] and text != PAGE.read_text("utf-8"):
        sys.exit(f"{PAGE.name} is stale: run scripts/state_diagram.py")
    PAGE.write_text(text, "utf-8")
    print(f"{PAGE.name}: {len(State)} states, {len(arrows('1.2'))} arrows in 1.2, {len(arrows('1.1'))} in 1.1 and 1.0")
