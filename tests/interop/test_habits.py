"""Habits of brokers: the same frames to a real one and to ours in its dialect, and what both answer.

Each habit is a function that takes a `Host`, sends frames and returns what it saw. The real broker says what is right.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from crash.process import BrokerProcess
from patience import patience

from stompcodec import Frame, Parser, serialize

_SECONDS = 10  # Seconds in which an answer comes, on a quiet machine.
Habit = Callable[["Host"], list[Any]]
HABITS: dict[str, list[Habit]] = {"rabbitmq": [], "activemq": []}  # Dialect -> habits of that broker.


def habit(*dialects: str) -> Callable[[Habit], Habit]:
    """Enter a function as a habit of these brokers."""

    def enter(function: Habit) -> Habit:
        for dialect in dialects:
            HABITS[dialect].append(function)
        return function

    return enter


class Host:
    """A broker, a name that nobody else uses there, and the connections to it, which end with the block."""

    def __init__(self, host: str, port: int) -> None:
        self.address = host, port
        self.name = uuid.uuid4().hex[:10]
        self._wires = ExitStack()

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self._wires.close()

    def wire(self, version: str = "1.2", **headers: str) -> Wire:
        connection = self._wires.enter_context(socket.create_connection(self.address, patience(_SECONDS)))
        return Wire(self, connection, version, headers)

    def said(self, text: str) -> str:
        """Return a text of the broker without the fresh name, so that two runs can be compared."""
        return text.replace(self.name, "NAME")


class Wire:
    """One connection, of frames as they are; `headers` are those of CONNECT, besides the usual ones."""

    def __init__(self, host: Host, connection: socket.socket, version: str, headers: dict[str, str]) -> None:
        self._host = host
        self._version = version
        self._socket = connection
        self._parser = Parser(None)
        self._inbox: list[Frame] = []
        self._receipts = 0
        names = {"accept-version": version, "host": "/", "login": "guest", "passcode": "guest", **headers}
        self._socket.sendall(serialize(Frame("CONNECT", names)))
        self.connected = self._next()
        self._parser.version = version

    def _next(self) -> Frame | None:
        """Return the next frame; None when the broker has hung up."""
        while not self._inbox:
            try:
                data = self._socket.recv(65536)
            except ConnectionError:
                return None
            if not data:
                return None
            self._inbox += self._parser.feed(data)
        return self._inbox.pop(0)

    def ask(self, command: str, body: bytes = b"", **headers: str) -> str:
        """Send a frame with a receipt. Return RECEIPT, or ERROR; MESSAGEs that come meanwhile are kept."""
        self._receipts += 1
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        frame = Frame(command, {**names, "receipt": f"r-{self._receipts}"}, body)
        self._socket.sendall(serialize(frame, self._version))
        kept = []
        while True:
            answer = self._next()
            if answer is None or answer.command == "ERROR":
                return "ERROR"
            if answer.get("receipt-id") == f"r-{self._receipts}":
                self._inbox = kept + self._inbox
                return "RECEIPT"
            kept.append(answer)

    def take(self, count: int) -> list[tuple[str, ...]]:
        """Return so many MESSAGEs: subscription, body, where it was sent."""
        found = []
        for _ in range(count):
            frame = self._next()
            if frame is None:
                return [*found, ("closed",)]
            names = (frame.get("subscription") or "", frame.body.decode(), frame.get("original-destination") or "")
            found.append(tuple(map(self._host.said, names)))
        return found

    def end(self) -> list[tuple[str, ...]]:
        """DISCONNECT in good order. Return the MESSAGEs that were left."""
        if self.ask("DISCONNECT") == "ERROR":
            return [("closed",)]
        return self.take(len([frame for frame in self._inbox if frame.command == "MESSAGE"]))


@habit("rabbitmq", "activemq")
def heart_beats(host: Host) -> list[Any]:
    """What CONNECTED answers to what CONNECT offers. (In 1.0, which has no heart-beats, ours always answers 0,0.)"""
    found = []
    for version in ("1.1", "1.2"):
        for offered in (None, "0,0", "1000,0", "0,1000", "1000,1000", "2500,30000", "4294967295,4294967296"):
            wire = host.wire(version, **({} if offered is None else {"heart-beat": offered}))
            found.append((version, offered, wire.connected and wire.connected.get("heart-beat")))
            wire.end()
    return found


@habit("rabbitmq", "activemq")
def many_subscriptions(host: Host) -> list[Any]:
    """The default windows of many subscriptions of one session, with messages that nobody acknowledges."""
    found = []
    for mode in ("auto", "client", "client-individual"):
        wire, sender = host.wire(), host.wire()
        for number in range(50):
            name = f"/queue/{host.name}-{mode}-{number}"
            found.append(wire.ask("SUBSCRIBE", destination=name, id=str(number), ack=mode))
        names = [f"/queue/{host.name}-{mode}-{number}" for number in range(50)]
        found += [sender.ask("SEND", b"x", destination=name) for name in names]
        found.append(sorted(wire.take(50)))
        wire.end()
        sender.end()
    return found


_LETTERS = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


@habit("rabbitmq", "activemq")
def queue_arguments(host: Host) -> list[Any]:
    """Queue arguments for a queue that was made without them, and for one that was made with others."""
    found: list[Any] = []
    for made in ({}, _LETTERS):
        name = f"/queue/{host.name}-{len(made)}"
        owner = host.wire()
        found.append(owner.ask("SUBSCRIBE", destination=name, id="1", **made))
        for arguments in (_LETTERS, {"x-message-ttl": "600000"}, {}):
            found.append(owner.ask("SEND", b"same session", destination=name, **arguments))
            found.append(owner.take(1))
        other = host.wire()
        found.append(other.ask("SEND", b"another one", destination=name, **{"x-message-ttl": "600000"}))
        if found[-1] == "RECEIPT":
            found.append(owner.take(1))
        other = host.wire()
        found.append(other.ask("SUBSCRIBE", destination=name, id="2", **made))
        owner.end()
    return found


@habit("rabbitmq")
def names_of_a_queue(host: Host) -> list[Any]:
    """A queue that a subscription to a topic names, by its three names."""
    found: list[Any] = []
    names = (host.name, f"/queue/{host.name}", f"/amq/queue/{host.name}")
    how = {"x-queue-name": host.name, "durable": "true", "auto-delete": "false"}
    sender = host.wire()
    found.append(sender.ask("SEND", b"before", destination=names[1]))
    wire = host.wire()
    found.append(wire.ask("SUBSCRIBE", destination=f"/topic/{host.name}", id="1", **how))
    found.append(wire.take(1))
    found += [sender.ask("SEND", name.encode(), destination=name) for name in names]
    found.append(sender.ask("SEND", b"by the topic", destination=f"/topic/{host.name}"))
    found.append(wire.take(4))
    wire.end()
    for name in names:
        found.append(sender.ask("SEND", b"while away", destination=f"/topic/{host.name}"))
        wire = host.wire()
        found.append(wire.ask("SUBSCRIBE", destination=name, id="2"))
        found.append(wire.take(1))
        wire.end()
    return found


@habit("activemq")
def virtual_topics(host: Host) -> list[Any]:
    """Queues of virtual topics, with and without wildcards, consumers that are away, a transaction."""
    found: list[Any] = []
    topic = f"/topic/VirtualTopic.{host.name}"
    names = {
        "a": f"/queue/Consumer.A.VirtualTopic.{host.name}",
        "b": f"/queue/Consumer.B.VirtualTopic.{host.name}",
        "deep": f"/queue/Consumer.C.VirtualTopic.{host.name}.>",
        "other": f"/queue/Consumer.A.VirtualTopic.{host.name}.eu",
        "stranger": f"/queue/Consumer.A.B.VirtualTopic.{host.name}",
        "plain": topic,
        "pattern": f"{topic}.>",
    }
    wires = {}
    for key, name in names.items():
        wires[key] = host.wire()
        found.append(wires[key].ask("SUBSCRIBE", destination=name, id=key))
    sender = host.wire()
    for name, body in ((topic, b"1"), (f"{topic}.eu", b"2"), (names["a"], b"direct"), (topic, b"3")):
        found.append(sender.ask("SEND", body, destination=name))
    for key, count in (("a", 3), ("b", 2), ("deep", 3), ("other", 1), ("stranger", 0), ("plain", 2), ("pattern", 3)):
        found += [key, wires[key].take(count), wires[key].end()]
    found.append(sender.ask("SEND", b"while away", destination=topic, persistent="true"))
    found.append(sender.ask("BEGIN", transaction="t"))
    found.append(sender.ask("SEND", b"in a transaction", destination=topic, transaction="t", persistent="true"))
    found.append(sender.ask("COMMIT", transaction="t"))
    for key in ("a", "b"):
        wire = host.wire()
        found.append(wire.ask("SUBSCRIBE", destination=names[key], id=key))
        found += [wire.take(2), wire.end()]
    return found


@pytest.mark.no_asan
@pytest.mark.peer("rabbitmq", "activemq")
@pytest.mark.parametrize("habit", list(dict.fromkeys(chain(*HABITS.values()))), ids=lambda habit: habit.__name__)
def test_a_habit_is_shared(peer: Any, habit: Habit, tmp_path: Path) -> None:
    dialect = peer.row.dialect
    if habit not in HABITS[dialect]:
        pytest.skip(f"it is no habit of {dialect}")
    ours = BrokerProcess(tmp_path, config=f'[broker]\ndialect = "{dialect}"\n', memory=True)
    with ours, Host("127.0.0.1", ours.port) as here, Host("127.0.0.1", peer.ports["stomp"]) as there:
        assert habit(here) == habit(there)
