"""Plain WebSocket frames in Python: the counterpart of src/websocket.c."""

from __future__ import annotations

from typing import Any

_TEXT, _BINARY = 0x81, 0x82  # whole messages: a fragment has other first bytes
_MASKED = 0x80
_SHORT, _TWO, _EIGHT = 125, 126, 127


def read_websocket(
    data: Any, at: int = 0, *, masked: bool, utf8: bool, longest: int, most: int
) -> tuple[bytes, int, int]:
    """Read the plain WebSocket frames at `at`: whole ones of text or binary, in one fragment.

    Reading stops before the first frame that is not plain, too large or incomplete, and leaves it to a library.

    Args:
        data: any contiguous bytes-like object.
        at: where the first frame begins.
        masked: whether frames must have masks (those of clients), or must not.
        utf8: whether reading also stops before text that is not UTF-8.
        longest: the largest payload in bytes.
        most: the largest number of frames to read.

    Returns:
        All payloads joined, where the next frame begins, and the number of frames.

    Raises:
        ValueError: `at` is outside of the data, or a number is negative.

    >>> read_websocket(b"\\x81\\x02hi\\x82\\x01!\\x89\\x00", masked=False, utf8=True, longest=100, most=100)
    (b'hi!', 7, 2)
    """
    if longest < 0 or most < 0:
        raise ValueError("longest and most must not be negative")
    view = memoryview(data).cast("B")
    if not 0 <= at <= len(view):
        raise ValueError(f"at is {at}: it must be within the data")
    payloads: list[bytes] = []
    while len(payloads) < most:
        start, size = _head(view, at, masked)
        if not start or size > longest or size > len(view) - start:
            break
        payload = bytes(view[start : start + size])
        if masked:
            payload = _masked(payload, bytes(view[start - 4 : start]))
        if utf8 and view[at] == _TEXT and not is_text(payload):
            break
        payloads.append(payload)
        at = start + size
    return b"".join(payloads), at, len(payloads)


def _head(view: memoryview, at: int, masked: bool) -> tuple[int, int]:
    """Return where the payload of the plain frame at `at` begins, and its size; (0, 0) if there is no such frame."""
    head = view[at : at + 10].tobytes()
    if len(head) < 2 or head[0] not in (_TEXT, _BINARY) or (head[1] >= _MASKED) != masked:
        return 0, 0
    size, digits = head[1] & 127, 0
    if size > _SHORT:
        digits = 2 if size == _TWO else 8
        size = int.from_bytes(head[2 : 2 + digits], "big")
    start = at + 2 + digits + (4 if masked else 0)
    return (start, size) if start <= len(view) else (0, 0)


def _masked(payload: bytes, mask: bytes) -> bytes:
    """Apply a mask, or take it off."""
    size = len(payload)
    key = int.from_bytes(mask * (size // 4 + 1), "little") & ((1 << 8 * size) - 1)
    return (int.from_bytes(payload, "little") ^ key).to_bytes(size, "little")


def is_text(data: bytes) -> bool:
    """Return whether bytes are UTF-8, and so can be a text message."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def write_websocket(chunks: list[bytes], masks: bytes = b"") -> bytes:
    """Return chunks as WebSocket frames, joined: each is a message of its own, text if it is UTF-8, else binary.

    Args:
        chunks: bytes; empty ones are left out.
        masks: 4 random bytes for each chunk, as clients need them; empty for frames without masks.

    Raises:
        TypeError: an argument has another type.
        ValueError: the masks are not 4 bytes for each chunk.

    >>> write_websocket([b"hi", b"", b"\\xff"])
    b'\\x81\\x02hi\\x82\\x01\\xff'
    """
    if masks and len(masks) != 4 * len(chunks):
        raise ValueError(f"{len(masks)} bytes of masks for {len(chunks)} chunks: 4 bytes each are needed")
    written: list[bytes] = []
    for number, chunk in enumerate(chunks):
        if not isinstance(chunk, bytes):
            raise TypeError("chunks must be bytes")
        if not chunk:
            continue
        mask = masks[4 * number : 4 * number + 4]
        written += (_head_of(chunk, bool(mask)), mask, _masked(chunk, mask) if mask else chunk)
    return b"".join(written)


def _head_of(chunk: bytes, masked: bool) -> bytes:
    """Return the head of a chunk's frame, without its mask."""
    size, bit = len(chunk), _MASKED if masked else 0
    first = _TEXT if is_text(chunk) else _BINARY
    if size <= _SHORT:
        return bytes((first, bit | size))
    digits, code = (2, _TWO) if size < 1 << 16 else (8, _EIGHT)
    return bytes((first, bit | code)) + size.to_bytes(digits, "big")
