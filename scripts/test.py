"""Run the stages of `make test`, or with --slow those of `make test-slow`: all of them, also when one fails.

    python scripts/test.py [--slow] [--only STAGE ...]

A summary of the reports that the stages write closes the output. The exit status is 1 if a test failed, or a stage
ended without a report.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

import others

ROOT = Path(__file__).resolve().parents[1]
PYTEST = [sys.executable, *others.PYTEST]
#: Tests wait as long as they compute, so two processes for each of two processors share them.
SHARED = ["--numprocesses", "4", "-o", "tmp_path_retention_policy=failed"]
DOCTESTS = ["--doctest-modules", "--doctest-ignore-import-errors", "--doctest-glob=*.md", "--pyargs"]
DOCTESTS += ["stompcodec", "README.md", "docs"]
#: Where frames are read, written or taken apart: this runs with the Python backend, too. Tests that take a backend by
#: name have run it in the stage before. `make test-slow` runs the whole suite with it.
SOME = {
    "broker/": "core memory memory_below scenarios server",
    "broker/bodies/": "convert xml_json",
    "broker/queues/": "faults queue",
    "broker/routing/": "addresses durable topics",
    "broker/sessions/": "acknowledge connecting legacy turns websocket_turns",
    "broker/storage/": "large store",
    "cli/verbs/": "decode files lint",
    "client/": "core sending receiving",
}
CORES = [
    *("tests/codec", "tests/protocol", "tests/capture"),
    *(f"tests/{folder}test_{name}.py" for folder, names in SOME.items() for name in names.split()),
]
PURE = {"STOMPCODEC_PURE": "1"}
#: Tests that replace parts of the broker's compiled modules run with their Python files.
UNCOMPILED, REPLACED = {"STOMPCODEC_PLAIN": "0"}, ("tests/broker", "tests/simulation")
#: Four times the examples of `make test`, others each night.
NIGHTLY = {"HYPOTHESIS_PROFILE": "nightly"}
#: The exit status of pytest when it collected nothing, which is no failure: a stage may be empty on some platforms.
_NO_TESTS = 5
#: Bytes in which the temporary files of all tests have room.
_ROOM = 6 * 2**30


class Stage(NamedTuple):
    """A command; the option by which it is asked for its report; variables beside those of this process."""

    name: str
    command: list[str]
    report: str = "--junitxml"
    environment: dict[str, str] | None = None


@dataclass
class Count:
    """How many tests of a stage passed, failed, were skipped; `note` says why a stage has no report."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    note: str = ""

    def __str__(self) -> str:
        return f"{self.passed:,} passed, {self.failed:,} failed, {self.skipped:,} skipped"


#: Stages in one row run at the same time.
QUICK = [
    [
        Stage("examples", [*PYTEST, *DOCTESTS]),
        Stage("instructions", [sys.executable, "benchmarks/instructions.py"], "--report"),
        Stage("debug", [sys.executable, "scripts/others.py", "debug", "--short"], "--report"),
    ],
    [Stage("c", [*PYTEST, *SHARED, "-m", "not slow"])],
    [Stage("uncompiled", [*PYTEST, *SHARED, "-m", "uncompiled and not slow", *REPLACED], environment=UNCOMPILED)],
    [Stage("python", [*PYTEST, *SHARED, "-m", "not slow and not names_backend", *CORES], environment=PURE)],
]
SLOW = [
    [Stage("c-slow", [*PYTEST, *SHARED, "-m", "slow"])],
    [Stage("properties", [*PYTEST, *SHARED, "-m", "hypothesis and not slow"], environment=NIGHTLY)],
    [Stage("python-whole", [*PYTEST, *SHARED, "-m", "not names_backend"], environment=PURE)],
    [Stage("examples-python", [*PYTEST, *DOCTESTS], environment=PURE)],
    [Stage("mutants", [sys.executable, "scripts/mutations.py", "--again", "--count", "8"], "--report")],
]


def counted(report: Path) -> Count:
    """Return what a report says: JUnit's XML of pytest, or JSON with the fields of `Count`.

    Raises:
        ValueError, OSError, ParseError: the report is missing or incomplete.
    """
    if report.suffix == ".json":
        return Count(**json.loads(report.read_text(encoding="utf-8")))
    suites = list(ElementTree.parse(report).iter("testsuite"))
    tests, failures, errors, skipped = (
        sum(int(suite.get(name, 0)) for suite in suites) for name in ("tests", "failures", "errors", "skipped")
    )
    return Count(max(0, tests - failures - errors - skipped), failures + errors, skipped)


def run(stage: Stage, folder: Path, quiet: bool) -> Count:
    """Run a stage to its end; with `quiet`, print its output when it has ended."""
    report = folder / f"{stage.name}{'.xml' if stage.report == '--junitxml' else '.json'}"
    began, out = time.monotonic(), subprocess.PIPE if quiet else None
    command = [*stage.command, f"{stage.report}={report}"]
    environment = {**os.environ, **(stage.environment or {})}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=out, stderr=out and subprocess.STDOUT, check=False)
    if quiet:
        print(f"\n==== {stage.name} ====\n{done.stdout.decode(errors='replace')}", flush=True)
    try:
        count = counted(report)
    except (OSError, ValueError, TypeError, ElementTree.ParseError) as error:
        count = Count(failed=1, note=f"no report, exit status {done.returncode}: {type(error).__name__}")
    if done.returncode not in (0, _NO_TESTS) and not count.failed:
        count.failed, count.note = 1, f"exit status {done.returncode}"
    count.seconds = time.monotonic() - began
    return count


def summary(counts: dict[str, Count]) -> str:
    """Return the closing lines: one for each stage, one for all."""
    total = Count(*(sum(getattr(each, name) for each in counts.values()) for name in ("passed", "failed", "skipped")))
    lines = [
        f"{name:16}  {count}  ({count.seconds:.0f} s{'; ' if count.note else ''}{count.note})"
        for name, count in counts.items()
    ]
    return "\n".join([*lines, f"{'total':16}  {total}"])


def run_all(rows: list[list[Stage]], folder: Path) -> dict[str, Count]:
    """Run the rows one after the other, the stages of a row at the same time."""
    counts: dict[str, Count] = {}
    for row in rows:
        print(f"\n==== {', '.join(stage.name for stage in row)} ====", flush=True)
        before = cpu_seconds()
        with ThreadPoolExecutor(len(row)) as pool:
            found = pool.map(lambda stage: run(stage, folder, len(row) > 1), row)  # noqa: B023 - it ends here
            counts.update(zip((stage.name for stage in row), found))
        print(f"{', '.join(stage.name for stage in row)}: {cpu_seconds() - before:.0f} s of CPU", flush=True)
    return counts


def cpu_seconds() -> float:
    """Return the CPU seconds of all processes that have ended: what a busy machine does not change much."""
    times = os.times()
    return times.children_user + times.children_system


def in_memory() -> str | None:
    """Return a folder in memory with room for the files of the tests, or None: what stores messages waits for disks."""
    memory = Path("/dev/shm")
    if "TMPDIR" in os.environ or not os.access(memory, os.W_OK):
        return None
    return str(memory) if shutil.disk_usage(memory).free > _ROOM else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slow", action="store_true", help="the stages of make test-slow")
    names = [stage.name for rows in (QUICK, SLOW) for row in rows for stage in row]
    parser.add_argument("--only", nargs="+", metavar="STAGE", choices=names, help=f"some stages: {', '.join(names)}")
    arguments = parser.parse_args()
    rows = SLOW if arguments.slow else QUICK
    if arguments.only:
        rows = [[stage for stage in row if stage.name in arguments.only] for row in [*QUICK, *SLOW]]
        rows = [row for row in rows if row]
    began = time.monotonic()
    # Else each of the processes compiles all of the tests anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compiling = subprocess.Popen([*PYTEST, "--collect-only", "-qq"], cwd=ROOT, stdout=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory(prefix="stompcodec-test-", dir=in_memory()) as folder:
        os.environ["TMPDIR"] = folder  # of pytest and Spark, too
        counts = run_all(rows, Path(folder))
    compiling.wait()
    print(f"\n==== summary, {time.monotonic() - began:.0f} s, {cpu_seconds():.0f} s of CPU ====\n{summary(counts)}")
    return 1 if any(count.failed for count in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
