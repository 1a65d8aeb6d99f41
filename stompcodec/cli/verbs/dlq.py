"""stompcodec dlq: dead letters: list them, show them, and send them back to where they came from."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from stompcodec.cli.connecting import broker_options, connected, lenient_option, passing_over, reporting_errors
from stompcodec.cli.groups import INTERRUPTED, Verbs
from stompcodec.cli.queues.looking import (
    Interrupted,
    Kind,
    Looking,
    facts,
    is_claimed,
    kind_of,
    letter_table,
    listed,
    look,
    view_options,
)
from stompcodec.cli.queues.tools import (
    Aim,
    Returning,
    Taking,
    Tally,
    Tool,
    batch_option,
    carry,
    check_queue,
    limit_option,
    selector_option,
    tool_options,
)
from stompcodec.cli.screen import cut, pad, printable, screen
from stompcodec.cli.streams import stop_on_signals

if TYPE_CHECKING:
    from stompcodec.client import Client

_OF_TOOL = ("batch", "dry_run", "yes", "idle", "as_json", "quiet", "lenient")
#: Kinds of dead letters that are counted for each queue; the rest are one.
_MOST_KINDS = 1000


@click.group("dlq", cls=Verbs)
def command() -> None:
    """Look at dead letters, and send them back.

    \b
      stompcodec dlq list
      stompcodec dlq show /queue/DLQ.orders
      stompcodec dlq retry /queue/DLQ.orders --dry-run
    """


@command.command("list")
@click.argument("queues", metavar="[QUEUE]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per line.")
@lenient_option
@broker_options
def list_command(queues: tuple[str, ...], as_json: bool, lenient: bool, **broker: Any) -> None:
    """Count the dead letters of each QUEUE by where they came from, and why.

    Without QUEUE: all queues /queue/DLQ.* of our broker, or ActiveMQ.DLQ.

    \b
      stompcodec dlq list
      stompcodec dlq list /queue/ActiveMQ.DLQ --json
    """
    for queue in queues:
        check_queue(queue, "QUEUE")
    rows: list[tuple[str, str, str, bool, int]] = []
    stopped: list[int] = []
    signals = stop_on_signals(lambda: stopped.append(1))
    with passing_over(lenient) as passed, reporting_errors(), connected(**broker) as client, signals:
        kind = kind_of(client)
        names = queues or _usual(client, kind)
        try:
            for queue in names:
                kind.check_shows(printable(queue), "use its own tools")
                counts: Counter[tuple[str, str, bool]] = Counter()
                looking = Looking(client, kind, queue, None, lambda: bool(stopped), broker["timeout"], passed)
                for message in looking.messages():
                    key = *facts(message, kind)[:2], is_claimed(message, kind)
                    counts[key if key in counts or len(counts) < _MOST_KINDS else ("others", "-", False)] += 1
                rows += [(queue, *key, number) for key, number in sorted(counts.items())]
        except Interrupted:
            sys.exit(INTERRUPTED)
    _show(rows, as_json)


def _usual(client: Client, kind: Kind) -> tuple[str, ...]:
    """Return the queues of dead letters by the name that the broker gives them."""
    if kind.is_ours:
        rows = listed(client, kind.dead_letters)
        if rows is not None:
            return tuple(str(row["destination"]) for row in rows)
    elif kind.dead_letters:
        return (kind.dead_letters,)
    raise click.UsageError(f"{kind.title} does not say which queues have dead letters: give their names")


def _show(rows: list[tuple[str, str, str, bool, int]], as_json: bool) -> None:
    if as_json:
        for queue, origin, reason, claimed, number in rows:
            row = {"queue": queue, "from": origin.removesuffix(" (claimed)") if claimed else origin, "reason": reason}
            click.echo(json.dumps({**row, "messages": number, **({"claimed": True} if claimed else {})}))
        return
    from rich.text import Text

    console = screen()
    room = max(console.width - 34, 30) // 2
    console.print(Text(f"{'MESSAGES':>8}  {pad('QUEUE', room)}  {pad('FROM', room)}  REASON", "bold"), soft_wrap=True)
    for queue, origin, reason, _, number in rows:
        text = (
            f"{number:>8,}  {pad(printable(queue), room)}  {pad(printable(origin), room)}  {cut(printable(reason), 40)}"
        )
        console.print(Text(text), soft_wrap=True)


@command.command("show")
@click.argument("queue", metavar="QUEUE")
@selector_option
@view_options
@broker_options
def show(queue: str, selector: str | None, **given: Any) -> None:
    """Show the dead letters of QUEUE: where each came from, why, and its body. They stay there.

    \b
      stompcodec dlq show /queue/DLQ.orders
      stompcodec dlq show /queue/DLQ.orders -n 1 --pretty
    """
    check_queue(queue, "QUEUE")
    look(queue, selector, given, letter_table, "use sub, which takes them")


@command.command("retry")
@click.argument("queue", metavar="QUEUE")
@click.option("--to", "target", metavar="DEST", help="Send them to this queue, not to where each came from.")
@click.option(
    "--only",
    metavar="PATTERN",
    help="Only those that came from such queues, as their headers say; a * stands for any text.",
)
@selector_option
@limit_option
@batch_option
@tool_options
def retry(
    queue: str, target: str | None, only: str | None, selector: str | None, limit: int | None, **given: Any
) -> None:
    """Send the dead letters that are in QUEUE back to the queues that they came from.

    Our broker knows where its dead letters came from. Other brokers only have headers for it, which any sender could
    have written. Such letters are listed, and with --yes they stay, unless --only or --to names their queue. So do
    those whose queue is unknown or refuses them; then the exit status is 1. The letters of a batch for one queue are
    moved in one transaction.

    \b
      stompcodec dlq retry /queue/DLQ.orders --dry-run
      stompcodec dlq retry /queue/DLQ.orders --selector "customer = 7" --yes
      stompcodec dlq retry /queue/ActiveMQ.DLQ --only "/queue/shop.*" --yes
      stompcodec dlq retry /queue/bridge-dead-letters --to /queue/again
    """
    check_queue(queue, "QUEUE")
    if target is not None:
        check_queue(target, "'--to'")
        if queue == target:
            raise click.UsageError(f"QUEUE and --to are one queue: {printable(queue)}")
        if only is not None:
            raise click.UsageError("--only and --to exclude each other: --to sends all letters to one queue")
    aim = " to where they came from" if target is None else f" to {target}"
    options = {name: given.pop(name) for name in _OF_TOOL}
    tool = Tool("send back", "sent back", queue, aim, selector=selector, limit=limit, target=target, **options)
    returning = Returning(queue, only) if target is None else None

    def work(taking: Taking, tally: Tally, moved: Callable[[], None]) -> None:
        kind, taking.returns = taking.looking.kind, True
        carry(
            taking,
            lambda message: Aim(target) if returning is None else returning.aim(message, kind),
            tally,
            moved,
            one_target=returning is None,
        )

    tool.run(given, work, returning)
