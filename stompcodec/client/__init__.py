"""The client: `connect` for threads and `connect_async` for asyncio, with the same names.

import stompcodec.client as stomp

with stomp.connect("stomp://user:pass@localhost:61613/vhost") as client:
    client.send("/queue/a", b"hello", receipt=True)
    for message in client.subscribe("/queue/a", ack="client-individual"):
        with message.processing():
            print(message.text())
"""

from stompcodec.client.aio.calls import AsyncTransaction
from stompcodec.client.aio.client import AsyncClient
from stompcodec.client.aio.messages import AsyncMessage, AsyncSubscription
from stompcodec.client.aio.waiting import AsyncBody, AsyncBodyReader, AsyncReceipt
from stompcodec.client.backoff import Backoff
from stompcodec.client.bodies import BodyReader, BodySourceError
from stompcodec.client.bulk import SendManyError
from stompcodec.client.link import Health
from stompcodec.client.middleware import AsyncMiddleware, Middleware
from stompcodec.client.opening import connect, connect_async
from stompcodec.client.options import AsyncConnectOptions, ConnectOptions, Options
from stompcodec.client.outbox import OutboxFullError
from stompcodec.client.sync.calls import Transaction
from stompcodec.client.sync.client import Client
from stompcodec.client.sync.messages import Message, Subscription
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
