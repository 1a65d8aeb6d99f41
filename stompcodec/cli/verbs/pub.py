"""stompcodec pub: send messages, and exit when the broker has them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import TYPE_CHECKING, Any

import click

from stompcodec.cli.connecting import (
    as_text,
    body_argument,
    broker_options,
    connected,
    header_option,
    read_body,
    reporting_errors,
    text_option,
    warn_of_missing_slash,
)
from stompcodec.cli.files import frame_of
from stompcodec.cli.inputs import Number, complain
from stompcodec.cli.screen import StatusLine
from stompcodec.client.dialects import BROKERS, Pairs
from stompcodec.client.headers import of
from stompcodec.errors import RejectedError, StompError

if TYPE_CHECKING:
    from stompcodec import Frame
    from stompcodec.client import Client

#: Headers of a MESSAGE that the broker sets, not the sender.
OF_DELIVERY = of("place", "delivery")
#: Seconds between two updates of the progress line.
_REDRAW = 0.1
#: The longest pause between two messages in seconds; `sleep` overflows after 292 years.
_LONGEST = 1e9
#: A message to send, as `Client.send` takes it.
Outgoing = tuple[str, bytes | str, list[tuple[str, str]]]


class Tally:
    """Counts of sent and confirmed messages, and the progress line."""

    def __init__(self, quiet: bool) -> None:
        self.sent = 0
        self.confirmed = 0
        self.start()
        self._line = StatusLine(not quiet, _REDRAW)
        self.clear = self._line.clear

    def start(self) -> None:
        self._start = time.monotonic()

    def text(self) -> str:
        seconds = max(time.monotonic() - self._start, 1e-6)
        noun = "message" if self.sent == 1 else "messages"
        return f"{self.sent} {noun} sent, {self.confirmed} confirmed, {seconds:.1f} s, {self.sent / seconds:,.0f}/s"

    def moved(self) -> None:
        self._line.update(self.text)


def _of_lines(destination: str, source: str, headers: Pairs, text: bool | None, is_json: bool) -> Iterator[Outgoing]:
    """Yield a message for each line, perhaps of JSON, whose headers those of the command line replace."""
    named = {name for name, _ in headers}
    with _opened(source) as stream:
        for number, line in enumerate(stream, 1):
            if not is_json:
                yield destination, as_text(line.rstrip(b"\r\n"), headers, text), list(headers)
            elif line.strip():
                try:
                    frame = frame_of(line)
                except ValueError as error:
                    raise click.ClickException(f"line {number}: {error}") from None
                kept = [pair for pair in frame.headers.pairs() if pair[0] not in OF_DELIVERY and pair[0] not in named]
                pairs, stays = [*kept, *headers], None if text is None and was_text(frame) else bool(text)
                yield destination, as_text(frame.body, pairs, stays), pairs


def was_text(frame: Frame) -> bool:
    """Return whether a recorded frame was a text message for JMS, as far as its content-length tells."""
    return BROKERS["unknown" if frame.command == "MESSAGE" else "activemq"].is_text(frame.headers)


@contextmanager
def _opened(source: str) -> Iterator[Iterable[bytes]]:
    if source == "-":
        yield sys.stdin.buffer
    elif source.startswith("@"):
        try:
            with open(source[1:], "rb") as stream:
                yield stream
        except OSError as error:
            raise click.ClickException(f"{source[1:]}: cannot be read: {error.strerror}") from None
    else:
        yield source.encode("utf-8", "surrogateescape").splitlines()


def _paced(messages: Iterator[Outgoing], rate: float | None) -> Iterator[Outgoing]:
    if rate is None:
        yield from messages
        return
    due = time.monotonic()
    for message in messages:
        time.sleep(max(0.0, due - time.monotonic()))
        yield message
        due = max(due, time.monotonic() - 1.0) + min(1.0 / rate, _LONGEST)  # a pause is made up for, up to one second


def _send_one(client: Client, messages: Iterator[Outgoing], tally: Tally) -> None:
    """Send a message with a receipt, so that a refusal is that of the call."""
    for message in messages:
        client.send(*message, receipt=True)
        tally.sent = tally.confirmed = 1


def send_quickly(client: Client, messages: Iterator[Outgoing], tally: Tally) -> None:
    """Send all messages without receipts. A last receipt confirms that the broker has processed them."""
    for message in messages:
        client.send(*message)
        tally.sent += 1
        tally.moved()
    if client.options.receipts:
        client.ping()
        tally.confirmed = tally.sent


def _send_together(client: Client, messages: Iterator[Outgoing], tally: Tally) -> None:
    with client.transaction() as transaction:
        for message in messages:
            transaction.send(*message)
            tally.sent += 1
            tally.moved()
    tally.confirmed = tally.sent if client.options.receipts else 0


def send_all(
    messages: Iterator[Outgoing],
    send: Callable[[Client, Iterator[Outgoing], Tally], None],
    tally: Tally,
    broker: dict[str, Any],
    *,
    single: bool = False,
    destination: str = "",
    begin: Callable[[Client], object] = lambda _client: None,
) -> None:
    """Connect, call `begin`, send the messages, and report errors with the counts so far."""
    from stompcodec.client.dialects import PARTING

    refused: list[Frame] = []  # ERROR frames: they answer no call if messages have no receipt

    def see(direction: str, frame: Frame) -> None:
        if direction == "in" and frame.command == "ERROR" and frame.get("message") != PARTING:
            refused.append(frame)

    if send is send_quickly:
        broker["on_frame"] = see
    with reporting_errors():
        try:
            with connected(**broker) as client:
                warn_of_missing_slash(client, destination)
                begin(client)
                tally.start()
                send(client, messages, tally)
            if refused:
                tally.confirmed = max(0, tally.confirmed - len(refused))
                raise RejectedError(f"a message was refused: {refused[0].get('message', 'ERROR')}", refused[0])
        except (StompError, ValueError, KeyboardInterrupt):
            tally.clear()
            if tally.sent and not single:
                complain(f"stopped: {tally.text()}")
            raise
    tally.clear()


def _messages(
    destination: str, body: str, headers: Pairs, text: bool | None, form: str | None, count: int
) -> Iterator[Outgoing]:
    if form is not None:
        return _of_lines(destination, body, headers, text, form == "json")
    return repeat((destination, as_text(read_body(body), headers, text), list(headers)), count)


@click.command("pub")
@click.argument("destination", metavar="DEST")
@body_argument
@header_option("SEND")
@text_option
@click.option("-l", "--lines", "form", flag_value="lines", help="A message for each line.")
@click.option("--json", "form", flag_value="json", help="A message for each line of JSON, as sub --json writes them.")
@click.option(
    "-p/ ",
    "--persistent/--no-persistent",
    default=None,
    help="Keep the messages across restarts, or not: persistent:true or false.  [default: as the broker is configured]",
)
@click.option("--tx", is_flag=True, help="Send all in one transaction: all of them arrive, or none.")
@click.option("--rate", type=Number(0, min_open=True), metavar="N", help="At most N messages per second.")
@click.option("--count", type=click.IntRange(1), metavar="N", help="Send BODY this many times.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing on success.")
@broker_options
def command(
    destination: str,
    body: str,
    headers: Pairs,
    text: bool | None,
    form: str | None,
    persistent: bool | None,
    tx: bool,
    rate: float | None,
    count: int | None,
    quiet: bool,
    **broker: Any,
) -> None:
    """Send messages to DEST, and exit when the broker has them.

    The body is an argument, a file, or standard input, which is also read if BODY is missing and it is not a terminal.
    UTF-8 is sent as text (text/plain, a TextMessage for JMS), unless --bytes or -H content-type says something else.

    \b
      stompcodec pub /queue/a hello -p
      stompcodec pub /queue/a @photo.jpg -H content-type:image/jpeg
      tail -f log | stompcodec pub /topic/log -l
    """
    if form is not None and count is not None:
        raise click.UsageError("--count repeats one BODY: it cannot be used with --lines or --json")
    if persistent is not None:
        headers = (*headers, ("persistent", str(persistent).lower()))
    messages = _paced(_messages(destination, body, headers, text, form, count or 1), rate)
    single = form is None and (count or 1) == 1
    tally = Tally(quiet)
    send = _send_together if tx else _send_one if single else send_quickly
    send_all(messages, send, tally, broker, single=single, destination="" if quiet else destination)
    if not quiet and not single:
        click.echo(tally.text(), err=True)
