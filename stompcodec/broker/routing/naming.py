"""Naming: the kind of a destination, and its dead letter queue, by its name."""

from __future__ import annotations

from collections.abc import Sequence

from stompcodec.broker.config.settings import Kind


class Naming:
    """The prefixes of names. Names are opaque otherwise: "a" and "/queue/a" are two queues.

    A name without any prefix is that of a queue, too. In the name of the dead letter queue, "{name}" stands for the
    name of the queue without its prefix.

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
        #: Longest first, because one prefix may begin with another.
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
        """Return the kind, the prefix and the rest of a name.

        >>> Naming().split("/temp-queue/a")
        (<Kind.TEMP_QUEUE: 'temp-queue'>, '/temp-queue/', 'a')
        """
        for prefix, kind in self._prefixes:
            if destination.startswith(prefix):
                return kind, prefix, destination[len(prefix) :]
        return Kind.QUEUE, "", destination

    def kind(self, destination: str) -> Kind:
        """Return the kind of a destination."""
        return self.split(destination)[0]

    def is_temporary(self, destination: str) -> bool:
        """Return whether a destination belongs to a session.

        >>> Naming().is_temporary("/temp-topic/a")
        True
        """
        return self.kind(destination) in (Kind.TEMP_QUEUE, Kind.TEMP_TOPIC)

    def owned(self, destination: str, session_id: str) -> str:
        """Return the name that a temporary destination of a session has for others, with the session's id in it.

        >>> Naming().owned("/temp-queue/a", "s-1")
        '/temp-queue/s-1-a'
        """
        _kind, prefix, name = self.split(destination)
        return f"{prefix}{session_id}-{name}"

    def of_letters(self, destination: str) -> str | None:
        """Return the queue, without its prefix, whose dead letter queue this is; None for other names.

        >>> Naming().of_letters("/queue/DLQ.a"), Naming().of_letters("/queue/a")
        ('a', None)
        """
        before, named, after = self._dead_letter.partition("{name}")
        if not named or not destination.startswith(before) or not destination.endswith(after):
            return None
        return destination[len(before) : len(destination) - len(after)]

    def dead_letter(self, destination: str) -> str:
        """Return the dead letter queue of a destination. That of a dead letter queue is itself.

        >>> Naming().dead_letter("/queue/DLQ.a")
        '/queue/DLQ.a'
        """
        if self.of_letters(destination) is not None and not self._dead_letter.startswith("{name}"):
            return destination
        return self._dead_letter.replace("{name}", self.split(destination)[2])
