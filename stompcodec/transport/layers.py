"""The choice of layers between a socket and its frames: TLS, WebSocket, both or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stompcodec.transport.owner import Admit, Layer, Over, Place

if TYPE_CHECKING:
    from ssl import SSLContext


def client_layer(place: Place, context: SSLContext | None) -> Callable[[], Layer] | None:
    """Return a function that makes the layers of a connection to `place`; None for plain TCP."""
    if not place.tls:
        return (lambda: _websocket_client(place)) if place.websocket else None
    from stompcodec.transport.tls import TlsLayer, client_context

    chosen = context or client_context()
    if not place.websocket:
        return lambda: TlsLayer(chosen, server_hostname=place.host)
    return lambda: Over(TlsLayer(chosen, server_hostname=place.host), _websocket_client(place))


def _websocket_client(place: Place) -> Layer:
    from stompcodec.transport import websocket

    return websocket.client_layer(place.host, place.port, place.path, secure=place.tls)


def server_layer(
    context: SSLContext | None,
    websocket: bool,
    max_message: int,
    path: str | None,
    admit: Admit | None = None,
    plain_http: bool = False,
) -> Callable[[str], Layer] | None:
    """Return a function that makes the layers of an accepted connection from our address; None for plain TCP."""
    make_upper: Callable[[str], Layer] | None = None
    if websocket:
        from stompcodec.transport import websocket as room

        def make_upper(address: str) -> Layer:
            return room.server_layer(max_message, path, admit, address, plain_http)

    if context is None:
        return make_upper
    from stompcodec.transport.tls import TlsLayer

    chosen = context
    if make_upper is None:
        return lambda _address: TlsLayer(chosen)
    upper = make_upper
    return lambda address: Over(TlsLayer(chosen), upper(address))
