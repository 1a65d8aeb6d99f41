"""The message in whose handling a program sends: our broker counts a refused frame as an attempt of that message.

Invariant: the core is called in the thread or task of the caller, so that it sees the context of a handler.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from stompcodec.client.message import BaseMessage

#: The message that the handler, block or reply of this context works on.
in_hand: ContextVar[BaseMessage | None] = ContextVar("stompcodec_in_hand", default=None)


@contextmanager
def holding(message: BaseMessage) -> Iterator[None]:
    """Have what is sent inside name a message as its cause."""
    before = in_hand.get()
    in_hand.set(message)
    try:
        yield
    finally:
        in_hand.set(before)


def cause(epoch: int) -> list[tuple[str, str]]:
    """Return the headers that name the message in hand; none if this connection has not delivered it, or it is settled.

    A message that an open transaction settles comes back if that is refused.
    """
    message = in_hand.get()
    if message is None or message.epoch != epoch:
        return []
    subscription = message.subscription
    if not subscription.explicit or (message.settled and message.seq not in subscription.claims):
        return []
    return [("ack", message.id), ("subscription", subscription.id)]
