"""Measure our broker and others in one run, and write docs/benchmarks-broker.md with its plot: `make bench-broker`.

    python benchmarks/bench_broker.py [--peers FOLDER] [--brokers ours,activemq] [--only queue-1k,window-1] [--quick]

FOLDER holds a program for each peer (activemq, rabbitmq, stompserver) that knows start, stop and status;
STOMPCODEC_PEERS names it, too. What is absent is left out, with a word. A full run takes eleven minutes; its numbers go
to build/broker.json, and the page is written from there. --quick, --only and --brokers leave the page alone.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import broker_report
import brokers
import check
import load as generator
from brokers import Broker, Meter
from load import StalledError, WrongError
from loads import LOADS, Load

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "broker.json"
WARM_CONNECTIONS = 20
FAULTS = (StalledError, WrongError, OSError)


def start_all(names: list[str], recipes: Path | None) -> tuple[list[Broker], dict[str, str]]:
    """The brokers that could be started, and why the others could not."""
    found, absent = [], {}
    for name in names:
        try:
            found.append(brokers.start(name, recipes))
        except brokers.AbsentError as error:
            absent[name] = str(error)
            print(f"{name} is left out: {error}", flush=True)
    return found, absent


def idle_connections(broker: Broker, connections: int = 1000) -> dict[str, float]:
    """KiB of resident memory: at the start, and a connection that has connected, and that has subscribed, too."""
    with generator.crowd(broker.port, WARM_CONNECTIONS):
        brokers.rest(broker)
        before = broker.resident()
        with generator.crowd(broker.port, connections) as wires:
            brokers.rest(broker)
            connected = broker.resident()
            for number, wire in enumerate(wires):
                wire.subscribe(LOADS["queue-100b"], f"/queue/idle-{number}")
            brokers.rest(broker)
            subscribed = broker.resident()
    return {
        "start": before,
        "connected": (connected - before) / connections,
        "subscribed": (subscribed - before) / connections,
    }


def version(broker: Broker) -> str:
    """What the broker calls itself in CONNECTED."""
    wire = generator.Wire(broker.port)
    wire.close()
    lines = wire.greeting.decode(errors="replace").splitlines()
    return next((line.partition(":")[2] for line in lines if line.startswith("server:")), broker.name)


def prepare(broker: Broker, loads: list[Load], seconds: float, warm: float = 0.0) -> dict[str, Any]:
    """Idle connections first, while the broker is fresh; then each load is checked, and run once to warm up.

    Args:
        broker: who is prepared.
        loads: what will be measured.
        seconds: how long each load runs.
        warm: the same where a goal compares the broker with another one, if that is longer.
    """
    found: dict[str, Any] = {"version": version(broker), "wrong": {}}
    if any(load.idle for load in loads):
        found["memory"] = idle_connections(broker)
    for load in loads:
        if load.name in brokers.LACKS.get(broker.name, ()):
            continue
        try:
            check.check(load, broker.port_of(load), load.destination(f"check-{os.getpid()}"))
            run(broker, load, max(seconds, warm if broker_report.is_compared(load.name, broker.name) else 0.0), "warm")
        except FAULTS as error:
            found["wrong"][load.name] = f"{type(error).__name__}: {error}"
            print(f"{broker.name}, {load.name}: {error}", flush=True)
    return found


def run(broker: Broker, load: Load, seconds: float, mark: str) -> dict[str, float]:
    """One run: what came of it."""
    meter = Meter(broker)
    destination = load.destination(f"{os.getpid()}-{mark}")
    done = generator.HOW[load.how](load, broker.port_of(load), destination, seconds, meter)
    return {
        "messages": done.messages,
        "seconds": done.seconds,
        "quiet": max(meter.quiet, done.seconds),
        "cpu": meter.cpu,
        "generator": meter.generator / done.seconds,
        "written": meter.written,
        **latencies(done.latencies),
    }


def latencies(taken: list[float]) -> dict[str, float]:
    """Milliseconds."""
    if not taken:
        return {}
    taken = sorted(taken)
    return {"p50": taken[len(taken) // 2] * 1e3, "p99": taken[len(taken) * 99 // 100] * 1e3, "max": taken[-1] * 1e3}


def measure(found: list[Broker], loads: list[Load], args: argparse.Namespace) -> dict[str, Any]:
    """Everybody is prepared; then all brokers take their turn with each load, round after round."""
    about = {}
    for broker in found:
        begin = time.perf_counter()
        seconds = 0.3 if broker.name == brokers.OURS else args.seconds
        about[broker.name] = prepare(broker, loads, seconds, args.warm)
        print(f"{broker.name}: checked and warm in {time.perf_counter() - begin:.0f} s", flush=True)
    cells: dict[str, dict[str, list[dict[str, float]]]] = {load.name: {} for load in loads}
    for turn in range(args.rounds):
        begin = time.perf_counter()
        for load in loads:
            for broker in found:
                wrong = about[broker.name]["wrong"]
                if load.name in wrong or load.name in brokers.LACKS.get(broker.name, ()):
                    continue
                try:
                    cell = run(broker, load, args.seconds, str(turn))
                    cells[load.name].setdefault(broker.name, []).append(cell)
                except FAULTS as error:
                    wrong[load.name] = f"{type(error).__name__}: {error}"
                    print(f"{broker.name}, {load.name}: {error}", flush=True)
        print(f"round {turn + 1} of {args.rounds}: {time.perf_counter() - begin:.0f} s", flush=True)
    for broker in found:
        about[broker.name].setdefault("memory", {}).update(after=broker.resident(), peak=broker.peak())
    return {"brokers": about, "loads": cells}


def facts(args: argparse.Namespace) -> dict[str, Any]:
    """What the numbers hold for. No names of hosts or folders."""
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": brokers.processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "rounds": args.rounds,
        "seconds": args.seconds,
        "fdatasync": fdatasync() * 1e6,
    }


def fdatasync(times: int = 200) -> float:
    """Return the seconds that the disk takes for one commit of 4 KiB: the median of some."""
    taken = []
    with tempfile.TemporaryFile() as file:
        for _ in range(times):
            file.write(bytes(4096))
            file.flush()
            start = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def names(known: Any) -> Any:
    """A type of argparse: names separated by commas, all of them known."""

    def parse(text: str) -> list[str]:
        found = [name.strip() for name in text.split(",") if name.strip()]
        for name in found:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return found

    return parse


def arguments() -> argparse.Namespace:
    everyone = [brokers.OURS, *brokers.PEERS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=names(everyone), default=everyone, metavar="NAMES", help=", ".join(everyone))
    parser.add_argument("--only", type=names(LOADS), default=list(LOADS), metavar="LOADS", help=", ".join(LOADS))
    parser.add_argument("--seconds", type=float, help="of each run (1.0)")
    parser.add_argument("--rounds", type=int, help="of which the median is taken (5)")
    parser.add_argument("--warm", type=float, help="seconds before it, where a goal compares two brokers (10)")
    parser.add_argument("--quick", action="store_true", help="0.5 seconds, two rounds, warmed up for 0.5; no page")
    peers = os.environ.get("STOMPCODEC_PEERS")
    parser.add_argument("--peers", type=Path, default=Path(peers) if peers else None, metavar="FOLDER")
    parser.add_argument("--page", action="store_true", help="measure nothing: write the page from the last full run")
    args = parser.parse_args()
    args.page_after = not args.quick and args.brokers == everyone and args.only == list(LOADS)
    args.seconds = args.seconds or (0.5 if args.quick else 1.0)
    args.warm = args.warm or (0.5 if args.quick else 10.0)
    args.rounds = args.rounds or (2 if args.quick else 5)
    return args


def main() -> int:
    args = arguments()
    if args.page:
        broker_report.write(json.loads(RESULTS.read_text()), ROOT / "docs")
        return 0
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    begin = time.perf_counter()
    found, absent = start_all(args.brokers, args.peers)
    try:
        results = measure(found, [LOADS[name] for name in args.only], args)
    finally:
        for broker in found:
            broker.stop()
    results = {"facts": {**facts(args), "warm": args.warm}, "absent": absent, **results}
    print(f"all: {time.perf_counter() - begin:.0f} s\n\n{broker_report.text(results)}")
    if args.page_after and absent:
        print("the page is left alone, for it compares all of them")
    elif args.page_after:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        broker_report.write(results, ROOT / "docs")
    return 1 if results["brokers"].get(brokers.OURS, {}).get("wrong") else 0


if __name__ == "__main__":
    sys.exit(main())
