"""Messages that cannot be read: which one it was, what becomes of it, and how often it came."""

from __future__ import annotations

import logging
from typing import Any, Literal, NamedTuple

from stompcodec.client.dialects import BROKERS, BrokerDialect, lasting_identity
from stompcodec.codec import Frame
from stompcodec.connection import described
from stompcodec.errors import RemoteProtocolError

log = logging.getLogger("stompcodec.client.unreadable")

#: What becomes of a message that cannot be read.
OnUnreadable = Literal["raise", "skip", "ack", "ignore"]
#: The policy of `handlers.POLICIES` by which it is settled if the connection goes on; None: the connection ends.
SETTLED: dict[str, str | None] = {"raise": None, "skip": "discard", "ack": "ack", "ignore": "ignore"}
#: The time at which a subscription ends that gets such a message again and again.
_LAST_TIME = 3
#: The most messages of a subscription that are counted; the oldest are forgotten.
_MOST_COUNTED = 100
#: Larger bodies, in bytes, are not kept to name the message.
_SMALL = 2**16
#: Headers that differ each time a message is delivered.
_OF_DELIVERY = ("ack", "message-id", "redelivered")


def checked(on_unreadable: OnUnreadable) -> OnUnreadable:
    """Return a known policy, or raise ValueError."""
    if on_unreadable not in SETTLED:
        raise ValueError(f"on_unreadable is {on_unreadable!r:.60}: use {', '.join(SETTLED)}")
    return on_unreadable


class Unreadable(NamedTuple):
    """A message that cannot be read."""

    error: RemoteProtocolError
    """The violation. Its text names the message."""
    frame: Frame | None
    """The part of the message that was read; None if it is unknown, or if the frame was not a MESSAGE."""
    is_cut: bool
    """The frame came before the malformed one, and seems to be the beginning of the message, up to a NUL in it."""


def unreadable(error: RemoteProtocolError, before: Frame | None) -> Unreadable:
    """Return the message behind a violation of the server, as `Connection.receive` raised it.

    `before` is the frame before it: some brokers write a text with a NUL as it is, without content-length. The frame
    ends there, and the rest of the text is read as the next frame.
    """
    frame: Any = error.frame
    if frame is not None:
        if error.cause is None:  # it is well-formed, so that the text does not say which it was
            error = RemoteProtocolError(f"{error}: {described(frame)}", frame=frame)
        if frame.command in ("MESSAGE", "RECEIPT", "ERROR"):
            return Unreadable(error, frame if frame.command == "MESSAGE" else None, is_cut=False)
    if before is None or before.command != "MESSAGE" or before.get("content-length") is not None:
        return Unreadable(error, None, is_cut=False)
    why = "behind a MESSAGE without content-length, whose text may hold a NUL"
    error = RemoteProtocolError(f"{error}, {why}: {described(before)}", cause=error.cause, frame=before)
    return Unreadable(error, before, is_cut=True)


def kept(frame: Frame | None) -> Frame | None:
    """Return the frame, or if it is large only its head: it is kept to be the `before` of `unreadable`."""
    if frame is None or len(frame.body or b"") < _SMALL:
        return frame
    return Frame(frame.command, frame.headers.pairs())


class Comings:
    """The number of deliveries of each message of a subscription that cannot be read."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[object, tuple[int, int]] = {}  # by message: its count, and the good messages before it

    def is_last(self, frame: Frame, good: int, window: int, dialect: BrokerDialect = BROKERS["unknown"]) -> bool:
        """Count a message; return whether it came too often.

        Without message-id, or if that may be new each time, it is told by the other headers that were read. Another one
        may have the same, so it is forgotten after more `good` messages than can come beside it each time (`window`).
        """
        headers = frame.headers
        id = lasting_identity(dialect, headers) if dialect.lasting else headers.get("message-id")
        key = id or tuple(pair for pair in headers.items() if pair[0] not in _OF_DELIVERY)
        count, before = self._counts.pop(key, (0, good))
        if id is None and good - before > window:
            count = 0
        if len(self._counts) >= _MOST_COUNTED:
            del self._counts[next(iter(self._counts))]
        self._counts[key] = count + 1, good
        return count + 1 >= _LAST_TIME
