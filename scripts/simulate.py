"""Run the simulation of tests/simulation: many seeds, or one with its trace.

python scripts/simulate.py --seeds 10000           # both cores; failing seeds are listed and the first is shrunk
python scripts/simulate.py --seed 4711             # the trace of one seed; if it fails, of the smallest plan, too
python scripts/simulate.py --planted               # which seed finds each planted bug
python scripts/simulate.py --leaks                 # an hour of one broker: its memory and descriptors stay as they were
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from simulation import leaks
from simulation.plan import plan_of
from simulation.planted import BUGS, find
from simulation.shrink import shrink
from simulation.vfs import unavailable
from simulation.world import run


def _some(seed: int) -> tuple[str, str, int]:
    """Return how and why a seed failed, or nothing, and its frames."""
    outcome = run(plan_of(seed))
    return outcome.kind if outcome.fault else "", str(outcome.fault), outcome.frames


def many(seeds: range) -> int:
    """Run them all; the exit status."""
    began = told = time.monotonic()
    failed: dict[str, list[int]] = defaultdict(list)
    frames = 0
    with ProcessPoolExecutor() as pool:
        for seed, (kind, text, more) in zip(seeds, pool.map(_some, seeds, chunksize=20)):
            frames += more
            if kind:
                failed[kind].append(seed)
                print(f"\nseed {seed}: {text}", flush=True)
            if time.monotonic() - told > 1:
                told = time.monotonic()
                print(f"\r{seed} of {len(seeds)} seeds", end="", file=sys.stderr, flush=True)
    bad = sum(map(len, failed.values()))
    print(f"\n{len(seeds) - bad} passed, {bad} failed; {frames} frames in {time.monotonic() - began:.0f} s")
    for kind, cases in sorted(failed.items()):
        print(f"  {kind}: {len(cases)} ({', '.join(map(str, cases[:20]))})")
    if failed:
        print(f"replay one with: make simulate SEED={min(map(min, failed.values()))}")
    return int(bad > 0)


def one(seed: int) -> int:
    """The trace of a seed, and of what is left of it when it is shrunk."""
    plan = plan_of(seed)
    outcome = run(plan, print)
    print(f"\n{plan}\nseed {seed}: {outcome.fault or 'passed'}")
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
        found = find(bug, range(most))
        missed += found is None
        print(f"{name}\n    {'seed {}: {}'.format(*found) if found else f'not found within {most} seeds'}", flush=True)
    print(f"{len(BUGS) - missed} of {len(BUGS)} planted bugs found")
    return int(missed > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000, metavar="N", help="how many seeds (1000)")
    parser.add_argument("--seed", type=int, metavar="N", help="this one alone, with its trace")
    parser.add_argument("--planted", action="store_true", help="find the planted bugs")
    parser.add_argument("--leaks", action="store_true", help="an hour of visits: what one broker keeps of them")
    given = parser.parse_args()
    if why := leaks.unavailable() if given.leaks else unavailable():
        print(why, file=sys.stderr)
        return 2
    if given.leaks:
        with tempfile.TemporaryDirectory() as folder:
            grown = leaks.grown(folder)
        print("\n".join(grown) or f"{leaks.MOST} visits: memory and descriptors are those of visit {leaks.LEAST}")
        return int(bool(grown))
    if given.planted:
        return planted(given.seeds)
    if given.seed is not None:
        return one(given.seed)
    return many(range(given.seeds))


if __name__ == "__main__":
    sys.exit(main())
