"""Subscriptions: their options, their received messages, and their state."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from stompcodec.client.bodies.unreadable import Comings, OnUnreadable, checked
from stompcodec.client.dialects import BrokerDialect
from stompcodec.client.receipts import Call
from stompcodec.codec import Frame

#: Messages that brokers deliver ahead if `prefetch` does not say how many.
_WINDOW = 1000
ACK_MODES = ("auto", "client", "client-individual")


class Subscription:
    """A subscription, which is restored on each new connection.

    The I/O thread puts messages into `inbox`. Consumers move all of them into `batch` at once, so that threads meet
    once per batch, not once per message.
    """

    def __init__(
        self,
        destination: str,
        *,
        id: str,
        ack: str = "auto",
        prefetch: int | None = None,
        selector: str | None = None,
        durable: str | None = None,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        confirm: bool = True,
        on_unreadable: OnUnreadable = "raise",
    ) -> None:
        _check(ack, prefetch)
        self.destination = destination
        self.id = durable or id
        self.ack = ack
        self.prefetch = prefetch
        self.selector = selector
        self.durable = durable
        self.headers = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
        self.confirm = confirm
        self.on_unreadable, self.comings = checked(on_unreadable), Comings()
        self.explicit = ack != "auto"
        self.cumulative = ack == "client"
        self.attempt_headers: tuple[str, ...] = ()
        self.folds_case = False  # header names of its messages are in lower case
        self.inbox: deque[Any] = deque()
        self.inbox_octets = 0
        self.streamed = 0  # messages of the inbox with a body in a file
        self.batch: deque[Any] = deque()
        self.seq = 0  # number of received messages, over all connections
        self.open = 0  # unsettled messages of this connection, with those in inbox and batch
        self.settled_to = 0  # the `seq` of the last cumulative acknowledgement
        self.subscribed = False  # SUBSCRIBE was sent on this connection
        self.confirmed = False  # and confirmed
        self.receipt_id = ""
        self.call: Call | None = None  # waits for the first confirmation
        self.touched = False  # it is in the list of those to wake
        self.wake: Callable[[], object] | None = None  # has consumers look for news
        self.waiting: Collection[object] = ()  # threads that wait for messages
        self.in_turn = 0  # messages that came one by one, while one thread waited: see `Engine._is_talk`
        self.came_at = -math.inf  # when the last of them came
        self.deaf = False  # no more messages will be accepted
        self.closed = False  # and none can be settled
        self.deleted = False  # the broker was told to end the durable subscription
        self.left = 0  # messages that failed handlers left unsettled
        self.error: Exception | None = None  # why it ended
        self.news: Exception | None = None  # an ERROR that belongs to no call; raised once

    def __repr__(self) -> str:
        return f"<Subscription {self.id} to {self.destination!r} ack={self.ack}>"

    def subscribe_headers(
        self, dialect: BrokerDialect, client_id: str | None, topic_queues: str, unique: Callable[[], str]
    ) -> list[tuple[str, str]]:
        """Return the headers of SUBSCRIBE in the broker's dialect; LocalProtocolError: it does not support an option.

        `client_id` is the one in CONNECT; `unique` returns a name that no other subscription has.
        """
        headers = [("id", self.id), ("destination", self.destination), ("ack", self.ack)]
        if self.selector is not None:
            headers.append(("selector", self.selector))
        if self.prefetch is not None:
            headers += dialect.prefetch_headers(self.prefetch)
        if self.durable is not None:
            headers += dialect.durable_headers(self.durable, client_id)
        given = {name for name, _ in self.headers}
        if self.durable is None:
            headers += dialect.topic_headers(self.destination, topic_queues, given, unique)
        return [pair for pair in headers if pair[0] not in given] + self.headers

    def unsubscribe_headers(self, dialect: BrokerDialect, client_id: str | None, delete: bool) -> list[tuple[str, str]]:
        """Return the headers of UNSUBSCRIBE; `delete` deletes a durable subscription."""
        headers = [("id", self.id)]
        if delete and self.durable is not None:
            headers += dialect.durable_headers(self.durable, client_id)
        return headers

    def is_last_of(self, frame: Frame) -> bool:
        """Count a message that cannot be read; return whether the subscription has to end. See `Comings.is_last`."""
        return self.comings.is_last(frame, self.seq, self.prefetch or _WINDOW)

    def forget(self) -> int:
        """Drop messages that no consumer has taken; return their number."""
        count = len(self.inbox) + len(self.batch)
        self.inbox.clear()
        self.inbox_octets = self.streamed = 0
        self.batch.clear()
        return count


def _check(ack: str, prefetch: int | None) -> None:
    if ack not in ACK_MODES:
        raise ValueError(f"ack is {ack!r}: use {', '.join(ACK_MODES)}")
    if prefetch is not None and prefetch < 1:
        raise ValueError(f"prefetch is {prefetch}: it must be 1 or more")
