"""Kill the parts of a live pipeline again and again, while messages come, and count what its sinks lost or doubled.

Usage: spark_crash.py [--rounds 20] [--seed N]
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from spark.live_rounds import Figures, rounds

_NAMES = {
    "spool": "stomp, ackMode spool",
    "batch": "stomp, ackMode batch",
    "file": "record + stompfile",
}
_COLUMNS = {
    "sent": "sent",
    "unsure": "no receipt",
    "rows": "in the sink",
    "missing": "missing",
    "duplicates": "duplicates",
    "redelivered": "redelivered",
    "left": "left in broker",
    "torn": "torn files",
}


def table(figures: dict[str, Figures]) -> str:
    """The figures of all lanes, a line each."""
    lines = [["", *_COLUMNS.values()]]
    for lane, numbers in figures.items():
        lines.append([_NAMES[lane], *(f"{getattr(numbers, name):,}" for name in _COLUMNS)])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=20, help="times that something is killed (kill -9)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    options = parser.parse_args()
    logging.getLogger("stompcodec").addHandler(logging.NullHandler())  # lost connections are what it is about
    print(f"seed {options.seed}", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        figures = rounds(Path(folder), options.rounds, seed=options.seed, progress=lambda text: print(text, flush=True))
    print(table(figures))
    missing = sum(each.missing for each in figures.values())
    duplicates = sum(each.duplicates for each in figures.values())
    left = sum(each.left for each in figures.values())
    print(
        f"{options.rounds} rounds in {time.monotonic() - began:.0f} s:"
        f" {missing} missing, {duplicates} duplicates, {left} left in the broker"
    )
    sys.exit(1 if missing or duplicates or left else 0)


if __name__ == "__main__":
    main()
