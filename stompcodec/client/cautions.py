"""What the log says about traps of the broker that a program has met, and that the client cannot take away."""

from __future__ import annotations

import logging

from stompcodec.client.dialects import BrokerDialect

__all__ = ["of_durable", "of_session"]

log = logging.getLogger("stompcodec.client")
#: The dialects whose trap of STOMP 1.0 this process has named.
_named: set[str] = set()


def of_session(dialect: BrokerDialect, version: str) -> None:
    """Warn once that senders can forge headers of messages to a STOMP 1.0 session, if the broker lets them."""
    if version == "1.0" and dialect.forged and dialect.name not in _named:
        _named.add(dialect.name)
        log.warning(
            "STOMP 1.0 has no escapes, and %s writes line feeds of header values as they are: a sender can forge"
            " headers of the messages that come here; use STOMP 1.1 or 1.2",
            "the broker, which does not say what it is, perhaps" if dialect.name == "unknown" else dialect.name,
        )


def of_durable(dialect: BrokerDialect, name: str | None, selector: str | None) -> None:
    """Log that a durable name keeps its selector: another one needs the name to be deleted first."""
    if name is not None and selector is not None and dialect.changed:
        log.info(
            "the durable subscription %r has a selector: if it or the destination changes, %s %s;"
            " first delete the name with unsubscribe(delete=True)",
            *(name, dialect.name, dialect.changed),
        )
