"""Windows: how the subscriptions of a session share the messages that it may leave unacknowledged.

A subscription gets the window that it asks for while `sessions.max_unacked` allows it. When a new one does not fit,
windows above an equal share shrink to that share. So a session may have many subscriptions that ask for everything.
"""

from __future__ import annotations

from collections.abc import Mapping

from stompcodec.broker.errors import Refused
from stompcodec.broker.queues.consumer import Consumer


class Windows:
    """The windows of the subscriptions of one session, which may leave `most` messages unacknowledged."""

    __slots__ = ("_consumers", "_most", "acking", "overdue", "parts", "total")

    def __init__(self, most: int, consumers: Mapping[str, Consumer]) -> None:
        self._most = most
        self._consumers = consumers
        #: Subscriptions that acknowledge; the sum of their windows; and the deliveries above their windows when those
        #: were last divided.
        self.acking = self.total = self.overdue = 0
        #: The shares into which `most` is divided.
        self.parts = 1

    def claim(self, asked: int) -> int:
        """Return the window of a new subscription, and make room for it. `asked` is the most unacknowledged messages
        that it may have, by its SUBSCRIBE or the defaults. Raise Refused if there are too many subscriptions, or too
        many unacknowledged messages.
        """
        parts = _parts(self.acking + 1)
        asked = min(asked, self._most)
        share = min(asked, _share(self._most, parts))
        if self._left < share:
            self._divide(parts)
        left = self._left
        if left < 1:
            raise Refused(
                "too many unacknowledged messages",
                f"The subscriptions of this session have {self._most - left} together: acknowledge some.",
            )
        return min(asked if self.parts == 1 else share, left)

    @property
    def _left(self) -> int:
        return self._most - self.total - self.overdue

    def join(self, window: int) -> None:
        """Count a new subscription with the window that it has claimed."""
        self.acking += 1
        self.total += window

    def leave(self, window: int) -> None:
        """Stop counting a subscription that was removed. When few are left, their windows grow again."""
        self.acking -= 1
        self.total -= window
        # The factor of 4 avoids resizing all windows each time when a session subscribes and unsubscribes in turn.
        if self.parts > 1 and (self.acking <= 1 or self.acking * 4 <= self.parts):
            self._divide(_parts(self.acking))

    def _divide(self, parts: int) -> None:
        """Give each subscription the window that it asks for, up to its share."""
        share = _share(self._most, parts)
        self.parts = parts
        self.total = self.overdue = 0
        grown: list[Consumer] = []
        for consumer in self._consumers.values():
            if not consumer.acks or consumer.closed:
                continue
            if not consumer.window:  # it holds the message of one RECEIVE
                self.total += 1
                continue
            size = min(consumer.request.window, share)
            if size > consumer.window:
                grown.append(consumer)
            consumer.resize(size)
            self.total += size
            self.overdue += max(0, len(consumer.unacked) - size)
        for consumer in grown:
            if not consumer.in_ring:
                consumer.queue.offer(consumer)


def _parts(count: int) -> int:
    """Return the number of shares for a number of subscriptions: a power of two, so that it seldom changes.

    >>> [_parts(count) for count in (0, 1, 2, 3, 50)]
    [1, 1, 2, 4, 64]
    """
    return 1 << max(0, count - 1).bit_length()


def _share(most: int, parts: int) -> int:
    return max(1, most // parts)
