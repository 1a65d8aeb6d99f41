"""Transactions for threads."""

# scripts/unasync.py writes this from aio/calls.py: change that one, then `make docs`.

from __future__ import annotations

import contextlib
from types import TracebackType

from stompcodec.client.shell import HeaderSource, now
from stompcodec.client.sync.link import Link
from stompcodec.client.sync.messages import Message
from stompcodec.client.sync.waiting import Receipt
from stompcodec.client.transaction import BaseTransaction
from stompcodec.errors import StompError

__all__ = ["Transaction"]


class Transaction(BaseTransaction):
    """SEND, ACK and NACK that take effect together: COMMIT at the end of its `with`, ABORT if that raises."""

    def __init__(self, link: Link, timeout: float | None) -> None:
        super().__init__(link.transaction_id())
        self._link = link
        self._timeout = timeout

    def __enter__(self) -> Transaction:
        return self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            if self.state != "aborted":
                self.commit()
        elif self.state == "open":
            with contextlib.suppress(StompError):  # the user's error says more
                self.abort(wait=False)

    def begin(self) -> Transaction:
        """Start it, once there is a connection.

        Raises:
            ReceiptTimeoutError: there was none in time.
        """
        link = self._link
        while not link.engine.do(link.core.begin, self, now()):
            link.wait_connected(self._timeout)
        return self

    def send(
        self,
        destination: str,
        body: bytes | str = b"",
        headers: HeaderSource | None = None,
        *,
        content_encoding: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Send as part of it. There is no receipt but that of `commit`.

        Raises:
            ConnectionLostError: the connection was lost, and the transaction with it. Nothing of it took effect.
        """
        link = self._link
        sending = link.sending(destination, body, headers, content_encoding, transaction=self)
        link.push(sending, timeout)

    def ack(self, message: Message) -> None:
        """Acknowledge as part of it.

        Raises:
            StaleAckError, ConnectionLostError, LocalProtocolError: as for `Message.ack` and `send`.
        """
        self._link.engine.do(self._link.core.settle, message, "ACK", now(), transaction=self)

    def nack(self, message: Message, *, requeue: bool | None = None) -> None:
        """Refuse as part of it; as `Message.nack`."""
        self._link.engine.do(self._link.core.settle, message, "NACK", now(), requeue=requeue, transaction=self)

    def commit(self, timeout: float | None = None) -> None:
        """Let it take effect; returns when the broker has done so.

        Raises:
            RejectedError: the broker refused: nothing of it took effect.
            ConnectionLostError: the connection was lost; with `sent` False nothing took effect, else that is unknown.
            ReceiptTimeoutError: the outcome is unknown.
        """
        self._finish("COMMIT", timeout).wait()

    def abort(self, *, wait: bool = True, timeout: float | None = None) -> None:
        """Let nothing of it take effect. The messages it acknowledged are open again."""
        receipt = self._finish("ABORT", timeout)
        if wait:
            receipt.wait()

    def _finish(self, command: str, timeout: float | None) -> Receipt:
        link = self._link
        call = link.call(f"{command} of {self.id}", command, self._timeout if timeout is None else timeout)
        receipt: Receipt = link.start(call, link.core.finish_transaction, self, command)
        return receipt
