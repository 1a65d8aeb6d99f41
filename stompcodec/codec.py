"""Picks a backend, once: the C one where it is built, else the Python one.

STOMPCODEC_PURE in the environment decides: 1 forces Python, 0 forces C (ImportError without it), unset picks. If the C
backend is built but cannot be loaded, there is a RuntimeWarning: a process loads it in one interpreter only.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from stompcodec.frame import END_OF_BODY, HEARTBEAT, _restorers
from stompcodec.spec import Limits

if TYPE_CHECKING:
    from stompcodec._codec_py import (
        Frame,
        Headers,
        Parser,
        frame_ends,
        parse_columns,
        serialize,
        serialize_many,
        serialize_parts,
        serialize_tail,
    )

__all__ = [
    "BACKEND",
    "END_OF_BODY",
    "HEARTBEAT",
    "Frame",
    "Headers",
    "Parser",
    "backend",
    "frame_ends",
    "parse",
    "parse_columns",
    "serialize",
    "serialize_many",
    "serialize_parts",
    "serialize_tail",
]

_MODULES = {"c": "stompcodec._codec_c", "python": "stompcodec._codec_py"}


def backend(name: str) -> Any:
    """The module of a backend, "c" or "python", whichever was picked.

    Raises:
        ImportError: the C backend is not built.
        KeyError: there is no such backend.

    >>> backend("python").Parser.__name__
    'Parser'
    """
    return import_module(_MODULES[name])


_NOT_LOADED = (
    "stompcodec uses its Python backend, which is some 40 times slower, because the C backend cannot be loaded: {} "
    "Only the first interpreter of a process that imports stompcodec gets the C backend. Use processes instead of "
    "subinterpreters, or set STOMPCODEC_PURE=1 to accept the Python backend without this warning."
)


def _pick(pure: str) -> str:
    if pure not in ("", "0", "1"):
        raise ImportError(f"STOMPCODEC_PURE is {pure!r}: set it to 1 or 0, or not at all")
    if pure == "1":
        return "python"
    try:
        backend("c")
    except ImportError as error:
        if pure == "0":
            raise
        if not isinstance(error, ModuleNotFoundError):  # it is built, and cannot be used here
            warnings.warn(_NOT_LOADED.format(error), RuntimeWarning, stacklevel=2)
        return "python"
    return "c"


#: The backend in use, "c" or "python".
BACKEND = _pick(os.environ.get("STOMPCODEC_PURE", ""))

if not TYPE_CHECKING:
    _backend = backend(BACKEND)
    Frame = _backend.Frame
    Headers = _backend.Headers
    Parser = _backend.Parser
    frame_ends = _backend.frame_ends
    parse_columns = _backend.parse_columns
    serialize = _backend.serialize
    serialize_many = _backend.serialize_many
    serialize_parts = _backend.serialize_parts
    serialize_tail = _backend.serialize_tail


def parse(
    data: Any,
    version: str | None = "1.2",
    *,
    limits: Limits | None = None,
    lenient: bool = False,
    heartbeats: bool = False,
    commands: Iterable[str] = (),
) -> list[Any]:
    """All frames of a whole buffer. Arguments as in `Parser`.

    Raises:
        FrameError: the buffer holds something else, or ends inside a frame ("truncated"). The frames before are lost
            then; a `Parser` hands them out first.

    >>> parse(b"BEGIN\\ntransaction:t\\n\\n\\0")
    [<Frame BEGIN transaction='t'>]
    """
    parser = Parser(version, limits=limits, lenient=lenient, heartbeats=heartbeats, commands=commands)
    frames = list(parser.feed(data))
    parser.close()
    return frames


def _restore(command: str, pairs: Iterable[tuple[str, str]], body: bytes | None) -> Frame:
    """A frame out of a pickle, whichever backend wrote it."""
    if body is None:
        raise TypeError("a frame whose body is streamed cannot be restored")
    return Frame(command, pairs, body)


_restorers[:] = [_restore]
