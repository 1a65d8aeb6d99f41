"""Captures and streams for the tests of Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from stompcodec import Frame, parse_columns, serialize
from stompcodec.capture import CaptureWriter

START = 1_700_000_000_000_000
"""When the first frame came, in us."""


def message(number: int, destination: str = "/topic/a", body: bytes | None = None, **headers: str) -> Frame:
    """A frame like those of a broker."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    pairs = {
        "destination": destination,
        "message-id": f"id-{number}",
        "subscription": "0",
        "timestamp": str(START // 1000 + number),
        **named,
    }
    return Frame("MESSAGE", pairs, b'{"n": %d}' % number if body is None else body)


def octets(frames: Iterable[Frame | bytes]) -> bytes:
    """What stands on the wire; bytes stand as they are, malformed or not."""
    return b"".join(frame if isinstance(frame, bytes) else serialize(frame) for frame in frames)


def make_capture(
    path: Path,
    frames: Iterable[Frame | bytes],
    *,
    single: bool | None = None,
    segment_octets: int = 128 * 2**20,
    chain: str = "frames",
    seal: bool = True,
    group: int = 1,
    start: int = START,
) -> Path:
    """A capture of these frames: those of a group came together, each group a second after the one before."""
    writer = CaptureWriter(path, single=single, segment_octets=segment_octets)
    try:
        for number, part in enumerate(groups(frames, group)):
            writer.append(octets(part), start + number * 1_000_000, chain)
        writer.sync()
    finally:
        writer.close(seal=seal)
    return path


def groups(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    part: list[Any] = []
    for item in items:
        part.append(item)
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part


def make_stream(path: Path, frames: Iterable[Frame | bytes]) -> Path:
    """A bare stream."""
    path.write_bytes(octets(frames))
    return path


__all__ = ["START", "groups", "make_capture", "make_stream", "message", "octets", "parse_columns"]
