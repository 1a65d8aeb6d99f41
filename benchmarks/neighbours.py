"""What happens beside the probes of bench_isolation.py: each case is a function and runs in a process of its own.

Usage: neighbours.py CASE SECONDS PORT WS_PORT

Prints "ready" once it is prepared, begins at a line on standard input, and prints the number of its rounds at the end.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from attack import attackers
from attack.attackers import MIB, Ports, connect_frame

__all__ = ["CASES"]

#: Seconds without a byte from the broker that end a case.
PATIENCE = 60.0
#: Messages of the durable backlog, and unacknowledged messages of a session.
BACKLOG, UNACKED = 100_000, 10_000
#: Sessions with unacknowledged messages; each is lost, or acknowledges, at another moment of a run.
HOLDERS = 3
_BODY = b"x" * 100

#: A case prepares, yields, then does its harm for some seconds, at least one round of it, and returns the rounds.
Case = Generator[None, None, int]


class Link:
    """A connection that has logged in and waits for its answers."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.seen = 0
        self.tail = b""
        """The end of the last frame that was read."""
        self.ask(connect_frame())

    def ask(self, data: bytes, answers: int = 1) -> None:
        """Send frames and read a number of frames."""
        self.socket.sendall(data)
        while self.seen < answers:
            data = self.socket.recv(MIB)
            self.tail = (self.tail + data)[-1000:]
            if not data or b"ERROR\n" in data:
                raise RuntimeError(f"the broker ended the connection: {self.tail!r}")
            self.seen += data.count(b"\0")
        self.seen -= answers

    def close(self) -> None:
        self.socket.close()


def _subscribe(destination: str, *headers: str, number: int = 0) -> bytes:
    return "\n".join(["SUBSCRIBE", f"id:{number}", f"destination:{destination}", *headers, "", "\0"]).encode()


def _fill(port: int, queue: str, count: int) -> None:
    """Send persistent messages to a queue and wait until they are stored."""
    link = Link(port)
    one = b"SEND\ndestination:%b\npersistent:true\n%%b\n%b\0" % (queue.encode(), _BODY)
    for _ in range(count // 1000):
        link.ask(one % b"" * 999 + one % b"receipt:r\n")
    link.close()


# ---- the cases ----


def nothing(seconds: float, ports: Ports) -> Case:
    """Leave the broker alone."""
    yield
    time.sleep(seconds)
    return 0


def _subscribers(seconds: float, ports: Ports, sessions: int, each: int) -> Case:
    """Subscribe sessions to one topic and close them all, over and over again."""
    block = b"".join(_subscribe("/topic/crowd", number=number) for number in range(each - 1))
    block += _subscribe("/topic/crowd", "receipt:r", number=each)
    yield
    rounds, end = 0, time.monotonic() + seconds
    while not rounds or time.monotonic() < end:
        links = [Link(ports.plain) for _ in range(sessions)]
        for link in links:
            link.socket.sendall(block)
        for link in links:
            link.ask(b"")
        for link in links:
            link.close()
        rounds += 1
    return rounds


def subscriptions(seconds: float, ports: Ports) -> Case:
    """Make and lose 10,000 subscriptions of one topic: 1,000 sessions with 10 each."""
    return _subscribers(seconds, ports, 1000, 10)


def storm(seconds: float, ports: Ports) -> Case:
    """Close 12 sessions of 990 subscriptions each at once."""
    return _subscribers(seconds, ports, 12, 990)


def fragments(seconds: float, ports: Ports) -> Case:
    """Send WebSocket fragments of one byte over 8 connections."""
    yield
    attackers.fragments(seconds, ports)
    return 1


def uploads(seconds: float, ports: Ports) -> Case:
    """Send half of a message of 4 MiB over each of 40 connections and close them all."""
    head = b"SEND\ndestination:/queue/large\npersistent:true\ncontent-length:%d\n\n" % (4 * MIB)
    yield
    rounds, end = 0, time.monotonic() + seconds
    while not rounds or time.monotonic() < end:
        links = [Link(ports.plain) for _ in range(40)]
        for link in links:
            link.socket.sendall(head + b"x" * (2 * MIB))
        time.sleep(0.2)  # the broker reads what the kernel has taken
        for link in links:
            link.close()
        rounds += 1
    return rounds


def backlog(seconds: float, ports: Ports) -> Case:
    """Drain 100,000 persistent messages to a consumer with ack:auto."""
    _fill(ports.plain, "/queue/backlog", BACKLOG)
    yield
    Link(ports.plain).ask(_subscribe("/queue/backlog", "ack:auto"), BACKLOG)
    return 1


def _holders(seconds: float, ports: Ports, mode: str, end: Callable[[Link], None]) -> Case:
    """Let sessions take persistent messages; end each one's share of them in turn, spread over the run."""
    links = []
    for number in range(HOLDERS):
        queue = f"/queue/holder.{number}"
        _fill(ports.plain, queue, UNACKED)
        links.append(Link(ports.plain))
        links[-1].ask(_subscribe(queue, f"ack:{mode}", f"activemq.prefetchSize:{UNACKED}"), UNACKED)
    yield
    for link in links:
        time.sleep(seconds / (HOLDERS + 1))
        end(link)
    time.sleep(seconds / (HOLDERS + 1))
    return HOLDERS


def lost(seconds: float, ports: Ports) -> Case:
    """Lose a session with 10,000 unacknowledged messages, three times."""
    return _holders(seconds, ports, "client-individual", Link.close)


def acked(seconds: float, ports: Ports) -> Case:
    """Acknowledge 10,000 messages with one ACK, three times."""

    def ack(link: Link) -> None:
        (identifier,) = re.findall(rb"\nack:(.*)\n", link.tail)[-1:]
        link.ask(b"ACK\nid:%b\nreceipt:r\n\n\0" % identifier)

    return _holders(seconds, ports, "client", ack)


#: Name -> case, and what it does.
CASES: dict[str, tuple[Callable[[float, Ports], Case], str]] = {
    "nothing": (nothing, "nothing"),
    "subscriptions": (subscriptions, "10,000 subscriptions of one topic made and lost"),
    "storm": (storm, "12 sessions of 990 subscriptions close at once"),
    "fragments": (fragments, "8 WebSockets with fragments of one byte"),
    "uploads": (uploads, "40 half-sent messages of 4 MiB closed together"),
    "backlog": (backlog, "100,000 stored messages drain to ack:auto"),
    "lost": (lost, "a session with 10,000 unacknowledged messages lost"),
    "acked": (acked, "10,000 messages acknowledged at once"),
}


def main() -> None:
    name, seconds, *numbers = sys.argv[1:]
    with suppress(OSError):  # the broker and its probes come first on a machine with few cores
        os.nice(10)
    case = CASES[name][0](float(seconds), Ports(*map(int, numbers), legacy=0))
    next(case)
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        next(case)
    except StopIteration as end:
        print(end.value, flush=True)


if __name__ == "__main__":
    main()
