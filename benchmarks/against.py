"""Measure the broker of this checkout and that of another interpreter in turns: `make bench-against AGAINST=python`.

    python benchmarks/against.py PYTHON [--only window-1 ...] [--rounds 5] [--seconds 0.5] [--options=OPTIONS] [--json]

PYTHON is an interpreter with another stompcodec, for instance one with the last release. Both brokers run all the time.
In each round both take their turn with each load, the other one first in every second round, so that whatever else the
machine does meets both. The loads are those of bench_broker.py, and each is checked first: bodies, order, exactly once.
The tables show CPU of the broker per message (least and median of the rounds) and the ratios, ours divided by theirs;
the goals of CPU per message stand beside them. Ratios hold on a busy machine, single figures hold on a quiet one only.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
from pathlib import Path
from typing import Any

import bench_broker
import brokers
from bench_isolation import installed
from brokers import Ours
from loads import LOADS

import stompcodec

THIS, OTHER = "this", "against"
#: The most CPU per message as a share of what commit 7001fc9 needed. Loads without a goal are 1.
GOALS = {
    "queue-1k": 0.5,
    "individual-1k": 0.55,
    "fanout-100b": 0.5,
    "window-100": 0.6,
    "durable-individual": 0.6,
    "transactions-10": 0.5,
    "websocket-1k": 0.2,
    "window-1": 1.0,
}
#: Cells of one load by broker.
Cells = dict[str, list[dict[str, float]]]


def measure(sides: dict[str, Ours], names: list[str], rounds: int, seconds: float) -> dict[str, Cells]:
    """Let both brokers take their turns. A load that one of them gets wrong has no cells."""
    loads = [LOADS[name] for name in names]
    wrong = {
        name for broker in sides.values() for name in bench_broker.prepare(broker, loads, min(seconds, 0.3))["wrong"]
    }
    cells: dict[str, Cells] = {name: {side: [] for side in sides} for name in names if name not in wrong}
    for turn in range(rounds):
        order = list(sides.items())[:: -1 if turn % 2 else 1]
        for name, found in cells.items():
            for side, broker in order:
                found[side].append(bench_broker.run(broker, LOADS[name], seconds, str(turn)))
        print(f"round {turn + 1} of {rounds}", file=sys.stderr, flush=True)
    return cells


def ratios(found: Cells) -> dict[str, float]:
    """Compare the cells of a load.

    >>> cell = {"messages": 10.0, "seconds": 1.0, "cpu": 0.001}
    >>> found = ratios({THIS: [cell, cell], OTHER: [{**cell, "cpu": 0.004}, {**cell, "cpu": 0.002}]})
    >>> found["this"], found["against"], found["least"], found["median"], found["rate"]
    (100.0, 200.0, 0.5, 0.375, 1.0)
    """
    spent = {side: [cell["cpu"] / cell["messages"] * 1e6 for cell in cells] for side, cells in found.items()}
    pairs = zip(spent[THIS], spent[OTHER], strict=True)
    rates = zip(found[THIS], found[OTHER], strict=True)
    each = [mine["messages"] / mine["seconds"] * other["seconds"] / other["messages"] for mine, other in rates]
    return {
        **{side: round(min(values), 3) for side, values in spent.items()},
        "least": min(spent[THIS]) / min(spent[OTHER]),
        "median": statistics.median(mine / other for mine, other in pairs),
        "rate": statistics.median(each),
    }


def show(results: dict[str, dict[str, float]]) -> None:
    """Print a row for each load."""
    heads = ("CPU µs, this", "against", "least ratio", "median ratio", "goal", "msg/s ratio")
    print(f"{'load':54}" + "".join(f"{head:>14}" for head in heads))
    for name, row in results.items():
        goal = f"{GOALS[name]:.2f}" if name in GOALS else ""
        figures = [f"{row[key]:.2f}" for key in (THIS, OTHER, "least", "median")]
        print(f"{LOADS[name].about:54}" + "".join(f"{cell:>14}" for cell in [*figures, goal, f"{row['rate']:.2f}"]))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", type=Path, metavar="PYTHON", help="an interpreter with another stompcodec")
    parser.add_argument(
        "--only", nargs="+", choices=LOADS, default=list(GOALS), metavar="LOAD", help=f"of {', '.join(LOADS)}"
    )
    parser.add_argument("--rounds", type=int, default=5, help="of each load (5)")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each run (0.5)")
    parser.add_argument("--options", default="", help="of this broker only, such as --options=--uvloop")
    parser.add_argument("--json", action="store_true", help="print all cells as JSON")
    args = parser.parse_args()
    args.python = args.python.absolute()  # not resolved: a venv's python is a link
    try:
        args.told = installed(args.python)
    except (OSError, ValueError) as error:
        parser.error(f"{args.python} cannot import stompcodec: {error}")
    return args


def main() -> int:
    args = arguments()
    print(f"{THIS}: stompcodec {stompcodec.__version__} in {stompcodec.__path__[0]}", file=sys.stderr)
    print(f"{OTHER}: stompcodec {args.told}", file=sys.stderr)
    sides: dict[str, Ours] = {}
    try:
        sides[THIS] = Ours(options=tuple(shlex.split(args.options)))
        sides[OTHER] = Ours(python=args.python)
        cells = measure(sides, args.only, args.rounds, args.seconds)
    except brokers.AbsentError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        for broker in sides.values():
            broker.stop()
    results: dict[str, Any] = {name: ratios(found) for name, found in cells.items()}
    if args.json:
        print(json.dumps({"ratios": results, "cells": cells}, indent=1))
    else:
        show(results)
    return 0 if len(cells) == len(args.only) else 1


if __name__ == "__main__":
    sys.exit(main())
