"""Topics of a virtual host, and who asks for them: one by one, or several by a pattern."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stompcodec.broker.config.settings import Address
from stompcodec.broker.loop_quota import LoopQuota
from stompcodec.broker.memory import Account
from stompcodec.broker.queues.consumer import Consumer
from stompcodec.broker.routing.addresses import Addresses
from stompcodec.broker.routing.spreading import Spreading
from stompcodec.broker.routing.topic import Topic
from stompcodec.broker.wildcards import Patterns

if TYPE_CHECKING:
    from stompcodec.broker.peer import Maker
    from stompcodec.broker.routing.durable import Durable
    from stompcodec.broker.routing.shares import Shares

__all__ = ["Topics"]


class Topics:
    """They come into being by their first use, and go when nobody asks for them.

    Args:
        addresses: what names mean.
        opened: where topics enter themselves that are to be flushed.
        check_room: takes a new name, and who makes it; raises Refused when there are too many, or it is too long.
        shares: where topics are counted.
        quota: where those wait who give messages to very many subscriptions.
        account: of the broker's memory.
    """

    def __init__(
        self,
        addresses: Addresses,
        opened: list[Topic],
        check_room: Callable[[str, Maker | None], None],
        shares: Shares,
        quota: LoopQuota,
        account: Account,
    ) -> None:
        self.by_name: dict[str, Topic] = {}
        self._addresses = addresses
        self._opened = opened
        self._check_room = check_room
        self._shares = shares
        self._patterns: Patterns[Consumer | Durable] = Patterns()
        self._quota = quota
        self._account = account
        #: To those who ask for several topics.
        self._spreading = Spreading(quota, account)

    def find(self, address: Address, maker: Maker | None = None) -> Topic | None:
        """Where a SEND goes; None when nobody would get it. Where only a pattern asks for the topic, it is made.

        Raises:
            Refused: there are too many.
        """
        topic = self.by_name.get(address.name)
        if topic is None and self._patterns and self._patterns.find(self._words(address)):
            topic = self.make(address, maker)
        return topic

    def make(self, address: Address, maker: Maker | None = None) -> Topic:
        """The topic of that name, a new one if need be.

        Raises:
            Refused: there are too many.
        """
        topic = self.by_name.get(address.name)
        if topic is None:
            self._check_room(address.name, maker)
            line = Spreading(self._quota, self._account)
            topic = Topic(address.name, self._opened, self._patterns, self._words(address), line, self._spreading)
            topic.maker = maker
            self.by_name[address.name] = topic
            self._shares.made(topic)
        return topic

    def _words(self, address: Address) -> tuple[str, ...]:
        return self._addresses.wildcards.words(address.prefix, address.rest)

    def add(self, feed: Consumer | Durable, address: Address, maker: Maker | None = None) -> None:
        """A new subscription. It gets what comes from now on.

        Raises:
            Refused: there are too many topics, or too many words.
        """
        pattern = self._addresses.pattern(address)
        if pattern is None:
            self.make(address, maker).add(feed)
        else:
            self._flush()
            if isinstance(feed, Consumer):
                self._spreading.enter(feed)
            self._patterns.add(pattern, feed)

    def drop(self, feed: Consumer | Durable, address: Address) -> None:
        """The end of a subscription. It got what came before."""
        pattern = self._addresses.pattern(address)
        if pattern is not None:
            self._flush()
            if self._spreading and isinstance(feed, Consumer):
                self._spreading.leave(feed, pattern)
            self._patterns.remove(pattern, feed)
        elif address.name in self.by_name:
            self.by_name[address.name].drop(feed)

    def _flush(self) -> None:
        while self._opened:
            self._opened.pop().flush()

    def remove(self, name: str) -> None:
        """Let go of a topic, if it is there."""
        topic = self.by_name.pop(name, None)
        if topic is not None:
            self._patterns.forget(topic)
            self._shares.gone(topic)

    def sweep(self, kept: Callable[[str], bool]) -> bool:
        """Let go of those that nobody asks for, unless they are to be kept. Whether there were any."""
        idle = [name for name, topic in self.by_name.items() if topic.is_idle and not kept(name)]
        for name in idle:
            self.remove(name)
        return bool(idle)
