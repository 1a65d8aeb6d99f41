"""Bound and Window: the most that one queue may hold, and the most of it that is in memory.

`memory.py` bounds all queues together.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from stompcodec.broker.config.config import Config
from stompcodec.broker.memory import LOW

#: The most messages of a queue in memory, unless the configuration says how many it may hold in all.
_MOST_MESSAGES = 1_000_000
#: What a window does not bound, for errors that say that a queue is full.
NOT_PAGED = (
    "Not paged, but in memory as a whole: messages that are not persistent, those not acknowledged yet, "
    "queues with x-max-length or x-max-length-bytes, and durable subscriptions with topics.durable_overflow = drop."
)
#: The bytes of a queue that are in memory, unless the configuration says it; and their part of `limits.memory`.
_WINDOW, _WINDOW_PART = 4 * 2**20, 16


@dataclass(slots=True)  # a NamedTuple would cost 1 % of the instructions of a persistent SEND
class Window:
    """The most READY messages of a queue in memory, and about how many bytes. Later ones are in the store only."""

    messages: int
    octets: int
    spools: bool = False
    """Messages that are not persistent stay in the store, too."""

    @classmethod
    def of(cls, config: Config) -> Window:
        """Return the window of each queue."""
        octets = config.window_octets or min(_WINDOW, config.memory // _WINDOW_PART)
        return cls(config.window_messages, octets, config.transient == "spool")


@dataclass(slots=True)
class Bound:
    """The most messages, READY and UNACKED, that a queue may hold in memory, and their bytes.

    `total` bounds them together with those that are in the store only.

    >>> Bound(10, 100).octets
    100
    """

    messages: int
    octets: int
    total: float = inf

    @classmethod
    def of(cls, config: Config) -> Bound:
        """Return the bound of each queue."""
        most = config.max_queue_messages
        return cls(most or _MOST_MESSAGES, config.max_queue_octets, most or inf)

    def is_low(self, messages: int, octets: int) -> bool:
        """Return whether there is room for more than one message.

        >>> Bound(10, 100).is_low(7, 75), Bound(10, 100).is_low(8, 0)
        (True, False)
        """
        return messages <= self.messages * LOW and octets <= self.octets * LOW
