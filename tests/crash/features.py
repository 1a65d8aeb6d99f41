"""Lanes for what the broker can do besides plain queues: delays, priorities, selectors, large messages.

Those with a place of their own, durable subscriptions, retained messages and readers by seq, are in `lasting.py`.
"""

from __future__ import annotations

import time
from typing import Any

from crash.lasting import FOUNDED, Durable, DurableDrainer, Feed, Founder, Reader, Retainer
from crash.ledger import Ledger
from crash.workers import Base, Consumer, Drainer, Producer

from stompcodec import Frame

CONFIG = "[topics]\nretain = true\n"  # Of the broker.
DELAYED, RANKED, SELECTED, LARGE = (f"/queue/crash.{name}" for name in ("delayed", "ranked", "selected", "large"))
BROWSED, DURABLE, RETAINED = "/queue/crash.browsed", "/topic/crash.durable", "/topic/crash.retained"
_LONGEST = 700  # The longest delay in milliseconds.
_CLIENTS = ("first", "second")


class DelayedProducer(Producer):
    """Half of it long enough to be killed with the broker."""

    def extra(self) -> list[tuple[str, object]]:
        delay = self.random.choice((1, 50, 300, _LONGEST))
        return [("delay", delay), ("not-before", int(time.time() * 1000) + delay)]


class DelayedConsumer(Consumer):
    """No order, for delays differ; but nothing comes before its time."""

    def line_of(self, key: str, frame: Frame) -> str:
        early = int(frame.headers["not-before"]) - time.time() * 1000
        if early > 2:
            self.ledger.problem("before its time", f"{key}: {early:.0f} ms")
        return ""


class DelayedDrainer(Drainer):
    behind = (("delay", 2 * _LONGEST),)

    def line_of(self, key: str, frame: Frame) -> str:
        return ""


class RankedProducer(Producer):
    def extra(self) -> list[tuple[str, object]]:
        return [("priority", self.random.choice((0, 1, 4, 4, 4, 9)))]


class RankedConsumer(Consumer):
    """Order holds for messages of one priority."""

    def line_of(self, key: str, frame: Frame) -> str:
        return f"{key.rpartition('-')[0]} {frame.headers['priority']}"


class RankedDrainer(Drainer):
    """All is there from the start, so the higher ones have to come first."""

    behind = (("priority", 0),)

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.priority = 9

    def line_of(self, key: str, frame: Frame) -> str:
        priority = int(frame.headers["priority"])
        if priority > self.priority:
            self.ledger.problem("order of priorities", f"{key}: {priority} after {self.priority}")
        self.priority = priority
        return f"{key.rpartition('-')[0]} {priority}"


class ColouredProducer(Producer):
    """Nobody asks for green: that stays to the end, through all restarts."""

    def extra(self) -> list[tuple[str, object]]:
        return [("colour", self.random.choice((*("red", "blue") * 30, "green")))]


class Picky(Consumer):
    """With a selector. It is alone with its colour."""

    def __init__(self, name: str, ledger: Ledger, queue: str, colour: str, *, seed: int = 0) -> None:
        super().__init__(name, ledger, queue, seed=seed)
        self.colour = colour

    def connected(self) -> None:
        self.subscribe(("selector", f"colour = '{self.colour}'"))

    def line_of(self, key: str, frame: Frame) -> str:
        if frame.headers["colour"] != self.colour:
            self.ledger.problem("not what the selector says", key)
        return super().line_of(key, frame)


class LargeProducer(Producer):
    """All of it are files."""

    sizes = (102_400, 200_000, 400_000)


def feature_workers(ledger: Ledger, seed: int) -> list[Base]:
    """More load, for a broker with `CONFIG`."""
    durables = [Durable(f"durable-{client}", ledger, DURABLE, client, seed=seed) for client in _CLIENTS]
    return [
        DelayedProducer("delayed", ledger, DELAYED, window=16, seed=seed),
        DelayedProducer("delayed-batch", ledger, DELAYED, window=4, batch=4, seed=seed),
        DelayedConsumer("delayed-consumer", ledger, DELAYED, seed=seed),
        RankedProducer("ranked", ledger, RANKED, window=32, seed=seed),
        RankedProducer("ranked-batch", ledger, RANKED, window=4, batch=4, seed=seed),
        RankedConsumer("ranked-consumer", ledger, RANKED, seed=seed),
        ColouredProducer("coloured", ledger, SELECTED, window=32, seed=seed),
        Picky("red", ledger, SELECTED, "red", seed=seed),
        Picky("blue", ledger, SELECTED, "blue", seed=seed),
        LargeProducer("large", ledger, LARGE, window=2, seed=seed),
        LargeProducer("large-batch", ledger, LARGE, window=1, batch=3, seed=seed),
        Consumer("large-consumer", ledger, LARGE, seed=seed),
        Producer("browsed", ledger, BROWSED, window=16, seed=seed),
        Producer("browsed-batch", ledger, BROWSED, window=4, batch=4, seed=seed),
        Reader("reader", ledger, BROWSED, seed=seed),
        Feed("feed", ledger, durables, seed=seed),
        Feed("feed-batch", ledger, durables, batch=4, seed=seed),
        *durables,
        *(Founder(f"founder{number}", ledger, seed=seed) for number in range(5)),
        *(Retainer(f"retainer{number}", ledger, f"{RETAINED}{number}", seed=seed) for number in range(3)),
    ]


def feature_drainers(ledger: Ledger) -> list[Drainer]:
    """Who empties what the load has used."""
    founded = {record.queue for record in ledger.records.values() if record.queue.startswith(FOUNDED)}
    settled = {record.queue for record in ledger.records.values() if record.acked}
    return [
        DelayedDrainer("delayed-drainer", ledger, DELAYED),
        RankedDrainer("ranked-drainer", ledger, RANKED),
        *(Drainer(f"{queue}-drainer", ledger, queue) for queue in (SELECTED, LARGE, BROWSED)),
        *(DurableDrainer(f"durable-{client}-drainer", ledger, DURABLE, client) for client in _CLIENTS),
        *(DurableDrainer(f"{topic}-drainer", ledger, topic, topic) for topic in sorted(founded - settled)),
    ]
