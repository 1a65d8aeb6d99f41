"""The client: `connect` for threads and `connect_async` for asyncio, with the same names.

import stompcodec.client as stomp

with stomp.connect("stomp://user:pass@localhost:61613/vhost") as client:
    client.send("/queue/a", b"hello", receipt=True)
    for message in client.subscribe("/queue/a", ack="client-individual"):
        with message.processing():
            print(message.text())
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompcodec.arguments import checked
from stompcodec.client.aio.client import AsyncClient
from stompcodec.client.aio.messages import AsyncMessage, AsyncSubscription, AsyncTransaction
from stompcodec.client.aio.waiting import AsyncBody, AsyncBodyReader, AsyncReceipt
from stompcodec.client.backoff import Backoff
from stompcodec.client.bodies import BodyReader, BodySourceError
from stompcodec.client.link import Health
from stompcodec.client.middleware import AsyncMiddleware, Middleware
from stompcodec.client.options import AsyncConnectOptions, ConnectOptions, Options
from stompcodec.client.outbox import OutboxFullError
from stompcodec.client.shell import SendManyError
from stompcodec.client.sync.client import Client
from stompcodec.client.sync.messages import Message, Subscription, Transaction
from stompcodec.client.sync.waiting import Body, Receipt
from stompcodec.errors import (
    ConnectionLostError,
    LocalProtocolError,
    ReceiptTimeoutError,
    RejectedError,
    RemoteProtocolError,
    StaleAckError,
    StompError,
)
from stompcodec.uri import Brokers

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "AsyncBody",
    "AsyncBodyReader",
    "AsyncClient",
    "AsyncConnectOptions",
    "AsyncMessage",
    "AsyncMiddleware",
    "AsyncReceipt",
    "AsyncSubscription",
    "AsyncTransaction",
    "Backoff",
    "Body",
    "BodyReader",
    "BodySourceError",
    "Client",
    "ConnectOptions",
    "ConnectionLostError",
    "Health",
    "LocalProtocolError",
    "Message",
    "Middleware",
    "Options",
    "OutboxFullError",
    "Receipt",
    "ReceiptTimeoutError",
    "RejectedError",
    "RemoteProtocolError",
    "SendManyError",
    "StaleAckError",
    "StompError",
    "Subscription",
    "Transaction",
    "connect",
    "connect_async",
]


@checked
def connect(url: Brokers, **options: Unpack[ConnectOptions]) -> Client:
    """Return a client for threads that is connected.

    Args:
        url: stomp://login:passcode@host:61613/vhost, stomp+ssl:, ws:, wss:, https:, failover:(a,b), host:port, or a
            list of (host, port).
        options: the fields of `Options`; times are in seconds.

    Raises:
        ConnectionLostError: no broker can be reached.
        RejectedError: the broker refused the login.
        ConfigError, ValueError, TypeError: the URL or an option is invalid. Bugs of your functions are raised, too.

    >>> from stompcodec.testing import StompBroker
    >>> with StompBroker() as broker, connect(broker.url, receipt_timeout=5.0) as client:
    ...     client.state, client.version
    ('connected', '1.2')
    """
    return Client(url, Options(**options)).open()


@checked
def connect_async(url: Brokers, **options: Unpack[AsyncConnectOptions]) -> AsyncClient:
    """Return a client for asyncio, which connects when it is awaited or entered by `async with`.

    Arguments and errors are those of `connect`. What concerns the connection is raised when it is awaited or entered.

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
