"""Wildcards: names of topics in which words stand for others, in the spellings of several brokers.

A name is a prefix and words with a separator between. One mark stands for one word, another for any number of them,
also none. What is matched is bounded: neither a pattern nor a name that patterns match has more than 64 words.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, Protocol, TypeVar

from stompcodec.broker.errors import Refused

__all__ = ["SYNTAXES", "Pattern", "Patterns", "Remembering", "Syntax", "Wildcards"]

_MOST_WORDS = 64
#: Names that no pattern means, which are remembered.
_MOST_KNOWN = 1000
#: What all who remember what they have found may remember together.
_MOST_REMEMBERED = 100_000

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


class _Node(Generic[_Item]):
    """A place in the tree of patterns: behind a word, or behind a mark."""

    __slots__ = ("items", "loops", "many", "one", "words")

    def __init__(self, loops: bool = False) -> None:
        self.words: dict[str, _Node[_Item]] = {}
        self.one: _Node[_Item] | None = None
        self.many: _Node[_Item] | None = None
        #: It stands behind a mark for many: it takes any word more.
        self.loops = loops
        #: Whose patterns end here.
        self.items: dict[_Item, None] = {}

    def __bool__(self) -> bool:
        """Whether a pattern ends here, or goes on."""
        return bool(self.items or self.words or self.one is not None or self.many is not None)


class Remembering(Protocol):
    """Who remembers what it has found."""

    def forget(self) -> None:
        """Forget it: there may be others now, or too much is remembered."""


class Patterns(Generic[_Item]):
    """Who asked for what by patterns, found by the names that are meant.

    A tree by words: to add or to remove a pattern costs by its own words, whatever others there are.

    >>> patterns, wildcards = Patterns(), Wildcards(SYNTAXES["activemq"])
    >>> patterns.add(wildcards.pattern("/topic/", "a.>"), "somebody")
    >>> patterns.find(wildcards.words("/topic/", "a.b")), patterns.find(wildcards.words("/topic/", "b"))
    (['somebody'], [])
    """

    def __init__(self) -> None:
        self._root: _Node[_Item] = _Node()
        #: Names that nobody asked for, as far as they were looked for since the last change.
        self._missed: set[tuple[str, ...]] = set()
        #: Who remembers what was found, and how much; and how much that is in all.
        self._remembering: dict[Remembering, int] = {}
        self._remembered = 0
        #: Another one after each change.
        self.version = 0

    def __bool__(self) -> bool:
        return bool(self._root)

    def add(self, pattern: Pattern, item: _Item) -> None:
        """`item` asks for what the pattern means. It can be hashed."""
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
        """It does so no more."""
        self._change()
        path, node = [], self._root
        for at, word in enumerate(pattern.words):
            path.append(node)
            found = _next(node, pattern, at, word)
            if found is None:
                return
            node = found
        node.items.pop(item, None)
        for at in reversed(range(len(path))):  # what leads nowhere any more goes
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
        """Note that somebody keeps what was found for it. It is told when it has to forget that.

        Nobody else must be kept alive by it, and memory must not grow by names times patterns.

        Args:
            who: keeps it.
            count: how many items.
        """
        if self._remembered + count > _MOST_REMEMBERED:
            self._forget_all()
        self._remembering[who] = count
        self._remembered += count

    def forget(self, who: Remembering) -> None:
        """Note that somebody goes, and what it remembers with it."""
        self._remembered -= self._remembering.pop(who, 0)

    def _forget_all(self) -> None:
        forgetting, self._remembering, self._remembered = self._remembering, {}, 0
        for each in forgetting:
            each.forget()

    def find(self, words: tuple[str, ...]) -> list[_Item]:
        """Who asked for a name. That nobody did is remembered."""
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
    """The place behind a word of a pattern, if there is one."""
    if at and word == pattern.many:
        return node.many
    return node.one if at and word == pattern.one else node.words.get(word)


def _and_many(nodes: list[_Node[_Item]]) -> dict[_Node[_Item], None]:
    """Places, and those behind marks for many that follow: such a mark stands for no word, too. Each once, in order."""
    found: dict[_Node[_Item], None] = {}
    for node in nodes:
        found[node] = None
        while node.many is not None:
            node = node.many
            found[node] = None
    return found
