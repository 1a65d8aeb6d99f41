"""Hostile sessions over TCP, WebSocket and the legacy port, many at once, on a broker process: beside them, pairs of
well-behaved clients whose messages, order and receipts are checked all the time.

Usage:
    tcp.py [--seconds N] [--seed N] [--slots N]

Invariant: nobody gets an "internal error" and the broker logs no fault of its own; no message and no receipt of a pair
is lost, doubled or out of order; no pair stands still while the broker works.

A round has one dialect of the broker, and the rounds go through all of them, with users and without. One seed always
makes the same choices; how sessions interleave is up to the machine. A finding is written to fuzz/work/findings with
what the latest sessions have sent.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from random import Random

from case import HEAD
from hostile import Names, Stream, ws_frame, ws_frames
from seeds import inputs

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from crash.process import BrokerProcess

from stompcodec import Frame, Parser
from stompcodec.broker.auth import hash_passcode

FINDINGS = Path(__file__).resolve().parent / "work" / "findings"
DIALECTS = ("stompcodec", "activemq", "artemis", "rabbitmq")
#: What the log must not say.
FAULTS = re.compile(r"internal error|Traceback|fault of the broker|cannot be written|a selector fails| CRITICAL ")
FAULT_ANSWERS = (b"internal error", b"a message could not be written", b"the message could not be written")
#: A pair stands still when the broker has worked so many seconds of CPU time for others meanwhile, or nobody has worked
#: for so many seconds of time.
STALL_CPU, STALL_WALL = 15.0, 120.0
#: Hostile sessions that stay open at a time, and that a finding shows.
MOST_OPEN, MOST_SHOWN = 24, 400
HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: v12.stomp, v11.stomp, v10.stomp\r\n\r\n"
)


class Finding(Exception):
    """What does not hold."""


class Wire:
    """A client's connection that is read all the time: frames come in, octets go out.

    Args:
        transport: "tcp", "ws" or "legacy".
        version: what it speaks.
    """

    def __init__(self, transport: str, version: str) -> None:
        self.transport, self.version = transport, version
        self.frames: deque[Frame] = deque()
        self.came = asyncio.Event()
        self.closed = False
        self._parser = Parser("legacy" if version == "legacy" else None)
        self._rest = b""
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._task: asyncio.Task[None]

    async def open(self, address: dict[str, int]) -> None:
        port = address[{"tcp": "port", "ws": "ws_port", "legacy": "legacy_port"}[self.transport]]
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        if self.transport == "ws":
            self._writer.write(HANDSHAKE)
            answer = await self._reader.readuntil(b"\r\n\r\n")
            if b" 101 " not in answer:
                raise Finding(f"no WebSocket: {answer!r}")
        self._task = asyncio.ensure_future(self._read())

    def send(self, command: str, body: bytes = b"", **headers: str) -> None:
        """Send a frame whose headers need no escapes; underscores in names are hyphens."""
        lines = [command, *(f"{name.replace('_', '-')}:{value}" for name, value in headers.items()), "", ""]
        octets = "\n".join(lines).encode() + body + b"\0\n"
        self._writer.write(ws_frame(2, octets) if self.transport == "ws" else octets)

    def beat(self) -> None:
        """Send a sign of life: with a connection TTL, as in Artemis, a client that only listens is dead some day."""
        self._writer.write(ws_frame(2, b"\n") if self.transport == "ws" else b"\n")

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await self._reader.read(65536):
                for payload in self._payloads(data) if self.transport == "ws" else (data,):
                    for frame in self._parser.feed(payload):
                        if frame.command == "CONNECTED" and self.version != "legacy":
                            self._parser.version = frame.get("version", "1.0")
                        self.frames.append(frame)
                self.came.set()
        self.closed = True
        self.came.set()

    def _payloads(self, data: bytes) -> Iterator[bytes]:
        self._rest += data
        while len(self._rest) >= 2:
            length, begin = self._rest[1], 2
            if length > 125:
                begin = 4 if length == 126 else 10
                if len(self._rest) < begin:
                    return
                length = int.from_bytes(self._rest[2:begin], "big")
            if len(self._rest) < begin + length:
                return
            opcode, payload = self._rest[0] & 15, self._rest[begin : begin + length]
            self._rest = self._rest[begin + length :]
            if opcode == 9:
                self._writer.write(ws_frame(10, payload))
            elif opcode < 3:
                yield payload

    async def close(self) -> None:
        self._task.cancel()
        self._writer.transport.abort()
        with contextlib.suppress(asyncio.CancelledError, OSError):
            await self._task


class Clock:
    """How long somebody waits, by what the broker does meanwhile. Linux only."""

    def __init__(self, pid: int) -> None:
        self._path = Path(f"/proc/{pid}/stat")
        self._tick = os.sysconf("SC_CLK_TCK")

    def cpu(self) -> float:
        """Seconds of CPU time that the broker has used."""
        fields = self._path.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / self._tick


class Pair:
    """A sender and a taker that behave: a queue, a topic and a durable subscription of their own.

    Args:
        round: what they are part of.
        nonce: nobody else knows it.
        ways: transport and version of the sender, and of the taker.
    """

    def __init__(self, round: Round, nonce: str, ways: tuple[tuple[str, str], tuple[str, str]]) -> None:
        self.round = round
        self.nonce = nonce
        self.names = Names(nonce)
        self.sender, self.taker = Wire(*ways[0]), Wire(*ways[1])
        self.count = self.receipts = 0
        #: What came by each subscription.
        self.seen: Counter[str] = Counter()
        self.worst = 0.0
        self.done = False

    async def start(self) -> None:
        for wire in (self.sender, self.taker):
            await wire.open(self.round.address)
            if wire.version == "legacy":
                wire.send("CONNECT", username="model", passcode="guest")
            else:
                versions = {} if wire.version == "1.0" else {"accept_version": wire.version}
                client = {"client_id": self.nonce} if wire is self.taker else {}
                wire.send("CONNECT", host="/", login="model", passcode="guest", **versions, **client)
            frame = await self._frame(wire)
            if frame.command != "CONNECTED":
                raise Finding(f"the model is not let in: {frame}")
        self.subscriptions = {"q": self.names.queue.decode(), "t": self.names.topic.decode()}
        modes = {"q": "client-individual", "t": "auto"}
        if self.taker.version == "legacy":
            modes["q"] = "auto"
        for id, destination in self.subscriptions.items():
            self.taker.send(
                "SUBSCRIBE", destination=destination, id=id, ack=modes[id], receipt=f"s{id}", prefetch_count="50"
            )
            await self._expect_receipt(f"s{id}")
        if self.taker.version != "legacy":
            durable = {"durable_subscriber_name": "d", "ack": "client-individual", "prefetch_count": "50"}
            destination = self.names.topic.decode()
            self.taker.send("SUBSCRIBE", destination=destination, id="d", receipt="sd", **durable)
            await self._expect_receipt("sd")
            self.subscriptions["d"] = destination

    async def _expect_receipt(self, value: str) -> None:
        frame = await self._frame(self.taker)
        if (frame.command, frame.get("receipt-id")) != ("RECEIPT", value):
            raise Finding(f"the model's subscription {value}: {frame}")

    async def _frame(self, wire: Wire) -> Frame:
        """The next frame. Who waits too long for it stands still."""
        cpu, wall = self.round.clock.cpu(), time.monotonic()
        while not wire.frames:
            if wire.closed:
                raise Finding(f"the connection of the model ended ({wire.transport}, {wire.version})")
            wire.came.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(wire.came.wait(), 1.0)
            self.worst = max(self.worst, self.round.clock.cpu() - cpu)
            if self.worst > STALL_CPU or time.monotonic() - wall > STALL_WALL:
                waited = time.monotonic() - wall
                raise Finding(f"the model stands still: {waited:.0f} s, {self.worst:.1f} s of the broker's CPU time")
        return wire.frames.popleft()

    async def run(self) -> None:
        """Send some, wait until all of it is there, and again."""
        random = Random(self.nonce)
        while not self.round.over:
            for _ in range(random.choice((1, 1, 3, 20))):
                self.count += 1
                for name in ("queue", "topic"):
                    body = b"%b %d" % (self.nonce.encode(), self.count)
                    headers = {"persistent": "true"} if random.random() < 0.5 else {}
                    destination = getattr(self.names, name).decode()
                    self.sender.send("SEND", body, destination=destination, receipt=f"{name}-{self.count}", **headers)
            while self.receipts < 2 * self.count:
                self._check_receipt(await self._frame(self.sender))
            while any(self.seen[id] < self.count for id in self.subscriptions):
                self._check_message(await self._frame(self.taker))
            self.taker.beat()
        self.done = True

    def _check_receipt(self, frame: Frame) -> None:
        number, name = self.receipts // 2 + 1, ("queue", "topic")[self.receipts % 2]
        if (frame.command, frame.get("receipt-id")) != ("RECEIPT", f"{name}-{number}"):
            raise Finding(f"the sender of the model expected the receipt {name}-{number}: {frame}")
        self.receipts += 1

    def _check_message(self, frame: Frame) -> None:
        if frame.command != "MESSAGE":
            raise Finding(f"the taker of the model expected a MESSAGE: {frame}")
        id = frame.headers["subscription"]
        if id != "t" and self.taker.version != "legacy":
            key = {"id": frame.headers["ack"]} if self.taker.version == "1.2" else {}
            self.taker.send("ACK", **(key or {"message_id": frame.headers["message-id"], "subscription": id}))
        if not frame.body.startswith(self.nonce.encode()):
            return  # somebody else's
        self.seen[id] += 1
        number = int(frame.body.split()[1])
        if number != self.seen[id] or frame.get("redelivered") is not None:
            raise Finding(f"message {self.seen[id]} of subscription {id} was expected: {frame} {frame.body!r}")


class Round:
    """A broker of one dialect, and everybody who talks to it for some seconds."""

    def __init__(self, fuzz: Fuzz, number: int, seconds: float) -> None:
        self.fuzz = fuzz
        self.key = f"{fuzz.seed}/{number}"
        self.seconds = seconds
        self.random = Random(self.key)
        self.dialect = DIALECTS[number % len(DIALECTS)]
        self.users = bool(number // len(DIALECTS) % 2) ^ bool(number % 2)
        self.over = False
        self.address: dict[str, int] = {}
        self.clock: Clock
        self.open: deque[tuple[asyncio.StreamWriter, asyncio.Task[None]]] = deque()
        #: Streams of the latest sessions.
        self.latest: deque[tuple[str, str, str, str]] = deque(maxlen=MOST_SHOWN)
        self.broker: BrokerProcess

    def config(self) -> str:
        large = self.random.choice(("300", '"100 KiB"'))
        lines = ["[listen]", "legacy_port = 0", f"detect_legacy = {str(self.random.random() < 0.3).lower()}"]
        lines += ["[broker]", f'dialect = "{self.dialect}"', "[messages]", f"large = {large}"]
        lines += ["[queues]", "max_attempts = 3", "[topics]", f"retain = {str(self.random.random() < 0.5).lower()}"]
        if self.users:
            lines += ["[users]", *(f'{name} = "{hash_passcode("guest", n=16)}"' for name in ("model", "hostile"))]
        return "\n".join(lines)

    async def run(self) -> None:
        with tempfile.TemporaryDirectory(prefix="stompcodec-fuzz-") as folder:
            self.broker = BrokerProcess(Path(folder), config=self.config())
            with self.broker:
                self.address, self.clock = self.broker.address, Clock(self.broker.pid)
                try:
                    await self._play()
                    status = await asyncio.to_thread(self.broker.stop)
                    if status != 0:
                        raise Finding(f"the broker ended with status {status}")
                    self._look_at_log()
                except Finding as finding:
                    self.fuzz.found(self, str(finding))

    async def _play(self) -> None:
        ways = [(("tcp", "1.2"), ("tcp", "1.2")), (("ws", "1.1"), ("ws", "1.2")), (("tcp", "1.0"), ("tcp", "1.1"))]
        ways.append((("ws", "1.2"), ("legacy", "legacy")))
        pairs = [Pair(self, f"{self.random.randrange(10**9):09d}", way) for way in ways]
        for pair in pairs:
            await pair.start()
        names = [pair.names for pair in pairs]
        tasks = [asyncio.ensure_future(pair.run()) for pair in pairs]
        tasks += [asyncio.ensure_future(self._slot(slot, names)) for slot in range(self.fuzz.slots)]
        tasks.append(asyncio.ensure_future(self._watch()))
        try:
            await asyncio.gather(*tasks)
        finally:
            self.over = True
            while not all(task.done() for task in tasks):  # before Python 3.12, wait_for may swallow a cancellation
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks, timeout=0.2)
            for pair in pairs:
                await pair.sender.close()
                await pair.taker.close()
                self.fuzz.messages += pair.count * 2
                self.fuzz.worst = max(self.fuzz.worst, pair.worst)
            while self.open:
                await self._drop()

    async def _watch(self) -> None:
        """The end of the round; and the log, all the time."""
        end = time.monotonic() + self.seconds
        while time.monotonic() < end:
            await asyncio.sleep(min(0.5, self.seconds))
            self._look_at_log()
            if not self.broker.running:
                raise Finding("the broker is gone")
        self.over = True

    def _look_at_log(self) -> None:
        fault = FAULTS.search(self.broker.log.read_text("utf-8", "replace"))
        if fault is not None:
            raise Finding(f"the broker's log says {fault.group()!r}")

    # ---- hostile sessions ----

    async def _slot(self, slot: int, names: list[Names]) -> None:
        """Sessions one after the other."""
        number = 0
        while not self.over:
            number += 1
            key = f"{self.key}/{slot}/{number}"
            stream = Stream(key, self.fuzz.corpus, names[number % len(names)])
            octets = stream.octets()
            self.latest.append((key, stream.transport, stream.end, octets.hex()))
            self.fuzz.sessions += 1
            self.fuzz.octets += len(octets)
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._session(stream, stream.cuts(octets))

    async def _session(self, stream: Stream, pieces: list[bytes]) -> None:
        port = self.address[{"tcp": "port", "ws": "ws_port", "legacy": "legacy_port"}[stream.transport]]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4096)
        if stream.transport == "ws":
            writer.write(HANDSHAKE)
            await reader.readuntil(b"\r\n\r\n")
            pieces = ws_frames(stream.random, pieces)
        listening = asyncio.ensure_future(asyncio.sleep(0) if stream.end == "deaf" else self._listen(reader))
        self.open.append((writer, listening))
        for piece in pieces:
            writer.write(piece)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(writer.drain(), 2.0)
        if stream.end == "abort":
            writer.transport.abort()
        elif stream.end == "close":
            writer.close()
        elif stream.end == "eof" and stream.transport != "ws":
            writer.write_eof()
        if stream.end in ("close", "eof") and stream.random.random() < 0.5:
            await asyncio.wait([listening], timeout=5.0)
        if listening.done() and not listening.cancelled() and isinstance(listening.exception(), Finding):
            raise listening.exception() or AssertionError
        while len(self.open) > MOST_OPEN:
            await self._drop()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        rest = b""
        with contextlib.suppress(OSError):
            while data := await reader.read(4096):
                rest = rest[-100:] + data
                for text in FAULT_ANSWERS:
                    if b"message:" + text in rest:
                        raise Finding(f"a session was answered by {text.decode()!r}")

    async def _drop(self) -> None:
        """The end of the session that is open longest."""
        writer, listening = self.open.popleft()
        writer.transport.abort()
        if not listening.done():
            await asyncio.sleep(0)
            listening.cancel()
        (result,) = await asyncio.gather(listening, return_exceptions=True)
        if isinstance(result, Finding):
            raise result


class Fuzz:
    """A run: rounds until the time is over, or something was found.

    Args:
        seed: of all choices.
        seconds: for all rounds together, at least one of each dialect.
        slots: hostile sessions that write at a time.
        folder: for findings.
    """

    def __init__(self, seed: int, seconds: float, slots: int, folder: Path) -> None:
        self.seed, self.seconds, self.slots, self.folder = seed, seconds, slots, folder
        self.corpus = [data[HEAD:] for data in inputs()]
        self.findings: list[str] = []
        self.sessions = self.octets = self.messages = self.rounds = 0
        self.worst = 0.0

    async def run(self) -> None:
        end = time.monotonic() + self.seconds
        each = min(60.0, self.seconds / len(DIALECTS))
        while self.rounds < len(DIALECTS) or time.monotonic() < end:
            round = Round(self, self.rounds, each)
            self.rounds += 1
            await round.run()
            users = "with users" if round.users else "without users"
            print(f"{round.dialect:12}{users:15}{self} so far", flush=True)
            if self.findings:
                return

    def found(self, round: Round, what: str) -> None:
        """Keep what belongs to a finding."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"tcp-{self.seed}-{self.rounds}"
        log = round.broker.log.read_text("utf-8", "replace")
        found = FAULTS.search(log)
        about = log[max(0, found.start() - 2000) : found.start() + 4000] if found else log[-4000:]
        text = {"finding": what, "dialect": round.dialect, "config": round.config(), "log": about}
        path.write_text(json.dumps({**text, "sessions": list(round.latest)}, indent=1))
        self.findings.append(f"{what} ({path})")
        print(f"finding: {what}\n{about}\nwritten to {path}", flush=True)

    def __str__(self) -> str:
        return (
            f"{self.sessions:,} hostile sessions, {self.octets:,} bytes, {self.messages:,} messages of the model, "
            f"longest wait {self.worst:.2f} s of the broker's CPU time, {len(self.findings)} findings"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    parser.add_argument("--slots", type=int, default=8, help="hostile sessions that write at a time")
    parser.add_argument("--findings", type=Path, default=FINDINGS, metavar="FOLDER", help="where findings are written")
    options = parser.parse_args()
    fuzz = Fuzz(options.seed, options.seconds, options.slots, options.findings)
    print(f"seed {options.seed}", flush=True)
    asyncio.run(fuzz.run())
    print(fuzz, flush=True)
    return 1 if fuzz.findings else 0


if __name__ == "__main__":
    sys.exit(main())
