"""The two ends of a bridge: connections to a broker, one after the other."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from stompcodec.bridge.marks import broker_name, check_name
from stompcodec.client import AsyncClient, Backoff, connect_async
from stompcodec.client.backoff import SPAN, Refusals
from stompcodec.client.dialects import is_login_refused
from stompcodec.client.options import Options
from stompcodec.errors import RejectedError, StompError
from stompcodec.spec import Limits
from stompcodec.uri import Address, parse_uri

#: Seconds after which a connection counts as a good one, so that delays start from the first again.
_GOOD = 5.0
#: Seconds for the answer to DISCONNECT, behind which no ACK is open.
_GOODBYE = 10.0
T = TypeVar("T")


class End:
    """A broker at one end of a bridge.

    Each connection is a client of its own, which does not reconnect: the bridge decides what becomes of open messages,
    since it knows their order.

    Args:
        url: its URL, or its addresses.
        name: what it is called in paths; None for host and port.
        max_body: bytes of the largest body.
        backoff: the delays between attempts to connect again.
        options: of `stompcodec.client.connect_async`.

    Raises:
        ConfigError, ValueError: the URL or the name is invalid.

    >>> End("stomp://ann:secret@north.example").name
    'north.example:61613'
    """

    def __init__(
        self,
        url: str | list[Address],
        *,
        name: str | None = None,
        max_body: int = Limits().max_body,
        backoff: Backoff | None = None,
        **options: Any,
    ) -> None:
        self.addresses = parse_uri(url) if isinstance(url, str) else list(url)
        self.name = broker_name(self.addresses) if name is None else check_name(name)
        self.max_body = max_body
        self.epoch = 0
        """The number of connections so far."""
        self.error: Exception | None = None
        """The error that ended the connection; None while connected."""
        self._backoff = Backoff() if backoff is None else backoff
        self._options = {**options, "limits": Limits(max_body=max_body), "reconnect": None}
        self._delays = self._backoff.delays(random.random)
        self._since = 0.0
        self._refusals = Refusals(options.get("login_attempts", Options.login_attempts), SPAN)

    def __str__(self) -> str:
        return ",".join(str(address) for address in self.addresses)

    async def open(self) -> AsyncClient:
        """Return a new client that is connected.

        Raises:
            ConnectionLostError, RejectedError: see `connect_async`.
        """
        client = await connect_async(self.addresses, **self._options)
        self.epoch += 1
        self.error = None
        self._refusals.forget()
        self._since = time.monotonic()
        return client

    async def reopen(self, on_trouble: Callable[[End, Exception], object]) -> AsyncClient:
        """Connect until that succeeds, and return the new client.

        Args:
            on_trouble: called with each error.

        Raises:
            RejectedError: the broker refused the login as often as `login_attempts` allows, over at least a minute.
        """
        if time.monotonic() - self._since >= _GOOD:
            self._delays = self._backoff.delays(random.random)
        for delay in self._delays:
            await asyncio.sleep(delay)
            try:
                return await self.open()
            except (StompError, OSError) as error:
                self.error = error
                on_trouble(self, error)
                if is_login_refused(error):
                    if self._refusals.note(time.monotonic()):
                        raise
                elif isinstance(error, RejectedError):
                    self._refusals.forget()
        raise AssertionError("a Backoff with attempts")  # it has none

    def succeeded(self) -> None:
        """Note that the connection was useful, so that the next delay is the shortest again."""
        self._since = 0.0
        self._delays = self._backoff.delays(random.random)


async def is_one_broker(source: AsyncClient, target: AsyncClient, seconds: float) -> bool:
    """Return whether a message that is sent to a topic over one connection arrives over the other.

    A broker that refuses that closes the connection, and counts as another one.

    Args:
        source, target: the connections.
        seconds: how long the message may take, after both brokers have answered.
    """
    topic = f"/topic/bridge-probe-{uuid.uuid4().hex}"
    with contextlib.suppress(StompError):
        async with source.subscribe(topic) as subscription:
            await subscription
            await target.send(topic, receipt=True)
            await source.ping()
            return await subscription.get(seconds) is not None
    return False


async def leave(client: AsyncClient, hurry: asyncio.Event, *, seconds: float = _GOODBYE) -> None:
    """Close a client. Its ACKs have reached the broker then, if that answers in time and the event is not set."""
    await unless(hurry, client.close(seconds))
    if hurry.is_set():
        await client.close(0.0)


async def unless(event: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of some work; cancel it and return None if an event is set first."""
    task, told = asyncio.create_task(work), asyncio.create_task(event.wait())
    try:
        await asyncio.wait((task, told), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for each in (task, told):
            each.cancel()
        await asyncio.gather(task, told, return_exceptions=True)
