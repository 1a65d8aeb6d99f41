"""The choice of a backend at import: C if it is built, else Python.

The environment variable STOMPCODEC_PURE forces one: 1 means Python, 0 means C (ImportError if it is missing). A C
backend that could not be built when the package was installed is a RuntimeWarning, and so is one that cannot be loaded:
only one interpreter of a process can load it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from stompcodec.frame import END_OF_BODY, HEARTBEAT, _restorers
from stompcodec.spec import Limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stompcodec._codec_py import (
        Frame,
        Headers,
        Parser,
        frame_ends,
        parse_columns,
        read_websocket,
        serialize,
        serialize_many,
        serialize_parts,
        serialize_tail,
        write_websocket,
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
    "read_websocket",
    "serialize",
    "serialize_many",
    "serialize_parts",
    "serialize_tail",
    "write_websocket",
]

_MODULES = {"c": "stompcodec._codec_c", "python": "stompcodec._codec_py"}


def backend(name: str) -> Any:
    """Return the module of a backend, whether it is in use or not.

    Args:
        name: "c" or "python".

    Raises:
        ImportError: the C backend is not built.
        KeyError: another name was given.

    >>> backend("python").Parser.__name__
    'Parser'
    """
    return __import__(_MODULES[name], fromlist=["Parser"])  # importlib is slower to import than to do without


_NOT_LOADED = (
    "stompcodec uses its Python backend, which is some 40 times slower, because the C backend cannot be loaded: {} "
    "Only the first interpreter of a process that imports stompcodec gets the C backend. Use processes instead of "
    "subinterpreters, or set STOMPCODEC_PURE=1 to accept the Python backend without this warning."
)


_NOT_BUILT = (
    "stompcodec uses its Python backend, which is some 40 times slower, because its C extensions could not be built "
    "when it was installed: {} Install a C compiler and Python's headers, then install stompcodec again as before, "
    "with pip's options --force-reinstall and --no-cache-dir; or set STOMPCODEC_PURE=1 to accept the Python backend "
    "without this warning."
)

_NO_WHEEL = (
    "stompcodec uses its Python backend, which is some 40 times slower, because there is no wheel with C extensions "
    "for this platform. Install a C compiler and Python's headers, and run: pip install --force-reinstall --no-binary "
    "stompcodec stompcodec; or set STOMPCODEC_PURE=1 to accept the Python backend without this warning."
)


def _why_not(error: ImportError) -> str:
    """Return the warning for a C backend that is missing; "" for an installation that was to have none."""
    if not isinstance(error, ModuleNotFoundError):  # built, but not usable here
        return _NOT_LOADED.format(error)
    try:
        reason: str = __import__("stompcodec._fallback", fromlist=["REASON"]).REASON  # written by setup.py
    except ImportError:
        return ""
    return _NOT_BUILT.format(reason.rstrip(".") + ".") if reason else _NO_WHEEL


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
        text = _why_not(error)
        if text:
            import warnings

            warnings.warn(text, RuntimeWarning, stacklevel=4)  # at the line that imports stompcodec
        return "python"
    return "c"


#: The backend in use, "c" or "python".
BACKEND = _pick(os.environ.get("STOMPCODEC_PURE", ""))

if not TYPE_CHECKING:
    _backend = backend(BACKEND)
    globals().update({name: getattr(_backend, name) for name in __all__ if hasattr(_backend, name)})


def parse(
    data: Any,
    version: str | None = "1.2",
    *,
    limits: Limits | None = None,
    lenient: bool | str = False,
    heartbeats: bool = False,
    commands: Iterable[str] = (),
) -> list[Any]:
    """Return all frames of a buffer, which holds whole frames.

    Args:
        data: any contiguous bytes-like object.
        version, limits, lenient, heartbeats, commands: as for `Parser`.

    Raises:
        FrameError: a frame is malformed, or the buffer ends inside a frame ("truncated"). The frames before it are not
            returned; a `Parser` hands them out first.

    >>> parse(b"BEGIN\\ntransaction:t\\n\\n\\0")
    [<Frame BEGIN transaction='t'>]
    """
    parser = Parser(version, limits=limits, lenient=lenient, heartbeats=heartbeats, commands=commands)
    frames = list(parser.feed(data))
    parser.close()
    return frames


def _restore(command: str, pairs: Iterable[tuple[str, str]], body: bytes | None) -> Frame:
    """Return an unpickled frame, which either backend may have written."""
    if body is None:
        raise TypeError("a frame whose body is streamed cannot be restored")
    return Frame(command, pairs, body)


_restorers[:] = [_restore]
