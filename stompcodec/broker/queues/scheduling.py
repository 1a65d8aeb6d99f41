"""Scheduling: messages of a group, messages with a delay, and those whose delivery has failed."""

from __future__ import annotations

import re
from collections.abc import Callable

from stompcodec.broker.message import DELAYS, DUE, Message, Pair, due_of, header_value
from stompcodec.broker.values import Values
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
