"""Run the tests of the codec and of the broker's plain road on a debug interpreter, which checks what C does.

    python scripts/test_debug.py [--short] [--report FILE] [ARGUMENT ...]

A debug build of the same minor version loads the extensions that are built and installed here; for another version
the package is built in a folder of its own. DEBUG_PYTHON names the interpreter; else Debian's `python3.X-dbg` is looked
for, that of this version first. Without one, this is said, and counts as skipped. --short runs the files that look at
memory, and takes this version only. Other arguments are those of pytest.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from private_build import FOLDER, ROOT

import stompcodec

VERSION = sys.version_info[:2]
#: Debian's names of other versions that the package supports, newest first.
OTHERS = [(3, minor) for minor in range(15, 10, -1) if (3, minor) != VERSION]
PYTEST = "import sys; sys.path = [*filter(None, sys.path)]; import pytest; sys.exit(pytest.main())"
OPTIONS = ["-q", "-p", "no:cacheprovider", "-m", "not slow", "--only-c"]
PLAIN = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/broker/sessions/test_plain_*.py"))
SHORT = [*(f"tests/codec/test_{name}.py" for name in ("trusted_memory", "buffers", "headers")), *PLAIN]
#: What the tests of the codec and of the plain road import, for an environment of its own.
NEEDED = (
    "setuptools>=77",
    "cython>=3.1",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "hypothesis",
    "websockets",
    "lark",
)


def debug_python() -> tuple[str, tuple[int, int]] | None:
    """Return a debug interpreter and its version, or None."""
    names = [f"python{major}.{minor}-dbg" for major, minor in (VERSION, *OTHERS)]
    for name in filter(None, [os.environ.get("DEBUG_PYTHON"), *names]):
        path = shutil.which(name)
        if path is not None:
            asked = "import sys; print(hasattr(sys, 'gettotalrefcount'), *sys.version_info[:2])"
            is_debug, major, minor = subprocess.check_output([path, "-c", asked], text=True).split()
            if is_debug == "True":
                return path, (int(major), int(minor))
    return None


def prepared(python: str, version: tuple[int, int]) -> tuple[str, list[str]]:
    """Return what runs the tests, and what PYTHONPATH needs, having built what is missing."""
    if version == VERSION:
        return python, [
            str(Path(stompcodec.__file__).parents[1]),
            *(path for path in sys.path if path.endswith("-packages")),
        ]
    folder = FOLDER / f"debug-{version[0]}.{version[1]}"
    own = str(folder / "bin" / "python")
    pip = [own, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
    subprocess.run([*pip, "--prefer-binary", *NEEDED], check=True)
    build = {**os.environ, "STOMPCODEC_BUILD_EXTENSION": "yes"}
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", str(ROOT)], check=True, env=build)
    return own, []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="only the files that look at memory")
    parser.add_argument("--report", type=Path, metavar="FILE", help="how many tests passed and failed, as JSON")
    options, arguments = parser.parse_known_args()
    passed = failed = skipped = 0
    found = debug_python()
    if found is not None and options.short and found[1] != VERSION:  # `make test` builds nothing for it
        found = None
    if found is None:
        print("debug: skipped, there is no debug interpreter: install python3-dbg, or set DEBUG_PYTHON")
        skipped = 1
    else:
        python, paths = prepared(*found)
        environment = {**os.environ, "STOMPCODEC_PURE": "0", "PYTHONPATH": os.pathsep.join(paths)}
        tests = SHORT if options.short else ["tests/codec", *PLAIN]
        chosen = arguments or [*OPTIONS, "--numprocesses=2", *tests]
        command = [python, "-X", "faulthandler", "-c", PYTEST, *chosen]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        print(done.stdout)
        counts = {
            word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|errors?|skipped)", done.stdout)
        }
        passed, skipped = counts.get("passed", 0), counts.get("skipped", 0)
        failed = counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0)
        failed = failed or int(done.returncode != 0 or not passed)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    if options.report:
        report = {"passed": passed, "failed": failed, "skipped": skipped}
        options.report.write_text(json.dumps(report), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
