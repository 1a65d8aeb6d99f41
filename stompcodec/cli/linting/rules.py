"""Findings of `lint`, and the requirements behind codec errors and missing headers."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Literal, NamedTuple

from stompcodec.cli.inputs import remedy_of
from stompcodec.cli.reader import Broken
from stompcodec.cli.screen import printable
from stompcodec.errors import ERROR_KINDS
from stompcodec.spec import dialect_of

Severity = Literal["error", "warning", "note"]

_TITLES = "rules.json"
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


def ids(*words: str) -> dict[str, str]:
    """Return requirements by version, from words such as "1.2:ESC-05".

    >>> ids("1.1:ESC-04", "1.2:ESC-05")
    {'1.1': 'S11-ESC-04', '1.2': 'S12-ESC-05'}
    """
    pairs = [word.split(":") for word in words]
    return {version: _PREFIXES[version] + name for version, name in pairs}


@cache
def _titles() -> dict[str, str]:
    found: dict[str, str] = json.loads(files("stompcodec.cli.linting").joinpath(_TITLES).read_text(encoding="utf-8"))
    return found


def title_of(rule: str) -> str:
    """Return the sentence that describes a rule: the id of a requirement, or the kind of an error.

    >>> title_of("S12-ESC-05")
    'Any other escape, such as backslash t or a backslash at the end of the line, is a fatal protocol error.'
    >>> title_of("truncated")
    'the stream ended inside a frame'
    """
    return _titles().get(rule) or (ERROR_KINDS[rule].what if rule in ERROR_KINDS else "")


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
