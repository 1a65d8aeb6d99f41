"""Formats of messages: `%b %{name}`, or the template `{body} {headers[name]}`. Both are parsed once.

A template names fields of a fixed list, and has neither attributes nor conversions as those of `str.format`, which
reach any object of the program.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from stompcodec.client import Message

_PERCENT = re.compile(r"%(?:\{([^}]*)\}|(.))|\\(.)", re.DOTALL)
_BRACE = re.compile(r"(\{\{|\}\})|\{([^{}]*)\}|([{}])|\\(.)", re.DOTALL)
_HEADER = re.compile(r"headers\[([^\[\]]+)\]")
_LETTERS = re.compile(r"%[bdisnth{]")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
Part = Callable[["Message", int], bytes]


def _text(field: Callable[[Message, int], str]) -> Part:
    return lambda message, number: field(message, number).encode("utf-8", "surrogateescape")


#: The fields by name, and by the letter of the other notation.
_FIELDS: dict[str, tuple[str, Part]] = {
    "body": ("b", lambda message, _number: message.body),
    "destination": ("d", _text(lambda message, _number: message.destination)),
    "id": ("i", _text(lambda message, _number: message.id)),
    "size": ("s", _text(lambda message, _number: str(len(message.body)))),
    "number": ("n", _text(lambda _message, number: str(number))),
    "time": ("t", _text(lambda _message, _number: time.strftime("%Y-%m-%dT%H:%M:%S%z"))),
    "headers": ("h", _text(lambda message, _number: " ".join(f"{k}:{v}" for k, v in message.headers.pairs()))),
}
_BY_LETTER = dict(_FIELDS.values())
FIELDS = ", ".join([*(f"{{{name}}}" for name in _FIELDS), "{headers[NAME]}"])


class Template:
    """A parsed format.

    >>> from stompcodec.client.subscription import Subscription
    >>> from types import SimpleNamespace as Fake
    >>> frame = Fake(pairs=lambda: [("n", "1")])
    >>> Template("{body} is {number}\\\\n").render(Fake(body=b"red"), 7)
    b'red is 7\\n'

    Raises:
        ValueError: it names an unknown field. The message lists those that exist.
    """

    def __init__(self, form: str) -> None:
        braced = bool(re.search(r"(?<!%)\{", form)) and not _LETTERS.search(form)
        self._parts: list[Part] = []
        at = 0
        for found in (_BRACE if braced else _PERCENT).finditer(form):
            self._literal(form[at : found.start()])
            at = found.end()
            self._parts.append(_braced(found) if braced else _percent(found))
        self._literal(form[at:])
        if not braced and _looks_braced(form):
            raise ValueError("it mixes % and { }: write all fields as %b, or all as {body}")

    def _literal(self, text: str) -> None:
        data = text.encode("utf-8", "surrogateescape")
        if data:
            self._parts.append(lambda _message, _number: data)

    def render(self, message: Message, number: int) -> bytes:
        """Return a message in this format. `number` counts messages from 1 on."""
        return b"".join([part(message, number) for part in self._parts])


def _looks_braced(form: str) -> bool:
    names = (found[2] for found in _BRACE.finditer(_PERCENT.sub("", form)) if found[2])
    return any(name in _FIELDS or _HEADER.fullmatch(name) for name in names)


def _percent(found: re.Match[str]) -> Part:
    name, letter, escape = found.groups()
    if name is not None:
        return _header(name)
    if letter in _BY_LETTER:
        return _BY_LETTER[letter]
    if letter == "%" or escape in _ESCAPES:
        return _constant("%" if letter else _ESCAPES[escape])
    raise ValueError(f"{found.group()} is unknown: use %b %d %i %s %n %t %h %{{NAME}} %% \\n \\t \\0, or {FIELDS}")


def _braced(found: re.Match[str]) -> Part:
    doubled, name, single, escape = found.groups()
    if doubled is not None or escape in _ESCAPES:
        return _constant(doubled[0] if doubled else _ESCAPES[escape])
    if name in _FIELDS:
        return _FIELDS[name][1]
    header = None if name is None else _HEADER.fullmatch(name)
    if header is not None:
        return _header(header[1])
    if single is not None:
        raise ValueError(f"a single {single}: write {single}{single} for itself")
    raise ValueError(f"{found.group()} is unknown: use {FIELDS}, {{{{ }}}} for braces, \\n \\t \\0")


def _constant(text: str) -> Part:
    return lambda _message, _number: text.encode()


def _header(name: str) -> Part:
    return _text(lambda message, _number: message.get(name) or "")


def template_of(_context: click.Context, _option: click.Parameter, form: str | None) -> Template | None:
    """Parse a format: a callback of click."""
    try:
        return None if form is None else Template(form)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
