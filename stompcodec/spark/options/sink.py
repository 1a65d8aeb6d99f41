"""The options of "stomp" as a sink: where the broker is, and how rows get there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stompcodec.spark.options.connection import LinkOptions, parse_link
from stompcodec.spark.options.options import Option, OptionError

__all__ = ["SINK_OPTIONS", "SinkOptions", "parse_sink"]

#: Beside those of a connection.
SINK_OPTIONS = (
    Option("destination", "text", None, "where rows go if there is no column destination"),
    Option("transaction", "bool", True, "a task's rows take effect together or not at all"),
    Option(
        "receiptEvery", "count", 1000, "without transaction: a receipt is asked for every so many messages; 0 for none"
    ),
    Option("dedupeHeader", "text", "none", "header for an id that a repeated task gives again; auto: the broker's own"),
    Option("idPrefix", "text", None, "how these ids begin, instead of the query's id; at batch writes: a new one each"),
    Option("receiptTimeout", "seconds positive", 60.0, "a task fails when the broker has not answered for so long"),
    Option("reconnectTimeout", "seconds positive", 30.0, "a task tries for so long to connect"),
)
#: What Spark itself takes out of the options.
_ELSEWHERE = ("path", "checkpointLocation", "queryName")
#: What the sink writes itself.
_TAKEN = ("destination", "content-length", "transaction", "receipt")


@dataclass(frozen=True)
class SinkOptions:
    """How rows are sent. It holds no secret, only where there is one.

    >>> parse_sink({"url": "stomp://h", "transaction": "false"}).receipt_every
    1000
    """

    link: LinkOptions
    destination: str | None
    transaction: bool
    receipt_every: int
    dedupe_header: str
    id_prefix: str | None
    receipt_timeout: float
    reconnect_timeout: float


def parse_sink(options: Mapping[str, Any]) -> SinkOptions:
    """The options of "stomp" as a sink.

    Raises:
        OptionError: one of them cannot be so; the message names it, and shows no secret.
    """
    link, values = parse_link(options, SINK_OPTIONS, also=_ELSEWHERE)
    result = SinkOptions(link, **values)
    if result.dedupe_header.lower() in _TAKEN:
        raise OptionError(f"option dedupeHeader is {result.dedupe_header!r}: the sink writes that header itself")
    if result.id_prefix is not None and not re.fullmatch(r"[!-9;-\[\]-~]{1,200}", result.id_prefix):
        raise OptionError("option idPrefix: it has to be 1 to 200 visible ASCII characters without : and \\")
    return result
