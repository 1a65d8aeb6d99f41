"""Conversion of bodies for a subscription, if its SUBSCRIBE asks for a transformation or a content-encoding.

Messages are stored as they were sent. They are converted on delivery, on the slow path only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from stompcodec.broker.bodies import xml_json as transform
from stompcodec.broker.bodies.xml_json import FORMS
from stompcodec.broker.config.config import Config
from stompcodec.broker.errors import Refused
from stompcodec.broker.message import Message, header_line
from stompcodec.codec import Frame, serialize_tail
from stompcodec.content import decode_content, encode_content
from stompcodec.errors import ContentError, FrameError, MissingExtraError

#: The header of a MESSAGE that says why its body could not be converted. ActiveMQ uses the same name.
ERROR = "transformation-error"
#: Headers that describe the form of the body, and are dropped when it changes.
_OWN = ("transformation", "message-type", ERROR)
_TYPES = {"xml": "application/xml;charset=utf-8", "json": "application/json"}
#: Larger tails, in bytes, are not cached for the next consumer.
_MOST_KEPT = 2**20


class Conversion:
    """The form in which a subscription gets bodies: a name of `FORMS` and a content-encoding, None to keep the
    sender's, and the maximum sizes in bytes.

    >>> conversion = Conversion("jms-map-xml", None, 1000, 1000)
    >>> conversion.apply(Message(b"m-1", 1, "/queue/a", b'transformation:jms-map-json\\n\\n{"a":1}\\0')).tail[:48]
    b'content-type:application/xml;charset=utf-8\\nmessa'
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
                body = self._transformed(body, source, target)
                if target.notation not in ("", source.notation):
                    pairs = [("content-type", _TYPES[target.notation]), *_without(pairs, "content-type")]
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

    def _transformed(self, body: bytes, source: transform.Form, target: transform.Form) -> bytes:
        if target.kind != "byte" and len(body) > self._max_transformed:
            raise ContentError(f"it is larger than {self._max_transformed} bytes")
        return transform.transformed(body, source, target, self._max_transformed)


@dataclass(eq=False, slots=True)
class Readdressed:
    """Messages of a topic as messages of a queue: `destination` names the queue, `original-destination` the topic.
    `conversion` is applied, too.

    >>> message = Message(b"m-1", 1, "/topic/VirtualTopic.a", b"destination:/topic/VirtualTopic.a\\n\\nhi\\0")
    >>> Readdressed("/queue/Consumer.b.VirtualTopic.a", None).apply(message).frame.get("original-destination")
    '/topic/VirtualTopic.a'
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
        transform.require_xml()
    except MissingExtraError as error:
        raise Refused("transformations are not installed", f"On the broker, {error}.") from error
