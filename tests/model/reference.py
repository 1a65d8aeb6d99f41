"""A reference reader of STOMP streams: one octet at a time, slow, and plain enough to be seen to be right.

It shares no code with the package but the tables of `stompcodec.spec`. Tests compare both backends with it.

    Reference("1.2").read(b"SEND\\n\\nhi\\0")  ->  [("frame", "SEND", [], b"hi", 0, 9)]

Events: ("heartbeat", offset), ("frame", command, pairs, body, first offset, offset behind the NUL) and
("error", kind, offset, limit), after which nothing follows.
"""

from typing import Any

from stompcodec.spec import WITH_BODY, Limits, dialect_of

LF, CR, NUL, SPACE, COLON, BACKSLASH = b"\n", b"\r", b"\0", b" ", b":", b"\\"
MEANINGS = {b"n": b"\n", b"r": b"\r", b"c": b":", b"\\": b"\\"}


class Broken(Exception):
    """The first violation: kind, offset, limit."""


class Reference:
    def __init__(self, version, *, limits=None, lenient=False, commands=()):
        self.dialect = dialect_of(version, lenient)
        self.limits = limits or Limits()
        self.commands = {name.encode() for name in (*self.dialect.commands, *commands)}
        self.offset, self.dead, self.mended_at = 0, False, -1
        self.events = []
        self.begin_gap()

    def read(self, data: bytes, eof: bool = False) -> list[tuple[Any, ...]]:
        self.feed(data)
        if self.state == "body" and self.dialect.mends_length and self.counts_nul() and not self.dead:
            self.end_frame(self.body[:-1], self.offset)
        if eof:
            self.close()
        return self.events

    def feed(self, data: bytes) -> None:
        for value in data:
            if self.dead:
                return
            try:
                self.octet(bytes([value]))
            except Broken as broken:
                self.dead = True
                self.events.append(("error", *broken.args))
            self.offset += 1

    def close(self) -> None:
        if not self.dead and (self.state != "command" or self.line):
            self.dead = True
            self.events.append(("error", "truncated", self.offset, None))

    # Lines. The gap is read as command lines that turn out to be empty.

    def begin_gap(self) -> None:
        self.state, self.pairs, self.count, self.length = "command", [], 0, None
        self.idle = 0  # a content-length that counts only if a body follows
        self.characters = -1  # a content-length that was wrong, and may count those
        self.body = b""
        self.begin_line(self.offset)

    def begin_line(self, at: int) -> None:
        self.line, self.line_at = b"", at

    def octet(self, octet: bytes) -> None:
        if self.offset == self.mended_at and not (octet in (LF, CR) or self.begins_command(octet)):
            raise Broken("missing-null", self.offset, None)
        if self.state == "body":
            self.body_octet(octet)
        elif self.state == "command" and self.line == b"" and octet == NUL:
            if not self.dialect.skips_nul:
                raise Broken("unexpected-nul", self.offset, None)
            self.begin_line(self.offset + 1)
        elif self.state == "header" and self.count == self.limits.max_headers:
            if self.dialect.trims_lines and octet in (SPACE, CR, LF, NUL):  # the blank line may hold them
                self.line_octet(octet)
            else:
                self.octet_after_last_header(octet)
        else:
            self.line_octet(octet)

    def line_octet(self, octet: bytes) -> None:
        limit = "max_command_line" if self.state == "command" else "max_header_line"
        longest = getattr(self.limits, limit)
        line = self.line + (octet if octet not in (LF, NUL) else b"")
        size = len(line)
        if self.dialect.crlf and line.endswith(CR) and (octet == LF or (octet == CR and size == longest + 1)):
            size -= 1  # this CR belongs to the end of the line, or may yet
        if size > longest:
            raise Broken("limit-exceeded", self.line_at + longest, limit)
        if octet == NUL:
            raise Broken("unexpected-nul", self.offset, None)
        self.line = line
        if octet == LF:
            self.end_of_line()

    def octet_after_last_header(self, octet: bytes) -> None:
        if octet == LF:
            self.begin_body()
        elif octet == NUL and self.line == b"":
            raise Broken("unexpected-nul", self.offset, None)
        elif octet == CR and self.line == b"" and self.dialect.crlf:
            self.line = CR
        else:
            raise Broken("limit-exceeded", self.line_at, "max_headers")

    def end_of_line(self) -> None:
        line, at = self.line, self.line_at
        if self.dialect.trims_lines:
            while line[-1:] in (SPACE, CR) and line:
                line = line[:-1]
        elif self.dialect.crlf and line[-1:] == CR:
            line = line[:-1]
        self.begin_line(self.offset + 1)
        if self.state == "command":
            if line:
                self.command_line(line, at)
            else:
                self.events.append(("heartbeat", at))
        elif line:
            self.count += 1
            self.header_line(line, at)
        else:
            self.begin_body()

    def command_line(self, line: bytes, at: int) -> None:
        if self.dialect.folds_case:
            line = line.upper()
        if line not in self.commands and not self.dialect.any_command:
            raise Broken("unknown-command", at, None)
        self.command, self.frame_at = line, at
        self.may_have_body = self.dialect.any_body or line in {name.encode() for name in WITH_BODY}
        self.escaped = bool(self.dialect.escapes) and line not in (b"CONNECT", b"CONNECTED")
        self.state = "header"

    def header_line(self, line: bytes, at: int) -> None:
        colon = line.find(COLON)
        name, value, value_at = line[:colon], line[colon + 1 :], at + colon + 1
        if self.dialect.trims_headers or self.dialect.trims_lines:
            while value[:1] == SPACE:
                value, value_at = value[1:], value_at + 1
        if self.dialect.trims_headers:
            name, value = name.strip(SPACE), value.strip(SPACE)
        if colon < 0 or name == b"":
            if self.dialect.skips_bad_lines:
                return
            raise Broken("bad-header-line", at, None)
        if self.dialect.trims_lines and any(octet < 32 for octet in value):
            raise Broken("bad-header-line", at, None)
        if not self.dialect.keeps_bad_utf8:
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise Broken("invalid-utf8", at + error.start, None) from None
        keeps = self.dialect.keeps_login_escapes and name in (b"login", b"passcode", b"client-id")
        plain_name, plain_value = self.unescape(name, at), self.unescape(value, value_at, keeps)
        if self.dialect.folds_case:
            name = plain_name = name.lower()
        if name == b"content-length" and self.length is None:
            self.content_length(value, value_at)
        pair = plain_name.decode("utf-8", "surrogateescape"), plain_value.decode("utf-8", "surrogateescape")
        self.pairs.append(pair)

    def unescape(self, field: bytes, at: int, keeps: bool = False) -> bytes:
        if not self.escaped:
            return field
        plain, index = b"", 0
        while index < len(field):
            octet, following = field[index : index + 1], field[index + 1 : index + 2]
            if octet != BACKSLASH:
                plain += octet
            elif following in self.dialect.escapes:
                plain += MEANINGS[following]
                index += 1
            elif self.dialect.keeps_bad_escapes or keeps:
                plain += BACKSLASH
            else:
                raise Broken("bad-escape", at + index, None)
            index += 1
        return plain

    def content_length(self, value: bytes, at: int) -> None:
        while value[:1] and value[:1] in self.dialect.length_padding:
            value = value[1:]
        while value[-1:] and value[-1:] in self.dialect.length_padding:
            value = value[:-1]
        if value == b"" or any(octet not in b"0123456789" for octet in value):
            raise Broken("bad-content-length", at, None)
        length = 0
        for digit in value:
            length = min(10 * length + digit - 48, 2**63)
        skips = self.dialect.skips_idle_length and self.command.decode("utf-8", "surrogateescape") not in WITH_BODY
        if length > 0 and not (self.may_have_body or skips):
            raise Broken("body-not-allowed", at, None)
        if length > self.limits.max_body:
            raise Broken("limit-exceeded", at, "max_body")
        self.length, self.idle = (0, length) if skips else (length, 0)

    # Bodies.

    def begin_body(self) -> None:
        self.state = "body"

    def body_octet(self, octet: bytes) -> None:
        if self.idle and octet != NUL:
            if not self.may_have_body:
                raise Broken("body-not-allowed", self.offset, None)
            self.length, self.idle = self.idle, 0
        if self.characters >= 0:
            self.text_octet(octet)
        elif self.length is not None:
            if len(self.body) < self.length:
                self.body += octet
            elif octet == NUL:
                self.end_frame()
            elif self.dialect.mends_length and self.counts_nul():
                self.end_frame(self.body[:-1], self.offset)
                self.octet(octet)
            elif self.dialect.mends_length and self.length and NUL not in self.body:
                self.characters, self.missing = self.length, self.offset
                self.text_octet(octet)
            else:
                raise Broken("missing-null", self.offset, None)
        elif octet == NUL:
            self.end_frame()
        elif not self.may_have_body:
            raise Broken("body-not-allowed", self.offset, None)
        elif len(self.body) == self.limits.max_body:
            raise Broken("limit-exceeded", self.offset, "max_body")
        else:
            self.body += octet

    def begins_command(self, octet: bytes) -> bool:
        return octet.isupper() or (self.dialect.folds_case and octet.isalpha())

    def counts_nul(self) -> bool:
        """A body of the announced length whose only NUL is its last octet."""
        return len(self.body) == self.length and self.body.find(NUL) == len(self.body) - 1 >= 0

    def text_octet(self, octet: bytes) -> None:
        try:
            text = self.body.decode()
        except UnicodeDecodeError:
            text = ""
        if octet != NUL and len(self.body) < min(4 * self.characters, self.limits.max_body):
            self.body += octet
        elif octet == NUL and self.characters in (len(text), len(text.encode("utf-16-le")) // 2):
            self.end_frame(mended_at=self.offset + 1)
        else:
            raise Broken("missing-null", self.missing, None)

    def end_frame(self, body: bytes | None = None, mended_at: int = -1) -> None:
        """`mended_at`: where the frame ends, if its content-length was wrong."""
        command = self.command.decode("utf-8", "surrogateescape")
        end = self.offset + 1 if mended_at < 0 else mended_at
        self.events.append(("frame", command, self.pairs, self.body if body is None else body, self.frame_at, end))
        self.mended_at = mended_at
        self.begin_gap()
        self.line_at = end
