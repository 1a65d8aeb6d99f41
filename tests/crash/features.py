"""Lanes for what the broker can do besides plain queues."""

import time
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from crash.ledger import Ledger
from crash.wire import encoded
from crash.workers import Base, Consumer, Drainer, Headers, Producer, line_of

from stompcodec import Frame

CONFIG = "[topics]\nretain = true\n"  # of the broker
DELAYED, RANKED, SELECTED, LARGE = (f"/queue/crash.{name}" for name in ("delayed", "ranked", "selected", "large"))
BROWSED, DURABLE, RETAINED = "/queue/crash.browsed", "/topic/crash.durable", "/topic/crash.retained"
_LONGEST = 700  # the longest delay in milliseconds
_CLIENTS = ("first", "second")
_BODIES = (102_400, 200_000, 400_000)  # all of it are files
FOUNDED = "/topic/crash.founded."  # What the topics of founders begin with.


def _own(key: str, client: str) -> str:
    """The key of what one of several subscribers gets."""
    return key if "/" in key else f"{client}/{key}"


def _named(client: str) -> tuple[str, object]:
    return ("durable-subscription-name", f"of-{client}")


class Durable(Consumer):
    """A durable subscription to a topic, whose consumer is away at times. Its books are its own: see `Feed`."""

    def __init__(self, name: str, ledger: Ledger, topic: str, client: str, *, seed: int = 0) -> None:
        super().__init__(name, ledger, topic, seed=seed)
        self.client = self.client_id = client
        self.founded = False  # Its SUBSCRIBE had a receipt: from then on it must not miss anything.
        self.back_at = None

    def connected(self) -> None:
        self.back_at = None
        self.waiting["here"] = []
        self.subscribe(_named(self.client), ("receipt", "here"))

    def key_of(self, frame: Frame) -> str:
        return _own(frame.headers["key"], self.client)

    def take(self, key: str, ack: str) -> None:
        if self.back_at is None:  # else it has just left: what comes is not acknowledged, so it comes again
            super().take(key, ack)

    def pump(self) -> None:
        if self.back_at is None and self.random.randrange(100) == 0:
            self.held.clear()
            self.back_at = time.monotonic() + self.random.uniform(0.01, 0.4)
            self.waiting["away"] = []
            self.send(encoded("UNSUBSCRIBE", [("id", "0"), ("receipt", "away")]))
        elif self.back_at is None:
            super().pump()
        elif time.monotonic() > self.back_at and "away" not in self.waiting:
            self.connected()

    def done(self, receipt: str, keys: list[str]) -> None:
        self.founded = self.founded or receipt == "here"
        super().done(receipt, keys)


class DurableDrainer(Drainer):
    def __init__(self, name: str, ledger: Ledger, topic: str, client: str) -> None:
        super().__init__(name, ledger, topic)
        self.client, self.client_id = client, client.rpartition("/")[2]

    def subscribe(self, *more: tuple[str, object]) -> None:
        super().subscribe(_named(self.client), *more)

    def key_of(self, frame: Frame) -> str:
        key = frame.headers["key"]
        return key if key == "end" else _own(key, self.client)


class Feed(Producer):
    """Sends to a topic as soon as everybody is subscribed; a message is in the books once for each of them."""

    def __init__(self, name: str, ledger: Ledger, durables: list[Durable], *, batch: int = 0, seed: int = 0) -> None:
        super().__init__(name, _Copies(ledger, durables), durables[0].queue, window=16, batch=batch, seed=seed)
        self.durables = durables

    def pump(self) -> None:
        if all(durable.founded for durable in self.durables):
            super().pump()


class _Copies:
    """The producers' side of the books, for several subscribers."""

    def __init__(self, ledger: Ledger, durables: list[Durable]) -> None:
        self.ledger = ledger
        self.clients = [durable.client for durable in durables]
        self.problem = ledger.problem

    def sent(self, key: str, queue: str, *, group: str | None = None) -> None:
        for client in self.clients:
            self.ledger.sent(_own(key, client), queue, group=group)

    def receipted(self, keys: list[str]) -> None:
        self.ledger.receipted([_own(key, client) for key in keys for client in self.clients])


class Founder(Base):
    """Makes durable subscriptions, a message for each, and ends them; some wait for the next life of the broker. A
    subscription whose SUBSCRIBE had its receipt has the message when somebody looks. One whose end had its receipt
    takes nothing any more (a ghost), and never gives the message again, though it is made anew."""

    def __init__(self, name: str, ledger: Ledger, *, seed: int = 0) -> None:
        super().__init__(name, ledger, seed)
        self.client_id, self.number, self.key = name, 0, ""
        """Of the message that was sent there; "" before."""
        self.sure = False  # It has to come.
        self.ended = False  # The end of the subscription had its receipt.

    @property
    def topic(self) -> str:
        return f"{FOUNDED}{self.number}/{self.name}"

    def connected(self) -> None:
        self.begin()

    def begin(self) -> None:
        if self.ended:
            self.waiting["ghost"] = []
            self.send_message(self.topic, "ghost", ("receipt", "ghost"))
        else:
            self.step("SUBSCRIBE", "look" if self.key else "found", ("destination", self.topic), _named(self.topic))

    def perhaps(self) -> None:
        """Go on, or in the next life of the broker."""
        if self.random.randrange(3):
            self.begin()

    def step(self, command: str, receipt: str, *headers: tuple[str, object]) -> None:
        self.waiting[receipt] = [self.key] if self.key else []
        self.send(encoded(command, [("id", "0"), ("ack", "client"), *headers, ("receipt", receipt)]))

    def done(self, receipt: str, keys: list[str]) -> None:
        if receipt == "found":
            self.key = _own(self.next_key(), self.topic)
            self.ledger.sent(self.key, self.topic)
            self.waiting["sent"] = [self.key]
            self.send_message(self.topic, self.key, ("receipt", "sent"))
        elif receipt == "sent":
            self.ledger.receipted(keys)
            self.step("UNSUBSCRIBE", "away")
        elif receipt == "away":
            self.perhaps()
        elif receipt == "look":
            record = self.ledger.records[keys[0]]
            self.sure = record.receipted and not record.acking
            self.ledger.acking(keys)
            self.step("UNSUBSCRIBE", "end", _named(self.topic))
        elif receipt == "end":
            if self.sure and not self.ledger.records[keys[0]].deliveries:
                self.ledger.problem("lost", f"{keys[0]}: the durable subscription is gone, or empty")
            self.ledger.acked(keys)
            self.ended = True
            self.perhaps()
        elif receipt == "ghost":
            self.ended = False
            self.step("SUBSCRIBE", "anew", ("destination", self.topic), _named(self.topic))
        elif receipt == "anew" and self.random.randrange(3):
            self.step("UNSUBSCRIBE", "over", _named(self.topic))
        elif receipt == "over":
            self.number, self.key = self.number + 1, ""
            self.begin()

    def message(self, frame: Frame) -> None:
        key, redelivered = frame.headers["key"], frame.get("redelivered") == "true"
        self.ledger.delivered(key, self.topic, frame.body, int(frame.headers["size"]), redelivered)


class Reader(Base):
    """Reads a queue by its seqs with browsers that end, keeps its place over all restarts, and lets go by ACK. What has
    a new key must have a seq above all that was shown to the end before: otherwise a reader misses it."""

    def __init__(self, name: str, ledger: Ledger, queue: str, *, seed: int = 0) -> None:
        super().__init__(name, ledger, seed)
        self.queue = queue
        self.place = 0  # Everything up to there was shown.
        self.seqs = {}  # Of all that was shown.
        self.held = {}  # What was shown, and is not known to be gone.
        self.acks = {}  # What the browser showed, with the ids for ACK, in order.
        self.last = self.shown = 0  # The seq before the next one at least; and that of what came last.

    def connected(self) -> None:
        self.read()

    def read(self) -> None:
        start = self.random.choice((0, self.place + 1, self.place + 1))
        self.last, self.shown = start - 1, 0
        self.acks.clear()
        look = [("destination", self.queue), ("browser", "true"), ("include-seq", "seq"), ("from-seq", start)]
        self.send(encoded("SUBSCRIBE", [("id", "0"), ("ack", "client"), *look]))

    def message(self, frame: Frame) -> None:
        seq = int(frame.headers["seq"])
        if frame.get("browser") == "end":
            if seq < self.shown:
                self.ledger.problem("end of a browser", f"{seq} after {self.shown}")
            self.place = max(seq, self.place)
            self.release()
            return
        key = frame.headers["key"]
        if seq <= self.last:
            self.ledger.problem("seqs do not rise", f"{key}: {seq} after {self.last}")
        if self.seqs.get(key, seq) != seq or (key not in self.seqs and seq <= self.place):
            self.ledger.problem("seqs do not rise", f"{key}: {seq}, was {self.seqs.get(key)}, place {self.place}")
        self.last = self.shown = self.seqs[key] = self.held[key] = seq
        self.acks[key] = frame.headers["ack"]
        self.ledger.delivered(key, self.queue, frame.body, int(frame.headers["size"]), redelivered=True)

    def release(self) -> None:
        """Not always all of it: what is left is shown again, or let go later."""
        shown = list(self.acks)
        keys = shown if self.random.randrange(2) else shown[: self.random.randrange(len(shown) + 1)]
        if not keys:
            self.done("released", [])
            return
        self.ledger.acking(keys)
        self.waiting["released"] = keys
        self.send(encoded("ACK", [("id", self.acks[keys[-1]]), ("receipt", "released")]))

    def done(self, receipt: str, keys: list[str]) -> None:
        if receipt == "released":
            self.ledger.acked(keys)
            for key in keys:
                self.held.pop(key, None)
            self.waiting["read"] = []
            self.send(encoded("UNSUBSCRIBE", [("id", "0"), ("receipt", "read")]))
        else:
            self.read()


class Retainer(Base):
    """Sends retained messages, one at a time, and looks in each life of the broker which one is there. It is that of
    the last SEND that had a receipt, or a later one."""

    def __init__(self, name: str, ledger: Ledger, topic: str, *, seed: int = 0) -> None:
        super().__init__(name, ledger, seed)
        self.topic, self.allowed = topic, [""]
        """What may be there: keys, "" for nothing."""
        self.found, self.looked = [], False

    def connected(self) -> None:
        self.found, self.looked = [], False
        self.waiting["look"] = []
        self.send(encoded("SUBSCRIBE", [("id", "0"), ("destination", self.topic), ("receipt", "look")]))

    def message(self, frame: Frame) -> None:
        key = frame.headers["key"]
        self.found.append(key)
        self.ledger.delivered(key, self.topic, frame.body, int(frame.headers["size"]), redelivered=True)

    def done(self, receipt: str, keys: list[str]) -> None:
        if receipt == "look":
            self.waiting["looked"] = []
            self.send(encoded("UNSUBSCRIBE", [("id", "0"), ("receipt", "looked")]))
        elif receipt == "looked":
            there = "+".join(self.found)
            if there not in self.allowed:
                self.ledger.problem("retained", f"{there or 'nothing'} instead of {self.allowed}")
            self.allowed, self.looked = [there], True
        else:
            self.allowed = keys

    def pump(self) -> None:
        if not self.looked or self.waiting:
            return
        key = self.next_key()
        removes = self.random.randrange(3) == 0
        left = "" if removes else key
        self.ledger.sent(key, self.topic)
        self.allowed.append(left)
        self.waiting[key] = [left]
        self.send_message(self.topic, key, ("retain", "remove" if removes else "set"), ("receipt", key))


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
    selector = ("selector", f"colour = '{colour}'")
    return Consumer(colour, ledger, SELECTED, seed=seed, line=partial(_of_colour, colour), asks=(selector,))


def feature_workers(ledger: Ledger, seed: int) -> list[Base]:
    """More load, for a broker with `CONFIG`."""
    durables = [Durable(f"durable-{client}", ledger, DURABLE, client, seed=seed) for client in _CLIENTS]
    producers: list[tuple[str, str, int, dict[str, Any]]] = [
        ("delayed", DELAYED, 16, {"extra": _delay}),
        *(("delayed-batch", DELAYED, 4, {"extra": _delay, "batch": 4}), ("ranked", RANKED, 32, {"extra": _rank})),
        ("ranked-batch", RANKED, 4, {"extra": _rank, "batch": 4}),
        *(("coloured", SELECTED, 32, {"extra": _colour}), ("large", LARGE, 2, {"sizes": _BODIES})),
        *(("large-batch", LARGE, 1, {"sizes": _BODIES, "batch": 3}), ("browsed", BROWSED, 16, {})),
        ("browsed-batch", BROWSED, 4, {"batch": 4}),
    ]
    return [
        *(Producer(name, ledger, to, window=window, seed=seed, **more) for name, to, window, more in producers),
        Consumer("delayed-consumer", ledger, DELAYED, seed=seed, line=_in_time),
        Consumer("ranked-consumer", ledger, RANKED, seed=seed, line=_of_one_rank),
        *(_picky(ledger, colour, seed) for colour in ("red", "blue")),
        *(Consumer("large-consumer", ledger, LARGE, seed=seed), Reader("reader", ledger, BROWSED, seed=seed)),
        *(Feed("feed", ledger, durables, seed=seed), Feed("feed-batch", ledger, durables, batch=4, seed=seed)),
        *durables,
        *(Founder(f"founder{number}", ledger, seed=seed) for number in range(5)),
        *(Retainer(f"retainer{number}", ledger, f"{RETAINED}{number}", seed=seed) for number in range(3)),
    ]


def feature_drainers(ledger: Ledger) -> list[Drainer]:
    founded = {record.queue for record in ledger.records.values() if record.queue.startswith(FOUNDED)}
    settled = {record.queue for record in ledger.records.values() if record.acked}
    last = [("delay", 2 * _LONGEST)]
    return [
        Drainer("delayed-drainer", ledger, DELAYED, behind=last, line=lambda *_: ""),
        Drainer("ranked-drainer", ledger, RANKED, behind=[("priority", 0)], line=_falling()),
        *(Drainer(f"{queue}-drainer", ledger, queue) for queue in (SELECTED, LARGE, BROWSED)),
        *(DurableDrainer(f"durable-{client}-drainer", ledger, DURABLE, client) for client in _CLIENTS),
        *(DurableDrainer(f"{topic}-drainer", ledger, topic, topic) for topic in sorted(founded - settled)),
    ]
