"""What both shells have in common: the core and its I/O thread, and how calls become frames."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stompcodec.client.core import REPLIES, ClientCore
from stompcodec.client.engine import Engine, News
from stompcodec.client.message import BaseMessage
from stompcodec.client.options import Options
from stompcodec.client.receipts import Call
from stompcodec.client.subscription import Subscription
from stompcodec.codec import Frame
from stompcodec.content import encode_content
from stompcodec.errors import LocalProtocolError
from stompcodec.uri import Address, parse_uri

__all__ = ["LOOK", "BaseClient", "HeaderSource", "Outgoing", "now", "outgoing", "timeout_of_connect"]

HeaderSource = Mapping[str, str] | Iterable[tuple[str, str]]
#: How many messages of a subscription with explicit acks may be on their way, unless it says otherwise.
_PREFETCH = 100
#: Seconds between looks at whether a drain is done.
LOOK = 0.005

now = time.monotonic


class Outgoing:
    """A message to be sent: its headers, its octets, and whether it was given as text."""

    __slots__ = ("body", "pairs", "text")

    def __init__(self, pairs: list[tuple[str, str]], body: bytes, text: bool) -> None:
        self.pairs = pairs
        self.body = body
        self.text = text


def outgoing(
    destination: str, body: bytes | str, headers: HeaderSource | None = None, content_encoding: str | None = None
) -> Outgoing:
    """The headers and octets of a SEND.

    Args:
        body: text goes as UTF-8, with a content-type that says so unless `headers` has one.
        content_encoding: gzip, deflate or base64, or several with commas between.

    Raises:
        FrameError: an unknown content-encoding.

    >>> outgoing("/queue/a", "hello").pairs
    [('destination', '/queue/a'), ('content-type', 'text/plain;charset=utf-8')]
    """
    pairs = [("destination", destination)]
    if headers is not None:
        pairs += headers.items() if isinstance(headers, Mapping) else headers
    text = isinstance(body, str)
    octets = body.encode() if isinstance(body, str) else body
    if text and not any(name == "content-type" for name, _ in pairs):
        pairs.append(("content-type", "text/plain;charset=utf-8"))
    if content_encoding is not None:
        octets = encode_content(content_encoding, octets)
        pairs.append(("content-encoding", content_encoding))
        text = False
    return Outgoing(pairs, octets, text and b"\0" not in octets)


class BaseClient:
    """The part of a client that does not wait. `stompcodec.client.connect` and `connect_async` make clients."""

    subscription_class: type[Subscription]
    message_class: type[BaseMessage]

    def __init__(self, url: str | list[Address], options: Options) -> None:
        self.options = options
        self.core = ClientCore(
            options,
            lambda: uuid.uuid4().hex,
            lambda: self._new_subscription(REPLIES, "auto", None, id=REPLIES),
            self.message_class,
        )
        self.engine = Engine(self.core, parse_uri(url) if isinstance(url, str) else url, self)
        self._ids = itertools.count(1)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.state}>"

    @property
    def state(self) -> str:
        """connecting, connected, reconnecting, closing or closed."""
        return self.core.link.state

    @property
    def version(self) -> str | None:
        """The version of STOMP that was negotiated; None before the first connection."""
        return self.core.link.version

    @property
    def dialect(self) -> str:
        """The name of the broker dialect, such as "rabbitmq"; "unknown" where the broker does not say."""
        return self.core.link.dialect.name

    @property
    def connected(self) -> Frame | None:
        """The last CONNECTED frame, with the headers server, session and heart-beat."""
        return self.core.link.server

    @property
    def epoch(self) -> int:
        """Which connection this is; a message of another one cannot be acknowledged."""
        return self.core.link.epoch

    # ---- the engine's side; both are called in the I/O thread ----

    def deliver(self, news: News) -> None:
        """Wake those who wait."""
        raise NotImplementedError

    def credential(self, ask: Callable[[], Any], timeout: float) -> Any:
        """Ask the user's function. Called in a thread of its own."""
        return ask()

    # ---- making calls ----

    def _call(self, what: str, command: str, timeout: float | None, *, resend: bool = False) -> Call:
        seconds = self.options.receipt_timeout if timeout is None else timeout
        return self.core.link.calls.make(what, seconds, command, resend=resend)

    def _send_frame(self, message: Outgoing, call: Call | None, resend: bool | None) -> Frame:
        """SEND; with a call it has its receipt, and where it may be sent twice a header that tells."""
        pairs = message.pairs
        if call is not None:
            pairs.append(("receipt", call.id))
            call.resend = self.options.resend if resend is None else resend
            if call.resend:
                pairs.append((self.core.link.dialect.duplicate, uuid.uuid4().hex))
        elif resend:
            raise LocalProtocolError("resend=True needs receipt=True: else nobody knows what to send again")
        return Frame("SEND", pairs, message.body)

    def _new_subscription(self, destination: str, ack: str, prefetch: int | None, **rest: Any) -> Any:
        number = next(self._ids)
        if prefetch is None and ack != "auto":
            prefetch = _PREFETCH
        given = rest.pop("id", None)
        subscription = self.subscription_class(
            destination, id=f"s{number}" if given is None else given, ack=ack, prefetch=prefetch, **rest
        )
        subscription.client = self
        return subscription


def timeout_of_connect(options: Options, addresses: int) -> float:
    """Return more seconds than `connect` can take: the attempts end before, and tell why."""
    return options.startup_timeout + 4 * addresses * options.connect_timeout + options.receipt_timeout
