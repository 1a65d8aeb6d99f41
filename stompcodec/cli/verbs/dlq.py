"""stompcodec dlq: dead letters: list them, show them, and send them back to where they came from."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from stompcodec.cli.connecting import broker_options, connected, reporting_errors
from stompcodec.cli.groups import INTERRUPTED, Verbs
from stompcodec.cli.queues.carrying import carry
from stompcodec.cli.queues.headers import origin_of, same
from stompcodec.cli.queues.kinds import Kind, kind_of
from stompcodec.cli.queues.looking import Interrupted, Looking, listed
from stompcodec.cli.queues.running import Tool, batch_option, check_queue, limit_option, selector_option, tool_options
from stompcodec.cli.queues.showing import facts, letter_table, look, view_options
from stompcodec.cli.screen import cut, pad, printable, screen
from stompcodec.cli.signals import stop_on_signals
from stompcodec.cli.unreadable import lenient_option, passing_over

if TYPE_CHECKING:
    from stompcodec.client import Client, Message

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
    rows: list[tuple[str, str, str, int]] = []
    stopped: list[int] = []
    signals = stop_on_signals(lambda: stopped.append(1))
    with passing_over(lenient) as passed, reporting_errors(), connected(**broker) as client, signals:
        kind = kind_of(client)
        names = queues or _usual(client, kind)
        try:
            for queue in names:
                kind.check_shows(printable(queue), "use its own tools")
                counts: Counter[tuple[str, str]] = Counter()
                looking = Looking(client, kind, queue, None, lambda: bool(stopped), broker["timeout"], passed)
                for message in looking.messages():
                    key = facts(message)[:2]
                    counts[key if key in counts or len(counts) < _MOST_KINDS else ("others", "-")] += 1
                rows += [(queue, origin, reason, number) for (origin, reason), number in sorted(counts.items())]
        except Interrupted:
            sys.exit(INTERRUPTED)
    _show(rows, as_json)


def _usual(client: Client, kind: Kind) -> tuple[str, ...]:
    """Return the queues of dead letters by the name that the broker gives them.

    Raises:
        click.UsageError: that is not known.
    """
    if kind.is_ours:
        rows = listed(client, kind.dead_letters)
        if rows is not None:
            return tuple(str(row["destination"]) for row in rows)
    elif kind.dead_letters:
        return (kind.dead_letters,)
    raise click.UsageError(f"{kind.title} does not say which queues have dead letters: give their names")


def _show(rows: list[tuple[str, str, str, int]], as_json: bool) -> None:
    if as_json:
        for queue, origin, reason, number in rows:
            click.echo(json.dumps({"queue": queue, "from": origin, "reason": reason, "messages": number}))
        return
    from rich.text import Text

    console = screen()
    room = max(console.width - 34, 30) // 2
    console.print(Text(f"{'MESSAGES':>8}  {pad('QUEUE', room)}  {pad('FROM', room)}  REASON", "bold"), soft_wrap=True)
    for queue, origin, reason, number in rows:
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
@selector_option
@limit_option
@batch_option
@tool_options
def retry(queue: str, target: str | None, selector: str | None, limit: int | None, **given: Any) -> None:
    """Send the dead letters that are in QUEUE back to the queues that they came from.

    Those whose headers do not name a queue stay, unless --to names one; then the exit status is 1. Each batch is moved
    in one transaction.

    \b
      stompcodec dlq retry /queue/DLQ.orders --dry-run
      stompcodec dlq retry /queue/DLQ.orders --selector "customer = 7" --yes
      stompcodec dlq retry /queue/bridge-dead-letters --to /queue/again
    """
    check_queue(queue, "QUEUE")
    if target is not None:
        check_queue(target, "'--to'")
        if same(queue, target):
            raise click.UsageError(f"QUEUE and --to are one queue: {printable(queue)}")
    aim = " to where they came from" if target is None else f" to {target}"
    options = {name: given.pop(name) for name in _OF_TOOL}
    tool = Tool("send back", "sent back", queue, aim, selector=selector, limit=limit, target=target, **options)

    def target_of(message: Message) -> str | None:
        return target or origin_of(message, queue)

    tool.run(given, lambda taking, tally, moved: carry(taking, target_of, tally, moved), target_of)
