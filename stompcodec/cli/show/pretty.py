"""The frames of `decode --pretty`: one line per header, with bodies decompressed, decoded and indented."""

from __future__ import annotations

import json
import re
import sys
from typing import Any, NamedTuple
from xml.dom import Node, minidom
from xml.parsers.expat import ExpatError

from rich.console import Console
from rich.highlighter import Highlighter, JSONHighlighter, ReprHighlighter
from rich.text import Text

from stompcodec import Frame, FrameError
from stompcodec.cli.reader import FrameReader, Place
from stompcodec.cli.screen import COMMAND_STYLES, cut, header_value, hex_lines, printable
from stompcodec.cli.show.view import View
from stompcodec.content import decode_content, text_of
from stompcodec.errors import ContentError

#: Largest size to which a body is decompressed, in bytes.
_INFLATED = 16 * 2**20
#: Larger texts, in bytes, are not indented, and only their beginning is shown.
_INDENTED = 2**20
_SHOWN = 64 * 1024
_SHOWN_BINARY = 256
#: Maximum length of a header's value.
_VALUE = 2000
#: Deeper levels are indented like this one, which bounds the output.
_DEEPEST = 40
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[][{}:,]|[^][{}:,"\s]+')

_HIGHLIGHTERS: dict[str, Highlighter] = {"json": JSONHighlighter(), "xml": ReprHighlighter()}


class Body(NamedTuple):
    """A body made readable."""

    notes: list[str]
    """What was done to it, and what failed."""
    form: str
    """"json", "xml", "text" or "binary"."""
    text: str


class PrettyView(View):
    """Shows one frame below the other."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def title(self, file: str) -> None:
        if file:
            self._console.print(Text(f"==> {file} <==\n", "bold"), soft_wrap=True)

    def show(self, found: list[Place], reader: FrameReader) -> None:
        for place in found:
            text = self._text(place)
            if self._console.color_system is None:  # much faster than the console
                sys.stdout.write(text.plain)
            else:
                self._console.print(text, soft_wrap=True, end="")

    def _text(self, place: Place) -> Text:
        frame = place.frame
        command = printable(frame.command)
        text = Text().append(command, COMMAND_STYLES.get(command, "yellow"))
        version = place.version or "1.2"
        line = f" at octet {place.start}: {place.size} bytes of body, read as {version} "
        text.append(line + "─" * max(0, self._console.width - len(command) - len(line)) + "\n", "dim")
        for name, value in frame.headers.pairs():
            text.append(printable(name), "bold").append(": ", "dim").append(
                cut(header_value(name, value), _VALUE) + "\n"
            )
        if place.size:
            notes, form, shown = body_of(frame)
            for note in notes:
                text.append(f"({note})\n", "dim italic")
            body = Text(f"\n{shown}\n")
            if self._console.color_system is not None and form in _HIGHLIGHTERS:
                _HIGHLIGHTERS[form].highlight(body)
            text.append_text(body)
        return text.append("\n")


def body_of(frame: Frame, most: int = _INFLATED) -> Body:
    """Return the body of a frame, made readable and inflated to at most `most` bytes. Never raises.

    >>> body_of(Frame("SEND", {}, b'{"a":[1,{}]}')).text
    '{\\n  "a": [\\n    1,\\n    {}\\n  ]\\n}'
    """
    notes: list[str] = []
    data = _inflated(frame, notes, most)
    try:
        if frame.get("content-type") is None:
            text = data.decode()
        else:
            text = text_of(Frame("MESSAGE", {"content-type": frame.headers["content-type"]}, data))
    except (UnicodeDecodeError, ContentError):
        text = data.decode("utf-8", "replace")
        if "\ufffd" in text or "\0" in text:
            more = f", {len(data) - _SHOWN_BINARY} more bytes" if len(data) > _SHOWN_BINARY else ""
            return Body([*notes, f"binary{more}"], "binary", "\n".join(hex_lines(data[:_SHOWN_BINARY], 0)))
    if len(data) > _INDENTED:
        notes.append(f"the first {_SHOWN} of {len(text)} characters")
        return Body(notes, "text", printable(text[:_SHOWN], keep="\n\t"))
    form, text = _indented(text)
    return Body(notes, form, printable(text.replace("\r\n", "\n"), keep="\n\t").rstrip("\n"))


def _inflated(frame: Frame, notes: list[str], most: int) -> bytes:
    coding = frame.get("content-encoding")
    packed = frame.body.startswith(b"\x1f\x8b")
    if coding is None and not packed:
        return frame.body
    try:
        data = decode_content(coding or "gzip", frame.body, most)
    except FrameError as error:
        reason = f"more than {most} bytes" if error.limit else error.detail
        notes.append(f"content-encoding {cut(printable(coding or 'gzip'), 40)}: not decoded: {reason}")
        return frame.body
    if len(data) != len(frame.body):
        notes.append(f"content-encoding {cut(printable(coding or 'gzip'), 40)}: decompressed to {len(data)} bytes")
    return data


def _indented(text: str) -> tuple[str, str]:
    """Return the form of a text, and the text, indented if it is JSON or XML."""
    begin = text.lstrip()[:1]
    try:
        if begin in ("{", "["):
            return "json", indent_json(text)
        if begin == "<":
            return "xml", indent_xml(text)
    except (ValueError, RecursionError, ExpatError):
        pass
    return "text", text


def indent_json(text: str) -> str:
    """Return JSON with a line for each item. Only white space changes: numbers, escapes and repeated keys are kept.

    Raises ValueError if it is not JSON, or RecursionError.

    >>> print(indent_json('{"a":1.10}'))
    {
      "a": 1.10
    }
    """
    json.loads(text, parse_int=str, parse_float=str)
    parts: list[str] = []
    depth, before = 0, ""
    for token in _JSON_TOKEN.findall(text):
        closes, after_open = token in "]}", before in ("[", "{")
        depth -= closes
        if before == "," or closes != after_open:  # no line break in an empty array or object
            parts.append("\n" + "  " * min(depth, _DEEPEST))
        parts.append(": " if token == ":" else token)
        depth += token in "[{"
        before = token
    return "".join(parts)


def indent_xml(text: str) -> str:
    """Return XML with a line for each element; raise if it is not XML, has a document type, or is nested too deeply."""
    if "<!DOCTYPE" in text:
        raise ValueError("a document type may hold entities that grow without bound")
    document = minidom.parseString(text)
    _strip(document)
    return document.toprettyxml(indent="  ")


def _strip(node: Any) -> None:
    """Remove white space between elements."""
    for child in list(node.childNodes):
        if child.nodeType == Node.TEXT_NODE and not child.data.strip() and len(node.childNodes) > 1:
            node.removeChild(child)
        else:
            _strip(child)
