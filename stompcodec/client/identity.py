"""The lasting identity of a message: what its deliveries have in common, and no other message has."""

from __future__ import annotations

import re
from collections.abc import Mapping

from stompcodec.client.dialects import BrokerDialect

#: The message-id of Artemis: the consumer, and the message.
_ARTEMIS = re.compile(r"[0-9]+,([0-9]+)", re.ASCII)


def lasting_identity(dialect: BrokerDialect, headers: Mapping[str, str]) -> str | None:
    """Return what names a message in each of its deliveries; None if nothing does.

    >>> from stompcodec.client.dialects import BROKERS
    >>> lasting_identity(BROKERS["artemis"], {"message-id": "29,28", "timestamp": "1795933285003"})
    '28@1795933285003'
    >>> lasting_identity(BROKERS["stompcodec"], {"message-id": "7"}), lasting_identity(BROKERS["rabbitmq"], {})
    ('7', None)
    """
    if dialect.names_causes or dialect.name == "activemq":
        return headers.get("message-id")
    found = _ARTEMIS.fullmatch(headers.get("message-id", "")) if dialect.name == "artemis" else None
    time = headers.get("timestamp")
    return None if found is None or time is None else f"{found[1]}@{time}"
