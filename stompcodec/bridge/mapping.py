"""The map of destinations: which ones a bridge carries, and where to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from stompcodec.arguments import check_fields, check_values, checks
from stompcodec.client.headers import TEMPORARY

#: Where refused messages go, at the source.
DEAD_LETTER = "/queue/bridge-dead-letters"


class Way(NamedTuple):
    """The options of carrying: prefetch, transactions, refusals, and when to end.

    >>> Way().prefetch
    200
    """

    prefetch: int = 200
    """The most unacknowledged messages of each subscription."""
    batch: int = 0
    """The number of messages in a transaction, at both ends where they can; 0 for none."""
    dead_letter: str = DEAD_LETTER
    """Where the source keeps refused messages."""
    most_refused: int = 100
    """The number of refused messages in a row after which the bridge ends."""
    persistent: bool = False
    """Mark all messages as persistent."""
    text: bool | None = None
    """True sends UTF-8 as text, False sends all as bytes; None leaves text as it is."""
    key: str | None = None
    """The header that identifies a message over redeliveries; None for the message-id, if that stays the same."""
    most: int | None = None
    """The number of messages after which it ends."""
    idle: float | None = None
    """With `Request.drain`, the seconds without a message after which the source counts as empty."""
    expect: float | None = None
    """The seconds without a message after which the bridge ends with an error; None for no limit."""


#: Words by which brokers write wildcards.
_WILD = frozenset({"*", ">", "#", "**"})
#: Prefixes of destinations whose subscribers each get a copy.
TOPICS = ("/topic/", "/exchange/", "topic://")
_MOST_NAME = 4096


@checks("target_of")
class Rule(NamedTuple):
    """One entry of the map: a destination of the source, or a pattern, and where its messages go.

    >>> rule = Rule.parse("/queue/orders.*=/queue/eu.*")
    >>> rule.target_of("/queue/orders.new"), rule.target_of("/queue/other")
    ('/queue/eu.new', None)
    """

    source: str
    """A star at its end stands for any rest."""
    target: str
    """A star at its end stands for the rest that the star of the source matched."""

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Return the rule of SOURCE=TARGET, or of SOURCE alone, which keeps the names.

        Raises:
            ValueError: it is malformed. The message says how to write it.

        >>> Rule.parse("/queue/a")
        Rule(source='/queue/a', target='/queue/a')
        """
        source, sign, target = text.partition("=")
        target = target if sign else source
        if not source or not target:
            raise ValueError(f"{text!r}: write SOURCE=TARGET, or SOURCE alone to keep the name")
        if "=" in target:
            raise ValueError(f"{text!r}: more than one equals sign: write SOURCE=TARGET")
        for name in (source, target):
            if "*" in name[:-1] and not _WILD.intersection(name[:-1].replace("/", ".").split(".")):
                raise ValueError(f"{text!r}: a star stands at the end, for the rest of the name")
            check_destination(name)
        if target.endswith("*") and not source.endswith("*"):
            raise ValueError(f"{text!r}: the star of TARGET stands for what a star at the end of SOURCE matches")
        return cls(source, target)

    @property
    def is_pattern(self) -> bool:
        """True if the source ends with a star."""
        return self.source.endswith("*")

    @property
    def is_native(self) -> bool:
        """True if the source has a wildcard of the broker, such as `>` or `#`, and the target keeps the names."""
        return self.source == self.target and not _WILD.isdisjoint(self.source.replace("/", ".").split("."))

    def target_of(self, destination: str) -> str | None:
        """Return where a message of this destination goes; None if the rule does not match it."""
        if type(destination) is not str:
            check_values(str, destination=destination)
        if not self.is_pattern:
            return self.target if destination == self.source else None
        if not destination.startswith(self.source[:-1]):
            return None
        rest = destination[len(self.source) - 1 :]
        return self.target[:-1] + rest if self.target.endswith("*") else self.target


def check_destination(name: str) -> None:
    """Raise ValueError if a bridge cannot take from a name in a map, or of the dead letters, or send to it."""
    if not name:
        raise ValueError("a destination is missing")
    if not name.isprintable() or name != name.strip():
        raise ValueError(f"{name!r}: a destination has no control characters, and no spaces around it")
    if len(name) > _MOST_NAME:
        raise ValueError(f"{name[:80]!r}…: a destination has at most {_MOST_NAME} characters")
    if name.startswith(TEMPORARY):
        raise ValueError(f"{name!r}: a temporary destination belongs to one session, and cannot be carried")


@checks("rule_of", "target_of")
class Mapping:
    """The rules of a bridge. For a destination the first one that matches counts.

    Args:
        rules: the rules, in order.
        excluded: destinations that no pattern matches, such as that of the dead letters.

    Raises:
        ValueError: no rules, or two for the same source.

    >>> mapping = Mapping.parse(["/queue/a=/queue/first", "/queue/*"], excluded=["/queue/dead"])
    >>> [mapping.target_of(name) for name in ("/queue/a", "/queue/b", "/queue/dead", "/topic/c")]
    ['/queue/first', '/queue/b', None, None]
    """

    def __init__(self, rules: Iterable[Rule], excluded: Iterable[str] = ()) -> None:
        self.rules = tuple(rules)
        self.excluded = frozenset(excluded)
        if not self.rules:
            raise ValueError("no destination: name some by SOURCE=TARGET")
        seen: set[str] = set()
        for rule in self.rules:
            check_fields(rule)
            if rule.source in seen:
                raise ValueError(f"{rule.source!r} is mapped twice: one message goes to one place")
            if rule.source in self.excluded:
                raise ValueError(f"{rule.source!r} is where refused messages go: it cannot be carried, too")
            seen.add(rule.source)

    @classmethod
    def parse(cls, texts: Iterable[str], excluded: Iterable[str] = ()) -> Mapping:
        """Return the map of several SOURCE=TARGET.

        Raises:
            ValueError: as for `Rule.parse` and `Mapping`.
        """
        return cls([Rule.parse(text) for text in texts], excluded)

    def rule_of(self, destination: str) -> Rule | None:
        """Return the rule for a destination; None if none matches."""
        if type(destination) is not str:
            check_values(str, destination=destination)
        for rule in self.rules:
            if rule.source == destination:
                return rule
        if destination in self.excluded or destination.startswith(TEMPORARY):
            return None
        return next((rule for rule in self.rules if rule.target_of(destination) is not None), None)

    def target_of(self, destination: str) -> str | None:
        """Return where the messages of a destination go; None if they are not carried."""
        rule = self.rule_of(destination)
        return None if rule is None else rule.target_of(destination)

    def matching(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the names that a pattern matches, each once."""
        for name in dict.fromkeys(names):
            rule = self.rule_of(name)
            if rule is not None and rule.is_pattern:
                yield name


def is_topic(destination: str) -> bool:
    """Return whether a name is that of a topic, whose messages are copied to each subscriber."""
    return destination.startswith(TOPICS)
