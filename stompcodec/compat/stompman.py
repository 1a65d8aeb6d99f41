r"""stompman on our codec: it reads frame by frame, not byte by byte.

By an argument of its client:

    from stompcodec.compat.stompman import Connection
    client = stompman.Client([...], connection_class=Connection)

Or without changing the program, before it imports names of stompman:

    from stompcodec import compat
    compat.install("stompman")

`WebSocketConnection` needs the package websockets. With `ssl` it uses wss.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import AsyncGenerator
from functools import partial, partialmethod
from typing import TYPE_CHECKING, Any, ClassVar

from stompcodec.compat import stompman_frames as frames
from stompcodec.compat.seams import Installed, PeerError, Seam
from stompcodec.compat.seams import install as _install
from stompcodec.compat.stompman_frames import PEER, FrameParser, StrictFrameParser

if TYPE_CHECKING:
    from stompcodec.compat.stompman_websocket import WebSocketConnection

__all__ = [
    "PEER",
    "Connection",
    "FrameParser",
    "StrictFrameParser",
    "WebSocketConnection",
    "install",
    "seams",
    "self_test",
]

_connection: Any = importlib.import_module("stompman.connection")
_ConnectionLostError: Any = importlib.import_module("stompman.errors").ConnectionLostError

#: Name -> its replacements, with and without quirks.
_NEW: dict[str, tuple[Any, Any]] = {
    "FrameParser": (FrameParser, StrictFrameParser),
    "dump_frame": (frames.dump_frame, frames.strict_dump_frame),
    "parse_header": (frames.parse_header, frames.strict_parse_header),
    "dump_header": (frames.dump_header, frames.strict_dump_header),
}
#: Module -> the names that it binds.
_BOUND = {
    "stompman.serde": tuple(_NEW),
    "stompman": ("FrameParser", "dump_frame"),
    "stompman.connection": ("FrameParser", "dump_frame"),
    "stompman.connection_ws": ("FrameParser", "dump_frame"),
    "faststream_stomp.testing": ("dump_frame",),
}


class Connection(_connection.Connection):  # type: ignore[misc, name-defined, unused-ignore]
    """stompman's connection over TCP or TLS, on our codec, for `stompman.Client(connection_class=...)`.

    Frames that arrive in one read with CONNECTED are kept for the next reader; stompman loses them.

    Attributes:
        quirks: keep what stompman's own tests pin. A subclass with False uses STOMP 1.2 as specified.
    """

    quirks: ClassVar[bool] = True

    async def write_frame(self, frame: Any) -> None:
        """Send a frame; raise stompman's ConnectionLostError, or without quirks a FrameError."""
        frames.note_written(self, frame)
        octets = (frames.dump_frame if self.quirks else frames.strict_dump_frame)(frame)
        try:
            self.writer.write(octets)
            await self.writer.drain()
        except (RuntimeError, ConnectionError) as error:
            raise _ConnectionLostError(reason=error) from error

    def read_frames(self) -> AsyncGenerator[Any, None]:
        """Yield received frames. At their end, or at a malformed one, raise stompman's ConnectionLostError."""
        return _read_frames(self, self.quirks)


def _read_frames(connection: Any, quirks: bool) -> AsyncGenerator[Any, None]:
    kind = FrameParser if quirks else StrictFrameParser
    receive = partial(connection.reader.read, connection.read_max_chunk_size)
    return frames.read_frames(connection, kind, receive, (ConnectionError,))


def __getattr__(name: str) -> Any:
    if name == "WebSocketConnection":  # it needs websockets
        return importlib.import_module("stompcodec.compat.stompman_websocket").WebSocketConnection
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def seams(quirks: bool) -> list[Seam]:
    """Return the names that `install` replaces."""
    found = [
        Seam("stompman.connection:Connection", "read_frames", partialmethod(_read_frames, quirks)),
        Seam("stompman.connection:Connection", "write_frame", frames.noting(_connection.Connection.write_frame)),
    ]
    with contextlib.suppress(PeerError):  # before 3.10, or websockets is missing
        websocket = importlib.import_module("stompcodec.compat.stompman_websocket")
        new = partialmethod(websocket.read_frames, quirks)
        found.append(Seam("stompman.connection_ws:WebSocketConnection", "read_frames", new))
        found.append(Seam("stompman.connection_ws:WebSocketConnection", "write_frame", websocket.write_frame))
    return found + [
        Seam(module, name, _NEW[name][not quirks])
        for module, names in _BOUND.items()
        if module in sys.modules  # later imports take the names from stompman.serde
        for name in names
    ]


def install(quirks: bool = True) -> Installed:
    """Put our codec into stompman, as `compat.install("stompman")` does. Open connections do not change.

    A module that has already imported `FrameParser` or `dump_frame` from stompman keeps those.

    Args:
        quirks: keep what stompman's own tests pin. False: STOMP 1.2 as specified.

    >>> import stompman
    >>> with install():
    ...     stompman.FrameParser is FrameParser
    True
    """
    return _install(PEER, seams, quirks)


def self_test(quirks: bool = True) -> None:
    """Send frames through the patched stompman and read them back; raise AssertionError if one has changed."""
    stompman = importlib.import_module("stompman")
    parser = _connection.FrameParser()
    assert type(parser) is _NEW["FrameParser"][not quirks], "stompman is not patched"
    body = b"\0octets\n\0"
    headers = {"destination": "/queue/a", "note": "a:b\n\\c", "content-length": str(len(body))}
    message = {**headers, "message-id": "1", "subscription": "0"}
    frames_out = [
        stompman.SendFrame(headers=dict(sorted(headers.items())), body=body),
        stompman.MessageFrame(headers=dict(sorted(message.items())), body=body),
        stompman.BeginFrame(headers={"transaction": "t"}),
    ]
    octets = b"\n".join(_connection.dump_frame(frame) for frame in frames_out)
    found = [frame for at in range(len(octets)) for frame in parser.parse_frames_from_chunk(octets[at : at + 1])]
    assert len(found) == 5, "frames in single octets were not found"
    assert found[1] == found[3] == stompman.HeartbeatFrame(), "a line feed between frames is a heart-beat"
    assert found[::2] == frames_out, "frames came back changed"
    assert [list(frame.headers) for frame in found[::2]] == [list(frame.headers) for frame in frames_out], "order"
    assert type(found[2]) is stompman.MessageFrame, "a message is of another class"
    assert repr(found[2]) == repr(frames_out[1]), "a message is not as stompman makes it"
