"""Deliveries in C, where the extension of the plain road has been loaded: see sessions/plain.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stompcodec.broker.queues.tally import Tally

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
