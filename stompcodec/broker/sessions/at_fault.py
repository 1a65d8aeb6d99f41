"""The delivery at fault when a session ends because the broker refused one of its frames.

A message whose handling makes the client send such a frame comes back after each session, and ends the next one as
well. Therefore it has had an attempt, as after a NACK, and only that message: its neighbours did nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from stompcodec.broker.message import Message
from stompcodec.broker.queues.consumer import Consumer
from stompcodec.errors import ErrorFrame

#: Commands of frames that may name the message in whose handling they are sent.
_NAMING = ("SEND", "BEGIN", "COMMIT", "ABORT")


class Refusal(NamedTuple):
    """The refusal that ends a session."""

    frame: ErrorFrame | None = None
    """The refused frame; of a malformed one its beginning, or None."""
    is_whole: bool = True
    """It could be read as a frame."""
    counts: bool = True
    """Some message is at fault. False if the frame was refused for the state of the broker, as on a full disk, and for
    DISCONNECT."""


def at_fault(refusal: Refusal, consumers: Iterable[Consumer]) -> Message | None:
    """Return the message whose handling led to a refused frame; None if no delivery is unacknowledged.

    The frame may name it: those of `_NAMING` by the headers `ack`, its message-id, and `subscription`. Otherwise it is
    the first delivered, of all subscriptions the message that the broker accepted first: clients that handle one
    message after the other have acknowledged those before. Subscriptions with `attempts:named` are left out then, if
    the frame could have named one. A refused SUBSCRIBE blames none: programs subscribe before they handle anything.
    """
    frame = refusal.frame
    if not refusal.counts or (frame is not None and frame.command == "SUBSCRIBE"):
        return None
    holding = [each for each in consumers if each.unacked and each.address is None and not each.request.browser]
    if frame is not None and frame.command in _NAMING:
        named = next(_named(frame, holding), None)
        if named is not None:
            return named
        if refusal.is_whole:
            holding = [each for each in holding if not each.request.is_named]
    return min((each.unacked[min(each.unacked)] for each in holding), key=lambda message: message.seq, default=None)


def _named(frame: ErrorFrame, consumers: list[Consumer]) -> Iterator[Message]:
    """Yield the delivered messages that a frame names."""
    name, key = frame.get("ack"), frame.get("subscription")
    if name is None:
        return
    ident = name.encode()
    for consumer in consumers:
        if key is None or consumer.key == key:
            yield from (message for message in consumer.unacked.values() if message.ident == ident)
