"""The load generator: frames encoded beforehand go out in blocks, and the NULs that come in are counted.

It knows nothing of stompcodec, and is meant to be no bottleneck: a message of 1 KiB costs it less than a microsecond.
No body holds a NUL, so each NUL ends one frame. What is in the frames is looked at in check.py, not while time counts.
"""

from __future__ import annotations

import multiprocessing
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from loads import DURABLE, KIB, Block, Load, wrapped

AHEAD = 4  # blocks that may be under way: how much a broker can hoard is not what is measured
PREFETCH = 1000  # asked of every broker
STALLED = 15.0  # seconds of silence after which a broker is given up
PAUSE = 0.001  # seconds between two transient sends beside the durable load
BUFFER = bytearray(1024 * KIB)
CONNECT = b"CONNECT\naccept-version:1.2\nhost:/\nlogin:guest\npasscode:guest\n\n\0"
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: c3RvbXBjb2RlYy1iZW5jaA==\r\n"
    b"Sec-WebSocket-Protocol: v12.stomp\r\n\r\n"
)
#: Ends with the process that has started it, however that ends.
COMPUTE = """\
import os
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(100_000):
        pass
"""
PLAIN = Load("", "", "", KIB)
ACK_HEADER = re.compile(rb"\nack:([^\n]*)\n")


class StalledError(Exception):
    """The broker fell silent, closed the connection, or sent ERROR."""


class WrongError(Exception):
    """The broker lost, changed, repeated or reordered something."""


class Meter(Protocol):
    """Told when the traffic starts (everybody is connected and subscribed), and when the last answer has come."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


@dataclass
class Run:
    """What one run did: messages (deliveries of a topic), seconds until the last answer, and each latency where they
    were taken, in seconds."""

    messages: int
    seconds: float
    latencies: list[float]


# ---- connections ----


class Wire:
    """One connected socket. It blocks until it joins Wires.

    Attributes:
        greeting: the CONNECTED frame.
        frames: that came since it was connected and subscribed.
        acks: whether each MESSAGE is acknowledged.
    """

    def __init__(self, port: int, receive: int = 0, load: Load = PLAIN) -> None:
        self.load = load
        self.socket = socket.socket()
        if receive:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        self.socket.settimeout(STALLED)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.frames = 0
        self.acks = False
        self._waiting = memoryview(b"")
        self._rest = b""
        if load.websocket:
            self._upgrade()
        self.greeting = self.ask(CONNECT, b"CONNECTED")

    def _upgrade(self) -> None:
        """The handshake of WebSocket. The broker says nothing more until it is asked."""
        self.socket.sendall(UPGRADE)
        data = b""
        while b"\r\n\r\n" not in data:
            more = self.socket.recv(KIB)
            data += more
            if not more or not data.startswith(b"HTTP/1.1 101"[: len(data)]):
                raise StalledError(f"no WebSocket: {data[:200]!r}")

    def ask(self, frame: bytes, answer: bytes) -> bytes:
        """Send and wait for one frame."""
        self.socket.sendall(wrapped(self.load, frame))
        data = b""
        while b"\0" not in data:
            more = self.socket.recv(64 * KIB)
            if not more:
                raise StalledError(f"closed instead of {answer.decode()}: {data!r}")
            data += more
        data = data.lstrip()  # line ends behind the frame before
        if not data.startswith(answer) and not (self.load.websocket and data.find(answer) in (2, 4)):
            raise StalledError(f"no {answer.decode()}: {data[:200]!r}")
        return data

    def subscribe(self, load: Load, destination: str, *, confirm: bool = True) -> None:
        """Without confirm it does not wait for the RECEIPT: where messages wait, they may come first."""
        self.acks = load.ack != "auto"
        lines = f"SUBSCRIBE\nid:0\ndestination:{destination}\nack:{load.ack}\n"
        if self.acks:
            lines += f"prefetch-count:{PREFETCH}\nactivemq.prefetchSize:{PREFETCH}\n"
        if load.selector:
            lines += f"selector:{load.selector}\n"
        if confirm:
            self.ask(f"{lines}receipt:subscribed\n\n\0".encode(), b"RECEIPT")
        else:
            self.socket.sendall(wrapped(self.load, f"{lines}\n\0".encode()))

    @property
    def waits(self) -> bool:
        """Whether octets are left that the kernel did not take."""
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
            raise StalledError(f"closed, or: {bytes(BUFFER[: min(count, 300)])!r}")
        frames = self._acknowledge(count) if self.acks else BUFFER.count(b"\0", 0, count)
        self.frames += frames
        return frames

    def _acknowledge(self, count: int) -> int:
        data = self._rest + BUFFER[:count]
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
            raise StalledError(f"nothing came for {STALLED:g} s")
        found = []
        for handle, events in ready:
            wire = self._wires[handle]
            if events & select.EPOLLOUT:
                wire.flush()
            if events & ~select.EPOLLOUT:
                found.append((wire, wire.read()))
        return found

    def close(self) -> None:
        self._epoll.close()
        for wire in self._wires.values():
            wire.close()


@contextmanager
def joined(*wires: Wire) -> Iterator[Wires]:
    """Wires that are closed at the end."""
    group = Wires(*wires)
    try:
        yield group
    finally:
        group.close()


@contextmanager
def crowd(port: int, connections: int) -> Iterator[list[Wire]]:
    """Connections that do nothing."""
    with ExitStack() as stack:
        wires = [Wire(port) for _ in range(connections)]
        for wire in wires:
            stack.callback(wire.close)
        yield wires


# ---- the ways to drive a broker ----


def stream(load: Load, port: int, destination: str, seconds: float, meter: Meter) -> Run:
    """A producer flat out; every consumer gets all."""
    block = Block(load, destination)
    consumers = [Wire(port, load=load) for _ in range(load.consumers)]
    for consumer in consumers:
        consumer.subscribe(load, destination)
    producer = Wire(port, load=load)
    with joined(producer, *consumers) as wires:
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
    return Run(sent * load.consumers, taken, [])


def _no_more(wire: Wire, frames: int) -> None:
    wire.read()
    if wire.frames != frames:
        raise WrongError(f"{wire.frames} messages came of {frames}")


def one(load: Load, port: int, destination: str, seconds: float, meter: Meter) -> Run:
    """One message at a time, from a producer to a consumer."""
    consumer, producer = Wire(port), Wire(port)
    consumer.subscribe(load, destination)
    block = Block(load, destination)
    latencies = []
    try:
        meter.start()
        start = now = time.perf_counter()
        while now - start < seconds:
            producer.socket.sendall(block.take(1))
            while not consumer.read():
                pass
            before, now = now, time.perf_counter()
            latencies.append(now - before)
        meter.stop()
        consumer.socket.setblocking(False)
        _no_more(consumer, len(latencies))
    finally:
        consumer.close()
        producer.close()
    return Run(len(latencies), now - start, latencies)


def receipts(load: Load, port: int, destination: str, seconds: float, meter: Meter) -> Run:
    """Producers that wait for receipts, and go on for each; afterwards all is fetched, and counted again."""
    producers = [Wire(port) for _ in range(load.producers)]
    with joined(*producers) as wires:
        sent, taken, latencies = _waiting_producers(load, producers, wires, destination, seconds, meter)
    messages = sent * (load.transaction or 1)
    drain(load, port, destination, messages)
    return Run(messages, taken, latencies)


def _waiting_producers(
    load: Load, producers: list[Wire], wires: Wires, destination: str, seconds: float, meter: Meter
) -> tuple[int, float, list[float]]:
    blocks = {wire: Block(load, destination, number) for number, wire in enumerate(producers)}
    asked: dict[Wire, float] = {}
    latencies: list[float] = []
    meter.start()
    start = now = time.perf_counter()
    for wire, block in blocks.items():
        asked[wire] = time.perf_counter()
        wire.put(block.take(load.window))
    done, sent = 0, load.window * len(producers)
    while done < sent:
        for wire, frames in wires.step():
            now = time.perf_counter()
            if frames and load.window == 1:
                latencies.append(now - asked[wire])
            done += frames
            if frames and now - start < seconds and sent < load.limit:
                asked[wire] = now
                wire.put(blocks[wire].take(frames))
                sent += frames
    meter.stop()
    return sent, now - start, latencies


def drain(load: Load, port: int, destination: str, messages: int) -> None:
    """Fetch what a queue holds. WrongError when it is not exactly `messages`."""
    consumer = Wire(port)
    consumer.subscribe(load, destination, confirm=False)
    with joined(consumer) as wires:
        while consumer.frames < messages:
            wires.step()
        time.sleep(0.02)
        _no_more(consumer, messages)


def durable(load: Load, port: int, destination: str, seconds: float, meter: Meter) -> Run:
    """A producer with a window of receipts, and a consumer that acknowledges one by one; until all is removed again."""
    consumer, producer = Wire(port), Wire(port)
    consumer.subscribe(load, destination)
    with joined(consumer, producer) as wires:
        meter.start()
        start = time.perf_counter()
        sent = _through_the_store(load, destination, consumer, producer, wires, start + seconds)
        taken = time.perf_counter() - start
        meter.stop()
        _no_more(consumer, sent)
    return Run(sent, taken, [])


def _through_the_store(
    load: Load, destination: str, consumer: Wire, producer: Wire, wires: Wires, deadline: float
) -> int:
    """Send until the deadline, and go on until all is received. Return the number of messages."""
    block = Block(load, destination)
    producer.put(block.take(load.window))
    sent = load.window
    while min(consumer.frames, producer.frames) < sent:
        for wire, frames in wires.step():
            if wire is producer and frames and time.perf_counter() < deadline:
                producer.put(block.take(frames))
                sent += frames
    return sent


def beside(load: Load, port: int, destination: str, seconds: float, meter: Meter) -> Run:
    """Transient sends one at a time, while another process keeps the broker's store busy."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_durable, args=(port, f"{destination}-durable", theirs), daemon=True)
    process.start()
    producer, latencies = Wire(port), []
    block = Block(load, destination)
    try:
        _hear(ours)
        meter.start()
        ours.send(seconds)
        start = now = time.perf_counter()
        while now - start < seconds:
            producer.socket.sendall(block.take(1))
            while not producer.read():
                pass
            latencies.append(time.perf_counter() - now)
            time.sleep(PAUSE)
            now = time.perf_counter()
        stored = _hear(ours)
        meter.stop()
    finally:
        producer.close()
        ours.close()
        process.kill()
        process.join()
    drain(load, port, destination, len(latencies))
    return Run(stored, now - start, latencies)


def _hear(pipe: Any) -> Any:
    if not pipe.poll(2 * STALLED):
        raise StalledError("the durable load did not come to its end")
    word = pipe.recv()
    if isinstance(word, Exception):
        raise word
    return word


def _durable(port: int, destination: str, pipe: Any) -> None:
    """In a process of its own: what `durable` does, until the deadline that the pipe brings."""
    try:
        consumer, producer = Wire(port), Wire(port)
        consumer.subscribe(DURABLE, destination)
        pipe.send(None)
        deadline = time.perf_counter() + pipe.recv()
        with joined(consumer, producer) as wires:
            pipe.send(_through_the_store(DURABLE, destination, consumer, producer, wires, deadline))
    except Exception as error:
        pipe.send(error)


def idle(load: Load, port: int, destination: str, seconds: float, meter: Meter) -> Run:
    """stream, beside connections that do nothing."""
    with crowd(port, load.idle):
        return stream(load, port, destination, seconds, meter)


def computing(load: Load, port: int, destination: str, seconds: float, meter: Meter) -> Run:
    """receipts, beside processes that compute all the time."""
    command = [sys.executable, "-c", COMPUTE]
    processes = [subprocess.Popen(command, start_new_session=True) for _ in range(load.computing)]
    try:
        return receipts(load, port, destination, seconds, meter)
    finally:
        for process in processes:
            process.kill()
            process.wait()


HOW: dict[str, Callable[[Load, int, str, float, Meter], Run]] = {
    "stream": stream,
    "one": one,
    "receipts": receipts,
    "durable": durable,
    "beside": beside,
    "idle": idle,
    "computing": computing,
}
