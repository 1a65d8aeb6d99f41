"""The ways in which a message is given up that cannot be handled: NACK, or a copy and then ACK. docs/brokers.md has the
table.
"""

from __future__ import annotations

import codecs
import hashlib
from typing import NamedTuple

from stompcodec.client.bodies import BodyReader
from stompcodec.client.dialects import BrokerDialect, lasting_identity
from stompcodec.client.handlers import WITHOUT_NACK
from stompcodec.client.headers import ANYCAST, of, type_of
from stompcodec.client.message import BaseMessage
from stompcodec.client.outbox import KEPT

#: The headers of the copy that say where it comes from, and why.
ORIGIN, ORIGIN_ID, REASON = "original-destination", "original-message-id", "dead-letter-reason"
#: Headers of one delivery, and those that the copy has of its own.
_DROPPED = of("place", "delivery", "type") | {"timestamp", "persistent", ORIGIN, ORIGIN_ID, REASON}
#: Headers that would take effect a second time, or make another queue: they stay readable as `original-…`.
_ONCE = of("key", "schedule", "argument") | {"expires", "expiration", "deliver-at", "_AMQ_SCHED_DELIVERY"}
#: The dialects in which content-length may be the last header of a text message; unknown brokers may be Artemis.
_LAST = ("artemis", "unknown")
#: The most characters of a reason.
_LONGEST = 200


class Way(NamedTuple):
    """How a message is given up."""

    command: str
    """NACK, SEND (a copy, and then ACK), or "" if there is no way."""
    to: str = ""
    """Where the copy goes."""
    why: str = ""
    """Why there is no way."""


def way_of(message: BaseMessage, dialect: BrokerDialect, version: str | None, named: str | None) -> Way:
    """Return how a message is given up; `named` is the option `dead_letter`.

    In mode `auto` there is nothing to settle, and a copy is sent only if it says where.
    """
    subscription, source = message.subscription, message.frame.get("destination") or ""
    named = subscription.dead_letter or named
    if not subscription.explicit and named is None:
        return Way("")
    if subscription.cumulative and len(subscription.covered(message.seq)) > 1:
        return Way("", why="earlier messages are unsettled, which it would settle in mode ack='client'")
    to = named or dialect.letters_of(subscription.destination)
    if not to:
        return Way("", why=f"this broker ({dialect.name}) has no known dead letter queue: name one by dead_letter=")
    if dialect.is_read(source, to) or dialect.is_read(subscription.destination, to):
        if dialect.gives_up != "nack" or named is not None:
            return Way("", why=f"it is in {to} already, where it would be sent: name another queue by dead_letter=")
    elif named is None and dialect.gives_up == "persistent" and version not in WITHOUT_NACK:
        keeps = message.frame.get("persistent") == "true" and subscription.keeps_messages
        return Way("NACK") if keeps else Way("SEND", to)
    if named is None and dialect.gives_up == "nack" and version not in WITHOUT_NACK:
        return Way("NACK")
    return Way("SEND", to)


def copy_of(
    message: BaseMessage, dialect: BrokerDialect, to: str, error: object, client_id: str | None
) -> list[tuple[str, str]]:
    """Return the headers of the copy.

    Those that would take effect again are renamed. A key makes a second copy of the same message a duplicate, where it
    can be told to be the same one, and the broker knows keys.
    """
    given = message.headers.pairs()
    names = {name for name, _ in given}
    pairs = [("destination", to)]
    for name, value in given:
        if name in _ONCE:
            if f"original-{name}" not in names and not (name == "expires" and value == "0"):
                pairs.append((f"original-{name}", value))
        elif name not in _DROPPED:
            pairs.append((name, value))
    pairs.append(("persistent", "true"))
    if type_of(to) is None and "::" not in to:  # without a type the copy would be dropped where there is no such queue
        pairs += dialect.queue_type
    pairs += [(ORIGIN, message.headers.get("destination", "")), (ORIGIN_ID, message.headers.get("message-id", ""))]
    pairs.append((REASON, _line(error)))
    return [*pairs, *key_of(message, dialect, to, client_id)]


def text_of(message: BaseMessage, dialect: BrokerDialect) -> bool | str:
    """Return whether the copy is text, for the outbox: as the message, which is text if it has no content-length.

    A text message of Artemis has one behind all other headers.
    """
    names = [name for name, _ in message.headers.pairs()]
    if "content-length" in (names[:-1] if dialect.name in _LAST else names):
        return False
    body = message.received
    pieces = [message.frame.body] if body is None else BodyReader(body)
    try:
        decoder = codecs.getincrementaldecoder("utf-8")()
        plain = all("\0" not in decoder.decode(piece) for piece in pieces)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return KEPT if plain else False


def key_of(message: BaseMessage, dialect: BrokerDialect, to: str, client_id: str | None) -> list[tuple[str, str]]:
    """Return the header with the key of a copy, which is the same for each delivery of a message to the same consumers.

    None is added if no two deliveries can be told to be of one message.
    """
    subscription = message.subscription
    keeps, kind = subscription.keeps_messages, dict(subscription.asked).get("subscription-type")
    if subscription.durable is None and (kind is not None or dialect.shared):
        keeps = kind == ANYCAST  # whatever the name looks like
    identity = lasting_identity(dialect, message.headers) if keeps else None
    if identity is None:
        return []
    durable = None if subscription.durable is None else (client_id, subscription.durable)
    parts = repr((to, subscription.destination, durable, identity))
    return [(dialect.duplicate, f"given-up-{hashlib.sha256(parts.encode()).hexdigest()[:32]}")]


def has_key(copy: list[tuple[str, str]], dialect: BrokerDialect) -> bool:
    """Return whether a copy can be sent again, since the broker drops the second one of two."""
    return dialect.knows_keys and any(name == dialect.duplicate for name, _ in copy)


def _line(error: object) -> str:
    """Return an error as one printable line."""
    return "".join(letter if letter.isprintable() else " " for letter in repr(error)[:_LONGEST])
