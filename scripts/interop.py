"""Other people's clients, our client, Spark and our tools against brokers: tables of real runs. `make interop`.

Clients that pip and npm have are installed into build/interop when they are needed first; docs/development.md names the
packages of Debian that have the others.

Brokers are started here: ours, those of Debian's packages, and those of scripts/peers that can run here. Or they run
already: --broker NAME=URL takes any of them, with user, passcode, virtual host and TLS
in the URL, as in rabbitmq-4.2=stomp+ssl://user:passcode@host:61614/vhost. A second URL with the same NAME gives its
WebSocket: rabbitmq-4.2=wss://host:15673/ws. Exit status: 0 all passed, 1 a check failed, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import logging
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterable
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT / "tests")  # for the package interop; this file has its name

from interop.brokers import BROKERS, UNKNOWN, server_of
from interop.checks import CHECKS
from interop.driver import Failed, NotThere, Target
from interop.fields import FIELDS, run_fields
from interop.peer_brokers import NOT_WHOLE, PEER_BROKERS, PeerBroker
from interop.rows import FOLDER, OTHERS, OURS, Row
from interop.run import Outcome, run_rows
from interop.running import BadAddress, Running, named
from interop.spark_rows import SPARK_CHECKS, missing, run_spark, sparks
from interop.through import THROUGH, Through, run_through
from interop.tools import TOOLS, run_tool

PYTHON = ("stomp-py", "stompman", "aiostomp", "websockets", "proxy.py", "sockjs")
NODE = ("@stomp/stompjs", "ws")
#: Name -> what makes a broker that is started here.
STARTED: dict[str, Callable[[], Any]] = {**BROKERS, **PEER_BROKERS}
MARKS = {"ok": "ok", "FAIL": "FAIL", "n/a": "-"}
_PAGE = """\
# Interoperability

Written by `python scripts/interop.py --markdown docs/interop.md`. Each check is a real run of that client, driven by a
program of `tests/interop/clients`: {checks}.
Checks that did not pass, and do not FAIL, are those that the client, its version of STOMP or the broker cannot do: the
table says why, but not that STOMP 1.0 has no NACK and no heart-beats.
`ws` is STOMP over WebSocket, the rest TCP; `chromium` is stompjs in headless Chromium; `sync` and `asyncio`
are the interfaces of `stompcodec.client`. Its dialects are the fields of the [table of brokers](brokers.md).
Clients for which there is nothing to check, such as WebSocket where a broker has none, are left out.

`--broker NAME=URL` runs the checks against your broker.

"""
#: What the head of the page says once.
_SAID = ("1.0 has no NACK", "1.0 has no heart-beats")
_FIELDS_TITLE = "Our client's dialects, field by field"
_TOOLS_TITLE = "What the command line and middleware do with real brokers"
Outcomes = dict[str, dict[str, Outcome]]
#: Broker -> its version, as it says itself.
SERVERS: dict[str, str] = {}
#: Broker -> how the proxies in front of it ended.
PROXIES: dict[str, Outcome] = {}


class Section(NamedTuple):
    """One table."""

    title: str
    outcomes: Outcomes
    head: str = "client"
    """The heading of the first column."""


def install_clients() -> None:
    """Install the clients that pip and npm have into FOLDER. What fails is said, and tried again the next time."""
    if not (FOLDER / "venv").exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        venv.create(FOLDER / "venv", with_pip=True)
    pip = [str(FOLDER / "venv/bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(FOLDER / "node")]
    done = [_call([*pip, package]) for package in PYTHON]
    if all([*done, shutil.which("npm") is not None and _call([*npm, *NODE])]):
        (FOLDER / "ready").write_text(_packages(), encoding="utf-8")


def _packages() -> str:
    return "\n".join((*PYTHON, *NODE)) + "\n"


def ready() -> bool:
    """Return whether all packages of the present list are installed."""
    file = FOLDER / "ready"
    return file.exists() and file.read_text(encoding="utf-8") == _packages()


def _call(command: list[str]) -> bool:
    print("+", " ".join(command), flush=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print("  failed:", (done.stderr or done.stdout).strip().splitlines()[-1:] or "no word")
    return done.returncode == 0


def about(rows: list[Row]) -> dict[str, str]:
    """Client -> version of its library."""
    found: dict[str, str] = {}
    for row in rows:
        if row.client in found or row.missing():
            continue
        program = row.start()
        try:
            found[row.client] = str(program.ask("about")["library"])
        except (Failed, NotThere):
            found[row.client] = "?"
        finally:
            program.kill()
    return found


def libraries() -> dict[str, str]:
    """Library -> version, for files of pytest: the proxy and the endpoint in FOLDER, OpenTelemetry here."""
    folders = [str(folder) for folder in (FOLDER / "venv").glob("lib/python*/site-packages")]
    places = {"proxy.py": folders, "sockjs": folders, "opentelemetry-sdk": sys.path}
    return {
        name: found.version
        for name, path in places.items()
        for found in itertools.islice(metadata.distributions(name=name, path=path), 1)
    }


def matrix(outcomes: Outcomes, head: str = "client") -> list[str]:
    """Return clients x checks in Markdown, or what the first column has instead of clients x what the others have."""
    heads = [name.replace("-", " ") for name in next(iter(outcomes.values()))]
    lines = [f"| {head} | {' | '.join(heads)} |", f"| --- |{' :-: |' * len(heads)}"]
    for name, row in outcomes.items():
        lines.append(f"| {name} | {' | '.join(MARKS[outcome.word] for outcome in row.values())} |")
    return [*lines, "", *(f"- {line}" for line in reasons(outcomes))]


def absent(rows: Iterable[str], checks: Iterable[str], outcome: Outcome) -> Outcomes:
    """Return the same outcome of everything, and say it."""
    print(f"skipped: {outcome.why}" if outcome.word == "n/a" else f"  FAIL {outcome.why}", flush=True)
    return {row: dict.fromkeys(checks, outcome) for row in rows}


def summed(outcomes: Outcomes) -> list[str]:
    """Return a row of Markdown, without its first cell, for all clients of a table that did alike.

    Clients for which nothing could be run have none.
    """
    alike: dict[tuple[tuple[str, str, str], ...], list[str]] = {}
    for name, row in outcomes.items():
        if any(outcome.word != "n/a" for outcome in row.values()):
            alike.setdefault(tuple((check, *outcome) for check, outcome in row.items()), []).append(name)
    lines = []
    for cells, names in alike.items():
        passed = sum(word == "ok" for _, word, _ in cells)
        why = reasons({names[0]: outcomes[names[0]]})
        rest = "; ".join(line.replace(f" of {names[0]}:", ":") for line in why if not line.endswith(_SAID))
        lines.append(f"| {', '.join(names)} | {passed} of {len(cells)} | {rest} |".replace("|  |", "| |"))
    return lines


def rows_of(sections: list[Section]) -> list[str]:
    """Return the rows of all clients; brokers with the same rows are named together."""
    same: dict[tuple[str, ...], list[str]] = {}
    for title, outcomes, head in sections:
        if head == "client":
            who, _, broker = title.partition(" against ")
            same.setdefault((who, *summed(outcomes)), []).append(broker)
    rows = []
    for (who, *clients), brokers in same.items():
        titles = [f"{who} against {', '.join(brokers)}".removesuffix(" against "), *("" for _ in clients[1:])]
        rows += [f"| {title} {row}".replace("|  |", "| |") for title, row in zip(titles, clients)]
    return rows


def counts(outcomes: list[Outcomes]) -> dict[str, int]:
    words = [outcome.word for found in outcomes for row in found.values() for outcome in row.values()]
    return {word: words.count(word) for word in ("ok", "FAIL", "n/a")}


def reasons(outcomes: Outcomes) -> list[str]:
    """Return why checks were not run or failed, and what is to be said of others: a line for each reason."""
    found: dict[tuple[str, bool], dict[str, list[str]]] = {}
    for name, row in outcomes.items():
        for check, outcome in row.items():
            if outcome.why:
                why = outcome.why.splitlines()[0][:200], outcome.word == "FAIL"
                found.setdefault(why, {}).setdefault(name, []).append(check)
    lines = []
    for (why, failed), rows in found.items():
        checks = sorted({check.replace("-", " ") for some in rows.values() for check in some})
        what = ", ".join(checks) if len(checks) < len(next(iter(outcomes.values()))) else "all checks"
        lines.append(f"{'FAIL: ' * failed}{what} of {', '.join(rows)}: {why}")
    return lines


def page(sections: list[Section], versions: dict[str, str]) -> str:
    """docs/interop.md."""
    checks = ", ".join(name.replace("-", " ") for name in CHECKS)
    lines = _PAGE.format(checks=checks).splitlines()
    texts = ", ".join(f"{name} {version}".rstrip() for name, version in versions.items())
    lines += [f"Versions on {time.strftime('%Y-%m-%d', time.localtime())}: {texts}.", ""]
    if rows := rows_of(sections):
        lines += [
            "| who against whom | clients | passed | the others, and why |",
            "| --- | --- | --- | --- |",
            *rows,
            "",
        ]
    for title, outcomes, head in sections:
        if head != "client":
            lines += [f"## {title}", "", *matrix(outcomes, head), ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def section(title: str, rows: list[Row], broker: str, checks: list[str], arguments: argparse.Namespace) -> Outcomes:
    """One table, shown at once."""
    print(f"\n{title}", flush=True)
    candidate = arguments.brokers[broker]()

    def run(target: Target) -> Outcomes:
        note(broker, candidate, target)
        return run_rows(rows, target, checks, partial(tell, arguments.verbose), arguments.jobs)

    return asked(candidate, [row.name for row in rows], checks, run)


def asked(candidate: Any, rows: list[str], checks: list[str], run: Callable[[Target], Outcomes]) -> Outcomes:
    """Return what `run` finds on a broker, or for each row and check why there is nothing; show it."""
    why = candidate.missing or ("" if rows or getattr(candidate, "whole", True) else NOT_WHOLE)
    if why:
        return absent(rows or [candidate.title], checks, Outcome("n/a", why))
    try:
        with candidate as target:
            outcomes = run(target)
    except OSError as error:
        return absent(rows or [candidate.title], checks, Outcome("FAIL", f"{candidate.title} does not answer: {error}"))
    print("\n".join(matrix(outcomes)), flush=True)
    return outcomes


def tell(verbose: bool, line: str) -> None:
    """Print the outcome of a check, unless it is ok and only failures are wanted."""
    if verbose or not line.startswith("ok"):
        print(f"  {line}", flush=True)


def through_section(title: str, rows: list[Row], broker: str, checks: list[str], given: argparse.Namespace) -> Outcomes:
    """Return the outcomes of the checks through `stompcodec proxy`, and note in PROXIES how its processes ended."""
    print(f"\n{title}", flush=True)
    through, names = Through(given.brokers[broker]()), [row.name for row in rows]
    PROXIES[broker] = Outcome("n/a", through.missing)
    if through.missing:
        return absent(names, checks, PROXIES[broker])
    try:
        outcomes = run_through(rows, through, checks, partial(tell, given.verbose), given.jobs)
    except OSError as error:
        PROXIES[broker] = Outcome("FAIL", str(error))
        return absent(names, checks, PROXIES[broker])
    PROXIES[broker] = Outcome("FAIL", "; ".join(through.trouble)) if through.trouble else Outcome("ok")
    print("\n".join(matrix(outcomes)), flush=True)
    return outcomes


def tools_section(title: str, arguments: argparse.Namespace) -> Outcomes:
    """Results of the files in `interop.tools`, with the brokers that are started here, and how the proxies ended."""
    names = {broker: make().title for broker, make in arguments.brokers.items() if broker not in PEER_BROKERS}
    print(f"\n{title}", flush=True)
    found: Outcomes = {"proxy: reads all as STOMP, and ends in order": PROXIES} if PROXIES else {}
    started = [broker for broker in names if arguments.brokers[broker] in BROKERS.values()]
    for tool in TOOLS if started else ():
        if tool.clients and not ready():
            install_clients()
        with tempfile.TemporaryDirectory() as scratch:
            found |= run_tool(tool, started, Path(scratch))
    other = Outcome("n/a", "brokers by URL are not for tests that start them")
    outcomes = {row: {title: cells.get(each, other) for each, title in names.items()} for row, cells in found.items()}
    for row, cells in outcomes.items():
        for broker, outcome in cells.items():
            if outcome.why or arguments.verbose:
                print(f"  {outcome.word} {row}, {broker}: {outcome.why}".rstrip(": "), flush=True)
    if outcomes:
        print("\n".join(matrix(outcomes)), flush=True)
    return outcomes


def note(broker: str, candidate: Any, target: Target) -> None:
    """Keep what a broker says it is, for the page."""
    name, _, version = (server_of(target) if target.port else UNKNOWN).partition("/")
    if isinstance(candidate, PeerBroker):
        SERVERS[candidate.title] = "" if version == "0" else f"({name} {version})"
    elif broker in BROKERS:
        SERVERS[name] = version
    else:
        SERVERS[f"{broker}:"] = f"{name} {version}"


def spark_section(title: str, checks: list[str], arguments: argparse.Namespace) -> Outcomes:
    """Spark with each broker; one session for all."""
    print(f"\n{title}", flush=True)
    outcomes: Outcomes = {}
    with contextlib.ExitStack() as stack:
        targets = {}
        for make in arguments.brokers.values():
            candidate = make()
            title, outcomes[candidate.title] = candidate.title, {}
            why = missing() or candidate.missing or ("" if getattr(candidate, "whole", True) else NOT_WHOLE)
            if why:
                outcomes |= absent([title], checks, Outcome("n/a", why))
                continue
            try:
                targets[title] = stack.enter_context(candidate)
            except OSError as error:
                outcomes |= absent([title], checks, Outcome("FAIL", f"{title} does not answer: {error}"))
        if targets:
            outcomes |= run_spark(stack.enter_context(sparks()), targets, checks, partial(tell, arguments.verbose))
    print("\n".join(matrix(outcomes)), flush=True)
    return outcomes


def field_section(title: str, broker: str, arguments: argparse.Namespace) -> Outcomes:
    """Each field of our client's table of brokers, against the broker of that row."""
    print(f"\n{title}", flush=True)
    candidate = arguments.brokers[broker]()

    def run(target: Target) -> Outcomes:
        found = run_fields(target, FIELDS)
        for name, outcome in found.items():
            if outcome.word == "FAIL" or arguments.verbose:
                print(f"  {outcome.word} {name} {outcome.why}".rstrip(), flush=True)
        return {candidate.title: found}

    return asked(candidate, [], list(FIELDS), run)


def brokers_of(texts: list[str]) -> dict[str, Callable[[], Any]]:
    """Name -> what makes the broker, for the names and NAME=URL that were given; without any, all that can start here.

    RabbitMQ 3 of scripts/peers and that of Debian's package are the same one.

    Raises:
        BadAddress: a text is neither.
    """
    running = named([text for text in texts if "=" in text])
    found: dict[str, Callable[[], Any]] = {}
    for text in texts:
        name = text.partition("=")[0]
        if "=" not in text and name not in STARTED:
            raise BadAddress(f"no broker {name!r}: {', '.join(STARTED)} are started here; others are NAME=URL")
        found[name] = (lambda broker=running[name]: broker) if name in running else STARTED[name]
    if found:
        return found
    twins = {"rabbitmq3"} if not BROKERS["rabbitmq"]().missing else set()
    return {name: make for name, make in STARTED.items() if name not in twins}


def arguments_of() -> argparse.Namespace:
    """The command line. Wrong usage ends the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    checks, add = [*CHECKS, "proxy", "fields", "tools", *SPARK_CHECKS], parser.add_argument
    brokers = f"only these brokers: {', '.join(STARTED)}, started here, or one that runs, by its URL"
    add("--client", action="append", metavar="TEXT", help="only clients whose name holds this")
    add("--check", action="append", choices=checks, help="only these; with proxy, those of clients through it, too")
    add("--broker", action="append", default=[], metavar="NAME[=URL]", help=brokers)
    add("--wait", type=float, default=0.0, metavar="SECONDS", help="how long brokers by URL may take to start (0)")
    add("--others", action="store_true", help="other people's clients against their brokers too")
    add("--markdown", type=Path, metavar="FILE", help="write the tables there too")
    add("--jobs", type=int, default=4, help="clients at a time (4)")
    add("-v", "--verbose", action="store_true", help="say every check")
    arguments = parser.parse_args()
    try:
        arguments.brokers = brokers_of(arguments.broker)
        Running.wait = arguments.wait
    except BadAddress as error:
        parser.error(str(error))
    return arguments


def sections_of_clients(arguments: argparse.Namespace) -> tuple[list[Section], list[Row]]:
    """Clients against each broker, and through the proxy; and the clients of other people that were run."""
    checks = [name for name in CHECKS if name in (arguments.check or CHECKS)]
    proxied = "proxy" in (arguments.check or ["proxy"])
    kinds = [("Other people's clients", OTHERS), ("Our client", OURS)] if checks else []
    sections, shown = [], []

    def run(title: str, make: Callable[..., Outcomes], rows: list[Row], broker: str) -> None:
        if any(row in OTHERS for row in rows) and not ready():
            install_clients()
        sections.append(Section(title, make(title, rows, broker, checks or list(CHECKS), arguments)))
        shown.extend(row for row in rows if row in OTHERS and row not in shown)

    for broker, make in arguments.brokers.items():
        for whose, rows in kinds:
            some = chosen(rows, arguments)
            if some and (broker == "stompcodec" or rows is OURS or arguments.others):
                run(f"{whose} against {make().title}", section, some, broker)
        if proxied and broker not in PEER_BROKERS and (some := chosen(THROUGH, arguments)):
            run(f"Clients through stompcodec proxy against {make().title}", through_section, some, broker)
    return sections, shown


def chosen(rows: tuple[Row, ...], arguments: argparse.Namespace) -> list[Row]:
    return [row for row in rows if not arguments.client or any(text in row.name for text in arguments.client)]


def other_sections(arguments: argparse.Namespace) -> list[Section]:
    """The tables that have no clients in their rows."""
    sections = []
    wanted = arguments.check or ["fields", "tools", *SPARK_CHECKS]
    if "fields" in wanted and not arguments.client:
        found: Outcomes = {}
        for broker, make in arguments.brokers.items():
            found |= field_section(f"{_FIELDS_TITLE}, against {make().title}", broker, arguments)
        sections.append(Section(_FIELDS_TITLE, found))
    if "tools" in wanted and not arguments.client and (outcomes := tools_section(_TOOLS_TITLE, arguments)):
        sections.append(Section(_TOOLS_TITLE, outcomes, "what"))
    of_spark = [name for name in SPARK_CHECKS if name in wanted]
    if of_spark and (not arguments.client or any(text in "Spark" for text in arguments.client)):
        title = "Spark, from queues into tables and back"
        sections.append(Section(title, spark_section(title, of_spark, arguments), "broker"))
    return sections


def main() -> int:
    arguments = arguments_of()
    logging.disable(logging.ERROR)  # handlers that fail on purpose, connections that are lost
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that clients and brokers are ended
    start = time.monotonic()
    sections, shown = sections_of_clients(arguments)
    sections += other_sections(arguments)
    if arguments.markdown:
        tools = any(title == _TOOLS_TITLE for title, *_ in sections)
        versions = {**about(shown), **(libraries() if tools else {}), **SERVERS}
        arguments.markdown.write_text(page(sections, versions), encoding="utf-8")
    found = counts([section.outcomes for section in sections])
    print(f"\ninterop took {time.monotonic() - start:.0f} s")
    print(f"{found['ok']} passed, {found['FAIL']} failed, {found['n/a']} skipped")
    return 1 if found["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
