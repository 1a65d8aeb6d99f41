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
        idle: connections that do nothing meanwhile.
        limit: most messages of a run, where nobody consumes them.
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
    idle: int = 0
    limit: int = 40_000
    headers: str = ""
    selector: str = ""

    def destination(self, mark: str) -> str:
        """One of its own for each run."""
        return f"/{'topic' if self.topic else 'queue'}/bench-{self.name}-{mark}"


def _kept(name: str, about: str, **more: Any) -> Load:
    return Load(name, about, "receipts", KIB, persistent=True, consumers=0, **more)


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
        _kept("producers-16", "persistent, 1 KiB, receipts, 16 producers of window 1", producers=16, window=1),
        Load("beside-durable", "transient receipts, 100 B, beside a durable load", "beside", 100, window=1),
        Load("idle-1000", "queue, 1 KiB, auto, beside 1000 idle connections", "idle", KIB, idle=1000),
    )
}
#: What goes on beside the transient receipts: stored, delivered, acknowledged and removed again.
DURABLE = _kept("durable", "persistent, 1 KiB, receipts, window 100, acknowledged one by one", window=100)


def body(size: int, producer: int, number: int) -> bytes:
    """`size` octets without NUL that no other message of the producer has."""
    head = b"%02d %08d " % (producer, number)
    at = number * 7 % (len(TEXT) - size)
    return head + TEXT[at : at + size - len(head)]


def send_frame(load: Load, destination: str, producer: int, number: int, receipt: str = "") -> bytes:
    """SEND with content-length, as any good client writes it."""
    lines = [f"SEND\ndestination:{destination}\ncontent-length:{load.size}"]
    if load.persistent:
        lines.append("persistent:true")
    if load.headers:
        lines.append(load.headers)
    if receipt:
        lines.append(f"receipt:{receipt}")
    return "\n".join(lines).encode() + b"\n\n" + body(load.size, producer, number) + b"\0"


class Block:
    """As many frames, all of one length, as fit into BLOCK; they are sent again and again."""

    def __init__(self, load: Load, destination: str, producer: int = 0) -> None:
        self.length = len(self._frame(load, destination, producer, 0))
        self.frames = max(BLOCK // self.length, 2 * load.window)
        frames = [self._frame(load, destination, producer, number) for number in range(self.frames)]
        self.octets = memoryview(b"".join(frames))
        self._at = 0

    @staticmethod
    def _frame(load: Load, destination: str, producer: int, number: int) -> bytes:
        return send_frame(load, destination, producer, number, f"r{number:06}" if load.window else "")

    def take(self, frames: int) -> memoryview:
        """The next frames; at most half of them all."""
        if self._at + frames > self.frames:
            self._at = 0
        start = self._at * self.length
        self._at += frames
        return self.octets[start : start + frames * self.length]
