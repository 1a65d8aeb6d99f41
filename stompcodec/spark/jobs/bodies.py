"""Bodies that Spark's own functions cannot parse: gzip, XML, and text records. Needs no Spark.

Whatever a body contains, reading it ends within bounds, with records or with a `BodyError` whose text is the reason.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from xml.parsers import expat

#: Deepest nesting of elements. Feeds have less than ten levels.
_DEEPEST = 100
_MOST_ELEMENTS = 200_000
#: Most characters of an attribute that is repeated in each record.
_LONGEST = 1000
#: Most fields of a generic XML record.
_MOST_PATHS = 1000
_GZIP = b"\x1f\x8b"
_SENDER = {"updateOrigin": "update_origin", "requestID": "request_id", "requestSource": "request_source"}
#: Darwin elements that hold times at a location.
_TIMES = ("arr", "dep", "pass")


class BodyError(ValueError):
    """Error for an invalid body."""


class Record(NamedTuple):
    """A record of a body, or the reason why it is invalid."""

    fields: dict[str, str] | None
    reason: str | None = None
    raw: str | None = None
    """Text kept of an invalid record."""


@dataclass(eq=False, repr=False, slots=True)
class Element:
    """An XML element, with its name without namespace and prefix."""

    name: str
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)
    parts: list[str | Element] = field(default_factory=list)
    """Texts and children, in order."""

    def text(self) -> str:
        """Return all text in it and in its descendants, in order."""
        return "".join(part if isinstance(part, str) else part.text() for part in self.parts).strip()

    def value(self) -> dict[str, Any]:
        """Return it as JSON: attributes by name, lists of children by name, its own text as "_".

        >>> parse_xml(b'<a x="1"><b>t</b><b y="2"/></a>', 100).value()
        {'x': '1', 'b': [{'_': 't'}, {'y': '2'}]}
        """
        value: dict[str, Any] = {}
        names = {child.name for child in self.children}
        for name, text in self.attributes.items():
            value[f"@{name}" if name in names else name] = text
        for child in self.children:
            value.setdefault(child.name, []).append(child.value())
        text = "".join(part for part in self.parts if isinstance(part, str)).strip()
        return {**value, "_": text} if text else value

    def json(self) -> str:
        return json.dumps(self.value(), ensure_ascii=False, separators=(",", ":"))

    def first(self, name: str) -> Element | None:
        return next((child for child in self.children if child.name == name), None)


def inflated(body: bytes, most: int) -> bytes:
    """Return the body, inflated to at most `most` bytes if it is gzip; raise BodyError if that fails.

    >>> import gzip
    >>> inflated(gzip.compress(b"abc"), 3), inflated(b"abc", 3)
    (b'abc', b'abc')
    """
    if not body.startswith(_GZIP):
        if len(body) > most:
            raise BodyError(f"the body is larger than {most} bytes")
        return bytes(body)
    parts, size, rest = [], 0, bytes(body)
    while rest:  # gzip allows several consecutive members
        member = zlib.decompressobj(31)
        try:
            part = member.decompress(rest, most - size + 1)
        except zlib.error as error:
            raise BodyError(f"gzip: {str(error).partition(': ')[2] or error}") from None
        size += len(part)
        if size > most:
            raise BodyError(f"gzip: the inflated body is larger than {most} bytes")
        if not member.eof:
            raise BodyError("gzip: truncated")
        parts.append(part)
        rest = member.unused_data.lstrip(b"\0")
        if rest and not rest.startswith(_GZIP):
            raise BodyError("gzip: data after the end")
    return b"".join(parts)


def parse_xml(data: bytes, most: int) -> Element:
    """Return the root of an XML document. DTDs are refused, so no entity can name a file or grow.

    Raises BodyError if it is larger than `most` bytes, is not well-formed, has a DTD, or is nested too deep.
    """
    if len(data) > most:
        raise BodyError(f"the body is larger than {most} bytes")
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    document = Element("", {})
    stack = [document]
    count = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > _MOST_ELEMENTS:
            raise BodyError(f"XML: more than {_MOST_ELEMENTS} elements")
        if len(stack) > _DEEPEST:
            raise BodyError(f"XML: nested deeper than {_DEEPEST}")
        element = Element(_local(name), {_local(key): text for key, text in attributes.items()})
        stack[-1].children.append(element)
        stack[-1].parts.append(element)
        stack.append(element)

    def refused(*_: object) -> Any:
        raise BodyError("XML: a DTD is not accepted")

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _name: stack.pop()
    parser.CharacterDataHandler = lambda data: stack[-1].parts.append(data)
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = parser.UnparsedEntityDeclHandler = refused
    parser.ExternalEntityRefHandler = refused
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise BodyError(f"XML: {expat.ErrorString(error.code)}, line {error.lineno}, column {error.offset}") from None
    except BodyError:
        raise
    except (ValueError, LookupError) as error:  # an encoding that Python lacks
        raise BodyError(f"XML: {error}") from None
    return document.children[0]


def _local(name: str) -> str:
    return name.rpartition(" ")[2]


def records(body: bytes, reader: str, most: int) -> Iterator[Record]:
    """Return the records of a body by a reader (darwin, xml, or apel); raise BodyError if it has none.

    Gzip is inflated; `most` is the largest size in bytes, also then.
    """
    data = inflated(body, most)
    if not data:
        raise BodyError("no body")
    if reader == "apel":
        return _apel(data)
    root = parse_xml(data, most)
    return _darwin(root) if reader == "darwin" else iter([Record(_generic(root))])


def _darwin(root: Element) -> Iterator[Record]:
    """Yield a record for each element of an update (uR) or a snapshot (sR)."""
    if root.name != "Pport":  # an element without its envelope
        yield Record(_darwin_fields(root))
        return
    envelope = _envelope(root, {"ts": "ts", "version": "version"})
    for child in root.children:
        if child.name not in ("uR", "sR"):
            yield Record({**envelope, **_darwin_fields(child)})
            continue
        sender = _envelope(child, _SENDER)
        for element in child.children:
            yield Record({**envelope, "update": child.name, **sender, **_darwin_fields(element)})


def _envelope(element: Element, names: dict[str, str]) -> dict[str, str]:
    """Return the attributes that all records share."""
    fields = {name: element.attributes[key] for key, name in names.items() if key in element.attributes}
    for name, text in fields.items():
        if len(text) > _LONGEST:
            raise BodyError(f"XML: attribute {name} has more than {_LONGEST} characters")
    return fields


def _darwin_fields(element: Element) -> dict[str, str]:
    names = {"trainId": "train_id"}
    wanted = ("rid", "uid", "ssd", "trainId", "toc", "tiploc", "crs", "id")
    fields = {names.get(key, key): element.attributes[key] for key in wanted if key in element.attributes}
    fields |= {"kind": element.name, "element": element.json()}
    if element.attributes:
        fields["attributes"] = json.dumps(element.attributes, ensure_ascii=False)
    message = element.first("Msg")
    if message is not None:
        fields["message"] = message.text()
    locations = [_location(child) for child in element.children if "tpl" in child.attributes]
    if locations:
        fields["locations"] = json.dumps(locations, ensure_ascii=False)
    return fields


def _location(element: Element) -> dict[str, str]:
    """Return the times at a location; those of child elements get names such as arr_et."""
    fields = {"type": element.name, **element.attributes}
    for child in element.children:
        if child.name in _TIMES:
            fields.update({f"{child.name}_{key}": text for key, text in child.attributes.items()})
        elif text := child.text():
            fields[child.name] = text
    return fields


def _generic(root: Element) -> dict[str, str]:
    """Return the texts of a document by the path of element names; the first one counts if a path repeats.

    >>> _generic(parse_xml(b"<a><b><c>1</c><c>2</c></b><d>x</d></a>", 100))
    {'kind': 'a', 'element': '{"b":[{"c":[{"_":"1"},{"_":"2"}]}],"d":[{"_":"x"}]}', 'b.c': '1', 'd': 'x'}
    """
    fields = {"kind": root.name, "element": root.json()}
    waiting = [("", child) for child in reversed(root.children)]
    while waiting and len(fields) < _MOST_PATHS:
        before, element = waiting.pop()
        path = before + element.name
        if element.children:
            waiting.extend((f"{path}.", child) for child in reversed(element.children))
        elif text := element.text():
            fields.setdefault(path, text)
    return fields


def _apel(data: bytes) -> Iterator[Record]:
    """Yield records of lines `Key: value`, separated by lines of %%; the first line names their kind."""
    try:
        head, _, rest = data.decode("utf-8").replace("\r\n", "\n").strip("\n").partition("\n")
    except UnicodeDecodeError as error:
        raise BodyError(f"not UTF-8, at byte {error.start}") from None
    kind, colon, version = head.partition(":")
    if not kind.startswith("APEL-") or not colon:
        raise BodyError("not an APEL message: the first line is not APEL-…: version")
    texts = [text for text in _separated(rest) if text.strip()]
    for text in texts:
        fields = {"record": kind, "version": version.strip()}
        yield _apel_record(text, fields)


def _separated(text: str) -> Iterator[str]:
    lines: list[str] = []
    for line in text.split("\n"):
        if line.strip() == "%%":
            yield "\n".join(lines)
            lines = []
        else:
            lines.append(line)
    yield "\n".join(lines)


def _apel_record(text: str, fields: dict[str, str]) -> Record:
    named = dict(fields)
    for line in text.split("\n"):
        if not line.strip():
            continue
        key, colon, value = line.partition(":")
        if not colon or not key.strip():
            return Record(None, f"a line is not 'Key: value': {line[:60]!r}", text)
        if key.strip() in named:
            return Record(None, f"field {key.strip()[:60]} is there twice", text)
        named[key.strip()] = value.strip()
    return Record(named)
