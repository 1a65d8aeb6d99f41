"""Addresses: the queue or topic that a destination stands for.

The first of these decides: a form of RabbitMQ (`/exchange/...`, `/amq/queue/...`); a prefix for a
routing type, which is removed; a prefix of queues or topics; the header for the routing type; the first matching
address setting. Names with `management_prefix` are not destinations.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from stompcodec.broker.config import Config
from stompcodec.broker.settings import EXCHANGES, ROUTING, SYNTAXES, Address, Kind, Pattern, Setting, Wildcards
from stompcodec.broker.values import Refused


class Naming:
    """The prefixes of names. Names are opaque otherwise: "a" and "/queue/a" are two queues.

    A name without any prefix is that of a queue, too. In the name of the dead letter queue, "{name}" stands for the
    name of the queue without its prefix.
    """

    def __init__(
        self,
        queue_prefixes: Sequence[str] = ("/queue/",),
        topic_prefixes: Sequence[str] = ("/topic/",),
        temp_queue_prefix: str = "/temp-queue/",
        temp_topic_prefix: str = "/temp-topic/",
        dead_letter: str = "/queue/DLQ.{name}",
    ) -> None:
        #: Longest first, because one prefix may begin with another.
        self._prefixes = sorted(
            [
                *((prefix, Kind.QUEUE) for prefix in queue_prefixes),
                *((prefix, Kind.TOPIC) for prefix in topic_prefixes),
                (temp_queue_prefix, Kind.TEMP_QUEUE),
                (temp_topic_prefix, Kind.TEMP_TOPIC),
            ],
            key=lambda pair: -len(pair[0]),
        )
        self._dead_letter = dead_letter

    def split(self, destination: str) -> tuple[Kind, str, str]:
        """Return the kind, the prefix and the rest of a name."""
        for prefix, kind in self._prefixes:
            if destination.startswith(prefix):
                return kind, prefix, destination[len(prefix) :]
        return Kind.QUEUE, "", destination

    def kind(self, destination: str) -> Kind:
        return self.split(destination)[0]

    def is_temporary(self, destination: str) -> bool:
        """Return whether a destination belongs to a session."""
        return self.kind(destination) in (Kind.TEMP_QUEUE, Kind.TEMP_TOPIC)

    def owned(self, destination: str, session_id: str) -> str:
        """Return the name that a temporary destination of a session has for others, with the session's id in it."""
        _kind, prefix, name = self.split(destination)
        return f"{prefix}{session_id}-{named(name)}"

    def of_letters(self, destination: str) -> str | None:
        """Return the queue, without its prefix, whose dead letter queue this is; None for other names."""
        before, named, after = self._dead_letter.partition("{name}")
        if not named or not destination.startswith(before) or not destination.endswith(after):
            return None
        return destination[len(before) : len(destination) - len(after)]

    def dead_letter(self, destination: str) -> str:
        """Return the dead letter queue of a destination. That of a dead letter queue is itself."""
        if self.of_letters(destination) is not None and not self._dead_letter.startswith("{name}"):
            return destination
        return self._dead_letter.replace("{name}", self.split(destination)[2])


_EXCHANGE, _AMQ_QUEUE = "/exchange/", "/amq/queue/"
#: Names whose settings are cached.
_MOST_KNOWN = 1000


class Addresses:
    """The addressing rules of a configuration."""

    def __init__(self, config: Config, naming: Naming, queues: Container[str] = ()) -> None:
        self._config = config
        #: The names of the queues and topics that there are.
        self._queues = queues
        self.topics: Container[str] = ()
        self._naming = naming
        self._reserved = config.management_prefix
        self._exchanges: Mapping[str, str] = {**EXCHANGES, **config.exchanges} if config.exchanges else {}
        #: Prefixes for routing types, longest first.
        self._prefixes = sorted(
            [
                (prefix, kind)
                for prefix, kind in ((config.anycast_prefix, Kind.QUEUE), (config.multicast_prefix, Kind.TOPIC))
                if prefix
            ],
            key=lambda pair: -len(pair[0]),
        )
        self.wildcards = Wildcards(SYNTAXES.get(config.wildcards), config.delimiter)
        self._matching = Wildcards(SYNTAXES["artemis"], config.delimiter)
        self._settings = [(self._matching.pattern("", entry.match), entry) for entry in config.address_settings]
        self._default = Setting("#", config.routing, config.routing)
        self._known: dict[str, Setting] = {}

    def find(self, destination: str, routing: str | None, subscribing: bool) -> Address:
        """Return the address of a destination. `routing` is the header destination-type of SEND, or subscription-type
        of SUBSCRIBE. Raise Refused if the name is reserved, or the routing type or the exchange is unknown.
        """
        if self._reserved and destination.startswith(self._reserved):
            raise Refused(
                "a reserved destination", f"Names with {self._reserved} are for SENDs that manage the broker."
            )
        named(destination)
        special = self._special(destination)
        if special is not None:
            return special
        for prefix, kind in self._prefixes:
            if destination.startswith(prefix):
                rest = named(destination[len(prefix) :])
                if self._config.one_address and routing is not None and ROUTING.get(routing) is not kind:
                    raise Refused("two routing types", f"{routing} contradicts the prefix: Artemis delivers nothing.")
                return self._checked(Address(kind, "", rest))
        kind, prefix, rest = self._naming.split(destination)
        if prefix:
            return self._checked(Address(kind, prefix, named(rest)))
        if routing is None or not self._config.routing_headers:
            setting = self.setting(destination)
            routing = setting.default_queue_routing_type if subscribing else setting.default_address_routing_type
            if self._config.one_address and rest in self._queues:
                routing = "ANYCAST"
        elif routing not in ROUTING:
            raise Refused("unknown routing type", "destination-type and subscription-type are ANYCAST or MULTICAST.")
        return self._checked(Address(ROUTING[routing], "", rest))

    def _checked(self, address: Address) -> Address:
        """Raise Refused for a name that the dialect forbids, and for a topic named as a queue, where both are one."""
        name, (part, why) = address.rest, self._config.forbidden
        if part and part in name and address.kind in (Kind.QUEUE, Kind.TOPIC):
            raise Refused("invalid destination", why)
        if self._config.one_address and address.kind is Kind.TOPIC and name in self._queues and name not in self.topics:
            raise Refused("the address is a queue", "As MULTICAST, Artemis takes the frame, and delivers nothing.")
        return address

    def is_certain(self, destination: str) -> bool:
        """Return whether a destination has the same address whatever the headers of a SEND are."""
        if not self._config.routing_headers or self._naming.split(destination)[1]:
            return True
        prefixes = tuple(prefix for prefix, _kind in self._prefixes)
        return not self._config.one_address and destination.startswith(prefixes)

    def _special(self, destination: str) -> Address | None:
        """Return the address of a form of RabbitMQ, if the configuration has it."""
        if not self._exchanges or not destination.startswith((_EXCHANGE, _AMQ_QUEUE)):
            return None
        if destination.startswith(_AMQ_QUEUE):
            rest = named(destination[len(_AMQ_QUEUE) :])
            return Address(Kind.QUEUE, self._config.queue_prefixes[0], rest, True, True)
        exchange, _, key = destination[len(_EXCHANGE) :].partition("/")
        return self._exchange(exchange, key)

    def _exchange(self, exchange: str, key: str) -> Address:
        kind = self._exchanges.get(exchange)
        if kind is None:
            raise Refused("no such exchange", "addresses.exchanges of the broker's configuration lists the exchanges.")
        if exchange == "amq.topic":
            return Address(Kind.TOPIC, self._config.topic_prefixes[0], key)
        if kind == "fanout":  # ignores the key
            return Address(Kind.TOPIC, _EXCHANGE + exchange, "", True)
        return Address(Kind.TOPIC, f"{_EXCHANGE}{exchange}/", key, kind == "direct")

    def pattern(self, address: Address) -> Pattern | None:
        """Return the pattern of an address with wildcards; None without. Raise Refused if it has too many words."""
        if address.literal or address.kind is not Kind.TOPIC:
            return None
        return self.wildcards.pattern(address.prefix, address.rest)

    def setting(self, name: str) -> Setting:
        setting = self._known.get(name)
        if setting is None:
            words = self._matching.words("", name)
            fits = (
                entry
                for pattern, entry in self._settings
                if (pattern.matches(words) if pattern is not None else entry.match == name)
            )
            setting = next(fits, self._default)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[name] = setting
        return setting


def named(name: str) -> str:
    """Return a name, or what follows its prefix. Raise Refused if it has nothing but blanks and slashes."""
    if not name.replace("/", " ").strip():
        raise Refused("no destination", "A name is empty: write that of a queue or a topic, such as /queue/a.")
    return name
