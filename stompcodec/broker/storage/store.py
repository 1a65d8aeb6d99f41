"""The store of durable messages: the interface between broker core and disk, and an implementation in memory.

A store collects operations in an open batch; `commit` writes the batch, all or nothing. The core commits once for each
turn of the event loop. A message is identified by its queue's key and its `seq`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from stompcodec.broker.message import SPOOLED, LargeBody, Message, shared
from stompcodec.errors import StoreError

#: Called with None after a commit, or with the error if nothing was written.
Done = Callable[[StoreError | None], None]
#: Run a function in the loop, from any thread, as `loop.call_soon_threadsafe` does.
CallSoon = Callable[[Callable[[], None]], object]
#: A place among stored messages in the order of a time. Opaque: only the store that made it reads it; () is the start.
Place = tuple[Any, ...]


class Stored(NamedTuple):
    """A message as read from a store.

    `tail` is the part of a 1.2 SEND or MESSAGE frame after the command line: headers, blank line, body, NUL. `expires`
    is in seconds since 1970. `redelivered` is also set on every message that was stored when the broker crashed.
    """

    queue: str
    seq: int
    id: str
    destination: str
    tail: bytes
    persistent: bool = True
    expires: float | None = None
    priority: int = 4
    attempts: int = 0
    redelivered: bool = False
    body: LargeBody | None = None
    """The body of a large message; its `tail` has none."""
    due: float | None = None
    """When a delayed message becomes READY, in seconds since 1970."""


#: A message to store. Its attributes are read at the commit, not before.
Storable = Message | Stored


class Held(NamedTuple):
    """The stored messages of a queue, as the store knows them at the start without reading them.

    `queue` is its key. `total` is the number of its messages, and `deferred` that of those with a due time among them;
    both include messages that turn out to be damaged when they are read. `first` and `last` are the lowest and the
    highest seq. `priorities` are those other than 4 of messages without a due time, in ascending order. `is_mixed` if
    there are rows between them that are being removed, so that reading all messages at once may take long.
    """

    queue: str
    total: int
    deferred: int
    first: int
    last: int
    priorities: tuple[int, ...] = ()
    is_mixed: bool = False


class Page(NamedTuple):
    """A run of messages of a queue, by `seq`, as read from a store."""

    messages: list[Stored]
    last: int
    """All requested messages up to this seq are in the page, or were `damaged`. Continue after it."""
    end: bool
    """True if no more messages follow up to the requested seq. A page may be empty without being the last."""
    damaged: int = 0
    """Number of damaged messages in the run. They were reported, are left out, and stay in the store."""


class TimedPage(NamedTuple):
    """A run of messages of all queues, by the time at which they are due or expire, as read from a store."""

    messages: list[Stored]
    after: Place | None
    """Continue there; None after the last message."""
    damaged: Sequence[tuple[str, int]] = ()
    """Queue and seq of damaged messages in the run. They were reported, are left out, and stay in the store."""


#: Called once, in the loop's thread, with the messages that were read, or with the error if they cannot be read.
PageDone = Callable[[Page | StoreError], None]
TimedDone = Callable[[TimedPage | StoreError], None]


class Subscribed(NamedTuple):
    """A durable subscription as read from a store.

    `queue` is the key of the queue that holds its messages. `prefix` and `name` are the destination it asked for,
    without wildcards if `literal` is set. `shared` allows several consumers. `owner` is the user who made it, or None
    if it was made without users or by a version that did not record owners.
    """

    queue: str
    prefix: str
    name: str
    literal: bool = False
    selector: str | None = None
    shared: bool = False
    auto_delete: bool = False
    owner: str | None = None


class SentKey(NamedTuple):
    """The idempotency key of a stored message, as digests of its scope and its key.

    `number` rises with each key. `body` is a CRC-32 of the body. `at` is in seconds since 1970.
    """

    number: int
    scope: bytes
    key: bytes
    body: int
    at: float


class Store(Protocol):
    """The store as the broker core sees it. Only the loop's thread uses it."""

    @property
    def pending(self) -> int:
        """The number of operations in the open batch. A put and a remove of the same message cancel out."""

    def load(self, queue: str | None = None) -> Iterable[Stored]:
        """Yield every message, or those of one queue, by queue and `seq`. Read all before anything else."""

    def held(self) -> Iterable[Held]:
        """Yield every queue that holds messages, without reading them. Read it as `load`, whose errors it has."""

    def read(
        self,
        queue: str,
        after: int,
        upto: int,
        most: int,
        octets: int,
        done: PageDone,
        call_soon: CallSoon | None,
        priority: int | None = None,
    ) -> None:
        """Read a page of a queue: messages without a due time whose seq is above `after` and at most `upto`.

        The page holds what was committed when this was called, except for what has been removed since. It may lack
        changes that are not committed yet, and the messages of commits that come while it is read. Several pages may
        be read at a time; they arrive in the order of the calls.

        Args:
            queue: its key. It need not hold anything.
            most: most messages in the page.
            octets: about as many bytes of messages are read at a time, and at least one message.
            done: gets the page.
            call_soon: runs a function in the loop, from any thread. None reads at once.
            priority: read messages of this priority only.
        """

    @property
    def reads_fast(self) -> bool:
        """True if a page of few messages can be read at once, since that does not take long."""

    def deferred(self, after: Place, most: int, octets: int, done: TimedDone, call_soon: CallSoon | None) -> None:
        """Read messages with a due time, the next due first: from where the last page ended; () for the first ones. The
        other arguments are those of `read`.
        """

    def expired(
        self, before: float, after: Place, most: int, octets: int, done: TimedDone, call_soon: CallSoon | None
    ) -> None:
        """Read messages that expire by a time in seconds since 1970, by their expiry, but for those with a due time:
        these do not expire before they are due. A page may be empty without being the last. The other arguments are
        those of `deferred`.
        """

    def clear(self, queue: str, after: int, upto: int, most: int, held: Collection[int] = ()) -> None:
        """Remove the first `most` messages whose seq is above `after`, at most `upto` and not in `held`, in the open
        batch. It finds what was committed before and is not removed by the batch itself. Messages put in the open batch
        stay.
        """

    def subscriptions(self) -> Iterable[Subscribed]:
        """Yield every durable subscription. Read it once, to its end, before `load`. Its errors are those of `load`."""

    @property
    def keeps(self) -> bool:
        """True if what was committed can be read."""

    @property
    def mark(self) -> int:
        """The greatest committed `reserve`; 0 at first."""

    @property
    def incomplete(self) -> bool:
        """True if `subscriptions` could not read some durable subscriptions. Their messages must then be kept."""

    def reserve(self, seq: int) -> None:
        """Set `mark` in the open batch: seqs up to it may be in use even if no stored message has them."""

    def subscribe(self, subscription: Subscribed) -> None:
        """Store a durable subscription in the open batch, replacing one with the same queue."""

    def unsubscribe(self, queue: str) -> None:
        """Delete the durable subscription of a queue in the open batch. Its messages are removed one by one."""

    def keys(self) -> Iterable[SentKey]:
        """Yield every idempotency key, by `number`. Read all before anything is put. Errors are those of `load`."""

    def remember(self, key: SentKey) -> None:
        """Store an idempotency key in the open batch. Its `number` must be new."""

    def forget(self, number: int) -> None:
        """Delete the idempotency key with that number, if it exists, in the open batch."""

    def append(self, queue: str, message: Storable) -> None:
        """Put a message into the open batch. Its `seq` is new in that queue, at least 0 and less than 2**42."""

    def intake(self, queue: str) -> tuple[dict[int, Storable], int, int] | None:
        """Return how to append messages of a queue to the open batch without a call: the new messages by their keys,
        what makes a key of a seq, if added to it, and the seq above which messages must be. None if there is no way,
        for instance because the queue has no messages yet.
        """

    def remove(self, queue: str, message: Storable) -> None:
        """Remove a message in the open batch. Its `seq` is the one it had at `append`."""

    def update(self, queue: str, message: Storable) -> None:
        """Store the `attempts` and `redelivered` of a message, or of a copy of it, in the open batch."""

    def report(self, message: Storable) -> None:
        """Log and count a message whose body turned out to be damaged."""

    def commit(self) -> None:
        """Write the open batch to disk as a whole. Do nothing if it is empty. If it raises StoreError, nothing was
        written, and the batch is discarded; the store remains usable.
        """

    def commit_later(self, done: Done, call_soon: CallSoon | None) -> None:
        """Commit like `commit`, but in the background where that keeps the loop responsive.

        `done` is called once, in the loop's thread, with None or with the error. It may be called before this returns;
        otherwise operations go into the next batch, which must not be committed before `done` is called. `call_soon`
        runs a function in the loop, from any thread; None commits at once.
        """

    @property
    def only_removes(self) -> bool:
        """True if there is nothing but removals in the open batch, or nothing at all."""

    def hold_removals(self) -> bool:
        """Leave the removals of the open batch to the one after it, which `commit_later`, to be called at once, begins.

        Return False if it has none, or if it must be written as a whole.
        """

    @property
    def written(self) -> int:
        """Bytes of messages written since the start."""

    def size(self) -> int | None:
        """Return the bytes of its files without those of large messages; None if it has none. Makes system calls."""

    def look(self) -> StoreError | None:
        """Return an error if the files are not where they were opened: from then on nothing can be stored."""

    def backup(self, new: Path) -> int:
        """Copy what is committed to a new data folder, and return the bytes of its database, in a thread beside all
        others. Raise StoreError if that fails, or the store has no files.
        """

    def room(self) -> int | None:
        """Return how many bytes can be stored before the disk is full, or None if unknown. Makes a system call."""

    def tidy(self, call_soon: CallSoon, urgent: bool = False) -> None:
        """Give unused space back in the background, in small steps, if the store is idle.

        Call it about once per second. It works if there was no commit since the last call, and stops at the next
        commit. If it is `urgent`, because there is little space left, it also does one step between commits. Transient
        messages of earlier runs are removed between commits in any case.
        """

    def close(self) -> None:
        """Commit the open batch and release the files, even if that raises StoreError. This is the end of the store."""


class MemoryStore:
    """A store in memory: for tests, which read what it `keeps` with `load`, and for brokers without a disk. Its methods
    are described at `Store`.

    >>> store = MemoryStore()
    >>> store.append("q", Stored("q", 1, "m-1", "/queue/q", b"\\n\\nhi\\0"))
    >>> store.pending, list(store.load())
    (1, [])
    >>> store.commit()
    >>> [message.id for message in store.load()]
    ['m-1']
    """

    incomplete = False
    written = 0
    reads_fast = False

    def __init__(self, keeps: bool = True) -> None:
        self.keeps = keeps
        self._kept: dict[tuple[str, int], Stored] = {}
        self._puts: dict[tuple[str, int], Storable] = {}
        self._removes: dict[tuple[str, int], None] = {}
        self._updates: dict[tuple[str, int], Storable] = {}
        self._clears: list[tuple[str, int, int, int, Collection[int]]] = []
        self._subscribed: dict[str, Subscribed] = {}
        self._changes: dict[str, Subscribed | None] = {}
        self._sent: dict[int, SentKey] = {}
        self._keys: dict[int, SentKey | None] = {}
        self._mark = self._reserved = 0

    @property
    def pending(self) -> int:
        changes = len(self._changes) + len(self._keys) + len(self._clears) + (self._reserved > self._mark)
        return len(self._puts) + len(self._removes) + len(self._updates) + changes

    @property
    def mark(self) -> int:
        return self._mark

    def reserve(self, seq: int) -> None:
        self._reserved = max(seq, self._reserved)

    def subscriptions(self) -> Iterator[Subscribed]:
        yield from self._subscribed.values()

    def subscribe(self, subscription: Subscribed) -> None:
        self._changes[subscription.queue] = subscription

    def unsubscribe(self, queue: str) -> None:
        self._changes[queue] = None

    def keys(self) -> Iterator[SentKey]:
        for number in sorted(self._sent):
            yield self._sent[number]

    def remember(self, key: SentKey) -> None:
        self._keys[key.number] = key

    def forget(self, number: int) -> None:
        if number in self._sent or self._keys.pop(number, None) is None:
            self._keys[number] = None

    def load(self, queue: str | None = None) -> Iterator[Stored]:
        for key in sorted(self._kept):
            if queue is None or key[0] == queue:
                yield self._kept[key]

    def held(self) -> Iterator[Held]:
        queues: dict[str, list[Stored]] = defaultdict(list)
        for message in self.load():
            queues[message.queue].append(message)
        for queue, messages in queues.items():
            ready = [message for message in messages if message.due is None]
            priorities = sorted({message.priority for message in ready} - {4})
            deferred = len(messages) - len(ready)
            yield Held(queue, len(messages), deferred, messages[0].seq, messages[-1].seq, tuple(priorities))

    def _ready(self, queue: str, after: int, upto: int) -> list[Stored]:
        """Return the committed messages of a queue without a due time, with `after` < seq <= `upto`."""
        return [one for one in self.load(queue) if one.due is None and after < one.seq <= upto]

    def read(
        self,
        queue: str,
        after: int,
        upto: int,
        most: int,
        octets: int,
        done: PageDone,
        call_soon: CallSoon | None,
        priority: int | None = None,
    ) -> None:
        found = [one for one in self._ready(queue, after, upto) if priority is None or one.priority == priority]
        share = _share(found, most, octets)
        end = len(share) == len(found)
        _answer(partial(done, Page(share, upto if end else share[-1].seq, end)), call_soon)

    def deferred(self, after: Place, most: int, octets: int, done: TimedDone, call_soon: CallSoon | None) -> None:
        places = {(one.due, one.queue, one.seq): one for one in self.load() if one.due is not None}
        _answer(partial(done, _timed_page(places, after, most, octets)), call_soon)

    def expired(
        self, before: float, after: Place, most: int, octets: int, done: TimedDone, call_soon: CallSoon | None
    ) -> None:
        found = (one for one in self.load() if one.due is None and one.expires is not None and one.expires <= before)
        places = {(one.expires, one.queue, one.seq): one for one in found}
        _answer(partial(done, _timed_page(places, after, most, octets)), call_soon)

    def clear(self, queue: str, after: int, upto: int, most: int, held: Collection[int] = ()) -> None:
        self._clears.append((queue, after, upto, most, held))

    def append(self, queue: str, message: Storable) -> None:
        self._puts[queue, message.seq] = message

    def intake(self, queue: str) -> None:
        return None

    def remove(self, queue: str, message: Storable) -> None:
        key = queue, message.seq
        if self._puts.pop(key, None) is None:
            self._updates.pop(key, None)
            self._removes[key] = None

    def update(self, queue: str, message: Storable) -> None:
        key = queue, message.seq
        if key in self._puts:
            self._puts[key] = message
        else:
            self._updates[key] = message

    def report(self, message: Storable) -> None:
        """Do nothing: a message in memory has no checksum."""

    def commit(self) -> None:
        if not self.keeps:
            self._puts, self._updates, self._keys = {}, {}, {}
        for key in self._removes:
            self._kept.pop(key, None)
        for queue, after, upto, most, held in self._clears:
            seqs = sorted(seq for key, seq in self._kept if key == queue and after < seq <= upto and seq not in held)
            for seq in seqs[:most]:
                del self._kept[queue, seq]
        for key, message in self._puts.items():
            self._kept[key] = stored(key[0], message)
        for key, message in self._updates.items():
            if key in self._kept:
                self._kept[key] = stored(key[0], message)
        for name, subscription in self._changes.items():
            self._subscribed.pop(name, None)
            if subscription is not None:
                self._subscribed[name] = subscription
        for number, sent in self._keys.items():
            self._sent.pop(number, None)
            if sent is not None:
                self._sent[number] = sent
        self._puts, self._removes, self._updates, self._changes, self._keys = {}, {}, {}, {}, {}
        self._clears.clear()
        self._mark = self._reserved

    def commit_later(self, done: Done, call_soon: CallSoon | None) -> None:
        self.commit()
        done(None)

    @property
    def only_removes(self) -> bool:
        return self.pending == len(self._removes)

    def hold_removals(self) -> bool:
        return False

    def size(self) -> int | None:
        return None

    def look(self) -> None:
        """Do nothing: it has no file."""

    def backup(self, new: Path) -> int:
        raise StoreError("the broker has no data folder")

    def room(self) -> int | None:
        return None

    def tidy(self, call_soon: CallSoon, urgent: bool = False) -> None:
        """Do nothing: it has no file."""

    def close(self) -> None:
        """Commit the open batch. What was committed can still be read."""
        self.commit()


def _share(messages: list[Stored], most: int, octets: int) -> list[Stored]:
    """Return the first messages, at most `most`, up to the one that makes them `octets` bytes or more."""
    for number, message in enumerate(messages[:most], 1):
        octets -= len(message.tail)
        if octets <= 0:
            return messages[:number]
    return messages[:most]


def _timed_page(places: Mapping[Place, Stored], after: Place, most: int, octets: int) -> TimedPage:
    found = sorted(place for place in places if place > after)
    share = _share([places[place] for place in found], most, octets)
    return TimedPage(share, None if len(share) == len(found) else found[len(share) - 1])


def _answer(answer: Callable[[], None], call_soon: CallSoon | None) -> None:
    if call_soon is None:
        answer()
    else:
        call_soon(answer)


def stored(queue: str, message: Storable) -> Stored:
    """Return the message that was stored, for use after a restart.

    >>> stored("q", Stored("", 1, "m-1", "/queue/q", b"\\n\\0")).queue
    'q'
    """
    return Stored(
        queue,
        message.seq,
        message.id,
        message.destination,
        message.tail,
        message.persistent == 1,
        message.expires,
        message.priority,
        message.attempts,
        message.redelivered,
        message.body,
        message.due,
    )


def restored(stored: Stored) -> Message:
    """A message as it was before the broker was started anew."""
    return Message(
        stored.id.encode(),
        stored.seq,
        shared(stored.destination),
        stored.tail,
        stored.persistent or SPOOLED,
        stored.expires,
        stored.priority,
        max(stored.attempts, int(stored.redelivered)),
    ).with_body(stored.body)
