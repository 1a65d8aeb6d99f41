"""What the name of a destination says: queue or topic, temporary or not, and where its dead letters go."""

from __future__ import annotations

from collections.abc import Sequence

from stompcodec.broker.config.settings import Kind

__all__ = ["Naming"]


class Naming:
    """How names are read. Names are opaque otherwise: "a" and "/queue/a" are two queues.

    Args:
        queue_prefixes: what the names of queues begin with. A name without any prefix is a queue, too.
        topic_prefixes: what the names of topics begin with.
        temp_queue_prefix, temp_topic_prefix: what temporary ones begin with.
        dead_letter: where dead letters go; "{name}" stands for the name of the queue, less its prefix.

    >>> naming = Naming()
    >>> naming.kind("/topic/a"), naming.kind("a"), naming.dead_letter("/queue/a"), naming.dead_letter("a")
    (<Kind.TOPIC: 'topic'>, <Kind.QUEUE: 'queue'>, '/queue/DLQ.a', '/queue/DLQ.a')
    """

    def __init__(
        self,
        queue_prefixes: Sequence[str] = ("/queue/",),
        topic_prefixes: Sequence[str] = ("/topic/",),
        temp_queue_prefix: str = "/temp-queue/",
        temp_topic_prefix: str = "/temp-topic/",
        dead_letter: str = "/queue/DLQ.{name}",
    ) -> None:
        #: Longest first, for one prefix may begin another.
        self._prefixes = sorted(
            [
                *((prefix, Kind.QUEUE) for prefix in queue_prefixes),
                *((prefix, Kind.TOPIC) for prefix in topic_prefixes),
                (temp_queue_prefix, Kind.TEMP_QUEUE),
                (temp_topic_prefix, Kind.TEMP_TOPIC),
            ],
            key=lambda pair: -len(pair[0]),
        )
        self._dead_letter = dead_letter

    def split(self, destination: str) -> tuple[Kind, str, str]:
        """Kind, prefix and name.

        >>> Naming().split("/temp-queue/a")
        (<Kind.TEMP_QUEUE: 'temp-queue'>, '/temp-queue/', 'a')
        """
        for prefix, kind in self._prefixes:
            if destination.startswith(prefix):
                return kind, prefix, destination[len(prefix) :]
        return Kind.QUEUE, "", destination

    def kind(self, destination: str) -> Kind:
        """What it is."""
        return self.split(destination)[0]

    def is_temporary(self, destination: str) -> bool:
        """Whether it belongs to a session.

        >>> Naming().is_temporary("/temp-topic/a")
        True
        """
        return self.kind(destination) in (Kind.TEMP_QUEUE, Kind.TEMP_TOPIC)

    def owned(self, destination: str, session_id: str) -> str:
        """The name for everyone of what a session calls `destination`. Names are told apart by the id in front.

        >>> Naming().owned("/temp-queue/a", "s-1")
        '/temp-queue/s-1-a'
        """
        _kind, prefix, name = self.split(destination)
        return f"{prefix}{session_id}-{name}"

    def of_letters(self, destination: str) -> str | None:
        """Return whose dead letters are in a destination, less the prefix; None if it has another name.

        >>> Naming().of_letters("/queue/DLQ.a"), Naming().of_letters("/queue/a")
        ('a', None)
        """
        before, named, after = self._dead_letter.partition("{name}")
        if not named or not destination.startswith(before) or not destination.endswith(after):
            return None
        return destination[len(before) : len(destination) - len(after)]

    def dead_letter(self, destination: str) -> str:
        """Where the dead letters of a destination go. A dead letter that dies again stays where it is.

        >>> Naming().dead_letter("/queue/DLQ.a")
        '/queue/DLQ.a'
        """
        before, named, after = self._dead_letter.partition("{name}")
        if named and before and destination.startswith(before) and destination.endswith(after):
            return destination
        return self._dead_letter.replace("{name}", self.split(destination)[2])
