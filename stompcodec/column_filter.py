"""The arguments of `parse_columns` that choose columns and frames, checked and prepared for a backend."""

from __future__ import annotations

from collections.abc import Iterable
from operator import lt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal, NamedTuple
else:
    from stompcodec._lean import NamedTuple

#: The columns, in order. Those of single headers follow them.
COLUMNS = ("command", "headers", "body", "offset", "length", "error")


class Condition(NamedTuple):
    """A condition on a frame, as UTF-8. Frames that do not meet it make no row."""

    name: bytes
    """The name of a header, or "command"."""
    is_prefix: bool
    """True if the text must begin with one of the values; False if it must equal one."""
    values: tuple[bytes, ...]
    """In ascending order. Invariant: no prefix begins with another, so that comparing with one value is enough."""

    def holds(self, text: bytes) -> bool:
        """Return whether a text meets the condition."""
        low, high = 0, len(self.values)
        while low < high:
            middle = (low + high) // 2
            if self.values[middle] <= text:
                low = middle + 1
            else:
                high = middle
        if not low:
            return False
        value = self.values[low - 1]
        return text.startswith(value) if self.is_prefix else text == value


#: Conditions as callers give them: (name, "in" or "prefix", values), or prepared by `checked_where`.
if TYPE_CHECKING:
    Where = Iterable[Condition | tuple[str, Literal["in", "prefix"], Iterable[str]]]
else:
    Where = Iterable


def checked_columns(columns: Iterable[str] | None) -> frozenset[str]:
    """Return the chosen columns; all for None. Raise TypeError for one string, ValueError for an unknown column."""
    if columns is None:
        return frozenset(COLUMNS)
    if isinstance(columns, (str, bytes)):
        raise TypeError("columns is one string: give a list or tuple of names")
    wanted = tuple(columns)
    for name in wanted:
        if name not in COLUMNS:
            raise ValueError(f"unknown column {name!r}: use {', '.join(COLUMNS)}; headers are given by names")
    return frozenset(wanted)


def checked_where(where: Iterable[Any]) -> tuple[Condition, ...]:
    """Return prepared conditions, for one or many calls of `parse_columns`. Prepared ones are returned unchanged
    after a look at them.

    Args:
        where: (name, "in", values) or (name, "prefix", values). The name is that of a header, or "command".

    Raises:
        TypeError, ValueError: a condition is malformed; the message says which.

    >>> checked_where([("destination", "prefix", ["/b", "/a", "/b/c"])])
    (Condition(name=b'destination', is_prefix=True, values=(b'/a', b'/b')),)
    """
    if isinstance(where, (str, bytes)):
        raise TypeError('where is one string: give a list of conditions such as ("destination", "in", ["/queue/a"])')
    return tuple([_checked_condition(condition) for condition in where])


def _checked_condition(condition: Any) -> Condition:
    if type(condition) is Condition:
        return _checked_prepared(condition)
    if not isinstance(condition, (tuple, list)) or len(condition) != 3:
        raise TypeError(f'{condition!r} is not a condition: it must be (name, "in" or "prefix", values)')
    name, kind, given = condition
    if kind not in ("in", "prefix"):
        raise ValueError(f"the condition on {name!r} has {kind!r}: use 'in' or 'prefix'")
    if isinstance(given, (str, bytes)):
        raise TypeError(f"the values for {name!r} are one string: give a list or tuple of values")
    texts = list(given)
    for text in (name, *texts):
        if not isinstance(text, str):
            raise TypeError(f"the condition on {name!r} has a {type(text).__name__}: it must be str")
    values = sorted({str.encode(text) for text in texts})  # a subclass may have methods of its own
    return Condition(str.encode(name), kind == "prefix", tuple(_shortest(values) if kind == "prefix" else values))


def _checked_prepared(condition: Condition) -> Condition:
    """Return a prepared condition, which may have been made by hand."""
    name, is_prefix, values = condition
    if type(values) is not tuple or {bytes} != {type(name), *map(type, values)} or type(is_prefix) is not bool:
        raise TypeError(
            f"{condition!r} is not a condition: make it with checked_where, of bytes, a bool and a tuple of bytes"
        )
    following = values[1:]
    if not all(map(lt, values, following)) or (is_prefix and any(map(bytes.startswith, following, values))):
        raise ValueError(f"the values for {name!r} are not in ascending order, or repeat: make it with checked_where")
    return condition


def _shortest(prefixes: list[bytes]) -> Iterable[bytes]:
    """Yield the prefixes that do not begin with another one."""
    last = None
    for prefix in prefixes:
        if last is None or not prefix.startswith(last):
            last = prefix
            yield prefix


def checked_every(every: int, most: int | None) -> tuple[int, int]:
    """Return the checked arguments of `frame_ends`; None as `most` means no bound."""
    for name, number, least in (("every", every, 1), ("most", most, 0)):
        if number is None and name == "most":
            continue
        if type(number) is not int:
            raise TypeError(f"{name} is {number!r}: it must be an int")
        if number < least:
            raise ValueError(f"{name} is {number}: it must be {least} or more")
    return min(every, 2**63 - 1), 2**63 - 1 if most is None else min(most, 2**63 - 1)
