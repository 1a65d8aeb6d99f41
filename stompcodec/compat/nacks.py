"""The warning of a NACK that drops the message, for the libraries whose programs send it as before."""

from __future__ import annotations

from collections.abc import Callable

from stompcodec.client.dialects import row_of

#: The dialects of whose NACK a program was warned.
_warned: set[str] = set()


def warn_of_nack(server: str | None, warn: Callable[[str, str], object]) -> None:
    """Warn once that the NACK of a broker drops the message.

    Args:
        server: the header of its CONNECTED.
        warn: the `warning` of the library's log.
    """
    dialect = row_of("auto", server)
    if dialect.nacked == "drops" and dialect.name not in _warned:
        _warned.add(dialect.name)
        warn("NACK: %s drops the message: to keep it, send a copy to another queue, then ACK", dialect.name)
