"""The parts of `typing` and `enum` that classes of the codec need while they are made.

Both modules, and `re` with them, take longer to import than Python takes to start. Type checkers see the real ones: a
module has `TYPE_CHECKING = False`, which they take for true, and imports from here otherwise.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable

#: What a class has of its own, or gets from `namedtuple`.
_KEPT = {"__annotations__", "__module__", "__dict__", "__weakref__", "__static_attributes__", "__firstlineno__"}


class _Tuples(type):
    """The type of `NamedTuple` alone: a class that names it as its base becomes a tuple instead."""

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, object]) -> type:
        if not bases:
            return type.__new__(cls, name, bases, body)
        fields: dict[str, str] = body["__annotations__"]  # type: ignore[assignment]  # a class body's
        defaults = [body[field] for field in fields if field in body]
        made: type = namedtuple(name, fields, defaults=defaults, module=str(body["__module__"]))  # type: ignore[misc]  # fields known at run time
        made.__annotations__ = fields
        for key, value in body.items():
            if key not in _KEPT and key not in fields:
                setattr(made, key, value)
        return made


class NamedTuple(metaclass=_Tuples):
    """The base of a tuple with named fields, as in `typing`.

    >>> class Point(NamedTuple):
    ...     x: int
    ...     y: int = 0
    >>> Point(1)
    Point(x=1, y=0)
    """


class Protocol:
    """The base of a class that is only for type checkers."""


class Enum:
    """A class with one object for each of its names in capitals.

    >>> class Colour(Enum):
    ...     RED = "red"
    >>> Colour("red") is Colour.RED, Colour.RED.name, Colour.RED.value
    (True, 'RED', 'red')
    """

    name: str
    value: object

    def __init_subclass__(cls) -> None:
        for name, value in list(vars(cls).items()):
            if name.isupper():
                member = object.__new__(cls)
                member.name, member.value = name, value
                setattr(cls, name, member)

    def __new__(cls, value: object) -> Enum:
        for member in vars(cls).values():
            if isinstance(member, cls) and member.value == value:
                return member
        raise ValueError(f"{value!r} is not a valid {cls.__name__}")

    def __reduce__(self) -> tuple[type, tuple[object]]:
        return type(self), (self.value,)


def overload(function: Callable[..., object]) -> Callable[..., object]:
    """Return the function: a signature for type checkers."""
    return function
