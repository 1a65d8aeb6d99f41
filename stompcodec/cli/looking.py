"""Looking into queues: kinds of brokers, headers of dead letters, and tables of messages that stay."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from stompcodec.bridge.headers import REFUSED, TAKERS, taken_value
from stompcodec.bridge.sources import GIVERS
from stompcodec.cli.app import INTERRUPTED
from stompcodec.cli.connecting import (
    PassedOver,
    connected,
    lenient_option,
    passing_over,
    reporting_errors,
    warn_of_missing_slash,
)
from stompcodec.cli.inputs import option_group
from stompcodec.cli.screen import cut, header_value, pad, printable, screen
from stompcodec.cli.show import Handler, body_begin, handler, template_of
from stompcodec.cli.streams import stop_on_signals
from stompcodec.client.dialects import BROKERS, BrokerDialect, row_of
from stompcodec.client.headers import ANYCAST, AsIs, of
from stompcodec.errors import ConnectionLostError, LocalProtocolError, ReceiptTimeoutError, RejectedError
from stompcodec.shown import plural

if TYPE_CHECKING:
    from stompcodec.client import Client, Message

#: Brokers that know selectors. Others ignore them, and deliver everything.
_SELECTING = ("stompcodec", "activemq", "artemis")
#: Brokers that commit SENDs and ACKs together, so that a crash of the tool or of the broker undoes both or neither.
_ATOMIC = ("stompcodec", "activemq")


class Kind(NamedTuple):
    """A kind of broker, as these tools see it."""

    name: str
    title: str
    shows: bool
    """A browser shows the messages of a queue and leaves them there."""
    selects: bool
    atomic: bool
    """SENDs and ACKs of a transaction take effect together. Otherwise the ACKs follow the confirmed SENDs."""
    dead_letters: str = ""
    """The queue of dead letters by default; a star stands for any rest, where the broker lists its queues."""
    row: BrokerDialect = BROKERS["unknown"]
    """Its dialect, which says when two names mean one queue."""
    management: str = ""
    """The prefix of the names that our broker takes as requests: it answers them and stores nothing. Else empty."""

    @property
    def is_ours(self) -> bool:
        return self.name == "stompcodec"

    def answers(self, destination: str) -> bool:
        """Return whether a destination is that of a request, so that a message sent to it would be lost."""
        return bool(self.management) and destination.startswith(self.management)

    def check_keeps(self, destination: str) -> None:
        if self.answers(destination):
            what = f"names with {printable(self.management)} are requests to the broker"
            raise click.UsageError(f"{printable(destination)!r} is not a queue: {what}")

    def check_differ(self, source: str, target: str) -> None:
        if self.row.is_same(source, target):
            names = f"{printable(source)} and {printable(target)}"
            raise click.UsageError(f"{names} are one queue: name another one to send the messages to")

    def is_end(self, message: Message) -> bool:
        """Return whether a browser's message marks its end. The message-ids of no other message look like this."""
        if message.get("browser") != "end" or message.body:
            return False
        return message.id.endswith("-end") if self.is_ours else not message.id.startswith("ID:")

    def check_shows(self, queue: str, why: str) -> None:
        if not self.shows:
            raise click.UsageError(f"{self.title} cannot show the messages of {queue} without taking them: {why}")

    def check_selects(self, selector: str | None) -> None:
        if selector is not None and not self.selects:
            raise click.UsageError(f"{self.title} ignores selectors, and would give all messages: leave out --selector")


def kind_of(client: Client) -> Kind:
    server = (client.connected.get("server") if client.connected is not None else None) or ""
    row = row_of(client.dialect, server)
    ours = server.startswith("stompcodec/")
    name = "stompcodec" if ours else client.dialect if client.dialect in GIVERS else "unknown"
    atomic = name in _ATOMIC and not (ours and client.dialect == "artemis")  # whose ACKs ignore their transaction
    letters = {"stompcodec": "/queue/DLQ.*", "activemq": "/queue/ActiveMQ.DLQ"}.get(
        "activemq" if client.dialect == "activemq" else name, ""
    )
    giver = GIVERS[name]
    return Kind(name, giver.title, bool(giver.browse), name in _SELECTING, atomic, letters, row)


#: Headers that the broker sets anew, or that belong to one delivery.
_DELIVERY = of("place", "delivery", "made") | {"deliver-at", REFUSED}
#: Headers that would take effect a second time: the key makes the broker drop the message as a duplicate, a delay makes
#: it wait again, and the arguments make another queue. They stay readable under another name, as do values that the
#: broker would refuse.
_ONCE = of("key", "schedule", "argument", "type")
#: Headers that say why a message became a dead letter, which it no longer is where it goes back.
_CAUSE = of("cause", "death")
_ORIGINAL = "original-"
#: The headers by which brokers say where a dead letter came from: ours and ActiveMQ, ActiveMQ's own API, Artemis.
_ORIGINS = ("original-destination", "originalDestination", "_AMQ_ORIG_ADDRESS")
#: The message-id of a dead letter that our broker made of a message of a queue (l), or of a subscription (u, s).
_MARK = re.compile(r"[A-Za-z0-9._]+-d([lus])-[0-9]+", re.ASCII)
#: Names of destinations that ActiveMQ writes as URLs.
_SCHEME = "queue://"


def kept(
    pairs: list[tuple[str, str]], broker: str = "stompcodec", *, returns: bool = False, typed: bool = False
) -> AsIs:
    """Return the headers of the SEND for those of a MESSAGE, without destination. With `returns` it loses those of a
    dead letter; `typed` tells the broker that the destination is a queue.
    """
    if returns:
        pairs = [pair for pair in pairs if pair[0] not in _CAUSE]
    names = {name for name, _ in pairs}
    headers = AsIs()
    for name, value in pairs:
        taken = None if name in _ONCE else taken_value(TAKERS[broker], name, value)
        if taken is not None:
            headers += [] if name in _DELIVERY else [(name, taken)]
        elif _ORIGINAL + name not in names:
            headers.append((_ORIGINAL + name, value))
    return AsIs([*headers, ("destination-type", ANYCAST)]) if typed else headers


class Origin(NamedTuple):
    """Where a dead letter came from."""

    queue: str | None
    """None if that is not known, or not a queue that it can go back to."""
    is_proven: bool = False
    """The broker itself says it. Otherwise any sender could have written it."""


def origin_of(message: Message, letters: str, kind: Kind) -> Origin:
    """Return where a dead letter came from, by the mark in the message-id of our broker, else by headers."""
    mark = _MARK.fullmatch(message.id) if kind.is_ours else None
    if mark is not None:
        found = message.get("original-destination") if mark[1] == "l" else None
        return Origin(found if found and not kind.row.is_same(found, letters) else None, True)
    found = next((value for name in _ORIGINS if (value := message.get(name))), None)
    if found is None or message.get("_AMQ_ORIG_ROUTING_TYPE") == "0":  # Artemis: it was sent to a topic
        return Origin(None)
    prefix = next(filter(letters.startswith, kind.row.aliases[:1]), "")
    if found.startswith(_SCHEME):
        found = prefix + found[len(_SCHEME) :]
    elif not found.startswith("/") and "://" not in found:
        found = prefix + found
    fits = is_queue(found) and not kind.row.is_same(found, letters) and not kind.answers(found)
    return Origin(found if fits else None)


def is_queue(destination: str) -> bool:
    """Return whether a destination keeps what is sent to it, unlike topics, temporary queues and requests."""
    other = ("/topic/", "/temp-", "/remote-temp-", "/reply-queue/", "/exchange/", "/dsub/", "/management/")
    return not destination.startswith(other) and "://" not in destination


#: The most pages of names; each has up to 1000.
_MOST_PAGES = 1000
#: Seconds between two looks for an interruption.
_LOOK = 0.1


class Interrupted(Exception):
    """Raised when the user ends a tool before it has changed anything."""


class Looking(NamedTuple):
    """A queue to look at."""

    client: Client
    kind: Kind
    queue: str
    selector: str | None
    stopped: Callable[[], bool]
    """Asked now and then; True raises Interrupted."""
    timeout: float
    """The longest pause between two messages, in seconds."""
    passed: PassedOver | None = None
    """Notes messages that cannot be read, which are passed over; None: they are errors."""

    def messages(self) -> Iterator[Message]:
        """Yield the messages that wait in the queue now. Raises Interrupted if `stopped` said so."""
        options: Any = {"selector": self.selector, "headers": {"browser": "true", "browser-end": "true"}}
        options["on_unreadable"] = "raise" if self.passed is None else "ignore"
        with self.client.subscribe(self.queue, **options) as subscription:
            waited = 0.0
            while True:
                message = subscription.get(_LOOK)
                if self.stopped():
                    raise Interrupted
                if message is None:
                    waited += _LOOK
                    if waited > self.timeout:
                        raise ReceiptTimeoutError(f"the broker showed no end of {self.queue} in {self.timeout:g} s")
                    continue
                if self.kind.is_end(message):
                    return
                waited = 0.0
                yield message

    def total(self) -> int | None:
        """Return how many messages wait in the queue; None if the broker does not show it. Errors: `messages`."""
        if self.kind.is_ours and self.selector is None:
            rows = listed(self.client, self.queue)
            if rows:  # else a browser says whether the queue is empty, or may not be read
                return sum(int(row["ready"]) for row in rows)
        if not self.kind.shows:
            return None
        number = sum(1 for _ in self.messages())
        return number + self.passed.count if self.passed is not None and self.passed.removes else number

    def is_empty(self) -> bool:
        """Return whether no message waits in the queue, at a broker that shows queues. Errors: `messages`."""
        return next(self.messages(), None) is None


def listed(client: Client, pattern: str) -> list[dict[str, Any]] | None:
    """Return the queues that our broker has for a name, or for a beginning with a star; None if it does not tell."""
    rows: list[dict[str, Any]] = []
    after: str | None = None
    for _ in range(_MOST_PAGES):
        page = _page(client, pattern, after)
        if page is None:
            return None
        rows += page["destinations"]
        if page.get("next") is None:
            break
        after = str(page["next"])
    return [row for row in rows if row.get("kind") == "queue"]


def management_of(client: Client, queue: str) -> str:
    """Return the prefix of requests to our broker, as it says in an answer about a queue; "" if it does not tell."""
    page = _page(client, queue, None)
    return str(page.get("management") or "") if page is not None else ""


def _page(client: Client, pattern: str, after: str | None) -> dict[str, Any] | None:
    """Return a page of names with `destinations`, a list of objects; None if our broker does not tell."""
    headers = {"browser": "names"} if after is None else {"browser": "names", "from-name": after}
    try:
        answer = client.receive(pattern, headers=headers)
        page: dict[str, Any] = json.loads(b"" if answer is None else answer.body)
        return page if all(isinstance(row, dict) for row in page["destinations"]) else None
    except (ConnectionLostError, ReceiptTimeoutError):
        raise
    except (LocalProtocolError, RejectedError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, RejectedError) and "not allowed" in str(error):
            raise
        return None


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
    lenient_option,
)


def look(queue: str, selector: str | None, given: dict[str, Any], table: Callable[[Kind], Handler], why: str) -> None:
    """Show the messages of a queue. Exit with status 2 if the broker cannot; `why` says what to do then."""
    limit, form, view, lenient = (given.pop(name) for name in ("limit", "form", "view", "lenient"))
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
            for number, message in enumerate(islice(found, limit), 1):
                handle(message, number)
        except Interrupted:
            sys.exit(INTERRUPTED)
    sys.stdout.flush()
    more = "; --limit shows no more" if number == limit else ""
    click.echo(f"{plural(number, 'message')} in {printable(queue)}{more}", err=True)


def message_table(_kind: Kind) -> Handler:
    return _table(
        ("NUMBER", "MESSAGE-ID", "HEADERS", "BYTES"), _WIDTHS, lambda message: (message.id, _headers(message))
    )


def letter_table(kind: Kind) -> Handler:
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
    """Return origin, reason, attempts and time of a dead letter. An origin that a sender has written is marked."""
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
