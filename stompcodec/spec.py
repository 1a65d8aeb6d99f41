"""Tables of STOMP: commands, the dialect of each version, and limits on sizes.

Code that depends on the version looks up a `Dialect`. The lenient mode is a dialect too: each leniency is a field, and
`_lenient` is their complete list.
"""

from __future__ import annotations

from collections.abc import Iterable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
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
    counts_send: bool = False
    """SEND always has content-length, even if its body is empty (legacy)."""


def _lenient(strict: Dialect) -> Dialect:
    """Return the lenient form of a dialect. The fields set here are all the leniencies."""
    return strict._replace(
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

#: (version, lenient) -> dialect. None is before negotiation, and has the rules of 1.2.
DIALECTS: dict[tuple[str | None, bool], Dialect] = {}
for _version, _strict in {
    None: _V1_2._replace(name="none"),
    "1.0": _V1_0,
    "1.1": _V1_1,
    "1.2": _V1_2,
    "legacy": _LEGACY,
}.items():
    DIALECTS[_version, False] = _strict
    DIALECTS[_version, True] = _lenient(_strict)


def dialect_of(version: str | None, lenient: bool = False) -> Dialect:
    """Return the rules of a version: "1.0", "1.1", "1.2", "legacy", or None before negotiation; others raise
    ValueError. `lenient` tolerates common mistakes of peers.
    """
    try:
        return DIALECTS[version, bool(lenient)]
    except (KeyError, TypeError):
        raise ValueError(f"version is {version!r}: use '1.0', '1.1', '1.2', 'legacy' or None") from None


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


def checked_names(names: Iterable[str] | None) -> tuple[str, ...]:
    """Return header names as a tuple. Raise TypeError for one string, or a name that is not str."""
    if isinstance(names, (str, bytes)):
        raise TypeError("names is one string: give a list or tuple of names")
    checked = tuple(names or ())
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
    if isinstance(commands, (str, bytes)):
        raise TypeError("commands is one string: give a list or tuple of names")
    names = set()
    for name in commands:
        if not isinstance(name, str):
            raise TypeError(f"a command must be str, not {type(name).__name__}")
        name = str.__str__(name)  # a subclass may have methods of its own
        if not name or any(octet in name for octet in "\0\r\n"):
            raise ValueError("a name in commands is empty, or contains NUL, CR or LF")
        name.encode()
        names.add(name)
    return frozenset(names)
