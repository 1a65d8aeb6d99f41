"""The exact path of the Python parser: heads line by line, which finds the first violation, and bodies in chunks.

`Parser` takes its fast path where it can. Each byte is searched once, however the stream was cut into chunks.
`frame_ends` is the counterpart of src/ends.c, plain frames of WebSocket are that of src/websocket.c.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection
from functools import lru_cache
from typing import Any, NamedTuple

from stompcodec.frame import END_OF_BODY, Escapes, Frame, Mark, is_utf8, parsed_frame
from stompcodec.spec import OF_LOGIN, UNESCAPED, WITH_BODY, Dialect, Limits, checked_every, checked_limits, dialect_of

_LF, _CR, _COLON, _BACKSLASH = b"\n\r:\\"
_LENGTH = b"content-length:"
_CONTROL = re.compile(rb"[\0-\x1f]")
_NOT_BLANK = re.compile(rb"[^ \r]")
_ESCAPE = re.compile(rb"\\(.?)", re.DOTALL)
#: Smaller chunks of a body, in bytes, are joined, so that a slow peer does not cost an object per byte.
SMALL = 1024
_MOST_DIGITS = 19  # of max_body, which is at most 2**62


class Violation(Exception):
    """A violation of the grammar at `at`, an index into the given bytes."""

    def __init__(self, kind: str, at: int, limit: str | None = None) -> None:
        super().__init__(kind)
        self.kind = kind
        self.at = at
        self.limit = limit


#: A command, whether its frames may have a body, the escapes of its headers, and whether its content-length is ignored
#: if the NUL follows at once.
Known = tuple[str, bool, Escapes | None, bool]


class Rules(NamedTuple):
    """A dialect and limits, prepared for parsing."""

    dialect: Dialect
    limits: Limits
    commands: frozenset[bytes]
    #: Command line -> its command. Empty for dialects that rewrite lines, and without commands longer than the limit:
    #: the frames of both are read line by line.
    known: dict[bytes, Known]
    #: (written, meant), without that of the backslash.
    escapes: Escapes
    #: Finds possible bad escapes; never matches if those are kept.
    bad_escape: re.Pattern[str]
    #: A head of at most this many bytes cannot exceed a limit.
    roomy: int

    def know(self, line: bytes) -> Known:
        """Return the `Known` of a command."""
        command = line.decode("utf-8", "surrogateescape")
        dialect, has_body = self.dialect, command in WITH_BODY
        escapes = self.escapes if dialect.escapes and command not in UNESCAPED else None
        return command, dialect.any_body or has_body, escapes, dialect.skips_idle_length and not has_body

    def has_bad_escape(self, lines: str, known: Known) -> bool:
        """Return whether the headers of a command have escapes that are not allowed."""
        bad = self.bad_escape  # it ignores escaped backslashes: if it matches, they are removed
        return bool(known[2] is not None and bad.search(lines) and bad.search(lines.replace("\\\\", "")))

    def skim(self, lines: str, size: int, count: int, known: Known) -> int | None:
        """Check many lines at once: "\\n", then each with its LF; `size` bytes on the wire, after `count` other lines.

        Return their content-length, or -1; None if something is unusual, so that they have to be read one by one.
        """
        if "\0" in lines or "\n:" in lines:
            return None
        for line in lines[1:-1].split("\n"):
            if ":" not in line and lines != "\n":
                return None
        if (size > self.roomy or count) and (
            count + lines.count("\n") - 1 > self.limits.max_headers or size > self.limits.max_header_line
        ):
            return None
        if "\\" in lines and self.has_bad_escape(lines, known):
            return None
        _, found, rest = lines.partition("\ncontent-length:")
        if not found:
            return -1
        digits, _, _ = rest.partition("\n")
        if not (digits.isdecimal() and digits.isascii() and len(digits) < _MOST_DIGITS):
            return None
        length = int(digits)
        return None if length > self.limits.max_body or (length and (not known[1] or known[3])) else length


@lru_cache(maxsize=64)
def rules_of(version: str | None, lenient: object, limits: Limits, extra: frozenset[str]) -> Rules:
    """Return the rules of a version with further commands."""
    dialect = dialect_of(version, lenient)
    commands = frozenset(command.encode() for command in dialect.commands | extra)
    named = {octet.decode(): plain.decode() for octet, plain in dialect.escapes.items() if octet != b"\\"}
    escapes = tuple(("\\" + letter, plain) for letter, plain in named.items())
    bad = re.compile(rf"\\(?![{''.join(named)}])" if escapes and not dialect.keeps_bad_escapes else r"(?!)")
    # A header has at least three bytes, with its LF.
    roomy = min(3 * limits.max_headers, limits.max_header_line)
    rules = Rules(dialect, limits, commands, {}, escapes, bad, roomy)
    if not (dialect.trims_lines or dialect.trims_headers):
        for line in commands:
            if len(line) <= limits.max_command_line:
                rules.known[line] = rules.know(line)
                if dialect.crlf:
                    rules.known[line + b"\r"] = rules.know(line)
    return rules


def line_end(buf: bytes, at: int, seen: int, dialect: Dialect, longest: int, limit: str) -> int:
    """Return the index of the LF of the line at `at`, or -1 if it is not there yet. Searching begins at `seen`."""
    end = buf.find(b"\n", seen)
    nul = buf.find(b"\0", seen, end if end >= 0 else len(buf))
    stop = end if nul < 0 else nul
    length = (stop if stop >= 0 else len(buf)) - at
    # Without its LF, a CR may still turn out to be part of the EOL.
    if nul < 0 and length and dialect.crlf and buf[at + length - 1] == _CR and (stop >= 0 or length == longest + 1):
        length -= 1
    if length > longest:
        raise Violation("limit-exceeded", at + longest, limit)
    if nul >= 0:
        raise Violation("unexpected-nul", nul)
    return end


class Lines:
    """A frame that came in part, as long as it has nothing unusual: each line is checked once, when it is complete."""

    __slots__ = (
        *("blanks", "body", "count", "end", "first", "known", "length", "line"),
        *("longest", "most", "rules", "small"),
    )

    def __init__(self, rules: Rules, whole: int) -> None:
        self.rules = rules
        self.blanks = (b"", b"\r") if rules.dialect.crlf else (b"",)
        self.small = min(SMALL, whole)  # larger bodies are left to `Body`
        self.most = rules.limits.max_headers
        self.longest = rules.limits.max_header_line

    def begin(self, buf: bytes, line: int, known: Known | None) -> int:
        """Begin with the frame at 0, whose header lines begin at `line`; 0 if its command line is incomplete.

        Return what `read` returns.
        """
        self.known = known
        self.first = self.line = line  # index of the first header line, and of the incomplete line
        self.count = 0  # complete header lines
        self.length = -1  # of the body; -1 without content-length
        self.body = -1  # index of the body; -1 before the blank line
        return self.read(buf)

    def read(self, buf: bytes) -> int:
        """Check the lines that are complete now. Invariant: there is no NUL in `buf`.

        Return how many bytes can follow in the incomplete line, or as `_body_room` says; a negative number if something
        is unusual.
        """
        if not self.line:
            if _LF not in buf:
                return self.rules.limits.max_command_line - len(buf)
            self.first = self.line = buf.find(b"\n") + 1
            self.known = self.rules.known.get(bytes(buf[: self.line - 1]))
            if self.known is None:
                return -1
        piece = buf[self.line :]
        if _LF not in piece:
            return self.longest - len(piece) if self.most else -1
        lines = piece.split(b"\n")
        tail = lines.pop()
        for line in lines:
            if _COLON not in line or line[0] == _COLON:
                if line not in self.blanks:
                    return -1
                del lines[lines.index(line) :]
                size = sum(map(len, lines)) + len(lines)
                piece = piece[:size]
                self.end = self.line + size
                self.body = self.end + len(line) + 1
                break
        self.count += len(lines)
        if (
            self.count >= self.most
            or len(piece) > self.longest
            or ((_BACKSLASH in piece or not piece.isascii()) and not self._is_text(lines))
            or (_LENGTH in piece and self.length < 0 and not self._read_length(lines))
        ):
            return -1
        self.line = len(buf) - len(tail)
        return self.longest - len(tail) if self.body < 0 else self._body_room(len(buf) - self.body)

    def _is_text(self, lines: list[bytes]) -> bool:
        """Return whether header lines are UTF-8 without bad escapes."""
        try:
            text = b"\n".join(lines).decode()
        except UnicodeDecodeError:
            return False
        return self.known is not None and not self.rules.has_bad_escape(text, self.known)

    def _read_length(self, lines: list[bytes]) -> bool:
        """Read the first content-length, if it is among the lines. Return False if it is unusual."""
        for line in lines:
            if line.startswith(_LENGTH):
                digits = line[len(_LENGTH) :]
                if self.rules.dialect.crlf:
                    digits = digits.removesuffix(b"\r")
                if not digits.isdigit() or len(digits) >= _MOST_DIGITS:
                    return False
                self.length = int(digits)
                known = self.known
                return self.length <= (self.rules.limits.max_body if known and known[1] and not known[3] else 0)
        return True

    def _body_room(self, have: int) -> int:
        """Return how many bytes of a small body can follow; without content-length, bytes that are not NUL.

        It is negative if the body is complete, large, or not allowed.
        """
        most = self.small if self.known and self.known[1] else 0
        if self.length < 0:
            return most - have
        return self.length - self.rules.dialect.mends_length - have if self.length <= most else -1

    def text(self, buf: bytes) -> str:
        """Return the header lines of a complete head, as `Frame` keeps them."""
        text = buf[self.first - 1 : self.end].decode()
        return text.replace("\r\n", "\n") if "\r" in text and self.rules.dialect.crlf else text


class Head:
    """A head that is incomplete, or that the fast path does not read."""

    __slots__ = ("count", "idle", "known", "length", "line", "lines", "rules", "seen")

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.idle = 0  # the content-length that counts only if the NUL does not follow at once
        self.line = 0  # index of the next line, from the frame's first byte
        self.seen = 0  # index up to which its end was searched for
        self.known: Known = "", False, None, False
        self.lines = ["\n"]  # header lines, escaped, as `Frame` keeps them
        self.count = 0  # header lines, including skipped ones
        self.length = -1  # of the body; -1 without content-length

    def read(self, buf: bytes, start: int) -> int:
        """Read the available part of the frame at `start`. Return the index of its body, or -1 if more is needed."""
        dialect, limits, _, quick, *_ = self.rules
        while True:
            if self.line and quick:
                self._skim(buf, start)
                quick = {}  # once: it reads all lines that it can
            at = start + self.line
            if not self.line:
                end = line_end(buf, at, start + self.seen, dialect, limits.max_command_line, "max_command_line")
            elif self.count == limits.max_headers:
                end = (self._spaces_end if dialect.trims_lines else self._blank_end)(buf, at, start)
            else:
                end = line_end(buf, at, start + self.seen, dialect, limits.max_header_line, "max_header_line")
            if end < 0:
                self.seen = len(buf) - start
                return -1
            line = bytes(buf[at:end])
            if dialect.trims_lines:
                line = line.rstrip(b" \r")
            elif dialect.crlf:
                line = line.removesuffix(b"\r")
            if not self.line:
                self._read_command(line, at)
            elif not line:
                return end + 1
            else:
                self.count += 1
                self._read_header(line, at)
            self.line = self.seen = end + 1 - start

    def _skim(self, buf: bytes, start: int) -> None:
        """Read all complete lines at once, unless they have something unusual."""
        at, seen, crlf = start + self.line, start + self.seen, self.rules.dialect.crlf
        # The LF of the last line: the one before the blank line, if that is there.
        end = buf.find(b"\n\n", seen - 1)
        if crlf:
            blank = buf.find(b"\n\r\n", max(at - 1, seen - 2), end + 1 if end >= 0 else len(buf))
            end = blank if blank >= 0 else end
        if end < 0:
            end = buf.rfind(b"\n", seen)
        if end < at:
            return
        try:
            lines = buf[at - 1 : end + 1].decode()
        except UnicodeDecodeError:
            return
        if crlf:
            lines = lines.replace("\r\n", "\n")
        length = self.rules.skim(lines, end + 1 - at, self.count, self.known)
        if length is not None:
            self.length = length if self.length < 0 else self.length
            self.count += lines.count("\n") - 1
            self.lines.append(lines[1:])
            self.line = self.seen = end + 1 - start

    def room(self, size: int) -> int:
        """Return how many bytes without LF and NUL can follow the `size` bytes that were read without an error."""
        limits = self.rules.limits
        if self.line and self.count == limits.max_headers:
            return 0
        return max((limits.max_header_line if self.line else limits.max_command_line) - size + self.line, 0)

    def _spaces_end(self, buf: bytes, at: int, start: int) -> int:
        """Do as `_blank_end` where a blank line may contain spaces and CRs, up to the limit of a header line."""
        longest = self.rules.limits.max_header_line
        found = _NOT_BLANK.search(buf, start + self.seen)
        end = found.start() if found else len(buf)
        octet = buf[end] if found else -1
        size = end - at
        ends_in_cr = size > 0 and buf[end - 1] == _CR
        if octet == _LF:
            too_long = size - ends_in_cr > longest
        elif octet == 0:
            too_long = size > longest
        else:  # without its LF, a CR may still turn out to be part of the EOL
            too_long = size > longest and not (size == longest + 1 and ends_in_cr)
        if too_long:
            raise Violation("limit-exceeded", at + longest, "max_header_line")
        if octet == 0:
            raise Violation("unexpected-nul", end)
        if octet >= 0 and octet != _LF:
            raise Violation("limit-exceeded", at, "max_headers")
        return end if found else -1

    def _blank_end(self, buf: bytes, at: int, _start: int) -> int:
        """Return the index of the blank line's LF, or -1 if more is needed. Another header would exceed the limit."""
        crlf = self.rules.dialect.crlf
        line = bytes(buf[at : at + 2])
        if line[:1] == b"\n":
            return at
        if crlf and line == b"\r\n":
            return at + 1
        if not line or (crlf and line == b"\r"):
            return -1
        if not line[0]:
            raise Violation("unexpected-nul", at)
        raise Violation("limit-exceeded", at, "max_headers")

    def _read_command(self, line: bytes, at: int) -> None:
        dialect = self.rules.dialect
        if dialect.folds_case:
            line = line.upper()
        if line not in self.rules.commands and not dialect.any_command:
            raise Violation("unknown-command", at)
        self.known = self.rules.know(line)

    def _read_header(self, line: bytes, at: int) -> None:
        """Check and keep the header line at `at`."""
        dialect = self.rules.dialect
        name, colon, value = line.partition(b":")
        value_at = at + len(name) + 1
        if dialect.trims_headers or dialect.trims_lines:
            value_at += len(value) - len(value.lstrip(b" "))
            value = value.strip(b" ")
        if dialect.trims_headers:
            name = name.strip(b" ")
        if not colon or not name:
            if dialect.skips_bad_lines:
                return
            raise Violation("bad-header-line", at)
        if dialect.trims_lines and _CONTROL.search(value):
            raise Violation("bad-header-line", at)
        if not dialect.keeps_bad_utf8:
            try:
                line.decode()
            except UnicodeDecodeError as error:
                raise Violation("invalid-utf8", at + error.start) from None
        keeps = dialect.keeps_bad_escapes or (dialect.keeps_login_escapes and name in OF_LOGIN)
        if self.known[2] is not None and not keeps:
            self._check_escapes(name, at)
            self._check_escapes(value, value_at)
        if dialect.folds_case:
            name = name.lower()
        if name == b"content-length" and self.length < 0:
            self.length = self._read_length(value, value_at)
        self.lines.append((name + b":" + value + b"\n").decode("utf-8", "surrogateescape"))

    def _check_escapes(self, field: bytes, at: int) -> None:
        for escape in _ESCAPE.finditer(field):
            if escape[1] not in self.rules.dialect.escapes:
                raise Violation("bad-escape", at + escape.start())

    def _read_length(self, value: bytes, at: int) -> int:
        digits = value.strip(self.rules.dialect.length_padding)
        if not digits.isdigit():
            raise Violation("bad-content-length", at)
        digits = digits.lstrip(b"0")
        _, has_body, _, skips = self.known
        if digits and not (has_body or skips):
            raise Violation("body-not-allowed", at)
        # Numbers of many digits are not converted: int() is slow, or refuses.
        if len(digits) > _MOST_DIGITS or int(digits or b"0") > self.rules.limits.max_body:
            raise Violation("limit-exceeded", at, "max_body")
        length = int(digits or b"0")
        self.idle = length if skips else 0
        return 0 if self.idle else length


class Body:
    """The body after a head, while its bytes arrive."""

    __slots__ = (
        *("_whole", "at", "chunks", "counted", "have", "idle", "known", "length", "lines", "mended", "mends", "most"),
        *("start", "streams"),
    )

    def __init__(self, known: Known, lines: str, length: int, start: int, rules: Rules, whole: int, idle: int) -> None:
        limits = rules.limits
        self.known = known
        self.lines = lines
        self.length = length  # -1: up to the first NUL
        self.idle = idle
        self.mends = rules.dialect.mends_length and 0 <= length <= whole  # a wrong length can be mended
        self.mended = False  # it was
        self.counted = -1  # the wrong length, which may count characters: while the NUL is looked for
        self.start = start  # stream offset of the frame
        self.most = limits.max_body
        self._whole = whole  # larger ones are streamed, or are an error
        self.chunks: list[Any] = []
        self.have = 0  # bytes of the body that were read: in chunks, or handed out
        self.at = 0  # index up to which the buffer was read
        self.streams = False

    def room(self) -> int:
        """Return how many bytes can follow without an event; without content-length, bytes that are not NUL."""
        if self.streams or self.idle or (self.length < 0 and not self.known[1]):
            return 0
        if self.counted >= 0:
            return min(self._whole, 4 * self.counted) - self.have
        return (self._whole if self.length < 0 else self.length - self.mends) - self.have

    def waits(self, buf: bytes) -> bool:
        """Keep the bytes from `at` on, which do not end the body, and return True; False if something is unusual."""
        have = len(buf) - self.at
        if max(have, self.length) > self._whole or (have and (self.idle or not self.known[1])):
            return False
        if self.mends and have == self.length:
            return False
        if have:
            self.add((memoryview(buf)[self.at :],))
        return True

    def add(self, pieces: Collection[Any]) -> int:
        """Keep pieces, and return their total size. Large ones are joined once, at the end."""
        size = sum(map(len, pieces))
        if size >= SMALL * len(pieces):
            self.chunks += pieces
        elif self.chunks and type(self.chunks[-1]) is bytearray:
            self.chunks[-1] += b"".join(pieces)
        else:
            self.chunks.append(bytearray(b"".join(pieces)))
        self.have += size
        return size

    def read(self, buf: bytes, at: int) -> Frame | bytes | Mark | None:
        """Read on at `at`. Return the frame, a piece or END_OF_BODY; None if more bytes are needed."""
        self.at = at
        if self.idle and at < len(buf) and buf[at]:
            if not self.known[1]:
                raise Violation("body-not-allowed", at)
            self.length, self.idle = self.idle, 0
            self.mends = self.mends and self.length <= self._whole
        if self.length > self._whole and not self.streams:
            self.streams = True
            return self.frame(None)
        if at == len(buf):
            return None
        stop = buf.find(b"\0", at) if self.length < 0 else at + self.length - self.have
        ends = 0 <= stop < len(buf)
        if not ends:
            stop = len(buf)
        here = self.have + stop - at
        if self.length < 0 and here and not self.known[1]:
            raise Violation("body-not-allowed", at)
        if self.counted >= 0 and here > min(self._whole, 4 * self.counted):
            raise self._wrong(at)
        if here > self._whole and not self.streams:
            if self._whole == self.most:
                raise Violation("limit-exceeded", at + self.most - self.have, "max_body")
            self.streams = True
            return self.frame(None)
        if here > self.most:  # only without content-length
            stop, ends = at + self.most - self.have, False
            if stop == at:
                raise Violation("limit-exceeded", stop, "max_body")
        if self.streams and (piece := self._piece(buf, stop)):
            return piece
        if ends:
            return self._mend(buf, stop) if self.mends and buf[stop] else self._end(buf, stop)
        self.add((memoryview(buf)[at:],))
        self.at = stop
        return None

    def _piece(self, buf: bytes, stop: int) -> bytes:
        """Return a piece of a streamed body, up to `stop`: first the bytes that were kept before it was streamed."""
        kept = b"".join(self.chunks)
        if kept:
            self.chunks = []
            return kept
        piece = buf[self.at : stop]
        self.have += len(piece)
        self.at = stop
        return piece

    def early(self) -> Frame | None:
        """Return the frame if all that was announced is there, and ends in a NUL: its sender has counted that. More may
        not be there yet, and a client that waits for it would not acknowledge this frame."""
        if not (self.mends and self.have == self.length and self.chunks and self.chunks[-1][-1] == 0):
            return None
        whole = b"".join(self.chunks)
        self.mended = whole.find(b"\0") == len(whole) - 1
        return self.frame(whole[:-1]) if self.mended else None

    def _mend(self, buf: bytes, stop: int) -> Frame | None:
        """Return the frame if its content-length has counted the NUL. None: it may have counted characters, and the
        NUL is looked for behind `stop`.
        """
        whole = b"".join((*self.chunks, memoryview(buf)[self.at : stop]))
        nul = whole.find(b"\0")
        self.mended = 0 <= nul == len(whole) - 1
        if not self.mended:
            if nul >= 0 or not whole:
                raise Violation("missing-null", stop)
            self.chunks, self.have = [whole], len(whole)
            self.counted, self.length, self.mends = self.length, -1, False
        self.at = stop
        return self.frame(whole[:-1]) if self.mended else None

    def _wrong(self, at: int) -> Violation:
        return Violation("missing-null", at + self.counted - self.have)

    def _end(self, buf: bytes, stop: int) -> Frame | Mark:
        if buf[stop]:
            raise Violation("missing-null", stop)
        if self.counted >= 0:
            whole = b"".join((*self.chunks, memoryview(buf)[self.at : stop]))
            if not counts_characters(whole, self.counted):
                raise self._wrong(self.at)
            self.mended = True
        if self.chunks:
            self.chunks.append(memoryview(buf)[self.at : stop])
        whole = b"".join(self.chunks) if self.chunks else buf[self.at : stop]
        self.at = stop + 1
        return END_OF_BODY if self.streams else self.frame(whole)

    def head(self) -> bytes:
        return f"{self.known[0]}{self.lines}".encode("utf-8", "surrogateescape")

    def frame(self, body: bytes | None) -> Frame:
        return parsed_frame(self.known[0], self.lines, self.known[2], body)


def counts_characters(text: bytes, count: int) -> bool:
    """Return whether bytes are UTF-8 with so many characters, or so many units of UTF-16, as Java and JavaScript count.

    >>> counts_characters("£1".encode(), 2), counts_characters("😀".encode(), 2), counts_characters(b"\\xff", 1)
    (True, True, False)
    """
    try:
        plain = text.decode()
    except UnicodeDecodeError:
        return False
    return count in (len(plain), len(plain.encode("utf-16-le")) // 2)


# ---- where frames end ----
_BEGIN = re.compile(rb"[^\r\n]|\r(?!\n)")
_HEAD_END = re.compile(rb"\n\r?\n|\0")
_COUNTED = re.compile(rb"\ncontent-length:([^\n\0]*)\n")
_NUL = re.compile(rb"\0")


def frame_ends(data: Any, every: int = 1, most: int | None = None, *, limits: Limits | None = None) -> array[int]:
    """Return the offsets at which frames end, found by a light parse that checks little.

    Args:
        data: any contiguous bytes-like object.
        every: the least distance in bytes between two returned ends. The end of the last whole frame is always
            returned.
        most: the largest number of ends to return; None for all.
        limits: only max_body is used: a larger content-length is ignored.

    Returns:
        An array of 64-bit integers, in ascending order.

    Raises:
        TypeError, ValueError: an argument has another type, or is out of range.

    >>> list(frame_ends(b"SEND\\n\\nhi\\0\\nACK\\nid:1\\n\\n\\0SEND\\n"))
    [9, 21]
    """
    every, most = checked_every(every, most)
    max_body = checked_limits(limits).max_body
    view = memoryview(data)
    if not view.c_contiguous:
        raise BufferError("the octets are not contiguous: copy them to bytes first")
    view = view.cast("B")
    ends = array("q")
    last = end = 0
    while len(ends) < most:
        end, before = _frame_end(view, end, max_body), end
        if end < 0:
            if before > last:
                ends.append(before)
            break
        if end - last >= every:
            ends.append(end)
            last = end
    return ends


def _frame_end(view: memoryview, at: int, max_body: int) -> int:
    """Return where the frame at `at`, or after the EOLs there, ends; -1 if its end is not in the view."""
    begin = _BEGIN.search(view, at)
    head = _HEAD_END.search(view, begin.start()) if begin else None
    if not begin or not head:
        return -1
    at = begin.start()
    body = head.end()
    if not view[body - 1]:  # a NUL in the head: malformed
        return body
    length = _length(view, at, body, max_body)
    if length >= 0:
        if body + length >= len(view):
            return -1
        if not view[body + length]:
            return body + length + 1
    nul = _NUL.search(view, body)
    return nul.end() if nul else -1


def _length(view: memoryview, at: int, body: int, max_body: int) -> int:
    """Return the value of the first content-length, or -1 if it is missing, malformed or too large."""
    found = _COUNTED.search(view, at, body)
    digits = found[1].removesuffix(b"\r").strip(b" \t") if found else b""
    if not digits.isdigit():
        return -1
    digits = digits.lstrip(b"0")
    if len(digits) > 19 or int(digits or b"0") > max_body:  # int() is slow on many digits, or refuses
        return -1
    return int(digits or b"0")


# ---- plain frames of WebSocket: the counterpart of src/websocket.c ----
_TEXT, _BINARY = 0x81, 0x82  # whole messages: a fragment has other first bytes
_MASKED = 0x80
_SHORT, _TWO, _EIGHT = 125, 126, 127


def read_websocket(
    data: Any, at: int = 0, *, masked: bool, utf8: bool, longest: int, most: int
) -> tuple[bytes, int, int]:
    """Read the plain WebSocket frames at `at`: whole ones of text or binary, in one fragment.

    Reading stops before the first frame that is not plain, too large or incomplete, and leaves it to a library.

    Args:
        data: any contiguous bytes-like object.
        at: where the first frame begins.
        masked: whether frames must have masks (those of clients), or must not.
        utf8: whether reading also stops before text that is not UTF-8.
        longest: the largest payload in bytes.
        most: the largest number of frames to read.

    Returns:
        All payloads joined, where the next frame begins, and the number of frames.

    Raises:
        ValueError: `at` is outside of the data, or a number is negative.

    >>> read_websocket(b"\\x81\\x02hi\\x82\\x01!\\x89\\x00", masked=False, utf8=True, longest=100, most=100)
    (b'hi!', 7, 2)
    """
    if longest < 0 or most < 0:
        raise ValueError("longest and most must not be negative")
    view = memoryview(data).cast("B")
    if not 0 <= at <= len(view):
        raise ValueError(f"at is {at}: it must be within the data")
    payloads: list[bytes] = []
    while len(payloads) < most:
        start, size = _frame_at(view, at, masked)
        if not start or size > longest or size > len(view) - start:
            break
        payload = bytes(view[start : start + size])
        if masked:
            payload = _masked(payload, bytes(view[start - 4 : start]))
        if utf8 and view[at] == _TEXT and not is_utf8(payload):
            break
        payloads.append(payload)
        at = start + size
    return b"".join(payloads), at, len(payloads)


def _frame_at(view: memoryview, at: int, masked: bool) -> tuple[int, int]:
    """Return where the payload of the plain frame at `at` begins, and its size; (0, 0) if there is no such frame."""
    head = view[at : at + 10].tobytes()
    if len(head) < 2 or head[0] not in (_TEXT, _BINARY) or (head[1] >= _MASKED) != masked:
        return 0, 0
    size, digits = head[1] & 127, 0
    if size > _SHORT:
        digits = 2 if size == _TWO else 8
        size = int.from_bytes(head[2 : 2 + digits], "big")
    start = at + 2 + digits + (4 if masked else 0)
    return (start, size) if start <= len(view) else (0, 0)


def _masked(payload: bytes, mask: bytes) -> bytes:
    """Apply a mask, or take it off."""
    size = len(payload)
    key = int.from_bytes(mask * (size // 4 + 1), "little") & ((1 << 8 * size) - 1)
    return (int.from_bytes(payload, "little") ^ key).to_bytes(size, "little")


def write_websocket(chunks: list[bytes], masks: bytes = b"") -> bytes:
    """Return chunks as WebSocket frames, joined: each is a message of its own, text if it is UTF-8, else binary.

    Args:
        chunks: bytes; empty ones are left out.
        masks: 4 random bytes for each chunk, as clients need them; empty for frames without masks.

    Raises:
        TypeError: an argument has another type.
        ValueError: the masks are not 4 bytes for each chunk.

    >>> write_websocket([b"hi", b"", b"\\xff"])
    b'\\x81\\x02hi\\x82\\x01\\xff'
    """
    if masks and len(masks) != 4 * len(chunks):
        raise ValueError(f"{len(masks)} bytes of masks for {len(chunks)} chunks: 4 bytes each are needed")
    written: list[bytes] = []
    for number, chunk in enumerate(chunks):
        if not isinstance(chunk, bytes):
            raise TypeError("chunks must be bytes")
        if not chunk:
            continue
        mask = masks[4 * number : 4 * number + 4]
        written += (_head_of(chunk, bool(mask)), mask, _masked(chunk, mask) if mask else chunk)
    return b"".join(written)


def _head_of(chunk: bytes, masked: bool) -> bytes:
    """Return the head of a chunk's frame, without its mask."""
    size, bit = len(chunk), _MASKED if masked else 0
    first = _TEXT if is_utf8(chunk) else _BINARY
    if size <= _SHORT:
        return bytes((first, bit | size))
    digits, code = (2, _TWO) if size < 1 << 16 else (8, _EIGHT)
    return bytes((first, bit | code)) + size.to_bytes(digits, "big")
