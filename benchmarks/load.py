"""The loads of the broker's benchmark, and their generator.

Frames are encoded beforehand and go out in blocks, and the NULs that come in are counted: no body holds one. A message
of 1 KiB costs the generator less than a microsecond. `check` sends each load to clients that are slow to read, and
looks at every body, its order, and that it comes once.
"""

from __future__ import annotations

import re
import select
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import stompcodec.client as stomp

KIB = 1024
AHEAD = 4  # blocks that may be under way: how much a broker can hoard is not what is measured
PREFETCH = 1000  # messages of a consumer's window
EACH = "client-individual"
STALLED = 15.0  # seconds of silence after which a broker is given up
BUFFER = bytearray(1024 * KIB)
CONNECT = b"CONNECT\naccept-version:1.2\nhost:/\nlogin:guest\npasscode:guest\n\n\0"

BLOCK = 256 * KIB  # octets of frames that are handed to the kernel at once
TEXT = b"".join(b"%07x" % (number * 2654435761 % 2**28) for number in range(2 * KIB))


@dataclass(frozen=True)
class Load:
    """The messages of a load, and how they are sent."""

    name: str
    about: str
    size: int  # octets of each body
    topic: bool = False
    consumers: int = 1
    producers: int = 1
    ack: str = "auto"
    persistent: bool = False
    window: int = 0  # receipts that a producer waits for at most; without them it runs ahead
    transaction: int = 0  # messages of each transaction, whose COMMIT asks for the receipt
    prefetch: str = f"prefetch-count:{PREFETCH}"
    transient: str = "persistent:false\n"
    limit: int = 40_000  # messages, or transactions, of a run: where nobody consumes them, they take room

    def destination(self, mark: str) -> str:
        """One of its own for each run."""
        return f"/{'topic' if self.topic else 'queue'}/bench-{self.name}-{mark}"


def _kept(name: str, about: str, **more: Any) -> Load:
    return Load(name, f"persistent, 1 KiB, {about}", KIB, persistent=True, **{"consumers": 0, **more})


LOADS = {
    load.name: load
    for load in (
        Load("queue-100b", "queue, 100 B, auto", 100),
        Load("queue-1k", "queue, 1 KiB, auto", KIB),
        Load("individual-1k", f"queue, 1 KiB, {EACH}", KIB, ack=EACH),
        Load("fanout-100b", "topic, 100 B, 10 consumers (deliveries)", 100, topic=True, consumers=10),
        Load("persistent-1k", "persistent queue, 1 KiB, auto", KIB, persistent=True),
        _kept("window-100", "receipts, window 100", window=100),
        _kept("window-1", "receipts, window 1", window=1),
        _kept("transactions-10", "transactions of 10, window 10", window=10, transaction=10, limit=4000),
        _kept("producers-16", "receipts, 16 producers of window 1", producers=16, window=1),
        _kept("durable-individual", f"receipts, window 100, {EACH}", ack=EACH, window=100, consumers=1, limit=10**9),
    )
}


def body(size: int, producer: int, number: int) -> bytes:
    """`size` octets without NUL that no other message of the producer has."""
    head = b"%02d %08d " % (producer, number)
    at = number * 7 % (len(TEXT) - size)
    return head + TEXT[at : at + size - len(head)]


def send_frame(load: Load, destination: str, producer: int, number: int, receipt: str = "") -> bytes:
    """SEND with content-length, as any good client writes it."""
    head = f"SEND\ndestination:{destination}\ncontent-length:{load.size}\n"
    head += "persistent:true\n" if load.persistent else load.transient  # figures do not depend on a broker's default
    if load.transaction:
        head += f"transaction:t{number // load.transaction:06}\n"
    if receipt:
        head += f"receipt:{receipt}\n"
    return head.encode() + b"\n" + body(load.size, producer, number) + b"\0"


def unit(load: Load, destination: str, producer: int, number: int, receipt: str = "") -> bytes:
    """The unit that one receipt confirms: a SEND, or a transaction with its SENDs."""
    size = load.transaction
    if not size:
        return send_frame(load, destination, producer, number, receipt)
    sends = [send_frame(load, destination, producer, number * size + each) for each in range(size)]
    name = f"transaction:t{number:06}"
    ends = f"BEGIN\n{name}\n\n\0".encode(), f"COMMIT\n{name}\nreceipt:{receipt}\n\n\0".encode()
    return ends[0] + b"".join(sends) + ends[1]


class Block:
    """As many units, all of one length, as fit into BLOCK; they are sent again and again."""

    def __init__(self, load: Load, destination: str, producer: int = 0) -> None:
        def made(number: int) -> bytes:
            return unit(load, destination, producer, number, f"r{number:06}" if load.window else "")

        self.length = len(made(0))
        self.units = max(BLOCK // self.length, 2 * load.window)
        self.octets = memoryview(b"".join(map(made, range(self.units))))
        self._at = 0

    def take(self, units: int) -> memoryview:
        """The next units; at most half of them all."""
        if self._at + units > self.units:
            self._at = 0
        start = self._at * self.length
        self._at += units
        return self.octets[start : start + units * self.length]


# ---- the generator ----

ACK_HEADER = re.compile(rb"\nack:([^\n]*)\n")


class WrongError(Exception):
    """The broker fell silent, closed the connection, sent ERROR, or lost, changed, repeated or reordered something."""


#: What one run did: messages (deliveries of a topic), seconds until the last answer, and each latency where they were
#: taken, in seconds. Its meter is told when all are connected and subscribed, and when the last answer came.
Run = tuple[int, float, list[float]]


class Wire:
    """One connected socket, which blocks until it joins Wires. It counts the frames that came since it subscribed."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), STALLED)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.frames = 0
        self.acks = False
        self._waiting = memoryview(b"")
        self._rest = b""
        self.greeting = self.ask(CONNECT, b"CONNECTED")

    def ask(self, frame: bytes, answer: bytes) -> bytes:
        """Send and wait for one frame."""
        self.socket.sendall(frame)
        data = b""
        while b"\0" not in data:
            more = self.socket.recv(64 * KIB)
            if not more:
                raise WrongError(f"closed instead of {answer.decode()}: {data!r}")
            data += more
        data = data.lstrip()  # line ends behind the frame before
        if not data.startswith(answer):
            raise WrongError(f"no {answer.decode()}: {data[:200]!r}")
        return data

    def subscribe(self, load: Load, destination: str, *, confirm: bool = True) -> None:
        """Without confirm it does not wait for the RECEIPT: where messages wait, they may come first."""
        self.acks = load.ack != "auto"
        lines = f"SUBSCRIBE\nid:0\ndestination:{destination}\nack:{load.ack}\n"
        if self.acks:
            lines += f"{load.prefetch}\n"
        if confirm:
            self.ask(f"{lines}receipt:subscribed\n\n\0".encode(), b"RECEIPT")
        else:
            self.socket.sendall(f"{lines}\n\0".encode())

    @property
    def waits(self) -> bool:
        """Return whether bytes are left that the kernel did not take."""
        return len(self._waiting) > 0

    def put(self, data: bytes | memoryview) -> None:
        """Send what the kernel takes, keep the rest."""
        self._waiting = memoryview(b"".join((self._waiting, data)) if self.waits else data)
        self.flush()

    def flush(self) -> None:
        with suppress(BlockingIOError):
            self._waiting = self._waiting[self.socket.send(self._waiting) :]

    def read(self) -> int:
        """Read once; how many frames came to their end."""
        try:
            count = self.socket.recv_into(BUFFER)
        except BlockingIOError:
            return 0
        if not count or BUFFER.startswith(b"ERROR"):
            raise WrongError(f"closed, or: {bytes(BUFFER[: min(count, 300)])!r}")
        frames = self._acknowledge(BUFFER[:count]) if self.acks else BUFFER.count(b"\0", 0, count)
        self.frames += frames
        return frames

    def _acknowledge(self, piece: bytes | bytearray) -> int:
        data = self._rest + piece
        end = data.rfind(b"\0") + 1
        self._rest = data[end:]
        marks = ACK_HEADER.findall(data, 0, end)
        if marks:
            self.put(b"ACK\nid:" + b"\n\n\0ACK\nid:".join(marks) + b"\n\n\0")
        return len(marks)

    def close(self) -> None:
        self.socket.close()


class Wires:
    """Non-blocking connections, and who of them is ready."""

    def __init__(self, *wires: Wire) -> None:
        self._epoll = select.epoll()
        self._wires = {wire.socket.fileno(): wire for wire in wires}
        self._writing: set[int] = set()
        for handle, wire in self._wires.items():
            wire.socket.setblocking(False)
            self._epoll.register(handle, select.EPOLLIN)

    def step(self) -> list[tuple[Wire, int]]:
        """Wait, send what waits, read once where there is something: who read, and how many frames."""
        for handle, wire in self._wires.items():
            if wire.waits != (handle in self._writing):
                self._writing ^= {handle}
                self._epoll.modify(handle, select.EPOLLIN | (select.EPOLLOUT if wire.waits else 0))
        ready = self._epoll.poll(STALLED)
        if not ready:
            raise WrongError(f"nothing came for {STALLED:g} s")
        found = []
        for handle, events in ready:
            wire = self._wires[handle]
            if events & select.EPOLLOUT:
                wire.flush()
            if events & ~select.EPOLLOUT:
                found.append((wire, wire.read()))
        return found

    def __enter__(self) -> Wires:
        return self

    def __exit__(self, *_: object) -> None:
        self._epoll.close()
        for wire in self._wires.values():
            wire.close()


# ---- the ways to drive a broker ----


def stream(load: Load, port: int, destination: str, seconds: float, meter: Any) -> Run:
    """A producer flat out; every consumer gets all."""
    block = Block(load, destination)
    consumers = [Wire(port) for _ in range(load.consumers)]
    for consumer in consumers:
        consumer.subscribe(load, destination)
    producer = Wire(port)
    with Wires(producer, *consumers) as wires:
        meter.start()
        start, sent, least = time.perf_counter(), 0, 0
        while True:
            if not producer.waits:
                if time.perf_counter() - start >= seconds:
                    if least >= sent:
                        break
                elif sent - least <= (AHEAD - 1) * block.units:
                    producer.put(block.octets)
                    sent += block.units
            wires.step()
            least = min(consumer.frames for consumer in consumers)
        taken = time.perf_counter() - start
        meter.stop()
        for consumer in consumers:
            _no_more(consumer, sent)
    return sent * load.consumers, taken, []


def _no_more(wire: Wire, frames: int) -> None:
    wire.read()
    if wire.frames != frames:
        raise WrongError(f"{wire.frames} messages came of {frames}")


def receipts(load: Load, port: int, destination: str, seconds: float, meter: Any) -> Run:
    """Producers that wait for receipts, and go on for each; until all is confirmed, and acknowledged where somebody
    consumes it. Else all is fetched afterwards, and counted again."""
    consumers = [Wire(port) for _ in range(load.consumers)]
    for consumer in consumers:
        consumer.subscribe(load, destination)
    blocks = {Wire(port): Block(load, destination, number) for number in range(load.producers)}
    asked: dict[Wire, float] = {}
    latencies: list[float] = []
    with Wires(*consumers, *blocks) as wires:
        meter.start()
        start = now = time.perf_counter()
        for wire, block in blocks.items():
            asked[wire] = time.perf_counter()
            wire.put(block.take(load.window))
        done, sent = 0, load.window * len(blocks)
        while done < sent or any(consumer.frames < sent for consumer in consumers):
            for wire, frames in wires.step():
                now = time.perf_counter()
                if wire not in blocks:
                    continue
                if frames and load.window == 1:
                    latencies.append(now - asked[wire])
                done += frames
                if frames and now - start < seconds and sent < load.limit:
                    asked[wire] = now
                    wire.put(blocks[wire].take(frames))
                    sent += frames
        meter.stop()
        for consumer in consumers:
            _no_more(consumer, sent)
    messages = sent * (load.transaction or 1)
    if not consumers:
        drain(load, port, destination, messages)
    return messages, now - start, latencies


def drain(load: Load, port: int, destination: str, messages: int) -> None:
    """Fetch what a queue holds. WrongError when it is not exactly `messages`."""
    consumer = Wire(port)
    consumer.subscribe(load, destination, confirm=False)
    with Wires(consumer) as wires:
        while consumer.frames < messages:
            wires.step()
        time.sleep(0.02)
        _no_more(consumer, messages)


# ---- is what a broker delivers right? ----

BACKLOG = 0.3  # seconds in which a slow consumer does not read at all
LATE = 0.15  # seconds in which nothing more may come
RECEIPT = re.compile(rb"\nreceipt-id:r(\d+)\n")


def check(load: Load, port: int, destination: str) -> None:
    """Raise WrongError where a broker gets a load wrong."""
    # Of each producer: enough to fill the kernel's buffers where it runs ahead, few where it waits for each.
    count = 25 * max(load.window, 16) // load.producers
    if not load.window:
        count = 5000 if load.size >= KIB else 20_000 // load.consumers
    url = f"stomp://127.0.0.1:{port}/%2F"

    def subscribed() -> Any:
        client = stack.enter_context(stomp.connect(url, login="guest", passcode="guest"))
        return client.subscribe(destination, ack=load.ack, prefetch=PREFETCH)

    with ExitStack() as stack:
        consumers = [subscribed() for _ in range(load.consumers)]
        with ThreadPoolExecutor(load.producers) as pool:
            stored = [pool.submit(store, load, port, destination, number, count) for number in range(load.producers)]
            time.sleep(BACKLOG)
            if not consumers:
                [each.result() for each in stored]
            for consumer in consumers or [subscribed()]:
                verify(load, consumer, count * (load.transaction or 1))
            [each.result() for each in stored]
    if not load.topic:
        with ExitStack() as stack:
            if subscribed().get(LATE) is not None:
                raise WrongError("messages came again to the next consumer")


def store(load: Load, port: int, destination: str, producer: int, count: int) -> None:
    """Send units as fast as the broker takes them, and want each receipt once."""
    wire, heard = Wire(port), b""
    receipt = "r{}" if load.window else ""
    wire.socket.sendall(b"".join(unit(load, destination, producer, at, receipt.format(at)) for at in range(count)))
    while load.window and heard.count(b"\0") < count:
        heard += wire.socket.recv(64 * KIB)
    wire.close()
    if load.window and sorted(map(int, RECEIPT.findall(heard))) != list(range(count)):
        raise WrongError("the receipts are not those that were asked for")


def verify(load: Load, consumer: Any, count: int) -> None:
    """Take `count` messages of each producer, each producer's in order, with the bodies that were sent."""
    following = [0] * load.producers
    for taken in range(count * load.producers):
        message = consumer.get(STALLED)
        if message is None:
            raise WrongError(f"{taken} messages came of {count * load.producers}")
        producer = int(message.body[:2]) if message.body[:2].isdigit() else 0
        if message.body != body(load.size, producer, following[producer]):
            raise WrongError(f"message {following[producer]} should have come: {message.body[:60]!r}")
        following[producer] += 1
        if load.ack != "auto":
            message.ack()
    if consumer.get(LATE) is not None:
        raise WrongError("more messages came than were sent")
