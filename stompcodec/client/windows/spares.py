"""Spares: more consumers of a queue for one subscription, as a window in bytes cannot grow.

Where a window is a number of bytes (`BrokerDialect.window`), a few large messages fill it before the program holds the
`prefetch` that it asked for, and it would wait for ever. No frame changes a window. So the client subscribes to the
queue again, under another id, and both feed one subscription. Each of these spares is larger than the last one, and
there is none before the others are full.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from stompcodec.client.message import BaseMessage
from stompcodec.client.subscription import Subscription

#: The bytes that a broker may count more for a message.
_MORE = 64


class Spares:
    """The consumers of one subscription on one connection, once there is more than one, and what they hold."""

    def __init__(self, subscription: Subscription) -> None:
        self.windows: dict[str, int] = {}
        """The windows of the spares, by id, in bytes."""
        self.octets: dict[str, int] = {}
        """The bytes of their unsettled messages, by id."""
        self.largest = 0
        self._held: dict[int, tuple[str, int, BaseMessage]] = {}  # by `seq`
        subscription.inbox = _Noted(self.note, subscription.inbox)
        if subscription.last is not None:
            self._held[subscription.last.seq] = (subscription.id, 0, subscription.last)

    def note(self, message: BaseMessage) -> None:
        """Count a message of any of the consumers."""
        name = message.frame.get("subscription") or message.subscription.id
        size = message.size + _MORE + sum(len(key) + len(value) for key, value in message.frame.headers.pairs())
        self._held[message.seq] = (name, size, message)
        self.largest = max(self.largest, size)
        if name in self.octets:
            self.octets[name] += size

    def has_room(self) -> bool:
        """Return whether one of them would deliver a message, if there was one."""
        return any(self.octets[name] < window for name, window in self.windows.items())

    def settle(self, covered: Iterable[int]) -> list[BaseMessage]:
        """Count messages as settled; return the last one of each consumer, in order."""
        lasts: dict[str, BaseMessage] = {}
        for seq in covered:
            name, size, message = self._held.pop(seq, ("", 0, None))
            if message is not None:
                lasts.pop(name, None)
                lasts[name] = message
            if name in self.octets:
                self.octets[name] -= size
        return list(lasts.values())


class _Noted(deque[Any]):
    """An inbox that tells of each message."""

    def __init__(self, note: Callable[[BaseMessage], None], messages: Iterable[Any]) -> None:
        super().__init__(messages)
        self._note = note

    def append(self, message: Any) -> None:
        self._note(message)
        super().append(message)
