"""An asyncio client that is opened without an event loop, so that a synchronous fixture can return it.

Its I/O is done by the I/O thread of all clients; it belongs to the event loop that calls it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import Any

from stompcodec.client.aio.client import AsyncClient
from stompcodec.client.aio.link import AsyncLink
from stompcodec.client.aio.waiting import AsyncDelivery, Sent
from stompcodec.client.engine import Engine, News
from stompcodec.client.options import Options
from stompcodec.client.outbox import Call


class _Delivery(AsyncDelivery):
    """The way into the event loop that used the client last; without one, to the thread that opens or closes it."""

    def check(self) -> asyncio.AbstractEventLoop | None:
        """Return the event loop that uses the client now, which is its own from now on."""
        with contextlib.suppress(RuntimeError):
            loop = asyncio.get_running_loop()
            if loop is not self.loop:
                self.loop, self.sent = loop, Sent.in_loop()
        return self.loop

    def deliver(self, news: News) -> None:
        """Wake those who wait for these news."""
        if self.loop is None:
            news.wake()
        else:
            super().deliver(news)


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


class OpenedClient(AsyncClient):
    """An `AsyncClient` that is opened and closed without a loop: `open_here`, `close_here`."""

    _link_class = _Link
    _link: _Link

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, Options(**options))
        self._opened = True

    def open_here(self) -> None:
        """Connect and wait, in a thread without a running loop. Raises as `connect_async`."""
        call = self._link.call_of_connect()
        done = _event(call)
        self._link.engine.do(self._link.core.when_connected, time.monotonic(), call)
        self._link.engine.start()
        done.wait()
        if call.error is not None:
            self.close_here()
            raise call.error

    def close_here(self) -> None:
        """Disconnect and close, without a loop."""
        link, seconds = self._link, self.options.close_timeout
        call = link.call("close", "", 2 * seconds)
        done = _event(call)
        engine = link.engine
        link.delivery.loop = None
        engine.do(link.core.close, time.monotonic(), call, seconds)
        done.wait(2 * seconds)
        engine.join(seconds)


def _event(call: Call) -> threading.Event:
    """Return an event that is set when a call has its outcome."""
    done = threading.Event()
    call.wake = done.set
    return done
