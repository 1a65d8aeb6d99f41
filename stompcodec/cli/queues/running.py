"""The parts shared by the verbs that change queues: consent, dry runs, progress, interruption and reports."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from stompcodec.cli.connecting import broker_options, opening, reporting_errors, warn_of_missing_slash
from stompcodec.cli.groups import INTERRUPTED
from stompcodec.cli.inputs import Duration, complain, option_group
from stompcodec.cli.queues.carrying import RefusedQueue, Tally
from stompcodec.cli.queues.headers import is_queue
from stompcodec.cli.queues.kinds import Kind, kind_of
from stompcodec.cli.queues.looking import Interrupted, Looking, management_of
from stompcodec.cli.queues.returning import MOST_LISTED, Returning
from stompcodec.cli.queues.taking import BATCH, Taking
from stompcodec.cli.screen import StatusLine, printable
from stompcodec.cli.signals import stop_on_signals
from stompcodec.cli.unreadable import lenient_option, passing_over
from stompcodec.errors import ConnectionLostError, ReceiptTimeoutError, StompError

if TYPE_CHECKING:
    from stompcodec.client import Client

_REDRAW = 0.1
#: Words that stand for several names at some broker.
_WILDCARDS = ("*", "**", "#", ">")
#: Does the work of a verb; the last argument is called after each batch.
Work = Callable[[Taking, Tally, Callable[[], None]], None]

#: The options of `Tool`, and those of the broker.
tool_options = option_group(
    click.option("--dry-run", is_flag=True, help="Change nothing; say how many messages it would be."),
    click.option("-y", "--yes", is_flag=True, help="Do not ask. Without a terminal, nothing happens without it."),
    click.option(
        "--idle",
        type=Duration(0, min_open=True),
        default=3.0,
        show_default=True,
        metavar="TIME",
        help="The queue counts as empty after this time without a message, if the broker cannot tell.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the counts as a JSON object."),
    click.option("-q", "--quiet", is_flag=True, help="Print nothing on success."),
    lenient_option,
    broker_options,
)

selector_option = click.option(
    "--selector", metavar="TEXT", help="Only messages that match, in the broker's syntax. RabbitMQ has no selectors."
)
limit_option = click.option("-n", "--limit", type=click.IntRange(1), metavar="N", help="At most N messages.")

batch_option = click.option(
    "--batch",
    type=click.IntRange(1, BATCH),
    default=BATCH,
    show_default=True,
    metavar="N",
    help="Move at most N messages at a time: fewer, if the broker refuses transactions of that size.",
)


def check_queue(destination: str, hint: str) -> None:
    """Check that a destination keeps messages.

    Raises:
        click.BadParameter: it is a topic or temporary, where messages would be lost; or a wildcard.
    """
    if any(word in _WILDCARDS for word in re.split(r"[./]", destination)):
        raise click.BadParameter(f"{printable(destination)!r} is a wildcard: name one queue", param_hint=hint)
    if not is_queue(destination) or not destination.strip():
        raise click.BadParameter(f"{printable(destination)!r} is not a queue", param_hint=hint)


class Tool(NamedTuple):
    """A verb that changes a queue."""

    verb: str
    """As in "move"."""
    done: str
    """As in "moved"."""
    queue: str
    aim: str
    """Where the messages go, for people, as in " to /queue/b"."""
    dry_run: bool
    yes: bool
    idle: float
    as_json: bool
    quiet: bool
    selector: str | None = None
    limit: int | None = None
    batch: int = BATCH
    target: str | None = None
    """The queue that all of them go to."""
    lenient: bool = False
    removes: bool = False
    """Messages that cannot be read are removed, too, with `lenient`; else they stay."""

    def run(self, broker: dict[str, Any], work: Work, returning: Returning | None = None) -> NoReturn:
        """Do it, and exit.

        Args:
            broker: the options of the broker.
            work: the work.
            returning: where each dead letter goes, unless all go to one queue.
        """
        if not (self.dry_run or self.yes or _has_terminal()):
            raise click.UsageError(f"there is no terminal to confirm on, so nothing was {self.done}: give --yes")
        stopped = threading.Event()
        with passing_over(self.lenient, self.removes) as passed, reporting_errors(), ExitStack() as stack:
            connect = opening(**broker)
            client = stack.enter_context(connect())
            kind = self._checked(client)
            looking = Looking(client, kind, self.queue, self.selector, stopped.is_set, broker["timeout"], passed)
            with stop_on_signals(stopped.set):
                try:
                    there = looking.total()
                    most = self.limit if there is None else min(there, self.limit or there)
                    if returning is not None and kind.shows:
                        returning.survey(islice(looking.messages(), most), kind)
                    if self.dry_run:
                        self._preview(most or 0, returning)
                except Interrupted:
                    self._interrupted(Tally())
            if most != 0:
                self._announce(most, returning)
            tally = Tally()

            def taking() -> Taking:
                """Return the way to take what is left, over a new connection if the former one has ended."""
                at = looking
                if tally.refused:
                    at = looking._replace(client=stack.enter_context(connect()))
                left = None if most is None else max(0, most - tally.messages)
                stay = (0, 0) if returning is None else returning.staying(tally.refused)
                return Taking(at, most=left, exact=self.limit is not None, idle=self.idle, batch=self.batch, stay=stay)

            with stop_on_signals(stopped.set):
                last = self._do(work, taking, tally, most)
        if stopped.is_set():
            self._interrupted(tally)
        self._show(f"{_number(tally.messages)} {self.done}{self.aim}", tally.messages, tally)
        sys.exit(1 if self._report_left(last, tally) else 0)

    def _checked(self, client: Client) -> Kind:
        """Return the kind of the broker, after checks of what the tool is to do there."""
        for name in filter(None, (self.queue, self.target)):
            warn_of_missing_slash(client, name)
        kind = kind_of(client)
        kind.check_selects(self.selector)
        if kind.is_ours:
            kind = kind._replace(management=management_of(client, self.queue))
        if self.target is not None:
            kind.check_differ(self.queue, self.target)
            kind.check_keeps(self.target)
        if self.dry_run:
            kind.check_shows(self.queue, "leave out --dry-run")
        return kind

    def _announce(self, most: int | None, returning: Returning | None) -> None:
        """List the queues that messages go back to, and ask."""
        if returning is not None and (returning.has_claims or not self.yes) and not (self.quiet and self.yes):
            for line in returning.listed():
                click.echo(line, err=True)
        if not self.yes:
            self._ask(most)
            if returning is not None:
                returning.agree()

    def _report_left(self, taking: Taking, tally: Tally) -> bool:
        """Report messages that could not be taken. Return whether there are any."""
        passed = taking.looking.passed
        unread = 0 if passed is None else passed.count
        if unread:
            complain(f"{_number(unread)} stayed in {self.queue}: they cannot be read")
        for why, number in tally.stays.most_common(MOST_LISTED):
            complain(f"{_number(number)} stayed in {self.queue}: {why}")
        if taking.is_full:
            complain(f"those that stay in {self.queue} fill the window, so later ones were not tried")
        elif taking.withheld and not tally.left:
            complain(
                f"{self.queue} has messages that did not come in {self.idle:g} s: other consumers hold them, or one of"
                " them is exclusive (try again later, or wait longer with --idle)"
            )
        return bool(tally.left or taking.withheld or taking.is_full or unread)

    def _do(self, work: Work, next_taking: Callable[[], Taking], tally: Tally, most: int | None) -> Taking:
        progress = _Progress(self, tally, most)
        try:
            while True:
                taking = next_taking()
                with suppress(RefusedQueue):  # the others are moved over a new connection
                    if taking.most != 0:
                        work(taking, tally, progress.moved)
                        if taking.looking.passed is not None:
                            tally.messages += taking.looking.passed.settled
                    return taking
        except (StompError, ValueError) as error:
            progress.clear()
            unknown = isinstance(error, (ConnectionLostError, ReceiptTimeoutError))
            but = f", but the last batch may be {self.done}, too" if unknown else ""
            complain(f"{_number(tally.messages)} {self.done} before this error; the others are in {self.queue}{but}")
            if "transaction" in str(error).lower():
                complain("if the broker refuses transactions of this size, give a smaller --batch")
            raise
        finally:
            progress.clear()

    def _preview(self, most: int, returning: Returning | None) -> NoReturn:
        """Say what would happen, and exit."""
        tally = Tally()
        if returning is not None:
            most, tally.stays = returning.outcome()
        self._show(f"would {self.verb} {_number(most)}{self.aim}", most, tally)
        if returning is not None and not self.as_json:
            for line in returning.listed():
                click.echo(line)
            for why, number in tally.stays.most_common():
                click.echo(f"  {number:,} would stay: {why}")
        sys.exit(0)

    def _show(self, text: str, messages: int, tally: Tally) -> None:
        if self.as_json:
            octets = None if self.dry_run else tally.octets  # nothing was read
            counts = {"messages": messages, "bytes": octets, "left": tally.left, "dry_run": self.dry_run}
            click.echo(json.dumps({"verb": self.verb, "queue": self.queue, **counts}))
        elif self.dry_run or not self.quiet:
            click.echo(printable(text), err=not self.dry_run)

    def _interrupted(self, tally: Tally) -> NoReturn:
        complain(f"interrupted: {_number(tally.messages)} {self.done}; the others are in {self.queue}")
        sys.exit(INTERRUPTED)

    def _ask(self, most: int | None) -> None:
        what = "all messages" if most is None else _number(most)
        question = f"{self.verb.capitalize()} {what} of {printable(self.queue)}{printable(self.aim)}?"
        if not click.confirm(question, err=True):
            complain(f"nothing was {self.done}")
            sys.exit(1)


def _number(count: int) -> str:
    return f"{count:,} message{'s' * (count != 1)}"


def _has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


class _Progress:
    """The progress line."""

    def __init__(self, tool: Tool, tally: Tally, most: int | None) -> None:
        self._tool, self._tally, self._most = tool, tally, most
        self._line = StatusLine(not tool.quiet, _REDRAW)
        self.clear = self._line.clear
        self._start = time.monotonic()

    def text(self) -> str:
        seconds = max(time.monotonic() - self._start, 1e-6)
        tally = self._tally
        of = "" if self._most is None else f" of {self._most:,}"
        rate = f"{seconds:.0f} s, {tally.messages / seconds:,.0f}/s"
        return f"{tally.messages:,}{of} {self._tool.done}, {tally.octets / 1e6:,.1f} MB, {rate}"

    def moved(self) -> None:
        """Update the line, now and then."""
        self._line.update(self.text)
