r"""The codec in Python. It specifies the C backend: the same frames, errors and offsets.

The grammar of a stream of octets (LF 10, CR 13, NUL 0):

    stream  = *( EOL / frame )
    frame   = command EOL *( header EOL ) EOL body NUL
    header  = name ":" value               ; the first colon of the line separates
    body    = n octets when the first content-length says n, else all up to the first NUL
    EOL     = LF, in 1.2 and before negotiation also CR LF

Strict: the version has the command; a line has a name and a colon, is UTF-8 and contains only escapes of the version
(none in 1.0, in CONNECT and in CONNECTED); only SEND, MESSAGE and ERROR have a body (in 1.0 any frame may). A CR that
is not part of an EOL is data. Lines are measured on the wire, without their EOL.

Lenient, the complete list: undefined escapes keep their backslash; header lines without a colon or a name are skipped
(but counted); header bytes that are not UTF-8 become lone surrogates; unknown commands and bodies on any frame are
accepted; NULs between frames are skipped; CR LF is an EOL in every version; spaces and tabs around the number of
content-length are stripped; in 1.0 spaces around names and values are stripped; a content-length that counts the NUL,
or the characters of a text, is taken for that if no NUL is where it should be; that of any other frame than SEND,
MESSAGE and ERROR is ignored if the NUL follows the head at once. After a length that was wrong, an EOL or a capital
letter has to follow, or nothing yet.

As a server reads: the content-length of frames without a body as above; before negotiation, undefined escapes in login,
passcode and client-id keep their backslash. Nothing else.

Legacy, the older worker dialect: spaces and CRs at line ends are stripped, and spaces before a value; commands and
names may be in any case; values contain no byte below 32; a line of spaces and CRs is empty.

Scanning behaves as if it went byte by byte: the first violation is reported, however the stream was cut into chunks,
and its offset is counted from the start of the stream. `Parser._next` reads a frame in a few searches if it is complete
and has nothing unusual: the fast path. While a head is incomplete, `Lines` checks each line when it is complete; if a
small body follows, the frame is made from what `Lines` found. Invariant: both only skip work. Frames that they do not
read are read line by line by `Head`, then by `Body`, which find the error.

What is written is canonical: LF line ends, headers in the given order, no EOL after the NUL. A frame that the version
cannot represent is refused, not repaired, so that no header can forge another.
"""

from __future__ import annotations

import re
import string
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from stompcodec._scan_py import (
    SMALL,
    Body,
    Head,
    Known,
    Lines,
    Violation,
    frame_ends,
    line_end,
    read_websocket,
    rules_of,
    write_websocket,
)
from stompcodec.errors import NEAR, FrameError, excerpt, refusal, tell_of_length
from stompcodec.frame import END_OF_BODY, HEARTBEAT, Frame, Headers, Mark, octets, parsed_frame
from stompcodec.spec import (
    UNESCAPED,
    VERSIONS,
    WITH_BODY,
    Dialect,
    Limits,
    Where,
    checked_commands,
    checked_flag,
    checked_leniency,
    checked_limits,
    checked_names,
    dialect_of,
)

if TYPE_CHECKING:
    from stompcodec.columns import Columns

__all__ = [
    "END_OF_BODY",
    "HEARTBEAT",
    "Frame",
    "Headers",
    "Parser",
    "frame_ends",
    "parse_columns",
    "read_websocket",
    "serialize",
    "serialize_many",
    "serialize_parts",
    "serialize_tail",
    "write_websocket",
]

_LF, _CR, _SPACE = 10, 13, 32
_ROOM = 65536  # bytes of the buffer that get_buffer returns
_SECRETS_SEEN = 65536  # bytes of a head in which `excerpt` looks for secrets
_LINE_FEEDS = re.compile(rb"\n*")
_EOL = b"\n"
_FEW = 256  # small chunks that are kept before they are joined
#: Returned by `feed` for the middle of a line or a body, where iterating over the parser would cost more than taking in
#: the bytes.
_NOTHING: Iterator[Any] = iter(())


class Parser:
    """A parser of one stream: feed it bytes, and iterate over the frames.

    Args:
        version: "1.0", "1.1", "1.2", "legacy", or None before negotiation.
        limits: the largest sizes to accept, in bytes; None for the defaults of `Limits`.
        lenient: True to tolerate common mistakes of peers, "server" what a server should. docs/codec.md lists them.
        heartbeats: whether to yield HEARTBEAT for each EOL between frames.
        commands: names of further commands, such as "PING".
        stream_over: larger bodies, in bytes, are streamed: a frame whose body is None, then pieces, then END_OF_BODY.

    Raises:
        TypeError, ValueError: an argument has another type, or is out of range.
        FrameError: while iterating, at malformed data, after the frames before it. The parser then ignores further
            data, and raises the same error again.

    >>> parser = Parser("1.2")
    >>> list(parser.feed(b"SEND\\ndestination:/queue/a\\n\\nhel"))
    []
    >>> list(parser.feed(b"lo\\0"))
    [<Frame SEND destination='/queue/a' body=5 bytes b'hello'>]
    >>> parser.close()
    """

    __slots__ = (
        *("_base", "_blank", "_buf", "_commands", "_counted", "_crlf", "_error", "_failed", "_heartbeats", "_in_line"),
        *(
            "_known",
            "_lenient",
            "_limits",
            "_lines",
            "_mended",
            "_more",
            "_part",
            "_pos",
            "_room",
            "_room_given",
            "_rules",
        ),
        *("_skim", "_start", "_version", "_wants", "_whole_body"),
    )

    def __init__(
        self,
        version: str | None = None,
        *,
        limits: Limits | None = None,
        lenient: bool | str = False,
        heartbeats: bool = False,
        commands: Iterable[str] = (),
        stream_over: int | None = None,
    ) -> None:
        self._limits = limits = checked_limits(limits)
        self._lenient = checked_leniency(lenient)
        self._mended = -1  # the stream offset behind the last frame with a wrong content-length
        self._heartbeats = checked_flag("heartbeats", heartbeats)
        self._commands = checked_commands(commands)
        if stream_over is not None and (type(stream_over) is not int or stream_over < 0):
            raise ValueError(f"stream_over is {stream_over!r}: it must be None or an int of 0 or more")
        # Larger bodies are an error, or are streamed.
        self._whole_body = limits.max_body if stream_over is None else min(limits.max_body, stream_over)
        self._buf: Any = b""  # a bytearray only while `_part` is a `Head` or `Lines`
        self._pos = 0  # index in `_buf` of the frame, the gap or the rest of the body
        self._base = 0  # stream offset of `_buf[0]`
        self._start = 0  # index of the last frame's first byte, from `_buf[0]`
        self._blank = -1  # a known index of LF LF in `_buf`; its length if there is none
        self._more: deque[bytes] = deque()  # chunks that were fed and not read
        # Bytes that can follow, in the middle of a line or a body, without an event; -1: there are chunks to read.
        self._wants = -1
        self._in_line = False  # those bytes must not contain an LF
        self._counted = False  # they may contain NULs
        self._part: Head | Lines | Body | None = None
        self._error: tuple[str, int, str | None, bytes] | None = None
        self._failed: tuple[Frame | None, bytes, int] | None = None
        self._room: bytearray | None = None
        self._room_given = False
        self.version = version

    def __init_subclass__(cls) -> None:
        raise TypeError("Parser cannot be subclassed")

    def __reduce_ex__(self, protocol: object) -> str:
        raise TypeError("a Parser cannot be copied or pickled: it belongs to one connection")

    @property
    def version(self) -> str | None:
        """The version, as it was given. Setting it takes effect with the next frame; an unknown one is a ValueError."""
        return self._version

    @version.setter
    def version(self, version: str | None) -> None:
        dialect_of(version)
        self._rules = rules_of(version, self._lenient, self._limits, self._commands)
        self._known = self._rules.known
        self._skim = self._rules.skim
        self._lines = Lines(self._rules, self._whole_body)  # it becomes `_part` again and again
        self._crlf = self._rules.dialect.crlf
        self._version = version
        self._wake()  # bytes in a gap may be a frame now

    @property
    def buffered(self) -> int:
        """Bytes that were fed and not handed out: frames that were not iterated, and the last, incomplete frame."""
        part = self._part
        if not isinstance(part, Body):
            return self._end() - self._base - self._pos
        if part.streams:
            return self._end() - self._base - self._pos + sum(map(len, part.chunks))
        return self._end() - part.start

    @property
    def failed(self) -> tuple[Frame | None, bytes, int] | None:
        """What was not read because of a malformed frame, up to the next `feed`; else None, also if the stream ended.

        It is `(frame, octets, at)`: the frame if its head was read, with the body None, else None; then the bytes from
        its body on, or else from its first byte on, with all that was fed behind them and without pieces that were
        handed out; and the index of the fault in them.
        """
        return self._failed

    def _end(self) -> int:
        return self._base + len(self._buf) + sum(map(len, self._more))

    def _span(self) -> tuple[int, int]:
        """Return the stream offsets of the last frame, [first byte, after its NUL), or of a bad frame's first byte."""
        return self._base + self._start, self._base + self._pos

    def feed(self, data: Any) -> Iterator[Any]:
        """Take in bytes and return an iterator over the frames that are complete.

        Each step parses one frame. Frames that are not iterated stay for the next call.

        Args:
            data: any contiguous bytes-like object. It may be changed afterwards.
        """
        if type(data) is not bytes:
            data = octets(data)
        self._room_given = False
        wants = self._wants - len(data)
        if (
            wants >= 0
            # Searching for an int takes a tenth of the time that searching for a byte string takes.
            and (self._counted or 0 not in data)
            and (not self._in_line or _LF not in data)
            and (len(self._more) < _FEW or len(data) >= SMALL)
        ):
            self._wants = wants
            self._more.append(data)
            return _NOTHING
        if self._part is None:
            # Without a NUL, no frame ends in it. In large reads a head often does, which the fast path reads at once.
            if 0 not in data and data != _EOL and len(data) <= SMALL and self._takes_first(data):
                return _NOTHING
        elif self._part is not self._lines:
            self._wake()
        elif self._in_line:
            return _NOTHING if self._lines_step(data) else self
        self._wants = -1
        if self._error is None:
            self._more.append(data)
        else:
            self._failed = None
        return self

    def _takes_first(self, data: bytes) -> bool:
        """Take in the first bytes of a frame, and return True; False if something is unusual."""
        if self._more or self._pos != len(self._buf) or self._error is not None or self._follows_mended():
            return False
        if not data or data[0] <= _SPACE or not self._known:
            return False
        if not self._waits(self._lines.begin(data, 0, None)):
            return False
        if self._pos:
            self._forget()
        self._buf = data
        return True

    def _follows_mended(self) -> bool:
        """Return whether nothing was read since a frame with a wrong content-length."""
        return self._base + self._pos == self._mended

    def _waits(self, wants: int) -> bool:
        """Note what `_lines` says, and return True; False if something is unusual."""
        if wants < 0:
            return False
        lines = self._lines
        self._part, self._wants = lines, wants
        self._in_line = lines.body < 0
        self._counted = lines.body >= 0 and lines.length >= 0
        return True

    def _rest(self) -> None:
        """Note how many bytes can follow without an event, now that all chunks are read."""
        self._forget()
        part = self._part
        if isinstance(part, Body):
            self._wants = part.room()
            self._counted = part.length >= 0
            self._in_line = False
        else:
            self._wants = part.room(len(self._buf)) if isinstance(part, Head) else 0
            self._counted = False
            self._in_line = part is not None

    def _wake(self) -> None:
        """Continue after `_rest`: the chunks that were fed since then belong to the pending body or line."""
        if isinstance(self._part, Lines):  # the version was set: the frame keeps the one that it began with
            self._part = Head(self._part.rules)
        elif self._more and self._wants >= 0 and isinstance(self._part, Body):
            self._base += self._part.add(self._more)
            self._more.clear()
        self._wants = -1

    def get_buffer(self, hint: int = -1) -> memoryview:
        """Return a buffer to read into, as `asyncio.BufferedProtocol` does. Call `buffer_updated` afterwards."""
        if self._room is None:
            self._room = bytearray(_ROOM)
        self._room_given = True
        return memoryview(self._room)

    def buffer_updated(self, n: int) -> Iterator[Any]:
        """Take in the first `n` bytes of the buffer, and return an iterator as `feed` does.

        Raises:
            RuntimeError: `get_buffer` was not called, or `feed` was called since.
            ValueError: the buffer is smaller than `n` bytes.
        """
        n = index(n)
        if not self._room_given or self._room is None:
            raise RuntimeError("buffer_updated() without get_buffer(), or after feed()")
        if not 0 <= n <= _ROOM:
            raise ValueError(f"n is {n}: the buffer has {_ROOM} bytes")
        return self.feed(memoryview(self._room)[:n])

    def close(self) -> None:
        """Mark the end of the stream. Iterate over all frames first.

        Raises:
            FrameError: "truncated" if the stream ended inside a frame; or the error that iterating raised before.
        """
        if self._error is not None:
            raise _error_again(*self._error)
        if self._part is not None or self.buffered:
            self._die("truncated", self._end(), None, b"")

    def __iter__(self) -> Parser:
        return self

    def __next__(self) -> Any:
        event = self._next()
        if event is None:
            raise StopIteration
        return event

    def _next(self) -> Any:
        """Return the next event, or None; by the fast path if it is a whole frame that has nothing unusual."""
        if self._part is not None:
            return self._small_body() if self._part is self._lines else self._step()
        buf = self._buf
        start = self._pos
        if start == len(buf):
            if not self._next_chunk():
                return None
            buf, start = self._buf, 0
        eol = buf.find(b"\n", start)
        if eol < 0:
            return self._begin_lines(start, None)
        known = self._known.get(buf[start:eol])
        if known is None:
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
            return self._begin_lines(eol + 1, known)
        try:
            lines = buf[eol : end + 1].decode()
        except UnicodeDecodeError:
            return self._step()
        if crs:
            lines = lines.replace("\r\n", "\n")
        length = self._skim(lines, end - eol, 0, known)
        if length is None:
            return self._step()
        stop = body + length if length >= 0 else buf.find(b"\0", body) if known[1] else body
        if 0 <= stop < len(buf) and not buf[stop] and stop - body <= self._whole_body:
            self._start = start
            self._pos = stop + 1
            return parsed_frame(known[0], lines, known[2], buf[body:stop])
        part = self._begin_body(known, lines, length, body)
        if 0 <= stop < len(buf) or self._more or not part.waits(buf):
            return self._step()
        self._pos = len(buf)
        self._rest()
        return None

    def _begin_lines(self, line: int, known: Known | None) -> Any:
        """Wait for the rest of the head at `_pos`, unless something is unusual; then call `_step`.

        Its command was read up to `line`; None if the command line is incomplete.
        """
        buf, at = self._buf, self._pos
        if at < len(buf) and not self._more and buf[at] > _SPACE and self._known and not self._follows_mended():
            if at:
                self._forget()
                buf = self._buf
            if 0 not in buf and self._waits(self._lines.begin(buf, line - at, known)):
                self._blank = -1
                return None
        return self._step()

    def _lines_step(self, data: bytes) -> bool:
        """Take in bytes that `_wants` excludes. Return True if the frame needs more and has nothing unusual."""
        more, lines = self._more, self._lines
        if more:
            more.append(data)
            data = b"".join(more)
            more.clear()
        if len(self._buf) > SMALL and type(self._buf) is bytes:
            self._buf = bytearray(self._buf)  # bytes can be appended without a copy of the rest
        self._buf += data
        if 0 in data:
            self._part = None  # for the fast path: this may be the frame's end
        else:
            self._wants = lines.read(self._buf)
            if self._wants >= 0:
                if lines.body >= 0:
                    self._in_line, self._counted = False, lines.length >= 0
                return True
            self._part = Head(lines.rules) if lines.body < 0 else None
        if type(self._buf) is bytearray:
            self._buf = bytes(self._buf)
        self._wants = -1
        return False

    def _small_body(self) -> Any:
        """Return the frame whose head was read by `_lines`, if it is complete."""
        if self._wants >= 0:
            return None
        self._part = None
        self._buf = buf = b"".join((self._buf, *self._more))
        self._more.clear()
        lines = self._lines
        known, length, body = lines.known, lines.length, lines.body
        stop = body + length if length >= 0 else buf.find(b"\0", body) if known and known[1] else body
        if known and 0 <= stop < len(buf) and not buf[stop] and stop - body <= self._whole_body:
            self._start, self._pos = 0, stop + 1
            return parsed_frame(known[0], lines.text(buf), known[2], buf[body:stop])
        return self._next()

    def _step(self) -> Any:
        """Return the next event by the exact path: gaps, parts of frames, errors."""
        if self._error is not None:
            raise _error_again(*self._error)
        if self._wants >= 0:
            return None
        tried = self._pos  # by the fast path
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
                        return self._next()
                    if found:
                        self._part = Head(self._rules)
            except Violation as violation:
                self._break(violation)
            if event is not None:
                return event
            if self._part is part:  # more bytes are needed
                if not self._more:
                    self._rest()
                    return None
                self._merge()
                tried = -1

    def _next_chunk(self) -> bool:
        """Go on to what was fed behind the last frame. Return False if that is nothing, or an EOL to skip."""
        if self._error is not None:
            raise _error_again(*self._error)
        if self._more:
            self._merge()
            if self._buf != _EOL or self._heartbeats:
                return True
        self._pos = len(self._buf)
        self._forget()
        self._wants = 0
        self._in_line = self._counted = False
        return False

    def _merge(self) -> None:
        """Append the chunks to the unread rest. A body takes its chunks one by one instead."""
        data = self._more.popleft() if len(self._more) == 1 else b"".join(self._more)
        self._more.clear()
        self._forget()
        rest = self._buf
        if type(rest) is bytes and (self._part is None or len(rest) <= 4 * len(data)):
            self._buf = rest + data
        else:  # a slow peer: append without copying the incomplete head each time
            self._buf = rest if type(rest) is bytearray else bytearray(rest)
            self._buf += data

    def _forget(self) -> None:
        """Drop the bytes that were read."""
        if at := self._pos:
            self._buf = self._buf[at:]
            self._base += at
            self._start -= at
            self._pos = 0
        self._blank = -1

    def _gap_step(self) -> Mark | bool:
        """Skip the gap between frames. Return True at a frame, False at the end, HEARTBEAT for a reported EOL."""
        buf, dialect = self._buf, self._rules.dialect
        if self._follows_mended() and self._pos < len(buf):
            first = bytes(buf[self._pos : self._pos + 1])
            if not (first in b"\r\n" or first.isupper() or (dialect.folds_case and first.isalpha())):
                raise Violation("missing-null", self._pos)
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
                if end < 0:  # a line with other bytes begins a frame
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
            self._begin_body(head.known, "".join(head.lines), head.length, body, head.idle)

    def _begin_body(self, known: Known, lines: str, length: int, at: int, idle: int = 0) -> Body:
        self._part = part = Body(known, lines, length, self._base + self._pos, self._rules, self._whole_body, idle)
        self._pos = part.at = at
        return part

    def _body_step(self, body: Body) -> Frame | bytes | Mark | None:
        """Continue a body, chunk by chunk. Chunks are joined once, when it is complete."""
        while True:
            event = body.read(self._buf, self._pos)
            self._pos = body.at
            if event is None and self._pos < len(self._buf):  # its content-length was wrong
                continue
            if event is None and not self._more:
                event = body.early()
            if body.mended:
                if self._mended < 0:
                    tell_of_length()
                self._mended = self._base + self._pos
            if event is END_OF_BODY or (isinstance(event, Frame) and not body.streams):
                self._part = None
                self._start = body.start - self._base
            if event is not None or not self._more:
                return event
            self._base += self._pos
            self._buf, self._pos, self._blank = self._more.popleft(), 0, -1

    def _break(self, violation: Violation) -> NoReturn:
        """Raise the error for a violation, and keep it."""
        part, buf, at = self._part, self._buf, violation.at
        self._start = self._pos
        octets = b"".join((buf[self._pos :], *self._more))
        self._failed = None, octets, at - self._pos
        if isinstance(part, Body):
            self._start = part.start - self._base
            kept = b"".join(part.chunks)
            self._failed = part.frame(None), kept + octets, len(kept) + at - self._pos
            near = bytes(buf[max(at - NEAR, 0) : max(at, 0) + NEAR])
            # The body may repeat a secret of the head, so both are searched.
            near = near if excerpt(part.head() + near, 0) else b""
        else:
            within = at - self._pos
            near = excerpt(bytes(buf[self._pos : self._pos + _SECRETS_SEEN]), within) if within < _SECRETS_SEEN else b""
        self._die(violation.kind, self._base + at, violation.limit, near)

    def _die(self, kind: str, offset: int, limit: str | None, near: bytes) -> NoReturn:
        """Raise an error, now and in each later call."""
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
    lenient: bool | str = False,
    commands: Iterable[str] = (),
    columns: Iterable[str] | None = None,
    where: Where = (),
    repeats: bool = True,
) -> Columns:
    """Read whole frames into Arrow columns.

    Args:
        data: any contiguous bytes-like object. At most 2**31 - 1 bytes are read; pass the data from `.consumed` on
            again.
        version: "1.0", "1.1", "1.2", "legacy", or None before negotiation.
        names: headers that get a column of their own.
        limits, lenient, commands: as for `Parser`.
        columns: some of "command", "headers", "body", "offset", "length" and "error"; None for all.
        where: conditions that a frame must all meet to become a row: (name, "in", values) or (name, "prefix", values).
            The name is that of a header, whose first entry counts, or "command".
        repeats: whether the column of headers has repeated entries; False keeps the first of each name.

    Raises:
        TypeError, ValueError: an argument has another type, or is unknown. Malformed data does not raise: it becomes
            the last row, whose column "error" has the kind.

    >>> parse_columns(b"SEND\\n\\nhi\\0SEND\\n", names=["destination"]).rows
    1
    """
    from stompcodec.columns import columns_of

    parser = Parser(version, limits=limits, lenient=lenient, commands=commands)
    return columns_of(parser, data, names, checked_leniency(lenient) is True, columns, where, repeats)


# ---- writing ----
#: Bodies of at least this many bytes are a part of their own, and are not copied.
_OWN_PART = 8192
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_UPPER = str.maketrans(string.ascii_lowercase, string.ascii_uppercase)
_CONTROL = re.compile("[\0-\x1f]")
#: The error handler of UTF-8, strict and lenient.
_ERRORS = ("strict", "surrogateescape")
_CONTENT_LENGTH_MODES = ("auto", "always", "never")
Length = Literal["auto", "always", "never"]


#: By version and command: may its frames have a body; the dialect, if their headers are escaped. `_quickly` uses it.
_USUAL: dict[str | None, dict[str, tuple[bool, Dialect | None]]] = {
    version: {
        command: (
            dialect.any_body or command in WITH_BODY,
            dialect if dialect.escapes and command not in UNESCAPED else None,
        )
        for command in dialect.commands
    }
    for version, dialect in ((version, dialect_of(version)) for version in (*VERSIONS, None))
}


def serialize(
    frame: Frame,
    version: str | None = "1.2",
    *,
    content_length: Length = "auto",
    lenient: bool = False,
    commands: Iterable[str] = (),
) -> bytes:
    """Return a frame as bytes.

    Args:
        frame: the frame to write.
        version: "1.0", "1.1", "1.2", "legacy", or None before negotiation.
        content_length: "auto" adds the header at the end if the frame has a body and no such header; "always" adds it
            to frames without a body too; "never" leaves it out, even if the frame has it.
        lenient: whether lone surrogates are written as the bytes they stand for.
        commands: names of further commands, such as "PING".

    Raises:
        FrameError: the version cannot represent the frame ("unencodable", "unknown-command", "body-not-allowed"), or
            its content-length is wrong ("bad-content-length").
        TypeError: `frame` is not a Frame of this backend, or its body was streamed.

    >>> serialize(Frame("SEND", {"destination": "/queue/a"}, b"hello"))
    b'SEND\\ndestination:/queue/a\\ncontent-length:5\\n\\nhello\\x00'
    """
    if content_length == "auto" and commands == () and type(lenient) is bool:
        octets = _quickly(frame, version)
        if octets is not None:
            return octets
    head = _head(frame, *_checked(version, content_length, lenient, commands))
    return b"".join((head, frame.body, b"\0"))


def _quickly(frame: Frame, version: str | None) -> bytes | None:
    """Return a frame as bytes if nothing about it is unusual, else None. It only skips work: `_head` does the same."""
    if type(frame) is not Frame:
        return None
    command, body, headers = frame._command, frame._body, frame._headers
    try:
        takes_body, dialect = _USUAL[version][command]
    except (KeyError, TypeError):
        return None
    if headers is None:
        headers = frame.headers
    if body is None or headers._repeats is not None or "" in headers:
        return None
    # A NUL stands for the colon until the colons in names and values are escaped.
    text = "".join([f"{name}\0{value}\n" for name, value in headers.items()])
    if text.count("\n") != len(headers):  # so does an octet 1 for the LF
        text = "".join([f"{name}\0{value}\1" for name, value in headers.items()])
        if dialect is None or text.count("\1") != len(headers):
            return None
        text = _escaped(text, dialect).replace("\n", "\\n").replace("\1", "\n")
    elif dialect and (":" in text or "\\" in text or "\r" in text):
        text = _escaped(text, dialect)
    if text.count("\0") != len(headers) or ":" in text or "\r" in text:
        return None
    text = text.replace("\0", ":")
    if body or "content-length" in headers:
        length = str(len(body))
        if not takes_body or headers.get("content-length", length) != length:
            return None
        if "content-length" not in headers:
            text = f"{text}content-length:{length}\n"
    try:
        if not body:
            return f"{command}\n{text}\n\0".encode()
        return b"".join((f"{command}\n{text}\n".encode(), body, b"\0"))
    except UnicodeEncodeError:
        return None


def serialize_parts(
    frame: Frame,
    version: str | None = "1.2",
    *,
    content_length: Length = "auto",
    lenient: bool = False,
    commands: Iterable[str] = (),
) -> list[bytes]:
    """Return a frame as a list of bytes, for `writelines`. A body of 8 KiB or more is not copied.

    Arguments and errors are those of `serialize`.

    >>> serialize_parts(Frame("BEGIN", {"transaction": "t"}))
    [b'BEGIN\\ntransaction:t\\n\\n\\x00']
    """
    head = _head(frame, *_checked(version, content_length, lenient, commands))
    body = frame.body
    return [b"".join((head, body, b"\0"))] if len(body) < _OWN_PART else [head, body, b"\0"]


def serialize_many(
    frames: Iterable[Frame],
    version: str | None = "1.2",
    *,
    content_length: Length = "auto",
    lenient: bool = False,
    commands: Iterable[str] = (),
) -> bytes:
    """Return many frames as bytes, one after the other.

    Arguments and errors are those of `serialize`.

    >>> serialize_many([Frame("BEGIN", {"transaction": "t"}), Frame("COMMIT", {"transaction": "t"})])
    b'BEGIN\\ntransaction:t\\n\\n\\x00COMMIT\\ntransaction:t\\n\\n\\x00'
    """
    rules = _checked(version, content_length, lenient, commands)
    parts: list[bytes] = []
    for frame in frames:
        parts += [_head(frame, *rules), frame.body, b"\0"]
    return b"".join(parts)


def serialize_tail(frame: Frame, version: str | None = "1.2", *, without: Iterable[str] = ()) -> bytes:
    """Return the part of a SEND, MESSAGE or ERROR frame after its command line: headers, empty line, body, NUL.

    Brokers put a command and their own headers before it. Headers that the version cannot represent are left out.
    content-length is written last if the frame has a body or the header.

    Args:
        frame: the frame to write. Its command is ignored.
        version: "1.0", "1.1" or "1.2".
        without: names of headers to leave out, except content-length. Passing the same tuple each time is fastest.

    Raises:
        TypeError: `frame` is not a Frame of this backend, or its body was streamed.
        ValueError: the version is unknown, or a name in `without` is not UTF-8.

    >>> frame = Frame("SEND", {"destination": "/queue/a", "receipt": "7"}, b"hi")
    >>> b"MESSAGE\\nsubscription:0\\n" + serialize_tail(frame, without=("receipt",))
    b'MESSAGE\\nsubscription:0\\ndestination:/queue/a\\ncontent-length:2\\n\\nhi\\x00'
    """
    left_out = (*checked_names(without), "content-length")
    "".join(left_out).encode()  # as in C, a name that is not UTF-8 is an error
    dialect = dialect_of(version)
    if version is None or version == "legacy":
        raise ValueError(f"version is {version!r}: use '1.0', '1.1' or '1.2'")
    if type(frame) is not Frame:
        raise TypeError(f"{type(frame).__name__} cannot be serialized: it must be a Frame of this backend")
    if frame._body is None:
        raise TypeError("the body of this frame was streamed: make a Frame with the whole body")
    pairs = [(name, value) for name, value in frame.headers.pairs() if name not in left_out]
    try:
        lines = _lines("MESSAGE", pairs, dialect, "strict", leaves_out=False)
    except FrameError:
        lines = b"".join(_line_or_nothing(pair, dialect) for pair in pairs)
    body = frame._body
    if body or frame.get("content-length") is not None:
        lines += b"content-length:%d\n" % len(body)
    return b"%b\n%b\0" % (lines, body)


def _line_or_nothing(pair: tuple[str, str], dialect: Dialect) -> bytes:
    try:
        return _lines("MESSAGE", [pair], dialect, "strict", leaves_out=False)
    except FrameError:
        return b""


def _checked(version: str | None, mode: str, lenient: object, commands: Iterable[str]) -> tuple[Any, ...]:
    """Return the checked arguments of a call, for `_head`."""
    if mode not in _CONTENT_LENGTH_MODES:
        raise ValueError(f"content_length is {mode!r}: use 'auto', 'always' or 'never'")
    return dialect_of(version), mode, checked_commands(commands), _ERRORS[checked_flag("lenient", lenient)]


def _head(frame: Frame, dialect: Dialect, mode: str, extra: frozenset[str], errors: str) -> bytes:
    """Return the bytes before the body."""
    if type(frame) is not Frame:
        raise TypeError(f"{type(frame).__name__} cannot be serialized: it must be a Frame of this backend")
    if frame._body is None:
        raise TypeError("the body of this frame was streamed: make a Frame with the whole body")
    command, body = frame._command, frame._body
    pairs: Sequence[tuple[str, str]] = frame.headers.pairs()
    if dialect.folds_case:
        command = command.translate(_UPPER)
        pairs = [(name.translate(_LOWER), value) for name, value in pairs]
    stripped = dialect.trims_lines and command.endswith(" ")  # a reader would strip the space
    if command not in dialect.commands and (stripped or command not in extra):
        raise FrameError("unknown-command", None, detail=f"command {command[:40]!a}")
    if body and not (dialect.any_body or command in WITH_BODY):
        raise FrameError("body-not-allowed", None, detail=f"command {command}")
    given = next((value for name, value in pairs if name == "content-length"), None)
    lines = _lines(command, pairs, dialect, errors, leaves_out=mode == "never" and given is not None)
    if given is not None:
        _check_length(given, len(body), dialect)
    if mode == "never":
        if b"\0" in body:
            raise FrameError("unencodable", None, detail="a body with NUL octets needs content-length")
    elif given is None and (body or mode == "always" or (dialect.counts_send and command == "SEND")):
        lines += b"content-length:%d\n" % len(body)
    return b"%b\n%b\n" % (command.encode(), lines)


def _check_length(given: str, length: int, dialect: Dialect) -> None:
    digits = given.strip(dialect.length_padding.decode())
    # Compared as text: int() accepts more than digits, and refuses very long numbers.
    if not (digits.isascii() and digits.isdecimal() and (digits.lstrip("0") or "0") == str(length)):
        raise FrameError("bad-content-length", None, detail=f"the body has {length} bytes")


def _lines(command: str, pairs: Sequence[tuple[str, str]], dialect: Dialect, errors: str, *, leaves_out: bool) -> bytes:
    """Return the header lines, each with its LF. `leaves_out` omits content-length, which is checked nevertheless."""
    raw = not dialect.escapes or command in UNESCAPED
    # The fast path: a NUL stands for the colon until the colons in names and values are escaped.
    text = "".join([f"{name}\0{value}\n" for name, value in pairs])
    if (
        text.count("\0") == text.count("\n") == len(pairs)
        and not (text.startswith("\0") or "\n\0" in text)
        and not (leaves_out or dialect.trims_lines or (raw and (":" in text or "\r" in text)))
    ):
        try:
            return (text if raw else _escaped(text, dialect)).replace("\0", ":").encode()
        except UnicodeEncodeError:
            pass
    lines: list[bytes] = []
    for name, value in pairs:
        try:
            if not name or "\0" in name or "\0" in value or (raw and not _can_be_raw(command, name, value, dialect)):
                raise ValueError
            line = f"{name}\0{value}" if raw else _escaped(f"{name}\0{value}", dialect).replace("\n", "\\n")
            octets = line.replace("\0", ":").encode("utf-8", errors)
        except ValueError:  # UnicodeEncodeError is one
            detail = refusal(name, value, raw=raw, connect=command in UNESCAPED, errors=errors)
            raise FrameError("unencodable", None, detail=detail) from None
        if not (leaves_out and name == "content-length"):
            lines += (octets, b"\n")
    return b"".join(lines)


def _escaped(text: str, dialect: Dialect) -> str:
    """Return text with everything but LF escaped."""
    text = text.replace("\\", "\\\\").replace(":", "\\c")
    return text.replace("\r", "\\r") if b"r" in dialect.escapes else text


def _can_be_raw(command: str, name: str, value: str, dialect: Dialect) -> bool:
    """Return whether a line without escapes would be read back as the same header."""
    if ":" in name or "\n" in name or "\n" in value:
        return False
    if command in UNESCAPED and ("\r" in name or "\r" in value):
        return False
    if not dialect.trims_lines:
        return True
    return value == value.strip(" ") and not (_CONTROL.search(name) or _CONTROL.search(value))
