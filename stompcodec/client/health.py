"""How a client is doing: what a probe asks."""

from __future__ import annotations

from dataclasses import dataclass

from stompcodec.client.link import ClientLink

#: A client that is late with its work by more seconds than this is stuck.
_STUCK = 5.0


@dataclass(frozen=True, slots=True)
class Health:
    """The answer of `is_alive`, true if messages can be sent and received now.

    Ages and not points in time, in seconds, so that no clock has to be known.

    >>> health = Health(alive=False, state="reconnecting", last_received=12.5, outstanding=3, reconnecting_since=2.5)
    >>> bool(health), health.outstanding
    (False, 3)
    """

    alive: bool
    """Whether there is a session, and the I/O thread does its work in time. Heart-beats end a session with a server
    that is silent."""
    state: str
    """`client.state`."""
    last_received: float | None
    """How many seconds ago the server last sent something, a heart-beat included; None if it never did."""
    outstanding: int
    """Frames that were not sent yet, and calls, such as a send with a receipt, that wait for an answer."""
    reconnecting_since: float | None
    """How many seconds ago the connection was lost; None while there is one, and when the client is closed."""

    def __bool__(self) -> bool:
        return self.alive


def health_of(link: ClientLink, now: float, running: bool) -> Health:
    """Return how a client is doing. `running` says whether the I/O thread works for it.

    >>> from stompcodec.client.options import Options
    >>> bool(health_of(ClientLink(Options()), 0.0, running=True))
    False
    """
    due = link.next_deadline()
    in_time = due is None or now <= due + _STUCK
    heard, lost = link.heard_at, link.lost_at
    return Health(
        alive=running and in_time and link.state == "connected",
        state=link.state,
        last_received=None if heard is None else max(now - heard, 0.0),
        outstanding=link.outbox.unsent + len(link.calls.sent),
        reconnecting_since=None if lost is None else max(now - lost, 0.0),
    )
