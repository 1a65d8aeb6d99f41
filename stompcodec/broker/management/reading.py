"""Reading of requests: the fields of a JSON object, each checked by the table in `schema.py`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

#: The longest JSON text of a request in bytes.
MOST_REQUEST = 65_536
#: The longest text in a field, in characters: that of a destination or a selector.
_MOST_TEXT = 8192
#: The most `*` in a pattern.
_MOST_STARS = 16


class BadRequest(Exception):
    """A request that is answered by an error, which names a field of it.

    >>> BadRequest("limit", "it must be a whole number").field
    'limit'
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        #: The field, the header, or "body".
        self.field = field
        self.message = message


def read_json(octets: bytes) -> dict[str, Any]:
    """Read the body of a request, a JSON object; an empty body is {}. Raise BadRequest if it is anything else.

    >>> read_json(b""), read_json(b'{"limit": 5}')
    ({}, {'limit': 5})
    """
    if len(octets) > MOST_REQUEST:
        raise BadRequest("body", f"it has more than {MOST_REQUEST} bytes")
    if not octets.strip():
        return {}
    try:
        found = json.loads(octets, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise BadRequest("body", "it is not valid JSON") from None
    if not isinstance(found, dict):
        raise BadRequest("body", "it must be a JSON object")
    return found


def _refuse_constant(_name: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not JSON")


def text(value: Any) -> str:
    """Read a text, or raise ValueError.

    >>> text("/queue/a")
    '/queue/a'
    """
    if not isinstance(value, str) or not value or len(value) > _MOST_TEXT or "\0" in value:
        raise ValueError(f"it must be a text of 1 to {_MOST_TEXT} characters")
    return value


def pattern(value: Any) -> str:
    """Read a pattern for names, or raise ValueError. Its `*` are few, because it is compared with many names.

    >>> pattern("/queue/*")
    '/queue/*'
    """
    found = text(value)
    if found.count("*") > _MOST_STARS:
        raise ValueError(f"it has more than {_MOST_STARS} *")
    return found


def flag(value: Any) -> bool:
    """Read true or false, or raise ValueError.

    >>> flag(True)
    True
    """
    if not isinstance(value, bool):
        raise ValueError("it must be true or false")
    return value


def whole(least: int, most: int) -> Callable[[Any], int]:
    """Return a reader of whole numbers, which raises ValueError for others.

    >>> whole(1, 10)(10)
    10
    """

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"it must be a whole number, {least} to {most}")
        return value

    return read


def one_of(*choices: str) -> Callable[[Any], str]:
    """Return a reader of one of these texts, which raises ValueError for others.

    >>> one_of("a", "b")("a")
    'a'
    """

    def read(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"it must be one of {', '.join(choices)}")
        assert isinstance(value, str)
        return value

    return read


def read_fields(given: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a request by field, with the defaults of those that are missing.

    Args:
        given: the JSON object.
        fields: each `schema.Field` by its name.

    Raises:
        BadRequest: a field is unknown, missing, or has a wrong value.
    """
    for name in given:
        if name not in fields:
            known = ", ".join(fields) or "none"
            raise BadRequest(name[:100], f"unknown field; the fields of this request: {known}")
    found = {}
    for name, field in fields.items():
        value = given.get(name)
        if value is None:
            if field.required:
                raise BadRequest(name, "it is missing")
            found[name] = field.default
            continue
        try:
            found[name] = field.read(value)
        except ValueError as error:
            raise BadRequest(name, str(error)) from None
    return found


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number.

    >>> is_number(1.5), is_number(True)
    (True, False)
    """
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
