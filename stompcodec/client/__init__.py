"""The client: `connect` for threads, `connect_async` for asyncio, with the same names.

import stompcodec.client as stomp

with stomp.connect("stomp://user:pass@localhost:61613/vhost") as client:
    client.send("/queue/a", b"hello", receipt=True)
    for message in client.subscribe("/queue/a", ack="client-individual"):
        with message.processing():
            print(message.text())
"""

from stompcodec.client.aio.calls import AsyncTransaction
from stompcodec.client.aio.client import AsyncClient, connect_async
from stompcodec.client.aio.link import AsyncReceipt
from stompcodec.client.aio.messages import AsyncMessage, AsyncSubscription
from stompcodec.client.backoff import Backoff
from stompcodec.client.bulk import SendManyError
from stompcodec.client.options import Options
from stompcodec.client.outbox import OutboxFullError
from stompcodec.client.sync.calls import Transaction
from stompcodec.client.sync.client import Client, connect
from stompcodec.client.sync.link import Receipt
from stompcodec.client.sync.messages import Message, Subscription
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
    "AsyncClient",
    "AsyncMessage",
    "AsyncReceipt",
    "AsyncSubscription",
    "AsyncTransaction",
    "Backoff",
    "Client",
    "ConnectionLostError",
    "LocalProtocolError",
    "Message",
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
