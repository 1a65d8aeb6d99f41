"""Messages to the subscriptions of a topic. Where these are many, some get theirs in each turn, and senders wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest
from operator import attrgetter
from typing import TYPE_CHECKING

from stompcodec.broker.bounds import AT_ONCE, Line, Turns, Work
from stompcodec.broker.memory import MESSAGE, Account

if TYPE_CHECKING:
    from stompcodec.broker.consumer import Consumer
    from stompcodec.broker.message import Message
    from stompcodec.broker.queue import Queue
    from stompcodec.broker.session import Session

__all__ = ["Bundle", "Spreading", "fullest"]

#: Deliveries of some messages that are made at once, whatever time they take.
_FEW = 250
#: Subscriptions that are served between two looks at the clock.
_STEP = 32
#: Queues that one sender waits for. With more, it waits for the fullest: the others may get one message meanwhile.
_MOST_SLOW = 16


class Bundle:
    """Messages that go out together.

    Args:
        messages: in order.
        plain: nothing special is about them, so that subscriptions with the same id, which are most, share one chunk of
            bytes.
    """

    __slots__ = ("_chunks", "_octets", "_tails", "messages", "plain", "slow")

    def __init__(self, messages: list[Message], plain: bool) -> None:
        self.messages = messages
        self.plain = plain
        #: Queues of subscriptions that are full now.
        self.slow: list[Queue] = []
        self._tails = [b"message-id:%b\n%b\n" % (message.ident, message.tail) for message in messages]
        self._octets = sum([message.size for message in messages])
        self._chunks: dict[bytes, bytes] = {}

    @property
    def cost(self) -> int:
        """Bytes of memory."""
        return self._octets + len(self.messages) * MESSAGE

    def give(self, consumers: Iterable[Consumer]) -> None:
        """Give the messages to each of these subscriptions."""
        plain, octets, tails, chunks = self.plain, self._octets, self._tails, self._chunks
        for consumer in consumers:
            session = consumer.session
            # As in Queue.deliver: it stands in the ring, so nothing is READY; and there is room.
            try:
                if plain and consumer.direct and not consumer.acks and consumer.waiting and session.room > 0:
                    start = consumer.start
                    chunk = chunks.get(start)
                    if chunk is None:
                        chunk = chunks[start] = start + start.join(tails)
                    session.outbox.append(chunk)
                    session.room -= octets
                    if not session.dirty:
                        session.mark()
                elif _put(consumer, self.messages):
                    self.slow.append(consumer.queue)
            except Exception as error:  # it ends this subscriber; those behind it get theirs
                session.fault(consumer.queue, self.messages[0], error)


def _put(consumer: Consumer, messages: list[Message]) -> bool:
    """Into the queue of a consumer. True: it is full."""
    selector, put, full = consumer.selector, consumer.queue.put, False
    for message in messages:
        if selector is None or selector.matches(message):
            full = put(message) or full
    return full


def fullest(queues: list[Queue]) -> list[Queue]:
    """Return the queues that a sender waits for, of those that are full."""
    return queues if len(queues) <= _MOST_SLOW else nlargest(_MOST_SLOW, queues, key=attrgetter("count"))


class _Round:
    """A bundle, the subscriptions that it is for, and how many of those have got it."""

    __slots__ = ("_places", "bundle", "consumers", "done")

    def __init__(self, bundle: Bundle, consumers: Sequence[Consumer]) -> None:
        self.bundle = bundle
        self.consumers = consumers
        self.done = 0
        #: Made when one of them ends; most never do meanwhile.
        self._places: dict[Consumer, int] = {}

    def go_on(self, turns: Turns) -> None:
        """Give it to more subscriptions, until the turn is over. Those that have ended since got it when they ended."""
        began = turns.clock()
        last = min(self.done + AT_ONCE, len(self.consumers))
        while self.done < last:
            some = self.consumers[self.done : min(self.done + _STEP, last)]
            self.done += len(some)
            self.bundle.give([consumer for consumer in some if not consumer.closed])
            if turns.is_over(began):
                break

    def gives_later(self, consumer: Consumer) -> bool:
        """Return whether one is still to get the messages."""
        if not self._places:
            self._places = {each: place for place, each in enumerate(self.consumers)}
        return self._places.get(consumer, -1) >= self.done


class Spreading:
    """The bundles that many subscriptions are still to get. Each subscription gets them in order.

    Args:
        turns: where it waits for the next turn.
        account: of the broker's memory.
    """

    __slots__ = ("_account", "_rounds", "_turns", "blocked")

    def __init__(self, turns: Turns, account: Account) -> None:
        self._turns = turns
        self._account = account
        self._rounds: deque[_Round] = deque()
        #: Sessions that wait until nothing is on its way.
        self.blocked: dict[Session, None] = {}

    def __bool__(self) -> bool:
        return bool(self._rounds)

    def give(self, bundle: Bundle, consumers: Sequence[Consumer]) -> None:
        """Give messages to subscriptions: if there are many, to some of them now, unless other messages come first."""
        if not self._rounds and len(consumers) * len(bundle.messages) <= _FEW:
            bundle.give(consumers)
            return
        self._rounds.append(_Round(bundle, consumers))
        self._account.used += bundle.cost
        if len(self._rounds) == 1:
            Work(self._going_round()).take_turn(0.0)

    def _going_round(self) -> Iterator[Line]:
        slow: list[Queue] = []
        while self._rounds:
            first = self._rounds[0]
            first.go_on(self._turns)
            if first.done >= len(first.consumers):
                self._rounds.popleft()
                self._account.used -= first.bundle.cost
                slow = fullest(first.bundle.slow)
            if self._rounds:
                yield self._turns
        blocked, self.blocked = self.blocked, {}
        for session in blocked:
            for queue in slow:
                if queue.full:
                    queue.block(session)
            session.unblock(self)

    def hurry(self, consumer: Consumer) -> None:
        """Give a subscription that ends what is on its way to it."""
        for each in self._rounds:
            if each.gives_later(consumer):
                each.bundle.give([consumer])

    def block(self, session: Session) -> None:
        """Make a sender wait until nothing is on its way."""
        if session.block(self):
            self.blocked[session] = None
