"""Fifo and Backlog: READY messages in order, in a plain line, or by priority with quick access to the middle.

A queue begins with a `Fifo`. It changes to a `Backlog` with the first message of another priority than the default, the
first selective consumer, or the first browser. Both put requeued messages back into their old places. The change takes
constant time: the `Fifo` becomes the end of a level, which is cut into blocks from the front as far as lookups need it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, repeat

from stompcodec.broker.message import Message

#: The place of a message in the order: its rank, then its seq.
Place = tuple[int, int]


class Wait:
    """A sign that the next message must be read from the store first."""


#: The only one.
WAIT = Wait()
#: Before all messages.
START: Place = (-1, -1)


@dataclass(slots=True)
class Looked:
    """The progress of a consumer outside the ring: how many messages it has looked at, and the last one's place."""

    count: int = 0
    place: Place = START


#: Messages in a new block. A block of twice as many is split.
_BLOCK = 512
#: How far from its end a line is searched for a place before it is cut.
_NEAR = 64


class Fifo(deque[Message]):
    """Messages in the order of their seqs, oldest first.

    >>> from stompcodec.broker.storage.store import Stored
    >>> line = Fifo(Message(b"", seq, "/queue/a", b"\\n\\0") for seq in (3, 4))
    >>> line.put_back([Message(b"", 2, "/queue/a", b"\\n\\0")])
    >>> [message.seq for message in line]
    [2, 3, 4]
    """

    __slots__ = ()

    def put_back(self, messages: Iterable[Message]) -> None:
        """Put messages back into their places, most of which are in front because they were delivered before."""
        back = list(messages)
        latest = max((message.seq for message in back), default=-1)
        while self and self[0].seq < latest:  # requeued before
            back.append(self.popleft())
        back.sort(key=_seq)
        self.extendleft(reversed(back))

    def take_out(self, condition: Callable[[Message], bool]) -> list[Message]:
        """Remove the messages that fulfil a condition, and return them in order."""
        gone = [message for message in self if condition(message)]
        if gone:
            kept = [message for message in self if not condition(message)]
            self.clear()
            self.extend(kept)
        return gone

    def take_first(self, seqs: set[int]) -> list[Message]:
        """Remove the messages in front that have these seqs, and return them in order."""
        gone = []
        while self and self[0].seq in seqs:
            gone.append(self.popleft())
        return gone

    def take_last(self, seqs: set[int]) -> list[Message]:
        """Remove the messages with these seqs, and return them in any order. It looks at all behind the first."""
        first = min(seqs, default=0)
        gone: list[Message] = []
        kept: list[Message] = []
        while self and self[-1].seq >= first:
            message = self.pop()
            (gone if message.seq in seqs else kept).append(message)
        self.extend(reversed(kept))
        return gone

    def sort_from(self, seq: int) -> None:
        """Sort the messages from a seq on, which were added out of order."""
        out = []
        while self and self[-1].seq >= seq:
            out.append(self.pop())
        out.sort(key=_seq)
        self.extend(out)


class _Level:
    """Messages of one priority in order: blocks that can be searched, and a line of later ones to take over."""

    __slots__ = ("_blocks", "_ends", "_seqs", "last", "line")

    def __init__(self, line: Fifo) -> None:
        #: Invariant: in order, and its seqs are above those of the blocks.
        self.line = line
        #: The highest seq that was ever added.
        self.last = line[-1].seq if line else -1
        self._blocks: list[list[Message]] = []
        #: The seqs of each block; [] until they are needed.
        self._seqs: list[list[int]] = []
        #: Invariant: the last seq of each block. No block is empty.
        self._ends: list[int] = []

    def __iter__(self) -> Iterator[Message]:
        return chain(chain.from_iterable(self._blocks), self.line)

    def __len__(self) -> int:
        return sum(map(len, self._blocks)) + len(self.line)

    def _read(self, index: int) -> list[int]:
        seqs = self._seqs[index]
        if not seqs:
            seqs = self._seqs[index] = [message.seq for message in self._blocks[index]]
        return seqs

    def _cut(self, seq: int) -> None:
        """Move messages from the line into blocks, up to a seq."""
        line = self.line
        take = line.popleft
        while line and line[0].seq <= seq:
            block = [take() for _ in repeat(None, min(_BLOCK, len(line)))]
            self._blocks.append(block)
            self._seqs.append([])
            self._ends.append(block[-1].seq)

    # ---- in ----
    def insert(self, message: Message) -> bool:
        """Put a message in its place, which is not the end. Return False if it replaced one with the same seq."""
        seq, line = message.seq, self.line
        if line:
            first = line[0].seq
            if seq < first:
                if not self._ends:
                    line.appendleft(message)
                    return True
            else:
                for back, other in enumerate(islice(reversed(line), _NEAR)):
                    if other.seq == seq:
                        line[-1 - back] = message
                        return False
                    if other.seq < seq:
                        line.insert(len(line) - back, message)
                        return True
                self._cut(seq)
        elif not self._ends or seq > self._ends[-1]:
            line.append(message)
            return True
        return self._insert_in_block(message)

    def _insert_in_block(self, message: Message) -> bool:
        seq, ends = message.seq, self._ends
        index = min(bisect_left(ends, seq), len(ends) - 1)
        block, seqs = self._blocks[index], self._read(index)
        place = bisect_left(seqs, seq)
        if place < len(seqs) and seqs[place] == seq:
            block[place] = message
            return False
        block.insert(place, message)
        seqs.insert(place, seq)
        ends[index] = seqs[-1]
        if len(block) >= 2 * _BLOCK:
            self._blocks[index : index + 1] = [block[:_BLOCK], block[_BLOCK:]]
            self._seqs[index : index + 1] = [seqs[:_BLOCK], seqs[_BLOCK:]]
            ends.insert(index, seqs[_BLOCK - 1])
        return True

    # ---- out ----
    def remove(self, seq: int) -> Message | None:
        """Remove and return the message with a seq; None if it is not there."""
        line = self.line
        if line and line[0].seq <= seq:
            if line[0].seq == seq:
                return line.popleft()
            if line[-1].seq == seq:
                return line.pop()
            if line[-1].seq < seq:
                return None
            self._cut(seq)
        index, place = self._find(seq)
        return None if place < 0 else self._remove(index, place)

    def _find(self, seq: int) -> tuple[int, int]:
        """Return the index of the block for a seq, and that in the block; -1 if the seq is not there."""
        index = bisect_left(self._ends, seq)
        if index < len(self._ends):
            seqs = self._read(index)
            place = bisect_left(seqs, seq)
            if seqs[place] == seq:
                return index, place
        return index, -1

    def _remove(self, index: int, place: int) -> Message:
        block, seqs = self._blocks[index], self._seqs[index]
        message = block.pop(place)
        if not block:
            del self._blocks[index], self._seqs[index], self._ends[index]
            return message
        if seqs:
            del seqs[place]
        if place == len(block):
            self._ends[index] = block[-1].seq
        return message

    def popleft(self) -> Message | None:
        """Remove and return the first message; None if the level is empty."""
        if self._ends:
            return self._remove(0, 0)
        return self.line.popleft() if self.line else None

    # ---- look ----
    def at(self, seq: int) -> Message | None:
        """Return the message with a seq; None if it is not there."""
        line = self.line
        if line and line[0].seq <= seq:
            if line[0].seq == seq:
                return line[0]
            if line[-1].seq < seq:
                return None
            self._cut(seq)
        index, place = self._find(seq)
        return None if place < 0 else self._blocks[index][place]

    def after(self, seq: int) -> Message | None:
        """Return the first message with a higher seq; None after the last."""
        ends, line = self._ends, self.line
        if not ends or seq >= ends[-1]:
            if not line or line[-1].seq <= seq:
                return None
            if line[0].seq > seq:
                return line[0]
            self._cut(seq)
            if seq >= ends[-1]:
                return line[0]
        index = bisect_right(ends, seq)
        return self._blocks[index][bisect_right(self._read(index), seq)]

    def count(self, last: int) -> int:
        """Return how many messages have seqs up to `last`."""
        if self.line and self.line[0].seq <= last:
            if self.line[-1].seq <= last:
                return sum(map(len, self._blocks)) + len(self.line)
            self._cut(last)
        index = bisect_right(self._ends, last)
        count = sum(map(len, self._blocks[:index]))
        return count if index == len(self._ends) else count + bisect_right(self._read(index), last)

    @property
    def highest(self) -> int | None:
        """The highest seq; None if the level is empty."""
        if self.line:
            return self.line[-1].seq
        return self._ends[-1] if self._ends else None


class Backlog:
    """Messages by priority, highest first, then oldest first. Those in the middle are found and removed quickly.

    A `Fifo` in order is taken over; if priorities count (`ranked`), all in it have priority 4. Without them, the order
    is that of a `Fifo`.

    >>> line = Backlog([Message(b"", seq, "/queue/a", b"\\n\\0", priority=seq % 2) for seq in (1, 2, 3)])
    >>> [message.seq for message in line], line.after(START).seq, line.after_seq(1).seq
    ([1, 3, 2], 1, 2)
    """

    __slots__ = ("_count", "_levels", "ranked")

    def __init__(self, messages: Iterable[Message] = (), ranked: bool = True) -> None:
        self.ranked = ranked
        #: The levels by ascending rank: rank 0 is priority 9.
        self._levels: dict[int, _Level] = {}
        self._count = 0
        if not isinstance(messages, Fifo):
            self.put_back(messages)
        elif messages:  # an empty one may be shared by all queues
            self._levels[self.place(messages[0])[0]] = _Level(messages)
            self._count = len(messages)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Message]:
        """Iterate in order. The backlog must not change meanwhile."""
        return chain.from_iterable(self._levels.values())

    def __getitem__(self, index: int) -> Message:
        """Return the first message. Other indexes raise IndexError: a queue needs only this one."""
        message = self.after(START)
        if index != 0 or message is None:
            raise IndexError(index)
        return message

    def place(self, message: Message) -> Place:
        """Return the place of a message, whether it is here or not."""
        return (9 - message.priority if self.ranked else 0), message.seq

    # ---- in ----
    def append(self, message: Message) -> None:
        rank = 9 - message.priority if self.ranked else 0
        level = self._levels.get(rank)
        if level is None:
            self._levels[rank] = level = _Level(Fifo())
            self._levels = dict(sorted(self._levels.items()))
        if message.seq > level.last:
            level.last = message.seq
            level.line.append(message)
            self._count += 1
        else:
            self._count += level.insert(message)

    appendleft = append

    def put_back(self, messages: Iterable[Message]) -> None:
        """Put messages into their places. Most belong in front, so they are added from the last to the first."""
        earlier = []
        for message in sorted(messages, key=_seq):
            level = self._levels.get(self.place(message)[0])
            if level is None or message.seq > level.last:
                self.append(message)
            else:
                earlier.append(message)
        for message in reversed(earlier):
            self.append(message)

    # ---- out ----
    def popleft(self) -> Message:
        for level in self._levels.values():
            message = level.popleft()
            if message is not None:
                self._count -= 1
                return message
        raise IndexError(0)

    def remove(self, message: Message) -> Message | None:
        """Remove and return the message that has the place of this one; None if none has."""
        level = self._levels.get(self.place(message)[0])
        gone = None if level is None else level.remove(message.seq)
        if gone is not None:
            self._count -= 1
        return gone

    def take_out(self, condition: Callable[[Message], bool]) -> list[Message]:
        """Remove the messages that fulfil a condition, and return them in order."""
        gone = [message for message in self if condition(message)]
        for message in gone:
            self.remove(message)
        return gone

    def take_seqs(self, seqs: set[int]) -> list[Message]:
        gone = [message for level in self._levels.values() for seq in sorted(seqs) if (message := level.remove(seq))]
        self._count -= len(gone)
        return gone

    take_last = take_seqs

    # ---- look ----
    def after(self, place: Place) -> Message | None:
        """Return the first message behind a place; None after the last."""
        for rank, level in self._levels.items():
            if rank < place[0]:
                continue
            message = level.after(place[1] if rank == place[0] else -1)
            if message is not None:
                return message
        return None

    def at(self, place: Place) -> Message | None:
        """Return the message at a place; None if it is not there."""
        level = self._levels.get(place[0])
        return None if level is None else level.at(place[1])

    def count_of(self, rank: int, upto: int | None = None) -> int:
        """Return the number of messages of a rank, with seqs up to `upto` if that is given."""
        level = self._levels.get(rank)
        return 0 if level is None else len(level) if upto is None else level.count(upto)

    def last_of(self, rank: int) -> int:
        """Return the highest seq of a rank; -1 without messages of that rank."""
        level = self._levels.get(rank)
        highest = None if level is None else level.highest
        return -1 if highest is None else highest

    def after_seq(self, seq: int) -> Message | None:
        """Return the message with the next higher seq of any priority; None after the last."""
        found = [message for level in self._levels.values() if (message := level.after(seq)) is not None]
        return min(found, key=_seq, default=None)

    @property
    def last_seq(self) -> int | None:
        """The highest seq; None in an empty backlog."""
        return max((seq for level in self._levels.values() if (seq := level.highest) is not None), default=None)


def _seq(message: Message) -> int:
    return message.seq
