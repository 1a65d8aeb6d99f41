"""Transactions for asyncio."""

from __future__ import annotations

import contextlib
from types import TracebackType

from stompcodec.client.aio.link import AsyncLink, AsyncReceipt
from stompcodec.client.aio.messages import AsyncMessage
from stompcodec.client.shell import HeaderSource, now, outgoing
from stompcodec.client.transaction import BaseTransaction
from stompcodec.codec import Frame
from stompcodec.errors import StompError

__all__ = ["AsyncTransaction"]


class AsyncTransaction(BaseTransaction):
    """SEND, ACK and NACK that take effect together: COMMIT at the end of its `async with`, ABORT if that raises."""

    def __init__(self, client: AsyncLink, id: str, timeout: float | None) -> None:
        super().__init__(id)
        self._client = client
        self._timeout = timeout

    async def __aenter__(self) -> AsyncTransaction:
        return await self.begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            if self.state != "aborted":
                await self.commit()
        elif self.state == "open":
            with contextlib.suppress(StompError):  # the user's error says more
                await self.abort(wait=False)

    async def begin(self) -> AsyncTransaction:
        """Start it, once there is a connection.

        Raises:
            ReceiptTimeoutError: there was none in time.
        """
        client = self._client
        while not client.engine.do(client.core.begin, self, now()):
            await client.wait_connected(self._timeout)
        return self

    async def send(
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
        client, message = self._client, outgoing(destination, body, headers, content_encoding)
        frame = Frame("SEND", message.pairs, message.body)

        def attempt() -> bool:
            return client.engine.do(client.core.send, frame, now(), text=message.text, transaction=self)

        await client.push(attempt, len(message.body), timeout)

    async def ack(self, message: AsyncMessage) -> None:
        """Acknowledge as part of it.

        Raises:
            StaleAckError, ConnectionLostError, LocalProtocolError: as for `AsyncMessage.ack` and `send`.
        """
        client = self._client
        client.engine.do(client.core.settle, message, "ACK", now(), transaction=self)

    async def nack(self, message: AsyncMessage, *, requeue: bool | None = None) -> None:
        """Refuse as part of it; as `AsyncMessage.nack`."""
        client = self._client
        client.engine.do(client.core.settle, message, "NACK", now(), requeue=requeue, transaction=self)

    async def commit(self, timeout: float | None = None) -> None:
        """Let it take effect; returns when the broker has done so.

        Raises:
            RejectedError: the broker refused: nothing of it took effect.
            ConnectionLostError: the connection was lost; with `sent` False nothing took effect, else that is unknown.
            ReceiptTimeoutError: the outcome is unknown.
        """
        await self._finish("COMMIT", timeout)

    async def abort(self, *, wait: bool = True, timeout: float | None = None) -> None:
        """Let nothing of it take effect. The messages it acknowledged are open again."""
        receipt = self._finish("ABORT", timeout)
        if wait:
            await receipt

    def _finish(self, command: str, timeout: float | None) -> AsyncReceipt:
        client = self._client
        call = client._call(f"{command} of {self.id}", command, self._timeout if timeout is None else timeout)
        receipt = AsyncReceipt(call)
        client.engine.do(client.core.finish_transaction, self, command, now(), call)
        return receipt
