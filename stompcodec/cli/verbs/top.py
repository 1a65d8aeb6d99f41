"""stompcodec top: a running broker on a terminal, or as JSON."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from stompcodec.cli.connecting import broker_options, connected, reporting_errors
from stompcodec.cli.groups import INTERRUPTED
from stompcodec.cli.inputs import Duration, complain
from stompcodec.cli.screen import screen, write_json
from stompcodec.cli.watching.figures import (
    BY_NAME,
    MOST_ROWS,
    VIEWS,
    Asker,
    CannotAskError,
    Choice,
    Snapshot,
    address_of,
)

_ROWS = 100
_LEAST_INTERVAL = 0.1


def _checked_sort(view: str, sort: str | None) -> str:
    """Return the field to sort by."""
    known = (BY_NAME, *VIEWS[view].sorts)
    if sort is None:
        return VIEWS[view].sort
    if sort not in known:
        raise click.BadParameter(f"{sort!r}: {view} can be sorted by {', '.join(known)}", param_hint="'--sort'")
    return sort


@click.command("top")
@click.option(
    "--view", type=click.Choice(list(VIEWS)), default="destinations", show_default=True, help="What the table lists."
)
@click.option("-s", "--sort", metavar="COLUMN", help="Show the highest of this column first; or name.")
@click.option("--match", metavar="TEXT", help="Show only names with TEXT; * stands for any characters.")
@click.option(
    "-i",
    "--interval",
    type=Duration(_LEAST_INTERVAL),
    default=2.0,
    show_default=True,
    metavar="TIME",
    help="How often to ask.",
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, MOST_ROWS),
    metavar="N",
    help=f"Most rows, without a screen.  [default: {_ROWS}]",
)
@click.option("--once", is_flag=True, help="Ask twice, an interval apart for the rates, show it and end.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object each interval.")
@click.option(
    "--prefix",
    default="/management/",
    show_default=True,
    metavar="TEXT",
    help="The prefix of requests to the broker.",
)
@broker_options
def command(
    view: str,
    sort: str | None,
    match: str | None,
    interval: float,
    limit: int | None,
    once: bool,
    as_json: bool,
    prefix: str,
    **broker: Any,
) -> None:
    """Show what a broker is doing: rates, destinations, sessions, subscriptions.

    It asks the management of our broker, which its rules must allow. On a terminal, ? lists the keys and q ends.
    Elsewhere a table follows the other.

    \b
      stompcodec top --url broker:61613
      stompcodec top --sort received_rate --match /queue/orders.*
      stompcodec top --once --json | jq '.rows[] | select(.ready > 1000)'
    """
    choice = Choice(VIEWS[view], _checked_sort(view, sort), match, limit or _ROWS)
    try:
        with reporting_errors():
            _run(choice, interval, once, as_json, prefix, broker)
    except CannotAskError as error:
        complain(str(error))
        sys.exit(1)


def _run(choice: Choice, interval: float, once: bool, as_json: bool, prefix: str, broker: dict[str, Any]) -> None:
    from stompcodec.cli.watching import terminal as running
    from stompcodec.cli.watching.terminal import History
    from stompcodec.client import Backoff

    console, connection, history = screen(), running.Connection(), History()
    with connected(**broker, reconnect=Backoff(most=2.0), on_state=connection) as client:
        asker, address = Asker(client, prefix, broker["timeout"]), address_of(client)

        def write(shown: Snapshot) -> None:
            if as_json:
                write_json(shown.json())
                return
            running.show(console, shown, history, address)
            if not once:
                console.print()

        if not once and not as_json and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
            was_shown = running.Screen(console, client, asker, choice, connection, address).run(interval)
        else:
            was_shown = running.Stream(client, connection, asker, choice.wish(), write).run(interval, once=once)
    if not was_shown:
        sys.exit(INTERRUPTED)
