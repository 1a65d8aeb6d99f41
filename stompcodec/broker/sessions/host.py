"""What the broker is for its sessions (`Host`), and the terms and windows that it gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from stompcodec.broker.config import Config
from stompcodec.broker.connections import Connections, Deliverer
from stompcodec.broker.loop_quota import LoopQuota, Wall
from stompcodec.broker.memory import Account
from stompcodec.broker.message import Message
from stompcodec.broker.queues.consumer import Consumer
from stompcodec.broker.routing.delayed import Delayed
from stompcodec.broker.routing.idempotency import SenderContext, SentKeys
from stompcodec.broker.routing.registry import VirtualHost
from stompcodec.broker.storage.journal import Journal
from stompcodec.broker.storage.large import Spool
from stompcodec.broker.values import Refused
from stompcodec.states import artemis_server_ping, artemis_ttl

#: The handler of each command: called with the session and the frame.
Handlers = Mapping[str, Callable[[Any, Any], None]]


class Host(SenderContext, Protocol):
    """The part of the broker that sessions use, described at `Broker`."""

    #: The time in seconds, from a monotonic clock.
    now: float
    #: The seq of the latest message.
    seq: int

    manage: Callable[[Any, Any, str], None] | None
    handlers: Handlers
    wall: Wall
    wake: Callable[[], None]
    connections: Connections
    account: Account
    delayed: Delayed
    journal: Journal
    sent: SentKeys
    spool: Spool
    quota: LoopQuota
    max_transaction_octets: int
    send_budget: int
    write_high: int
    bound_output: Callable[[Any], object]
    plain: bool
    stores_some: bool
    stores_all: bool

    # ---- lists to which sessions add themselves ----
    dirty: list[Any]
    failing: list[tuple[Any, Deliverer]]
    senders: dict[Any, None]
    lacking_files: list[Any]
    uploads: set[Any]

    # ---- what sessions call ----
    def virtual_host(self, vhost: str) -> VirtualHost: ...
    def place(self, message: Message) -> None: ...
    def connected(self, session: Any) -> None: ...
    def lose(self, session: Any, error: BaseException | None) -> bool: ...
    def detach(self, session: Any) -> None: ...
    def watch(self, session: Any) -> None: ...
    def relieve(self) -> None: ...


class Windows:
    """The windows of the subscriptions of one session, which may leave `most` messages unacknowledged."""

    __slots__ = ("_consumers", "_most", "acking", "overdue", "parts", "total")

    def __init__(self, most: int, consumers: Mapping[str, Consumer]) -> None:
        self._most = most
        self._consumers = consumers
        #: Subscriptions that acknowledge; the sum of their windows; and the deliveries above their windows when those
        #: were last divided.
        self.acking = self.total = self.overdue = 0
        #: The shares into which `most` is divided.
        self.parts = 1

    def claim(self, asked: int) -> int:
        """Return the window of a new subscription, and make room for it. `asked` is the most unacknowledged messages
        that it may have, by its SUBSCRIBE or the defaults. Raise Refused if there are too many subscriptions, or too
        many unacknowledged messages.
        """
        parts = _parts(self.acking + 1)
        asked = min(asked, self._most)
        share = min(asked, _share(self._most, parts))
        if self._left < share:
            self._divide(parts)
        left = self._left
        if left < 1:
            raise Refused(
                "too many unacknowledged messages",
                f"The subscriptions of this session have {self._most - left} together: acknowledge some.",
            )
        return min(asked if self.parts == 1 else share, left)

    @property
    def _left(self) -> int:
        return self._most - self.total - self.overdue

    def join(self, window: int) -> None:
        """Count a new subscription with the window that it has claimed."""
        self.acking += 1
        self.total += window

    def leave(self, window: int) -> None:
        """Stop counting a subscription that was removed. When few are left, their windows grow again."""
        self.acking -= 1
        self.total -= window
        # The factor of 4 avoids resizing all windows each time when a session subscribes and unsubscribes in turn.
        if self.parts > 1 and (self.acking <= 1 or self.acking * 4 <= self.parts):
            self._divide(_parts(self.acking))

    def _divide(self, parts: int) -> None:
        """Give each subscription the window that it asks for, up to its share."""
        share = _share(self._most, parts)
        self.parts = parts
        self.total = self.overdue = 0
        grown: list[Consumer] = []
        for consumer in self._consumers.values():
            if not consumer.acks or consumer.closed:
                continue
            if not consumer.window:  # it holds the message of one RECEIVE
                self.total += 1
                continue
            size = min(consumer.request.window, share)
            if size > consumer.window:
                grown.append(consumer)
            consumer.resize(size)
            self.total += size
            self.overdue += max(0, len(consumer.unacked) - size)
        for consumer in grown:
            if not consumer.in_ring:
                consumer.queue.offer(consumer)


def _parts(count: int) -> int:
    """Return the number of shares for a number of subscriptions: a power of two, so that it seldom changes."""
    return 1 << max(0, count - 1).bit_length()


def _share(most: int, parts: int) -> int:
    return max(1, most // parts)


class Terms(NamedTuple):
    """The intervals that a client must keep, in ms."""

    heart_beat: tuple[int, int]
    """The heart-beat header of CONNECTED: how often the broker sends, and how often it expects bytes."""
    silence: int
    """The silence after which the client is dead."""


def terms(config: Config, version: str, heart_beat: str | None) -> Terms | None:
    """Return the terms of a new session; None if only the rules of STOMP apply. Rules: ART-TTL-02 to ART-TTL-09.

    `heart_beat` is the header of CONNECT. In 1.0 and in the legacy dialect it is ignored.
    """
    if not (config.ttl or config.ttl_override):
        return None
    if version in ("1.0", "legacy"):
        heart_beat = None
    acceptor: dict[str, object] = {
        "connectionTtlMin": config.ttl_min,
        "connectionTtlMax": config.ttl_max,
        "heartBeatToConnectionTtlModifier": config.ttl_modifier,
    }
    if config.ttl:
        acceptor["connectionTtl"] = config.ttl
    if config.ttl_override:
        acceptor["connection-ttl-override"] = config.ttl_override
    found = artemis_ttl(version, heart_beat, acceptor)
    beats = artemis_server_ping(heart_beat), found.get("connected_client_to_server", 0)
    return Terms(beats, max(found["connection_ttl"], 1))


def remedy(terms: Terms | None, version: str) -> str:
    """Return the remedy for a client that was silent too long, by its terms (None for those of STOMP) and version."""
    if terms is None:
        return "Nothing was received for twice the agreed interval."
    silence = f"Nothing was received for {terms.silence / 1000:g} s"
    if terms.heart_beat[1]:
        return f"{silence}: the agreed heart-beat interval times the factor of the broker's sessions.ttl."
    how = "use STOMP 1.1 or 1.2 and" if version == "1.0" else "have it"
    return (
        f"{silence}, and this client offers no heart-beats: {how} offer some in CONNECT, such as "
        "heart-beat:10000,10000, or raise sessions.ttl in the broker's configuration."
    )
