"""What can be wrong, who is to blame, and what to do about it.

Every error of the package derives from `StompError`. The texts live here, once: both backends raise
`FrameError` with a kind and an offset, and this module says the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

__all__ = [
    "ERROR_KINDS",
    "ConfigError",
    "ConnectionLostError",
    "ErrorFrame",
    "FrameError",
    "LocalProtocolError",
    "MissingExtraError",
    "ProtocolError",
    "ReceiptTimeoutError",
    "RejectedError",
    "RemoteProtocolError",
    "StaleAckError",
    "StompError",
    "StoreError",
]


class ErrorFrame(Protocol):
    """The frame that an error carries: a `Frame` of either backend."""

    @property
    def command(self) -> str: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def body(self) -> bytes: ...

    def get(self, name: str, /) -> str | None: ...

    def text(self) -> str: ...


class ErrorText(NamedTuple):
    """One kind of error in words."""

    what: str
    """What was wrong."""
    remedy: str
    """What the reader of the message can do."""


#: The closed list of kinds. A kind is public: programs compare it, so it never changes its meaning.
ERROR_KINDS: dict[str, ErrorText] = {
    "unknown-command": ErrorText(
        "the command is none of this STOMP version",
        "check the peer's version, name the command in commands=, or read with lenient=True",
    ),
    "bad-header-line": ErrorText(
        "a header line needs a name, a colon and a value without control octets",
        "fix the sender, or read with lenient=True to skip lines without a name or a colon",
    ),
    "bad-escape": ErrorText(
        "a backslash in a header starts no escape of this STOMP version",
        "fix the sender, or read with lenient=True to keep the backslash",
    ),
    "invalid-utf8": ErrorText(
        "a header is not UTF-8",
        "fix the sender, or read with lenient=True to keep the octets as lone surrogates",
    ),
    "unexpected-nul": ErrorText(
        "a NUL octet stands where no frame can end",
        "look for a body with NULs that was sent without content-length, or for frames that came apart",
    ),
    "bad-content-length": ErrorText(
        "content-length is not the number of octets in the body, written in ASCII digits",
        "leave the header out when writing: it is added; fix the sender when reading",
    ),
    "missing-null": ErrorText(
        "no NUL follows the octets that content-length counted",
        "the sender counts wrong: content-length is octets, not characters",
    ),
    "body-not-allowed": ErrorText(
        "only SEND, MESSAGE and ERROR frames have a body",
        "drop the body, or read with lenient=True",
    ),
    "limit-exceeded": ErrorText(
        "the frame is larger than the limits allow",
        "raise that field of Limits if frames of this size are wanted",
    ),
    "truncated": ErrorText(
        "the stream ended inside a frame",
        "the peer or the network cut the connection: read the stream again from a frame's start",
    ),
    "unencodable": ErrorText(
        "the frame cannot be written in this STOMP version",
        "use a newer version, or leave the header or body out",
    ),
    "no-common-version": ErrorText(
        "the two sides speak no STOMP version in common",
        "offer more versions in accept-version",
    ),
    "bad-heart-beat": ErrorText(
        "heart-beat is not two numbers of milliseconds with a comma between",
        "write it as in heart-beat:10000,10000",
    ),
    "bad-content-encoding": ErrorText(
        "the body is not what its content-encoding says",
        "check content-encoding, and the limit for the inflated body",
    ),
}

#: A head that holds one of these words is never shown in a message.
_SECRET_WORDS = (b"passcode", b"password", b"authorization", b"token", b"secret")
_SECRET_COMMANDS = (b"CONNECT", b"STOMP")


class StompError(Exception):
    """The root of every error that stompcodec raises on its own account."""


class FrameError(StompError, ValueError):
    """Octets that are no frame, or a frame that cannot become octets.

    Args:
        kind: one of `ERROR_KINDS`.
        offset: octets from the start of the stream to what was wrong; None when it is not about a stream.
        limit: the field of `Limits` that was passed, for limit-exceeded.
        detail: a few words that name the culprit, such as a header's name. Never its value.
        near: octets around the offset, for the message. Withheld when they may hold a secret.

    >>> error = FrameError("unknown-command", 17, near=b"GET / HTTP/1.1")
    >>> error.kind, error.offset
    ('unknown-command', 17)
    >>> print(error)
    unknown-command at octet 17: the command is none of this STOMP version; near b'GET / HTTP/1.1' \
(check the peer's version, name the command in commands=, or read with lenient=True)
    """

    def __init__(
        self,
        kind: str,
        offset: int | None = None,
        *,
        limit: str | None = None,
        detail: str = "",
        near: bytes = b"",
    ) -> None:
        text = ERROR_KINDS[kind]
        self.kind = kind
        self.offset = offset
        self.limit = limit
        self.detail = detail
        self.near = near
        where = "" if offset is None else f" at octet {offset}"
        what = f"{text.what}: {limit} is passed" if limit else text.what
        extra = f"; {detail}" if detail else ""
        seen = f"; near {near!r}" if near else ""
        super().__init__(f"{kind}{where}: {what}{extra}{seen} ({text.remedy})")

    def __reduce__(self) -> tuple[object, ...]:
        return _frame_error, (self.kind, self.offset, self.limit, self.detail, self.near)


def _frame_error(kind: str, offset: int | None, limit: str | None, detail: str, near: bytes) -> FrameError:
    return FrameError(kind, offset, limit=limit, detail=detail, near=near)


def moved(error: FrameError, by: int) -> FrameError:
    """The same error, its offset counted from an earlier octet.

    >>> moved(FrameError("unexpected-nul", 3), 10).offset
    13
    """
    if not by or error.offset is None:
        return error
    return FrameError(error.kind, error.offset + by, limit=error.limit, detail=error.detail, near=error.near)


def in_short(error: FrameError) -> str:
    """What a peer is told about its stream: without our own remedies.

    >>> in_short(FrameError("limit-exceeded", 9, limit="max_body"))
    'At octet 9 of the stream: the frame is larger than the limits allow: max_body is passed'
    """
    limit = f": {error.limit} is passed" if error.limit else ""
    near = f"; near {error.near!r}" if error.near else ""
    return f"At octet {error.offset} of the stream: {ERROR_KINDS[error.kind].what}{limit}{near}"


def excerpt(head: bytes, at: int, width: int = 24) -> bytes:
    """Octets of `head` (a frame from its first octet on) around index `at`, or nothing if it may hold a secret.

    The secret may stand anywhere in the head, and the error may lie inside it, so the whole head decides.

    >>> excerpt(b"SEND\\nbroken\\n", 5)
    b'SEND\\nbroken\\n'
    >>> excerpt(b"CONNECT\\npasscode:x\\\\q", 20)
    b''
    """
    seen = head[:65536].lower()
    if head.upper().startswith(_SECRET_COMMANDS) or any(word in seen for word in _SECRET_WORDS):
        return b""
    at = min(at, len(head))
    return head[max(0, at - width) : at + width]


def refusal(name: str, value: str, *, raw: bool, connect: bool, errors: str) -> str:
    """Why a header cannot be written, in words that never show its value.

    Args:
        name, value: the header.
        raw: there are no escapes in this version, or for this command.
        connect: the command is CONNECT or CONNECTED.
        errors: how UTF-8 is written, "strict" or "surrogateescape".

    >>> refusal("a:b", "", raw=True, connect=False, errors="strict")
    "header 'a:b' has a colon in its name"
    """
    both = name + value
    try:
        both.encode("utf-8", errors)
        why = "holds a control octet"
    except UnicodeEncodeError:
        why = "cannot be written as UTF-8"
    if not name:
        why = "has an empty name"
    elif "\0" in both:
        why = "holds a NUL"
    elif raw and why[0] == "h":
        if ":" in name:
            why = "has a colon in its name"
        elif "\n" in both:
            why = "holds a line feed"
        elif connect and "\r" in both:
            why = "holds a carriage return"
        elif value != value.strip(" ") and min(both) >= " ":
            why = "has a space at an end of its value"
    return f"header {name[:40]!a} {why}"


class MissingExtraError(StompError, ImportError):
    """A feature was used whose optional packages are not installed.

    >>> print(MissingExtraError("cli", "rich"))
    this needs the package rich: pip install 'stompcodec[cli]'
    """

    def __init__(self, extra: str, package: str) -> None:
        self.extra = extra
        self.package = package
        super().__init__(f"this needs the package {package}: pip install 'stompcodec[{extra}]'")


class ProtocolError(StompError):
    """Frames that are fine by themselves, in a place or a form the protocol does not allow."""


class LocalProtocolError(ProtocolError):
    """Our own program broke the rules: nothing was sent.

    >>> issubclass(LocalProtocolError, StompError)
    True
    """


class RemoteProtocolError(ProtocolError):
    """The peer broke the rules: send `reply`, if there is one, then close.

    Args:
        message: what was wrong. It never shows the value of a header.
        reply: the ERROR frame to answer with; None where no answer is possible, as from a client.
        cause: the error of the codec behind it, if there is one; also in `__cause__`.

    >>> error = RemoteProtocolError("SEND came before CONNECT")
    >>> error.reply is None, error.cause is None
    (True, True)
    """

    def __init__(self, message: str, *, reply: ErrorFrame | None = None, cause: FrameError | None = None) -> None:
        self.reply = reply
        self.cause = cause
        self.__cause__ = cause
        super().__init__(message)


class ConnectionLostError(StompError, ConnectionError):
    """The transport is gone, or the peer has been silent for too long.

    Args:
        message: what happened.
        sent: of a call that waited: its frame may have reached the peer, so its outcome is unknown. False: the frame
            never left, and can be sent again without a duplicate.

    >>> error = ConnectionLostError("the peer is silent", sent=False)
    >>> isinstance(error, OSError), error.sent
    (True, False)
    """

    def __init__(self, message: str = "", *, sent: bool = True) -> None:
        self.sent = sent
        super().__init__(message)


class ReceiptTimeoutError(StompError, TimeoutError):
    """No RECEIPT came in time. The outcome is unknown: the peer may or may not have the frame.

    Args:
        message: what was waited for, and how long.
        sent: as in `ConnectionLostError`.

    >>> error = ReceiptTimeoutError("no RECEIPT within 30 s")
    >>> isinstance(error, TimeoutError), error.sent
    (True, True)
    """

    def __init__(self, message: str = "", *, sent: bool = True) -> None:
        self.sent = sent
        super().__init__(message)


class RejectedError(StompError):
    """The server answered a call with ERROR.

    Args:
        message: what was asked, and the server's words.
        frame: the ERROR frame.

    >>> from stompcodec import Frame
    >>> RejectedError("SEND was rejected: no such queue", Frame("ERROR", {"message": "no such queue"})).frame.command
    'ERROR'
    """

    def __init__(self, message: str, frame: ErrorFrame) -> None:
        self.frame = frame
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.frame)


class StaleAckError(StompError):
    """A message of an older connection was to be acknowledged. Nothing was sent: the server delivers it again.

    >>> issubclass(StaleAckError, StompError)
    True
    """


class StoreError(StompError):
    """A store of the broker, or a capture, cannot be read or written. The message says what to do.

    >>> issubclass(StoreError, StompError)
    True
    """


class ConfigError(StompError, ValueError):
    """A configuration that cannot be used.

    Args:
        message: what is wrong, and what is allowed.
        file: its name; "" where it came from elsewhere.
        line: counted from 1; None where it is not known.
        key: with dots between, as in "limits.max_body"; "" where it is about the whole file.

    >>> print(ConfigError("it must be 0 to 65535", file="broker.toml", line=3, key="port"))
    broker.toml, line 3: port: it must be 0 to 65535
    """

    def __init__(self, message: str, *, file: str = "", line: int | None = None, key: str = "") -> None:
        self.file = file
        self.line = line
        self.key = key
        where = ", ".join([*([file] if file else []), *([f"line {line}"] if line is not None else [])])
        super().__init__(": ".join(part for part in (where, key, message) if part))
