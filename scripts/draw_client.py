"""Draw the states of a client by taking one through them, as a block of ARCHITECTURE.md.

    draw_client.py            write the block
    draw_client.py --check    exit status 1 if the block is not what the client's core does

Each line of `LIVES` is played on a `ClientCore` with a server that does what the line says. After each step the script
looks at the client's state, and at that of its present connection; before and after are one arrow in each drawing.
"""

from __future__ import annotations

import ast
import logging
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from page_blocks import ROOT, run

from stompcodec import Frame
from stompcodec.client.core import ClientCore
from stompcodec.client.options import Options
from stompcodec.client.subscription import Subscription
from stompcodec.connection import Connection, Role

CLIENT = ROOT / "stompcodec" / "client"
#: What the states of a client mean, in the order of a life. Programs see them in `client.state` and `on_state`.
STATES = {
    "connecting": "no session yet: addresses are tried in turn",
    "connected": "there is a session, and all subscriptions are back",
    "reconnecting": "the connection was lost; calls wait, or are bounded by their timeouts",
    "closing": "DISCONNECT waits behind all that was to be sent, or for its receipt",
    "closed": "the end: every call has its outcome",
}
#: The same of a connection.
PHASES = {
    "down": "there is no transport",
    "asked": "CONNECT was sent, CONNECTED has not come",
    "restoring": "SUBSCRIBE was sent for each subscription, and nothing else; receipts are waited for",
    "up": "the outbox flows",
}


class Life:
    """A client without I/O, and the server's half of its present connection."""

    def __init__(self, **options: Any) -> None:
        self.now = 0.0
        self.core = ClientCore(Options(heart_beat=(0, 0), **options), lambda: "id")
        self.server = Connection(Role.SERVER, heart_beat=(0, 0), now=0.0)

    def open(self) -> None:
        """There is a transport."""
        self.server = Connection(Role.SERVER, heart_beat=(0, 0), now=self.now)
        self.core.opened(self.now, host="h", login=None, passcode=None, whole_frames=False)
        self.read()

    def read(self) -> list[Frame]:
        """Return the frames that the client has sent since the last time."""
        return list(self.server.receive(b"".join(self.core.take_output(self.now)), self.now))

    def write(self) -> None:
        """Give the client what the server has to say."""
        self.core.receive(b"".join(self.server.take_output(self.now)), self.now)

    def accept(self) -> None:
        """The server sends CONNECTED."""
        self.server.accept({})
        self.write()

    def refuse(self) -> None:
        """The server sends ERROR."""
        self.server.send(Frame("ERROR", {"message": "no"}))
        self.write()

    def confirm(self) -> None:
        """The server sends the receipts that were asked for."""
        for frame in self.read():
            if frame.get("receipt") is not None:
                self.server.send(Frame("RECEIPT", {"receipt-id": frame.headers["receipt"]}))
        self.write()

    def subscribe(self) -> None:
        call = self.core.calls.make("SUBSCRIBE", 30.0, "SUBSCRIBE")
        self.core.subscribe(Subscription("/queue/a", id="1"), self.now, call)

    def lose(self) -> None:
        self.core.lost(None, self.now)

    def give_up(self) -> None:
        """No more attempts, as the engine says it when the policy of reconnecting is at its end."""
        self.core.end(ConnectionError("no broker could be reached"))

    def close(self) -> None:
        self.core.close(self.now, self.core.calls.make("close", 30.0, "close"))

    def wait(self) -> None:
        self.now += 1000.0
        self.core.tick(self.now)


Step = tuple[str, Callable[[Life], object]]

OPEN: Step = ("CONNECT, on a new transport", Life.open)
ACCEPT: Step = ("CONNECTED", Life.accept)
CONFIRM: Step = ("the receipts have come", Life.confirm)
LOST: Step = ("the connection is lost", Life.lose)
CLOSE: Step = ("close()", Life.close)
SUBSCRIBED: tuple[Step, ...] = (("", Life.subscribe), OPEN, ("CONNECTED, there are subscriptions", Life.accept))
UP: tuple[Step, ...] = (OPEN, ("CONNECTED, no subscriptions", Life.accept))

#: Options of the client, and the steps. A step without a name is not drawn.
LIVES: list[tuple[dict[str, Any], tuple[Step, ...]]] = [
    ({}, (*SUBSCRIBED, CONFIRM, LOST, OPEN, SUBSCRIBED[-1], CONFIRM)),
    ({}, (*SUBSCRIBED, LOST)),
    ({}, (OPEN, LOST)),
    ({}, (OPEN, ("ERROR", Life.refuse))),
    ({}, (OPEN, ("no CONNECTED in time", Life.wait))),
    ({}, (*UP, CLOSE, ("the receipt of DISCONNECT", Life.confirm))),
    ({}, (*UP, CLOSE, ("no receipt in time", Life.wait))),
    ({}, (*UP, CLOSE, LOST)),
    ({}, (CLOSE,)),
    ({}, (*UP, LOST, CLOSE)),
    ({}, (("no more attempts", Life.give_up),)),
    ({}, (*UP, LOST, ("no more attempts", Life.give_up))),
    ({"reconnect": None}, (*UP, ("the connection is lost, reconnect=None", Life.lose))),
]

Arrows = dict[tuple[str, str], list[str]]


def arrows() -> tuple[Arrows, Arrows]:
    """Return (before, after) -> steps: of the client, and of its connection."""
    of_client: Arrows = defaultdict(list)
    of_connection: Arrows = defaultdict(list)
    for options, steps in LIVES:
        life = Life(**options)
        for label, act in steps:
            core = life.core
            before = core.state, core._phase
            act(life)
            after = core.state, core._phase
            for found, old, new in zip((of_client, of_connection), before, after):
                labels = found[old, new] if label and old != new else None
                if labels is not None and not any(label.startswith(known) for known in labels):
                    labels.append(label)
    return of_client, of_connection


def picture(found: Arrows, states: dict[str, str]) -> Iterator[str]:
    """Yield a Mermaid state diagram and a table."""
    names = list(states)
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"    [*] --> {names[0]}"
    for (before, after), labels in sorted(found.items(), key=lambda item: [names.index(name) for name in item[0]]):
        yield f"    {before} --> {after} : {'<br/>'.join(labels)}"
    yield "```"
    yield ""
    yield "| state | meaning |"
    yield "| --- | --- |"
    yield from (f"| {name} | {meaning} |" for name, meaning in states.items())


def named(attribute: str, entering: str) -> set[str]:
    """Return the states that the code of the client names.

    Args:
        attribute: what a state is assigned to.
        entering: a method whose first argument is a state.
    """
    found = set()
    for path in sorted(CLIENT.glob("*.py")):
        if path.stem == "transaction":  # has a state of its own
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    pairs = [(target, node.value)]
                    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                        pairs = list(zip(target.elts, node.value.elts))
                    for left, right in pairs:
                        if ast.unparse(left) == f"self.{attribute}" and isinstance(right, ast.Constant):
                            found.add(right.value)
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == f"self.{entering}":
                found |= {each.value for each in node.args[:1] if isinstance(each, ast.Constant)}
    return found


def draw() -> str:
    """Return the block."""
    of_client, of_connection = arrows()
    lines = ["### The client", "", *picture(of_client, STATES), ""]
    lines += ["### Its present connection", "", *picture(of_connection, PHASES)]
    return "\n".join(lines)


if __name__ == "__main__":
    logging.disable()  # lost connections are on purpose
    sys.exit(run("client", draw, sys.argv[1:]))
