"""The link between a client, its engine and core, and its messages, subscriptions and transactions."""

from __future__ import annotations

from typing import Any

from stompcodec.client.aio.waiting import AsyncDelivery, AsyncReceipt, open_source, read_piece
from stompcodec.client.bodies.sources import Source
from stompcodec.client.bodies.upload import Upload
from stompcodec.client.outbox import OutboxFullError
from stompcodec.client.receipts import seconds_of
from stompcodec.client.shell import BaseLink, HeaderSource, Sending, now
from stompcodec.client.transaction import BaseTransaction
from stompcodec.errors import LocalProtocolError, ReceiptTimeoutError


class AsyncLink(BaseLink):
    """The engine and core of an `AsyncClient`, with the operations that wait."""

    delivery_class = AsyncDelivery
    receipt_class = AsyncReceipt

    delivery: AsyncDelivery

    async def push(self, sending: Sending, timeout: float | None) -> AsyncReceipt | None:
        """Send a message once the outbox has room, or raise OutboxFullError; return its receipt if it has one."""
        seconds = self.options.receipt_timeout if timeout is None else seconds_of("timeout", timeout)
        until = 0.0  # set when it first has to wait
        while not sending.attempt():
            until = until or now() + seconds
            call = self.call("waiting for room", "", max(until - now(), 0))
            receipt = AsyncReceipt(call)
            self.engine.do(self.core.when_room, call, now(), sending.octets)
            try:
                await receipt.wait()
            except ReceiptTimeoutError:
                raise OutboxFullError(f"the outbox had no room in {seconds} s: nothing was sent") from None
        answer: AsyncReceipt | None = sending.receipt
        return answer

    async def send_streamed(
        self,
        destination: str,
        body: Any,
        headers: HeaderSource | None,
        content_encoding: str | None,
        length: int | None,
        *,
        receipt: bool = False,
        timeout: float | None = None,
        resend: bool | None = None,
        to_the_end: bool = True,
        transaction: BaseTransaction | None = None,
    ) -> AsyncReceipt | None:
        """Send a message whose body is read from a source; return its receipt, if it has one.

        The receipt is waited for with `to_the_end` only. Other arguments and errors as for `AsyncClient.send`.
        """
        if content_encoding is not None:
            raise ValueError("content_encoding is for str and bytes: give a source of bytes that are encoded already")
        if resend and not to_the_end:
            raise LocalProtocolError("resend=True with a streamed body needs `send`, which keeps the source")
        self.engine.check()
        source = await open_source(body, length, self.options.spool_folder)
        upload: Upload | None = None
        try:
            sending, upload = self.streaming(
                destination,
                source,
                headers,
                receipt=receipt,
                timeout=timeout,
                resend=resend,
                to_the_end=to_the_end,
                transaction=transaction,
            )
            await self.push(sending, timeout)
            await self._feed(upload, source)
        except BaseException as error:
            if upload is not None:
                self.engine.do(self.core.give_up, upload, f"given up ({type(error).__name__})", now())
            raise
        finally:
            source.close()
        answer: AsyncReceipt | None = sending.receipt
        return answer

    async def send_source(
        self,
        destination: str,
        body: Any,
        headers: HeaderSource | None,
        content_encoding: str | None,
        length: int | None,
        *,
        receipt: bool,
        timeout: float | None,
        resend: bool | None,
    ) -> None:
        """Send a message whose body is read from a source, and wait for its receipt if it has one."""
        await self.send_streamed(
            destination, body, headers, content_encoding, length, receipt=receipt, timeout=timeout, resend=resend
        )

    async def _feed(self, upload: Upload, source: Source) -> None:
        """Hand over the pieces of a body as they are asked for."""
        while True:
            call = self.call(f"{upload.what}, whose body waits to be sent", "", upload.timeout)
            receipt = AsyncReceipt(call)
            self.engine.do(self.core.ask, upload, now(), call)
            at = await receipt.wait()
            if at is None:
                return
            if at >= 0:
                piece = await read_piece(source, at, upload)
                upload.check(at, piece)
                self.engine.do(self.core.feed, upload, at, piece, now())

    async def wait_connected(self, timeout: float | None) -> None:
        """Wait until there is a connection and all subscriptions are restored."""
        await self.start(self.call("waiting for a connection", "", timeout), self.core.when_connected).wait()
