"""Play scenarios on another broker and on ours in its dialect, and compare the frames that come. `make differential`.

    python tests/interop/differential.py BROKER[=URL] [--filter TEXT] [--record] [--recorded]

Both play tests/scenarios and habits.json. Compared is what the frames mean: ids, times and the texts of errors are
masked; RECEIPTs and the MESSAGEs of each subscription keep their order, which is free between them. differences.tsv has
the differences that there may be; exit status 1: there is another one. --record keeps the answers of the broker, with
which the test suite compares ours.
"""

from __future__ import annotations

import argparse
import csv
import difflib
import fnmatch
import functools
import json
import lzma
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)] * (__name__ == "__main__")

import run_scenarios
from crash.process import BrokerProcess
from patience import patience

ANSWERS = HERE / "answers"
#: Broker -> our configuration in its place.
CONFIGS = {
    "activemq": {"dialect": "activemq"},
    "artemis": {"dialect": "artemis", "anycast_prefix": "/queue/", "multicast_prefix": "/topic/"},
    "artemis-plain": {"dialect": "artemis"},
    "rabbitmq": {"dialect": "rabbitmq"},
}
#: Frames that come at one time, and how many seconds one is waited for.
JOBS, WAIT = 32, 1.0
_MASKED = ("message-id", "ack", "session", "server", "timestamp", "reply-to-id", "original-message-id")
_MASKS = (
    (re.compile(r"(?:/remote-temp-|/temp-|/reply-)(queue|topic)/.*|amq\.gen-.*"), "TEMPORARY"),
    (re.compile(r"[0-9]{13}"), "TIME"),
)
#: What an ERROR may say in its headers is not compared.
_OF_ERRORS = ("receipt-id",)
_AFTER = "after our ERROR"
Frame = list[Any]  # Command, headers and body, masked; or one word, such as "closed".
Answers = dict[str, list[Frame]]  # By connection.


class Watch(run_scenarios.Run):
    """A scenario that is played to its end, whatever comes; `seen` has that."""

    def __init__(self, scenario: dict[str, Any], options: Any) -> None:
        super().__init__(scenario, options)
        self.seen: Answers = {}
        #: Connections on which the latest wait was in vain: the next one is shorter.
        self.silent: set[str] = set()

    def note(self, name: str, frame: Any) -> None:
        if frame is not None:
            self.seen.setdefault(name, []).append([frame] if isinstance(frame, str) else self.masked(*frame))

    def masked(self, command: str, pairs: list[tuple[str, str]], body: bytes) -> Frame:
        headers: dict[str, str] = {}
        for name, value in pairs:
            headers.setdefault(name, "*" if name in _MASKED else self.plain(value))
        if command == "ERROR":
            return [command, {name: headers[name] for name in _OF_ERRORS if name in headers}, ""]
        text = body.decode("utf-8", "backslashreplace").replace(self.names["id"], "ID")
        return [command, headers, text if len(text) < 100 else f"{text[:20]}... {len(body)} bytes"]

    def plain(self, text: str) -> str:
        text = text.replace(self.names["id"], "ID")
        for pattern, mask in _MASKS:
            text = pattern.sub(mask, text)
        return text

    def next(self, name: str, seconds: float) -> Any:
        frame = self.connections[name].frame(seconds / 4 if name in self.silent else seconds)
        (self.silent.add if frame is None else self.silent.discard)(name)
        self.note(name, frame)
        return frame

    def do_expect(self, step: dict[str, Any]) -> None:
        """Take frames until the one that is wanted."""
        while (frame := self.next(step["expect"], self.options.timeout)) is not None:
            if frame[0] == step["command"]:
                for header, variable in step.get("save", {}).items():
                    self.names[variable] = run_scenarios.first(frame[1], header) or ""
                return

    def do_expect_set(self, step: dict[str, Any]) -> None:
        for _ in step["frames"]:
            self.next(step["expect_set"], self.options.timeout)

    def do_expect_nothing(self, step: dict[str, Any]) -> None:
        self.drain(step["expect_nothing"], step.get("for", 0.7))

    def drain(self, name: str, seconds: float) -> None:
        until = time.monotonic() + seconds * self.options.timeout / WAIT  # a busy machine is slower
        while (left := until - time.monotonic()) > 0 and not self.connections[name].closed:
            self.note(name, self.connections[name].frame(left))

    def do_expect_close(self, step: dict[str, Any]) -> None:
        self.drain(step["expect_close"], step.get("timeout", 2 * WAIT))

    def do_expect_open(self, step: dict[str, Any]) -> None:
        name, receipt = step["expect_open"], f"open-{time.monotonic_ns()}"
        headers = [("destination", self.names["queue"] + "-open"), ("receipt", receipt)]
        self.connections[name].send_frame("SEND", headers, b"")
        while frame := self.connections[name].frame(self.options.timeout):
            if frame[0] == "RECEIPT" and run_scenarios.first(frame[1], "receipt-id") == receipt:
                return self.note(name, "open")
            self.note(name, frame)

    def play(self, steps: list[dict[str, Any]]) -> Answers:
        try:
            for step in steps:
                try:
                    self.step(step)
                except (run_scenarios.Failed, OSError, KeyError, ValueError) as error:
                    connection = next((step[a] for a in self.ACTIONS if a in step), "?")
                    self.note(str(connection), f"{type(error).__name__}")
            self.finish()
        finally:
            for connection in self.connections.values():
                connection.close()
        return self.seen

    def finish(self) -> None:
        """Take what is still on its way, and see which connections the broker has ended."""
        for name, connection in self.connections.items():
            ended = any(frame[0] == "ERROR" for frame in self.seen.get(name, []))
            if connection.closed and connection.socket.fileno() < 0:
                continue  # by the scenario itself
            self.drain(name, WAIT if ended else 0.3)
            if connection.closed:
                self.note(name, "closed")


def scenarios(text: str = "") -> Iterator[dict[str, Any]]:
    for path in [*sorted((HERE.parent / "scenarios").glob("*.json")), HERE / "habits.json"]:
        for scenario in json.loads(path.read_text(encoding="utf-8"))["scenarios"]:
            if text in f"{scenario['id']} {scenario['title']}":
                yield scenario


def answers_of(host: str, port: int, wait: float, text: str = "") -> dict[str, Answers]:
    """Play the scenarios, and return what came in each."""
    options = argparse.Namespace(
        **{"host": host, "port": port, "ws": None, "timeout": wait, "login": "guest", "passcode": "guest"},
        **{"vhost": "/", "queue_prefix": "/queue/d-", "topic_prefix": "/topic/d-"},
    )
    chosen = list(scenarios(text))
    with ThreadPoolExecutor(JOBS) as pool:
        found = pool.map(lambda each: Watch(each, options).play(each["steps"]), chosen)
        return dict(zip((each["id"] for each in chosen), found))


def ours(broker: str, text: str = "") -> dict[str, Answers]:
    """Return the answers of our broker in the place of another one."""
    with (
        tempfile.TemporaryDirectory(prefix="stompcodec-differential-") as folder,
        BrokerProcess(Path(folder), memory=True, fields=CONFIGS[config_of(broker)]) as process,
    ):
        return answers_of("127.0.0.1", process.port, min(4 * WAIT, patience(WAIT)), text)


def config_of(broker: str) -> str:
    """Return the row of CONFIGS of a broker.

    >>> config_of("artemis-plain"), config_of("activemq6")
    ('artemis-plain', 'activemq')
    """
    return broker if broker in CONFIGS else broker.rstrip("0123456789.-")


def _streams(frames: list[Frame]) -> dict[str, list[Frame]]:
    """Part what came on a connection by what keeps its order: MESSAGEs by subscription, and all else."""
    parts: dict[str, list[Frame]] = {}
    for frame in frames:
        of = frame[1].get("subscription", frame[1].get("destination", "")) if frame[0] == "MESSAGE" else None
        parts.setdefault("answers" if of is None else f"MESSAGE {of}", []).append(frame)
    return parts


def _head(frame: Frame) -> str:
    if len(frame) == 1:
        return str(frame[0])
    told = frame[1].get("receipt-id") if frame[0] == "RECEIPT" else repr(frame[2]) if frame[0] == "MESSAGE" else ""
    return f"{frame[0]} {told}".rstrip()


def differences(theirs: Answers, own: Answers) -> list[str]:
    """Return what differs in one scenario, a line each."""
    found: dict[str, None] = {}
    for name in sorted(theirs.keys() | own.keys()):
        left, right = _streams(theirs.get(name, [])), _streams(own.get(name, []))
        if len(left) == len(right) == 2:  # the one stream of MESSAGEs, whatever the subscription is called
            left, right = ({stream[:7]: frames for stream, frames in side.items()} for side in (left, right))
        for stream in sorted(left.keys() | right.keys()):
            lines = list(_compared(left.get(stream, []), right.get(stream, []), any_error(own.get(name, []))))
            moved = {line.partition(": ")[2] for line in lines if line.startswith("only ours: RECEIPT")}
            moved &= {line.partition(": ")[2] for line in lines if not line.startswith("only ours: RECEIPT")}
            found.update((line, None) for line in lines if line.partition(": ")[2] not in moved)
    return list(found)


def any_error(frames: list[Frame]) -> bool:
    return any(frame[0] == "ERROR" for frame in frames)


def _compared(theirs: list[Frame], own: list[Frame], ended: bool) -> Iterator[str]:
    """Return the lines of one stream. What follows an ERROR of ours, if it `ended` the connection, is marked so."""
    heads = [_head(frame) for frame in theirs], [_head(frame) for frame in own]
    last = heads[1].index("ERROR") if "ERROR" in heads[1] else len(own)
    matcher = difflib.SequenceMatcher(None, *heads, autojunk=False)
    for what, begin, end, at, to in matcher.get_opcodes():
        if what != "equal":
            after = ended and (at > last or at == len(own) or last in range(at, to))
            yield from (f"{_AFTER if after else 'only theirs'}: {head}" for head in heads[0][begin:end])
            yield from (f"{_AFTER if ended and head == 'closed' else 'only ours'}: {head}" for head in heads[1][at:to])
            continue
        for one, other in zip(theirs[begin:end], own[at:to]):
            if len(one) > 1:
                for name in sorted(one[1].keys() | other[1].keys()):
                    if one[1].get(name) != other[1].get(name):
                        told = (values.get(name, "none") for values in (one[1], other[1]))
                        yield f"{one[0]} {name}: {' / '.join(told)}"
                if one[2] != other[2]:
                    yield f"{one[0]} body: {one[2]!r} / {other[2]!r}"


#: The kinds of differences that there may be. A dialect is never kinder than its broker.
KINDS = ("stricter", "richer", "open", "theirs is a fault")
#: What shows that we hide a loss, a stop or an error of theirs.
_HIDES = re.compile("only (theirs: (ERROR|closed)|ours: (?!ERROR|closed)).*")


class Explained(NamedTuple):
    """A row of differences.tsv."""

    brokers: str
    scenarios: str
    difference: str
    """A regular expression."""
    kind: str
    what: str

    def fits(self, broker: str, scenario: str, difference: str, theirs: Answers) -> bool:
        """Return whether the row explains a difference. A stricter broker hides nothing; a richer one only what the
        other broker, with these answers, refused.
        """
        if _HIDES.fullmatch(difference) and self.kind in ("stricter", "richer"):
            refused = any(any_error(frames) or ["closed"] in frames for frames in theirs.values())
            if self.kind == "stricter" or not refused:
                return False
        return (
            any(fnmatch.fnmatchcase(broker, each) for each in self.brokers.split())
            and any(fnmatch.fnmatchcase(scenario, each) for each in self.scenarios.split())
            and re.fullmatch(self.difference, difference) is not None
        )


@functools.cache
def explained() -> list[Explained]:
    with (HERE / "differences.tsv").open(encoding="utf-8", newline="") as file:
        rows = [Explained(*row) for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)][1:]
    if wrong := [row for row in rows if row.kind not in KINDS]:
        raise ValueError(f"{wrong[0].what}: a difference cannot be {wrong[0].kind!r}, only {', '.join(KINDS)}")
    return rows


def unexplained(
    broker: str, theirs: dict[str, Answers], own: dict[str, Answers], used: set[Explained]
) -> dict[str, list[str]]:
    """Return the differences by scenario that no row explains; the rows that explain one go into `used`."""
    found: dict[str, list[str]] = {}
    for scenario in own:
        answers = theirs.get(scenario, {})
        for line in differences(answers, own[scenario]):
            rows = [row for row in explained() if row.fits(broker, scenario, line, answers)]
            used.update(rows)
            if not rows:
                found.setdefault(scenario, []).append(line)
    return found


def table() -> list[str]:
    """Return the table of docs/broker-extensions.md, a line each."""
    rows: dict[tuple[str, str], list[str]] = {}
    for row in explained():
        rows.setdefault((row.what, row.kind), []).extend(row.brokers.replace("*", "").split() or ["all"])
    lines = ["| what differs | dialects | kind |", "| --- | --- | --- |"]
    for (what, kind), named in rows.items():
        dialects = sorted({name.removesuffix("-plain") for name in named})
        lines.append(f"| {what} | {'all' if 'all' in dialects else ', '.join(dialects)} | {kind} |")
    return lines


def page(text: str) -> str:
    """Return the page with its table written anew."""
    start = text.index("| what differs |")
    end = text.index("\n\n", start)
    return text[:start] + "\n".join(table()) + text[end:]


def recorded(broker: str) -> tuple[str, dict[str, Answers]]:
    """Return the version and the date of a record, and its answers."""
    with lzma.open(ANSWERS / f"{broker}.json.xz", "rt", encoding="utf-8") as file:
        said, found = json.load(file)
    return said, found


def record(broker: str, server: str, theirs: dict[str, Answers]) -> None:
    ANSWERS.mkdir(exist_ok=True)
    data = json.dumps([f"{server}, {time.strftime('%Y-%m-%d')}", theirs], sort_keys=True, separators=(",", ":"))
    (ANSWERS / f"{broker}.json.xz").write_bytes(lzma.compress(data.encode(), preset=9 | lzma.PRESET_EXTREME))


def main() -> int:
    from interop import brokers

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("broker", metavar="BROKER[=URL]", help="as for scripts/interop.py; or the page to write anew")
    parser.add_argument("--filter", default="", metavar="TEXT", help="scenarios whose id or title has TEXT")
    parser.add_argument("--record", action="store_true", help="keep the answers")
    parser.add_argument("--recorded", action="store_true", help="compare with the answers that were kept")
    arguments = parser.parse_args()
    if arguments.broker.endswith(".md"):
        file = Path(arguments.broker)
        file.write_text(page(file.read_text("utf-8")), "utf-8")
        return 0
    if arguments.recorded:
        name, (_, theirs) = arguments.broker, recorded(arguments.broker)
    else:
        ((name, broker),) = brokers.named([arguments.broker]).items()
        with broker.start() as target:
            theirs = answers_of(target.host, target.port, min(4 * WAIT, patience(WAIT)), arguments.filter)
        if arguments.record:
            record(name, brokers.SERVERS[broker.title], theirs)
    own = ours(name, arguments.filter)
    titles = {each["id"]: each["title"] for each in scenarios()}
    found = unexplained(name, theirs, own, set())
    for scenario, lines in found.items():
        print(f"{scenario}: {titles[scenario]}", *lines, sep="\n    ")
    print(f"{name}: {len(own)} scenarios, {len(found)} with a difference that differences.tsv does not explain")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
