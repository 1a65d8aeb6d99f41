"""Our broker beside its peers, or beside another version of itself, all in turns: `make bench WHAT=broker`.

Each load is checked before it is timed. CPU time is that of the broker's process until it is at rest again.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from operator import truediv
from pathlib import Path
from typing import Any

import brokers
import load as generator
from brokers import OURS, Broker, Meter, Ours
from load import LOADS, Block, Load, Wire, WrongError, send_frame

from stompcodec.errors import StompError

FAULTS = (WrongError, StompError, OSError)
#: The messages of a deep queue; how many blocks of them are on their way.
DEEP, AHEAD = Load("deep", "", 100, persistent=True), 16
Cell = dict[str, float]
#: The tables that a cell has a part in: their names, and what they show of it.
FIGURES: dict[str, Callable[[Load, Cell], float | None]] = {
    "cpu": lambda load, cell: cell["messages"] / cell["cpu"],
    "rate": lambda load, cell: cell["messages"] / cell["quiet" if load.persistent else "seconds"],
    "p50": lambda load, cell: cell.get("p50"),
    "p99": lambda load, cell: cell.get("p99"),
}


def run(broker: Broker, load: Load, seconds: float, mark: str) -> Cell:
    meter, load = Meter(broker), broker.fitted(load)
    destination = load.destination(f"{os.getpid()}-{mark}")
    drive = generator.receipts if load.window else generator.stream
    messages, spent, latencies = drive(load, broker.port, destination, seconds, meter)
    cell = {"messages": messages, "seconds": spent, "cpu": meter.cpu, "quiet": max(meter.quiet, spent)}
    if taken := sorted(latencies):
        cell |= {"p50": taken[len(taken) // 2] * 1e3, "p99": taken[len(taken) * 99 // 100] * 1e3}
    return cell


def tried(side: str, load: Load, wrong: dict[str, str], *steps: Callable[[], Any]) -> Any:
    """Return what the last step returns, or None, and note and say what the broker got wrong: {load: text}."""
    found = None
    if load.name not in wrong:
        try:
            for step in steps:
                found = step()
        except FAULTS as error:
            wrong[load.name] = f"{type(error).__name__}: {error}"
            print(f"{side}, {load.name}: {error}", flush=True)
            return None
    return found


def prepare(broker: Broker, loads: list[Load], seconds: float) -> dict[str, str]:
    """Check each load, and run it to warm up. Return what a broker got wrong: {load: text}."""
    wrong: dict[str, str] = {}
    for load in map(broker.fitted, loads):
        check = partial(generator.check, load, broker.port, load.destination(f"check-{os.getpid()}"))
        tried(broker.name, load, wrong, check, partial(run, broker, load, seconds, "warm"))
    return wrong


def turns(
    sides: dict[str, Broker], loads: list[Load], wrong: dict[str, dict[str, str]], rounds: int, seconds: float
) -> dict[str, dict[str, list[Cell]]]:
    """Let all brokers take their turn with each load, round after round, and in the other order each second round."""
    cells: dict[str, dict[str, list[Cell]]] = {load.name: {} for load in loads}
    for turn in range(rounds):
        for load in loads:
            for side, broker in list(sides.items())[:: -1 if turn % 2 else 1]:
                step = partial(run, broker, load, seconds, str(turn))
                if cell := tried(side, load, wrong[side], step):
                    cells[load.name].setdefault(side, []).append(cell)
        print(f"round {turn + 1} of {rounds}", flush=True)
    return cells


def tables_of(cells: dict[str, dict[str, list[Cell]]], wrong: dict[str, dict[str, str]]) -> dict[str, Any]:
    """Return the medians: {table: {what the load is: {broker: figure}}}."""
    tables: dict[str, Any] = {name: {} for name in FIGURES}
    for name, sides in cells.items():
        for side, found in sides.items():
            for table, figure in FIGURES.items():
                values = [figure(LOADS[name], cell) for cell in found]
                if None not in values and name not in wrong[side]:
                    tables[table].setdefault(LOADS[name].about, {})[side] = statistics.median(values)
    return tables


def measure(args: Namespace) -> dict[str, Any]:
    seconds = args.seconds or (0.2 if args.quick else 1.5)
    loads = [LOADS[name] for name in args.only or LOADS]
    sides, facts = {}, {}
    try:
        for name in args.brokers or (OURS, *brokers.PEERS):
            try:
                sides[name] = Ours() if name == OURS else brokers.Peer(name)
            except LookupError as error:
                print(f"{name} is left out: {error}", flush=True)
        facts["brokers"] = ", ".join(version(broker) for broker in sides.values())
        facts["disk"] = f"one fdatasync of 4 KiB takes {fdatasync() * 1e6:.0f} µs"
        wrong = {name: prepare(broker, loads, 0.2 if args.quick else broker.warm) for name, broker in sides.items()}
        cells = turns(sides, loads, wrong, args.rounds or (1 if args.quick else 3), seconds)
        memory = {name: broker.memory() for name, broker in sides.items()}
    finally:
        for broker in sides.values():
            broker.stop()
    tables = tables_of(cells, wrong)
    tables["memory"] = {"after all loads, MiB": memory}
    if OURS in sides and not args.only:
        found = deep(5000 if args.quick else 500_000)
        tables["deep"] = {row: {OURS: figure} for row, figure in found.items()}
    return {"facts": facts, "tables": tables, "wrong": [], "faults": wrong.get(OURS, {})}


def version(broker: Broker) -> str:
    """Return what the broker calls itself in CONNECTED."""
    wire = Wire(broker.port)
    wire.close()
    lines = wire.greeting.decode(errors="replace").splitlines()
    name = next((line.partition(":")[2].partition(" ")[0] for line in lines if line.startswith("server:")), broker.name)
    return name + " (journal: AIO)" * ("libaio" in Path(f"/proc/{broker.pid}/maps").read_text())


def fdatasync() -> float:
    """Return the seconds that the disk takes for one commit of 4 KiB: the median of some."""
    taken = []
    with tempfile.TemporaryFile(buffering=0) as file:
        for _ in range(200):
            start = time.perf_counter()
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - start)
    return statistics.median(taken)


# ---- a deep queue ----


def deep(messages: int) -> dict[str, float]:
    """Store messages, kill our broker, start it again, and drain it: seconds, MiB, and CPU µs of a message."""
    broker = Ours()
    meter = Meter(broker)
    try:
        meter.start()
        fill(broker, messages)
        meter.stop()
        spent, peak = meter.cpu, broker.memory("VmHWM")
        broker.kill()
        listening = broker.restart()
        delivered = listening + _first_delivery(broker.port)
        meter.start()
        generator.drain(DEEP, broker.port, "/queue/deep", messages)
        meter.stop()
        return {
            "messages of 100 B": messages,
            "listening after kill -9, s": listening,
            "first delivery, s": delivered,
            "peak memory, MiB": max(peak, broker.memory("VmHWM")),
            "CPU of a message in and out, µs": (spent + meter.cpu) / messages * 1e6,
        }
    finally:
        broker.stop()


def fill(broker: Broker, messages: int) -> None:
    """Store messages at full speed. The last one of each block asks for a receipt; some blocks are on their way."""
    wire = Wire(broker.port)
    block, left, blocks = Block(DEEP, "/queue/deep"), messages, 0
    while left:
        frames = min(left - 1, block.units // 2)
        left -= frames + 1
        blocks += 1
        wire.socket.sendall(block.take(frames))
        wire.socket.sendall(send_frame(DEEP, "/queue/deep", 0, left, f"b{blocks}"))
        while wire.frames < (blocks - AHEAD if left else blocks):
            wire.read()
    wire.close()


def _first_delivery(port: int) -> float:
    start = time.perf_counter()
    wire = Wire(port)
    wire.ask(b"SUBSCRIBE\nid:0\ndestination:/queue/deep\nack:client-individual\nprefetch-count:1\n\n\0", b"MESSAGE")
    wire.close()
    return time.perf_counter() - start


# ---- two versions of our broker ----


def against(args: Namespace) -> int:
    """Compare our broker with that of the interpreter `args.against`. Only ratios hold on a busy machine."""
    told = "import stompcodec; print(stompcodec.__version__, stompcodec.__path__[0])"
    other = Path(args.against).absolute()  # not resolved: a venv's python is a link
    for python in (sys.executable, other):
        subprocess.run([python, "-c", told], check=True, cwd=tempfile.gettempdir())
    loads = [LOADS[name] for name in args.only or LOADS]
    sides: dict[str, Broker] = {}
    try:
        sides |= {"this": Ours(), "against": Ours(python=other)}
        wrong = {side: prepare(broker, loads, 0.3) for side, broker in sides.items()}
        cells = turns(sides, loads, wrong, args.rounds or 5, args.seconds or 0.5)
    finally:
        for broker in sides.values():
            broker.stop()
    heads = ("CPU µs, this", "against", "least ratio", "median ratio", "msg/s ratio")
    print(f"{'load':72}" + "".join(f"{head:>14}" for head in heads))
    for name, found in cells.items():
        if len(found) == 2:
            print(f"{LOADS[name].about:72}" + "".join(f"{value:14.2f}" for value in ratios(found)))
    return int(any(wrong.values()))


def ratios(found: dict[str, list[Cell]]) -> tuple[float, ...]:
    """Compare the cells of a load: CPU µs per message, the least of the rounds, and the ratios of this to the other."""
    mine, theirs = ([cell["cpu"] / cell["messages"] * 1e6 for cell in found[side]] for side in ("this", "against"))
    rates, others = ([cell["messages"] / cell["seconds"] for cell in found[side]] for side in ("this", "against"))
    medians = (statistics.median(map(truediv, *pair)) for pair in ((mine, theirs), (rates, others)))
    return min(mine), min(theirs), min(mine) / min(theirs), *medians
