"""Owners: the sessions that own temporary destinations and exclusive queues."""

from __future__ import annotations

from collections.abc import Iterator

from stompcodec.broker.connections import Peer


class Owners:
    """Destinations that belong to one session each, by the name that they have for others.

    >>> owners = Owners()
    >>> "/temp-queue/s-1-a" in owners, len(owners)
    (False, 0)
    """

    __slots__ = ("_by_name", "_by_session")

    def __init__(self) -> None:
        self._by_name: dict[str, Peer] = {}
        self._by_session: dict[Peer, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def get(self, name: str) -> Peer | None:
        """Return the session that owns a destination; None without an owner."""
        return self._by_name.get(name)

    def claim(self, name: str, session: Peer) -> None:
        """Make a session the owner of a destination without an owner."""
        self._by_name[name] = session
        self._by_session.setdefault(session, {})[name] = None

    def release(self, name: str) -> None:
        """Remove a destination that has ended."""
        session = self._by_name.pop(name, None)
        if session is not None:
            mine = self._by_session[session]
            del mine[name]
            if not mine:
                del self._by_session[session]

    def leave(self, session: Peer) -> list[str]:
        """Remove a session. Return the names of its destinations."""
        names = list(self._by_session.pop(session, ()))
        for name in names:
            del self._by_name[name]
        return names
