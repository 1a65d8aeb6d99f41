"""Run the conformance vectors on the installed stompcodec: run_backends.py [--backend {c,python}] [FOLDER ...]"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PURE = {"c": "0", "python": "1"}


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the conformance vectors on the installed stompcodec.")
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="holds vector files; tests/vectors by default")
    parser.add_argument("--backend", choices=PURE, action="append", help="only this one")
    options = parser.parse_args()
    vectors = [sys.executable, "tests/run_vectors.py", "--adapter", "tests.conformance:Adapter"]
    vectors += map(os.path.abspath, options.folders)
    failed = False
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(TESTS, Path(scratch, "tests"), ignore=shutil.ignore_patterns("__pycache__"))
        for backend, mode in product(options.backend or PURE, ([], ["--lenient"])):
            environment = {**os.environ, "STOMPCODEC_PURE": PURE[backend]}
            done = subprocess.run(vectors + mode, cwd=scratch, env=environment, capture_output=True, text=True)
            figures = re.search(r"^([1-9]\d*) passed, 0 failed$", done.stdout, re.MULTILINE)
            print(backend, *mode, figures[0] if figures else done.stdout + done.stderr, flush=True)
            failed |= not figures or done.returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
