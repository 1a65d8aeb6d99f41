"""Transactions for threads."""

# scripts/unasync.py writes this from aio/calls.py: change that one, then `make docs`.

from __future__ import annotations

import contextlib
from types import TracebackType

from stompcodec.client.owned import HeaderSource
from stompcodec.client.receipts import seconds_of
from stompcodec.client.shell import now
from stompcodec.client.sync.link import Link
from stompcodec.client.sync.messages import Message
from stompcodec.client.sync.waiting import Body, Receipt
from stompcodec.client.transaction import BaseTransaction
from stompcodec.errors import StompError


class Transaction(BaseTransaction):
    """A transaction: its `with` block ends with COMMIT, or with ABORT if it raises.

    `state` is new, open or committing; at last committed, aborted, lost (it took no effect: the connection was lost
    before COMMIT was sent), or unknown: COMMIT was sent, and no answer came. If the answer comes after the timeout,
    unknown becomes committed or aborted. Messages that it acknowledged are neither settled nor open until it ends: to
    acknowledge them again raises.

    >>> from stompcodec.client import connect
    >>> from stompcodec.testing import StompBroker
    >>> def main(url):
    ...     with connect(url) as client:
    ...         with client.transaction() as transaction:
    ...             transaction.send("/queue/a", b"1")
    ...         return transaction.state
    >>> with StompBroker() as broker:
    ...     main(broker.url)
    'committed'
    """

    def __init__(self, link: Link, timeout: float | None) -> None:
        super().__init__(link.transaction_id())
        self._link = link
        self._timeout = None if timeout is None else seconds_of("timeout", timeout)

    def __enter__(self) -> Transaction:
        return self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            if self.state != "aborted":
                self.commit()
        elif self.state == "open":
            with contextlib.suppress(StompError):  # the error of the block says more
                self.abort(wait=False)

    def begin(self) -> Transaction:
        """Begin it, once there is a connection.

        Raises:
            ReceiptTimeoutError: there was no connection in time.
        """
        link = self._link
        while not link.engine.do(link.core.begin, self, now()):
            link.wait_connected(self._timeout)
        return self

    def send(
        self,
        destination: str,
        body: Body = b"",
        headers: HeaderSource | None = None,
        *,
        persistent: bool | None = None,
        content_encoding: str | None = None,
        timeout: float | None = None,
        length: int | None = None,
    ) -> None:
        """Send a message as part of it; only `commit` has a receipt. Arguments as for `Client.send`.

        Raises:
            ConnectionLostError: the connection was lost, and with it the transaction, which took no effect.
            BodySourceError: as for `Client.send`; the transaction is lost with its connection.
        """
        more = (headers, content_encoding, False, timeout, None, persistent, length)
        self._link.give(destination, body, *more, transaction=self)

    def ack(self, message: Message) -> None:
        """Acknowledge a message as part of it.

        Raises:
            StaleAckError, ConnectionLostError, LocalProtocolError: as for `Message.ack` and `send`.
        """
        self._link.settle(message, "ACK", transaction=self)

    def nack(self, message: Message, *, requeue: bool | None = None, discard: bool = False) -> None:
        """Refuse a message as part of it, as `Message.nack`."""
        wanted = self._link.core.link.dialect.refusing(requeue, discard)
        self._link.settle(message, "NACK", requeue=wanted, transaction=self)

    def commit(self, timeout: float | None = None) -> None:
        """Commit it, and return when the broker has confirmed.

        Args:
            timeout: seconds to wait; None for that of the transaction.

        Raises:
            RejectedError: the broker refused, and it took no effect.
            ConnectionLostError, ReceiptTimeoutError: with `sent` False it took no effect, else that is unknown.
        """
        self._finish("COMMIT", timeout).wait()

    def abort(self, *, wait: bool = True, timeout: float | None = None) -> None:
        """Discard it: drop its messages, and reopen those that it acknowledged.

        Args:
            wait: for the receipt, at most `timeout` seconds.
        """
        receipt = self._finish("ABORT", timeout)
        if wait:
            receipt.wait()

    def _finish(self, command: str, timeout: float | None) -> Receipt:
        link = self._link
        call = link.call(f"{command} of {self.id}", command, self._timeout if timeout is None else timeout)
        receipt: Receipt = link.start(call, link.core.finish_transaction, self, command)
        return receipt
