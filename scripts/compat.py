"""The own suites of other libraries: as they are, and on our codec. `make interop SUITES=DIR`.

DIR holds a checkout of each: DIR/stomp.py, DIR/stompman (with faststream-stomp) and DIR/django-stomp. Others are
skipped. The library under test is the newest release in the registry, in an environment of its own in build/compat.
Where a suite wants a broker, it is ours, in each dialect that the suite is meant for. Logs are in build/compat/logs.

Exit status 1: a test has another outcome on our codec, or there is nothing to run. 2: a suite did not run to its end.
"""

import argparse
import contextlib
import signal
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]

sys.path[0] = str(TOP / "tests")  # for the packages crash and interop; this file has the name of another

from crash.process import BrokerProcess
from interop.suites import SUITES, VENVS, DidNotRun, Place, checkout_of, python_of, run_suite

#: Test -> "passed", "failed", "error" or "skipped".
Outcomes = dict[str, str]


def run(python: str, name: str, checkout: Path, mode: str, only: list[str], dialect: str, turn: int) -> Outcomes:
    """Run a suite; DidNotRun without an outcome. Mode "" leaves the library as it is."""
    suite, log = SUITES[name], VENVS / "logs" / f"{name}-{dialect}-{mode.replace(':', '-') or 'as-it-is'}-{turn}.log"
    with contextlib.ExitStack() as stack:
        place, folder = None, Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if suite.port is not None:
            config, flags = TOP / "examples" / "brokers" / f"{dialect}.toml", ("--port", str(suite.port))
            process = BrokerProcess(folder / "broker", memory=True, flags=flags, config=config)
            broker = stack.enter_context(process)
            place = Place("127.0.0.1", broker.port, broker.ws_port)
        return run_suite(python, suite, checkout, mode, only, place, folder / "suite", log)


def differences(before: Outcomes, after: Outcomes) -> list[str]:
    return sorted(test for test in before.keys() | after.keys() if before.get(test) != after.get(test))


def compare(name: str, checkout: Path, dialect: str = "default", strict: bool = False) -> tuple[Outcomes, Outcomes]:
    """Run a suite as it is and on our codec. What differs is run again, and again: some tests watch the clock."""
    python, modes = python_of(name, SUITES[name]), ("", SUITES[name].module + ":strict" * strict)
    before, after = (run(python, name, checkout, mode, [], dialect, 1) for mode in modes)
    for turn in (2, 3):
        if differ := differences(before, after):
            for found, mode in zip((before, after), modes):
                again = run(python, name, checkout, mode, differ, dialect, turn)
                found.update({test: word for test, word in again.items() if test in differ})
    return before, after


def shown(label: str, before: Outcomes, after: Outcomes) -> list[str]:
    """Return the lines of a suite: its counts, and what differs."""
    passed, differ = ([*found.values()].count("passed") for found in (before, after)), differences(before, after)
    total, (was, now) = len(before.keys() | after.keys()), passed
    line = f"{label:28}{total:6} tests, {was} passed as it is, {now} on our codec, {len(differ)} differ"
    return [line, *(f"  {test}: {before.get(test, '-')} -> {after.get(test, '-')}" for test in differ)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", type=Path, metavar="DIR", help="the folder with the checkouts")
    parser.add_argument("--strict", action="store_true", help="with quirks=False: shows what the suites pin")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the broker is ended
    lines, status, some = [], 0, False
    for name in SUITES:
        checkout = checkout_of(name, options.suites)
        if isinstance(checkout, str):
            print(f"skipped: {checkout}", file=sys.stderr)
            continue
        for dialect in SUITES[name].dialects:
            label, some = f"{name} ({dialect})", True
            try:
                outcome = compare(name, checkout, dialect, options.strict)
            except DidNotRun as error:
                lines, status = [*lines, f"{label:28}CRASHED: {error}"], 2
                continue
            lines += shown(label, *outcome)
            status = max(status, int(bool(differences(*outcome))))
    print("\n".join(lines))
    return status if some else 1


if __name__ == "__main__":
    sys.exit(main())
