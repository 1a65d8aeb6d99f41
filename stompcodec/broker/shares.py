"""Shares: who made the destinations of a virtual host, how many each client may make, and the memory they take.

A destination is counted to the session that made it and to its owner, until the destination goes, also when the session
has ended before. The owner is the user. Without users everybody is one user, so the owner is the address of the peer,
and what its sessions left behind is counted to each session that comes from there: connecting again does not give
anybody a new share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from stompcodec.broker.memory import destination_cost
from stompcodec.broker.message import Refused

if TYPE_CHECKING:
    from stompcodec.broker.config import Config
    from stompcodec.broker.memory import Account
    from stompcodec.broker.session import Session

__all__ = ["Maker", "Shares"]


#: What half of all destinations is at least.
_LEAST_SHARE = 4


class _Owner:
    """A user, or an address."""

    __slots__ = ("key", "left", "made", "sessions")

    def __init__(self, key: str) -> None:
        self.key = key
        #: Destinations that its sessions made and that are still there; and those of them whose session has ended.
        self.made = 0
        self.left = 0
        #: Sessions that have made something.
        self.sessions = 0


class Maker:
    """A session, as the maker of destinations."""

    __slots__ = ("ended", "made", "owner")

    def __init__(self, owner: _Owner) -> None:
        self.owner = owner
        #: Destinations that it made and that are still there.
        self.made = 0
        self.ended = False


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
        self._most_of_user = config.user_destinations or half
        self._has_users = config.users is not None
        self._account = account
        self._owners: dict[str, _Owner] = {}

    def maker(self, session: Session) -> Maker:
        """Find what stands for a session here."""
        if session.maker is None:
            key = session.user.name if self._has_users else session.peer.rpartition(":")[0]
            owner = self._owners.setdefault(key, _Owner(key))
            owner.sessions += 1
            session.maker = Maker(owner)
        return session.maker

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
        made = maker.made if self._has_users else maker.made + maker.owner.left
        if made >= self._most_of_session:
            return "The share of a session is reached, queues.session_destinations: use fewer names."
        if self._has_users and maker.owner.made >= self._most_of_user:
            return "The share of a user is reached, queues.user_destinations: use fewer names."
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
            if maker.ended:
                maker.owner.left -= 1
                self._look(maker.owner)

    def end(self, session: Session) -> None:
        """A session has ended: what it made stays, and counts to its owner."""
        maker = session.maker
        if maker is not None and not maker.ended:
            maker.ended = True
            maker.owner.left += maker.made
            maker.owner.sessions -= 1
            self._look(maker.owner)

    def share(self, maker: Maker, other: Maker | None) -> bool:
        """Whether what another maker has made counts to the share of one."""
        if other is None or other.owner is not maker.owner:
            return False
        return other is maker or self._has_users or other.ended

    def _look(self, owner: _Owner) -> None:
        if not owner.sessions and not owner.made:
            del self._owners[owner.key]
