"""stompcodec req: send a request, and show the answer."""

from __future__ import annotations

import sys
from typing import Any

import click

from stompcodec.cli.connecting import (
    as_text,
    body_argument,
    connected,
    connection_options,
    header_option,
    read_body,
    reporting_errors,
    warn_of_missing_slash,
)
from stompcodec.cli.inputs import Duration, complain
from stompcodec.cli.screen import printable, write_json
from stompcodec.cli.show import message_line
from stompcodec.errors import ReceiptTimeoutError

#: Default seconds to wait for an answer, and for the broker.
_ANSWER = 30.0
_BROKER = 10.0


@click.command("req")
@click.argument("destination", metavar="DEST")
@body_argument
@header_option("request")
@click.option(
    "-w",
    "--timeout",
    "seconds",
    type=Duration(0, min_open=True),
    metavar="TIME",
    help=f"How long to wait for the answer, and to connect.  [default: {_ANSWER:g}, to connect {_BROKER:g}]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the answer as a JSON object, with its headers.")
@connection_options
def command(
    destination: str,
    body: str,
    headers: tuple[tuple[str, str], ...],
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
    content = as_text(read_body(body), headers)
    wait = _ANSWER if seconds is None else seconds
    with reporting_errors(), connected(**broker, timeout=_BROKER if seconds is None else seconds) as client:
        warn_of_missing_slash(client, destination)
        try:
            answer = client.request(destination, content, wait, headers)
        except ReceiptTimeoutError:
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
