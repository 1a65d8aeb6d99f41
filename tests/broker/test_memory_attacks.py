"""Resident memory stays near `limits.memory`, whatever peers do: a broker process of its own for each attack.

A client that behaves well sends, receives and acknowledges beside each of them, in every round of the crowd.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from broker.crowd import Crowd, highest, masked
from crash.process import BrokerProcess

from stompcodec.broker.memory import MESSAGE

pytestmark = [
    pytest.mark.long,
    pytest.mark.no_asan,
    pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc here"),
]

MIB = 2**20
LIMIT = 64 * MIB
#: Three times the limit comes from so many peers.
PEERS, TOTAL = 60, 3 * LIMIT
LINE = b"h:" + b"x" * 65_000 + b"\n"
LINES = TOTAL // PEERS // len(LINE) + 1
CONFIG = '[limits]\nmemory = "64 MiB"\n[listen]\nlegacy = 0\n[topics]\nretain = true\n'


def repeated(count: int, *pieces: bytes) -> Iterator[bytes]:
    return itertools.chain.from_iterable(itertools.repeat(pieces, count))


def send(destination: str, body: bytes = b"", *headers: str) -> bytes:
    return "\n".join(["SEND", f"destination:{destination}", *headers, "", ""]).encode() + body + b"\0"


def subscribe(destination: str, *headers: str, number: int = 1) -> bytes:
    return "\n".join(["SUBSCRIBE", f"id:{number}", f"destination:{destination}", *headers, "", "\0"]).encode()


# ---- what they do: each makes the members of a crowd ----


def empty_messages(crowd: Crowd, peers: int, *headers: str) -> None:
    count = TOTAL // MESSAGE // peers // 1000
    for number in range(peers):
        crowd.join(repeated(max(1, count), send(f"/queue/{number}", b"", *headers) * 1000))


def heads(crowd: Crowd, version: str, wrap: str = "") -> None:
    """Heads that come to no end."""
    wrapped: Callable[[bytes], bytes] = masked if wrap == "ws" else bytes
    for _ in range(PEERS):
        crowd.join(itertools.chain([wrapped(b"SEND\n")], repeated(LINES, wrapped(LINE))), version=version, wrap=wrap)


def websocket_frames(crowd: Crowd) -> None:
    """Frames of WebSocket that come to no end: nothing of them reaches a session."""
    for _ in range(PEERS):
        crowd.join(itertools.chain([masked(b"SEND\n", length=60 * MIB)], repeated(LINES, LINE)), wrap="ws")


def bodies(crowd: Crowd, *headers: str) -> None:
    """As large as a body in memory can be, less its end."""
    for _ in range(TOTAL // 100_000):
        crowd.join(iter([send("/queue/a", b"x" * 99_000, *headers)[:-1]]))


def transactions(crowd: Crowd, body: bytes) -> None:
    piece = send("/queue/a", body, "transaction:t") * 100
    count = TOTAL // PEERS // ((MESSAGE + len(body)) * 100) + 1
    for _ in range(PEERS):
        crowd.join(itertools.chain([b"BEGIN\ntransaction:t\n\n\0"], repeated(count, piece)))


def slow_subscribers(crowd: Crowd, topics: int, size: int, total: int, *headers: str) -> None:
    """They do not read, or do not acknowledge, what is sent to topics."""
    for number in range(PEERS):
        crowd.join(iter([subscribe(f"/topic/{number % topics}", *headers, number=number)]))
    many = max(1, 100_000 // (size + MESSAGE))
    for number in range(topics):
        piece = send(f"/topic/{number}", b"x" * size) * many
        crowd.join(repeated(total // topics // ((MESSAGE + size) * many) + 1, piece), reads=True)


def slow_readers(crowd: Crowd) -> None:
    """The transport of each takes some MiB; then its output waits in the broker."""
    for number in range(PEERS):
        crowd.join(iter([subscribe("/queue/a", number=number)]))
    for _ in range(4):
        crowd.join(repeated(1000, send("/queue/a", b"x" * 90_000)), reads=True)


def unread_receipts(crowd: Crowd) -> None:
    for _ in range(PEERS):
        crowd.join(repeated(120, send("/topic/nobody", b"", "receipt:" + "x" * 60_000)))


def consumers_that_do_not_acknowledge(crowd: Crowd, version: str) -> None:
    for number in range(20):
        crowd.join(iter([subscribe(f"/queue/{number}", "ack:client", "prefetch-count:0")]), version=version, reads=True)
        crowd.join(repeated(10, send(f"/queue/{number}") * 1000))


def subscriptions(crowd: Crowd) -> None:
    """Different selectors, long ids."""
    for _ in range(PEERS):
        selector = " OR ".join(["b = 1"] * 20)
        frames = (
            subscribe(f"/topic/{n % 50}", f"selector:a = '{n}' OR {selector}", f"x:{n}").replace(
                b"id:1\n", b"id:%d-%b\n" % (n, b"i" * 500)
            )
            for n in range(400)
        )
        crowd.join(frames, reads=True)


def destinations(crowd: Crowd) -> None:
    for peer in range(20):
        crowd.join(iter([send(f"/queue/{'q' * 3000}{peer}-{n}") for n in range(600)]), reads=True)


def long_names(crowd: Crowd) -> None:
    """As text, a name takes up to four times the bytes that it has in a frame."""
    for number in range(4):
        crowd.join(repeated(120, send(f"/queue/{number}\U0001f600{'x' * 3900}") * 40))


def delayed(crowd: Crowd) -> None:
    for number in range(10):
        crowd.join(repeated(20, send(f"/queue/{number}", b"", "delay:9999999") * 1000))


def retained(crowd: Crowd) -> None:
    for peer in range(10):
        crowd.join(iter([send(f"/topic/{peer}-{n}", b"x" * 20_000, "retain:set") for n in range(600)]), reads=True)


def what_is_left_in_between(crowd: Crowd) -> None:
    """Many small messages, of which a few stay where they lie in memory; then something larger."""
    eater = crowd.join(iter([subscribe("/queue/f", "ack:client-individual", "prefetch-count:0")]), reads=True)
    crowd.join(repeated(70, send("/queue/f") * 1000))
    crowd.run()
    eater.script = (b"ACK\nid:1-%d\n\n\0" % number for number in range(1, 70_000) if number % 100)
    eater.done = False
    crowd.run()
    heads(crowd, "1.2")


ATTACKS: dict[str, Callable[[Crowd], object]] = {
    "empty messages from 4": lambda crowd: empty_messages(crowd, 4),
    "empty messages from 60": lambda crowd: empty_messages(crowd, 60),
    "empty messages that ask to be stored": lambda crowd: empty_messages(crowd, 4, "persistent:true"),
    "heads, 1.0": lambda crowd: heads(crowd, "1.0"),
    "heads, 1.2": lambda crowd: heads(crowd, "1.2"),
    "heads, legacy": lambda crowd: heads(crowd, "legacy"),
    "heads over WebSocket": lambda crowd: heads(crowd, "1.2", "ws"),
    "frames of WebSocket": websocket_frames,
    "bodies with a length": lambda crowd: bodies(crowd, "content-length:100000"),
    "bodies without a length": bodies,
    "transactions of empty messages": lambda crowd: transactions(crowd, b""),
    "transactions of larger messages": lambda crowd: transactions(crowd, b"x" * 10_000),
    "subscribers that do not read": lambda crowd: slow_subscribers(crowd, 1, 90_000, TOTAL // 20),
    "subscribers of many topics that do not read": lambda crowd: slow_subscribers(crowd, PEERS, 90_000, 2 * TOTAL),
    "subscribers that do not acknowledge": lambda crowd: slow_subscribers(crowd, 1, 100, TOTAL // 10, "ack:client"),
    "subscribers of many topics that do not acknowledge": lambda crowd: slow_subscribers(
        crowd, PEERS, 1000, TOTAL, "ack:client"
    ),
    "slow readers": slow_readers,
    "unread receipts": unread_receipts,
    "consumers that do not acknowledge, 1.1": lambda crowd: consumers_that_do_not_acknowledge(crowd, "1.1"),
    "consumers that do not acknowledge, 1.2": lambda crowd: consumers_that_do_not_acknowledge(crowd, "1.2"),
    "subscriptions": subscriptions,
    "destinations": destinations,
    "long names": long_names,
    "delayed": delayed,
    "retained": retained,
    "what is left in between": what_is_left_in_between,
}
NEEDS = {"heads over WebSocket": "websockets", "frames of WebSocket": "websockets", "subscriptions": "lark"}


#: With 60 outboxes at once the buffers of the transports take some 10 MiB besides, which is much of 64. So are the
#: buffers of the Python backend.
LIMITS = dict.fromkeys(
    ("subscribers of many topics that do not read", "what is left in between", "slow readers", "unread receipts"),
    2 * LIMIT,
)
#: One of each kind. The others differ in the version, the transport or the number of peers.
QUICK = (
    *("empty messages from 4", "heads, 1.2", "frames of WebSocket", "bodies without a length"),
    *("transactions of empty messages", "subscribers of many topics that do not acknowledge", "unread receipts"),
    *("consumers that do not acknowledge, 1.2", "subscriptions", "destinations", "retained", "what is left in between"),
)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in ATTACKS]
)
def test_resident_memory_stays_near_the_limit(name: str, tmp_path: Path) -> None:
    pytest.importorskip("click")
    pytest.importorskip(NEEDS.get(name, "click"))
    limit = LIMITS.get(name, LIMIT)
    config = CONFIG.replace("64 MiB", f"{limit // MIB} MiB")
    with BrokerProcess(tmp_path, config=config, memory=True) as broker:
        with Crowd(broker) as crowd:
            ATTACKS[name](crowd)
            crowd.run()
        assert highest(broker) < 1.3 * limit
        assert "Traceback" not in broker.tail(10_000)
