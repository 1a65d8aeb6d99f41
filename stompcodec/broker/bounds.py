"""How much queues may hold, each and together, and who waits until they hold less."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stompcodec.broker.session import Session

__all__ = ["Bound", "Pool"]

#: What was full takes messages again when it is down to this part of its bound: not for each message anew.
_LOW = 0.75


class Pool:
    """The octets of all queues together, and who waits until there are fewer.

    >>> Pool(100).full
    False
    """

    __slots__ = ("blocked", "limit", "octets")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.octets = 0
        self.blocked: list[Session] = []

    @property
    def full(self) -> bool:
        """The limit is passed."""
        return self.octets > self.limit

    def release(self) -> None:
        """Let those that wait send again, if there is room."""
        if self.blocked and self.octets <= self.limit * _LOW:
            blocked, self.blocked = self.blocked, []
            for session in blocked:
                session.unblock(self)


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
        return messages <= self.messages * _LOW and octets <= self.octets * _LOW
