"""Build the fuzz targets and run each for a while. A finding goes to fuzz/work/findings and makes the exit status 1.

Usage:
    run.py [--seconds N] [--jobs N] [TARGET ...]                   all targets by default
    run.py --runs 10000000 --seconds 7200 differential             until one of both is reached
    run.py --reproduce FILE TARGET                                 one input again
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import seeds
from prepare import FUZZ, WORK, build, environment

TARGETS = ("parse", "differential", "connection", "websocket", "broker", "selector")
#: Targets whose inputs have a form of their own.
SEEDS = ("selector",)
SLOWEST = 30  # seconds for one input
MEMORY = 4096  # MiB
#: How the reason of a finding begins in what a target says.
REASON = re.compile(r"^.*(Uncaught Python|Traceback|ERROR: (Address|Leak)Sanitizer|runtime error:|does not hold)", re.M)


def command_of(target: str, options: argparse.Namespace) -> list[str]:
    """What runs a target."""
    findings, corpus = WORK / "findings", WORK / "corpus" / target
    corpus.mkdir(parents=True, exist_ok=True)
    folders = [str(corpus), str(WORK / "seeds" / (target if target in SEEDS else "wire"))]
    flags = [f"-max_total_time={options.seconds}", f"-dict={FUZZ / 'stomp.dict'}", f"-seed={options.seed}"]
    flags += [f"-artifact_prefix={findings}/{target}-", f"-runs={options.runs}"]
    flags += ["-max_len=1024", f"-rss_limit_mb={MEMORY}"]
    flags += [f"-timeout={SLOWEST}", f"-report_slow_units={SLOWEST}"]  # less may be the load of the machine
    return [sys.executable, str(FUZZ / f"fuzz_{target}.py"), *flags, *folders]


def run(environment: dict[str, str], target: str, options: argparse.Namespace) -> tuple[int, list[str]]:
    """Run a target to its end, and return how many inputs it had, and its findings."""
    log, findings = WORK / "logs" / f"{target}.log", WORK / "findings"
    log.parent.mkdir(exist_ok=True)
    before, start = set(findings.iterdir()), time.perf_counter()
    with log.open("w") as out:
        command = command_of(target, options)
        status = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, env=environment, cwd=WORK).returncode
    seconds, text = time.perf_counter() - start, log.read_text("utf-8", "replace")
    found = [path.name for path in sorted(set(findings.iterdir()) - before) if path.name.startswith((target, "crash"))]
    if status and not found:
        found = [f"exit status {status}"]
    counts = re.findall(r"^#(\d+)\s|^Done (\d+) runs", text, re.MULTILINE)
    inputs = max((int("".join(count)) for count in counts), default=0)
    covered = ["-", *re.findall(r"\bcov: (\d+)", text)][-1]
    print(f"{target:14}{inputs:12,}{inputs / seconds:10,.0f}{covered:>10}   {len(found)} findings", flush=True)
    if found:
        first = REASON.search(text)
        shown = text[first.start() :][:3000] if first else text[-3000:]
        print(f"--- {target}: {', '.join(found)}; from {log}:", shown, "---", sep="\n", flush=True)
    return inputs, [f"{target}: {name}" for name in found]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--runs", type=int, default=10**12, help="inputs for each target, if that is reached first")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="targets at a time")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9, help="of the random numbers")
    parser.add_argument("--reproduce", type=Path, metavar="FILE", help="run this input on one target")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; default: all")
    options = parser.parse_args()
    if not set(options.targets) <= set(TARGETS):
        parser.error(f"the targets are {', '.join(TARGETS)}")
    built = environment(*build())
    if options.reproduce:  # with all that it says shown
        command = [sys.executable, str(FUZZ / f"fuzz_{options.targets[0]}.py"), str(options.reproduce.resolve())]
        return subprocess.run(command, env=built).returncode
    (WORK / "findings").mkdir(exist_ok=True)
    count = seeds.write(WORK / "seeds" / "wire", seeds.inputs())
    count += seeds.write(WORK / "seeds" / "selector", seeds.selector_inputs())
    print(f"{count} seeds from the vectors; seed of the random numbers: {options.seed}")
    print(f"{'target':14}{'executions':>12}{'per second':>10}{'coverage':>10}", flush=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        done = list(pool.map(lambda target: run(built, target, options), options.targets or TARGETS))
    findings = [name for _, found in done for name in found]
    total = sum(inputs for inputs, _ in done)
    print(*findings, f"{len(done)} targets, {total:,} executions, {len(findings)} findings", sep="\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
