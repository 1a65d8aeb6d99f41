"""stompcodec conformance: check a broker or a codec against the rules of STOMP."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stompcodec.cli.connecting import adopt, credentials, explanation, is_url, login_options, url_of
from stompcodec.cli.contexts import referred
from stompcodec.cli.inputs import Number, complain
from stompcodec.cli.screen import StatusLine, printable, screen

if TYPE_CHECKING:
    from stompcodec.cli.conformity.suite import Result

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_OUTCOMES = ("passed", "failed", "skipped")
_STYLES = {"passed": "green", "failed": "bold red", "skipped": "dim"}


class Bar:
    """A progress line on standard error, if that is a terminal and the results go elsewhere."""

    def __init__(self, shown: bool) -> None:
        self._line = StatusLine(shown)
        self.clear = self._line.clear
        self._total = 0
        self._done = 0

    def begin(self, total: int) -> None:
        """Set the number of cases."""
        self._total = total

    def count(self, results: Iterable[Result]) -> Iterator[Result]:
        """Yield the results, counting them."""
        for result in results:
            self._done += 1
            self._line.update(lambda: f"{self._done} of {self._total} " if self._total else f"{self._done} ")
            yield result
        self.clear()


@click.command("conformance")
@click.argument("target", default="stompcodec")
@click.argument("folders", nargs=-1, metavar="[FOLDER]...", type=_FOLDER)
@click.option("--lenient", is_flag=True, help="Test the lenient mode of a codec.")
@click.option("--only", default="", metavar="TEXT", help="Only cases whose topic, id, title or rules contain TEXT.")
@click.option("--feature", "features", multiple=True, metavar="NAME", help="Also run scenarios that need this feature.")
@click.option("--all", "everything", is_flag=True, help="Also run scenarios that need any features.")
@click.option("--jobs", type=click.IntRange(1, 64), default=4, show_default=True, help="Scenarios to run in parallel.")
@click.option(
    "--timeout",
    type=Number(0, min_open=True, most=1e6),
    default=3.0,
    show_default=True,
    metavar="SECS",
    help="How long to wait for an expected frame.",
)
@click.option("--queue-prefix", metavar="TEXT", help="Prefix of the queues. Default: /queue/spec-")
@click.option("--topic-prefix", metavar="TEXT", help="Prefix of the topics. Default: /topic/spec-")
@click.option("--rules", is_flag=True, help="Also print each rule with its outcome.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per case.")
@login_options
def command(target: str, folders: tuple[Path, ...], as_json: bool, rules: bool, **options: Any) -> None:
    """Run the conformance suite against TARGET.

    TARGET is a broker, as a URL or host:port, tested by scenarios: sessions with expected and forbidden frames, each on
    its own destinations. Or it is a codec, as module:name of an adapter, or stompcodec for our own, tested by vectors:
    bytes and the frames or errors they stand for. FOLDER has other cases than ours. If a broker does not answer, the
    suite fails with one line.

    \b
      stompcodec conformance
      stompcodec conformance localhost:61613 --login ann --passcode-file secret
      stompcodec conformance ws://localhost:15674/ws --rules
      stompcodec conformance my_codec:Adapter --only S12-ESC
    """
    from stompcodec.errors import ConfigError, StompError

    bar = Bar(not as_json or not sys.stdout.isatty())
    results: list[Result] = []
    try:
        for result in bar.count(_results(target, list(folders), bar, options)):
            results.append(result)
            if as_json:
                click.echo(json.dumps(result._asdict()))
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    except StompError as error:  # the broker cannot be reached any more
        bar.clear()
        if results and not as_json:
            _show(results, rules)
        complain(
            explanation(error).replace("see --url", "check TARGET")
            + (f"; {len(results)} cases ran before" if results else "")
        )
        raise SystemExit(1) from None
    if not results:
        raise click.UsageError("no case was selected")
    if not as_json:
        _show(results, rules)
    if any(result.outcome == "failed" for result in results):
        raise SystemExit(1)


def _results(target: str, folders: list[Path], bar: Bar, options: dict[str, Any]) -> Iterator[Result]:
    from stompcodec.cli.conformity import suite
    from stompcodec.uri import parse_uri

    if not is_url(target):
        yield from suite.vectors(suite.adapter_of(target), folders, lenient=options["lenient"], only=options["only"])
        return
    prefixes = {name: options[name] for name in ("queue_prefix", "topic_prefix") if options[name] is not None}
    names = ("only", "features", "everything", "timeout", "jobs")
    who: dict[str, Any] = {"login": options["login"], "passcode_file": options["passcode_file"], "passcode": None}
    context = referred(target, "TARGET")
    if context is not None and (context.ca or context.insecure):
        raise click.UsageError(f"context {context.name} has TLS options, which conformance does not support")
    given = adopt(context, {"url": target, **who, "vhost": None})
    addresses = parse_uri(url_of(given["url"]))
    who = {**credentials(addresses, *(given[name] for name in who))}
    if given["vhost"] is not None:
        who["vhost"] = given["vhost"]
    yield from suite.scenarios(
        addresses[0]._replace(**who),
        folders,
        options=prefixes,
        begun=bar.begin,
        **{name: options[name] for name in names},
    )


def _show(results: list[Result], rules: bool) -> None:
    from rich.text import Text

    from stompcodec.cli.conformity.suite import requirements_of

    console = screen()
    for result in results:
        if result.outcome == "failed":
            head = (
                f"{result.topic}/{result.id} {' '.join(result.requirements)}{f' ({result.level})' * bool(result.level)}"
            )
            console.print(Text("FAILED ", "bold red").append(printable(head), "not bold default"), soft_wrap=True)
            for line in filter(None, (result.title, result.reason)):
                console.print(Text("       " + printable(line)), soft_wrap=True)
    looked_at = requirements_of(results)
    if rules:
        for rule, outcome in looked_at.items():
            console.print(Text(f"{rule:16} ").append(outcome, _STYLES[outcome]))
    console.print(_table(results))
    counts = Counter(result.outcome for result in results)
    broken = sum(outcome == "failed" for outcome in looked_at.values())
    text = ", ".join(f"{counts[outcome]} {outcome}" for outcome in _OUTCOMES if counts[outcome] or outcome != "skipped")
    console.print(f"{text}; {broken} of {len(looked_at)} rules broken", soft_wrap=True)


def _table(results: list[Result]) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table("topic", box=box.SIMPLE_HEAD)
    for outcome in _OUTCOMES:
        table.add_column(outcome, justify="right")
    topics: dict[str, Counter[str]] = {}
    for result in results:
        topics.setdefault(result.topic, Counter())[result.outcome] += 1
    for topic, counts in topics.items():
        cells = [Text(str(counts[name] or ""), _STYLES[name]) for name in _OUTCOMES]
        table.add_row(printable(topic), *cells)
    return table
