"""How brokers spell what STOMP leaves open: prefetch, durable subscriptions, NACK, redelivery, replies.

A broker is guessed from the `server` header of CONNECTED. Brokers differ by a row of a table, never by a subclass.
"""

from __future__ import annotations

from typing import NamedTuple

from stompcodec.errors import LocalProtocolError

__all__ = ["BROKERS", "BrokerDialect", "guess_broker"]

Pairs = tuple[tuple[str, str], ...]


class BrokerDialect(NamedTuple):
    """What one broker calls things."""

    name: str
    server: str = ""
    """How the `server` header of its CONNECTED begins, in lower case."""
    prefetch: tuple[str, ...] = ()
    """Headers of SUBSCRIBE that take a number of messages."""
    window: str = ""
    """Header of SUBSCRIBE that takes a number of octets instead: a KiB for each message, and 1 for one message."""
    durable: Pairs | None = None
    """Headers of SUBSCRIBE and UNSUBSCRIBE for a durable subscription; {} is its name. None: it has none."""
    client_id: bool = False
    """Whether a durable subscription needs the header client-id in CONNECT."""
    delete_apart: bool = False
    """A durable subscription can only be deleted by a second UNSUBSCRIBE."""
    requeue: Pairs | None = ()
    """Headers of NACK to have the message delivered again; None: it cannot be had."""
    discard: Pairs | None = ()
    """Headers of NACK to have it dropped or dead-lettered; None: it cannot be had."""
    attempts: tuple[str, ...] = ()
    """Headers of MESSAGE that count deliveries, if there are any: this one included?"""
    counts_from: int = 0
    """What that header says at the first delivery."""
    jms: bool = False
    """SEND without content-length is a text message, with it one of octets."""
    implicit_replies: bool = False
    """A temporary queue in reply-to subscribes by itself, under its own name."""
    duplicate: str = "idempotency-key"
    """Header of SEND that stays the same when it is sent again."""

    def prefetch_headers(self, messages: int) -> list[tuple[str, str]]:
        """Headers of SUBSCRIBE that bound what is delivered and not acknowledged.

        >>> BROKERS["rabbitmq"].prefetch_headers(10), BROKERS["artemis"].prefetch_headers(10)
        ([('prefetch-count', '10')], [('consumer-window-size', '10240')])
        """
        if self.window:
            return [(self.window, "1" if messages == 1 else str(messages * 1024))]
        return [(name, str(messages)) for name in self.prefetch]

    def durable_headers(self, name: str, client_id: str | None) -> list[tuple[str, str]]:
        """Headers of SUBSCRIBE for a durable subscription, and of UNSUBSCRIBE to delete it.

        Raises:
            LocalProtocolError: the broker has none, or wants a client_id first.

        >>> BROKERS["activemq"].durable_headers("daily", "me")
        [('activemq.subscriptionName', 'daily')]
        """
        if self.durable is None:
            raise LocalProtocolError(
                f"durable= means nothing to the dialect {self.name!r}: give dialect=, or the broker's own headers="
            )
        if self.client_id and client_id is None:
            raise LocalProtocolError(f"a durable subscription of {self.name} needs connect(..., client_id=)")
        return [(key, value.format(name)) for key, value in self.durable]

    def nack_headers(self, requeue: bool | None) -> Pairs:
        """Headers of NACK.

        Args:
            requeue: True to have it again, False to have it gone, None for what the broker does by itself.

        Raises:
            LocalProtocolError: this broker cannot.

        >>> BROKERS["rabbitmq"].nack_headers(False)
        (('requeue', 'false'),)
        """
        if requeue is None:
            return ()
        headers = self.requeue if requeue else self.discard
        if headers is None:
            raise LocalProtocolError(f"the NACK of {self.name} cannot {'requeue' if requeue else 'discard'} a message")
        return headers


#: Unknown brokers get the two names that brokers read most; a header that a broker does not know means nothing.
_UNKNOWN = BrokerDialect("unknown", prefetch=("prefetch-count", "activemq.prefetchSize"))

BROKERS: dict[str, BrokerDialect] = {
    dialect.name: dialect
    for dialect in (
        BrokerDialect(
            "stompcodec",
            "stompcodec",
            prefetch=("prefetch-count",),
            discard=None,
            attempts=("redelivery-count",),
        ),
        BrokerDialect(
            "rabbitmq",
            "rabbitmq",
            prefetch=("prefetch-count",),
            durable=(("durable", "true"), ("auto-delete", "false")),
            requeue=(("requeue", "true"),),
            discard=(("requeue", "false"),),
            attempts=("x-delivery-count",),
            implicit_replies=True,
        ),
        BrokerDialect(
            "artemis",
            "activemq-artemis",
            window="consumer-window-size",
            durable=(("durable-subscription-name", "{}"),),
            client_id=True,
            requeue=None,
            jms=True,
            duplicate="_AMQ_DUPL_ID",
        ),
        BrokerDialect(
            "activemq",
            "activemq",
            prefetch=("activemq.prefetchSize",),
            durable=(("activemq.subscriptionName", "{}"),),
            client_id=True,
            delete_apart=True,
            requeue=None,
            jms=True,
        ),
        BrokerDialect(
            "apollo", "apache-apollo", prefetch=("credit",), durable=(("persistent", "true"),), jms=True, discard=None
        ),
        _UNKNOWN,
    )
}


def guess_broker(server: str | None) -> BrokerDialect:
    """The dialect of the broker that sent this `server` header in CONNECTED.

    >>> guess_broker("RabbitMQ/3.10.8").name, guess_broker("ActiveMQ-Artemis/2.31.0").name, guess_broker(None).name
    ('rabbitmq', 'artemis', 'unknown')
    """
    folded = (server or "").lower()
    return next((each for each in BROKERS.values() if each.server and folded.startswith(each.server)), _UNKNOWN)
