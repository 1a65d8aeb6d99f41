"""Run the tools that prove something, keep what they counted in proofs/, and write docs/proofs.md from it.

    python scripts/proofs.py                       write the page
    python scripts/proofs.py --check               fail if the page, or what it says of docs/interop.md, is stale
    python scripts/proofs.py run crash -- --rounds 200    run a tool with these options, and keep its figures
    python scripts/proofs.py add fuzz run.log --command "make fuzz SECONDS=900"    keep those of a run elsewhere
    python scripts/proofs.py add interop           after `make interop` has written docs/interop.md

A file of proofs/ holds all runs of one kind. A run that failed is kept, too. Commit page and files together.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import rules_page

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "proofs.md"
INTEROP = ROOT / "docs" / "interop.md"


class Kind(NamedTuple):
    """A tool whose runs are kept.

    Args:
        title: of its section.
        proves: in a sentence.
        command: runs it, without options; none for a page that another tool writes.
        pattern: of a line with figures: `count` and `what`, or `list` ("3 of this, 4 of that"); `sure` is the number of
            messages that the broker had confirmed.
    """

    title: str
    proves: str
    command: str
    pattern: str


KINDS = {
    "crash": Kind(
        "Kills and cuts",
        "Brokers and clients are killed with kill -9, connections are cut, and each message is accounted for.",
        "scripts/crash.py",
        r"^(?P<count>[\d,]+) (?P<what>.+?) in \d+ s: (?:.*?(?P<sure>\d+) (?:receipted|accepted)\b)?",
    ),
    "spark": Kind(
        "Kills under Spark",
        "Driver, JVM, recorder and broker are killed under a stream; each message is in the table once.",
        "scripts/spark_crash.py",
        r"^(?P<count>[\d,]+) (?P<what>rounds) in \d+ s: ",
    ),
    "simulation": Kind(
        "Simulation",
        "Broker, clients, disk and network run under one seed and one clock, with crashes and faults.",
        "scripts/simulate.py",
        r"^(?P<list>\d+ passed, \d+ failed; \d+ frames) in",
    ),
    "fuzz": Kind(
        "Fuzzing of the parsers",
        "Mutated inputs on every target, both backends against each other.",
        "fuzz/run.py",
        r"^(?P<list>\d+ targets, [\d,]+ executions, \d+ findings)$",
    ),
    "fuzz-tcp": Kind(
        "Fuzzing of a broker",
        "Hostile sessions on a broker process, beside pairs of clients that are checked.",
        "fuzz/tcp.py",
        r"^(?P<list>[\d,]+ hostile sessions, [\d,]+ bytes), ",
    ),
    "attacks": Kind(
        "Attacks",
        "A broker is attacked in all ways at once. Two pairs of clients beside it send messages, stored ones and plain"
        " ones, and check that each arrives.",
        "scripts/attack.py",
        r"^(?P<what>stored|plain) +(?P<count>\d+) +\d+ +\d+ ",
    ),
    "sanitizers": Kind(
        "Tests under sanitizers",
        "AddressSanitizer and UndefinedBehaviorSanitizer watch the C extensions while the tests run.",
        "",
        r"^=+ (?P<list>\d+ passed, \d+ skipped)\b",
    ),
    "mutations": Kind(
        "Planted faults",
        "A fault is planted in a copy of the package, and the tests have to notice it.",
        "scripts/mutations.py",
        r"^total +(?P<list>.+)$",
    ),
    "interop": Kind(
        "Interoperability",
        "Third-party clients against our broker, our client against other brokers: [interop.md](interop.md).",
        "",
        "",
    ),
}

#: What stands in a cell of docs/interop.md -> what it is called here.
MARKS = {"ok": "ok", "-": "without the feature", "FAIL": "failed"}


def runs_of(kind: str) -> list[dict[str, Any]]:
    """Return the runs that are kept, the oldest first."""
    path = ROOT / "proofs" / f"{kind}.json"
    runs: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    return runs


def totals_of(kind: str, output: str) -> dict[str, int]:
    r"""Return what a tool counted.

    >>> totals_of("crash", "seed 1\n20 kills in 60 s: 9 sent, 5 receipted, 0 lost\n100 cuts in 9 s: 9 accepted\n")
    {'kills': 20, 'cuts': 100, 'confirmed messages': 14}
    >>> totals_of("fuzz", "a: b\n3 targets, 1,234 executions, 1 findings\n")
    {'targets': 3, 'executions': 1234, 'findings': 1}

    Raises:
        ValueError: no line has figures: the run broke down, or prints something else by now.
    """
    totals: Counter[str] = Counter()
    sure = 0
    for match in re.finditer(KINDS[kind].pattern, output, re.MULTILINE):
        parts = match.groupdict()
        if "list" in parts:
            pairs = re.findall(r"(\d[\d,]*) ([^,;]+)", parts["list"])
        else:
            pairs = [(parts["count"], parts["what"])]
        for count, what in pairs:
            totals[what.strip()] += int(count.replace(",", ""))
        sure += int(parts.get("sure") or 0)
    if kind == "crash" and totals:
        totals["confirmed messages"] = sure
    if not totals:
        raise ValueError(f"the output has no line of figures as {KINDS[kind].command} prints them")
    return dict(totals)


def interop_of(page: str) -> tuple[dict[str, int], dict[str, dict[str, int]], str]:
    """Return the totals of docs/interop.md, those of each table, and the versions it names."""
    tables: dict[str, dict[str, int]] = {}
    for section in page.split("\n## ")[1:]:
        cells = [
            cell.strip()
            for line in section.splitlines()
            if line.startswith("|") and not re.match(r"\| *(client|:?-)", line)
            for cell in line.strip("|").split("|")[1:]
        ]
        marks = Counter(cells)
        if marks["ok"]:
            tables[section.splitlines()[0]] = {name: marks[mark] for mark, name in MARKS.items()}
    versions = re.search(r"^Versions(?: on [\d-]+)?: (.+)\.$", page, re.MULTILINE)
    totals = {name: sum(table[name] for table in tables.values()) for name in MARKS.values()}
    return totals, tables, versions[1] if versions else ""


def digest(page: str) -> str:
    """Return what tells whether tables or versions of docs/interop.md have changed."""
    lines = [line for line in page.splitlines() if line.startswith(("|", "## ", "Versions"))]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def add(kind: str, run: dict[str, Any]) -> None:
    """Keep a run, and write the page."""
    path = ROOT / "proofs" / f"{kind}.json"
    path.parent.mkdir(exist_ok=True)
    runs = sorted([*runs_of(kind), run], key=lambda each: str(each["date"]))
    path.write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")


def _figures(totals: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in totals.items())


def _row(kind: str, runs: list[dict[str, Any]]) -> str:
    total: Counter[str] = Counter()
    for run in runs[-1:] if kind == "interop" else runs:
        total.update(run["totals"])
    failed = sum(not run["passed"] for run in runs)
    name = KINDS[kind].title
    anchor = name.lower().replace(" ", "-")
    return f"| [{name}](#{anchor}) | {len(runs)} | {failed} | {_figures(total)} | {runs[-1]['date']} |\n"


def _section(kind: str, runs: list[dict[str, Any]]) -> str:
    text = f"\n## {KINDS[kind].title}\n\n{KINDS[kind].proves}\n\n"
    if kind == "interop":
        last = runs[-1]
        text += f"Last run: {last['date']}, commit {last['commit']}."
        text += f" {last['versions']}.\n\n" if last["versions"] else "\n\n"
        text += "| table | ok | without the feature | failed |\n| --- | --: | --: | --: |\n"
        for name, table in last["tables"].items():
            anchor = re.sub(r"[^\w -]", "", name.lower()).replace(" ", "-")
            text += f"| [{name}](interop.md#{anchor}) | {' | '.join(str(count) for count in table.values())} |\n"
        return text
    text += "| date | commit | command | counted | result |\n| --- | --- | --- | --- | --- |\n"
    for run in reversed(runs[-10:]):
        result = "passed" if run["passed"] else "**failed**"
        result += f"; {run['note']}" if run.get("note") else ""
        command = f"`{run['command']}`" if run["command"] else run["source"]
        text += f"| {run['date']} | {run['commit']} | {command} | {_figures(run['totals'])} | {result} |\n"
    return text


def page() -> str:
    """Return the text of the page."""
    kept = {kind: runs for kind in KINDS if (runs := runs_of(kind))}
    rules = rules_page.counts(rules_page.rules(), rules_page.proofs(ROOT / "tests"))
    proven, number = (sum(figures) for figures in zip(*rules.values()))
    text = f"""# Proofs

Written by `scripts/proofs.py` from the runs in [proofs/](../proofs): what was run, when, on which commit, and what it
counted. A run that failed stays here. Tools without a run are not listed.

| proof | runs | failed runs | counted in all of them | last run |
| --- | --: | --: | --- | --- |
{"".join(_row(kind, runs) for kind, runs in kept.items())}
Other pages say what each test proves:

- [requirements.md](requirements.md): {proven} of {number} rules of STOMP and its dialects, with their tests;
- [promises.md](promises.md): what the broker promises, with the key and the test of each promise;
- [spark-semantics.md](spark-semantics.md): what Spark gets, with the test of each promise.
"""
    for kind, runs in kept.items():
        text += _section(kind, runs)
    return text


def stale() -> list[str]:
    """Return what has to be done until the page is up to date."""
    problems = []
    runs = runs_of("interop")
    if runs and runs[-1]["digest"] != digest(INTEROP.read_text(encoding="utf-8")):
        problems.append("docs/interop.md has changed: run python scripts/proofs.py add interop")
    if not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != page():
        problems.append("docs/proofs.md is stale: run python scripts/proofs.py")
    return problems


def _head() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def run(kind: str, options: list[str]) -> int:
    """Run the tool of a kind, show what it prints, and keep what it counted."""
    command = [KINDS[kind].command, *options]
    start, lines = time.monotonic(), []
    with subprocess.Popen([sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, text=True) as tool:
        assert tool.stdout is not None
        for line in tool.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    seconds = round(time.monotonic() - start)
    totals = totals_of(kind, "".join(lines))
    date = datetime.now(timezone.utc).date().isoformat()
    kept = {"date": date, "commit": _head(), "command": " ".join(command), "seconds": seconds}
    add(kind, {**kept, "passed": tool.returncode == 0, "totals": totals})
    return tool.returncode


def added(arguments: argparse.Namespace) -> int:
    """Keep a run that is over."""
    told = {"date": arguments.date, "commit": arguments.commit or _head(), "passed": not arguments.failed}
    if arguments.note:
        told["note"] = arguments.note
    if arguments.kind == "interop":
        text = INTEROP.read_text(encoding="utf-8")
        totals, tables, versions = interop_of(text)
        found = {"totals": totals, "tables": tables, "versions": versions, "digest": digest(text)}
        add("interop", {**told, "passed": not totals["failed"], **found})
        return 0
    if arguments.log is None or not arguments.command:
        print("name the file with what it printed, and --command")
        return 2
    output = sys.stdin.read() if arguments.log == "-" else Path(arguments.log).read_text(encoding="utf-8")
    add(arguments.kind, {**told, "command": arguments.command, "totals": totals_of(arguments.kind, output)})
    return 0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is stale")
    verbs = parser.add_subparsers(dest="verb")
    runner = verbs.add_parser("run", help="run a tool, and keep its figures")
    runner.add_argument("kind", choices=[kind for kind in KINDS if KINDS[kind].command])
    runner.add_argument("options", nargs="*", help="of the tool, after --")
    keeper = verbs.add_parser("add", help="keep the figures of a run that is over")
    keeper.add_argument("kind", choices=KINDS)
    keeper.add_argument("log", nargs="?", help="what the tool printed; - is standard input")
    keeper.add_argument("--command", help="as it was typed")
    keeper.add_argument("--commit", help="of the tree that ran; default: HEAD")
    keeper.add_argument("--date", default=datetime.now(timezone.utc).date().isoformat(), help="YYYY-MM-DD")
    keeper.add_argument("--note", help="what to know about it")
    keeper.add_argument("--failed", action="store_true", help="the tool failed")
    parsed = parser.parse_args(arguments)
    if parsed.verb == "run":
        return run(parsed.kind, parsed.options)
    if parsed.verb == "add":
        return added(parsed)
    if parsed.check:
        problems = stale()
        print(*problems, sep="\n" if problems else "", end="\n" if problems else "")
        return 1 if problems else 0
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
