"""Readers of configuration values: functions that check a TOML value and convert it.

They raise ValueError if a value is not allowed, or `NestedError` if the error is at a key inside the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from stompcodec.broker.auth import Rule, User, fault_of, parse_hash
from stompcodec.broker.config.settings import Pauses, Preset, Setting
from stompcodec.values import BOOLEAN, DURATION, SIZE, boolean, duration, size

_T = TypeVar("_T")


class NestedError(ValueError):
    """An error at a key inside the value that was read.

    >>> NestedError("guest", "no passcode").name
    'guest'
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def whole(least: int, most: int) -> Callable[[Any], int]:
    """Return a reader of whole numbers within inclusive bounds.

    >>> whole(1, 9)(5)
    5
    """

    def read(value: Any) -> int:
        if type(value) is int and least <= value <= most:
            return value
        raise ValueError(f"it must be a whole number, {least} to {most}")

    return read


def octets(least: int = 1) -> Callable[[Any], int]:
    """Return a reader of sizes in bytes.

    >>> octets()("64KiB")
    65536
    """

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
    """Return a reader that takes false for None.

    >>> optional(octets())("1KiB"), optional(octets())(False)
    (1024, None)
    """

    def read_or_not(value: Any) -> int | None:
        try:
            return None if value is False else read(value)
        except ValueError as error:
            raise ValueError(f"{error}; or false for the default") from None

    return read_or_not


def window(value: Any) -> int | None:
    """Read a window in bytes; false is None.

    >>> window("10KiB"), window(-1), window(False)
    (10240, -1, None)
    """
    if value is False:
        return None
    if value == -1 and type(value) is int:
        return -1
    try:
        return octets(0)(value)
    except ValueError as error:
        raise ValueError(f"{error}; or -1 for no limit, or false") from None


def seconds(value: Any) -> float:
    """Read a time above 0, in seconds.

    >>> seconds(3), seconds("5m")
    (3.0, 300.0)
    """
    number = seconds_or_0(value)
    if number > 0:
        return number
    raise ValueError(f"it must be {DURATION}, and more than 0")


def seconds_or_0(value: Any) -> float:
    """Read a time in seconds, or 0.

    >>> seconds_or_0(0), seconds_or_0("500ms")
    (0.0, 0.5)
    """
    number = duration(value)
    if number <= 1e6:
        return number
    raise ValueError(f"it must be {DURATION}, at most 11d")


def millis(value: Any) -> int:
    """Read a time, in milliseconds.

    >>> millis("60s"), millis(0)
    (60000, 0)
    """
    number = round(duration(value) * 1000)
    if number <= 2**40:
        return number
    raise ValueError(f"it must be {DURATION}, at most 12725d")


def factor(value: Any) -> float:
    """Read a positive factor.

    >>> factor(2)
    2.0
    """
    if type(value) in (int, float) and 0.01 <= value <= 1000:
        return float(value)
    raise ValueError("it must be a number, 0.01 to 1000")


def port(value: Any) -> int | None:
    """Read a port to listen on; false is None, no listener.

    >>> port(0), port(False)
    (0, None)
    """
    if value is False:
        return None
    if type(value) is int and 0 <= value <= 65535:
        return value
    raise ValueError("it must be a port, 1 to 65535, or 0 for any free one, or false for none")


def ports(value: Any) -> tuple[int, ...]:
    """Read a list of ports to listen on.

    >>> ports([61613, 61616])
    (61613, 61616)
    """
    if isinstance(value, list) and all(type(item) is int and 0 <= item <= 65535 for item in value):
        return tuple(value)
    raise ValueError("it must be a list of ports, each 1 to 65535, or 0 for any free one")


def text(value: Any) -> str:
    """Read a line of text.

    >>> text("localhost")
    'localhost'
    """
    if isinstance(value, str) and value and not re.search("[\0-\x1f\x7f]", value):
        return value
    raise ValueError("it must be a text without control characters, and not empty")


def texts(value: Any) -> tuple[str, ...]:
    """Read a list of lines of text.

    >>> texts(["a", "b"])
    ('a', 'b')
    """
    if isinstance(value, list) and value:
        return tuple(map(text, value))
    raise ValueError('it must be a list of texts, such as ["/"]')


def origins(value: Any) -> tuple[str, ...]:
    """Read a list of page origins; an empty list allows none.

    >>> origins(["https://app.example"])
    ('https://app.example',)
    """
    if not isinstance(value, list):
        raise ValueError('it must be a list of origins, such as ["https://app.example"]')
    return _sound(tuple(map(text, value)), lambda entries: fault_of(entries, ()))


def hosts(value: Any) -> tuple[str, ...]:
    """Read a list of host names or addresses without ports.

    >>> hosts(["broker.example"])
    ('broker.example',)
    """
    if not isinstance(value, list):
        raise ValueError('it must be a list of names, such as ["broker.example"]')
    return _sound(tuple(map(text, value)), lambda entries: fault_of((), entries))


def _sound(entries: tuple[str, ...], check: Callable[[tuple[str, ...]], str | None]) -> tuple[str, ...]:
    fault = check(entries)
    if fault is not None:
        raise ValueError(fault)
    return entries


def flag(value: Any) -> bool:
    """Read true or false.

    >>> flag(True)
    True
    """
    try:
        return boolean(value)
    except ValueError:
        raise ValueError(f"it must be {BOOLEAN}") from None


def some_of(*words: str) -> Callable[[Any], tuple[str, ...]]:
    """Return a reader of lists of these words, each at most once.

    >>> some_of("a", "b")(["b"])
    ('b',)
    """

    def read(value: Any) -> tuple[str, ...]:
        if isinstance(value, list) and all(word in words for word in value) and len({*value}) == len(value):
            return tuple(value)
        raise ValueError(f"it must be a list of some of {', '.join(words)}, or []")

    return read


def one_of(*words: str) -> Callable[[Any], str]:
    """Return a reader of one of these words.

    >>> one_of("all", "none")("all")
    'all'
    """

    def read(value: Any) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise ValueError("it must be one of " + ", ".join(f'"{word}"' for word in words))

    return read


def prefix(value: Any) -> str:
    """Read the prefix of a kind of destination.

    >>> prefix("/temp-queue/")
    '/temp-queue/'
    """
    try:
        return text(value)
    except ValueError:
        raise ValueError('it must be a prefix of names, such as "/queue/"') from None


def prefixes(value: Any) -> tuple[str, ...]:
    """Read a list of prefixes of a kind of destination.

    >>> prefixes(["/queue/", "queue/"])
    ('/queue/', 'queue/')
    """
    if isinstance(value, list) and value:
        return tuple(map(prefix, value))
    raise ValueError('it must be a list of prefixes, such as ["/queue/"]')


def dead_letter(value: Any) -> str:
    """Read a destination in which {name} stands for a queue's name.

    >>> dead_letter("/queue/DLQ.{name}")
    '/queue/DLQ.{name}'
    """
    if isinstance(value, str) and value and not re.search(r"[{}\0-\x1f\x7f]", value.replace("{name}", "")):
        return value
    raise ValueError('it must be a destination, in which "{name}" stands for the name of the queue')


def heart_beat(value: Any) -> tuple[int, int]:
    """Read two intervals in milliseconds, as in the header heart-beat.

    >>> heart_beat([500, 1000])
    (500, 1000)
    """
    if isinstance(value, list) and len(value) == 2 and all(type(ms) is int and 0 <= ms <= 3_600_000 for ms in value):
        return value[0], value[1]
    raise ValueError("it must be two whole numbers of milliseconds, 0 (never) to 3600000, such as [500, 1000]")


def users(value: Any) -> dict[str, User]:
    """Read the table of users: NAME = HASH, or a table for each name.

    >>> users({})
    {}
    """
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


def _tables(readers: dict[str, Callable[[Any], Any]], value: Any, required: str = "") -> list[dict[str, Any]]:
    """Read a list of tables with these keys."""
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise ValueError("it must be a list of tables, each with [[...]] above it")
    for number, entry in enumerate(value):
        for name, given in entry.items():
            if name not in readers:
                raise NestedError(f"{number}.{name}", f"unknown key; allowed are {', '.join(readers)}")
            try:
                entry[name] = readers[name](given)
            except ValueError as error:
                raise NestedError(f"{number}.{name}", str(error)) from None
        if required and required not in entry:
            raise NestedError(f"{number}", f"{required} is missing")
    return value


_PAUSES = re.compile(r"([^x]+?)(?: x([0-9]{1,3}(?:\.[0-9]{1,3})?) up to (.+))?")
#: The longest pause: a year.
LONGEST_PAUSE = 365 * 86400.0


def pauses(value: Any) -> Pauses:
    """Read the pauses between attempts.

    >>> pauses("100ms x2 up to 1m"), pauses("5s")
    (Pauses(first=0.1, factor=2.0, most=60.0), Pauses(first=5.0, factor=1.0, most=5.0))
    """
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
    "auto_create_addresses": flag,
    "auto_create_queues": flag,
    "auto_delete_addresses": flag,
    "auto_delete_queues": flag,
    "redelivery_delay": pauses,
}


def settings(value: Any) -> tuple[Setting, ...]:
    """Read the tables [[addresses.settings]]."""
    return tuple(Setting(**entry) for entry in _tables(_SETTING, value, "match"))


def presets(value: Any) -> tuple[Preset, ...]:
    """Read the tables [[addresses.preset]]."""
    return tuple(Preset(**entry) for entry in _tables({"name": text, "routing": _TYPE, "queues": texts}, value, "name"))


def exchanges(value: Any) -> dict[str, str]:
    """Read a table of exchanges: the type of each, by name.

    >>> exchanges({"orders": "topic"})
    {'orders': 'topic'}
    """
    if isinstance(value, dict) and all(name and kind in ("topic", "direct", "fanout") for name, kind in value.items()):
        return dict(value)
    raise ValueError('it must be a table of names, each with "topic", "direct" or "fanout"')


def line(value: Any) -> str:
    """Read a line of text, which may be empty.

    >>> line("")
    ''
    """
    return value if value == "" else text(value)


_RULE: dict[str, Callable[[Any], Any]] = {
    "who": text,
    "action": one_of("send", "subscribe", "manage", "*"),
    "destination": text,
    "vhost": text,
    "allow": flag,
}


def rules(value: Any) -> tuple[Rule, ...]:
    """Read the table of rules: [[rules]], in order of evaluation.

    >>> rules([{"who": "@staff", "action": "send"}])
    (Rule(who='@staff', action='send', destination='*', vhost='*', allow=True),)
    """
    return tuple(Rule(**entry) for entry in _tables(_RULE, value))
