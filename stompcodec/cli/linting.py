"""The rules of STOMP, as `lint`, `inspect` and `proxy` check them."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple

import click
from rich.text import Text

import stompcodec
from stompcodec import FrameError
from stompcodec.cli.inputs import Broken, Place, remedy_of
from stompcodec.cli.screen import cut, printable, screen
from stompcodec.content import decode_content, encoding_of, text_of
from stompcodec.errors import ERROR_KINDS, ContentError
from stompcodec.spec import SERVER, UNESCAPED, VERSIONS, WITH_BODY, dialect_of
from stompcodec.states import Sender, missing_headers, parse_heart_beat

Severity = Literal["error", "warning", "note"]
_PREFIXES = {"1.0": "S10-", "1.1": "S11-", "1.2": "S12-", "legacy": "LEG-"}


class Finding(NamedTuple):
    """A broken rule."""

    rule: str
    """The id of the requirement, such as "S12-ESC-05", or the kind of the error if no requirement covers it."""
    offset: int
    """Offset in bytes from the start of the stream."""
    severity: Severity
    """"error" breaks a MUST, "warning" a SHOULD or a widely tolerated rule, "note" is for information."""
    text: str
    remedy: str
    command: str
    """The command of the frame; "" if unknown."""
    version: str
    """The version it was checked against."""

    def record(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("rule", "severity", "offset", "text", "remedy")}


def ids(*words: str) -> dict[str, str]:
    """Return requirements by version, from words such as "1.2:ESC-05".

    >>> ids("1.1:ESC-04", "1.2:ESC-05")
    {'1.1': 'S11-ESC-04', '1.2': 'S12-ESC-05'}
    """
    pairs = [word.split(":") for word in words]
    return {version: _PREFIXES[version] + name for version, name in pairs}


@cache
def titles() -> dict[str, str]:
    """Return the requirements of STOMP by their ids."""
    lines = files("stompcodec.cli").joinpath("rules.tsv").read_text(encoding="utf-8").splitlines()
    return {row[0]: row[4] for row in (line.split("\t") for line in lines[1:])}


def title_of(rule: str) -> str:
    """Return the sentence that describes a rule: the id of a requirement, or the kind of an error.

    >>> title_of("S12-ESC-05")
    'Any other escape, such as backslash t or a backslash at the end of the line, is a fatal protocol error.'
    >>> title_of("truncated")
    'the stream ended inside a frame'
    """
    return titles().get(rule) or (ERROR_KINDS[rule].what if rule in ERROR_KINDS else "")


_FRAME = ids("1.0:FRM-01", "1.1:FRM-01", "1.2:FRM-01", "legacy:FRM-01")
_KINDS = {
    "unknown-command": ids("1.0:FRM-09", "1.1:FRM-08", "1.2:FRM-06", "legacy:CMD-04"),
    "bad-header-line": ids("1.0:FRM-04", "1.1:FRM-06", "1.2:FRM-08", "legacy:HDR-01"),
    "bad-escape": ids("1.1:ESC-04", "1.2:ESC-05"),
    "invalid-utf8": ids("1.0:FRM-08", "1.1:UTF-01", "1.2:UTF-01", "legacy:UTF-01"),
    "unexpected-nul": _FRAME,
    "bad-content-length": ids("1.0:CL-02", "1.1:CL-03", "1.2:CL-02", "legacy:CL-02"),
    "missing-null": ids("1.0:CL-03", "1.1:CL-04", "1.2:CL-03", "legacy:FRM-01"),
    "body-not-allowed": ids("1.1:BDY-01", "1.2:BDY-01"),
    "truncated": _FRAME,
}
_LIMITS = {
    "max_command_line": ids("1.1:LIM-05", "1.2:LIM-05"),
    "max_headers": ids("1.1:LIM-01", "1.2:LIM-01"),
    "max_header_line": ids("1.1:LIM-02", "1.2:LIM-02"),
    "max_body": ids("1.1:LIM-03", "1.2:LIM-03"),
}
#: For a known command in the wrong case, and for one ended by CR LF in a version without CR.
_WRONG_CASE = ids("1.1:FRM-05", "1.2:FRM-03")
_WRONG_EOL = ids("1.0:FRM-02", "1.1:FRM-02")

#: Requirements by command and missing header.
_REQUIRED = {
    ("CONNECT", "accept-version"): ids("1.1:CON-08", "1.2:CON-07"),
    ("CONNECT", "host"): ids("1.1:CON-09", "1.2:CON-08"),
    ("CONNECT", "username"): ids("legacy:CON-02"),
    ("CONNECT", "passcode"): ids("legacy:CON-02"),
    ("STOMP", "accept-version"): ids("1.1:CON-08", "1.2:CON-07"),
    ("STOMP", "host"): ids("1.1:CON-09", "1.2:CON-08"),
    ("CONNECTED", "version"): ids("1.1:CTD-01", "1.2:CTD-01"),
    ("CONNECTED", "session"): ids("1.0:CON-04", "legacy:CON-04"),
    ("SEND", "destination"): ids("1.0:SND-01", "1.1:SND-01", "1.2:SND-01", "legacy:SND-01"),
    ("SUBSCRIBE", "destination"): ids("1.0:SUB-01", "1.1:SUB-01", "1.2:SUB-01", "legacy:SUB-01"),
    ("SUBSCRIBE", "id"): ids("1.1:SUB-05", "1.2:SUB-05"),
    ("UNSUBSCRIBE", "id"): ids("1.1:UNS-01", "1.2:UNS-01"),
    ("UNSUBSCRIBE", "destination|id"): ids("1.0:UNS-01"),
    ("BEGIN", "transaction"): ids("1.0:TX-01", "1.1:TX-01", "1.2:TX-01"),
    ("COMMIT", "transaction"): ids("1.0:TX-04", "1.1:TX-05", "1.2:TX-06"),
    ("ABORT", "transaction"): ids("1.0:TX-05", "1.1:TX-06", "1.2:TX-07"),
    ("ACK", "message-id"): ids("1.0:ACK-01", "1.1:ACK-01"),
    ("ACK", "subscription"): ids("1.1:ACK-02"),
    ("ACK", "id"): ids("1.2:ACK-01"),
    ("NACK", "message-id"): ids("1.1:NAK-01"),
    ("NACK", "subscription"): ids("1.1:NAK-01"),
    ("NACK", "id"): ids("1.2:NAK-01"),
    ("MESSAGE", "destination"): ids("1.0:MSG-01", "1.1:MSG-01", "1.2:MSG-01"),
    ("MESSAGE", "message-id"): ids("1.0:MSG-02", "1.1:MSG-02", "1.2:MSG-03"),
    ("MESSAGE", "subscription"): ids("1.1:MSG-03", "1.2:MSG-04"),
    ("RECEIPT", "receipt-id"): ids("1.0:RCP-02", "1.1:RCP-02", "1.2:RCP-02", "legacy:RCP-02"),
}


def missing_id(version: str, command: str, header: str) -> str:
    """Return the requirement for a header. Those of 1.0 apply if the legacy dialect does not define it.

    >>> missing_id("1.2", "ACK", "id"), missing_id("legacy", "ACK", "message-id")
    ('S12-ACK-01', 'S10-ACK-01')
    """
    found = _REQUIRED[command, header]
    return found.get(version) or found["1.0"]


def finding_of(broken: Broken) -> Finding:
    """Return a codec error as a broken rule.

    >>> from stompcodec import FrameError
    >>> finding_of(Broken(FrameError("bad-escape", 9), 0, 20, "1.1")).rule
    'S11-ESC-04'
    """
    error, version = broken.error, broken.version or "1.2"
    assert error.offset is not None
    line = broken.head.split(b"\n")[0]
    command = printable(line.rstrip(b"\r").decode("utf-8", "replace"))
    known = command in dialect_of(version).commands
    requirement = _LIMITS[error.limit] if error.limit else _KINDS[error.kind]
    text = ERROR_KINDS[error.kind].what
    if error.kind == "unknown-command":
        if known:
            requirement, text = _WRONG_EOL, "the command line ends with CR LF, which is not a line end in this version"
        elif command.upper() in dialect_of(version).commands:
            requirement, text = _WRONG_CASE, "the command is not in upper case"
    if error.limit:
        text += f": {error.limit} is exceeded"
    if error.near:
        text += f"; near {error.near!r}"
    if broken.resumed is None and error.kind != "truncated":
        text += "; no further frame was found"
    remedy = remedy_of(error).split(", or read with")[0]
    rule = requirement.get(version, error.kind)
    return Finding(rule, error.offset, "error", text, remedy, command if known else "", version)


class Line(NamedTuple):
    """A header line as written: its offset, and the bytes around its first colon."""

    at: int
    name: bytes
    value: bytes

    @property
    def value_at(self) -> int:
        return self.at + len(self.name) + 1


class Subject(NamedTuple):
    """A frame under examination."""

    place: Place
    version: str
    """The version to check against; for the frames of a handshake not the one it was parsed with."""
    lines: list[Line]
    command_line: bytes
    limit: int
    """Largest size to which a body is decompressed, in bytes."""

    @property
    def command(self) -> str:
        return self.place.frame.command

    @property
    def is_escaped(self) -> bool:
        return bool(dialect_of(self.version).escapes) and self.command not in UNESCAPED

    def get(self, name: str) -> str | None:
        return self.place.frame.get(name)

    def at(self, name: str) -> int:
        wanted = name.encode()
        return next((line.at for line in self.lines if line.name.strip().lower() == wanted), self.place.start)


def subject_of(place: Place, head: bytes, forced: str | None, limit: int) -> Subject:
    """Prepare a frame for examination by a version, by default its own; inflate at most `limit` bytes of the body."""
    at, lines = place.start, []
    first, *rest = head[:-1].split(b"\n")
    at += len(first) + 1
    for line in rest:
        text = line.removesuffix(b"\r") if dialect_of(place.version).crlf else line
        if text:
            name, _, value = text.partition(b":")
            lines.append(Line(at, name, value))
        at += len(line) + 1
    return Subject(place, forced or _spoken(place), lines, first, limit)


def _spoken(place: Place) -> str:
    frame = place.frame
    if frame.command == "CONNECTED":
        version = frame.get("version", "1.0")
        return version if version in VERSIONS else "1.2"
    if frame.command in ("CONNECT", "STOMP"):
        offered = frame.get("accept-version")
        if offered is None:
            return "1.0" if frame.command == "CONNECT" else "1.2"
        return max((version for version in offered.split(",") if version in VERSIONS), default="1.2")
    return place.version or "1.2"


def sender_of(command: str) -> Sender:
    return "server" if command in SERVER else "client"


#: Most subscription and transaction ids to remember. Beyond that, checks that depend on them are skipped.
_MOST = 10_000

_ANOTHER_SIDE = {
    "client": ids("1.0:FRM-09", "1.1:FRM-08", "1.2:FRM-06", "legacy:CMD-04"),
    "server": ids("1.0:FRM-10", "1.1:FRM-09", "1.2:FRM-07", "legacy:CMD-04"),
}
_NOT_OFFERED = ids("1.1:NEG-03", "1.2:NEG-04")
_AFTER_DISCONNECT = ids("1.1:DIS-02", "1.2:DIS-02")
_AFTER_ERROR = ids("1.2:ERR-02")
_SAME_ID = ids("1.1:SUB-05", "1.2:SUB-06")
_NOT_SUBSCRIBED = ids("1.1:UNS-01", "1.2:UNS-01")
_NO_ACK = ids("1.2:MSG-05")
_SAME_TRANSACTION = ids("1.2:TX-04")
_NO_TRANSACTION = {
    "COMMIT": ids("1.0:TX-04", "1.1:TX-05", "1.2:TX-06"),
    "ABORT": ids("1.0:TX-05", "1.1:TX-06", "1.2:TX-07"),
}
_NOT_BEGUN = ids("1.0:TX-02", "1.1:TX-02", "1.2:TX-02")


class Conversation:
    """A conversation as far as a stream has shown it. With `both` sides, frames are checked with their `sender`."""

    def __init__(self, *, both: bool = False) -> None:
        self._both = both
        self._sides: set[str] = set()
        self._begin(None)

    def _begin(self, offered: str | None) -> None:
        self._offered = offered
        self._modes: dict[str, str] = {}  # ack mode by subscription
        self._transactions: set[str] = set()
        self._ended = ""  # the command that ended the conversation
        self._whole = offered is not None  # everything since CONNECT was seen and remembered

    def check(self, subject: Subject, sender: Sender | None = None) -> Iterator[Finding]:
        """Yield a finding for each rule that a frame breaks at its place in the conversation."""
        command = subject.command
        if self._both:
            self._sides = {sender or sender_of(command)}
        for rules, severity, text, remedy in self._look(subject, command):
            rule = rules.get(subject.version, "")
            if rule:
                yield Finding(rule, subject.place.start, severity, text, remedy, command, subject.version)

    def _look(self, subject: Subject, command: str) -> Iterator[tuple[dict[str, str], Severity, str, str]]:
        side = sender_of(command)
        if self._sides and side not in self._sides:
            text = f"a frame of the {side} in the stream of the other side"
            yield _ANOTHER_SIDE[side], "note", text, "look at each direction by itself"
        self._sides.add(side)
        if command in ("CONNECT", "STOMP"):
            self._begin(subject.get("accept-version") or "1.0")
        elif command == "CONNECTED":
            offered = None if self._offered is None else self._offered.split(",")
            if offered is not None and subject.get("version") not in (None, *offered):
                text = "the server picked a version that was not offered"
                yield _NOT_OFFERED, "error", text, "pick one of the offers"
            if not self._both:  # a client need not wait for CONNECTED before it subscribes
                self._begin(self._offered)
        elif self._ended == "DISCONNECT" and side == "client":
            yield _AFTER_DISCONNECT, "error", "a frame after DISCONNECT", "send nothing more"
        elif self._ended == "ERROR" and side == "server":
            yield _AFTER_ERROR, "error", "a frame after ERROR", "close the connection after ERROR"
        if command in ("DISCONNECT", "ERROR"):
            self._ended = command
        yield from self._subscriptions(subject, command)
        yield from self._transaction(subject, command)

    def _subscriptions(self, subject: Subject, command: str) -> Iterator[tuple[dict[str, str], Severity, str, str]]:
        name = subject.get("subscription" if command == "MESSAGE" else "id")
        if name is None:
            return
        shown = cut(printable(name), 40)
        if command == "SUBSCRIBE":
            if name in self._modes:
                yield _SAME_ID, "error", f"another subscription has the id {shown}", "give each an id of its own"
            self._modes[name] = subject.get("ack") or "auto"
            self._bound()
        elif command == "UNSUBSCRIBE":
            known = self._modes.pop(name, None) is not None
            if not known and self._whole:
                yield _NOT_SUBSCRIBED, "error", f"no subscription has the id {shown}", "use the id of a SUBSCRIBE"
        elif command == "MESSAGE" and self._modes.get(name, "auto") != "auto" and subject.get("ack") is None:
            yield _NO_ACK, "error", f"MESSAGE has no header ack, and the subscription {shown} needs it", "add it"

    def _transaction(self, subject: Subject, command: str) -> Iterator[tuple[dict[str, str], Severity, str, str]]:
        name = subject.get("transaction")
        if name is None or sender_of(command) == "server":
            return
        known = name in self._transactions
        if command == "BEGIN":
            if known:
                yield _SAME_TRANSACTION, "error", "a transaction of this name has begun", "give each its own name"
            self._transactions.add(name)
            self._bound()
        elif not known and self._whole:
            rules = _NO_TRANSACTION.get(command, _NOT_BEGUN)
            yield rules, "error", f"{command} names a transaction that has not begun", "send BEGIN first"
        elif command in ("COMMIT", "ABORT"):
            self._transactions.discard(name)

    def _bound(self) -> None:
        if len(self._modes) + len(self._transactions) > _MOST:
            self._modes.clear()
            self._transactions.clear()
            self._whole = False


Found = Iterator[tuple[int, str]]

#: Headers defined by the specifications.
_DEFINED = frozenset(
    b"accept-version ack content-length content-type destination heart-beat host id login message message-id passcode "
    b"receipt receipt-id selector server session subscription transaction version".split()
)


class Check(NamedTuple):
    """A row of the table of checks."""

    ids: dict[str, str]
    """Requirements by version. Other versions are not checked."""
    severity: Severity
    text: str
    remedy: str
    find: Callable[[Subject], Found]


def _name(line: Line) -> str:
    return "header " + cut(printable(line.name.decode("utf-8", "replace")), 60)


def check_frame(subject: Subject) -> Iterator[Finding]:
    frame, version, start = subject.place.frame, subject.version, subject.place.start
    for names in missing_headers(version, sender_of(frame.command), frame.command, frame.headers.pairs()):
        text = f"{frame.command} has no header {names.replace('|', ' or ')}"
        rule = missing_id(version, frame.command, names)
        yield Finding(rule, start, "error", text, "add it", frame.command, version)
    for offset, detail in _bad_encoding(subject):
        text = f"the body does not match its content-encoding: {detail}"
        yield Finding("WISH-ENC-01", offset, "warning", text, "correct the header or the body", frame.command, version)
    for check in CHECKS:
        rule = check.ids.get(version, "")
        if rule:
            for offset, detail in check.find(subject):
                text = f"{check.text}: {detail}" if detail else check.text
                yield Finding(rule, offset, check.severity, text, check.remedy, frame.command, version)


def _lines_where(is_wrong: Callable[[Line], object]) -> Callable[[Subject], Found]:
    def find(subject: Subject) -> Found:
        return ((line.at, _name(line)) for line in subject.lines if is_wrong(line))

    return find


_spaces = _lines_where(lambda line: line.name != line.name.strip(b" ") or line.value != line.value.strip(b" "))
_not_ascii = _lines_where(lambda line: not (line.name + line.value).isascii())
_empty_value = _lines_where(lambda line: not line.value)
_letter_case = _lines_where(lambda line: line.name not in _DEFINED and line.name.lower() in _DEFINED)
_header_form = _lines_where(lambda line: not re.fullmatch(rb"[a-z0-9]+(-[a-z0-9]+)*", line.name.lower()))
_upper_name = _lines_where(lambda line: line.name != line.name.lower())
_delete_octet = _lines_where(lambda line: b"\x7f" in line.value)


def _raw_colon(subject: Subject) -> Found:
    if subject.is_escaped:
        for line in subject.lines:
            if b":" in line.value:
                yield line.value_at + line.value.index(b":"), _name(line)


def _raw_cr(subject: Subject) -> Found:
    for line in subject.lines:
        if b"\r" in line.name + line.value:
            yield line.at + (line.name + b":" + line.value).index(b"\r"), _name(line)


def _cr_before_lf(subject: Subject) -> Found:
    for line in subject.lines:
        if line.value.endswith(b"\r"):
            yield line.value_at + len(line.value) - 1, _name(line)
            return  # reported only once


def _repeated(subject: Subject) -> Found:
    seen = set()
    for line in subject.lines:
        if line.name in seen:
            yield line.at, _name(line)
        seen.add(line.name)


def _looks_escaped(subject: Subject) -> Found:
    if subject.command in UNESCAPED:
        for line in subject.lines:
            if re.search(rb"\\[cnr\\]", line.name + b":" + line.value):
                yield line.at, _name(line)


def _body_without(name: str) -> Callable[[Subject], Found]:
    def find(subject: Subject) -> Found:
        if subject.place.size and subject.command in WITH_BODY and subject.get(name) is None:
            yield subject.place.start, ""

    return find


_MEDIA_TYPE = re.compile(r"[!#$&^_.+\w-]+/[!#$&^_.+\w-]+\s*(;.*)?", re.ASCII | re.DOTALL)


def _value_of(name: str, is_wrong: Callable[[str], object], *commands: str) -> Callable[[Subject], Found]:
    """Return a check of a header's value, of frames with these commands; none for all."""

    def find(subject: Subject) -> Found:
        value = subject.get(name)
        if value is not None and (not commands or subject.command in commands) and is_wrong(value):
            yield subject.at(name), ""

    return find


def _not_text(*, with_charset: bool) -> Callable[[Subject], Found]:
    def find(subject: Subject) -> Found:
        kind = subject.get("content-type")
        if encoding_of(kind) is not None and ("charset" in (kind or "").lower()) is with_charset:
            try:
                text_of(subject.place.frame)
            except ContentError as error:
                yield subject.place.body, str(error).removesuffix(": use frame.body")
            except FrameError:
                pass  # reported by `_bad_encoding`

    return find


def _bad_encoding(subject: Subject) -> Found:
    coding = subject.get("content-encoding")
    if coding is not None:
        try:
            decode_content(coding, subject.place.frame.body, subject.limit)
        except FrameError as error:
            yield subject.at("content-encoding"), error.detail or f"more than {subject.limit} bytes"


def _is_no_heart_beat(value: str) -> bool:
    try:
        parse_heart_beat(value)
    except FrameError:
        return True
    return False


def _is_no_offer(value: str) -> bool:
    entries = [re.fullmatch(r"([0-9]{1,4})\.([0-9]{1,4})", entry) for entry in value.split(",")]
    numbers = [(int(entry[1]), int(entry[2])) for entry in entries if entry]
    return len(numbers) < len(entries) or numbers != sorted(set(numbers))


_bad_type = _value_of("content-type", lambda value: not _MEDIA_TYPE.fullmatch(value.strip()))
_bad_heart_beat = _value_of("heart-beat", _is_no_heart_beat, "CONNECT", "STOMP", "CONNECTED")
_offers = _value_of("accept-version", _is_no_offer, "CONNECT", "STOMP")
_bad_server = _value_of("server", lambda value: not re.match(r"[^/\s]+(/[^\s]+)?( |\Z)", value), "CONNECTED")
_receipt_of_connect = _value_of("receipt", lambda value: True, "CONNECT", "STOMP")


def _bad_ack(subject: Subject) -> Found:
    modes = ("auto", "client") if subject.version == "1.0" else ("auto", "client", "client-individual")
    if subject.command == "SUBSCRIBE" and subject.get("ack") not in (None, *modes):
        yield subject.at("ack"), f"one of {', '.join(modes)}"


def _body_of(command: str) -> Callable[[Subject], Found]:
    def find(subject: Subject) -> Found:
        if subject.command == command and subject.place.size:
            yield subject.place.body, ""

    return find


def _without(command: str, *names: str) -> Callable[[Subject], Found]:
    def find(subject: Subject) -> Found:
        if subject.command == command:
            yield from ((subject.place.start, name) for name in names if subject.get(name) is None)

    return find


def _is(command: str) -> Callable[[Subject], Found]:
    def find(subject: Subject) -> Found:
        if subject.command == command:
            yield subject.place.start, ""

    return find


def _lower_command(subject: Subject) -> Found:
    if subject.command_line != subject.command_line.upper():
        yield subject.place.start, ""


def _row(severity: Severity, words: str, find: Callable[[Subject], Found], text: str, remedy: str) -> Check:
    return Check(ids(*words.split()), severity, text, remedy, find)


#: The checks, in the order of reporting.
CHECKS = (
    _row("warning", "1.1:FRM-07 1.2:FRM-05", _raw_colon, "a raw colon in a value", r"write it as \c"),
    _row("error", "1.2:FRM-05", _raw_cr, "a raw CR inside a header line", r"write it as \r"),
    _row("warning", "1.0:FRM-02 1.1:FRM-02", _cr_before_lf, "a CR before the LF is data", "end lines with LF alone"),
    _row("warning", "1.1:HDR-01 1.2:HDR-01", _spaces, "spaces belong to the name or value", "leave them out"),
    _row("note", "1.0:FRM-12", _spaces, "spaces belong to the name or value", "leave them out"),
    _row("error", "1.0:FRM-08", _not_ascii, "a header is not US-ASCII", "use ASCII, or a newer version"),
    _row("warning", "1.0:FRM-06", _empty_value, "a header has no value", "leave the header out"),
    _row("note", "1.1:HDR-02 1.2:HDR-02", _repeated, "the first entry counts", "check which entry is meant"),
    _row("warning", "1.1:FRM-05 1.2:FRM-03", _letter_case, "names are case sensitive", "write it in lower case"),
    _row("warning", "1.1:ESC-06 1.2:ESC-07", _looks_escaped, "nothing is escaped here", "write the value raw"),
    _row("error", "1.1:HB-02 1.2:HB-02", _bad_heart_beat, "a bad heart-beat", "write it as in heart-beat:10000,10000"),
    _row("warning", "1.1:NEG-01 1.2:NEG-02", _offers, "a bad list of versions", "write it as in 1.0,1.1,1.2"),
    _row("error", "1.1:CTD-04 1.2:CTD-05", _bad_server, "a bad server header", "write it as in name/1.0 comment"),
    _row("warning", "1.0:SUB-03", _bad_ack, "an unknown ack mode", "use one of 1.0, or a newer version"),
    _row("error", "1.1:SUB-06 1.2:SUB-07", _bad_ack, "an unknown ack mode", "use one of these"),
    _row(
        *("warning", "1.0:RCP-01 1.1:RCP-01 1.2:RCP-01 legacy:RCP-01", _receipt_of_connect),
        *("the frame that connects takes no receipt", "leave it out: CONNECTED is the answer"),
    ),
    _row("error", "1.0:CON-05", _body_of("CONNECT"), "CONNECT has a body", "leave it out"),
    _row("warning", "legacy:CON-03", _body_of("CONNECT"), "CONNECT has a body", "leave it out"),
    _row("error", "1.0:RCP-03 legacy:RCP-02", _body_of("RECEIPT"), "RECEIPT has a body", "leave it out"),
    _row("note", "1.0:SUB-05", _body_of("SUBSCRIBE"), "the body of SUBSCRIBE is ignored", "leave it out"),
    _row("note", "1.0:CON-02", _without("CONNECT", "login", "passcode"), "CONNECT lacks a header", "add it"),
    _row("note", "1.1:CON-07 1.2:CON-06", _is("STOMP"), "servers of 1.0 do not know STOMP", "use CONNECT"),
    _row(
        "warning", "1.0:ERR-02 1.1:ERR-02 1.2:ERR-03", _without("ERROR", "message"), "ERROR lacks", "say what is wrong"
    ),
    _row(
        *("warning", "1.0:CL-01 1.1:CL-01 1.2:CL-04 legacy:CL-02", _body_without("content-length")),
        *("a body without content-length", "add content-length"),
    ),
    _row(
        *("warning", "1.1:CT-01 1.2:CT-01", _body_without("content-type")),
        *("a body without content-type", "add content-type"),
    ),
    _row("error", "1.1:CT-01 1.2:CT-02", _bad_type, "content-type is not a MIME type", "write it as in text/plain"),
    _row(
        *("error", "1.1:CT-03 1.2:CT-04", _not_text(with_charset=False)),
        *("text that is not UTF-8", "name its charset in content-type"),
    ),
    _row(
        *("warning", "1.1:CT-04 1.2:CT-05", _not_text(with_charset=True)),
        *("text that does not match its charset", "correct the charset"),
    ),
    _row("warning", "legacy:HDR-03", _header_form, "an unusual header name", "use letters, digits and single hyphens"),
    _row("warning", "legacy:HDR-05", _upper_name, "a header name in upper case", "write it in lower case"),
    _row("warning", "legacy:HDR-07", _delete_octet, "a DEL in a value", "leave it out"),
    _row("warning", "legacy:CMD-02", _lower_command, "a command in lower case", "write it in upper case"),
)


STYLES: dict[str, str] = {"error": "bold red", "warning": "yellow", "note": "cyan"}


class Report:
    """An output of the first `most` findings of each rule in a file: 0 for all, None for the format's default."""

    #: The default for `most`.
    most = 0

    def __init__(self, most: int | None = None) -> None:
        self.most = self.most if most is None else most
        self.counts: Counter[str] = Counter()
        self._severities: Counter[Severity] = Counter()

    def add(self, file: str, finding: Finding) -> None:
        self.counts[finding.rule] += 1
        self._severities[finding.severity] += 1
        if not self.most or self.counts[finding.rule] <= self.most:
            self.show(file, finding)

    def show(self, file: str, finding: Finding) -> None:
        """Show a finding."""

    def end(self, file: str, frames: int) -> None:
        self.counts.clear()
        self._severities.clear()

    def finish(self) -> None:
        """End the last file."""


class TextReport(Report):
    """Prints a line for each finding, and one with the counts."""

    most = 10

    def __init__(self, most: int | None = None) -> None:
        super().__init__(most)
        self._console = screen()

    def show(self, file: str, finding: Finding) -> None:
        line = Text(f"{file}:{finding.offset}: ").append(finding.severity, STYLES[finding.severity])
        line.append(f" {finding.rule}", "bold").append(f": {finding.text} ({finding.remedy})", "not bold")
        self._console.print(line, soft_wrap=True)

    def end(self, file: str, frames: int) -> None:
        for rule, count in self.counts.items():
            if self.most and count > self.most:
                self._console.print(f"{file}: {rule}: {count - self.most} more, shown with --most 0", soft_wrap=True)
        kinds: tuple[Severity, ...] = ("error", "warning", "note")
        counts = ", ".join(f"{kind}s {self._severities[kind]}" for kind in kinds)
        self._console.print(f"{file}: {counts}, frames {frames}", soft_wrap=True)
        super().end(file, frames)


class JsonReport(Report):
    """Prints a JSON object for each finding."""

    def show(self, file: str, finding: Finding) -> None:
        sys.stdout.buffer.write(json.dumps({"file": file, **finding._asdict()}).encode() + b"\n")


class GithubReport(Report):
    """Prints commands that GitHub Actions turns into annotations."""

    most = 10

    def show(self, file: str, finding: Finding) -> None:
        kind = "notice" if finding.severity == "note" else finding.severity
        text = _escaped(f"octet {finding.offset}: {finding.text} ({finding.remedy})")
        name, rule = (_escaped(word).replace(":", "%3A").replace(",", "%2C") for word in (file, finding.rule))
        click.echo(f"::{kind} file={name},title={rule}::{text}")


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


class SarifReport(Report):
    """Prints a SARIF 2.1.0 log at the end."""

    most = 1000

    def __init__(self, most: int | None = None) -> None:
        super().__init__(most)
        self._rules: dict[str, str] = {}
        self._results: list[dict[str, Any]] = []

    def show(self, file: str, finding: Finding) -> None:
        self._rules.setdefault(finding.rule, title_of(finding.rule) or finding.text.split(":")[0])
        region = {"byteOffset": finding.offset, "byteLength": 1}
        place = {"artifactLocation": {"uri": file.replace("\\", "/")}, "region": region}
        result = {"ruleId": finding.rule, "level": finding.severity}
        text = f"{finding.text} ({finding.remedy})"
        self._results.append({**result, "message": {"text": text}, "locations": [{"physicalLocation": place}]})

    def finish(self) -> None:
        rules = [{"id": rule, "shortDescription": {"text": text}} for rule, text in self._rules.items()]
        driver = {"name": "stompcodec", "version": stompcodec.__version__, "rules": rules}
        log = {
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [{"tool": {"driver": driver}, "results": self._results}],
        }
        click.echo(json.dumps(log, indent=2))


REPORTS: dict[str, type[Report]] = {
    "text": TextReport,
    "json": JsonReport,
    "sarif": SarifReport,
    "github": GithubReport,
}
