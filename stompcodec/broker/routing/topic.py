"""Topic: every message goes to every subscription, which has a queue of its own with one consumer.

Messages are gathered until the turn ends, or there are many, and then delivered together. Otherwise this is the same as
putting each message into each queue. Very many subscriptions get them over several turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stompcodec.broker.connections import Maker, Peer
from stompcodec.broker.message import Message, shared
from stompcodec.broker.queues.consumer import Consumer, Source
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.durable import Durable
from stompcodec.broker.routing.fan_out import Bundle, FanOut, fullest
from stompcodec.broker.wildcards import Patterns

#: The most bytes that are gathered.
_MOST_GATHERED = 65536
#: The most bytes that one flush delivers to all subscriptions together, if it has several messages: a session that
#: sends to a thousand slow ones must not keep the loop.
_MOST_SPREAD = 2**21

#: How many messages were redelivered, have expired, were dropped, and became dead letters.
Fates = tuple[int, int, int, int]
NO_FATES: Fates = (0, 0, 0, 0)


def fates(queues: Iterable[Queue], before: Fates = NO_FATES) -> Fates:
    """Return the sums of what became of the messages of some queues, and `before`."""
    redelivered, expired, dropped, dead = before
    for queue in queues:
        tally = queue.tally
        redelivered += tally.redelivered
        expired += tally.expired
        dropped += tally.dropped
        dead += tally.dead
    return redelivered, expired, dropped, dead


class Topic:
    """The subscriptions to a topic, each of which has a queue of its own and behaves like one.

    The topics in `opened` have gathered messages, and are flushed at the end of the turn. All topics are flushed before
    the `patterns` change. `words` are those of the name, as patterns match them; () if none can match. `line` delivers
    to the subscriptions of this topic alone, `shared` to those by pattern, in the order of the messages of all topics.
    """

    __slots__ = (
        *("_consumers", "_durables", "_gathered", "_line", "_may_expire", "_most", "_octets", "_opened", "_others"),
        *("_own", "_patterns", "_shared", "_slow", "_version", "_words", "delivered", "fates", "full", "maker"),
        *("name", "received", "sample"),
    )

    def __init__(
        self,
        name: str,
        opened: list[Topic],
        patterns: Patterns[Consumer | Durable],
        words: tuple[str, ...],
        line: FanOut,
        shared: FanOut,
    ) -> None:
        self.name = name
        self._line = line
        self._shared = shared
        #: The session that made it.
        self.maker: Maker | None = None
        #: Replaced, never changed, because a slow consumer may be dropped during `flush`. `_refresh` makes it anew for
        #: the next message; to do so for each new subscription would take time for all others.
        self._consumers: tuple[Consumer, ...] = ()
        #: The subscriptions by pattern, in the same way.
        self._others: tuple[Consumer, ...] = ()
        #: The durable subscriptions, in the same way.
        self._durables: tuple[Durable, ...] = ()
        #: The subscriptions to this topic alone, in order.
        self._own: dict[Consumer | Durable, None] = {}
        self._patterns = patterns
        self._words = words
        #: The version of the patterns at the last `_refresh`; -1 after a change of the subscriptions to this topic.
        self._version = -1
        #: Queues of subscriptions were full after the last message, so that senders should wait; and those queues.
        self.full = False
        self._slow: list[Source] = []
        self._opened = opened
        self._gathered: list[Message] = []
        self._octets = 0
        #: Some of the gathered messages may expire.
        self._may_expire = False
        self._most = _MOST_GATHERED
        #: Messages that came, and the copies of them for subscriptions, since the start of the broker.
        self.received = self.delivered = 0
        #: The `fates` of subscriptions to this topic alone that have ended.
        self.fates = NO_FATES
        #: Earlier counts, from which `management` computes rates; None until it is asked for them.
        self.sample: object = None

    def __repr__(self) -> str:
        return f"<Topic {self.name!r}: {len(self.consumers)} consumers>"

    def put(self, message: Message, stored: bool = False) -> bool:
        """Take a message that has its place in the order for all subscriptions. Return whether its sender should wait
        for slow ones. `stored`: it is in the store already, for the durable subscriptions that store it.
        """
        if message.special or stored:  # not gathered with others
            self.flush()
            self._refresh()
            self._may_expire = message.expires is not None
            self.full = self._give([message], not message.special, stored)
            return self.full
        if not self._gathered:
            self._begin()
        if message.expires is not None:
            self._may_expire = True
        self._gathered.append(message)
        self._octets += message.size
        if self._octets > self._most:
            self.flush()
        return self.full

    def _begin(self) -> None:
        """Begin to gather messages. Invariant: the patterns change only while none are gathered."""
        self._refresh()
        self._opened.append(self)

    def put_plain(self, destination: str, ident: bytes, seq: int, tail: bytes) -> bool:
        """Take a plain message. Return whether its sender should wait."""
        if not self._gathered:
            self._begin()
        name = self.name
        if destination != name:
            name = shared(destination)
        self._gathered.append(Message(ident % seq, seq, name, tail))
        self._octets = octets = self._octets + len(tail)
        if octets > self._most:
            self.flush()
        return self.full

    def flush(self) -> None:
        """Deliver the gathered messages."""
        messages = self._gathered
        if not messages:
            return
        self._gathered, self._octets = [], 0
        self.full = self._give(messages)

    def _give(self, messages: list[Message], plain: bool = True, stored: bool = False) -> bool:
        """Deliver messages to all subscriptions. Return whether their sender should wait."""
        durables = self._durables  # dropping a slow consumer below resets both
        others = self._others
        self.received += len(messages)
        self.delivered += len(messages) * (len(self._consumers) + len(others) + len(durables))
        bundle = Bundle(messages, plain, self._may_expire)
        self._may_expire = False
        self._line.give(bundle, self._consumers, self._alone, self._words)
        if others:
            self._shared.give(bundle, others, self._by_pattern, self._words)
        slow = bundle.slow
        for durable in durables:
            if durable.take(messages, stored):
                slow.append(durable.queue)
        self._slow = fullest(slow)
        return bool(slow or self._line or self._shared)

    def stores(self, message: Message) -> Sequence[Queue]:
        """Return the queues that store a message."""
        self._refresh()
        if not self._durables or not message.persistent or message.due is not None:
            return ()
        return [durable.queue for durable in self._durables if durable.queue.journal and durable.wants(message)]

    def block(self, session: Peer) -> None:
        """Make a session wait for slow subscriptions."""
        self.full = False
        for line in (self._line, self._shared):
            if line:
                line.block(session)
        for queue in self._slow:
            if queue.full:
                queue.block(session)

    def holders(self) -> Sequence[Queue]:
        """Return the queues that could block a sender for ever, if only its own ACKs make room there."""
        self._refresh()
        return [durable.queue for durable in self._durables]

    # ---- subscriptions ----

    def add(self, feed: Consumer | Durable) -> None:
        """Add a new subscription, which gets the messages from now on."""
        self.flush()
        self._own[feed] = None
        if isinstance(feed, Consumer):
            self._line.enter(feed)
        self.forget()

    def drop(self, feed: Consumer | Durable) -> None:
        """Remove a subscription, after the messages until now were delivered."""
        self.flush()
        if self._line and isinstance(feed, Consumer):
            self._line.leave(feed)
        if feed in self._own:
            del self._own[feed]
            if isinstance(feed, Consumer) and isinstance(feed.queue, Queue):
                self.fates = fates([feed.queue], self.fates)
        self.forget()

    def forget(self) -> None:
        """Have `_refresh` look at the subscriptions again, and keep none of them in memory until then."""
        self._version = -1
        self._consumers = self._others = self._durables = ()
        if self._slow:
            self._slow = [queue for queue in self._slow if not queue.closed]

    def _refresh(self) -> None:
        """Find the subscriptions by name and by pattern, if they may have changed.

        Subscriptions by pattern get the messages of several topics in order: then none are gathered.
        """
        if self._version == self._patterns.version:
            return
        self._patterns.forget(self)
        self._version = self._patterns.version
        others = self._patterns.find(self._words)
        self._consumers = tuple(feed for feed in self._own if isinstance(feed, Consumer))
        self._others = tuple(feed for feed in others if isinstance(feed, Consumer))
        self._durables = tuple(feed for feed in (*self._own, *others) if not isinstance(feed, Consumer))
        at_once = bool(others) or any(durable.prompt for durable in self._durables)
        self._most = 0 if at_once else min(_MOST_GATHERED, _MOST_SPREAD // max(1, len(self._own)))
        if others:
            self._patterns.remember(self, len(others))

    def _alone(self) -> Sequence[Consumer]:
        """Return the present subscriptions to this topic alone, in order."""
        self._refresh()
        return self._consumers

    def _by_pattern(self) -> Sequence[Consumer]:
        """Return the present subscriptions by pattern."""
        self._refresh()
        return self._others

    @property
    def consumers(self) -> tuple[Consumer, ...]:
        """The present subscriptions, in order."""
        self._refresh()
        return (*self._consumers, *self._others)

    @property
    def own(self) -> tuple[Consumer, ...]:
        """The present subscriptions to this topic alone, in order: the first of `consumers`."""
        self._refresh()
        return self._consumers

    @property
    def durables(self) -> tuple[Durable, ...]:
        """The durable subscriptions, in order."""
        self._refresh()
        return self._durables

    @property
    def is_idle(self) -> bool:
        """It has no subscriptions by name. For those by pattern, the next SEND makes it again."""
        return not self._own and not self._gathered and not self._line
