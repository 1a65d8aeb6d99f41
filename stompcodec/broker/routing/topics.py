"""Topics: the topics of a virtual host, and the subscriptions to them by name or by pattern."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stompcodec.broker.config.settings import Address
from stompcodec.broker.connections import Maker
from stompcodec.broker.loop_quota import LoopQuota
from stompcodec.broker.memory import Account
from stompcodec.broker.queues.consumer import Consumer
from stompcodec.broker.routing.addresses import Addresses
from stompcodec.broker.routing.durable import Durable
from stompcodec.broker.routing.fan_out import FanOut
from stompcodec.broker.routing.shares import Shares
from stompcodec.broker.routing.topic import Topic
from stompcodec.broker.wildcards import Patterns


class Topics:
    """The topics of a virtual host, which are made by their first use and removed when they are idle.

    `opened` are those that have gathered messages. `check_room` raises Refused if a maker cannot have a destination of
    a new name. Deliveries to very many subscriptions wait in `quota` for the next turn. `at_end` are called with each
    topic that is removed.
    """

    def __init__(
        self,
        addresses: Addresses,
        opened: list[Topic],
        check_room: Callable[[str, Maker | None], None],
        shares: Shares,
        quota: LoopQuota,
        account: Account,
        at_end: Sequence[Callable[[Topic], object]],
    ) -> None:
        self.by_name: dict[str, Topic] = {}
        self._addresses = addresses
        self._opened = opened
        self._check_room = check_room
        self._shares = shares
        self._patterns: Patterns[Consumer | Durable] = Patterns()
        self._quota = quota
        self._account = account
        self._at_end = at_end
        #: Delivers to the subscriptions by pattern.
        self._fan_out = FanOut(quota, account)

    def find(self, address: Address, maker: Maker | None = None) -> Topic | None:
        """Return the topic of a SEND, made if a pattern matches it; None without subscriptions. Raise Refused if there
        are too many.
        """
        topic = self.by_name.get(address.name)
        if topic is None and self._patterns and self._patterns.find(self._words(address)):
            topic = self.make(address, maker)
        return topic

    def make(self, address: Address, maker: Maker | None = None) -> Topic:
        """Return the topic of this name, made if need be. Raise Refused if there are too many."""
        topic = self.by_name.get(address.name)
        if topic is None:
            self._check_room(address.name, maker)
            line = FanOut(self._quota, self._account)
            topic = Topic(address.name, self._opened, self._patterns, self._words(address), line, self._fan_out)
            topic.maker = maker
            self.by_name[address.name] = topic
            self._shares.add(topic)
        return topic

    def _words(self, address: Address) -> tuple[str, ...]:
        return self._addresses.wildcards.words(address.prefix, address.rest)

    def add(self, feed: Consumer | Durable, address: Address, maker: Maker | None = None) -> None:
        """Add a new subscription, which gets the messages from now on. Raise Refused if there are too many topics, or
        too many words in the pattern.
        """
        pattern = self._addresses.pattern(address)
        if pattern is None:
            self.make(address, maker).add(feed)
        else:
            self._flush()
            if isinstance(feed, Consumer):
                self._fan_out.enter(feed)
            self._patterns.add(pattern, feed)

    def drop(self, feed: Consumer | Durable, address: Address) -> None:
        """Remove a subscription, after the messages until now were delivered."""
        pattern = self._addresses.pattern(address)
        if pattern is not None:
            self._flush()
            if self._fan_out and isinstance(feed, Consumer):
                self._fan_out.leave(feed, pattern)
            self._patterns.remove(pattern, feed)
        elif address.name in self.by_name:
            self.by_name[address.name].drop(feed)

    def _flush(self) -> None:
        while self._opened:
            self._opened.pop().flush()

    def remove(self, name: str) -> None:
        """Remove a topic, if it exists."""
        topic = self.by_name.pop(name, None)
        if topic is not None:
            self._patterns.forget(topic)
            self._shares.remove(topic)
            for tell in self._at_end:
                tell(topic)

    def sweep(self, kept: Callable[[str], bool]) -> bool:
        """Remove idle topics that `kept` does not name. Return whether there were any."""
        idle = [name for name, topic in self.by_name.items() if topic.is_idle and not kept(name)]
        for name in idle:
            self.remove(name)
        return bool(idle)
