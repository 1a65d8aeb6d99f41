"""Measure the costs for sharding.py, and the rates that it is compared with: python benchmarks/sharding_costs.py.

It takes two minutes on a machine that does nothing else, and writes benchmarks/sharding.json. All costs are
CPU microseconds. Linux only.

    hops      frames between two processes over Unix sockets, in event loops, through our codec
    hand-over a connection that one process accepts and another one serves, by SCM_RIGHTS
    syncs     processes that each write to a file and sync it, on one disk; and bytes per second with large parts
    loads     one broker, and two of them at once with a generator each, in turns
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bench_broker
import brokers
import load as generator
from loads import KIB, LOADS, Load

from stompcodec.broker.process import new_loop
from stompcodec.codec import Frame, Parser, serialize

__all__ = ["RESULTS"]

RESULTS = Path(__file__).with_name("sharding.json")
_FORK = multiprocessing.get_context("fork")
#: A message between two processes, with the headers that one needs to find its way.
_HEADERS = [("destination", "/queue/orders"), ("message-id", "e-1000001"), ("shard", "7"), ("connection", "1234")]
ROUNDS = 5
#: Bytes of a write-ahead log.
_LOG = 4 * 2**20
#: Transient messages with receipts, one at a time from each of some producers: what a turn of the loop costs.
TURNS = tuple(
    Load(f"turns-{count}", "", "receipts", 100, producers=count, window=1, consumers=0, limit=400_000)
    for count in (1, 4, 16, 64)
)
#: What is measured of one and of two brokers.
PAIRED = ("queue-100b", "queue-1k", "individual-1k", "window-100", "producers-16")
SINGLE = ("one-100b", "fanout-100b", "window-1", "persistent-1k")


def child(run: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    """Start a process; return a function that waits for its result."""
    heard, said = _FORK.Pipe(duplex=False)

    def work() -> None:
        try:
            said.send((run(*arguments), None))
        except BaseException as error:
            said.send((None, repr(error)))

    process = _FORK.Process(target=work, daemon=True)
    process.start()

    def result() -> Any:
        if not heard.poll(60):
            process.kill()
            raise RuntimeError(f"{run.__name__} did not end")
        value, error = heard.recv()
        process.join()
        if error:
            raise RuntimeError(error)
        return value

    return result


# ---- hops ----


class _End(asyncio.Protocol):
    """One end of a link: parses a batch of frames, and tells its side when the batch is whole."""

    def __init__(self, side: _Side) -> None:
        self.side = side
        side.ends.append(self)  # here, since frames may come before create_connection returns
        self.frames: list[Frame] = []
        self.parser = Parser("1.2")
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.frames += self.parser.feed(data)
        if len(self.frames) == self.side.batch:
            self.side.whole()

    def send(self) -> None:
        """Send the batch on, each frame serialized."""
        frames, self.frames = self.frames, []
        self.transport.write(b"".join([serialize(frame, "1.2") for frame in frames]))


class _Side:
    """All ends of one process. When a batch has arrived on each link, all are sent back."""

    def __init__(self, links: int, batch: int, rounds: int) -> None:
        self.links, self.batch, self.rounds, self.waiting = links, batch, rounds, 0
        self.ends: list[_End] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def whole(self) -> None:
        self.waiting += 1
        if self.waiting < self.links:
            return
        self.waiting = 0
        self.rounds -= 1
        if self.rounds >= 0:
            for end in self.ends:
                end.send()
        if self.rounds <= 0 and not self.done.done():
            self.done.set_result(None)


def _side(sockets: list[socket.socket], batch: int, rounds: int, size: int, first: bool) -> float:
    """Run one side; return its CPU µs of a round."""

    async def work() -> float:
        side = _Side(len(sockets), batch, rounds)
        for one in sockets:
            await asyncio.get_running_loop().create_connection(lambda: _End(side), sock=one)
        start = time.process_time()
        if first:
            frame = Frame("MESSAGE", _HEADERS, b"x" * size)
            frames = list(Parser("1.2").feed(serialize(frame, "1.2") * batch))
            for end in side.ends:
                end.frames = list(frames)
                end.send()
        await side.done
        spent = time.process_time() - start
        await asyncio.sleep(0.05)
        return 1e6 * spent / rounds

    loop = new_loop(None)
    try:
        return loop.run_until_complete(work())
    finally:
        loop.close()


def hop(links: int, batch: int, size: int, rounds: int) -> float:
    """Return CPU µs that one process spends when a batch came in over each link, and went out again."""
    pairs = [socket.socketpair() for _ in range(links)]
    results = [
        child(_side, [pair[at] for pair in pairs], batch, rounds, size, first) for at, first in ((0, False), (1, True))
    ]
    spent = [result() for result in results]
    for one in (one for pair in pairs for one in pair):
        one.close()
    return sum(spent) / 2


def hops(size: int) -> dict[str, float]:
    """Return µs of a turn of a loop, of a link (a read and a write), and of a frame, out and in."""
    table = {}
    for links, batch, rounds in ((1, 1, 4000), (32, 1, 400), (32, 32, 100), (1, 32, 1500)):
        table[links, batch] = min(hop(links, batch, size, rounds) for _ in range(3))
    frame = (table[32, 32] - table[32, 1]) / (32 * 31)
    link = (table[32, 1] - table[1, 1]) / 31 - frame
    return {"turn": table[1, 1] - link - frame, "link": link, "frame": frame}


# ---- a connection that is handed over ----


def _server(listener: socket.socket, count: int, shard: socket.socket | None) -> float:
    listener.settimeout(30)
    start = time.process_time()
    for _ in range(count):
        connection, _ = listener.accept()
        data = connection.recv(4096)
        if shard is None:
            connection.sendall(data[:1])
        else:
            socket.send_fds(shard, [data], [connection.fileno()])
        connection.close()
    return time.process_time() - start


def _shard(front: socket.socket, count: int) -> float:
    start = time.process_time()
    for _ in range(count):
        data, handles, _, _ = socket.recv_fds(front, 4096, 1)
        with socket.socket(fileno=handles[0]) as connection:
            connection.sendall(data[:1])
    return time.process_time() - start


def _clients(port: int, count: int) -> None:
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(generator.CONNECT)
            connection.recv(1)


def hand_over(count: int = 3000) -> dict[str, float]:
    """Return µs of a connection: accepted and answered by one process; accepted by a front, and by the shard."""
    found = {}
    for handed in (False, True):
        with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
            # Datagrams keep their borders, so that each handle comes with its own bytes.
            front, shard = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            server = child(_server, listener, count, front if handed else None)
            second = child(_shard, shard, count) if handed else None
            clients = child(_clients, listener.getsockname()[1], count)
            clients()
            found["front" if handed else "alone"] = 1e6 * server() / count
            if second:
                found["shard"] = 1e6 * second() / count
            front.close()
            shard.close()
    return found


# ---- the disk ----


def _syncing(path: str, seconds: float, octets: int) -> int:
    """Overwrite a file part by part, as SQLite does with its write-ahead log, and sync each part."""
    block, count = b"x" * octets, 0
    with open(path, "wb", buffering=0) as file:
        file.write(bytes(_LOG))
        os.fsync(file.fileno())
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            os.pwrite(file.fileno(), block, count * octets % _LOG)
            os.fdatasync(file.fileno())
            count += 1
    return count


def syncs(seconds: float = 1.0, octets: int = 16 * KIB) -> dict[str, float]:
    """Return how many syncs per second some processes do together, each on a file of its own."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="stompcodec-bench-") as folder:
        for processes in (1, 2, 4, 8):
            results = [child(_syncing, f"{folder}/{number}", seconds, octets) for number in range(processes)]
            found[str(processes)] = sum(result() for result in results) / seconds
    return found


# ---- brokers ----


def _driven(load: Load, broker: brokers.Broker, destination: str, seconds: float) -> dict[str, float]:
    """Run a load, in a process of its own."""
    meter = brokers.Meter(broker)
    done = generator.HOW[load.how](load, broker.port, destination, seconds, meter)
    return {
        "rate": done.messages / done.seconds,
        "cpu": 1e6 * meter.cpu / done.messages,
        "generator": 1e6 * meter.generator / done.messages,
        "written": meter.written / done.messages,
    }


def together(load: Load, found: list[brokers.Broker], mark: str, seconds: float) -> dict[str, float]:
    """Run a load on all brokers at once: the sum of their rates; CPU µs and bytes written by message, as means."""
    results = [child(_driven, load, broker, load.destination(f"shard-{mark}"), seconds) for broker in found]
    cells = [result() for result in results]
    means = {key: statistics.mean(cell[key] for cell in cells) for key in ("cpu", "generator", "written")}
    return {"rate": sum(cell["rate"] for cell in cells), **means}


def loads(seconds: float, rounds: int) -> dict[str, Any]:
    """Return the medians of each load on one broker and on two, and of the ratio of their rates."""
    runs: dict[str, dict[str, list[dict[str, float]]]] = {}
    pair = [brokers.Ours(), brokers.Ours()]
    try:
        for turn in range(-1, rounds):  # the first one warms up
            for load in (*(LOADS[name] for name in (*PAIRED, *SINGLE)), *TURNS):
                for count in (1, 2) if load.name in PAIRED else (1,):
                    cell = together(load, pair[:count], f"{turn}-{count}", seconds)
                    if turn >= 0:
                        runs.setdefault(load.name, {}).setdefault(str(count), []).append(cell)
            print(f"round {turn + 1} of {rounds}", flush=True)
    finally:
        for broker in pair:
            broker.stop()
    found: dict[str, Any] = {}
    for name, sides in runs.items():
        found[name] = {
            count: {key: statistics.median(cell[key] for cell in cells) for key in cells[0]}
            for count, cells in sides.items()
        }
        if "2" in sides:
            ratios = [two["rate"] / one["rate"] for one, two in zip(sides["1"], sides["2"], strict=True)]
            found[name]["ratio"] = {"median": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}
    return found


def rounded(value: Any) -> Any:
    """Keep four digits: no clock is better than that."""
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.7, help="of each load (0.7)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of all loads ({ROUNDS})")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    args = parser.parse_args()
    found = {
        "facts": bench_broker.facts(args),
        "hops": {str(size): hops(size) for size in (100, KIB)},
        "hand_over": hand_over(),
        "syncs": syncs(),
        "disk": syncs(octets=_LOG)["1"] * _LOG,
        "loads": loads(args.seconds, args.rounds),
    }
    args.results.write_text(json.dumps(rounded(found), indent=1) + "\n")
    print(f"written: {args.results.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
