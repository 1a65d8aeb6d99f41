"""QueueArguments: what a SUBSCRIBE or SEND says of the queue itself, in RabbitMQ's spelling: its queue arguments.

They hold as long as the queue is there, and are for a queue that is new: one that was used without them, or with
others, keeps what it has. `queues.arguments` says what happens to whoever asks for something else.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from stompcodec.broker.errors import Refused

__all__ = ["QueueArguments", "load_arguments", "read_arguments"]


class QueueArguments(NamedTuple):
    """Queue arguments. A field is None where nothing was said.

    >>> read_arguments({"x-max-length": "10", "x-overflow": "reject-publish"}.get).max_length
    10
    """

    message_ttl: float | None = None
    """Seconds until a message expires, if it does not say a shorter time itself."""
    expires: float | None = None
    """Seconds without a consumer after which the queue goes, with what is in it."""
    max_length: int | None = None
    max_length_bytes: int | None = None
    """What it may hold. Above, the oldest go."""
    reject_publish: bool = False
    """Above, SENDs are refused instead."""
    dead_letter_queue: str | None = None
    """The name of the queue for its dead letters, without a prefix. They are those that expired, or went for others."""

    @property
    def text(self) -> str:
        """As the store keeps them. `load_arguments` reads it."""
        return json.dumps(self)


_Header = Callable[[str], "str | None"]
#: Headers of which any makes the difference. Others (x-max-priority, and x-queue-type but for streams) mean nothing
#: here: each queue has priorities, and is kept as its messages say.
_NAMES = (
    *("x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-overflow"),
    *("x-dead-letter-exchange", "x-dead-letter-routing-key", "x-queue-type"),
)


def read_arguments(header: _Header) -> QueueArguments | None:
    """What the headers of a SUBSCRIBE or SEND say of the queue; None if they say nothing.

    Args:
        header: gives the value of a header, or None.

    Raises:
        Refused: it is what no queue here can be.
    """
    if list(map(header, _NAMES)).count(None) == len(_NAMES):
        return None
    if header("x-queue-type") == "stream":
        raise Refused("streams are not supported", "Browse a queue: browser:true, from-seq:N, include-seq:NAME.")
    message_ttl, expires = _number(header, "x-message-ttl", 0), _number(header, "x-expires", 1)
    overflow = header("x-overflow") or "drop-head"
    if overflow not in ("drop-head", "reject-publish"):
        raise Refused("bad x-overflow", "It is drop-head or reject-publish.")
    arguments = QueueArguments(
        None if message_ttl is None else message_ttl / 1000,
        None if expires is None else expires / 1000,
        _number(header, "x-max-length", 0),
        _number(header, "x-max-length-bytes", 0),
        overflow == "reject-publish",
        _dead_letter(header),
    )
    return None if arguments == QueueArguments() else arguments


def load_arguments(text: str | None) -> QueueArguments | None:
    """Read what `QueueArguments.text` wrote; None if it is something else.

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
        remedy = "x-dead-letter-exchange is empty, and x-dead-letter-routing-key is the name of a queue."
        raise Refused("bad x-dead-letter-exchange", remedy)
    return key


def _number(header: _Header, name: str, least: int) -> int | None:
    text = header(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text) >= least):
        raise Refused(f"bad {name}", f"{name} is a whole number, {least} or more.")
    return int(text)
