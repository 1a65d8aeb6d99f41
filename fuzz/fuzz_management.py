"""Invariant: whatever requests a broker gets, over STOMP or as HTTP heads, and however they are cut, nothing is raised
and no fault is logged. Each request over STOMP is answered once, as the schema says, and nobody else gets an ERROR; the
books agree, and no message is lost or doubled by a move. An HTTP request is answered once, or waits for more."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from case import case_of, pieces
from engine import drive

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from broker.audit import difference
from broker.harness import FaultyStore
from broker.management.managing import LOCAL, Managed
from broker.management.managing import check as check_answer

from stompcodec.broker.management.schema import REQUESTS
from stompcodec.broker.web.site import Site
from stompcodec.transport.websocket import MAX_HEAD, server_layer

NAMES = [*REQUESTS, "none", ""]
FIELDS = [
    *("limit", "page", "destination", "to", "selector", "message_id", "session", "match", "kind", "sort", "body"),
    *("destination", "destination", "to", "level", "x"),
]
VALUES: list[Any] = [
    *(None, True, 0, 1, 2, 1000, 1001, -1, 1.5, "", "x", [], {}, "queue", "ready", "warning", "Wzdd", "WyIiXQ", "*"),
    *("/queue/a", "/queue/b", "/queue/DLQ.a", "/topic/t", "/temp-queue/x", "desk.all", "e-1", "e-2", "n > 1", "= 1"),
]
#: Requests of an input, which can be made of few bytes that are repeated.
_MOST = 256
BODIES = sorted(f"m{number}" for number in range(8))


class Faults(logging.Handler):
    """What the broker says is a fault of its own."""

    def emit(self, record: logging.LogRecord) -> None:
        assert record.exc_info is None, self.format(record)


LOG = logging.getLogger("stompcodec.broker")
LOG.handlers, LOG.propagate = [Faults()], False


def check(data: bytes) -> None:
    case = case_of(data)
    if data and data[0] & 1:
        check_http(case.wire, case.plan)
    else:
        check_stomp(case.wire)


# ---- over STOMP ----


def check_stomp(wire: bytes) -> None:
    octets = iter(wire)
    bench = Managed(FaultyStore(background=len(wire) % 2 == 1), window_messages=1 + len(wire) % 3, max_attempts=2)
    other, asker = bench.peer(peer=LOCAL), bench.peer(peer=LOCAL)
    other.subscribe("/topic/t", id="t")
    asker.subscribe("/temp-queue/answers", id="a")
    for number, body in enumerate(BODIES):
        other.put("/queue/a" if number % 2 else "/queue/b", body, persistent="true" if number % 4 else "false", n="2")
    other.take()
    told = 0  # messages that were moved to the topic
    for how in islice(octets, _MOST):
        name, body = NAMES[how % len(NAMES)], body_of(octets, how)
        if name in ("purge", "delete", "log-level", "close"):
            name = "messages"
        asker.put(f"/management/{name}", body, reply_to="/temp-queue/answers", correlation_id=str(how))
        finish(bench)
        (answer,) = asker.take()
        assert answer.headers["correlation-id"] == str(how)
        check_answer(json.loads(answer.body))
        assert not other.closed
        told += len(other.bodies())
    held = [message for queue in bench.broker.queues.values() for message in queue.messages]
    paged = sum(queue.paging.count for queue in bench.broker.queues.values() if queue.paging is not None)
    assert len(held) + paged + told == len(BODIES), (held, paged, told)
    assert difference(bench.broker) == {}


def finish(bench: Managed) -> None:
    """Let the store finish what it does in the background."""
    store = bench.store
    for _ in range(1000):
        if store.job is None:
            return
        store.finish()
        bench.turn()
    raise AssertionError("the store never rests")


def body_of(octets: Iterator[int], how: int) -> bytes:
    """A body: fields and values of a list, or any bytes."""
    if how & 128:
        return bytes(value for value, _ in zip(octets, range(how & 31), strict=False))
    fields = {FIELDS[next(octets, 0) % len(FIELDS)]: VALUES[next(octets, 0) % len(VALUES)] for _ in range(how % 4)}
    return json.dumps(fields).encode()


# ---- over HTTP ----


class Wire:
    """A connection as the site sees it."""

    peer = LOCAL

    def __init__(self) -> None:
        self.said: list[bytes] = []

    def respond(self, octets: bytes) -> None:
        self.said.append(octets)


def check_http(wire: bytes, plan: int) -> None:
    whole = answered(wire, 0)
    assert whole == answered(wire, plan or 1)


def answered(wire: bytes, plan: int) -> list[bytes]:
    bench = Managed(ws_port=0, web_health=True, web_metrics=True, web_page=True)
    site, connection = Site(bench.management), Wire()
    layer = server_layer(1000, None, None, "127.0.0.1", True)
    visit = site.visit(connection)  # type: ignore[arg-type]  # it has what a visit uses
    asked = False
    for piece in pieces(wire, plan):
        if layer.error is not None or layer.opened:
            break
        layer.receive(bytes(piece))
        assert layer.buffered <= MAX_HEAD + 8192 or layer.opened
        if layer.request is not None and not asked:
            asked = True
            visit.asked(layer.request)
            while bench.broker.quota.waiting:
                bench.broker.quota.next(0.0)
    heads = [octets.partition(b"\r\n")[0] for octets in connection.said]
    assert len(heads) == asked
    assert all(head.startswith(b"HTTP/1.1 ") for head in heads)
    if layer.error is not None:
        said = b"".join(layer.take_output())
        assert said.startswith(b"HTTP/1.1 ")
        assert len(said) < 4096
        heads.append(said.partition(b"\r\n")[0])
    visit.gone()
    assert bench.broker.account.used == 0
    return [*heads, b"opened" if layer.opened else b""]


if __name__ == "__main__":
    drive(check)
