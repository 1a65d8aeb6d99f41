"""Credit: what a consumer may still have, where octets count, or where the header `credit` gives it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from stompcodec.broker.message import Message
from stompcodec.broker.queues.subscribe_request import UNLIMITED, CreditGrant

if TYPE_CHECKING:
    from stompcodec.broker.queues.subscribe_request import SubscribeRequest

__all__ = ["Credit", "credit_of", "size_of"]


class Credit:
    """Messages and octets that may still come. All others count their messages only, in `Consumer.credit`.

    Args:
        grant: what there is at first.
        window: the most messages that may be unacknowledged.

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
        """Deliveries that may come: 0 when the octets are used up. The one that uses them up may be larger.

        Args:
            unacked: messages that are unacknowledged.
        """
        if self._octets is not None and self._octets <= 0:
            return 0
        return max(0, min(self._messages, self.window - unacked))

    def spend(self, octets: int) -> None:
        """A delivery of so many octets."""
        self._messages -= 1
        if self._octets is not None:
            self._octets -= octets

    def settled(self, sizes: Iterable[int]) -> None:
        """Deliveries of these sizes were acknowledged, or refused."""
        if self._auto:
            for octets in sizes:
                self._messages += 1
                if self._octets is not None:
                    self._octets += octets

    def grant(self, grant: CreditGrant) -> None:
        """More, by a `credit` header of ACK. It adds to what there is, and may say how ACK counts from now on."""
        self._messages = min(self._messages + grant.messages, UNLIMITED)
        if self._octets is not None and grant.octets is not None:
            self._octets = min(self._octets + grant.octets, 2**62)


def credit_of(request: SubscribeRequest) -> Credit | None:
    """What a subscription begins with; None if counting its unacknowledged messages is all.

    A `credit` header is about what may come, in all ack modes; a window in octets about what is unacknowledged.
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
    """Octets of a message, in a window: with those of a large body that lies in a file."""
    return message.octets
