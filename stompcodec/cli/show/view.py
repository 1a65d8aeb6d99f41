"""Views: the interface of output formats for frames, and the formats JSON and hex."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from stompcodec.cli.reader import FrameReader, Place
from stompcodec.cli.screen import hex_lines, printable, write_json

if TYPE_CHECKING:
    from stompcodec import Frame


class View:
    """An output format for frames."""

    #: True if `show` takes parser events, without positions.
    quick = False

    def title(self, file: str) -> None:
        """Begin a file. The name is "" if it is the only one."""

    def show(self, found: list[Any], reader: FrameReader) -> None:
        """Show the frames of one read."""

    def end(self, reader: FrameReader) -> None:
        """End a file."""

    def finish(self) -> None:
        """End the last file."""


def json_line(place: Place, file: str = "") -> bytes:
    """Return a frame as a line of JSON. Nothing is masked, so `encode --json` restores the frame.

    >>> from stompcodec import Frame
    >>> json_line(Place(Frame("ACK", {"id": "7"}), 0, 10, 11, None, b""))
    b'{"offset":0,"command":"ACK","headers":[["id","7"]],"body":""}\\n'
    """
    return json_of({"offset": place.start}, place.frame, {"file": file} if file else {})


def json_of(before: dict[str, Any], frame: Frame, after: dict[str, Any] | None = None) -> bytes:
    """Return a frame as a line of JSON, with other members before and after its own."""
    line = {**before, "command": frame.command, "headers": frame.headers.pairs()}
    try:
        line["body"] = frame.body.decode()
    except UnicodeDecodeError:
        line["body_b64"] = b64encode(frame.body).decode()
    line.update(after or {})
    try:
        return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    except UnicodeEncodeError:  # lone surrogates, from headers that are not UTF-8, must be escaped
        return json.dumps(line, separators=(",", ":")).encode() + b"\n"


class JsonView(View):
    """Prints a line of JSON for each frame."""

    def title(self, file: str) -> None:
        self._file = file

    def show(self, found: list[Place], reader: FrameReader) -> None:
        for place in found:
            write_json(json_line(place, self._file))


class HexView(View):
    """Prints all bytes of the frames with their offsets."""

    def title(self, file: str) -> None:
        if file:
            print(f"==> {file} <==")

    def show(self, found: list[Place], reader: FrameReader) -> None:
        for place in found:
            print(f"{printable(place.frame.command)} at octet {place.start}, body at {place.body}, {place.size} bytes")
            print(*hex_lines(reader.octets(place.start, place.end), place.start), "", sep="\n")
