"""Shares: how many destinations each client of a virtual host may make, and the memory that they take.

A destination counts for the session that made it and for its owner until it is removed, even if the session has ended
before. The owner is the user, or without users the address of the peer: a client that connects again has a new share as
a session, but not as an owner.
"""

from __future__ import annotations

from typing import Protocol

from stompcodec.broker.auth import network_of
from stompcodec.broker.config.config import Config
from stompcodec.broker.connections import Maker, Owner, Peer
from stompcodec.broker.errors import Refused
from stompcodec.broker.memory import Account, destination_cost
from stompcodec.broker.routing.durable import Durable

#: Half of all destinations is at least this.
_LEAST_SHARE = 4


def owner_of(session: Peer, has_users: bool) -> str:
    """Return the owner for which a session counts: its user, or without users its address."""
    return session.user.name if has_users else network_of(session.peer) or session.peer.rpartition(":")[0]


class Made(Protocol):
    """A queue, a topic or a durable subscription."""

    @property
    def name(self) -> str:
        """The destination."""

    @property
    def maker(self) -> Maker | None:
        """The session that made it; None for the configuration, or an earlier run of the broker."""


class Shares:
    """The shares of a virtual host: the most destinations of a session, of a user, and in all."""

    def __init__(self, config: Config, account: Account) -> None:
        self.count = 0
        self._most = config.max_destinations
        half = max(_LEAST_SHARE, config.max_destinations // 2)
        self._most_of_session = config.session_destinations or half
        #: Several clients may share an address, so it has more.
        self._most_of_owner = config.user_destinations or (half if config.users is not None else half + half // 2)
        self.has_users = config.users is not None
        self._account = account
        self._owners: dict[str, Owner] = {}

    def maker(self, session: Peer) -> Maker:
        """Return the maker that stands for a session."""
        if session.maker is None:
            key = owner_of(session, self.has_users)
            owner = self._owners.setdefault(key, Owner(key))
            owner.sessions += 1
            session.maker = Maker(owner)
        return session.maker

    def of_user(self, user: str | None) -> Maker | None:
        """Return a maker for a user who made something in an earlier run of the broker; None if that is unknown."""
        if user is None or not self.has_users:
            return None
        maker = Maker(self._owners.setdefault(user, Owner(user)))
        maker.ended = True
        return maker

    def give(self, durable: Durable, session: Peer) -> None:
        """Count a durable subscription without a maker for the user of a session."""
        self.remove(durable)
        durable.queue.maker = self.maker(session)
        self.add(durable)

    def why_not(self, name: str, maker: Maker | None) -> str | None:
        """Return why a session, or the broker itself (None), cannot make one more destination; None if it can."""
        if self.count >= self._most:
            return "The broker's queues.max_destinations is reached: use fewer names."
        if maker is None:
            return None
        if not self._account.has_room(destination_cost(name)):
            return "All subscriptions and destinations together take too much of the broker's limits.memory."
        if maker.made >= self._most_of_session:
            return "The share of a session is reached, half of queues.max_destinations: use fewer names."
        if maker.owner.made >= self._most_of_owner:
            what = "a user" if self.has_users else "an address"
            return f"The share of {what} of queues.max_destinations is reached: use fewer names."
        return None

    def check(self, name: str, maker: Maker | None) -> None:
        """Raise Refused if the maker of one more destination has too many, or there are too many in all."""
        why = self.why_not(name, maker)
        if why is not None:
            raise Refused("too many destinations", why)

    def add(self, thing: Made) -> None:
        """Count a new destination."""
        self.count += 1
        self._account.charge(destination_cost(thing.name))
        maker = thing.maker
        if maker is not None:
            maker.made += 1
            maker.owner.made += 1

    def remove(self, thing: Made) -> None:
        """Count a destination that was removed."""
        self.count -= 1
        self._account.charge(-destination_cost(thing.name))
        maker = thing.maker
        if maker is not None:
            maker.made -= 1
            maker.owner.made -= 1
            self._look(maker.owner)

    def end(self, session: Peer) -> None:
        """Note that a session has ended. Its destinations stay, and count for its owner."""
        maker = session.maker
        if maker is not None and not maker.ended:
            maker.ended = True
            maker.owner.sessions -= 1
            self._look(maker.owner)

    def _look(self, owner: Owner) -> None:
        if not owner.sessions and not owner.made:
            del self._owners[owner.key]
