"""QueueArguments: the x- headers by which a SUBSCRIBE or SEND configures a queue, as in RabbitMQ.

They apply to a new queue, for as long as it exists. `Config.queue_arguments`, which the dialect sets, says what
happens to a client that names others later.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from stompcodec.broker.errors import Refused
from stompcodec.broker.values import read_value


class QueueArguments(NamedTuple):
    """The arguments of a queue. A field is None without its header.

    >>> read_arguments({"x-max-length": "10", "x-overflow": "reject-publish"}.get).max_length
    10
    """

    message_ttl: float | None = None
    """Seconds until a message expires, unless the message itself expires earlier."""
    expires: float | None = None
    """Seconds without a consumer after which the queue is deleted, with its messages."""
    max_length: int | None = None
    max_length_bytes: int | None = None
    """The most that the queue may hold. Above it, the oldest messages are dropped."""
    reject_publish: bool = False
    """Above it, SENDs are refused instead."""
    dead_letter_queue: str | None = None
    """The queue for messages that expired or were dropped, by its name without a prefix."""

    @property
    def is_bounded(self) -> bool:
        """True if messages are dropped or refused above a length, so that all of the queue is kept in memory."""
        return self.max_length is not None or self.max_length_bytes is not None

    @property
    def text(self) -> str:
        """The form in which the store keeps them. `load_arguments` reads it."""
        return json.dumps(self)


_Header = Callable[[str], "str | None"]
#: The headers that are read. x-max-priority, and x-queue-type except for streams, have no effect: each queue has
#: priorities, and stores the messages that ask for it.
_NAMES = (
    *("x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-overflow"),
    *("x-dead-letter-exchange", "x-dead-letter-routing-key", "x-queue-type"),
)


def read_arguments(header: _Header) -> QueueArguments | None:
    """Read the queue arguments of a SUBSCRIBE or SEND; return None if it has none. Raise Refused if one is invalid, or
    not supported.
    """
    if list(map(header, _NAMES)).count(None) == len(_NAMES):
        return None
    if header("x-queue-type") == "stream":
        raise Refused("streams are not supported", "Browse a queue: browser:true, from-seq:N, include-seq:NAME.")
    message_ttl, expires = _number(header, "x-message-ttl"), _number(header, "x-expires")
    overflow = header("x-overflow") or "drop-head"
    if overflow not in ("drop-head", "reject-publish"):
        raise Refused("bad x-overflow", "x-overflow must be drop-head or reject-publish.")
    arguments = QueueArguments(
        None if message_ttl is None else message_ttl / 1000,
        None if expires is None else expires / 1000,
        _number(header, "x-max-length"),
        _number(header, "x-max-length-bytes"),
        overflow == "reject-publish",
        _dead_letter(header),
    )
    return None if arguments == QueueArguments() else arguments


def load_arguments(text: str | None) -> QueueArguments | None:
    """Read what `QueueArguments.text` wrote; return None for any other text.

    >>> load_arguments(QueueArguments(max_length=3).text).max_length, load_arguments("no such text")
    (3, None)
    """
    try:
        return None if text is None else QueueArguments(*json.loads(text))
    except (ValueError, TypeError):
        return None


def _dead_letter(header: _Header) -> str | None:
    exchange, key = header("x-dead-letter-exchange"), header("x-dead-letter-routing-key")
    if exchange is None and key is None:
        return None
    if exchange != "" or not key:
        remedy = "x-dead-letter-exchange must be empty, and x-dead-letter-routing-key the name of a queue."
        raise Refused("bad x-dead-letter-exchange", remedy)
    return key


def _number(header: _Header, name: str) -> int | None:
    text = header(name)
    return None if text is None else read_value(name, text)
