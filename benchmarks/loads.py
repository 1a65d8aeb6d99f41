"""What is sent in the benchmarks of the broker: the loads, and their frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

KIB = 1024
BLOCK = 256 * KIB  # octets of frames that are handed to the kernel at once
TEXT = b"".join(b"%07x" % (number * 2654435761 % 2**28) for number in range(2 * KIB))
SELECTOR = "color = 'red' AND n > 9"
HEADERS = "color:red\nn:10"


@dataclass(frozen=True)
class Load:
    """What is sent, and how.

    Attributes:
        how: which function of HOW drives it.
        size: octets of each body.
        window: receipts that a producer waits for at most.
        transaction: messages of each transaction, whose COMMIT asks for the receipt; 0 for none.
        websocket: over WebSocket, each STOMP frame in a binary one.
        idle: connections that do nothing meanwhile.
        computing: processes that compute meanwhile, each in a session, and so a scheduler group, of its own.
        limit: most messages, or transactions, of a run where nobody consumes them.
        headers: more of them, for a selector to look at.
        selector: of the consumers.
    """

    name: str
    about: str
    how: str
    size: int
    topic: bool = False
    consumers: int = 1
    producers: int = 1
    ack: str = "auto"
    persistent: bool = False
    window: int = 0
    transaction: int = 0
    websocket: bool = False
    idle: int = 0
    computing: int = 0
    limit: int = 40_000
    headers: str = ""
    selector: str = ""

    def destination(self, mark: str) -> str:
        """One of its own for each run."""
        return f"/{'topic' if self.topic else 'queue'}/bench-{self.name}-{mark}"


def _kept(name: str, about: str, how: str = "receipts", **more: Any) -> Load:
    return Load(name, about, how, KIB, persistent=True, consumers=0, **more)


def _durable(name: str, about: str, **more: Any) -> Load:
    return Load(name, about, "durable", KIB, persistent=True, ack="client-individual", **more)


LOADS = {
    load.name: load
    for load in (
        Load("queue-100b", "queue, 100 B, auto", "stream", 100),
        Load("queue-1k", "queue, 1 KiB, auto", "stream", KIB),
        Load("headers-1k", "queue, 1 KiB, auto, two headers more", "stream", KIB, headers=HEADERS),
        Load("selector-1k", f"the same, selector {SELECTOR}", "stream", KIB, headers=HEADERS, selector=SELECTOR),
        Load("individual-1k", "queue, 1 KiB, client-individual", "stream", KIB, ack="client-individual"),
        Load("fanout-100b", "topic, 100 B, 10 consumers (deliveries)", "stream", 100, topic=True, consumers=10),
        Load("one-100b", "queue, 100 B, one message in flight", "one", 100),
        Load("persistent-1k", "persistent queue, 1 KiB, auto", "stream", KIB, persistent=True),
        _kept("window-100", "persistent, 1 KiB, receipts, window 100", window=100),
        _kept("window-1", "persistent, 1 KiB, receipts, window 1", window=1),
        _kept(
            "window-1-computing",
            "persistent, 1 KiB, receipts, window 1, beside 4 computing processes",
            "computing",
            window=1,
            computing=4,
        ),
        _kept(
            "transactions-10", "persistent, 1 KiB, transactions of 10, window 10", window=10, transaction=10, limit=4000
        ),
        _kept("producers-16", "persistent, 1 KiB, receipts, 16 producers of window 1", producers=16, window=1),
        _durable("durable-individual", "persistent, 1 KiB, receipts, window 100, client-individual", window=100),
        Load("websocket-1k", "queue, 1 KiB, auto, WebSocket", "stream", KIB, websocket=True),
        Load("beside-durable", "transient receipts, 100 B, beside a durable load", "beside", 100, window=1),
        Load("idle-1000", "queue, 1 KiB, auto, beside 1000 idle connections", "idle", KIB, idle=1000),
    )
}
#: What goes on beside the transient receipts: stored, delivered, acknowledged and removed again.
DURABLE = LOADS["durable-individual"]


def body(size: int, producer: int, number: int) -> bytes:
    """`size` octets without NUL that no other message of the producer has."""
    head = b"%02d %08d " % (producer, number)
    at = number * 7 % (len(TEXT) - size)
    return head + TEXT[at : at + size - len(head)]


def send_frame(load: Load, destination: str, producer: int, number: int, receipt: str = "") -> bytes:
    """SEND with content-length, as any good client writes it."""
    lines = [f"SEND\ndestination:{destination}\ncontent-length:{load.size}"]
    lines.append(f"persistent:{'true' if load.persistent else 'false'}")  # figures do not depend on a broker's default
    if load.headers:
        lines.append(load.headers)
    if load.transaction:
        lines.append(_transaction(load, number // load.transaction))
    if receipt:
        lines.append(f"receipt:{receipt}")
    return wrapped(load, "\n".join(lines).encode() + b"\n\n" + body(load.size, producer, number) + b"\0")


def _transaction(load: Load, number: int) -> str:
    return f"transaction:t{number:06}"


def unit(load: Load, destination: str, producer: int, number: int, receipt: str = "") -> bytes:
    """What a receipt is asked for: a SEND, or a transaction with its SENDs."""
    size = load.transaction
    if not size:
        return send_frame(load, destination, producer, number, receipt)
    numbers = range(number * size, (number + 1) * size)
    name = _transaction(load, number)
    sends = b"".join(send_frame(load, destination, producer, each) for each in numbers)
    return f"BEGIN\n{name}\n\n\0".encode() + sends + f"COMMIT\n{name}\nreceipt:{receipt}\n\n\0".encode()


def wrapped(load: Load, frame: bytes) -> bytes:
    """A frame as the load's transport wants it. A mask of zeros is a mask, too: it spares the generator the masking."""
    if not load.websocket:
        return frame
    length = len(frame)
    head = bytes([0x82, 0x80 | length]) if length < 126 else b"\x82\xfe" + length.to_bytes(2, "big")
    return head + bytes(4) + frame


class Block:
    """As many units, all of one length, as fit into BLOCK; they are sent again and again."""

    def __init__(self, load: Load, destination: str, producer: int = 0) -> None:
        self.length = len(self._unit(load, destination, producer, 0))
        self.units = max(BLOCK // self.length, 2 * load.window)
        units = [self._unit(load, destination, producer, number) for number in range(self.units)]
        self.octets = memoryview(b"".join(units))
        self._at = 0

    @staticmethod
    def _unit(load: Load, destination: str, producer: int, number: int) -> bytes:
        return unit(load, destination, producer, number, f"r{number:06}" if load.window else "")

    def take(self, units: int) -> memoryview:
        """The next units; at most half of them all."""
        if self._at + units > self.units:
            self._at = 0
        start = self._at * self.length
        self._at += units
        return self.octets[start : start + units * self.length]
