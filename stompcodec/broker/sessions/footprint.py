"""Footprint: the memory used by one session."""

from __future__ import annotations

from stompcodec.broker.errors import Unready
from stompcodec.broker.memory import CONNECTION, Account


class Footprint:
    """The bytes of memory used by one session, recorded in the broker's account.

    >>> from stompcodec.broker.memory import Account
    >>> footprint = Footprint(account := Account(2**30))
    >>> footprint.hold_transaction(100, base=50)
    >>> footprint.spare, account.held
    (150, 150)
    """

    __slots__ = ("_account", "_bases", "below", "fixed", "pending", "transactions", "unwritten")

    def __init__(self, account: Account) -> None:
        self._account = account
        #: The connection, its subscriptions and its remembered destinations.
        self.fixed = 0
        #: Unfinished frames, and frames that wait for the session's turn.
        self.pending = 0
        #: Bytes that the layers below have received and not passed on.
        self.below = 0
        #: Operations of open transactions; and the transactions themselves, which do not count toward the limit.
        self.transactions = self._bases = 0
        #: Output that is not written yet, including what waits for a large message.
        self.unwritten = 0

    @property
    def spare(self) -> int:
        """Bytes that ending the session would free: unfinished frames, transactions and unwritten output."""
        return self.pending + self.transactions + self._bases + self.unwritten

    def charge(self, cost: int) -> None:
        """Add the cost of a subscription or a remembered destination, or subtract it if negative."""
        self.fixed += cost
        self._account.charge(cost)

    def check(self, cost: int) -> None:
        """Raise Refused if another subscription would use too much memory."""
        if not self._account.has_room(cost, self.fixed):
            remedy = "All subscriptions and destinations together take too much of the broker's limits.memory."
            raise Unready("no memory for another subscription", remedy)

    def hold_pending(self, pending: int) -> None:
        """Set the cost of received bytes that are not processed yet."""
        self._account.hold(pending - self.pending)
        self.pending = pending

    def hold_transaction(self, octets: int, base: int = 0) -> None:
        """Add the cost of operations and of transactions themselves, or subtract it if negative."""
        self.transactions += octets
        self._bases += base
        account, cost = self._account, octets + base
        account.held += cost  # `Account.hold`, without the call for each SEND of a transaction
        account.used += cost

    def hold_unwritten(self, unwritten: int, ended: bool) -> None:
        """Set the number of unwritten bytes. Those of an ended session do not count as held."""
        more = unwritten - self.unwritten
        self.unwritten = unwritten
        if ended:
            self._account.used += more
        else:
            self._account.hold(more)

    def release(self) -> None:
        """Release everything except the connection and unwritten output, when the session ends."""
        self._account.hold(-self.pending - self.transactions - self._bases)
        self._account.held -= self.unwritten
        self.pending = self.transactions = self._bases = 0
        if self.fixed:
            self.charge(CONNECTION - self.fixed)

    def close(self) -> None:
        """Release the rest, when the transport is closed."""
        self._account.used -= self.unwritten
        self.unwritten = 0
        self.charge(-self.fixed)
