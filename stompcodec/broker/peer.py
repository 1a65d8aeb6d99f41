"""Peer: a connected session, as all that stands below the sessions knows it."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from logging import Logger

    from stompcodec.broker.auth import Auth, User
    from stompcodec.broker.config.config import Config
    from stompcodec.broker.message import LargeBody, Message
    from stompcodec.codec import Frame

__all__ = ["Blockable", "Context", "Deliverer", "Holder", "Maker", "Output", "Owner", "Peer", "Refillable"]


class Owner:
    """A user, or an address: whoever is behind sessions that make destinations."""

    __slots__ = ("key", "made", "sessions")

    def __init__(self, key: str) -> None:
        self.key = key
        #: Destinations that its sessions made and that are still there.
        self.made = 0
        #: Sessions that have made something.
        self.sessions = 0


class Maker:
    """A session, as the maker of destinations."""

    __slots__ = ("ended", "made", "owner")

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        #: Destinations that it made and that are still there.
        self.made = 0
        self.ended = False


class Holder(Protocol):
    """What makes sessions wait until there is room: a queue, the delayed messages, the store, the loop's quota."""

    @property
    def blocked(self) -> MutableMapping[Any, None]:
        """Who waits."""


class Blockable(Protocol):
    """What can be made to wait."""

    def block(self, holder: Holder) -> bool:
        """Wait until there is room again. Return False for one that waits there already, or cannot wait."""

    def unblock(self, holder: Holder) -> None:
        """Go on: there is room again."""


class Deliverer(Protocol):
    """What delivers messages: a queue."""

    @property
    def name(self) -> str: ...
    @property
    def closed(self) -> bool: ...

    def dispatch(self) -> int:
        """Deliver what is ready. Return how many messages that were."""


class Refillable(Protocol):
    """What gets more messages when it has room again."""

    def refill(self) -> int:
        """Deliver more. Return how many messages that were."""


class Context(Protocol):
    """What queues and destinations know of the broker."""

    @property
    def config(self) -> Config: ...
    @property
    def auth(self) -> Auth: ...
    @property
    def log(self) -> Logger: ...
    @property
    def ident(self) -> bytes:
        """Message-ids, with % for the seq."""

    @property
    def seq(self) -> int:
        """Of the latest message."""

    @property
    def horizon(self) -> int | None:
        """The lowest seq of a message that takes effect later; None if there is none."""

    def watch_horizon(self, action: Callable[[], object]) -> None:
        """Call something, once, when the horizon may have moved."""

    def resume(self, peer: Refillable) -> None:
        """Give a peer more messages when the next turn ends."""


class Output(Protocol):
    """The outbox of a session."""

    #: What is written at the end of the turn.
    chunks: list[bytes]
    #: Bytes of messages that may still be added in this turn. 0 or less: consumers have to wait.
    send_budget: int
    #: A consumer was passed over because the budget was spent.
    starved: bool

    @property
    def dirty(self) -> bool:
        """The shell looks at the session when the turn ends."""

    @property
    def whole_frames(self) -> bool:
        """Each chunk has to be a whole frame."""

    def deliver(self, head: bytes, tail: bytes, size: int) -> None:
        """Add a MESSAGE, and take it off the budget."""

    def deliver_large(self, head: bytes, tail: bytes, body: LargeBody, failed: Callable[[Exception], object]) -> None:
        """Add the MESSAGE of a large message. Nothing else goes out before all of it has."""

    def schedule_flush(self) -> None:
        """Have the shell look at the session when the turn ends."""


class Peer(Blockable, Refillable, Protocol):
    """A connected session."""

    #: It has ended, and gets nothing any more.
    ended: bool
    client_id: str | None
    maker: Maker | None

    @property
    def broker(self) -> Context: ...
    @property
    def id(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def outbox(self) -> Output: ...
    @property
    def user(self) -> User: ...
    @property
    def owner(self) -> str | None:
        """Whose what it makes and leaves behind is; None where all are one user."""

    @property
    def peer(self) -> str:
        """The address."""

    def header(self, frame: Frame, name: str) -> str | None:
        """Return a header as the version of this session means it."""

    def fault(self, queue: Deliverer, message: Message | None, error: Exception) -> None:
        """Note that something could not be written: the session gets no more, and ends with this turn."""

    def fail(self, message: str, remedy: str = "", frame: Frame | None = None) -> None:
        """Send ERROR, and end the session."""

    def too_slow(self, destination: str) -> None:
        """End the session, or drop: the backlog of a topic's subscription is full."""

    def declare(self, queue: str) -> bool:
        """Note that it uses a queue. Return whether it has done so before, as far as that is remembered."""
