"""The choice of layers between a socket and its frames: a proxy, TLS, WebSocket or SockJS, or none of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING

from stompcodec.transport.owner import Admit, Layer, Over, Place
from stompcodec.transport.proxy import ConnectLayer, Proxy

if TYPE_CHECKING:
    from ssl import SSLContext


def client_layer(
    place: Place, context: SSLContext | None, proxy: Proxy | None = None, asked: bool = False
) -> Callable[[], Layer] | None:
    """Return a function that makes the layers of a connection to `place`; None for plain TCP.

    `asked`: the connection before this one ended by AskAgainError.
    """
    makers: list[Callable[[], Layer]] = []
    if proxy is not None:
        through = proxy
        if proxy.tls:
            makers.append(_tls(proxy.host, context))
        makers.append(lambda: ConnectLayer(place.host, place.port, through))
    if place.tls:
        makers.append(_tls(place.host, context))
    if place.sockjs:
        makers.append(lambda: _sockjs_client(place, asked))
    elif place.websocket:
        makers.append(lambda: _websocket_client(place))
    return (lambda: reduce(Over, (make() for make in makers))) if makers else None


def _tls(host: str, context: SSLContext | None) -> Callable[[], Layer]:
    from stompcodec.transport.tls import TlsLayer, client_context

    chosen = context or client_context()
    return lambda: TlsLayer(chosen, server_hostname=host)


def _sockjs_client(place: Place, asked: bool) -> Layer:
    from stompcodec.transport import websocket

    return websocket.SockJsLayer(place.host, place.port, place.path, secure=place.tls, asked=asked)


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
