"""What values of a configuration may be: functions that turn what TOML gave into what the broker uses.

Each raises ValueError that says what is allowed, `At` where the fault lies under a key inside of the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from stompcodec.broker.auth import Rule, User, parse_hash

__all__ = [
    "At",
    "dead_letter",
    "flag",
    "heart_beat",
    "octets",
    "one_of",
    "port",
    "prefix",
    "prefixes",
    "rules",
    "seconds",
    "text",
    "texts",
    "users",
    "whole",
]

_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class At(ValueError):
    """What is wrong lies at `name`, inside of the value that was read.

    >>> At("guest", "no passcode").name
    'guest'
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def whole(least: int, most: int) -> Callable[[Any], int]:
    """A whole number between two bounds, both among what is allowed.

    >>> whole(1, 9)(5)
    5
    """

    def read(value: Any) -> int:
        if type(value) is int and least <= value <= most:
            return value
        raise ValueError(f"it must be a whole number, {least} to {most}")

    return read


def octets(least: int = 1) -> Callable[[Any], int]:
    """A number of octets, or one of KiB, MiB or GiB.

    >>> octets()("64 KiB")
    65536
    """

    def read(value: Any) -> int:
        found = re.fullmatch(r"([0-9]{1,12}) ?([KMG]iB)", value) if isinstance(value, str) else None
        number = int(found[1]) * _UNITS[found[2]] if found else value
        if type(number) is int and least <= number <= 2**62:
            return number
        raise ValueError(
            f'it must be a number of octets, {least} or more, or a text such as "64 KiB", "16 MiB", "1 GiB"'
        )

    return read


def seconds(value: Any) -> float:
    """A time above 0.

    >>> seconds(3)
    3.0
    """
    if type(value) in (int, float) and 0.0 < value <= 1e6:
        return float(value)
    raise ValueError("it must be a number of seconds above 0, at most 1000000")


def port(value: Any) -> int | None:
    """A port to listen on; None is no listener.

    >>> port(0), port(False)
    (0, None)
    """
    if value is False:
        return None
    if type(value) is int and 0 <= value <= 65535:
        return value
    raise ValueError("it must be a port, 1 to 65535, or 0 for any free one, or false for none")


def text(value: Any) -> str:
    """One line of text.

    >>> text("localhost")
    'localhost'
    """
    if isinstance(value, str) and value and not re.search("[\0-\x1f\x7f]", value):
        return value
    raise ValueError("it must be a text without control characters, and not empty")


def texts(value: Any) -> tuple[str, ...]:
    """A list of lines of text.

    >>> texts(["a", "b"])
    ('a', 'b')
    """
    if isinstance(value, list) and value:
        return tuple(map(text, value))
    raise ValueError('it must be a list of texts, such as ["/"]')


def flag(value: Any) -> bool:
    """True or false.

    >>> flag(True)
    True
    """
    if isinstance(value, bool):
        return value
    raise ValueError("it must be true or false")


def one_of(*words: str) -> Callable[[Any], str]:
    """One word of a closed list.

    >>> one_of("all", "none")("all")
    'all'
    """

    def read(value: Any) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise ValueError("it must be one of " + ", ".join(f'"{word}"' for word in words))

    return read


def prefix(value: Any) -> str:
    """What names of one kind of destination begin with.

    >>> prefix("/temp-queue/")
    '/temp-queue/'
    """
    try:
        return text(value)
    except ValueError:
        raise ValueError('it must be what names begin with, such as "/queue/"') from None


def prefixes(value: Any) -> tuple[str, ...]:
    """What names of one kind of destination begin with, several.

    >>> prefixes(["/queue/", "queue/"])
    ('/queue/', 'queue/')
    """
    if isinstance(value, list) and value:
        return tuple(map(prefix, value))
    raise ValueError('it must be a list of what names begin with, such as ["/queue/"]')


def dead_letter(value: Any) -> str:
    """A destination in which {name} stands for a queue's name.

    >>> dead_letter("/queue/DLQ.{name}")
    '/queue/DLQ.{name}'
    """
    if isinstance(value, str) and value and not re.search(r"[{}\0-\x1f\x7f]", value.replace("{name}", "")):
        return value
    raise ValueError('it must be a destination, in which "{name}" stands for the name of the queue')


def heart_beat(value: Any) -> tuple[int, int]:
    """Two times in milliseconds, as in the header heart-beat.

    >>> heart_beat([500, 1000])
    (500, 1000)
    """
    if isinstance(value, list) and len(value) == 2 and all(type(ms) is int and 0 <= ms <= 3_600_000 for ms in value):
        return value[0], value[1]
    raise ValueError("it must be two whole numbers of milliseconds, 0 (never) to 3600000, such as [500, 1000]")


def users(value: Any) -> dict[str, User]:
    """The table of users: NAME = HASH, or a table for each name.

    >>> users({})
    {}
    """
    if not isinstance(value, dict):
        raise ValueError("it must be a table, with a user a line")
    return {name: _user(name, entry) for name, entry in value.items()}


def _user(name: str, entry: Any) -> User:
    entry = {"passcode": entry} if isinstance(entry, str) else entry
    if not isinstance(entry, dict) or "passcode" not in entry or set(entry) - {"passcode", "groups", "vhosts"}:
        raise At(name, 'a user has "passcode" (its hash), and "groups" and "vhosts" (lists) if wanted')
    try:
        parse_hash(text(entry["passcode"]))
    except ValueError:  # the message must not repeat what stands there: it may be the passcode itself
        raise At(name, "passcode must be a hash; make one with: stompcodec broker --hash-passcode") from None
    try:
        groups, vhosts = (texts(entry[key]) if key in entry else () for key in ("groups", "vhosts"))
    except ValueError as error:
        raise At(name, f"groups and vhosts: {error}") from None
    return User(name, entry["passcode"], groups, vhosts)


_RULE: dict[str, Callable[[Any], Any]] = {
    "who": text,
    "action": one_of("send", "subscribe", "*"),
    "destination": text,
    "vhost": text,
    "allow": flag,
}


def rules(value: Any) -> tuple[Rule, ...]:
    """The table of rules: [[rules]], in the order in which they are asked.

    >>> rules([{"who": "@staff", "action": "send"}])
    (Rule(who='@staff', action='send', destination='*', vhost='*', allow=True),)
    """
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise ValueError("it must be a list of tables, each with [[rules]] above it")
    return tuple(_rule(number, entry) for number, entry in enumerate(value))


def _rule(number: int, entry: dict[str, Any]) -> Rule:
    for name, given in entry.items():
        if name not in _RULE:
            raise At(f"{number}.{name}", f"a rule has no such key; it has {', '.join(_RULE)}")
        try:
            _RULE[name](given)
        except ValueError as error:
            raise At(f"{number}.{name}", str(error)) from None
    return Rule(**entry)
