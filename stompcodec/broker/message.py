"""Message: a SEND that the broker keeps, apart from what is bookkeeping. And its life, drawn.

    SEND frame
        |  sessions/commands.py: may this session send there? is it part of a transaction? (then it waits for COMMIT)
        v
    Message(ident, seq, tail)
        |  Queue.put, or Topic.put, which puts it into the queue of every subscription when the turn ends
        v
    READY  <----------------------------------------------------------+
        |  a consumer has credit, and its session has room             |
        |  Queue.deliver: MESSAGE = the consumer's head + the tail     |
        v                                                              |
    in the outbox of the session                                       |
        |                                                              |
        +-- ack:auto ------------------------------> gone              |
        v                                                              |
    UNACKED (Consumer.unacked), counted in the queue                   |
        |                                                              |
        +-- ACK -----------------------------------> gone              |
        +-- NACK, or its session or subscription ends: again() --------+   redelivered:true, in its old place
        +-- NACK, the last of config.max_attempts ---> a new message in the dead letter queue
        +-- READY, and it has expired --------------> gone, or a dead letter
        +-- it cannot be written to a consumer -------> READY in its old place, attempts unchanged: see queues/faults.py

    What is persistent is appended to the store when it is put, and removed when it is gone, by the one commit at the
    end of the turn (Journal). Its receipt, and all that a transaction with it does, comes after that commit.

A loss of the session does count as an attempt, but of what was delivered only a NACK makes a dead letter: it is what
says that the message could not be processed. Whatever came into the outbox counts as delivered: whether the peer got it
is not known.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from sys import intern
from typing import TYPE_CHECKING, Protocol

from stompcodec.broker.jms import text_tail
from stompcodec.codec import Frame, parse, serialize, serialize_tail
from stompcodec.spec import Limits

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LargeBody", "Message", "Pair", "message_of"]

#: A user, and the version that its session speaks.
Pair = tuple[str, str]

#: Headers of SEND that are between the sender and the broker, and those that the broker itself puts on MESSAGE.
WITHOUT = ("receipt", "transaction", "message-id", "subscription", "ack", "redelivered", "redelivery-count")
WITHOUT_DESTINATION = (*WITHOUT, "destination")
WITHOUT_REPLY_TO = (*WITHOUT, "reply-to")
#: Names that only the broker writes to a legacy consumer, in whatever case a sender spells them.
_LEGACY_OWN = frozenset((*WITHOUT_DESTINATION, "content-length"))
_CONTROL = re.compile("[\0-\x1f]")
_PRIORITIES = {str(number): number for number in range(10)}


class LargeBody(Protocol):
    """The body of a large message: a file that several messages share."""

    #: It was read, and is not what was written.
    damaged: bool

    @property
    def path(self) -> Path: ...
    @property
    def size(self) -> int: ...
    @property
    def crc(self) -> int: ...


class Message:
    """What the broker keeps of a SEND. Its fields never change; `again` makes the copy that is delivered again.

    Args:
        ident: message-id, as octets: no colon and no backslash in it. b"" as long as the message has no place yet.
        seq: its place in the order of everything the broker has taken; 0 as long as it has none.
        destination: where it was sent to.
        tail: all octets of a 1.2 MESSAGE behind what the broker puts in front: headers, blank line, body, NUL. That
            of a large message is without content-length and body: the body is a file, see `storage/large.py`.

    >>> message = Message(b"m-1", 1, "/queue/a", b"destination:/queue/a\\n\\nhi\\0")
    >>> message.id, message.frame, message.again().redelivered
    ('m-1', <Frame SEND destination='/queue/a' body=2 octets b'hi'>, True)
    """

    __slots__ = (
        *("attempts", "body", "destination", "expires", "ident", "persistent"),
        *("priority", "seq", "size", "special", "tail"),
    )
    # Of most messages. Those that have more to say are `Marked`.
    #: All messages of a group go to one consumer; and this is the last one of it.
    group: bytes | None = None
    closes_group: bool = False
    #: It is READY from then on, in seconds since 1970.
    due: float | None = None
    #: For whom it could not be written: see `queues/faults.py`.
    faults: frozenset[Pair] = frozenset()

    def __init__(
        self,
        ident: bytes,
        seq: int,
        destination: str,
        tail: bytes,
        persistent: bool = False,
        expires: float | None = None,
        priority: int = 4,
        attempts: int = 0,
    ) -> None:
        self.ident = ident
        self.seq = seq
        self.destination = destination
        self.tail = tail
        #: Octets that it takes, in all bounds.
        self.size = len(tail)
        self.persistent = persistent
        #: In seconds since 1970; None for never.
        self.expires = expires
        self.priority = priority
        #: Deliveries that came to nothing. And whether its MESSAGE is more than a head and the tail.
        self.attempts = self.special = attempts
        #: Of a large message.
        self.body: LargeBody | None = None

    @property
    def id(self) -> str:
        """The message-id."""
        return self.ident.decode()

    @property
    def octets(self) -> int:
        """Octets that it takes on its way, in memory or not."""
        return self.size if self.body is None else self.size + self.body.size

    @property
    def redelivered(self) -> bool:
        """It was delivered before."""
        return self.attempts > 0

    @property
    def frame(self) -> Frame:
        """The SEND that it was, less the headers in `WITHOUT`. Made anew each time."""
        return _frame_of(self.tail)

    def tail_for(self, version: str) -> bytes:
        """The tail for a session of "1.0", "1.1" or "legacy". Headers that the version cannot carry are left out.

        >>> Message(b"m-1", 1, "/queue/a", b"odd:a\\\\cb\\nworse:a\\\\nb\\n\\n\\0").tail_for("1.0")
        b'odd:a:b\\n\\n\\x00'
        """
        tail = self.tail
        if version == "legacy":
            return _legacy_tail(self.frame)
        if tail.find(b"\\", 0, tail.index(b"\n\n")) < 0:  # nothing is escaped: all versions write it alike
            return tail
        written = serialize_tail(self.frame, version)
        return written if b"content-length:" in tail else text_tail(written)

    def again(self) -> Message:
        """The same, delivered once more. A copy, for other queues may hold this one too."""
        return Message(
            self.ident,
            self.seq,
            self.destination,
            self.tail,
            self.persistent,
            self.expires,
            self.priority,
            self.attempts + 1,
        ).with_body(self.body)

    def anew(self, destination: str, tail: bytes) -> Message:
        """Another message with the same body, which never expires and has no place yet.

        Args:
            destination: where it goes.
            tail: as above; of a large message without the body.
        """
        if b"content-length:" not in self.tail:  # a text message stays one
            tail = text_tail(tail)
        return Message(b"", 0, destination, tail, self.persistent, None, self.priority).with_body(self.body)

    def with_body(self, body: LargeBody | None) -> Message:
        """The same, new as it is, with a large body. None: there is none."""
        if body is not None:
            self.body = body
            self.special = 1
        return self


def _legacy_tail(frame: Frame) -> bytes:
    """Return the tail with names in lower case and without control octets (LEG-HDR-05, LEG-HDR-06).

    A header that has some is left out. So is one with a space at an end of its value, which readers strip, and one that
    a consumer, who folds names too, would take for a header of the broker or for the length of the body:
    `Content-Length`, `Message-Id`, `Destination`.
    """
    pairs = [
        (name, value)
        for name, value in frame.headers.pairs()
        if (name == "destination" or name.lower() not in _LEGACY_OWN)
        and ":" not in name
        and not _CONTROL.search(name + value)
        and value == value.strip(" ")
    ]
    return serialize(Frame("MESSAGE", pairs, frame.body), "legacy")[len(b"MESSAGE\n") :]


def _frame_of(tail: bytes) -> Frame:
    """Limits were kept when it came; here they are as wide as the tail is, for escapes may have made it longer."""
    lines = tail[: tail.index(b"\n\n")].split(b"\n")
    limits = Limits(max_header_line=max(map(len, lines)), max_headers=len(lines), max_body=len(tail))
    frame: Frame = parse(b"SEND\n" + tail, limits=limits)[0]
    return frame


def message_of(
    frame: Frame, destination: str, persistent: bool, wall: Callable[[], float], reply_to: str | None = None
) -> Message:
    """A message without a place yet.

    Args:
        frame: the SEND. Of its headers, `priority` (0 to 9), `expires` (ms since 1970, 0 for never) and `expiration`
            (ms of life) mean something; one that is no such number means nothing.
        destination: of the frame, as the session reads it.
        persistent: whether it has to outlive the broker.
        wall: the time in seconds since 1970.
        reply_to: another reply-to than the frame's; None to leave it.
    """
    get = frame.get
    if reply_to is None:
        if destination == get("destination"):
            tail = serialize_tail(frame, "1.2", without=WITHOUT)
        else:
            tail = _line("destination", destination) + serialize_tail(frame, "1.2", without=WITHOUT_DESTINATION)
    else:
        tail = _line("reply-to", reply_to) + serialize_tail(frame, "1.2", without=WITHOUT_REPLY_TO)
    message = Message(b"", 0, intern(destination), tail, persistent)
    priority = get("priority")
    if priority is not None:
        message.priority = _PRIORITIES.get(priority, 4)
    expires, life = get("expires"), get("expiration")
    if expires is not None or life is not None:
        message.expires = _expiry(expires, life, wall())
    return message


def _expiry(expires: str | None, life: str | None, now: float) -> float | None:
    """When it expires, in seconds since 1970: what comes first."""
    found = [_milliseconds(expires) / 1000, now + _milliseconds(life) / 1000 if _milliseconds(life) else 0.0]
    return min(filter(None, found), default=None)


def _milliseconds(text: str | None) -> int:
    """0 for what is none. Bounded, for the number is a peer's."""
    return int(text) if text is not None and len(text) < 16 and text.isascii() and text.isdigit() else 0


def _line(name: str, value: str) -> bytes:
    """A header line for 1.2."""
    return serialize_tail(Frame("MESSAGE", ((name, value),)), "1.2")[:-2]
