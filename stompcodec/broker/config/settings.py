"""The vocabulary of the configuration: kinds of destinations, routing types, exchanges, and tables of addresses."""

from __future__ import annotations

import enum
from typing import NamedTuple

from stompcodec.broker.wildcards import SYNTAXES, Wildcards


class Kind(enum.Enum):
    """The kind of a destination."""

    QUEUE = "queue"
    """Each message goes to one consumer, and waits for it."""
    TOPIC = "topic"
    """Each message goes to every current consumer."""
    TEMP_QUEUE = "temp-queue"
    """A queue that ends with the session that subscribed to it."""
    TEMP_TOPIC = "temp-topic"
    """A topic that ends with the session that subscribed to it."""


#: Values of destination-type and subscription-type, which are case-sensitive.
ROUTING = {"ANYCAST": Kind.QUEUE, "MULTICAST": Kind.TOPIC}
#: Exchanges that RabbitMQ has from the start, with their types.
EXCHANGES = {"amq.topic": "topic", "amq.direct": "direct", "amq.fanout": "fanout"}
#: A factor is applied this many times at most: by then a pause of any length has grown as far as it matters.
_MOST_FACTORS = 100
#: Values of `queues.arguments`. first: the first client's arguments apply, and later ones are ignored. refuse: a client
#: with different arguments is refused. ignore: arguments have no effect.
ARGUMENTS = ("first", "refuse", "ignore")


class Pauses(NamedTuple):
    """The pauses between the attempts of a message.

    >>> pauses = Pauses(1.0, 2.0, 30.0)
    >>> [pauses.after(failures) for failures in (1, 2, 3, 9)], str(pauses)
    ([1.0, 2.0, 4.0, 30.0], '1s x2 up to 30s')
    """

    first: float = 0.0
    """Seconds after the first failed attempt."""
    factor: float = 1.0
    """The ratio of each pause to the one before."""
    most: float = 0.0
    """The longest pause in seconds."""

    def after(self, failures: int) -> float:
        """Return the pause in seconds after this number of failed attempts."""
        pause = self.first
        for _ in range(min(failures - 1, _MOST_FACTORS)):
            pause = min(self.most, pause * self.factor)
        return pause

    def __str__(self) -> str:
        first, factor, most = (f"{number:.3f}".rstrip("0").rstrip(".") for number in self)
        return f"{first}s" if self.factor == 1 else f"{first}s x{factor} up to {most}s"


class Setting(NamedTuple):
    """Settings for the names that match a pattern: one table [[addresses.settings]].

    >>> Setting("queue.#").default_address_routing_type
    'ANYCAST'
    """

    match: str = "#"
    """"#" matches any number of words, "*" one."""
    default_address_routing_type: str = "ANYCAST"
    """The routing type for SEND."""
    default_queue_routing_type: str = "ANYCAST"
    """The routing type for SUBSCRIBE."""
    auto_create_addresses: bool = True
    """SEND and SUBSCRIBE create topics."""
    auto_create_queues: bool = True
    """SEND and SUBSCRIBE create queues."""
    auto_delete_addresses: bool = True
    """Topics without subscribers are removed."""
    auto_delete_queues: bool = True
    """Idle queues are removed."""
    redelivery_delay: Pauses | None = None
    """The pause before a message is delivered again after a NACK; None for that of the broker."""

    def is_usable(self, delimiter: str) -> bool:
        """Return whether the pattern is short enough to be matched."""
        return bool(Wildcards(SYNTAXES["artemis"], delimiter).words("", self.match))


class Preset(NamedTuple):
    """An address that exists from the start: one table [[addresses.preset]].

    >>> Preset("prices", "MULTICAST", ("desk.prices",)).queues
    ('desk.prices',)
    """

    name: str
    """The destination as a client would name it."""
    routing: str = "ANYCAST"
    queues: tuple[str, ...] = ()
    """Durable subscriptions of a MULTICAST address, each as CLIENT-ID.NAME."""


class Address(NamedTuple):
    """A destination as the broker understands it.

    >>> Address(Kind.TOPIC, "/topic/", "a").name
    '/topic/a'
    """

    kind: Kind
    prefix: str
    rest: str
    """The part after the prefix: words, if wildcards are enabled."""
    literal: bool = False
    """Wildcards in it have no meaning."""
    found: str = ""
    """The "queue" or "durable" subscription of that name must exist; its use does not create it."""

    @property
    def name(self) -> str:
        """The full name, by which queues and topics are known."""
        return self.prefix + self.rest
