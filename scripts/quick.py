"""Run the quick loop of one room: ruff on what changed, then the tests of the room that take less than a second.

    python scripts/quick.py ROOM [ARGUMENTS OF PYTEST ...]

A room is a folder of tests/, such as `broker` or `client`, or one below it, such as `broker/queues`. Two processes run
its tests, those that failed last time first, with fewer examples for each property. `make test` is the whole proof.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
OPTIONS = [
    *("--numprocesses", "2", "-m", "not slow and not long"),
    # A change that breaks everything ends after 10 failures: one alone may wait a minute for its time-out.
    *("--failed-first", "--maxfail", "10", "--durations", "5"),
]


def rooms() -> list[str]:
    """Return the folders of tests/ that hold tests.

    >>> "broker" in rooms(), "vectors" in rooms()
    (True, False)
    """
    return sorted({path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py") if path.parent != TESTS})


def changed() -> list[str]:
    """Return the Python files that differ from where this branch left main, and those that git does not know yet."""
    base = _git("merge-base", "HEAD", "main") or ["HEAD"]
    names = _git("diff", "--name-only", "--diff-filter=d", base[0]) + _git("ls-files", "--others", "--exclude-standard")
    return sorted({name for name in names if name.endswith((".py", ".pyi"))})


def _git(*arguments: str) -> list[str]:
    """Return the lines that git prints; none if it fails, as it does outside a checkout."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def main(arguments: list[str]) -> int:
    """Run the loop.

    Args:
        arguments: the room, then what pytest is given as well.

    Returns:
        The exit status: that of ruff or pytest, 2 for an unknown room.
    """
    room, *more = arguments or [""]
    if room.split("/")[0] not in rooms() or not (TESTS / room).is_dir():
        print(f"unknown room {room!r}: use make quick ROOM=… with one of {', '.join(rooms())}", file=sys.stderr)
        return 2
    tools = Path(sys.executable).parent
    names = changed()
    for command in ("check", "format --check") if names else ():
        status = subprocess.run([tools / "ruff", *command.split(), *names], cwd=ROOT, check=False).returncode
        if status:
            return status
    environment = {"HYPOTHESIS_PROFILE": "light", **os.environ}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # it would compile the tests anew each time
    pytest = [tools / "pytest", *OPTIONS, *more, f"tests/{room}"]
    return subprocess.run(pytest, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
