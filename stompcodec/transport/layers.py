"""The layers between a socket and its frames: which of them a connection has, and the one of an HTTP proxy.

A connection has a proxy, TLS, WebSocket or SockJS, or none of them. `ConnectLayer` asks a proxy for a tunnel by HTTP
CONNECT; after that it passes bytes in both directions. It is the lowest layer, or the one above TLS if the proxy itself
is reached by https.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from stompcodec.errors import ConfigError
from stompcodec.transport.http import Answer, Handshake, take_answer
from stompcodec.transport.owner import Admit, Layer, Octets, Over, Place

if TYPE_CHECKING:
    from ssl import SSLContext

_PORTS = {"http": 80, "https": 443}
_URL = re.compile(
    r"(?:(?P<scheme>[a-z][a-z0-9+.-]*)://)?(?:(?P<user>[^/?#]*)@)?"
    r"(?P<host>\[[0-9a-f:.]+\]|[^\[\]:/?#@,\s]+)(?::(?P<port>[0-9]{1,5}))?/?",
    re.IGNORECASE,
)
#: What to do about an answer.
_HINTS = {
    403: "it does not allow this host or port",
    405: "it offers no CONNECT",
    407: "it wants a login: write it into the URL, as in http://user:pass@host:port",
    502: "it cannot reach the broker",
    503: "it cannot reach the broker",
    504: "it cannot reach the broker in time",
}


class Proxy(NamedTuple):
    """An HTTP proxy, with its login.

    >>> parse_proxy("http://ann:x@proxy:3128")
    <Proxy http://ann:***@proxy:3128>
    """

    host: str
    port: int
    tls: bool
    """True if the connection to the proxy uses TLS."""
    login: str | None = None
    passcode: str | None = None

    def __str__(self) -> str:
        user = "" if self.login is None else f"{self.login}{'' if self.passcode is None else ':***'}@"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{user}{host}:{self.port}"

    def __repr__(self) -> str:
        return f"<Proxy {self}>"


def parse_proxy(url: str) -> Proxy:
    """Return the proxy that a URL names: http://user:pass@host:port, https://…, or host:port. Raise ConfigError if the
    URL is malformed, or names a proxy of another kind; the message never shows a passcode.
    """
    match = _URL.fullmatch(url)
    if match is None:
        raise ConfigError(
            "write http://host:port or http://user:pass@host:port, with / ? # as %2F %3F %23", key="proxy"
        )
    scheme = (match["scheme"] or "http").lower()
    if scheme not in _PORTS:
        raise ConfigError(f"unknown scheme {scheme[:20]}: HTTP CONNECT needs http or https", key="proxy")
    port = _PORTS[scheme] if match["port"] is None else int(match["port"])
    if not 0 < port < 65536:
        raise ConfigError(f"the port is {port}: it must be 1 to 65535", key="proxy")
    login, colon, passcode = (match["user"] or "").partition(":")
    return Proxy(
        match["host"].strip("[]"),
        port,
        scheme == "https",
        None if match["user"] is None else unquote(login),
        unquote(passcode) if colon else None,
    )


def proxy_of(proxy: str | None, place: Place) -> Proxy | None:
    """Return the proxy for a broker, by the option `proxy`: a URL, "environment", or None for none.

    "environment" reads https_proxy for TLS and http_proxy otherwise, then all_proxy, and no_proxy, which lists hosts
    that are reached directly.
    """
    if proxy is None:
        return None
    if proxy != "environment":
        return parse_proxy(proxy)
    from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

    found = getproxies_environment()
    url = found.get("https" if place.tls else "http") or found.get("all")
    if not url or proxy_bypass_environment(f"{place.host}:{place.port}", found):
        return None
    return parse_proxy(url)


class ConnectLayer:
    """The layer that asks a proxy for a tunnel. Its methods are those of `stompcodec.transport.Layer`.

    >>> layer = ConnectLayer("broker", 61613, parse_proxy("proxy:3128"))
    >>> layer.start()
    >>> layer.take_output()
    [b'CONNECT broker:61613 HTTP/1.1\\r\\nHost: broker:61613\\r\\n\\r\\n']
    >>> layer.receive(b"HTTP/1.1 200 OK\\r\\n\\r\\nhello"), layer.opened
    ([b'hello'], True)
    """

    waiting = False

    def __init__(self, host: str, port: int, proxy: Proxy) -> None:
        name = host if host.isascii() else host.encode("idna").decode()
        if not name.isprintable() or " " in name:
            raise ValueError(f"the host {name[:40]!a} cannot be asked of a proxy")
        self._target = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
        self._proxy = proxy
        self._head = b""
        self._output: list[bytes] = []
        self.opened = self.ended = False
        self.error: BaseException | None = None

    @property
    def buffered(self) -> int:
        return len(self._head)

    def start(self) -> None:
        lines = [f"CONNECT {self._target} HTTP/1.1", f"Host: {self._target}"]
        if self._proxy.login is not None:
            login = f"{self._proxy.login}:{self._proxy.passcode or ''}".encode()
            lines.append(f"Proxy-Authorization: Basic {base64.b64encode(login).decode()}")
        self._output.append("\r\n".join([*lines, "", ""]).encode())

    def receive(self, data: Octets) -> Sequence[Octets]:
        if self.opened:
            return [data]
        if self.error is not None:
            return []
        self._head += data
        try:
            while self._head:
                answer, self._head = take_answer(self._head)
                if answer is None:
                    return []
                if answer.status >= 200:
                    return self._judge(answer)
        except ValueError as error:
            self._fail(f"its answer {error}")
        return []

    def _judge(self, answer: Answer) -> list[Octets]:
        rest, self._head = self._head, b""
        if answer.status < 300:
            self.opened = True
            return [rest] if rest else []
        hint = _HINTS.get(answer.status, "redirects are not followed" if answer.status < 400 else "")
        if answer.status == 407 and self._proxy.login is not None:
            hint = "it does not accept this login"
        self._fail(answer.text + (f": {hint}" if hint else ""))
        return []

    def _fail(self, why: str) -> None:
        self._head = b""
        self.error = ConnectionRefusedError(f"the proxy {self._proxy.host}:{self._proxy.port} refused, {why}")

    def send(self, chunks: list[bytes]) -> None:
        self._output += chunks

    def take_output(self) -> list[bytes]:
        output, self._output = self._output, []
        return output

    def close(self) -> None:
        """Do nothing: the end of the stream says it."""

    def bound(self, octets: int) -> None:
        """Do nothing: no messages are kept."""

    def split(self, pieces: str) -> None:
        """Do nothing: a tunnel has no messages."""

    def discard(self) -> None:
        self._head = b""


def client_layer(
    place: Place, context: SSLContext | None, proxy: Proxy | None, handshake: Handshake
) -> Callable[[], Layer] | None:
    """Return a function that makes the layers of a connection to `place`; None for plain TCP.

    After AskAgainError the next connection gets the same `handshake`, which knows more by then.
    """
    makers: list[Callable[[], Layer]] = []
    if proxy is not None:
        through = proxy
        if proxy.tls:
            makers.append(_tls(proxy.host, context))
        makers.append(lambda: ConnectLayer(place.host, place.port, through))
    if place.tls:
        makers.append(_tls(place.host, context))
    if place.sockjs or place.websocket:
        makers.append(lambda: _websocket(place, handshake))
    return (lambda: reduce(Over, (make() for make in makers))) if makers else None


def _tls(host: str, context: SSLContext | None) -> Callable[[], Layer]:
    from stompcodec.transport.tls import TlsLayer, client_context

    chosen = context or client_context()
    return lambda: TlsLayer(chosen, server_hostname=host)


def _websocket(place: Place, handshake: Handshake) -> Layer:
    from stompcodec.transport import websocket

    if place.sockjs:
        return websocket.SockJsLayer(place.host, place.port, place.path, secure=place.tls, handshake=handshake)
    return websocket.client_layer(place.host, place.port, place.path, secure=place.tls, handshake=handshake)


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
