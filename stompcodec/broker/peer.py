"""Peer: the interface of a connected session for everything below the sessions."""

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
    """The user, or the address, of sessions that create destinations."""

    __slots__ = ("key", "made", "sessions")

    def __init__(self, key: str) -> None:
        self.key = key
        #: Existing destinations that its sessions created.
        self.made = 0
        #: Sessions that have created a destination.
        self.sessions = 0


class Maker:
    """A session as a creator of destinations."""

    __slots__ = ("ended", "made", "owner")

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        #: Existing destinations that it created.
        self.made = 0
        self.ended = False


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

    @property
    def name(self) -> str: ...
    @property
    def closed(self) -> bool: ...

    def dispatch(self) -> int:
        """Deliver READY messages. Return their number."""


class Refillable(Protocol):
    """A session that receives more messages when it has room again."""

    def refill(self) -> int:
        """Deliver more messages. Return their number."""


class Context(Protocol):
    """The part of the broker that queues and destinations use."""

    @property
    def config(self) -> Config: ...
    @property
    def auth(self) -> Auth: ...
    @property
    def log(self) -> Logger: ...
    @property
    def ident(self) -> bytes:
        """The message-id, with % for the seq."""

    @property
    def seq(self) -> int:
        """The seq of the latest message."""

    @property
    def horizon(self) -> int | None:
        """The lowest seq of a message that takes effect after a commit; None if there is none."""

    def watch_horizon(self, action: Callable[[], object]) -> None:
        """Call something once when the horizon may have moved."""

    def resume(self, peer: Refillable) -> None:
        """Refill a peer when the next turn ends."""


class Output(Protocol):
    """The outbox of a session."""

    #: Written at the end of the turn.
    chunks: list[bytes]
    #: Bytes of messages that may still be added in this turn. At 0 or less, consumers wait.
    send_budget: int
    #: A consumer was skipped because the budget was used up.
    starved: bool

    @property
    def dirty(self) -> bool:
        """The session is scheduled for a flush."""

    @property
    def whole_frames(self) -> bool:
        """Each chunk must be a whole frame."""

    def deliver(self, head: bytes, tail: bytes, size: int) -> None:
        """Add a MESSAGE and deduct its size from the budget."""

    def deliver_large(self, head: bytes, tail: bytes, body: LargeBody, failed: Callable[[Exception], object]) -> None:
        """Add a MESSAGE with a large body. Later output waits until all of it is written."""

    def schedule_flush(self) -> None:
        """Have the shell flush the session when the turn ends."""


class Peer(Blockable, Refillable, Protocol):
    """A connected session."""

    #: It has ended and receives nothing any more.
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
        """The owner of what it creates; None where all clients are one user."""

    @property
    def peer(self) -> str:
        """The address."""

    def header(self, frame: Frame, name: str) -> str | None:
        """Return a header value as the session's STOMP version defines it."""

    def fault(self, queue: Deliverer, message: Message | None, error: Exception) -> None:
        """Record that a message could not be written: the session receives no more and ends with this turn."""

    def fail(self, message: str, remedy: str = "", frame: Frame | None = None) -> None:
        """Send ERROR and end the session."""

    def too_slow(self, destination: str) -> None:
        """End the session because the backlog of its subscription to a topic is full."""

    def declare(self, queue: str) -> bool:
        """Record that the session uses a queue. Return True if it is known to have used it before."""
