"""What the parts of a transport agree on: who owns a wire, and what may stand between the socket and the frames.

A `Layer` is a protocol below STOMP (TLS, WebSocket) that does no I/O itself, so that both shells, `aio` and `sync`, can
use it. Two layers, one over the other, are a layer again: `Over`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

__all__ = [
    "BIG",
    "HIGH",
    "LINGER",
    "LINGER_ROUNDS",
    "MOST_REPLIES",
    "READ_SIZE",
    "TIMEOUT",
    "Admit",
    "Layer",
    "Octets",
    "Over",
    "Owner",
    "Part",
    "Place",
    "gather",
    "name_of",
    "read_buffer",
]

#: Octets of the read buffer that all connections of a thread share.
READ_SIZE = 128 * 1024
#: Octets that wait to be written when the owner is told to stop. It is told to go on at a quarter of it.
HIGH = 64 * 1024
#: Chunks of so many octets are written by themselves, without a copy.
BIG = 64 * 1024
#: Seconds in which the handshakes of a new connection must be done.
TIMEOUT = 10.0
#: Seconds that a closed wire waits for a peer that neither reads nor closes.
LINGER = 1.0
#: A closed wire may drain for so many times LINGER in all, as long as the peer reads something in each.
LINGER_ROUNDS = 30
#: Octets of replies (pongs and the like) that a peer may cause while it does not read.
MOST_REPLIES = 64 * 1024


Octets = bytes | memoryview
#: Asked about each request of HTTP: its target, its headers, and our own address on the connection. A text refuses it.
Admit = Callable[[str, Sequence[tuple[str, str]], str], str | None]


class Part(bytes):
    """A chunk that is not the end of its frame. Over WebSocket, it is not the end of its message either.

    >>> Part(b"SEND")
    b'SEND'
    """

    __slots__ = ()


class Owner(Protocol):
    """What owns a wire: a session of the broker or a client. It is called in the loop, or in the owner's thread."""

    def opened(self, wire: Any) -> None:
        """Octets can be written from now on. Called once, before all others."""

    def received(self, data: Octets) -> None:
        """Octets came. A memoryview is only valid during the call."""

    def writable(self, yes: bool) -> None:
        """False: too much waits to be written. True: it has drained. May be called from within `write`."""

    def lost(self, error: BaseException | None) -> None:
        """The wire is gone. Called once, after all others; None after a clean end, and after our own close."""


class Place(Protocol):
    """Where to connect to: what of `stompcodec.uri.Address` matters here."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def tls(self) -> bool: ...
    @property
    def websocket(self) -> bool: ...
    @property
    def path(self) -> str: ...


class Layer(Protocol):
    """A protocol between the socket and the frames."""

    @property
    def opened(self) -> bool:
        """Its handshake is done."""

    @property
    def ended(self) -> bool:
        """The peer has said that it sends no more."""

    @property
    def error(self) -> BaseException | None:
        """Why it cannot go on. What it says to the peer about that is in the output."""

    @property
    def waiting(self) -> bool:
        """The share of one call of `receive` is used up, and some of what came is left. `receive(b"")` goes on."""

    @property
    def buffered(self) -> int:
        """Bytes that have come and are not handed over: of what is not whole, or `waiting`."""

    def start(self) -> None:
        """Begin the handshake."""

    def receive(self, data: Octets) -> Sequence[Octets]:
        """Take bytes from below, and return those for above. Never raise for what a peer sent.

        One call does a bounded share of work, so that many tiny frames do not keep the loop: see `waiting`.
        """

    def send(self, chunks: list[bytes]) -> None:
        """Take whole chunks from above, once it is opened."""

    def take_output(self) -> list[bytes]:
        """Hand over what is to be sent below."""

    def close(self) -> None:
        """Say goodbye to the peer, if that is still possible."""

    def bound(self, octets: int) -> None:
        """Let what is not yet handed over grow to so many octets at most."""

    def discard(self) -> None:
        """Drop what is `buffered`. Nothing is received after it."""


class Over:
    """Two layers as one: `upper` speaks through `lower`."""

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
        # Joined, for the upper layer has one share of work, however many records of the lower one there are.
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

    def _sink(self) -> None:
        output = self.upper.take_output()
        if output:
            self.lower.send(output)


class _Local(threading.local):
    def __init__(self) -> None:
        self.view = memoryview(bytearray(READ_SIZE))


_local = _Local()


def read_buffer() -> memoryview:
    """The read buffer of this thread. A thread runs one loop, which reads one connection at a time."""
    return _local.view


def gather(chunks: list[bytes]) -> list[bytes]:
    """The same octets in few pieces: small chunks are joined, those of `BIG` octets or more stay the same objects.

    >>> gather([b"SEND\\n", b"\\n", b"hello", b"\\0"])
    [b'SEND\\n\\nhello\\x00']
    """
    if len(chunks) <= 1:
        return chunks
    if max(map(len, chunks)) < BIG:
        return [b"".join(chunks)]
    return list(_apart(chunks))


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
    """A peer's address as text, as in logs.

    >>> name_of(("127.0.0.1", 4711)), name_of(("::1", 4711, 0, 0)), name_of("/run/stomp")
    ('127.0.0.1:4711', '[::1]:4711', '/run/stomp')
    """
    if not isinstance(address, tuple):
        return str(address or "?")
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
