"""`connect` and `connect_async`, which open both clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompcodec.client.aio.client import AsyncClient
from stompcodec.client.options import AsyncConnectOptions, ConnectOptions, Options
from stompcodec.client.sync.client import Client
from stompcodec.uri import Address

if TYPE_CHECKING:
    from typing_extensions import Unpack


def connect(url: str | list[Address], **options: Unpack[ConnectOptions]) -> Client:
    """Return a client for threads that is connected.

    Args:
        url: stomp://login:passcode@host:61613/vhost, stomp+ssl:, ws:, wss:, https:, failover:(a,b), or addresses.
        options: the fields of `Options`; times are in seconds.

    Raises:
        ConnectionLostError: no broker can be reached.
        RejectedError: the broker refused the login.
        ConfigError, ValueError, TypeError: the URL or an option is invalid.

    >>> from stompcodec.testing import StompBroker
    >>> with StompBroker() as broker, connect(broker.url, receipt_timeout=5.0) as client:
    ...     client.state, client.version
    ('connected', '1.2')
    """
    return Client(url, Options(**options)).open()


def connect_async(url: str | list[Address], **options: Unpack[AsyncConnectOptions]) -> AsyncClient:
    """Return a client for asyncio, which connects when it is awaited or entered by `async with`.

    Args:
        url, options: as for `connect`.

    Raises:
        ConnectionLostError, RejectedError: as for `connect`, when it is awaited or entered.
        ConfigError, ValueError, TypeError: the URL or an option is invalid.

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
