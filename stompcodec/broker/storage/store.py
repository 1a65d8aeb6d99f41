"""Where durable messages live: the seam between the broker core and a disk, and a store without one.

A store takes operations into an open batch; `commit` writes the batch, all or nothing. The core commits once for
everything that a turn of the loop did. A message is known by its queue's key and its `seq`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from sys import intern
from typing import NamedTuple, Protocol

from stompcodec.broker.message import LargeBody, Message
from stompcodec.errors import StoreError

__all__ = ["CallSoon", "Done", "MemoryStore", "SentKey", "Storable", "Store", "Stored", "Subscribed", "restored"]

#: Takes None, or why nothing was written.
Done = Callable[[StoreError | None], None]
#: Has a loop call something, from any thread: `loop.call_soon_threadsafe`, or something like it.
CallSoon = Callable[[Callable[[], None]], object]


class Storable(Protocol):
    """What a store reads from a message. The values are read at the commit, not before."""

    @property
    def id(self) -> str: ...
    @property
    def seq(self) -> int: ...
    @property
    def destination(self) -> str: ...
    @property
    def tail(self) -> bytes: ...
    @property
    def persistent(self) -> bool: ...
    @property
    def expires(self) -> float | None: ...
    @property
    def priority(self) -> int: ...
    @property
    def attempts(self) -> int: ...
    @property
    def redelivered(self) -> bool: ...
    @property
    def body(self) -> LargeBody | None: ...


class Stored(NamedTuple):
    """A message as a store gives it back.

    `tail` is what stands behind the command line of a 1.2 SEND or MESSAGE frame: headers, blank line, body, NUL.
    `expires` is in seconds since 1970. `redelivered` is also true of every message that a crash left behind.
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
    """Of a large message, whose tail is without."""


class Subscribed(NamedTuple):
    """A durable subscription as a store gives it back.

    `queue` is the key of the queue that holds its messages; `prefix` and `name` are what it asked for, in which
    nothing is a wildcard if it is `literal`. `shared` means that it may have several consumers. `owner` is the name of
    the user that has it; None if it was made without users, or by a broker that kept no owners.
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
    """The idempotency key of a message that was stored, as a store keeps it: digests of the scope and of the key.

    `number` rises with each key. `body` is a CRC-32 of the body. `at` is in seconds since 1970.
    """

    number: int
    scope: bytes
    key: bytes
    body: int
    at: float


class Store(Protocol):
    """What the broker core asks of a store. One thread uses it: that of the loop."""

    @property
    def pending(self) -> int:
        """Operations in the open batch. A put and a remove of one message cancel, and count nothing."""

    def load(self) -> Iterable[Stored]:
        """Every message, by queue, and by `seq` within a queue. To be read to its end, once, before anything else.

        Raises:
            StoreError: what is stored cannot be read.
        """

    def subscriptions(self) -> Iterable[Subscribed]:
        """Every durable subscription. To be read to its end, once, before `load`.

        Raises:
            StoreError: what is stored cannot be read.
        """

    @property
    def mark(self) -> int:
        """The greatest seq that was reserved, as the last commit left it; 0 at first."""

    @property
    def incomplete(self) -> bool:
        """Some durable subscriptions could not be read by `subscriptions`: their messages must not be removed."""

    def reserve(self, seq: int) -> None:
        """Set `mark`, in the open batch: seqs up to that may be given away, though no stored message may show it."""

    def subscribe(self, subscription: Subscribed) -> None:
        """Keep a durable subscription, in the open batch; instead of one with the same queue, if there is one."""

    def unsubscribe(self, queue: str) -> None:
        """Forget the durable subscription with that queue, in the open batch. Its messages are removed one by one."""

    def keys(self) -> Iterable[SentKey]:
        """Every idempotency key, by `number`. To be read to its end, once, before anything is put.

        Raises:
            StoreError: what is stored cannot be read.
        """

    def remember(self, key: SentKey) -> None:
        """Keep an idempotency key, in the open batch. Its `number` is new."""

    def forget(self, number: int) -> None:
        """Forget the idempotency key of that number, in the open batch, if there is one."""

    def append(self, queue: str, message: Storable) -> None:
        """Put a message into the open batch. Its `seq` is new in that queue, 0 or more, and less than 2**42."""

    def remove(self, queue: str, message: Storable) -> None:
        """Take a message out, in the open batch. Its `seq` is still that of `append`."""

    def update(self, queue: str, message: Storable) -> None:
        """Keep `attempts` and `redelivered` of a message, in the open batch. It may be a copy of the one put."""

    def report(self, message: Storable) -> None:
        """Log and count a message whose body was found damaged when it was read."""

    def commit(self) -> None:
        """Write the open batch: afterwards it is on the disk, or none of it is. An empty batch costs nothing.

        Raises:
            StoreError: nothing of the batch was written, and it is dropped. The store can go on.
        """

    def commit_later(self, done: Done, call_soon: CallSoon | None) -> None:
        """Like `commit`, in the background where that is better for others.

        Args:
            done: called once, in the thread of the loop, with None or with the error. It may be called before this
                returns; otherwise what comes in meanwhile makes the next batch, whose commit has to wait for `done`.
            call_soon: has the loop call something, from any thread. None: there is no loop, so do it at once.
        """

    @property
    def written(self) -> int:
        """Bytes of messages that were written since the start."""

    def room(self) -> int | None:
        """Return how many bytes can be stored until the disk is full; None if that is not known. Asks the system."""

    def tidy(self, call_soon: CallSoon, urgent: bool = False) -> None:
        """Give space back that is no longer needed, in the background and in small steps, if the store is idle.

        To be called about once per second. It does something when there was no commit since the last call, and stops
        at the next commit.

        Args:
            call_soon: as in `commit_later`.
            urgent: there is little room: do one step also between commits.
        """

    def close(self) -> None:
        """Commit what is open, and let go of the files. The store cannot be used any more.

        Raises:
            StoreError: as in `commit`. The files are let go nevertheless.
        """


class MemoryStore:
    """A store that forgets everything when it goes: for tests, and for brokers without a disk.

    Args:
        keeps: keep what was committed, so that tests can look at it and read it again by `load`.

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

    def __init__(self, keeps: bool = True) -> None:
        self._keeps = keeps
        self._kept: dict[tuple[str, int], Stored] = {}
        self._puts: dict[tuple[str, int], Storable] = {}
        self._removes: dict[tuple[str, int], None] = {}
        self._updates: dict[tuple[str, int], Storable] = {}
        self._subscribed: dict[str, Subscribed] = {}
        self._changes: dict[str, Subscribed | None] = {}
        self._sent: dict[int, SentKey] = {}
        self._keys: dict[int, SentKey | None] = {}
        self._mark = self._reserved = 0

    @property
    def pending(self) -> int:
        """Operations in the open batch."""
        changes = len(self._changes) + len(self._keys) + (self._reserved > self._mark)
        return len(self._puts) + len(self._removes) + len(self._updates) + changes

    @property
    def mark(self) -> int:
        """As in `Store`."""
        return self._mark

    def reserve(self, seq: int) -> None:
        """As in `Store`."""
        self._reserved = max(seq, self._reserved)

    def subscriptions(self) -> Iterator[Subscribed]:
        """As in `Store`."""
        yield from self._subscribed.values()

    def subscribe(self, subscription: Subscribed) -> None:
        """As in `Store`."""
        self._changes[subscription.queue] = subscription

    def unsubscribe(self, queue: str) -> None:
        """As in `Store`."""
        self._changes[queue] = None

    def keys(self) -> Iterator[SentKey]:
        """As in `Store`."""
        for number in sorted(self._sent):
            yield self._sent[number]

    def remember(self, key: SentKey) -> None:
        """As in `Store`."""
        self._keys[key.number] = key

    def forget(self, number: int) -> None:
        """As in `Store`."""
        if number in self._sent or self._keys.pop(number, None) is None:
            self._keys[number] = None

    def load(self) -> Iterator[Stored]:
        """As in `Store`."""
        for key in sorted(self._kept):
            yield self._kept[key]

    def append(self, queue: str, message: Storable) -> None:
        """As in `Store`."""
        self._puts[queue, message.seq] = message

    def remove(self, queue: str, message: Storable) -> None:
        """As in `Store`."""
        key = queue, message.seq
        if self._puts.pop(key, None) is None:
            self._updates.pop(key, None)
            self._removes[key] = None

    def update(self, queue: str, message: Storable) -> None:
        """As in `Store`."""
        key = queue, message.seq
        if key in self._puts:
            self._puts[key] = message
        else:
            self._updates[key] = message

    def report(self, message: Storable) -> None:
        """As in `Store`. What is in memory has no checksum: nothing is done."""

    def commit(self) -> None:
        """As in `Store`; it never fails."""
        if not self._keeps:
            self._puts, self._updates, self._keys = {}, {}, {}
        for key in self._removes:
            self._kept.pop(key, None)
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
        self._mark = self._reserved

    def commit_later(self, done: Done, call_soon: CallSoon | None) -> None:
        """As in `Store`; done at once."""
        self.commit()
        done(None)

    def room(self) -> int | None:
        """As in `Store`: it needs no disk."""
        return None

    def tidy(self, call_soon: CallSoon, urgent: bool = False) -> None:
        """As in `Store`. There is nothing to do."""

    def close(self) -> None:
        """As in `Store`. What was committed can still be read."""
        self.commit()


def stored(queue: str, message: Storable) -> Stored:
    """A copy of a message as it is now.

    >>> stored("q", Stored("", 1, "m-1", "/queue/q", b"\\n\\0")).queue
    'q'
    """
    return Stored(
        queue,
        message.seq,
        message.id,
        message.destination,
        message.tail,
        message.persistent,
        message.expires,
        message.priority,
        message.attempts,
        message.redelivered,
        message.body,
    )


def restored(stored: Stored) -> Message:
    """A message as it was before the broker was started anew."""
    return Message(
        stored.id.encode(),
        stored.seq,
        intern(stored.destination),
        stored.tail,
        stored.persistent,
        stored.expires,
        stored.priority,
        max(stored.attempts, int(stored.redelivered)),
    ).with_body(stored.body)
