"""The READY messages of a queue: a `Fifo` while that is enough, else a `Backlog`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from operator import attrgetter

from stompcodec.broker.loop_quota import AT_ONCE
from stompcodec.broker.message import Message
from stompcodec.broker.queues.backlog import Backlog, Fifo, Place

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
        """Return the place of a message in the order."""
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
