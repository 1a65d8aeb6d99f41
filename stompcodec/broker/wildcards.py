"""Wildcards in topic names, in the spellings of several brokers.

A name is a prefix and words with a separator between them. One mark matches exactly one word; the other matches any
number of words, including none. Matching is bounded: neither a pattern nor a matched name has more than 64 words.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, Protocol, TypeVar

from stompcodec.broker.errors import Refused

_MOST_WORDS = 64
#: Names without a matching pattern that are remembered.
_MOST_KNOWN = 1000
#: Results that all users of the patterns may remember together.
_MOST_REMEMBERED = 100_000

_Item = TypeVar("_Item")


class Syntax(NamedTuple):
    """The spelling of wildcards."""

    separator: str
    one: str
    """Matches one word."""
    many: str
    """Matches any number of words."""


#: Syntaxes by their names in the configuration.
SYNTAXES = {"activemq": Syntax(".", "*", ">"), "rabbitmq": Syntax(".", "*", "#"), "artemis": Syntax(".", "*", "#")}


class Pattern(NamedTuple):
    """A name with wildcards."""

    words: tuple[str, ...]
    """The prefix, then the words."""
    one: str
    many: str

    def matches(self, words: tuple[str, ...]) -> bool:
        """Return whether a name, given as prefix and words, matches. This takes at most pattern times name steps."""
        pattern, one, many = self.words, self.one, self.many
        at = word = back = 0
        after = -1  # the position after the latest `many`
        while word < len(words):
            if at < len(pattern) and at and pattern[at] == many:
                at += 1
                after, back = at, word
            elif at < len(pattern) and (pattern[at] == words[word] or (at and pattern[at] == one)):
                at += 1
                word += 1
            elif after >= 0:  # the latest `many` takes one more word
                back += 1
                at, word = after, back
            else:
                return False
        return all(mark == many for mark in pattern[at:])


class Wildcards:
    """A reader of names in a syntax, None if names have no wildcards. `separator` replaces the syntax's; "" keeps it.

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
        """Return prefix and words; () if there are too many for pattern matching."""
        if name.count(self._separator) >= _MOST_WORDS:
            return ()
        return (prefix, *name.split(self._separator))

    def pattern(self, prefix: str, name: str) -> Pattern | None:
        """Return the pattern of a name, or None if it has no wildcards. Raise Refused if it has too many words."""
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
        """Return the common beginning of all names that a name with wildcards matches."""
        if self._syntax is None:
            return name
        at = min((name.index(mark) for mark in self._syntax[1:] if mark in name), default=len(name))
        many = name.startswith(self._syntax.many, at)  # it may match no word
        return name[:at].removesuffix(self._separator) if many else name[:at]


class _Node(Generic[_Item]):
    """A node in the tree of patterns: the place after a word or mark."""

    __slots__ = ("items", "loops", "many", "one", "words")

    def __init__(self, loops: bool = False) -> None:
        self.words: dict[str, _Node[_Item]] = {}
        self.one: _Node[_Item] | None = None
        self.many: _Node[_Item] | None = None
        #: True after a `many`, which accepts further words.
        self.loops = loops
        #: The items whose patterns end here.
        self.items: dict[_Item, None] = {}

    def __bool__(self) -> bool:
        """Return whether a pattern ends here or continues."""
        return bool(self.items or self.words or self.one is not None or self.many is not None)


class Remembering(Protocol):
    """An object that caches results of `Patterns.find`."""

    def forget(self) -> None:
        """Forget the results: the patterns have changed, or too much is cached."""


class Patterns(Generic[_Item]):
    """Patterns and the items registered under them, found by names that match.

    They form a tree by words, so adding or removing a pattern costs only its own words.

    >>> patterns, wildcards = Patterns(), Wildcards(SYNTAXES["activemq"])
    >>> patterns.add(wildcards.pattern("/topic/", "a.>"), "somebody")
    >>> patterns.find(wildcards.words("/topic/", "a.b")), patterns.find(wildcards.words("/topic/", "b"))
    (['somebody'], [])
    """

    def __init__(self) -> None:
        self._root: _Node[_Item] = _Node()
        #: Names looked up since the last change that match no pattern.
        self._missed: set[tuple[str, ...]] = set()
        #: Objects that cache results, with the number of items each caches; and the total number.
        self._remembering: dict[Remembering, int] = {}
        self._remembered = 0
        #: Incremented by each change.
        self.version = 0

    def __bool__(self) -> bool:
        return bool(self._root)

    def add(self, pattern: Pattern, item: _Item) -> None:
        """Register an item, which must be hashable, under a pattern."""
        self._change()
        node = self._root
        for at, word in enumerate(pattern.words):
            if at and word == pattern.many:
                if node.many is None:
                    node.many = _Node(loops=True)
                node = node.many
            elif at and word == pattern.one:
                if node.one is None:
                    node.one = _Node()
                node = node.one
            else:
                found = node.words.get(word)
                if found is None:
                    found = node.words[word] = _Node()
                node = found
        node.items[item] = None

    def remove(self, pattern: Pattern, item: _Item) -> None:
        """Remove an item from a pattern."""
        self._change()
        path, node = [], self._root
        for at, word in enumerate(pattern.words):
            path.append(node)
            found = _next(node, pattern, at, word)
            if found is None:
                return
            node = found
        node.items.pop(item, None)
        for at in reversed(range(len(path))):  # remove branches that have become empty
            if node:
                return
            parent, word = path[at], pattern.words[at]
            if at and word == pattern.many:
                parent.many = None
            elif at and word == pattern.one:
                parent.one = None
            else:
                del parent.words[word]
            node = parent

    def _change(self) -> None:
        self._missed.clear()
        self.version += 1
        self._forget_all()

    def remember(self, who: Remembering, count: int) -> None:
        """Note that an object caches a result. Its `forget` is called when the result becomes invalid.

        Invariant: a cache keeps no other objects alive, and memory does not grow with names times patterns. `count` is
        the number of items that it caches.
        """
        if self._remembered + count > _MOST_REMEMBERED:
            self._forget_all()
        self._remembering[who] = count
        self._remembered += count

    def forget(self, who: Remembering) -> None:
        """Note that an object goes, together with its cached results."""
        self._remembered -= self._remembering.pop(who, 0)

    def _forget_all(self) -> None:
        forgetting, self._remembering, self._remembered = self._remembering, {}, 0
        for each in forgetting:
            each.forget()

    def find(self, words: tuple[str, ...]) -> list[_Item]:
        """Return the items whose patterns match a name. A name without any is remembered."""
        first = self._root.words.get(words[0]) if words else None
        if first is None or words in self._missed:
            return []
        current = _and_many([first])
        for word in words[1:]:
            behind = [node for node in current if node.loops]
            for node in current:
                found = node.words.get(word)
                if found is not None:
                    behind.append(found)
                if node.one is not None:
                    behind.append(node.one)
            if not behind:
                current = {}
                break
            current = _and_many(behind)
        items = [item for node in current for item in node.items]
        if not items:
            if len(self._missed) >= _MOST_KNOWN:
                self._missed.clear()
            self._missed.add(words)
        return items


def _next(node: _Node[_Item], pattern: Pattern, at: int, word: str) -> _Node[_Item] | None:
    """Return the node after a word of a pattern, or None."""
    if at and word == pattern.many:
        return node.many
    return node.one if at and word == pattern.one else node.words.get(word)


def _and_many(nodes: list[_Node[_Item]]) -> dict[_Node[_Item], None]:
    """Return nodes and those after directly following `many` marks, which may match no word. Each once, in order."""
    found: dict[_Node[_Item], None] = {}
    for node in nodes:
        found[node] = None
        while node.many is not None:
            node = node.many
            found[node] = None
    return found
