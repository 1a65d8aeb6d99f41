"""Attack a broker in all ways at once, and see how well-behaved clients fare beside that.

Usage: attack.py [--seconds 60] [--only NAME ...]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from attack.attackers import ATTACKS
from attack.run import MIB, Figures, attack

#: What a pair may wait for a receipt in the 99th percentile, in ms, and what the broker may take of memory.
MOST_WAIT, MOST_MEMORY = 200.0, 1.3 * 1024 * MIB


def faults_of(figures: Figures) -> list[str]:
    """Return what broke a promise."""
    faults = list(figures.left)
    for name, pair in figures.pairs.items():
        if pair["lost"] or pair["wrong"]:
            faults.append(f"pair {name}: {pair['lost']:.0f} lost, {pair['wrong']:.0f} wrong")
        if pair["p99"] > MOST_WAIT:
            faults.append(f"pair {name}: p99 of its receipts is {pair['p99']:.0f} ms, above {MOST_WAIT:.0f} ms")
    if figures.top > MOST_MEMORY:
        faults.append(f"{figures.top / MIB:.0f} MiB of memory, above {MOST_MEMORY / MIB:.0f} MiB")
    return faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--only", nargs="+", choices=ATTACKS, default=[], metavar="NAME", help=", ".join(ATTACKS))
    options = parser.parse_args()

    def show(passed: float, memory: int) -> None:
        if sys.stdout.isatty():
            print(f"{passed:4.0f} s  {memory / MIB:6.0f} MiB", end="\r", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        figures = attack(Path(folder), options.seconds, options.only, show)
    print(f"{'pair':8}{'sent':>8}{'lost':>6}{'wrong':>7}{'p50 ms':>9}{'p95 ms':>9}{'p99 ms':>9}{'max ms':>9}")
    for name, pair in figures.pairs.items():
        print(
            f"{name:8}{pair['sent']:8.0f}{pair['lost']:6.0f}{pair['wrong']:7.0f}"
            f"{pair['p50']:9.1f}{pair['p95']:9.1f}{pair['p99']:9.1f}{pair['max']:9.1f}"
        )
    print(f"memory: {figures.top / MIB:.0f} MiB at most, {figures.after / MIB:.0f} MiB afterwards")
    faults = faults_of(figures)
    for fault in faults:
        print(f"    {fault}")
    print("attack:", "failed" if faults else "everything is as before")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
