"""The headers of a message that goes to another queue of the same broker, and where a dead letter came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompcodec.bridge.headers import ARGUMENTS
from stompcodec.cli.queues.kinds import Kind

if TYPE_CHECKING:
    from stompcodec.client import Message

#: Headers that the broker sets anew, or that belong to one delivery.
_DELIVERY = frozenset(
    (
        *("destination", "message-id", "subscription", "ack", "redelivered", "redelivery-count", "x-delivery-count"),
        *("content-length", "receipt", "receipt-id", "transaction", "browser", "bridge_refused", "amqMessageId"),
        *("JMSXUserID", "JMSXDeliveryCount", "transformation-error", "deliver-at"),
    )
)
#: Headers that would take effect a second time: the key makes the broker drop the message as a duplicate, a delay makes
#: it wait again, and the arguments make another queue. They stay readable under another name.
_ONCE = frozenset(
    (
        *("idempotency-key", "_AMQ_DUPL_ID", "delay", "x-delay", "AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_PERIOD"),
        *("AMQ_SCHEDULED_REPEAT", "AMQ_SCHEDULED_CRON", "scheduledJobId", *ARGUMENTS),
    )
)
_ORIGINAL = "original-"
#: The headers by which brokers say where a dead letter came from: ours and ActiveMQ, ActiveMQ's own API, Artemis.
_ORIGINS = ("original-destination", "originalDestination", "_AMQ_ORIG_ADDRESS")
#: Names of destinations that ActiveMQ writes as URLs.
_SCHEME = "queue://"


def kept(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the headers of the SEND for those of a MESSAGE, without destination.

    >>> kept([("destination", "/queue/a"), ("message-id", "7"), ("n", "1"), ("idempotency-key", "k")])
    [('n', '1'), ('original-idempotency-key', 'k')]
    """
    names = {name for name, _ in pairs}
    headers = []
    for name, value in pairs:
        if name not in _ONCE:
            headers += [] if name in _DELIVERY else [(name, value)]
        elif _ORIGINAL + name not in names:
            headers.append((_ORIGINAL + name, value))
    return headers


def body_of(message: Message, kind: Kind) -> bytes | str:
    """Return the body: as text if the broker has text messages, and this is one."""
    if kind.jms and message.get("content-length") is None:
        try:
            return message.body.decode()
        except UnicodeDecodeError:
            pass
    return message.body


def origin_of(message: Message, letters: str) -> str | None:
    """Return the queue that a dead letter came from; None if its headers do not name a queue that it can go back to.

    Args:
        message: the dead letter.
        letters: the queue it is in. A bare name of an origin gets its prefix.
    """
    found = next((value for name in _ORIGINS if (value := message.get(name))), None)
    if found is None:
        return None
    prefix = "/queue/" if letters.startswith("/queue/") else ""
    if found.startswith(_SCHEME):
        found = prefix + found[len(_SCHEME) :]
    elif not found.startswith("/") and "://" not in found:
        found = prefix + found
    if not is_queue(found) or same(found, letters):
        return None
    return found


def is_queue(destination: str) -> bool:
    """Return whether a destination keeps what is sent to it, unlike a topic, the temporary queue of a client, or a
    request to our broker, which answers it.

    >>> [is_queue(name) for name in ("/queue/a", "orders", "/topic/a", "/temp-queue/a", "topic://a")]
    [True, True, False, False, False]
    """
    other = ("/topic/", "/temp-", "/remote-temp-", "/reply-queue/", "/exchange/", "/dsub/", "/management/")
    return not destination.startswith(other) and "://" not in destination


def same(one: str, other: str) -> bool:
    """Return whether two names are those of one queue at some broker.

    >>> same("/queue/a", "a"), same("/queue/a", "/queue/b")
    (True, False)
    """
    return _bare(one) == _bare(other)


def _bare(name: str) -> str:
    for prefix in ("/amq/queue/", "/queue/"):
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name
