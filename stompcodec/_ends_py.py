"""`frame_ends` in Python: the counterpart of src/stomp_ends.c."""

from __future__ import annotations

import re
from array import array
from typing import Any

from stompcodec.column_filter import checked_every
from stompcodec.spec import Limits, checked_limits

_BEGIN = re.compile(rb"[^\r\n]|\r(?!\n)")
_HEAD_END = re.compile(rb"\n\r?\n|\0")
_LENGTH = re.compile(rb"\ncontent-length:([^\n\0]*)\n")
_NUL = re.compile(rb"\0")


def frame_ends(data: Any, every: int = 1, most: int | None = None, *, limits: Limits | None = None) -> array[int]:
    """Return the offsets at which frames end, found by a light parse that checks little.

    Args:
        data: any contiguous bytes-like object.
        every: the least distance in bytes between two returned ends. The end of the last whole frame is always
            returned.
        most: the largest number of ends to return; None for all.
        limits: only max_body is used: a larger content-length is ignored.

    Returns:
        An array of 64-bit integers, in ascending order.

    Raises:
        TypeError, ValueError: an argument has another type, or is out of range.

    >>> list(frame_ends(b"SEND\\n\\nhi\\0\\nACK\\nid:1\\n\\n\\0SEND\\n"))
    [9, 21]
    """
    every, most = checked_every(every, most)
    max_body = checked_limits(limits).max_body
    view = memoryview(data)
    if not view.c_contiguous:
        raise BufferError("the octets are not contiguous: copy them to bytes first")
    view = view.cast("B")
    ends = array("q")
    last = end = 0
    while len(ends) < most:
        end, before = _frame_end(view, end, max_body), end
        if end < 0:
            if before > last:
                ends.append(before)
            break
        if end - last >= every:
            ends.append(end)
            last = end
    return ends


def _frame_end(view: memoryview, at: int, max_body: int) -> int:
    """Return where the frame at `at`, or after the EOLs there, ends; -1 if its end is not in the view."""
    begin = _BEGIN.search(view, at)
    head = _HEAD_END.search(view, begin.start()) if begin else None
    if not begin or not head:
        return -1
    at = begin.start()
    body = head.end()
    if not view[body - 1]:  # a NUL in the head: malformed
        return body
    length = _length(view, at, body, max_body)
    if length >= 0:
        if body + length >= len(view):
            return -1
        if not view[body + length]:
            return body + length + 1
    nul = _NUL.search(view, body)
    return nul.end() if nul else -1


def _length(view: memoryview, at: int, body: int, max_body: int) -> int:
    """Return the value of the first content-length, or -1 if it is missing, malformed or too large."""
    found = _LENGTH.search(view, at, body)
    digits = found[1].removesuffix(b"\r").strip(b" \t") if found else b""
    if not digits.isdigit():
        return -1
    digits = digits.lstrip(b"0")
    if len(digits) > 19 or int(digits or b"0") > max_body:  # int() is slow on many digits, or refuses
        return -1
    return int(digits or b"0")
