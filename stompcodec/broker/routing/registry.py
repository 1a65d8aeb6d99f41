"""Destinations: the queues and topics of a virtual host, found by the names in frames, made and removed.

`VirtualHost` has them, with their subscriptions and dead letters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from stompcodec.broker.config import Config
from stompcodec.broker.connections import Maker, Peer
from stompcodec.broker.loop_quota import AT_ONCE, Line, LoopQuota, Wall, Work
from stompcodec.broker.memory import Account, Part
from stompcodec.broker.message import Message
from stompcodec.broker.queues.browser import Browser
from stompcodec.broker.queues.consumer import (
    Consumer,
    QueueArguments,
    Source,
    SubscribeRequest,
    check_writable,
    load_arguments,
)
from stompcodec.broker.queues.paging import leave_all_in_store
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.queues.ready import Bound, Window
from stompcodec.broker.routing.addresses import Addresses, Naming
from stompcodec.broker.routing.dead_letters import DeadLetters
from stompcodec.broker.routing.delayed import Retained, RetainTarget
from stompcodec.broker.routing.durables import Durables
from stompcodec.broker.routing.topic import Durable, Shares, Topic, Topics, owner_of
from stompcodec.broker.selectors import Selector
from stompcodec.broker.settings import Address, Kind
from stompcodec.broker.storage.journal import Journal
from stompcodec.broker.storage.store import Held, Store, Stored, Subscribed
from stompcodec.broker.values import Refused


class Owners:
    """Destinations that belong to one session each, by the name that they have for others."""

    __slots__ = ("_by_name", "_by_session")

    def __init__(self) -> None:
        self._by_name: dict[str, Peer] = {}
        self._by_session: dict[Peer, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def get(self, name: str) -> Peer | None:
        """Return the session that owns a destination; None without an owner."""
        return self._by_name.get(name)

    def claim(self, name: str, session: Peer) -> None:
        """Make a session the owner of a destination without an owner."""
        self._by_name[name] = session
        self._by_session.setdefault(session, {})[name] = None

    def release(self, name: str) -> None:
        """Remove a destination that has ended."""
        session = self._by_name.pop(name, None)
        if session is not None:
            mine = self._by_session[session]
            del mine[name]
            if not mine:
                del self._by_session[session]

    def leave(self, session: Peer) -> list[str]:
        """Remove a session. Return the names of its destinations."""
        names = list(self._by_session.pop(session, ()))
        for name in names:
            del self._by_name[name]
        return names


#: ActiveMQ's `Consumer.*.VirtualTopic.>`; its group is the name of the topic.
_CONSUMER = re.compile(r"Consumer\.[^.]+\.(VirtualTopic(?:\..+)?)", re.DOTALL)


class StoredQueues:
    """The queues of one virtual host that the store keeps. `latest` returns the seq of the latest message."""

    def __init__(
        self, config: Config, naming: Naming, journal: Journal, topics: Topics, latest: Callable[[], int]
    ) -> None:
        self._config = config
        self._naming = naming
        self._journal = journal
        self._topics = topics
        self._latest = latest
        #: The durable subscription to a virtual topic, by the name of its queue.
        self._feeds: dict[str, Durable] = {}
        #: Keys of the queues that the store has, or will have.
        self._stored: set[str] = set()

    def __contains__(self, name: object) -> bool:
        """Return whether a queue of this name gets the messages of a virtual topic."""
        return name in self._feeds

    def topic_of(self, name: str) -> Address | None:
        """Return the virtual topic, or the pattern of them, of a queue name; None for other names."""
        if not self._config.virtual_topics:
            return None
        kind, _prefix, rest = self._naming.split(name)
        found = _CONSUMER.fullmatch(rest) if kind is Kind.QUEUE else None
        return None if found is None else Address(Kind.TOPIC, self._config.topic_prefixes[0], found[1])

    def listen(self, queue: Queue) -> None:
        """Subscribe a new queue to its virtual topic, if it has one. Raise Refused if a limit is reached."""
        address = self.topic_of(queue.name)
        if address is None:
            return
        feed = Durable(queue.name, queue, address, shared=True, since=self._latest(), prompt=True)
        self._topics.add(feed, address, queue.maker)
        self._feeds[queue.name] = feed
        if queue.key not in self._stored:
            self.store(queue)

    def store(self, queue: Queue) -> None:
        """Store the arguments and the virtual topic of a queue."""
        store = self._journal.store
        if store is not None and queue.journal is not None:
            self._stored.add(queue.key)
            store.subscribe(self._record(queue))
            self._journal.batch.actions.append(partial(self._was_stored, queue))

    def _record(self, queue: Queue) -> Subscribed:
        feed = self._feeds.get(queue.name)
        prefix, name = ("", "") if feed is None else (feed.address.prefix, feed.address.rest)
        return Subscribed(queue.key, prefix, name, selector=None if queue.arguments is None else queue.arguments.text)

    def _was_stored(self, queue: Queue, committed: bool) -> None:
        if not committed and not queue.closed and queue.key in self._stored:
            self.store(queue)  # with the next batch

    def forget(self, queue: Queue) -> None:
        feed = self._feeds.pop(queue.name, None)
        if feed is not None:
            self._topics.drop(feed, feed.address)
        if queue.key in self._stored:
            self._stored.discard(queue.key)
            self._unstore(queue.key, False)

    def _unstore(self, key: str, committed: bool) -> None:
        store = self._journal.store
        if not committed and store is not None and key not in self._stored:
            store.unsubscribe(key)
            self._journal.batch.actions.append(partial(self._unstore, key))

    def restore(self, record: Subscribed, name: str, make: Callable[[str], Queue]) -> None:
        """Make a queue that the store had kept. `make` finds a queue by its name, or makes it."""
        self._stored.add(record.queue)
        arguments = load_arguments(record.selector) if self._config.queue_arguments != "ignore" else None
        if arguments is None and self.topic_of(name) is None:
            self._stored.discard(record.queue)  # the configuration has changed: the record stays in the store
            return
        queue = make(name)
        if arguments is not None:
            agree(queue, arguments, False)


def agree(queue: Queue, arguments: QueueArguments, refuses: bool) -> bool:
    """Set the arguments of a new queue that a client names. Return whether that changed it. Arguments that differ from
    those of the queue raise Refused if `refuses`, and are ignored otherwise.
    """
    if arguments == queue.arguments:
        return False
    if queue.arguments is not None or queue.total or queue.members:
        if refuses:
            raise Refused(
                "the queue has other arguments",
                "Another client created it: omit the x- headers, or use those with which it was created.",
            )
        return False
    queue.arguments, queue.used = arguments, None
    if not arguments.reject_publish and (arguments.max_length is not None or arguments.max_length_bytes is not None):
        messages, octets = arguments.max_length, arguments.max_length_bytes
        queue.bound = Bound(
            queue.bound.messages if messages is None else min(messages, queue.bound.messages),
            queue.bound.octets if octets is None else min(octets, queue.bound.octets),
        )
        queue.overflow = queue.drop_oldest
    return True


def is_unused(queue: Queue, now: float) -> bool:
    """Return whether a queue has had no consumer for its x-expires. To be called now and then."""
    if queue.arguments is None or queue.arguments.expires is None:
        return False
    if queue.members or queue.used is None:
        queue.used = now
    return now - queue.used >= queue.arguments.expires


#: Messages of short queues that are loaded.
_MOST_LOADED = 10_000


def load_queues(
    store: Store, most: int, restored: Callable[[Stored], Message], find: Callable[[str], Destinations]
) -> int:
    """Bring stored messages into their queues, and return the highest seq of all, or 0. `most` is the length of a short
    queue; `restored` makes a message of a stored one, `find` returns the destinations of a virtual host. Raise
    StoreError if the store cannot be read.
    """
    left, last = _MOST_LOADED, 0
    for held in list(store.held()):
        vhost, _, name = held.queue.partition("\0")
        destinations, last = find(vhost), max(last, held.last)
        is_short = held.total <= min(most, left) and not held.is_mixed
        if is_short or not destinations.page(name, held):
            left -= held.total
            for stored in store.load(held.queue):
                destinations.load(name, restored(stored))
    return last


#: The prefix of the keys of queues for retained messages. No destination has it.
_RETAINED = "\0r"
#: Queues that are swept in one turn; some are deleted.
_LOOKS = 200
#: The most characters of a name. Each destination has several copies of it, which no bound counts.
_MOST_NAME = 4096


class Destinations:
    """The queues and topics of a virtual host, which are made by their first use and removed when they are idle.

    `place` gives a message its message-id and its place in the order. `swept` is called when destinations were removed,
    so that sessions forget them. `opened` are the topics that have gathered messages. `latest` returns the seq of the
    latest message. `hold` requeues messages after a number of seconds.
    """

    def __init__(
        self,
        vhost: str,
        config: Config,
        account: Account,
        journal: Journal,
        wall: Wall,
        place: Callable[[Message], None],
        swept: Callable[[], None],
        opened: list[Topic],
        latest: Callable[[], int],
        hold: Callable[[Queue, list[Message], float], None],
    ) -> None:
        self.naming = Naming(
            *(config.queue_prefixes, config.topic_prefixes, config.temp_queue_prefix, config.temp_topic_prefix),
            config.dead_letter,
        )
        self.queues: dict[str, Queue] = {}
        self.addresses = Addresses(config, self.naming, self.queues)
        #: Called with each queue or topic that ends, before it is closed.
        self.at_end: list[Callable[[Queue | Topic], object]] = []
        #: The sessions that own temporary destinations and exclusive queues.
        self.owners = Owners()
        #: Headers of SEND that may change its destination, or have it refused.
        self.routing_headers = _routing_headers(config)
        #: Queues that end with their last consumer.
        self.ending: set[str] = set()
        #: A sweep for expired messages is going on.
        self._expiring = False
        self._vhost, self._config, self._account = vhost, config, account
        self._journal, self._wall, self._swept = journal, wall, swept
        self.dead_letters = DeadLetters(config, self.naming, self.addresses, self.queues, self.queue, place, wall, hold)
        self._on_drop = self.dead_letters.drop  # one object for all queues
        self._bound, self._backlog = Bound.of(config), Bound(config.topic_backlog, config.topic_backlog_octets)
        self._window = Window.of(config) if journal.keeps else None
        self.shares = Shares(config, account)
        self.topics = Topics(self.addresses, opened, self.check_room, self.shares, journal.quota, account, self.at_end)
        self.addresses.topics = self.topics.by_name
        part = Part(account, min(config.max_retained_octets, account.first // 2))
        words = self.addresses.wildcards.words
        self.retained = Retained(self._retained_queue, words, config.max_destinations, part)
        self.durables = Durables(
            *(config, journal, self.topics, self._queue_of, self.retained_for, self.check_room, self.shares, account),
            self.at_end,
        )
        self.stored_queues = StoredQueues(config, self.naming, journal, self.topics, latest)
        #: Names of the queues and topics that the configuration has.
        self._preset: set[str] = set()
        self._make_presets()

    def _make_presets(self) -> None:
        for preset in self._config.presets:
            address = self.addresses.find(preset.name, preset.routing, True)
            self._preset.add(address.name)
            if address.kind is Kind.QUEUE:
                self.queue(address.name)
            else:
                self.topics.make(address)
                for name in preset.queues:
                    self.durables.make(name, address)

    # ---- find and make ----
    def address(self, destination: str, session: Peer) -> str:
        """Return the name that a destination of a session has for others.

        Only that of its own temporary destinations differs: "/temp-queue/a" of session "s-1" is "/temp-queue/s-1-a",
        which it can put into a reply-to.
        """
        if not self.naming.is_temporary(destination) or destination in self.owners:
            return destination
        return self.naming.owned(destination, session.id)

    def target(self, address: Address, session: Peer, retain: str | None = None) -> Queue | Topic | RetainTarget | None:
        """Return the target of a SEND with this header `retain`; None if the topic has no subscriptions, or the
        temporary destination has ended. Raise Refused if there are too many destinations, or a SEND does not make this
        one.
        """
        name = address.name
        if address.found:
            return self.existing(address, session, "send")
        if address.kind is Kind.QUEUE:
            queue = self.queues.get(name)
            return self.allowed_queue(name, self.shares.maker(session)) if queue is None else queue
        if address.kind is Kind.TOPIC:
            topic = self.topics.find(address, self.shares.maker(session))
            if topic is None:
                self.check_topic(name)
            if retain is not None and self._config.retain:
                return self.retained.target(retain, address, topic)
            return topic
        name = self.address(name, session)
        found = self.queues.get(name) or self.topics.by_name.get(name)
        if found is None and self._config.refuse_ended:
            raise Refused("no such destination", "The connection that this temporary one was of has ended.")
        return found

    def is_certain(self, destination: str, address: Address) -> bool:
        """Return whether all SENDs to a destination have the same target, whatever their other headers are."""
        if self._config.refuse_message_id or (self._config.retain and address.kind is Kind.TOPIC):
            return False
        return self.addresses.is_certain(destination)

    def canonical(self, address: Address, session: Peer) -> Address:
        """Return the address under which a queue is known here, for permissions and for its owner.

        With exchanges, as in RabbitMQ, `a`, `/queue/a` and `/amq/queue/a` are one queue; so is one that a SUBSCRIBE to
        a topic has named `a` by x-queue-name. With virtual topics, as in ActiveMQ, `a` and `/queue/a` are one queue.
        """
        rest, one = address.rest, self._config.exchanges or self._config.virtual_topics
        if address.kind is not Kind.QUEUE or not one:
            return address
        prefix = self._config.queue_prefixes[0]
        if address.prefix not in ("", prefix) or (not address.prefix and (rest.startswith("/") or not rest)):
            return address
        durable = self.durables.find(rest, session.owner) if self._config.exchanges else None
        if durable is not None and (durable.shared or address.found):
            return Address(Kind.QUEUE, prefix, rest, True, True)
        other = prefix if not address.prefix else ""
        if address.name in self.queues or (other + rest not in self.queues and address.prefix):
            return address
        return address if self.naming.split(rest)[1] else address._replace(prefix=other)

    def mergeable(self, name: str, stored: bool) -> Queue | None:
        """Return the queue to be merged into a new durable subscription of its name (by x-queue-name), which the store
        may keep; None without such a queue. Raise Refused if it is in use, or has too many messages to be moved at
        once.
        """
        if not self._config.exchanges:
            return None
        queue = self.queues.get(self._config.queue_prefixes[0] + name) or self.queues.get(name)
        if queue is None:
            return None
        held = len(queue.messages) != queue.total or any(message.body is not None for message in queue.messages)
        used = bool(queue.members or queue.blocked or queue.suspensions or self._journal.busy)
        if used or held or queue.count > AT_ONCE or (queue.count and not stored):
            remedy = f"{queue.name} holds messages or has consumers: consume it by that name, or choose another name."
            raise Refused("a queue of that name exists", remedy)
        return queue

    def merge(self, queue: Queue | None, durable: Durable) -> None:
        """Move the messages of the queue that `mergeable` found into a durable subscription."""
        if queue is not None:
            messages = list(queue.messages)
            self.delete(queue.name)
            for message in messages:
                durable.queue.put(message)

    def existing(self, address: Address, session: Peer, action: str = "subscribe") -> Queue:
        """Return an existing queue: that of a durable subscription of this user, or one with another name. Raise
        Refused if it does not exist, or belongs to another user.
        """
        durable = self.durables.find(address.rest, session.owner)
        if durable is not None:
            return durable.queue
        queue = self.queues.get(address.name)
        if self.durables.is_taken(address.rest) and queue is None:
            raise Refused(f"not allowed to {action} there", "It is a durable subscription of another user.")
        if queue is None:
            raise Refused("no such queue", "This name does not create it: create it under its own name first.")
        return queue

    def made(self, address: Address) -> Queue | Topic | None:
        """Return the queue or topic of an address for the broker itself, made if need be; None for a topic without
        subscriptions. Raise Refused if it cannot be made.
        """
        if address.kind is Kind.TOPIC:
            return self.topics.find(address)
        if address.found and address.name not in self.queues:
            raise Refused("no such queue", "This name does not create it: create it under its own name first.")
        return self.queue(address.name)

    def allowed_queue(self, name: str, maker: Maker) -> Queue:
        if not self.addresses.setting(name).auto_create_queues:
            raise Refused("no such queue", "The broker's settings for this address do not let clients create queues.")
        return self.queue(name, maker)

    def check_plain(self, name: str) -> None:
        """Raise Refused for wildcards in the name of a queue, where other brokers have them and this one has not."""
        _kind, prefix, rest = self.naming.split(name)
        has_some = self._config.wildcards in ("activemq", "artemis") and self.stored_queues.topic_of(name) is None
        if has_some and self.addresses.wildcards.pattern(prefix, rest) is not None:
            raise Refused("queues have no wildcards", "Subscribe to each queue by its name; topics have wildcards.")

    def check_topic(self, name: str) -> None:
        if name not in self.topics.by_name and not self.addresses.setting(name).auto_create_addresses:
            raise Refused("no such address", "The broker's settings do not let clients create addresses of that name.")

    def queue(self, name: str, maker: Maker | None = None) -> Queue:
        """Return the queue of this name, made for a session if need be. Raise Refused if there are too many."""
        queue = self.queues.get(name)
        if queue is None:
            self.check_room(name, maker)
            queue = self.queues[name] = self._queue_of(name, name, not self.naming.is_temporary(name))
            queue.maker = maker
            self.shares.add(queue)
            try:
                self.stored_queues.listen(queue)
            except Refused:
                self.delete(name)
                raise
        return queue

    def _queue_of(self, name: str, key: str, stored: bool) -> Queue:
        """Make a queue; `key` is its key in the store, without the virtual host."""
        journal = self._journal if stored else None
        return Queue(
            *(name, f"{self._vhost}\0{key}", self._bound, self._account, journal, self._wall),
            *(self._on_drop, self._config.priority, self._journal.quota, self._window if stored else None),
        )

    def topic_queue(self, address: Address) -> Queue:
        return Queue(address.name, "", self._backlog, self._account, None, self._wall, quota=self._journal.quota)

    def _retained_queue(self, name: str, part: Part) -> Queue:
        return Queue(name, f"{self._vhost}\0{_RETAINED}{name}", self._bound, part, self._journal, self._wall)

    def check_room(self, name: str, maker: Maker | None = None) -> None:
        """Check the name of a new destination, and that there is room for it, or raise Refused. Remove idle ones."""
        if len(name) > _MOST_NAME:
            raise Refused("destination too long", f"The name of a destination has at most {_MOST_NAME} characters.")
        for sweep in (self._sweep_topics, self.sweep):
            if self.shares.why_not(name, maker) is None:
                return
            sweep()
        self.shares.check(name, maker)

    def restore(self, record: Subscribed, name: str) -> None:
        """Make what the store had kept: a durable subscription or a queue, by its key without the virtual host."""
        if name.startswith("\0"):
            self.durables.restore(record, name)
        else:
            self.stored_queues.restore(record, name, self.queue)

    def load(self, name: str, message: Message) -> None:
        """Take a message that the store had kept, in order. `name` is its queue's key, without the virtual host."""
        if name.startswith(_RETAINED):
            _kind, prefix, rest = self.naming.split(name[len(_RETAINED) :])
            self.retained.load(Address(Kind.TOPIC, prefix, rest), message)
        elif not self.durables.load(name, message):
            self.queue(name).load(message)

    def page(self, name: str, held: Held) -> bool:
        """Make a queue, by its key without the virtual host, whose messages the store keeps until they are needed.
        Return False if they must be loaded. `held` is what the store knows of it.
        """
        if name.startswith(_RETAINED):
            return False
        queue = self.durables.kept(name) if self.durables.is_key(name) else self.queue(name)
        if queue is None:
            return True
        left = leave_all_in_store(queue, held)
        if left and not queue.name:  # its subscription has ended
            queue.delete()
        return left

    def retained_for(self, address: Address, selector: Selector | None) -> list[Message]:
        found, is_over = self.retained.matching(address, self.addresses.pattern(address)), self._wall.is_over
        return [
            message
            for message in found
            if not (message.expires and is_over(message.expires)) and (selector is None or selector.matches(message))
        ]

    # ---- remove ----
    def delete(self, name: str, done: Callable[[], object] = lambda: None) -> bool:
        """Delete a queue with its messages. Return True if that goes on in later turns; `done` is called at its end."""
        if name not in self.queues:
            return False
        goes_on = self._remove(name, done)
        self._swept()
        return goes_on

    def delete_topic(self, name: str) -> bool:
        """Delete a topic. Return False if it has subscriptions."""
        topic = self.topics.by_name.get(name)
        if topic is None or not topic.is_idle or topic.consumers or topic.durables:
            return False
        self.topics.remove(name)
        self._swept()
        return True

    def _remove(self, name: str, done: Callable[[], object] = lambda: None) -> bool:
        queue = self.queues.pop(name)
        self.ending.discard(name)
        self.shares.remove(queue)
        self.stored_queues.forget(queue)
        for tell in self.at_end:
            tell(queue)
        return queue.delete(done)

    def sweep(self) -> None:
        """Remove idle queues and topics: without messages and subscriptions."""
        if self._journal.open or self._journal.busy:  # messages may be requeued
            return
        idle = [
            name
            for name, queue in self.queues.items()
            if not (queue.total or queue.paging or queue.members or queue.blocked or queue.suspensions)
            and name not in self._preset
            and name not in self.stored_queues
            and self.addresses.setting(name).auto_delete_queues
        ]
        for name in idle:
            self._remove(name)
            self.owners.release(name)
        self.retained.sweep()
        self._sweep_topics()
        if idle:
            self._swept()

    def _sweep_topics(self) -> None:
        before = list(self.topics.by_name) if self.owners else []
        if self.topics.sweep(
            lambda name: name in self._preset or not self.addresses.setting(name).auto_delete_addresses
        ):
            for name in before:
                if name not in self.topics.by_name and name not in self.queues:
                    self.owners.release(name)
            self._swept()

    def expire(self, now: float) -> None:
        """Remove expired messages, of some queues in each turn."""
        quota = self._journal.quota
        if not self._expiring:
            self._expiring = True
            Work(self._expire(now, quota)).take_turn(now)

    def _expire(self, now: float, quota: LoopQuota) -> Iterator[Line]:
        durables = (durable.queue for durable in self.durables)
        for count, queue in enumerate([*self.queues.values(), *durables, *self.retained.queues.values()], 1):
            if not queue.closed:
                queue.sweep(now)
                if is_unused(queue, now) and self.queues.get(queue.name) is queue:
                    self.delete(queue.name)
            if not count % _LOOKS:
                yield quota
        self._expiring = False

    def why_unseen(self, session: Peer, address: Address) -> str | None:
        """Return why a session may not subscribe to an address, nor learn that it exists; None if it may.

        Invariant: whatever shows messages or names of others to a client asks this. A queue of a virtual topic shows
        its messages, so its topic counts too; and a dead letter queue shows those of the queue in its name.
        """
        letters = self.naming.of_letters(address.name) or ""
        owner = owner_of(letters)
        if owner is not None and session.owner not in (None, owner):
            return "Only the owner of a durable subscription can read its dead letters."
        sources = [address]
        if address.kind is Kind.QUEUE:
            sources += filter(None, map(self.stored_queues.topic_of, (address.name, letters)))
        durable = self.durables.of_queue(letters) if letters else None
        if durable is not None:
            sources.append(durable.address)
        may = all(self.may(session, source) for source in sources)
        return None if may else "The broker's access rules do not allow it."

    def may(self, session: Peer, address: Address) -> bool:
        """Return whether the rules let a session subscribe to an address, by its name alone."""
        auth, name = session.broker.auth, address.name
        if self.addresses.pattern(address) is None:
            return auth.may(session.user, "subscribe", name)
        return auth.may_all(session.user, "subscribe", self.addresses.wildcards.head(name))

    def agree(self, queue: Queue, arguments: QueueArguments | None, session: Peer) -> None:
        """Apply the queue arguments of a client, if it has any. Raise Refused if the queue has others, or the client
        may not send to the dead letter queue, or not read the queue, whose messages it would get there.
        """
        policy = self._config.queue_arguments
        # As in RabbitMQ, a session declares a queue once: later arguments are ignored.
        known = policy == "refuse" and session.declare(queue.name)
        if arguments is not None and arguments != queue.arguments and not known:
            letters = arguments.dead_letter_queue
            if letters is not None and not session.broker.auth.may(
                session.user, "send", self._config.queue_prefixes[0] + letters
            ):
                raise Refused("not allowed to send there", "The rules do not allow this x-dead-letter-routing-key.")
            own = Address(Kind.QUEUE, *self.naming.split(queue.name)[1:])
            if letters is not None and self.why_unseen(session, own) is not None:
                remedy = "x-dead-letter-routing-key moves its messages, and needs the right to subscribe to it."
                raise Refused("not allowed to subscribe there", remedy)
            if agree(queue, arguments, policy == "refuse"):
                self.stored_queues.store(queue)
                self._swept()


def _routing_headers(config: Config) -> tuple[str, ...]:
    headers = {
        "destination-type": config.routing_headers,
        "retain": config.retain,
        "message-id": config.refuse_message_id,
    }
    return tuple(name for name, counts in headers.items() if counts)


class VirtualHost:
    """The subscriptions and client-ids of a virtual host, beside its destinations."""

    def __init__(self, vhost: str, config: Config, destinations: Destinations) -> None:
        self.vhost = vhost
        self.destinations = destinations
        self.naming = destinations.naming
        self.queues = destinations.queues
        self.topics = destinations.topics.by_name
        self.owners = destinations.owners
        self.dead_letters = destinations.dead_letters
        #: Sessions by their user and the client-id of their CONNECT. Each user has client-ids of their own.
        self._clients: dict[tuple[str | None, str], Peer] = {}
        self._config = config

    def join(self, session: Peer, client_id: str | None) -> None:
        """Enter the client-id of a session that has connected. Raise Refused if another session has it."""
        if not client_id:
            return
        key = session.owner, client_id
        other, policy = self._clients.get(key), self._config.same_client
        if other is not None and policy == "refuse":
            remedy = "wait for its end, take another one, or set the broker's sessions.same_client to replace or allow."
            raise Refused("client-id is in use", f"Another session has it: {remedy}")
        if other is not None and policy == "replace":
            other.fail("client-id was taken over", "Another session has connected with the same client-id.")
        self._clients[key] = session
        session.client_id = client_id

    # ---- subscriptions ----
    def subscribe(self, session: Peer, number: int, request: SubscribeRequest) -> Consumer:
        """Return a new consumer without messages: `start` it once the session knows it. Raise Refused if the session
        may not subscribe, or the destination cannot be made, or does not suit the request.
        """
        check_writable(request, session.version)
        address = self.destinations.addresses.find(request.destination, request.routing, True)
        address = self.destinations.canonical(address, session)
        self._check_allowed(session, address)
        name = self.destinations.address(address.name, session)
        if self.owners.get(name) not in (None, session):
            raise Refused("a temporary destination of another session", "Only its owner can subscribe to it.")
        if address.found:
            consumer = self._consumer_of_found(session, number, request, address)
        elif address.kind is Kind.QUEUE:
            consumer = self._consumer_of_queue(session, number, request, name)
        elif address.kind is Kind.TEMP_QUEUE:
            queue = self.destinations.queue(name, self.destinations.shares.maker(session))
            consumer = Consumer(session, queue, number, request)
        else:
            consumer = self._consumer_of_topic(
                session, number, request, address._replace(rest=name[len(address.prefix) :])
            )
        if address.kind in (Kind.TEMP_QUEUE, Kind.TEMP_TOPIC):
            self.owners.claim(name, session)
        consumer.destination = request.destination
        source = consumer.queue
        assert isinstance(source, Queue)
        if consumer.address is None and not address.found:
            self.destinations.agree(source, request.arguments, session)
        if request.browser:
            if consumer.address is not None:
                raise Refused("a topic cannot be browsed", "A topic keeps no messages: browse a queue.")
            consumer.queue = Browser(source)
        return consumer

    def _check_allowed(self, session: Peer, address: Address) -> None:
        why = self.destinations.why_unseen(session, address)
        if why is None:
            return
        temporary = address.kind in (Kind.TEMP_QUEUE, Kind.TEMP_TOPIC)
        if not temporary or not session.broker.auth.manages(session.user, address.name):
            raise Refused("not allowed to subscribe there", why)

    def _consumer_of_queue(self, session: Peer, number: int, request: SubscribeRequest, name: str) -> Consumer:
        """Make the consumer of a queue, and the queue if need be, which may be exclusive or end with its consumers."""
        queue, new = self.queues.get(name), name not in self.queues
        if request.durable is not None and not self._config.durable_queues:
            raise Refused("cannot durably subscribe to a queue", "A queue keeps its messages: leave out the name.")
        if queue is None:
            self.destinations.check_plain(name)
            queue = self.destinations.allowed_queue(name, self.destinations.shares.maker(session))
        if request.exclusive and self._config.exclusive == "session":
            if not new and name not in self.owners:
                raise Refused("the queue is not exclusive", "It was created without exclusive:true.")
            self.owners.claim(name, session)
            request = request._replace(exclusive=False)
        if new and request.auto_delete:
            self.destinations.ending.add(name)
        if name in self.destinations.stored_queues:
            request = request._replace(readdressed=True)
        return Consumer(session, queue, number, request)

    def _consumer_of_topic(self, session: Peer, number: int, request: SubscribeRequest, address: Address) -> Consumer:
        if address.kind is Kind.TOPIC:
            durable = self._durable(session, request, address)
            if durable is not None:
                consumer = Consumer(session, durable.queue, number, request._replace(selector=None))
                consumer.durable = durable
                return consumer
        if self.destinations.addresses.pattern(address) is None:
            self.destinations.check_topic(address.name)
            self.destinations.topics.make(address, self.destinations.shares.maker(session))
        queue = self.destinations.topic_queue(address)
        consumer = Consumer(session, queue, number, request)
        consumer.address = address
        queue.overflow = partial(_overflow, self._config.slow_consumer, consumer)
        return consumer

    def _durable(self, session: Peer, request: SubscribeRequest, address: Address) -> Durable | None:
        """Return the durable subscription that a SUBSCRIBE to a topic means; None if it means none."""
        durables, name = self.destinations.durables, request.queue_name
        # With users the queue belongs to one of them, and is not the queue of the same name for all.
        if not name or request.durable is not None or session.owner is not None or durables.is_taken(name):
            return durables.requested(session, request, address, self.destinations.may)
        queue = self.destinations.mergeable(name, request.durable_flag)
        durable = durables.requested(session, request, address, self.destinations.may)
        if durable is not None:
            self.destinations.merge(queue, durable)
        return durable

    def _consumer_of_found(self, session: Peer, number: int, request: SubscribeRequest, address: Address) -> Consumer:
        durables = self.destinations.durables
        queue, durable = self.destinations.existing(address, session), durables.find(address.rest, session.owner)
        consumer = Consumer(session, queue, number, request)
        if durable is not None:
            self._check_allowed(session, durable.address)
            durable.check_free()
            durables.adopt(durable, session)
            consumer.durable = durable
        return consumer

    def start(self, consumer: Consumer) -> None:
        address = consumer.address
        if address is not None:
            self.destinations.topics.add(consumer, address, consumer.session.maker)
            if consumer.closed:  # another subscription was too slow, which has ended the session
                self.destinations.topics.drop(consumer, address)
                return
        consumer.queue.add(consumer)
        if address is not None and self.destinations.retained.queues:
            for message in self.destinations.retained_for(address, consumer.selector):
                consumer.queue.put(message)

    def stop(
        self,
        consumers: Iterable[Consumer],
        orphans: Iterable[tuple[Source, Message]],
        is_spared: bool = False,
        culprit: Message | None = None,
        kept: list[tuple[Source, Message]] | None = None,
    ) -> None:
        """End subscriptions of one session. Their unacknowledged messages, and those of subscriptions that ended before
        (`orphans`), are requeued, all of a queue together, in order. If they are spared, because of an UNSUBSCRIBE, a
        DISCONNECT or a refused frame, that is an attempt of the message at fault only, if there is one. With a list of
        those `kept` they go there instead.
        """
        back: dict[Source, list[Message]] = {}
        for consumer in consumers:
            if consumer.address is None and consumer in consumer.queue.members:
                back.setdefault(consumer.queue, []).extend(consumer.queue.drop(consumer))
            elif consumer.address is None:  # it never began: another part of its composite was refused
                consumer.close()
            else:
                self.destinations.topics.drop(consumer, consumer.address)
                _end(consumer)
        for queue, message in orphans:
            back.setdefault(queue, []).append(message)
        for queue, messages in back.items():
            if kept is not None:
                kept += [(queue, message) for message in messages]
            elif self._config.counts_losses:
                queue.requeue(self.dead_letters.spent(queue, messages))
            elif is_spared:
                self.dead_letters.give_back(queue, messages, culprit)
            else:
                queue.requeue(messages)
        for consumer in consumers:
            self.end_with_last(consumer)

    def end_with_last(self, consumer: Consumer) -> None:
        """Delete the queue of a consumer if it ends with its last consumer, and this was the last."""
        if consumer.queue.members or consumer.queue.closed:
            return
        durable = consumer.durable
        if isinstance(durable, Durable) and durable.auto_delete:
            self.destinations.durables.delete(durable)
        elif durable is None and consumer.address is None and consumer.queue.name in self.destinations.ending:
            self.destinations.delete(consumer.queue.name)

    def durables_of(self, session: Peer, request: SubscribeRequest, consumers: list[Consumer]) -> list[Durable]:
        """Return the durable subscriptions that an UNSUBSCRIBE, which ends these consumers, ends. Raise Refused if
        another session consumes one of them, or the session may not subscribe to its destination.
        """
        if request.durable is None and not request.durable_flag:
            return []
        durables = [consumer.durable for consumer in consumers if isinstance(consumer.durable, Durable)]
        if not durables:
            name = self.destinations.durables.name(session, request) or ""
            durable = self.destinations.durables.find(name, session.owner)
            durables = [] if durable is None else [durable]
        for durable in durables:
            self._check_allowed(session, durable.address)
        mine = set(consumers)
        if any(len(durable.queue.members) > len(mine & durable.queue.members.keys()) for durable in durables):
            raise Refused("the durable subscription is in use", "Another consumer has it: end that one first.")
        return durables

    def end(self, durable: Durable) -> None:
        """End a durable subscription, unless it has ended with its last consumer."""
        if self.destinations.durables.has(durable):
            self.destinations.durables.delete(durable)

    def forget(self, session: Peer) -> None:
        """Delete the temporary destinations and exclusive queues of a session that ends."""
        if session.client_id is not None and self._clients.get((session.owner, session.client_id)) is session:
            del self._clients[session.owner, session.client_id]
        self.destinations.shares.end(session)
        for name in self.owners.leave(session):
            if self.naming.is_temporary(name):
                self.destinations.topics.remove(name)
            self.destinations.delete(name)


def _end(consumer: Consumer) -> None:
    """End a subscription to topics with its queue, and cut the references between them.

    In a cycle they would stay in memory until Python's next full garbage collection.
    """
    queue = consumer.queue
    assert isinstance(queue, Queue)
    if consumer in queue.members:
        queue.drop(consumer)
    else:
        consumer.close()
    queue.close()
    queue.overflow = None
    queue.ring.clear()


def _overflow(policy: str, consumer: Consumer) -> bool:
    """Apply the policy for a topic's subscription whose backlog is full. Return whether the sender has to wait."""
    if policy == "drop":
        consumer.queue.drop_oldest()
    elif policy != "block":
        consumer.session.too_slow(consumer.destination)
    return policy == "block"
