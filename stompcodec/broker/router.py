"""Router: from the name of a destination to its queue or topic, in one virtual host."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from stompcodec.broker.bounds import Bound, Pool
from stompcodec.broker.consumer import Consumer, Delivery
from stompcodec.broker.destination import Kind, Naming
from stompcodec.broker.journal import Journal
from stompcodec.broker.message import WITHOUT, Message, Refused
from stompcodec.broker.queue import Queue
from stompcodec.broker.topic import Topic
from stompcodec.codec import Frame, serialize_tail

if TYPE_CHECKING:
    from stompcodec.broker.config import Config
    from stompcodec.broker.session import Session

__all__ = ["Router"]

#: What a dead letter says of itself.
_DEAD = ("dead-letter-reason", "original-destination")


class Router:
    """The destinations of a virtual host. They come into being by their first use, and go when they are idle.

    Args:
        vhost: its name.
        config: bounds and prefixes.
        pool: what all queues of the broker share.
        journal: to the store.
        wall: the time in seconds since 1970.
        place: gives a message its message-id and its place in the order.
        swept: told when destinations have gone, for whoever remembers them.
        opened: where topics enter themselves that are to be flushed.
    """

    def __init__(
        self,
        vhost: str,
        config: Config,
        pool: Pool,
        journal: Journal,
        wall: Callable[[], float],
        place: Callable[[Message], None],
        swept: Callable[[], None],
        opened: list[Topic],
    ) -> None:
        self.vhost = vhost
        self.naming = Naming(
            config.queue_prefixes,
            config.topic_prefixes,
            config.temp_queue_prefix,
            config.temp_topic_prefix,
            config.dead_letter,
        )
        self.queues: dict[str, Queue] = {}
        self.topics: dict[str, Topic] = {}
        #: Temporary destinations by their name for everyone, and whose they are.
        self.owners: dict[str, Session] = {}
        self._config = config
        self._pool = pool
        self._journal = journal
        self._wall = wall
        self._place = place
        self._swept = swept
        self._opened = opened
        self._bound = Bound(config.max_queue_messages, config.max_queue_octets)
        self._backlog = Bound(config.topic_backlog, config.topic_backlog_octets)

    # ---- find and make ----

    def address(self, destination: str, session: Session) -> str:
        """The name for everyone: another one where a session names a temporary destination of its own.

        >>> # "/temp-queue/a" of session "s-1" is "/temp-queue/s-1-a", as a reply-to carries it to others
        """
        if not self.naming.is_temporary(destination) or destination in self.owners:
            return destination
        return self.naming.owned(destination, session.id)

    def sink(self, destination: str, session: Session) -> Queue | Topic | None:
        """Where a SEND goes. None: nowhere, for nobody listens to the topic, or the temporary destination is gone.

        Raises:
            Refused: there are too many destinations.
        """
        kind = self.naming.kind(destination)
        if kind is Kind.QUEUE:
            return self.queue(destination)
        if kind is Kind.TOPIC:
            return self.topics.get(destination)
        name = self.address(destination, session)
        return self.queues.get(name) or self.topics.get(name)

    def queue(self, name: str) -> Queue:
        """The queue of that name.

        Raises:
            Refused: there are too many destinations.
        """
        queue = self.queues.get(name)
        if queue is None:
            self._check_room()
            temporary = self.naming.is_temporary(name)
            queue = self.queues[name] = Queue(
                name,
                f"{self.vhost}\0{name}",
                self._bound,
                self._pool,
                None if temporary else self._journal,
                self._wall,
                self._expired,
            )
        return queue

    def topic(self, name: str) -> Topic:
        """The topic of that name.

        Raises:
            Refused: there are too many destinations.
        """
        topic = self.topics.get(name)
        if topic is None:
            self._check_room()
            topic = self.topics[name] = Topic(name, self._opened)
        return topic

    def _check_room(self) -> None:
        if len(self.queues) + len(self.topics) >= self._config.max_destinations:
            self.sweep()
            if len(self.queues) + len(self.topics) >= self._config.max_destinations:
                raise Refused("too many destinations", "The broker's max_destinations is reached: use fewer names.")

    # ---- subscriptions ----

    def subscribe(
        self, session: Session, destination: str, key: str | None, number: int, mode: str, window: int
    ) -> Consumer:
        """A new consumer, which has not got anything yet: `start` it once the session knows it.

        Raises:
            Refused: a temporary destination of somebody else, or too many destinations.
        """
        name = self.address(destination, session)
        if self.owners.get(name, session) is not session:
            raise Refused("a temporary destination of another session", "Only its owner can subscribe to it.")
        kind = self.naming.kind(name)
        if kind in (Kind.QUEUE, Kind.TEMP_QUEUE):
            consumer = Consumer(session, self.queue(name), key, number, mode, window)
        else:
            self.topic(name)
            queue = Queue(name, "", self._backlog, self._pool, None, self._wall)
            consumer = Consumer(session, queue, key, number, mode, window)
            queue.overflow = _Overflow(self._config.slow_consumer, consumer)
        if kind in (Kind.TEMP_QUEUE, Kind.TEMP_TOPIC):
            self.owners[name] = session
        consumer.destination = destination
        return consumer

    def start(self, consumer: Consumer) -> None:
        """Deliver to a new consumer."""
        topic = self.topics.get(consumer.queue.name)
        if topic is None:
            consumer.queue.add(consumer)
        else:
            topic.add(consumer)

    def stop(self, consumers: Iterable[Consumer], orphans: Iterable[tuple[Queue, Message]]) -> None:
        """The end of subscriptions. What they did not acknowledge goes back, all of a queue together, in order.

        Args:
            consumers: of one session.
            orphans: unacknowledged messages of subscriptions that have ended before.
        """
        back: dict[Queue, list[Message]] = {}
        for consumer in consumers:
            topic = self.topics.get(consumer.queue.name)
            if topic is None:
                back.setdefault(consumer.queue, []).extend(consumer.queue.drop(consumer))
            else:
                topic.drop(consumer)
        for queue, message in orphans:
            back.setdefault(queue, []).append(message)
        for queue, messages in back.items():
            queue.restore(messages)

    def forget(self, session: Session) -> None:
        """The end of a session: its temporary destinations go."""
        for name in [name for name, owner in self.owners.items() if owner is session]:
            del self.owners[name]
            self.topics.pop(name, None)
            queue = self.queues.pop(name, None)
            if queue is not None:
                queue.close()

    # ---- dead letters, and what is idle ----

    def reject(self, queue: Queue, deliveries: list[Delivery]) -> None:
        """NACK: once more, or a dead letter after the last attempt."""
        back = []
        for _tag, message in deliveries:
            if message.attempts + 1 >= self._config.max_attempts and self.bury(queue, message, "max-attempts"):
                queue.settle([(0, message)])
            else:
                back.append(message)
        queue.restore(back)

    def bury(self, queue: Queue, message: Message, reason: str) -> bool:
        """Put a dead letter made of a message into the dead letter queue.

        False: there is no room for it, or it is one already. Then one that was refused by NACK stays in its queue; one
        that has expired is dropped.
        """
        name = self.naming.dead_letter(queue.name)
        if name == queue.name:
            return False
        try:
            sink = self.queue(name)
        except Refused:
            return False
        if sink.full:
            return False
        frame, gone = message.frame, {*WITHOUT, *_DEAD, "destination", "expires", "expiration"}
        own = [("destination", name), (_DEAD[0], reason), (_DEAD[1], message.destination)]
        others = [pair for pair in frame.headers.pairs() if pair[0] not in gone]
        tail = serialize_tail(Frame("MESSAGE", own + others, frame.body), "1.2")
        letter = Message(b"", 0, name, tail, message.persistent, None, message.priority)
        self._place(letter)
        sink.put(letter)
        return True

    def _expired(self, queue: Queue, message: Message) -> None:
        if self._config.dead_letter_expired and not queue.closed:
            self.bury(queue, message, "expired")

    def sweep(self) -> None:
        """Let idle queues and topics go: nothing is in them, and nobody listens."""
        if self._journal.open or self._journal.busy:  # something may come back
            return
        idle = [name for name, queue in self.queues.items() if not (queue.count or queue.consumers or queue.blocked)]
        silent = [name for name, topic in self.topics.items() if not topic.consumers]
        for name in idle:
            self.queues.pop(name).close()
        for name in silent:
            del self.topics[name]
        for name in (*idle, *silent):
            self.owners.pop(name, None)
        if idle or silent:
            self._swept()


class _Overflow:
    """What a full backlog of a topic's subscription does."""

    __slots__ = ("consumer", "policy")

    def __init__(self, policy: str, consumer: Consumer) -> None:
        self.policy = policy
        self.consumer = consumer

    def __call__(self) -> bool:
        if self.policy == "block":
            return True
        if self.policy == "drop":
            self.consumer.queue.drop_oldest()
        else:
            self.consumer.session.too_slow(self.consumer)
        return False
