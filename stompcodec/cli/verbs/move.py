"""stompcodec move: move messages from one queue to another of the same broker."""

from __future__ import annotations

from typing import Any

import click

from stompcodec.cli.queues.tools import (
    Aim,
    Tool,
    batch_option,
    carry,
    check_queue,
    limit_option,
    selector_option,
    tool_options,
)
from stompcodec.cli.screen import printable

_OF_TOOL = ("batch", "dry_run", "yes", "idle", "as_json", "quiet", "lenient")


@click.command("move")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@selector_option
@limit_option
@batch_option
@tool_options
def command(source: str, target: str, selector: str | None, limit: int | None, **given: Any) -> None:
    """Move the messages that are in the queue FROM to the queue TO.

    Each batch is moved in one transaction, so a message is in one of both queues at any time, even if this is killed.
    Headers and bodies are kept; message-ids are new.

    \b
      stompcodec move /queue/a /queue/b --dry-run
      stompcodec move /queue/orders /queue/eu --selector "region = 'eu'" --limit 100 --yes
    """
    check_queue(source, "FROM")
    check_queue(target, "TO")
    if source == target:
        raise click.UsageError(f"FROM and TO are one queue: {printable(source)}")
    tool = Tool(
        "move",
        "moved",
        source,
        f" to {target}",
        selector=selector,
        limit=limit,
        target=target,
        **{name: given.pop(name) for name in _OF_TOOL},
    )
    tool.run(given, lambda taking, tally, moved: carry(taking, lambda _message: Aim(target), tally, moved))
