"""Run the session scenarios of a folder against our broker, over TCP and over WebSocket.

The broker is started once for the scenarios that need no feature, with examples/brokers/default.toml, and once for each
feature that has a config there. A scenario with several features runs with the config of its first one.

Usage: scenarios.py [FOLDER ...]           tests/scenarios by default
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
TESTS = TOP / "tests"
CONFIGS = TOP / "examples" / "brokers"
RUNNER = TESTS / "run_scenarios.py"
DEFAULT = "default"

sys.path.insert(0, str(TESTS))

from crash.process import BrokerProcess


def by_config(folders: list[Path]) -> dict[str, dict[str, list[dict[str, object]]]]:
    """Config -> topic -> scenarios."""
    groups: dict[str, dict[str, list[dict[str, object]]]] = {}
    for folder in folders:
        files = sorted(folder.glob("*.json"))
        if not files:
            sys.exit(f"{folder}: no scenarios there")
        for path in files:
            for scenario in json.loads(path.read_text(encoding="utf-8"))["scenarios"]:
                features = scenario.get("features") or [DEFAULT]
                groups.setdefault(features[0], {}).setdefault(path.stem, []).append(scenario)
    return groups


def write(group: dict[str, list[dict[str, object]]], folder: Path) -> list[str]:
    """The scenarios of a group as a folder of their own; returns the options for their features."""
    features = set()
    for topic, scenarios in group.items():
        (folder / f"{topic}.json").write_text(json.dumps({"format": 1, "topic": topic, "scenarios": scenarios}))
        for scenario in scenarios:
            features.update(scenario.get("features", []))
    return [option for feature in sorted(features) for option in ("--feature", feature)]


def run(folder: Path, port: int, options: list[str]) -> tuple[int, int]:
    """Passed and failed; the runner's lines are printed."""
    command = [sys.executable, str(RUNNER), "--port", str(port), *options, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    print("".join(line for line in done.stdout.splitlines(keepends=True) if line.startswith(("FAIL", "     "))), end="")
    found = re.search(r"^(\d+) passed, (\d+) failed$", done.stdout, re.MULTILINE)
    if found is None:
        print(done.stderr, end="", file=sys.stderr)
        return 0, 1
    return int(found[1]), int(found[2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folders", nargs="*", type=Path, default=[TESTS / "scenarios"], metavar="FOLDER")
    parser.add_argument("--jobs", type=int, default=4, help="scenarios run at once")
    parser.add_argument("--only", metavar="FEATURE", help=f"those of one config; {DEFAULT} for no feature")
    options = parser.parse_args()
    passed = failed = skipped = 0
    for name, group in sorted(by_config(options.folders).items(), key=lambda item: (item[0] != DEFAULT, item[0])):
        count = sum(map(len, group.values()))
        config = CONFIGS / f"{name}.toml"
        if options.only not in (None, name):
            continue
        if not config.is_file():
            print(f"{name:24}{count:4} skipped: there is no {config.relative_to(TOP)}")
            skipped += count
            continue
        with tempfile.TemporaryDirectory() as scratch, BrokerProcess(Path(scratch) / "broker", config=config) as broker:
            chosen = ["--jobs", str(options.jobs), *write(group, Path(scratch))]
            for wire, port, more in (("TCP", broker.port, []), ("WebSocket", broker.ws_port, ["--ws", "/"])):
                good, bad = run(Path(scratch), port, [*chosen, *more])
                print(f"{name:24}{wire:12}{good:4} passed, {bad} failed", flush=True)
                passed, failed = passed + good, failed + bad
    if skipped:
        print(f"{skipped} skipped")
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
