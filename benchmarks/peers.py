"""Measure other libraries and us in one run, and write docs/benchmarks.md with its plot.

    python benchmarks/peers.py [--quick] [--only SECTION ...]

The peers are installed into build/peers, and nowhere else. A full run takes eight minutes on a quiet machine; its
numbers go to build/peers.json, and the page is written from there. --quick measures less (four minutes), --only some
sections: both print the goals that they can judge, and leave the page alone. What all sections of --quick found is in
build/benchmarks.md.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import logging
import math
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import cold
import contestants
import corpus
import goals
import instructions
import measure
import reads
import report
import twins

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "peers.json"
#: The short ones first: what is amiss shows early.
SECTIONS = (
    "instructions",
    "memory",
    "cold",
    "bodies",
    "sizes",
    "columns",
    "encode",
    "utf-8",
    "reads",
    "alternating",
    "decode",
    "reading",
)


def install() -> None:
    """pip installs each peer into a folder of its own kind, once; one that cannot be had is left out."""
    folder = ROOT / "build" / "peers" / f"{sys.implementation.cache_tag}"
    for name, (requirement, _maker) in contestants.PEERS.items():
        stamp = folder / f"{name}.stamp"
        if not stamp.is_file() or stamp.read_text() != requirement:
            print(f"installing {requirement}", flush=True)
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
            done = subprocess.run([*command, "--target", folder, requirement], capture_output=True, text=True)
            if done.returncode:
                print(f"{name} cannot be installed: {done.stderr.strip().splitlines()[-1]}")
                continue
            stamp.write_text(requirement)
    sys.path.append(str(folder))


def facts(everyone: list[contestants.Contestant]) -> dict[str, Any]:
    """What the numbers hold for. No names of hosts or folders."""
    optimised = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    versions = {}
    for name, (requirement, _maker) in contestants.PEERS.items():
        if any(contestant.name == name for contestant in everyone):
            versions[name] = metadata.version(requirement.partition("==")[0])
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}",
        "python": f"{platform.python_implementation()} {platform.python_version()}, {platform.python_compiler()}"
        f"{'' if optimised else ', not built with profile-guided optimization'}",
        "versions": versions,
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    found = dict(reversed([tuple(part.strip() for part in line.split(":", 1)) for line in lines if ":" in line]))
    family = f" (family {found['cpu family']}, model {found['model']})" if "cpu family" in found else ""
    return found.get("model name", platform.machine()) + family


def run(args: argparse.Namespace, everyone: list[contestants.Contestant]) -> dict[str, Any]:
    """The sections that were asked for."""
    scale, rounds = (0.25, 3) if args.quick else (1.0, 10)
    plan = measure.Plan(corpus.load(scale), rounds)
    right = measure.correctness(everyone)
    gc.collect()
    gc.freeze()  # the corpus is not for the contestants' garbage collections to walk through
    frames = {name: workload.frames for name, workload in plan.workloads.items()}
    results: dict[str, Any] = {
        "facts": {**facts(everyone), "full": not args.quick, "rounds": rounds, "frames": frames},
        "correctness": right,
    }
    peer = next((contestant for contestant in everyone if contestant.name == "stomp.py"), None)

    def alone(use: str, feed: str) -> dict:
        return measure.decode_alone(plan, everyone, right, use, feed)

    feeds = measure.FEEDS
    sections = {
        "decode": lambda: {feed: alone("untouched", feed) for feed in feeds},
        "reading": lambda: {use: alone(use, "64 KiB") for use in ("read", "dict")},
        "alternating": lambda: {feed: measure.decode_alternating(plan, everyone, right, feed) for feed in feeds},
        "encode": lambda: measure.encode(plan, everyone),
        "utf-8": lambda: twins.twins(everyone, rounds),
        "reads": lambda: reads.reads(everyone, rounds),
        "cold": lambda: cold.cold(rounds),
        "bodies": lambda: measure.bodies(plan),
        "sizes": lambda: measure.sizes(plan, peer),
        "columns": lambda: measure.columns(plan),
        "memory": lambda: measure.memory(everyone),
        "instructions": lambda: instructions.measure(["ticks", "acks"]) if shutil.which("valgrind") else {},
    }
    with_c = any(contestant.name == goals.C for contestant in everyone)
    for name in args.only:
        if name in ("cold", "columns", "instructions") and not with_c:
            continue
        start = time.perf_counter()
        results[name] = sections[name]()
        done = args.only.index(name) + 1
        print(f"{done} of {len(args.only)}, {name}: {time.perf_counter() - start:.0f} s", flush=True)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a quarter of the corpus, three rounds; no page")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), metavar="SECTION")
    parser.add_argument("--page", action="store_true", help="measure nothing: write the page from the last full run")
    args = parser.parse_args()
    if args.page:
        report.write(json.loads(RESULTS.read_text()), ROOT / "docs")
        return 0
    logging.disable()  # what a peer cannot decode it also logs
    install()
    start = time.perf_counter()
    results = run(args, contestants.everyone())
    print(f"all: {time.perf_counter() - start:.0f} s\n")
    for goal in goals.judge(results):
        print(goal)
    if set(args.only) != set(SECTIONS) or goals.C not in results["correctness"]["ticks"]:
        return 0
    if args.quick:
        report.write(results, ROOT / "build")
        return 0
    RESULTS.write_text(json.dumps(_rounded(results), indent=1) + "\n")
    report.write(results, ROOT / "docs")
    return 0


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _rounded(inner) for key, inner in value.items()}
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.5g}")
    return value


if __name__ == "__main__":
    sys.exit(main())
