"""Shares: who made the destinations of a virtual host, how many each client may make, and the memory they take.

A destination is counted to the session that made it and to its owner, until the destination goes, also when the session
has ended before. The owner is the user. Without users everybody is one user, so the owner is the address of the peer:
who connects again has a new share as a session, but not as an owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from stompcodec.broker.errors import Refused
from stompcodec.broker.memory import destination_cost
from stompcodec.broker.peer import Maker, Owner

if TYPE_CHECKING:
    from stompcodec.broker.config.config import Config
    from stompcodec.broker.memory import Account
    from stompcodec.broker.peer import Peer
    from stompcodec.broker.routing.durable import Durable

__all__ = ["Shares", "owner_of"]


#: What half of all destinations is at least.
_LEAST_SHARE = 4


def owner_of(session: Peer, has_users: bool) -> str:
    """Return to whose share a session counts: that of its user, or without users of its address."""
    return session.user.name if has_users else session.peer.rpartition(":")[0]


class Made(Protocol):
    """A queue, a topic or a durable subscription."""

    @property
    def name(self) -> str:
        """The destination."""

    @property
    def maker(self) -> Maker | None:
        """Who made it; None for the configuration, or an earlier run of the broker."""


class Shares:
    """The shares of a virtual host.

    Args:
        config: how many destinations there may be, of a session, of a user, and in all.
        account: of the broker's memory.
    """

    def __init__(self, config: Config, account: Account) -> None:
        self.count = 0
        self._most = config.max_destinations
        half = max(_LEAST_SHARE, config.max_destinations // 2)
        self._most_of_session = config.session_destinations or half
        #: An address may be that of several clients, so it has more.
        self._most_of_owner = config.user_destinations or (half if config.users is not None else half + half // 2)
        self.has_users = config.users is not None
        self._account = account
        self._owners: dict[str, Owner] = {}

    def maker(self, session: Peer) -> Maker:
        """Find what stands for a session here."""
        if session.maker is None:
            key = owner_of(session, self.has_users)
            owner = self._owners.setdefault(key, Owner(key))
            owner.sessions += 1
            session.maker = Maker(owner)
        return session.maker

    def of_user(self, user: str | None) -> Maker | None:
        """Return what stands for a user who made something in an earlier run of the broker; None if that is unknown."""
        if user is None or not self.has_users:
            return None
        maker = Maker(self._owners.setdefault(user, Owner(user)))
        maker.ended = True
        return maker

    def give(self, durable: Durable, session: Peer) -> None:
        """A durable subscription that nobody made belongs to the user of a session now."""
        self.gone(durable)
        durable.queue.maker = self.maker(session)
        self.made(durable)

    def why_not(self, name: str, maker: Maker | None) -> str | None:
        """Say why there cannot be one more destination; None if there can.

        Args:
            name: of it.
            maker: who makes it; None for nobody.
        """
        if self.count >= self._most:
            return "The broker's queues.max_destinations is reached: use fewer names."
        if maker is None:
            return None
        if not self._account.has_room(destination_cost(name)):
            return "All subscriptions and destinations together take too much of the broker's limits.memory."
        if maker.made >= self._most_of_session:
            return "The share of a session is reached, queues.session_destinations: use fewer names."
        if maker.owner.made >= self._most_of_owner:
            what = "a user" if self.has_users else "an address"
            return f"The share of {what} is reached, queues.user_destinations: use fewer names."
        return None

    def check(self, name: str, maker: Maker | None) -> None:
        """Raise if there cannot be one more destination.

        Raises:
            Refused: its maker has too many, or all together are too many.
        """
        why = self.why_not(name, maker)
        if why is not None:
            raise Refused("too many destinations", why)

    def made(self, thing: Made) -> None:
        """A destination is there."""
        self.count += 1
        self._account.charge(destination_cost(thing.name))
        maker = thing.maker
        if maker is not None:
            maker.made += 1
            maker.owner.made += 1

    def gone(self, thing: Made) -> None:
        """A destination is not there any more."""
        self.count -= 1
        self._account.charge(-destination_cost(thing.name))
        maker = thing.maker
        if maker is not None:
            maker.made -= 1
            maker.owner.made -= 1
            self._look(maker.owner)

    def end(self, session: Peer) -> None:
        """A session has ended: what it made stays, and counts to its owner."""
        maker = session.maker
        if maker is not None and not maker.ended:
            maker.ended = True
            maker.owner.sessions -= 1
            self._look(maker.owner)

    def _look(self, owner: Owner) -> None:
        if not owner.sessions and not owner.made:
            del self._owners[owner.key]
