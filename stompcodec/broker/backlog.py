"""What is READY in a queue, in order: a plain line, or one that knows priorities and lets go of what is in the middle.

A queue begins with a `Fifo`. It changes to a `Backlog` when somebody wants more of it: a message of another priority
than the usual one, a consumer that picks, a browser. Both take what comes back into its old place.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from stompcodec.broker.message import Message

__all__ = ["START", "Backlog", "Fifo", "Place"]

#: Where a message stands: what comes first, then its seq.
Place = tuple[int, int]
#: Before all.
START: Place = (-1, -1)
#: From so many messages on, it is quicker to sort all than to find a place for each.
_MANY = 16
#: Entries of messages that are gone, which are kept at least.
_FEW = 64


class Fifo(deque[Message]):
    """Oldest first: that is the order of their seqs.

    >>> from stompcodec.broker.store import Stored
    >>> line = Fifo(Message(b"", seq, "/queue/a", b"\\n\\0") for seq in (3, 4))
    >>> line.put_back([Message(b"", 2, "/queue/a", b"\\n\\0")])
    >>> [message.seq for message in line]
    [2, 3, 4]
    """

    __slots__ = ()

    def put_back(self, messages: Iterable[Message]) -> None:
        """Into their places: they were delivered before, so most of them belong in front."""
        back = list(messages)
        latest = max((message.seq for message in back), default=-1)
        while self and self[0].seq < latest:  # others that came back before
            back.append(self.popleft())
        back.sort(key=_seq)
        self.extendleft(reversed(back))

    def take_out(self, condition: Callable[[Message], bool]) -> list[Message]:
        """Remove all that fulfil a condition, and return them in order."""
        gone = [message for message in self if condition(message)]
        if gone:
            kept = [message for message in self if not condition(message)]
            self.clear()
            self.extend(kept)
        return gone

    def take_seqs(self, seqs: set[int]) -> list[Message]:
        """Remove those with these seqs, and return them in order. Most often they stand in front."""
        gone = []
        while self and self[0].seq in seqs:
            gone.append(self.popleft())
        if len(gone) < len(seqs):
            gone += self.take_out(lambda message: message.seq in seqs)
        return gone

    @property
    def is_disordered(self) -> bool:
        """The latest message has an earlier place than the one before."""
        return len(self) > 1 and self[-1].seq < self[-2].seq

    def sort_from(self, seq: int) -> None:
        """Messages of that seq and later ones came in another order than they have."""
        out = []
        while self and self[-1].seq >= seq:
            out.append(self.pop())
        out.sort(key=_seq)
        self.extend(out)


class _Level:
    """Messages of one priority. Seqs of those that are gone stay in the list for a while."""

    __slots__ = ("messages", "seqs", "start")

    def __init__(self) -> None:
        self.messages: dict[int, Message] = {}
        #: Rising; before `start` all are gone.
        self.seqs: list[int] = []
        self.start = 0

    def add(self, message: Message) -> None:
        seq, seqs = message.seq, self.seqs
        if not seqs or seq > seqs[-1]:
            seqs.append(seq)
        else:
            index = bisect_left(seqs, seq)
            if seqs[index] != seq:
                seqs.insert(index, seq)
            self.start = min(self.start, index)
        self.messages[seq] = message

    def add_all(self, messages: list[Message]) -> None:
        if len(messages) < _MANY:
            for message in messages:
                self.add(message)
            return
        self.messages.update((message.seq, message) for message in messages)
        new = {message.seq for message in messages}  # what stands between them is sorted anew, and no more than that
        first, behind = bisect_left(self.seqs, min(new)), bisect_right(self.seqs, max(new))
        new.update(self.seqs[first:behind])
        self.seqs[first:behind] = sorted(new)
        self.start = min(self.start, first)

    def remove(self, seq: int) -> Message | None:
        message = self.messages.pop(seq, None)
        if message is not None and len(self.seqs) > 2 * len(self.messages) + _FEW:
            self.seqs, self.start = [seq for seq in self.seqs if seq in self.messages], 0
        return message

    def after(self, seq: int) -> Message | None:
        """The first one with a higher seq."""
        seqs, messages = self.seqs, self.messages
        for index in range(bisect_right(seqs, seq, self.start), len(seqs)):
            message = messages.get(seqs[index])
            if message is not None:
                return message
            if index == self.start:
                self.start += 1
        return None

    def between(self, seq: int, last: int, most: int) -> Iterable[Message]:
        """The first ones with a higher seq, up to another one."""
        places = range(bisect_right(self.seqs, seq, self.start), bisect_right(self.seqs, last))
        return islice(filter(None, map(self.messages.get, map(self.seqs.__getitem__, places))), most)

    @property
    def last(self) -> int | None:
        """The highest seq."""
        return next((seq for seq in reversed(self.seqs) if seq in self.messages), None)

    def __iter__(self) -> Iterator[Message]:
        for seq in list(self.seqs):
            message = self.messages.get(seq)
            if message is not None:
                yield message


class Backlog:
    """Higher priorities first, then oldest first. What is in the middle can be found and removed quickly.

    Args:
        messages: in any order.
        ranked: priorities count. False: all are alike, and the order is that of `Fifo`.

    >>> line = Backlog([Message(b"", seq, "/queue/a", b"\\n\\0", priority=seq % 2) for seq in (1, 2, 3)])
    >>> [message.seq for message in line], line.after(START).seq, line.after_seq(1).seq
    ([1, 3, 2], 1, 2)
    """

    __slots__ = ("_count", "_levels", "ranked")

    def __init__(self, messages: Iterable[Message] = (), ranked: bool = True) -> None:
        self.ranked = ranked
        #: By rank, rising: rank 0 is priority 9.
        self._levels: dict[int, _Level] = {}
        self._count = 0
        self.put_back(messages)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Message]:
        for level in list(self._levels.values()):
            yield from level

    def __getitem__(self, index: int) -> Message:
        """The first one (0) only: it is the one that a queue asks for."""
        message = self.after(START)
        if index != 0 or message is None:
            raise IndexError(index)
        return message

    def place(self, message: Message) -> Place:
        """Where it stands, or would."""
        return (9 - message.priority if self.ranked else 0), message.seq

    # ---- in ----

    def append(self, message: Message) -> None:
        """Into its place."""
        level = self._level(message)
        before = len(level.messages)
        level.add(message)
        self._count += len(level.messages) - before

    appendleft = append

    def put_back(self, messages: Iterable[Message]) -> None:
        """Many, each into its place."""
        levels: dict[int, list[Message]] = {}
        for message in messages:
            self._level(message)
            levels.setdefault(self.place(message)[0], []).append(message)
        for rank, some in levels.items():
            level = self._levels[rank]
            before = len(level.messages)
            level.add_all(some)
            self._count += len(level.messages) - before

    def _level(self, message: Message) -> _Level:
        rank = self.place(message)[0]
        level = self._levels.get(rank)
        if level is None:
            self._levels[rank] = level = _Level()
            self._levels = dict(sorted(self._levels.items()))
        return level

    # ---- out ----

    def popleft(self) -> Message:
        """The first one leaves."""
        message = self[0]
        self.remove(message)
        return message

    def remove(self, message: Message) -> Message | None:
        """The message of that place leaves; None if there is none."""
        level = self._levels.get(self.place(message)[0])
        gone = None if level is None else level.remove(message.seq)
        if gone is not None:
            self._count -= 1
        return gone

    def take_out(self, condition: Callable[[Message], bool]) -> list[Message]:
        """Remove all that fulfil a condition, and return them in order."""
        gone = [message for message in self if condition(message)]
        for message in gone:
            self.remove(message)
        return gone

    def take_seqs(self, seqs: set[int]) -> list[Message]:
        """As in `Fifo`."""
        gone = [message for level in self._levels.values() for seq in sorted(seqs) if (message := level.remove(seq))]
        self._count -= len(gone)
        return gone

    # ---- look ----

    def after(self, place: Place) -> Message | None:
        """The first one that stands behind a place."""
        for rank, level in self._levels.items():
            if rank < place[0]:
                continue
            message = level.after(place[1] if rank == place[0] else -1)
            if message is not None:
                return message
        return None

    def at(self, place: Place) -> Message | None:
        """The one of that place."""
        level = self._levels.get(place[0])
        return None if level is None else level.messages.get(place[1])

    def after_seq(self, seq: int) -> Message | None:
        """The one with the next higher seq, whatever its priority."""
        found = [message for level in self._levels.values() if (message := level.after(seq)) is not None]
        return min(found, key=_seq, default=None)

    def between(self, seq: int, last: int, most: int) -> list[Message]:
        """Those with a seq above one and not above another, by their seqs; so many at the most."""
        found: list[Message] = []
        for level in self._levels.values():
            found += level.between(seq, last, most)
        if len(self._levels) > 1:
            found.sort(key=_seq)
        return found[:most]

    @property
    def last_seq(self) -> int | None:
        """The highest seq of all."""
        return max((seq for level in self._levels.values() if (seq := level.last) is not None), default=None)

    @property
    def is_disordered(self) -> bool:
        """Never, for each comes into its place."""
        return False

    def sort_from(self, seq: int) -> None:
        """As in `Fifo`; there is nothing to do."""


def _seq(message: Message) -> int:
    return message.seq
