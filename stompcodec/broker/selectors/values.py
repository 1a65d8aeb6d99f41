"""The values that a selector reads from a message: typed headers and JMS names; comparison, arithmetic and LIKE.

A value is None (NULL), a bool, a number, a text, or `Typed`: a header that JSON reads as a number or a boolean, and
that can also be compared as text. Exact numbers have 64 bits; larger results are approximate.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from stompcodec.broker.message import Message
from stompcodec.content import json_value


class Texts:
    """Distinct texts with a count of their uses."""

    __slots__ = ("_uses", "length")

    def __init__(self) -> None:
        self._uses: dict[str, int] = {}
        #: Characters of all distinct texts.
        self.length = 0

    def with_one(self, text: str) -> int:
        """Return the total length with another text."""
        return self.length if text in self._uses else self.length + len(text)

    def add(self, text: str) -> None:
        """Count a use of a text."""
        self.length = self.with_one(text)
        self._uses[text] = self._uses.get(text, 0) + 1

    def remove(self, text: str) -> None:
        """Count the end of a use of a text."""
        uses = self._uses.pop(text) - 1
        if uses:
            self._uses[text] = uses
        else:
            self.length -= len(text)


Number = int | float


class Typed(NamedTuple):
    """A header value that JSON reads as a number or a boolean."""

    value: Number
    text: str


Value = Number | str | Typed | None
#: Values already read from a message, by the key of the header, so that a long value is parsed only once.
Known = dict[bytes, Value]
#: Called with the head of a message, each header line between two line feeds; the message; and the known values.
Reader = Callable[[bytes, "Message", Known], Value]

# ---- header values ----

#: Whitespace in JSON, and the first characters of its numbers and words.
_SPACE = b" \t\r\n"
_JSON_STARTS = b'-0123456789tfn"' + _SPACE
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)((?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)")
_WORDS: dict[bytes, bool | None] = {b"true": True, b"false": False, b"null": None}
_LONG = 2**63


def key_of(name: str) -> bytes:
    """Return the beginning of a header's line in the head of a message."""
    octets = name.encode("utf-8", "surrogateescape")
    for letter, plain in (b"\\", b"\\"), (b"n", b"\n"), (b"r", b"\r"), (b"c", b":"):
        octets = octets.replace(plain, b"\\" + letter)
    return b"\n" + octets + b":"


def octets_at(head: bytes, key: bytes) -> bytes | None:
    """Return a header's raw value from the head, or None if it is missing."""
    at = head.find(key)
    if at < 0:
        return None
    at += len(key)
    return head[at : head.index(b"\n", at)]


def number_of(octets: bytes) -> Number | None:
    """Return the number that JSON reads, or None if it is not a number or too large for a float."""
    if octets.isdigit() and octets[0] != 48 and len(octets) < 19:  # the common case
        return int(octets)
    if octets[:1] in _SPACE or octets[-1:] in _SPACE:
        octets = octets.strip(_SPACE)
    found = _NUMBER.fullmatch(octets)
    if found is None:
        return None
    if not found[1] and len(octets) < 19:
        return int(octets)
    number = float(octets)
    if found[1]:
        return number if abs(number) != float("inf") else None
    return exact(int(octets)) if len(octets) < 22 else number if abs(number) != float("inf") else None


def exact(number: int) -> Number:
    """Return a 64-bit integer unchanged, and others as the nearest float, or infinity."""
    if -_LONG <= number < _LONG:
        return number
    return float(number) if number.bit_length() < 1024 else float("inf")


def value_of(octets: bytes) -> Value:
    """Return a header value with its type.

    >>> value_of(b"red"), value_of(b"10"), value_of(b'"10"'), value_of(b"null")
    ('red', Typed(value=10, text='10'), '10', None)
    """
    if b"\\" in octets:
        octets = _unescaped(octets)
    text = octets.decode("utf-8", "surrogateescape")
    if octets[:1] not in _JSON_STARTS or not octets:
        return text
    number = number_of(octets)
    if number is not None:
        return Typed(number, text)
    bare = octets.strip(_SPACE)
    if bare in _WORDS:
        word = _WORDS[bare]
        return None if word is None else Typed(word, text)
    if bare[:1] == b'"':
        value = json_value(text)
        return value if isinstance(value, str) else text
    return text


def _unescaped(octets: bytes) -> bytes:
    parts = octets.split(rb"\\")
    return b"\\".join(part.replace(rb"\n", b"\n").replace(rb"\r", b"\r").replace(rb"\c", b":") for part in parts)


# ---- JMS and Artemis names ----


def _milliseconds(message: Message) -> int:
    return 0 if message.expires is None else round(message.expires * 1000)


#: Properties that the broker knows itself.
_PROPERTIES: dict[str, Callable[[Message], Value]] = {
    "JMSMessageID": lambda message: message.id,
    "JMSPriority": lambda message: message.priority,
    "JMSExpiration": _milliseconds,
    "JMSDeliveryMode": lambda message: "PERSISTENT" if message.persistent is True else "NON_PERSISTENT",
    "JMSRedelivered": lambda message: message.redelivered,
    "JMSXDeliveryCount": lambda message: message.attempts + 1,
    "JMSDestination": lambda message: message.destination,
    "AMQPriority": lambda message: message.priority,
    "AMQExpiration": _milliseconds,
    "AMQDurable": lambda message: "DURABLE" if message.persistent is True else "NON_DURABLE",
    "AMQSize": lambda message: message.size,
    "AMQUserID": lambda message: message.id,
    "AMQAddress": lambda message: message.destination,
    "message-id": lambda message: message.id,
}
#: Headers for a JMS or Artemis name; the first one present counts.
_ALIASES = {
    "JMSCorrelationID": ("correlation-id",),
    "JMSType": ("type",),
    "JMSReplyTo": ("reply-to",),
    "JMSTimestamp": ("timestamp",),
    "AMQTimestamp": ("timestamp",),
    "JMSXGroupID": ("JMSXGroupID", "message_group"),
    "AMQGroupID": ("JMSXGroupID", "message_group"),
}


def property_reader(name: str) -> tuple[Reader, bytes | None]:
    """Return a reader of an identifier, and the key of the header if it always reads the same one."""
    ask = _PROPERTIES.get(name)
    if ask is not None:
        return lambda _head, message, _known: ask(message), None
    keys = [key_of(header) for header in _ALIASES.get(name, (name,))]

    def read(head: bytes, _message: Message, known: Known) -> Value:
        if keys[0] in known:
            return known[keys[0]]
        found = (octets_at(head, key) for key in keys)
        octets = next((octets for octets in found if octets is not None), None)
        value = known[keys[0]] = None if octets is None else value_of(octets)
        return value

    return read, keys[0] if len(keys) == 1 else None


# ---- comparison ----

#: Functions of the operators; <> is the negation of =.
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compare(how: str, left: Value, right: Value) -> bool | None:
    """Compare two values by an operator of `COMPARE`: numbers, booleans (= only), or texts.

    A header's number or boolean is compared as text with a text. Values of different types are neither equal nor less
    or greater. Returns None if one of them is NULL.
    """
    if left is None or right is None:
        return None
    if isinstance(left, str) or isinstance(right, str):
        left = left.text if isinstance(left, Typed) else left
        right = right.text if isinstance(right, Typed) else right
        if not (isinstance(left, str) and isinstance(right, str)):
            return False
        return COMPARE[how](left, right)
    first, second = scalar(left), scalar(right)
    if isinstance(first, bool) or isinstance(second, bool):
        return how == "=" and first is second
    return COMPARE[how](first, second)


def scalar(value: Number | Typed) -> Number:
    """Return the number or boolean of a value."""
    return value.value if isinstance(value, Typed) else value


# ---- arithmetic: NULL if an operand is not a number, or the result is undefined ----


def _quotient(left: Number, right: Number) -> Number:
    """Divide; the quotient of two exact numbers is truncated."""
    if isinstance(left, float) or isinstance(right, float):
        return left / right
    whole = abs(left) // abs(right)
    return whole if (left < 0) == (right < 0) else -whole


_ARITHMETIC: dict[str, Callable[[Number, Number], Number]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _quotient,
}


def calculate(sign: str, left: Value, right: Value) -> Number | None:
    """Return +, -, * or / of two values; None if one is not a number, or the result is undefined."""
    if left is None or right is None or isinstance(left, str) or isinstance(right, str):
        return None
    first, second = scalar(left), scalar(right)
    if isinstance(first, bool) or isinstance(second, bool) or (sign == "/" and not second):
        return None
    apply = _ARITHMETIC[sign]
    result = apply(first, second)
    if isinstance(result, int) and not -_LONG <= result < _LONG:
        result = apply(float(first), float(second))
    return result if result == result else None  # infinity minus infinity is not a number


# ---- LIKE ----


class Like:
    """A pattern of LIKE: characters, None for _, and "" for %. Parts between two % are searched from the left, each
    once, so the time stays linear.

    >>> Like(["r", None, "", "d"]).matches("rebound"), Like(["r", None, "d"]).matches("rd")
    (True, False)
    """

    __slots__ = ("_first", "_last", "_last_size", "_middle", "_whole", "searched")

    def __init__(self, pattern: list[str | None]) -> None:
        pieces: list[list[str | None]] = [[]]
        for letter in pattern:
            if letter == "":
                pieces.append([])
            else:
                pieces[-1].append(letter)
        self._whole = len(pieces) == 1
        self._first = _piece(pieces[0])
        self._last, self._last_size = _piece(pieces[-1]), len(pieces[-1])
        middle = [piece for piece in pieces[1:-1] if piece]
        self._middle = [_piece(piece) for piece in middle]
        #: Number of characters of parts that must be tried at each position, because they contain _.
        self.searched = sum(len(piece) for piece in middle if None in piece and any(piece))

    def matches(self, text: str) -> bool:
        """Return whether a text matches, in time linear in its length."""
        if self._whole:
            return self._first.fullmatch(text) is not None
        found = self._first.match(text)
        for piece in self._middle:
            if found is None:
                return False
            found = piece.search(text, found.end())
        end = len(text) - self._last_size
        return found is not None and found.end() <= end and self._last.match(text, end) is not None


def _piece(letters: list[str | None]) -> re.Pattern[str]:
    return re.compile("".join("." if letter is None else re.escape(letter) for letter in letters), re.DOTALL)
