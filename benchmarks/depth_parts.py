"""The measurements of depth.py: a queue is filled and drained, the broker is killed, others are served meanwhile."""

from __future__ import annotations

import multiprocessing
import selectors
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import brokers
from bench_isolation import PROBES, Probe, spread
from depth_hosts import Host, Ours, count_rows, hosted
from load import StalledError, Wire, WrongError
from loads import Block, Load, send_frame

__all__ = ["DEEP", "SHALLOW", "Plan", "beside_a_drain", "in_and_out", "restarts"]

#: Messages of a shallow queue, to which a deep one is compared.
SHALLOW = 50_000
DEEP = Load("deep", "persistent queue, 100 B, auto", "", 100, persistent=True)
#: Blocks of 128 KiB that are on their way to a broker at a time.
_AHEAD = 16
#: Seconds of silence after which a broker is given up.
_PATIENCE = 900.0
#: Seconds of probes without a drain, before it and after it.
_QUIET = 3.0
#: Seconds for which the files may shrink after a drain, and in which they must have changed to be waited for.
_SHRINKING, _STEADY = 600.0, 3.0
_MIB = 2**20

Progress = Callable[[str, int, int], None]
"""Called with the name of a step, how many messages of it are done, and how many it has."""


@dataclass(frozen=True)
class Plan:
    """The size and the options of a measurement.

    Attributes:
        messages: in the deep queue.
        restarts: kills of the broker.
        shallow: messages in the shallow queue.
        memory: limits.memory of our broker, None for the default.
        recipes: the folder of the peers.
        progress: called while it runs.
    """

    messages: int
    restarts: int = 3
    shallow: int = SHALLOW
    memory: str | None = None
    recipes: Any = None
    progress: Progress = field(default=lambda *_: None)

    @contextmanager
    def host(self, name: str) -> Iterator[Host]:
        """Run a broker with room for the deep queue."""
        with hosted(name, self.messages, self.memory, self.recipes) as host:
            yield host


# ---- filling and draining ----


def fill(host: Host, queue: str, count: int, told: Callable[[int], None]) -> None:
    """Store messages at full speed. The last one of each block asks for a receipt, which follows the disk. The number
    of blocks on their way is bounded, so that the broker need not hold all messages in memory until they are stored."""
    with _wire(host.port) as wire:
        block = Block(DEEP, queue)
        left, blocks = count, 0
        while left:
            frames = min(left - 1, block.units // 2)
            left -= frames + 1
            blocks += 1
            wire.socket.sendall(block.take(frames))
            wire.socket.sendall(send_frame(DEEP, queue, 0, left, f"b{blocks}"))
            while wire.frames < (blocks - _AHEAD if left else blocks):
                wire.read()
            told(count - left)


def drain(port: int, queue: str, count: int, told: Callable[[int], None], *, every: float = 0.1) -> None:
    """Consume messages with ack:auto, and check that no more arrive than were sent."""
    with _wire(port) as wire:
        wire.subscribe(DEEP, queue, confirm=False)
        moment = 0.0
        while wire.frames < count:
            wire.read()
            if time.monotonic() - moment > every:
                moment = time.monotonic()
                told(wire.frames)
        told(count)
        wire.socket.settimeout(0.05)
        with suppress(TimeoutError):
            wire.read()
        if wire.frames != count:
            raise WrongError(f"{wire.frames} messages came of {count}")


@contextmanager
def _wire(port: int) -> Iterator[Wire]:
    wire = Wire(port)
    wire.socket.settimeout(_PATIENCE)
    try:
        yield wire
    except TimeoutError as error:
        raise StalledError("the broker took or sent nothing for too long: has it room for the messages?") from error
    finally:
        wire.close()


class Watch:
    """A context manager that records the peak of a broker's resident memory.

    Attributes:
        peak: MiB.
    """

    def __init__(self, broker: brokers.Broker) -> None:
        self.peak = broker.resident() / 1024
        self._broker = broker
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._done.set()
        self._thread.join()
        self._look()

    def _run(self) -> None:
        while not self._done.wait(0.05):
            self._look()

    def _look(self) -> None:
        self.peak = max(self.peak, self._broker.resident() / 1024)


# ---- (a) a restart ----


def restarts(name: str, plan: Plan) -> dict[str, Any]:
    """Kill the broker while a deep queue is stored, and start it again: seconds until it listens, answers CONNECT and
    delivers; its CPU seconds and MiB of memory by then; and the time of `SELECT count(*)` over the same table."""
    with plan.host(name) as host:
        fill(host, "/queue/deep", plan.messages, _part(plan, f"{name}: fill before the kill"))
        brokers.rest(host.broker)
        found = []
        for number in range(plan.restarts):
            plan.progress(f"{name}: kill -9 and start", number, plan.restarts)
            found.append(_restart(host))
        plan.progress(f"{name}: kill -9 and start", plan.restarts, plan.restarts)
        host.kill()
        counted = count_rows(host.database) if isinstance(host, Ours) else None
    medians = {key: statistics.median(one[key] for one in found) for key in found[0]}
    return {"messages": plan.messages, "count": counted, "runs": found, **medians}


def _restart(host: Host) -> dict[str, float]:
    host.kill()
    begin = host.spawn()
    listening = host.wait_until_it_listens()
    at_listening = host.broker.resident() / 1024
    with _wire_as_soon_as_possible(host) as wire:
        connected = time.perf_counter()
        wire.socket.settimeout(_PATIENCE)
        subscribe = b"SUBSCRIBE\nid:0\ndestination:/queue/deep\nack:client-individual\n"
        wire.socket.sendall(subscribe + b"prefetch-count:1\nactivemq.prefetchSize:1\n\n\0")
        first = b""
        while b"\0" not in first:
            first += wire.socket.recv(65536)
        delivered = time.perf_counter()
        if not first.lstrip().startswith(b"MESSAGE"):
            raise WrongError(f"not a message: {first[:200]!r}")
        broker = host.broker
        return {
            "listening": listening - begin,
            "connected": connected - begin,
            "delivered": delivered - begin,
            "cpu": broker.cpu(),
            "rss_listening": at_listening,
            "rss_delivered": broker.resident() / 1024,
            "rss_peak": broker.peak() / 1024,
        }


@contextmanager
def _wire_as_soon_as_possible(host: Host) -> Iterator[Wire]:
    """Connect; a peer may accept connections, and close them, before it is ready."""
    end = time.perf_counter() + _PATIENCE
    while True:
        try:
            wire = Wire(host.port)
            break
        except (OSError, StalledError):
            if host.ended or time.perf_counter() > end:
                raise
            time.sleep(0.01)
    try:
        yield wire
    finally:
        wire.close()


# ---- (b) in and out ----


def in_and_out(name: str, plan: Plan) -> dict[str, Any]:
    """Fill and drain a deep queue of one broker, and before, between and after it a shallow queue of another (a peer:
    of the same): CPU µs per message, MiB of memory and of the files."""
    count = min(plan.shallow, plan.messages)
    shallow: list[float] = []
    found: dict[str, Any] = {"messages": plan.messages, "shallow_messages": count}
    with plan.host(name) as deep, _other(name, plan, deep) as other:

        def compare() -> None:
            told = _part(plan, f"{name}: {count:,} in and out", count)
            for _ in range(3):
                into = _cpu(other, lambda: fill(other, "/queue/shallow", count, told))[0]
                shallow.append(into + _cpu(other, lambda: drain(other.port, "/queue/shallow", count, told))[0])

        compare()
        with Watch(deep.broker) as watch:
            told = _part(plan, f"{name}: fill")
            found["in"], found["in_seconds"] = _cpu(deep, lambda: fill(deep, "/queue/deep", plan.messages, told))
            found["rss_filled"], found["file_filled"] = deep.broker.resident() / 1024, deep.octets() / _MIB
            compare()
            told = _part(plan, f"{name}: drain")
            drained = _cpu(deep, lambda: drain(deep.port, "/queue/deep", plan.messages, told))
            found["out"], found["out_seconds"] = drained
            found["file_drained"] = deep.octets() / _MIB
            found["file_end"], found["file_seconds"] = _settled(deep, plan, name)
            compare()
        found["rss_end"] = deep.broker.resident() / 1024
        found["rss_peak"] = max(watch.peak, deep.broker.peak() / 1024)
    found["cpu"] = 1e6 * (found.pop("in") + found.pop("out")) / plan.messages
    found["cpu_shallow"] = 1e6 * statistics.median(shallow) / count
    found["ratio"] = found["cpu"] / found["cpu_shallow"]
    return found


@contextmanager
def _other(name: str, plan: Plan, deep: Host) -> Iterator[Host]:
    """Run a second broker for the shallow queue. A peer runs only once: it serves both queues."""
    if name != brokers.OURS:
        yield deep
    else:
        with plan.host(name) as host:
            yield host


def _cpu(host: Host, run: Callable[[], None]) -> tuple[float, float]:
    """Run something, wait until the broker is at rest, and return its CPU seconds and the seconds of the run."""
    meter = brokers.Meter(host.broker)
    meter.start()
    start = time.perf_counter()
    run()
    taken = time.perf_counter() - start
    meter.stop()
    return meter.cpu, taken


def _settled(host: Host, plan: Plan, name: str) -> tuple[float, float]:
    """Wait until the files no longer shrink; return their MiB, and the seconds until then."""
    start = changed = time.perf_counter()
    size = host.octets()
    while time.perf_counter() - changed < _STEADY and changed - start < _SHRINKING:
        time.sleep(0.1)
        now = host.octets()
        if now < size:
            size, changed = now, time.perf_counter()
            plan.progress(f"{name}: the files shrink, {size // _MIB} MiB", 0, 1)
    return size / _MIB, changed - start


def _part(plan: Plan, what: str, total: int = 0) -> Callable[[int], None]:
    def told(done: int) -> None:
        plan.progress(what, done, total or plan.messages)

    return told


# ---- (c) others beside a drain ----


def beside_a_drain(name: str, plan: Plan, quiet: float = _QUIET) -> dict[str, Any]:
    """Send messages with receipts, one at a time, beside a drain of a deep queue, before it and after it: ms."""
    with plan.host(name) as host:
        fill(host, "/queue/deep", plan.messages, _part(plan, f"{name}: fill before the drain"))
        brokers.rest(host.broker)
        probes = {probe: Probe(host.port, probe) for probe in (*PROBES, "kept")}
        without = _probed(probes, _for(quiet), plan, f"{name}: receipts without a drain")
        process, heard = _drainer(host.port, plan.messages)
        try:
            start = time.perf_counter()
            with_drain = _probed(probes, heard.poll, plan, f"{name}: receipts beside a drain")
            taken = time.perf_counter() - start
            said = heard.recv()
        finally:
            process.kill()
            process.join()
        if isinstance(said, Exception):
            raise said
        after = _probed(probes, _for(quiet), plan, f"{name}: receipts without a drain")
        for probe in probes.values():
            probe.socket.close()
        kept = sum(len(delays["kept"]) for delays in (without, with_drain, after))
        drain(host.port, "/queue/probe.kept", kept, lambda _done: None)
    figures = {
        probe: {"without": spread(without[probe] + after[probe]), "beside": spread(with_drain[probe])}
        for probe in probes
    }
    return {"messages": plan.messages, "drain_seconds": taken, "probes": figures}


def _for(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


def _drainer(port: int, count: int) -> tuple[Any, Any]:
    """Start a process that drains; return it, and a pipe that receives None or its error at the end."""
    context = multiprocessing.get_context("fork")
    heard, said = context.Pipe(duplex=False)

    def run() -> None:
        try:
            drain(port, "/queue/deep", count, lambda _done: None)
            said.send(None)
        except Exception as error:
            said.send(error)

    process = context.Process(target=run, daemon=True)
    process.start()
    return process, heard


def _probed(probes: dict[str, Probe], done: Callable[[], bool], plan: Plan, what: str) -> dict[str, list[float]]:
    """Let the probes work until `done`, at least until each has a receipt. Return the seconds of their receipts."""
    for probe in probes.values():
        probe.delays = []
    end = time.monotonic() + _PATIENCE
    plan.progress(what, 0, 1)
    with selectors.DefaultSelector() as selector:
        for probe in probes.values():
            selector.register(probe.socket, selectors.EVENT_READ, probe)
        while not (finished := done()) or any(probe.due is None or not probe.delays for probe in probes.values()):
            now = time.monotonic()
            if now > end:
                raise StalledError("the drain or a receipt takes too long")
            for probe in probes.values():
                if probe.due is not None and probe.due <= now and not (finished and probe.delays):
                    probe.send()
            due = min((probe.due for probe in probes.values() if probe.due is not None), default=now + 0.1)
            for key, _ in selector.select(min(0.1, max(0.0, due - time.monotonic()))):
                key.data.read()
    plan.progress(what, 1, 1)
    return {name: probe.delays for name, probe in probes.items()}
