"""The headers of a message that goes to another queue of the same broker, and where a dead letter came from."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from stompcodec.bridge.headers import REFUSED, TAKERS, taken_value
from stompcodec.cli.queues.kinds import Kind
from stompcodec.client.headers import ANYCAST, AsIs, of

if TYPE_CHECKING:
    from stompcodec.client import Message

#: Headers that the broker sets anew, or that belong to one delivery.
_DELIVERY = of("place", "delivery", "made") | {"deliver-at", REFUSED}
#: Headers that would take effect a second time: the key makes the broker drop the message as a duplicate, a delay makes
#: it wait again, and the arguments make another queue. They stay readable under another name, as do values that the
#: broker would refuse.
_ONCE = of("key", "schedule", "argument", "type")
#: Headers that say why a message became a dead letter, which it no longer is where it goes back.
_CAUSE = of("cause", "death")
_ORIGINAL = "original-"
#: The headers by which brokers say where a dead letter came from: ours and ActiveMQ, ActiveMQ's own API, Artemis.
_ORIGINS = ("original-destination", "originalDestination", "_AMQ_ORIG_ADDRESS")
#: The message-id of a dead letter that our broker made of a message of a queue (l), or of a subscription (u, s).
_MARK = re.compile(r"[A-Za-z0-9._]+-d([lus])-[0-9]+", re.ASCII)
#: Names of destinations that ActiveMQ writes as URLs.
_SCHEME = "queue://"


def kept(
    pairs: list[tuple[str, str]], broker: str = "stompcodec", *, returns: bool = False, typed: bool = False
) -> AsIs:
    """Return the headers of the SEND for those of a MESSAGE, without destination. `broker` is a key of `TAKERS`.

    With `returns` a dead letter goes back, and loses the headers that say why it is one. With `typed` the broker has to
    be told that the destination is a queue, also if its name does not say so.

    >>> kept([("destination", "/queue/a"), ("message-id", "7"), ("n", "1"), ("idempotency-key", "k")])
    [('n', '1'), ('original-idempotency-key', 'k')]
    """
    if returns:
        pairs = [pair for pair in pairs if pair[0] not in _CAUSE]
    names = {name for name, _ in pairs}
    headers = AsIs()
    for name, value in pairs:
        taken = None if name in _ONCE else taken_value(TAKERS[broker], name, value)
        if taken is not None:
            headers += [] if name in _DELIVERY else [(name, taken)]
        elif _ORIGINAL + name not in names:
            headers.append((_ORIGINAL + name, value))
    return AsIs([*headers, ("destination-type", ANYCAST)]) if typed else headers


def body_of(message: Message, kind: Kind) -> bytes | str:
    """Return the body: as text if the broker has text messages, and this is one."""
    if kind.jms and message.get("content-length") is None:
        try:
            return message.body.decode()
        except UnicodeDecodeError:
            pass
    return message.body


class Origin(NamedTuple):
    """Where a dead letter came from."""

    queue: str | None
    """None if that is not known, or not a queue that it can go back to."""
    is_proven: bool = False
    """The broker itself says it. Otherwise any sender could have written it."""


def origin_of(message: Message, letters: str, kind: Kind) -> Origin:
    """Return where a dead letter came from.

    The message-id of a letter that our broker made has a mark, which no sender can write. At other brokers, and of
    other messages, there are only headers.

    Args:
        message: the dead letter.
        letters: the queue it is in. A bare name of an origin gets its prefix, where both mean one queue.
        kind: the broker.
    """
    mark = _MARK.fullmatch(message.id) if kind.is_ours else None
    if mark is not None:
        found = message.get("original-destination") if mark[1] == "l" else None
        return Origin(found if found and not kind.row.is_same(found, letters) else None, True)
    found = next((value for name in _ORIGINS if (value := message.get(name))), None)
    if found is None or message.get("_AMQ_ORIG_ROUTING_TYPE") == "0":  # Artemis: it was sent to a topic
        return Origin(None)
    prefix = next(filter(letters.startswith, kind.row.aliases[:1]), "")
    if found.startswith(_SCHEME):
        found = prefix + found[len(_SCHEME) :]
    elif not found.startswith("/") and "://" not in found:
        found = prefix + found
    fits = is_queue(found) and not kind.row.is_same(found, letters) and not kind.answers(found)
    return Origin(found if fits else None)


def is_queue(destination: str) -> bool:
    """Return whether a destination keeps what is sent to it, unlike a topic, the temporary queue of a client, or a
    request to our broker, which answers it.

    >>> [is_queue(name) for name in ("/queue/a", "orders", "/topic/a", "/temp-queue/a", "topic://a")]
    [True, True, False, False, False]
    """
    other = ("/topic/", "/temp-", "/remote-temp-", "/reply-queue/", "/exchange/", "/dsub/", "/management/")
    return not destination.startswith(other) and "://" not in destination
