"""The own suites of stomp.py, stompman, aiostomp and coilmq: as they are, and on our codec. `make compat SUITES=DIR`.

DIR holds a checkout of each: DIR/stomp.py, DIR/stompman, DIR/aiostomp, DIR/coilmq. What is not there is skipped, and
said. The library under test is the newest release in the registry, in an environment of its own in build/compat; only
its tests are taken from the checkout. Where a suite wants a broker, it is ours, in a process of its own.

Exit status 1: a test has another outcome on our codec, and `EXPLAINED` does not say why.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import venv
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).resolve().parents[1]
VENVS = TOP / "build" / "compat"
#: Seconds for one test, and for one suite.
_TEST, _SUITE = 60, 900

sys.path[0] = str(TOP / "tests")  # for the package crash; this file has the name of another

from crash.process import BrokerProcess  # noqa: E402


class Suite(NamedTuple):
    """How a library's suite is run."""

    module: str
    """Of `stompcodec.compat`."""
    requirements: tuple[str, ...]
    """The library, and what its tests need."""
    files: dict[str, str]
    """In the checkout -> where it is run."""
    arguments: tuple[str, ...]
    """For pytest: what to run."""
    port: int | None = None
    """Where the suite looks for a broker; None where it needs none."""
    hosts: tuple[str, ...] = ()
    """Environment variables that tell it more: these and _HOST or _PORT."""
    prelude: str = ""
    """A conftest.py, where the suite is of another version than the library."""


SUITES = {
    "stomp.py": Suite(
        "stomppy",
        ("stomp.py>=9,<10", "pytest", "pytest-timeout", "pytest-mock", "pytest-ordering"),
        {"tests": "tests", "pytest.ini": "pytest.ini"},
        # The others want certificates, containers, or hosts of the world.
        ("tests", "--ignore-glob=*ssl*", "--ignore=tests/test_ipv6.py"),
        61613,
        ("STD", "RABBITMQ", "STOMPSERVER", "ARTEMIS", "RABBITMQ_WS"),
        # The newest suite that is public is of 8.2; in 9 this module has another name.
        "import stomp\nimport stomp.log\nstomp.logging = stomp.log\n",
    ),
    "stompman": Suite(
        "stompman",
        (
            *(
                "stompman>=3,<4",
                "websockets",
                "anyio",
                "faker",
                "hypothesis",
                "polyfactory",
                "pytest",
                "pytest-timeout",
            ),
            "uvloop; platform_system != 'Windows'",
        ),
        {"packages/stompman/test_stompman": "test_stompman", "conftest.py": "conftest.py"},
        ("test_stompman",),
        9000,
    ),
    "aiostomp": Suite(
        "aiostomp", ("aiostomp>=1.7,<2", "pytest", "pytest-timeout", "mock"), {"tests": "tests"}, ("tests",)
    ),
    "coilmq": Suite(
        "coilmq",
        (*("coilmq>=1,<2", "pytest", "pytest-timeout", "fakeredis", "redis", "sqlalchemy<2", "typing-extensions"),),
        {"tests": "tests"},
        ("tests",),
    ),
}

#: (library, part of a test's name) -> why its outcome on our codec may differ.
EXPLAINED: dict[tuple[str, str], str] = {}


class Outcome(NamedTuple):
    """A suite, run twice."""

    before: dict[str, str]
    """Test -> "passed", "failed", "error" or "skipped", as the library is."""
    after: dict[str, str]

    def differences(self) -> list[str]:
        names = sorted(self.before.keys() | self.after.keys())
        return [name for name in names if self.before.get(name) != self.after.get(name)]


def python_of(name: str, suite: Suite) -> str:
    """The interpreter of the environment of a suite, which is made where it is not there."""
    folder = VENVS / name
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not (folder / "ready").exists():
        print(f"installing {name} into {folder.relative_to(TOP)}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *suite.requirements], check=True)
        (folder / "ready").touch()
    return str(python)


@contextlib.contextmanager
def broker(suite: Suite, folder: Path) -> Iterator[dict[str, str]]:
    """Our broker, and the environment that tells the suite where it is."""
    if suite.port is None:
        yield {}
        return
    with BrokerProcess(folder / "broker", memory=True, flags=("--port", str(suite.port))) as running:
        hosts = {f"{name}_HOST": "127.0.0.1" for name in suite.hosts}
        ports = {f"{name}_PORT": str(running.ws_port if name.endswith("_WS") else running.port) for name in suite.hosts}
        yield {**hosts, **ports}


def run(python: str, suite: Suite, checkout: Path, mode: str, only: list[str]) -> dict[str, str]:
    """Test -> outcome. Mode "" leaves the library as it is."""
    with tempfile.TemporaryDirectory() as scratch, broker(suite, Path(scratch)) as told:
        folder = Path(scratch, "suite")
        folder.mkdir()
        for source, target in suite.files.items():
            copy = shutil.copytree if (checkout / source).is_dir() else shutil.copy
            copy(checkout / source, folder / target)
        if suite.prelude:
            (folder / "conftest.py").write_text(suite.prelude, encoding="utf-8")
        report = Path(scratch, "report.xml")
        command = [python, "-m", "pytest", "-p", "stompcodec.compat.suite", "-p", "no:cacheprovider"]
        command += [
            f"--timeout={_TEST}",
            f"--junitxml={report}",
            "-o",
            "junit_family=xunit1",
            *(only or suite.arguments),
        ]
        environment = {**os.environ, **told, "PYTHONPATH": str(TOP), "STOMPCODEC_COMPAT": mode}
        log = VENVS / f"{checkout.name}-{mode.replace(':', '-') or 'as-it-is'}.log"
        with log.open("wb") as output:
            subprocess.run(
                command, cwd=folder, env=environment, stdout=output, stderr=output, timeout=_SUITE, check=False
            )
        if not report.exists():
            sys.exit(f"the suite of {checkout.name} did not run: see {log.relative_to(TOP)}")
        return read(report)


def read(report: Path) -> dict[str, str]:
    """The outcomes in a report of pytest, by the names that it takes. What cannot be collected counts as one test."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        words = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        file = case.get("file") or ""
        module = file.removesuffix(".py").replace("/", ".")
        classes = (case.get("classname") or "").removeprefix(module).strip(".").replace(".", "::")
        name = "::".join(filter(None, (file, classes, case.get("name"))))
        found[name] = {"failure": "failed"}.get(words[0], words[0]) if words else "passed"
    return found


def compare(name: str, checkout: Path, strict: bool, only: list[str]) -> Outcome:
    """Run a suite as it is and on our codec. What differs is run again, and again: some tests watch the clock."""
    suite = SUITES[name]
    python = python_of(name, suite)
    modes = ["", f"{suite.module}:strict" if strict else suite.module]
    outcome = Outcome(*(run(python, suite, checkout, mode, only) for mode in modes))
    for _ in range(2):
        if differ := outcome.differences():
            for found, mode in zip(outcome, modes):
                again = run(python, suite, checkout, mode, differ)
                found.update({test: word for test, word in again.items() if test in differ})
    return outcome


def why(name: str, test: str) -> str | None:
    """Why this test may differ."""
    return next((reason for (peer, part), reason in EXPLAINED.items() if peer == name and part in test), None)


def table(outcomes: dict[str, Outcome]) -> list[str]:
    lines = [f"{'suite':12}{'tests':>7}{'passed as it is':>18}{'on our codec':>15}{'differ':>9}{'unexplained':>14}"]
    for name, outcome in outcomes.items():
        counts = [list(found.values()).count("passed") for found in outcome]
        differ = outcome.differences()
        left = [test for test in differ if why(name, test) is None]
        total = len(outcome.before.keys() | outcome.after.keys())
        lines.append(f"{name:12}{total:>7}{counts[0]:>18}{counts[1]:>15}{len(differ):>9}{len(left):>14}")
        for test in differ:
            words = f"{outcome.before.get(test, 'not there')} -> {outcome.after.get(test, 'not there')}"
            lines.append(f"  {test}: {words}: {why(name, test) or 'NOT EXPLAINED'}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", type=Path, metavar="DIR", help="the folder with the checkouts")
    parser.add_argument("--only", action="append", choices=list(SUITES), help="only these libraries")
    parser.add_argument(
        "--strict", action="store_true", help="with quirks=False: shows what the suites pin, and never fails"
    )
    parser.add_argument("--json", action="store_true", help="one object, for programs")
    parser.add_argument("tests", nargs="*", metavar="TEST", help="only these, as pytest names them; with one --only")
    options = parser.parse_intermixed_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the broker is ended
    if options.tests and len(options.only or ()) != 1:
        parser.error("TEST needs one --only")
    outcomes = {}
    for name in options.only or SUITES:
        if not (options.suites / name).is_dir():
            print(f"skipped: there is no {options.suites / name}", file=sys.stderr)
            continue
        outcomes[name] = compare(name, options.suites / name, options.strict, options.tests)
    if options.json:
        print(json.dumps({name: outcome._asdict() for name, outcome in outcomes.items()}))
    else:
        print("\n".join(table(outcomes)))
    differ = [(name, test) for name, outcome in outcomes.items() for test in outcome.differences()]
    left = [test for name, test in differ if why(name, test) is None and not options.strict]
    return 1 if left or not outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
