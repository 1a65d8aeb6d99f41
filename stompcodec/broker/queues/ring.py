"""Ring: the consumers of a selective queue that can take a message, in the order in which they are asked."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterator

from stompcodec.broker.queues.consumer import Consumer


class Ring:
    """Consumers by priority, highest first; those of one priority in the order in which they were added.

    Adding, removing and moving one takes constant time.

    >>> ring = Ring()
    >>> len(ring), ring.first is None
    (0, True)
    """

    __slots__ = ("_count", "_ranks", "_turns")

    def __init__(self) -> None:
        #: The consumers of each rank, which is the negative priority.
        self._turns: dict[int, OrderedDict[Consumer, None]] = {}
        #: The ranks, rising.
        self._ranks: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Consumer]:
        """Iterate over the consumers. The ring must not change meanwhile."""
        for rank in self._ranks:
            yield from self._turns[rank]

    @property
    def first(self) -> Consumer | None:
        """The first consumer of the highest priority; None in an empty ring."""
        return next(iter(self._turns[self._ranks[0]])) if self._ranks else None

    def add(self, consumer: Consumer) -> None:
        """Add a consumer behind the others of its priority."""
        rank = -consumer.request.priority
        turn = self._turns.get(rank)
        if turn is None:
            turn = self._turns[rank] = OrderedDict()
            insort(self._ranks, rank)
        turn[consumer] = None
        self._count += 1

    def remove(self, consumer: Consumer) -> None:
        """Remove a consumer."""
        rank = -consumer.request.priority
        turn = self._turns[rank]
        del turn[consumer]
        self._count -= 1
        if not turn:
            del self._turns[rank], self._ranks[bisect_left(self._ranks, rank)]

    def move(self, consumer: Consumer) -> None:
        """Move a consumer behind the others of its priority."""
        self._turns[-consumer.request.priority].move_to_end(consumer)
