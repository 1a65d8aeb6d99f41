"""The options of a client, checked once."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Literal, TypedDict

from stompcodec.arguments import checks
from stompcodec.client.backoff import Backoff
from stompcodec.client.dialects import BROKERS
from stompcodec.client.headers import WRITTEN, pairs_of
from stompcodec.client.middleware import AsyncMiddleware, Middleware
from stompcodec.client.outbox import seconds_of
from stompcodec.codec import Frame
from stompcodec.spec import VERSIONS, Limits
from stompcodec.transport.http import check_http
from stompcodec.transport.layers import parse_proxy
from stompcodec.transport.sync import AHEAD

if TYPE_CHECKING:
    import ssl

#: A text, or a function that is called before every attempt to connect, for example to fetch a token.
Credential = str | Callable[[], "str | Awaitable[str]"]
#: HTTP headers, or a function like that of a `Credential`.
HttpHeaders = Mapping[str, str] | Callable[[], "Mapping[str, str] | Awaitable[Mapping[str, str]]"]
#: Bodies of up to this many bytes are never streamed, so that the body of an ERROR, which says why, is in memory.
#: Invariant: a waiting thread, which streams none, reads no more at once.
SHORT = max(4096, AHEAD)
#: The longest interval of heart-beats in ms; brokers written in Java read no longer one.
_LONGEST_BEAT = 2**63 - 1
_BACKOFF = Backoff()


@checks()
@dataclass(frozen=True)
class Options:
    """The options of `connect` and `connect_async`. Times are in seconds, sizes in bytes.

    Raises:
        ValueError, TypeError: an option is out of its range, or of another type.

    >>> Options(heart_beat=(1000, 1000)).receipt_timeout
    30.0
    """

    login: Credential | None = None
    """Wins over the one in the URL. A function is called before every attempt, in a thread of its own."""
    passcode: Credential | None = field(default=None, repr=False)
    """Like `login`. It is never logged, and masked for `on_frame`."""
    vhost: str | None = None
    """The `host` header of CONNECT; None for the path of the URL, or else its host."""
    client_id: str | None = None
    """The `client-id` header of CONNECT, which some brokers require for durable subscriptions."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """More headers of CONNECT. One that another option writes, such as host, must say the same as that option."""
    http_headers: HttpHeaders | None = field(default=None, repr=False)
    """More HTTP headers of the handshake over WebSocket and SockJS, such as Authorization, Cookie or Origin. A function
    is called like `login`. None is logged. Without Authorization, a server that asks for Basic gets the URL's login,
    and the option `passcode` if that has none."""
    versions: Sequence[str] = VERSIONS
    """The versions of STOMP to offer; or ("legacy",) for the older worker dialect, which does not negotiate."""
    heart_beat: tuple[int, int] = (10_000, 10_000)
    """The intervals of heart-beats that we can send and want to receive, in ms; 0 for none."""
    limits: Limits | None = None
    """The largest accepted sizes; None for the defaults of `Limits`."""
    lenient: bool = False
    """Accept common faults of brokers, as `Parser(lenient=True)` does."""
    ssl: ssl.SSLContext | None = field(default=None, repr=False)
    """For TLS, which an address without a scheme has then, too; one with a plain scheme is refused, unless the proxy is
    https. None verifies certificates by the machine's authorities."""
    proxy: str | None = field(default=None, repr=False)
    """An HTTP proxy that offers CONNECT, as http://user:pass@host:port; "environment" for the variables https_proxy,
    http_proxy, all_proxy and no_proxy; None for none, whatever the environment says."""
    reconnect: Backoff | None = _BACKOFF
    """Delays between attempts after a loss; with None a lost connection ends the client."""
    startup_timeout: float = 0.0
    """The seconds in which `connect` may try again until there is a session, attempts and delays included.
    0: every address is tried once, each for at most `connect_timeout`."""
    login_attempts: int | None = 5
    """The client ends when the broker has refused its login this many times in a row, after a reconnect over at least a
    minute; None for no limit. `BrokerDialect.login_refused` says by which words a refused login is recognised."""
    connect_timeout: float = 10.0
    """For one attempt: to open the transport, and again to receive CONNECTED."""
    receipt_timeout: float = 30.0
    """The default time that a call waits for its receipt."""
    close_timeout: float = 5.0
    """The time that `close` waits for receipts."""
    resend: bool = False
    """After a loss, send messages again that did not get their receipt, instead of raising: at least once."""
    persistent: bool | None = None
    """Whether the broker keeps messages over its restart, for calls that do not say; None leaves it to the broker."""
    receipts: bool = True
    """False for servers that send no receipts: then `send`, `send_many`, `subscribe`, `unsubscribe`, `commit`, `abort`,
    `ack` and `nack` return once their frame is written, and what is lost or refused goes unnoticed. `close` waits for
    the receipt of DISCONNECT, `request` for the reply, `receive` for its message; `ping` raises."""
    dead_letter: str | None = None
    """Where copies of messages go that handlers and `processing` give up; None for the way of the broker."""
    outbox_frames: int = 10_000
    """The most frames that wait to be sent."""
    outbox_octets: int = 64 * 2**20
    """The most bytes that wait to be sent."""
    outbox_full: Literal["block", "raise"] = "block"
    """Whether `send` then waits (up to its timeout), or raises OutboxFullError at once."""
    inbox_messages: int = 10_000
    """The number of untaken messages at which reading pauses. `prefetch` stops the broker long before."""
    inbox_octets: int = 64 * 2**20
    """The bytes of untaken messages at which reading pauses."""
    stream_over: int | None = None
    """Received bodies of more bytes, 4096 at least, go into a temporary file, to be read by `message.open()`;
    None for none. `limits` bounds their size."""
    spool_folder: str | os.PathLike[str] | None = None
    """The folder of temporary files for bodies, received and to be sent; None for the system's."""
    dialect: str = "auto"
    """The broker, which decides on headers for prefetch, durable subscriptions …; auto: by its `server` header."""
    topic_queues: Literal["auto", "transient", "exclusive", "durable"] = "auto"
    """The queue that RabbitMQ makes for a subscription to /topic/: transient, exclusive to this connection, or durable
    until its last consumer ends; auto: exclusive from 4.3 on, which refuses transient ones. Other brokers ignore it."""
    artemis_types: bool = True
    """Tell Artemis by headers which destinations are queues and which are topics, as far as their names say so."""
    websocket_pieces: Literal["auto", "whole", "fragments", "messages"] = "auto"
    """How large frames go over WebSocket and SockJS: whole, in fragments of one message (60,000 bytes), or in messages
    (8,000 bytes); auto: whole up to CONNECTED, then by the broker, in messages if it does not say what it is."""
    on_frame: Callable[[str, Frame], object] | None = None
    """Called with "in" or "out" and each frame, which it cannot change."""
    on_state: Callable[[str, Exception | None], object] | None = None
    """Called with the new state, and the error behind it; while reconnecting also whenever the reason for the missing
    session changes, for example to a refused login."""
    middleware: Sequence[Middleware | AsyncMiddleware] = ()
    """Code around connecting, sending, receiving, processing and settling; the first one is the outermost.
    `AsyncMiddleware` is for `connect_async` alone."""

    def __post_init__(self) -> None:
        for name in ("connect_timeout", "receipt_timeout", "close_timeout"):
            if seconds_of(name, getattr(self, name)) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be above 0, in seconds")
        for name in ("outbox_frames", "outbox_octets", "inbox_messages", "inbox_octets"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be 1 or more")
        if self.login_attempts is not None and self.login_attempts < 1:
            raise ValueError(f"login_attempts is {self.login_attempts!r}: it must be 1 or more, or None for no limit")
        if self.stream_over is not None and self.stream_over < SHORT:
            raise ValueError(f"stream_over is {self.stream_over!r}: it must be None, or {SHORT} bytes or more")
        if seconds_of("startup_timeout", self.startup_timeout) < 0:
            raise ValueError(f"startup_timeout is {self.startup_timeout}: it must be 0 or more")
        if self.resend and not self.receipts:
            raise ValueError("resend=True needs receipts, and receipts is False")
        if self.dead_letter == "":
            raise ValueError("dead_letter is empty: name a queue")
        if self.dialect != "auto" and self.dialect not in BROKERS:
            raise ValueError(f"dialect is {self.dialect!r}: use auto, {', '.join(sorted(BROKERS))}")
        if self.proxy is not None and self.proxy != "environment":
            parse_proxy(self.proxy)
        if not all(0 <= each <= _LONGEST_BEAT for each in self.heart_beat):
            raise ValueError(f"heart_beat is {self.heart_beat!r:.60}: give two numbers of ms, 0 to {_LONGEST_BEAT}")
        if isinstance(self.http_headers, Mapping):
            check_http(self.http_headers)
        _checked_headers(self)
        if not set() < set(self.versions) <= set(VERSIONS) and [*self.versions] != ["legacy"]:
            raise ValueError(f"versions is {self.versions!r}: give some of {', '.join(VERSIONS)}, or legacy alone")


def _checked_headers(options: Options) -> None:
    headers, usual = options.headers, {each.name: each.default for each in fields(options)}
    given = dict(Frame("CONNECT", pairs_of("CONNECT", headers)).headers)
    given.pop("login" if "legacy" in options.versions else "username", None)  # no option writes it then
    for header, name in WRITTEN.items():
        value = getattr(options, name)
        if header not in given or value == usual[name]:
            continue
        written = value if isinstance(value, str) or callable(value) else ",".join(map(str, value))
        if written != given[header]:
            raise ValueError(f"headers= holds {header!r}, and {name}= is another value: give one of them")


class CommonOptions(TypedDict, total=False):
    """The keywords that `connect` and `connect_async` share: fields of `Options`, which explains them."""

    login: Credential | None
    passcode: Credential | None
    vhost: str | None
    client_id: str | None
    headers: Mapping[str, str]
    http_headers: HttpHeaders | None
    versions: Sequence[str]
    heart_beat: tuple[int, int]
    limits: Limits | None
    lenient: bool
    ssl: ssl.SSLContext | None
    proxy: str | None
    reconnect: Backoff | None
    startup_timeout: float
    login_attempts: int | None
    connect_timeout: float
    receipt_timeout: float
    close_timeout: float
    resend: bool
    persistent: bool | None
    receipts: bool
    dead_letter: str | None
    outbox_frames: int
    outbox_octets: int
    outbox_full: Literal["block", "raise"]
    inbox_messages: int
    inbox_octets: int
    stream_over: int | None
    spool_folder: str | os.PathLike[str] | None
    dialect: str
    topic_queues: Literal["auto", "transient", "exclusive", "durable"]
    artemis_types: bool
    websocket_pieces: Literal["auto", "whole", "fragments", "messages"]
    on_frame: Callable[[str, Frame], object] | None
    on_state: Callable[[str, Exception | None], object] | None


class ConnectOptions(CommonOptions, total=False):
    """The keywords of `connect`: the fields of `Options`, which explains them.

    >>> options: ConnectOptions = {"receipt_timeout": 5.0}
    >>> Options(**options).receipt_timeout
    5.0
    """

    middleware: Sequence[Middleware]


class AsyncConnectOptions(CommonOptions, total=False):
    """The keywords of `connect_async`: the fields of `Options`, which explains them.

    >>> options: AsyncConnectOptions = {"receipt_timeout": 5.0}
    >>> Options(**options).receipt_timeout
    5.0
    """

    middleware: Sequence[Middleware | AsyncMiddleware]
