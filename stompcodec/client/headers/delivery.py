"""The table of headers that a received message has for its delivery or its sender, and that must not be sent on.

The client, the queue tools and the bridge read it, each the kinds that it leaves out or renames.
"""

from __future__ import annotations

from collections.abc import Iterable

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
    """Return the headers of some kinds.

    >>> sorted(of("key", "type"))
    ['_AMQ_DUPL_ID', 'destination-type', 'idempotency-key']
    """
    return frozenset(name for kind in kinds for name in TABLE[kind])


#: What the client leaves out of the headers of a received message.
LEFT = of("place", "delivery", "key", "type")
#: A received message has all of these, however its headers were copied.
_RECEIVED = frozenset({"message-id", "subscription"})


def is_received(names: Iterable[str]) -> bool:
    """Return whether these are the headers of a received message.

    >>> is_received(["subscription", "message-id"]), is_received(["message-id"])
    (True, False)
    """
    return _RECEIVED.issubset(names)


class AsIs(list[tuple[str, str]]):
    """The headers of a copy, which gets none by the client: text without content-type stays so."""
