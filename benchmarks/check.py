"""Is what a broker delivers right? Every body, its order, exactly once, through consumers that are slow to read.

A fast broker that loses, repeats or reorders something has no figure to show; so each load is run once this way.
"""

from __future__ import annotations

import re
import time

from load import ACK_HEADER, STALLED, Wire, WrongError
from loads import KIB, Load, body, send_frame, unit

BACKLOG = 0.3  # seconds in which a slow consumer does not read at all
PIECE = 16 * KIB  # what it reads at once afterwards
PAUSE = 0.0005
RECEIVE = 16 * KIB  # octets that its kernel takes before the broker feels it
OVERHEAD = 4  # octets before a frame of 126 to 65,535 octets in a WebSocket
LATE = 0.15  # seconds in which nothing more may come
RECEIPT = re.compile(rb"\nreceipt-id:r(\d+)\n")


def messages_of(load: Load) -> int:
    """Of each producer. Enough to fill the kernel's buffers where it runs ahead; few where it waits for each."""
    if load.how == "one":
        return 200
    if load.how == "receipts":
        return 25 * max(load.window, 16) // load.producers
    return 5000 if load.size >= KIB else 20_000 // load.consumers


def check(load: Load, port: int, destination: str) -> None:
    """WrongError says what is wrong. Loads that send what another one sends are not run again."""
    if load.how in ("beside", "idle", "computing"):
        return
    count = messages_of(load)
    waiting = load.how == "receipts"
    if waiting:
        store(load, port, destination, count)
        count *= load.transaction or 1
    consumers = [SlowConsumer(port, load, destination, confirm=not waiting) for _ in range(load.consumers or 1)]
    try:
        frames = [] if waiting else [send_frame(load, destination, 0, number) for number in range(count)]
        _exchange(port, b"".join(frames), consumers, count * load.producers)
        for consumer in consumers:
            consumer.verify(count)
    finally:
        for consumer in consumers:
            consumer.wire.close()
    if not load.topic:
        _is_empty(load, port, destination)


def store(load: Load, port: int, destination: str, count: int) -> None:
    """Producers send units, and want each receipt once."""
    producers = [Wire(port) for _ in range(load.producers)]
    heard = [b"" for _ in producers]
    for first in range(0, count, load.window):
        numbers = range(first, min(first + load.window, count))
        for number, wire in enumerate(producers):
            wire.socket.sendall(b"".join(unit(load, destination, number, at, f"r{at}") for at in numbers))
        for number, wire in enumerate(producers):
            while heard[number].count(b"\0") < numbers.stop:
                heard[number] += wire.socket.recv(64 * KIB)
    for wire, text in zip(producers, heard):
        wire.close()
        if sorted(map(int, RECEIPT.findall(text))) != list(range(count)):
            raise WrongError("the receipts are not those that were asked for")


class SlowConsumer:
    """It reads late, and little at once, and keeps all of it."""

    def __init__(self, port: int, load: Load, destination: str, *, confirm: bool = True) -> None:
        self.wire, self.load = Wire(port, RECEIVE, load), load
        self.wire.subscribe(load, destination, confirm=confirm)
        self.wire.socket.setblocking(False)
        self._data = bytearray()
        self._acknowledged = 0

    @property
    def frames(self) -> int:
        return self._data.count(b"\0")

    def read(self) -> bool:
        """Read one piece, acknowledge what came whole; whether there was something."""
        try:
            piece = self.wire.socket.recv(PIECE)
        except BlockingIOError:
            return False
        if not piece:
            raise WrongError(f"the broker closed the connection of a slow consumer: {bytes(self._data[-200:])!r}")
        self._data += piece
        end = self._data.rfind(b"\0") + 1
        if self.wire.acks and end > self._acknowledged:
            marks = ACK_HEADER.findall(self._data, self._acknowledged, end)
            self._acknowledged = end
            self.wire.put(b"".join(b"ACK\nid:%s\n\n\0" % mark for mark in marks))
        elif self.wire.waits:
            self.wire.flush()
        return True

    def verify(self, count: int) -> None:
        """`count` messages of each producer, each producer's in order, with the bodies that were sent."""
        following = [0] * self.load.producers
        for frame in bytes(self._data).split(b"\0")[:-1]:
            head, _, text = frame.lstrip()[OVERHEAD if self.load.websocket else 0 :].partition(b"\n\n")
            if not head.startswith(b"MESSAGE\n"):
                raise WrongError(f"no MESSAGE: {frame[:200]!r}")
            producer = int(text[:2]) if text[:2].isdigit() else 0
            if text != body(self.load.size, producer, following[producer]):
                raise WrongError(f"message {following[producer]} should have come: {text[:60]!r}")
            following[producer] += 1
        if following != [count] * self.load.producers:
            raise WrongError(f"{sum(following)} messages came of {count * self.load.producers}")


def _exchange(port: int, data: bytes, consumers: list[SlowConsumer], count: int) -> None:
    """Send it all as fast as the broker takes it, while the consumers dawdle."""
    producer = Wire(port, load=consumers[0].load)
    producer.socket.setblocking(False)
    producer.put(data)
    start = last = time.perf_counter()
    while producer.waits or time.perf_counter() - last < LATE or not _all_came(consumers, count):
        now = time.perf_counter()
        if now - last > STALLED:
            raise WrongError(f"nothing more came: {[consumer.frames for consumer in consumers]} of {count} messages")
        if producer.waits:
            producer.flush()
        if now - start > BACKLOG and sum(consumer.read() for consumer in consumers):
            last = now
        time.sleep(PAUSE)
    producer.close()


def _all_came(consumers: list[SlowConsumer], count: int) -> bool:
    return all(consumer.frames >= count for consumer in consumers)


def _is_empty(load: Load, port: int, destination: str) -> None:
    """What was delivered and acknowledged does not come to the next consumer."""
    consumer = SlowConsumer(port, load, destination, confirm=False)
    time.sleep(LATE)
    consumer.read()
    left = consumer.frames
    consumer.wire.close()
    if left:
        raise WrongError(f"{left} messages came again to the next consumer")
