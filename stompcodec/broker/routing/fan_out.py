"""FanOut: messages to the subscriptions of a topic, over several turns if these are many, while senders wait."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import nlargest
from operator import attrgetter

from stompcodec.broker.connections import Peer
from stompcodec.broker.loop_quota import AT_ONCE, Line, LoopQuota, Work
from stompcodec.broker.memory import MESSAGE, Account
from stompcodec.broker.message import Message
from stompcodec.broker.queues import quick
from stompcodec.broker.queues.consumer import Consumer, Source
from stompcodec.broker.wildcards import Pattern

#: Deliveries that are made at once, however long they take.
_FEW = 250
#: Subscriptions that are served between two looks at the clock.
_STEP = 32
#: Bytes that are kept ready, per id of a subscription: most clients use the same few.
_READY = 2**20
#: Full queues for which one sender waits: the fullest ones.
_MOST_SLOW = 16


class Bundle:
    """Messages that are delivered together, in order. If they are `plain`, they need no special treatment, so that
    subscriptions with the same id share one chunk of bytes.
    """

    __slots__ = ("_chunks", "_frames", "_may_expire", "_octets", "_tails", "messages", "plain", "slow")

    def __init__(self, messages: list[Message], plain: bool, may_expire: bool = False) -> None:
        self.messages = messages
        self.plain = plain
        self._may_expire = may_expire
        #: Queues of subscriptions that are full now.
        self.slow: list[Source] = []
        #: Made when Python writes them: until then they would take the bytes of the messages once more.
        self._tails: list[bytes] = []
        self._octets = sum([message.size for message in messages])
        #: The MESSAGEs by the beginning that they share: joined, and as chunks of their own, as WebSocket needs them.
        self._chunks: dict[bytes, bytes] = {}
        self._frames: dict[bytes, list[bytes]] = {}

    @property
    def cost(self) -> int:
        """Bytes of memory that the messages take."""
        return self._octets + len(self.messages) * MESSAGE

    def give(self, consumers: Sequence[Consumer]) -> None:
        """Deliver the messages to each of these subscriptions, except those that have expired."""
        if self._may_expire and consumers and any(map(consumers[0].queue.is_expired, self.messages)):
            self._may_expire = self.plain = False  # the queue of each subscription drops the expired ones
        plain, octets, chunks, frames = self.plain, self._octets, self._chunks, self._frames
        for consumer in consumers:
            outbox = consumer.outbox
            # As `Outbox.deliver`, whose call would cost 3 % here. With a consumer in the ring, nothing is READY.
            try:
                if plain and consumer.direct and not consumer.acks and consumer.queue.ring and outbox.send_budget > 0:
                    start = consumer.start
                    if outbox.whole_frames:
                        outbox.chunks += frames.get(start) or self._separate(start)
                    else:
                        outbox.chunks.append(chunks.get(start) or self._join(start))
                    outbox.send_budget -= octets
                    if not outbox.dirty:
                        outbox.schedule_flush()
                elif _put(consumer, self.messages):
                    self.slow.append(consumer.queue)
            except Exception as error:  # ends this session; the next ones get theirs
                consumer.session.fault(consumer.queue, self.messages[0], error)
        if (len(chunks) + len(frames)) * octets > _READY:
            chunks.clear()
            frames.clear()

    def _join(self, start: bytes) -> bytes:
        """Return the MESSAGEs that begin with `start` in one piece, and keep it."""
        chunk = self._chunks[start] = quick.join(start, self.messages) or start + start.join(self._parts())
        return chunk

    def _separate(self, start: bytes) -> list[bytes]:
        """Return the MESSAGEs that begin with `start`, and keep them."""
        frames = self._frames[start] = [start + part for part in self._parts()]
        return frames

    def _parts(self) -> list[bytes]:
        """Return what follows the common beginning of each MESSAGE."""
        if not self._tails:
            self._tails = [b"message-id:%b\n%b\n" % (message.ident, message.tail) for message in self.messages]
        return self._tails


def _put(consumer: Consumer, messages: list[Message]) -> bool:
    """Put messages into the queue of a consumer. Return whether it is full."""
    selector, put, full = consumer.selector, consumer.queue.put, False
    for message in messages:
        if selector is None or selector.matches(message):
            full = put(message) or full
    return full


def fullest(queues: list[Source]) -> list[Source]:
    """Return the full queues for which a sender waits."""
    return queues if len(queues) <= _MOST_SLOW else nlargest(_MOST_SLOW, queues, key=attrgetter("count"))


class _Round:
    """A bundle on its way to the subscriptions that existed when it came.

    Only a round that has begun lists them: lists in all rounds would keep ended subscriptions in memory. `before` is
    the place of the first later subscription. `asking` returns the present ones. `words` are those of the topic, as
    patterns match them.
    """

    __slots__ = ("_asking", "_before", "_consumers", "_done", "_places", "_words", "bundle")

    def __init__(
        self, bundle: Bundle, before: int, asking: Callable[[], Sequence[Consumer]], words: tuple[str, ...]
    ) -> None:
        self.bundle = bundle
        self._before = before
        self._asking = asking
        self._words = words
        #: In the order of their places; None for one that has ended.
        self._consumers: list[Consumer | None] = []
        #: None before the round begins.
        self._places: list[int] | None = None
        #: How many of them have the messages.
        self._done = 0

    def go_on(self, quota: LoopQuota) -> bool:
        """Deliver to more subscriptions, until the turn is over. Return whether all have the messages."""
        began = quota.clock()
        if self._places is None:
            mine = [each for each in self._asking() if each.place < self._before]
            mine.sort(key=attrgetter("place"))
            self._places = [each.place for each in mine]
            self._consumers += mine
        last = min(self._done + AT_ONCE, len(self._consumers))
        while self._done < last:
            some = self._consumers[self._done : min(self._done + _STEP, last)]
            self._done += len(some)
            self.bundle.give([consumer for consumer in some if consumer is not None and not consumer.closed])
            if quota.used_up(began):
                break
        return self._done >= len(self._consumers)

    def forget(self, consumer: Consumer, pattern: Pattern | None) -> bool:
        """Remove a subscription that ends. Return whether it had not got the messages yet."""
        if self._places is None:
            return consumer.place < self._before and (pattern is None or pattern.matches(self._words))
        at = bisect_left(self._places, consumer.place)
        if at == len(self._places) or self._consumers[at] is not consumer:
            return False
        self._consumers[at] = None
        return at >= self._done


class FanOut:
    """A line of bundles on their way to many subscriptions, each of which gets them in order. It waits for the next
    turn in `quota`.

    A subscription belongs to one line: that of its topic, or the one for all patterns of topics.
    """

    __slots__ = ("_account", "_next", "_quota", "_rounds", "blocked")

    def __init__(self, quota: LoopQuota, account: Account) -> None:
        self._quota = quota
        self._account = account
        self._rounds: deque[_Round] = deque()
        #: The place of the next subscription.
        self._next = 0
        #: Sessions that wait until the line is empty.
        self.blocked: dict[Peer, None] = {}

    def __bool__(self) -> bool:
        return bool(self._rounds)

    def enter(self, consumer: Consumer) -> None:
        """Give a new subscription its place. It gets the messages from now on."""
        consumer.place = self._next
        self._next += 1

    def give(
        self,
        bundle: Bundle,
        consumers: Sequence[Consumer],
        asking: Callable[[], Sequence[Consumer]],
        words: tuple[str, ...],
    ) -> None:
        """Deliver messages at once, or behind others in the line if there are many subscriptions. `asking` returns the
        present ones; `words` are those of the topic, as patterns match them.
        """
        if not self._rounds and len(consumers) * len(bundle.messages) <= _FEW:
            bundle.give(consumers)
            return
        self._rounds.append(_Round(bundle, self._next, asking, words))
        self._account.used += bundle.cost
        if len(self._rounds) == 1:
            Work(self._going_round()).take_turn(0.0)

    def _going_round(self) -> Iterator[Line]:
        slow: list[Source] = []
        while self._rounds:
            first = self._rounds[0]
            if first.go_on(self._quota):
                self._rounds.popleft()
                self._account.used -= first.bundle.cost
                slow = fullest(first.bundle.slow)
            if self._rounds:
                yield self._quota
        blocked, self.blocked = self.blocked, {}
        for session in blocked:
            for queue in slow:
                if queue.full:
                    queue.block(session)
            session.unblock(self)

    def leave(self, consumer: Consumer, pattern: Pattern | None = None) -> None:
        """Remove a subscription, to one topic or to a pattern, that ends. It gets its messages in the line, unless its
        session has ended.
        """
        for each in self._rounds:
            waits = each.forget(consumer, pattern)
            if consumer.session.ended:
                return  # only the first round has a list
            if waits:
                each.bundle.give([consumer])

    def block(self, session: Peer) -> None:
        """Make a sender wait until the line is empty."""
        if session.block(self):
            self.blocked[session] = None
