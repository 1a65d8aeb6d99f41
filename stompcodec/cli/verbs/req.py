"""stompcodec req, reply: send a request and show the answer; answer requests of any client that sends a reply-to."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from stompcodec.cli.connecting import (
    Stopped,
    as_text,
    body_argument,
    broker_options,
    check_count,
    connected,
    connection_options,
    expect_option,
    header_option,
    read_body,
    reporting_errors,
    text_option,
    warn_of_missing_slash,
)
from stompcodec.cli.inputs import Duration, complain, time_option
from stompcodec.cli.screen import printable, write_json
from stompcodec.cli.show import Template, message_line, run_command, template_of
from stompcodec.cli.streams import stop_on_signals
from stompcodec.cli.verbs.sub import Receiver, Watch, attempts_option
from stompcodec.errors import ConnectionLostError, LocalProtocolError, ReceiptTimeoutError, RejectedError

if TYPE_CHECKING:
    from stompcodec.client import Message

#: Default seconds to wait for an answer, and for the broker.
_ANSWER = 30.0
_BROKER = 10.0


@click.command("req")
@click.argument("destination", metavar="DEST")
@body_argument
@header_option("request")
@text_option
@time_option(
    "-w",
    "--timeout",
    "seconds",
    help=f"How long to wait for the answer, and to connect.  [default: {_ANSWER:g}, to connect {_BROKER:g}]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the answer as a JSON object, with its headers.")
@connection_options
def command(
    destination: str,
    body: str,
    headers: tuple[tuple[str, str], ...],
    text: bool | None,
    seconds: float | None,
    as_json: bool,
    **broker: Any,
) -> None:
    """Send a request to DEST and show the body of the answer.

    The answer is expected on a temporary queue: send it to the request's reply-to, with its correlation-id.

    \b
      stompcodec req /queue/time 'what time is it?'
      stompcodec req /queue/prices @query.json --timeout 2 --json
    """
    content = as_text(read_body(body), headers, text)
    wait = _ANSWER if seconds is None else seconds
    with reporting_errors(), connected(**broker, timeout=_BROKER if seconds is None else seconds) as client:
        warn_of_missing_slash(client, destination)
        try:
            answer = client.request(destination, content, wait, headers)
        except ReceiptTimeoutError as error:
            if "receipts=False" in str(error):
                raise
            complain(
                f"no answer came in {wait:g} s (does anything answer at {printable(destination)}? "
                "wait longer with --timeout)"
            )
            sys.exit(1)
        if as_json:
            write_json(message_line(answer))
        elif sys.stdout.isatty():
            print(printable(answer.body.decode("utf-8", "replace"), keep="\n\t"))
        else:
            sys.stdout.buffer.write(answer.body)
        sys.stdout.flush()


#: Requests that may wait for their answers here, where a command may be slow, and else.
_PREFETCH_COMMAND, _PREFETCH = 1, 100
#: The most requests that are remembered because their answers were refused.
_REMEMBERED = 1000


class Answers:
    """A handler of requests that sends the answers. `failed` counts those that were made, and could not be sent."""

    def __init__(self, make: Callable[[Message, int], bytes | str], headers: tuple[tuple[str, str], ...]) -> None:
        self._make = make
        self._headers = dict(headers)
        self._refused: dict[str, None] = {}
        self.failed = 0
        self.answered = 0

    def __call__(self, message: Message, number: int) -> None:
        if (message.identity or message.id) in self._refused:  # the refusal cost the connection before its ACK
            return
        if message.get("reply-to") is None:
            self._fail(message, "it has no reply-to")
            return
        body = self._make(message, number)
        try:
            message.reply(body, self._headers, receipt=True)
        except RejectedError as error:
            self._fail(message, f"the answer was refused: {error}")
            if len(self._refused) >= _REMEMBERED:
                self._refused.pop(next(iter(self._refused)))
            self._refused[message.identity or message.id] = None
        except (ConnectionLostError, ReceiptTimeoutError) as error:  # it is delivered again
            complain(f"request {printable(message.id)}: {printable(str(error))}")
        except (ValueError, LocalProtocolError) as error:
            self._fail(message, str(error))
        else:
            self.answered += 1

    def _fail(self, message: Message, why: str) -> None:
        self.failed += 1
        complain(f"request {printable(message.id)}: {printable(why)}")


def _maker(body: str | None, template: Template | None, shell_command: str | None) -> Callable[[Message, int], bytes]:
    if sum(each is not None for each in (body, template, shell_command)) != 1:
        raise click.UsageError("give the answer once: as BODY, --format or --exec")
    if shell_command is not None:
        return lambda message, number: run_command(shell_command, message, number, subprocess.PIPE)
    if template is not None:
        return template.render
    content = read_body(body or "")
    return lambda _message, _number: content


@click.command("reply")
@click.argument("destination", metavar="DEST")
@click.argument("body", metavar="[BODY|@FILE|-]", required=False)
@click.option(
    "-f",
    "--format",
    "template",
    callback=template_of,
    metavar="FORMAT",
    help="Answer with a template: {body}, {headers[NAME]} and so on are those of the request, as in sub --format.",
)
@click.option(
    "--exec",
    "shell_command",
    metavar="CMD",
    help="Answer with the output of CMD, run in the shell for each request, with its body as input, and "
    "STOMP_DESTINATION, STOMP_MESSAGE_ID and STOMP_HEADERS (JSON) in the environment. If it fails, it runs again; at "
    "last the request becomes a dead letter.",
)
@attempts_option
@header_option("SEND")
@text_option
@click.option("-n", "--count", "most", type=click.IntRange(1), metavar="N", help="End after N requests.")
@click.option("-w", "--wait", "seconds", type=Duration(0), metavar="TIME", help="End after this time.")
@expect_option
@broker_options
def reply(
    destination: str,
    body: str | None,
    template: Template | None,
    shell_command: str | None,
    attempts: int,
    dead_letter: str | None,
    headers: tuple[tuple[str, str], ...],
    text: bool | None,
    most: int | None,
    seconds: float | None,
    expect: float | None,
    **broker: Any,
) -> None:
    """Answer the requests that come to DEST.

    Each answer goes to the reply-to of its request, with its correlation-id. A request is acknowledged once the broker
    has the answer. A lost connection is restored.

    \b
      stompcodec reply /queue/ping pong
      stompcodec reply /queue/echo -f 'you said {body}'
      stompcodec reply /queue/time --exec date -n 1
    """
    from stompcodec.client import Backoff

    make = _maker(body, template, shell_command)
    answers = Answers(lambda message, number: as_text(make(message, number), headers, text), headers)
    usual = _PREFETCH if shell_command is None else _PREFETCH_COMMAND
    receiver, watch, stopped = Receiver(answers, most, attempts, expect), Watch(), Stopped()
    with stop_on_signals(stopped.set), reporting_errors():
        with connected(stopped, **broker, reconnect=Backoff(), on_state=watch) as client:
            warn_of_missing_slash(client, destination)
            options: Any = {"prefetch": min(usual, most or usual), "dead_letter": dead_letter}
            subscription = client.subscribe(destination, ack="client-individual", **options)
            watch.subscribed = True
            receiver.watch(subscription)
            if sys.stderr.isatty():
                click.echo(f"answering requests to {printable(destination)}; Ctrl-C ends", err=True)
            receiver.wait(seconds, stopped.is_set)
        if receiver.error is not None:
            raise receiver.error
    click.echo(f"{answers.answered} request{'s' * (answers.answered != 1)} answered", err=True)
    if not stopped.is_set():
        check_count(receiver.count, most, seconds)
    sys.exit(1 if answers.failed or receiver.failed else 0)
