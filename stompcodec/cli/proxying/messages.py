"""WebSocket messages of one end, without I/O, on the `websockets` library. Kinds and fragments of messages are kept.

The layer of `stompcodec.transport` gives bytes only, which is enough for peers, but not for a proxy.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from stompcodec.broker.auth import Gate
from stompcodec.cli.proxying.bytes import BINARY, TEXT, Chunk
from stompcodec.errors import MissingExtraError
from stompcodec.frame import is_utf8
from stompcodec.spec import VERSIONS

try:
    from websockets.client import ClientProtocol
    from websockets.frames import Frame, Opcode
    from websockets.http11 import Request, Response
    from websockets.protocol import OPEN, Protocol
    from websockets.server import ServerProtocol
    from websockets.uri import WebSocketURI
except ImportError as error:
    raise MissingExtraError("ws", "websockets") from error

#: Bytes of a message, which the library keeps as a whole, and of a handshake.
MOST = 128 * 2**20
_HANDSHAKE = 64 * 1024
#: Headers of the client's request that are passed on.
_PASSED_ON = ("Origin", "Authorization", "Cookie", "User-Agent")
#: The library logs bytes, which hold passcodes, at lower levels.
_log = logging.getLogger("stompcodec.proxy.websocket")
_log.setLevel(logging.CRITICAL)
_CONTROL = 8


class Messages:
    """The messages of one end.

    >>> front, back = Messages.server(), Messages.client(("localhost", 80, "/"), [], [])
    >>> _ = front.receive(b"".join(back.take_output()))
    >>> front.accept(None)
    >>> _ = back.receive(b"".join(front.take_output()))
    >>> back.send(Chunk(b"hello"))
    >>> front.receive(b"".join(back.take_output()))
    [Chunk(data=b'hello', kind=1, end=True)]
    """

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self._in_parts = False
        self._kind = BINARY  # of the message that is being received
        self._size = 0  # bytes of the handshake
        self.request: Request | None = None
        """The request of the client."""
        self.ended = False
        """True if the peer has closed."""
        self.error: OSError | None = None

    @classmethod
    def server(cls) -> Messages:
        """Return the end that faces a client. Call `accept` or `refuse` once `request` is there."""
        return cls(ServerProtocol(max_size=MOST, logger=_log))

    @classmethod
    def client(
        cls,
        place: tuple[str, int, str],
        subprotocols: Sequence[str],
        headers: Sequence[tuple[str, str]],
        secure: bool = False,
    ) -> Messages:
        """Return the end that faces a broker, at a host, port and path. Its request is in the output."""
        host, port, path = place
        route, _, query = quote(path or "/", safe="/%?&=+:@!$'()*,;~-._").partition("?")
        uri = WebSocketURI(secure, host, port, route, query)
        offered: Any = list(subprotocols) or None
        protocol = ClientProtocol(uri, subprotocols=offered, max_size=MOST, logger=_log)
        request = protocol.connect()
        for name, value in headers:
            request.headers[name] = value
        protocol.send_request(request)
        return cls(protocol)

    @property
    def opened(self) -> bool:
        return self._protocol.state is OPEN

    @property
    def subprotocol(self) -> str | None:
        return self._protocol.subprotocol

    @property
    def offered(self) -> list[str]:
        assert self.request is not None
        lines = self.request.headers.get_all("Sec-WebSocket-Protocol")
        return [name.strip() for line in lines for name in line.split(",") if name.strip()]

    def passed_on(self) -> list[tuple[str, str]]:
        assert self.request is not None
        pairs = self.request.headers.raw_items()
        return [(name, value) for name, value in pairs if name.title() in _PASSED_ON]

    def refusal(self, gate: Gate, address: str) -> str | None:
        assert self.request is not None
        return gate.refusal(self.request.path, list(self.request.headers.raw_items()), address)

    def accept(self, subprotocol: str | None) -> None:
        protocol = self._protocol
        assert isinstance(protocol, ServerProtocol)
        assert self.request is not None
        if subprotocol is not None:
            protocol.available_subprotocols = [subprotocol]  # type: ignore[list-item]
        response = protocol.accept(self.request)
        protocol.send_response(response)
        if response.status_code != 101:
            self.error = ConnectionRefusedError(f"not a WebSocket request: {response.status_code}")

    def refuse(self, status: int, text: str) -> None:
        protocol = self._protocol
        assert isinstance(protocol, ServerProtocol)
        protocol.send_response(protocol.reject(status, f"{text}\n"))

    def receive(self, data: bytes) -> list[Chunk]:
        """Take bytes of the peer, and return its messages, or parts of them."""
        if self.ended or self.error is not None:
            return []
        protocol = self._protocol
        if not self.opened:
            self._size += len(data)
        protocol.receive_data(data)
        chunks: list[Chunk] = []
        for event in protocol.events_received():
            if isinstance(event, Frame):
                if event.opcode < _CONTROL:
                    chunks.append(self._chunk(event))
            elif isinstance(event, Request):
                self.request = event
            elif isinstance(event, Response) and protocol.handshake_exc is not None:
                self.error = ConnectionRefusedError(f"WebSocket refused, {event.status_code} {event.reason_phrase}")
        self._look()
        return chunks

    def _chunk(self, frame: Frame) -> Chunk:
        if frame.opcode != Opcode.CONT:
            self._kind = TEXT if frame.opcode == Opcode.TEXT else BINARY
        return Chunk(bytes(frame.data), self._kind, frame.fin)

    def _look(self) -> None:
        protocol = self._protocol
        if protocol.close_rcvd is not None:
            self.ended = True
        elif self.error is not None:
            pass
        elif protocol.parser_exc is not None:
            self.error = ConnectionAbortedError("malformed WebSocket data")  # the cause may quote what was sent
        elif protocol.handshake_exc is not None:
            self.error = ConnectionRefusedError("not HTTP, so not WebSocket")
        elif self._size > _HANDSHAKE and not self.opened and self.request is None:
            self.error = ConnectionAbortedError(f"a WebSocket handshake is longer than {_HANDSHAKE} bytes")

    def send(self, chunk: Chunk) -> None:
        protocol = self._protocol
        if not self.opened:
            return
        data, kind, end = chunk
        if self._in_parts:
            protocol.send_continuation(data, end)
        elif kind == TEXT or (not kind and end and is_utf8(data)):
            protocol.send_text(data, end)
        else:
            protocol.send_binary(data, end)
        self._in_parts = not end

    @property
    def close_code(self) -> tuple[int | None, str]:
        close = self._protocol.close_rcvd
        return (None, "") if close is None or close.code in (1005, 1006, 1015) else (close.code, close.reason)

    def close(self, code: int | None = 1000, reason: str = "") -> None:
        if self.opened:
            if self._in_parts:
                code, reason = 1001, "the other side has closed"
            self._protocol.send_close(code, reason)

    def take_output(self) -> list[bytes]:
        return [data for data in self._protocol.data_to_send() if data]


def subprotocol_of(offered: Sequence[str]) -> str | None:
    """Return the best subprotocol of STOMP among those offered, for a broker without WebSocket.

    >>> subprotocol_of(["v11.stomp", "v12.stomp"]), subprotocol_of(["mqtt"])
    ('v12.stomp', None)
    """
    ours = [f"v{version.replace('.', '')}.stomp" for version in sorted(VERSIONS, reverse=True)]
    return next((name for name in ours if name in offered), None)
