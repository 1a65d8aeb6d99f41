"""Kill a broker under load again and again, then cut its connections, and count what got lost.

Usage: crash.py [--rounds 200] [--cuts 1000] [--storage 200] [--once-rounds 200] [--once-cuts 1000]
                [--bridge-rounds 50] [--orders 100] [--window N] [--seed N]
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from crash.bridged import Findings, bridge_rounds
from crash.ledger import Ledger
from crash.managed import Orders, managed_rounds
from crash.once import Books, once_cuts, once_kills
from crash.rounds import cut_rounds, kill_rounds
from crash.storage import storage_rounds

#: Messages that have to be confirmed for each kill and each cut: without them nothing could be lost.
_LEAST = 20


def _used(ledger: Ledger, least: int) -> bool:
    """Return whether at least so many messages were confirmed."""
    return sum(record.receipted for record in ledger.records.values()) >= least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=200, help="times that the broker is killed (kill -9)")
    parser.add_argument("--cuts", type=int, default=1000, help="connections that a proxy cuts")
    parser.add_argument("--storage", type=int, default=200, help="kills during vacuum and salvage")
    parser.add_argument("--once-rounds", type=int, default=200, help="kills under our clients with resend=True")
    parser.add_argument("--once-cuts", type=int, default=1000, help="cuts under our clients with resend=True")
    parser.add_argument("--bridge-rounds", type=int, default=50, help="kills of a bridge and of both its brokers")
    parser.add_argument("--orders", type=int, default=100, help="kills in the middle of orders of a manager")
    parser.add_argument("--window", type=int, help="messages of each queue in memory; the others are in the store")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # each lost connection
    print(f"seed {options.seed}")
    kills_used = partial(_used, least=_LEAST * options.rounds)
    cuts_used = partial(_used, least=_LEAST * options.cuts)
    good, config = True, "" if options.window is None else f"[queues]\nwindow = {options.window}\n"
    parts = (
        ("kills", options.rounds, partial(kill_rounds, config=config, enough=kills_used)),
        ("cuts", options.cuts, partial(cut_rounds, config=config, enough=cuts_used)),
        ("kills of the storage", options.storage, storage_rounds),
        ("kills under resend=True", options.once_rounds, partial(once_kills, config=config)),
        ("cuts under resend=True", options.once_cuts, partial(once_cuts, config=config)),
        ("kills around a bridge", options.bridge_rounds, partial(bridge_rounds, window=options.window or 4000)),
        ("kills during orders", options.orders, partial(managed_rounds, window=options.window)),
    )
    for name, count, rounds in parts:
        if not count:
            continue
        began = time.monotonic()

        def progress(done: int, name: str = name, count: int = count, began: float = began) -> None:
            if sys.stdout.isatty():
                print(f"{done} of {count} {name}, {time.monotonic() - began:.0f} s", end="\r", flush=True)

        with tempfile.TemporaryDirectory() as folder:
            ledger: Ledger | Books | Findings | Orders = rounds(
                Path(folder), count, seed=options.seed, progress=progress
            )
        for example in ledger.examples:
            print(f"    {example}")
        print(f"{count} {name} in {time.monotonic() - began:.0f} s: {ledger.figures()}")
        good = good and not ledger.problems
        enough = {"kills": kills_used, "cuts": cuts_used}.get(name)
        if enough is not None and not (isinstance(ledger, Ledger) and enough(ledger)):
            print(f"{name}: too few messages were confirmed, so little could be lost: use a quieter machine")
            good = False
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
