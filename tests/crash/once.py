"""Rounds of kills and cuts with our client and `resend=True`: each message is stored once, and handled once."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from crash.ledger import Books
from crash.process import BrokerProcess

from stompcodec import client as stomp
from stompcodec.client import Backoff, StompError
from stompcodec.testing.faults import FaultProxy

_QUEUES = ("/queue/once.confirmed", "/queue/once.skipping")
_BACKLOG = 1500  # Messages that are not handled yet, above which senders rest.
_PATIENCE = 240.0  # Seconds that a call may take: longer than all kills and cuts around it.
_QUIET = 3.0  # Seconds without a message after which a queue counts as empty.


class Once(Books):
    """What was accepted, stored and handled. Used by several threads."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.accepted = set()  # Keys that the broker has accepted, by a receipt.
        #: The message-ids by which each key came, and how often each message-id came.
        self.ids, self.deliveries, self.handled = {}, Counter(), Counter()
        self.resent = 0  # SENDs that left the client more than once.
        self.sent = set()

    @property
    def backlog(self) -> int:
        return len(self.accepted) - len(self.handled)

    @property
    def lacks_some(self) -> bool:
        """Something that was accepted has not been handled."""
        with self.lock:
            return not self.accepted <= self.handled.keys()

    def leaves(self, key: str) -> None:
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

    def counts(self) -> dict[str, int]:
        again = sum(count - 1 for count in self.deliveries.values())
        return {"accepted": len(self.accepted), "sent again": self.resent, "delivered again": again}


class _Program:
    """A client in a thread, which does its part, `run`, until its work is done."""

    def __init__(self, run, name, books, port, seed):
        self.run, self.name, self.books, self.port = run, name, books, port
        self.ending, self.random = threading.Event(), random.Random(f"{seed} {name}")
        self.count, self.fault = 0, None
        self.thread = threading.Thread(target=self._guarded, name=name, daemon=True)
        self.thread.start()

    def _guarded(self) -> None:
        patient = {"startup_timeout": _PATIENCE, "receipt_timeout": _PATIENCE, "connect_timeout": 10.0}
        again = Backoff(first=0.02, most=0.1)
        how = {"resend": True, "reconnect": again, "heart_beat": (0, 0), "on_frame": self._watch, **patient}
        try:
            with stomp.connect(f"stomp://guest:guest@127.0.0.1:{self.port}", **how) as client:
                self.run(self, client)
        except Exception as error:
            self.fault = error

    def _watch(self, way: str, frame: object) -> None:
        if way == "out" and getattr(frame, "command", "") == "SEND":
            self.books.leaves(frame.headers["n"])

    def rows(self, many: int) -> list[tuple[str, bytes, dict[str, str]]]:
        made = []
        for _ in range(many):
            self.count += 1
            key = f"{self.name}-{self.count}"
            body = key.encode() * self.random.choice((1, 1, 10, 200))
            made.append((self.random.choice(_QUEUES), body, {"n": key, "persistent": "true"}))
        return made

    def batches(self, most: int) -> Iterator[list[tuple[str, bytes, dict[str, str]]]]:
        """Rows, until the end, while the consumers keep up. When the next are wanted, the broker has these."""
        while not self.ending.is_set():
            if self.books.backlog > _BACKLOG:
                time.sleep(0.02)
                continue
            rows = self.rows(self.random.randint(1, most))
            yield rows
            self.books.accept([row[2]["n"] for row in rows])


def _send(program: _Program, client: stomp.Client) -> None:
    for rows in program.batches(60):
        for row, receipt in [(row, client.send_for_receipt(*row)) for row in rows]:
            assert receipt is not None
            receipt.wait()
            program.books.accept([row[2]["n"]])


def _send_many(program: _Program, client: stomp.Client) -> None:
    for rows in program.batches(300):
        client.send_many(rows, receipt_every=50)


def _commit(program: _Program, client: stomp.Client) -> None:
    """In transactions. One whose outcome is unknown is sent again, with the same keys."""
    for rows in program.batches(8):
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


def _consume(queue: str, confirmed: bool, program: _Program, client: stomp.Client) -> None:
    """Handle what comes, then acknowledge; one that is `confirmed` with receipts. That one remembers only messages
    whose ACK it is not sure of. The other one remembers all message-ids."""
    books, seen = program.books, set[str]()
    since = time.monotonic()  # when the last message came, or the broker was started for the last time
    with client.subscribe(queue, ack="client-individual", prefetch=50) as subscription:
        while True:
            message, now = subscription.get(0.2), time.monotonic()
            if message is None and program.ending.is_set():
                if now - since > (_PATIENCE if books.lacks_some else _QUIET):
                    return
                continue
            since = now
            if message is None:
                continue
            key, ident = message.headers["n"], message.headers["message-id"]
            books.delivered(key, ident, message.redelivered)
            if ident not in seen:
                books.handle(key)
                seen.add(ident)
            with suppress(StompError):
                message.ack(receipt=confirmed)
                if confirmed:  # it never comes again
                    seen.discard(ident)


def once_rounds(folder, kills, cuts, *, seed=0, config="", progress=lambda _: None):
    """Kill the broker and cut connections under a load of our clients, and look what was stored, and how often."""
    chance, books = random.Random(seed), Once()
    with (
        BrokerProcess(folder, config=config or None) as broker,
        FaultProxy(("127.0.0.1", broker.port), seed=seed) as proxy,
    ):

        def restart() -> None:
            broker.kill()
            broker.start()
            proxy.upstream = ("127.0.0.1", broker.port)

        rest = books, proxy.port, seed
        senders = [_Program(run, name, *rest) for run, name in ((_send, "s1"), (_send, "s2"), (_send_many, "b1"))]
        senders.append(_Program(_commit, "t1", *rest))
        taking = (("confirmed", _QUEUES[0], True), ("skipping", _QUEUES[1], False))
        consumers = [_Program(partial(_consume, queue, confirmed), name, *rest) for name, queue, confirmed in taking]
        programs = [*senders, *consumers]
        for number in range(kills):
            _progress(books, programs, chance.randint(1, 200), chance.uniform(0.02, 0.5))
            restart()
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
        for program in senders:
            program.ending.set()
        for program in senders:
            program.thread.join(_PATIENCE)
        restart()  # what was acknowledged stays away, what was accepted is there
        for program in consumers:
            program.ending.set()
        for program in programs:
            program.thread.join(_PATIENCE)
            if program.fault is not None or program.thread.is_alive():
                books.problem("a client failed", f"{program.name}: {program.fault!r}")
    books.balance()
    return books


def _progress(books: Once, programs: list[_Program], messages: int, seconds: float) -> None:
    """Wait until some messages were accepted, and some time has passed."""
    enough, until = len(books.accepted) + messages, time.monotonic() + seconds
    _until(lambda: len(books.accepted) >= enough and time.monotonic() >= until, programs, 30.0)


def _until(condition: Callable[[], bool], programs: list[_Program], most: float) -> None:
    give_up = time.monotonic() + most
    while not condition() and time.monotonic() < give_up and all(program.thread.is_alive() for program in programs):
        time.sleep(0.005)
