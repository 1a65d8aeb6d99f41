"""stompcodec purge: remove the messages of a queue."""

from __future__ import annotations

from typing import Any

import click

from stompcodec.cli.queues.tools import Tool, check_queue, remove, tool_options

_OF_TOOL = ("dry_run", "yes", "idle", "as_json", "quiet", "lenient")


@click.command("purge")
@click.argument("queue", metavar="QUEUE")
@tool_options
def command(queue: str, **given: Any) -> None:
    """Remove the messages that are in QUEUE. Those that other consumers hold, and those that come later, stay. So do
    those that the broker cannot write as STOMP, which end the verb, unless --lenient is given.

    \b
      stompcodec purge /queue/test --dry-run
      stompcodec purge /queue/test --yes
    """
    check_queue(queue, "QUEUE")
    tool = Tool("remove", "removed", queue, "", removes=True, **{name: given.pop(name) for name in _OF_TOOL})
    tool.run(given, lambda taking, tally, moved: remove(taking, tally, moved))
