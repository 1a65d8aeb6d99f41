"""What happens when a handler is done with a message, or fails."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from stompcodec.client.message import BaseMessage
from stompcodec.errors import StaleAckError, StompError

__all__ = ["POLICIES", "Policy", "checked_policy", "decide", "note"]

log = logging.getLogger("stompcodec.client")

#: What is done with the message of a handler that raised: (command, requeue), or None to leave it alone.
POLICIES: dict[str, tuple[str, bool | None] | None] = {
    "nack": ("NACK", None),
    "requeue": ("NACK", True),
    "discard": ("NACK", False),
    "ack": ("ACK", None),
    "ignore": None,
    "stop": None,
}
#: One of the names above, or a function of the message and the error that returns one of them.
Policy = str | Callable[[Any, Exception], str]


def checked_policy(on_error: Policy) -> Policy:
    """The policy, or ValueError.

    >>> checked_policy("nack")
    'nack'
    """
    if not callable(on_error) and on_error not in POLICIES:
        raise ValueError(f"on_error is {on_error!r}: use {', '.join(POLICIES)}, or a function that returns one of them")
    return on_error


def decide(on_error: Policy, message: BaseMessage, error: Exception) -> str:
    """What to do about an exception of a handler; it is logged in any case, and never leaves here."""
    log.error("the handler of %s failed", message.subscription.destination, exc_info=error)
    if not callable(on_error):
        return on_error
    try:
        policy = on_error(message, error)
    except Exception:
        log.exception("the on_error function failed as well: the message is left alone")
        return "ignore"
    if policy not in POLICIES:
        log.error("the on_error function returned %r: the message is left alone", policy)
        return "ignore"
    return policy


def note(error: StompError) -> None:
    """A message of a handler could not be settled: it comes again, if the broker gives it again."""
    level = logging.INFO if isinstance(error, StaleAckError) else logging.WARNING
    log.log(level, "not settled: %s", error)
