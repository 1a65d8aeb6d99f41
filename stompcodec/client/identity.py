"""The lasting identity of a message: what its deliveries have in common, and no other message has."""

from __future__ import annotations

from collections.abc import Mapping

from stompcodec.client.dialects import BrokerDialect


def lasting_identity(dialect: BrokerDialect, headers: Mapping[str, str]) -> str | None:
    """Return what names a message in each of its deliveries; None if nothing does.

    >>> from stompcodec.client.dialects import BROKERS
    >>> lasting_identity(BROKERS["stompcodec"], {"message-id": "7"}), lasting_identity(BROKERS["rabbitmq"], {})
    ('7', None)
    """
    return headers.get("message-id") if dialect.names_causes or dialect.name == "activemq" else None
