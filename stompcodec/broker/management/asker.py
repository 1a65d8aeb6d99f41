"""Asker: who sends a request, and what it is about."""

from __future__ import annotations

from typing import NamedTuple

from stompcodec.broker.routing.virtual_host import VirtualHost


class Asker(NamedTuple):
    """The sender of a request. It sees and changes one virtual host; some questions are about the whole broker."""

    host: VirtualHost
    who: str
    """For the log of orders: the user, the address, and how the request came."""
    session: str | None = None
    """The id of its session, which it cannot close."""
