"""A SEND whose body is handed over piece by piece, without I/O.

    waiting --begin--> open --end--> sent --receipt--> over
       ^------restart----'-------------'

It waits in the outbox like any frame. While it is open it stays at the head of the outbox, so that everything else
waits behind it. The caller who has the source asks for each piece (`asked`), and gives it to `ClientCore.feed`.
"""

from __future__ import annotations

from stompcodec.client.receipts import Call
from stompcodec.codec import Frame, serialize
from stompcodec.errors import FrameError, StompError

#: The most bytes of one piece.
PIECE = 256 * 1024
#: Bytes that are held back. In the middle of a body an EOL would belong to the body, so that one of these is sent when
#: a heart-beat is due.
_HELD_BACK = 64


class BodySourceError(StompError, ValueError):
    """A source that gave fewer or more bytes than it announced, or none in time. The broker drops what it has received.

    >>> issubclass(BodySourceError, StompError)
    True
    """


class Upload:
    """A SEND with a body of `size` bytes. `call` waits for its receipt; None without one.

    >>> upload = Upload("SEND to /queue/a", [("destination", "/queue/a")], 5, 30.0)
    >>> upload.head("1.2"), upload.take(b"hello"), upload.dribble(), upload.rest()
    (b'SEND\\ndestination:/queue/a\\ncontent-length:5\\n\\n', b'', b'h', b'ello')
    """

    command = "SEND"
    body = b""  # for the outbox: only the head waits in memory

    __slots__ = (
        "_held",
        "asked",
        "at",
        "call",
        "error",
        "is_text",
        "pairs",
        "size",
        "state",
        "timeout",
        "to_the_end",
        "watch",
        "what",
    )

    def __init__(
        self, what: str, pairs: list[tuple[str, str]], size: int, timeout: float, call: Call | None = None
    ) -> None:
        self.what = what
        self.pairs = pairs
        self.size = size
        self.timeout = timeout
        self.call = call
        self.state = "waiting"
        self.is_text = False  # it is sent without content-length
        self.to_the_end = True  # the caller waits for the receipt, too
        self.error: Exception | None = None  # why it is over
        self.at = 0  # bytes of the body that were handed over
        self.asked: Call | None = None  # the caller waits for this
        self.watch: Call | None = None  # bounds the time in which the next piece has to be given
        self._held = b""

    def frame(self) -> Frame:
        """Return the frame without its body, for `on_frame`."""
        return Frame("SEND", self.pairs if self.is_text else [*self.pairs, ("content-length", str(self.size))])

    def head(self, version: str | None) -> bytes:
        """Return the bytes before the body; raise FrameError if this version cannot carry them."""
        if any(name == "content-length" for name, _ in self.pairs):
            raise FrameError("bad-content-length", detail="the length of a streamed body is not given as a header")
        octets = serialize(Frame("SEND", self.pairs), version or "1.2", content_length="never")
        return octets[:-1] if self.is_text else b"%bcontent-length:%d\n\n" % (octets[:-2], self.size)

    def wants(self, at: int) -> int:
        """Return how many bytes to read at an offset; 1 at the end, where there must not be any."""
        return min(PIECE, self.size - at) or 1

    def check(self, at: int, piece: bytes) -> None:
        """Raise BodySourceError if the source has ended too early, or not where it should."""
        if not piece and at < self.size:
            raise BodySourceError(f"{self.what}: the source gave {at} bytes, and {self.size} were announced")
        if piece and at >= self.size:
            raise BodySourceError(f"{self.what}: the source gave more than the {self.size} bytes that were announced")

    def restart(self) -> None:
        """Begin anew on the next connection."""
        self.state, self.at, self._held = "waiting", 0, b""
        self._unwatch()

    def take(self, piece: bytes) -> bytes:
        """Note the next piece of the body; return the bytes to send, which are held back a little."""
        self._unwatch()
        self.at += len(piece)
        octets = self._held + piece
        self._held = octets[-_HELD_BACK:]
        return octets[:-_HELD_BACK]

    def dribble(self) -> bytes:
        """Return a byte of the body as a sign of life; b"" if none is left."""
        byte, self._held = self._held[:1], self._held[1:]
        return byte

    def rest(self) -> bytes:
        """Return the bytes that were held back, at the end of the body."""
        self._unwatch()
        rest, self._held = self._held, b""
        return rest

    def over(self, error: Exception | None) -> None:
        """Note the outcome."""
        if self.state != "over":
            self.state, self.error, self._held = "over", error, b""
            self._unwatch()

    def _unwatch(self) -> None:
        if self.watch is not None:
            self.watch.done = True
            self.watch = None
