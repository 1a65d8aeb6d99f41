"""Writes docs/states.md, the picture of a conversation, from the tables in stompcodec/states.py.

Usage:
    state_diagram.py            writes the page
    state_diagram.py --check    exit status 1 if the page is not what the tables say
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

HEAD = """\
# The states of a conversation

<!-- Written by scripts/state_diagram.py from stompcodec/states.py. Do not edit: run the script again. -->

A conversation has one state, which is the same at both ends, except while frames are in transit. A
`stompcodec.connection.Connection` checks every frame, sent or received, against these tables. A frame that they forbid
raises `LocalProtocolError` if we were about to send it, or `RemoteProtocolError`, with the ERROR frame to send, if it
came from the peer.

"""

BETWEEN = """\
An arrow names who sends the frame. In every state the stream may end, which leads to CLOSED.
"""

OLDER = """\
## STOMP 1.0 and 1.1

The same, except that a server may send ERROR in CONNECTED and DISCONNECTING, and go on in that state. Ours closes the
connection after it, in every version.
"""

TAIL = """\
Frames that we send must have all of them. In frames that we receive, CONNECT may lack host, which then means the
server's default, and CONNECTED may lack session.

## Further rules

- After ERROR, a server reads no more: frames that the client had already sent are dropped, and are not a violation. The
  same holds after DISCONNECT.
- A server must answer CONNECT before it handles the next frame. Frames that a client sends right after CONNECT wait.
- EOLs between frames are heart-beats, which are allowed in every state.
- Commands given in `Connection(commands=...)` are allowed for both sides in CONNECTED, and need no headers.
"""


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
    yield f"    {State.CLOSED.name} --> [*]\n```\n"


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
    yield ""


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
    yield ""


def page() -> str:
    """Return the whole page."""
    assert arrows("1.0") == arrows("1.1"), "one more section is needed"
    parts = [f"{HEAD}## STOMP 1.2\n", *diagram("1.2"), BETWEEN, *state_table("1.2"), OLDER]
    return "\n".join([*parts, "## Required headers\n", *header_table(), TAIL])


def main() -> int:
    text = page()
    if "--check" in sys.argv[1:]:
        stale = not PAGE.is_file() or PAGE.read_text("utf-8") != text
        print(f"{PAGE.name} is {'stale: run scripts/state_diagram.py' if stale else 'up to date'}")
        return int(stale)
    PAGE.write_text(text, "utf-8")
    print(f"{PAGE.name}: {len(State)} states, {len(arrows('1.2'))} arrows in 1.2, {len(arrows('1.1'))} in 1.1 and 1.0")
    return 0


if __name__ == "__main__":
    sys.exit(main())
