"""The WebSocket layer, on the sans-I/O core of the `websockets` library (extra `ws`).

When reading, STOMP frames and WebSocket messages are independent: a frame may be split over messages, and a message may
contain several. When writing, each chunk is one message: text if it is UTF-8, else binary. Chunks that are parts of a
frame (`Part`) become one binary message of several WebSocket frames. A server closes with 1007 if a text message is not
UTF-8. A client does not check this, since some brokers send any body as text.
"""

from __future__ import annotations

import codecs
import logging
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from stompcodec.errors import MissingExtraError
from stompcodec.transport.owner import Admit, Part, is_text

try:
    from websockets.client import ClientProtocol
    from websockets.frames import Frame, Opcode
    from websockets.http11 import Request, Response
    from websockets.protocol import OPEN, Protocol
    from websockets.server import ServerProtocol
    from websockets.uri import WebSocketURI
except ImportError as error:
    raise MissingExtraError("ws", "websockets") from error

__all__ = ["SUBPROTOCOLS", "WebSocketLayer", "client_layer", "server_layer"]

#: In order of preference.
SUBPROTOCOLS = ("v12.stomp", "v11.stomp", "v10.stomp")
#: The largest handshake in bytes.
MAX_HANDSHAKE = 64 * 1024
#: The default of the largest message in bytes.
MAX_MESSAGE = 128 * 2**20

_CONTROL = 8  # opcodes from here on are pings, pongs and closes
_HEAD = 14  # the largest head of a WebSocket frame in bytes
_TOO_BIG = 1009
_NOT_TEXT = 1007
#: The most WebSocket frames that one call of `receive` handles: 6 ms of CPU time. A read may contain 20,000.
SHARE = 512
#: The same for a call with new bytes: many connections may be read in one turn of the loop.
FIRST_SHARE = 128
#: A share with fewer frames left ends, since it would split the bytes into tiny slices.
_LEAST = 16
#: Bytes of the smallest frame that a server receives (masked), and a client.
_SMALLEST = {True: 6, False: 2}
_HINT = "This port speaks STOMP over WebSocket."


class _Log(logging.LoggerAdapter):  # type: ignore[type-arg]
    """A logger that passes warnings only: at lower levels the library logs bytes, which contain passcodes."""

    def isEnabledFor(self, level: int) -> bool:
        return level >= logging.WARNING and super().isEnabledFor(level)


_log = _Log(logging.getLogger("stompcodec.transport.websocket"), {})


def server_layer(
    max_message: int = MAX_MESSAGE, path: str | None = None, admit: Admit | None = None, address: str = ""
) -> WebSocketLayer:
    """Return the layer of a server's connection.

    Args:
        max_message: the largest message in bytes; larger ones end the connection with code 1009.
        path: the only path that is served, others get 404; None for any.
        admit: called first with each request; those that it refuses get 403 with its reason.
        address: our address, for `admit`.

    `WebSocketLayer` has an example.
    """
    protocol = ServerProtocol(
        subprotocols=SUBPROTOCOLS,  # type: ignore[arg-type]
        select_subprotocol=_select,
        max_size=max_message,
        logger=_log,
    )
    return WebSocketLayer(protocol, max_message, path, admit, address)


def client_layer(
    host: str, port: int, path: str = "/", *, secure: bool = False, max_message: int = MAX_MESSAGE
) -> WebSocketLayer:
    """Return the layer of a client's connection. `WebSocketLayer` has an example.

    Args:
        host, port: the server, for the header Host.
        path: the path of the request, with its query.
        secure: True if TLS is below this layer.
        max_message: the largest message in bytes; larger ones end the connection.
    """
    route, _, query = quote(path or "/", safe="/%?&=+:@!$'()*,;~-._").partition("?")
    protocol = ClientProtocol(
        WebSocketURI(secure, host, port, route if route.startswith("/") else "/" + route, query),
        subprotocols=SUBPROTOCOLS,  # type: ignore[arg-type]
        max_size=max_message,
        logger=_log,
    )
    return WebSocketLayer(protocol, max_message)


def _select(protocol: Any, offered: Sequence[str]) -> Any:
    """Return the best subprotocol that the client offers; None, which is served too, if it offers none of ours."""
    return next((name for name in SUBPROTOCOLS if name in offered), None)


class WebSocketLayer:
    """The WebSocket layer of one connection. Its methods are those of `stompcodec.transport.Layer`.

    >>> client, server = client_layer("localhost", 80), server_layer()
    >>> client.start()
    >>> _ = server.receive(b"".join(client.take_output()))
    >>> _ = client.receive(b"".join(server.take_output()))
    >>> client.send([b"hello"])
    >>> [bytes(piece) for piece in server.receive(b"".join(client.take_output()))], server.subprotocol
    ([b'hello'], 'v12.stomp')
    """

    def __init__(
        self,
        protocol: Protocol,
        max_message: int,
        path: str | None = None,
        admit: Admit | None = None,
        address: str = "",
    ) -> None:
        self._protocol = protocol
        self._path = path
        self._admit = admit
        self._address = address
        self._most = MAX_HANDSHAKE
        self._waiting = 0  # bytes received since the last event
        self._bound = max_message
        self._in_parts = False  # a message of ours has begun, and not ended
        self._said: list[bytes] = []  # output beside that of the library
        self._octets, self._at = b"", 0  # received bytes, and how far they were read
        self._smallest = _SMALLEST[isinstance(protocol, ServerProtocol)]
        self._checks_text = isinstance(protocol, ServerProtocol)
        self._decoder: codecs.IncrementalDecoder | None = None  # of an incomplete text message
        self.opened = False
        self.ended = False
        self.error: BaseException | None = None

    @property
    def subprotocol(self) -> str | None:
        """The negotiated subprotocol, such as "v12.stomp"; None for none."""
        return self._protocol.subprotocol

    def start(self) -> None:
        if isinstance(self._protocol, ClientProtocol):
            self._protocol.send_request(self._protocol.connect())

    @property
    def buffered(self) -> int:
        return len(self._protocol.reader.buffer) + len(self._octets) - self._at

    @property
    def waiting(self) -> bool:
        return self._at < len(self._octets)

    def receive(self, data: bytes | memoryview) -> list[memoryview]:
        if self.ended or self.error is not None:
            return []
        octets = self._octets[self._at :] + bytes(data) if self.waiting and data else bytes(data) or self._octets
        at = 0 if data else self._at
        received: list[memoryview] = []
        while not self.opened and self.error is None and at < len(octets):
            # Line by line: bytes after the peer's half of the handshake must not be read before ours is written.
            end = octets.find(b"\n", at) + 1 or len(octets)
            self._feed(octets[at:end], received)
            at = end
        left = FIRST_SHARE if data else SHARE
        while at < len(octets) and left >= _LEAST and self.error is None and not self.ended:
            # Invariant: a slice contains at most as many frames as the share has left.
            end = at + left * self._smallest
            left -= self._feed(octets[at:end], received)
            at = end
        done = at >= len(octets) or self.error is not None or self.ended
        self._octets, self._at = (b"", 0) if done else (octets, at)
        return received

    def _feed(self, data: bytes, received: list[memoryview]) -> int:
        """Read a slice, and add the data of messages to `received`. Return the number of frames in it."""
        protocol = self._protocol
        protocol.receive_data(data)
        events = protocol.events_received()
        self._waiting = 0 if events else self._waiting + len(data)
        for event in events:
            if isinstance(event, Frame):
                if len(event.data) > self._most:
                    self._waiting = len(event.data)
                    self._fail_size()
                    break
                if event.opcode < _CONTROL:
                    if self._checks_text and not self._is_sound(event):
                        self._fail_text()
                        break
                    received.append(memoryview(event.data))
            else:
                self._shake(event)
        self._look()
        return len(events)

    def _is_sound(self, frame: Frame) -> bool:
        """Return whether a frame keeps its text message valid UTF-8."""
        decoder = self._decoder
        if decoder is None:
            if frame.opcode != Opcode.TEXT or (frame.fin and bytes(frame.data).isascii()):
                return True
            decoder = self._decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            decoder.decode(frame.data, frame.fin)
        except UnicodeDecodeError:
            return False
        if frame.fin:
            self._decoder = None
        return True

    def _shake(self, event: object) -> None:
        """Handle the peer's half of the handshake."""
        protocol = self._protocol
        if isinstance(event, Request) and isinstance(protocol, ServerProtocol):
            reason = None
            if self._admit is not None:
                reason = self._admit(event.path, list(event.headers.raw_items()), self._address)
            if reason is not None:
                response = protocol.reject(403, f"{reason}\n")
            elif self._path is not None and event.path.partition("?")[0] != self._path:
                response = protocol.reject(404, f"Nothing is served here. {_HINT}\n")
            else:
                response = protocol.accept(event)
            protocol.send_response(response)
            if response.status_code != 101:
                why = reason or protocol.handshake_exc
                self.error = _refused(f"{response.status_code} {response.reason_phrase}", why)
        elif isinstance(event, Response) and protocol.handshake_exc is not None:
            self.error = _refused(f"{event.status_code} {event.reason_phrase}", protocol.handshake_exc)
        self.opened = protocol.state is OPEN
        if self.opened:
            self._most = self._bound

    def _look(self) -> None:
        """Set `error` or `ended` from the state of the library."""
        protocol = self._protocol
        if self.error is not None:
            return
        if protocol.parser_exc is not None:
            self.error = ConnectionAbortedError(f"malformed WebSocket data: {protocol.parser_exc}")
        elif protocol.close_rcvd is not None:
            self.ended = True
        elif protocol.handshake_exc is not None:
            self.error = _refused("not HTTP", protocol.handshake_exc)  # without its cause, which may quote a secret
            self._answer_noise()
        elif self._waiting > self._most + _HEAD:
            self._fail_size()

    def _answer_noise(self) -> None:
        """Answer a request that is not HTTP, for a person who tries the port; the library would just hang up."""
        protocol = self._protocol
        self._said = self.take_output()
        if isinstance(protocol, ServerProtocol) and not self._said:
            self._said.append(protocol.reject(400, f"Not a WebSocket request. {_HINT}\n").serialize())

    def _fail_size(self) -> None:
        protocol = self._protocol
        if self.opened:
            protocol.fail(_TOO_BIG, f"over {self._most} bytes in a frame")
        elif isinstance(protocol, ServerProtocol):
            protocol.send_response(protocol.reject(431, "The handshake is too long.\n"))
        what = "message" if self.opened else "handshake"
        self.error = ConnectionAbortedError(f"a WebSocket {what} is longer than {self._most} bytes")

    def _fail_text(self) -> None:
        self._protocol.fail(_NOT_TEXT, "a text message has to be UTF-8")
        self.error = ConnectionAbortedError("a WebSocket text message is not UTF-8")

    def send(self, chunks: list[bytes]) -> None:
        protocol = self._protocol
        if protocol.state is not OPEN:
            return
        for chunk in chunks:
            part = isinstance(chunk, Part)
            if part or self._in_parts:
                protocol.send_continuation(chunk, not part) if self._in_parts else protocol.send_binary(chunk, False)
                self._in_parts = part
            elif is_text(chunk):
                protocol.send_text(chunk)
            elif chunk:
                protocol.send_binary(chunk)

    def take_output(self) -> list[bytes]:
        said, self._said = self._said, []
        # An empty chunk asks for a half-close, which the transport does anyway.
        return said + [data for data in self._protocol.data_to_send() if data]

    def close(self) -> None:
        if self._protocol.state is OPEN:
            self._protocol.send_close(1000)

    def discard(self) -> None:
        self._octets, self._at = b"", 0
        self._protocol.reader.discard()

    def bound(self, octets: int) -> None:
        self._bound = octets
        if self.opened:
            self._most = octets


def _refused(what: str, why: object) -> ConnectionRefusedError:
    return ConnectionRefusedError(f"WebSocket refused, {what}" + (f": {why}" if why else ""))
