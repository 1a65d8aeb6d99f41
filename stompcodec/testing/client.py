"""An asyncio client that is opened without an event loop, so that a synchronous fixture can return it.

Its I/O has its own thread; it belongs to the event loop that calls it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import Any

from stompcodec.client.aio.client import AsyncClient
from stompcodec.client.aio.link import AsyncLink
from stompcodec.client.engine import Engine
from stompcodec.client.options import Options
from stompcodec.client.receipts import Call


class _Link(AsyncLink):
    """A link whose events go to the event loop that used it last; without a loop, to waiting threads at once."""

    @property
    def engine(self) -> Engine:
        """The I/O thread. Each call of the client reads this, which ties the client to the running loop."""
        with contextlib.suppress(RuntimeError):
            self.delivery.loop = asyncio.get_running_loop()
        return self._engine

    @engine.setter
    def engine(self, engine: Engine) -> None:
        self._engine = engine


class OpenedClient(AsyncClient):
    """An `AsyncClient` that is opened and closed without a loop: `open_here`, `close_here`."""

    _link_class = _Link

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
