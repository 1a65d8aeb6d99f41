"""A frame prepared for `lint`: the parsed frame, its header lines as written, and the version to check against."""

from __future__ import annotations

from typing import NamedTuple

from stompcodec.cli.reader import Place
from stompcodec.spec import SERVER, UNESCAPED, VERSIONS, dialect_of
from stompcodec.states import Sender


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
        """Return the offset of a header's first line, or of the frame."""
        wanted = name.encode()
        return next((line.at for line in self.lines if line.name.strip().lower() == wanted), self.place.start)


def subject_of(place: Place, head: bytes, forced: str | None, limit: int) -> Subject:
    """Prepare a frame for examination, with its bytes up to the body; inflate the body to at most `limit` bytes.

    It is checked against the version `forced`; None for the one it was parsed with, or the one a handshake frame names.
    """
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
    """Return the side that sends a command."""
    return "server" if command in SERVER else "client"
