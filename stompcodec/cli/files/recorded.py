"""Recorded frames with their metadata, and frames from lines of JSON."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any, NamedTuple

from stompcodec import Frame


class Recorded(NamedTuple):
    """A frame with its metadata."""

    frame: Frame
    time: int
    """Time of arrival in µs since 1970, UTC; 0 if unknown."""
    offset: int
    """Its offset, or its number if the format has no offsets."""
    octets: bytes | None = None
    """Its original bytes, if they follow the rules of STOMP 1.2."""
    chain: str = "frames"


def frame_of(line: bytes) -> Frame:
    """Parse a frame from a line of JSON as `decode --json` writes it, or raise ValueError. Other members are ignored.

    >>> frame_of(b'{"command": "SEND", "headers": [["destination", "/queue/a"]], "body_b64": "AAE="}')
    <Frame SEND destination='/queue/a' body=2 bytes b'\\x00\\x01'>
    """
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("not JSON") from None
    if not isinstance(value, dict) or not isinstance(value.get("command"), str):
        raise ValueError('not a JSON object with a "command" key')
    headers = value.get("headers", [])
    try:
        frame = Frame(value["command"], headers)
    except TypeError as error:
        raise ValueError(f'"headers" must be pairs of strings: {error}') from None
    except ValueError:
        raise ValueError('"headers" must be pairs of strings') from None
    return Frame(frame.command, frame.headers.pairs(), _body(value))


def _body(value: dict[str, Any]) -> bytes:
    text, packed = value.get("body"), value.get("body_b64")
    if text is not None and packed is not None:
        raise ValueError('it has both "body" and "body_b64"')
    if not isinstance(text, (str, type(None))) or not isinstance(packed, (str, type(None))):
        raise ValueError('"body" and "body_b64" must be strings')
    try:
        return b64decode(packed, validate=True) if packed is not None else (text or "").encode()
    except ValueError:
        raise ValueError('"body" must be Unicode, "body_b64" base64') from None
