"""The link between a client, its engine and core, and its messages, subscriptions and transactions."""

from __future__ import annotations

from stompcodec.client.aio.waiting import AsyncDelivery, AsyncReceipt
from stompcodec.client.outbox import OutboxFullError
from stompcodec.client.receipts import seconds_of
from stompcodec.client.shell import BaseLink, Sending, now
from stompcodec.errors import ReceiptTimeoutError


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

    async def wait_connected(self, timeout: float | None) -> None:
        """Wait until there is a connection and all subscriptions are restored."""
        await self.start(self.call("waiting for a connection", "", timeout), self.core.when_connected).wait()
