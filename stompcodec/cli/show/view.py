"""Ways to show frames: what they have in common, and the two that give everything as it is."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

from stompcodec.cli.reader import FrameReader, Place
from stompcodec.cli.screen import hex_lines, printable, write_json

__all__ = ["HexView", "JsonView", "View", "json_line"]


class View:
    """A way to show frames."""

    #: It needs no places: `show` gets what the parser handed out.
    quick = False

    def title(self, file: str) -> None:
        """A file begins. The name is "" if it is the only one."""

    def show(self, found: list[Any], reader: FrameReader) -> None:
        """The frames of one read."""

    def end(self, reader: FrameReader) -> None:
        """The file has ended."""

    def finish(self) -> None:
        """That was the last file."""


def json_line(place: Place, file: str = "") -> bytes:
    """A frame as a line of JSON. Nothing is masked: `encode --json` makes the same frame of it.

    >>> from stompcodec import Frame
    >>> json_line(Place(Frame("ACK", {"id": "7"}), 0, 10, 11, None, b""))
    b'{"offset":0,"command":"ACK","headers":[["id","7"]],"body":""}\\n'
    """
    frame = place.frame
    line: dict[str, Any] = {"offset": place.start, "command": frame.command, "headers": frame.headers.pairs()}
    try:
        line["body"] = frame.body.decode()
    except UnicodeDecodeError:
        line["body_b64"] = b64encode(frame.body).decode()
    if file:
        line["file"] = file
    try:
        return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    except UnicodeEncodeError:  # lone surrogates, of headers that were no UTF-8, have to be escaped
        return json.dumps(line, separators=(",", ":")).encode() + b"\n"


class JsonView(View):
    """A line of JSON for each frame."""

    def title(self, file: str) -> None:
        self._file = file

    def show(self, found: list[Place], reader: FrameReader) -> None:
        for place in found:
            write_json(json_line(place, self._file))


class HexView(View):
    """Every octet of the frames, with its offset."""

    def title(self, file: str) -> None:
        if file:
            print(f"==> {file} <==")

    def show(self, found: list[Place], reader: FrameReader) -> None:
        for place in found:
            print(f"{printable(place.frame.command)} at octet {place.start}, body at {place.body}, {place.size} octets")
            print(*hex_lines(reader.octets(place.start, place.end), place.start), "", sep="\n")
