"""Context: the broker, as its sessions know it."""

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

#: Command -> what a frame of it does: called with the session and the frame.
Handlers = Mapping[str, Callable[[Any, Any], None]]


class Host(SenderContext, Protocol):
    """What a session uses of its broker."""

    #: The time in seconds, of a clock that never goes back.
    now: float
    #: Of the latest message.
    seq: int

    @property
    def handlers(self) -> Handlers: ...
    @property
    def wall(self) -> Callable[[], float]:
        """The time in seconds since 1970."""

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
        """Bytes of messages that fit into the outbox of a session in a turn."""

    @property
    def plain(self) -> bool:
        """Most messages need nothing special: they can take the quick road."""

    @property
    def stores_some(self) -> bool:
        """There is a store: it keeps messages that ask for it."""

    @property
    def stores_all(self) -> bool:
        """The store keeps all messages."""

    # ---- where sessions enter themselves ----

    @property
    def dirty(self) -> list[Any]:
        """Sessions that the shell has to look at when the turn ends."""

    @property
    def failing(self) -> list[tuple[Any, Deliverer]]:
        """Sessions that something could not be written to, with the queue it came from."""

    @property
    def senders(self) -> dict[Any, None]:
        """Sessions that remember destinations."""

    @property
    def lacking_files(self) -> list[Any]:
        """Sessions that get a large message, for which no file descriptor was left."""

    @property
    def uploads(self) -> set[Any]:
        """Sessions that send a large message, and such as have sent one lately."""

    # ---- what sessions call ----

    def virtual_host(self, vhost: str) -> VirtualHost:
        """Return the destinations of a virtual host."""

    def place(self, message: Message) -> None:
        """Give a message its place in the order of everything, and its message-id."""

    def connected(self, session: Any) -> None:
        """CONNECTED was sent: heart-beats begin."""

    def lose(self, session: Any, error: BaseException | None) -> bool:
        """Return True if a session whose transport is lost has to wait for its end: too many have gone at once."""

    def detach(self, session: Any) -> None:
        """A transport is gone."""

    def watch(self, session: Any) -> None:
        """Cut a session off that has ended behind a large message, when its peer takes nothing of it any more."""

    def relieve(self) -> None:
        """End the sessions that hold most memory, until others can go on."""
