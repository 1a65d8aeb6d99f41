"""The recorder of subscriptions: it writes messages to disk first, then acknowledges them.

Invariant: an acknowledged message is in the capture, however the process ends. The broker delivers the others again, so
without `Dedupe`, which detects messages that come again, one may be recorded twice.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import os
import platform
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from stompcodec.arguments import checks
from stompcodec.capture import CHAIN, Capture, CaptureWriter, Segment, octets_of
from stompcodec.client import Client, Message, Subscription
from stompcodec.client.backoff import Expected
from stompcodec.client.dialects import BROKERS, BrokerDialect, lasting_identity
from stompcodec.client.headers import pairs_of
from stompcodec.client.runs import Run
from stompcodec.codec import Frame
from stompcodec.errors import FrameError, StaleAckError, StompError, StoreError
from stompcodec.spec import Limits
from stompcodec.transport.owner import BIG

#: Captured messages have passed the limits of their client, which may be any.
_ANY = Limits(max_headers=10_000, max_body=2**40)
_OURS = BROKERS["stompcodec"]


@checks("key", "load", "remember")
class Dedupe:
    """The last `window` recorded messages, at about 0.1 kB each.

    Two messages are the same if destination, id and body are equal: ids may repeat among brokers, or after a broker has
    lost its memory. The id is in `header`; None for the lasting identity. A message without it is never a duplicate.
    Raises ValueError if `window` is below 1.

    >>> dedupe, frame = Dedupe(), Frame("MESSAGE", {"destination": "/queue/a", "message-id": "1"}, b"hello")
    >>> key = dedupe.key(frame)
    >>> dedupe.remember([key])
    >>> key in dedupe, dedupe.key(Frame("MESSAGE", {"destination": "/queue/a", "message-id": "1"}, b"bye")) in dedupe
    (True, False)
    """

    def __init__(self, header: str | None = None, window: int = 1_000_000) -> None:
        if window < 1:
            raise ValueError(f"window is {window}: it must be 1 or more")
        self.header = header
        self.window = window
        self._order: deque[int] = deque()
        self._known: set[int] = set()
        self._secret = os.urandom(16)  # prevents messages that are made to have equal keys

    @classmethod
    def of(cls, text: str, window: int = 1_000_000) -> Dedupe | None:
        """Return the Dedupe for an option's value, messageId (or message-id), header:NAME, or none; else raise
        ValueError.
        """
        if text == "none":
            return None
        if text in ("message-id", "messageId"):
            return cls(None, window)
        if text.startswith("header:") and len(text) > len("header:"):
            return cls(text[len("header:") :], window)
        raise ValueError(f"{text!r}: use messageId, header:NAME or none")

    def key(self, frame: Frame, dialect: BrokerDialect = _OURS) -> int | None:
        """Return a key that is equal for all deliveries of a message by a broker of a dialect; None without an id."""
        return self._keys_of([frame], dialect)[0]

    def _keys_of(self, frames: Iterable[Frame], dialect: BrokerDialect = _OURS) -> list[int | None]:
        """Return the key of each frame: 128 bits, of which one half is of destination and id, and one of the body."""
        secret, name, found = self._secret, self.header, list[int | None]()
        if name is None and dialect.lasting == "id":
            name = "message-id"
        for frame in frames:
            id = lasting_identity(dialect, frame.headers) if name is None else frame.get(name)
            if id is None:
                found.append(None)
            else:
                found.append(hash((secret, frame.get("destination", ""), id)) << 64 ^ hash(secret + frame.body))
        return found

    def __contains__(self, key: int | None) -> bool:
        return key in self._known

    def _are_new(self, keys: Sequence[int | None], others: dict[int, None]) -> bool:
        """Return whether none of the keys is known, or among the others, or there twice; add them to the others."""
        new = dict.fromkeys(key for key in keys if key is not None)
        if len(new) < len(keys) or not self._known.isdisjoint(new) or not others.keys().isdisjoint(new):
            return False
        others.update(new)
        return True

    def remember(self, keys: Iterable[int]) -> None:
        """Remember the keys of recorded messages, and forget the oldest."""
        known, order = self._known, self._order
        new = [key for key in dict.fromkeys(keys) if key not in known]
        known.update(new)
        order.extend(new)
        while len(order) > self.window:
            known.discard(order.popleft())

    def load(self, capture: Capture, dialect: BrokerDialect = _OURS) -> int:
        """Remember the last messages of a capture of a broker, over all its chains; return their number.

        It reads the newest segments first, until there are enough.
        """
        chains = [reversed(capture.segments(chain)) for chain in capture.chains()]
        timed = [((_time_of(capture, each), each) for each in segments) for segments in chains]
        found: list[tuple[int, int]] = []
        for last, segment in heapq.merge(*timed, key=itemgetter(0), reverse=True):
            if len(found) >= self.window and found[0][0] > last:
                break
            found = [*self._keys(capture, segment, last, dialect), *found]
            found.sort(key=itemgetter(0))  # stable: messages with equal times keep their order
            del found[: -self.window]
        self.remember(key for _, key in found)
        return len(found)

    def _keys(self, capture: Capture, segment: Segment, last: int, dialect: BrokerDialect) -> Iterator[tuple[int, int]]:
        end = min((each.base for each in capture.segments(segment.chain) if each.base > segment.base), default=None)
        frames = capture.frames(segment.chain, segment.base, limits=_ANY, lenient=True)
        known = 0
        with contextlib.suppress(FrameError, StoreError):  # readers of the capture report damage
            for offset, time, frame in frames:
                if end is not None and offset >= end:
                    return
                known = max(known, time)
                key = self.key(frame, dialect)
                if key is not None:
                    yield known or last, key


def _time_of(capture: Capture, segment: Segment) -> int:
    """Return the time of a segment's last bytes in µs, by its index or else by its file."""
    with contextlib.suppress(StoreError, OSError):
        return max((row.time for row in capture.rows(segment)), default=0) or int(segment.path.stat().st_mtime * 1e6)
    return 0


def acknowledge(messages: Iterable[Message]) -> None:
    """Acknowledge messages. The broker delivers those of a lost connection again."""
    for message in messages:
        with contextlib.suppress(StaleAckError):
            message.ack()


class Held:
    """Messages that may be acknowledged once offsets of chains are released. Any thread may call its methods.

    A written message waits for the end of its frame. A duplicate waits for all that the capture held when it was
    received, since the original is somewhere in there.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: By their chains, of which each has offsets in order.
        self._waiting: dict[frozenset[str], deque[tuple[dict[str, int], Message]]] = {}
        self._released: dict[str, int] = {}

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self._waiting.values()))

    def hold(self, ends: Mapping[str, int], message: Message) -> None:
        """Hold a message until these offsets of chains are released."""
        if message.body:  # which is on disk
            message.frame = Frame(message.frame.command, message.frame.headers.pairs(), b"")
        with self._lock:
            if not self._covered(ends):
                self._waiting.setdefault(frozenset(ends), deque()).append((dict(ends), message))
                return
        acknowledge([message])

    def release(self, offsets: Mapping[str, int]) -> int:
        """Acknowledge the messages below these offsets of chains; return their number."""
        done: list[Message] = []
        with self._lock:
            for chain, offset in offsets.items():
                self._released[chain] = max(offset, self._released.get(chain, 0))
            for waiting in self._waiting.values():
                while waiting and self._covered(waiting[0][0]):
                    done.append(waiting.popleft()[1])
        acknowledge(done)
        return len(done)

    def drop_stale(self, subscriptions: Collection[Subscription], epoch: int) -> None:
        """Drop messages of connections before this one: the broker delivers them again."""

        def stale(message: Message) -> bool:
            return message.epoch < epoch and message.subscription in subscriptions

        with self._lock:
            for chains, waiting in self._waiting.items():
                self._waiting[chains] = deque(each for each in waiting if not stale(each[1]))

    def _covered(self, ends: Mapping[str, int]) -> bool:
        return all(self._released.get(chain, 0) >= end for chain, end in ends.items())


log = logging.getLogger("stompcodec.client")
#: The most messages, or runs of messages, that are taken at once.
_MOST = 1000
#: What is written at once ends with the message that reaches this many bytes.
_GROUP = 8 * 2**20
#: Seconds between two turns of the thread that calls `run`.
_LOOK = 0.2
#: Seconds until a failed write is tried again.
_RETRY = 1.0


def holder_of(what: str, now: float) -> str:
    """Return a description of this process and its task, for errors about its lock; `now` in seconds since 1970."""
    since = datetime.fromtimestamp(now, timezone.utc).isoformat(timespec="seconds")
    return f"pid {os.getpid()} on {platform.node()}: {what}, since {since}"


class _Piece(NamedTuple):
    """Messages of a subscription that were taken together, as a run; or duplicates, whose run is empty."""

    message: Message
    """The last one, whose ACK settles all."""
    run: Run
    time: int
    again: int = 0
    """The number of duplicates."""

    def divided(self, count: int) -> tuple[_Piece, _Piece]:
        """Return the first messages, at least one and not all of them, and the others."""
        message, (first, others) = self.message, self.run.divided(count)
        last = type(message)(first.last, message.subscription, message.epoch, message.seq - others.messages)
        return self._replace(message=last, run=first), self._replace(run=others)


def _parts(pieces: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    """Yield pieces in parts of bounded size."""
    part: list[_Piece] = []
    octets = 0
    for piece in pieces:
        part.append(piece)
        octets += len(piece.run.octets)
        if octets >= _GROUP:
            yield part
            part, octets = [], 0
    if part:
        yield part


def _count(pieces: Iterable[_Piece]) -> int:
    return sum(piece.run.messages for piece in pieces)


def _place_of(piece: _Piece) -> tuple[int, int]:
    """Return what pieces that are written together have in common: their time, but long ones are not copied."""
    is_long = len(piece.run.octets) >= BIG
    return piece.time, is_long and piece.message.seq


def _divided(pieces: list[_Piece], count: int) -> tuple[list[_Piece], list[_Piece]]:
    """Return the first `count` messages, and the others."""
    for at, piece in enumerate(pieces):
        if piece.run.messages > count:
            first, others = piece.divided(count) if count else (None, piece)
            return [*pieces[:at], *([first] if first else [])], [others, *pieces[at + 1 :]]
        count -= piece.run.messages
    return pieces, []


@checks()
class Recorder:
    """The writer of subscribed messages into a capture. Each subscription has a thread that writes, syncs and
    acknowledges its messages; those of one chain, and all with `dedupe`, take turns. The thread that calls `run` looks
    after them, a few times per second, while none of them writes.

    While the disk is full nothing is acknowledged, so the broker keeps its messages and none is lost.

    Args:
        clients: one client, or several that share the work, which subscribe to nothing else. They are not closed.
        capture: to write. It is not closed.
        dedupe: leaves out messages that were recorded before, those in the capture included; None records all.
        acknowledge: when a message is "synced", or when it is "released" by `release`.
        most: the number of messages after which it ends; None for no limit.
        on_turn: called by `run`, while nothing is written.
        on_trouble: called likewise, with errors after which it tries again.
        hold: while it returns True nothing is written or acknowledged. Any thread calls it, one at a time; it must not
            wait.
        expect: it ends when no message comes for this many seconds; None for no limit.
        clock: returns the time, in seconds since 1970.
    """

    def __init__(
        self,
        clients: Client | Sequence[Client],
        capture: CaptureWriter,
        *,
        dedupe: Dedupe | None = None,
        acknowledge: Literal["synced", "released"] = "synced",
        most: int | None = None,
        on_turn: Callable[[], object] = lambda: None,
        on_trouble: Callable[[Exception], object] = lambda error: None,
        hold: Callable[[], bool] = lambda: False,
        expect: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clients = [clients] if isinstance(clients, Client) else list(clients)
        self._capture, self._dedupe = capture, dedupe
        self._held = Held() if acknowledge == "released" else None
        self._epochs = {client: client.epoch for client in self._clients}
        self._of: dict[Client, list[Subscription]] = {client: [] for client in self._clients}
        self._most, self._hold, self._clock = most, hold, clock
        self._on_turn, self._on_trouble = on_turn, on_trouble
        self.expected = Expected(expect)
        """What is expected of the feed: `silence` is the seconds without a message."""
        self._news: queue.SimpleQueue[tuple[Exception | None, bool]] = queue.SimpleQueue()  # for `run`; True: the end
        self._locks: dict[str, threading.Lock] = {}  # by chain; held while a thread writes and settles
        # With dedupe there is one: a duplicate may be left out only once its original is on the disk.
        self._shared = None if dedupe is None else threading.Lock()  # for all chains
        self._going = threading.Event()  # cleared while `run` wants all locks
        self._counting = threading.Lock()  # guards the counters, and calls of `hold`
        self._underway = 0  # messages that are being written
        self._unwritten: dict[Subscription, StoreError] = {}  # why messages wait that could not be written
        self._subscriptions: dict[Subscription, str] = {}
        self._live, self._stop = 0, threading.Event()
        self.messages = 0
        """The number of messages on disk."""
        self.octets = 0
        """The bytes of their frames."""
        self.redelivered = 0
        """The number of those that the broker had delivered before."""
        self.duplicates = 0
        """The number of duplicates, which were not recorded."""
        self.last: float | None = None
        """The time at which the last message on disk was received, in seconds since 1970."""
        self._chains = capture.chains
        if dedupe is not None:
            self._recall(dedupe)

    def _recall(self, dedupe: Dedupe) -> None:
        read = Capture(self._capture.path)
        dialects = [client._link.core.link.dialect for client in self._clients]
        for dialect in {(each.name, each.lasting): each for each in dialects}.values():
            if dedupe.header is not None or dialect.lasting:
                dedupe.load(read, dialect)
            else:
                log.warning(
                    "broker dialect %s: messages have no id that stays the same, so what is delivered again is "
                    "recorded again: use header:NAME with an id of the sender, or name the broker by dialect=",
                    dialect.name,
                )

    def subscribe(
        self,
        destination: str,
        *,
        clients: Sequence[Client] | None = None,
        chain: str = CHAIN,
        prefetch: int = _MOST,
        **options: Any,
    ) -> None:
        """Subscribe to a destination to record, in each of these clients (None: all), which share the messages of a
        queue. Options and errors as `Client.subscribe`.

        The first client writes the chain CHAIN, the others CHAIN.1, CHAIN.2 and so on. `prefetch` is the number of
        unacknowledged messages per client, unless `headers` say it in the broker's words. What is acknowledged when it
        is synced is taken as bytes, and one ACK settles all of it; but one by one if unreadable messages are passed
        over, which that ACK would settle, too.

        Raises:
            ValueError: a client records another destination, whose messages that ACK could settle.
        """
        for number, client in enumerate(self._clients if clients is None else clients):
            if self._of[client]:
                raise ValueError(f"the client records {self._of[client][0].destination!r:.60}: use another client")
            is_whole = self._held is None and options.get("on_unreadable", "raise") == "raise"
            mode: Any = "client" if is_whole else "client-individual"
            window = BROKERS[client.dialect].beside(prefetch, pairs_of("SUBSCRIBE", options.get("headers", ())))
            subscription = client.subscribe(destination, ack=mode, prefetch=window, **options)
            if is_whole:
                client._link.core.inbound.give_runs(subscription)
            self._subscriptions[subscription] = name = f"{chain}.{number}" if number else chain
            self._of[client].append(subscription)
            self._chains.add(name)
            self._locks.setdefault(name, self._shared or threading.Lock())
            self._live += 1
            threading.Thread(target=self._work, args=(subscription,), name="stompcodec-record", daemon=True).start()

    def stop(self) -> None:
        """Have `run` finish what is being written, and return. Signal handlers may call it, too."""
        self._stop.set()
        self._news.put((None, False))

    def release(self, offsets: Mapping[str, int]) -> int:
        """Acknowledge the messages below these offsets of chains, and return their number. Any thread may call it."""
        return 0 if self._held is None else self._held.release(offsets)

    @property
    def held(self) -> int:
        """The number of messages on disk that wait for `release`."""
        return 0 if self._held is None else len(self._held)

    @property
    def unacknowledged(self) -> int:
        """The number of received messages that are not acknowledged."""
        return sum(subscription.open for subscription in [*self._subscriptions])

    def run(self) -> None:
        """Record until `stop` is called, `most` messages are on disk, or the last subscription ends.

        Raises a StompError if a subscription has failed, the capture cannot be written any more, as after it was
        removed, or no message came for longer than `expect`.
        """
        try:
            while not self._stop.is_set() and self.messages != self._most and self._live:
                with self._alone():
                    self._capture.check()
                    self._on_turn()
                busy = self._is_full() or self.held > 0 or bool(self._unwritten)
                self.expected.check(self.messages + self.duplicates, time.monotonic(), busy=busy)
                self._hear(_LOOK)
            is_stopped = self._stop.is_set()
        finally:
            self._stop.set()
            with self._alone():
                for subscription in self._subscriptions:
                    with contextlib.suppress(StompError):
                        subscription.unsubscribe(wait=False)
        if is_stopped and self._unwritten:
            raise next(iter(self._unwritten.values()))

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Wait until nothing is written, and keep it so. Threads that go on at once do not overtake this one."""
        self._going.clear()
        try:
            with contextlib.ExitStack() as stack:
                for lock in set(self._locks.values()):
                    stack.enter_context(lock)
                yield
        finally:
            self._going.set()

    def _hear(self, timeout: float) -> None:
        """Wait for news of the threads of the subscriptions; raise the error that ended one."""
        with contextlib.suppress(queue.Empty):
            error, is_end = self._news.get(timeout=timeout)
            self._live -= is_end
            if error is not None:
                if is_end:
                    raise error
                with self._alone():
                    self._on_trouble(error)

    def _is_full(self) -> bool:
        with self._counting:
            return self._hold()

    # ---- the thread of a subscription ----
    def _work(self, subscription: Subscription) -> None:
        try:
            while self._take(subscription):
                pass
        except Exception as error:
            self._news.put((error, True))
        else:
            self._news.put((None, True))

    def _take(self, subscription: Subscription) -> bool:
        """Wait for messages, and record them; return False at the end of the subscription."""
        try:
            messages = subscription.take(_MOST)
        except StompError as error:
            if subscription.deaf:
                raise
            self._news.put((error, False))  # an ERROR that belongs to no call
            return True
        for part in _parts(self._pieces(messages, round(self._clock() * 1e6))):
            self._record(subscription, part)
        return bool(messages)

    def _pieces(self, messages: Iterable[Message], micros: int) -> Iterator[_Piece]:
        for message in messages:
            try:
                yield _Piece(message, message.run or Run(octets_of(message.frame), 1, message.frame), micros)
            except FrameError as error:  # cannot happen to a received frame
                self._news.put((error, False))

    def _record(self, subscription: Subscription, group: list[_Piece]) -> None:
        """Write, sync and acknowledge messages, until `stop`. After an error try again, each time with half as many: a
        full disk may have room for some."""
        lock, at_once = self._locks[self._subscriptions[subscription]], _count(group)
        while group and self._may_go_on():
            with lock:
                part, rest = self._claimed(group, at_once)
                left, error = self._try(subscription, part) if part else ([], None)
                group = [*left, *rest]
                if error is not None:
                    self._unwritten[subscription] = error
                elif part:
                    self._unwritten.pop(subscription, None)
            if error is not None:
                at_once = max(1, at_once // 2)
                self._news.put((error, False))
                self._stop.wait(_RETRY)
            elif part:
                at_once *= 2
            else:  # all that may be written is being written
                self._stop.wait(_LOOK)

    def _may_go_on(self) -> bool:
        """Wait until something may be written; return False after `stop`."""
        while not self._stop.is_set():
            if not self._going.wait(_LOOK):
                continue
            if not self._is_full():
                return True
            self._stop.wait(_LOOK)
        return False

    def _claimed(self, group: list[_Piece], at_once: int) -> tuple[list[_Piece], list[_Piece]]:
        """Return the first messages, not more than `most` allows, and none after `stop`; and the others."""
        with self._counting:
            if self._stop.is_set():
                return [], group
            if self._most is not None:
                at_once = min(at_once, self._most - self.messages - self._underway)
            part, rest = _divided(group, at_once)
            self._underway += _count(part)
            return part, rest

    def _try(self, subscription: Subscription, part: list[_Piece]) -> tuple[list[_Piece], StoreError | None]:
        """Write and settle messages. Return those that have to be written again after an error, or behind a duplicate
        whose original was not on disk; and the error."""
        dedupe, chain, keys = self._dedupe, self._subscriptions[subscription], dict[int, None]()
        pieces, rest = self._plan(part, keys)
        written, error = self._write(pieces, chain)
        if error is not None:
            if self._capture.failed:
                raise error
            rest = [*pieces[len(written) :], *rest]
        # Nothing that was written to a removed file is acknowledged. The original of a duplicate may be in any chain.
        self._capture.check(chain if dedupe is None else None)
        if dedupe is not None:
            if error is not None:
                found = (dedupe._keys_of(piece.run.frames(), subscription.dialect) for _, piece in written)
                keys = dict.fromkeys(key for several in found for key in several if key is not None)
            dedupe.remember(iter(keys))
        self._settle(subscription, written, _count(part))
        return rest, error

    def _plan(self, group: list[_Piece], keys: dict[int, None]) -> tuple[list[_Piece], list[_Piece]]:
        """Separate duplicates from new messages, and note the keys of these. Return the pieces up to a duplicate of a
        message that is among them, and the others."""
        dedupe, pieces = self._dedupe, list[_Piece]()
        if dedupe is None:
            return group, []
        for at, piece in enumerate(group):
            found = dedupe._keys_of(piece.run.frames(), piece.message.subscription.dialect)
            if dedupe._are_new(found, keys):
                pieces.append(piece)
                continue
            known = list[bool]()
            for key in found:
                if key is not None and key in keys:
                    break
                known.append(key in dedupe)
                if key is not None and not known[-1]:
                    keys[key] = None
            rest: _Piece | None = piece
            for is_known, several in groupby(known):
                count = len(list(several))
                assert rest is not None
                first, rest = rest.divided(count) if count < rest.run.messages else (rest, None)
                pieces.append(first._replace(run=Run(b"", 0, first.run.last), again=count) if is_known else first)
            if rest is not None:
                return pieces, [rest, *group[at + 1 :]]
        return pieces, []

    def _write(self, pieces: list[_Piece], chain: str) -> tuple[list[tuple[int, _Piece]], StoreError | None]:
        """Write and sync. Return what is on disk, with the offsets of the ends, and an error if that is only a part."""
        appended, failure = list[tuple[int, _Piece]](), None
        try:
            for (micros, _), several in groupby(pieces, _place_of):
                together = list(several)
                run = together[0].run
                if len(together) > 1:
                    run = Run(b"".join([each.run.octets for each in together]), 0, run.last)
                end = self._capture.append(run.octets, micros, chain, checksum=run.checksum)
                for piece in together:
                    end += len(piece.run.octets)
                    appended.append((end, piece))
            self._capture.sync(chain)
        except StoreError as error:
            failure = error
        return [each for each in appended if each[0] <= self._capture.end(chain)], failure

    def _settle(self, subscription: Subscription, written: list[tuple[int, _Piece]], claimed: int) -> None:
        """Count messages on disk, of those that were claimed, and acknowledge them, or hold them until released."""
        runs = [piece.run for _, piece in written]
        redelivered = sum(run.redelivered for run in runs)  # looks at each message, so not under the lock
        with self._counting:
            self._underway -= claimed
            self.messages += sum(run.messages for run in runs)
            self.octets += sum(len(run.octets) for run in runs)
            self.redelivered += redelivered
            self.duplicates += sum(piece.again for _, piece in written)
            if written:
                self.last = written[-1][1].time / 1e6
            if self.messages == self._most:
                self._news.put((None, False))
        held = self._held
        if held is None:
            messages = [piece.message for _, piece in written]
            acknowledge(messages[-1:] if subscription.ack == "client" else messages)
            return
        for client, epoch in self._epochs.items():
            if client.epoch != epoch:
                self._epochs[client] = client.epoch
                held.drop_stale(self._of[client], client.epoch)
        for end, piece in written:
            ends = {self._subscriptions[subscription]: end}
            if piece.again:  # their originals may be anywhere in what is there
                ends = {chain: self._capture.end(chain) for chain in [*self._chains]}
            held.hold(ends, piece.message)
