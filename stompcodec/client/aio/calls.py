"""Transactions for asyncio."""

from __future__ import annotations

import contextlib
from types import TracebackType

from stompcodec.client.aio.link import AsyncLink
from stompcodec.client.aio.messages import AsyncMessage
from stompcodec.client.aio.waiting import AsyncBody, AsyncReceipt
from stompcodec.client.owned import HeaderSource
from stompcodec.client.receipts import seconds_of
from stompcodec.client.shell import now
from stompcodec.client.transaction import BaseTransaction
from stompcodec.errors import StompError


class AsyncTransaction(BaseTransaction):
    """A transaction: its `async with` block ends with COMMIT, or with ABORT if it raises.

    `state` is new, open or committing; at last committed, aborted, lost (it took no effect: the connection was lost
    before COMMIT was sent), or unknown: COMMIT was sent, and no answer came. If the answer comes after the timeout,
    unknown becomes committed or aborted. Messages that it acknowledged are neither settled nor open until it ends: to
    acknowledge them again raises.

    >>> import asyncio
    >>> from stompcodec.client import connect_async
    >>> from stompcodec.testing import StompBroker
    >>> async def main(url):
    ...     async with connect_async(url) as client:
    ...         async with client.transaction() as transaction:
    ...             await transaction.send("/queue/a", b"1")
    ...         return transaction.state
    >>> with StompBroker() as broker:
    ...     asyncio.run(main(broker.url))
    'committed'
    """

    def __init__(self, link: AsyncLink, timeout: float | None) -> None:
        super().__init__(link.transaction_id())
        self._link = link
        self._timeout = None if timeout is None else seconds_of("timeout", timeout)

    async def __aenter__(self) -> AsyncTransaction:
        return await self.begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            if self.state != "aborted":
                await self.commit()
        elif self.state == "open":
            with contextlib.suppress(StompError):  # the error of the block says more
                await self.abort(wait=False)

    async def begin(self) -> AsyncTransaction:
        """Begin it, once there is a connection.

        Raises:
            ReceiptTimeoutError: there was no connection in time.
        """
        link = self._link
        link.delivery.check()  # asyncio only
        while not link.engine.do(link.core.begin, self, now()):
            await link.wait_connected(self._timeout)
        return self

    async def send(
        self,
        destination: str,
        body: AsyncBody = b"",
        headers: HeaderSource | None = None,
        *,
        persistent: bool | None = None,
        content_encoding: str | None = None,
        timeout: float | None = None,
        length: int | None = None,
    ) -> None:
        """Send a message as part of it; only `commit` has a receipt. Arguments as for `AsyncClient.send`.

        Raises:
            ConnectionLostError: the connection was lost, and with it the transaction, which took no effect.
            BodySourceError: as for `AsyncClient.send`; the transaction is lost with its connection.
        """
        more = (headers, content_encoding, False, timeout, None, persistent, length)
        await self._link.give(destination, body, *more, transaction=self)

    async def ack(self, message: AsyncMessage) -> None:
        """Acknowledge a message as part of it.

        Raises:
            StaleAckError, ConnectionLostError, LocalProtocolError: as for `AsyncMessage.ack` and `send`.
        """
        await self._link.settle(message, "ACK", transaction=self)

    async def nack(self, message: AsyncMessage, *, requeue: bool | None = None, discard: bool = False) -> None:
        """Refuse a message as part of it, as `AsyncMessage.nack`."""
        wanted = self._link.core.link.dialect.refusing(requeue, discard)
        await self._link.settle(message, "NACK", requeue=wanted, transaction=self)

    async def commit(self, timeout: float | None = None) -> None:
        """Commit it, and return when the broker has confirmed.

        Args:
            timeout: seconds to wait; None for that of the transaction.

        Raises:
            RejectedError: the broker refused, and it took no effect.
            ConnectionLostError, ReceiptTimeoutError: with `sent` False it took no effect, else that is unknown.
        """
        await self._finish("COMMIT", timeout).wait()

    async def abort(self, *, wait: bool = True, timeout: float | None = None) -> None:
        """Discard it: drop its messages, and reopen those that it acknowledged.

        Args:
            wait: for the receipt, at most `timeout` seconds.
        """
        receipt = self._finish("ABORT", timeout)
        if wait:
            await receipt.wait()

    def _finish(self, command: str, timeout: float | None) -> AsyncReceipt:
        link = self._link
        call = link.call(f"{command} of {self.id}", command, self._timeout if timeout is None else timeout)
        receipt: AsyncReceipt = link.start(call, link.core.finish_transaction, self, command)
        return receipt
