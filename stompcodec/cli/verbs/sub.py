"""stompcodec sub: show messages as they arrive, or run a command for each."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from stompcodec.cli.connecting import (
    Stopped,
    broker_options,
    check_count,
    connected,
    expect_option,
    lenient_option,
    passing_over,
    report_reconnect,
    reporting_errors,
    subscription_of,
    subscription_options,
    warn_of_missing_slash,
)
from stompcodec.cli.inputs import Duration, complain
from stompcodec.cli.show import CommandError, Handler, Template, handler, template_of
from stompcodec.cli.streams import stop_on_signals
from stompcodec.errors import LocalProtocolError, StaleAckError

if TYPE_CHECKING:
    from stompcodec.client import Message, Subscription

_PREFETCH = 100
#: Runs of a command for one message, as of a handler of the client.
ATTEMPTS = 6
#: Seconds between two checks for Ctrl-C.
_LOOK = 0.1


def attempts_option(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option(
        "--dead-letter",
        metavar="DEST",
        help="Where copies of messages go for which CMD failed at last, in place of the broker's dead letter queue.",
    )(function)
    return click.option(
        "--attempts",
        type=click.IntRange(1, 10_000),
        default=ATTEMPTS,
        show_default=True,
        metavar="N",
        help="Run CMD up to N times for a message, with growing pauses.",
    )(function)


class Receiver:
    """A receiver that settles the messages of all subscriptions, up to `most`. Silent `expect` seconds are an error."""

    def __init__(
        self, handle: Handler, most: int | None, attempts: int = ATTEMPTS, expect: float | None = None
    ) -> None:
        from stompcodec.client.backoff import Expected
        from stompcodec.client.handlers import Handling, Retries

        self._expected = Expected(expect)
        self._handle = handle
        self._most = most
        self._attempts, self._retries, self._number = attempts, Retries(Handling(attempts=attempts)), 0
        self._turn = threading.Lock()
        self.over = threading.Event()
        self.count = 0
        self.failed = 0
        self.error: BaseException | None = None

    def watch(self, subscription: Subscription) -> None:
        threading.Thread(target=self._run, args=(subscription,), daemon=True).start()

    def _run(self, subscription: Subscription) -> None:
        try:
            for message in subscription:
                with self._turn:
                    if self.over.is_set():
                        return  # not acknowledged, so the broker delivers it to others
                    self._take(message)
        except BaseException as error:  # the main thread raises it
            self.error = self.error or error
        self.over.set()

    def _take(self, message: Message) -> None:
        self._number += 1
        calls, error = self._handled(message)
        if error is not None and (self.over.is_set() or self._is_stale(message)):
            self._retries.keep(message, calls)  # the broker delivers it again
            self.failed += self.over.is_set()
            return
        self.count += 1
        self.failed += error is not None
        if error is not None:
            complain(f"{error}; given up after {calls} calls" if calls > 1 else str(error))
        with suppress(StaleAckError):  # the connection was lost meanwhile: it is delivered again
            if error is None:
                message.ack()
            else:
                self._give_up(message, error)
        if self.count == self._most:
            self.over.set()

    def _give_up(self, message: Message, error: CommandError) -> None:
        """Give a message up. If there is no way, this ends with the error, and the message stays with the broker."""
        link = message.subscription.link
        if self._attempts == 1 and link.core.link.dialect.requeues:
            message.nack()
            return
        self._retries.held = None
        if not link.give_up(message, error, partial(self._rest, message)):
            raise LocalProtocolError(f"{error}; the message stays where it was: name a queue by --dead-letter")

    def _rest(self, message: Message) -> bool:
        self._retries.held = self._retries.pause(self._retries.held)
        return not (self.over.wait(self._retries.held) or self._is_stale(message))

    def _is_stale(self, message: Message) -> bool:
        return message.subscription.link.core.is_stale(message)

    def _handled(self, message: Message) -> tuple[int, CommandError | None]:
        """Handle a message, again after pauses if that fails; return the number of calls, and the last error."""
        retries, pause = self._retries, None
        calls = retries.calls_of(message)
        while True:
            calls += 1
            try:
                self._handle(message, self._number)
            except CommandError as error:
                if self._is_stale(message) or retries.is_last(calls, error):
                    return calls, error
                first, pause = pause is None, retries.pause(pause)
                if first:
                    complain(f"{error}; it runs again in {pause:g} s, {self._attempts} times in all at most")
                if self.over.wait(pause) or self._is_stale(message):
                    return calls, error
            else:
                retries.succeed()
                return calls, None

    def wait(self, seconds: float | None, interrupted: Callable[[], Any]) -> None:
        """Wait for the end, a time or Ctrl-C. Return when the current message is handled; no other follows."""
        until = None if seconds is None else time.monotonic() + seconds
        try:
            while not (interrupted() or self.over.is_set() or (until is not None and time.monotonic() >= until)):
                self._expected.check(self._number, time.monotonic(), busy=self._turn.locked())
                self.over.wait(_LOOK if until is None else min(_LOOK, max(0.0, until - time.monotonic())))
        finally:
            self.over.set()
            with self._turn:
                pass


class Watch:
    """Reports a lost connection, but not a first one that fails."""

    def __init__(self) -> None:
        self.subscribed = False

    def __call__(self, state: str, error: Exception | None) -> None:
        if self.subscribed:
            report_reconnect(state, error)


@click.command("sub")
@click.argument("destinations", metavar="DEST...", nargs=-1, required=True)
@click.option("-n", "--count", "most", type=click.IntRange(1), metavar="N", help="End after N messages.")
@click.option("-w", "--wait", "seconds", type=Duration(0), metavar="TIME", help="End after this time.")
@click.option(
    "-f",
    "--format",
    "form",
    default="{body}\\n",
    show_default=True,
    callback=template_of,
    metavar="FORMAT",
    help="A template with {body}, {destination}, {id}, {size}, {number}, {time}, {headers}, {headers[NAME]}.",
)
@click.option("--json", "view", flag_value="json", help="Print a JSON object per message, as pub --json reads them.")
@click.option("--pretty", "view", flag_value="pretty", help="Print headers, and the body decompressed and indented.")
@click.option(
    "--exec",
    "shell_command",
    metavar="CMD",
    help="Run CMD in the shell for each message, with the body as input, and STOMP_DESTINATION, STOMP_MESSAGE_ID and "
    "STOMP_HEADERS (JSON) in the environment. If it fails, it runs again; at last the message becomes a dead letter.",
)
@attempts_option
@expect_option
@subscription_options
@lenient_option
@broker_options
def command(
    destinations: tuple[str, ...],
    most: int | None,
    seconds: float | None,
    lenient: bool,
    form: Template,
    view: str | None,
    shell_command: str | None,
    attempts: int,
    dead_letter: str | None,
    expect: float | None,
    **broker: Any,
) -> None:
    """Show the messages of queues and topics as they come.

    A message is acknowledged once it is written, so none is lost. A lost connection is restored.

    \b
      stompcodec sub /queue/a -n 1
      stompcodec sub '/topic/prices.>' -f '{time} {destination} {headers[symbol]} {body}\\n'
      stompcodec sub /queue/jobs --exec 'process-job'
    """
    from stompcodec.client import Backoff
    from stompcodec.client.dialects import BROKERS

    options = {**subscription_of(broker), "on_unreadable": "skip" if lenient else "raise", "dead_letter": dead_letter}
    usual = 1 if shell_command is not None else _PREFETCH  # messages waiting for a command may go to another worker
    receiver, watch = Receiver(handler(form, view, shell_command), most, attempts, expect), Watch()
    stopped = Stopped()
    with reporting_errors(), stop_on_signals(stopped.set):
        with passing_over(lenient), connected(stopped, **broker, reconnect=Backoff(), on_state=watch) as client:
            options["prefetch"] = BROKERS[client.dialect].beside(min(usual, most or usual), options["headers"])
            for destination in destinations:
                warn_of_missing_slash(client, destination)
                subscription = client.subscribe(destination, ack="client-individual", **options)
                watch.subscribed = True  # before the first message is shown, after which users may rely on it
                receiver.watch(subscription)
            if sys.stderr.isatty():
                click.echo(f"waiting for messages of {', '.join(destinations)}; Ctrl-C ends", err=True)
            receiver.wait(seconds, stopped.is_set)
            if stopped.is_set():
                sys.exit(130)
        if receiver.error is not None:
            raise receiver.error
    check_count(receiver.count, most, seconds)
    sys.exit(1 if receiver.failed else 0)
