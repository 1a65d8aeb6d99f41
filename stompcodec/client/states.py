"""The states of a client, as tables: the link looks up here what an event leads to.

A client has one connection after the other, so there are two tables: for the client, and for its present connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class State(NamedTuple):
    """One row: what the state means, and the states that follow. Any other event changes nothing."""

    meaning: str
    after: Mapping[str, str]
    """Event -> the next state."""


#: What programs see in `client.state` and `on_state`.
CLIENT = {
    "connecting": State(
        "no session yet: addresses are tried in turn",
        {"restored": "connected", "close": "closing", "end": "closed"},
    ),
    "connected": State(
        "there is a session, and all subscriptions are back",
        {"lost": "reconnecting", "close": "closing", "end": "closed"},
    ),
    "reconnecting": State(
        "the connection was lost; calls wait, or are bounded by their timeouts",
        {"restored": "connected", "close": "closing", "end": "closed"},
    ),
    "closing": State("DISCONNECT waits behind all that was to be sent, or for its receipt", {"end": "closed"}),
    "closed": State("the end: every call has its outcome", {}),
}
CONNECTION = {
    "down": State("there is no transport", {"opened": "connecting"}),
    "connecting": State("CONNECT was sent, CONNECTED has not come", {"accepted": "restoring", "cut": "down"}),
    "restoring": State(
        "SUBSCRIBE was sent for each subscription, and nothing else; receipts are waited for",
        {"restored": "up", "cut": "down"},
    ),
    "up": State("the outbox flows", {"cut": "down"}),
}


def follow(table: Mapping[str, State], state: str, event: str) -> str:
    """Return the state after an event.

    >>> follow(CLIENT, "connected", "lost"), follow(CLIENT, "closing", "lost")
    ('reconnecting', 'closing')
    """
    return table[state].after.get(event, state)
