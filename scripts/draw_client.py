"""Draw the states of a client by taking one through them, as a block of ARCHITECTURE.md.

    draw_client.py            write the block
    draw_client.py --check    exit status 1 if the block is not what the client's core does

Each line of `LIVES` is played on a `ClientCore` with a server that does what the line says. Each change of the client's
state, and of its present connection's, is an arrow. The states are the tables of `stompcodec/client/link.py`.
"""

from __future__ import annotations

import logging
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

from page_blocks import run

from stompcodec import Frame
from stompcodec.client.core import ClientCore
from stompcodec.client.link import CLIENT, CONNECTION, ClientLink, State
from stompcodec.client.options import Options
from stompcodec.client.subscription import Subscription
from stompcodec.connection import Connection, Role


class Life:
    """A client without I/O, and the server's half of its present connection."""

    def __init__(self, **options: Any) -> None:
        self.now = 0.0
        self.core = ClientCore(Options(heart_beat=(0, 0), **options), lambda: "id")
        self.server = Connection(Role.SERVER, heart_beat=(0, 0), now=0.0)

    def open(self) -> None:
        """There is a transport."""
        self.server = Connection(Role.SERVER, heart_beat=(0, 0), now=self.now)
        self.core.link.opened(self.now, host="h", login=None, passcode=None, whole_frames=False)
        self.read()

    def read(self) -> list[Frame]:
        """Return the frames that the client has sent since the last time."""
        return list(self.server.receive(b"".join(self.core.link.take_output(self.now)), self.now))

    def write(self) -> None:
        """Give the client what the server has to say."""
        self.core.inbound.receive(b"".join(self.server.take_output(self.now)), self.now)

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
        call = self.core.link.calls.make("SUBSCRIBE", 30.0, "SUBSCRIBE")
        self.core.inbound.subscribe(Subscription("/queue/a", id="1"), self.now, call)

    def lose(self) -> None:
        self.core.link.lost(None, self.now)

    def give_up(self) -> None:
        """No more attempts, as the engine says it when the policy of reconnecting is at its end."""
        self.core.link.end(ConnectionError("no broker could be reached"))

    def close(self) -> None:
        self.core.close(self.now, self.core.link.calls.make("close", 30.0, "close"))

    def wait(self) -> None:
        self.now += 1000.0
        self.core.link.tick(self.now)


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

Arrows = dict[tuple[str, str, str], list[str]]


def arrows() -> tuple[Arrows, Arrows]:
    """Return (before, event, after) -> steps: of the client, and of its connection."""
    found: tuple[Arrows, Arrows] = defaultdict(list), defaultdict(list)
    for options, steps in LIVES:
        life = Life(**options)
        for label, act in steps:
            with mock.patch.object(life.core.link, "happened", partial(watch, life.core.link, found, label)):
                act(life)
    return found


def watch(link: ClientLink, found: tuple[Arrows, Arrows], label: str, event: str, *args: Any) -> None:
    """Have an event happen, and enter what it changed."""
    before = link.state, link.phase
    ClientLink.happened(link, event, *args)
    for each, old, new in zip(found, before, (link.state, link.phase)):
        if label and old != new and label not in each[old, event, new]:
            each[old, event, new].append(label)


def picture(found: Arrows, states: dict[str, State]) -> Iterator[str]:
    """Yield a Mermaid state diagram and a table."""
    names = list(states)
    drawn: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (before, _, after), labels in found.items():
        drawn[before, after] += labels
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"    [*] --> {names[0]}"
    for (before, after), labels in sorted(drawn.items(), key=lambda item: [names.index(name) for name in item[0]]):
        yield f"    {before} --> {after} : {'<br/>'.join(labels)}"
    yield "```"
    yield ""
    yield "| state | meaning |"
    yield "| --- | --- |"
    yield from (f"| {name} | {state.meaning} |" for name, state in states.items())


def draw() -> str:
    """Return the block."""
    of_client, of_connection = arrows()
    lines = ["### The client", "", *picture(of_client, CLIENT), ""]
    lines += ["### Its present connection", "", *picture(of_connection, CONNECTION)]
    return "\n".join(lines)


if __name__ == "__main__":
    logging.disable()  # lost connections are on purpose
    sys.exit(run("client", draw, sys.argv[1:]))
