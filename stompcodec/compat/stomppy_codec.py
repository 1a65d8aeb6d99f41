"""Reading and writing for stomp.py: the work of its transport's I/O thread, with our codec.

With quirks, our parser reads what is valid STOMP 1.2. Other data, or data beyond our limits, is split and read by
stomp.py's own rules, so that a program sees the same as before. Without quirks the rules of the negotiated version
apply, and malformed data ends the connection. Written are the same bytes as stomp.py's, and without quirks only frames
that can be read back.
"""

from __future__ import annotations

import importlib
import re
import ssl
from collections.abc import Callable, Iterator
from typing import Any

from stompcodec.codec import HEARTBEAT, Frame, Parser, parse_columns, serialize
from stompcodec.compat.seams import Peer, version_of, warn_of_nack
from stompcodec.errors import FrameError
from stompcodec.spec import VERSIONS

PEER = Peer("stomp.py", (8, 1), (10,))
version_of(PEER)
stomp: Any = importlib.import_module("stomp")
#: Their logging module, which had another name before 9.0.
log: Any = getattr(stomp, "log", None) or stomp.logging
_transport: Any = stomp.transport
_Theirs: Any = stomp.utils.Frame
_their_parse_frame: Any = stomp.utils.parse_frame
_their_unescape: Any = stomp.utils._unescape_header
_METHODS = {name: vars(_transport.BaseTransport)[name] for name in ("process_frame", "notify")}
_new: Any = object.__new__
_EOLS = re.compile(rb"[\r\n]*")
_PREAMBLE_END = re.compile(rb"\n\n|\r\n\r\n")
_LENGTH = re.compile(rb"^content-length[:]\s*([0-9]+)", re.MULTILINE)
_DIGITS = 19  # of a content-length; a longer number means a body without end, as with theirs
_ESCAPE = re.compile(r"\\.")
_WANTS = (ssl.SSLWantReadError, ssl.SSLWantWriteError)
_COMMANDS = frozenset(("CONNECTED", "MESSAGE", "RECEIPT", "ERROR"))


class _Lazy:
    """An attribute that is made on first use: a dict of the received headers."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, frame: Any, owner: object = None) -> Any:
        if frame is None:
            return self
        return frame.__dict__.setdefault(self.name, frame._codec_frame.headers.copy())


class ReceivedFrame(_Theirs):  # type: ignore[misc, valid-type, unused-ignore]
    """`stomp.utils.Frame` for received frames. Headers take most of the time, so that they are made on first use."""

    headers = _Lazy("headers")
    original_headers = _Lazy("original_headers")

    @classmethod
    def of(cls, frame: Any) -> Any:
        """Return our frame as theirs."""
        found = _new(cls)
        found.cmd = frame.command
        found.body = frame.body
        found._codec_frame = frame
        return found


_of = ReceivedFrame.of


def _unescaped(frame: Any) -> Any:
    """Return a CONNECTED frame as theirs, unescaped, as they do for all frames."""
    headers: dict[str, str] = {}
    for name, value in frame.headers.pairs():
        headers.setdefault(_ESCAPE.sub(_their_unescape, name), _ESCAPE.sub(_their_unescape, value))
    return _Theirs(frame.command, headers, frame.body)


def _raw(last: Any) -> bytes:
    """Return the bytes of a frame without its NUL. One of ours is written again, since its bytes are not kept."""
    if isinstance(last, bytes):
        return last
    length: Any = "never" if last.get("content-length") is None else "auto"
    return bytes(serialize(last, "1.2", content_length=length)[:-1])


class Reader:
    """A reader of one socket's stream that reads like stomp.py."""

    __slots__ = ("_kept", "_parser", "_size", "_wanted", "last", "socket")

    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self.last: Any = None  # the last frame: ours, or its bytes
        self._parser = Parser("1.2")
        self._kept: list[bytes] = []  # the bytes of the incomplete frame
        self._size = 0
        # -1: our parser reads. Otherwise their rules do, once this many bytes are there; 0: once there is a NUL.
        self._wanted = -1

    @property
    def idle(self) -> bool:
        """True if no frame has begun."""
        return not self._kept

    def feed(self, data: bytes) -> Iterator[Any]:
        """Yield the complete frames as theirs, then raise their ConnectionClosedException if one is malformed."""
        self._kept.append(data)
        if self._wanted >= 0:
            self._size += len(data)
            if self._size >= self._wanted if self._wanted else b"\0" in data:
                yield from self._loosely(b"".join(self._kept))
            return
        try:
            yield from self._strictly(data)
        except FrameError:
            octets = b"".join(self._kept)
            good = parse_columns(octets, "1.2", columns=()).consumed
            yield from self._loosely(octets[good:])

    def _strictly(self, data: bytes) -> Iterator[Any]:
        for frame in self._parser.feed(data):
            self.last = frame
            found = _new(ReceivedFrame)  # inlined `of`
            found.cmd = command = frame.command
            found.body = frame.body
            found._codec_frame = frame
            yield found if command != "CONNECTED" else _unescaped(frame)
        rest = self._parser.buffered
        if not rest:
            self._kept.clear()
        elif rest <= len(data):
            self._kept = [data[len(data) - rest :]]

    def _loosely(self, octets: bytes) -> Iterator[Any]:
        """Read complete frames by their rules. Our parser continues with the rest, if it can."""
        at = _EOLS.match(octets).end()  # type: ignore[union-attr]
        self._wanted = 0
        while at < len(octets):
            end, self._wanted = _cut(octets, at)
            if end < 0:
                break
            frame = _their_parse_frame(octets[at:end])
            if frame is not None:
                self.last = octets[at:end]
                yield frame
            at = _EOLS.match(octets, end + 1).end()  # type: ignore[union-attr]
        rest = octets[at:]
        self._kept = [rest]
        self._size = len(rest)
        self._parser = Parser("1.2")
        try:
            yield from self._strictly(rest)
            self._wanted = -1
        except FrameError:
            pass


def _cut(octets: bytes, at: int) -> tuple[int, int]:
    """Return (end of the frame at `at`, 0) by their rules; (-1, bytes needed) if it is incomplete."""
    end = octets.find(b"\0", at)
    if end < 0:
        return -1, 0
    head = _PREAMBLE_END.search(octets, at, end)
    length = _LENGTH.search(octets[at : head.start()]) if head else None
    if head and length:
        counted = head.end() + int(length[1][:_DIGITS])
        if counted > end:
            return (counted, 0) if counted < len(octets) else (-1, counted - at + 1)
    return end, 0


class StrictReader:
    """A reader of one socket's stream by the rules of STOMP: each EOL between frames is a heart-beat."""

    __slots__ = ("_parser", "last", "socket")

    #: A received EOL is read like anything else.
    idle = False

    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self.last: Any = None
        self._parser = Parser(None, heartbeats=True)

    def feed(self, data: bytes) -> Iterator[Any]:
        """Yield the complete frames as theirs, then raise their ConnectionClosedException if one is malformed."""
        try:
            for frame in self._parser.feed(data):
                if frame is HEARTBEAT:
                    self.last = b"\n"
                    yield _transport.HEARTBEAT_FRAME
                    continue
                self.last = frame
                if frame.command == "CONNECTED":
                    version = frame.get("version", "1.0")
                    self._parser.version = version if version in VERSIONS else "1.2"
                yield _of(frame)
        except FrameError as error:
            log.error("the server sent malformed data, so the connection is closed: %s", error)
            raise stomp.exception.ConnectionClosedException from error


def receive_octets(transport: Any) -> bytes | None:
    """Return received bytes, None if there are none yet; raise their ConnectionClosedException at the end."""
    while transport.running:
        data: bytes | None
        try:
            data = transport.receive()
        except _WANTS:
            return None
        except stomp.exception.InterruptedException:
            log.debug("socket read interrupted, restarting")
            continue
        except Exception:
            log.debug("socket read error", exc_info=log.verbose)
            data = b""
        # Since 9.0 TLS sockets do not block, and None means "not yet". Their own code takes the end of the stream for
        # that too, and loops for ever.
        if data or (data is None and not transport.blocking and hasattr(transport, "send_queue")):
            return data
        log.debug("nothing received, raising ConnectionClosedException")
        raise stomp.exception.ConnectionClosedException
    return None


def _deliver(transport: Any, frame: Any) -> None:
    """Do what `process_frame` does for a MESSAGE."""
    for name in ("on_before_message", "on_message"):
        with transport._BaseTransport__listeners_change_condition:
            listeners = sorted(transport.listeners.items())
        for _, listener in listeners:
            notify = getattr(listener, name, None)
            if notify:
                notify(frame)


def _is_theirs(transport: Any, name: str) -> bool:
    """Return whether a method is that of stomp.py, not overridden."""
    return getattr(getattr(transport, name), "__func__", None) is _METHODS[name]


def _process(transport: Any, frame: Any, octets: bytes) -> None:
    transport.process_frame(frame, octets)


def deliver(transport: Any, frame: Any, octets: bytes) -> None:
    """Call `process_frame`, by a fast path for a MESSAGE if the method is not overridden."""
    quick = _is_theirs(transport, "process_frame") and _is_theirs(transport, "notify")
    if quick and frame.cmd == "MESSAGE" and not log.isEnabledFor(log.DEBUG):
        _deliver(transport, frame)
    else:
        _process(transport, frame, octets)


def reading(
    quirks: bool,
    receive: Callable[[Any], bytes | None] = receive_octets,
    choose: Callable[[Any], Callable[[Any, Any, bytes], None] | None] = lambda _transport: None,
) -> Callable[[Any], tuple[()]]:
    """Return a replacement for `BaseTransport.__read_frames`: receive, and call `process_frame`, in this thread.

    Before 9.0 it replaces `__read`, which returns frames to deliver: none, since they are delivered here. `receive`
    returns bytes, or None if there are none yet; `choose` returns what is called instead of `process_frame`, or None.
    """
    kind: Any = Reader if quirks else StrictReader

    def read_frames(self: Any) -> tuple[()]:
        socket = getattr(self, "socket", None)
        reader = self.__dict__.get("_stompcodec_reader")
        if type(reader) is not kind or reader.socket is not socket:
            self._stompcodec_reader = reader = kind(socket)
        encoding = "utf-8" if quirks else self._BaseTransport__encoding
        decodes = self._BaseTransport__auto_decode
        plain = _is_theirs(self, "process_frame")
        quiet = plain and _is_theirs(self, "notify") and not log.isEnabledFor(log.DEBUG)
        while (data := receive(self)) is not None:
            hand_over = choose(self)
            quick = quiet and hand_over is None
            if reader.idle and self._BaseTransport__is_eol(data):
                (hand_over or _process)(self, _transport.HEARTBEAT_FRAME, data)
                break
            for frame in reader.feed(data):
                if decodes and frame.body is not None:
                    frame.body = frame.body.decode(encoding, "replace")
                if quick and frame.cmd == "MESSAGE":
                    _deliver(self, frame)
                else:
                    if frame.cmd == "CONNECTED":
                        self._stompcodec_server = frame.headers.get("server")
                    octets = b"" if plain and frame.cmd in _COMMANDS else _raw(reader.last)
                    (hand_over or _process)(self, frame, octets)
            if b"\0" in data:
                break
        return ()

    return read_frames


def parse_frame(frame: bytes) -> Any:
    """Replace `stomp.utils.parse_frame`: read one frame, malformed ones by their rules; None for none."""
    parser = Parser("1.2")
    try:
        found = list(parser.feed(frame + b"\0"))
    except FrameError:
        found = []
    if len(found) != 1 or parser.buffered or found[0].command == "CONNECTED":
        return _their_parse_frame(frame)
    return _of(found[0])


def strict_parse_frame(frame: bytes) -> Any:
    """Replace `stomp.utils.parse_frame` by the rules of STOMP 1.2: read one frame; None for EOLs only."""
    if not frame.strip(b"\r\n"):
        return None
    parser = Parser("1.2")
    found = list(parser.feed(frame + b"\0"))
    parser.close()
    if len(found) > 1:
        raise FrameError("unexpected-nul", frame.find(b"\0"))
    return _of(found[0])


def strict_parse_headers(lines: list[str], offset: int = 0) -> dict[str, str]:
    """Replace `stomp.utils.parse_headers` by the rules of STOMP 1.2."""
    head = "".join(f"{line}\n" for line in ["MESSAGE", *lines[offset:]])
    (frame,) = Parser("1.2").feed(head.encode() + b"\n\0")
    return dict(frame.headers)


_encode: Any = stomp.utils.encode
_clean_lines: Any = stomp.utils.clean_lines
#: Their original function, which returns the pieces that they log.
_pieces: Callable[[Any], list[bytes]] = stomp.utils.convert_frame
_PASSCODE = b"passcode:"


def _pairs(frame: Any) -> list[tuple[str, Any]]:
    """Return headers as they are written: sorted, a tuple is a repeated header, None is left out."""
    pairs: list[tuple[str, Any]] = []
    for name, value in sorted(frame.headers.items()):
        if type(value) is tuple:
            pairs += [(name, one) for one in value]
        elif value is not None:
            pairs.append((name, value))
    return pairs


def _body(frame: Any) -> bytes:
    if not frame.body:
        return b""
    body: bytes = _encode(frame.body)
    if "content-length" in frame.headers:
        frame.headers["content-length"] = len(body)
    return body


def convert_frame(frame: Any) -> list[bytes]:
    """Replace `stomp.utils.convert_frame`: return the same bytes in one piece."""
    body = _body(frame)
    head = "".join([f"{name!s}:{value!s}\n" for name, value in _pairs(frame)])
    if not frame.cmd:
        return [_encode(head + "\n") + body]
    return [b"%b\n%b\n%b\0" % (_encode(frame.cmd), _encode(head), body)]


def strict_convert_frame(frame: Any) -> list[bytes]:
    """Replace `stomp.utils.convert_frame` for frames that can be read back.

    Raises:
        FrameError: a header would not be read back as the same one; text is not UTF-8; a body with NULs has no
            content-length, or content-length without a body is not 0.

    >>> strict_convert_frame(stomp.utils.Frame("SEND", {"destination": "/queue/a\\nadmin:yes"}, b""))
    Traceback (most recent call last):
    ...
    stompcodec.errors.FrameError: unencodable: the frame cannot be written in this STOMP version; header 'destination' \
contains a line feed (use a newer version, or leave the header or body out)
    """
    if not frame.cmd:
        return convert_frame(frame)
    body = frame.body.encode() if isinstance(frame.body, str) else frame.body or b""
    given = "content-length" in frame.headers
    if given and body:
        frame.headers["content-length"] = len(body)
    pairs = [(name, str(value)) for name, value in _pairs(frame)]
    # Values are already escaped: the rules of 1.0 add no escapes, and refuse what cannot be written.
    written = Frame(frame.cmd, pairs, body)
    return [serialize(written, "1.0", content_length="auto" if given else "never", commands=(frame.cmd,))]


def _shown(frame: Any) -> list[bytes]:
    """Return the pieces of a frame as stomp.py logs them, since programs search its log; without the passcode."""
    pieces = _pieces(frame)
    if frame.cmd in ("CONNECT", "STOMP"):
        return [_PASSCODE + b"********\n" if piece.startswith(_PASSCODE) else piece for piece in pieces]
    return pieces


def transmitting(
    convert: Callable[[Any], list[bytes]], connecting: Callable[[Any, Any], None] | None = None
) -> Callable[[Any, Any], None]:
    """Return a replacement for `BaseTransport.transmit`; `connecting` is called with CONNECT, before listeners."""

    def transmit(self: Any, frame: Any) -> None:
        if connecting is not None and frame.cmd in ("CONNECT", "STOMP"):
            connecting(self, frame)
        with self._BaseTransport__listeners_change_condition:
            listeners = sorted(self.listeners.items())
        for _, listener in listeners:
            try:
                listener.on_send(frame)
            except AttributeError:  # like theirs, even if it is raised inside of on_send
                continue
        if frame.cmd == "DISCONNECT" and "receipt" in frame.headers:
            self._BaseTransport__disconnect_receipt = frame.headers["receipt"]
        if frame.cmd == "NACK":
            warn_of_nack(getattr(self, "_stompcodec_server", None), log.warning)
        data = b"".join(convert(frame))
        if log.isEnabledFor(log.DEBUG):
            log.debug("sending frame: %s", _clean_lines(_shown(frame)))
        # Since 9.0 the I/O thread writes to TLS sockets.
        if getattr(self, "send_queue", None) is not None and not self.blocking:
            self.send_queue.put(data)
        else:
            self.send(data)

    return transmit
