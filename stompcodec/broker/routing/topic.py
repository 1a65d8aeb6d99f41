"""Topic: every message goes to every subscription. Each subscription has a queue of its own, with one consumer.

Messages are gathered until the turn ends, or until there are many; then they go out together: that is all the
difference to putting each into each queue. Where subscriptions are very many, some get them in each turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import intern
from typing import TYPE_CHECKING

from stompcodec.broker.message import Message
from stompcodec.broker.queues.consumer import Consumer, Source
from stompcodec.broker.routing.spreading import Bundle, Spreading, fullest
from stompcodec.broker.wildcards import Patterns

if TYPE_CHECKING:
    from stompcodec.broker.peer import Maker, Peer
    from stompcodec.broker.queues.queue import Queue
    from stompcodec.broker.routing.durable import Durable

__all__ = ["Topic"]

#: Octets that are gathered at most.
_MOST_GATHERED = 65536
#: Octets that one flush gives out to all subscriptions together, at most, but for a single message: a session that
#: sends to a thousand slow ones must not keep the loop.
_MOST_SPREAD = 2**21


class Topic:
    """Consumers, each of a queue of its own: what is said of queues holds for subscriptions to topics.

    Args:
        name: the destination.
        opened: topics that have gathered something; whoever ends the turn calls their `flush`.
        patterns: who asks for several topics. Whoever changes them flushes all topics before.
        words: of the name, as patterns match them; () for what no pattern means.
        line: what is on its way to very many subscriptions of this topic alone.
        shared: the same of those that come by patterns, of all topics: they get messages in the order of all.
    """

    __slots__ = (
        *("_consumers", "_durables", "_gathered", "_line", "_mortal", "_most", "_octets", "_opened", "_others", "_own"),
        *("_patterns", "_shared", "_slow", "_version", "_words", "full", "maker", "name"),
    )

    def __init__(
        self,
        name: str,
        opened: list[Topic],
        patterns: Patterns[Consumer | Durable],
        words: tuple[str, ...],
        line: Spreading,
        shared: Spreading,
    ) -> None:
        self.name = name
        self._line = line
        self._shared = shared
        #: Who made it.
        self.maker: Maker | None = None
        #: Replaced, never changed: `flush` may be in the middle of it when a slow consumer is dropped. Both are made
        #: anew by `_refresh` when the next message comes, not when a subscription does: that would cost all others.
        self._consumers: tuple[Consumer, ...] = ()
        #: The same of those that come by patterns.
        self._others: tuple[Consumer, ...] = ()
        #: Subscriptions that outlive their consumers.
        self._durables: tuple[Durable, ...] = ()
        #: Those of this topic alone, in order; the others come by patterns.
        self._own: dict[Consumer | Durable, None] = {}
        self._patterns = patterns
        self._words = words
        #: Of the patterns, when they were last looked at. -1: look again, for the subscriptions of this topic changed.
        self._version = -1
        #: A subscription's queue was full when the latest message came, and senders should wait; those queues.
        self.full = False
        self._slow: list[Source] = []
        self._opened = opened
        self._gathered: list[Message] = []
        self._octets = 0
        #: Some of what was gathered may expire.
        self._mortal = False
        self._most = _MOST_GATHERED

    def __repr__(self) -> str:
        return f"<Topic {self.name!r}: {len(self.consumers)} consumers>"

    def put(self, message: Message, stored: bool = False) -> bool:
        """Take a message for every subscription. True: the sender should wait for a slow one.

        Args:
            message: it has its place in the order.
            stored: where durable subscriptions want it stored, it is in the store already.
        """
        if message.special or stored:  # it does not go with others
            self.flush()
            self._refresh()
            self._mortal = message.expires is not None
            self.full = self._give([message], not message.special, stored)
            return self.full
        if not self._gathered:
            self._begin()
        if message.expires is not None:
            self._mortal = True
        self._gathered.append(message)
        self._octets += message.size
        if self._octets > self._most:
            self.flush()
        return self.full

    def _begin(self) -> None:
        """The first message of those that go out together. The patterns change only while there is none."""
        self._refresh()
        self._opened.append(self)

    def put_plain(self, destination: str, ident: bytes, seq: int, tail: bytes) -> bool:
        """As in Queue."""
        if not self._gathered:
            self._begin()
        name = self.name
        if destination != name:
            name = intern(destination)
        self._gathered.append(Message(ident % seq, seq, name, tail))
        self._octets = octets = self._octets + len(tail)
        if octets > self._most:
            self.flush()
        return self.full

    def flush(self) -> None:
        """Deliver what was gathered."""
        messages = self._gathered
        if not messages:
            return
        self._gathered, self._octets = [], 0
        self.full = self._give(messages)

    def _give(self, messages: list[Message], plain: bool = True, stored: bool = False) -> bool:
        """Give messages to all who ask for this topic. Return whether their sender should wait."""
        durables = self._durables  # a slow consumer that is dropped below has both forgotten
        others = self._others
        bundle = Bundle(messages, plain, self._mortal)
        self._mortal = False
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
        """The queues whose journal has to know of a message."""
        self._refresh()
        if not self._durables or not message.persistent or message.due is not None:
            return ()
        return [durable.queue for durable in self._durables if durable.queue.journal and durable.wants(message)]

    def block(self, session: Peer) -> None:
        """Make a session wait for the slow ones."""
        self.full = False
        for line in (self._line, self._shared):
            if line:
                line.block(session)
        for queue in self._slow:
            if queue.full:
                queue.block(session)

    def holders(self) -> Sequence[Queue]:
        """The queues that may make a sender wait for ever, if it is the one to acknowledge what they hold."""
        self._refresh()
        return [durable.queue for durable in self._durables]

    # ---- subscriptions ----

    def add(self, feed: Consumer | Durable) -> None:
        """A new subscription. It gets what comes from now on."""
        self.flush()
        self._own[feed] = None
        if isinstance(feed, Consumer):
            self._line.enter(feed)
        self.forget()

    def drop(self, feed: Consumer | Durable) -> None:
        """The end of a subscription. It got what came before."""
        self.flush()
        if self._line and isinstance(feed, Consumer):
            self._line.leave(feed)
        self._own.pop(feed, None)
        self.forget()

    def forget(self) -> None:
        """Look again who is there before the next message, and keep nobody alive until then."""
        self._version = -1
        self._consumers = self._others = self._durables = ()
        if self._slow:
            self._slow = [queue for queue in self._slow if not queue.closed]

    def _refresh(self) -> None:
        """Look who asks for this topic, by its name or by a pattern, if that may have changed.

        Who asks for several topics gets messages in the order of all of them: then they do not wait to go together.
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
        """Those of this topic alone that are there now, in order."""
        self._refresh()
        return self._consumers

    def _by_pattern(self) -> Sequence[Consumer]:
        """Those that ask for several topics, this one among them, and are there now."""
        self._refresh()
        return self._others

    @property
    def consumers(self) -> tuple[Consumer, ...]:
        """Those that are there now, in order. For looking at."""
        self._refresh()
        return (*self._consumers, *self._others)

    @property
    def durables(self) -> tuple[Durable, ...]:
        """The subscriptions that outlive their consumers, in order. For looking at."""
        self._refresh()
        return self._durables

    @property
    def is_idle(self) -> bool:
        """Nobody asks for it alone: for those who ask for several it is made again by the next SEND."""
        return not self._own and not self._gathered and not self._line
