"""Run the conformance vectors on the installed stompcodec: each backend, strict and lenient.

    run_backends.py [--backend {c,python}] [FOLDER ...]

It runs in a scratch folder that holds nothing but tests/, so that no source tree stands in for what is installed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PURE = {"c": "0", "python": "1"}


def run(backend: str, lenient: bool, folders: list[str], scratch: str) -> tuple[int, int]:
    """How many vectors passed and failed; a run that breaks down counts as one failure."""
    command = [sys.executable, "tests/run_vectors.py", "--adapter", "tests.conformance:Adapter"]
    command += ["--lenient"] * lenient + folders
    environment = {**os.environ, "STOMPCODEC_PURE": PURE[backend]}
    start = time.perf_counter()
    done = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    figures = re.search(r"^(\d+) passed, (\d+) failed$", done.stdout, re.MULTILINE)
    passed, failed = map(int, figures.groups()) if figures else (0, 1)
    failed = failed or int(done.returncode != 0)
    if failed:
        print((done.stdout + done.stderr).strip())
    mode = "lenient" if lenient else "strict"
    print(f"{backend:8} {mode:8} {passed:6} passed {failed:4} failed {seconds:6.1f} s", flush=True)
    return passed, failed


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the conformance vectors on the installed stompcodec.")
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="holds vector files; tests/vectors by default")
    parser.add_argument("--backend", choices=PURE, action="append", help="only this one")
    options = parser.parse_args()
    folders = [os.path.abspath(folder) for folder in options.folders]
    passed = failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(TESTS, Path(scratch, "tests"), ignore=shutil.ignore_patterns("__pycache__"))
        for backend in options.backend or PURE:
            for lenient in (False, True):
                good, bad = run(backend, lenient, folders, scratch)
                passed, failed = passed + good, failed + bad
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
