"""WebSocket as a layer, on the sans-I/O core of the `websockets` library (extra `ws`).

STOMP frames and WebSocket messages are independent for the reader: a frame may be split over messages, and a message
may hold several. The writer makes one message of each chunk: text if it is UTF-8, binary if not. Chunks that are parts
of a frame (`Part`) make one binary message, in several frames of WebSocket. A server closes with 1007 when a text
message is not UTF-8. A client does not check that, since brokers exist that send any body as text.
"""

from __future__ import annotations

import codecs
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from stompcodec.errors import MissingExtraError
from stompcodec.transport.owner import Admit, Part

try:
    from websockets.client import ClientProtocol
    from websockets.frames import Frame, Opcode
    from websockets.http11 import Request, Response
    from websockets.protocol import OPEN
    from websockets.server import ServerProtocol
    from websockets.uri import WebSocketURI
except ImportError as error:
    raise MissingExtraError("ws", "websockets") from error

if TYPE_CHECKING:
    from websockets.protocol import Protocol

__all__ = ["SUBPROTOCOLS", "WebSocketLayer", "client_layer", "is_text", "server_layer"]

#: The best first.
SUBPROTOCOLS = ("v12.stomp", "v11.stomp", "v10.stomp")
#: Octets of a handshake at most.
MAX_HANDSHAKE = 64 * 1024
#: Octets of a message at most, if nothing else is said.
MAX_MESSAGE = 128 * 2**20

_CONTROL = 8  # opcodes from here on are pings, pongs and closes
_HEAD = 14  # octets that a message's own head may have
_TOO_BIG = 1009
_NOT_TEXT = 1007
#: WebSocket frames that one call of `receive` handles at most: 6 ms of CPU time, where a read may hold 20,000 of them.
SHARE = 512
#: The same of a call that brings something new: many connections may be read in one turn of the loop.
FIRST_SHARE = 128
#: A share with less than this left is over: it would cut what came into tiny slices.
_LEAST = 16
#: Bytes of the smallest frame: a client masks what it sends, a server does not.
_SMALLEST = {True: 6, False: 2}
_HINT = "This port speaks STOMP over WebSocket."


class _Log(logging.LoggerAdapter):  # type: ignore[type-arg]
    """The library may warn, but not tell what it reads and writes: there are passcodes in that."""

    def isEnabledFor(self, level: int) -> bool:
        return level >= logging.WARNING and super().isEnabledFor(level)


_log = _Log(logging.getLogger("stompcodec.transport.websocket"), {})


def server_layer(
    max_message: int = MAX_MESSAGE, path: str | None = None, admit: Admit | None = None, address: str = ""
) -> WebSocketLayer:
    """The server's side of one connection.

    Args:
        max_message: octets of a message at most; larger ones end the connection with code 1009.
        path: the only path that is served, others get 404; None: any.
        admit: asked about each request before all else; those that it refuses get 403 with its reason.
        address: our own, for `admit`.
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
    """The client's side of one connection; `path` may hold a query."""
    route, _, query = quote(path or "/", safe="/%?&=+:@!$'()*,;~-._").partition("?")
    protocol = ClientProtocol(
        WebSocketURI(secure, host, port, route if route.startswith("/") else "/" + route, query),
        subprotocols=SUBPROTOCOLS,  # type: ignore[arg-type]
        max_size=max_message,
        logger=_log,
    )
    return WebSocketLayer(protocol, max_message)


def _select(protocol: Any, offered: Sequence[str]) -> Any:
    """The best version that the client offers. A client that offers none, or only others, is served as well."""
    return next((name for name in SUBPROTOCOLS if name in offered), None)


def is_text(chunk: bytes) -> bool:
    """Whether a chunk can be a text message.

    >>> is_text("SEND caf\xe9".encode()), is_text(b"\\xff")
    (True, False)
    """
    if chunk.isascii():
        return True
    try:
        chunk.decode()
    except UnicodeDecodeError:
        return False
    return True


class WebSocketLayer:
    """One connection's WebSocket, without I/O (a `stompcodec.transport.Layer`)."""

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
        self._waiting = 0  # octets that came since the last thing was handed over
        self._bound = max_message
        self._in_parts = False  # a message has begun, and not ended
        self._said: list[bytes] = []  # what the library would not say
        self._octets, self._at = b"", 0  # what came, and how far it was read
        self._smallest = _SMALLEST[isinstance(protocol, ServerProtocol)]
        self._checks_text = isinstance(protocol, ServerProtocol)
        self._decoder: codecs.IncrementalDecoder | None = None  # of a text message that has begun
        self.opened = False
        self.ended = False
        self.error: BaseException | None = None

    @property
    def subprotocol(self) -> str | None:
        """What was agreed on, as in "v12.stomp"."""
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
            # Line by line: what stands behind the peer's half of the handshake must not be read before ours is written.
            end = octets.find(b"\n", at) + 1 or len(octets)
            self._feed(octets[at:end], received)
            at = end
        left = FIRST_SHARE if data else SHARE
        while at < len(octets) and left >= _LEAST and self.error is None and not self.ended:
            # Invariant: a slice holds at most as many frames as the share has left.
            end = at + left * self._smallest
            left -= self._feed(octets[at:end], received)
            at = end
        done = at >= len(octets) or self.error is not None or self.ended
        self._octets, self._at = (b"", 0) if done else (octets, at)
        return received

    def _feed(self, data: bytes, received: list[memoryview]) -> int:
        """Read a slice, and add what is for above to `received`. Return the number of frames that it held."""
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
        """Return whether a frame goes on as its message has to: a text message is UTF-8."""
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
        """The peer's half of the handshake has come."""
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
        """See whether it can go on."""
        protocol = self._protocol
        if self.error is not None:
            return
        if protocol.parser_exc is not None:
            self.error = ConnectionAbortedError(f"no good WebSocket: {protocol.parser_exc}")
        elif protocol.close_rcvd is not None:
            self.ended = True
        elif protocol.handshake_exc is not None:
            self.error = _refused("no HTTP", protocol.handshake_exc)  # its cause quotes what came: perhaps a secret
            self._answer_noise()
        elif self._waiting > self._most + _HEAD:
            self._fail_size()

    def _answer_noise(self) -> None:
        """The library hangs up on what is not HTTP; a person who looks at the port should learn why."""
        protocol = self._protocol
        self._said = self.take_output()
        if isinstance(protocol, ServerProtocol) and not self._said:
            self._said.append(protocol.reject(400, f"Not a WebSocket request. {_HINT}\n").serialize())

    def _fail_size(self) -> None:
        protocol = self._protocol
        if self.opened:
            protocol.fail(_TOO_BIG, f"over {self._most} octets in a frame")
        elif isinstance(protocol, ServerProtocol):
            protocol.send_response(protocol.reject(431, "The handshake is too long.\n"))
        what = "message" if self.opened else "handshake"
        self.error = ConnectionAbortedError(f"a WebSocket {what} is longer than {self._most} octets")

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
        # An empty chunk asks to half-close: the shell does that by itself.
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
