"""Lanes for what the broker can do besides plain queues: delays, priorities, selectors, large messages.

Those with a place of their own, durable subscriptions, retained messages and readers by seq, are in `lasting.py`.
"""

import time
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from crash.lasting import FOUNDED, Durable, DurableDrainer, Feed, Founder, Reader, Retainer
from crash.ledger import Ledger
from crash.workers import Base, Consumer, Drainer, Headers, Producer, line_of

from stompcodec import Frame

CONFIG = "[topics]\nretain = true\n"  # of the broker
DELAYED, RANKED, SELECTED, LARGE = (f"/queue/crash.{name}" for name in ("delayed", "ranked", "selected", "large"))
BROWSED, DURABLE, RETAINED = "/queue/crash.browsed", "/topic/crash.durable", "/topic/crash.retained"
_LONGEST = 700  # the longest delay in milliseconds
_CLIENTS = ("first", "second")
_BODIES = (102_400, 200_000, 400_000)  # all of it are files


def _delay(chance: Random) -> Headers:
    """Half of it long enough to be killed with the broker."""
    delay = chance.choice((1, 50, 300, _LONGEST))
    return [("delay", delay), ("not-before", int(time.time() * 1000) + delay)]


def _in_time(consumer: Consumer, key: str, frame: Frame) -> str:
    """No order, for delays differ; but nothing comes before its time."""
    early = int(frame.headers["not-before"]) - time.time() * 1000
    if early > 2:
        consumer.ledger.problem("before its time", f"{key}: {early:.0f} ms")
    return ""


def _rank(chance: Random) -> Headers:
    return [("priority", chance.choice((0, 1, 4, 4, 4, 9)))]


def _of_one_rank(consumer: Consumer, key: str, frame: Frame) -> str:
    """Order holds for messages of one priority."""
    return f"{line_of(consumer, key, frame)} {frame.headers['priority']}"


def _falling() -> Callable[[Consumer, str, Frame], str]:
    """All is there from the start, so the higher ones have to come first."""
    latest = [9]

    def line(consumer: Consumer, key: str, frame: Frame) -> str:
        priority = int(frame.headers["priority"])
        if priority > latest[0]:
            consumer.ledger.problem("order of priorities", f"{key}: {priority} after {latest[0]}")
        latest[0] = priority
        return _of_one_rank(consumer, key, frame)

    return line


def _colour(chance: Random) -> Headers:
    """Nobody asks for green: that stays to the end, through all restarts."""
    return [("colour", chance.choice((*("red", "blue") * 30, "green")))]


def _of_colour(colour: str, consumer: Consumer, key: str, frame: Frame) -> str:
    if frame.headers["colour"] != colour:
        consumer.ledger.problem("not what the selector says", key)
    return line_of(consumer, key, frame)


def _picky(ledger: Ledger, colour: str, seed: int) -> Consumer:
    """With a selector. It is alone with its colour."""
    selector = ("selector", f"colour = '{colour}'")
    return Consumer(colour, ledger, SELECTED, seed=seed, line=partial(_of_colour, colour), asks=(selector,))


def feature_workers(ledger: Ledger, seed: int) -> list[Base]:
    """More load, for a broker with `CONFIG`."""
    durables = [Durable(f"durable-{client}", ledger, DURABLE, client, seed=seed) for client in _CLIENTS]
    producers: list[tuple[str, str, int, dict[str, Any]]] = [
        ("delayed", DELAYED, 16, {"extra": _delay}),
        ("delayed-batch", DELAYED, 4, {"extra": _delay, "batch": 4}),
        ("ranked", RANKED, 32, {"extra": _rank}),
        ("ranked-batch", RANKED, 4, {"extra": _rank, "batch": 4}),
        ("coloured", SELECTED, 32, {"extra": _colour}),
        ("large", LARGE, 2, {"sizes": _BODIES}),
        ("large-batch", LARGE, 1, {"sizes": _BODIES, "batch": 3}),
        ("browsed", BROWSED, 16, {}),
        ("browsed-batch", BROWSED, 4, {"batch": 4}),
    ]
    return [
        *(Producer(name, ledger, to, window=window, seed=seed, **more) for name, to, window, more in producers),
        Consumer("delayed-consumer", ledger, DELAYED, seed=seed, line=_in_time),
        Consumer("ranked-consumer", ledger, RANKED, seed=seed, line=_of_one_rank),
        *(_picky(ledger, colour, seed) for colour in ("red", "blue")),
        Consumer("large-consumer", ledger, LARGE, seed=seed),
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
    last: Headers = [("delay", 2 * _LONGEST)]
    return [
        Drainer("delayed-drainer", ledger, DELAYED, behind=last, line=lambda *_: ""),
        Drainer("ranked-drainer", ledger, RANKED, behind=[("priority", 0)], line=_falling()),
        *(Drainer(f"{queue}-drainer", ledger, queue) for queue in (SELECTED, LARGE, BROWSED)),
        *(DurableDrainer(f"durable-{client}-drainer", ledger, DURABLE, client) for client in _CLIENTS),
        *(DurableDrainer(f"{topic}-drainer", ledger, topic, topic) for topic in sorted(founded - settled)),
    ]
