"""Middleware of the client: code around connecting, sending, receiving, processing and settling.

`stompcodec.client.middleware.otel` and `stompcodec.client.middleware.prometheus` are ready for use.
"""

from stompcodec.client.middleware.base import AsyncMiddleware, Middleware
from stompcodec.client.middleware.events import (
    ConnectEvent,
    EditableHeaders,
    ProcessEvent,
    ReceiveEvent,
    SendEvent,
    SendManyEvent,
    SettleEvent,
)

__all__ = [
    "AsyncMiddleware",
    "ConnectEvent",
    "EditableHeaders",
    "Middleware",
    "ProcessEvent",
    "ReceiveEvent",
    "SendEvent",
    "SendManyEvent",
    "SettleEvent",
]
