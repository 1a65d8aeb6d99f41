"""Credit: further deliveries that a consumer may have, where bytes count or the `credit` header grants them."""

from __future__ import annotations

from collections.abc import Iterable

from stompcodec.broker.message import Message
from stompcodec.broker.queues.subscribe_request import SubscribeRequest
from stompcodec.broker.values import UNLIMITED, CreditGrant


class Credit:
    """Messages and bytes that may still be delivered, with at most `window` messages unacknowledged. Other consumers
    count messages only, in `Consumer.credit`.

    >>> credit = Credit(CreditGrant(10, 100, True), 10)
    >>> credit.spend(100); credit.left(1)
    0
    >>> credit.settled([100]); credit.left(0)
    10
    """

    __slots__ = ("_auto", "_messages", "_octets", "window")

    def __init__(self, grant: CreditGrant, window: int) -> None:
        self._messages = grant.messages
        self._octets = grant.octets
        self._auto = grant.auto
        self.window = window

    def left(self, unacked: int) -> int:
        """Return how many deliveries may follow: 0 once the bytes are used up. The last message may exceed them."""
        if self._octets is not None and self._octets <= 0:
            return 0
        return max(0, min(self._messages, self.window - unacked))

    def spend(self, octets: int) -> None:
        """Use credit for a delivery of this size."""
        self._messages -= 1
        if self._octets is not None:
            self._octets -= octets

    def settled(self, sizes: Iterable[int]) -> None:
        """Give back the credit of deliveries of these sizes, which were acknowledged or refused."""
        if self._auto:
            for octets in sizes:
                self._messages += 1
                if self._octets is not None:
                    self._octets += octets

    def grant(self, grant: CreditGrant) -> None:
        """Add the credit of a `credit` header of ACK."""
        self._messages = min(self._messages + grant.messages, UNLIMITED)
        if self._octets is not None and grant.octets is not None:
            self._octets = min(self._octets + grant.octets, 2**62)


def credit_of(request: SubscribeRequest) -> Credit | None:
    """Return the credit of a new subscription; None if only unacknowledged messages count.

    A `credit` header limits deliveries, in all ack modes; a window in bytes limits unacknowledged deliveries.
    """
    if request.credit is not None:
        window = UNLIMITED if request.mode == "auto" else request.window
        octets = request.credit.octets
        if octets is None:
            octets = request.octets
        if request.mode == "auto" and request.credit.auto:  # each delivery is acknowledged when it is made
            return None
        return Credit(request.credit._replace(octets=octets), window)
    if request.octets is not None:
        return Credit(CreditGrant(UNLIMITED, request.octets), request.window)
    return None


def size_of(message: Message) -> int:
    """Return the bytes of a message in a window, including a large body in a file."""
    return message.octets
