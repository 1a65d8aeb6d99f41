"""Topic: every message goes to every subscription, which has a queue of its own with one consumer.

Messages are gathered until the turn ends, or there are many, and then delivered together. Otherwise this is the same as
putting each message into each queue. Very many subscriptions get them over several turns.

Durable: a durable subscription, whose named queue gets the messages of topics also while it has no consumer. Two
headers create one: a client-id on CONNECT and a name on SUBSCRIBE; its queue is called CLIENT-ID.NAME then. Other
brokers have `durable:true` or `persistent:true` on SUBSCRIBE, named by id and destination, or a name for the queue,
`x-queue-name`. The store keeps it with its persistent messages.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from heapq import nlargest
from operator import attrgetter
from urllib.parse import quote, unquote

from stompcodec.broker.auth import network_of
from stompcodec.broker.config import Config
from stompcodec.broker.connections import Maker, Owner, Peer
from stompcodec.broker.loop_quota import AT_ONCE, Line, LoopQuota, Work
from stompcodec.broker.memory import MESSAGE, Account, destination_cost
from stompcodec.broker.message import Message, plain_message, shared
from stompcodec.broker.queues.consumer import Consumer, Source, SubscribeRequest
from stompcodec.broker.queues.heads import frame_of, head_of, joined
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.addresses import Addresses
from stompcodec.broker.selectors import Selector
from stompcodec.broker.settings import Address, Pattern, Patterns
from stompcodec.broker.storage.store import Subscribed
from stompcodec.broker.values import Refused

#: Half of all destinations is at least this.
_LEAST_SHARE = 4


def who_counts(session: Peer, has_users: bool) -> str:
    """Return the owner for which a session counts: its user, or without users its address."""
    return session.user.name if has_users else network_of(session.peer) or session.peer.rpartition(":")[0]


class Shares:
    """The shares of a virtual host: the most destinations of a session, of a user, and in all."""

    def __init__(self, config: Config, account: Account) -> None:
        self.count = 0
        self._most = config.max_destinations
        half = max(_LEAST_SHARE, config.max_destinations // 2)
        self._most_of_session = config.session_destinations or half
        #: Several clients may share an address, so it has more.
        self._most_of_owner = config.user_destinations or (half if config.users is not None else half + half // 2)
        self.has_users = config.users is not None
        self._account = account
        self._owners: dict[str, Owner] = {}

    def maker(self, session: Peer) -> Maker:
        if session.maker is None:
            key = who_counts(session, self.has_users)
            owner = self._owners.setdefault(key, Owner(key))
            owner.sessions += 1
            session.maker = Maker(owner)
        return session.maker

    def of_user(self, user: str | None) -> Maker | None:
        """Return a maker for a user who made something in an earlier run of the broker; None if that is unknown."""
        if user is None or not self.has_users:
            return None
        maker = Maker(self._owners.setdefault(user, Owner(user)))
        maker.ended = True
        return maker

    def give(self, durable: Durable, session: Peer) -> None:
        """Count a durable subscription without a maker for the user of a session."""
        self.remove(durable)
        durable.queue.maker = self.maker(session)
        self.add(durable)

    def why_not(self, name: str, maker: Maker | None) -> str | None:
        """Return why a session, or the broker itself (None), cannot make one more destination; None if it can."""
        if self.count >= self._most:
            return "The broker's queues.max_destinations is reached: use fewer names."
        if maker is None:
            return None
        if not self._account.has_room(destination_cost(name)):
            return "All subscriptions and destinations together take too much of the broker's limits.memory."
        if maker.made >= self._most_of_session:
            return "The share of a session is reached, half of queues.max_destinations: use fewer names."
        if maker.owner.made >= self._most_of_owner:
            what = "a user" if self.has_users else "an address"
            return f"The share of {what} of queues.max_destinations is reached: use fewer names."
        return None

    def check(self, name: str, maker: Maker | None) -> None:
        """Raise Refused if the maker of one more destination has too many, or there are too many in all."""
        why = self.why_not(name, maker)
        if why is not None:
            raise Refused("too many destinations", why)

    def add(self, thing: Queue | Topic | Durable) -> None:
        """Count a new destination."""
        self.count += 1
        self._account.charge(destination_cost(thing.name))
        maker = thing.maker
        if maker is not None:
            maker.made += 1
            maker.owner.made += 1

    def remove(self, thing: Queue | Topic | Durable) -> None:
        """Count a destination that was removed."""
        self.count -= 1
        self._account.charge(-destination_cost(thing.name))
        maker = thing.maker
        if maker is not None:
            maker.made -= 1
            maker.owner.made -= 1
            self._look(maker.owner)

    def end(self, session: Peer) -> None:
        """Note that a session has ended. Its destinations stay, and count for its owner."""
        maker = session.maker
        if maker is not None and not maker.ended:
            maker.ended = True
            maker.owner.sessions -= 1
            self._look(maker.owner)

    def _look(self, owner: Owner) -> None:
        if not owner.sessions and not owner.made:
            del self._owners[owner.key]


#: The most characters of a name, which takes memory also without a consumer.
LONGEST_NAME = 4096


@dataclass(eq=False, slots=True)
class Durable:
    """A durable subscription."""

    #: The name by which its owner knows it.
    name: str
    queue: Queue
    #: The topic, or the pattern of topics.
    address: Address
    #: Selects its messages; None for all.
    selector: Selector | None = None
    _: KW_ONLY
    #: It may have several consumers at a time.
    shared: bool = False
    #: It ends with its last consumer.
    auto_delete: bool = False
    #: Its messages have higher seqs than this.
    since: int = 0
    #: The user to whom it belongs; None if the broker has no users, or none has adopted it.
    owner: str | None = None
    #: Its messages are not gathered, because its queue gets others directly.
    prompt: bool = False

    def __repr__(self) -> str:
        return f"<Durable {title(self.owner, self.name)!r} of {self.address.name!r}: {self.queue.count} messages>"

    @property
    def maker(self) -> Maker | None:
        """The session that made it."""
        return self.queue.maker

    @property
    def record(self) -> Subscribed:
        address, text = self.address, None if self.selector is None else self.selector.text
        return Subscribed(
            *(self.queue.key, address.prefix, address.rest, address.literal, text, self.shared, self.auto_delete),
            self.owner,
        )

    def wants(self, message: Message) -> bool:
        return message.seq > self.since and (self.selector is None or self.selector.matches(message))

    def take(self, messages: list[Message], stored: bool = False) -> bool:
        """Put the messages that it selects, in order, into its queue. Return whether their sender should wait.
        `stored`: they are in the store already.
        """
        queue, full = self.queue, False
        for message in messages:
            if self.wants(message):
                full = queue.put(message, stored) or full
                if stored and queue.messages.is_disordered:  # others came while a transaction waited for the store
                    queue.messages.add_late(message.seq)
                    queue.messages.sort()
        return full

    def is_meant(self, address: Address, request: SubscribeRequest, shared: bool) -> bool:
        """Return whether a SUBSCRIBE that names it has the same topic, selector and kind."""
        text = None if request.selector is None else request.selector.text
        mine = None if self.selector is None else self.selector.text
        return (address.name, text, shared) == (self.address.name, mine, self.shared)

    def check(self, address: Address, request: SubscribeRequest, shared: bool) -> None:
        """Check that a SUBSCRIBE that names it may consume it. Raise Refused if it asks for another topic, selector or
        kind, or there is a consumer already.
        """
        if not self.is_meant(address, request, shared):
            remedy = "It has another destination or selector: end it by UNSUBSCRIBE with the same name first."
            raise Refused("the durable subscription differs", remedy)
        self.check_free()

    def check_free(self) -> None:
        """Raise Refused if it has a consumer and is not shared."""
        if self.queue.members and not self.shared:
            raise Refused("the durable subscription is in use", "It can have one consumer at a time, and has one.")


def title(owner: str | None, name: str) -> str:
    """Return the name of the queue of a durable subscription, which is part of that of its dead letter queue.

    >>> title(None, "desk.all"), title("ada", "desk.all")
    ('desk.all', '~ada~desk.all')
    """
    return name if owner is None else f"~{quote(owner, safe='').replace('~', '%7E')}~{name}"


def owner_of(title: str) -> str | None:
    """Return the owner of the durable subscription whose queue has this name; None without an owner.

    >>> owner_of("~ada~desk.all"), owner_of("desk.all"), owner_of(title("~", "desk"))
    ('ada', None, '~')
    """
    mark, owner, rest = (*title.split("~", 2), "", "")[:3]
    return unquote(owner) if not mark and rest else None


def durable_name(session: Peer, request: SubscribeRequest) -> str | None:
    """Return the name of the durable subscription that a SUBSCRIBE or UNSUBSCRIBE means; None if it means none.

    The client-id of the session may be a part of it. Raise Refused if a part of the name is missing, or the name is
    too long.
    """
    name = _name(session, request)
    if name is not None and len(name) > LONGEST_NAME:
        raise Refused("the name is too long", f"A durable subscription's name has at most {LONGEST_NAME} characters.")
    return name


def _name(session: Peer, request: SubscribeRequest) -> str | None:
    if request.durable is not None:
        if session.client_id is None:
            raise Refused("client-id is missing", "A durable subscription needs the header client-id on CONNECT.")
        return f"{session.client_id}.{request.durable}"
    if request.queue_name:
        return request.queue_name
    if not request.durable_flag:
        return None
    if request.key is None:
        raise Refused("id is missing", "A durable subscription needs a name, or an id that stays the same.")
    return f"{request.key}@{request.destination}"


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

    __slots__ = ("_chunks", "_frames", "_may_expire", "_octets", "messages", "plain", "slow")

    def __init__(self, messages: list[Message], plain: bool, may_expire: bool = False) -> None:
        self.messages = messages
        self.plain = plain
        self._may_expire = may_expire
        #: Queues of subscriptions that are full now.
        self.slow: list[Source] = []
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
        chunk = self._chunks[start] = joined(start, self.messages)
        return chunk

    def _separate(self, start: bytes) -> list[bytes]:
        """Return the MESSAGEs that begin with `start`, and keep them."""
        before = start + b"message-id:"
        frames = self._frames[start] = [
            frame_of(head_of(before, message.ident, b"\n", 0), message.tail) for message in self.messages
        ]
        return frames


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
        name = self.name if destination == self.name else shared(destination)
        self._gathered.append(plain_message(ident, seq, name, tail, False))
        self._octets += len(tail)
        if self._octets > self._most:
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
