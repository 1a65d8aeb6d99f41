"""The own suites of other libraries: as they are, and on our codec. `make interop SUITES=DIR`.

DIR holds a checkout of each: DIR/stomp.py, DIR/stompman (with faststream-stomp) and DIR/django-stomp. What is not there
is skipped, and said. The library under test is the newest release in the registry, in an environment of its own in
build/compat; only its tests are taken from the checkout. Where a suite wants a broker, it is ours, in a process of its
own, and in each dialect that the suite is meant for.

Every run has a log of its own in build/compat/logs. A suite that crashed is told from one that differs, and is not
compared.

Exit status 1: a test has another outcome on our codec, and `EXPLAINED` does not say why; or there is nothing to run. 2:
a suite did not run to its end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).resolve().parents[1]

sys.path[0] = str(TOP / "tests")  # for the packages crash and interop; this file has the name of another

from crash.process import BrokerProcess
from interop.suites import SUITES, VENVS, DidNotRun, Place, Suite, checkout_of, python_of, run_suite

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


@contextlib.contextmanager
def broker(suite: Suite, dialect: str, folder: Path) -> Iterator[Place | None]:
    """Our broker in a dialect, where the suite wants one."""
    if suite.port is None:
        yield None
        return
    config = TOP / "examples" / "brokers" / f"{dialect}.toml"
    flags = ("--port", str(suite.port))
    with BrokerProcess(folder / "broker", memory=True, flags=flags, config=config) as running:
        yield Place("127.0.0.1", running.port, running.ws_port)


def run(
    python: str, name: str, checkout: Path, mode: str, only: list[str], dialect: str = "default", turn: int = 1
) -> dict[str, str]:
    """Test -> outcome. Mode "" leaves the library as it is.

    Raises:
        DidNotRun: there is no outcome.
    """
    words = [name, *([dialect] if dialect != "default" else []), mode.replace(":", "-") or "as-it-is", str(turn)]
    log = VENVS / "logs" / f"{'-'.join(words)}.log"
    with tempfile.TemporaryDirectory() as scratch, broker(SUITES[name], dialect, Path(scratch)) as place:
        return run_suite(python, SUITES[name], checkout, mode, only, place, Path(scratch, "suite"), log)


def compare(name: str, checkout: Path, strict: bool, only: list[str], dialect: str = "default") -> Outcome:
    """Run a suite as it is and on our codec. What differs is run again, and again: some tests watch the clock.

    Raises:
        DidNotRun: one of the runs has no outcome.
    """
    module = SUITES[name].module
    python = python_of(name, SUITES[name])
    modes = ["", f"{module}:strict" if strict else module]
    outcome = Outcome(*(run(python, name, checkout, mode, only, dialect, 1) for mode in modes))
    for turn in (2, 3):
        if differ := outcome.differences():
            for found, mode in zip(outcome, modes):
                again = run(python, name, checkout, mode, differ, dialect, turn)
                found.update({test: word for test, word in again.items() if test in differ})
    return outcome


def why(name: str, test: str) -> str | None:
    """Why this test may differ."""
    library = name.split()[0]
    return next((reason for (peer, part), reason in EXPLAINED.items() if peer == library and part in test), None)


def table(outcomes: dict[str, Outcome]) -> list[str]:
    lines = [f"{'suite':28}{'tests':>7}{'passed as it is':>18}{'on our codec':>15}{'differ':>9}{'unexplained':>14}"]
    for name, outcome in outcomes.items():
        counts = [list(found.values()).count("passed") for found in outcome]
        differ = outcome.differences()
        left = [test for test in differ if why(name, test) is None]
        total = len(outcome.before.keys() | outcome.after.keys())
        lines.append(f"{name:28}{total:>7}{counts[0]:>18}{counts[1]:>15}{len(differ):>9}{len(left):>14}")
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
    outcomes: dict[str, Outcome] = {}
    crashed: dict[str, str] = {}
    for name in options.only or SUITES:
        checkout = checkout_of(name, options.suites)
        if isinstance(checkout, str):
            print(f"skipped: {checkout}", file=sys.stderr)
            continue
        for dialect in SUITES[name].dialects:
            label = name if dialect == "default" else f"{name} ({dialect})"
            try:
                outcomes[label] = compare(name, checkout, options.strict, options.tests, dialect)
            except DidNotRun as error:
                crashed[label] = str(error)
    if options.json:
        found = {name: outcome._asdict() for name, outcome in outcomes.items()}
        print(json.dumps({**found, **{name: {"crashed": why} for name, why in crashed.items()}}))
    else:
        print("\n".join([*table(outcomes), *(f"{name:28}CRASHED: {why}" for name, why in crashed.items())]))
    return status(outcomes, bool(crashed), options.strict)


def status(outcomes: dict[str, Outcome], crashed: bool, strict: bool) -> int:
    """The exit status."""
    if crashed:
        return 2
    if not outcomes:
        return 1
    differ = [(name, test) for name, outcome in outcomes.items() for test in outcome.differences()]
    return 1 if [test for name, test in differ if why(name, test) is None and not strict] else 0


if __name__ == "__main__":
    sys.exit(main())
