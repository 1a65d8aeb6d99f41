r"""aiostomp on our codec: it reads frame by frame, not byte by byte.

    from stompcodec import compat
    compat.install("aiostomp")    # before AioStomp(...) connects

At malformed data, aiostomp drops the bytes that it has read, and continues anywhere after them. With our codec, the
frames before are delivered, then the connection is dropped, and aiostomp connects again.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping
from typing import Any

from stompcodec.codec import HEARTBEAT, Frame, Parser, serialize
from stompcodec.compat.seams import Installed, Peer, Seam, version_of
from stompcodec.compat.seams import install as _install
from stompcodec.errors import FrameError
from stompcodec.spec import VERSIONS

PEER = Peer("aiostomp", (1, 7), (2,))
version_of(PEER)
_protocol: Any = importlib.import_module("aiostomp.protocol")
_Frame: Any = _protocol.Frame
_ESCAPES = str.maketrans({"\n": "\\n", ":": "\\c", "\\": "\\\\", "\r": "\\r"})
_log = logging.getLogger(__name__)


class StompProtocol(_protocol.StompProtocol):  # type: ignore[misc, name-defined, unused-ignore]
    """A replacement for `aiostomp.protocol.StompProtocol`: feed bytes, then pop aiostomp's frames.

    Like aiostomp it is lenient. Malformed data sets `error`, and ends the stream.
    """

    def __init__(self) -> None:
        super().__init__()
        #: The error that has ended the stream, or None.
        self.error: FrameError | None = None
        self._parser = self._new_parser()
        self._last = b""

    def _new_parser(self) -> Parser:
        # In all versions, aiostomp has the escape of CR, which is from 1.2.
        return Parser("1.2", lenient=True, heartbeats=True)

    def feed_data(self, inp: bytes) -> None:
        """Take in bytes."""
        if self.error is not None:
            return
        self._last = inp
        ready = self._frames_ready
        try:
            for frame in self._parser.feed(inp):
                if frame is HEARTBEAT:
                    ready.append(_Frame("HEARTBEAT", {}, None))
                else:
                    ready.append(_Frame(frame.command, dict(frame.headers), frame.body or None))
                    self._seen(frame)
        except FrameError as error:
            self.error = error

    def _seen(self, frame: Frame) -> None:
        """Do nothing for a frame that was read."""

    @property
    def current_command(self) -> bytes:
        """The part of an incomplete frame that was in the last fed bytes."""
        waiting = min(self._parser.buffered, len(self._last))
        return bytes(self._last[len(self._last) - waiting :])

    @current_command.setter
    def current_command(self, value: object) -> None:
        """Ignore the assignment in their constructor."""

    def _encode(self, value: str | bytes) -> bytes:
        # Bytes that were not UTF-8 when they were read are written unchanged.
        return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value

    def _encode_header(self, header_value: object) -> str:
        text = str(header_value)
        return text if self._version == "1.0" else text.translate(_ESCAPES)


class StrictStompProtocol(StompProtocol):
    """A `StompProtocol` by the rules of the version in CONNECTED."""

    def _new_parser(self) -> Parser:
        return Parser(None, heartbeats=True)

    def _seen(self, frame: Frame) -> None:
        if frame.command == "CONNECTED":
            version = frame.get("version", "1.0")
            if version not in VERSIONS:
                raise FrameError("no-common-version", None, detail=f"the server answered {version[:20]!a}")
            self._parser.version = version

    def build_frame(self, command: str, headers: Mapping[str, object] | None = None, body: bytes | str = "") -> bytes:
        """Return a frame as bytes, by the rules of the version; raise FrameError if it cannot represent the frame."""
        pairs = [(name, str(value)) for name, value in sorted((headers or {}).items())]
        octets = body.encode() if isinstance(body, str) else body
        # A missing content-length is intended: ActiveMQ reads a message without it as text.
        given = "content-length" in (headers or ())
        frame = Frame(command, pairs, octets)
        return serialize(frame, self._parser.version, content_length="auto" if given else "never")


def _ending(data_received: Callable[[Any, bytes | None], None]) -> Callable[[Any, bytes | None], None]:
    """Wrap `StompReader.data_received`: end the connection at malformed data."""

    def ending(self: Any, data: bytes | None) -> None:
        data_received(self, data)
        protocol = self._protocol
        if isinstance(protocol, StompProtocol) and protocol.error is not None and self._transport is not None:
            _log.error("the connection is dropped: %s", protocol.error)
            self._transport.abort()

    return ending


def seams(quirks: bool) -> list[Seam]:
    """Return the names that `install` replaces."""
    reader = importlib.import_module("aiostomp.aiostomp").StompReader
    protocol = StompProtocol if quirks else StrictStompProtocol
    return [
        Seam("aiostomp.protocol", "StompProtocol", protocol),
        Seam("aiostomp.aiostomp", "sp", protocol),
        Seam("aiostomp.aiostomp:StompReader", "data_received", _ending(reader.data_received)),
    ]


def install(quirks: bool = True) -> Installed:
    """Put our codec into aiostomp, as `compat.install("aiostomp")` does. Open connections do not change.

    Args:
        quirks: read leniently, and escape CONNECT. False: STOMP as specified.

    >>> import aiostomp.aiostomp
    >>> with install():
    ...     aiostomp.aiostomp.sp is StompProtocol
    True
    """
    return _install(PEER, seams, quirks)


def self_test(quirks: bool = True) -> None:
    """Send frames through the patched aiostomp and read them back; raise AssertionError if one has changed."""
    protocol = importlib.import_module("aiostomp.aiostomp").sp()
    assert type(protocol) is (StompProtocol if quirks else StrictStompProtocol), "aiostomp is not patched"
    body = b"\0octets\n\0"
    headers = {"destination": "/queue/a", "note": "a:b\n\\c", "content-length": len(body)}
    data = protocol.build_frame("SEND", headers, body) + b"\n" + protocol.build_frame("DISCONNECT")
    for at in range(len(data)):
        protocol.feed_data(data[at : at + 1])
    found = protocol.pop_frames()
    commands = [frame.command for frame in found]
    assert commands == ["SEND", "HEARTBEAT", "DISCONNECT"], "frames in single octets were not found"
    assert found[0].headers.get("note") == "a:b\n\\c", "an escaped header came back changed"
    assert found[0].body == body, "a body with NULs came back changed"
    assert found[2].body is None, "an empty body is None"
    assert protocol.error is None, str(protocol.error)
