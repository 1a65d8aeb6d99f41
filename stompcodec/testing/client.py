"""An asyncio client that belongs to the event loop that calls it, so that a synchronous fixture can return it."""

from __future__ import annotations

import asyncio
import contextlib

from stompcodec.client.aio.client import AsyncClient
from stompcodec.client.aio.link import AsyncLink
from stompcodec.client.aio.waiting import AsyncDelivery, Sent
from stompcodec.client.engine import Engine


class _Delivery(AsyncDelivery):
    """The way into the event loop that used the client last."""

    def start(self, engine: Engine) -> None:
        """Leave all reading to the I/O thread."""

    def check(self) -> asyncio.AbstractEventLoop | None:
        """Return the event loop that uses the client now, which is its own from now on."""
        with contextlib.suppress(RuntimeError):
            loop = asyncio.get_running_loop()
            if loop is not self.loop:
                self.loop, self.sent = loop, Sent.in_loop()
        return self.loop


class _Link(AsyncLink):
    """A link that belongs to the event loop that used it last."""

    delivery_class = _Delivery
    delivery: _Delivery

    @property
    def engine(self) -> Engine:
        """The I/O thread. Each call of the client reads this, which ties the client to the running loop."""
        self.delivery.check()
        return self._engine

    @engine.setter
    def engine(self, engine: Engine) -> None:
        self._engine = engine


class MovingClient(AsyncClient):
    """An `AsyncClient` that moves to the event loop that calls it."""

    _link_class = _Link
    _link: _Link

    async def close(self, timeout: float | None = None) -> None:
        """Close as `AsyncClient` does, without waiting for handlers in another loop, which has ended."""
        if self._link.delivery.loop is not asyncio.get_running_loop():
            self._subscriptions.clear()
        await super().close(timeout)
