"""The arguments of public calls, checked against their annotations before a call does anything."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial, wraps
from importlib import import_module
from types import FunctionType, SimpleNamespace, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

__tracebackhide__ = True  # pytest shows the line of the call instead
_Class = TypeVar("_Class", bound=type)
_Call = TypeVar("_Call", bound=Callable[..., Any])
#: Class -> how an error names it, and what else is taken for it.
_KINDS: dict[Any, tuple[str, Any]] = {
    bytes: ("bytes", (bytearray, memoryview)),
    int: ("a whole number", ()),
    float: ("a number", ()),
    tuple: ("a tuple", list),
    type(None): ("None", ()),
    Callable: ("a function", ()),
    Mapping: ("a mapping", ()),
    Sequence: ("a list", ()),
    Iterable: ("a list", ()),
}
#: CO_VARARGS and others of inspect, which takes long to import.
_LISTED, _NAMED, _GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x04, 0x08, 0x20, 0x80, 0x200
#: Other libraries' words for arguments.
_MEANT = {
    **dict.fromkeys(("address", "broker", "host", "host_and_ports", "hosts", "port", "servers", "uri"), "url"),
    **dict.fromkeys(("user", "user_name", "username"), "login"),
    **dict.fromkeys(("passwd", "password", "pwd"), "passcode"),
    **dict.fromkeys(("context", "set_ssl", "ssl_context", "tls", "use_ssl"), "ssl"),
    **dict.fromkeys(("heart_beat_receive_scale", "keepalive"), "heart_beat"),
    **dict.fromkeys(("reconnect_attempts_max", "reconnect_sleep_initial", "reconnect_sleep_max"), "reconnect"),
    **{"auto_ack": "ack", "callback": "handler", "listener": "handler", "on_message": "handler"},
    **{"prefetch_size": "prefetch", "timeout": "connect_timeout", "virtual_host": "vhost", "ws_path": "url"},
}
#: Arguments of stomp.py that have no counterpart, and why.
_NEEDLESS = {"auto_decode": "bodies are bytes, and message.text() decodes", "wait": "a client always waits"}
#: The meaning of a text in place of headers.
NO_HEADERS = "; ack() takes no id, and a content-type goes into content_type="
#: Errors do not show the values of these, which may hold a secret.
_SECRET = frozenset({"body", "data", "headers", "http_headers", "login", "passcode", "proxy", "url", "users"})


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value is what an annotation says. Iterators are not read."""
    kind: Any = get_origin(hint) or hint
    parts = get_args(hint)
    if kind in (Union, UnionType):
        return any(_fits(value, each) for each in parts)
    if kind is Literal:
        return any(type(value) is type(each) and value == each for each in parts)
    if kind is Callable and parts:
        return callable(value) and not _is_left(value, parts[1])
    if kind in (int, float):  # also those of NumPy
        return type(value) is not bool and hasattr(value, "__index__" if kind is int else "__float__")
    if kind is Any or not isinstance(kind, type):  # a variable
        return True
    if getattr(kind, "_is_protocol", False) and kind.__module__.startswith("stompcodec."):
        return all(hasattr(value, name) for name in vars(kind) if name[0] != "_")
    if kind.__module__.startswith("pyspark."):  # those of Spark Connect only have the names
        return kind.__name__ in [each.__name__ for each in value.__class__.__mro__]
    if isinstance(value, str | bytes) and kind in (Iterable, Sequence):
        return False
    if kind is type and parts:
        return isinstance(value, type) and issubclass(value, parts[0])
    if not isinstance(value, kind) and not isinstance(value, _KINDS.get(kind, ("", ()))[1]):
        return False
    if isinstance(value, Mapping) and len(parts) == 2:
        return all(_fits(name, parts[0]) and _fits(each, parts[1]) for name, each in value.items())
    if parts and isinstance(value, tuple | list | Mapping):
        each = parts if kind is tuple and parts[-1] is not ... else parts[:1] * len(value)
        return len(value) == len(each) and all(map(_fits, value, each))
    return True


def _is_left(function: Any, returns: Any) -> bool:
    """Return whether a call would run nothing of a function, since its caller neither awaits nor iterates."""
    function = function.func if isinstance(function, partial) else function
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    taken = {_COROUTINE: "Awaitable", _GENERATOR: "Iter", _ASYNC_GENERATOR: "Iter"}
    flags = 0 if returns is Any else getattr(code, "co_flags", 0)
    return any(flags & flag and name not in repr(returns) for flag, name in taken.items())


def _words(hint: Any) -> list[str]:
    """Return how an error names what an annotation says, as alternatives."""
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return list(dict.fromkeys(word for each in parts for word in _words(each)))
    if kind is Literal or kind is bool:
        return [repr(each) for each in parts or (True, False)]
    name = _KINDS[kind][0] if kind in _KINDS else getattr(kind, "__name__", str(kind))
    inner = [_said(each) for each in parts if each is not ...] if kind is not Callable else []
    if kind is tuple and inner and parts[-1] is not ...:
        return [f"({', '.join(inner)})"]
    return [f"{name} of {' to '.join(inner)}" if inner else name]


def _said(hint: Any) -> str:
    *words, last = _words(hint)
    return f"{', '.join(words)} or {last}" if words else last


class _Hints(dict[str, Any]):
    """The annotations of a function or class, each resolved when it is first needed."""

    def __init__(self, texts: Mapping[str, Any], names: dict[str, Any]) -> None:
        super().__init__()
        self._texts, self._names = texts, names

    def __missing__(self, name: str) -> Any:
        given, names = SimpleNamespace(__annotations__={name: self._texts.get(name, Any)}), dict(self._names)
        while name not in self:
            try:
                self[name] = get_type_hints(given, names)[name]
            except NameError as error:  # imported for type checkers only
                try:
                    names[str(error.name)] = import_module(str(error.name))
                except ImportError:
                    self[name] = Any
        return self[name]

    def check(self, name: str, value: object) -> None:
        """Raise TypeError if an argument is not what its annotation says."""
        check_values(self[name], **{name: value})


def check_values(hint: Any, /, **given: object) -> None:
    """Raise TypeError for a value that is not what an annotation says: where `checked` would cost too much."""
    for name, value in given.items():
        if _fits(value, hint):
            continue
        shown = f"is {type(value).__name__ if name in _SECRET else repr(value):.60}"
        if isinstance(value, Mapping) and name != "body":
            wrong = next((each for each in value.items() if not _fits(dict([each]), hint)), None)
            shown = shown if wrong is None else f"holds {wrong[0]!r:.60} with a value of {type(wrong[1]).__name__}"
        is_word = type(value) is str and "Literal[" in repr(hint)
        also = "; send JSON as json.dumps(...)" if name == "body" else ""
        if name == "headers" and isinstance(value, str):
            also = NO_HEADERS
        if callable(value) and "Callable[" in repr(hint):
            also = ", neither `async def` (a handler of connect_async may be) nor with `yield`: none of it would run"
        raise (ValueError if is_word else TypeError)(f"{name} {shown}: it must be {_said(hint)}{also}")


def meant(name: str, names: Iterable[str]) -> str | None:
    """Return which of these names a wrong one stands for; None if it is like none.

    >>> meant("password", ["login", "passcode"]), meant("batchrows", ["batchRows"]), meant("x", ["login"])
    ('passcode', 'batchRows', None)
    """
    from difflib import get_close_matches  # only for an error

    folded = {each.lower(): each for each in names}
    word = name.lower().replace("-", "_")
    near = [_MEANT[word]] if _MEANT.get(word) in folded else get_close_matches(word, folded, 1, 0.77)
    return folded[near[0]] if near else None


def checked(function: _Call, *, types: bool = True) -> _Call:
    """Return a function that first checks its arguments, and raises TypeError with the name of a wrong one; without
    `types` only their names.
    """
    code: Any = function.__code__
    names, hints = code.co_varnames[: code.co_argcount], _Hints(function.__annotations__, function.__globals__)
    known, takes_more = {*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]}, code.co_flags & _NAMED

    @wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        if len(args) > len(names) and not code.co_flags & _LISTED:
            alone = " and ".join(each for each in names if each != "self") or "nothing"
            raise TypeError(f"{function.__name__} takes only {alone} without a name: write the others as NAME=VALUE")
        for name in named:
            if name not in known and (not takes_more or _MEANT.get(name) in known):
                hint = meant(name, known)
                hint = "url='stomp://host:61613'" if hint == "url" else hint
                said = f"did you mean {hint}?" if hint else _NEEDLESS.get(name)
                raise TypeError(f"unknown argument {name!r}" + (f": {said}" if said else ""))
        for pair in (*zip(names, args), *named.items()) if types else ():
            hints.check(*pair)
        return function(*args, **named)

    @wraps(function)
    async def wait(*args: Any, **named: Any) -> Any:
        return await call(*args, **named)

    return wait if code.co_flags & _COROUTINE else call  # type: ignore[return-value]  # wraps keeps the signature


def checks(*but: str) -> Callable[[_Class], _Class]:
    """Return a decorator of a class, whose public methods then check their arguments; `but` names those that do it
    themselves, since they are called for each message.
    """

    def change(cls: _Class) -> _Class:
        for name, method in list(vars(cls).items()):
            if (name[0] != "_" or name == "__init__") and name not in but:
                if isinstance(method, FunctionType) and len(method.__annotations__) > 1:
                    setattr(cls, name, checked(method))
                elif isinstance(method, classmethod):
                    setattr(cls, name, classmethod(checked(method.__func__)))
        return cls

    return change


def names_checked(cls: _Class) -> _Class:
    """Return a class whose constructor says which argument an unknown one may stand for."""
    cls.__init__ = checked(cls.__init__, types=False)  # type: ignore[misc]  # the one of a dataclass
    return cls


@cache
def _hints_of(cls: Any) -> _Hints:
    return _Hints(cls.__annotations__, vars(sys.modules[cls.__module__]))


def check_fields(instance: Any) -> None:
    """Raise TypeError with the name of a field of a dataclass or named tuple that is not what its annotation says."""
    hints = _hints_of(instance.__class__)
    for pair in (instance._asdict() if hasattr(instance, "_asdict") else vars(instance)).items():
        hints.check(*pair)
