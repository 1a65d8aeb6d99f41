"""The tables of `browse` and `dlq show`: a line for each message."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import click

from stompcodec.cli.connecting import connected, reporting_errors, warn_of_missing_slash
from stompcodec.cli.groups import INTERRUPTED
from stompcodec.cli.inputs import option_group
from stompcodec.cli.queues.headers import origin_of
from stompcodec.cli.queues.kinds import Kind, kind_of
from stompcodec.cli.queues.looking import Interrupted, Looking
from stompcodec.cli.screen import cut, header_value, pad, printable, screen
from stompcodec.cli.show.messages import Handler, handler
from stompcodec.cli.show.table import body_begin
from stompcodec.cli.show.template import template_of
from stompcodec.cli.signals import stop_on_signals
from stompcodec.cli.unreadable import lenient_option, passing_over

if TYPE_CHECKING:
    from stompcodec.client import Message

#: Headers of a browsed message that the table does not list.
_PLAIN = frozenset(
    (
        "destination",
        "message-id",
        "subscription",
        "content-length",
        "ack",
        "timestamp",
        "expires",
        "priority",
        "browser",
    )
)
_WIDTHS = (6, 18, 30, 8)
_LETTER_WIDTHS = (6, 24, 16, 8, 20, 8)

#: The options of `look`.
view_options = option_group(
    click.option("-n", "--limit", type=click.IntRange(1), metavar="N", help="At most N messages."),
    click.option(
        "-f",
        "--format",
        "form",
        callback=template_of,
        metavar="FORMAT",
        help="A format instead of the table, as in sub --format.",
    ),
    click.option("--json", "view", flag_value="json", help="Print a JSON object per message, as sub --json."),
    click.option(
        "--pretty", "view", flag_value="pretty", help="Print headers, and the body decompressed and indented."
    ),
    click.option("-q", "--quiet", is_flag=True, help="Do not print the number of messages."),
    lenient_option,
)


def look(queue: str, selector: str | None, given: dict[str, Any], table: Callable[[Kind], Handler], why: str) -> None:
    """Show the messages of a queue by the options of a verb. Exit with status 2 if the broker cannot.

    Args:
        queue: the queue.
        selector: shows only messages that match.
        given: the options of `view_options` and of the broker.
        table: makes the handler that prints the table, for a kind of broker.
        why: what to do if the broker does not show queues.
    """
    limit, form, view, quiet, lenient = (given.pop(name) for name in ("limit", "form", "view", "quiet", "lenient"))
    number, stopped = 0, []
    signals = stop_on_signals(lambda: stopped.append(1))
    with passing_over(lenient) as passed, reporting_errors(), connected(**given) as client, signals:
        warn_of_missing_slash(client, queue)
        kind = kind_of(client)
        kind.check_shows(printable(queue), why)
        kind.check_selects(selector)
        handle = table(kind) if form is None and view is None else handler(form, view, None)
        found = Looking(client, kind, queue, selector, lambda: bool(stopped), given["timeout"], passed).messages()
        try:
            for number, message in enumerate(_first(found, limit), 1):
                handle(message, number)
        except Interrupted:
            sys.exit(INTERRUPTED)
    sys.stdout.flush()
    if not quiet:
        more = "; --limit shows no more" if number == limit else ""
        click.echo(f"{number:,} message{'s' * (number != 1)} in {printable(queue)}{more}", err=True)


def _first(messages: Iterator[Message], limit: int | None) -> Iterator[Message]:
    for number, message in enumerate(messages, 1):
        yield message
        if number == limit:
            return


def message_table(_kind: Kind) -> Handler:
    """Return a handler that prints a message as number, message-id, headers, bytes, and beginning of the body."""
    return _table(
        ("NUMBER", "MESSAGE-ID", "HEADERS", "BYTES"), _WIDTHS, lambda message: (message.id, _headers(message))
    )


def letter_table(kind: Kind) -> Handler:
    """Return a handler that prints a dead letter with its origin, reason, attempts and time."""
    names = ("NUMBER", "FROM", "REASON", "ATTEMPTS", "TIME", "BYTES")
    return _table(names, _LETTER_WIDTHS, lambda message: facts(message, kind))


def _table(names: tuple[str, ...], widths: tuple[int, ...], cells: Callable[[Message], tuple[str, ...]]) -> Handler:
    from rich.text import Text

    console = screen()
    last = max(console.width - sum(widths) - 2 * len(widths), 10)

    def row(values: tuple[str, ...]) -> str:
        first, *middle, size, begin = values
        padded = "  ".join(pad(value, width) for value, width in zip(middle, widths[1:-1]))
        return f"{first:>{widths[0]}}  {padded}  {size:>{widths[-1]}}  {cut(begin, last)}".rstrip()

    console.print(Text(row((*names, "BEGINS WITH")), "bold"), soft_wrap=True)

    def show(message: Message, number: int) -> None:
        middle = [printable(cell) for cell in cells(message)]
        text = row((str(number), *middle, f"{len(message.body):,}", body_begin(message.body, last)))
        line = Text(text)
        line.stylize("dim", 0, widths[0])
        line.stylize("cyan", widths[0] + 2, widths[0] + 2 + widths[1])
        console.print(line, soft_wrap=True)

    return show


def _headers(message: Message) -> str:
    pairs = [f"{name}={header_value(name, value)}" for name, value in message.headers.pairs() if name not in _PLAIN]
    return " ".join(pairs)[:200]


def is_claimed(message: Message, kind: Kind) -> bool:
    """Return whether the origin of a message is what its sender wrote, at our broker, which marks its own letters."""
    origin = origin_of(message, "", kind)
    return kind.is_ours and not origin.is_proven and origin.queue is not None


def facts(message: Message, kind: Kind) -> tuple[str, str, str, str]:
    """Return the origin of a dead letter, the reason, the attempts and the time, as far as its headers say it. An
    origin that a sender has written is marked.
    """
    origin = message.get("original-destination") or message.get("originalDestination")
    reason = message.get("dead-letter-reason") or message.get("dlqDeliveryFailureCause")
    millis = message.get("dead-letter-time") or ""
    at = "-"
    if millis.isascii() and millis.isdigit() and len(millis) < 15:
        at = datetime.fromtimestamp(int(millis) / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")
    origin = (origin or message.get("_AMQ_ORIG_ADDRESS") or "-")[:200]
    return (
        origin + " (claimed)" * is_claimed(message, kind),
        (reason or "-")[:200],
        (message.get("dead-letter-attempts") or "-")[:20],
        at,
    )
