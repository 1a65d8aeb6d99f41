"""Frames and their headers in Python. The C backend has the same classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from stompcodec.errors import may_be_secret

TYPE_CHECKING = False
if TYPE_CHECKING:
    from enum import Enum
    from typing import Any, overload
else:
    from stompcodec._lean import Enum, overload

#: Escapes as (written, meant), without that of the backslash, at which `_unescape` splits.
Escapes = tuple[tuple[str, str], ...]


class Mark(Enum):
    """An event of a parser that is neither a frame nor a piece of a body: HEARTBEAT or END_OF_BODY.

    >>> from stompcodec import HEARTBEAT, Parser
    >>> list(Parser("1.2", heartbeats=True).feed(b"\\n")) == [HEARTBEAT]
    True
    """

    HEARTBEAT = "heartbeat"
    END_OF_BODY = "end of body"

    def __repr__(self) -> str:
        return f"stompcodec.{self.name}"


#: The event for an EOL between frames, if `Parser(heartbeats=True)` reports them.
HEARTBEAT = Mark.HEARTBEAT
#: The event for the end of a body that `Parser(stream_over=n)` handed out in pieces.
END_OF_BODY = Mark.END_OF_BODY
_SHOWN_HEADERS = 12
_SHOWN_VALUE = 80
_SHOWN_BODY = 40


def _shown_headers(pairs: Iterable[tuple[str, str]]) -> list[str]:
    shown: list[str] = []
    for index, (name, value) in enumerate(pairs):
        if index == _SHOWN_HEADERS:
            return [*shown, "…"]
        if may_be_secret(name):
            value = "***"
        more = "…" if len(value) > _SHOWN_VALUE else ""
        label = name[:_SHOWN_VALUE]
        shown.append(f"{label if label.isprintable() else ascii(label)}={value[:_SHOWN_VALUE]!a}{more}")
    return shown


def frame_repr(command: str, pairs: Iterable[tuple[str, str]], body: bytes | None) -> str:
    """Return the repr of a frame: secrets are masked, long parts are cut."""
    words = [command if command.isprintable() else ascii(command), *_shown_headers(pairs)]
    if body is None:
        words.append("body=streamed")
    elif body:
        more = "…" if len(body) > _SHOWN_BODY else ""
        words.append(f"body={len(body)} bytes {body[:_SHOWN_BODY]!r}{more}")
    return f"<Frame {' '.join(words)}>"


def headers_repr(pairs: Iterable[tuple[str, str]]) -> str:
    """Return the repr of headers, masked and cut as in `frame_repr`."""
    return f"<{' '.join(['Headers', *_shown_headers(pairs)])}>"


def is_utf8(data: bytes) -> bool:
    """Return whether bytes are UTF-8, and so can be a text message of WebSocket."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def octets(data: Any) -> bytes:
    """Return a contiguous bytes-like object as bytes; raise TypeError or BufferError for anything else."""
    if type(data) is bytes:
        return data
    try:
        view = memoryview(data)
    except TypeError:
        raise TypeError(f"a bytes-like object is required, not {type(data).__name__!r}") from None
    if not view.c_contiguous:
        raise BufferError("the data is not contiguous: copy it to bytes first")
    return view.tobytes()


def _text(value: object, what: str) -> str:
    """Return `value` as an exact str. The error names its type, never the value, which may be a secret."""
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"{what} must be str, not {type(value).__name__}")


_NO_PAIRS = "headers must be a mapping or pairs of name and value"


def _listed(items: Any) -> list[Any]:
    if not hasattr(items, "__iter__") and not hasattr(items, "__getitem__"):
        raise TypeError(_NO_PAIRS)
    return list(items)


def _checked_pairs(headers: Any) -> list[tuple[str, str]]:
    pairs: list[Any]
    if type(headers) is dict:
        pairs = list(headers.items())
    elif isinstance(headers, Headers):
        return headers.pairs()
    elif hasattr(headers, "keys"):
        pairs = [(name, headers[name]) for name in headers.keys()]
    else:
        pairs = _listed(headers)
    checked: list[tuple[str, str]] = []
    for pair in pairs:
        if type(pair) is not tuple:
            pair = () if isinstance(pair, str) else _listed(pair)
        if len(pair) != 2:
            raise TypeError(_NO_PAIRS)
        name, value = pair
        if type(name) is not str or type(value) is not str:
            name = _text(name, "header name")
            value = _text(value, f"value of header {name!r}")
        checked.append((name, value))
    return checked


def _unescape(text: str, escapes: Escapes) -> str:
    # split() pairs up a run of backslashes from the left, as the escapes do: a backslash that is left is not half of a
    # pair.
    if "\\\\" in text:
        return "\\".join([_unescape(part, escapes) for part in text.split("\\\\")])
    for escape, plain in escapes:
        text = text.replace(escape, plain)
    return text


def _parsed_headers(text: str, escapes: Escapes | None) -> Headers:
    """Return the headers of checked lines: "\\n", then each line with its "\\n"."""
    pairs = [line.split(":", 1) for line in text.split("\n")[1:-1]]
    if escapes is not None and "\\" in text:
        for pair in pairs:
            if "\\" in pair[1]:
                pair[1] = _unescape(pair[1], escapes)
            if "\\" in pair[0]:
                pair[0] = _unescape(pair[0], escapes)
    return _make_headers(dict(pairs), pairs)


class Headers(dict[str, str]):
    """The headers of a frame: a read-only dict, in which the first entry of a repeated name counts (S12-HDR-02).

    `pairs()` and `getall()` return repeated entries too. Its methods do not write, but Python itself does:
    `eval(code, headers)`, `dict.__setitem__` and an object whose `__dict__` they are. Give those a copy:
    `dict(headers)`.

    >>> headers = Frame("SEND", [("a", "1"), ("b", "2"), ("a", "3")]).headers
    >>> headers["a"], len(headers), headers.getall("a"), dict(headers)
    ('1', 2, ['1', '3'], {'a': '1', 'b': '2'})
    """

    __slots__ = ("_repeats",)
    _repeats: list[tuple[str, str]] | None  # every entry, where a name comes twice

    def __init__(self) -> None:
        raise TypeError("Headers are made by Frame")

    def __init_subclass__(cls) -> None:
        raise TypeError("Headers cannot be subclassed")

    def getall(self, name: str, /) -> list[str]:
        """Return the values of all entries of a name, in order."""
        if not isinstance(name, str):
            raise TypeError(f"name must be str, not {type(name).__name__}")
        return [value for key, value in self.pairs() if key == name]

    def pairs(self) -> list[tuple[str, str]]:
        """Return all entries as (name, value), in order, repeated names included."""
        return list(self.items() if self._repeats is None else self._repeats)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, dict):
            return dict.__eq__(self, other)
        return dict.__eq__(self, dict(other)) if isinstance(other, Mapping) else NotImplemented

    def __ne__(self, other: object) -> bool:
        same = self.__eq__(other)
        return same if same is NotImplemented else not same

    __hash__ = None

    def __repr__(self) -> str:
        return headers_repr(self.pairs())

    def __reduce__(self) -> tuple[object, ...]:
        return dict, (dict(self),)

    def _refuse(self, *args: object, **kwargs: object) -> Any:
        """Raise TypeError: headers are read-only."""
        raise TypeError("headers are read-only: make a new Frame")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse


def _make_headers(entries: dict[str, str], pairs: Sequence[Sequence[str]]) -> Headers:
    """Return the headers of `pairs`; `entries` is a dict of them."""
    headers = Headers.__new__(Headers)
    dict.update(headers, entries)
    headers._repeats = None
    if len(entries) != len(pairs):
        headers._repeats = [(name, value) for name, value in pairs]
        dict.update(headers, reversed(headers._repeats))  # the order does not change
    return headers


class Frame:
    """A STOMP frame: a command, headers and a body. Immutable.

    Args:
        command: such as "SEND". `serialize` checks whether the version has it.
        headers: a mapping, or (name, value) pairs, in which a name may be repeated.
        body: any contiguous bytes-like object. Encode text first.

    Raises:
        TypeError: an argument has another type. The message never shows a value.

    >>> frame = Frame("SEND", {"destination": "/queue/a"}, b"hello")
    >>> frame
    <Frame SEND destination='/queue/a' body=5 bytes b'hello'>
    >>> frame.headers["destination"], frame.get("receipt"), frame.body
    ('/queue/a', None, b'hello')
    """

    # A parsed frame keeps its header lines as checked text: `_lines` is "\n", then each line with its "\n". `_headers`
    # is made from it on first use.
    __slots__ = ("_body", "_command", "_escapes", "_headers", "_lines")
    _body: bytes | None
    _command: str
    _escapes: Escapes | None
    _headers: Headers | None
    _lines: str

    def __init__(
        self, command: str, headers: Mapping[str, str] | Iterable[tuple[str, str]] = (), body: Any = b""
    ) -> None:
        if hasattr(self, "_command"):
            raise TypeError("a frame cannot be changed")
        command = _text(command, "command")
        if isinstance(body, str):
            raise TypeError("body must be bytes-like, not str: encode it, as in text.encode()")
        try:
            self._body = octets(body)
        except TypeError:
            raise TypeError(f"body must be bytes-like, not {type(body).__name__}") from None
        pairs = _checked_pairs(headers)
        self._headers = _make_headers(dict(pairs), pairs)
        self._command = command

    def __init_subclass__(cls) -> None:
        raise TypeError("Frame cannot be subclassed")

    @property
    def command(self) -> str:
        """The command, such as "SEND"."""
        return self._command

    @property
    def body(self) -> bytes:
        """The body as bytes; None if `Parser(stream_over=n)` hands it out in pieces."""
        return self._body  # type: ignore[return-value]

    @property
    def headers(self) -> Headers:
        """The headers: a read-only dict, in which the first entry of a repeated name counts."""
        headers = self._headers
        if headers is None:
            self._headers = headers = _parsed_headers(self._lines, self._escapes)
        return headers

    @overload
    def get(self, name: str, /) -> str | None: ...
    @overload
    def get(self, name: str, default: str, /) -> str: ...  # noqa: F811 ruff does not know our overload
    @overload
    def get(self, name: str, default: None, /) -> str | None: ...  # noqa: F811
    def get(self, name: str, default: str | None = None, /) -> str | None:  # noqa: F811
        """Return the first value of a header, or `default`."""
        if not isinstance(name, str):
            raise TypeError(f"name must be str, not {type(name).__name__}")
        return self.headers.get(name, default)

    def has_any(self, *names: str) -> bool:
        """Return whether the frame has a header with one of these names.

        >>> Frame("SEND", {"destination": "/queue/a"}).has_any("receipt", "destination")
        True
        """
        return any(self.get(name) is not None for name in names)

    def text(self) -> str:
        """Return the body as text, by its content-type and content-encoding.

        Raises:
            ContentError: the body is binary, streamed, or not in its charset. It is a ValueError.
            FrameError: the content-encoding cannot be undone, or the result is larger than 100 MiB.
        """
        from stompcodec.content import text_of

        return text_of(self)

    def _key(self) -> tuple[str, tuple[tuple[str, str], ...], bytes | None]:
        return self._command, tuple(self.headers.pairs()), self._body

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Frame):
            return self is other or self._key() == other._key()
        kind = type(other)
        if kind.__name__ == "Frame" and kind.__module__.startswith("stompcodec"):  # of the other backend
            frame: Any = other
            return self._key() == (frame.command, tuple(frame.headers.pairs()), frame.body)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return frame_repr(self._command, self.headers.pairs(), self._body)

    def __copy__(self) -> Frame:
        return self

    def __deepcopy__(self, _memo: object) -> Frame:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return _restorers[0], self._key()


#: The function that unpickles a frame with the backend in use; `codec` puts it here.
_restorers: list[Callable[..., object]] = []
_new_frame = Frame.__new__


def parsed_frame(command: str, lines: str, escapes: Escapes | None, body: bytes | None) -> Frame:
    """Return a frame of checked header lines: "\\n", then each line with its "\\n"."""
    frame = _new_frame(Frame)
    frame._command = command
    frame._headers = None
    frame._lines = lines
    frame._escapes = escapes
    frame._body = body
    return frame
