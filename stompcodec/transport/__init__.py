"""Octets on the move; nothing here knows of frames.

`aio` for asyncio and `sync` for threads carry them over TCP; `tls` and `websocket` are layers without I/O that both of
them can put in between. An `Owner` gets what comes in. The shells are imported by name:
`from stompcodec.transport import aio`.
"""

from stompcodec.transport.owner import Layer, Owner, Place

__all__ = ["Layer", "Owner", "Place"]
