"""How brokers spell what STOMP leaves open: prefetch, durable subscriptions, NACK, redelivery, replies.

A broker is recognised by the `server` header of CONNECTED. Brokers differ by a row of a table, never by a subclass. Our
own broker in the dialect of another one has the row of that one, with what it does in its own way in every dialect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from stompcodec.errors import LocalProtocolError

__all__ = ["BROKERS", "TOPIC_QUEUES", "BrokerDialect", "guess_broker", "row_of"]

Pairs = tuple[tuple[str, str], ...]

#: What the client option `topic_queues` may say.
TOPIC_QUEUES = ("auto", "transient", "exclusive", "durable")
#: Headers of SUBSCRIBE by which a program chooses the queue behind a topic subscription by itself.
_CHOSEN = frozenset({"durable", "persistent", "auto-delete", "exclusive", "x-queue-type"})


class BrokerDialect(NamedTuple):
    """What one broker calls things."""

    name: str
    server: str = ""
    """The words of the product's name in the `server` header of its CONNECTED, in lower case, with hyphens between."""
    prefetch: tuple[str, ...] = ()
    """Headers of SUBSCRIBE that take a number of messages."""
    window: str = ""
    """Header of SUBSCRIBE that takes a number of bytes instead: a KiB for each message, and 1 for one message."""
    durable: Pairs | None = None
    """Headers of SUBSCRIBE and UNSUBSCRIBE for a durable subscription; {} is its name. None: it has none."""
    client_id: bool = False
    """Whether a durable subscription needs the header client-id in CONNECT."""
    delete_apart: bool = False
    """A durable subscription can only be deleted by a second UNSUBSCRIBE."""
    requeue: Pairs | None = ()
    """Headers of NACK to have the message delivered again; None: the broker cannot do that."""
    discard: Pairs | None = ()
    """Headers of NACK to have it dropped or dead-lettered; None: the broker cannot do that."""
    nack_transacted: bool = True
    """NACK can be part of a transaction."""
    attempts: tuple[str, ...] = ()
    """Headers of MESSAGE that count the deliveries before this one; the first one that is there counts."""
    jms: bool = False
    """SEND without content-length is a text message, with it a bytes message."""
    implicit_replies: bool = False
    """A temporary queue in reply-to subscribes by itself, under its own name."""
    duplicate: str = "idempotency-key"
    """Header of SEND that stays the same when it is sent again."""
    topics: tuple[tuple[str, Pairs], ...] = ()
    """Kinds of queues that a subscription to a topic can ask for, and their headers of SUBSCRIBE; {} is a unique name.
    Empty where there is no choice."""
    topic_queue: str = "transient"
    """The kind that `topic_queues="auto"` asks for."""

    def prefetch_headers(self, messages: int) -> list[tuple[str, str]]:
        """Return the headers of SUBSCRIBE that bound what is delivered and not acknowledged.

        >>> BROKERS["rabbitmq"].prefetch_headers(10), BROKERS["artemis"].prefetch_headers(10)
        ([('prefetch-count', '10')], [('consumer-window-size', '10240')])
        """
        if self.window:
            return [(self.window, "1" if messages == 1 else str(messages * 1024))]
        return [(name, str(messages)) for name in self.prefetch]

    def durable_headers(self, name: str, client_id: str | None) -> list[tuple[str, str]]:
        """Return the headers of SUBSCRIBE for a durable subscription, and of UNSUBSCRIBE to delete it.

        Raises:
            LocalProtocolError: the broker has none, or wants a client_id first.

        >>> BROKERS["activemq"].durable_headers("daily", "me")
        [('activemq.subscriptionName', 'daily')]
        >>> BROKERS["stompcodec"].durable_headers("daily", None)
        [('durable', 'true'), ('auto-delete', 'false')]
        """
        if self.durable is None:
            raise LocalProtocolError(
                f"durable= means nothing to the dialect {self.name!r}: give dialect=, or the broker's own headers="
            )
        if self.client_id and client_id is None:
            raise LocalProtocolError(f"a durable subscription of {self.name} needs connect(..., client_id=)")
        return [(key, value.format(name)) for key, value in self.durable]

    def topic_headers(
        self, destination: str, choice: str, given: Collection[str], unique: Callable[[], str]
    ) -> list[tuple[str, str]]:
        """Return the headers of SUBSCRIBE that say which kind of queue stands behind a subscription to a topic.

        Args:
            destination: of the subscription, which is not a durable one.
            choice: one of `TOPIC_QUEUES`.
            given: names of the headers that the program itself gives: where they choose the queue, nothing is added.
            unique: makes a name that no other subscription has.

        >>> guess_broker("RabbitMQ/4.3.0").topic_headers("/topic/a", "auto", (), lambda: "q1")
        [('exclusive', 'true')]
        >>> BROKERS["rabbitmq"].topic_headers("/topic/a", "durable", (), lambda: "q1")
        [('durable', 'true'), ('auto-delete', 'true'), ('x-queue-name', 'q1')]
        """
        if not self.topics or not destination.startswith("/topic/") or not _CHOSEN.isdisjoint(given):
            return []
        if choice == "auto":
            choice = self.topic_queue
            if choice == "exclusive" and "x-queue-name" in given:  # a named queue is made to be shared
                choice = "durable"
        return [(key, unique() if value == "{}" else value) for key, value in dict(self.topics)[choice]]

    def nack_headers(self, requeue: bool | None, transacted: bool = False) -> Pairs:
        """Return the headers of NACK.

        Args:
            requeue: True to have it again, False to have it gone, None for what the broker does by itself.
            transacted: it is part of a transaction.

        Raises:
            LocalProtocolError: this broker cannot.

        >>> BROKERS["rabbitmq"].nack_headers(False)
        (('requeue', 'false'),)
        """
        if transacted and not self.nack_transacted:
            raise LocalProtocolError(f"{self.name} takes no NACK in a transaction: refuse the message outside of it")
        if requeue is None:
            return ()
        headers = self.requeue if requeue else self.discard
        if headers is None:
            raise LocalProtocolError(f"the NACK of {self.name} cannot {'requeue' if requeue else 'discard'} a message")
        return headers


#: Unknown brokers get the two names that brokers read most; a header that a broker does not know means nothing.
_UNKNOWN = BrokerDialect("unknown", prefetch=("prefetch-count", "activemq.prefetchSize"))
#: What our own broker does with NACK in every dialect, and how it counts deliveries.
_OWN: dict[str, Any] = {
    "requeue": (),
    "discard": (("requeue", "false"),),
    "nack_transacted": True,
    "attempts": ("redelivery-count",),
}

BROKERS: dict[str, BrokerDialect] = {
    dialect.name: dialect
    for dialect in (
        BrokerDialect(
            "stompcodec",
            "stompcodec",
            prefetch=("prefetch-count",),
            durable=(("durable", "true"), ("auto-delete", "false")),
            **_OWN,
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
            topics=(
                ("transient", ()),
                ("exclusive", (("exclusive", "true"),)),
                ("durable", (("durable", "true"), ("auto-delete", "true"), ("x-queue-name", "{}"))),
            ),
        ),
        BrokerDialect(
            "artemis",
            "artemis",
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
            nack_transacted=False,
            jms=True,
        ),
        BrokerDialect(
            "apollo", "apache-apollo", prefetch=("credit",), durable=(("persistent", "true"),), jms=True, discard=None
        ),
        _UNKNOWN,
    )
}

#: Row -> (first version, fields that changed with it), in order.
_SINCE: dict[str, tuple[tuple[tuple[int, int], dict[str, Any]], ...]] = {
    # 4.3 refuses queues that are neither durable nor exclusive, which is what a topic subscription gets by default.
    "rabbitmq": (((4, 3), {"topic_queue": "exclusive"}),),
}
_VERSION = re.compile(r"/v?([0-9]{1,6})\.([0-9]{1,6})")


def guess_broker(server: str | None) -> BrokerDialect:
    """Return the dialect of the broker that sent this `server` header in CONNECTED.

    >>> guess_broker("RabbitMQ/3.10.8").name, guess_broker("ActiveMQ-Artemis/2.31.0").name, guess_broker(None).name
    ('rabbitmq', 'artemis', 'unknown')
    >>> guess_broker("stompcodec/0.1.0").name, guess_broker("stompcodec/0.1.0 as artemis").name
    ('stompcodec', 'artemis')
    """
    return row_of("auto", server)


def row_of(name: str, server: str | None) -> BrokerDialect:
    """Return the row to use with a broker.

    Args:
        name: the client option `dialect`.
        server: the header of its CONNECTED.

    >>> row_of("activemq", "stompcodec/0.1.0").discard, row_of("activemq", "ActiveMQ/5.17.2").discard
    ((('requeue', 'false'),), ())
    """
    folded = (server or "").lower()
    product, _, manner = folded.partition(" as ")
    words = set(re.split("[^a-z]+", product.partition("/")[0]))
    found = next((row for row in BROKERS.values() if row.server and words.issuperset(row.server.split("-"))), _UNKNOWN)
    own = found.name == "stompcodec"
    if name != "auto":
        row = BROKERS[name]
    else:
        row = BROKERS.get(manner.strip(), found) if own else found
    if own:
        return row._replace(**_OWN)
    version = _VERSION.search(folded)
    if found is row and version is not None:
        numbers = int(version[1]), int(version[2])
        for first, fields in _SINCE.get(row.name, ()):
            if numbers >= first:
                row = row._replace(**fields)
    return row
