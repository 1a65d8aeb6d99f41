"""Footprint: the memory that one session takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompcodec.broker.errors import Refused
from stompcodec.broker.memory import CONNECTION

if TYPE_CHECKING:
    from stompcodec.broker.memory import Account

__all__ = ["Footprint"]


class Footprint:
    """The bytes of memory that one session takes, entered in the broker's account.

    Args:
        account: of the broker.

    >>> from stompcodec.broker.memory import Account
    >>> footprint = Footprint(account := Account(2**30))
    >>> footprint.hold_transaction(100, base=50)
    >>> footprint.spare, account.held
    (150, 150)
    """

    __slots__ = ("_account", "_bases", "below", "fixed", "pending", "transactions", "unwritten")

    def __init__(self, account: Account) -> None:
        self._account = account
        #: The connection, its subscriptions, and the destinations that the session remembers.
        self.fixed = 0
        #: What has come of an unfinished frame.
        self.pending = 0
        #: Bytes that the layers below have received and not handed over: an unfinished frame, or what waits for a turn.
        self.below = 0
        #: Operations of open transactions; and the transactions as such, which the limit leaves out.
        self.transactions = self._bases = 0
        #: Output that the transport has not written yet, with what waits behind a large message.
        self.unwritten = 0

    @property
    def spare(self) -> int:
        """Bytes that the session could do without: unfinished frames, transactions, unwritten output."""
        return self.pending + self.transactions + self._bases + self.unwritten

    def charge(self, cost: int) -> None:
        """Add the cost of a subscription or a remembered destination; a negative cost takes one away."""
        self.fixed += cost
        self._account.charge(cost)

    def check(self, cost: int) -> None:
        """Raise Refused if one more subscription would take too much memory."""
        if not self._account.has_room(cost, self.fixed):
            remedy = "All subscriptions and destinations together take too much of the broker's limits.memory."
            raise Refused("no memory for another subscription", remedy)

    def hold_pending(self, pending: int) -> None:
        """Set the cost of what has come and is not done."""
        self._account.hold(pending - self.pending)
        self.pending = pending

    def hold_transaction(self, octets: int, base: int = 0) -> None:
        """Add the cost of operations, and of transactions as such; negative costs take some away."""
        self.transactions += octets
        self._bases += base
        self._account.hold(octets + base)

    def hold_unwritten(self, unwritten: int, ended: bool) -> None:
        """Set the bytes that are not written yet. A session that has ended holds up nobody."""
        more = unwritten - self.unwritten
        self.unwritten = unwritten
        if ended:
            self._account.used += more
        else:
            self._account.hold(more)

    def release(self) -> None:
        """Free the memory of a session that ends, except for its connection and unwritten output."""
        self._account.hold(-self.pending - self.transactions - self._bases)
        self._account.held -= self.unwritten
        self.pending = self.transactions = self._bases = 0
        if self.fixed:
            self.charge(CONNECTION - self.fixed)

    def close(self) -> None:
        """Free the rest when the transport is gone."""
        self._account.used -= self.unwritten
        self.unwritten = 0
        self.charge(-self.fixed)
