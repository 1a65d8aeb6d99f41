"""Connections: the share of all connections that one user or one address may have.

A user's connections count from its login on, those of an address from the start. An IPv6 address counts by its /64, of
which a client has all addresses. Connections of this machine count for no address, because those of a local proxy all
come from there. Connections without an address, such as those of a program that embeds the broker, are not counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from logging import Logger
from typing import Any, Protocol

from stompcodec.broker.auth import Auth, User, far_network_of, network_of
from stompcodec.broker.config import Config
from stompcodec.broker.message import LargeBody, Message
from stompcodec.broker.values import Refused
from stompcodec.codec import Frame, serialize


@dataclass(eq=False, slots=True)
class Owner:
    """The user, or the address, of sessions that create destinations."""

    key: str
    #: Existing destinations that its sessions created.
    made: int = 0
    #: Sessions that have created a destination.
    sessions: int = 0


@dataclass(eq=False, slots=True)
class Maker:
    """A session as a creator of destinations."""

    owner: Owner
    #: Existing destinations that it created.
    made: int = 0
    ended: bool = False


class Holder(Protocol):
    """A reason for sessions to wait: a queue, the delayed messages, the store or the loop's quota."""

    @property
    def blocked(self) -> MutableMapping[Any, None]:
        """The waiting sessions."""


class Blockable(Protocol):
    """A session that can be made to wait."""

    def block(self, holder: Holder) -> bool:
        """Wait until there is room again. Return False if it already waits there, or must not."""

    def unblock(self, holder: Holder) -> None:
        """Stop waiting: there is room again."""


class Deliverer(Protocol):
    """A queue, as a source of deliveries."""

    name: str
    closed: bool

    def dispatch(self) -> int:
        """Deliver READY messages. Return their number."""


class Refillable(Protocol):
    """A session that receives more messages when it has room again."""

    def refill(self) -> int:
        """Deliver more messages. Return their number."""


class Context(Protocol):
    """The part of the broker that queues and destinations use, described at `Broker`."""

    config: Config
    auth: Auth
    log: Logger
    ident: bytes
    seq: int

    @property
    def horizon(self) -> int | None: ...
    def watch_horizon(self, action: Callable[[], object]) -> None: ...
    def resume(self, peer: Refillable) -> None: ...


class Output(Protocol):
    """The outbox of a session, described at `Outbox`."""

    chunks: list[bytes]
    send_budget: int
    starved: bool

    dirty: bool
    whole_frames: bool

    def deliver(self, head: bytes, tail: bytes, size: int) -> None: ...
    def deliver_large(
        self, head: bytes, tail: bytes, body: LargeBody, failed: Callable[[Exception], object]
    ) -> None: ...
    def schedule_flush(self) -> None: ...


class Peer(Blockable, Refillable, Protocol):
    """A connected session, described at `Session`."""

    #: It has ended and receives nothing any more.
    ended: bool
    client_id: str | None
    maker: Maker | None

    @property
    def broker(self) -> Context: ...

    id: str
    version: str

    @property
    def outbox(self) -> Output: ...

    user: User
    owner: str | None
    peer: str

    def header(self, frame: Frame, name: str) -> str | None: ...
    def fault(self, queue: Deliverer, message: Message | None, error: Exception) -> None: ...
    def fail(self, message: str, remedy: str = "", frame: Frame | None = None) -> None: ...
    def too_slow(self, destination: str) -> None: ...
    def declare(self, queue: str) -> bool: ...


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
        """Close the oldest connection of that address, or without `peer` of the busiest. Return False without any."""
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
            text = "more than %d connections wait for a login (sessions.max_connections): %d were closed, of %s last"
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


#: Addresses whose latest line in the log is remembered.
_MOST_TOLD = 1024
#: The remedy where only time helps.
LATER = "Try again later."
#: Half of all connections is at least this.
_LEAST_SHARE = 4


@dataclass(slots=True)
class Stats:
    """Counts since the start."""

    sessions_total: int = 0
    sessions_refused: int = 0
    delivered: int = 0
    """Messages that sessions got that are gone; and those that they acknowledged."""
    acknowledged: int = 0
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
        #: When the log had a line about each kind of share, and about logins of each address.
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
        """Return why a new session cannot be admitted: too many connections, in all or of its address; or None."""
        if sessions >= self._config.max_connections and not self.make_room(""):
            return LATER
        address = self._address_of(session)
        count = self._addresses.get(address or "", 0)
        if address is None or count < self._most_of_address or self.make_room(session.peer):
            return None
        return self._refuse(f"address {address}", count, "an address", "sessions.max_connections", now)

    def enter(self, session: Peer) -> None:
        address = self._address_of(session)
        if address is not None:
            self._counted[session] = address, None
            self._addresses[address] = self._addresses.get(address, 0) + 1

    def refuse_login(self, login: str | None, peer: str, now: float) -> None:
        """Count a login that was refused. The log has one line for each address and minute."""
        if not login:  # the live page tries that first
            return
        self._stats.sessions_refused += 1
        address = network_of(peer) or peer
        if now - self._told.get(address, -_SILENCE) >= _SILENCE:
            if len(self._told) >= _MOST_TOLD:
                self._told.clear()
            self._told[address] = now
            text = "%s: login refused, of %.100r (others of this address are only counted for %d s)"
            self._log.warning(text, peer, login, _SILENCE)

    def join(self, session: Peer, now: float) -> None:
        """Count a session that logs in for its user. Raise Refused if the user has too many connections."""
        user = session.owner
        if user is None:
            return
        count = self._users.get(user, 0)
        if count >= self._most_of_user:
            why = self._refuse(f"user {user!r}", count, "a user", "sessions.max_connections", now)
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
