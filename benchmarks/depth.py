"""Measure deep queues: a restart after a kill, messages in and out, others beside a drain. `make bench-depth`.

    python benchmarks/depth.py [--messages 500000] [--brokers ours,activemq,rabbitmq] [--parts restart,through,beside]
                               [--full] [--peers FOLDER] [--memory "4 GiB"] [--label TEXT] [--json] [--judge] [--page]

The parts:

    restart   kill -9 with N stored messages: seconds until the broker listens and delivers, CPU, memory
    through   N messages of 100 bytes in and out: memory, file size, CPU of a message beside that of 50,000
    beside    receipts of others beside a drain of N: p99 with it and without it

--full takes 5 million messages, and 50 million for `through` (16 GB of disk). FOLDER holds the start scripts of peers
(activemq, rabbitmq), each with the verbs start, stop and status; by default it is $STOMPCODEC_PEERS. Absent peers are
reported and left out. Figures are added to build/depth.json under the label; --page writes docs/benchmarks-depth.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bench_broker
import brokers
import depth_parts
import depth_report
from load import StalledError, WrongError

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "depth.json"
PARTS = {
    "restart": depth_parts.restarts,
    "through": depth_parts.in_and_out,
    "beside": depth_parts.beside_a_drain,
}
PEERS = ("activemq", "rabbitmq")
MESSAGES, FULL, FULL_THROUGH = 500_000, 5_000_000, 50_000_000
#: Bytes of disk that a stored message takes at most, in all files of a broker.
OCTETS = 320


@contextmanager
def progress() -> Iterator[depth_parts.Progress]:
    """Show progress on standard error if that is a terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as shown:
        tasks: dict[str, Any] = {}

        def told(what: str, done: int, total: int) -> None:
            if what not in tasks:
                for task in tasks.values():
                    shown.stop_task(task)
                tasks[what] = shown.add_task(what, total=total)
            shown.update(tasks[what], completed=done, total=total)

        yield told


def measure(names: list[str], parts: list[str], sizes: dict[str, int], **options: Any) -> dict[str, Any]:
    """Measure each part on each broker: {broker: {part: figures}}. A broker that fails has {"fault": text}."""
    found: dict[str, Any] = {}
    for name in names:
        found[name] = {}
        for part in parts:
            start = time.perf_counter()
            try:
                found[name][part] = PARTS[part](name, depth_parts.Plan(sizes[part], **options))
            except (brokers.AbsentError, StalledError, WrongError, OSError) as error:
                found[name][part] = {"fault": f"{type(error).__name__}: {error}"}
            print(f"{name}, {part}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    return found


def room(sizes: dict[str, int]) -> str | None:
    """Return an error text if the disk of the temporary folder is too small."""
    needed, free = OCTETS * max(sizes.values()), shutil.disk_usage(tempfile.gettempdir()).free
    if needed <= free:
        return None
    return f"{needed / 1e9:.1f} GB are needed in {tempfile.gettempdir()}, {free / 1e9:.1f} GB are free: set TMPDIR"


def arguments(given: list[str]) -> argparse.Namespace:
    """Read the command line, and add `sizes`: the messages of each part."""
    everyone = [brokers.OURS, *PEERS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=MESSAGES, metavar="N", help=f"stored messages ({MESSAGES:,})")
    parser.add_argument("--full", action="store_true", help=f"{FULL:,} messages, {FULL_THROUGH:,} in and out")
    parser.add_argument("--brokers", type=bench_broker.names(everyone), default=None, metavar="NAMES")
    parser.add_argument("--parts", type=bench_broker.names(PARTS), default=list(PARTS), metavar="PARTS")
    parser.add_argument("--restarts", type=int, default=3, metavar="N", help="kills of each broker (3)")
    parser.add_argument("--memory", metavar="SIZE", help="limits.memory of our broker, such as '4 GiB'")
    parser.add_argument("--label", default="now", help="the figures' name in the result file and on the page")
    parser.add_argument("--remark", metavar="TEXT", help="about the run, for the page")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE", help="instead of build/depth.json")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--judge", action="store_true", help="exit with status 1 if a goal is missed")
    parser.add_argument("--page", action="store_true", help="measure nothing: write the page from the result file")
    peers = os.environ.get("STOMPCODEC_PEERS")
    parser.add_argument("--peers", type=Path, default=Path(peers) if peers else None, metavar="FOLDER")
    args = parser.parse_args(given)
    args.brokers = args.brokers or (everyone if args.peers else [brokers.OURS])
    count = FULL if args.full else args.messages
    args.sizes = {part: FULL_THROUGH if args.full and part == "through" else count for part in PARTS}
    if count < 2:
        parser.error("--messages is the number of stored messages: at least 2")
    if not args.page and (fault := room({part: args.sizes[part] for part in args.parts})):
        parser.error(fault)
    return args


def main(given: list[str]) -> int:
    args = arguments(given)
    kept = json.loads(args.results.read_text()) if args.results.is_file() else {}
    if args.page:
        depth_report.write(kept, ROOT / "docs")
        return 0
    with progress() as told:
        options = {"restarts": args.restarts, "memory": args.memory, "recipes": args.peers, "progress": told}
        found = measure(args.brokers, args.parts, args.sizes, **options)
    facts = {**bench_broker.facts(argparse.Namespace(rounds=args.restarts, seconds=0)), "messages": args.messages}
    facts["remark"] = args.remark or kept.get(args.label, {}).get("facts", {}).get("remark")
    old = kept.get(args.label, {}).get("brokers", {})
    merged = {name: {**old.get(name, {}), **found.get(name, {})} for name in {**old, **found}}
    result = {"facts": facts, "brokers": merged}
    args.results.parent.mkdir(exist_ok=True)
    args.results.write_text(json.dumps({**kept, args.label: result}, indent=1) + "\n")
    print(json.dumps({"facts": facts, "brokers": found}, indent=1) if args.json else depth_report.text(found))
    verdicts = depth_report.judge(found.get(brokers.OURS, {}))
    faults = any("fault" in part for part in found.get(brokers.OURS, {}).values())
    return int(faults or (args.judge and not all(verdict.met for verdict in verdicts)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
