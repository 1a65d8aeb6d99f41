"""SubscribeRequest: the headers of a SUBSCRIBE in the spellings of several brokers, read by one table."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from stompcodec.broker.config.config import Config
from stompcodec.broker.errors import Refused
from stompcodec.broker.queues.arguments import QueueArguments, read_arguments
from stompcodec.broker.selectors.selector import Selector
from stompcodec.broker.values import REDELIVERY_DELAYS, UNLIMITED, CreditGrant, Reader, Values, read_values
from stompcodec.codec import Frame, serialize
from stompcodec.errors import FrameError, MissingExtraError

AUTO, CLIENT, INDIVIDUAL = "auto", "client", "client-individual"
#: The values of the header `ack` of SUBSCRIBE.
MODES = (AUTO, CLIENT, INDIVIDUAL)
#: The least bytes of a MESSAGE behind the head that the broker makes.
_LEAST_TAIL = 16
#: Headers of MESSAGE that include-seq must not name, because they have a meaning.
_TAKEN = (
    *("message-id", "subscription", "ack", "destination", "content-length", "content-type", "redelivered"),
    *("redelivery-count", "browser", "receipt-id", "transaction", "reply-to"),
)


class SubscribeRequest(NamedTuple):
    """The headers of a SUBSCRIBE. Most fields are None, or False, without their header.

    >>> SubscribeRequest("/queue/a").mode
    'auto'
    """

    destination: str
    key: str | None = None
    """The id of the subscription; None for one of 1.0 without."""
    mode: str = AUTO
    window: int = 1
    """The most deliveries that may be unacknowledged; ignored in auto mode."""
    octets: int | None = None
    """The window in bytes: deliveries stop when the unacknowledged ones reach it; None for no limit."""
    credit: CreditGrant | None = None
    """The header `credit`: deliveries before the client grants more."""
    selector: Selector | None = None
    exclusive: bool = False
    priority: int = 0
    """Consumers of higher priority come first."""
    browser: bool = False
    """It is shown messages, which stay in the queue."""
    browser_end: bool = True
    """Browsing ends with a mark after the last message."""
    include_seq: str | None = None
    """The name of a header for the seq of each message."""
    from_seq: int | None = None
    """The lowest seq of its messages; -1 for messages that come after the SUBSCRIBE."""
    routing: str | None = None
    durable: str | None = None
    """The name of a durable subscription."""
    durable_flag: bool = False
    makes_durable: bool = True
    """A durable subscription is made if there is none of that name."""
    auto_delete: bool | None = None
    queue_name: str | None = None
    transformation: str | None = None
    encoding: str | None = None
    arguments: QueueArguments | None = None
    """The arguments for its queue."""
    is_named: bool = False
    """A refused frame counts as an attempt of its messages only if it names one."""
    redelivery_delay: int | None = None
    """Milliseconds between its NACK of a message and the next delivery; None for what the configuration says."""
    readdressed: bool = False
    """Its queue also gets messages of a topic, which are delivered with the queue as their destination."""

    @property
    def selector_text(self) -> str | None:
        """The text of the selector; None without one."""
        return None if self.selector is None else self.selector.text

    @property
    def is_plain(self) -> bool:
        """Messages are written as they came, and counted one by one, so that the quick roads can serve it."""
        return self.selector is None and self.is_direct

    @property
    def is_direct(self) -> bool:
        """Messages are written and counted as for `is_plain`; a selector may skip some."""
        return not (
            self.octets is not None
            or self.credit is not None
            or self.include_seq is not None
            or self.from_seq is not None
            or self.browser
            or self.transformation is not None
            or self.encoding is not None
            or self.readdressed
        )


# ---- readers of values: each takes the name of the header and its text, and raises Refused ----


def _text(_name: str, text: str) -> str:
    return text


def _is_named(_name: str, text: str) -> bool:
    return text == "named"


def _selector(_name: str, text: str) -> Selector:
    # Imported here, because only selectors need it.
    from stompcodec.broker.selectors.selector import SelectorError, compile_selector

    try:
        return compile_selector(text)
    except SelectorError as error:
        raise Refused("bad selector", str(error)) from error
    except MissingExtraError as error:
        raise Refused("selectors are not available", f"The broker cannot compile them: {error}") from error


def _header_name(name: str, text: str) -> str:
    if not text or len(text) > 100 or text in _TAKEN:
        raise Refused(f"bad {name}", f"{name} is the name of a header for the sequence number: 1 to 100 characters.")
    return text


#: Field -> reader, and its headers, of which the first one in a SUBSCRIBE counts. Without a reader, `values.py` has
#: read them.
_FIELDS: dict[str, tuple[Callable[[str, str], Any] | None, tuple[str, ...]]] = {
    "credit": (None, ("credit",)),
    "selector": (_selector, ("selector",)),
    "exclusive": (None, ("exclusive", "activemq.exclusive")),
    "priority": (None, ("consumer-priority", "activemq.priority", "x-priority")),
    "browser": (None, ("browser",)),
    "browser_end": (None, ("browser-end",)),
    "include_seq": (_header_name, ("include-seq",)),
    "from_seq": (None, ("from-seq",)),
    "routing": (_text, ("subscription-type",)),
    "durable": (_text, ("durable-subscriber-name", "durable-subscription-name", "activemq.subscriptionName")),
    "durable_flag": (None, ("durable", "persistent")),
    "auto_delete": (None, ("auto-delete",)),
    "queue_name": (_text, ("x-queue-name",)),
    "transformation": (_text, ("transformation",)),
    "encoding": (_text, ("content-encoding",)),
    "is_named": (_is_named, ("attempts",)),
    "redelivery_delay": (None, REDELIVERY_DELAYS),
}


def read_request(session: Reader, frame: Frame) -> SubscribeRequest:
    """Read a SUBSCRIBE, or raise Refused if a header has an invalid value."""
    config, values, header = session.broker.config, read_values(session, frame), partial(session.header, frame)
    fields: dict[str, Any] = {"mode": header("ack") or AUTO}
    if fields["mode"] not in MODES:
        raise Refused("unknown ack mode", "ack is auto, client or client-individual.")
    for field, (read, names) in _FIELDS.items():
        for name in names:
            value = values.get(name) if read is None else header(name)
            if value is not None:
                fields[field] = value if read is None else read(name, value)
                break
    credit = fields.get("credit")
    if credit is not None and credit.auto and not credit.messages:
        fields["credit"] = credit._replace(messages=UNLIMITED)
    if config.queue_arguments != "ignore":
        fields["arguments"] = read_arguments(header)
    window, octets = _window(values, fields["mode"], fields.get("credit"), config)
    return SubscribeRequest(header("destination") or "", header("id"), window=window, octets=octets, **fields)


def check_writable(request: SubscribeRequest, version: str) -> None:
    """Raise Refused if a version cannot write a header that a subscription puts on its messages, or would write one
    with another meaning.

    >>> check_writable(SubscribeRequest("/queue/a", "1", include_seq="s:eq"), "1.2")
    >>> check_writable(SubscribeRequest("/queue/a", "1", include_seq="s:eq"), "1.0")
    Traceback (most recent call last):
        ...
    stompcodec.broker.errors.Refused: bad include-seq
    """
    seq = request.include_seq
    if seq is not None and version == "legacy" and seq.lower() in _TAKEN:
        raise Refused("bad include-seq", f"The legacy dialect ignores case, so {seq} would be {seq.lower()}.")
    for name, pair in (
        ("id", None if request.key is None else ("subscription", request.key)),
        ("destination", ("destination", request.destination)),
        ("include-seq", None if seq is None else (seq, str(2**63))),
    ):
        if pair is not None:
            try:
                serialize(Frame("MESSAGE", (pair,)), version)
            except FrameError as error:
                what = error.detail or error.kind
                raise Refused(f"bad {name}", f"STOMP {version} cannot write it on each MESSAGE: {what}.") from None


def _window(values: Values, mode: str, credit: CreditGrant | None, config: Config) -> tuple[int, int | None]:
    """Return how many deliveries may be unacknowledged, and how many bytes of them (None for no limit)."""
    if mode == AUTO:
        return 1, None
    octets, size, count = map(values.get, ("consumer-window-size", "activemq.prefetchSize", "prefetch-count"))
    if config.prefetch_octets:
        octets = size if octets is None else octets
    elif count is None:
        count = size
    if count is not None:  # 0 or less: as many as the broker allows
        return min(count, UNLIMITED) if count > 0 else UNLIMITED, None if octets is None else _octets(octets)[1]
    if octets is not None:
        return _octets(octets)
    if credit is not None:
        return credit.messages, None
    if config.window is not None:
        return _octets(config.window)
    return config.prefetch, None


def _octets(size: int) -> tuple[int, int | None]:
    """Return the window for a number of bytes: 0 stands for one message at a time, -1 for no limit."""
    if size <= 0:
        return (1 if size == 0 else UNLIMITED), None
    return min(size // _LEAST_TAIL + 1, UNLIMITED), size
