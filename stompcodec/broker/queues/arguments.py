"""QueueArguments: the x- headers by which a SUBSCRIBE or SEND configures a queue, as in RabbitMQ.

They apply to a new queue, for as long as it exists. `Config.queue_arguments`, which the dialect sets, says what
happens to a client that names others later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NamedTuple

from stompcodec.broker.errors import Refused
from stompcodec.broker.message import DELAYS, DUE, Message, Pair, due_of, header_value
from stompcodec.broker.values import Values, read_value
from stompcodec.codec import Frame

#: Headers of SEND that name the group of a message. All messages of a group go to one consumer, in order.
GROUPS = ("message_group", "JMSXGroupID")
_GROUP, _JMS_GROUP, _DUE = (name.encode() + b":" for name in (*GROUPS, DUE))
#: The header that marks the last message of a group, by the number -1.
SEQ = "JMSXGroupSeq"
_LAST = re.compile(rb" *-0*1 *")
#: The longest delay in milliseconds: about ten years.
_LONGEST = 10**12 // 3


class ScheduledMessage(Message):
    """A message with a group, a delay, or failed deliveries."""

    __slots__ = ("closes_group", "due", "faults", "group")

    # Declared again: in Message they are attributes of the class.
    group: bytes | None
    closes_group: bool
    due: float | None
    faults: frozenset[Pair]

    def again(self) -> Message:
        """Return a copy for another delivery, without the delay, which is over."""
        copy = _scheduled(super().again(), self.group, self.closes_group, None)
        copy.faults = self.faults
        return copy


def _scheduled(
    message: Message, group: bytes | None, closes: bool, due: float | None, tail: bytes | None = None
) -> ScheduledMessage:
    copy = ScheduledMessage(
        *(message.ident, message.seq, message.destination, message.tail if tail is None else tail, message.persistent),
        *(message.expires, message.priority, message.attempts),
    )
    copy.with_body(message.body)
    copy.group, copy.closes_group, copy.due, copy.faults = group, closes, due, message.faults
    return copy


def with_fault(message: Message, pair: Pair) -> Message:
    """Return a copy that remembers for whom it could not be written. Other queues may hold the original."""
    copy = _scheduled(message, message.group, message.closes_group, message.due)
    copy.faults |= {pair}
    return copy


def schedule(message: Message, frame: Frame, values: Values, wall: Callable[[], float]) -> Message:
    """Return a message with the group and the delay of its SEND; the message itself if there is neither. `values` are
    those of the delays and of JMSXGroupSeq.
    """
    get = frame.get
    group = get(GROUPS[0]) or get(GROUPS[1]) or None
    wait = min(next((values[name] for name in DELAYS if name in values), 0), _LONGEST) if values else 0
    if group is None and not wait:
        return message
    due, tail = None, None
    if wait:
        due = wall() + wait / 1000
        tail = b"%b:%d\n%b" % (DUE.encode(), due * 1000, _without_due(message.tail))
    return _scheduled(message, None if group is None else group.encode(), values.get(SEQ) == -1, due, tail)


def reload_schedule(message: Message) -> Message:
    """Return a message from the store with the group and the delay that it had."""
    tail = message.tail
    head = tail[: tail.index(b"\n\n") + 1]
    if _GROUP not in head and _JMS_GROUP not in head and _DUE not in head:  # most, and this is quick
        return message
    due = due_of(tail)
    group = next((text for name in GROUPS if (text := header_value(head, name))), None)
    if group is None and due is None:
        return message
    return _scheduled(message, group, _LAST.fullmatch(header_value(head, SEQ) or b"") is not None, due)


def make_due(message: Message) -> Message:
    """Return a copy of a message that is due, without a place: it goes behind those that came while it waited."""
    copy: Message = _scheduled(message, message.group, message.closes_group, None, _without_due(message.tail))
    copy.ident, copy.seq = b"", 0
    return copy


def _without_due(tail: bytes) -> bytes:
    """Remove all `deliver-at` headers: those of clients have no meaning, and that of the broker is outdated."""
    head, _, rest = tail.partition(b"\n\n")
    lines = [line for line in head.split(b"\n") if not line.startswith(DUE.encode() + b":")]
    return b"\n".join(lines) + b"\n\n" + rest


class QueueArguments(NamedTuple):
    """The arguments of a queue. A field is None without its header.

    >>> read_arguments({"x-max-length": "10", "x-overflow": "reject-publish"}.get).max_length
    10
    """

    message_ttl: float | None = None
    """Seconds until a message expires, unless the message itself expires earlier."""
    expires: float | None = None
    """Seconds without a consumer after which the queue is deleted, with its messages."""
    max_length: int | None = None
    max_length_bytes: int | None = None
    """The most that the queue may hold. Above it, the oldest messages are dropped."""
    reject_publish: bool = False
    """Above it, SENDs are refused instead."""
    dead_letter_queue: str | None = None
    """The queue for messages that expired or were dropped, by its name without a prefix."""

    @property
    def is_bounded(self) -> bool:
        """True if messages are dropped or refused above a length, so that all of the queue is kept in memory."""
        return self.max_length is not None or self.max_length_bytes is not None

    @property
    def text(self) -> str:
        """The form in which the store keeps them. `load_arguments` reads it."""
        return json.dumps(self)


_Header = Callable[[str], "str | None"]
#: The headers that are read. x-max-priority, and x-queue-type except for streams, have no effect: each queue has
#: priorities, and stores the messages that ask for it.
_NAMES = (
    *("x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-overflow"),
    *("x-dead-letter-exchange", "x-dead-letter-routing-key", "x-queue-type"),
)


def read_arguments(header: _Header) -> QueueArguments | None:
    """Read the queue arguments of a SUBSCRIBE or SEND; return None if it has none. Raise Refused if one is invalid, or
    not supported.
    """
    if list(map(header, _NAMES)).count(None) == len(_NAMES):
        return None
    if header("x-queue-type") == "stream":
        raise Refused("streams are not supported", "Browse a queue: browser:true, from-seq:N, include-seq:NAME.")
    message_ttl, expires = _number(header, "x-message-ttl"), _number(header, "x-expires")
    overflow = header("x-overflow") or "drop-head"
    if overflow not in ("drop-head", "reject-publish"):
        raise Refused("bad x-overflow", "x-overflow must be drop-head or reject-publish.")
    arguments = QueueArguments(
        None if message_ttl is None else message_ttl / 1000,
        None if expires is None else expires / 1000,
        _number(header, "x-max-length"),
        _number(header, "x-max-length-bytes"),
        overflow == "reject-publish",
        _dead_letter(header),
    )
    return None if arguments == QueueArguments() else arguments


def load_arguments(text: str | None) -> QueueArguments | None:
    """Read what `QueueArguments.text` wrote; return None for any other text.

    >>> load_arguments(QueueArguments(max_length=3).text).max_length, load_arguments("no such text")
    (3, None)
    """
    try:
        return None if text is None else QueueArguments(*json.loads(text))
    except (ValueError, TypeError):
        return None


def _dead_letter(header: _Header) -> str | None:
    exchange, key = header("x-dead-letter-exchange"), header("x-dead-letter-routing-key")
    if exchange is None and key is None:
        return None
    if exchange != "" or not key:
        remedy = "x-dead-letter-exchange must be empty, and x-dead-letter-routing-key the name of a queue."
        raise Refused("bad x-dead-letter-exchange", remedy)
    return key


def _number(header: _Header, name: str) -> int | None:
    text = header(name)
    return None if text is None else read_value(name, text)
