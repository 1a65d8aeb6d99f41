"""The writer of frames in Python.

Output is canonical: LF line ends, headers in the given order, no EOL after the NUL. A frame that the version cannot
represent is refused, not repaired, so that no header can forge another.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Sequence
from typing import Literal

from stompcodec.errors import FrameError, refusal
from stompcodec.frame import Frame
from stompcodec.spec import UNESCAPED, VERSIONS, WITH_BODY, Dialect, checked_commands, checked_names, dialect_of

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
    if content_length == "auto" and commands == ():
        octets = _quickly(frame, version)
        if octets is not None:
            return octets
    head = _head(frame, dialect_of(version), content_length, checked_commands(commands), _ERRORS[bool(lenient)])
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
    head = _head(frame, dialect_of(version), content_length, checked_commands(commands), _ERRORS[bool(lenient)])
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
    dialect, extra, errors = dialect_of(version), checked_commands(commands), _ERRORS[bool(lenient)]
    parts: list[bytes] = []
    for frame in frames:
        parts += [_head(frame, dialect, content_length, extra, errors), frame.body, b"\0"]
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


def _head(frame: Frame, dialect: Dialect, mode: str, extra: frozenset[str], errors: str) -> bytes:
    """Return the bytes before the body."""
    if mode not in _CONTENT_LENGTH_MODES:
        raise ValueError(f"content_length is {mode!r}: use 'auto', 'always' or 'never'")
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
