"""Run vectors, the tests of the codec and a differential fuzz with each speed trick of src/tricks.json off.

    python scripts/test_tricks.py [--only NAME ...] [--fuzz N] [--short] [--report FILE]

Each trick gets a build of its own in build/private, on which everything runs; what is installed stays as it is. "all"
is one more build, without any trick. --short runs the vectors and a short fuzz on that one alone.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import private_build
from private_build import FOLDER, ROOT

TABLE = ROOT / "src" / "tricks.json"
#: What one build is tested with: its name, and a command of this Python.
VECTORS = ["tests/packaging/run_backends.py", "--backend", "c"]
TESTS = ["-c", "import sys; sys.path = [*filter(None, sys.path)]; import pytest; sys.exit(pytest.main())", "-q"]
TESTS += ["-p", "no:cacheprovider", "-m", "not slow", "--only-c", "--numprocesses=2", "tests/codec"]
FUZZ = ["fuzz/fuzz_differential.py", "--plain", "--seconds=86400"]


def tricks() -> list[dict[str, Any]]:
    """Return the table."""
    table: list[dict[str, Any]] = json.loads(TABLE.read_text(encoding="utf-8"))
    return table


def macros() -> list[str]:
    """Return the macros that switch off a trick, in the order of the table."""
    return [trick["macro"] for trick in tricks()]


def gain_tests(name: str) -> list[str]:
    """Return the options of pytest that leave out the tests of what a build does without."""
    off = builds()[name]
    return [f"--deselect={test}" for trick in tricks() if trick["macro"] in off for test in trick.get("tests", ())]


def short(macro: str) -> str:
    """Return the name of a build.

    >>> short("STOMP_NO_QUICK_HEAD")
    'quick-head'
    """
    return macro.removeprefix("STOMP_NO_").lower().replace("_", "-")


def builds() -> dict[str, tuple[str, ...]]:
    """Return the macros of each build by its name: one for each trick, "all" of them, and "none"."""
    return {**{short(macro): (macro,) for macro in macros()}, "all": tuple(macros()), "none": ()}


def build(name: str, *flags: str) -> Path:
    """Build the package without the tricks of that name, and return its folder. `flags` go to the compiler."""
    switched = tuple(f"-D{macro}=1" for macro in builds()[name])
    return private_build.build(private_build.Kind(f"tricks/{name}", (*switched, *flags)))


def environment(site: Path) -> dict[str, str]:
    """Return the environment for programs that run on a build."""
    return {**os.environ, "PYTHONPATH": str(site), "STOMPCODEC_PURE": "0", "PYTHONDONTWRITEBYTECODE": "1"}


def checks(name: str, options: argparse.Namespace) -> dict[str, list[str]]:
    """Return what runs on a build, by name."""
    findings = FOLDER / "findings"
    findings.mkdir(parents=True, exist_ok=True)
    fuzz = [*FUZZ, f"--runs={options.fuzz}", f"--findings={findings}"]
    wanted = {
        "vectors": VECTORS,
        "tests": [*TESTS, *gain_tests(name)],
        "fuzz": [*fuzz, *([f"--seed={options.seed}"] if options.seed else [])],
    }
    return {check: wanted[check] for check in wanted if not (options.short and check == "tests")}


def last_line(output: str) -> str:
    """Return the line of an output that sums it up."""
    lines = [line for line in output.splitlines() if re.search(r"\d+ (passed|findings)", line)]
    return lines[-1].strip("= ") if lines else "no figures"


def test(name: str, options: argparse.Namespace) -> tuple[int, int]:
    """Test one build, print a line for each check, and return how many checks passed and failed."""
    try:
        site = build(name)
    except subprocess.CalledProcessError:
        print(f"{name:16} build    FAILED", flush=True)
        return 0, 1
    passed = failed = 0
    said = [sys.executable, "-c", "import stompcodec._codec_c as codec; print(codec.__file__)"]
    loaded = subprocess.run(said, cwd=FOLDER, env=environment(site), check=True, stdout=subprocess.PIPE).stdout
    if not Path(loaded.decode().strip()).is_relative_to(site):
        raise RuntimeError(f"Python loads {loaded.decode().strip()}, not the build in {site}")
    for check, command in checks(name, options).items():
        done = subprocess.run(
            [sys.executable, *command],
            cwd=ROOT,
            env=environment(site),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        passed, failed = (passed, failed + 1) if done.returncode else (passed + 1, failed)
        if done.returncode:
            print(done.stdout)
        print(f"{name:16} {check:8} {'FAILED' if done.returncode else 'ok':7}{last_line(done.stdout)}", flush=True)
    return passed, failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=builds(), metavar="NAME", help=", ".join(builds()))
    parser.add_argument("--fuzz", type=int, default=2000, metavar="N", help="executions of the fuzz for each build")
    parser.add_argument("--seed", type=int, help="of the fuzz; by default another one each time")
    parser.add_argument("--short", action="store_true", help="only the build without any trick, and not all tests")
    parser.add_argument("--report", type=Path, metavar="FILE", help="how many checks passed and failed, as JSON")
    options = parser.parse_args()
    wanted = ["all"] if options.short else options.only or [name for name in builds() if name != "none"]
    passed = failed = skipped = 0
    if os.name != "posix" or not private_build.can_compile():
        print("tricks: skipped, there is no C compiler with Python.h")
        wanted, skipped = [], 1
    for name in wanted:
        good, bad = test(name, options)
        passed, failed = passed + good, failed + bad
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    if options.report:
        options.report.write_text(
            json.dumps({"passed": passed, "failed": failed, "skipped": skipped}), encoding="utf-8"
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
