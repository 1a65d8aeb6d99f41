"""The lobby: connections that have not logged in yet, and clients that are turned away.

A connection is here from the moment it is accepted, through the handshakes of TLS and WebSocket, until CONNECTED is
sent. If too many are here, the oldest of the address with most of them is closed, so that clients which send nothing
displace each other, and not those who log in. Where there is no room for a new connection, one of the lobby makes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from stompcodec.broker.config.config import Config
from stompcodec.broker.origins import network_of
from stompcodec.codec import Frame, serialize

log = logging.getLogger("stompcodec.broker.server")

#: Seconds that a client has to log in even when too many are here, unless there are more than `_BURST`: after a restart
#: all clients come at once.
_GRACE, _BURST = 0.5, 256
#: Seconds between two lines in the log.
_SILENCE = 60.0


class Guest(Protocol):
    """A connection, described at `stompcodec.transport.aio.Wire`."""

    peer: str

    def abort(self) -> None: ...


class Lobby:
    """The connections that have not logged in yet, at most `most`. `dismiss` tells one why it is closed."""

    def __init__(self, most: int, dismiss: Callable[[Guest], object]) -> None:
        self.most = most
        self._dismiss = dismiss
        #: The address of each connection; and the connections of each address with the times at which they came.
        self._places: dict[Guest, str] = {}
        self._guests: dict[str, dict[Guest, float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed, self._told = 0, float("-inf")

    def __len__(self) -> int:
        return len(self._places)

    def enter(self, guest: Guest) -> None:
        """Let a new connection in, in place of another one if there are too many."""
        place = network_of(guest.peer)
        if place is None:
            return
        loop = asyncio.get_running_loop()
        self._places[guest] = place
        self._guests.setdefault(place, {})[guest] = loop.time()
        if len(self) > max(self.most, _BURST):
            self._close(self._oldest()[0], loop.time())
        elif len(self) > self.most and self._timer is None:
            self._timer = loop.call_later(_GRACE, self._thin)

    def make_room(self, peer: str, counts: Callable[[Guest], bool]) -> bool:
        """Close the oldest connection that counts of the address of a new one, or of the address with most of them if
        `peer` is empty. Return False if there is none.
        """
        place = network_of(peer)
        guests = self._guests.get(place, {}) if place else max(self._guests.values(), key=len, default={})
        guest = next(filter(counts, guests), None)
        if guest is not None:
            self._put_out(guest)
        return guest is not None

    def leave(self, guest: Guest) -> None:
        """Let go a connection that has logged in, or is lost."""
        place = self._places.pop(guest, None)
        if place is not None:
            guests = self._guests[place]
            del guests[guest]
            if not guests:
                del self._guests[place]

    def close(self) -> None:
        """Stop closing connections."""
        if self._timer is not None:
            self._timer.cancel()

    def _oldest(self) -> tuple[Guest, float]:
        """Return the oldest connection of the address with most of them, and when it came."""
        return next(iter(max(self._guests.values(), key=len).items()))

    def _thin(self) -> None:
        """Close connections that had time to log in, while there are too many."""
        self._timer = None
        loop = asyncio.get_running_loop()
        while len(self) > self.most:
            guest, since = self._oldest()
            if since + _GRACE > loop.time():
                self._timer = loop.call_at(since + _GRACE, self._thin)
                return
            self._close(guest, loop.time())

    def _put_out(self, guest: Guest) -> None:
        self.leave(guest)
        self._dismiss(guest)
        guest.abort()

    def _close(self, guest: Guest, now: float) -> None:
        self._put_out(guest)
        self._closed += 1
        if now - self._told >= _SILENCE:
            text = "more than %d connections have not logged in (sessions.max_before_login): %d were closed, of %s last"
            log.warning(text, self.most, self._closed, guest.peer)
            self._closed, self._told = 0, now


def most_before_login(config: Config, most: int) -> int:
    """Return how many connections may be in the lobby, if there can be `most` in all."""
    return config.max_before_login or max(1, most // 4)


def refusal(listener: str) -> bytes:
    """Return the answer to a client that is refused because no file descriptor is left."""
    text = b"The broker has no file descriptor left: connect again later.\n"
    if listener == "tls":  # without a handshake it could not read any answer
        return b""
    if listener == "ws":
        kind = b"Content-Type: text/plain\r\nContent-Length: %d" % len(text)
        return b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n%b\r\n\r\n%b" % (kind, text)
    error = Frame("ERROR", {"message": "too many connections", "content-type": "text/plain"}, text)
    return serialize(error, "legacy" if listener == "legacy" else "1.0")
