"""The doors to both clients: `connect` and `connect_async`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompcodec.client.aio.client import AsyncClient
from stompcodec.client.options import ConnectOptions, Options
from stompcodec.client.sync.client import Client
from stompcodec.uri import Address

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["connect", "connect_async"]


def connect(url: str | list[Address], **options: Unpack[ConnectOptions]) -> Client:
    """Connect, and wait until there is a session.

    Args:
        url: stomp://login:passcode@host:61613/vhost, stomp+ssl:, ws:, wss:, failover:(a,b), or a list of addresses.
        options: the fields of `Options`; times are in seconds.

    Raises:
        ConnectionLostError: no broker can be reached.
        RejectedError: the broker refused the login.
        ConfigError, ValueError, TypeError: the URL or an option makes no sense.

    >>> from stompcodec.testing import StompBroker
    >>> with StompBroker() as broker, connect(broker.url, receipt_timeout=5.0) as client:
    ...     client.state, client.version
    ('connected', '1.2')
    """
    return Client(url, Options(**options)).open()


def connect_async(url: str | list[Address], **options: Unpack[ConnectOptions]) -> AsyncClient:
    """Return a client for asyncio, to be entered (`async with`) or awaited: then it connects.

    Args:
        url, options: as for `connect`.

    Raises:
        ConnectionLostError, RejectedError: as `connect`, when it is entered or awaited.
        ConfigError, ValueError, TypeError: the URL or an option makes no sense.

    >>> import asyncio
    >>> from stompcodec.testing import StompBroker
    >>> async def main(url):
    ...     async with connect_async(url, receipt_timeout=5.0) as client:
    ...         return client.state, client.version
    >>> with StompBroker() as broker:
    ...     asyncio.run(main(broker.url))
    ('connected', '1.2')
    """
    return AsyncClient(url, Options(**options))
