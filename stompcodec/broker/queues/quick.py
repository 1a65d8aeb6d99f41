"""Deliveries in C, where the extension of the plain road has been loaded: see sessions/plain.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class Tally:
    """The counts of one queue. Deliveries that are acknowledged are not among them while their consumer lives: those
    are `Consumer.last`, which is counted anyway.

    >>> tally = Tally()
    >>> tally.count_put()
    >>> tally.put, tally.direct
    (1, 0)
    """

    __slots__ = ("dead", "direct", "dropped", "ended", "expired", "put", "redelivered", "sent")

    def __init__(self) -> None:
        #: Messages that came, except for `direct` ones.
        self.put = 0
        #: Messages that came and were delivered in auto mode by the shortest road, in one step.
        self.direct = 0
        #: Other deliveries in auto mode.
        self.sent = 0
        #: Deliveries of consumers that have ended.
        self.ended = 0
        self.redelivered = self.expired = self.dropped = 0
        #: Messages that became dead letters.
        self.dead = 0

    # For each message: in C, a call takes a fifth of the instructions of a += from Python.

    def count_put(self) -> None:
        """Count a message that came."""
        self.put += 1

    def count_direct(self) -> None:
        """Count a message that came and was delivered in one step."""
        self.direct += 1

    def count_sent(self) -> None:
        """Count a delivery in auto mode."""
        self.sent += 1


#: Called with a queue and a number. It delivers up to that number of READY messages, in order and as `Queue.dispatch`
#: would, until a message or its consumer is not plain. Returns how many it has delivered.
DeliverReady = Callable[[object, int], int]
#: Called with the beginning that MESSAGEs share and a list of plain messages. Returns the bytes of those MESSAGEs, each
#: with the EOL behind it, or None to leave that to Python.
Join = Callable[[bytes, Sequence[object]], bytes | None]


def _none(queue: object, most: int) -> int:
    """Leave all messages to Python."""
    return 0


def _left(start: bytes, messages: Sequence[object]) -> None:
    """Leave them to Python."""


deliver_ready: DeliverReady = _none
join: Join = _left
#: Makes the tally of a queue.
new_tally: Callable[[], Tally] = Tally


def use(deliver: DeliverReady, joining: Join, tally: Callable[[], Tally]) -> None:
    """Have these functions deliver and join messages, and make tallies, from now on."""
    global deliver_ready, join, new_tally
    deliver_ready, join, new_tally = deliver, joining, tally
