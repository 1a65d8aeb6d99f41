r"""stompman on our codec: it reads frame by frame, not byte by byte.

By an argument of its client:

    from stompcodec.compat.stompman import Connection
    client = stompman.Client([...], connection_class=Connection)

Or without changing the program, before it imports names of stompman:

    from stompcodec import compat
    compat.install("stompman")

`WebSocketConnection` needs the package websockets. With `ssl` it uses wss.

With quirks, any bytes, however they are cut, give the same result as with stompman: unknown commands are skipped, a
header with a second colon is dropped, a wrong content-length truncates or waits. Our parser reads a chunk by STOMP 1.2.
If our writer would write the same bytes for the frames, stompman would read the same frames. Any other chunk is read
again by stompman's own parser, until that is between two frames. Invariant: our parser only skips work. Without quirks
it is STOMP 1.2 as specified.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import re
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from functools import partial, partialmethod
from types import MemberDescriptorType
from typing import Any, ClassVar

from stompcodec.arguments import checked
from stompcodec.codec import HEARTBEAT, Frame, Parser, parse, serialize, serialize_many
from stompcodec.compat.seams import Installed, Peer, PeerError, Seam, version_of, warn_of_nack
from stompcodec.compat.seams import install as _install
from stompcodec.errors import FrameError
from stompcodec.spec import Limits

__all__ = ["PEER", "Connection", "FrameParser", "StrictFrameParser", "WebSocketConnection", "install", "seams"]
#: The parser of 3.8 is the first that reads content-length.
PEER = Peer("stompman", (3, 8), (4,))
version_of(PEER)
_serde: Any = importlib.import_module("stompman.serde")
_frames: Any = importlib.import_module("stompman.frames")
_connection: Any = importlib.import_module("stompman.connection")
_ConnectionLostError: Any = importlib.import_module("stompman.errors").ConnectionLostError
_log: logging.Logger = importlib.import_module("stompman.logger").LOGGER
_TheirParser: Any = _serde.FrameParser
_CLASSES: dict[str, Any] = {command.decode(): kind for command, kind in _serde.COMMANDS_TO_FRAMES.items()}
_COMMANDS: dict[Any, bytes] = dict(_serde.FRAMES_TO_COMMANDS)
_WITH_BODY: tuple[Any, ...] = _serde.FRAMES_WITH_BODY
_HEARTBEAT: Any = _frames.HeartbeatFrame()
_Connect: Any = _frames.ConnectFrame
_Connected: Any = _frames.ConnectedFrame
_Nack: Any = _frames.NackFrame
_UNESCAPED: frozenset[Any] = frozenset((_Connect, _Connected))
_Message: Any = _frames.MessageFrame
_slots = [vars(_Message).get(name) for name in ("headers", "body")]
if not all(isinstance(slot, MemberDescriptorType) for slot in _slots):
    raise PeerError("stompman.frames.MessageFrame has no slots for headers and body. Nothing was changed.")
# Their constructor of a frozen message takes longer than reading it.
_new_message = object.__new__
_set_headers, _set_body = (slot.__set__ for slot in _slots if isinstance(slot, MemberDescriptorType))
_ESCAPED = re.compile(rb"\\(.?)", re.DOTALL)
_MEANT = {b"n": b"\n", b"c": b":", b"\\": b"\\"}
_ESCAPES = str.maketrans({"\n": "\\n", ":": "\\c", "\\": "\\\\", "\r": ""})
_ESCAPED_CHARACTERS: Any = _serde.HEADER_ESCAPE_CHARS
_LENGTH = "content-length"
#: Frames after which the tasks of stompman's handlers run.
_TURN = 50


class StrictFrameParser:
    """A replacement for `stompman.FrameParser` by the rules of STOMP 1.2: malformed frames end the connection.

    Attributes:
        limits: the largest sizes. stompman has no limits.

    >>> parser = StrictFrameParser()
    >>> list(parser.parse_frames_from_chunk(b"MESSAGE\\ndestination:a:b\\n\\nhi\\0"))
    [MessageFrame(headers={'destination': 'a:b'}, body=b'hi')]
    """

    limits: ClassVar[Limits] = Limits()

    def __init__(self) -> None:
        self._ready: Iterator[Any] = iter(())  # frames that were read and not iterated
        self._parser = self._new_parser()

    def _new_parser(self) -> Parser:
        return Parser("1.2", limits=self.limits, heartbeats=True)

    def parse_frames_from_chunk(self, chunk: bytes) -> Iterator[Any]:
        """Take in bytes and return an iterator over the complete frames. The rest stays for the next call.

        Malformed data or an exceeded limit is their ConnectionLostError, behind the good frames; `reason` is our error.
        """
        found = [*self._ready]
        self._ready = iter(found)  # an iterator over a list that still grows
        try:
            self._read(chunk, found)
        except FrameError as error:
            return self._last(error)
        return self._ready

    def _last(self, error: FrameError) -> Iterator[Any]:
        yield from self._ready
        raise _ConnectionLostError(reason=error) from error

    def _read(self, chunk: bytes, found: list[Any]) -> None:
        """Add the complete frames to `found`."""
        events: list[Any] = []
        try:
            events += self._parser.feed(chunk)
        finally:
            found += _converted(events)


class FrameParser(StrictFrameParser):
    """A replacement for `stompman.FrameParser`: chunks of bytes in, stompman's frames out.

    Attributes:
        limits: the largest sizes. stompman has no limits.

    >>> parser = FrameParser()
    >>> list(parser.parse_frames_from_chunk(b"CONNECTED\\nversion:1.2\\n"))
    []
    >>> list(parser.parse_frames_from_chunk(b"\\n\\0\\n"))
    [ConnectedFrame(headers={'version': '1.2'}), HeartbeatFrame()]
    """

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[bytes] = []  # bytes of the incomplete frame, to read them again
        self._theirs: Any = None  # stompman's parser, while it is inside a frame

    def _read(self, chunk: bytes, found: list[Any]) -> None:
        if self._theirs is not None:
            chunk = self._read_on(chunk, found)
            if not chunk:
                return
        self._kept.append(bytes(chunk))
        events: list[Any] = []
        try:
            events += self._parser.feed(chunk)
        except FrameError as error:
            if error.limit == "max_body":
                found += _converted(events)
                raise
            self._read_again(found)
            return
        if events:
            octets = b"".join(self._kept)
            whole = len(octets) - self._parser.buffered
            frames = _converted(events)
            if not _means_the_same(events, frames, octets[:whole]):
                self._read_again(found)
                return
            found += frames
            self._kept = [octets[whole:]]

    def _read_again(self, found: list[Any]) -> None:
        """Read the kept bytes with their parser."""
        octets = b"".join(self._kept)
        self._kept = []
        self._parser = self._new_parser()
        self._theirs = _TheirParser()
        self._feed_theirs(octets, found)

    def _read_on(self, chunk: bytes, found: list[Any]) -> bytes:
        """Feed their parser up to a NUL after which it is between frames. Return the rest."""
        at = 0
        while self._theirs is not None and at < len(chunk):
            nul = chunk.find(b"\0", at)
            end = nul + 1 if nul >= 0 else len(chunk)
            self._feed_theirs(chunk[at:end], found)
            at = end
        return chunk[at:]

    def _feed_theirs(self, octets: bytes, found: list[Any]) -> None:
        theirs, limits = self._theirs, self.limits
        found += theirs.parse_frames_from_chunk(octets)
        waiting = len(theirs._current_buf)
        if theirs._command is None and not waiting:
            self._theirs = None
        limit = "max_body" if theirs._headers_processed else "max_header_line"
        if len(theirs._headers) > limits.max_headers:
            limit = "max_headers"
        elif waiting <= getattr(limits, limit):
            return
        raise FrameError("limit-exceeded", None, limit=limit)


async def read_frames(
    connection: Any,
    kind: type[StrictFrameParser],
    receive: Callable[[], Awaitable[bytes]],
    lost: tuple[type[Exception], ...],
) -> AsyncGenerator[Any, None]:
    """Yield the frames of a stompman connection until it is lost.

    The connection keeps the parser, of the class `kind`: the next reader continues where one stops. `receive` returns
    b"" at the end; its errors in `lost` mean that the connection is lost. After a malformed frame it is lost, too.
    """
    if "_parser" not in vars(connection):
        connection._parser = kind()
    parser, chunk, turn = connection._parser, b"", 0
    while True:
        found = parser.parse_frames_from_chunk(chunk)
        for frame in found if "_server" in vars(connection) else _noting(connection, found):
            yield frame
            turn += 1
            if turn == _TURN:
                # stompman runs a task for each message, at most 100 at once. Letting the tasks run, and then their
                # callbacks, is cheaper than its wait for room.
                turn = 0
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        try:
            chunk = await receive()
        except lost as error:
            raise _ConnectionLostError(reason=error) from error
        if not chunk:
            raise _ConnectionLostError(reason="eof")
        connection.last_read_time = time.time()


def _noting(connection: Any, found: Iterator[Any]) -> Iterator[Any]:
    """Pass frames on, and note in the connection which server has sent CONNECTED."""
    for frame in found:
        if type(frame) is _Connected:
            connection._server = frame.headers.get("server", "")
        yield frame


def note_written(connection: Any, frame: Any) -> None:
    """Warn once if a frame that is about to be written is a NACK that drops the message."""
    if type(frame) is _Nack:
        warn_of_nack(vars(connection).get("_server"), _log.warning)


def noting(write: Callable[[Any, Any], Awaitable[None]]) -> Callable[[Any, Any], Awaitable[None]]:
    """Return a replacement for a `write_frame` of stompman that calls `note_written` first."""

    async def write_frame(self: Any, frame: Any) -> None:
        note_written(self, frame)
        await write(self, frame)

    return write_frame


def _converted(events: list[Any]) -> list[Any]:
    """Return events of our parser as frames of stompman."""
    found = []
    for frame in events:
        if frame is HEARTBEAT:
            found.append(_HEARTBEAT)
        elif frame.command == "MESSAGE":
            message = _new_message(_Message)
            _set_headers(message, frame.headers.copy())
            _set_body(message, frame.body)
            found.append(message)
        else:
            kind = _CLASSES[frame.command]
            headers = frame.headers.copy()
            found.append(kind(headers=headers, body=frame.body) if kind in _WITH_BODY else kind(headers=headers))
    return found


def _means_the_same(events: list[Any], frames: list[Any], octets: bytes) -> bool:
    """Return whether stompman would read the same frames from these bytes."""
    kinds = set(map(type, frames))
    if not kinds.isdisjoint(_UNESCAPED):  # it unescapes these too
        return False
    heads = [frame.headers for frame in frames if frame is not _HEARTBEAT]
    for name in set().union(*heads):
        if name != _LENGTH and name.lower() == _LENGTH:  # it takes this for the length too
            return False
    version = "1.1" if b"\\" in octets else "1.2"  # like stompman, 1.1 has no escape for CR
    if len(heads) == len(frames) and octets == serialize_many(events, version):
        return True
    return octets == b"".join([_written(frame, version) for frame in events])


def _written(frame: Any, version: str) -> bytes:
    if frame is HEARTBEAT:
        return b"\n"
    return serialize(frame, version, content_length="never" if frame.get(_LENGTH) is None else "auto")


def parse_header(buffer: bytes | bytearray) -> tuple[str, str] | None:
    r"""Replace `stompman.serde.parse_header`: read a header line without its end; None for one that is dropped.

    The escapes of LF, colon and backslash are undone; others are removed.
    """
    name, colon, value = bytes(buffer).partition(b":")
    if not colon or b":" in value:
        return None
    try:
        return _unescaped(name).decode(), _unescaped(value).decode()
    except UnicodeDecodeError:
        return None


def _unescaped(octets: bytes) -> bytes:
    if b"\\" not in octets:
        return octets
    return _ESCAPED.sub(lambda found: _MEANT.get(found[1], b""), octets)


def dump_header(key: str, value: str) -> bytes:
    """Replace `stompman.serde.dump_header`: write a header line without CRs. TypeError: a name or value is not text."""
    return f"{_escaped(key)}:{_escaped(value)}\n".encode()


def _escaped(text: Any) -> str:
    # stompman iterates over the value. For str, translate() does the same; other values, such as a list of characters,
    # are iterated too, so that the same ones raise TypeError.
    if type(text) is str:
        return text.translate(_ESCAPES)
    return "".join([_ESCAPED_CHARACTERS.get(character, character) for character in text])


def dump_frame(frame: Any) -> bytes:
    """Replace `stompman.dump_frame`: return a frame of stompman as bytes. Headers are sorted, CONNECT is not escaped.

    Raises:
        TypeError: a header is not text (None, a number, bytes). As in stompman, CONNECT accepts any value with `str()`.
    """
    command = _COMMANDS[type(frame)]
    pairs = sorted(frame.headers.items())
    if isinstance(frame, _Connect):
        lines = "".join([f"{name}:{value}\n" for name, value in pairs]).encode()
    elif (text := _plain(pairs)) is not None:
        lines = text.encode()
    else:
        lines = b"".join([dump_header(name, value) for name, value in pairs])
    body = frame.body if isinstance(frame, _WITH_BODY) else b""
    return b"".join((command, b"\n", lines, b"\n", body, b"\0"))


def _plain(pairs: list[tuple[Any, Any]]) -> str | None:
    """Return the header lines; None if one of them needs escapes or is not text."""
    parts: list[Any] = []
    for name, value in pairs:
        parts += (name, ":", value, "\n")
    try:
        text = "".join(parts)  # unlike an f-string, this accepts text only
    except TypeError:
        return None
    plain = text.count(":") == text.count("\n") == len(pairs) and "\\" not in text and "\r" not in text
    return text if plain else None


def strict_parse_header(buffer: bytes | bytearray) -> tuple[str, str] | None:
    """Read a header line of STOMP 1.2, without its end; None for a malformed one."""
    if b"\n" in buffer or not buffer or buffer.startswith(b":"):
        return None
    try:
        frame: Frame = parse(b"MESSAGE\nx%b\n\n\0" % bytes(buffer))[0]  # x: so that content-length is not special
    except FrameError:
        return None
    name, value = frame.headers.pairs()[0]
    return name[1:], value


def strict_dump_header(key: str, value: str) -> bytes:
    """Write a header line of STOMP 1.2. TypeError: a name or value is not text."""
    name = key and "x" + key  # so that content-length is not special
    return serialize(Frame("MESSAGE", [(name, value)]))[len("MESSAGE\nx") : -len("\n\0")]


def strict_dump_frame(frame: Any) -> bytes:
    """Return a frame of stompman as bytes of STOMP 1.2, with sorted headers.

    Raises:
        FrameError: the frame cannot be written: a header of CONNECT has a line feed, content-length is wrong, or a body
            with NULs has none.
        TypeError: a header is not text, in CONNECT too.
    """
    pairs = sorted(frame.headers.items())
    body = frame.body if isinstance(frame, _WITH_BODY) else b""
    # A missing content-length is intended: ActiveMQ reads a message without it as text.
    made = Frame(_COMMANDS[type(frame)].decode(), pairs, body)
    return serialize(made, content_length="auto" if _LENGTH in frame.headers else "never")


#: Name -> its replacements, with and without quirks.
_NEW: dict[str, tuple[Any, Any]] = {
    "FrameParser": (FrameParser, StrictFrameParser),
    "dump_frame": (dump_frame, strict_dump_frame),
    "parse_header": (parse_header, strict_parse_header),
    "dump_header": (dump_header, strict_dump_header),
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
        note_written(self, frame)
        octets = (dump_frame if self.quirks else strict_dump_frame)(frame)
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
    return read_frames(connection, kind, receive, (ConnectionError,))


WebSocketConnection: Any  # by `__getattr__`, since it needs websockets


def __getattr__(name: str) -> Any:
    if name == "WebSocketConnection":
        return importlib.import_module("stompcodec.compat.stompman_websocket").WebSocketConnection
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@checked
def seams(quirks: bool) -> list[Seam]:
    """Return the names that `install` replaces."""
    found = [
        Seam("stompman.connection:Connection", "read_frames", partialmethod(_read_frames, quirks)),
        Seam("stompman.connection:Connection", "write_frame", noting(_connection.Connection.write_frame)),
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

    >>> import stompman
    >>> with install():
    ...     stompman.FrameParser is FrameParser
    True
    """
    return _install(PEER, seams, quirks)
