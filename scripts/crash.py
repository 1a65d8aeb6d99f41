"""Kill a broker under load again and again, cut its connections, and count what got lost. `make crash`.

    python scripts/crash.py [--rounds 200] [--cuts 1000] [--window N] [--seed N] [PART ...]

Parts: kills (kill -9), cuts (connections, by a proxy), storage (kills during vacuum and salvage), once and once-cuts
(clients with resend=True), bridge (it and both its brokers), orders (of a manager), and, if named, spark (pipelines).
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from crash.bridged import bridge_rounds
from crash.ledger import Ledger
from crash.managed import managed_rounds
from crash.once import once_rounds
from crash.rounds import cut_rounds, kill_rounds
from crash.storage import storage_rounds

#: Messages that have to be confirmed for each kill and each cut: without them nothing could be lost.
_LEAST = 20
_COLUMNS = ("sent", "unsure", "rows", "missing", "duplicates", "redelivered", "left", "torn")


class Pipelines:
    """What the sinks of live pipelines lost or doubled, in the form of the other books."""

    def __init__(self, folder: Path, count: int, **options: Any) -> None:
        from spark.live_rounds import rounds

        self.found, self.examples = rounds(folder, count, **{**options, "progress": print}), ()

    @property
    def problems(self) -> int:
        return sum(each.missing + each.duplicates + each.left for each in self.found.values())

    def figures(self) -> str:
        lanes = ((lane, [f"{getattr(each, name)} {name}" for name in _COLUMNS]) for lane, each in self.found.items())
        return "; ".join(f"{lane}: {', '.join(figures)}" for lane, figures in lanes)


def _used(ledger: Ledger, least: int) -> bool:
    """Return whether at least so many messages were confirmed."""
    return sum(record.receipted for record in ledger.records.values()) >= least


def parts(rounds: int, cuts: int, window: int | None) -> dict[str, tuple[int, Callable[..., Any]]]:
    """Name -> how often, and what does it."""
    config = "" if window is None else f"[queues]\nwindow = {window}\n"
    kills, cut = (partial(_used, least=_LEAST * count) for count in (rounds, cuts))
    return {
        "kills": (rounds, partial(kill_rounds, config=config, enough=kills)),
        "cuts": (cuts, partial(cut_rounds, config=config, enough=cut)),
        "storage": (rounds, storage_rounds),
        "once": (rounds, partial(once_rounds, cuts=0, config=config)),
        "once-cuts": (cuts, lambda folder, cuts, **more: once_rounds(folder, 0, cuts, config=config, **more)),
        "bridge": (-(-rounds // 4), partial(bridge_rounds, window=window or 4000)),
        "orders": (-(-rounds // 2), partial(managed_rounds, window=window)),
        "spark": (rounds, Pipelines),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="all but spark, if none is named")
    parser.add_argument("--rounds", type=int, default=200, help="kills; a quarter of a bridge, half of them of orders")
    parser.add_argument("--cuts", type=int, default=1000, help="connections that a proxy cuts")
    parser.add_argument("--window", type=int, help="messages of each queue in memory; the others are in the store")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # each lost connection
    print(f"seed {options.seed}")
    good, known = True, parts(options.rounds, options.cuts, options.window)
    if unknown := set(options.parts) - known.keys():
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    for name, (count, rounds) in known.items():
        if not count or name not in (options.parts or known.keys() - {"spark"}):
            continue
        began = time.monotonic()

        def progress(done: int, name: str = name, count: int = count) -> None:
            if sys.stdout.isatty():
                print(f"{name}: {done} of {count}", end="\r", flush=True)

        with tempfile.TemporaryDirectory() as folder:
            ledger = rounds(Path(folder), count, seed=options.seed, progress=progress)
        for example in ledger.examples:
            print(f"    {example}")
        print(f"{name}: {count} in {time.monotonic() - began:.0f} s: {ledger.figures()}", flush=True)
        good = good and not ledger.problems
        if isinstance(ledger, Ledger) and name in ("kills", "cuts") and not _used(ledger, _LEAST * count):
            print(f"{name}: too few messages were confirmed, so little could be lost: use a quieter machine")
            good = False
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
