"""The link between a client, its engine and core, and its messages, subscriptions and transactions."""

# scripts/unasync.py writes this from aio/link.py: change that one, then `make docs`.

from __future__ import annotations

from stompcodec.client.outbox import OutboxFullError
from stompcodec.client.receipts import seconds_of
from stompcodec.client.shell import BaseLink, Sending, now
from stompcodec.client.sync.waiting import Delivery, Receipt
from stompcodec.errors import ReceiptTimeoutError


class Link(BaseLink):
    """The engine and core of a `Client`, with the operations that wait."""

    delivery_class = Delivery
    receipt_class = Receipt

    delivery: Delivery

    def push(self, sending: Sending, timeout: float | None) -> Receipt | None:
        """Send a message once the outbox has room, or raise OutboxFullError; return its receipt if it has one."""
        seconds = self.options.receipt_timeout if timeout is None else seconds_of("timeout", timeout)
        until = 0.0  # set when it first has to wait
        while not sending.attempt():
            until = until or now() + seconds
            call = self.call("waiting for room", "", max(until - now(), 0))
            receipt = Receipt(call)
            self.engine.do(self.core.when_room, call, now(), sending.octets)
            try:
                receipt.wait()
            except ReceiptTimeoutError:
                raise OutboxFullError(f"the outbox had no room in {seconds} s: nothing was sent") from None
        answer: Receipt | None = sending.receipt
        return answer

    def wait_connected(self, timeout: float | None) -> None:
        """Wait until there is a connection and all subscriptions are restored."""
        self.start(self.call("waiting for a connection", "", timeout), self.core.when_connected).wait()
