"""Write the figures of docs/sharding.md, its tables and plots, from the simulation.

    python benchmarks/draw_sharding.py [--check]

--check writes nothing; its exit status is 1 if a table or a plot is not what the simulation says with the costs of
sharding.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import sharding
from report import grid, number
from sharding import Costs, Outcome, Workload
from svg import Series, chart

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "scripts"))

from page_blocks import replaced  # noqa: E402 - its folder is in the path only now

__all__ = ["blocks", "costs", "plots"]

MEASURED = Path(__file__).with_name("sharding.json")
PAGE = "docs/sharding.md"
PROCESSES = (1, 2, 4, 8, 16, 32, 64)
#: Producers of each process, messages of each that are under way, and messages that are sent together.
PRODUCERS, WINDOW, BUNDLE = 16, 100, 25
SUBSCRIBERS = 256
#: What is simulated: name, and the clients of a number of processes.
SCALED: dict[str, tuple[str, dict[str, Any]]] = {
    "own": ("one queue for each client", {"acked": True}),
    "stored": ("one queue each, stored, one disk", {"stored": True}),
    "many": ("16 queues for each client", {"acked": True, "destinations": 16}),
    "topic": (f"one topic, {SUBSCRIBERS} subscribers", {"subscribers": SUBSCRIBERS}),
    "hot": ("one queue for all clients", {"acked": True, "hot": True}),
}
#: How long it is simulated: longer where a step takes longer.
SECONDS = {"stored": 0.4, "topic": 0.2, "hot": 0.4}
#: The loads of sharding.json that were also measured with two brokers, and how the simulation plays them.
COMPARED: dict[str, tuple[str, Workload]] = {
    "queue-100b": ("queue, 100 B, auto", Workload(1, 6400, 1600)),
    "queue-1k": ("queue, 1 KiB, auto", Workload(1, 920, 230)),
    "individual-1k": ("queue, 1 KiB, client-individual", Workload(1, 920, 230, acked=True)),
    "window-100": ("stored, 1 KiB, receipts, window 100", Workload(1, 100, 10, stored=True)),
    "producers-16": ("stored, 1 KiB, 16 producers of window 1", Workload(16, 1, 1, stored=True)),
}
#: Measured with one broker alone.
ALONE = {
    "window-1": ("stored, 1 KiB, window 1", Workload(1, 1, 1, stored=True)),
    "turns-1": ("receipts, 100 B, 1 producer of window 1", Workload(1, 1, 1)),
    "turns-4": ("receipts, 100 B, 4 producers of window 1", Workload(4, 1, 1)),
    "turns-16": ("receipts, 100 B, 16 producers of window 1", Workload(16, 1, 1)),
    "turns-64": ("receipts, 100 B, 64 producers of window 1", Workload(64, 1, 1)),
}
#: The loads from which costs are calculated. Their own rates for one broker are therefore not predictions.
FITTED = ("queue-100b", "queue-1k", "individual-1k", "window-1", "window-100", "turns-1", "turns-64")


@cache
def measured() -> dict[str, Any]:
    return dict(json.loads(MEASURED.read_text()))


@cache
def costs() -> Costs:
    """Return the costs of a message of 1 KiB, from what was measured."""
    found = measured()

    def cpu(load: str) -> float:
        return float(found["loads"][load]["1"]["cpu"])

    message, socket = cpu("queue-1k"), cpu("turns-64") - cpu("queue-100b")
    wake = cpu("turns-1") - cpu("turns-64")
    commit = (cpu("window-1") - cpu("window-100")) / 0.99 - wake - socket
    hops = found["hops"]
    return Costs(
        wake=wake,
        socket=socket,
        message=message,
        ack=cpu("individual-1k") - message,
        delivery=cpu("fanout-100b"),
        stored=cpu("window-100") - (wake + socket + commit) / 100 - message,
        commit=commit,
        syncs=tuple((int(count), rate) for count, rate in found["syncs"].items()),
        disk=found["disk"],
        written=found["loads"]["window-100"]["1"]["written"],
        link=hops["1024"]["link"],
        frame=hops["1024"]["frame"],
        ack_frame=hops["100"]["frame"],
    )


# ---- what is simulated ----


@cache
def compared(load: str) -> tuple[float, float]:
    """Return messages per second of one broker and of two, on two cores that they share with their clients."""
    workload = {**COMPARED, **ALONE}[load][1]
    here = measured()["loads"][load]["1"]
    mine = replace(costs(), network=5.0, client=here["generator"])
    if load.startswith("turns") or load == "queue-100b":
        mine = replace(mine, message=measured()["loads"]["queue-100b"]["1"]["cpu"])
    one = sharding.simulate(mine, workload, 1, 2, seconds=0.06)
    if load in ALONE:
        return one.rate, 0.0
    two = sharding.simulate(mine, replace(workload, producers=2 * workload.producers), 2, 2, seconds=0.06)
    return one.rate, two.rate


@cache
def scaled(name: str, processes: int) -> Outcome:
    """Return what some processes do on as many cores; one process has two."""
    producers = PRODUCERS * (processes if name not in ("topic", "hot") else 1)
    workload = Workload(producers, WINDOW, BUNDLE, **SCALED[name][1])
    return sharding.simulate(costs(), workload, processes, max(2, processes), seconds=SECONDS.get(name, 0.05))


def speed_up(name: str, processes: int) -> float:
    return scaled(name, processes).rate / scaled(name, 1).rate


# ---- tables ----


def _costs() -> str:
    mine, found = costs(), measured()
    rows = [
        ("SEND and MESSAGE of 1 KiB, in bulk", mine.message, "`queue-1k`"),
        ("ACK", mine.ack, "`individual-1k`, less the one above"),
        ("MESSAGE to one more subscriber of a topic", mine.delivery, "`fanout-100b`"),
        ("a connection that is read and written, in a turn", mine.socket, "`turns-64`, less the message"),
        ("waking a process that sleeps", mine.wake, "`turns-1` less `turns-64`"),
        ("a commit, whatever is in it", mine.commit, "`window-1`, `window-100`"),
        ("a stored message, more", mine.stored, "`window-100`, less the others"),
        ("a link between two processes, in a turn", mine.link, "hops, 1 and 32 links"),
        ("a frame of 1 KiB over a link", mine.frame, "hops, 1 and 32 frames"),
        ("a frame of 100 B over a link", mine.ack_frame, "hops"),
        ("accepting a connection and handing it over", found["hand_over"]["front"], "SCM_RIGHTS, the front"),
        ("receiving that connection", found["hand_over"]["shard"], "SCM_RIGHTS, the owner"),
    ]
    lines = [(what, number(cost), source) for what, cost, source in rows]
    syncs = ", ".join(f"{number(rate)} with {count}" for count, rate in found["syncs"].items())
    return (
        grid(("cost", "CPU µs", "from"), lines)
        + f"\nSyncs per second, by processes that sync files of their own: {syncs}. The disk takes"
        f" {mine.disk / 1e9:.2g} GB per second; a stored message of 1 KiB is {number(mine.written)} bytes for it (the\n"
        f"log, and the file). {found['facts']['cpu']}, {found['facts']['cores']} cores; {found['facts']['date']}."
    )


def _compared() -> str:
    rows = []
    for load, (what, _) in {**COMPARED, **ALONE}.items():
        here, (one, two) = measured()["loads"][load], compared(load)
        row = [what + ("" if load in FITTED else " \\*"), number(one), number(here["1"]["rate"])]
        row.append(f"{one / here['1']['rate']:.2f}")
        if "ratio" in here:
            ratio = here["ratio"]
            row += [f"{two / one:.2f}", f"{ratio['median']:.2f} ({ratio['least']:.2f} to {ratio['most']:.2f})"]
        rows.append([*row, "", ""][:6])
    head = ("load", "simulated, per second", "measured", "quotient", "two brokers / one, simulated", "measured, median")
    return grid(head, rows)


def _speed() -> str:
    rows = [
        (what, f"{number(scaled(name, 1).rate)}", *(f"{speed_up(name, count):.1f}" for count in PROCESSES[1:]))
        for name, (what, _) in SCALED.items()
    ]
    hops = ", ".join(f"{scaled('many', count).hops:.1f} with {count}" for count in (2, 8, 64))
    head = ("clients", "one process, per second", *(f"{count}" for count in PROCESSES[1:]))
    return grid(head, rows) + f"\nHops of a message and its ACK with 16 queues for each client: {hops} processes."


def _balance() -> str:
    cases = {
        "10 queues": (10, 0.0),
        "100 queues": (100, 0.0),
        "1,000 queues": (1000, 0.0),
        "10,000 queues": (10_000, 0.0),
    }
    cases |= {"100 queues, Zipf": (100, 1.0), "1,000 queues, Zipf": (1000, 1.0)}
    rows = [
        (what, *(f"{_balanced(count, processes, exponent):.1f}" for processes in PROCESSES[1:]))
        for what, (count, exponent) in cases.items()
    ]
    return grid(("highest speed-up", *map(str, PROCESSES[1:])), rows)


@cache
def _balanced(count: int, processes: int, exponent: float) -> float:
    """Return the mean speed-up over 10 sets of names."""
    return sum(sharding.balance(count, processes, exponent, seed) for seed in range(10)) / 10


def blocks() -> dict[str, str]:
    """Return the tables of the page, by the names of its blocks."""
    return {"costs": _costs(), "compared": _compared(), "speed": _speed(), "balance": _balance()}


# ---- plots ----


def plots() -> dict[str, str]:
    """Return the plots, by their files in docs."""
    ideal = Series("linear", [(1, 1), (64, 64)], dashed=True)
    speed = [
        Series(what, [(count, speed_up(name, count)) for count in PROCESSES]) for name, (what, _) in SCALED.items()
    ]
    spread = [
        Series(what, [(processes, _balanced(count, processes, exponent)) for processes in PROCESSES])
        for what, count, exponent in (
            ("10,000 queues", 10_000, 0.0),
            ("1,000 queues", 1000, 0.0),
            ("100 queues", 100, 0.0),
            ("1,000 queues, Zipf", 1000, 1.0),
            ("10 queues", 10, 0.0),
        )
    ]
    ticks = PROCESSES
    return {
        "sharding-speed.svg": chart(
            "Speed-up of N processes", "processes and cores", "times one process", [*speed, ideal], ticks, ticks
        ),
        "sharding-balance.svg": chart(
            "Highest speed-up with N processes", "processes", "times one process", [*spread, ideal], ticks, ticks
        ),
    }


def main(given: Sequence[str]) -> int:
    page = ROOT / PAGE
    fresh = page.read_text("utf-8")
    for name, text in blocks().items():
        fresh = replaced(fresh, name, text)
    stale = []
    for path, text in {page: fresh, **{ROOT / "docs" / name: drawn for name, drawn in plots().items()}}.items():
        if not path.exists() or path.read_text("utf-8") != text:
            stale.append(path.name)
            if "--check" not in given:
                path.write_text(text, "utf-8")
    if stale:
        print(f"{'stale, run benchmarks/draw_sharding.py' if '--check' in given else 'written'}: {', '.join(stale)}")
    return int(bool(stale) and "--check" in given)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
