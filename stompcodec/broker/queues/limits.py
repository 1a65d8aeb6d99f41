"""Bound: the most that one queue may hold. `memory.py` bounds all queues together."""

from __future__ import annotations

from dataclasses import dataclass

from stompcodec.broker.memory import LOW


@dataclass(slots=True)
class Bound:
    """The most messages, READY and UNACKED, that a queue may hold, and their bytes.

    >>> Bound(10, 100).octets
    100
    """

    messages: int
    octets: int

    def is_low(self, messages: int, octets: int) -> bool:
        """Return whether there is room for more than one message.

        >>> Bound(10, 100).is_low(7, 75), Bound(10, 100).is_low(8, 0)
        (True, False)
        """
        return messages <= self.messages * LOW and octets <= self.octets * LOW
