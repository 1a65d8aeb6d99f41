"""stompcodec browse: show the messages of a queue, and leave them there."""

from __future__ import annotations

from typing import Any

import click

from stompcodec.cli.connecting import broker_options
from stompcodec.cli.queues.looking import look, message_table, view_options
from stompcodec.cli.queues.tools import check_queue, selector_option


@click.command("browse")
@click.argument("queue", metavar="QUEUE")
@selector_option
@view_options
@broker_options
def command(queue: str, selector: str | None, **given: Any) -> None:
    """Show the messages that wait in QUEUE, in order. They stay there.

    Our broker and ActiveMQ can do this. RabbitMQ and Artemis would deliver the messages instead, so nothing is done.

    \b
      stompcodec browse /queue/orders
      stompcodec browse /queue/orders --selector "region = 'eu'" -n 10 --pretty
      stompcodec browse /queue/orders --format '{id} {body}\\n'
    """
    check_queue(queue, "QUEUE")
    look(queue, selector, given, message_table, "use sub, which takes them")
