"""The interfaces of a transport: the owner of a wire, and layers between the socket and the frames.

A `Layer` is a protocol below STOMP (TLS, WebSocket) without I/O, so that both `aio` and `sync` can use it. `Over`
combines two layers into one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

#: Bytes of the read buffer that all connections of a thread share.
READ_SIZE = 128 * 1024
#: Unwritten bytes at which the owner is told to stop writing. It is told to continue at a quarter of that.
HIGH = 64 * 1024
#: Chunks of at least this many bytes are written separately, without a copy.
BIG = 64 * 1024
#: Seconds for the handshakes of a new connection.
TIMEOUT = 10.0
#: Seconds that a closed wire waits for a peer that neither reads nor closes its side.
LINGER = 1.0
#: The longest single wait in seconds. Longer ones are repeated: `select` overflows after 24.8 days.
LONGEST_WAIT = 86_400.0
#: The number of LINGER periods for which a closed wire may drain, as long as the peer reads something in each.
LINGER_ROUNDS = 30
#: Bytes of replies, such as pongs, that a peer may cause while it does not read.
MOST_REPLIES = 64 * 1024
Octets = bytes | memoryview
#: Called with each HTTP request: its target, its headers, and our address on the connection. A returned text refuses
#: it.
Admit = Callable[[str, Sequence[tuple[str, str]], str], str | None]


class PlainRequest(NamedTuple):
    """The head of an HTTP request that does not ask for WebSocket."""

    method: str
    target: str
    headers: Sequence[tuple[str, str]]


class Visitor(Protocol):
    """The owner of a WebSocket wire until its handshake is done, which may turn out to be a plain HTTP request."""

    def asked(self, request: PlainRequest) -> None:
        """Take a plain request. `respond` of the wire answers it, now or later."""

    def gone(self) -> None:
        """Note that the handshake is done, or the wire closed. Called once, and last."""


class Part(bytes):
    """A chunk that is not the end of its frame, and over WebSocket not the end of its message."""

    __slots__ = ()


class CloseCodeError(ConnectionAbortedError):
    """The end of a WebSocket or SockJS connection by a close code of the peer other than 1000, a normal end."""

    def __init__(self, code: int, reason: str, what: str = "server closed the WebSocket") -> None:
        self.code = code
        said = "".join(each for each in reason[:100] if each.isprintable())
        super().__init__(f"the {what}: {code or '?'}" + (f": {said}" if said else ""))


class AskAgainError(ConnectionError):
    """The end of a connection on which a layer has asked something first: connect again, without asking."""


class Owner(Protocol):
    """The owner of a wire: a session of the broker, or a client. It is called in the loop, or in the owner's thread.

    `stompcodec.transport.aio.Wire` has an example.
    """

    def opened(self, wire: Any) -> None:
        """Take the wire, which can be written from now on. Called once, before the other methods."""

    def received(self, data: Octets) -> None:
        """Take received bytes. A memoryview is only valid during the call."""

    def writable(self, yes: bool) -> None:
        """Stop writing (False), or continue (True). May be called from within `write`."""

    def lost(self, error: BaseException | None) -> None:
        """Note that the wire is closed. Called once, and last. None: a clean end, or our own close."""


class Place(Protocol):
    """The address to connect to: the part of `stompcodec.uri.Address` that transports need.

    >>> from stompcodec.uri import parse_uri
    >>> place: Place = parse_uri("wss://localhost/ws")[0]
    >>> place.port, place.tls, place.websocket, place.path
    (443, True, True, '/ws')
    """

    @property
    def host(self) -> str:
        """The host name or IP address, without brackets."""

    @property
    def port(self) -> int:
        """The port."""

    @property
    def tls(self) -> bool:
        """True if the connection uses TLS."""

    @property
    def websocket(self) -> bool:
        """True if the connection uses WebSocket."""

    @property
    def sockjs(self) -> bool:
        """True if `path` is that of a SockJS endpoint."""

    @property
    def path(self) -> str:
        """The path and query of the WebSocket request, or of a SockJS endpoint."""


class Layer(Protocol):
    """A protocol between the socket and the frames.

    >>> from stompcodec.transport.tls import TlsLayer, client_context
    >>> layer: Layer = TlsLayer(client_context(), server_hostname="localhost")
    >>> layer.start()
    >>> layer.opened, len(layer.take_output())
    (False, 1)
    """

    @property
    def opened(self) -> bool:
        """True if its handshake is done."""

    @property
    def ended(self) -> bool:
        """True if the peer has announced the end of its stream."""

    @property
    def error(self) -> BaseException | None:
        """The error that ended it, or None. Its message to the peer is in the output."""

    @property
    def waiting(self) -> bool:
        """True if `receive` has stopped at the end of its share with bytes left. `receive(b"")` continues."""

    @property
    def buffered(self) -> int:
        """Bytes that were received and not returned: incomplete, or `waiting`."""

    def start(self) -> None:
        """Begin the handshake."""

    def receive(self, data: Octets) -> Sequence[Octets]:
        """Take bytes from below, and return those for above. Bytes of a peer never make it raise.

        One call does a bounded share of work, so that many tiny frames do not block the loop: see `waiting`.
        """

    def send(self, chunks: list[bytes]) -> None:
        """Take whole chunks from above, after the handshake."""

    def take_output(self) -> list[bytes]:
        """Return the bytes to send below."""

    def close(self) -> None:
        """Tell the peer that the connection is closed, if that is still possible."""

    def bound(self, octets: int) -> None:
        """Set the largest incomplete message in bytes."""

    def split(self, pieces: str) -> None:
        """Send large chunks whole, as "fragments" of one WebSocket message, or as several "messages"."""

    def discard(self) -> None:
        """Drop the `buffered` bytes. `receive` is not called afterwards."""


class Over:
    """Two layers as one: `upper` over `lower`."""

    def __init__(self, lower: Layer, upper: Layer) -> None:
        self.lower = lower
        self.upper = upper
        self._started = False

    @property
    def opened(self) -> bool:
        return self.upper.opened

    @property
    def ended(self) -> bool:
        return self.upper.ended or (self.lower.ended and not self.upper.waiting)

    @property
    def error(self) -> BaseException | None:
        error = self.upper.error
        return error if error is not None or self.upper.waiting else self.lower.error

    @property
    def waiting(self) -> bool:
        return self.upper.waiting or self.lower.waiting

    @property
    def buffered(self) -> int:
        return self.upper.buffered + self.lower.buffered

    def discard(self) -> None:
        self.upper.discard()
        self.lower.discard()

    def start(self) -> None:
        self.lower.start()

    def receive(self, data: Octets) -> list[Octets]:
        pieces: Sequence[Octets] = () if self.upper.waiting and not data else self.lower.receive(data)
        if self.lower.opened and not self._started:
            self._started = True
            self.upper.start()
        # Joined, so that the upper layer does one share of work for all records of the lower one.
        received = self.upper.receive(b"".join(pieces)) if pieces or self.upper.waiting else []
        self._sink()
        return list(received)

    def send(self, chunks: list[bytes]) -> None:
        self.upper.send(chunks)
        self._sink()

    def take_output(self) -> list[bytes]:
        return self.lower.take_output()

    def close(self) -> None:
        if self._started:
            self.upper.close()
            self._sink()
        self.lower.close()

    def bound(self, octets: int) -> None:
        self.upper.bound(octets)

    def split(self, pieces: str) -> None:
        self.upper.split(pieces)

    def _sink(self) -> None:
        output = self.upper.take_output()
        if output:
            self.lower.send(output)


class _Local(threading.local):
    def __init__(self) -> None:
        self.view = memoryview(bytearray(READ_SIZE))


_local = _Local()


def read_buffer() -> memoryview:
    """Return the read buffer of this thread, which runs one loop and reads one connection at a time."""
    return _local.view


def gather(chunks: list[bytes]) -> list[bytes]:
    """Return chunks with small ones joined. Those of at least `BIG` bytes are not copied.

    >>> gather([b"SEND\\n", b"\\n", b"hello", b"\\0"])
    [b'SEND\\n\\nhello\\x00']
    """
    try:
        if len(chunks) <= 1:
            return chunks
        if max(map(len, chunks)) < BIG:
            return [b"".join(chunks)]
        return list(_apart(chunks))
    except TypeError:
        raise TypeError(f"chunks is {type(chunks).__name__}: it must be a list of bytes") from None


def _apart(chunks: list[bytes]) -> Iterator[bytes]:
    small: list[bytes] = []
    for chunk in chunks:
        if len(chunk) < BIG:
            small.append(chunk)
            continue
        if small:
            yield b"".join(small)
            small = []
        yield chunk
    if small:
        yield b"".join(small)


def name_of(address: object) -> str:
    """Return a peer's address as text, for logs.

    >>> name_of(("127.0.0.1", 4711)), name_of(("::1", 4711, 0, 0)), name_of("/run/stomp")
    ('127.0.0.1:4711', '[::1]:4711', '/run/stomp')
    """
    if not isinstance(address, tuple):
        return str(address or "?")
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
