"""What a proxy has counted, for its last lines."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from stompcodec.cli.proxying.observer import DIRECTIONS, Direction


def _zero() -> dict[Direction, int]:
    return dict.fromkeys(DIRECTIONS, 0)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "frame"), counted(1200, "byte")
    ('1 frame', '1,200 bytes')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


@dataclass
class Tally:
    """The counts of a run.

    >>> Tally(connections=1).lines()[0]
    '1 connection; from clients 0 frames, 0 bytes; from the broker 0 frames, 0 bytes'
    """

    connections: int = 0
    """Accepted connections."""
    refused: int = 0
    """Those that did not reach the target."""
    frames: dict[Direction, int] = field(default_factory=_zero)
    octets: dict[Direction, int] = field(default_factory=_zero)
    """Bytes that were read."""
    heart_beats: dict[Direction, int] = field(default_factory=_zero)
    foreign: dict[Direction, int] = field(default_factory=_zero)
    """Bytes that are not STOMP."""
    rules: Counter[str] = field(default_factory=Counter)
    """Findings by rule."""
    faults: Counter[str] = field(default_factory=Counter)
    """Injected faults by their text."""
    not_shown: int = 0
    """Frames that were not shown, since the output was slower than the stream."""
    not_checked: int = 0
    """Those of them that were not checked either."""
    not_recorded: int = 0
    recorded: int = 0

    def lines(self) -> list[str]:
        """Return the counts as lines for people."""
        sides = [
            f"from {'clients' if side == 'client' else 'the broker'} {counted(self.frames[side], 'frame')}, "
            f"{counted(self.octets[side], 'byte')}"
            + (f" ({self.foreign[side]:,} of them not STOMP)" if self.foreign[side] else "")
            for side in DIRECTIONS
        ]
        refused = f" ({self.refused:,} did not reach the target)" if self.refused else ""
        lines = ["; ".join([counted(self.connections, "connection") + refused, *sides])]
        if self.rules:
            lines.append("lint: " + ", ".join(f"{rule} {count:,}" for rule, count in sorted(self.rules.items())))
        if self.faults:
            lines.append("faults: " + ", ".join(f"{text} {count:,}" for text, count in sorted(self.faults.items())))
        if self.recorded or self.not_recorded:
            lines.append(f"recorded {counted(self.recorded, 'frame')}")
        if self.not_recorded:
            lines[-1] += f"; {self.not_recorded:,} not recorded"
        if self.not_shown:
            unchecked = f", {self.not_checked:,} of them not checked" if self.not_checked else ""
            lines.append(f"{counted(self.not_shown, 'frame')} not shown, since the output was slower{unchecked}")
        return lines

    def json(self) -> dict[str, Any]:
        """Return the counts for programs."""
        return {
            "event": "summary",
            **{name: getattr(self, name) for name in ("connections", "refused", "frames")},
            "bytes": self.octets,
            "not_stomp": self.foreign,
            "heart_beats": self.heart_beats,
            "lint": dict(self.rules),
            "faults": dict(self.faults),
            **{name: getattr(self, name) for name in ("recorded", "not_recorded", "not_shown", "not_checked")},
        }
