"""Runs: whole MESSAGE frames of one subscription as they were received, for a recorder, which needs no frame of its own
for each message.

Invariant: a run holds only what `Inbound` would have delivered, frame by frame, to this subscription. Everything else
is left to the connection: other frames, what is malformed or beyond a limit, large bodies.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from stompcodec.codec import Frame, frame_ends, parse, parse_columns
from stompcodec.spec import Limits, Where
from stompcodec.transport.owner import Octets, read_buffer

#: The most bytes of an incomplete frame that are kept here; a larger one is left to the connection.
_LARGEST = 256 * 1024
_EOLS = re.compile(rb"[\r\n]*")
#: Longer reads are not copied: the runs refer to the buffer, which is free for another read once they are gone.
_LONG, _BUFFER = 256 * 1024, 4608 * 1024
_BUFFERS = 5 if sys.implementation.name == "cpython" else 0  # others may not know who has a view


@dataclass(frozen=True)
class Run:
    """Messages that were received together: whole frames, and the last of them, whose ACK settles all."""

    octets: Octets
    messages: int
    last: Frame

    @cached_property
    def checksum(self) -> int:
        """The CRC-32 of the bytes."""
        return zlib.crc32(self.octets)

    @cached_property
    def redelivered(self) -> int:
        """The number of those that the broker has delivered before."""
        return parse_columns(self.octets, "1.2", columns=(), where=[("redelivered", "in", ["true"])]).rows

    def frames(self) -> Sequence[Frame]:
        """Return the frames."""
        return [self.last] if self.messages == 1 else parse(self.octets, "1.2")

    def divided(self, count: int) -> tuple[Run, Run]:
        """Return the first messages, at least one and not all of them, and the others."""
        *_, start, end = 0, *frame_ends(self.octets)[:count]
        last = parse(self.octets[start:end], "1.2")[0]
        return Run(self.octets[:end], count, last), Run(self.octets[end:], self.messages - count, self.last)


class Runs:
    """What is received for a subscription that takes runs; `held` is the beginning of an incomplete frame."""

    def __init__(self, id: str) -> None:
        self.held = b""
        self._buffers: list[bytearray] = []
        self._buffer: bytearray | None = None  # the last that was read into
        self._where: Where = [
            *(("command", "in", ["MESSAGE"]), ("subscription", "in", [id]), ("ack", "prefix", [""])),
            *(("destination", "prefix", [""]), ("message-id", "prefix", [""])),
        ]

    def take(self, data: Octets, limits: Limits | None) -> tuple[Run | None, Octets]:
        """Take in bytes that begin between two frames, or go on what is held. Return a run, and what is not for it."""
        octets = self._joined(data)
        ends = frame_ends(octets, limits=limits)
        start, end = _EOLS.match(octets).end(), ends[-1] if ends else 0  # type: ignore[union-attr]  # always matches
        is_mine = start < len(octets) <= _LARGEST  # heart-beats are not kept
        if ends:
            found = parse_columns(octets[start:end], "1.2", limits=limits, columns=(), where=self._where)
            is_mine = found.rows == len(ends) and found.consumed == end - start
        self.held = bytes(octets[end:]) if is_mine else b""
        if not is_mine or not ends:
            return None, b"" if is_mine else octets
        last = parse(octets[ends[-2] if len(ends) > 1 else 0 : end], "1.2", limits=limits)[0]
        return Run(octets[start:end], len(ends), last), b""

    def room(self) -> memoryview:
        """Return where to read to: behind what is held, in a buffer that no view refers to any more, if any."""
        self._buffer = None
        for buffer in self._buffers:
            try:
                buffer.append(0)  # fails while somebody has a view
            except BufferError:
                continue
            buffer.pop()
            break
        else:
            if len(self._buffers) == _BUFFERS:
                return read_buffer()
            buffer = bytearray(_BUFFER)
            self._buffers.append(buffer)
        self._buffer, size = buffer, len(self.held)
        buffer[:size] = self.held
        return memoryview(buffer)[size:]

    def _joined(self, data: Octets) -> Octets:
        """Return what is held with what follows it: where that was read to if it is long, else a copy."""
        size = len(self.held) + len(data)
        if size >= _LONG and self._buffer is not None and type(data) is memoryview and data.obj is self._buffer:
            return memoryview(self._buffer)[:size]
        return self.held + data if self.held else bytes(data)

    def let_go(self, data: Octets) -> Octets:
        """Return what is held with what follows it, for the connection."""
        held, self.held = self.held, b""
        return held + data if held else data
