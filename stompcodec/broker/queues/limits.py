"""How much a queue may hold. All queues together: `memory.py`."""

from __future__ import annotations

from stompcodec.broker.memory import LOW

__all__ = ["Bound"]


class Bound:
    """How much a queue may hold: READY and UNACKED messages, and their octets.

    >>> Bound(10, 100).octets
    100
    """

    __slots__ = ("messages", "octets")

    def __init__(self, messages: int, octets: int) -> None:
        self.messages = messages
        self.octets = octets

    def is_low(self, messages: int, octets: int) -> bool:
        """There is room again, and not only for one message.

        >>> Bound(10, 100).is_low(7, 75), Bound(10, 100).is_low(8, 0)
        (True, False)
        """
        return messages <= self.messages * LOW and octets <= self.octets * LOW
