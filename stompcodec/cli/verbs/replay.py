"""stompcodec replay: send the messages of a capture to a broker again, at their original pace."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from stompcodec.cli.connecting import as_text, at_url, broker_options, text_option
from stompcodec.cli.files import FORMATS, Recorded, Source
from stompcodec.cli.inputs import Complaints
from stompcodec.cli.looking import kind_of, management_of
from stompcodec.cli.verbs.pub import OF_DELIVERY, Outgoing, Tally, send_all, send_quickly, was_text
from stompcodec.client.dialects import Pairs
from stompcodec.client.headers import AsIs

if TYPE_CHECKING:
    from stompcodec.client import Client

#: The usual prefix of requests to our broker.
_MANAGEMENT = "/management/"
#: Headers of the original delivery rather than the message; and its expiry, which has passed, so that a broker would
#: drop it.
_PASSING = OF_DELIVERY | {"expires", "expiration"}
#: Longest sleep in seconds, so that a lost connection and Ctrl-C are noticed.
_NAP = 0.5


class Pace:
    """The times at which messages are due: at twice the original speed with 2, as fast as possible with None.

    >>> pace = Pace(2.0)
    >>> [pace.wait(time, now) for time, now in ((5_000_000, 10.0), (6_000_000, 10.1), (0, 10.5), (6_000_000, 11.0))]
    [0.0, 0.4, 0.0, 0.0]
    """

    def __init__(self, speed: float | None) -> None:
        self._speed = speed
        self._first: tuple[int, float] | None = None

    def wait(self, recorded: int, now: float) -> float:
        """Return the seconds to wait for a message recorded at a time in µs; one of time 0 follows directly."""
        if self._speed is None or not recorded:
            return 0.0
        if self._first is None:
            self._first = recorded, now
        since, start = self._first
        return max(0.0, round(start + (recorded - since) / 1e6 / self._speed - now, 6))


class Period:
    """A part of a recording, in µs since 1970, or with a plus sign in seconds after the first message.

    >>> period = Period("+1", "+2.5")
    >>> [period.holds(time) for time in (7_000_000, 8_000_000, 9_400_000, 9_500_000)]
    [False, True, True, False]
    """

    def __init__(self, since: str | None, until: str | None) -> None:
        self._since, self._until = self._point(since), self._point(until)
        self._first = 0
        self.unknown = 0
        """Number of messages left out because their time is unknown."""

    @staticmethod
    def _point(text: str | None) -> tuple[bool, int] | None:
        """Return whether a time is relative to the first message, and the time in µs."""
        if text is None:
            return None
        try:
            if text.startswith("+"):
                return True, round(float(text[1:]) * 1e6)
            return False, round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1e6)
        except (ValueError, OverflowError, OSError):
            raise click.BadParameter(
                f"{text!r}: write a time as 2026-03-01T12:00:00, with Z for UTC, or +SECONDS from the first message on"
            ) from None

    def holds(self, recorded: int) -> bool:
        if self._since is None and self._until is None:
            return True
        if not recorded:
            self.unknown += 1
            return False
        self._first = self._first or recorded
        since, until = (
            None if point is None else point[1] + (self._first if point[0] else 0)
            for point in (self._since, self._until)
        )
        return (since is None or recorded >= since) and (until is None or recorded < until)


def new_destination(destination: str, rules: Pairs) -> str:
    """Return a message's new destination by the first matching rule. A star at the end matches the rest.

    >>> new_destination("/topic/a/b", (("/topic/*", "/queue/copy.*"),))
    '/queue/copy.a/b'
    >>> new_destination("/queue/a", (("*", "/queue/all"),))
    '/queue/all'
    """
    for old, new in rules:
        if old == destination:
            return new
        if old.endswith("*") and destination.startswith(old[:-1]):
            rest = destination[len(old) - 1 :]
            return new[:-1] + rest if new.endswith("*") else new
    return destination


def _rules(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> Pairs:
    """Parse OLD=NEW, or NEW for all messages: a callback of click."""
    rules = []
    for value in values:
        old, sign, new = value.partition("=")
        if not (new if sign else old):
            raise click.BadParameter(f"{value!r}: write OLD=NEW, or NEW alone for all messages")
        rules.append((old, new) if sign else ("*", old))
    return tuple(rules)


def speed_of(_context: click.Context, _option: click.Parameter, value: str) -> float | None:
    """Parse a speed, None for the fastest: a callback of click."""
    if value == "max":
        return None
    try:
        speed = float(value.rstrip("x"))
    except ValueError:
        speed = 0.0
    if not 0 < speed < 1e9:
        raise click.BadParameter(f"{value!r}: write a number, as in 2 for twice as fast, or max")
    return speed


def _messages(source: Source, period: Period, only: str | None) -> Iterator[Recorded]:
    for each in source:
        wanted = each.frame.command in ((only,) if only else ("MESSAGE", "SEND"))
        if wanted and each.frame.get("destination") is not None and period.holds(each.time):
            yield each


class Requests:
    """The requests to manage our broker: a capture gives orders only if the user wants that (`are_sent`)."""

    def __init__(self, are_sent: bool) -> None:
        self._are_sent = are_sent
        self._prefix = ""
        self.left_out = 0
        """Number of messages left out because they are requests."""

    def begin(self, client: Client) -> None:
        if not self._are_sent and kind_of(client).name in ("stompcodec", "unknown"):
            self._prefix = management_of(client, "/queue/replay") or _MANAGEMENT

    def has(self, destination: str) -> bool:
        """Return whether a message to a destination is left out, and count it. STOMP 1.0 ignores spaces at the ends."""
        is_one = bool(self._prefix) and destination.strip().startswith(self._prefix)
        self.left_out += is_one
        return is_one

    def report(self, complaints: Complaints) -> None:
        if self.left_out:
            what = f"they are requests to manage the broker (names with {self._prefix})"
            complaints(f"{self.left_out} messages were left out: {what}; --management sends them")


def _due(
    messages: Iterator[Recorded], rules: Pairs, pace: Pace, tally: Tally, requests: Requests, text: bool | None
) -> Iterator[Outgoing]:
    for each in messages:
        destination = new_destination(each.frame.headers["destination"], rules)
        if requests.has(destination):
            continue
        while (seconds := pace.wait(each.time, time.monotonic())) > 0:
            tally.moved()
            time.sleep(min(seconds, _NAP))
        frame = each.frame
        headers = AsIs(pair for pair in frame.headers.pairs() if pair[0] not in _PASSING)
        yield destination, as_text(frame.body, (), was_text(frame) if text is None else text), headers


@click.command("replay")
@click.argument("capture", metavar="CAPTURE", type=click.Path(allow_dash=True))
@click.argument("broker_url", metavar="[URL]", required=False)
@click.option(
    "--speed", default="1", show_default=True, callback=speed_of, metavar="N|max", help="Speed: 2 is twice as fast."
)
@click.option("--from", "since", metavar="TIME", help="Begin at this time: 2026-03-01T12:00:00Z, or +SECONDS.")
@click.option("--to", "until", metavar="TIME", help="End before this time.")
@click.option(
    "-d",
    "--destination",
    "rules",
    multiple=True,
    callback=_rules,
    metavar="[OLD=]NEW",
    help="Send to another destination; /topic/*=/queue/* keeps the rest. Repeatable, the first match counts.",
)
@click.option(
    "--only", type=click.Choice(["MESSAGE", "SEND"]), help="Only the frames that one side of a conversation sent."
)
@click.option(
    "--format", "form", type=click.Choice(FORMATS), help="Format of CAPTURE. Default: by its name and content."
)
@click.option("--management", is_flag=True, help="Send requests to manage the broker, too. They act with your rights.")
@text_option
@click.option("-q", "--quiet", is_flag=True, help="Print nothing on success.")
@broker_options
def command(
    capture: str,
    broker_url: str | None,
    speed: float | None,
    since: str | None,
    until: str | None,
    rules: Pairs,
    only: str | None,
    form: str | None,
    management: bool,
    text: bool | None,
    quiet: bool,
    **broker: Any,
) -> None:
    """Send the messages of CAPTURE to a broker again, and exit when it has them.

    CAPTURE may be anything that convert reads. Headers are kept, except those of the old delivery and expires. Messages
    without a time, as in raw streams, are sent as fast as possible. Requests to manage our broker are left out, and
    make the exit status 1.

    \b
      stompcodec replay feed.stompcap stomp://localhost --speed 10
      stompcodec replay feed.stompcap -d /topic/*=/queue/test.* --from +60 --to +120
    """
    if broker_url is not None:
        at_url(broker, broker_url)
    period, complaints = Period(since, until), Complaints()
    tally = Tally(quiet)
    source = Source(capture, form, complaints)
    if capture != "-" and not os.path.exists(capture):  # before connecting
        complaints(f"{source.name}: cannot be read: {os.strerror(errno.ENOENT)}")
        raise SystemExit(1)
    requests = Requests(management)
    messages = _due(_messages(source, period, only), rules, Pace(speed), tally, requests, text)
    send_all(messages, send_quickly, tally, broker, begin=requests.begin)
    requests.report(complaints)
    if period.unknown:
        complaints(f"{source.name}: {period.unknown} messages were left out, because their time is unknown")
    if not quiet:
        click.echo(tally.text(), err=True)
    if complaints.count:
        raise SystemExit(1)
