"""The errors of the package. Each derives from `StompError`.

Both backends raise `FrameError` with a kind and an offset; the texts are here.
"""

from __future__ import annotations

from collections.abc import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple, Protocol
else:
    from stompcodec._lean import NamedTuple, Protocol


class ErrorFrame(Protocol):
    """The frame that an error carries: the `Frame` of either backend."""

    @property
    def command(self) -> str: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def body(self) -> bytes: ...

    def get(self, name: str, /) -> str | None: ...

    def text(self) -> str: ...


class ErrorText(NamedTuple):
    """The text of one kind of error."""

    what: str
    """The problem."""
    remedy: str
    """A way to fix it."""


#: All kinds. A kind is public: programs compare it, so its meaning never changes.
ERROR_KINDS: dict[str, ErrorText] = {
    "unknown-command": ErrorText(
        "unknown command for this STOMP version",
        "check the peer's version, name the command in commands=, or read with lenient=True",
    ),
    "bad-header-line": ErrorText(
        "a header line needs a name, a colon and a value without control characters",
        "fix the sender, or read with lenient=True to skip lines without a name or a colon",
    ),
    "bad-escape": ErrorText(
        "undefined escape in a header for this STOMP version",
        "fix the sender, or read with lenient=True to keep the backslash",
    ),
    "invalid-utf8": ErrorText(
        "a header is not UTF-8", "fix the sender, or read with lenient=True to keep the bytes as lone surrogates"
    ),
    "unexpected-nul": ErrorText(
        "unexpected NUL: no frame can end here",
        "check for a body with NULs that was sent without content-length, and that the port speaks STOMP",
    ),
    "bad-content-length": ErrorText(
        "content-length is not the number of bytes in the body, in ASCII digits",
        "when writing, leave the header out and it is added; when reading, fix the sender",
    ),
    "missing-null": ErrorText(
        "no NUL follows a body of content-length bytes",
        "fix the sender: content-length counts the bytes of the body, not its characters, and without the NUL; or read "
        "with lenient=True",
    ),
    "body-not-allowed": ErrorText(
        "only SEND, MESSAGE and ERROR frames have a body",
        "drop the body, and the content-length if there is one, or read with lenient=True",
    ),
    "limit-exceeded": ErrorText("the frame exceeds the limits", "raise that field of Limits to accept such frames"),
    "truncated": ErrorText(
        "the stream ended inside a frame",
        "the peer or the network cut the connection: read the stream again from a frame's start",
    ),
    "unencodable": ErrorText(
        "the frame cannot be written in this STOMP version", "use a newer version, or leave the header or body out"
    ),
    "no-common-version": ErrorText(
        "the two sides have no STOMP version in common", "offer more versions in accept-version"
    ),
    "bad-heart-beat": ErrorText(
        "heart-beat is not two numbers of milliseconds, separated by a comma", "write it as in heart-beat:10000,10000"
    ),
    "bad-content-encoding": ErrorText(
        "the body does not match its content-encoding", "check content-encoding, and the limit for the inflated body"
    ),
}


def tell_of_length() -> None:
    """Log that the peer's content-length is wrong, and taken for what it means. Readers call it once."""
    import logging

    text = "the peer's content-length counts characters, or the NUL, and is taken for that: have its sender count bytes"
    logging.getLogger("stompcodec.codec").warning(text)


#: Answers of other protocols: where bytes stand, the bytes, the protocol, and what to do.
_STRANGERS = (
    (0, (b"\x15\x03", b"\x16\x03"), "TLS", "use stomp+ssl://"),
    (0, b"HTTP/", "HTTP", "use ws:// or http:// for WebSocket and SockJS"),
    (5, b"ActiveMQ", "OpenWire", "the port for STOMP is usually 61613"),
    (0, b"AMQP", "AMQP", "the port for STOMP is usually 61613"),
    (0, b"\x20\x02", "MQTT", "the port for STOMP is usually 61613"),
    (0, b"SSH-", "SSH", ""),
    (0, b"-ERR", "Redis", ""),
    (0, b"INFO {", "NATS", ""),
    (0, b"220", "SMTP or FTP", ""),
    (3, b"\0\x0a", "MySQL", ""),
)


def stranger(octets: bytes) -> str:
    """Return the protocol that a server's first bytes are of, and what to do about it; "" if that is not known.

    >>> stranger(b"HTTP/1.1 400 Bad Request")
    'this is HTTP: use ws:// or http:// for WebSocket and SockJS'
    """
    for at, sign, name, remedy in _STRANGERS:
        if octets.startswith(sign, at):
            return f"this is {name}: {remedy or 'check the port'}"
    return ""


#: A name that contains one of these words names a secret.
SECRET_WORDS = ("passcode", "password", "authorization", "token", "secret", "cookie")
_SECRET_COMMANDS = (b"CONNECT", b"STOMP")
#: Bytes shown on each side of an error.
NEAR = 24


class StompError(Exception):
    """The base class of all errors that stompcodec raises.

    >>> issubclass(FrameError, StompError)
    True
    """


class FrameError(StompError, ValueError):
    """A malformed frame: bytes that cannot be read, or a frame that cannot be written.

    Args:
        kind: a key of `ERROR_KINDS`.
        offset: octets from the start of the stream to the error; None if a frame cannot be written.
        limit: the field of `Limits` that was exceeded, for the kind "limit-exceeded".
        detail: the cause in a few words, such as the name of a header. Never a header's value.
        near: bytes around the offset, for the message; empty if they may contain a secret.

    >>> error = FrameError("unknown-command", 0, near=b"SSH-2.0-OpenSSH")
    >>> error.kind, error.offset
    ('unknown-command', 0)
    >>> print(error)
    unknown-command at octet 0: unknown command for this STOMP version; near b'SSH-2.0-OpenSSH' \
(this is SSH: check the port)
    """

    def __init__(
        self, kind: str, offset: int | None = None, *, limit: str | None = None, detail: str = "", near: bytes = b""
    ) -> None:
        text = ERROR_KINDS[kind]
        self.kind = kind
        self.offset = offset
        self.limit = limit
        self.detail = detail
        self.near = near
        where = "" if offset is None else f" at octet {offset}"
        what = f"{text.what}: {limit} is exceeded" if limit else text.what
        extra = f"; {detail}" if detail else ""
        seen = f"; near {near!r}" if near else ""
        self.remedy = (stranger(near) if offset is not None and offset <= NEAR else "") or text.remedy
        super().__init__(f"{kind}{where}: {what}{extra}{seen} ({self.remedy})")

    def __reduce__(self) -> tuple[object, ...]:
        return _frame_error, (self.kind, self.offset, self.limit, self.detail, self.near)


def _frame_error(kind: str, offset: int | None, limit: str | None, detail: str, near: bytes) -> FrameError:
    return FrameError(kind, offset, limit=limit, detail=detail, near=near)


def moved(error: FrameError, by: int) -> FrameError:
    """Return the error with its offset counted from a byte that is `by` bytes earlier."""
    if not by or error.offset is None:
        return error
    return FrameError(error.kind, error.offset + by, limit=error.limit, detail=error.detail, near=error.near)


def in_short(error: FrameError) -> str:
    """Return the text of an error for the peer: without our remedies."""
    limit = f": {error.limit} is exceeded" if error.limit else ""
    near = f"; near {error.near!r}" if error.near else ""
    return f"At octet {error.offset} of the stream: {ERROR_KINDS[error.kind].what}{limit}{near}"


def may_be_secret(text: str) -> bool:
    """Return whether a text has a word such as "passcode", so that it, or the value it names, must not be shown."""
    folded = text.lower()
    return any(word in folded for word in SECRET_WORDS)


def excerpt(head: bytes, at: int) -> bytes:
    """Return the bytes around index `at` of a frame, or b"" if they may contain a secret.

    All of `head`, the frame from its first byte on, is searched for words such as "passcode".
    """
    if head.upper().startswith(_SECRET_COMMANDS) or may_be_secret(head[:65536].decode("latin-1")):
        return b""
    at = min(at, len(head))
    return head[max(0, at - NEAR) : at + NEAR]


def refusal(name: str, value: str, *, raw: bool, connect: bool, errors: str) -> str:
    """Return why a header cannot be written, without its value. `raw`: the version or the command has no escapes.
    `connect`: the command is CONNECT or CONNECTED. `errors`: text is encoded as "strict" or "surrogateescape".
    """
    return f"header {name[:40]!a} {_why_not(name, value, raw, connect, errors)}"


def _why_not(name: str, value: str, raw: bool, connect: bool, errors: str) -> str:
    both = name + value
    if not name:
        return "has an empty name"
    if "\0" in both:
        return "contains a NUL"
    try:
        both.encode("utf-8", errors)
    except UnicodeEncodeError:
        return "cannot be written as UTF-8"
    if raw and ":" in name:
        return "has a colon in its name"
    if raw and "\n" in both:
        return "contains a line feed"
    if raw and connect and "\r" in both:
        return "contains a carriage return"
    if raw and value != value.strip(" ") and min(both) >= " ":
        return "has a space at an end of its value"
    return "contains a control character"


class ContentError(StompError, ValueError):
    """A body that cannot be decoded to text, or converted. The message says why and shows nothing of the body.

    >>> from stompcodec.frame import Frame
    >>> Frame("MESSAGE", {"content-type": "image/png"}, b"x").text()
    Traceback (most recent call last):
        ...
    stompcodec.errors.ContentError: the content-type 'image/png' is not text: use frame.body
    """


class MissingExtraError(StompError, ImportError):
    """An optional package is missing that a feature needs.

    Args:
        extra: the extra of stompcodec that installs it.
        package: its name.

    >>> print(MissingExtraError("cli", "rich"))
    this needs the package rich: pip install 'stompcodec[cli]'
    """

    def __init__(self, extra: str, package: str) -> None:
        self.extra = extra
        self.package = package
        super().__init__(f"this needs the package {package}: pip install 'stompcodec[{extra}]'")


class ProtocolError(StompError):
    """A violation of the protocol by well-formed frames: wrong order, or missing headers."""


class LocalProtocolError(ProtocolError):
    """A violation of the protocol by our own program. Nothing was sent.

    >>> issubclass(LocalProtocolError, StompError)
    True
    """


class RemoteProtocolError(ProtocolError):
    """A violation of the protocol by the peer: send `reply` if it is not None, then close.

    Args:
        message: the problem. It shows the values of no headers but those that name a message or receipt.
        reply: the ERROR frame to answer with; None on the client's side, which has no answer.
        cause: the underlying error of the codec, or None; also in `__cause__`.
        frame: on the client's side, what was read of a malformed frame before its fault: its command and first headers.

    >>> error = RemoteProtocolError("SEND came before CONNECT")
    >>> error.reply is None, error.cause is None
    (True, True)
    """

    def __init__(
        self,
        message: str,
        *,
        reply: ErrorFrame | None = None,
        cause: FrameError | None = None,
        frame: ErrorFrame | None = None,
    ) -> None:
        self.reply = reply
        self.cause = cause
        self.frame = frame
        self.__cause__ = cause
        super().__init__(message)


class ConnectionLostError(StompError, ConnectionError):
    """The loss of a connection: the transport failed, or the peer was silent for too long.

    Args:
        message: the cause.
        sent: True: the frame of the call that failed may have reached the peer. False: it was not sent, so that sending
            it again makes no duplicate.

    >>> error = ConnectionLostError("the peer is silent", sent=False)
    >>> isinstance(error, OSError), error.sent
    (True, False)
    """

    def __init__(self, message: str = "", *, sent: bool = True) -> None:
        self.sent = sent
        super().__init__(message)


class ReceiptTimeoutError(StompError, TimeoutError):
    """A RECEIPT that did not arrive in time. The peer may or may not have the frame.

    Args:
        message: the frame, and the time-out.
        sent: as for `ConnectionLostError`.

    >>> error = ReceiptTimeoutError("no RECEIPT within 30 s")
    >>> isinstance(error, TimeoutError), error.sent
    (True, True)
    """

    def __init__(self, message: str = "", *, sent: bool = True) -> None:
        self.sent = sent
        super().__init__(message)


class RejectedError(StompError):
    """An ERROR frame as the answer to a call.

    Args:
        message: the call, and the server's message.
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


class SilentFeedError(StompError):
    """A feed that sent no message for longer than was expected, whatever its broker's heart-beats say.

    >>> issubclass(SilentFeedError, StompError)
    True
    """


class StaleAckError(StompError):
    """An attempt to acknowledge a message of an earlier connection. Nothing was sent; the server redelivers it.

    >>> issubclass(StaleAckError, StompError)
    True
    """


class StoreError(StompError):
    """A failure to read or write a broker's store or a capture. The message says what to do.

    >>> issubclass(StoreError, StompError)
    True
    """


class ConfigError(StompError, ValueError):
    """An invalid configuration.

    Args:
        message: the problem, and the allowed values.
        file: the name of the file; "" for other sources.
        line: the line, counted from 1; None if unknown.
        key: the key, such as "limits.max_body"; "" if the error is about the whole file.

    >>> print(ConfigError("it must be 0 to 65535", file="broker.toml", line=3, key="port"))
    broker.toml, line 3: port: it must be 0 to 65535
    """

    def __init__(self, message: str, *, file: str = "", line: int | None = None, key: str = "") -> None:
        self.file = file
        self.line = line
        self.key = key
        where = ", ".join([*([file] if file else []), *([f"line {line}"] if line is not None else [])])
        super().__init__(": ".join(part for part in (where, key, message) if part))
