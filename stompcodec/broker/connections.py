"""Connections: the share of all connections that one user or one address may have.

A user's connections count from its login on, those of an address from the start. An IPv6 address counts by its /64, of
which a client has all addresses. Connections of this machine count for no address, because those of a local proxy all
come from there. Connections without an address, such as those of a program that embeds the broker, are not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from logging import Logger

from stompcodec.broker.config.config import Config
from stompcodec.broker.errors import Refused
from stompcodec.broker.origins import far_network_of, network_of
from stompcodec.broker.peer import Peer

#: The remedy where only time helps.
LATER = "Try again later."
#: Half of all connections is at least this.
_LEAST_SHARE = 4
#: Seconds between two lines of the log about one kind of share.
_SILENCE = 60.0


@dataclass(slots=True)
class Stats:
    """Counts since the start.

    >>> Stats().sessions_total
    0
    """

    sessions_total: int = 0
    sessions_refused: int = 0
    duplicates: int = 0
    """SENDs that were not stored because their idempotency key was known."""
    duplicates_changed: int = 0
    """Duplicates with another body than the first SEND."""


class Connections:
    """The connections of each user and address. `most` sets how many there can be in all."""

    def __init__(self, config: Config, stats: Stats, log: Logger) -> None:
        self._config = config
        self._stats = stats
        self._log = log
        self._users: dict[str, int] = {}
        self._addresses: dict[str, int] = {}
        #: The address, and the user, for which each session counts.
        self._counted: dict[Peer, tuple[str | None, str | None]] = {}
        #: When the log had a line about each kind of share.
        self._told: dict[str, float] = {}
        #: Closes a connection that has not logged in, of the address of a peer, or of any for "". Returns False if none
        #: is left.
        self.make_room: Callable[[str], bool] = lambda peer: False
        self.most(config.max_connections)

    def most(self, most: int) -> None:
        """Set how many connections there can be in all, which file descriptors may limit."""
        config = self._config
        half = max(_LEAST_SHARE, most // 2)
        alone = config.users is None or len(config.users) < 2  # no other user needs a share
        self._most_of_user = config.user_connections or (most if alone else half)
        self._most_of_address = config.address_connections or max(_LEAST_SHARE, most - most // 4)

    def why_not(self, session: Peer, sessions: int, now: float) -> str | None:
        """Return why a new session cannot be admitted: all connections, or those of its address, are used up. None if
        it can.
        """
        if sessions >= self._config.max_connections and not self.make_room(""):
            return LATER
        address = self._address_of(session)
        count = self._addresses.get(address or "", 0)
        if address is None or count < self._most_of_address or self.make_room(session.peer):
            return None
        return self._refuse(f"address {address}", count, "an address", "sessions.address_connections", now)

    def enter(self, session: Peer) -> None:
        """Count a new session."""
        address = self._address_of(session)
        if address is not None:
            self._counted[session] = address, None
            self._addresses[address] = self._addresses.get(address, 0) + 1

    def join(self, session: Peer, now: float) -> None:
        """Count a session that logs in for its user. Raise Refused if the user has too many connections."""
        user = session.owner
        if user is None:
            return
        count = self._users.get(user, 0)
        if count >= self._most_of_user:
            why = self._refuse(f"user {user!r}", count, "a user", "sessions.user_connections", now)
            self._stats.sessions_refused += 1
            raise Refused("too many connections", why)
        self._users[user] = count + 1
        self._counted[session] = self._counted.get(session, (None, None))[0], user

    def leave(self, session: Peer) -> None:
        """Stop counting a session whose transport is closed."""
        for counts, key in zip((self._addresses, self._users), self._counted.pop(session, ()), strict=False):
            if key is not None:
                counts[key] -= 1
                if not counts[key]:
                    del counts[key]

    def _address_of(self, session: Peer) -> str | None:
        return (network_of if self._config.address_connections else far_network_of)(session.peer)

    def _refuse(self, who: str, count: int, whose: str, key: str, now: float) -> str:
        """Return the remedy, and tell the log now and then."""
        if now - self._told.get(key, -_SILENCE) >= _SILENCE:
            self._told[key] = now
            self._log.warning("%s has %d connections, the share of %s (%s): others are refused", who, count, whose, key)
        return f"The share of {whose} is reached, {key}: close some connections, or connect later."
