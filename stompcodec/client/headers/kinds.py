"""Queue or topic: the type that the name of a destination means. Artemis has to be told by a header."""

from __future__ import annotations

ANYCAST, MULTICAST = "ANYCAST", "MULTICAST"
#: How names of queues begin, and those of topics.
_QUEUES = ("/queue/", "/temp-queue/", "queue/", "jms.queue.", "queue://", "temp-queue://")
_TOPICS = ("/topic/", "/temp-topic/", "topic/", "jms.topic.", "topic://", "temp-topic://")

#: Temporary ones: an answer finds the address that its requester has made.
TEMPORARY = ("/temp-queue/", "/temp-topic/", "temp-queue://", "temp-topic://")


def type_of(destination: str) -> str | None:
    """Return the type that Artemis is to make of a destination; None if its name does not say.

    >>> [type_of(name) for name in ("/queue/a", "jms.topic.a", "a", "/queue/a::b")]
    ['ANYCAST', 'MULTICAST', None, None]
    """
    if "::" in destination:  # an address with one of its queues, which has a type
        return None
    if destination.startswith(_QUEUES):
        return ANYCAST
    return MULTICAST if destination.startswith(_TOPICS) else None
