"""The checks that `lint` makes on a valid frame: a table, and the small functions it refers to.

To add a check, write a function that yields (offset, detail), and add its row to `CHECKS`. Checks that need several
frames are in `conversation.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from stompcodec import FrameError
from stompcodec.cli.linting.rules import Finding, Severity, ids, missing_id
from stompcodec.cli.linting.subject import Line, Subject, sender_of
from stompcodec.cli.screen import cut, printable
from stompcodec.content import decode_content, encoding_of, text_of
from stompcodec.errors import ContentError
from stompcodec.heartbeat import parse_heart_beat
from stompcodec.spec import UNESCAPED, WITH_BODY
from stompcodec.states import missing_headers

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
    """Yield a finding for each rule that the frame breaks, and for each missing header."""
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
    """Return a check of each header line."""

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


def _bad_type(subject: Subject) -> Found:
    value = subject.get("content-type")
    if value is not None and not _MEDIA_TYPE.fullmatch(value.strip()):
        yield subject.at("content-type"), ""


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


def _bad_heart_beat(subject: Subject) -> Found:
    value = subject.get("heart-beat")
    if value is not None and subject.command in ("CONNECT", "STOMP", "CONNECTED"):
        try:
            parse_heart_beat(value)
        except FrameError:
            yield subject.at("heart-beat"), ""


def _offers(subject: Subject) -> Found:
    value = subject.get("accept-version")
    if value is not None and subject.command in ("CONNECT", "STOMP"):
        entries = [re.fullmatch(r"([0-9]{1,4})\.([0-9]{1,4})", entry) for entry in value.split(",")]
        numbers = [(int(entry[1]), int(entry[2])) for entry in entries if entry]
        if len(numbers) < len(entries) or numbers != sorted(set(numbers)):
            yield subject.at("accept-version"), ""


def _bad_server(subject: Subject) -> Found:
    value = subject.get("server")
    if value is not None and subject.command == "CONNECTED" and not re.match(r"[^/\s]+(/[^\s]+)?( |\Z)", value):
        yield subject.at("server"), ""


def _bad_ack(subject: Subject) -> Found:
    modes = ("auto", "client") if subject.version == "1.0" else ("auto", "client", "client-individual")
    if subject.command == "SUBSCRIBE" and subject.get("ack") not in (None, *modes):
        yield subject.at("ack"), f"one of {', '.join(modes)}"


def _receipt_of_connect(subject: Subject) -> Found:
    if subject.command in ("CONNECT", "STOMP") and subject.get("receipt") is not None:
        yield subject.at("receipt"), ""


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
        "warning",
        "1.1:CT-01 1.2:CT-01",
        _body_without("content-type"),
        "a body without content-type",
        "add content-type",
    ),
    _row("error", "1.1:CT-01 1.2:CT-02", _bad_type, "content-type is not a MIME type", "write it as in text/plain"),
    _row(
        "error",
        "1.1:CT-03 1.2:CT-04",
        _not_text(with_charset=False),
        "text that is not UTF-8",
        "name its charset in content-type",
    ),
    _row(
        "warning",
        "1.1:CT-04 1.2:CT-05",
        _not_text(with_charset=True),
        "text that does not match its charset",
        "correct the charset",
    ),
    _row("warning", "legacy:HDR-03", _header_form, "an unusual header name", "use letters, digits and single hyphens"),
    _row("warning", "legacy:HDR-05", _upper_name, "a header name in upper case", "write it in lower case"),
    _row("warning", "legacy:HDR-07", _delete_octet, "a DEL in a value", "leave it out"),
    _row("warning", "legacy:CMD-02", _lower_command, "a command in lower case", "write it in upper case"),
)
