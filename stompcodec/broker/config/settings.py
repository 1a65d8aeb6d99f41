"""Words of the configuration: kinds of destinations, routing types, exchanges, and the tables that name addresses."""

from __future__ import annotations

import enum
from typing import NamedTuple

from stompcodec.broker.wildcards import SYNTAXES, Wildcards

__all__ = ["ARGUMENTS", "EXCHANGES", "ROUTING", "Address", "Kind", "Preset", "Setting"]


class Kind(enum.Enum):
    """What a destination is."""

    QUEUE = "queue"
    """Each message goes to one consumer, and waits for it."""
    TOPIC = "topic"
    """Each message goes to every consumer there is."""
    TEMP_QUEUE = "temp-queue"
    """A queue that ends with the session that subscribed to it."""
    TEMP_TOPIC = "temp-topic"
    """A topic that ends with the session that subscribed to it."""


#: Values of destination-type and subscription-type, which are case sensitive.
ROUTING = {"ANYCAST": Kind.QUEUE, "MULTICAST": Kind.TOPIC}
#: Exchanges that RabbitMQ has from the start, and what they do with a routing key.
EXCHANGES = {"amq.topic": "topic", "amq.direct": "direct", "amq.fanout": "fanout"}
#: Values of `queues.arguments`: the first client that names any decides, and others are ignored; as that, but another
#: client that names others is refused; or the headers mean nothing.
ARGUMENTS = ("first", "refuse", "ignore")


class Setting(NamedTuple):
    """What holds for the names that a pattern means: one table [[addresses.settings]].

    >>> Setting("queue.#").default_address_routing_type
    'ANYCAST'
    """

    match: str = "#"
    """"#" stands for any number of words, "*" for one."""
    default_address_routing_type: str = "ANYCAST"
    """For SEND."""
    default_queue_routing_type: str = "ANYCAST"
    """For SUBSCRIBE."""
    auto_create_addresses: bool = True
    """Topics come into being by SEND and SUBSCRIBE."""
    auto_create_queues: bool = True
    """Queues do."""
    auto_delete_addresses: bool = True
    """Topics that nobody listens to are forgotten."""
    auto_delete_queues: bool = True
    """Queues that are idle are."""

    def is_usable(self, delimiter: str) -> bool:
        """It has no more words than are matched."""
        return bool(Wildcards(SYNTAXES["artemis"], delimiter).words("", self.match))


class Preset(NamedTuple):
    """An address that is there from the start: one table [[addresses.preset]].

    >>> Preset("prices", "MULTICAST", ("desk.prices",)).queues
    ('desk.prices',)
    """

    name: str
    """A destination, as a client would name it."""
    routing: str = "ANYCAST"
    queues: tuple[str, ...] = ()
    """Of a MULTICAST one: durable subscriptions, each named by client-id, dot, subscription name."""


class Address(NamedTuple):
    """What a destination stands for.

    >>> Address(Kind.TOPIC, "/topic/", "a").name
    '/topic/a'
    """

    kind: Kind
    prefix: str
    rest: str
    """Behind the prefix: words, where wildcards are read."""
    literal: bool = False
    """Nothing in it is a wildcard."""
    found: str = ""
    """It is not made by its first use: a "queue", or a "durable" subscription of that name has to be there."""

    @property
    def name(self) -> str:
        """By which queues are known, and topics."""
        return self.prefix + self.rest
