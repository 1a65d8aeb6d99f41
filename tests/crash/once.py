"""Rounds of kills and cuts with our client and `resend=True`: each accepted message is stored once, and handled once.

The clients talk to the broker through a proxy, whose port stays when the broker is started anew. Everything is sent
with an idempotency key: by `send`, by `send_many`, and in transactions that are sent again as a whole.
"""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from crash.process import BrokerProcess

from stompcodec import client as stomp
from stompcodec.client import Backoff, StompError
from stompcodec.testing.faults import FaultProxy

_QUEUES = ("/queue/once.confirmed", "/queue/once.skipping")
_BACKLOG = 1500  # Messages that are not handled yet, above which senders rest.
_PATIENCE = 240.0  # Seconds that a call may take: longer than all kills and cuts around it.
_QUIET = 3.0  # Seconds without a message after which a queue counts as empty.


class Books:
    """What was accepted, stored and handled. Used by several threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.accepted: set[str] = set()  # Keys that the broker has accepted, by a receipt.
        #: The message-ids by which each key came, and how often each message-id came.
        self.ids: dict[str, set[str]] = {}
        self.deliveries: Counter[str] = Counter()
        self.handled: Counter[str] = Counter()
        self.resent = 0  # SENDs that left the client more than once.
        self.sent: set[str] = set()
        self.problems: Counter[str] = Counter()
        self.examples: list[str] = []

    @property
    def backlog(self) -> int:
        return len(self.accepted) - len(self.handled)

    @property
    def lacks_some(self) -> bool:
        """Something that was accepted has not been handled."""
        with self.lock:
            return not self.accepted <= self.handled.keys()

    def problem(self, kind: str, example: str) -> None:
        self.problems[kind] += 1
        if self.problems[kind] <= 5:
            self.examples.append(f"{kind}: {example}")

    def leaves(self, key: str) -> None:
        """A SEND is written."""
        with self.lock:
            self.resent += key in self.sent
            self.sent.add(key)

    def accept(self, keys: list[str]) -> None:
        with self.lock:
            self.accepted.update(keys)

    def delivered(self, key: str, ident: str, redelivered: bool) -> None:
        with self.lock:
            self.ids.setdefault(key, set()).add(ident)
            self.deliveries[ident] += 1
            if self.deliveries[ident] > 1 and not redelivered:
                self.problem("delivered again without redelivered:true", f"{key} {ident}")

    def handle(self, key: str) -> None:
        with self.lock:
            self.handled[key] += 1

    def balance(self) -> None:
        for key in sorted(self.accepted - self.handled.keys()):
            self.problem("lost", key)
        for key, ids in self.ids.items():
            if len(ids) > 1:
                self.problem("stored more than once", f"{key} {sorted(ids)}")
        for key, count in self.handled.items():
            if count > 1:
                self.problem("handled more than once", f"{key} {count} times")

    def figures(self) -> str:
        again = sum(count - 1 for count in self.deliveries.values())
        return (
            f"{len(self.accepted)} accepted, {self.resent} sent again, {self.problems['lost']} lost, "
            f"{self.problems['stored more than once']} stored more than once, {again} delivered again, "
            f"{self.problems['delivered again without redelivered:true']} of these unmarked, "
            f"{self.problems['handled more than once']} handled more than once"
        )


class _Program(ABC):
    """A client in a thread."""

    def __init__(self, name: str, books: Books, port: int, seed: int, ending: threading.Event) -> None:
        self.name, self.books, self.ending = name, books, ending
        self.random = random.Random(f"{seed} {name}")
        self.count = 0
        self.port = port
        self.fault: Exception | None = None
        self.thread = threading.Thread(target=self._guarded, name=name, daemon=True)
        self.thread.start()

    def _guarded(self) -> None:
        try:
            with stomp.connect(
                f"stomp://guest:guest@127.0.0.1:{self.port}",
                resend=True,
                reconnect=Backoff(first=0.02, most=0.1),
                startup_timeout=_PATIENCE,
                receipt_timeout=_PATIENCE,
                connect_timeout=10.0,
                heart_beat=(0, 0),
                on_frame=self._watch,
            ) as client:
                self.run(client)
        except Exception as error:
            self.fault = error

    def _watch(self, way: str, frame: object) -> None:
        if way == "out" and getattr(frame, "command", "") == "SEND":
            self.books.leaves(frame.headers["n"])

    @abstractmethod
    def run(self, client: stomp.Client) -> None:
        """Do this client's part until its work is done."""

    def rows(self, many: int) -> list[tuple[str, bytes, dict[str, str]]]:
        """The next messages: destination, body, headers."""
        made = []
        for _ in range(many):
            self.count += 1
            key = f"{self.name}-{self.count}"
            body = key.encode() * self.random.choice((1, 1, 10, 200))
            made.append((self.random.choice(_QUEUES), body, {"n": key, "persistent": "true"}))
        return made

    def batches(self, most: int) -> Iterator[list[tuple[str, bytes, dict[str, str]]]]:
        """Rows, until the end, while the consumers keep up."""
        while not self.ending.is_set():
            if self.books.backlog > _BACKLOG:
                time.sleep(0.02)
                continue
            yield self.rows(self.random.randint(1, most))


class _Sender(_Program):
    """By `send`, with receipts that are waited for later."""

    def run(self, client: stomp.Client) -> None:
        for rows in self.batches(60):
            receipts = [client.send_for_receipt(*row) for row in rows]
            for row, receipt in zip(rows, receipts):
                assert receipt is not None
                receipt.wait()
                self.books.accept([row[2]["n"]])


class _BulkSender(_Program):
    """By `send_many`."""

    def run(self, client: stomp.Client) -> None:
        for rows in self.batches(300):
            client.send_many(rows, receipt_every=50)
            self.books.accept([row[2]["n"] for row in rows])


class _Committer(_Program):
    """In transactions. One whose outcome is unknown is sent again, with the same keys."""

    def run(self, client: stomp.Client) -> None:
        for rows in self.batches(8):
            for row in rows:
                row[2]["idempotency-key"] = row[2]["n"]
            while True:
                try:
                    with client.transaction() as transaction:
                        for row in rows:
                            transaction.send(*row)
                except StompError:
                    continue
                break
            self.books.accept([row[2]["n"] for row in rows])


class _Consumer(_Program):
    """Handles what it gets, then acknowledges; one that is `confirmed` with receipts.

    That one remembers only messages whose ACK it is not sure of. The other one remembers all message-ids.
    """

    def __init__(self, name: str, queue: str, confirmed: bool, *rest: object) -> None:
        self.queue, self.confirmed = queue, confirmed
        self.seen: set[str] = set()
        super().__init__(name, *rest)

    def run(self, client: stomp.Client) -> None:
        since = time.monotonic()  # when the last message came, or the broker was started for the last time
        with client.subscribe(self.queue, ack="client-individual", prefetch=50) as subscription:
            while True:
                message, now = subscription.get(0.2), time.monotonic()
                if message is None and self.ending.is_set():
                    if now - since > (_PATIENCE if self.books.lacks_some else _QUIET):
                        return
                    continue
                since = now
                if message is None:
                    continue
                key, ident = message.headers["n"], message.headers["message-id"]
                self.books.delivered(key, ident, message.redelivered)
                if ident not in self.seen:
                    self.books.handle(key)
                    self.seen.add(ident)
                with suppress(StompError):
                    message.ack(receipt=self.confirmed)
                    if self.confirmed:  # it never comes again
                        self.seen.discard(ident)


def once_rounds(
    folder: Path,
    kills: int,
    cuts: int,
    *,
    seed: int = 0,
    config: str = "",
    progress: Callable[[int], None] = lambda _: None,
) -> Books:
    """Kill the broker and cut connections under a load of our clients, and look what was stored, and how often."""
    chance = random.Random(seed)
    books, ending, drained = Books(), threading.Event(), threading.Event()
    with (
        BrokerProcess(folder, config=config or None) as broker,
        FaultProxy(("127.0.0.1", broker.port), seed=seed) as proxy,
    ):
        rest = books, proxy.port, seed
        consumers = [
            _Consumer("confirmed", _QUEUES[0], True, *rest, drained),
            _Consumer("skipping", _QUEUES[1], False, *rest, drained),
        ]
        senders = [
            kind(name, *rest, ending)
            for kind, name in ((_Sender, "s1"), (_Sender, "s2"), (_BulkSender, "b1"), (_Committer, "t1"))
        ]
        programs = [*senders, *consumers]
        for number in range(kills):
            _progress(books, programs, chance.randint(1, 200), chance.uniform(0.02, 0.5))
            broker.kill()
            broker.start()
            proxy.upstream = ("127.0.0.1", broker.port)
            progress(number + 1)
        while proxy.cuts < cuts:
            for way in (proxy.rules.up, proxy.rules.down):
                way.cut_after = (0, chance.choice([500, 20_000, 400_000]))
                way.piece = chance.choice([None, None, 1000])
            proxy.rules.reset = chance.random() < 0.5
            before = proxy.cuts
            _until(lambda before=before: proxy.cuts > before + 5, programs, 2.0)
            for way in (proxy.rules.up, proxy.rules.down):
                way.cut_after = way.piece = None
            proxy.cut()
            _progress(books, programs, chance.randint(1, 100), 0.05)
            if not kills:
                progress(proxy.cuts)
        ending.set()
        for program in senders:
            program.thread.join(_PATIENCE)
        broker.kill()  # what was acknowledged stays away, what was accepted is there
        broker.start()
        proxy.upstream = ("127.0.0.1", broker.port)
        drained.set()
        for program in programs:
            program.thread.join(_PATIENCE)
            if program.fault is not None or program.thread.is_alive():
                books.problem("a client failed", f"{program.name}: {program.fault!r}")
    books.balance()
    return books


def once_kills(folder: Path, rounds: int, **options: Any) -> Books:
    """As `once_rounds`, with kills alone."""
    return once_rounds(folder, rounds, 0, **options)


def once_cuts(folder: Path, cuts: int, **options: Any) -> Books:
    """As `once_rounds`, with cuts alone."""
    return once_rounds(folder, 0, cuts, **options)


def _progress(books: Books, programs: list[_Program], messages: int, seconds: float) -> None:
    """Wait until some messages were accepted, and some time has passed."""
    enough, until = len(books.accepted) + messages, time.monotonic() + seconds
    _until(lambda: len(books.accepted) >= enough and time.monotonic() >= until, programs, 30.0)


def _until(condition: Callable[[], bool], programs: list[_Program], most: float) -> None:
    give_up = time.monotonic() + most
    while not condition() and time.monotonic() < give_up and all(program.thread.is_alive() for program in programs):
        time.sleep(0.005)
