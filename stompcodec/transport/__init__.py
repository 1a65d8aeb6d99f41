"""Transports: bytes over TCP, TLS and WebSocket. They know nothing of frames.

`aio` is for servers in asyncio and `sync` for clients in threads; both can use the layers `tls` and `websocket`, which
do no I/O. An `Owner` receives the bytes. Import the modules by name: `from stompcodec.transport import aio`.
"""

from stompcodec.transport.owner import Layer, Owner, Place

__all__ = ["Layer", "Owner", "Place"]
