"""STOMP: bytes to frames and back, and the rules of a connection.

>>> parser = Parser("1.2")
>>> for frame in parser.feed(b"MESSAGE\\ndestination:/topic/a\\n\\nhello\\0"):
...     print(frame.command, frame.headers["destination"], frame.body)
MESSAGE /topic/a b'hello'
>>> serialize(Frame("SEND", {"destination": "/queue/a"}, b"hi"))
b'SEND\\ndestination:/queue/a\\ncontent-length:2\\n\\nhi\\x00'
"""

from __future__ import annotations

from stompcodec.codec import (
    BACKEND,
    END_OF_BODY,
    HEARTBEAT,
    Frame,
    Headers,
    Parser,
    frame_ends,
    parse,
    parse_columns,
    serialize,
    serialize_many,
    serialize_parts,
)
from stompcodec.errors import (
    ContentError,
    FrameError,
    LocalProtocolError,
    MissingExtraError,
    RemoteProtocolError,
    StompError,
)
from stompcodec.spec import Limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stompcodec.connection import Connection, Role

__version__ = "0.1.0"

__all__ = [
    "BACKEND",
    "END_OF_BODY",
    "HEARTBEAT",
    "Connection",
    "ContentError",
    "Frame",
    "FrameError",
    "Headers",
    "Limits",
    "LocalProtocolError",
    "MissingExtraError",
    "Parser",
    "RemoteProtocolError",
    "Role",
    "StompError",
    "__version__",
    "frame_ends",
    "parse",
    "parse_columns",
    "serialize",
    "serialize_many",
    "serialize_parts",
]


def __getattr__(name: str) -> Any:
    if name in ("Connection", "Role"):  # who only parses has no use for them
        from stompcodec import connection

        globals().update(Connection=connection.Connection, Role=connection.Role)
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
