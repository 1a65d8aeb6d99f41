"""Durable: a durable subscription, whose named queue gets the messages of topics also while it has no consumer.

Two headers create one: a client-id on CONNECT and a name on SUBSCRIBE; its queue is called CLIENT-ID.NAME then. Other
brokers have `durable:true` or `persistent:true` on SUBSCRIBE, named by id and destination, or a name for the queue,
`x-queue-name`. The store keeps it with its persistent messages.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from urllib.parse import quote, unquote

from stompcodec.broker.config.settings import Address
from stompcodec.broker.connections import Maker, Peer
from stompcodec.broker.errors import Refused
from stompcodec.broker.message import Message
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.queues.subscribe_request import SubscribeRequest
from stompcodec.broker.selectors.selector import Selector
from stompcodec.broker.storage.store import Subscribed

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


def durable_name(session: Peer, request: SubscribeRequest, by_id: bool) -> str | None:
    """Return the name of the durable subscription that a SUBSCRIBE or UNSUBSCRIBE means; None if it means none.

    The client-id of the session may be a part of it. If `by_id`, `persistent:true` names it by the id alone, as in
    Apollo. Raise Refused if a part of the name is missing, or the name is too long.
    """
    name = _name(session, request, by_id)
    if name is not None and len(name) > LONGEST_NAME:
        raise Refused("the name is too long", f"A durable subscription's name has at most {LONGEST_NAME} characters.")
    return name


def _name(session: Peer, request: SubscribeRequest, by_id: bool) -> str | None:
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
    return request.key if by_id else f"{request.key}@{request.destination}"
