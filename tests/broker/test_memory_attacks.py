"""Resident memory stays near `limits.memory`, whatever peers do: a broker process of its own for each attack.

A client that behaves well sends, receives and acknowledges beside each of them, in every round of the crowd.
"""

import itertools
import os

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


def repeated(count, *pieces):
    return itertools.chain.from_iterable(itertools.repeat(pieces, count))


def send(destination, body=b"", *headers):
    return "\n".join(["SEND", f"destination:{destination}", *headers, "", ""]).encode() + body + b"\0"


def subscribe(destination, *headers, number=1):
    return "\n".join(["SUBSCRIBE", f"id:{number}", f"destination:{destination}", *headers, "", "\0"]).encode()


# ---- what they do: each makes the members of a crowd ----


def empty_messages(crowd, peers, *headers):
    count = max(1, TOTAL // MESSAGE // peers // 1000)
    crowd.join_all(peers, lambda number: repeated(count, send(f"/queue/{number}", b"", *headers) * 1000))


def heads(crowd, version, wrap=""):
    """Heads that come to no end."""
    wrapped = masked if wrap == "ws" else bytes
    script = [wrapped(b"SEND\n"), *[wrapped(LINE)] * LINES]
    crowd.join_all(PEERS, lambda _: iter(script), version=version, wrap=wrap)


def websocket_frames(crowd):
    """Frames of WebSocket that come to no end: nothing of them reaches a session."""
    script = [masked(b"SEND\n", length=60 * MIB), *[LINE] * LINES]
    crowd.join_all(PEERS, lambda _: iter(script), wrap="ws")


def bodies(crowd, *headers):
    """As large as a body in memory can be, less its end."""
    crowd.join_all(TOTAL // 100_000, lambda _: iter([send("/queue/a", b"x" * 99_000, *headers)[:-1]]))


def transactions(crowd, body):
    piece = send("/queue/a", body, "transaction:t") * 100
    count = TOTAL // PEERS // ((MESSAGE + len(body)) * 100) + 1
    crowd.join_all(PEERS, lambda _: iter([b"BEGIN\ntransaction:t\n\n\0", *[piece] * count]))


def slow_subscribers(crowd, topics, size, total, *headers):
    """They do not read, or do not acknowledge, what is sent to topics."""
    crowd.join_all(PEERS, lambda number: iter([subscribe(f"/topic/{number % topics}", *headers, number=number)]))
    many = max(1, 100_000 // (size + MESSAGE))
    count = total // topics // ((MESSAGE + size) * many) + 1
    crowd.join_all(topics, lambda number: repeated(count, send(f"/topic/{number}", b"x" * size) * many), reads=True)


def slow_readers(crowd):
    """The transport of each takes some MiB; then its output waits in the broker."""
    crowd.join_all(PEERS, lambda number: iter([subscribe("/queue/a", number=number)]))
    crowd.join_all(4, lambda _: repeated(1000, send("/queue/a", b"x" * 90_000)), reads=True)


def unread_receipts(crowd):
    crowd.join_all(PEERS, lambda _: repeated(120, send("/topic/nobody", b"", "receipt:" + "x" * 60_000)))


def consumers_that_do_not_acknowledge(crowd, version):
    for number in range(20):
        crowd.join(iter([subscribe(f"/queue/{number}", "ack:client", "prefetch-count:0")]), version=version, reads=True)
        crowd.join(repeated(10, send(f"/queue/{number}") * 1000))


def subscriptions(crowd):
    """Different selectors, long ids."""
    selector, id = " OR ".join(["b = 1"] * 20), "i" * 500
    crowd.join_all(
        PEERS,
        lambda _: (
            subscribe(f"/topic/{n % 50}", f"selector:a = '{n}' OR {selector}", f"x:{n}", number=f"{n}-{id}")
            for n in range(400)
        ),
        reads=True,
    )


def destinations(crowd):
    crowd.join_all(20, lambda peer: (send(f"/queue/{'q' * 3000}{peer}-{n}") for n in range(600)), reads=True)


def long_names(crowd):
    """As text, a name takes up to four times the bytes that it has in a frame."""
    crowd.join_all(4, lambda number: repeated(120, send(f"/queue/{number}\U0001f600{'x' * 3900}") * 40))


def delayed(crowd):
    crowd.join_all(10, lambda number: repeated(20, send(f"/queue/{number}", b"", "delay:9999999") * 1000))


def retained(crowd):
    body = b"x" * 20_000
    crowd.join_all(10, lambda peer: (send(f"/topic/{peer}-{n}", body, "retain:set") for n in range(600)), reads=True)


def what_is_left_in_between(crowd):
    """Many small messages, of which a few stay where they lie in memory; then something larger."""
    eater = crowd.join(iter([subscribe("/queue/f", "ack:client-individual", "prefetch-count:0")]), reads=True)
    crowd.join(repeated(70, send("/queue/f") * 1000))
    crowd.run()
    eater.script = (b"ACK\nid:1-%d\n\n\0" % number for number in range(1, 70_000) if number % 100)
    eater.done = False
    crowd.run()
    heads(crowd, "1.2")


#: Name -> what makes the crowd, its arguments; and whether `make test` has it: one of each kind. The others differ in
#: the version, the transport or the number of peers.
ATTACKS = {
    "empty messages from 4": (True, empty_messages, 4),
    "empty messages from 60": (False, empty_messages, 60),
    "empty messages that ask to be stored": (False, empty_messages, 4, "persistent:true"),
    "heads, 1.0": (False, heads, "1.0"),
    "heads, 1.2": (True, heads, "1.2"),
    "heads, legacy": (False, heads, "legacy"),
    "heads over WebSocket": (False, heads, "1.2", "ws"),
    "frames of WebSocket": (True, websocket_frames),
    "bodies with a length": (False, bodies, "content-length:100000"),
    "bodies without a length": (True, bodies),
    "transactions of empty messages": (True, transactions, b""),
    "transactions of larger messages": (False, transactions, b"x" * 10_000),
    "subscribers that do not read": (False, slow_subscribers, 1, 90_000, TOTAL // 20),
    "subscribers of many topics that do not read": (False, slow_subscribers, PEERS, 90_000, 2 * TOTAL),
    "subscribers that do not acknowledge": (False, slow_subscribers, 1, 100, TOTAL // 10, "ack:client"),
    "subscribers of many topics that do not acknowledge": (True, slow_subscribers, PEERS, 1000, TOTAL, "ack:client"),
    "slow readers": (False, slow_readers),
    "unread receipts": (True, unread_receipts),
    "consumers that do not acknowledge, 1.1": (False, consumers_that_do_not_acknowledge, "1.1"),
    "consumers that do not acknowledge, 1.2": (True, consumers_that_do_not_acknowledge, "1.2"),
    "subscriptions": (True, subscriptions),
    "destinations": (True, destinations),
    "long names": (False, long_names),
    "delayed": (False, delayed),
    "retained": (True, retained),
    "what is left in between": (True, what_is_left_in_between),
}
NEEDS = {"heads over WebSocket": "websockets", "frames of WebSocket": "websockets", "subscriptions": "lark"}


#: With 60 outboxes at once the buffers of the transports take some 10 MiB besides, which is much of 64. So are the
#: buffers of the Python backend.
LIMITS = dict.fromkeys(
    ("subscribers of many topics that do not read", "what is left in between", "slow readers", "unread receipts"),
    2 * LIMIT,
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if ATTACKS[name][0] else pytest.mark.slow) for name in ATTACKS]
)
def test_resident_memory_stays_near_the_limit(name, tmp_path):
    pytest.importorskip("click")
    pytest.importorskip(NEEDS.get(name, "click"))
    limit = LIMITS.get(name, LIMIT)
    config = CONFIG.replace("64 MiB", f"{limit // MIB} MiB")
    with BrokerProcess(tmp_path, config=config, memory=True) as broker:
        with Crowd(broker) as crowd:
            _quick, attack, *arguments = ATTACKS[name]
            attack(crowd, *arguments)
            crowd.run()
        assert highest(broker) < 1.3 * limit
        assert "Traceback" not in broker.tail(10_000)
