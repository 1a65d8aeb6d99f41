"""The message in whose handling a program sends: our broker counts a refused frame as an attempt of that message.

Invariant: the core is called in the thread or task of the caller, so that it sees the context of a handler.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from stompcodec.client.message import BaseMessage


class Hand:
    """The message that a thread, or a task with those it starts, works on. To change it takes no new context."""

    __slots__ = ("message",)

    def __init__(self, message: BaseMessage | None = None) -> None:
        self.message = message


_hand: ContextVar[Hand | None] = ContextVar("stompcodec_hand", default=None)


def begin_work() -> Hand:
    """Return the hand of a thread or task that calls a handler."""
    hand = Hand()
    _hand.set(hand)
    return hand


@contextmanager
def holding(message: BaseMessage) -> Iterator[None]:
    """Have what is sent inside name a message as its cause."""
    before = _hand.get()
    _hand.set(Hand(message))
    try:
        yield
    finally:
        _hand.set(before)


def cause(epoch: int) -> list[tuple[str, str]]:
    """Return the headers that name the message in hand; none if this connection has not delivered it, or it is settled.

    A message that an open transaction settles comes back if that is refused.
    """
    hand = _hand.get()
    message = None if hand is None else hand.message
    if message is None or message.epoch != epoch:
        return []
    subscription = message.subscription
    if not subscription.explicit or (message.settled and message.seq not in subscription.claims):
        return []
    return [("ack", message.id), ("subscription", subscription.id)]
