"""stompman's WebSocket connection, on our codec."""

from __future__ import annotations

import asyncio
import importlib
import ssl as tls
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any, ClassVar, Literal

from stompcodec.compat import stompman
from stompcodec.compat.seams import PeerError
from stompcodec.frame import is_utf8

try:
    _websockets: Any = importlib.import_module("websockets")
    _connection: Any = importlib.import_module("stompman.connection_ws")
except ImportError as error:
    raise PeerError("this needs stompman 3.10 or later, and websockets: pip install websockets") from error
_ConnectionLostError: Any = importlib.import_module("stompman.errors").ConnectionLostError
#: Replaces that of stompman.
write_frame = stompman.noting(_connection.WebSocketConnection.write_frame)
_LOST = (RuntimeError, OSError, _websockets.WebSocketException)


class WebSocketConnection(_connection.WebSocketConnection):  # type: ignore[misc, name-defined, unused-ignore]
    """A `Connection` over WebSocket, for `stompman.Client(connection_class=...)`.

    With `ssl` it uses wss, which stompman does not support. It requests the subprotocol v12.stomp. A frame that is not
    UTF-8 is sent as a binary message; stompman sends a text message, which servers refuse.

    Attributes:
        quirks: as for `Connection`.
    """

    quirks: ClassVar[bool] = True

    @classmethod
    async def connect(
        cls,
        *,
        host: str,
        port: int,
        timeout: float,
        read_max_chunk_size: int,
        ssl: Literal[True] | tls.SSLContext | None,
        ws_uri_path: str | None = None,
    ) -> Any:
        """Connect; return None if that fails. `read_max_chunk_size` bounds a WebSocket message, in bytes."""
        scheme = "ws" if ssl is None else "wss"
        authority = f"[{host}]" if ":" in host else host
        uri = f"{scheme}://{authority}:{port}/{(ws_uri_path or '').strip('/')}"
        opening = _websockets.connect(uri, ssl=ssl, max_size=read_max_chunk_size, subprotocols=["v12.stomp"])
        try:
            websocket = await asyncio.wait_for(opening, timeout=timeout)
        except (TimeoutError, OSError, _websockets.WebSocketException):
            return None
        return cls(websocket=websocket, read_max_chunk_size=read_max_chunk_size, ssl=ssl)

    async def write_frame(self, frame: Any) -> None:
        """Send a frame, as `Connection` does."""
        stompman.note_written(self, frame)
        octets = (stompman.dump_frame if self.quirks else stompman.strict_dump_frame)(frame)
        try:
            await self.websocket.send(octets, text=is_utf8(octets))
        except _LOST as error:
            raise _ConnectionLostError(reason=error) from error

    def read_frames(self) -> AsyncGenerator[Any, None]:
        """Yield received frames, as `Connection` does."""
        return read_frames(self, self.quirks)


def read_frames(connection: Any, quirks: bool) -> AsyncGenerator[Any, None]:
    """Yield the frames of a WebSocket connection of stompman."""
    kind = stompman.FrameParser if quirks else stompman.StrictFrameParser
    return stompman.read_frames(connection, kind, partial(_receive, connection.websocket), _LOST)


async def _receive(websocket: Any) -> bytes:
    octets = b""
    while not octets:  # an empty message is not the end
        octets = await websocket.recv(decode=False)
    return octets
