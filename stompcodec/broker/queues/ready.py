"""READY messages of a queue, their counts, and what bounds them.

A queue's messages are bounded by its `Bound`; its `Window` says how many of them are in memory (see `paging.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from math import inf
from operator import attrgetter

from stompcodec.broker.config import Config
from stompcodec.broker.loop_quota import AT_ONCE
from stompcodec.broker.memory import LOW
from stompcodec.broker.message import Message
from stompcodec.broker.queues.backlog import Backlog, Fifo, Place

#: The most messages of a queue in memory, unless the configuration says how many it may hold in all.
_MOST_MESSAGES = 1_000_000
#: The bytes of a queue that are in memory, unless the configuration says it; and their part of `limits.memory`.
_WINDOW, _WINDOW_PART = 4 * 2**20, 16


class Tally:
    """The counts of one queue. Deliveries that are acknowledged are not among them while their consumer lives: those
    are `Consumer.last`, which is counted anyway.

    >>> tally = Tally()
    >>> tally.put += 1
    >>> tally.put, tally.sent
    (1, 0)
    """

    __slots__ = ("dead", "dropped", "ended", "expired", "put", "redelivered", "sent")

    def __init__(self) -> None:
        #: Messages that came.
        self.put = 0
        #: Deliveries in auto mode.
        self.sent = 0
        #: Deliveries of consumers that have ended.
        self.ended = 0
        self.redelivered = self.expired = self.dropped = 0
        #: Messages that became dead letters.
        self.dead = 0


class Window:
    """The most READY messages of a queue in memory, and about how many bytes. Later ones are in the store only; if it
    `spools`, those that are not persistent, too.
    """

    __slots__ = ("messages", "octets", "spools")

    def __init__(self, messages: int, octets: int, spools: bool = False) -> None:
        self.messages, self.octets, self.spools = messages, octets, spools

    @classmethod
    def of(cls, config: Config) -> Window:
        octets = config.window_octets or min(_WINDOW, config.memory // _WINDOW_PART)
        return cls(config.window_messages, octets, config.transient == "spool")


class Bound:
    """The most messages, READY and UNACKED, that a queue may hold in memory, and their bytes.

    `total` bounds them together with those that are in the store only.

    >>> Bound(10, 100).octets
    100
    """

    __slots__ = ("messages", "octets", "total")

    def __init__(self, messages: int, octets: int, total: float = inf) -> None:
        self.messages, self.octets, self.total = messages, octets, total

    @classmethod
    def of(cls, config: Config) -> Bound:
        most = config.max_queue_messages
        return cls(most or _MOST_MESSAGES, config.max_queue_octets, most or inf)

    def is_low(self, messages: int, octets: int) -> bool:
        """Return whether there is room for more than one message.

        >>> Bound(8, 100).is_low(6, 75), Bound(8, 100).is_low(7, 0)
        (True, False)
        """
        return messages <= self.messages * LOW and octets <= self.octets * LOW


#: In a `Fifo` of at most this many messages, those in the middle are searched one by one.
_SHORT = 10_000
#: A `Backlog` of more messages stays one until it is empty: to copy them takes time.
_FEW = 10_000
#: The rank of the default priority, which all messages of a `Fifo` have if priorities count.
_USUAL = 5
#: Shared by all queues in which no message was ever READY: a deque takes 600 bytes.
#: Invariant: it is empty.
NO_LINE = Fifo((), 0)


class ReadyMessages:
    """The READY messages of one queue, in the order in which they are delivered: if `ranked`, those of higher priority
    first.
    """

    __slots__ = ("_late", "_ranked", "line")

    def __init__(self, ranked: bool) -> None:
        self._ranked = ranked
        self.line: Fifo | Backlog = NO_LINE
        #: From this seq on, a `Fifo` may be out of order; None if it is in order.
        self._late: int | None = None

    def __len__(self) -> int:
        return len(self.line)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.line)

    # ---- ranks: places of priorities in the order; without `ranked` all have the same ----
    def rank(self, message: Message) -> int:
        """Return the rank of a message: 0 for the highest priority."""
        return 9 - message.priority if self._ranked else 0

    def place(self, message: Message) -> Place:
        return self.rank(message), message.seq

    def priority(self, rank: int) -> int | None:
        """Return the priority of a rank; None if priorities do not count."""
        return 9 - rank if self._ranked else None

    def ranks(self, priorities: Iterable[int]) -> set[int]:
        """Return the ranks of these priorities and of the default one."""
        return {9 - priority for priority in (4, *priorities)} if self._ranked else {0}

    def count(self, rank: int, upto: int | None = None) -> int:
        """Return the number of messages of a rank, with seqs up to `upto` if that is given."""
        line = self.line
        if isinstance(line, Backlog):
            return line.count_of(rank, upto)
        if self._ranked and rank != _USUAL:
            return 0
        if upto is None or not line or line[-1].seq <= upto:
            return len(line)
        return bisect_right(line, upto, key=attrgetter("seq"))

    def last(self, rank: int) -> int:
        """Return the highest seq of a rank; -1 without messages of that rank."""
        line = self.line
        if isinstance(line, Backlog):
            return line.last_of(rank)
        if self._ranked and rank != _USUAL:
            return -1
        return line[-1].seq if line else -1

    # ---- in ----
    def _own(self) -> Fifo | Backlog:
        if self.line is NO_LINE:
            self.line = Fifo()
        return self.line

    def _rank(self) -> None:
        """Prepare for messages of several priorities, whose order differs from that of their seqs."""
        if self._ranked:
            self.indexed()

    def append(self, message: Message) -> None:
        """Add a message at the end, or in the order of priorities."""
        if message.priority != 4:
            self._rank()
        self._own().append(message)

    def extend(self, messages: list[Message]) -> bool:
        """Add messages of the default priority at the end. Return False, having done nothing, if that is not enough."""
        line = self._own()
        if not isinstance(line, Fifo):
            return False
        line.extend(messages)
        return True

    def put_back(self, messages: list[Message]) -> None:
        """Put messages back into their old places, most of which are near the front."""
        if any(message.priority != 4 for message in messages):
            self._rank()
        line, latest = self._own(), max(message.seq for message in messages)
        if isinstance(line, Fifo) and len(line) > AT_ONCE and line[AT_ONCE].seq < latest:
            line = self.indexed()
        line.put_back(messages)

    def add_late(self, seq: int) -> None:
        """Note that the message with this seq was put behind later ones."""
        self._late = seq if self._late is None else min(seq, self._late)

    # ---- order ----
    def indexed(self) -> Backlog:
        """Return the messages as a `Backlog`, which finds messages in the middle quickly."""
        line = self.line
        if isinstance(line, Fifo):
            self.sort()
            line = self.line = Backlog(line, self._ranked)
        return line

    def simplify(self) -> None:
        """Return to a `Fifo` if the messages are few and all have the default priority."""
        line = self.line
        if isinstance(line, Fifo) or len(line) > _FEW:
            return
        if not self._ranked or all(message.priority == 4 for message in line):
            self.line = Fifo(line)

    def sort(self) -> None:
        """Move the messages that were added late to their places."""
        if self._late is not None and isinstance(self.line, Fifo):
            self.line.sort_from(self._late)
        self._late = None

    @property
    def is_disordered(self) -> bool:
        """The last message belongs before the one in front of it."""
        line = self.line
        return isinstance(line, Fifo) and len(line) > 1 and line[-1].seq < line[-2].seq

    # ---- out ----
    def take_seqs(self, seqs: set[int]) -> list[Message]:
        """Remove and return the messages that have these seqs."""
        line = self.line
        if isinstance(line, Backlog):
            return line.take_seqs(seqs)
        taken = line.take_first(seqs)
        left = len(seqs) - len(taken)
        if left and len(line) > _SHORT:
            taken += self.indexed().take_seqs(seqs.difference([message.seq for message in taken]))
        elif left:
            taken += line.take_out(lambda message: message.seq in seqs)
        return taken

    def take_last(self, seqs: set[int]) -> list[Message]:
        """Remove and return the messages that have these seqs, which are near the end."""
        self.sort()
        return self.line.take_last(seqs)
