"""Wildcards: names of topics in which words stand for others, in the spellings of several brokers.

A name is a prefix and words with a separator between. One mark stands for one word, another for any number of them,
also none. What is matched is bounded: neither a pattern nor a name that patterns match has more than 64 words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from stompcodec.broker.message import Refused

__all__ = ["SYNTAXES", "Pattern", "Patterns", "Syntax", "Wildcards"]

_MOST_WORDS = 64
#: Names whose patterns are remembered.
_MOST_KNOWN = 1000

_Item = TypeVar("_Item")


class Syntax(NamedTuple):
    """How wildcards are spelled."""

    separator: str
    one: str
    """Stands for one word."""
    many: str
    """Stands for any number of words."""


#: By the names that a configuration has for them.
SYNTAXES = {
    "activemq": Syntax(".", "*", ">"),
    "rabbitmq": Syntax(".", "*", "#"),
    "artemis": Syntax(".", "*", "#"),
    "apollo": Syntax(".", "*", "**"),
}


class Pattern(NamedTuple):
    """A name with wildcards in it.

    >>> Wildcards(SYNTAXES["artemis"]).pattern("/topic/", "a.*.#").matches(("/topic/", "a", "b"))
    True
    """

    words: tuple[str, ...]
    """The prefix, then the words."""
    one: str
    many: str

    def matches(self, words: tuple[str, ...]) -> bool:
        """Whether a name is meant, given as prefix and words. At most the product of both lengths is looked at."""
        pattern, one, many = self.words, self.one, self.many
        at = word = back = 0
        after = -1  # behind the latest mark for many
        while word < len(words):
            if at < len(pattern) and at and pattern[at] == many:
                at += 1
                after, back = at, word
            elif at < len(pattern) and (pattern[at] == words[word] or (at and pattern[at] == one)):
                at += 1
                word += 1
            elif after >= 0:  # that mark takes one word more
                back += 1
                at, word = after, back
            else:
                return False
        return all(mark == many for mark in pattern[at:])


class Wildcards:
    """Reads names by a syntax.

    Args:
        syntax: None when nothing in a name is a wildcard.
        separator: instead of that of the syntax; "" to leave it.

    >>> slashes = Wildcards(SYNTAXES["artemis"], "/")
    >>> slashes.pattern("", "queue/#").matches(slashes.words("", "queue/a/b"))
    True
    >>> slashes.pattern("", "queue/a") is None
    True
    """

    def __init__(self, syntax: Syntax | None, separator: str = "") -> None:
        self._syntax = syntax
        self._separator = separator or (syntax.separator if syntax is not None else ".")

    def words(self, prefix: str, name: str) -> tuple[str, ...]:
        """Prefix and words; () for more of them than patterns are tried on."""
        if name.count(self._separator) >= _MOST_WORDS:
            return ()
        return (prefix, *name.split(self._separator))

    def pattern(self, prefix: str, name: str) -> Pattern | None:
        """The pattern that a name is; None when it has no wildcards.

        Raises:
            Refused: it has too many words.
        """
        syntax = self._syntax
        if syntax is None or (syntax.one not in name and syntax.many not in name):
            return None
        words = self.words(prefix, name)
        if not words:
            raise Refused("too many words", f"A destination with wildcards has at most {_MOST_WORDS} words.")
        if syntax.one not in words[1:] and syntax.many not in words[1:]:
            return None
        return Pattern(words, syntax.one, syntax.many)

    def head(self, name: str) -> str:
        """What all that a name with wildcards means begins with.

        >>> Wildcards(SYNTAXES["artemis"]).head("/topic/a.*"), Wildcards(SYNTAXES["artemis"]).head("/topic/a.#")
        ('/topic/a.', '/topic/a')
        """
        if self._syntax is None:
            return name
        at = min((name.index(mark) for mark in self._syntax[1:] if mark in name), default=len(name))
        many = name.startswith(self._syntax.many, at)  # stands for no word, too
        return name[:at].removesuffix(self._separator) if many else name[:at]


class Patterns(Generic[_Item]):
    """Who asked for what by patterns, found by the names that are meant.

    >>> patterns, wildcards = Patterns(), Wildcards(SYNTAXES["activemq"])
    >>> patterns.add(wildcards.pattern("/topic/", "a.>"), "somebody")
    >>> patterns.find(wildcards.words("/topic/", "a.b")), patterns.find(wildcards.words("/topic/", "b"))
    (['somebody'], [])
    """

    def __init__(self) -> None:
        #: By prefix and first word; None for any first word.
        self._found: dict[tuple[str, str | None], dict[_Item, Pattern]] = {}
        self._known: dict[tuple[str, ...], list[_Item]] = {}
        #: Another one after each change.
        self.version = 0

    def __bool__(self) -> bool:
        return bool(self._found)

    def __iter__(self) -> Iterator[tuple[_Item, Pattern]]:
        for group in self._found.values():
            yield from group.items()

    def add(self, pattern: Pattern, item: _Item) -> None:
        """`item` asks for what the pattern means. It can be hashed."""
        self._known.clear()
        self.version += 1
        self._found.setdefault(_first(pattern), {})[item] = pattern

    def remove(self, pattern: Pattern, item: _Item) -> None:
        """It does so no more."""
        self._known.clear()
        self.version += 1
        group = self._found.get(_first(pattern), {})
        group.pop(item, None)
        if not group:
            self._found.pop(_first(pattern), None)

    def find(self, words: tuple[str, ...]) -> list[_Item]:
        """Who asked for a name. What was asked lately is known without a search."""
        if not self._found or not words:
            return []
        known = self._known.get(words)
        if known is None:
            groups = [self._found.get((words[0], first), {}) for first in (words[1], None)]
            known = [item for group in groups for item, pattern in group.items() if pattern.matches(words)]
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[words] = known
        return known


def _first(pattern: Pattern) -> tuple[str, str | None]:
    prefix, first = pattern.words[:2]
    return prefix, None if first in (pattern.one, pattern.many) else first
