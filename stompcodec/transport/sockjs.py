"""SockJS: STOMP in the text messages of a SockJS session, on the WebSocket layer (extra `ws`).

    GET /endpoint/info                          whether there is a WebSocket transport
    GET /endpoint/123/abcdef…/websocket         the handshake of WebSocket, on the same connection
    o                                           the session is open
    a["CONNECTED\\n…","…"]                       text of the server; h is a heart-beat of SockJS
    ["CONNECT\\n…"]                              text of the client
    c[3000,"Go away!"]                          the end, with the reason

Only the WebSocket transport is used. The texts of both sides are a stream: a STOMP frame may be split over messages.
SockJS carries text, so that a frame that is not UTF-8 is an error.
"""

from __future__ import annotations

import codecs
import json
import random
import re
import uuid
from collections.abc import Sequence
from typing import Any

from stompcodec.transport.owner import AskAgainError, CloseCodeError, Layer, Octets, Part
from stompcodec.transport.websocket import client_layer

#: The largest answer to /info in bytes, head and body each.
MAX_INFO = 16 * 1024
#: The most bytes of a SockJS frame before the session is open.
_MAX_FIRST = 64 * 1024
_STATUS = re.compile(rb"HTTP/1\.([0-9]) ([1-5][0-9]{2})(?: ([^\r\n]*))?\r?\n")
_END = re.compile(rb"\r?\n\r?\n")
_IN_STRING = re.compile(rb'["\\]')
_OUTSIDE = re.compile(rb'["\]]')
_HINTS = {
    401: "it wants an HTTP login, which is not supported",
    403: "it does not allow this Origin or client",
    404: "there is no SockJS endpoint at this path",
}
_MOVED = "redirects are not followed: connect to the new address"


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
        """Bytes of the incomplete frame."""
        return len(self._octets)

    def discard(self) -> None:
        """Drop them."""
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
        asked: True if /info was asked for on an earlier connection.

    >>> layer = SockJsLayer("localhost", 80, "/stomp")
    >>> layer.start()
    >>> layer.take_output()
    [b'GET /stomp/info HTTP/1.1\\r\\nHost: localhost\\r\\nAccept: application/json\\r\\n\\r\\n']
    >>> _ = layer.receive(b'HTTP/1.1 200 OK\\r\\nContent-Length: 18\\r\\n\\r\\n{"websocket":true}')
    >>> layer.take_output()[0].split(b" ")[0], layer.opened
    (b'GET', False)
    """

    def __init__(self, host: str, port: int, path: str, *, secure: bool = False, asked: bool = False) -> None:
        route, mark, query = path.partition("?")
        self._route, self._query = route.rstrip("/"), mark + query
        self._host = (f"[{host}]" if ":" in host else host) + ("" if port == (443 if secure else 80) else f":{port}")
        session = f"{self._route}/{random.randrange(1000):03}/{uuid.uuid4().hex}/websocket{self._query}"
        self._websocket: Layer = client_layer(host, port, session, secure=secure, subprotocols=None)
        self._is_asked = asked
        self._info = b""  # what was received of the answer to /info
        self._frames = Frames()
        self._bound = _MAX_FIRST
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._output: list[bytes] = []
        self.opened = False
        self.ended = False
        self.error: BaseException | None = None

    @property
    def waiting(self) -> bool:
        return self.error is None and not self.ended and self._websocket.waiting

    @property
    def buffered(self) -> int:
        return len(self._info) + self._websocket.buffered + self._frames.buffered

    def start(self) -> None:
        if self._is_asked:
            self._websocket.start()
            return
        lines = [f"GET {self._route}/info{self._query} HTTP/1.1", f"Host: {self._host}", "Accept: application/json"]
        self._output.append("\r\n".join([*lines, "", ""]).encode())

    def receive(self, data: Octets) -> Sequence[Octets]:
        if self.error is not None or self.ended:
            return []
        if not self._is_asked:
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
        error = CloseCodeError(code, said, "SockJS session")
        self.error = error if self.opened else ConnectionRefusedError(str(error))

    # ---- /info ----

    def _read_info(self) -> None:
        """Read the answer to /info, if all of it is here."""
        end = _END.search(self._info[: MAX_INFO + 4])
        if end is None:
            if len(self._info) > MAX_INFO:
                self._refuse(f"the head of the answer to /info is longer than {MAX_INFO} bytes")
            elif not b"HTTP/1.".startswith(self._info[:7]):
                self._refuse("the answer to /info is not HTTP")
            return
        head = self._info[: end.end()]
        match = _STATUS.match(head)
        if match is None:
            self._refuse("the answer to /info is not HTTP")
            return
        status = int(match[2])
        if status != 200:
            reason = "".join(each for each in (match[3] or b"")[:60].decode("latin-1") if each.isprintable()).strip()
            hint = _HINTS.get(status, _MOVED if 300 <= status < 400 else "")
            self._refuse(f"{status} {reason}".strip() + (f": {hint}" if hint else ""))
            return
        headers = _headers_of(head)
        try:
            body = _body_of(headers, self._info[end.end() :])
        except ValueError as error:
            self._refuse(f"the answer to /info is malformed: {error}")
            return
        if body is not None:
            self._info = b""
            self._judge(body, match[1] == b"0" or "close" in headers.get("connection", "").lower())

    def _judge(self, body: bytes, closes: bool) -> None:
        try:
            info = json.loads(body)
        except (ValueError, RecursionError):
            info = None
        if not isinstance(info, dict):
            self._refuse("the answer to /info is not a JSON object")
        elif info.get("websocket", True) is False:
            self._refuse("it has no WebSocket transport, and others are not supported")
        elif closes:
            self.error = AskAgainError("the server closed the connection after /info")
        else:
            self._is_asked = True
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
            if text:
                self._websocket.send([json.dumps([text]).encode()])

    def take_output(self) -> list[bytes]:
        output, self._output = self._output, []
        return output + self._websocket.take_output()

    def close(self) -> None:
        if self._is_asked:
            self._websocket.close()

    def bound(self, octets: int) -> None:
        self._bound = 2 * octets  # escapes take more bytes than what they stand for
        self._websocket.bound(self._bound)
        if self.opened:
            self._frames.most = self._bound

    def discard(self) -> None:
        self._info = b""
        self._frames.discard()
        self._websocket.discard()


def _octets(text: object) -> bytes:
    if not isinstance(text, str):
        raise ValueError("an array has something else than texts")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError("a text has half of a surrogate pair") from None


def _headers_of(head: bytes) -> dict[str, str]:
    """Return the headers of an answer, names in lower case; the first of repeated ones."""
    headers: dict[str, str] = {}
    for line in head.decode("latin-1").splitlines()[1:]:
        name, _, value = line.partition(":")
        headers.setdefault(name.strip().lower(), value.strip())
    return headers


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
