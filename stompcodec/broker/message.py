"""Message: a SEND as the broker keeps it, without bookkeeping. Its life:

    SEND frame
        |  sessions/commands.py: may this session send there? is it part of a transaction? (then it waits for COMMIT)
        v
    Message(ident, seq, tail)
        |  Queue.put, or Topic.put, which puts it into the queue of every subscription at the end of the turn
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
        +-- NACK and a pause, or its session ends: again() ------------+   redelivered:true, in its old place
        +-- UNSUBSCRIBE, DISCONNECT, a refused frame: as before, spared() unless it is at fault: sessions/session.py
        +-- NACK, the last of config.max_attempts ---> a new message in the dead letter queue
        +-- READY, and it has expired --------------> gone, or a dead letter
        +-- it cannot be written to a consumer -------> READY in its old place, attempts unchanged: queues/dispatcher.py

    A persistent message is appended to the store when it is put, and removed from it when it is gone, by the commit at
    the end of the turn (Journal). Its receipt, and the effects of its transaction, come after that commit.

The loss of a session counts as an attempt, but only a NACK, which says that the message could not be processed, or a
refused frame that its handling has led to, turns a delivered message into a dead letter. A message in the outbox counts
as delivered, because it is unknown whether the client got it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from stompcodec.broker.loop_quota import Wall
from stompcodec.broker.values import NONE, OWN, Values, is_read
from stompcodec.codec import Frame, parse, serialize, serialize_tail
from stompcodec.spec import Limits

#: A user, and the STOMP version of its session.
Pair = tuple[str, str]
#: No user.
NO_FAULTS: frozenset[Pair] = frozenset()
#: Headers of SEND that concern only sender and broker, and those that the broker itself sets on MESSAGE.
WITHOUT = ("receipt", "transaction", "message-id", "subscription", "ack", "redelivered", "redelivery-count")
WITHOUT_DESTINATION = (*WITHOUT, "destination")
WITHOUT_REPLY_TO = (*WITHOUT, "reply-to")
#: Headers of SEND with the delay before a message is READY, in milliseconds.
DELAYS = ("delay", "AMQ_SCHEDULED_DELAY", "x-delay")
#: The header in which the broker stores when a message is due, in milliseconds since 1970. It is the first header.
DUE = "deliver-at"
#: `Message.persistent` of a transient message that is in the store all the same, because the window of its queue was
#: full. It leaves the store as a persistent one does, and the next start drops it.
SPOOLED = 2
#: Headers of SEND that change a message's place in its queue, or its time there.
LIFE_HEADERS = ("priority", "expires", "expiration")
#: Names that only the broker writes to a legacy consumer, in any case.
_LEGACY_OWN = frozenset((*WITHOUT_DESTINATION, "content-length"))
#: Marks in the message-ids of dead letters. Only the broker writes them: other ids are EPOCH-SEQ, and a SEND cannot
#: choose one. With `RETURNS`, a SEND to `original-destination` leads to the queue that the letter was in. With the
#: others it does not: `OF_DURABLE` subscriptions, and `STRAYS` of other subscriptions and of temporary queues.
RETURNS, OF_DURABLE, STRAYS = b"-dl-", b"-du-", b"-ds-"
_CONTROL = re.compile("[\0-\x1f]")
#: The digits of a time, as `values.py` reads it, and the latest one: what is later is never.
_MILLISECONDS = re.compile(r" *\+?[0-9]{1,19} *")
_LATEST = 10**15 - 1


class LargeBody(Protocol):
    """The body of a large message: a file shared by several messages."""

    #: The file was read and differs from what was written.
    damaged: bool

    path: Path
    size: int
    crc: int


class Message:
    """The broker's record of a SEND. Its fields never change; `again` returns the copy that is delivered again.

    Args:
        ident: message-id as bytes, without colon or backslash; b"" until the message is in a queue.
        seq: its position among all messages the broker has accepted; 0 until it is in a queue.
        destination: where it was sent to.
        tail: the part of a 1.2 MESSAGE after the headers set by the broker: headers, blank line, body, NUL. For a large
            message, without content-length and body: the body is a file, see `storage/large.py`.

    >>> message = Message(b"m-1", 1, "/queue/a", b"destination:/queue/a\\n\\nhi\\0")
    >>> message.id, message.frame, message.again().redelivered
    ('m-1', <Frame SEND destination='/queue/a' body=2 bytes b'hi'>, True)
    """

    __slots__ = (
        *("attempts", "body", "closes_group", "destination", "due", "expires", "faults", "group", "ident"),
        *("persistent", "priority", "seq", "size", "special", "tail"),
    )

    def __init__(
        self,
        ident: bytes,
        seq: int,
        destination: str,
        tail: bytes,
        persistent: int = False,
        expires: float | None = None,
        priority: int = 4,
        attempts: int = 0,
    ) -> None:
        self._fill(ident, seq, destination, tail, persistent)
        self.expires = expires
        self.priority = priority
        self.attempts = self.special = attempts

    def _fill(self, ident: bytes, seq: int, destination: str, tail: bytes, persistent: int) -> None:
        self.ident = ident
        self.seq = seq
        self.destination = destination
        self.tail = tail
        #: Its size in bytes for all limits.
        self.size = len(tail)
        self.persistent = persistent
        #: When it expires, in seconds since 1970; None for never.
        self.expires = None
        self.priority = 4
        #: Failed deliveries. And true if its MESSAGE is more than head and tail.
        self.attempts = self.special = 0
        #: The body of a large message.
        self.body: LargeBody | None = None
        #: The group, whose messages all go to one consumer; and whether this is its last message.
        self.group: bytes | None = None
        self.closes_group = False
        #: When it becomes READY, in seconds since 1970.
        self.due: float | None = None
        #: The users and versions for which it could not be encoded: see `queues/dispatcher.py`.
        self.faults = NO_FAULTS

    @property
    def id(self) -> str:
        return self.ident.decode()

    @property
    def mark(self) -> bytes | None:
        """The mark of a dead letter that the broker made; None for any other message."""
        return next((mark for mark in (RETURNS, OF_DURABLE, STRAYS) if mark in self.ident), None)

    @property
    def origin(self) -> str | None:
        """Where a dead letter that the broker made came from; None for any other message, whatever its sender wrote."""
        return None if self.mark is None else self.frame.get("original-destination")

    def mark_as(self, mark: bytes | None) -> None:
        """Give a message that has just got its message-id the mark of a dead letter."""
        if mark is not None:
            self.ident = self.ident.replace(b"-", mark, 1)

    @property
    def octets(self) -> int:
        """Its size in bytes including a body in a file."""
        return self.size if self.body is None else self.size + self.body.size

    @property
    def is_usual(self) -> bool:
        """True if the store needs no more of it than most have: it is persistent, and has nothing special."""
        usual = self.persistent == 1 and not self.special and self.priority == 4
        return usual and self.expires is None and self.due is None

    @property
    def redelivered(self) -> bool:
        """True if it was delivered before."""
        return self.attempts > 0

    @property
    def frame(self) -> Frame:
        """The SEND without the headers in `WITHOUT`. Parsed anew on each access."""
        return _frame_of(self.tail)

    def tail_for(self, version: str) -> bytes:
        """Return the tail for a session of "1.0", "1.1" or "legacy", without headers that the version cannot carry."""
        tail = self.tail
        if version == "legacy":
            return _legacy_tail(self.frame)
        if tail.find(b"\\", 0, tail.index(b"\n\n")) < 0:  # nothing is escaped, so all versions are the same
            return tail
        written = serialize_tail(self.frame, version)
        return written if b"content-length:" in tail else text_tail(written)

    def again(self) -> Message:
        """Return a copy with one more delivery attempt, without a delay, which is over. Other queues may hold this
        message, too.
        """
        copy = self.copied(self.attempts + 1)
        copy.due = None
        return copy

    def spared(self) -> Message:
        """Return a copy whose `again` has no more attempts than this message, or one: that for redelivered:true."""
        return self.copied(self.attempts - 1) if self.attempts else self

    def copied(self, attempts: int) -> Message:
        """Return a copy with that many failed deliveries."""
        copy = Message(
            *(self.ident, self.seq, self.destination, self.tail, self.persistent, self.expires, self.priority, attempts)
        ).with_body(self.body)
        copy.group, copy.closes_group, copy.due, copy.faults = self.group, self.closes_group, self.due, self.faults
        return copy

    def anew(self, destination: str, tail: bytes) -> Message:
        """Return a new message to another destination with the same body, which never expires and is not in a queue
        yet. The tail of a large message has no body.
        """
        if b"content-length:" not in self.tail:  # a text message stays a text message
            tail = text_tail(tail)
        return Message(b"", 0, destination, tail, self.persistent, None, self.priority).with_body(self.body)

    def with_body(self, body: LargeBody | None) -> Message:
        """Attach a streamed body, and return the message; None keeps the inline body."""
        if body is not None:
            self.body = body
            self.special = 1
        return self


def plain_message(ident: bytes, seq: int, destination: str, tail: bytes, persistent: bool) -> Message:
    """Return the message of a SEND without special headers. Compiled, this takes a third of the steps of `Message`."""
    message = Message.__new__(Message)
    message._fill(ident, seq, destination, tail, persistent)
    return message


def _legacy_tail(frame: Frame) -> bytes:
    """Return the tail with lower-case names and without control characters (LEG-HDR-05, LEG-HDR-06).

    Headers with control characters are left out. So are values with leading or trailing spaces, which readers strip,
    and names that a consumer, who ignores case, would mistake for headers of the broker: `Content-Length`,
    `Message-Id`, `Destination`.
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
    """Parse a tail. Its limits were checked on arrival; here they fit the tail, which escapes may have lengthened."""
    lines = tail[: tail.index(b"\n\n")].split(b"\n")
    limits = Limits(max_header_line=max(map(len, lines)), max_headers=len(lines), max_body=len(tail))
    frame: Frame = parse(b"SEND\n" + tail, limits=limits)[0]
    return frame


def message_of(
    frame: Frame, destination: str, persistent: bool, wall: Wall, reply_to: str | None = None, values: Values = NONE
) -> Message:
    """Return a message of a SEND that is not in a queue yet. `destination` is as the session reads it, `reply_to`
    replaces the frame's unless it is None, `values` are those of `priority`, `expires` (ms since 1970, 0 for never) and
    `expiration` (time to live in ms).
    """
    get = frame.get
    if reply_to is None:
        if destination == get("destination"):
            tail = serialize_tail(frame, "1.2", without=WITHOUT)
        else:
            tail = header_line("destination", destination) + serialize_tail(frame, "1.2", without=WITHOUT_DESTINATION)
    else:
        tail = tail_with_reply(frame, reply_to)
    message = Message(b"", 0, shared(destination), tail, persistent)
    if values:
        message.priority = values.get("priority", 4)
        message.expires = _expiry(values.get("expires", 0), values.get("expiration", 0), wall)
    return message


def tail_with_reply(frame: Frame, reply_to: str) -> bytes:
    """Return the tail of a SEND with another reply-to."""
    return header_line("reply-to", reply_to) + serialize_tail(frame, "1.2", without=WITHOUT_REPLY_TO)


def _expiry(expires: int, life: int, wall: Wall) -> float | None:
    """Return when a message expires, in seconds since 1970: the earlier of both times."""
    found = (expires / 1000, wall.after(life / 1000) if life else 0.0)
    return min((at for at in found if 0 < at <= _LATEST / 1000), default=None)


@lru_cache(maxsize=128)
def shared(name: str) -> str:
    """Return the latest string that equals `name`, so that messages share the name of their destination, which may be
    large.

    `sys.intern` would keep it forever in some releases of CPython 3.12, and clients choose these names.
    """
    return name


def milliseconds(text: str | None) -> int:
    """Read a time; return 0 for an invalid one. Its length is bounded, because it comes from a client."""
    return 0 if text is None or _MILLISECONDS.fullmatch(text) is None else min(int(text), _LATEST)


def due_of(tail: bytes) -> float | None:
    r"""Return when a stored message becomes READY, in seconds since 1970; None if it is not delayed."""
    head = tail[: tail.index(b"\n\n") + 1]
    if any(milliseconds((header_value(head, name) or b"").decode()) for name in DELAYS):
        return milliseconds((header_value(head, DUE) or b"").decode()) / 1000 or None
    return None


def header_value(head: bytes, name: str) -> bytes | None:
    """Return the first value of a header among the lines of a tail, still escaped; None without it."""
    line = b"\n%b:" % name.encode()
    at = (b"\n" + head).find(line)
    if at < 0:
        return None
    start = at + len(line) - 1
    return head[start : head.index(b"\n", start)]


def header_line(name: str, value: str) -> bytes:
    return serialize_tail(Frame("MESSAGE", ((name, value),)), "1.2")[:-2]


# ---- groups and delays: headers of a SEND that few messages have ----
#: Headers of SEND that name the group of a message. All messages of a group go to one consumer, in order.
GROUPS = ("message_group", "JMSXGroupID")
_GROUP, _JMS_GROUP, _DUE = (name.encode() + b":" for name in (*GROUPS, DUE))
#: The header that marks the last message of a group, by the number -1.
SEQ = "JMSXGroupSeq"
_LAST = re.compile(rb" *-0*1 *")
#: The longest delay in milliseconds: about ten years.
_LONGEST = 10**12 // 3


def with_fault(message: Message, pair: Pair) -> Message:
    """Return a copy that remembers for whom it could not be written. Other queues may hold the original."""
    copy = message.copied(message.attempts)
    copy.faults |= {pair}
    return copy


def schedule(message: Message, frame: Frame, values: Values, wall: Wall, dialect: str) -> Message:
    """Give a new message the group and the delay of its SEND, and return it. `values` are those of the delays and of
    JMSXGroupSeq.
    """
    get = frame.get
    group = next((text for name in GROUPS if (text := get(name)) and is_read(name, dialect)), None)
    wait = min(next((values[name] for name in DELAYS if name in values), 0), _LONGEST) if values else 0
    if group is None and not wait:
        return message
    if wait:
        message.due = due = wall() + wait / 1000
        message.tail = b"%b:%d\n%b" % (DUE.encode(), due * 1000, _without_due(message.tail))
        message.size = len(message.tail)
    message.group = None if group is None else group.encode()
    message.closes_group = values.get(SEQ) == -1
    return message


def reload_schedule(message: Message, dialect: str = OWN) -> Message:
    """Give a message from the store the group and the delay that it had, and return it."""
    tail = message.tail
    head = tail[: tail.index(b"\n\n") + 1]
    if _GROUP not in head and _JMS_GROUP not in head and _DUE not in head:  # most, and this is quick
        return message
    due = due_of(tail)
    group = next((text for name in GROUPS if is_read(name, dialect) and (text := header_value(head, name))), None)
    if group is None and due is None:
        return message
    message.group, message.due = group, due
    message.closes_group = _LAST.fullmatch(header_value(head, SEQ) or b"") is not None
    return message


def make_due(message: Message) -> Message:
    """Return a copy of a message that is due, without a place: it goes behind those that came while it waited."""
    copy = message.copied(message.attempts)
    copy.due = None
    copy.tail = _without_due(message.tail)
    copy.size = len(copy.tail)
    copy.ident, copy.seq = b"", 0
    return copy


def _without_due(tail: bytes) -> bytes:
    """Remove all `deliver-at` headers: those of clients have no meaning, and that of the broker is outdated."""
    head, _, rest = tail.partition(b"\n\n")
    lines = [line for line in head.split(b"\n") if not line.startswith(DUE.encode() + b":")]
    return b"\n".join(lines) + b"\n\n" + rest


# ---- JMS message types: with `messages.jms`, content-length distinguishes text from bytes messages, as in Artemis ----
#
# A SEND without content-length is a text message, and is delivered without; one with content-length is a bytes message,
# and keeps it. Only the message's tail records which it is. STOMP 1.0 clients of JMS brokers rely on this. A large
# message always has content-length.


def is_text(frame: Frame) -> bool:
    """Return whether a SEND is a text message."""
    return frame.get("content-length") is None


def text_tail(tail: bytes) -> bytes:
    """Return the tail of a `Message` without its content-length, which is the last header if present."""
    end = tail.find(b"\n\n")
    line = tail.rfind(b"\n", 0, max(end, 0)) + 1
    return tail[:line] + tail[end + 1 :] if tail.startswith(b"content-length:", line) else tail
