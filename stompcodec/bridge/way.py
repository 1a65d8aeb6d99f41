"""The options of carrying."""

from __future__ import annotations

from typing import NamedTuple

#: Where refused messages go, at the source.
DEAD_LETTER = "/queue/bridge-dead-letters"


class Way(NamedTuple):
    """The options of carrying: prefetch, transactions, refusals, and when to end.

    >>> Way().prefetch
    200
    """

    prefetch: int = 200
    """The most unacknowledged messages of each subscription."""
    batch: int = 0
    """The number of messages in a transaction, at both ends where they can; 0 for none."""
    dead_letter: str = DEAD_LETTER
    """Where the source keeps refused messages."""
    most_refused: int = 100
    """The number of refused messages in a row after which the bridge ends."""
    persistent: bool = False
    """Mark all messages as persistent."""
    key: str | None = None
    """The header that identifies a message over redeliveries; None for the message-id, if that stays the same."""
    most: int | None = None
    """The number of messages after which it ends."""
    idle: float | None = None
    """With `Request.drain`, the seconds without a message after which the source counts as empty."""
