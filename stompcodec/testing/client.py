"""A client for asyncio that is open before there is an event loop, so that a fixture which is no coroutine can give it.

Its I/O has a thread of its own anyway; it belongs to whatever event loop calls it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

from stompcodec.client.aio.client import AsyncClient
from stompcodec.client.engine import Engine, News
from stompcodec.client.options import Options
from stompcodec.client.shell import now, timeout_of_connect

__all__ = ["OpenedClient"]

_NO_LOOP: Any = None


class OpenedClient(AsyncClient):
    """An `AsyncClient` that is opened and closed without a loop: `open_here`, `close_here`.

    Args:
        url: of the broker.
        options: as those of `connect_async`.
    """

    def __init__(self, url: str, **options: Any) -> None:
        self._loop = _NO_LOOP
        super().__init__(url, Options(**options))

    @property
    def engine(self) -> Engine:
        """The I/O thread. Whoever calls the client comes by here: from then on it belongs to that loop."""
        with contextlib.suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()
        return self._engine

    @engine.setter
    def engine(self, engine: Engine) -> None:
        self._engine = engine

    async def open(self) -> AsyncClient:
        """It is open already; `async with` closes it at its end, though."""
        return self

    def open_here(self) -> None:
        """Connect, and wait for that, in a thread without a loop or with one that stands still.

        Raises:
            Exception: as `connect_async`.
        """
        call = self.core.link.calls.make("connect", timeout_of_connect(self.options, len(self._engine.addresses)))
        done = threading.Event()
        call.wake = done.set
        self._engine.do(self.core.when_connected, call, now())
        self._engine.start()
        done.wait()
        if call.error is not None:
            self.close_here()
            raise call.error

    def close_here(self) -> None:
        """Say goodbye and close, whatever became of the loop."""
        self._loop = _NO_LOOP
        seconds = self.options.close_timeout
        call = self.core.link.calls.make("close", 2 * seconds)
        done = threading.Event()
        call.wake = done.set
        self._engine.do(self.core.close, now(), call, seconds)
        done.wait(2 * seconds)
        self._engine.join(seconds)

    def deliver(self, news: News) -> None:
        """As in AsyncClient; without a loop, those who wait are woken right here."""
        if self._loop is _NO_LOOP:
            self._deliver(news)
        else:
            super().deliver(news)
