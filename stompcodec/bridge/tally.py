"""Counts of what a bridge has done."""

from __future__ import annotations

from typing import Any

#: Destinations that are counted one by one.
_MOST = 1000
#: Counts those beyond that.
OTHERS = "_other"


class Tally:
    """Counts of a bridge's work so far.

    >>> tally = Tally()
    >>> tally.carry("/queue/a", 5)
    >>> tally.counts()["carried"], tally.counts()["destinations"]
    (1, {'/queue/a': 1})
    """

    def __init__(self) -> None:
        self.carried = 0
        """Messages that the target has confirmed."""
        self.octets = 0
        """The bytes of their bodies."""
        self.refused = 0
        """Messages that went to the dead letters of the source."""
        self.looped = 0
        """Copies that were not carried because of a loop: they came from the target."""
        self.again = 0
        """Messages that the source delivered again after they were carried; they were acknowledged at once."""
        self.resent = 0
        """Messages that were sent again after a lost connection."""
        self.left: int | None = None
        """Messages that are still at our broker after `Request.drain`: delayed, or held by others. None: not asked."""
        self.destinations: dict[str, int] = {}
        """Carried messages by destination of the source; `_other` for those beyond a thousand."""

    def carry(self, destination: str, octets: int) -> None:
        """Count a message that the target has."""
        self.carried += 1
        self.octets += octets
        by = self.destinations
        if destination not in by and len(by) >= _MOST:
            destination = OTHERS
        by[destination] = by.get(destination, 0) + 1

    def counts(self) -> dict[str, Any]:
        """Return all counts by name."""
        return {
            "carried": self.carried,
            "bytes": self.octets,
            "refused": self.refused,
            "looped": self.looped,
            "again": self.again,
            "resent": self.resent,
            "left": self.left,
            "destinations": dict(self.destinations),
        }
