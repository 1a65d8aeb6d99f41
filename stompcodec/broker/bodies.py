"""Bodies: messages are converted for a subscription whose SUBSCRIBE asks for a transformation or a content-encoding.

Messages are stored as they were sent. They are converted on delivery, on the slow path only.

Maps and objects are converted between XML and JSON, following the wish-list for 1.1 and ActiveMQ. Both notations
represent a tree of elements. JSON uses the mapped convention: a child is a member, several children of one name are a
list, an attribute is a member that begins with @, and text beside attributes is the member $. For example:

    <map><entry><string>city</string><string>Bonn</string></entry><entry><string>size</string><int>5</int></entry></map>

XML survives the way through JSON unchanged, except for the order of children with different names in one parent, which
JSON cannot express and a map does not need. The input is not trusted: DTDs and entities are refused, and depth and size
are bounded.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from stompcodec.broker.config import Config
from stompcodec.broker.message import Message, header_line
from stompcodec.broker.values import Refused
from stompcodec.codec import Frame, serialize_tail
from stompcodec.content import decode_content, encode_content, json_value
from stompcodec.errors import ContentError, FrameError, MissingExtraError


class Form(NamedTuple):
    """A value of the headers transformation and message-type."""

    name: str
    kind: str
    """byte: any bytes; object: any tree; map: a tree of entries; any: whichever the message is."""
    notation: str
    """xml or json; "" for neither."""


#: Forms by name. jms-xml and jms-json are ActiveMQ's, and mean a map or an object in that notation.
FORMS: dict[str, Form] = {
    form.name: form
    for form in (
        Form("jms-byte", "byte", ""),
        Form("jms-object-xml", "object", "xml"),
        Form("jms-object-json", "object", "json"),
        Form("jms-map-xml", "map", "xml"),
        Form("jms-map-json", "map", "json"),
        Form("jms-xml", "any", "xml"),
        Form("jms-json", "any", "json"),
    )
}

_MAX_DEPTH = 100
_MAX_NAME = 256
_NAME = re.compile(r"[^\W\d][\w.\-]*")
#: Characters that XML 1.0 cannot represent, even escaped.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_WHOLE = re.compile("0|-?[1-9][0-9]{0,18}")
_WHOLE_TYPES = ("int", "long", "short", "byte")
_REAL_TYPES = ("double", "float")
_TRUTH = {"true": True, "false": False}


class Element:
    """A node of a tree, with a name and either text or children."""

    __slots__ = ("attributes", "children", "name", "text")

    def __init__(self, name: str, text: str = "") -> None:
        self.name = name
        self.text = text
        self.attributes: dict[str, str] = {}
        self.children: list[Element] = []

    def __repr__(self) -> str:
        return f"<Element {self.name}: {len(self.children)} children>"


def transformed(body: bytes, source: Form, target: Form, most: int) -> bytes:
    """Transform a body into another form, of at most `most` bytes. Rules: WISH-TRF-01 to WISH-TRF-04.

    Raise ContentError if it is not in its form, cannot be expressed in the other, or becomes too large;
    MissingExtraError if reading XML needs a package that is missing.
    """
    if target.kind == "byte":
        return body
    if source.kind == "byte":
        raise ContentError("the message is a bytes message, neither a map nor an object")
    root = parse_xml(body) if source.notation == "xml" else parse_json(body, plain_map=source.kind == "map")
    if "map" in (source.kind, target.kind):
        _check_map(root)
    if source.notation == target.notation:
        return body
    return write_xml(root, most) if target.notation == "xml" else write_json(root, most)


def _check_map(root: Element) -> None:
    if root.name != "map" or root.text.strip():
        raise ContentError("it is not a map: its root is not called map")
    for entry in root.children:
        if entry.name != "entry" or len(entry.children) != 2 or entry.children[0].name != "string":
            raise ContentError("it is not a map: an entry must be a string and a value")
    root.text = ""


# ---- XML ----
class _Builder:
    """The parser's target. Unlike the packages' own, it bounds the depth of elements."""

    def __init__(self) -> None:
        self.root: Element | None = None
        self._open: list[Element] = []
        self._text: list[str] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name.startswith("{"):
            raise ContentError("it has namespaces")
        if len(self._open) >= _MAX_DEPTH:
            raise ContentError(f"it is nested deeper than {_MAX_DEPTH}")
        element = Element(name)
        element.attributes.update(attributes)
        if self._open:
            self._end_text(self._open[-1], mixed=True)
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def end(self, _name: str) -> None:
        element = self._open.pop()
        self._end_text(element, mixed=bool(element.children))

    def data(self, text: str) -> None:
        self._text.append(text)

    def close(self) -> Element | None:
        return self.root

    def _end_text(self, element: Element, mixed: bool) -> None:
        text = "".join(self._text)
        self._text.clear()
        if not mixed:
            element.text = text
        elif text.strip():
            raise ContentError("there is text between its elements")


def _xml_parser() -> Any:
    try:
        from defusedxml.ElementTree import DefusedXMLParser
    except ImportError:
        raise MissingExtraError("broker", "defusedxml") from None
    return DefusedXMLParser


def parse_xml(body: bytes) -> Element:
    """Return the tree of an XML document. DTDs, entities, namespaces and text between elements raise ContentError."""
    parser = _xml_parser()(target=_Builder(), forbid_dtd=True, forbid_entities=True, forbid_external=True)
    try:
        parser.feed(body)
        root = parser.close()
    except ContentError:
        raise
    except (SyntaxError, ValueError, LookupError) as error:  # ParseError, forbidden input, unknown charset
        line, column = getattr(error, "position", (0, 0))
        where = f" at line {line}, column {column}" if line else ""
        why = "it has a DTD or entities" if type(error).__module__.startswith("defusedxml") else "it is not valid XML"
        raise ContentError(f"{why}{where}") from error
    assert isinstance(root, Element)
    return root


class _Pieces:
    """The pieces of a text, bounded in size. Repeated names could make it far larger than its input."""

    def __init__(self, most: int) -> None:
        self.parts: list[str] = []
        self.left = most

    def add(self, *parts: str) -> None:
        self.parts += parts
        self.left -= sum(map(len, parts))
        if self.left < 0:
            raise ContentError("it becomes too large")


def write_xml(root: Element, most: int) -> bytes:
    """Return a tree as XML in UTF-8, without white space between elements. Raise ContentError if XML cannot represent
    it, or it is larger than `most` bytes.
    """
    pieces = _Pieces(most)
    _write_element(root, pieces)
    return _within("".join(pieces.parts).encode(), most)


def _write_element(element: Element, pieces: _Pieces) -> None:
    name = _checked_name(element.name)
    pieces.add("<", name)
    for key, value in element.attributes.items():
        pieces.add(" ", _checked_name(key), '="', _xml_text(value, '\t\n\r"'), '"')
    if not element.children and not element.text:
        pieces.add("/>")
        return
    pieces.add(">", _xml_text(element.text, "\r"))
    for child in element.children:
        _write_element(child, pieces)
    pieces.add("</", name, ">")


def _checked_name(name: str) -> str:
    if len(name) > _MAX_NAME or not _NAME.fullmatch(name):
        raise ContentError("a name in it is not valid in XML")
    return name


def _xml_text(text: str, referred: str) -> str:
    if _NO_XML.search(text):
        raise ContentError("it has control characters, which XML cannot represent")
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for character in referred:
        text = text.replace(character, f"&#{ord(character)};")
    return text


def _within(octets: bytes, most: int) -> bytes:
    if len(octets) > most:
        raise ContentError("it becomes too large")
    return octets


# ---- JSON ----
def parse_json(body: bytes, plain_map: bool = False) -> Element:
    """Return the tree of a JSON object by the mapped convention. Its only member is the root. With `plain_map`, an
    object that is not a map in this convention is read as a map whose members are the entries. Anything else raises
    ContentError.
    """
    try:
        value = json_value(body.decode())
    except UnicodeDecodeError:
        raise ContentError("it is not UTF-8") from None
    if not isinstance(value, dict):
        raise ContentError("it is not a JSON object")
    if plain_map and not _is_mapped_map(value):
        return _map_of("map", value)
    if len(value) != 1:
        raise ContentError("it must have exactly one member, the root")
    ((name, content),) = value.items()
    if isinstance(content, list):
        raise ContentError("its root is a list")
    return _element(name, content)


def _is_mapped_map(value: dict[str, Any]) -> bool:
    inner = value.get("map", 0)
    return len(value) == 1 and (inner in ("", None) or (isinstance(inner, dict) and set(inner) <= {"entry"}))


def _element(name: str, value: Any) -> Element:
    if not isinstance(value, dict):
        return Element(name, _scalar(value))
    element = Element(name)
    for key, inner in value.items():
        if key == "$":
            element.text = _scalar(inner)
        elif key.startswith("@"):
            element.attributes[key[1:]] = _scalar(inner)
        else:
            element.children += (_element(key, each) for each in (inner if isinstance(inner, list) else [inner]))
    if element.text and element.children:
        raise ContentError("there is text between its elements")
    return element


def _scalar(value: Any) -> str:
    if isinstance(value, (list, dict)):
        raise ContentError("a list or an object is in place of a text")
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _map_of(name: str, members: dict[str, Any]) -> Element:
    """Return a map of plain JSON values."""
    element = Element(name)
    for key, value in members.items():
        entry = Element("entry")
        entry.children = [Element("string", key), _typed(value)]
        element.children.append(entry)
    return element


def _typed(value: Any) -> Element:
    if isinstance(value, dict):
        return _map_of("map", value)
    if isinstance(value, list):
        element = Element("list")
        element.children = [_typed(each) for each in value]
        return element
    if isinstance(value, int) and not isinstance(value, bool):
        size = value.bit_length()
        return Element("int" if size < 32 else "long" if size < 64 else "big-int", str(value))
    return Element(_TYPES[type(value)], _scalar(value))


_TYPES = {str: "string", bool: "boolean", float: "double", type(None): "null"}


def write_json(root: Element, most: int) -> bytes:
    """Return a tree as JSON by the mapped convention, in UTF-8. Numbers and booleans are written as such. Raise
    ContentError if JSON cannot represent it, or it is larger than `most` bytes.
    """
    text = json.dumps({root.name: _value(root)}, ensure_ascii=False, separators=(",", ":"))
    try:
        return _within(text.encode(), most)
    except UnicodeEncodeError:
        raise ContentError("it has lone surrogates") from None


def _value(element: Element) -> Any:
    if not element.attributes and not element.children:
        return _literal(element.name, element.text)
    value: dict[str, Any] = {f"@{name}": text for name, text in element.attributes.items()}
    if element.text:
        value["$"] = _literal(element.name, element.text)
    for name, group in _by_name(element.children):
        value[name] = group[0] if len(group) == 1 else group
    return value


def _by_name(children: Iterable[Element]) -> Iterable[tuple[str, list[Any]]]:
    groups: dict[str, list[Any]] = {}
    last = None
    for child in children:
        group = groups.setdefault(child.name, [])
        if group and child.name != last:
            raise ContentError("elements of one name are not adjacent, an order that JSON cannot represent")
        group.append(_value(child))
        last = child.name
    return groups.items()


def _literal(name: str, text: str) -> Any:
    """Return a number or boolean if the element's type says so and it is in JSON's spelling, otherwise the text."""
    if name in _WHOLE_TYPES and _WHOLE.fullmatch(text):
        return int(text)
    if name in _REAL_TYPES and len(text) < 30:
        try:
            number = float(text)
        except ValueError:
            return text
        return number if math.isfinite(number) and repr(number) == text else text
    return _TRUTH.get(text, text) if name == "boolean" else text


#: The header of a MESSAGE that says why its body could not be converted. ActiveMQ uses the same name.
ERROR = "transformation-error"
#: Headers that describe the form of the body, and are dropped when it changes.
_OWN = ("transformation", "message-type", ERROR)
_CONTENT_TYPES = {"xml": "application/xml;charset=utf-8", "json": "application/json"}
#: Larger tails, in bytes, are not cached for the next consumer.
_MOST_KEPT = 2**20


class Conversion:
    """The form in which a subscription gets bodies: a name of `FORMS` and a content-encoding, None to keep the
    sender's, and the maximum sizes in bytes.
    """

    __slots__ = ("_encoding", "_form", "_latest", "_max_inflated", "_max_transformed")

    def __init__(self, form: str | None, encoding: str | None, max_transformed: int, max_inflated: int) -> None:
        self._form = None if form is None else FORMS[form]
        self._encoding = encoding
        self._max_transformed = max_transformed
        self._max_inflated = max_inflated
        #: The latest result, because subscribers of a topic get the same message one after the other.
        self._latest = b"", b""

    def apply(self, message: Message) -> Message:
        """Return a message in this form, or as sent, with a header that says why its body cannot be converted."""
        converted = Message(message.ident, message.seq, message.destination, self._tail(message))
        return converted.with_body(message.body)

    def _tail(self, message: Message) -> bytes:
        tail = message.tail
        if self._latest[0] is tail:
            return self._latest[1]
        frame = message.frame
        try:
            if message.body is not None:
                raise ContentError("the body is too large")
            made = self._shaped(frame)
        except (ContentError, FrameError) as error:
            why = str(error) if isinstance(error, ContentError) else "the body does not match its content-encoding"
            if isinstance(error, FrameError) and error.limit:
                why = "the decoded body is too large"
            pairs = [pair for pair in frame.headers.pairs() if pair[0] != ERROR]
            made = serialize_tail(Frame("MESSAGE", [*pairs, (ERROR, why)], frame.body), "1.2")
        if len(made) + len(tail) <= _MOST_KEPT:
            self._latest = tail, made
        return made

    def _shaped(self, frame: Frame) -> bytes:
        body, coding = frame.body, frame.get("content-encoding")
        pairs = [pair for pair in frame.headers.pairs() if pair[0] not in _OWN]
        source = FORMS.get(frame.get("transformation") or frame.get("message-type") or "")
        wanted, target = self._encoding, self._form
        if coding is not None and (target is not None or (wanted is not None and coding != wanted)):
            body = decode_content(coding, body, self._max_inflated)
        if target is not None:
            if source is not None:
                name = f"jms-{source.kind}-{target.notation}" if target.kind == "any" else target.name
                if target.kind != "byte" and len(body) > self._max_transformed:
                    raise ContentError(f"it is larger than {self._max_transformed} bytes")
                body = transformed(body, source, target, self._max_transformed)
                if target.notation not in ("", source.notation):
                    pairs = [("content-type", _CONTENT_TYPES[target.notation]), *_without(pairs, "content-type")]
                pairs = [*pairs, ("message-type", name), ("transformation", name)]
            elif target.kind not in ("any", "byte"):
                raise ContentError("the message has no transformation header, so it is neither a map nor an object")
        if wanted is None:
            wanted = coding
        elif coding == wanted and target is None:
            return serialize_tail(frame, "1.2")
        pairs = _without(pairs, "content-encoding")
        if wanted is not None and wanted != "identity":
            body = encode_content(wanted, body)
            pairs = [*pairs, ("content-encoding", wanted)]
        return serialize_tail(Frame("MESSAGE", pairs, body), "1.2")


@dataclass(eq=False, slots=True)
class Readdressed:
    """Messages of a topic as messages of a queue: `destination` names the queue, `original-destination` the topic.
    `conversion` is applied, too.
    """

    destination: str
    conversion: Conversion | None

    def apply(self, message: Message) -> Message:
        """Return the message to deliver, which is the same one if it was sent to the queue itself."""
        converted = message if self.conversion is None else self.conversion.apply(message)
        if message.destination == self.destination:
            return converted
        tail = converted.tail
        old, new = (header_line("destination", name) for name in (message.destination, self.destination))
        at = 0 if tail.startswith(old) else tail.find(b"\n" + old, 0, tail.index(b"\n\n") + 1) + 1
        if not (at or tail.startswith(old)):
            return converted
        tail = b"".join(
            (tail[:at], new, header_line("original-destination", message.destination), tail[at + len(old) :])
        )
        return Message(message.ident, message.seq, self.destination, tail).with_body(converted.body)


def _without(pairs: list[tuple[str, str]], name: str) -> list[tuple[str, str]]:
    return [pair for pair in pairs if pair[0] != name]


#: Shared by subscriptions with the same needs.
_shared = lru_cache(64)(Conversion)


def conversion_of(transformation: str | None, encoding: str | None, config: Config) -> Conversion | None:
    """Return the form that the headers of a SUBSCRIBE or RECEIVE ask for, None for messages as sent. Raise Refused if
    the form or encoding is unknown, or the configuration does not allow it.
    """
    if transformation is None and encoding is None:
        return None
    if transformation is not None:
        _check_form(transformation, config)
    if encoding is not None:
        if not config.max_inflated:
            raise Refused("content-encoding is off", "max_inflated of the broker's configuration is 0.")
        try:
            encode_content(encoding, b"")
        except FrameError as error:
            raise Refused("unknown content-encoding", "It is gzip, deflate, base64 or identity.") from error
    return _shared(transformation, encoding, config.max_transformed, config.max_inflated)


def _check_form(name: str, config: Config) -> None:
    if name not in FORMS:
        raise Refused("unknown transformation", f"It is one of {', '.join(FORMS)}.")
    if not config.max_transformed:
        raise Refused("transformations are off", "max_transformed of the broker's configuration is 0.")
    try:
        _xml_parser()
    except MissingExtraError as error:
        raise Refused("transformations are not installed", f"On the broker, {error}.") from error
