"""Tables of STOMP: commands, the dialect of each version, limits on sizes; and the checked arguments of the codec.

Code that depends on the version looks up a `Dialect`. The lenient mode is a dialect too: each leniency is a field, and
`_lenient` is their complete list.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import lt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal, NamedTuple
else:
    from stompcodec._lean import NamedTuple

#: Negotiable versions, oldest first.
VERSIONS = ("1.0", "1.1", "1.2")
CLIENT_1_0 = ("CONNECT", "SEND", "SUBSCRIBE", "UNSUBSCRIBE", "BEGIN", "COMMIT", "ABORT", "ACK", "DISCONNECT")
CLIENT_1_1 = (*CLIENT_1_0, "NACK", "STOMP")
SERVER = ("CONNECTED", "MESSAGE", "RECEIPT", "ERROR")
#: Commands whose frames may have a body in 1.1 and 1.2 (S11-BDY-01, S12-BDY-01).
WITH_BODY = frozenset(("SEND", "MESSAGE", "ERROR"))
#: Commands whose headers are never escaped (S11-ESC-06, S12-ESC-07).
UNESCAPED = frozenset(("CONNECT", "CONNECTED"))
#: Headers of CONNECT and STOMP with what a user has chosen.
OF_LOGIN = frozenset((b"login", b"passcode", b"client-id"))
#: Byte after a backslash -> the byte that both stand for.
ESCAPES_1_1 = {b"n": b"\n", b"c": b":", b"\\": b"\\"}
ESCAPES_1_2 = {**ESCAPES_1_1, b"r": b"\r"}


class Dialect(NamedTuple):
    """The rules of one STOMP version, strict or lenient."""

    name: str
    """The version as users write it; "none" before negotiation."""
    commands: frozenset[str]
    """The commands of this version."""
    escapes: dict[bytes, bytes]
    """Byte after a backslash -> byte; empty if backslashes are data."""
    crlf: bool
    """A CR before the LF belongs to the line end."""
    any_body: bool
    """Any frame may have a body, not only those of `WITH_BODY`."""
    folds_case: bool = False
    """Commands are folded to upper case, header names to lower case (legacy)."""
    trims_lines: bool = False
    """Spaces and CRs at line ends and spaces before values are stripped; values hold no control bytes (legacy)."""
    trims_headers: bool = False
    """Spaces around header names and values are stripped."""
    length_padding: bytes = b""
    """Bytes that are stripped around the digits of content-length."""
    any_command: bool = False
    """Unknown commands are accepted."""
    keeps_bad_escapes: bool = False
    """An undefined escape keeps its backslash."""
    keeps_bad_utf8: bool = False
    """Bytes that are not UTF-8 become lone surrogates (surrogateescape)."""
    skips_bad_lines: bool = False
    """Header lines without a colon or a name are skipped."""
    skips_nul: bool = False
    """NULs between frames are skipped."""
    mends_length: bool = False
    """A content-length that counts characters, or the NUL, is taken for what its sender means."""
    skips_idle_length: bool = False
    """The content-length of a frame without a body (not one of `WITH_BODY`) is ignored if the NUL follows at once."""
    keeps_login_escapes: bool = False
    """An undefined escape in one of `OF_LOGIN` keeps its backslash."""
    counts_send: bool = False
    """SEND always has content-length, even if its body is empty (legacy)."""


def _lenient(strict: Dialect) -> Dialect:
    """Return the lenient form of a dialect. The fields set here are all the leniencies."""
    return strict._replace(
        mends_length=True,
        skips_idle_length=True,
        crlf=True,
        any_body=True,
        any_command=True,
        keeps_bad_escapes=True,
        keeps_bad_utf8=True,
        skips_bad_lines=True,
        skips_nul=True,
        length_padding=b" \t",
        trims_headers=strict.name == "1.0",
    )


def _serving(strict: Dialect) -> Dialect:
    """Return what a server accepts that other brokers accept, too. In its first frame, before the version is known,
    a client may have written a login as it is: stomp.py does not escape those of the command STOMP."""
    return strict._replace(skips_idle_length=True, keeps_login_escapes=strict.name == "none")


_V1_0 = Dialect("1.0", frozenset((*CLIENT_1_0, *SERVER)), {}, crlf=False, any_body=True, length_padding=b" ")
_V1_1 = Dialect("1.1", frozenset((*CLIENT_1_1, *SERVER)), ESCAPES_1_1, crlf=False, any_body=False)
_V1_2 = Dialect("1.2", frozenset((*CLIENT_1_1, *SERVER)), ESCAPES_1_2, crlf=True, any_body=False)
_LEGACY = Dialect(
    "legacy",
    frozenset((*CLIENT_1_0, *SERVER)),
    {},
    crlf=True,
    any_body=True,
    folds_case=True,
    trims_lines=True,
    length_padding=b" ",
    counts_send=True,
)

#: How much a reader tolerates: nothing, what a server should take from its clients, common mistakes of peers.
LENIENCIES = (False, "server", True)
#: (version, lenient) -> dialect. None is before negotiation, and has the rules of 1.2.
DIALECTS: dict[tuple[str | None, object], Dialect] = {}
for _version, _strict in {
    None: _V1_2._replace(name="none"),
    "1.0": _V1_0,
    "1.1": _V1_1,
    "1.2": _V1_2,
    "legacy": _LEGACY,
}.items():
    DIALECTS[_version, False] = _strict
    DIALECTS[_version, "server"] = _serving(_strict)
    DIALECTS[_version, True] = _lenient(_strict)


def dialect_of(version: str | None, lenient: object = False) -> Dialect:
    """Return the rules of a version: "1.0", "1.1", "1.2", "legacy", or None before negotiation; others raise
    ValueError. `lenient` is one of `LENIENCIES`.
    """
    key = version, checked_leniency(lenient)
    try:
        return DIALECTS[key]
    except (KeyError, TypeError):
        raise ValueError(f"version is {version!r}: use '1.0', '1.1', '1.2', 'legacy' or None") from None


def checked_leniency(lenient: object) -> object:
    """Return one of `LENIENCIES`. Raise TypeError for another value."""
    return lenient if lenient == "server" else checked_flag("lenient", lenient, 'True, False or "server"')


def checked_flag(name: str, value: object, kinds: str = "True or False") -> bool:
    """Return a boolean argument. Raise TypeError with its name if it is not one."""
    if type(value) is not bool:
        raise TypeError(f"{name} is {value!r:.60}: it must be {kinds}")
    return value


class Limits(NamedTuple):
    """The largest sizes that a reader accepts, in bytes on the wire. Line ends are not counted (S12-LIM-05).

    Args:
        max_command_line: bytes of a command line.
        max_header_line: bytes of a header line.
        max_headers: header lines of a frame.
        max_body: bytes of a body.

    >>> Limits(max_body=1 << 20).max_body
    1048576
    """

    max_command_line: int = 256
    max_header_line: int = 65536
    max_headers: int = 1000
    max_body: int = 100 * 2**20


DEFAULT_LIMITS = Limits()
_NO_COMMANDS: frozenset[str] = frozenset()
#: The C backend stores offsets inside a frame's head in 32 bits.
_MAX_HEAD = 2**32 - 1
_MAX_BODY = 2**62


def checked_limits(limits: Limits | None) -> Limits:
    """Return the limits to use: those given, or the defaults. Raise TypeError or ValueError if one is not an int, is
    negative or is too large.
    """
    if limits is None:
        return DEFAULT_LIMITS
    if not isinstance(limits, Limits):
        raise TypeError(f"limits is {limits!r}: it must be Limits")
    if type(limits) is not Limits:
        limits = Limits(*tuple.__iter__(limits))  # a subclass may have methods of its own
    for name, value in zip(limits._fields, limits):
        if type(value) is not int:
            raise TypeError(f"{name} is {value!r}: it must be an int")
        if value < 0:
            raise ValueError(f"{name} is {value}: it must be 0 or more")
    if limits.max_command_line + limits.max_headers * (limits.max_header_line + 2) + 4 > _MAX_HEAD:
        raise ValueError("max_headers times max_header_line is 4 GiB or more: lower one of them")
    if limits.max_body > _MAX_BODY:
        raise ValueError(f"max_body is {limits.max_body}: the most is 2**62")
    return limits


def _listed(name: str, given: Any, what: str = "a list or tuple of names") -> tuple[Any, ...]:
    """Return what an argument lists. Raise TypeError for one string, or what lists nothing."""
    is_one = isinstance(given, (str, bytes))
    if is_one or not hasattr(given, "__iter__"):
        raise TypeError(f"{name} is {'one string' if is_one else type(given).__name__}: give {what}")
    return tuple(given)


def checked_names(names: Iterable[str] | None) -> tuple[str, ...]:
    """Return header names as a tuple. Raise TypeError for one string, or a name that is not str."""
    checked = _listed("names", names or ())
    for name in checked:
        if not isinstance(name, str):
            raise TypeError(f"a header's name must be str, not {type(name).__name__}")
    return tuple([str.__str__(name) for name in checked])


def checked_commands(commands: Iterable[str]) -> frozenset[str]:
    """Return the names of further commands as a set. Raise TypeError for one string, or a name that is not str;
    ValueError for a name that cannot stand on a command line.
    """
    if not commands:
        return _NO_COMMANDS
    names = set()
    for name in _listed("commands", commands):
        if not isinstance(name, str):
            raise TypeError(f"a command must be str, not {type(name).__name__}")
        name = str.__str__(name)  # a subclass may have methods of its own
        if not name or any(octet in name for octet in "\0\r\n"):
            raise ValueError("a name in commands is empty, or contains NUL, CR or LF")
        name.encode()
        names.add(name)
    return frozenset(names)


# ---- the columns and frames that `parse_columns` is asked for ----
#: The columns, in order. Those of single headers follow them.
COLUMNS = ("command", "headers", "body", "offset", "length", "error")


class Condition(NamedTuple):
    """A condition on a frame, as UTF-8. Frames that do not meet it make no row."""

    name: bytes
    """The name of a header, or "command"."""
    is_prefix: bool
    """True if the text must begin with one of the values; False if it must equal one."""
    values: tuple[bytes, ...]
    """In ascending order. Invariant: no prefix begins with another, so that comparing with one value is enough."""

    def holds(self, text: bytes) -> bool:
        low, high = 0, len(self.values)
        while low < high:
            middle = (low + high) // 2
            if self.values[middle] <= text:
                low = middle + 1
            else:
                high = middle
        if not low:
            return False
        value = self.values[low - 1]
        return text.startswith(value) if self.is_prefix else text == value


#: Conditions as callers give them: (name, "in" or "prefix", values), or prepared by `checked_where`.
if TYPE_CHECKING:
    Where = Iterable[Condition | tuple[str, Literal["in", "prefix"], Iterable[str]]]
else:
    Where = Iterable


def checked_columns(columns: Iterable[str] | None) -> frozenset[str]:
    """Return the chosen columns; all for None. Raise TypeError for one string, ValueError for an unknown column."""
    if columns is None:
        return frozenset(COLUMNS)
    wanted = _listed("columns", columns)
    for name in wanted:
        if name not in COLUMNS:
            raise ValueError(f"unknown column {name!r}: use {', '.join(COLUMNS)}; headers are given by names")
    return frozenset(wanted)


def checked_where(where: Iterable[Any]) -> tuple[Condition, ...]:
    """Return prepared conditions, for one or many calls of `parse_columns`. Prepared ones are returned unchanged
    after a look at them.

    Args:
        where: (name, "in", values) or (name, "prefix", values). The name is that of a header, or "command".

    Raises:
        TypeError, ValueError: a condition is malformed; the message says which.

    >>> checked_where([("destination", "prefix", ["/b", "/a", "/b/c"])])
    (Condition(name=b'destination', is_prefix=True, values=(b'/a', b'/b')),)
    """
    what = 'a list of conditions such as ("destination", "in", ["/queue/a"])'
    return tuple([_checked_condition(condition) for condition in _listed("where", where, what)])


def _checked_condition(condition: Any) -> Condition:
    if type(condition) is Condition:
        return _checked_prepared(condition)
    if not isinstance(condition, (tuple, list)) or len(condition) != 3:
        raise TypeError(f'{condition!r} is not a condition: it must be (name, "in" or "prefix", values)')
    name, kind, given = condition
    if kind not in ("in", "prefix"):
        raise ValueError(f"the condition on {name!r} has {kind!r}: use 'in' or 'prefix'")
    texts = _listed(f"the condition on {name!r}", given, "a list or tuple of values")
    for text in (name, *texts):
        if not isinstance(text, str):
            raise TypeError(f"the condition on {name!r} has a {type(text).__name__}: it must be str")
    values = sorted({str.encode(text) for text in texts})  # a subclass may have methods of its own
    return Condition(str.encode(name), kind == "prefix", tuple(_shortest(values) if kind == "prefix" else values))


def _checked_prepared(condition: Condition) -> Condition:
    """Return a prepared condition, which may have been made by hand."""
    name, is_prefix, values = condition
    if type(values) is not tuple or {bytes} != {type(name), *map(type, values)} or type(is_prefix) is not bool:
        raise TypeError(
            f"{condition!r} is not a condition: make it with checked_where, of bytes, a bool and a tuple of bytes"
        )
    following = values[1:]
    if not all(map(lt, values, following)) or (is_prefix and any(map(bytes.startswith, following, values))):
        raise ValueError(f"the values for {name!r} are not in ascending order, or repeat: make it with checked_where")
    return condition


def _shortest(prefixes: list[bytes]) -> Iterable[bytes]:
    """Yield the prefixes that do not begin with another one."""
    last = None
    for prefix in prefixes:
        if last is None or not prefix.startswith(last):
            last = prefix
            yield prefix


def checked_every(every: int, most: int | None) -> tuple[int, int]:
    """Return the checked arguments of `frame_ends`; None as `most` means no bound."""
    for name, number, least in (("every", every, 1), ("most", most, 0)):
        if number is None and name == "most":
            continue
        if type(number) is not int:
            raise TypeError(f"{name} is {number!r}: it must be an int")
        if number < least:
            raise ValueError(f"{name} is {number}: it must be {least} or more")
    return min(every, 2**63 - 1), 2**63 - 1 if most is None else min(most, 2**63 - 1)
