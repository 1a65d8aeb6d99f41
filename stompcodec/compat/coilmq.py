r"""coilmq on our codec: its server survives split frames, heart-beats and large messages.

    from stompcodec import compat
    compat.install("coilmq")      # before the server starts

coilmq 1.1 wants a frame in one piece, stumbles over the EOLs of heart-beats, never notes that they came, and keeps each
octet it ever got. All of that is `FrameBuffer`, and that is what is replaced.

coilmq escapes and unescapes nothing: it passes headers on as they came. With `quirks=True` that stays, so a header
reaches a subscriber as it was written. With `quirks=False` headers are read and written by the version of each session.
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

__all__ = ["PEER", "FrameBuffer", "StrictFrameBuffer", "install", "seams", "self_test"]

PEER = Peer("coilmq", (1, 0), (2,))
version_of(PEER)
_frames: Any = importlib.import_module("coilmq.util.frames")


class FrameBuffer:
    """Stands in for `coilmq.util.frames.FrameBuffer`: append octets, then iterate over coilmq's frames.

    Lenient, and without escapes, as coilmq is: CR LF is an EOL, spaces around names and values go, any frame may have a
    body. What it holds is bounded by `Limits`.

    Raises:
        FrameError: from `extract_frame` and the iteration, when the octets are no frames. coilmq closes the connection.
    """

    def __init__(self) -> None:
        self.debug = False
        self.log = logging.getLogger(f"{_frames.__name__}.FrameBuffer")
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self._parser = self._new_parser()
        self._steps = iter(self._parser.feed(b""))

    def _new_parser(self) -> Parser:
        return Parser("1.0", lenient=True)

    def append(self, data: bytes) -> None:
        """Take in octets."""
        self._steps = self._parser.feed(data)

    def extract_frame(self) -> Any:
        """The next whole frame, as coilmq's Frame; None where there is none yet."""
        frame = next(self._steps, None)
        return None if frame is None else _theirs(frame)

    def buffer_len(self) -> int:
        """Octets that are no frame yet."""
        return self._parser.buffered

    def buffer_empty(self) -> bool:
        """Is nothing waiting? coilmq 1.1 answers the opposite, and so never notes that its peer is alive."""
        return not self._parser.buffered

    def __iter__(self) -> FrameBuffer:
        return self

    def __next__(self) -> Any:
        frame = self.extract_frame()
        if frame is None:
            raise StopIteration
        return frame


class StrictFrameBuffer(FrameBuffer):
    """The same by the rules of the version that was negotiated, which `use` tells."""

    def _new_parser(self) -> Parser:
        return Parser(None)

    def use(self, version: str) -> None:
        """The session has this version from the next frame on."""
        self._parser.version = version


def _theirs(frame: Frame) -> Any:
    headers = dict(frame.headers)
    try:
        "".join([*headers, *headers.values()]).encode()
    except UnicodeEncodeError:  # it could not be written again: its subscriber would pay for it
        raise FrameError("invalid-utf8", None, detail=f"command {frame.command[:40]!a}") from None
    return _frames.Frame(frame.command, headers, frame.body)


def _packed(frame: Any, version: str | None) -> bytes:
    """A frame of coilmq as octets. A header that the version cannot carry is left out."""
    headers = [(str(name), str(value)) for name, value in frame.headers.items() if name != "content-length"]
    body = frame.body if isinstance(frame.body, bytes) else frame.body.encode()
    ours = Frame(frame.cmd, headers, body)
    try:
        return serialize(ours, version)
    except FrameError:
        return b"%b\n%b" % (ours.command.encode(), serialize_tail(ours, version or "1.2"))


def _send_frame(self: Any, frame: Any) -> None:
    """For `StompRequestHandler.send_frame`: written by the version of the session."""
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
    """For `StompRequestHandler.handle`: a peer that sends nonsense is told why, before the connection closes."""

    def answering(self: Any) -> None:
        try:
            handle(self)
        except FrameError as error:
            text = {"content-type": "text/plain"}
            self.send_frame(_frames.ErrorFrame("malformed frame", in_short(error).encode(), text))

    return answering


def seams(quirks: bool) -> list[Seam]:
    """The names that `install` replaces."""
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
    """Put our codec into coilmq. Connections that are open keep what they have.

    Args:
        quirks: headers are passed on as they came, and much is forgiven. Otherwise it is STOMP as written.

    Raises:
        PeerError: coilmq is of a version that is not known. Nothing was changed.

    >>> import coilmq.server.socket_server
    >>> with install():
    ...     coilmq.server.socket_server.FrameBuffer is FrameBuffer
    True
    """
    return _install(PEER, seams, quirks)


def self_test(quirks: bool = True) -> None:
    """Frames through coilmq as it is patched now.

    Raises:
        AssertionError: what came was not what was sent.
    """
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
