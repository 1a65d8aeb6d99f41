"""Transactions: SENDs, ACKs and NACKs that take effect together, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import NamedTuple

from stompcodec.client.message import BaseMessage
from stompcodec.client.receipts import Call
from stompcodec.errors import ConnectionLostError, LocalProtocolError

#: Why a call of a transaction in this state is refused; the states without an entry have a connection error.
_WHY = {"unknown": "the outcome of the transaction is unknown: its COMMIT was sent, and had no answer"}
#: State -> `settled` of the messages that it acknowledged or refused; else the command.
_SAID = {"aborted": "", "lost": "", "unknown": "unknown"}
#: The open transactions of each thread or task.
_own: ContextVar[tuple[BaseTransaction, ...]] = ContextVar("stompcodec_transactions", default=())
_CONFIRMED = Call("COMMIT", 0.0, done=True)


class Settled(NamedTuple):
    """An ACK or NACK in a transaction."""

    message: BaseMessage
    command: str
    covered: Sequence[int]
    """The `seq` of all messages that it settles: with earlier ones in mode `client`."""
    held: Sequence[tuple[str, str]] | None = None
    """More headers of a frame that is sent after the RECEIPT of COMMIT (`BrokerDialect.acks_transacted`); else None."""


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
        self.release: Callable[[Sequence[Settled]], object] = lambda _: None  # sends what is held; set by the core

    def __repr__(self) -> str:
        return f"<Transaction {self.id} {self.state}>"

    def check(self) -> None:
        """Raise ConnectionLostError if it was lost with its connection, else LocalProtocolError if it is not open."""
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

    def hold(
        self,
        message: BaseMessage,
        command: str,
        covered: Sequence[int],
        more: Sequence[tuple[str, str]],
        call: Call | None,
    ) -> None:
        """Note an ACK or NACK that is sent once the transaction is committed, as the broker knows none in one.

        Raises LocalProtocolError if a receipt is wanted for it.
        """
        if call is not None:
            raise LocalProtocolError(
                f"{command} not sent: it would cover messages whose ACKs wait for the COMMIT of transaction {self.id}, "
                "so it has to wait, too, and cannot have a receipt: commit or abort first"
            )
        message.settled = command
        subscription = message.subscription
        subscription.settle(covered)
        self.settled.append(Settled(message, command, covered, more))
        subscription.claims.update(dict.fromkeys(covered, self))

    def own(self) -> None:
        """Note that the present thread, or task, has begun it."""
        _own.set((*(each for each in _own.get() if each.state == "open"), self))

    @property
    def is_own(self) -> bool:
        """True if it is open, and the present thread or task has begun it: while that waits, it stays open."""
        return self.state == "open" and self in _own.get()

    @property
    def has_more(self) -> bool:
        """True if it holds ACKs or NACKs that are sent after the answer to its COMMIT, which is waited for."""
        return self.state == "committing" and any(each.held is not None for each in self.settled)

    def end(self, state: str) -> None:
        """Enter one of the last states, and tell its messages."""
        self.state = state
        held = [each for each in self.settled if each.held is not None] if state == "committed" else []
        for message, command, covered, more in reversed(self.settled):
            subscription = message.subscription
            message.settled = _SAID.get(state, command)
            if state != "unknown":
                for seq in covered:
                    subscription.claims.pop(seq, None)
            if state == "committed" and more is None:
                message.confirm_by(_CONFIRMED)
            elif state == "aborted":
                subscription.reopen(covered)
        if state != "unknown":
            self.settled.clear()
        self.release(held)

    def cut(self, reason: Exception) -> None:
        """Note the loss of its connection."""
        call = self.finishing
        if self.state in ("open", "committing"):
            self.lost = reason
            self.end("unknown" if self.state == "committing" and call is not None and call.sent else "lost")
        for message, _, covered, _ in self.settled:  # only a late answer could resolve them
            for seq in covered:
                message.subscription.claims.pop(seq, None)
        self.settled.clear()
