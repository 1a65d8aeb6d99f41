"""The WebSocket layer, on the sans-I/O core of the `websockets` library (extra `ws`).

Plain frames take a quick road: `read_websocket` and `write_websocket` of the codec read and write whole messages of
text or binary, many at a time. The library gets the handshake and all other frames: control frames, fragments, and
those that are malformed or too large. Invariant: the quick road only skips work; `_QUICK = False` turns it off.

When reading, STOMP frames and WebSocket messages are independent: a frame may be split over messages, and a message may
contain several. When writing, each chunk is one message: text if it is UTF-8, else binary. Chunks that are parts of a
frame (`Part`) become one binary message of several WebSocket frames. `split` cuts large chunks. A server closes with
1007 if a text message is not UTF-8. A client does not check this, since some brokers send any body as text.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import logging
import os
import random
import re
import uuid
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from stompcodec.arguments import checked, checks
from stompcodec.codec import read_websocket, write_websocket
from stompcodec.errors import MissingExtraError
from stompcodec.frame import is_utf8
from stompcodec.transport.http import MAX_HEAD, Answer, Handshake, take_answer
from stompcodec.transport.owner import Admit, AskAgainError, CloseCodeError, Layer, Octets, Part, PlainRequest

#: The largest body of an answer to /info in bytes.
MAX_INFO = 16 * 1024
#: The most bytes of a SockJS frame before the session is open.
_MAX_FIRST = 64 * 1024
#: What large chunks become -> the bytes of each piece. Artemis and Vert.x close at 64 KiB, Tomcat at 8 KiB.
_PIECES = {"fragments": 60_000, "messages": 8_000}
_IN_STRING = re.compile(rb'["\\]')
_OUTSIDE = re.compile(rb'["\]]')
_HINTS = {
    403: "it does not allow this Origin or client",
    404: "there is no such endpoint at this path",
    **dict.fromkeys((301, 302, 303, 307, 308), "redirects are not followed: connect to the new address"),
}


class Frames:
    """Splits the text of a server into SockJS frames, wherever it is cut.

    >>> frames = Frames()
    >>> [*frames.feed(b'oha["a\\\\n",'), *frames.feed(b'"b]"]c[3000,"Go away!"]')]
    [('o', None), ('h', None), ('a', ['a\\n', 'b]']), ('c', [3000, 'Go away!'])]
    """

    def __init__(self) -> None:
        self.most = _MAX_FIRST
        self._octets = bytearray()
        self._at = 0  # how far the first frame was searched for its end
        self._in_string = False

    @property
    def buffered(self) -> int:
        return len(self._octets)

    def discard(self) -> None:
        self._octets = bytearray()

    def feed(self, data: Octets) -> list[tuple[str, Any]]:
        """Return the complete frames; raise ValueError for what is none, or longer than `most` bytes."""
        self._octets += data
        found: list[tuple[str, Any]] = []
        start = 0
        while start < len(self._octets):
            kind = chr(self._octets[start])
            if kind in "oh":
                found.append((kind, None))
                start += 1
                continue
            if kind not in "ac":
                raise ValueError("a SockJS frame begins with o, h, a or c")
            end = self._end_of(start)
            if end is None:
                break
            found.append((kind, _value(bytes(self._octets[start + 1 : end]))))
            start, self._at = end, 0
        if start:
            del self._octets[:start]
            self._at = max(self._at - start, 0)
        if len(self._octets) > self.most:
            raise ValueError(f"a SockJS frame is longer than {self.most} bytes")
        return found

    def _end_of(self, start: int) -> int | None:
        """Return where the array ends that begins behind `start`; None if it is not complete."""
        octets, at = self._octets, max(self._at, start + 1)
        if at == start + 1 and at < len(octets) and octets[at] != ord("["):
            raise ValueError("a SockJS frame has no array")
        while at < len(octets):
            match = (_IN_STRING if self._in_string else _OUTSIDE).search(octets, at)
            if match is None:
                at = len(octets)
                break
            at, what = match.end(), match[0]
            if what == b"\\":
                if at == len(octets):  # the escaped character is not here yet
                    at -= 1
                    break
                at += 1
            elif what == b'"':
                self._in_string = not self._in_string
            else:
                return at
        self._at = at
        return None


def _value(octets: bytes) -> list[Any]:
    try:
        value = json.loads(octets)
    except (ValueError, RecursionError):
        raise ValueError("a SockJS frame is not JSON") from None
    if not isinstance(value, list):
        raise ValueError("a SockJS frame has no array")
    return value


class SockJsLayer:
    """The layer of a client's SockJS session. Its methods are those of `stompcodec.transport.Layer`.

    Args:
        host, port: the server, for the header Host.
        path: the path of the endpoint, with its query.
        secure: True if TLS is below this layer.
        handshake: the HTTP headers.

    >>> layer = SockJsLayer("localhost", 80, "/stomp")
    >>> layer.start()
    >>> layer.take_output()
    [b'GET /stomp/info HTTP/1.1\\r\\nHost: localhost\\r\\nAccept: application/json\\r\\n\\r\\n']
    >>> _ = layer.receive(b'HTTP/1.1 200 OK\\r\\nContent-Length: 18\\r\\n\\r\\n{"websocket":true}')
    >>> layer.take_output()[0].split(b" ")[0], layer.opened
    (b'GET', False)
    """

    def __init__(
        self, host: str, port: int, path: str, *, secure: bool = False, handshake: Handshake | None = None
    ) -> None:
        route, mark, query = path.partition("?")
        self._route, self._query = route.rstrip("/"), mark + query
        self._host = (f"[{host}]" if ":" in host else host) + ("" if port == (443 if secure else 80) else f":{port}")
        session = f"{self._route}/{random.randrange(1000):03}/{uuid.uuid4().hex}/websocket{self._query}"
        self._http = http = handshake or Handshake()
        self._websocket: Layer = client_layer(host, port, session, secure=secure, subprotocols=None, handshake=http)
        self._info = b""  # what was received of the answer to /info
        self._frames = Frames()
        self._bound = _MAX_FIRST
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._piece = 0
        self._output: list[bytes] = []
        self.opened = self.ended = False
        self.error: BaseException | None = None

    @property
    def waiting(self) -> bool:
        return self.error is None and not self.ended and self._websocket.waiting

    @property
    def buffered(self) -> int:
        return len(self._info) + self._websocket.buffered + self._frames.buffered

    def start(self) -> None:
        if self._http.knows_info:
            self._websocket.start()
            return
        headers = {"Host": self._host, "Accept": "application/json", **self._http.headers()}
        lines = [f"GET {self._route}/info{self._query} HTTP/1.1", *map(": ".join, headers.items())]
        self._output.append("\r\n".join([*lines, "", ""]).encode())

    def receive(self, data: Octets) -> Sequence[Octets]:
        if self.error is not None or self.ended:
            return []
        if not self._http.knows_info:
            self._info += data
            self._read_info()
            return []
        received = b"".join(self._websocket.receive(data))
        texts = self._take(received) if received else []
        if self.error is None:
            self.error, self.ended = self._websocket.error, self.ended or self._websocket.ended
        return texts

    def _take(self, octets: bytes) -> list[Octets]:
        """Return the text of SockJS frames."""
        texts: list[Octets] = []
        try:
            for kind, value in self._frames.feed(octets):
                if kind == "o" and not self.opened:
                    self.opened, self._frames.most = True, self._bound
                elif kind == "c":
                    self._closed(value)
                    break
                elif kind == "a":
                    if not self.opened:
                        raise ValueError("a SockJS session begins with o")
                    texts += (_octets(text) for text in value)
        except ValueError as error:
            self._fail(f"malformed SockJS data: {error}")
        return texts

    def _closed(self, value: list[Any]) -> None:
        code = value[0] if value and type(value[0]) is int else 0
        said = value[1] if len(value) > 1 and isinstance(value[1], str) else ""
        error = CloseCodeError(code, said, "server closed the SockJS session")
        self.error = error if self.opened else ConnectionRefusedError(str(error))

    # ---- /info ----
    def _read_info(self) -> None:
        """Read the answer to /info, if all of it is here."""
        try:
            answer, rest = take_answer(self._info)
        except ValueError as error:
            self._refuse(f"the answer to /info {error}")
            return
        if answer is None:
            return
        if answer.status != 200:
            self.error = _refusal("SockJS", answer, self._http)
            return
        self._http.take_cookies(answer.headers)
        headers = {name.lower(): value for name, value in reversed(answer.headers)}  # the first of repeated ones
        try:
            body = _body_of(headers, rest)
        except ValueError as error:
            self._refuse(f"the answer to /info is malformed: {error}")
            return
        if body is not None:
            self._info = b""
            self._judge(body, answer.closes or "close" in headers.get("connection", "").lower())

    def _judge(self, body: bytes, closes: bool) -> None:
        try:
            info = json.loads(body)
        except (ValueError, RecursionError):
            info = None
        if not isinstance(info, dict):
            self._refuse("the answer to /info is not a JSON object")
        elif info.get("websocket", True) is False:
            self._refuse("it has no WebSocket transport, and others are not supported")
        else:
            self._http.knows_info = True
            if closes:
                self.error = AskAgainError("the server closed the connection after /info")
            else:
                self._websocket.start()

    def _refuse(self, why: str) -> None:
        self._info = b""
        self.error = ConnectionRefusedError(f"SockJS refused, {why}")

    def _fail(self, why: str) -> None:
        self.error = ConnectionAbortedError(why)
        self._frames.discard()

    # ---- sending ----
    def send(self, chunks: list[bytes]) -> None:
        for chunk in chunks:
            try:
                text = self._decoder.decode(chunk, not isinstance(chunk, Part))
            except UnicodeDecodeError:
                self._fail("SockJS carries text, and a frame is not UTF-8: encode its body, for example by base64")
                return
            most = self._piece or len(text)
            for at in range(0, len(text), most or 1):
                self._websocket.send(_arrays(text[at : at + most], self._piece))

    def take_output(self) -> list[bytes]:
        output, self._output = self._output, []
        return output + self._websocket.take_output()

    def close(self) -> None:
        if self._http.knows_info:
            self._websocket.close()

    def bound(self, octets: int) -> None:
        self._bound = 2 * octets  # escapes take more bytes than what they stand for
        self._websocket.bound(self._bound)
        if self.opened:
            self._frames.most = self._bound

    def split(self, pieces: str) -> None:
        self._piece = _PIECES["messages"] if pieces == "messages" else 0
        self._websocket.split(pieces)

    def discard(self) -> None:
        self._info = b""
        self._frames.discard()
        self._websocket.discard()


def _arrays(text: str, most: int) -> list[bytes]:
    """Return text as JSON arrays of at most `most` bytes; 0 for one array."""
    array = json.dumps([text]).encode()
    half = len(text) // 2
    return [*_arrays(text[:half], most), *_arrays(text[half:], most)] if 0 < most < len(array) else [array]


def _cut(chunk: bytes, most: int) -> list[bytes]:
    """Return a chunk in pieces of at most `most` bytes, cut between characters; 0 for one piece."""
    pieces, at = [], 0
    while 0 < most < len(chunk) - at:
        end = at + most
        end = next((each for each in range(end, end - 4, -1) if chunk[each] & 0xC0 != 0x80), end)
        pieces.append(chunk[at:end])
        at = end
    return [*pieces, chunk[at:]]


def _octets(text: object) -> bytes:
    if not isinstance(text, str):
        raise ValueError("an array has something else than texts")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError("a text has half of a surrogate pair") from None


def _body_of(headers: dict[str, str], octets: bytes) -> bytes | None:
    """Return the body of an answer; None if it is not complete. Raise ValueError if it is malformed or too long."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return _chunked(octets)
    length = headers.get("content-length", "")
    if not re.fullmatch("[0-9]{1,6}", length):
        raise ValueError("it has no valid content-length")
    if int(length) > MAX_INFO:
        raise ValueError(f"it is longer than {MAX_INFO} bytes")
    return octets[: int(length)] if len(octets) >= int(length) else None


def _chunked(octets: bytes) -> bytes | None:
    body, at = b"", 0
    while (end := octets.find(b"\r\n", at)) >= 0:
        size = octets[at:end].partition(b";")[0].strip()
        if not re.fullmatch(b"[0-9a-fA-F]{1,6}", size):
            raise ValueError("a chunk has no valid size")
        count, at = int(size, 16), end + 2
        if len(body) + count > MAX_INFO:
            raise ValueError(f"it is longer than {MAX_INFO} bytes")
        if not count:
            return body if b"\r\n" in octets[at:] else None
        if len(octets) < at + count + 2:
            break
        body, at = body + octets[at : at + count], at + count + 2
    if len(octets) > 2 * MAX_INFO:
        raise ValueError(f"it is longer than {MAX_INFO} bytes")
    return None


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
_FIN, _MASKED = 0x80, 0x80
_PLAIN = {_FIN | 1, _FIN | 2}  # first bytes of whole messages of text and binary
_OPCODES = {0, 1, 2, 8, 9, 10}
_METHOD = 20  # bytes of the longest HTTP method, and the space behind it
_TOO_BIG = 1009
_NORMAL = (1000, 1005)  # 1005 stands for a close frame without a code
_NOT_TEXT = 1007
#: The most WebSocket frames that one call of `receive` passes to the library: 6 ms of CPU time. A read may contain
#: 20,000.
SHARE = 512
#: The same for a call with new bytes: many connections may be read in one turn of the loop.
FIRST_SHARE = 128
#: So many frames on the quick road count as one of the library, which takes 8 times as long even in Python.
RUN = 8
#: Plain frames take the quick road.
_QUICK = True
_HINT = "This port speaks STOMP over WebSocket."


class _Log(logging.LoggerAdapter):  # type: ignore[type-arg]
    """A logger that passes warnings only: at lower levels the library logs bytes, which contain passcodes."""

    def isEnabledFor(self, level: int) -> bool:
        return level >= logging.WARNING and super().isEnabledFor(level)


_log = _Log(logging.getLogger("stompcodec.transport.websocket"), {})


@checked
def server_layer(
    max_message: int = MAX_MESSAGE,
    path: str | None = None,
    admit: Admit | None = None,
    address: str = "",
    plain_http: bool = False,
) -> WebSocketLayer:
    """Return the layer of a server's connection.

    Args:
        max_message: the largest message in bytes; larger ones end the connection with code 1009.
        path: the only path that is served, others get 404; None for any.
        admit: called first with each request; those that it refuses get 403 with its reason.
        address: our address, for `admit`.
        plain_http: requests that do not ask for WebSocket become the `request` of the layer, instead of an error. Heads
            are limited to `MAX_HEAD` bytes then.

    `WebSocketLayer` has an example.
    """
    protocol = ServerProtocol(
        subprotocols=SUBPROTOCOLS,  # type: ignore[arg-type]
        select_subprotocol=_select,
        max_size=max_message,
        logger=_log,
    )
    return WebSocketLayer(protocol, max_message, path, admit, address, plain_http)


@checked
def client_layer(
    host: str,
    port: int,
    path: str = "/",
    *,
    secure: bool = False,
    max_message: int = MAX_MESSAGE,
    subprotocols: Sequence[str] | None = SUBPROTOCOLS,
    handshake: Handshake | None = None,
) -> WebSocketLayer:
    """Return the layer of a client's connection. `WebSocketLayer` has an example.

    Args:
        host, port: the server, for the header Host.
        path: the path of the request, with its query.
        secure: True if TLS is below this layer.
        max_message: the largest message in bytes; larger ones end the connection.
        subprotocols: those to offer; None for none.
        handshake: the HTTP headers.
    """
    route, _, query = quote(path or "/", safe="/%?&=+:@!$'()*,;~-._").partition("?")
    protocol = ClientProtocol(
        WebSocketURI(secure, host, port, route if route.startswith("/") else "/" + route, query),
        subprotocols=subprotocols,  # type: ignore[arg-type]
        max_size=max_message,
        logger=_log,
    )
    return WebSocketLayer(protocol, max_message, handshake=handshake or Handshake())


def _select(protocol: Any, offered: Sequence[str]) -> Any:
    """Return the best subprotocol that the client offers; None, which is served too, if it offers none of ours."""
    return next((name for name in SUBPROTOCOLS if name in offered), None)


@checks("__init__", "receive", "send")
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
        plain_http: bool = False,
        handshake: Handshake | None = None,
    ) -> None:
        self._protocol = protocol
        self._http = handshake  # of a client
        self._answer = b""  # to it
        self._path = path
        self._admit = admit
        self._address = address
        self._most = MAX_HEAD if plain_http else MAX_HANDSHAKE
        self._plain_http = plain_http
        self._start = b""  # the beginning of the peer's half of the handshake
        #: The plain HTTP request that came instead of a handshake. Nothing is read after it.
        self.request: PlainRequest | None = None
        self._handshake: Sequence[tuple[str, str]] = ()
        self._waiting = 0  # bytes received since the last event
        self._bound = max_message
        self._in_parts = False  # a message of ours has begun, and not ended
        self._pieces, self._piece = "whole", 0
        self._said: list[bytes] = []  # output before that of the library
        self._octets, self._at = b"", 0  # received bytes, and how far they were read
        self._begun = bytearray()  # the first bytes of a plain frame, or of the head of any frame
        self._lacks = 0  # at least so many bytes are missing from it
        self._head = 0  # bytes of its head if that is known, which the library does not keep, either
        self._owed = 0  # bytes that the library needs to finish a frame
        self._fragments = False  # the peer has begun a message of several frames
        self._largest = max_message
        self._masked = isinstance(protocol, ServerProtocol)  # frames of clients have masks
        self._checks_text = isinstance(protocol, ServerProtocol)
        self._decoder: codecs.IncrementalDecoder | None = None  # of an incomplete text message
        self.opened = self.ended = False
        self.error: BaseException | None = None

    @property
    def subprotocol(self) -> str | None:
        """The negotiated subprotocol, such as "v12.stomp"; None for none."""
        return self._protocol.subprotocol

    def take_handshake(self) -> Sequence[tuple[str, str]]:
        """Return the headers of the client's half of the handshake, and forget them."""
        headers, self._handshake = self._handshake, ()
        return headers

    def start(self) -> None:
        if isinstance(self._protocol, ClientProtocol) and self._http is not None:
            request = self._protocol.connect()
            request.headers.update(self._http.headers())
            self._protocol.send_request(request)

    @property
    def buffered(self) -> int:
        begun = max(0, len(self._begun) - self._head)
        return len(self._protocol.reader.buffer) + begun + len(self._octets) - self._at

    @property
    def waiting(self) -> bool:
        return self._at < len(self._octets)

    def receive(self, data: Octets) -> list[Octets]:
        if self.ended or self.error is not None or self.request is not None:
            return []
        octets, at = self._unread(data), 0 if data else self._at
        received: list[Octets] = []
        if not self.opened:
            octets = bytes(octets)
            at = self._shake_hands(octets, received)
        left = FIRST_SHARE if data else SHARE
        while at < len(octets) and left > 0 and self.error is None and not self.ended:
            at, frames = self._read(octets, at, left, received)
            left -= frames
        if at >= len(octets) or self.error is not None or self.ended:
            self._octets, self._at = b"", 0
        elif isinstance(octets, bytes):
            self._octets, self._at = octets, at
        else:  # a view of a buffer that will be used again
            self._octets, self._at = bytes(octets[at:]), 0
        return received

    def _unread(self, data: Octets) -> Octets:
        """Return all bytes that were not read: earlier ones, and `data` behind them."""
        if self.waiting:
            return b"".join((self._octets[self._at :], data)) if data else self._octets
        if not self._begun:
            return data
        fits = len(self._begun) + len(data) <= self._most + _HEAD  # the bound may have been lowered meanwhile
        if fits and len(data) < self._lacks:  # large frames are not copied with each read
            self._begun += data
            self._lacks -= len(data)
            return b""
        octets = b"".join((self._begun, data))
        self._begun = bytearray()
        return octets

    def _read(self, octets: Octets, at: int, left: int, received: list[Octets]) -> tuple[int, int]:
        """Read a run of plain frames, or one other frame, or keep the beginning of a frame. Return where the next frame
        begins, and how much of a share was used.
        """
        if not self._owed:
            quick = _QUICK and not self._fragments
            longest = min(self._most, self._largest)
            if quick:
                payload, end, frames = read_websocket(
                    octets, at, masked=self._masked, utf8=self._checks_text, longest=longest, most=left * RUN
                )
                if payload:
                    received.append(payload)
                if frames:
                    return end, -(-frames // RUN)
            size, payload_size = self._measure(octets[at : at + _HEAD])
            lacks = size - (len(octets) - at)
            plain = quick and octets[at] in _PLAIN and payload_size is not None and payload_size <= longest
            if lacks > 0 and (plain or payload_size is None):
                self._begun, self._lacks = bytearray(octets[at:]), lacks
                self._head = 0 if payload_size is None else size - payload_size
                return len(octets), 1
            self._owed = size
        end = min(at + self._owed, len(octets))
        self._owed -= end - at
        self._feed(octets[at:end], received)
        return end, 1

    def _measure(self, head: Octets) -> tuple[int, int | None]:
        """Return the sizes of a frame and its payload, for a malformed head the bytes that show it. While the size of
        the payload is unknown it is None, and that of the frame is what is needed next.
        """
        if len(head) < 2 or head[0] & 15 not in _OPCODES or (head[1] >= _MASKED) is not self._masked:
            return 2, None
        size, digits = head[1] & 127, 0
        if size > 125:
            digits = 2 if size == 126 else 8
            if len(head) < 2 + digits:
                return 2 + digits, None
            size = int.from_bytes(head[2 : 2 + digits], "big")
        return 2 + digits + (4 if self._masked else 0) + size, size

    def _shake_hands(self, octets: bytes, received: list[Octets]) -> int:
        """Read the peer's half of the handshake, and return where it ends."""
        if self._http is not None:  # the library would wait for the end of a body
            with contextlib.suppress(ValueError):  # the library says what is wrong
                answer, self._answer = take_answer(self._answer + octets)
                if answer is not None and answer.status >= 200:
                    self.error = _refusal("WebSocket", answer, self._http)
                    return len(octets)
        at = 0
        while not self.opened and self.error is None and self.request is None and at < len(octets):
            # Line by line: bytes after the peer's half of the handshake must not be read before ours is written.
            end = octets.find(b"\n", at) + 1 or len(octets)
            self._feed(octets[at:end], received)
            at = end
        return at if self.request is None else len(octets)

    def _feed(self, data: Octets, received: list[Octets]) -> None:
        """Pass bytes to the library, and add the data of messages to `received`."""
        protocol = self._protocol
        if not self.opened and len(self._start) < _METHOD:
            self._start += bytes(data[: _METHOD - len(self._start)])
        protocol.receive_data(bytes(data))
        events = protocol.events_received()
        size = self._waiting + len(data)
        self._waiting = 0 if events else size
        if self._plain_http and not self.opened and size > self._most and protocol.handshake_exc is None:
            self._fail_size()
            return
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
                    self._fragments = not event.fin
                    received.append(memoryview(event.data))
            else:
                self._shake(event)
        self._look()

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
            headers = list(event.headers.raw_items())
            if self._admit is not None:
                reason = self._admit(event.path, headers, self._address)
            if reason is None and self._plain_http and "Upgrade" not in event.headers:
                self.request = PlainRequest(getattr(event, "method", "GET"), event.path, headers)
                return
            self._handshake = headers
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
            self._most, self._answer = self._bound, b""

    def _look(self) -> None:
        """Set `error` or `ended` from the state of the library."""
        protocol = self._protocol
        if self.error is not None:
            return
        if protocol.parser_exc is not None:
            self.error = ConnectionAbortedError(f"malformed WebSocket data: {protocol.parser_exc}")
        elif protocol.close_rcvd is not None:
            code, reason = protocol.close_rcvd.code, protocol.close_rcvd.reason
            if code not in _NORMAL:
                peer = "server" if isinstance(protocol, ClientProtocol) else "client"
                self.error = CloseCodeError(code, reason, f"{peer} closed the WebSocket")
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
            method, space, _ = self._start.partition(b" ")
            if self._plain_http and space and method.isalpha() and method != b"GET":
                response = protocol.reject(405, "Only GET is served here.\n")
                response.headers["Allow"] = "GET"
            else:
                response = protocol.reject(400, f"Not a WebSocket request. {_HINT}\n")
            self._said.append(response.serialize())

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
        if self._pieces == "messages":
            chunks = [piece for chunk in chunks for piece in _cut(chunk, self._piece)]
        most = 0 if not self._piece or max(map(len, chunks), default=0) <= self._piece else self._piece
        if _QUICK and not most and not self._in_parts and Part not in map(type, chunks):
            masks = b"" if self._masked else os.urandom(4 * len(chunks))
            self._said += [*protocol.data_to_send(), write_websocket(chunks, masks)]
            return
        for chunk in chunks:
            begin = protocol.send_binary if isinstance(chunk, Part) or not is_utf8(chunk) else protocol.send_text
            pieces = _cut(chunk, most)
            for left, piece in zip(range(len(pieces) - 1, -1, -1), pieces, strict=True):
                is_last = not left and not isinstance(chunk, Part)
                if self._in_parts or piece:
                    (protocol.send_continuation if self._in_parts else begin)(piece, is_last)
                    self._in_parts = not is_last

    def take_output(self) -> list[bytes]:
        said, self._said = self._said, []
        # An empty chunk asks for a half-close, which the transport does anyway.
        return [data for data in (*said, *self._protocol.data_to_send()) if data]

    def close(self) -> None:
        if self._protocol.state is OPEN:
            self._protocol.send_close(1000)

    def discard(self) -> None:
        self._octets, self._at = b"", 0
        self._begun = bytearray()
        self._protocol.reader.discard()

    def bound(self, octets: int) -> None:
        self._bound = octets
        if self.opened:
            self._most = octets

    def split(self, pieces: str) -> None:
        self._pieces, self._piece = pieces, _PIECES.get(pieces, 0)


def _refusal(what: str, answer: Answer, http: Handshake) -> ConnectionError:
    """Return the error of an answer that refuses, which may be to ask again."""
    if http.is_asked(answer):
        return AskAgainError("the server asked for a login")
    hint = http.hint if answer.status == 401 else _HINTS.get(answer.status, "")
    return ConnectionRefusedError(f"{what} refused, {answer.text}" + (f": {hint}" if hint else ""))


def _refused(what: str, why: object) -> ConnectionRefusedError:
    return ConnectionRefusedError(f"WebSocket refused, {what}" + (f": {why}" if why else ""))
