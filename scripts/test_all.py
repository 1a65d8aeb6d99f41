"""Run the suite on every installed interpreter, each with an environment of its own; the table comes last.

Two run at a time, where there are cores for that.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import interpreters

TOP = Path(__file__).resolve().parents[1]
WORK = TOP / "build" / "test-all"


def call(command: list[str | Path], log: Path, **environment: str) -> str:
    """Run it, add what it prints to the log, and return that; a failure raises CalledProcessError."""
    done = subprocess.run(
        command,
        cwd=TOP,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with log.open("a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(map(str, command))}\n{done.stdout}\n")
    done.check_returncode()
    return done.stdout


def make_environment(python: str, folder: Path, sdist: Path, log: Path) -> None:
    if not folder.exists():
        call([python, "-m", "venv", folder], log)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    call([*pip, f"{sdist}[dev]"], log, STOMPCODEC_BUILD_EXTENSION="yes")
    # The version number may be that of the last time, so the package itself is always replaced.
    call([*pip, "--no-deps", "--force-reinstall", sdist], log, STOMPCODEC_BUILD_EXTENSION="yes")


def closing_line(output: str) -> str:
    """pytest's last word without its decoration."""
    lines = [line.strip("= \n") for line in output.splitlines() if re.search(r"\d (passed|failed|error)", line)]
    return lines[-1] if lines else "no test was run"


def run_suite(version: str, python: str, sdist: Path) -> tuple[bool, str]:
    folder, log = WORK / version, WORK / f"{version}.log"
    log.unlink(missing_ok=True)
    pytest = [folder / "bin" / "pytest", "--numprocesses", "2"]
    try:
        make_environment(python, folder, sdist, log)
        both = closing_line(call(pytest, log))
        pure = closing_line(call([*pytest, "-m", "not slow"], log, STOMPCODEC_PURE="1"))
    except subprocess.CalledProcessError:
        print(*log.read_text(encoding="utf-8").splitlines()[-60:], sep="\n")
        return False, f"FAILED, see {log.relative_to(TOP)}"
    return True, f"{both}; pure: {pure}"


def main() -> int:
    shutil.rmtree(WORK / "sdist", ignore_errors=True)
    WORK.mkdir(parents=True, exist_ok=True)
    call([sys.executable, "-m", "build", "--sdist", "--outdir", WORK / "sdist", TOP], WORK / "sdist.log")
    (sdist,) = (WORK / "sdist").glob("*.tar.gz")
    found = interpreters.find()
    there = {version: python for version, python in found.items() if python is not None}
    rows = [f"{version:6} not installed, skipped" for version in found if version not in there]
    failures = 0

    def run(version: str) -> tuple[bool, str]:
        print(f"Python {version}: {there[version]}", flush=True)
        start = time.monotonic()
        good, text = run_suite(version, there[version], sdist)
        row = f"{version:6} {text} [{time.monotonic() - start:.0f} s]"
        print(row, flush=True)
        return good, row

    # Tests wait more than they compute, but those of time-outs want a machine that is not too busy.
    with ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for good, row in pool.map(run, there):
            failures += not good
            rows.append(row)
    print("", *rows, sep="\n")
    print(f"{len(there) - failures} interpreters passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
