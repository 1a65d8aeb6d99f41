"""Run the simulation of tests/simulation: many seeds, or one with its trace.

python scripts/simulate.py --seeds 10000           # both cores; failing seeds are listed and the first is shrunk
python scripts/simulate.py --seed 4711             # the trace of one seed; if it fails, of the smallest plan, too
python scripts/simulate.py --planted               # which seed finds each planted bug
python scripts/simulate.py --leaks                 # an hour of one broker: its memory and descriptors stay as they were
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from simulation import leaks
from simulation.plan import Plan, plan_of
from simulation.planted import BUGS, find
from simulation.shrink import shrink
from simulation.vfs import unavailable
from simulation.world import run

#: Seeds that a process runs at a time.
_CHUNK = 20


def _some(first: int, count: int, window: int | None) -> list[tuple[int, str, str, int]]:
    """Seeds that failed, how, and frames of all: seed -1 has no fault."""
    found, frames = [], 0
    for seed in range(first, first + count):
        outcome = run(_plan(seed, window))
        frames += outcome.frames
        if outcome.fault is not None:
            found.append((seed, outcome.kind, str(outcome.fault), 0))
    return [*found, (-1, "", "", frames)]


def _plan(seed: int, window: int | None) -> Plan:
    plan = plan_of(seed)
    return plan if window is None else plan.without(config={**plan.config, "window_messages": window})


def many(first: int, seeds: int, jobs: int, window: int | None) -> int:
    """Run them all; the exit status."""
    began = told = time.monotonic()
    failed: dict[str, list[tuple[int, str]]] = defaultdict(list)
    done = frames = 0
    with ProcessPoolExecutor(jobs) as pool:
        chunks = [(at, min(_CHUNK, first + seeds - at)) for at in range(first, first + seeds, _CHUNK)]
        for (_, count), found in zip(chunks, pool.map(partial(_some, window=window), *zip(*chunks))):
            done += count
            for seed, kind, text, more in found:
                frames += more
                if kind:
                    failed[kind].append((seed, text))
                    print(f"\nseed {seed}: {text}", flush=True)
            now = time.monotonic()
            if now - told > 1 or done == seeds:
                told = now
                bad = sum(map(len, failed.values()))
                sys.stderr.write(f"\r{done} of {seeds} seeds, {bad} failed, {done / (now - began):.0f} per second ")
                sys.stderr.flush()
    bad = sum(map(len, failed.values()))
    print(f"\n{seeds - bad} passed, {bad} failed; {frames} frames in {time.monotonic() - began:.0f} s")
    for kind, cases in sorted(failed.items()):
        print(f"  {kind}: {len(cases)} ({', '.join(str(seed) for seed, _ in cases[:20])})")
    if failed:
        seed = min(seed for cases in failed.values() for seed, _ in cases)
        print(f"replay one with: make simulate SEED={seed}")
    return int(bad > 0)


def one(seed: int, window: int | None) -> int:
    """The trace of a seed, and of what is left of it when it is shrunk."""
    plan = _plan(seed, window)
    print(plan, "\n")
    outcome = run(plan, print)
    print(f"\nseed {seed}: {outcome.fault or 'passed'}")
    if outcome.fault is None:
        return 0
    smaller, runs = shrink(plan, outcome.kind)
    print(f"\nshrunk by {runs} runs:\n{smaller}\n")
    print(run(smaller, print).fault)
    return 1


def planted(most: int) -> int:
    """Which seed finds each planted bug."""
    missed = 0
    for name, bug in BUGS.items():
        found = find(bug, most)
        text = f"seed {found[0]}: {found[1]}" if found is not None else f"not found within {most} seeds"
        missed += found is None
        print(f"{name}\n    {text}", flush=True)
    print(f"{len(BUGS) - missed} of {len(BUGS)} planted bugs found")
    return int(missed > 0)


def hour() -> int:
    """An hour of one broker: what it holds more than after five minutes."""
    with tempfile.TemporaryDirectory() as folder:
        grown = leaks.grown(folder)
    print("\n".join(grown) or f"{leaks.MOST} visits: memory and descriptors are those of visit {leaks.LEAST}")
    return int(bool(grown))


def main() -> int:
    """As the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000, metavar="N", help="how many seeds (1000)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first of them (0)")
    parser.add_argument("--seed", type=int, metavar="N", help="this one alone, with its trace")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes (one a core)")
    parser.add_argument("--planted", action="store_true", help="find the planted bugs")
    parser.add_argument("--leaks", action="store_true", help="an hour of visits: what one broker keeps of them")
    parser.add_argument("--window", type=int, metavar="N", help="messages of each queue in memory (differs by seed)")
    given = parser.parse_args()
    why = leaks.unavailable() if given.leaks else unavailable()
    if why:
        print(why, file=sys.stderr)
        return 2
    if given.leaks:
        return hour()
    if given.planted:
        return planted(given.seeds)
    if given.seed is not None:
        return one(given.seed, given.window)
    return many(given.first, given.seeds, given.jobs, given.window)


if __name__ == "__main__":
    sys.exit(main())
