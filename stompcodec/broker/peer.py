"""Peer: the interface of a connected session for everything below the sessions."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from logging import Logger
from typing import Any, Protocol

from stompcodec.broker.auth import Auth, User
from stompcodec.broker.config.config import Config
from stompcodec.broker.message import LargeBody, Message
from stompcodec.codec import Frame


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
    """The part of the broker that queues and destinations use, described at `Broker`."""

    @property
    def config(self) -> Config: ...
    @property
    def auth(self) -> Auth: ...
    @property
    def log(self) -> Logger: ...
    @property
    def ident(self) -> bytes: ...
    @property
    def seq(self) -> int: ...
    @property
    def horizon(self) -> int | None: ...
    def watch_horizon(self, action: Callable[[], object]) -> None: ...
    def resume(self, peer: Refillable) -> None: ...


class Output(Protocol):
    """The outbox of a session, described at `Outbox`."""

    chunks: list[bytes]
    send_budget: int
    starved: bool

    @property
    def dirty(self) -> bool: ...
    @property
    def whole_frames(self) -> bool: ...
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
    @property
    def id(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def outbox(self) -> Output: ...
    @property
    def user(self) -> User: ...
    @property
    def owner(self) -> str | None: ...
    @property
    def peer(self) -> str: ...
    def header(self, frame: Frame, name: str) -> str | None: ...
    def fault(self, queue: Deliverer, message: Message | None, error: Exception) -> None: ...
    def fail(self, message: str, remedy: str = "", frame: Frame | None = None) -> None: ...
    def too_slow(self, destination: str) -> None: ...
    def declare(self, queue: str) -> bool: ...
