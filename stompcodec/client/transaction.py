"""Transactions: SENDs, ACKs and NACKs that take effect together, or not at all."""

from __future__ import annotations

from stompcodec.client.message import BaseMessage
from stompcodec.errors import ConnectionLostError, LocalProtocolError


class BaseTransaction:
    """The base of `Transaction` and `AsyncTransaction`: the id, the connection, and the state."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.epoch = 0
        self.lost: Exception | None = None  # why its connection ended
        self.state = "new"  # then "open"; then "committing"; at last "committed", "aborted" or "lost"
        self.settled: list[tuple[BaseMessage, int, int]] = []  # message, settled_to and open of its subscription before

    def __repr__(self) -> str:
        return f"<Transaction {self.id} {self.state}>"

    def check(self) -> None:
        """Check that it is open.

        Raises:
            ConnectionLostError: the connection was lost, and with it the transaction, which took no effect.
            LocalProtocolError: it is not open.
        """
        if self.state == "lost":
            raise ConnectionLostError(
                f"the transaction was lost with its connection, and took no effect ({self.lost})"
            ) from self.lost
        if self.state != "open":
            raise LocalProtocolError(f"the transaction is {self.state}")

    def undo(self) -> None:
        """Reopen the messages that it settled, after ABORT."""
        for message, settled_to, count in reversed(self.settled):
            subscription = message.subscription
            message.settled = ""
            subscription.open += count
            if subscription.settled_to == message.seq:  # else a later acknowledgement covers it
                subscription.settled_to = settled_to
        self.settled.clear()
