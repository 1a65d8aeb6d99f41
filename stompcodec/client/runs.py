"""Runs: whole MESSAGE frames of one subscription as they were received, for a recorder, which needs no frame of its own
for each message.

Invariant: a run holds only what `Inbound` would have delivered, frame by frame, to this subscription. Everything else
is left to the connection: other frames, what is malformed or beyond a limit, large bodies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stompcodec.codec import Frame, frame_ends, parse, parse_columns
from stompcodec.spec import Limits, Where

#: The most bytes of an incomplete frame that are kept here; a larger one is left to the connection.
_LARGEST = 256 * 1024
_EOLS = b"\r\n"


class Run(NamedTuple):
    """Messages that were received together: whole frames, and the last of them, whose ACK settles all."""

    octets: bytes
    messages: int
    last: Frame

    @property
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
        self._where: Where = [
            *(("command", "in", ["MESSAGE"]), ("subscription", "in", [id]), ("ack", "prefix", [""])),
            *(("destination", "prefix", [""]), ("message-id", "prefix", [""])),
        ]

    def take(self, data: bytes, limits: Limits | None) -> tuple[Run | None, bytes]:
        """Take in bytes that begin between two frames, or go on what is held. Return a run, and what is not for it."""
        octets = self.held + data if self.held else bytes(data)
        ends = frame_ends(octets, limits=limits)
        whole = octets[: ends[-1] if ends else 0].lstrip(_EOLS)
        if ends:
            found = parse_columns(whole, "1.2", limits=limits, columns=(), where=self._where)
            is_mine = found.rows == len(ends) and found.consumed == len(whole)
        else:
            is_mine = len(octets) <= _LARGEST and bool(octets.strip(_EOLS))  # heart-beats are not kept
        self.held = octets[ends[-1] if ends else 0 :] if is_mine else b""
        if not is_mine or not ends:
            return None, b"" if is_mine else octets
        last = parse(octets[ends[-2] if len(ends) > 1 else 0 : ends[-1]], "1.2", limits=limits)[0]
        return Run(whole, len(ends), last), b""

    def let_go(self, data: bytes) -> bytes:
        """Return what is held with what follows it, for the connection."""
        held, self.held = self.held, b""
        return held + data if held else data
