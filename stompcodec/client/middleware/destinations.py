"""The destinations that become labels of metrics."""

from __future__ import annotations


class Destinations:
    """A bounded set of destinations, so that metrics stay bounded: the first ones get a label, all others share one.

    Args:
        most: the number of those with a label.

    >>> destinations = Destinations(1)
    >>> [destinations.label(name) for name in ("/queue/a", "/queue/b", "/queue/a")]
    ['/queue/a', '_other', '/queue/a']
    """

    OTHER = "_other"

    def __init__(self, most: int) -> None:
        if most < 0:
            raise ValueError(f"destinations is {most}: it must be 0 or more")
        self._most = most
        self._known: set[str] = set()

    def label(self, destination: str) -> str:
        """Return the destination, or `_other`. Temporary ones are always `_other`."""
        known = self._known
        if destination in known:
            return destination
        if len(known) >= self._most or is_temporary(destination):
            return self.OTHER
        known.add(destination)
        return destination


#: What the names of temporary destinations begin with, by broker: most, RabbitMQ, ActiveMQ.
_TEMPORARY = ("/temp-queue/", "/temp-topic/", "/reply-queue/", "/remote-temp-queue/", "/remote-temp-topic/")


def is_temporary(destination: str) -> bool:
    """Return whether a destination is a temporary one, whose name is made up by the broker or is used once.

    >>> is_temporary("/temp-queue/replies"), is_temporary("/queue/a")
    (True, False)
    """
    return destination.startswith(_TEMPORARY)
