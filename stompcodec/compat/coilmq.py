r"""coilmq on our codec: its server survives split frames, heart-beats and large messages.

    from stompcodec import compat
    compat.install("coilmq")      # before the server starts

coilmq 1.1 needs each frame in one piece, fails at the EOLs of heart-beats, does not notice heart-beats, and keeps all
received bytes. `FrameBuffer`, which does all of that, is replaced.

coilmq does not escape or unescape: it passes headers on unchanged. `quirks=True` keeps that, so that a subscriber gets
a header as it was written. `quirks=False` reads and writes headers by the version of each session.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from typing import Any

from stompcodec.codec import Frame, Parser, serialize, serialize_tail
from stompcodec.compat.seams import Installed, Peer, Seam, version_of
from stompcodec.compat.seams import install as _install
from stompcodec.errors import FrameError, in_short
from stompcodec.spec import VERSIONS

PEER = Peer("coilmq", (1, 0), (2,))
version_of(PEER)
_frames: Any = importlib.import_module("coilmq.util.frames")


class FrameBuffer:
    """A replacement for `coilmq.util.frames.FrameBuffer`: append bytes, then iterate over coilmq's frames.

    Like coilmq it is lenient and has no escapes: CR LF is an EOL, spaces around names and values are stripped, any
    frame may have a body. Sizes are bounded by `Limits`.

    Raises:
        FrameError: from `extract_frame` and the iteration, for malformed data. coilmq closes the connection.
    """

    def __init__(self) -> None:
        self.debug = False
        self.log = logging.getLogger(f"{_frames.__name__}.FrameBuffer")
        self.clear()

    def clear(self) -> None:
        """Drop everything and start again."""
        self._parser = self._new_parser()
        self._steps = iter(self._parser.feed(b""))

    def _new_parser(self) -> Parser:
        return Parser("1.0", lenient=True)

    def append(self, data: bytes) -> None:
        """Take in bytes."""
        self._steps = self._parser.feed(data)

    def extract_frame(self) -> Any:
        """Return the next complete frame as coilmq's; None if there is none yet."""
        frame = next(self._steps, None)
        return None if frame is None else _theirs(frame)

    def buffer_len(self) -> int:
        """Return the number of bytes of the incomplete frame."""
        return self._parser.buffered

    def buffer_empty(self) -> bool:
        """Return whether no bytes wait. coilmq 1.1 returns the opposite, and never notices that its peer is alive."""
        return not self._parser.buffered

    def __iter__(self) -> FrameBuffer:
        return self

    def __next__(self) -> Any:
        frame = self.extract_frame()
        if frame is None:
            raise StopIteration
        return frame


class StrictFrameBuffer(FrameBuffer):
    """A `FrameBuffer` by the rules of the negotiated version, set by `use`."""

    def _new_parser(self) -> Parser:
        return Parser(None)

    def use(self, version: str) -> None:
        """Set the version of the session, from the next frame on."""
        self._parser.version = version


def _theirs(frame: Frame) -> Any:
    headers = dict(frame.headers)
    try:
        "".join([*headers, *headers.values()]).encode()
    except UnicodeEncodeError:  # it could not be written for a subscriber
        raise FrameError("invalid-utf8", None, detail=f"command {frame.command[:40]!a}") from None
    return _frames.Frame(frame.command, headers, frame.body)


def _packed(frame: Any, version: str | None) -> bytes:
    """Return a frame of coilmq as bytes, without headers that the version cannot represent."""
    headers = [(str(name), str(value)) for name, value in frame.headers.items() if name != "content-length"]
    body = frame.body if isinstance(frame.body, bytes) else frame.body.encode()
    ours = Frame(frame.cmd, headers, body)
    try:
        return serialize(ours, version)
    except FrameError:
        return b"%b\n%b" % (ours.command.encode(), serialize_tail(ours, version or "1.2"))


def _send_frame(self: Any, frame: Any) -> None:
    """Replace `StompRequestHandler.send_frame`: write by the version of the session."""
    if frame.cmd == "CONNECTED":
        version = frame.headers.get("version", "1.0")
        if version in VERSIONS:
            self.buffer.use(version)
            self.version = version
    data = _packed(frame, getattr(self, "version", None))
    if self.debug:
        self.log.debug("SEND: %d octets, %s", len(data), frame.cmd)
    self.request.sendall(data)


def _answering(handle: Callable[[Any], None]) -> Callable[[Any], None]:
    """Wrap `StompRequestHandler.handle`: answer malformed frames with ERROR before the connection closes."""

    def answering(self: Any) -> None:
        try:
            handle(self)
        except FrameError as error:
            text = {"content-type": "text/plain"}
            self.send_frame(_frames.ErrorFrame("malformed frame", in_short(error).encode(), text))

    return answering


def seams(quirks: bool) -> list[Seam]:
    """Return the names that `install` replaces."""
    server = importlib.import_module("coilmq.server.socket_server")
    buffer = FrameBuffer if quirks else StrictFrameBuffer
    both = [
        Seam("coilmq.util.frames", "FrameBuffer", buffer),
        Seam("coilmq.server.socket_server", "FrameBuffer", buffer),
    ]
    if quirks:
        return both
    handler = "coilmq.server.socket_server:StompRequestHandler"
    return [
        *both,
        Seam(handler, "send_frame", _send_frame),
        Seam(handler, "handle", _answering(server.StompRequestHandler.handle)),
    ]


def install(quirks: bool = True) -> Installed:
    """Put our codec into coilmq, as `compat.install("coilmq")` does. Open connections do not change.

    Args:
        quirks: pass headers on unchanged, and read leniently. False: STOMP as specified.

    >>> import coilmq.server.socket_server
    >>> with install():
    ...     coilmq.server.socket_server.FrameBuffer is FrameBuffer
    True
    """
    return _install(PEER, seams, quirks)


def self_test(quirks: bool = True) -> None:
    """Send frames through the patched coilmq and read them back; raise AssertionError if one has changed."""
    buffer = importlib.import_module("coilmq.server.socket_server").FrameBuffer()
    assert type(buffer) is (FrameBuffer if quirks else StrictFrameBuffer), "coilmq is not patched"
    body = b"\0octets\n\0"
    sent = _frames.Frame("SEND", {"destination": "/queue/a", "note": "a:b"}, body)
    data = b"\n\r\n" + (sent.pack() if quirks else _packed(sent, "1.2")) + b"\nDISCONNECT\n\n\0"
    found = []
    for at in range(len(data)):
        buffer.append(data[at : at + 1])
        found += list(buffer)
    assert [frame.cmd for frame in found] == ["SEND", "DISCONNECT"], "frames in single octets were not found"
    assert found[0].headers.get("note") == "a:b", "a header came back changed"
    assert found[0].body == body, "a body with NULs came back changed"
    assert buffer.buffer_empty(), "octets stayed behind"
