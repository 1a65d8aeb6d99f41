"""Options of the sink "stomp"."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stompcodec.spark.options.connection import LinkOptions, parse_link
from stompcodec.spark.options.options import ELSEWHERE, Option, OptionError

#: Added to the options of a connection.
SINK_OPTIONS = (
    Option("destination", "text", None, "destination of the rows if they have no column destination"),
    Option("transaction", "bool", True, "a task's rows take effect together or not at all"),
    Option("receiptEvery", "count", 1000, "without transaction: messages for each receipt; 0 for no receipts"),
    Option("dedupeHeader", "text", "none", "header for an id that a repeated task sends again; auto: the broker's own"),
    Option(
        "idPrefix", "text", None, "prefix of these ids, instead of the query's id, or of a new id for each batch write"
    ),
    Option("receiptTimeout", "seconds positive", 60.0, "a task fails if the broker does not answer for this long"),
    Option("reconnectTimeout", "seconds positive", 30.0, "a task tries to connect for this long"),
)
#: Headers that the sink writes itself.
_TAKEN = ("destination", "content-length", "transaction", "receipt")


@dataclass(frozen=True)
class SinkOptions:
    """Options for sending rows. They hold no secret.

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
    """Return the options of the sink "stomp". Raises as `parse`."""
    link, values = parse_link(options, SINK_OPTIONS, also=ELSEWHERE)
    result = SinkOptions(link, **values)
    if result.dedupe_header.lower() in _TAKEN:
        raise OptionError(f"option dedupeHeader is {result.dedupe_header!r}: the sink writes that header itself")
    if result.id_prefix is not None and not re.fullmatch(r"[!-9;-\[\]-~]{1,200}", result.id_prefix):
        raise OptionError("option idPrefix: it must be 1 to 200 visible ASCII characters without : and \\")
    return result
