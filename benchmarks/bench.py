"""The benchmarks: `make bench`, `make bench WHAT="codec broker"` for some, `make bench-against AGAINST=PYTHON`.

    python benchmarks/bench.py [codec] [broker] [client] [spark] [--quick] [--only NAME ...]

A whole run writes docs/benchmarks.md, its plots, and the README's figures. --quick measures for seconds, to see that
all rows work; it prints its tables and leaves the files alone, and so does --only. The rest needs an idle machine.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import os
import platform
import resource
import sys
from pathlib import Path

import page


def facts(subject: str) -> dict[str, str]:
    """Return what the figures hold for. No names of hosts or folders."""
    pairs = [line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line]
    cpu = {key.strip(): value.strip() for key, value in reversed(pairs)}
    family = f" (family {cpu['cpu family']}, model {cpu['model']})" if "cpu family" in cpu else ""
    return {
        "command": f"`make bench WHAT={subject}`",
        "date": datetime.date.today().isoformat(),
        "processor": f"{cpu.get('model name', platform.machine())}{family}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}, {platform.python_compiler()}",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=(*page.TABLES, []), help="all, if none is named")
    parser.add_argument("--quick", action="store_true", help="see in seconds that all works")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="loads of the broker, …")
    parser.add_argument("--rounds", type=int, help="of which the median is taken, or of the codec the least")
    parser.add_argument("--seconds", type=float, help="of each run of broker (1.5) and client (1)")
    parser.add_argument("--brokers", nargs="+", metavar="NAME", help="ours, and those of scripts/peers")
    parser.add_argument("--against", metavar="PYTHON", help="compare our broker with that of another interpreter")
    args = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if args.against:
        return int(importlib.import_module("bench_broker").against(args))
    failed = False
    for subject in args.what or page.TABLES:
        found = importlib.import_module(f"bench_{subject}").measure(args)
        found["facts"] = {**facts(subject), **found["facts"]}
        print(f"\n## {subject}\n\n{page.text(subject, found)}", flush=True)
        failed = failed or bool(found.get("faults"))
        if not (args.quick or args.only or args.brokers):
            page.write(subject, found)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
