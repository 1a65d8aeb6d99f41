r"""The codec in Python. It is the specification of the C backend, which must give the same answers.

A stream, in octets (LF 10, CR 13, NUL 0):

    stream  = *( EOL / frame )
    frame   = command EOL *( header EOL ) EOL body NUL
    header  = name ":" value               ; the first colon of the line separates
    body    = n octets when the first content-length says n, else all up to the first NUL
    EOL     = LF, in 1.2 and before negotiation also CR LF

Strict: a command is one of the version; a line has a name and a colon, is UTF-8 and holds only escapes of the version
(none in 1.0, in CONNECT and in CONNECTED); only SEND, MESSAGE and ERROR have a body (in 1.0 all may). CR is data where
it is no part of an EOL. Lines are measured on the wire, without their EOL.

Lenient, the closed list: undefined escapes keep their backslash; header lines without a colon or a name are passed over
(they still count); header octets that are no UTF-8 become lone surrogates; unknown commands and bodies on any frame are
passed on; NULs between frames are skipped; CR LF is an EOL in every version; spaces and tabs around the number of
content-length go; in 1.0 spaces around names and values go.

Legacy, the older worker dialect: spaces and CRs at a line's end go, and spaces before a value; commands and names in
any case; no octet below 32 in a value; a line of spaces and CRs is empty.

Scanning is as if octet by octet: the first violation wins, however the octets were cut, and its offset is counted from
the start of the stream. `Parser.__next__` reads a frame in a few searches when all of it is there and nothing about it
is rare. It may only skip work: what it is not sure of is read line by line by `Head`, then by `Body`, which find the
error.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from stompcodec._ends_py import frame_ends
from stompcodec._scan_py import SMALL, Body, Head, Known, Violation, line_end, rules_of
from stompcodec._serialize_py import serialize, serialize_many, serialize_parts, serialize_tail
from stompcodec.errors import FrameError, excerpt
from stompcodec.frame import END_OF_BODY, HEARTBEAT, Frame, Headers, Mark, octets, parsed_frame
from stompcodec.spec import Limits, checked_commands, checked_limits, dialect_of

__all__ = [
    "END_OF_BODY",
    "HEARTBEAT",
    "Frame",
    "Headers",
    "Parser",
    "frame_ends",
    "parse_columns",
    "serialize",
    "serialize_many",
    "serialize_parts",
    "serialize_tail",
]

_LF, _CR = 10, 13
_ROOM = 65536  # octets of the buffer that get_buffer gives
_AROUND = 24  # octets before and behind an error that its message shows
_SECRETS_SEEN = 65536  # octets of a head in which `excerpt` looks for secrets
_LINE_FEEDS = re.compile(rb"\n*")
_FEW = 64  # small chunks that may wait to be gathered
#: What `feed` returns when the octets are the middle of a line or a body: there is nothing to iterate over, and to ask
#: the parser would cost more than to take them in.
_NOTHING: Iterator[Any] = iter(())


class Parser:
    """Octets in, frames out: feed what came, and iterate.

    Args:
        version: "1.0", "1.1", "1.2", "legacy", or None: nothing negotiated yet.
        limits: sizes in octets that are accepted; None for the defaults of `Limits`.
        lenient: pass over what peers get wrong; the list is at the top of this module.
        heartbeats: hand out HEARTBEAT for every EOL between frames.
        commands: names of further commands, such as "PING".
        stream_over: bodies of more octets than this come as a frame whose body is None, then pieces, then END_OF_BODY.

    Raises:
        FrameError: while iterating, when the octets are no frames; the frames before that were handed out. The parser
            is dead then: it drops what is fed, and raises the same again.

    >>> parser = Parser("1.2")
    >>> list(parser.feed(b"SEND\\ndestination:/queue/a\\n\\nhel"))
    []
    >>> list(parser.feed(b"lo\\0"))
    [<Frame SEND destination='/queue/a' body=5 octets b'hello'>]
    >>> parser.close()
    """

    __slots__ = (
        *("_base", "_blank", "_buf", "_commands", "_counted", "_crlf", "_error", "_heartbeats", "_in_line", "_known"),
        *("_lenient", "_limits", "_more", "_part", "_pos", "_room", "_room_given", "_rules", "_skim"),
        *("_start", "_version", "_wants", "_whole_body"),
    )

    def __init__(
        self,
        version: str | None = None,
        *,
        limits: Limits | None = None,
        lenient: bool = False,
        heartbeats: bool = False,
        commands: Iterable[str] = (),
        stream_over: int | None = None,
    ) -> None:
        self._limits = limits = checked_limits(limits)
        self._lenient = bool(lenient)
        self._heartbeats = bool(heartbeats)
        self._commands = checked_commands(commands)
        if stream_over is not None and (type(stream_over) is not int or stream_over < 0):
            raise ValueError(f"stream_over is {stream_over!r}: it must be None or an int of 0 or more")
        # Larger bodies are refused or streamed.
        self._whole_body = limits.max_body if stream_over is None else min(limits.max_body, stream_over)
        self._buf: Any = b""  # a bytearray only while `_part` is a `Head`
        self._pos = 0  # where the frame, the gap or the rest of the body begins in `_buf`
        self._base = 0  # stream offset of `_buf[0]`
        self._start = 0  # where the last frame began, counted from `_buf[0]`
        self._blank = -1  # a known position of LF LF in `_buf`; its length where there is none
        self._more: deque[bytes] = deque()  # octets that were fed and not looked at
        # Octets that may come without an event, in the middle of a line or a body; -1: there is something to look at.
        self._wants = -1
        self._in_line = False  # those octets must hold no LF
        self._counted = False  # they may hold NULs
        self._part: Head | Body | None = None
        self._error: tuple[str, int, str | None, bytes] | None = None
        self._room: bytearray | None = None
        self._room_given = False
        self.version = version

    def __init_subclass__(cls) -> None:
        raise TypeError("Parser cannot be subclassed")

    def __reduce_ex__(self, protocol: object) -> str:
        raise TypeError("a Parser cannot be copied or pickled: it belongs to one connection")

    @property
    def version(self) -> str | None:
        """The version as given. Setting it holds from the next frame on; ValueError where there is none such."""
        return self._version

    @version.setter
    def version(self, version: str | None) -> None:
        dialect_of(version)
        self._rules = rules_of(version, self._lenient, self._limits, self._commands)
        self._known = self._rules.known
        self._skim = self._rules.skim
        self._crlf = self._rules.dialect.crlf
        self._version = version
        self._wake()  # what waits in a gap may be a frame now

    @property
    def buffered(self) -> int:
        """Octets that were taken in and not handed out yet: what was not iterated, and the part of a frame."""
        part = self._part
        if not isinstance(part, Body):
            return self._end() - self._base - self._pos
        if part.streams:
            return self._end() - self._base - self._pos + sum(map(len, part.chunks))
        return self._end() - part.start

    def _end(self) -> int:
        return self._base + len(self._buf) + sum(map(len, self._more))

    def _span(self) -> tuple[int, int]:
        """Stream offsets of the last frame: its first octet, and behind its NUL. Or where the broken frame begins."""
        return self._base + self._start, self._base + self._pos

    def feed(self, data: Any) -> Iterator[Any]:
        """Take in octets.

        Args:
            data: any contiguous bytes-like object. It may be changed afterwards.

        Returns:
            An iterator over what is whole now; each step scans one frame. What is not iterated stays for the next time.
        """
        if type(data) is not bytes:
            data = octets(data)
        self._room_given = False
        size = len(data)
        if (
            0 < size <= self._wants
            and (self._counted or b"\0" not in data)
            and not (self._in_line and b"\n" in data)
            and (size >= SMALL or len(self._more) < _FEW)
        ):
            self._wants -= size
            self._more.append(data)
            return _NOTHING
        self._wake()
        if self._error is None:
            self._more.append(data)
        return self

    def _rest(self) -> None:
        """All that is here was looked at. Note what may come without an event."""
        self._forget()
        part = self._part
        self._in_line = isinstance(part, Head)
        self._counted = isinstance(part, Body) and part.length >= 0
        if isinstance(part, Head):
            self._wants = part.room(len(self._buf))
        else:
            self._wants = 0 if part is None else part.room()

    def _wake(self) -> None:
        """Go on. What was fed since `_rest` belongs to the body that is pending, or to the line."""
        if self._more and self._wants >= 0 and isinstance(self._part, Body):
            self._base += self._part.add(self._more)
            self._more.clear()
        self._wants = -1

    def get_buffer(self, hint: int = -1) -> memoryview:
        """Room to read octets into, as `asyncio.BufferedProtocol` wants it. Then call `buffer_updated`."""
        if self._room is None:
            self._room = bytearray(_ROOM)
        self._room_given = True
        return memoryview(self._room)

    def buffer_updated(self, n: int) -> Iterator[Any]:
        """Take in the first `n` octets of the room. Returns what `feed` returns.

        Raises:
            RuntimeError: `get_buffer` was not called, or `feed` was called since.
            ValueError: there is less room than `n`.
        """
        if not self._room_given or self._room is None:
            raise RuntimeError("buffer_updated() without get_buffer(), or after feed()")
        if not 0 <= n <= _ROOM:
            raise ValueError(f"n is {n}: the buffer has {_ROOM} octets")
        return self.feed(memoryview(self._room)[:n])

    def close(self) -> None:
        """Say that the stream has ended. Iterate over what was fed first.

        Raises:
            FrameError: "truncated", when the stream ended inside a frame, or the error that the parser died of.
        """
        if self._error is not None:
            raise _error_again(*self._error)
        if self._part is not None or self.buffered:
            self._die("truncated", self._end(), None, b"")

    def __iter__(self) -> Parser:
        return self

    def __next__(self) -> Any:
        """The quick way: the frame that begins here, if all of it is here and nothing is rare. Else `_step` goes on."""
        if self._part is not None:
            return self._step()
        buf = self._buf
        start = self._pos
        eol = buf.find(b"\n", start)
        known = self._known.get(buf[start:eol])
        if known is None or eol < 0:
            return self._step()
        end = self._blank
        if end < eol:
            end = buf.find(b"\n\n", eol)
            self._blank = end = end if end >= 0 else len(buf)
        body = end + 2
        crs = self._crlf and buf.find(b"\r", eol, end) >= 0
        if crs:
            blank = buf.find(b"\n\r\n", eol, end + 1)
            if blank >= 0:
                end = blank
                body = end + 3
        if body > len(buf):
            return self._step()
        try:
            lines = buf[eol : end + 1].decode()
        except UnicodeDecodeError:
            return self._step()
        if crs:
            lines = lines.replace("\r\n", "\n")
        length = self._skim(lines, end - eol, 0, known)
        if length is None:
            return self._step()
        stop = buf.find(b"\0", body) if length < 0 else body + length
        if 0 <= stop < len(buf) and not buf[stop] and stop - body <= self._whole_body and (known[1] or stop == body):
            self._start = start
            self._pos = stop + 1
            return parsed_frame(known[0], lines, known[2], buf[body:stop])
        self._begin_body(known, lines, length, body)
        return self._step()

    def _step(self) -> Any:
        """Go on in gaps, in parts of frames, and where something is wrong."""
        if self._error is not None:
            raise _error_again(*self._error)
        if self._wants >= 0:
            raise StopIteration
        tried = self._pos  # the quick way
        while True:
            part = self._part
            event = None
            try:
                if isinstance(part, Body):
                    event = self._body_step(part)
                elif isinstance(part, Head):
                    self._head_step(part)
                else:
                    found = self._gap_step()
                    if found is HEARTBEAT:
                        return found
                    if found and self._pos != tried:
                        return self.__next__()
                    if found:
                        self._part = Head(self._rules)
            except Violation as violation:
                self._break(violation)
            if event is not None:
                return event
            if self._part is part:  # more octets are needed
                if not self._more:
                    self._rest()
                    raise StopIteration
                self._merge()
                tried = -1

    def _merge(self) -> None:
        """Put what was fed behind what is left. A body takes its chunks one by one instead."""
        data = self._more.popleft() if len(self._more) == 1 else b"".join(self._more)
        self._more.clear()
        self._forget()
        rest = self._buf
        if type(rest) is bytes and (self._part is None or len(rest) <= 4 * len(data)):
            self._buf = rest + data
        else:  # a peer that dribbles: octets are added without copying the head that is here, until it is whole
            self._buf = rest if type(rest) is bytearray else bytearray(rest)
            self._buf += data

    def _forget(self) -> None:
        """Drop the octets that were used."""
        if self._pos:
            self._buf = self._buf[self._pos :]
            self._base += self._pos
            self._start -= self._pos
            self._pos = 0
        self._blank = -1

    def _gap_step(self) -> Mark | bool:
        """Skip what stands between frames. True where a frame begins; HEARTBEAT for an EOL, if they are wanted."""
        buf, dialect = self._buf, self._rules.dialect
        while self._pos < len(buf):
            at = self._pos
            octet = buf[at]
            if octet == 0 and dialect.skips_nul:
                self._pos = at + 1
                continue
            if octet == _LF:
                self._pos = at + 1 if self._heartbeats else _LINE_FEEDS.match(buf, at).end()  # type: ignore[union-attr]
            elif octet == 0:
                raise Violation("unexpected-nul", at)
            elif dialect.trims_lines and octet in b" \r":
                end = line_end(buf, at, at, dialect, self._limits.max_command_line, "max_command_line")
                if end < 0:  # more than spaces and CRs is no EOL, whatever follows
                    return bool(buf[at:].strip(b" \r"))
                if buf[at:end].strip(b" \r"):
                    return True
                self._pos = end + 1
            elif octet == _CR and dialect.crlf:
                if at + 1 == len(buf):
                    return False
                if buf[at + 1] != _LF:
                    return True
                self._pos = at + 2
            else:
                return True
            if self._heartbeats:
                return HEARTBEAT
        return False

    def _head_step(self, head: Head) -> None:
        body = head.read(self._buf, self._pos)
        if body >= 0:
            self._buf = bytes(self._buf)
            self._begin_body(head.known, "".join(head.lines), head.length, body)

    def _begin_body(self, known: Known, lines: str, length: int, at: int) -> None:
        self._part = Body(known, lines, length, self._base + self._pos, self._limits, self._whole_body)
        self._pos = at

    def _body_step(self, body: Body) -> Frame | bytes | Mark | None:
        """Go on with a body, chunk by chunk: nothing is copied until it is whole."""
        while True:
            event = body.read(self._buf, self._pos)
            self._pos = body.at
            if event is END_OF_BODY or (isinstance(event, Frame) and not body.streams):
                self._part = None
                self._start = body.start - self._base
            if event is not None or not self._more:
                return event
            self._base += self._pos
            self._buf, self._pos, self._blank = self._more.popleft(), 0, -1

    def _break(self, violation: Violation) -> NoReturn:
        """Die of what was found."""
        part, buf, at = self._part, self._buf, violation.at
        self._start = self._pos
        if isinstance(part, Body):
            self._start = part.start - self._base
            near = bytes(buf[max(at - _AROUND, 0) : at + _AROUND])
            # The body may quote what the head keeps secret, so both decide.
            near = near if excerpt(part.head() + near, 0) else b""
        else:
            within = at - self._pos
            near = excerpt(bytes(buf[self._pos : self._pos + _SECRETS_SEEN]), within) if within < _SECRETS_SEEN else b""
        self._die(violation.kind, self._base + at, violation.limit, near)

    def _die(self, kind: str, offset: int, limit: str | None, near: bytes) -> NoReturn:
        """Raise an error, now and ever after."""
        self._error = kind, offset, limit, near
        self._part = None
        self._buf, self._pos, self._blank, self._wants = b"", 0, -1, -1
        self._more.clear()
        raise _error_again(*self._error) from None


def _error_again(kind: str, offset: int, limit: str | None, near: bytes) -> FrameError:
    return FrameError(kind, offset, limit=limit, near=near)


def parse_columns(
    data: Any,
    version: str | None = "1.2",
    names: Iterable[str] | None = None,
    *,
    limits: Limits | None = None,
    lenient: bool = False,
    commands: Iterable[str] = (),
    columns: Iterable[str] | None = None,
    where: Iterable[tuple[str, str, Iterable[str]]] = (),
    repeats: bool = True,
) -> Any:
    """Many frames as Arrow columns, through the Arrow C data interface. See `stompcodec.columns`."""
    from stompcodec.columns import columns_of

    parser = Parser(version, limits=limits, lenient=lenient, commands=commands)
    return columns_of(parser, data, names, lenient, columns, where, repeats)
