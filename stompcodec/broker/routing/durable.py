"""Durable: a durable subscription, whose named queue gets the messages of topics also while it has no consumer.

Two headers create one: a client-id on CONNECT and a name on SUBSCRIBE; its queue is called CLIENT-ID.NAME then. Other
brokers have `durable:true` or `persistent:true` on SUBSCRIBE, named by id and destination, or a name for the queue,
`x-queue-name`. The store keeps it with its persistent messages.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Protocol
from urllib.parse import quote, unquote

from stompcodec.broker.auth import network_of
from stompcodec.broker.config import Config
from stompcodec.broker.connections import Maker, Owner, Peer
from stompcodec.broker.errors import Refused
from stompcodec.broker.memory import Account, destination_cost
from stompcodec.broker.message import Message
from stompcodec.broker.queues.consumer import SubscribeRequest
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.selectors import Selector
from stompcodec.broker.settings import Address
from stompcodec.broker.storage.store import Subscribed

#: Half of all destinations is at least this.
_LEAST_SHARE = 4


def who_counts(session: Peer, has_users: bool) -> str:
    """Return the owner for which a session counts: its user, or without users its address."""
    return session.user.name if has_users else network_of(session.peer) or session.peer.rpartition(":")[0]


class Made(Protocol):
    """A queue, a topic or a durable subscription."""

    @property
    def name(self) -> str:
        """The destination."""

    @property
    def maker(self) -> Maker | None:
        """The session that made it; None for the configuration, or an earlier run of the broker."""


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
        """Return the maker that stands for a session."""
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

    def add(self, thing: Made) -> None:
        """Count a new destination."""
        self.count += 1
        self._account.charge(destination_cost(thing.name))
        maker = thing.maker
        if maker is not None:
            maker.made += 1
            maker.owner.made += 1

    def remove(self, thing: Made) -> None:
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
        """The record of it for the store."""
        address, text = self.address, None if self.selector is None else self.selector.text
        return Subscribed(
            *(self.queue.key, address.prefix, address.rest, address.literal, text, self.shared, self.auto_delete),
            self.owner,
        )

    def wants(self, message: Message) -> bool:
        """Return whether it selects a message."""
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
