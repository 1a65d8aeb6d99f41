"""Load a broker for a while with all that it can do, and watch its memory, its order and its books.

Usage: soak.py [--seconds 600] [--seed N]

Producers, transactions, consumers of every ack mode, topics, connections that come and go, and some that are dropped in
the middle. A line every ten seconds; the verdict comes last.
"""

from __future__ import annotations

import argparse
import random
import socket
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from crash.ledger import Ledger
from crash.process import BrokerProcess
from crash.rounds import close_books, queue_of, throttle, workers
from crash.wire import Load, encoded
from crash.workers import Base

from stompcodec import Frame

MIB = 2**20
#: What the broker may grow by in the second half of the run.
MOST_GROWTH = 24 * MIB
CONNECT = encoded("CONNECT", [("accept-version", "1.2"), ("host", "/"), ("heart-beat", "0,1000")])


class Publisher(Base):
    """Sends numbered messages to a topic, a few at a time."""

    def pump(self) -> None:
        for _ in range(4):
            self.send(encoded("SEND", [("destination", "/topic/soak"), ("key", self.next_key())], b"x" * 100))


class Subscriber(Base):
    """Takes them; they must come in order, and none may be missing while the connections last."""

    def connected(self) -> None:
        self.last: dict[str, int] = {}
        self.send(encoded("SUBSCRIBE", [("id", "0"), ("destination", "/topic/soak")]))

    def message(self, frame: Frame) -> None:
        publisher, _, number = frame.headers["key"].rpartition("-")
        if int(number) != self.last.get(publisher, int(number) - 1) + 1:
            self.ledger.problem("topic out of order", f"{number} after {self.last[publisher]}")
        self.last[publisher] = int(number)
        self.count += 1


class Caller(Base):
    """Asks itself: a temporary queue, a request with reply-to, and the answer to what came."""

    def connected(self) -> None:
        self.send(encoded("SUBSCRIBE", [("id", "r"), ("destination", "/temp-queue/answers")]))
        self.send(encoded("SUBSCRIBE", [("id", "q"), ("destination", f"/queue/ask-{self.name}")]))
        self.ask()

    def ask(self) -> None:
        self.count += 1
        headers = [("destination", f"/queue/ask-{self.name}"), ("reply-to", "/temp-queue/answers")]
        self.send(encoded("SEND", [*headers, ("number", self.count)]))

    def message(self, frame: Frame) -> None:
        if frame.get("subscription") == "q":
            headers = [("destination", frame.headers["reply-to"]), ("number", frame.headers["number"])]
            self.send(encoded("SEND", headers))
        elif int(frame.headers["number"]) == self.count:
            self.ask()


def visit(port: int, number: int) -> None:
    """A connection that leaves much behind, and no word."""
    with socket.create_connection(("127.0.0.1", port), 30) as wire:
        wire.sendall(
            CONNECT
            + encoded("SUBSCRIBE", [("id", "0"), ("destination", f"/queue/visit-{number}"), ("ack", "client")])
            + encoded("SUBSCRIBE", [("id", "1"), ("destination", "/temp-queue/visit")])
            + encoded("BEGIN", [("transaction", "t")])
            + encoded("SEND", [("destination", "/queue/visit"), ("transaction", "t")], b"x" * 1000)
            + b"SEND\ndestination:/queue/half"
        )
        wire.recv(4096)


class Figures:
    """What is counted on the way, and shown."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.began = self.shown = time.monotonic()
        self.settled = self.visits = self.drops = self.half = self.top = 0

    @property
    def passed(self) -> float:
        return time.monotonic() - self.began

    def look(self, size: int) -> None:
        self.top = max(self.top, size)
        if self.passed < self.seconds / 2:
            self.half = self.top

    def show(self, size: int, ledger: Ledger, others: int) -> None:
        if time.monotonic() - self.shown < 10:
            return
        self.shown = time.monotonic()
        print(
            f"{self.passed:6.0f} s  {size / MIB:6.1f} MiB  {self.settled:9,} settled, {ledger.backlog:5} open, "
            f"{others:9,} others, {self.visits} visits, {self.drops} drops",
            flush=True,
        )


def drive(broker: BrokerProcess, load: Load, ledger: Ledger, seconds: float, seed: int) -> Figures:
    """Run the load, with visits and drops."""
    chance = random.Random(seed)
    figures = Figures(seconds)
    others = [Publisher("topic", ledger), *(Subscriber(f"s{n}", ledger) for n in range(3)), Caller("ask", ledger)]
    load.workers += [*workers(ledger, seed), *others]
    load.port = broker.port
    while figures.passed < seconds:
        load.for_seconds(0.25)
        throttle(load, ledger)
        visit(broker.port, figures.visits % 100)
        figures.visits += 1
        if chance.random() < 0.5:
            load.drop(chance.choice(load.workers))
            figures.drops += 1
        figures.settled += ledger.forget()
        size = broker.rss()
        figures.look(size)
        figures.show(size, ledger, sum(worker.count for worker in others))
    load.port = None
    for worker in load.workers:
        load.drop(worker)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    options = parser.parse_args()
    ledger = Ledger(moved_from=frozenset([queue_of("moved-from")]))
    load = Load()
    print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory() as folder, BrokerProcess(Path(folder)) as broker:
        figures = drive(broker, load, ledger, options.seconds, options.seed)
        broker.stop()
        broker.start()
        close_books(broker, ledger)
    load.close()
    grown = max(0, figures.top - figures.half)
    if grown > MOST_GROWTH:
        ledger.problem("memory grows", f"{grown / MIB:.1f} MiB in the second half")
    for example in ledger.examples:
        print(f"    {example}")
    sizes = f"{figures.top / MIB:.1f} MiB at the most, +{grown / MIB:.1f} MiB in the second half"
    print(f"{figures.settled} settled and forgotten, {sizes}; {ledger.figures()}")
    sys.exit(1 if ledger.problems else 0)


if __name__ == "__main__":
    main()
