"""Heart-beats in CONNECTED: how the broker of each dialect answers those that a client offers in CONNECT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from stompcodec.broker.config.config import Config
from stompcodec.broker.errors import Refused
from stompcodec.heartbeat import parse_heart_beat


class Mirror(NamedTuple):
    """An answer derived from the client's own intervals, in milliseconds."""

    unit: int
    """Intervals are rounded down to a multiple of this."""
    most: int | None
    """Larger intervals are refused; None for no limit."""


#: Answers by the value of `sessions.heart_beat_answer`. None sends `sessions.heart_beat`, whatever the client offers.
ANSWERS: Mapping[str, Mirror | None] = {
    "own": None,
    "mirror": Mirror(unit=1, most=2**63 - 1),
    "seconds": Mirror(unit=1000, most=None),
}


def answer(config: Config, version: str, heart_beat: str | None) -> tuple[int, int] | None:
    """Return the heart-beat header of CONNECTED, in ms, or None to send `sessions.heart_beat`.

    Mirrored intervals are at least those of `sessions.heart_beat`, except that 0 on either side stays 0. Raise Refused
    if an interval is longer than brokers of this dialect accept.

    >>> from stompcodec.broker.config.config import Config
    >>> answer(Config(heart_beat_answer="seconds", heart_beat=(1000, 1000)), "1.2", "200,2500")
    (2000, 1000)
    """
    mirror = ANSWERS[config.heart_beat_answer]
    if mirror is None or version not in ("1.1", "1.2"):
        return None
    sends, wants = (0, 0) if heart_beat is None else parse_heart_beat(heart_beat)
    if mirror.most is not None and max(sends, wants) > mirror.most:
        raise Refused("bad heart-beat", f"An interval has at most {mirror.most} milliseconds.")
    can_send, wishes = config.heart_beat
    return _met(wants, can_send, mirror.unit), _met(sends, wishes, mirror.unit)


def _met(asked: int, least: int, unit: int) -> int:
    return max(asked // unit * unit, least) if asked and least else 0
