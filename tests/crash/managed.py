"""Rounds of orders of a manager, in the middle of which the broker is killed: nothing is lost, doubled or unlogged."""

import json
import random
import threading
import time
from collections import Counter
from typing import Any

from crash.ledger import Books
from crash.process import BrokerProcess
from patience import patience

from stompcodec import client as stomp
from stompcodec.client import StompError

_FROM, _TO, _TOPIC, _DURABLE = "/queue/from", "/queue/to", "/topic/t", "desk.all"
#: The orders by the name that the books have for them.
ORDERS: dict[str, dict[str, str]] = {
    "move": {"ask": "move", "destination": _FROM, "to": _TO},
    "move to a topic": {"ask": "move", "destination": _FROM, "to": _TOPIC},
    **{"purge": {"ask": "purge", "destination": _FROM}, "delete": {"ask": "delete", "destination": _FROM}},
    "pause": {"ask": "pause", "destination": _FROM},
}


class Orders(Books):
    """The books: what became of each order, and what is wrong."""

    def __init__(self) -> None:
        super().__init__()
        #: By order, how much of it was done: "none", "some" or "all"; and whether it was answered.
        self.outcomes, self.consumed = Counter(), 0

    def cut(self, kind: str) -> int:
        return self.outcomes[kind, "some", False]

    def counts(self) -> dict[str, int]:
        found = {f"{kind} {how}{' answered' * told}": count for (kind, how, told), count in self.outcomes.items()}
        return {**found, "consumed": self.consumed}


def _ask(client: stomp.Client, ask: str, **fields: Any) -> dict[str, Any]:
    answer = client.request(f"/management/{ask}", json.dumps(fields), timeout=patience(60))
    found = json.loads(answer.body)
    return found


def _bodies(client: stomp.Client, destination: str) -> list[str]:
    """The READY messages of a queue, in order; of one that does not exist, none."""
    bodies, page = [], {}
    while True:
        answer = _ask(client, "messages", destination=destination, limit=1000, **page)
        if "error" in answer:
            assert answer["error"]["field"] == "destination", answer
            return bodies
        bodies += [row["body"] for row in answer["rows"]]
        if answer["next"] is None:
            return bodies
        page = {"page": answer["next"]}


class _Round:
    def __init__(self, books: Orders, broker: BrokerProcess, kind: str, bodies: list[str], beside: bool) -> None:
        self.books, self.broker, self.kind, self.expected, self.beside = books, broker, kind, bodies, beside
        self.answer, self.taken, self.is_awaited = None, [], False
        self.begun, self.done = threading.Event(), threading.Event()

    @property
    def url(self) -> str:
        return f"stomp://127.0.0.1:{self.broker.port}"

    def prepare(self) -> None:
        with stomp.connect(self.url, client_id="desk") as client:
            for name in (_FROM, _TO, _DURABLE):
                _ask(client, "delete", destination=name)
            if self.kind == "move to a topic":
                client.subscribe(_TOPIC, ack="client", headers={"durable-subscription-name": "all"})
            client.send_many((_FROM, body, {"persistent": "true"}) for body in self.expected)
            client.send("/queue/none", "x", headers={"persistent": "true"}, receipt=True)

    def order(self) -> None:
        """Give the order. Its answer may be lost."""
        fields = dict(ORDERS[self.kind])
        try:
            with stomp.connect(self.url, reconnect=None) as client:
                if self.beside:
                    how = {"ack": "client-individual", "prefetch": 5}
                    client.subscribe(_FROM, handler=lambda message: self.taken.append(message.text()), **how)
                self.begun.set()
                self.answer = _ask(client, fields.pop("ask"), **fields)
        except (StompError, OSError):
            pass
        finally:
            self.begun.set()
            self.done.set()

    def await_log(self) -> None:
        """Wait for the line of an answer: the broker logs in a thread of its own, which kill -9 ends, too."""
        until = time.monotonic() + patience(10)
        self.is_awaited = True
        while not self._logged()[2] and time.monotonic() < until:
            time.sleep(0.01)

    def look(self) -> None:
        """See where the messages are, after the restart."""
        books, expected, kind = self.books, self.expected, self.kind
        with stomp.connect(self.url) as client:
            left, moved, fanned = (_bodies(client, name) for name in (_FROM, _TO, _DURABLE))
            rows = {row["destination"]: row for row in _ask(client, "destinations", limit=1000)["rows"]}
        for name, bodies in ((_FROM, left), (_TO, moved)):
            if rows.get(name, {"ready": 0})["ready"] != len(bodies):
                books.problem("counted wrongly", (kind, rows.get(name), len(bodies)))
        if any(row["paused"] for row in rows.values()):
            books.problem("paused after a restart", kind)
        places = Counter(left) + Counter(moved) + Counter(fanned)
        doubled = [body for body, count in places.items() if count > 1]
        if doubled:
            books.problem("doubled", (kind, doubled))
        lost = set(expected) - places.keys() - set(self.taken)
        if lost and ORDERS[kind]["ask"] in ("move", "pause"):
            books.problem("lost", (kind, sorted(lost)[:5]))
        if kind == "purge" and not self.taken and left != expected[len(expected) - len(left) :]:
            books.problem("a purge did not take the oldest", left[:5])
        answered = self.answer is not None
        if answered and kind != "pause" and set(left) - set(self.taken):
            books.problem("answered and not done", (kind, self.answer, len(left)))
        how = "none" if len(left) == len(expected) else "some" if left else "all"
        books.outcomes[kind, how, answered] += 1
        books.consumed += len(self.taken)
        self._look_at_log(how)

    def _logged(self) -> tuple[list[str], list[str], list[str]]:
        lines = self.broker.log.read_text(encoding="utf-8", errors="replace").splitlines()
        orders = [line for line in lines if f"order {ORDERS[self.kind]['ask']} " in line and _FROM in line]
        return lines, orders, [line for line in orders if not line.endswith("has begun")]

    def _look_at_log(self, how: str) -> None:
        lines, orders, ended = self._logged()
        if how != "none" and not self.taken and not orders:
            self.books.problem("not logged", self.kind)
        if len(ended) != 1 and (ended or self.is_awaited):
            self.books.problem("an answer that is not logged once", (self.kind, orders))
        if any("Traceback" in line for line in lines):
            self.books.problem("an exception", self.broker.tail())
        self.broker.log.write_text("")


def managed_rounds(folder, rounds, *, seed=0, window=None, count=2000, progress=lambda _: None, enough=lambda _: True):
    """Kill the broker in the middle of orders, so many times, and look for what it lost."""
    chance, books = random.Random(seed), Orders()
    broker = BrokerProcess(folder, config=None if window is None else f"[queues]\nwindow = {window}\n")
    whole = 0.2  # seconds that an order takes, learned as it goes
    try:
        broker.start()
        for number in range(10 * rounds):
            if number >= rounds and enough(books):
                break
            kind = list(ORDERS)[number % len(ORDERS)]
            bodies = [f"{number}.{each}" for each in range(count)]
            one = _Round(books, broker, kind, bodies, beside=kind != "delete" and chance.random() < 0.3)
            one.prepare()
            broker.log.write_text("")
            order = threading.Thread(target=one.order, daemon=True)
            order.start()
            one.begun.wait(patience(60))
            late = one.done.wait(chance.uniform(0.0, whole))
            if one.answer is not None:
                one.await_log()
            broker.kill()
            order.join(patience(120))
            broker.start()
            one.look()
            if kind != "pause":
                whole = max(0.01, min(2.0, whole * (0.8 if late else 1.1)))
            progress(number + 1)
    finally:
        broker.kill()
    return books
