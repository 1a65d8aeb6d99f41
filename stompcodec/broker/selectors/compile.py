"""The rules of the selector grammar, compiled to nested functions once for each selector.

Conditions are three-valued: True, False, or None for unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, cast

from stompcodec.broker.selectors import values
from stompcodec.broker.selectors.values import Known, Like, Number, Reader, Typed, Value

if TYPE_CHECKING:
    from lark import Token

    from stompcodec.broker.message import Message

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


class Rules:
    """One method for each rule of the grammar, from its parts to a Node. lark calls them from the inside out."""

    def __init__(self, convert: bool) -> None:
        self._convert = convert

    def name(self, parts: list[Token]) -> Node:
        token = parts[0]
        read, key = values.property_reader(_unquoted(token) if token.type == "QUOTED" else str(token))
        return Node("any", read, _at(token), key=key)

    def number(self, parts: list[Token]) -> Node:
        at = _at(parts[0])
        return _literal("number", _number(str(parts[0]), at), at)

    def text(self, parts: list[Token]) -> Node:
        text = _unquoted(parts[0])
        typed = values.value_of(text.encode("utf-8", "surrogateescape")) if self._convert else None
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
                _literal("number", values.calculate(sign, 0, node.literal), _at(sign))._replace(depth=node.depth),
                _at(sign),
            )
        return _deeper(
            _combined(
                "number", lambda head, message, known: values.calculate(sign, 0, read(head, message, known)), [node]
            ),
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
                result = values.calculate(sign, result, operand(head, message, known))
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
            above = values.compare(">=", value, low(head, message, known))
            below = values.compare("<=", value, high(head, message, known))
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
        scalars = {_typed(values.scalar(value)) for value in literals if isinstance(value, (int, float, Typed))}
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
    """Return a node made of others."""
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
    """Return a node as a condition. A name is true if the header's value is true, and unknown without that header.
    Raise SelectorFault if it is a number or a text.
    """
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
    return lambda head, message, known: values.compare(sign, first(head, message, known), second(head, message, known))


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
        return values.compare("=", read(head, message, known), text)

    return test


def _number_test(key: bytes, read: Reader, sign: str, number: Number) -> Condition:
    # Finds the first header of that name, and its digits if it is a plain whole number, as most are.
    search = re.compile(re.escape(key) + rb"(?:([1-9][0-9]{0,17})\n)?").search
    compare = values.COMPARE[sign]

    def test(head: bytes, message: Message, known: Known) -> bool | None:
        found = search(head)
        if found is None:
            return None
        digits = found[1]
        if digits is not None:
            return compare(int(digits), number)
        return values.compare(sign, read(head, message, known), number)

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
        number = values.exact(int(text.rstrip("lL"), 16))
    elif not bare.isdigit() or text[-1] in "fFdD":
        number = float(bare)
    elif bare[0] == "0" and set(bare) & set("89"):
        raise SelectorFault(at, "a number that begins with 0 is octal, as in Java, and has no 8 and no 9")
    else:
        number = values.exact(int(bare, 8 if bare[0] == "0" else 10))
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
