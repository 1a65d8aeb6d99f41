"""SubscribeRequest: the headers of a SUBSCRIBE in the spellings of several brokers, read by one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from stompcodec.broker.config.config import Config
from stompcodec.broker.errors import Refused
from stompcodec.broker.queues.arguments import QueueArguments, read_arguments
from stompcodec.broker.selectors.selector import Selector
from stompcodec.codec import Frame, serialize
from stompcodec.errors import FrameError, MissingExtraError

_D = TypeVar("_D")
AUTO, CLIENT, INDIVIDUAL = "auto", "client", "client-individual"
#: The values of the header `ack` of SUBSCRIBE.
MODES = (AUTO, CLIENT, INDIVIDUAL)
#: More deliveries than any session may have.
UNLIMITED = 10**9
#: The least bytes of a MESSAGE behind the head that the broker makes.
_LEAST_TAIL = 16
#: Headers of MESSAGE that include-seq must not name, because they have a meaning.
_TAKEN = (
    *("message-id", "subscription", "ack", "destination", "content-length", "content-type", "redelivered"),
    *("redelivery-count", "browser", "receipt-id", "transaction", "reply-to"),
)


class CreditGrant(NamedTuple):
    """The credit that a client grants: further deliveries, and their bytes.

    >>> read_credit("credit", "10,1024,false")
    CreditGrant(messages=10, octets=1024, auto=False)
    """

    messages: int = UNLIMITED
    octets: int | None = None
    """None for no limit."""
    auto: bool = True
    """ACK gives back the credit that was used. Otherwise only a `credit` header of ACK adds credit."""


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
    browser_skip: int = 0
    """It is shown no messages, only the mark of the end, with the seq up to which this many messages reach."""
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


#: What becomes of a value that is not understood: it is given the header, the value, and what to write instead.
Odd = Callable[[str, str, str], None]


def refuse(name: str, value: str, says: str) -> None:
    """Refuse a value that is not understood."""
    raise Refused(f"bad {name}", f"{name} is {value[:40]!a}: write {says}.")


def read_truth(name: str, text: str, default: _D, odd: Odd = refuse) -> bool | _D:
    """Return whether a header says true, in any case. After `odd` has seen a value that is neither, return `default`.

    >>> read_truth("durable", "TRUE", False), read_truth("durable", "yes", False, lambda name, text, says: None)
    (True, False)
    """
    word = text.lower()
    if word in ("true", "false"):
        return word == "true"
    odd(name, text, "true or false")
    return default


def _is_named(_name: str, text: str) -> bool:
    return text == "named"


def _number(least: int, most: int) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        digits = text[1:] if text[:1] == "-" else text
        if digits.isdecimal() and digits.isascii() and len(digits) < 20 and least <= int(text) <= most:
            return int(text)
        raise Refused(f"bad {name}", f"{name} is a whole number, {least} to {most}.")

    return read


def _count(name: str, text: str) -> int:
    """Read a number of messages; 0 stands for as many as the broker allows."""
    try:
        return _number(0, UNLIMITED)(name, text)
    except Refused:
        remedy = f"{name} is a number of messages; 0 for as many as the broker allows."
        raise Refused("bad prefetch", remedy) from None


def read_credit(name: str, text: str, more: bool = False) -> CreditGrant:
    """Read the value of a header COUNT[,BYTES[,AUTO]], as in Apollo, or raise Refused. With `more`, it adds to an
    earlier credit; otherwise a count of 0 has no limit if ACK gives credit back.
    """
    count, _, rest = text.partition(",")
    octets, _, auto = rest.partition(",")
    if auto.strip() not in ("", "true", "false"):
        raise Refused(f"bad {name}", f"{name} is COUNT[,BYTES[,true or false]].")
    messages = _count(name, count.strip())
    size = _number(-1, 2**62)(name, octets.strip()) if octets.strip() else -1
    by_itself = auto.strip() != "false"
    if not messages and by_itself and not more:
        messages = UNLIMITED
    return CreditGrant(messages, None if size < 0 else size, by_itself)


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


_Reader = Callable[..., Any]
#: Field -> reader, and its headers, of which the first one in a SUBSCRIBE counts.
_FIELDS: dict[str, tuple[_Reader, tuple[str, ...]]] = {
    "credit": (read_credit, ("credit",)),
    "selector": (_selector, ("selector",)),
    "exclusive": (read_truth, ("exclusive", "activemq.exclusive")),
    "priority": (_number(-(2**31), 2**31 - 1), ("consumer-priority", "activemq.priority", "x-priority")),
    "browser": (read_truth, ("browser",)),
    "browser_end": (read_truth, ("browser-end",)),
    "browser_skip": (_number(1, 100_000), ("browser-skip",)),
    "include_seq": (_header_name, ("include-seq",)),
    "from_seq": (_number(-1, 2**62), ("from-seq",)),
    "routing": (_text, ("subscription-type",)),
    "durable": (_text, ("durable-subscriber-name", "durable-subscription-name", "activemq.subscriptionName")),
    "durable_flag": (read_truth, ("durable", "persistent")),
    "auto_delete": (read_truth, ("auto-delete",)),
    "queue_name": (_text, ("x-queue-name",)),
    "transformation": (_text, ("transformation",)),
    "encoding": (_text, ("content-encoding",)),
    "is_named": (_is_named, ("attempts",)),
}


def read_request(frame: Frame, exact: bool, config: Config, odd: Odd = refuse) -> SubscribeRequest:
    """Read a SUBSCRIBE, or raise Refused if a header has an invalid value; `odd` decides about those that are true or
    false. If `exact`, values are taken as they are; otherwise spaces around them are ignored, as in 1.0.
    """

    def header(name: str) -> str | None:
        value = frame.get(name)
        return value if exact or value is None else value.strip(" ")

    fields: dict[str, Any] = {"mode": header("ack") or AUTO}
    if fields["mode"] not in MODES:
        raise Refused("unknown ack mode", "ack is auto, client or client-individual.")
    for field, (read, names) in _FIELDS.items():
        for name in names:
            text = header(name)
            if text is not None and not (
                frame.command == "RECEIVE" and text == "names"
            ):  # asks for names, not messages
                default = field == "browser_end"
                fields[field] = read(name, text, default, odd) if read is read_truth else read(name, text)
                break
    if config.queue_arguments != "ignore":
        fields["arguments"] = read_arguments(header)
    window, octets = _window(header, fields["mode"], fields.get("credit"), config)
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


def _window(
    header: Callable[[str], str | None], mode: str, credit: CreditGrant | None, config: Config
) -> tuple[int, int | None]:
    """Return how many deliveries may be unacknowledged, and how many bytes of them (None for no limit)."""
    if mode == AUTO:
        return 1, None
    name, octets = "consumer-window-size", header("consumer-window-size")
    if octets is None and config.prefetch_octets:
        name, octets = "activemq.prefetchSize", header("activemq.prefetchSize")
    for count_name in ("prefetch-count", "" if config.prefetch_octets else "activemq.prefetchSize"):
        text = header(count_name) if count_name else None
        if text is not None:
            count = _count(count_name, text)
            return (count if count > 0 else UNLIMITED), (None if octets is None else _octets(name, octets)[1])
    if octets is not None:
        return _octets(name, octets)
    if credit is not None:
        return credit.messages, None
    if config.window is not None:
        return _octets("sessions.window", str(config.window))
    return config.prefetch, None


def _octets(name: str, text: str) -> tuple[int, int | None]:
    """Read a window in bytes: 0 stands for one message at a time, -1 for no limit."""
    size = _number(-1, 2**62)(name, text)
    if size <= 0:
        return (1 if size == 0 else UNLIMITED), None
    return min(size // _LEAST_TAIL + 1, UNLIMITED), size
