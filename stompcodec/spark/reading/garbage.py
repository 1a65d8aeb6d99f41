"""Garbage: bytes between frames that are not frames, and how to find the next frame behind them or behind an oversized
one.

A frame begins with a line that is a command. Everything else between two frames is garbage; a run of it is one row,
however many NULs it contains.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

from stompcodec.spark.reading.window import Window, opened
from stompcodec.spec import dialect_of

_COMMANDS = tuple(sorted(name.encode() for name in dialect_of("1.2").commands))
_BEGIN = re.compile(rb"[^\r\n]")
_HEAD_END = re.compile(rb"\n\r?\n|\0")
_LENGTH = re.compile(rb"\ncontent-length:([^\n\0]*)\n")
_LINE = re.compile(rb"[\r\n\0]")
#: Bytes examined at once.
_SOME = 65536
#: EOLs behind a frame that are skipped for all frames at once; longer runs are examined one by one.
_EOLS = 4


def begins_frame(view: Any, extra: tuple[str, ...] = ()) -> bool:
    """Return whether bytes begin, after EOLs, with a command line or a part of one; `extra` are further commands.

    >>> [begins_frame(octets) for octets in (b"SEND\\n\\nx", b"\\r\\nMES", b"SENDER\\n", b"", b"SEND\\0")]
    [True, True, False, False, True]
    """
    for at in range(0, len(view), _SOME):
        found = _BEGIN.search(view, at, min(len(view), at + _SOME))
        if found:
            line = bytes(view[found.start() : found.start() + 256])
            commands = (*_COMMANDS, *(name.encode() for name in extra))
            end = _LINE.search(line)
            if end is None:
                return any(name.startswith(line) for name in commands)
            return line[: end.start()] in commands
    return False


def begins_at(path: str, place: int, extra: tuple[str, ...] = ()) -> bool:
    """Return whether a frame begins at an offset of a file, or the file ends there."""
    with open(path, "rb") as stream:
        stream.seek(place)
        octets = stream.read(4096)
    return not octets or begins_frame(octets, extra)


def clean(view: memoryview, ends: Any, extra: tuple[str, ...] = ()) -> Any:
    """Return for each offset whether a frame begins there, after EOLs. The end of the view counts as no frame."""
    data = np.frombuffer(view, np.uint8)
    at = ends.copy()
    for _ in range(_EOLS):
        inside = np.minimum(at, len(data) - 1)
        eol = ((data[inside] == 10) | (data[inside] == 13)) & (at < len(data))
        if not eol.any():
            break
        at += eol
    found = np.zeros(len(ends), bool)
    for name in (*_COMMANDS, *(each.encode() for each in extra)):
        possible = np.flatnonzero(~found & (at + len(name) < len(data)))
        for place, octet in enumerate(name):
            possible = possible[data[at[possible] + place] == octet]
            if not len(possible):
                break
        behind = data[at[possible] + len(name)]
        found[possible[(behind == 10) | (behind == 13) | (behind == 0)]] = True
    inside = np.minimum(at, len(data) - 1)
    for row in np.flatnonzero(((data[inside] == 10) | (data[inside] == 13)) & (at < len(data))).tolist():
        found[row] = begins_frame(view[int(at[row]) :], extra)
    return found


def declared_end(view: Any) -> int | None:
    """Return where the content-length of the first frame says that it ends, which may be behind the view; None if it
    has none or the head is incomplete.

    >>> declared_end(b"SEND\\ncontent-length:900\\n\\nabc"), declared_end(b"SEND\\n\\nabc")
    (926, None)
    """
    begin = _BEGIN.search(view)
    head = _HEAD_END.search(view, begin.start()) if begin else None
    if not begin or not head or not view[head.end() - 1]:
        return None
    found = _LENGTH.search(view, begin.start(), head.end())
    digits = found[1].removesuffix(b"\r").strip(b" \t") if found else b""
    if not digits.isdigit() or len(digits.lstrip(b"0")) > 15:
        return None
    return head.end() + int(digits) + 1


def rest_of_run(view: memoryview, end: int) -> int:
    """Return where the NULs and EOLs behind an offset end, without trailing EOLs, which may be heart-beats."""
    octets = bytes(view[end : end + _SOME])
    run = octets[: len(octets) - len(octets.lstrip(b"\0\r\n"))]
    return end + len(run.rstrip(b"\r\n"))


def looker(path: str, compression: str | None) -> Callable[[int], bytes]:
    """Return a function that reads the byte at an offset of a file; b"" behind its end.

    In a compressed file that is slow, and only done for oversized frames.
    """

    def look(place: int) -> bytes:
        if compression is None:
            with open(path, "rb", buffering=0) as stream:
                stream.seek(place)
                return stream.read(1)
        with ExitStack() as stack:
            window = Window(opened(path, compression, 0, None, stack), 0)
            return bytes(window.view[:1]) if window.skip(place) and window.fill(1) else b""

    return look
