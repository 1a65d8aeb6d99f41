"""How much a queue may hold, and how long a session may keep the loop. All queues together: `memory.py`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from stompcodec.broker.memory import LOW

if TYPE_CHECKING:
    from stompcodec.broker.session import Session

__all__ = ["Bound", "Turns"]

#: Seconds for which one session may keep the loop, while others wait.
_SHARE = 0.05


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
