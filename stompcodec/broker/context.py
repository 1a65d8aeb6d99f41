"""Context: the interface of the broker for its sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from stompcodec.broker.routing.idempotency import SenderContext

if TYPE_CHECKING:
    from stompcodec.broker.loop_quota import LoopQuota
    from stompcodec.broker.memory import Account
    from stompcodec.broker.message import Message
    from stompcodec.broker.peer import Deliverer
    from stompcodec.broker.routing.delayed import Delayed
    from stompcodec.broker.routing.idempotency import SentKeys
    from stompcodec.broker.routing.virtual_host import VirtualHost
    from stompcodec.broker.storage.journal import Journal
    from stompcodec.broker.storage.spool import Spool

__all__ = ["Handlers", "Host"]

#: The handler of each command: called with the session and the frame.
Handlers = Mapping[str, Callable[[Any, Any], None]]


class Host(SenderContext, Protocol):
    """The part of the broker that sessions use."""

    #: The time in seconds, from a monotonic clock.
    now: float
    #: The seq of the latest message.
    seq: int

    @property
    def handlers(self) -> Handlers: ...
    @property
    def wall(self) -> Callable[[], float]:
        """Returns the time in seconds since 1970."""

    @property
    def wake(self) -> Callable[[], None]:
        """Asks the shell for another turn."""

    @property
    def account(self) -> Account: ...
    @property
    def delayed(self) -> Delayed: ...
    @property
    def journal(self) -> Journal: ...
    @property
    def sent(self) -> SentKeys:
        """Idempotency keys."""

    @property
    def spool(self) -> Spool: ...
    @property
    def quota(self) -> LoopQuota: ...
    @property
    def send_budget(self) -> int:
        """Bytes of messages that a session's outbox takes in a turn."""

    @property
    def plain(self) -> bool:
        """Messages without special headers may take the fast path."""

    @property
    def stores_some(self) -> bool:
        """Persistent messages are stored."""

    @property
    def stores_all(self) -> bool:
        """All messages are stored."""

    # ---- lists to which sessions add themselves ----

    @property
    def dirty(self) -> list[Any]:
        """Sessions to flush when the turn ends."""

    @property
    def failing(self) -> list[tuple[Any, Deliverer]]:
        """Sessions to which a message could not be written, with its queue."""

    @property
    def senders(self) -> dict[Any, None]:
        """Sessions with cached targets."""

    @property
    def lacking_files(self) -> list[Any]:
        """Sessions that wait for a file descriptor to read a large message."""

    @property
    def uploads(self) -> set[Any]:
        """Sessions that are sending a large message, and some that recently did."""

    # ---- what sessions call ----

    def virtual_host(self, vhost: str) -> VirtualHost:
        """Return the destinations of a virtual host."""

    def place(self, message: Message) -> None:
        """Number a message, which gives it its place in the order and its message-id."""

    def connected(self, session: Any) -> None:
        """Start heart-beats after CONNECTED was sent."""

    def lose(self, session: Any, error: BaseException | None) -> bool:
        """Return True if a session with a lost transport must end later, because too many were lost at once."""

    def detach(self, session: Any) -> None:
        """Forget a session whose transport is closed."""

    def watch(self, session: Any) -> None:
        """Cut off an ended session in the middle of a large message when its peer stops reading."""

    def relieve(self) -> None:
        """End the sessions that hold the most memory, until the others can continue."""
