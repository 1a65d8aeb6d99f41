"""Options of the source "stomp" with replay=broker: our broker keeps numbered messages, so no spool is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stompcodec.spark.options.connection import LinkOptions, parse_link
from stompcodec.spark.options.options import ELSEWHERE, FILE_OPTIONS, FileOptions, Option, OptionError, file_options

#: Added to the options of a connection and of "stompfile".
REPLAY_OPTIONS = (
    Option("replay", ("spool", "broker"), "spool", "where Spark reads a repeated batch from"),
    Option("destination", "names", ..., "queues of our broker, such as /queue/a,/queue/b"),
    Option("release", "bool", True, "let the broker drop processed messages"),
    Option("clientId", "text", None, "client-id"),
    Option("splits", "count positive", 1, "tasks for each queue and batch"),
    Option("timeout", "seconds positive", 60.0, "the query fails if the broker does not answer for this long"),
)


@dataclass(frozen=True)
class ReplayOptions:
    """Options for reading queues of our broker by message number. They hold no secret.

    >>> parse_replay({"url": "stomp://h", "destination": "/queue/a", "replay": "broker"}).destination
    ('/queue/a',)
    """

    link: LinkOptions
    file: FileOptions
    destination: tuple[str, ...]
    release: bool
    client_id: str | None
    splits: int
    timeout: float


def is_replay(options: Mapping[str, Any]) -> bool:
    """Return True if the options say replay=broker.

    >>> is_replay({"Replay": "broker"}), is_replay({})
    (True, False)
    """
    return any(str(name).lower() == "replay" and str(value).lower() == "broker" for name, value in options.items())


def parse_replay(options: Mapping[str, Any]) -> ReplayOptions:
    """Return the options of "stomp" with replay=broker. Raises as `parse`."""
    link, values = parse_link(options, (*REPLAY_OPTIONS, *FILE_OPTIONS), also=ELSEWHERE)
    file = file_options(values)
    if file.max_bytes_per_trigger is not None:
        raise OptionError("option maxBytesPerTrigger does not work with replay=broker: use maxFramesPerTrigger")
    values.pop("replay")
    return ReplayOptions(link, file, **values)
