"""Headers: of what kind each one of a message is, values that lose the message, and those that belong to the client.

A program gives the headers by which the client keeps account by arguments, never in `headers=`: `OWNED`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from stompcodec.arguments import NO_HEADERS
from stompcodec.codec import Frame
from stompcodec.errors import LocalProtocolError

#: Kind -> headers of MESSAGE.
TABLE: dict[str, tuple[str, ...]] = {
    # where it went, and where it came from at its broker
    "place": ("destination", "message-id"),
    # of one delivery, or between a client and its broker
    "delivery": (
        *("subscription", "ack", "redelivered", "redelivery-count", "x-delivery-count", "x-acquired-count"),
        *("JMSXDeliveryCount", "content-length", "receipt", "receipt-id", "transaction", "browser", "bridge-seq"),
    ),
    # the broker would drop another message with it as a duplicate
    "key": ("idempotency-key", "_AMQ_DUPL_ID"),
    # the type of the source's address at Artemis
    "type": ("destination-type",),
    # they would delay it once more
    "schedule": (
        *("delay", "x-delay", "AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_REPEAT"),
        *("AMQ_SCHEDULED_CRON", "scheduledJobId"),
    ),
    # the arguments for a queue that a SEND makes
    "argument": (
        *("x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-overflow", "x-max-priority"),
        *("x-dead-letter-exchange", "x-dead-letter-routing-key", "x-queue-type", "x-queue-mode", "x-queue-name"),
        *("x-single-active-consumer", "x-max-age", "x-stream-max-segment-size-bytes"),
        *("durable", "auto-delete", "exclusive"),
    ),
    # written by a broker about the message
    "made": ("amqMessageId", "JMSXUserID", "transformation-error"),
    "stamp": ("timestamp", "user-id", "cluster-id"),
    # why RabbitMQ dead-lettered it
    "death": (
        *("x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason"),
        *("x-last-death-exchange", "x-last-death-queue", "x-last-death-reason"),
    ),
    # why and where it became a dead letter, by our broker, the bridge, ActiveMQ and Artemis
    "cause": (
        *("dead-letter-reason", "dead-letter-attempts", "dead-letter-time", "original-destination"),
        *("bridge-target", "dlqDeliveryFailureCause", "originalDestination"),
        *("_AMQ_ORIG_ADDRESS", "_AMQ_ORIG_QUEUE", "_AMQ_ORIG_MESSAGE_ID", "_AMQ_ORIG_ROUTING_TYPE"),
    ),
}


def of(*kinds: str) -> frozenset[str]:
    """Return the headers of some kinds."""
    return frozenset(name for kind in kinds for name in TABLE[kind])


#: What the client leaves out of the headers of a received message.
LEFT = of("place", "delivery", "key", "type")
#: A received message has all of these, however its headers were copied.
_RECEIVED = frozenset({"message-id", "subscription"})


def is_received(names: Iterable[str]) -> bool:
    """Return whether these are the headers of a received message."""
    return _RECEIVED.issubset(names)


class AsIs(list[tuple[str, str]]):
    """The headers of a copy, which gets none by the client: text stays text, also without content-type."""


ANYCAST, MULTICAST = "ANYCAST", "MULTICAST"
#: How names of queues begin, and those of topics.
_QUEUES = ("/queue/", "/temp-queue/", "queue/", "jms.queue.", "queue://", "temp-queue://")
_TOPICS = ("/topic/", "/temp-topic/", "topic/", "jms.topic.", "topic://", "temp-topic://")
#: How names of temporary destinations begin, which belong to a session: of most brokers, JMS, ActiveMQ and RabbitMQ.
TEMPORARY = (
    *("/temp-queue/", "/temp-topic/", "temp-queue://", "temp-topic://"),
    *("/remote-temp-queue/", "/remote-temp-topic/", "/reply-queue/"),
)


def type_of(destination: str) -> str | None:
    """Return the type that Artemis is to make of a destination; None if its name does not say.

    >>> [type_of(name) for name in ("/queue/a", "jms.topic.a", "a", "/queue/a::b")]
    ['ANYCAST', 'MULTICAST', None, None]
    """
    if "::" in destination:  # an address with one of its queues, which has a type
        return None
    if destination.startswith(_QUEUES):
        return ANYCAST
    return MULTICAST if destination.startswith(_TOPICS) else None


#: Returns what a value has to be; None for one that the broker takes.
Rule = Callable[[str], "str | None"]
#: Digits of any script, as Java reads numbers.
_WHOLE = re.compile(r"[+-]?\d{1,40}")
_CRON = re.compile(r"[0-9*/,-]+( [0-9*/,-]+){4}")
_MODE = re.compile(r"[0-9]{1,9}|(non_)?persistent", re.IGNORECASE)


def _whole(low: int, high: int, value: str) -> str | None:
    fits = _WHOLE.fullmatch(value) and low <= int(value) <= high
    return None if fits else f"a whole number from {low} to {high}"


def _form(form: re.Pattern[str], what: str, value: str) -> str | None:
    return None if form.fullmatch(value) else what


def _type(value: str) -> str | None:
    return None if value in ("ANYCAST", "MULTICAST") else "ANYCAST or MULTICAST"


def _internal(value: str) -> str | None:
    return "left out, since the broker writes it itself"


def _name(value: str) -> str | None:
    return "a name behind its prefix" if value.rstrip(" ") in ("/queue/", "/topic/") else None


def _destination(value: str) -> str | None:
    return _name(value) if value else "a name"


_INT, _LONG = partial(_whole, -(2**31), 2**31 - 1), partial(_whole, -(2**63), 2**63 - 1)
_COUNT, _MILLISECONDS = partial(_whole, 0, 2**31 - 1), partial(_whole, 0, 2**63 - 1)

#: Of ActiveMQ, which closes the connection without an ERROR.
ACTIVEMQ: Mapping[str, Rule] = {
    "destination": _destination,
    "priority": _INT,
    "expires": _LONG,
    "timestamp": _LONG,
    "reply-to": _name,
    "AMQ_SCHEDULED_DELAY": _MILLISECONDS,
    "AMQ_SCHEDULED_PERIOD": _MILLISECONDS,
    "AMQ_SCHEDULED_REPEAT": _COUNT,
    "AMQ_SCHEDULED_CRON": partial(_form, _CRON, "five fields, such as */5 * * * *"),
    "JMSDeliveryMode": partial(_form, _MODE, "PERSISTENT or NON_PERSISTENT"),
    "JMSExpiration": _LONG,
    "JMSPriority": _INT,
    "JMSTimestamp": _LONG,
    "JMSXDeliveryCount": _INT,
    "JMSXGroupSeq": _INT,
}
#: Of Artemis, which confirms a message with another priority or a negative expiry and drops it, and closes at others.
ARTEMIS: Mapping[str, Rule] = {
    "priority": partial(_whole, 0, 9),
    "expires": _MILLISECONDS,
    "AMQ_SCHEDULED_DELAY": _LONG,
    "AMQ_SCHEDULED_TIME": _LONG,
    "destination-type": _type,
    "_AMQ_BRIDGE_DUP": _internal,
    "_AMQ_INGRESS_TIMESTAMP": _LONG,
    "_AMQ_ROUTE_TO": _internal,
    "_AMQ_ROUTING_TYPE": _internal,
}


def fault_in(rules: Mapping[str, Rule], name: str, value: object) -> str | None:
    """Return what the value of a header has to be for a broker; None if the broker takes it."""
    rule = rules.get(name)
    return rule(value) if rule is not None and isinstance(value, str) else None


HeaderSource = Mapping[str, str] | Iterable[tuple[str, str]]
_DELIVERED = "only a received message has it: leave it out"
_SETTLED = "the client names the message to the broker itself: leave it out"
_RECEIPT = "use receipt=True"

#: Command, or kind of SEND -> header that belongs to the client -> what to use instead.
OWNED: dict[str, dict[str, str]] = {
    "CONNECT": {"receipt": "CONNECTED is the answer to CONNECT", "transaction": "use client.transaction()"},
    "SEND": {
        "destination": "use the argument destination",
        "message-id": _DELIVERED,
        "receipt": f"{_RECEIPT}, or receipt_every= of send_many",
        "subscription": _DELIVERED,
        "transaction": "use client.transaction(), or transaction= of send_many",
    },
    "SUBSCRIBE": {
        "ack": "use ack=",
        "destination": "use the argument destination",
        "id": "use id=",
        "message-id": _DELIVERED,
        "receipt": "the client asks for one itself: see confirm= of subscribe",
        "subscription": "use id=",
        "transaction": "a transaction has only SEND, ACK and NACK",
    },
    "ACK": {
        "id": _SETTLED,
        "message-id": _SETTLED,
        "receipt": _RECEIPT,
        "subscription": _SETTLED,
        "transaction": "use transaction.ack()",
    },
}
OWNED["RECEIVE"] = OWNED["SUBSCRIBE"]
#: Of a Frame, which names its destination itself.
OWNED["frame"] = {name: OWNED["SEND"][name] for name in ("receipt", "transaction")}
#: For one fast look at the headers of a SEND.
SENT = frozenset(OWNED["SEND"])
#: More of them for the SEND of a request.
REQUEST = {
    "correlation-id": "client.request() matches the reply by it",
    "reply-to": "client.request() names its own queue",
}
OWNED["request"] = OWNED["SEND"] | REQUEST
OWNED["reply"] = OWNED["SEND"]
#: Header of CONNECT -> the option that writes it.
WRITTEN = {
    "accept-version": "versions",
    "client-id": "client_id",
    "heart-beat": "heart_beat",
    "host": "vhost",
    "login": "login",
    "passcode": "passcode",
    "username": "login",
}
#: The rows of `OWNED` that take the headers of a received message -> the headers that they leave out of them.
_FORWARDS = {"ACK": LEFT | {"id"}, "SEND": LEFT, "frame": LEFT - {"destination"}}
_FORWARDS |= {"reply": LEFT | {"correlation-id"}, "request": LEFT | REQUEST.keys()}


def pairs_of(command: str, headers: HeaderSource) -> Iterable[tuple[str, str]]:
    """Return the pairs of the argument `headers`; the name of a row of `OWNED` says what they are for.

    Those of a received message, or a copy of them, lose what belongs to its delivery. Raise TypeError if they are
    neither a mapping nor pairs, ValueError if one of them belongs to the client.
    """
    owned = OWNED[command]
    if type(headers) is list:  # a loop is the fastest for a few of them
        try:
            for name, _ in headers:
                if name in owned:
                    break
            else:
                return headers
        except (TypeError, ValueError):  # no pairs: said below
            pass
    pairs: Iterable[tuple[str, str]]
    names: Collection[str]
    if type(headers) is not list and isinstance(headers, Mapping):
        pairs, names = headers.items(), headers
    else:
        try:
            pairs = list(headers)
            names = {name for name, _ in pairs}
        except (TypeError, ValueError):
            given: object = headers
            hint = NO_HEADERS if isinstance(given, str) else ""
            said = f"headers is {given!r:.60}: it must be a mapping or pairs of name and value{hint}"
            raise TypeError(said) from None
    if not owned.keys().isdisjoint(names):
        if command in _FORWARDS and is_received(names):
            return _without(_FORWARDS[command], pairs)
        own = owned_of(command, names)
        if own is not None:
            raise ValueError(f"headers= holds {own!r}, which belongs to the client: {owned[own]}")
    return pairs


def sendable(frame: Frame) -> Frame:
    """Return a SEND of the program as it may be sent: without what its headers have for the delivery of a message."""
    if frame.command != "SEND" or frame.get("destination") is None:
        raise LocalProtocolError(f"{frame.command} cannot be sent: give SEND frames with a destination")
    if "message-id" not in frame.headers or "subscription" not in frame.headers:
        return frame
    return Frame(frame.command, _without(_FORWARDS["frame"], frame.headers.pairs()), frame.body)


def _without(left: Collection[str], pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [pair for pair in pairs if pair[0] not in left]


def owned_of(command: str, names: Iterable[str]) -> str | None:
    """Return the first of these names that belongs to the client; None if they may be sent."""
    given, owned = list(names), OWNED[command]
    if command in _FORWARDS and is_received(given):
        return None
    return next((name for name in given if name in owned), None)
