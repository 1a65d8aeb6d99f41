"""Pages of long lists: the rows behind a token, a share in each turn of the loop."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, TypeVar

from stompcodec.broker.loop_quota import Line, LoopQuota
from stompcodec.broker.management.reading import BadRequest

#: Rows that are made, or written, in one turn: one or two milliseconds.
ROWS_AT_ONCE = 500
#: Names that are looked at in one turn.
LOOKS_AT_ONCE = 1000

_T = TypeVar("_T")
_R = TypeVar("_R")


def token_of(place: Sequence[str | int]) -> str:
    """Return the token of a place in a list.

    >>> place_of(token_of(["/queue/a", 1]), str, int)
    ['/queue/a', 1]
    """
    text = json.dumps(list(place), separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def place_of(token: str, *kinds: type) -> list[Any]:
    """Return the place of a token, whose parts have these types. Raise BadRequest for any other text.

    >>> place_of("x", int)
    Traceback (most recent call last):
        ...
    stompcodec.broker.management.reading.BadRequest: it is not the `next` of an answer to this question
    """
    try:
        place = json.loads(base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True))
    except (ValueError, RecursionError, binascii.Error):
        place = None
    if not isinstance(place, list) or [type(part) for part in place] != list(kinds) or token_of(place) != token:
        raise BadRequest("page", "it is not the `next` of an answer to this question")
    return place


def in_turns(
    things: Iterable[_T | None], quota: LoopQuota, at_once: int, most: int | None = None
) -> Generator[Line, None, list[_T]]:
    """Return the first `most` items of an iterable as a list, of which `at_once` are made in each turn. None is left
    out, and takes a turn as well if there are many: it stands for something that was looked at and is not wanted.
    """
    found: list[_T] = []
    looks, weight = 0, max(1, LOOKS_AT_ONCE // at_once)
    for thing in things:
        if thing is None:
            looks += 1
        else:
            found.append(thing)
            looks += weight
            if len(found) == most:
                break
        if looks >= LOOKS_AT_ONCE:
            looks = 0
            yield quota
    return found


def map_in_turns(
    function: Callable[[_T], _R], things: Sequence[_T], quota: LoopQuota, at_once: int
) -> Generator[Line, None, list[_R]]:
    """Return what a function makes of each thing, of which `at_once` are passed to it in each turn."""
    found: list[_R] = []
    for begin in range(0, len(things), at_once):
        if begin:
            yield quota
        found += map(function, things[begin : begin + at_once])
    return found
