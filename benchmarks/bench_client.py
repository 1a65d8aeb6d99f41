"""Measure our client, stomp.py and stompman: receiving, sending, ping-pong, 1,000 clients. `make bench-client`.

    python benchmarks/bench_client.py [--clients NAMES] [--seconds 1] [--rounds 5] [--only receiving|sending] [--quick]

Each client runs in a process of its own (this file again, with --drive), which measures its own processor time. A raw
feeder sends it encoded MESSAGE frames as fast as it takes them, so no broker's speed plays a part (clients.py: how each
is driven; feeder.py). What is sent goes to a sink (client_sends.py; sink.py). The numbers go to build/client.json, from
which docs/benchmarks-broker.md takes its section.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import client_sends
from client_sends import BARE, WHOS
from clients import ASYNC, DRIVERS, SYNC, Task
from feeder import LIMIT, Feeder
from goals import Goal
from loads import KIB, body
from report import grid, number
from sink import Sink

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "client.json"
PEERS = ROOT / "build" / "peers" / f"{sys.implementation.cache_tag}"
CLIENTS = (SYNC, ASYNC, "stomp.py", "stompman")
#: What is received: octets of the body, and how it is acknowledged.
LOADS = {
    "100 B, auto": (100, "auto"),
    "1 KiB, auto": (KIB, "auto"),
    "1 KiB, client-individual": (KIB, "client-individual"),
}
#: How many times as many messages as a peer we promise.
FLOORS = {"stomp.py": 5, "stompman": 10}
CHECKED = 3000  # messages of the run that looks at every body
DAWDLE = 0.3  # seconds for which that run's receiver does not take its first message
LATE = 0.05  # seconds in which a repeated message would come


def drive(args: argparse.Namespace) -> int:
    """In the process of a client: receive until END, then print what it took, or what was wrong."""
    kept: list[bytes] = []

    def keep(text: bytes) -> None:
        if not kept:
            time.sleep(DAWDLE)
        kept.append(text)

    sys.path.append(str(PEERS))
    if args.load in client_sends.TEXTS:
        print(json.dumps(client_sends.drive(args.drive, args.port, args.load, args.count)), flush=True)
        return 0
    size, ack = LOADS[args.load]
    task = Task(args.port, size, ack, keep if args.check else None)
    count = DRIVERS[args.drive](task)
    found: dict[str, Any] = {"messages": count, "cpu": time.process_time() - task.start}
    if args.check:
        found["right"] = kept == [body(size, 0, number) for number in range(len(kept))] and count >= CHECKED
    print(json.dumps(found), flush=True)
    return 0


# ---- the benchmark ----


def run(feeder: Feeder, client: str, load: str, seconds: float, *, check: bool = False) -> dict[str, Any]:
    """One run of one client in a process of its own."""
    command = [sys.executable, __file__, "--drive", client, "--port", str(feeder.port), "--load", load]
    process = subprocess.Popen(
        command + (["--check"] if check else []), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    fault: Exception | None = None
    sent = None
    try:
        sent = feeder.serve(*LOADS[load], seconds, CHECKED if check else None, lambda: process.poll() is None)
    except OSError as error:
        fault = error
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
    lines = out.strip().splitlines()
    if process.returncode or not lines:
        last = err.strip().splitlines()[-1] if err.strip() else str(fault)
        raise RuntimeError(last)
    found = json.loads(lines[-1])
    if not found.get("right", True):
        raise RuntimeError(f"bodies were lost, changed or reordered: {found['messages']} of {CHECKED} came")
    if found["messages"] != sent:
        raise RuntimeError(f"{found['messages']} messages were received of {sent}")
    return found


def measure(clients: list[str], seconds: float, rounds: int) -> dict[str, Any]:
    """Each client is checked with each load; then they take turns, round after round."""
    cells: dict[str, dict[str, list[float]]] = {load: {} for load in LOADS}
    wrong: dict[str, dict[str, str]] = {}
    feeder = Feeder()
    with feeder.listener:
        for turn in range(-1, rounds):
            begin = time.perf_counter()
            for load in LOADS:
                for client in clients:
                    if load in wrong.get(client, {}):
                        continue
                    try:
                        found = run(feeder, client, load, seconds, check=turn < 0)
                        if turn >= 0:
                            cells[load].setdefault(client, []).append(found["messages"] / found["cpu"])
                    except RuntimeError as error:
                        wrong.setdefault(client, {})[load] = str(error)
                        print(f"{client}, {load}: {error}", flush=True)
            print(f"{'check' if turn < 0 else f'round {turn + 1}'}: {time.perf_counter() - begin:.0f} s", flush=True)
    return {"loads": cells, "wrong": wrong}


# ---- sending ----


def run_sending(sink: Sink, who: str, what: str, count: int) -> list[float]:
    """One run of one driver; return its numbers."""
    command = [sys.executable, __file__, "--drive", who, "--port", str(sink.port), "--load", what]
    done = subprocess.run([*command, "--count", str(count)], capture_output=True, text=True, timeout=LIMIT)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it failed"])[-1])
    found: list[float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def check_sending(sink: Sink, who: str, what: str) -> None:
    """Raise RuntimeError unless each body came once and in order, and then the last one again, with its receipt."""
    sink.bodies.clear()
    sink.keep = True
    expected = client_sends.bodies(CHECKED)
    if (who, what) not in client_sends.WITHOUT_RECEIPT:
        expected.append(expected[-1])
    try:
        run_sending(sink, who, what, CHECKED)
        until = time.monotonic() + 10
        while len(sink.bodies) < len(expected) and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(LATE)
    finally:
        sink.keep = False
    if sink.bodies != expected:
        raise RuntimeError(f"bodies were lost, changed, repeated or reordered: {len(sink.bodies)} of {len(expected)}")


def measure_sending(rounds: int) -> dict[str, Any]:
    """All contestants take turns with each load, round after round, after one round that looks at the bodies."""
    cells: dict[str, dict[str, list[float]]] = {what: {} for what in client_sends.TEXTS}
    wrong: dict[str, str] = {}
    sink = Sink()
    with sink.listener:
        for turn in range(-1, rounds):
            for what in client_sends.TEXTS:
                if what == "threads" or (what == "clients" and turn != 0) or (turn < 0 and what.startswith("ping")):
                    continue
                for who in WHOS:
                    if (who, what.partition(",")[0]) in client_sends.LACKS or f"{who}, {what}" in wrong:
                        continue
                    try:
                        _one(sink, cells, who, what, turn)
                    except (RuntimeError, subprocess.TimeoutExpired) as error:
                        wrong[f"{who}, {what}"] = str(error)
                        print(f"{who}, {what}: {error}", flush=True)
            print(f"sending, {'check' if turn < 0 else f'round {turn + 1}'}: done", flush=True)
    return {"cells": cells, "wrong": wrong}


def _one(sink: Sink, cells: dict[str, dict[str, list[float]]], who: str, what: str, turn: int) -> None:
    if turn < 0:
        check_sending(sink, who, what)
        return
    kind = what.partition(",")[0]
    loop = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(loop) for _ in range(2)] if what == "ping, busy" else []
    try:
        found = run_sending(sink, who, kind, client_sends.COUNTS[kind])
    finally:
        for process in busy:
            process.kill()
            process.wait()
    cells[what].setdefault(who, []).append(found[0])
    if kind == "clients":
        cells["threads"].setdefault(who, []).append(found[1])


def table_sending(results: dict[str, Any]) -> str:
    """The medians."""
    rows = []
    for what, text in client_sends.TEXTS.items():
        found = results["cells"][what]
        rows.append([text, *(f"{statistics.median(found[who]):.3g}" if who in found else "" for who in WHOS)])
    return grid(["", *(f"a loop of `{who}`" if who == BARE else who for who in WHOS)], rows)


def judge_sending(results: dict[str, Any]) -> list[Goal]:
    """How far we are from what is promised."""
    found = [goal for promise in client_sends.FLOORS for goal in _against(results["cells"][promise[0]], *promise)]
    for us in (SYNC, ASYNC):
        for what, bound in (("clients", client_sends.MOST_KIB), ("threads", client_sends.MOST_THREADS)):
            for value in results["cells"][what].get(us, []):
                text = f"{us}, {client_sends.TEXTS[what]}"
                found.append(Goal(text, f"≤ {bound}", f"{value:.3g}", value <= bound))
    return found


def _against(cells: dict[str, list[float]], what: str, us: str, peers: tuple[str, ...], most: float) -> Iterator[Goal]:
    """One goal: at most so many times the least number of these peers."""
    medians = {who: statistics.median(cells[who]) for who in (us, *peers) if who in cells}
    them = min((who for who in peers if who in medians), key=lambda who: medians[who], default=None)
    if us in medians and them:
        ratio = medians[us] / medians[them]
        text = f"{us}, {client_sends.TEXTS[what]}, of {them}'s"
        yield Goal(text, f"≤ {most * 100:.3g} %", f"{ratio * 100:.3g} %", ratio <= most)


# ---- the report ----


def medians(results: dict[str, Any], load: str) -> dict[str, float]:
    """Messages a processor second by client; none of a client that got this load wrong."""
    cells = results["loads"][load]
    return {
        who: statistics.median(cells[who])
        for who in CLIENTS
        if who in cells and load not in results["wrong"].get(who, {})
    }


def table(results: dict[str, Any]) -> str:
    """Rates, and how many times as many messages as the peers ours receive."""
    rows = []
    for load in results["loads"]:
        found = medians(results, load)
        ratios = [
            f"{found[us] / found[them]:.3g}×" if us in found and them in found else ""
            for them in CLIENTS[2:]
            for us in CLIENTS[:2]
        ]
        rows.append([load, *(number(found[who]) if who in found else "" for who in CLIENTS), *ratios])
    heads = [f"{us.split(', ')[1]} / {them}" for them in CLIENTS[2:] for us in CLIENTS[:2]]
    return grid(["messages per CPU second", *CLIENTS, *heads], rows)


def judge(results: dict[str, Any]) -> list[Goal]:
    """How far we are from what is promised."""
    goals = []
    for load in results["loads"]:
        found = medians(results, load)
        for us in CLIENTS[:2]:
            for them, floor in FLOORS.items():
                if us in found and them in found:
                    ratio = found[us] / found[them]
                    text = f"{us}, received, {load}, against {them}"
                    goals.append(Goal(text, f"≥ {floor}×", f"{ratio:.3g}×", ratio >= floor))
    return goals


def section(path: Path) -> str:
    """The part of docs/benchmarks-broker.md; empty where nothing was measured."""
    if not path.is_file():
        return ""
    results = json.loads(path.read_text())
    goals = judge(results) + (judge_sending(results["sending"]) if "sending" in results else [])
    verdicts = [(goal.what, goal.target, goal.measured, "yes" if goal.reached else "**no**") for goal in goals]
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    return f"""\
## The client

Messages received per CPU second of the client's process (`make bench-client`; {versions}; the floor is 5×
stomp.py and 10× stompman). A raw feeder sends encoded MESSAGE frames as fast as the client reads them. Our clients loop
over a subscription with `for` and `async for`, stomp.py calls a listener (bodies stay bytes), stompman a handler; each
reads the body of every message. Each also receives {CHECKED:,} different messages after a late start: it must
return every body, in order.

{table(results)}
{sending_section(results)}
{grid(("goal of the client", "target", "measured", "reached"), verdicts)}"""


def sending_section(results: dict[str, Any]) -> str:
    """The part about sending; empty where nothing was measured."""
    if "sending" not in results:
        return ""
    rounds = results["sending"]["rounds"]
    return f"""
What is sent goes to a sink in another process, which drains it, answers receipts and returns pings. Bodies have 100
bytes; each client's are checked first: all come, once, in order. Times are medians of {rounds} rounds in which clients
took turns. CPU times end with the receipt of the last message; those of stompman, which has no receipts, with its last
`send`. The last two columns are floors, not clients: they send the same bytes, made beforehand, and parse nothing;
asyncio's are written by 100 gathered coroutines and joined, or one by one to a stream. Less is better.

{table_sending(results["sending"])}"""


def install() -> dict[str, str]:
    """The peers, in the folder and with the versions of `make bench-peers`; what cannot be had is left out."""
    import peers

    peers.install()
    found = {}
    for name in CLIENTS[2:]:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            print(f"{name} is left out: it is not installed", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--clients", default=";".join(CLIENTS), help=f"names, separated by semicolons: {'; '.join(CLIENTS)}"
    )
    parser.add_argument("--seconds", type=float, help="for which each is fed (1.0)")
    parser.add_argument("--rounds", type=int, help="of which the median is taken (5)")
    parser.add_argument("--quick", action="store_true", help="0.3 seconds, two rounds; leave the page alone")
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--load", help=argparse.SUPPRESS)
    parser.add_argument("--only", choices=("receiving", "sending"), help="measure this, and leave the page alone")
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.drive:
        return drive(args)
    args.seconds = args.seconds or (0.3 if args.quick else 1.0)
    args.rounds = args.rounds or (2 if args.quick else 5)
    versions = install()
    wanted = [name.strip() for name in args.clients.split(";")]
    clients = [name for name in wanted if name in versions or name in (SYNC, ASYNC)]
    results: dict[str, Any] = {"versions": versions, "wrong": {}}
    if args.only != "sending":
        results |= measure(clients, args.seconds, args.rounds)
        print(table(results), *judge(results), sep="\n")
    if args.only != "receiving":
        results["sending"] = {"rounds": args.rounds, **measure_sending(args.rounds)}
        print(table_sending(results["sending"]), *judge_sending(results["sending"]), sep="\n")
    if set(wanted) == set(CLIENTS) and args.only is None and not args.quick:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        print("python benchmarks/bench_broker.py --page brings it into docs/benchmarks-broker.md")
    wrong = [*results["wrong"], *results.get("sending", {}).get("wrong", ())]
    return 1 if any(text.startswith((SYNC, ASYNC)) for text in wrong) else 0


if __name__ == "__main__":
    sys.exit(main())
