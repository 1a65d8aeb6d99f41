"""Transactions: SENDs, ACKs and NACKs that take effect together, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stompcodec.client.message import BaseMessage
from stompcodec.client.receipts import Call
from stompcodec.errors import ConnectionLostError, LocalProtocolError

#: Why a call of a transaction in this state is refused; the states without an entry have a connection error.
_WHY = {"unknown": "the outcome of the transaction is unknown: its COMMIT was sent, and had no answer"}
#: State -> `settled` of the messages that it acknowledged or refused; else the command.
_SAID = {"aborted": "", "lost": "", "unknown": "unknown"}
_CONFIRMED = Call("COMMIT", 0.0, done=True)


class Settled(NamedTuple):
    """An ACK or NACK in a transaction."""

    message: BaseMessage
    command: str
    covered: Sequence[int]
    """The `seq` of all messages that it settles: with earlier ones in mode `client`."""


class BaseTransaction:
    """The base of `Transaction` and `AsyncTransaction`: the id, the connection, and the state."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.epoch = 0
        self.begun_for: BaseMessage | None = None  # the message whose handler has begun it
        self.lost: Exception | None = None  # why its connection ended
        self.state = "new"
        """new, open or committing; at last committed, aborted (by ABORT or a refusal), lost (with its connection,
        before COMMIT was sent) or unknown (COMMIT was sent, and no answer came). A late answer resolves unknown."""
        self.settled: list[Settled] = []
        self.finishing: Call | None = None  # the call of COMMIT or ABORT

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
            raise LocalProtocolError(_WHY.get(self.state, f"the transaction is {self.state}"))

    def settle(self, message: BaseMessage, command: str, covered: Sequence[int]) -> None:
        """Note an ACK or NACK that was sent as part of it: until the end the messages are neither open nor settled."""
        self.settled.append(Settled(message, command, covered))
        message.subscription.claims.update(dict.fromkeys(covered, self))

    def end(self, state: str) -> None:
        """Enter one of the last states, and tell its messages."""
        self.state = state
        for message, command, covered in reversed(self.settled):
            subscription = message.subscription
            message.settled = _SAID.get(state, command)
            if state != "unknown":
                for seq in covered:
                    subscription.claims.pop(seq, None)
            if state == "committed":
                message.confirm_by(_CONFIRMED)
            elif state == "aborted":
                subscription.reopen(covered)
        if state != "unknown":
            self.settled.clear()

    def cut(self, reason: Exception) -> None:
        """Note the loss of its connection."""
        call = self.finishing
        if self.state in ("open", "committing"):
            self.lost = reason
            self.end("unknown" if self.state == "committing" and call is not None and call.sent else "lost")
        for message, _, covered in self.settled:  # only a late answer could resolve them
            for seq in covered:
                message.subscription.claims.pop(seq, None)
        self.settled.clear()
