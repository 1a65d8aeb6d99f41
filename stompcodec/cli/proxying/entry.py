"""Entries: what a proxy tells of the stream, checked and with secrets masked, and their forms as JSON and as rows."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from stompcodec import Frame
from stompcodec.cli.linting.reports import STYLES
from stompcodec.cli.linting.rules import Finding
from stompcodec.cli.proxying.observer import Direction
from stompcodec.cli.screen import COMMAND_STYLES, cut, hex_lines, pad, printable
from stompcodec.cli.show.table import SAYS_LITTLE, body_begin
from stompcodec.cli.show.view import json_of
from stompcodec.errors import may_be_secret

_ARROWS: dict[Direction | None, str] = {"client": ">", "broker": "<", None: "-"}
_DIRECTION_STYLES: dict[Direction | None, str] = {"client": "green", "broker": "cyan", None: "dim"}
#: Columns of the time, the connection, the direction and the command; and of the number of a body's bytes.
_FIRST = 12 + 1 + 4 + 3
_COMMAND, _SIZE = 11, 8
#: Findings of a frame that are shown.
_FINDINGS = 20


class Entry(NamedTuple):
    """A frame or an event of a connection."""

    kind: str
    """"frame", "heart-beats", "not-stomp", or the name of an event, such as "opened"."""
    time: int
    """In µs since 1970, UTC."""
    connection: int
    """Counted from 1; 0 for the proxy itself."""
    direction: Direction | None = None
    text: str = ""
    """For people, safe to print; "" for frames."""
    offset: int = 0
    frame: Frame | None = None
    """With secrets masked; without its body if that was too large to keep."""
    streamed: bool = False
    """True if its body was too large to keep."""
    size: int = 0
    """Bytes of the frame's body, or the number of heart-beats."""
    begin: bytes = b""
    """The first bytes of a body, or of what is not STOMP, masked."""
    findings: tuple[Finding, ...] = ()
    faults: tuple[str, ...] = ()


def masked(frame: Frame) -> Frame:
    """Return a frame with the values of secret headers replaced.

    >>> masked(Frame("CONNECT", {"login": "ann", "passcode": "x"}))
    <Frame CONNECT login='ann' passcode='***'>
    >>> masked(Frame("CONNECT", {"passcode": "x"})).headers["passcode"]
    '***'
    """
    pairs = frame.headers.pairs()
    if not any(may_be_secret(name) for name, _ in pairs):
        return frame
    return Frame(frame.command, [(name, "***" if may_be_secret(name) else value) for name, value in pairs], frame.body)


def finding_json(finding: Finding) -> dict[str, Any]:
    """Return a finding for programs."""
    return {name: getattr(finding, name) for name in ("rule", "severity", "offset", "text", "remedy")}


def json_line(entry: Entry) -> bytes:
    """Return an entry as a line of JSON. Command, headers and body of a frame are those of `decode --json`.

    >>> json_line(Entry("opened", 7, 1, text="from 127.0.0.1:4711"))
    b'{"event":"opened","time":7,"connection":1,"text":"from 127.0.0.1:4711"}\\n'
    """
    before: dict[str, Any] = {"event": entry.kind, "time": entry.time, "connection": entry.connection}
    if entry.direction is not None:
        before["from"] = entry.direction
    after: dict[str, Any] = {}
    if entry.findings:
        after["lint"] = [finding_json(finding) for finding in entry.findings]
    if entry.faults:
        after["faults"] = list(entry.faults)
    if entry.frame is None:
        import json

        line = {**before, **({"text": entry.text} if entry.text else {}), **after}
        if entry.begin:
            line["begin"] = entry.begin.hex()
        if entry.size:
            line["count"] = entry.size
        return json.dumps(line, separators=(",", ":")).encode() + b"\n"
    before["offset"] = entry.offset
    if entry.streamed:
        after = {"body": None, "size": entry.size, **after}
    return json_of(before, entry.frame, after)


class Rows:
    """The rows of entries for a terminal, in the columns of the table of `decode`."""

    def __init__(self, console: Console) -> None:
        self._console = console
        rest = max(console.width - _FIRST - _COMMAND - _SIZE - 8, 30)
        self._destination = min(rest * 3 // 10, 40)
        self._headers = rest * 3 // 10
        self._body = max(rest - self._destination - self._headers, 1)

    def row(self, entry: Entry) -> Text:
        """Return the row of an entry, with a line for each finding and fault."""
        clock = time.strftime("%H:%M:%S", time.localtime(entry.time // 1_000_000))
        text = Text(f"{clock}.{entry.time // 1000 % 1000:03} ", "dim")
        text.append(f"{entry.connection or '':>4} ", "bold" if entry.connection else "")
        text.append(f"{_ARROWS[entry.direction]} ", _DIRECTION_STYLES[entry.direction])
        if entry.frame is None:
            text.append(entry.text + "\n", "dim" if entry.kind != "not-stomp" else "yellow")
            if entry.begin:
                text.append("".join(f"{' ' * _FIRST}{line}\n" for line in hex_lines(entry.begin, entry.offset)), "dim")
        else:
            self._frame(text, entry, entry.frame)
        for fault in entry.faults:
            text.append(f"{' ' * _FIRST}fault: {printable(fault)}\n", "bold magenta")
        for finding in entry.findings[:_FINDINGS]:
            text.append(" " * _FIRST).append(finding.severity, STYLES[finding.severity])
            text.append(f" {finding.rule}", "bold").append(f": {finding.text} ({finding.remedy})\n")
        return text

    def _frame(self, text: Text, entry: Entry, frame: Frame) -> None:
        command = printable(frame.command)
        text.append(pad(command, _COMMAND), COMMAND_STYLES.get(command, "yellow")).append(" ")
        text.append(pad(printable(frame.get("destination", "-")[:200]), self._destination)).append("  ")
        text.append(pad(self._header_text(frame), self._headers), "dim").append(f"  {entry.size:>{_SIZE}}  ")
        text.append(cut(body_begin(entry.begin, self._body), self._body))
        text.rstrip()
        text.append("\n")

    def _header_text(self, frame: Frame) -> str:
        short = ""
        for name, value in frame.headers.pairs():
            if len(short) >= self._headers:
                break
            if name not in SAYS_LITTLE:
                short += f"{printable(name[: self._headers])}={printable(value[: self._headers])} "
        return short
