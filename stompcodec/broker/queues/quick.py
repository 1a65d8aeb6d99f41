"""Deliveries in C, where the extension of the plain road has been loaded: see sessions/plain.py."""

from __future__ import annotations

from collections.abc import Callable

#: Called with a queue and a number. It delivers up to that number of READY messages, in order and as `Queue.dispatch`
#: would, until a message or its consumer is not plain. Returns how many it has delivered.
DeliverReady = Callable[[object, int], int]


def _none(queue: object, most: int) -> int:
    """Leave all messages to Python."""
    return 0


deliver_ready: DeliverReady = _none


def use(function: DeliverReady) -> None:
    """Have this function deliver READY messages from now on."""
    global deliver_ready
    deliver_ready = function
