"""Run tests/interop and make tables of what clients, brokers, Spark and our tools do together. `make interop`.

    python scripts/interop.py [--broker NAME[=URL]] [--markdown FILE] [option of pytest ...]

`make interop` installs the clients that pip, npm and Composer have; docs/development.md says where the others are.

Brokers are started here: ours, and those of scripts/peers that can run here. --broker NAME=URL takes one that runs:
rabbitmq-4.2=stomp+ssl://user:passcode@host:61614/vhost. A second URL with the same NAME gives its WebSocket:
rabbitmq-4.2=wss://host:15673/ws. Exit status: 0 all passed, 1 a check failed, 2 or more: pytest could not run them.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT / "tests")  # for the package interop; this file has its name

from interop import brokers
from interop.checks import CHECKS
from interop.driver import Failed, NotThere
from interop.rows import FOLDER, OTHERS, Row
from interop.run import Outcome, Outcomes

#: What the head of the page says once.
_SAID = ("1.0 has no NACK", "1.0 has no heart-beats")
MARKS = {"ok": "ok", "FAIL": "FAIL", "n/a": "-"}
HERE = ROOT / "tests" / "interop"
#: The broker's table has imported stompcodec before pytest could rewrite its assertions.
QUIET = ("-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")
#: Files of tools -> the beginning of their rows. Their tests name a broker, or "all brokers", or run with ours.
TOOLS = {
    "test_queue_tools.py": "queue tools",
    "test_proxies.py": "HTTP proxies and SockJS",
    "test_tracing.py": "traces",
    "test_bridge.py": "bridge",
}
AT = ("stompcodec", "rabbitmq", "activemq")  # the columns for tools
TITLES = {
    "test_other_peoples_clients": "Other people's clients against {}",
    "test_our_client": "Our client against {}",
    "test_through_the_proxy": "Clients against {}, through stompcodec proxy",
    "test_the_table_of_dialects": "Our client's dialects, field by field, against {}",
    "test_spark": "Spark, from queues into tables and back",
}
_PAGE = """\
# Interoperability

Written by `python scripts/interop.py --markdown docs/interop.md`. Each check is a real run of that client, driven by a
program of `tests/interop/clients`: {checks}.
Checks that did not pass, and do not FAIL, are those that the client, its version of STOMP or the broker cannot do: the
table says why, but not that STOMP 1.0 has no NACK and no heart-beats.
`ws` is STOMP over WebSocket, the rest TCP; `chromium` is stompjs in headless Chromium; `sync` and `asyncio`
are the interfaces of `stompcodec.client`. Its dialects are the fields of the
[table of brokers](broker.md#differences-between-brokers).
Clients for which there is nothing to check, such as WebSocket where a broker has none, are left out.

`--broker NAME=URL` runs the checks against your broker.

"""


class Tables:
    """A plugin of pytest that puts the outcome of each test into a table."""

    def __init__(self) -> None:
        #: Title -> the first column -> check -> outcome; for tools, title -> what -> broker -> outcome.
        self.clients: dict[str, Outcomes] = {}
        self.spark: Outcomes = {}
        self.tools: Outcomes = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out the tests of tools with brokers that were not chosen, and those of the harness."""

        def is_wanted(item: Any) -> bool:
            if item.originalname in TITLES:
                return item.callspec.params["broker"] is not None  # None: it is for our broker, which was not chosen
            return item.path.name in TOOLS and _at(item.name) <= set(brokers.BROKERS)

        items[:] = filter(is_wanted, items)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: pytest.CallInfo[None]) -> Any:
        report = yield
        if report.when == "call" or not report.passed:
            word = {"passed": "ok", "failed": "FAIL", "skipped": "n/a"}[report.outcome]
            error = call.excinfo and call.excinfo.value
            why = "" if error is None else f"{getattr(error, 'msg', error)}"
            self.enter(item, Outcome(word, why))  # type: ignore[arg-type]
        return report

    def enter(self, item: Any, outcome: Outcome) -> None:
        if item.originalname in TITLES:
            parameters = item.callspec.params
            title, check = parameters["broker"].title, parameters["check"]
            name = parameters["row"].name if "row" in parameters else title
            found = self.clients.setdefault(TITLES[item.originalname].format(title), {})
            (self.spark if item.originalname == "test_spark" else found).setdefault(name, {})[check] = outcome
            return
        words = item.originalname.removeprefix("test")
        what = re.sub(r"(_of|_at|_by)?_(rabbitmq|activemq)(?=_|$)", "", words).strip("_").replace("_", " ")
        row = self.tools.setdefault(f"{TOOLS[item.path.name]}: {what}", dict.fromkeys(AT, Outcome("n/a")))
        for broker in _at(item.name):
            if row[broker].word != "FAIL" and outcome.word != "n/a":  # a cell stands for all parameters of a test
                row[broker] = outcome


def _at(name: str) -> set[str]:
    """Return the brokers that a test of a tool is for."""
    return set(AT) if "all_brokers" in name else {next((broker for broker in AT if broker in name), "stompcodec")}


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
        for found in [*metadata.distributions(name=name, path=path)][:1]
    }


def matrix(outcomes: Outcomes, head: str) -> list[str]:
    """Return clients x checks in Markdown, or what the first column has instead of clients x what the others have."""
    heads = [name.replace("-", " ") for name in next(iter(outcomes.values()))]
    lines = [f"| {head} | {' | '.join(heads)} |", f"| --- |{' :-: |' * len(heads)}"]
    lines += [f"| {name} | {' | '.join(MARKS[each.word] for each in row.values())} |" for name, row in outcomes.items()]
    return [*lines, "", *(f"- {line}" for line in reasons(outcomes))]


def summed(outcomes: Outcomes) -> list[str]:
    """Return a row of Markdown, without its first cell, for all clients that did alike, if anything could be run."""
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


def rows_of(clients: dict[str, Outcomes]) -> list[str]:
    """Return the rows of all clients; brokers with the same rows are named together."""
    same: dict[tuple[str, ...], list[str]] = {}
    for title, outcomes in clients.items():
        if outcomes:
            who, _, broker = title.partition(" against ")
            same.setdefault((who, *summed(outcomes)), []).append(broker)
    rows = []
    for (who, *cells), names in same.items():
        titles = [f"{who} against {', '.join(names)}".removesuffix(" against "), *("" for _ in cells[1:])]
        rows += [f"| {title} {row}".replace("|  |", "| |") for title, row in zip(titles, cells)]
    return rows


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


def page(tables: Tables, versions: dict[str, str]) -> str:
    """docs/interop.md."""
    lines = _PAGE.format(checks=", ".join(CHECKS).replace("-", " ")).splitlines()
    texts = ", ".join(f"{name} {version}".rstrip() for name, version in versions.items())
    lines += [f"Versions on {time.strftime('%Y-%m-%d', time.localtime())}: {texts}.", ""]
    if rows := rows_of(tables.clients):
        lines += ["| who against whom | clients | passed | the others, and why |", "| --- " * 4 + "|", *rows, ""]
    if tables.tools:
        titles = {name: broker.title for name, broker in brokers.STARTED.items()}
        cells = {name: {titles[at]: outcome for at, outcome in row.items()} for name, row in tables.tools.items()}
        lines += ["## What the command line and middleware do with real brokers", "", *matrix(cells, "what"), ""]
    if tables.spark:
        lines += [f"## {TITLES['test_spark']}", "", *matrix(tables.spark, "broker"), ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def versions_of(tables: Tables) -> dict[str, str]:
    shown = {name for outcomes in tables.clients.values() for name in outcomes}
    found = about([row for row in OTHERS if row.name in shown]) | (libraries() if tables.tools else {})
    return found | {f"{title}:": server.replace("/", " ") for title, server in brokers.SERVERS.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = f"only these brokers: {', '.join(brokers.STARTED)}, started here, or one that runs, by its URL"
    parser.add_argument("--broker", action="append", default=[], metavar="NAME[=URL]", help=known)
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there")
    arguments, rest = parser.parse_known_args()
    try:
        chosen = brokers.named(arguments.broker)
    except ValueError as error:
        parser.error(str(error))
    if not chosen:  # RabbitMQ 3 of scripts/peers and that of Debian's package are the same one
        twin = "" if brokers.STARTED["rabbitmq"].missing() else "rabbitmq3"
        chosen = {name: broker for name, broker in brokers.STARTED.items() if name != twin}
    brokers.BROKERS.clear()
    brokers.BROKERS.update(chosen)
    tables = Tables()
    files = [str(HERE / name) for name in ("test_clients.py", *(TOOLS if set(AT) & set(chosen) else ()))]
    status = pytest.main([*files, "--peers", "-n", "0", "-q", *QUIET, *rest], plugins=[tables])
    if arguments.markdown:
        arguments.markdown.write_text(page(tables, versions_of(tables)), encoding="utf-8")
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
