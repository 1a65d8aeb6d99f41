"""Selectors: conditions on messages, in the SQL 92 syntax of JMS; docs/selectors.md describes them.

    values    what a selector reads from a message: typed headers and JMS names; comparison, arithmetic and LIKE
    Rules     the rules of the grammar, compiled to nested functions once for each selector
    grammar   of lark, which is imported for the first selector
    Selector  made by `compile_selector` from a text, and cached

A value is None (NULL), a bool, a number, a text, or `Typed`: a header that JSON reads as a number or a boolean, and
that can also be compared as text. Exact numbers have 64 bits; larger results are approximate. Conditions are
three-valued: True, False, or None for unknown.
"""

from __future__ import annotations

import logging
import operator
import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from stompcodec.broker.message import Message
from stompcodec.content import json_value
from stompcodec.errors import MissingExtraError, StompError

if TYPE_CHECKING:
    from lark import Token


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
    "JMSDeliveryMode": lambda message: "PERSISTENT" if message.persistent == 1 else "NON_PERSISTENT",
    "JMSRedelivered": lambda message: message.redelivered,
    "JMSXDeliveryCount": lambda message: message.attempts + 1,
    "JMSDestination": lambda message: message.destination,
    "AMQPriority": lambda message: message.priority,
    "AMQExpiration": _milliseconds,
    "AMQDurable": lambda message: "DURABLE" if message.persistent == 1 else "NON_DURABLE",
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


#: Dialects whose headers compare as texts only; dialects without the prefixes of selectors.
_TEXTS, _UNPREFIXED = ("artemis",), ("activemq",)
#: Names that are always NULL in other dialects: their brokers keep these headers elsewhere.
_HIDDEN = {
    "activemq": ("type", "correlation-id", "reply-to"),
    "artemis": (
        *("type", "correlation-id", "reply-to", "JMSMessageID", "JMSPriority", "JMSTimestamp", "JMSDeliveryMode"),
        *("JMSExpiration", "JMSRedelivered", "JMSXDeliveryCount", "JMSDestination"),
    ),
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


#: Maximum nesting of parentheses, NOT and signs.
MOST_NESTED = 64
#: Maximum number of names and literals; the list of an IN counts as one.
MOST_PARTS = 512
#: Maximum number of characters in LIKE patterns that must be tried at each position of a text.
MOST_SEARCHED = 256
Condition = Callable[[bytes, "Message", Known], "bool | None"]


class SelectorFault(ValueError):
    """An error in a selector: the index of the wrong character, and what is wrong there."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(why)
        self.at = at
        self.why = why


class Node(NamedTuple):
    """A part of a selector."""

    kind: str
    """The type of its value: number, text or boolean; any if it depends on the message."""
    read: Reader
    at: int
    """Index of its first character."""
    depth: int = 0
    """Nesting of parentheses, NOT and signs."""
    parts: int = 1
    """Number of names and literals."""
    searched: int = 0
    """Number of pattern characters that must be tried at each position of a text."""
    key: bytes | None = None
    """The header that it reads."""
    literal: Value = None


#: The comparisons with swapped operands.
_TURNED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<>": "<>"}


def _as_text(read: Reader) -> Reader:
    """Return a reader for which a header is a text, whatever it looks like."""

    def read_text(head: bytes, message: Message, known: Known) -> Value:
        value = read(head, message, known)
        return value.text if isinstance(value, Typed) else value

    return read_text


class Rules:
    """One method for each rule of the grammar, from its parts to a Node. lark calls them from the inside out."""

    def __init__(self, convert: bool, dialect: str) -> None:
        self._convert, self._texts, self._hidden = convert, dialect in _TEXTS, _HIDDEN.get(dialect, ())

    def name(self, parts: list[Token]) -> Node:
        token = parts[0]
        name = _unquoted(token) if token.type == "QUOTED" else str(token)
        if name in self._hidden:
            return Node("any", lambda _head, _message, _known: None, _at(token))
        read, key = property_reader(name)
        if self._texts and not self._convert:
            return Node("any", _as_text(read), _at(token))
        return Node("any", read, _at(token), key=key)

    def number(self, parts: list[Token]) -> Node:
        at = _at(parts[0])
        return _literal("number", _number(str(parts[0]), at), at)

    def text(self, parts: list[Token]) -> Node:
        text = _unquoted(parts[0])
        typed = value_of(text.encode("utf-8", "surrogateescape")) if self._convert else None
        if isinstance(typed, Typed):
            return _literal("any", typed, _at(parts[0]))
        return _literal("text", text, _at(parts[0]))

    def truth(self, parts: list[Token]) -> Node:
        return _literal("boolean", parts[0].type == "TRUE", _at(parts[0]))

    def nested(self, parts: list[Node]) -> Node:
        return _deeper(parts[0], parts[0].at)

    def signed(self, parts: list[Token | Node]) -> Node:
        sign, node = cast("tuple[Token, Node]", tuple(parts))
        _require_kind(node, "number", "any")
        read = node.read
        if node.kind == "number" and node.literal is not None:
            return _deeper(
                _literal("number", calculate(sign, 0, node.literal), _at(sign))._replace(depth=node.depth), _at(sign)
            )
        return _deeper(
            _combined("number", lambda head, message, known: calculate(sign, 0, read(head, message, known)), [node]),
            _at(sign),
        )

    def arithmetic(self, parts: list[Token | Node]) -> Node:
        nodes = cast("list[Node]", parts[::2])
        for node in nodes:
            _require_kind(node, "number", "any")
        first = nodes[0].read
        rest = [(cast(str, sign), node.read) for sign, node in zip(parts[1::2], nodes[1:])]

        def read(head: bytes, message: Message, known: Known) -> Value:
            result = first(head, message, known)
            for sign, operand in rest:
                result = calculate(sign, result, operand(head, message, known))
            return result

        return _combined("number", read, nodes)

    sum = product = arithmetic

    def compared(self, parts: list[Token | Node]) -> Node:
        left, sign, right = cast("tuple[Node, Token, Node]", tuple(parts))
        if sign not in ("=", "<>"):
            for node in (left, right):
                _require_kind(node, "number", "text", "any")
        return _boolean(_comparison(left, str(sign), right), [left, right])

    def between(self, parts: list[Token | Node]) -> Node:
        negative, nodes = parts[1], [cast(Node, part) for part in (parts[0], *parts[2:])]
        for node in nodes:
            _require_kind(node, "number", "text", "any")
        read, low, high = (node.read for node in nodes)

        def test(head: bytes, message: Message, known: Known) -> bool | None:
            value = read(head, message, known)
            above = compare(">=", value, low(head, message, known))
            below = compare("<=", value, high(head, message, known))
            return False if above is False or below is False else None if above is None or below is None else True

        return _boolean(_negated(test) if negative else test, nodes)

    def like(self, parts: list[Token | Node | None]) -> Node:
        node, negative, pattern, escape = cast("tuple[Node, Token | None, Token, Token | None]", tuple(parts))
        _require_kind(node, "text", "any")
        like, read = _like(pattern, escape), node.read

        def test(head: bytes, message: Message, known: Known) -> bool | None:
            value = read(head, message, known)
            if isinstance(value, Typed):
                value = value.text
            return None if value is None else isinstance(value, str) and like.matches(value)

        return _combined("boolean", _negated(test) if negative else test, [node], like.searched)

    def member(self, parts: list[Node | None]) -> Node:
        node, negative = cast(Node, parts[0]), parts[1]
        literals = [cast(Node, part).literal for part in parts[2:]]
        texts = {value.text if isinstance(value, Typed) else value for value in literals}
        scalars = {_typed(scalar(value)) for value in literals if isinstance(value, (int, float, Typed))}
        read = node.read

        def test(head: bytes, message: Message, known: Known) -> bool | None:
            value = read(head, message, known)
            if value is None:
                return None
            if isinstance(value, str):
                return value in texts
            if isinstance(value, Typed):
                return value.text in texts or _typed(value.value) in scalars
            return _typed(value) in scalars

        return _boolean(_negated(test) if negative else test, [node])

    def null(self, parts: list[Node | None]) -> Node:
        node, negative = cast(Node, parts[0]), parts[1]
        read, wanted = node.read, negative is None
        return _boolean(lambda head, message, known: (read(head, message, known) is None) is wanted, [node])

    def negated(self, parts: list[Token | Node]) -> Node:
        token, node = cast("tuple[Token, Node]", tuple(parts))
        return _deeper(_boolean(_negated(as_condition(node)), [node]), _at(token))

    def all_of(self, parts: list[Node]) -> Node:
        return _boolean(_joined([as_condition(node) for node in parts], False), parts)

    def any_of(self, parts: list[Node]) -> Node:
        return _boolean(_joined([as_condition(node) for node in parts], True), parts)


# ---- helpers of the rules ----
def _at(token: Token) -> int:
    return token.start_pos or 0


def _combined(kind: str, read: Reader, nodes: list[Node], searched: int = 0) -> Node:
    parts, searched = sum(node.parts for node in nodes), searched + sum(node.searched for node in nodes)
    if parts > MOST_PARTS:
        raise SelectorFault(nodes[-1].at, f"more than {MOST_PARTS} names and literals (a list after IN counts as one)")
    if searched > MOST_SEARCHED:
        raise SelectorFault(nodes[-1].at, f"more than {MOST_SEARCHED} pattern characters between two % in parts with _")
    return Node(kind, read, nodes[0].at, max(node.depth for node in nodes), parts, searched)


def _boolean(test: Condition, nodes: list[Node]) -> Node:
    return _combined("boolean", test, nodes)


def _deeper(node: Node, at: int) -> Node:
    if node.depth >= MOST_NESTED:
        raise SelectorFault(at, f"nested deeper than {MOST_NESTED}")
    return node._replace(depth=node.depth + 1, at=at)


def _literal(kind: str, value: Value, at: int) -> Node:
    return Node(kind, lambda _head, _message, _known: value, at, literal=value)


def _require_kind(node: Node, *kinds: str) -> None:
    if node.kind not in kinds:
        raise SelectorFault(node.at, f"expected a {' or a '.join(kinds[:-1])} here, not a {node.kind}")


def as_condition(node: Node) -> Condition:
    """Return a node as a condition. A name is one by its header's value. Raise SelectorFault for a number or text."""
    if node.kind == "boolean":
        return cast(Condition, node.read)
    if node.kind != "any":
        raise SelectorFault(node.at, f"expected a condition here, not a {node.kind}")
    read = node.read

    def test(head: bytes, message: Message, known: Known) -> bool | None:
        value = read(head, message, known)
        return None if value is None else (value.value if isinstance(value, Typed) else value) is True

    return test


def _negated(test: Condition) -> Condition:
    def negated(head: bytes, message: Message, known: Known) -> bool | None:
        result = test(head, message, known)
        return None if result is None else not result

    return negated


def _joined(tests: list[Condition], decisive: bool) -> Condition:
    """Return AND (False is decisive) or OR (True is). Otherwise an unknown operand makes the result unknown."""

    def both(head: bytes, message: Message, known: Known) -> bool | None:
        found = first(head, message, known)
        if found is decisive:
            return decisive
        other = second(head, message, known)
        return other if other is decisive or found is not None else None

    def joined(head: bytes, message: Message, known: Known) -> bool | None:
        result: bool | None = not decisive
        for test in tests:
            found = test(head, message, known)
            if found is decisive:
                return decisive
            if found is None:
                result = None
        return result

    if len(tests) == 2:
        first, second = tests
        return both
    return joined


def _comparison(left: Node, sign: str, right: Node) -> Condition:
    """Return a comparison, optimized if it compares a header with a literal."""
    if sign == "<>":
        return _negated(_comparison(left, "=", right))
    if left.literal is not None and right.key is not None:
        left, sign, right = right, _TURNED[sign], left
    if left.key is not None and sign == "=" and isinstance(right.literal, str) and _is_plain(right.literal):
        return _text_test(left.key, left.read, right.literal)
    if left.key is not None and right.kind == "number" and right.literal is not None:
        return _number_test(left.key, left.read, sign, cast(Number, right.literal))
    first, second = left.read, right.read
    return lambda head, message, known: compare(sign, first(head, message, known), second(head, message, known))


#: Texts that a header can spell in several ways, and the first bytes of values that differ from the text they show.
_SPECIAL = re.compile(r'["\s]|.*[\\:\n\r]|null\s*$', re.DOTALL)
_DOUBTFUL = rb'[\\"n \t\r\n]'


def _is_plain(text: str) -> bool:
    return _SPECIAL.match(text) is None


def _text_test(key: bytes, read: Reader, text: str) -> Condition:
    # Finds the first header of that name; group 1 if it has the text, group 2 if it may spell the text in another way.
    # One search costs less than find() and startswith(), which read their arguments from a tuple.
    line = re.escape(text.encode("utf-8", "surrogateescape") + b"\n")
    search = re.compile(re.escape(key) + b"(?:(" + line + b")|(" + _DOUBTFUL + b"))?").search

    def test(head: bytes, message: Message, known: Known) -> bool | None:
        found = search(head)
        if found is None:
            return None
        group = found.lastindex
        if group != 2:
            return group == 1
        return compare("=", read(head, message, known), text)

    return test


def _number_test(key: bytes, read: Reader, sign: str, number: Number) -> Condition:
    # Finds the first header of that name, and its digits if it is a plain whole number, as most are.
    search = re.compile(re.escape(key) + rb"(?:([1-9][0-9]{0,17})\n)?").search
    holds = COMPARE[sign]

    def test(head: bytes, message: Message, known: Known) -> bool | None:
        found = search(head)
        if found is None:
            return None
        digits = found[1]
        if digits is not None:
            return holds(int(digits), number)
        return compare(sign, read(head, message, known), number)

    return test


def _typed(value: object) -> tuple[bool, object]:
    """Tell True from 1, which are equal in Python but not in a selector."""
    return isinstance(value, bool), value


# ---- literals ----
def _unquoted(token: Token) -> str:
    quote = token[0]
    return token[1:-1].replace(quote * 2, quote)


def _number(text: str, at: int) -> Number:
    """Parse a number as Java does: 0x for hexadecimal, 0 for octal, and a type letter at the end."""
    bare = text.rstrip("lLfFdD")
    if text[:2] in ("0x", "0X"):
        number = exact(int(text.rstrip("lL"), 16))
    elif not bare.isdigit() or text[-1] in "fFdD":
        number = float(bare)
    elif bare[0] == "0" and set(bare) & set("89"):
        raise SelectorFault(at, "a number that begins with 0 is octal, as in Java, and has no 8 and no 9")
    else:
        number = exact(int(bare, 8 if bare[0] == "0" else 10))
    if abs(number) == float("inf"):
        raise SelectorFault(at, "this number is too large")
    return number


def _like(pattern: Token, escape: Token | None) -> Like:
    """Return the pattern of LIKE with its escapes resolved."""
    letter = "" if escape is None else _unquoted(escape)
    if escape is not None and len(letter) != 1:
        raise SelectorFault(_at(escape), "ESCAPE takes one character")
    out: list[str | None] = []
    letters = iter(_unquoted(pattern))
    for found in letters:
        if found == letter:
            found = next(letters, "")
            if not found:
                raise SelectorFault(_at(pattern), "the pattern ends with its ESCAPE character")
            out.append(found)
        else:
            out.append({"%": "", "_": None}.get(found, found))
    return Like(out)


_KEYWORDS = {word: f"_{word}" for word in ("AND", "OR", "LIKE", "ESCAPE", "BETWEEN", "IN", "IS", "NULL")}
_KEYWORDS |= {word: word for word in ("NOT", "TRUE", "FALSE")}

#: LETTERS stands for the characters allowed in a name after its first.
_GRAMMAR = r"""
?start: condition
?condition: any_of
?any_of: all_of (_OR all_of)*
?all_of: negation (_AND negation)*
?negation: test | NOT negation -> negated
?test: sum
    | sum COMPARE sum -> compared
    | sum [NOT] _LIKE TEXT [_ESCAPE TEXT] -> like
    | sum [NOT] _BETWEEN sum _AND sum -> between
    | sum [NOT] _IN "(" literal ("," literal)* ")" -> member
    | sum _IS [NOT] _NULL -> null
?sum: product ((PLUS | MINUS) product)*
?product: factor ((STAR | SLASH) factor)*
?factor: atom | (PLUS | MINUS) factor -> signed
?atom: literal_ | name | "(" any_of ")" -> nested
?literal_: number | text | truth
?literal: literal_ | (PLUS | MINUS) number -> signed
name: NAME | QUOTED
number: NUMBER
text: TEXT
truth: TRUE | FALSE
NAME: /(?:[^\W\d]|\$)[LETTERS]*/
QUOTED: /"(?:[^"]|"")+"/
TEXT: /'(?:[^']|'')*'/
NUMBER: /(?:0[xX][0-9a-fA-F]+[lL]?|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?[lLfFdD]?)(?![\w.$])/
COMPARE: /<=|>=|<>|=|<|>/
PLUS: "+"
MINUS: "-"
STAR: "*"
SLASH: "/"
%ignore /[ \t\r\n\f]+/
"""


@lru_cache(maxsize=8)
def _parser(hyphens: bool, convert: bool, dialect: str) -> Callable[[str], object]:
    """Return a parser of selectors, which returns a Node. Raise MissingExtraError if lark is not installed."""
    try:
        from lark import Lark, Token
    except ImportError:
        raise MissingExtraError("broker", "lark") from None

    def word(token: Token) -> Token:
        kind = _KEYWORDS.get(token.upper())
        return token if kind is None else Token.new_borrow_pos(kind, str(token), token)

    declared = "\n%declare " + " ".join(_KEYWORDS.values())
    return Lark(
        _GRAMMAR.replace("LETTERS", r"\w.$-" if hyphens else r"\w.$") + declared,
        parser="lalr",
        lexer="basic",
        lexer_callbacks={"NAME": word},
        maybe_placeholders=True,
        transformer=Rules(convert, dialect),
    ).parse


def condition_of(text: str, hyphens: bool = False, convert: bool = False, dialect: str = "") -> Condition:
    """Return the condition that a selector compiles to. Names may contain `hyphens`. With `convert`, texts that look
    like numbers or booleans also compare as such; in the dialect artemis, headers do so with it only.

    Raise SelectorFault if it is not a selector, MissingExtraError if lark is not installed.
    """
    parse = _parser(hyphens, convert, dialect)
    from lark import UnexpectedCharacters, UnexpectedToken

    try:
        node = parse(text)
    except UnexpectedCharacters as error:
        at = error.pos_in_stream or 0
        raise SelectorFault(at, _ODD.get(text[at], "this character is unexpected")) from None
    except UnexpectedToken as error:
        at = len(text.rstrip()) if error.token.type == "$END" else error.pos_in_stream or 0
        raise SelectorFault(at, _expected(error.accepts or error.expected, error.token)) from None
    return as_condition(cast(Node, node))


# ---- error messages ----
_ODD = {
    "'": "the text that begins here is not closed by another '",
    '"': 'the name that begins here is not closed by another ", or is empty',
    **dict.fromkeys("0123456789.", "this is not a valid number"),
    "!": "this is not an operator: 'not equal' is <>",
}
#: Words for expected tokens, in the order in which they are listed.
_TOLD = {
    "NAME": "a name",
    "NUMBER": "a number",
    "TEXT": "a text in '...'",
    "COMPARE": "a comparison",
    "_IS": "IS",
    "_IN": "IN",
    "_LIKE": "LIKE",
    "_BETWEEN": "BETWEEN",
    "_NULL": "NULL",
    "_ESCAPE": "ESCAPE",
    "NOT": "NOT",
    "_AND": "AND",
    "_OR": "OR",
    "LPAR": "(",
    "RPAR": ")",
    "COMMA": "a comma",
    "$END": "the end",
}


def _expected(terminals: set[str], token: Token) -> str:
    words = [word for terminal, word in _TOLD.items() if terminal in terminals]
    last = f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else "".join(words)
    return f"expected {last}" + ("" if token.type == "$END" else f", not {str(token)[:40]}")


_LOG = logging.getLogger("stompcodec.broker")
#: Maximum size of a selector, in bytes.
MOST_OCTETS = 4096
#: Selectors kept in the cache, whether a subscription uses them or not.
_REMEMBERED = 128
#: Prefixes that Artemis accepts before a selector, in any order.
_CONVERT, _HYPHENS = "convert_string_expressions:", "hyphenated_props:"
#: Characters shown on each side of an error.
_SHOWN = 40


class SelectorError(StompError, ValueError):
    """A text that is not a selector. The message shows the wrong character, whose index is `at`, and why it is wrong.

    >>> print(SelectorError("color == 'red'", 7, "expected a name"))
    column 8 of the selector: expected a name
    color == 'red'
           ^
    """

    def __init__(self, text: str, at: int, why: str) -> None:
        self.text = text
        #: Counted from 1.
        self.column = at + 1
        self.why = why
        start, end = max(0, at - _SHOWN), at + _SHOWN
        before, after = "..." * (start > 0), "..." * (end < len(text))
        shown = "".join(letter if letter.isprintable() else " " for letter in text[start:end])
        caret = " " * (len(before) + at - start) + "^"
        super().__init__(f"column {self.column} of the selector: {why}\n{before}{shown}{after}\n{caret}")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.text, self.column - 1, self.why)


class Selector:
    """A compiled selector, made by `compile_selector`.

    >>> red = compile_selector("color = 'red' AND n > 9")
    >>> red.matches(Message(b"m-1", 1, "/queue/a", b"color:red\\nn:10\\n\\n\\0"))
    True
    """

    __slots__ = ("_condition", "_failed", "text")

    def __init__(self, text: str, condition: Condition) -> None:
        self.text = text
        self._condition = condition
        self._failed = False

    def __repr__(self) -> str:
        return f"<Selector {self.text!r:.200}>"

    def matches(self, message: Message) -> bool:
        """Return whether the selector is true of a message. Unknown counts as false.

        Never raises, because a subscriber's selector runs while somebody else is sending.
        """
        tail = message.tail
        # Put each header line between two line feeds: the first header of a name is then found by its name alone.
        head = b"\n" if tail[0] == 10 else b"\n" + tail[: tail.find(b"\n\n") + 1]
        try:
            return self._condition(head, message, {}) is True
        except Exception:
            if not self._failed:
                self._failed = True
                _LOG.exception("a selector failed on message %s, which counts as no match", message.id)
            return False


def _all(_head: bytes, _message: Message, _known: Known) -> bool:
    return True  # JMS treats an empty selector as none


def _without_prefixes(text: str, dialect: str) -> tuple[str, bool, bool]:
    """Replace prefixes by spaces, which keeps columns; also return whether names have hyphens and texts convert."""
    found = set()
    while True:
        bare = text.lstrip()
        for prefix in () if dialect in _UNPREFIXED else (_CONVERT, _HYPHENS):
            if bare.startswith(prefix):
                found.add(prefix)
                text = " " * (len(text) - len(bare) + len(prefix)) + bare[len(prefix) :]
                break
        else:
            return text, _HYPHENS in found, _CONVERT in found


@lru_cache(maxsize=_REMEMBERED)
def compile_selector(text: str, dialect: str = "") -> Selector:
    """Compile the value of a header `selector` as the broker of a dialect reads it, or return it from the cache. Rules:
    ART-SEL-01, S10-SUB-06, WISH-JSN-07.

    Raise SelectorError if it is not valid, longer than `MOST_OCTETS` bytes in UTF-8, or nested too deeply;
    MissingExtraError if lark is not installed, which comes with the extra `broker`.

    >>> try:
    ...     compile_selector("color = = 'red'")
    ... except SelectorError as error:
    ...     print(error)
    column 9 of the selector: expected a name, a number, a text in '...' or (, not =
    color = = 'red'
            ^
    """
    if len(text.encode("utf-8", "surrogatepass")) > MOST_OCTETS:
        raise SelectorError(text[: 2 * _SHOWN], 0, f"it is longer than {MOST_OCTETS} bytes")
    try:
        return Selector(text, condition_of(*_without_prefixes(text, dialect), dialect) if text.strip() else _all)
    except SelectorFault as error:
        raise SelectorError(text, error.at, error.why) from None
