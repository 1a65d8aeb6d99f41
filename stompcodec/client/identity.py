"""The lasting identity of a message: by it a second delivery is recognized as the same message."""

from __future__ import annotations

from collections.abc import Mapping

from stompcodec.client.dialects import BrokerDialect

#: The message-id of Artemis: the number of the consumer, new in each delivery, and that of the message.
ARTEMIS_ID = "[0-9]+,([0-9]+)"


def lasting_identity(dialect: BrokerDialect, headers: Mapping[str, str]) -> str | None:
    """Return what is the same in each delivery of a message, and differs for another message; None if nothing is.

    Subscriptions to one topic get their copies with one identity: compare those of one subscription or destination.

    On Artemis it is the number of the message in the journal, and its timestamp: a new journal, or the second broker of
    a failover list, counts from the beginning again.

    Args:
        dialect: of the broker that delivered it.
        headers: of the MESSAGE; message-id and timestamp are enough.

    >>> from stompcodec.client.dialects import BROKERS
    >>> lasting_identity(BROKERS["artemis"], {"message-id": "72,28", "timestamp": "1795935891986"})
    '28 1795935891986'
    >>> lasting_identity(BROKERS["activemq"], {"message-id": "ID:a:1"}), lasting_identity(BROKERS["rabbitmq"], {})
    ('ID:a:1', None)
    """
    kind = dialect.lasting
    if kind == "id":
        return headers.get("message-id")
    if not kind:
        return None
    id, time = headers.get("message-id"), headers.get("timestamp")
    if id is None or time is None:
        return None
    consumer, _comma, number = id.partition(",")
    is_known = consumer.isdecimal() and number.isdecimal() and time.isdecimal() and id.isascii() and time.isascii()
    # JMS clients may leave the timestamp out, which makes it 0.
    return f"{number} {time}" if is_known and time[0] != "0" else None
