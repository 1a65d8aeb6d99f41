"""How much queues may hold, each and together, how long a session may keep the loop, and who waits for either."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stompcodec.broker.session import Session

__all__ = ["Bound", "Pool", "Turns"]

#: What was full takes messages again when it is down to this part of its bound: not for each message anew.
_LOW = 0.75
#: Seconds for which one session may keep the loop, while others wait.
_SHARE = 0.05


class Pool:
    """The octets of all queues together, and who waits until there are fewer.

    >>> Pool(100).full
    False
    """

    __slots__ = ("blocked", "limit", "octets")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.octets = 0
        self.blocked: dict[Session, None] = {}

    @property
    def full(self) -> bool:
        """The limit is passed."""
        return self.octets > self.limit

    def release(self) -> None:
        """Let those that wait send again, if there is room."""
        if self.blocked and self.octets <= self.limit * _LOW:
            blocked, self.blocked = self.blocked, {}
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


class Turns:
    """The time of the loop, and who has had a share of it and waits for the next turn.

    One read can hold thousands of frames, and a frame can cost milliseconds: SEND to a thousand subscriptions, RECEIVE
    with a long selector.

    >>> Turns().is_over(0.0)
    False
    """

    __slots__ = ("blocked", "clock")

    def __init__(self) -> None:
        #: The time in seconds. Set by the shell; time that stands still takes nobody's turn.
        self.clock: Callable[[], float] = lambda: 0.0
        self.blocked: OrderedDict[Session, None] = OrderedDict()

    def is_over(self, began: float) -> bool:
        """Whether a session that began at that time has had its share."""
        return self.clock() - began > _SHARE

    def next(self, now: float) -> None:
        """Let the one go on that has waited longest."""
        session, _ = self.blocked.popitem(last=False)
        session.unblock(self)
        session.receive(b"", now)
        if session.more is not None and not session.waits_for_turn:
            session.more()
