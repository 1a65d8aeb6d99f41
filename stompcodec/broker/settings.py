"""Values of the configuration: kinds of destinations, wildcards, tables of addresses, and readers of a file's values.

A reader checks a TOML value and converts it. It raises ValueError if the value is not allowed, or `NestedError` if the
error is at a key inside the value.

A name of a topic is a prefix and words with a separator between them; brokers spell wildcards in several ways. One mark
matches exactly one word; the other matches any number of words, including none. Matching is bounded: neither a pattern
nor a matched name has more than 64 words.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from stompcodec.broker.auth import Rule, User, parse_hash
from stompcodec.broker.values import Refused
from stompcodec.values import DURATION, SIZE, boolean, duration, size


class Kind(enum.Enum):
    """The kind of a destination."""

    QUEUE = "queue"
    """Each message goes to one consumer, and waits for it."""
    TOPIC = "topic"
    """Each message goes to every current consumer."""
    TEMP_QUEUE = "temp-queue"
    """A queue that ends with the session that subscribed to it."""
    TEMP_TOPIC = "temp-topic"
    """A topic that ends with the session that subscribed to it."""


#: Values of destination-type and subscription-type, which are case-sensitive.
ROUTING = {"ANYCAST": Kind.QUEUE, "MULTICAST": Kind.TOPIC}
#: Exchanges that RabbitMQ has from the start, with their types.
EXCHANGES = {"amq.topic": "topic", "amq.direct": "direct", "amq.fanout": "fanout"}
#: A factor is applied this many times at most: by then a pause of any length has grown as far as it matters.
_MOST_FACTORS = 100


class Pauses(NamedTuple):
    """The pauses between the attempts of a message."""

    first: float = 0.0
    """Seconds after the first failed attempt."""
    factor: float = 1.0
    """The ratio of each pause to the one before."""
    most: float = 0.0
    """The longest pause in seconds."""

    def after(self, failures: int) -> float:
        """Return the pause in seconds after this number of failed attempts."""
        pause = self.first
        for _ in range(min(failures - 1, _MOST_FACTORS)):
            pause = min(self.most, pause * self.factor)
        return pause

    def __str__(self) -> str:
        first, factor, most = (f"{number:.3f}".rstrip("0").rstrip(".") for number in self)
        return f"{first}s" if self.factor == 1 else f"{first}s x{factor} up to {most}s"


class Setting(NamedTuple):
    """Settings for the names that match a pattern: one table [[addresses.settings]]."""

    match: str = "#"
    """"#" matches any number of words, "*" one."""
    default_address_routing_type: str = "ANYCAST"
    """The routing type for SEND."""
    default_queue_routing_type: str = "ANYCAST"
    """The routing type for SUBSCRIBE."""
    auto_create_addresses: bool = True
    """SEND and SUBSCRIBE create topics."""
    auto_create_queues: bool = True
    """SEND and SUBSCRIBE create queues."""
    auto_delete_addresses: bool = True
    """Topics without subscribers are removed."""
    auto_delete_queues: bool = True
    """Idle queues are removed."""
    redelivery_delay: Pauses | None = None
    """The pause before a message is delivered again after a NACK; None for that of the broker."""


class Preset(NamedTuple):
    """An address that exists from the start: one table [[addresses.preset]]."""

    name: str
    """The destination as a client would name it."""
    routing: str = "ANYCAST"
    queues: tuple[str, ...] = ()
    """Durable subscriptions of a MULTICAST address, each as CLIENT-ID.NAME."""


class Address(NamedTuple):
    """A destination as the broker understands it."""

    kind: Kind
    prefix: str
    rest: str
    """The part after the prefix: words, if wildcards are enabled."""
    literal: bool = False
    """Wildcards in it have no meaning."""
    found: bool = False
    """The queue, or the durable subscription, must exist; the name's use does not create it."""

    @property
    def name(self) -> str:
        """The full name, by which queues and topics are known."""
        return self.prefix + self.rest


class NestedError(ValueError):
    """An error at a key inside the value that was read."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def whole(least: int, most: int) -> Callable[[Any], int]:
    """Return a reader of whole numbers within inclusive bounds."""

    def read(value: Any) -> int:
        if type(value) is int and least <= value <= most:
            return value
        raise ValueError(f"it must be a whole number, {least} to {most}")

    return read


def octets(least: int = 1) -> Callable[[Any], int]:
    """Return a reader of sizes in bytes."""

    def read(value: Any) -> int:
        try:
            number = size(value)
        except ValueError:
            number = -1
        if least <= number <= 2**62:
            return number
        raise ValueError(f"it must be {SIZE}, and {least} or more")

    return read


def optional(read: Callable[[Any], int]) -> Callable[[Any], int | None]:
    """Return a reader that takes false for None."""

    def read_or_not(value: Any) -> int | None:
        try:
            return None if value is False else read(value)
        except ValueError as error:
            raise ValueError(f"{error}; or false for the default") from None

    return read_or_not


def seconds(value: Any) -> float:
    """Read a time above 0, in seconds."""
    number = seconds_or_0(value)
    if number > 0:
        return number
    raise ValueError(f"it must be {DURATION}, and more than 0")


def seconds_or_0(value: Any) -> float:
    """Read a time in seconds, or 0."""
    number = duration(value)
    if number <= 1e6:
        return number
    raise ValueError(f"it must be {DURATION}, at most 11d")


def millis(value: Any) -> int:
    """Read a time, in milliseconds."""
    number = round(duration(value) * 1000)
    if number <= 2**40:
        return number
    raise ValueError(f"it must be {DURATION}, at most 12725d")


def factor(value: Any) -> float:
    if type(value) in (int, float) and 0.01 <= value <= 1000:
        return float(value)
    raise ValueError("it must be a number, 0.01 to 1000")


def port(value: Any) -> int | None:
    """Read a port to listen on; false is None, no listener."""
    if value is False:
        return None
    if type(value) is int and 0 <= value <= 65535:
        return value
    raise ValueError("it must be a port, 1 to 65535, or 0 for any free one, or false for none")


def text(value: Any) -> str:
    if isinstance(value, str) and value and not re.search("[\0-\x1f\x7f]", value):
        return value
    raise ValueError("it must be a text without control characters, and not empty")


def texts(value: Any, example: str = "/", least: int = 1) -> tuple[str, ...]:
    """Read a list of lines of text."""
    if isinstance(value, list) and len(value) >= least:
        return tuple(map(text, value))
    raise ValueError(f'it must be a list of texts, such as ["{example}"]')


def one_of(*words: str) -> Callable[[Any], str]:
    """Return a reader of one of these words."""
    allowed = ", ".join(f'"{word}"' for word in words)

    def read(value: Any) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise ValueError(f"it must be one of {allowed}")

    return read


def dead_letter(value: Any) -> str:
    """Read a destination in which {name} stands for a queue's name."""
    if isinstance(value, str) and value and not re.search(r"[{}\0-\x1f\x7f]", value.replace("{name}", "")):
        return value
    raise ValueError('it must be a destination, in which "{name}" stands for the name of the queue')


def heart_beat(value: Any) -> tuple[int, int]:
    """Read two intervals in milliseconds, as in the header heart-beat."""
    if isinstance(value, list) and len(value) == 2 and all(type(ms) is int and 0 <= ms <= 3_600_000 for ms in value):
        return value[0], value[1]
    raise ValueError("it must be two whole numbers of milliseconds, 0 (never) to 3600000, such as [500, 1000]")


def users(value: Any) -> dict[str, User]:
    """Read the table of users: NAME = HASH, or a table for each name."""
    if not isinstance(value, dict):
        raise ValueError("it must be a table with one user per line")
    return {name: _user(name, entry) for name, entry in value.items()}


def _user(name: str, entry: Any) -> User:
    entry = {"passcode": entry} if isinstance(entry, str) else entry
    if not isinstance(entry, dict) or "passcode" not in entry or set(entry) - {"passcode", "groups", "vhosts"}:
        raise NestedError(name, 'a user has "passcode" (its hash), and "groups" and "vhosts" (lists) if wanted')
    try:
        parse_hash(text(entry["passcode"]))
    except ValueError:  # the message must not repeat the value, which may be the passcode itself
        raise NestedError(name, "passcode must be a hash; make one with: stompcodec broker --hash-passcode") from None
    try:
        groups, vhosts = (texts(entry[key]) if key in entry else () for key in ("groups", "vhosts"))
    except ValueError as error:
        raise NestedError(name, f"groups and vhosts: {error}") from None
    return User(name, entry["passcode"], groups, vhosts)


def _entry(readers: dict[str, Callable[[Any], Any]], name: str, value: Any, where: str = "") -> Any:
    """Read a value in a table."""
    if name not in readers:
        raise NestedError(where + name, f"unknown key; it must be one of {', '.join(readers)}")
    try:
        return readers[name](value)
    except ValueError as error:
        raise NestedError(where + name, str(error)) from None


def _tables(readers: dict[str, Callable[[Any], Any]], value: Any, required: str = "") -> list[dict[str, Any]]:
    """Read a list of tables with these keys."""
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise ValueError("it must be a list of tables, each with [[...]] above it")
    for number, entry in enumerate(value):
        entry.update({name: _entry(readers, name, given, f"{number}.") for name, given in entry.items()})
        if required and required not in entry:
            raise NestedError(f"{number}", f"{required} is missing")
    return value


_PAUSES = re.compile(r"([^x]+?)(?: x([0-9]{1,3}(?:\.[0-9]{1,3})?) up to (.+))?")
#: The longest pause: a year.
LONGEST_PAUSE = 365 * 86400.0


def pauses(value: Any) -> Pauses:
    """Read the pauses between attempts."""
    found = _PAUSES.fullmatch(value) if isinstance(value, str) else None
    if found is not None:
        start = duration(found[1])
        read = Pauses(start, float(found[2] or 1), duration(found[3]) if found[3] else start)
        if read.factor >= 1 and read.first <= read.most <= LONGEST_PAUSE:
            return read
    raise ValueError(
        'it must be a time such as "5s", or one that grows, such as "1s x2 up to 30s": the factor is 1 or more, '
        "and the last pause no shorter than the first, and at most 365d"
    )


_TYPE = one_of("ANYCAST", "MULTICAST")

_SETTING: dict[str, Callable[[Any], Any]] = {
    "match": text,
    "default_address_routing_type": _TYPE,
    "default_queue_routing_type": _TYPE,
    "auto_create_addresses": boolean,
    "auto_create_queues": boolean,
    "auto_delete_addresses": boolean,
    "auto_delete_queues": boolean,
    "redelivery_delay": pauses,
}


def settings(value: Any) -> tuple[Setting, ...]:
    """Read the tables [[addresses.settings]]."""
    return tuple(Setting(**entry) for entry in _tables(_SETTING, value, "match"))


def presets(value: Any) -> tuple[Preset, ...]:
    """Read the tables [[addresses.preset]]."""
    return tuple(Preset(**entry) for entry in _tables({"name": text, "routing": _TYPE, "queues": texts}, value, "name"))


def exchanges(value: Any) -> dict[str, str]:
    """Read a table of exchanges: the type of each, by name."""
    if isinstance(value, dict) and all(name and kind in ("topic", "direct", "fanout") for name, kind in value.items()):
        return dict(value)
    raise ValueError('it must be a table of names, each with "topic", "direct" or "fanout"')


def line(value: Any) -> str:
    """Read a line of text, which may be empty."""
    return value if value == "" else text(value)


class Several(dict[str, Any]):
    """The values of several fields, by name, that one key sets."""


def listening(value: Any) -> Several:
    """Read a port, or a list of ports: the first, and the further ones."""
    try:
        first, *further = map(port, value) if isinstance(value, list) else [port(value)]
        if not further or None not in (first, *further):
            return Several(port=first, ports=tuple(further))
        raise ValueError
    except ValueError:
        raise ValueError(
            "it must be a port, 1 to 65535, or 0 for any free one, or false for none, or a list of ports"
        ) from None


def legacy(value: Any) -> Several:
    """Read where the older worker dialect is accepted: on the other ports, or on one of its own."""
    if value is True:
        return Several(legacy_port=None, detect_legacy=True)
    try:
        return Several(legacy_port=port(value), detect_legacy=False)
    except ValueError:
        raise ValueError("it must be true, or false, or a port, 1 to 65535, or 0 for any free one") from None


def prefetch(value: Any) -> Several:
    """Read how much may be unacknowledged: a number of messages, or a text with a number of bytes."""
    try:
        if isinstance(value, str):
            return Several(window=octets(0)(value), prefetch_octets=True)
        return Several(prefetch=whole(1, 2**40)(value), window=None, prefetch_octets=False)
    except ValueError:
        raise ValueError('it must be a number of messages, 1 or more, or of bytes, such as "10KiB"') from None


def _named(readers: dict[str, tuple[str, Callable[[Any], Any]]], value: dict[str, Any]) -> Several:
    """Read a table whose names are these, each with its field."""
    reads = {name: read for name, (_field, read) in readers.items()}
    found = {name: _entry(reads, name, given) for name, given in value.items()}
    return Several({readers[name][0]: read for name, read in found.items()})


_TTL: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "usual": ("ttl", millis),
    "override": ("ttl_override", millis),
    "least": ("ttl_min", millis),
    "most": ("ttl_max", millis),
    "factor": ("ttl_modifier", factor),
}


def ttl(value: Any) -> Several:
    """Read the time that a silent client has: one time, or a table."""
    return _named(_TTL, value) if isinstance(value, dict) else Several(ttl=millis(value))


def table(example: str, read: Callable[[Any], Any], *fields: str) -> Callable[[Any], Several]:
    """Return a reader of a table with the values of these fields, which are named without `_prefix`."""

    def read_table(value: Any) -> Several:
        if not isinstance(value, dict):
            raise ValueError(f"it must be a table such as {example}")
        return _named({field.removesuffix("_prefix"): (field, read) for field in fields}, value)

    return read_table


def wildcards(value: Any) -> Several:
    """Read the syntax of wildcards, or a table with the separator of words beside it."""
    known = {"syntax": ("wildcards", one_of("none", *SYNTAXES)), "delimiter": ("delimiter", line)}
    return _named(known, value) if isinstance(value, dict) else Several(wildcards=known["syntax"][1](value))


_RULE: dict[str, Callable[[Any], Any]] = {
    "who": text,
    "action": one_of("send", "subscribe", "manage", "*"),
    "destination": text,
    "vhost": text,
    "allow": boolean,
}


def rules(value: Any) -> tuple[Rule, ...]:
    """Read the table of rules: [[rules]], in order of evaluation."""
    return tuple(Rule(**entry) for entry in _tables(_RULE, value))


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
    """A reader of names in a syntax; None has no wildcards. `separator` replaces the syntax's, unless it is empty."""

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
