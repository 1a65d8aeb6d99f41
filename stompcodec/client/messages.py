"""What a program holds: subscriptions, received messages, transactions; and what is known of unreadable messages.

`Subscription`, `BaseMessage` and `BaseTransaction` are the bases of the classes in `aio` and `sync`, which wait.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple

from stompcodec.arguments import checked
from stompcodec.client.bodies import BodyReader, ReceivedBody
from stompcodec.client.dialects import BROKERS, MOST, BrokerDialect, lasting_identity
from stompcodec.client.headers import HeaderSource, pairs_of
from stompcodec.client.outbox import Call
from stompcodec.client.runs import Run
from stompcodec.codec import Frame, Headers
from stompcodec.connection import described
from stompcodec.content import decode_content, json_value, text_of
from stompcodec.errors import ConnectionLostError, LocalProtocolError, RemoteProtocolError

#: What becomes of a message that cannot be read.
OnUnreadable = Literal["raise", "skip", "ack", "ignore"]
#: The policy of `handlers.POLICIES` by which it is settled if the connection goes on; None: the connection ends.
SETTLED: dict[str, str | None] = {"raise": None, "skip": "discard", "ack": "ack", "ignore": "ignore"}
#: The time at which a subscription ends that gets such a message again and again.
_LAST_TIME = 3
#: The most messages of a subscription that are counted; the oldest are forgotten.
_MOST_COUNTED = 100
#: Larger bodies, in bytes, are not kept to name the message.
_SMALL = 2**16
#: Headers that differ each time a message is delivered.
_OF_DELIVERY = ("ack", "message-id", "redelivered")


class Unreadable(NamedTuple):
    """A message that cannot be read."""

    error: RemoteProtocolError
    """The violation. Its text names the message."""
    frame: Frame | None
    """The part of the message that was read; None if it is unknown, or if the frame was not a MESSAGE."""
    is_cut: bool
    """The frame came before the malformed one, and seems to be the beginning of the message, up to a NUL in it."""


def unreadable(error: RemoteProtocolError, before: Frame | None) -> Unreadable:
    """Return the message behind a violation of the server, as `Connection.receive` raised it.

    `before` is the frame before it: some brokers write a text with a NUL as it is, without content-length. The frame
    ends there, and the rest of the text is read as the next frame.
    """
    frame: Any = error.frame
    if frame is not None:
        if error.cause is None:  # it is well-formed, so that the text does not say which it was
            error = RemoteProtocolError(f"{error}: {described(frame)}", frame=frame)
        if frame.command in ("MESSAGE", "RECEIPT", "ERROR"):
            return Unreadable(error, frame if frame.command == "MESSAGE" else None, is_cut=False)
    if before is None or before.command != "MESSAGE" or before.get("content-length") is not None:
        return Unreadable(error, None, is_cut=False)
    why = "behind a MESSAGE without content-length, whose text may hold a NUL"
    what = str(error) if error.cause is None else str(error).removesuffix(f" ({error.cause.remedy})")
    error = RemoteProtocolError(f"{what}, {why}: {described(before)}", cause=error.cause, frame=before)
    return Unreadable(error, before, is_cut=True)


def kept(frame: Frame | None) -> Frame | None:
    """Return the frame, or if it is large only its head: it is kept to be the `before` of `unreadable`."""
    if frame is None or len(frame.body or b"") < _SMALL:
        return frame
    return Frame(frame.command, frame.headers.pairs())


class Comings:
    """The number of deliveries of each message of a subscription that cannot be read."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[object, tuple[int, int]] = {}  # by message: its count, and the good messages before it

    def is_last(self, frame: Frame, good: int, window: int, dialect: BrokerDialect = BROKERS["unknown"]) -> bool:
        """Count a message; return whether it came too often.

        Without message-id, or if that may be new each time, it is told by the other headers that were read. Another one
        may have the same, so it is forgotten after more `good` messages than can come beside it each time (`window`).
        """
        headers = frame.headers
        id = lasting_identity(dialect, headers) if dialect.lasting else headers.get("message-id")
        key = id or tuple(pair for pair in headers.items() if pair[0] not in _OF_DELIVERY)
        count, before = self._counts.pop(key, (0, good))
        if id is None and good - before > window:
            count = 0
        if len(self._counts) >= _MOST_COUNTED:
            del self._counts[next(iter(self._counts))]
        self._counts[key] = count + 1, good
        return count + 1 >= _LAST_TIME


#: Messages that brokers deliver ahead if `prefetch` does not say how many.
_WINDOW = 1000
ACK_MODES = ("auto", "client", "client-individual")
#: How the names of queues begin, where they are known to be queues.
_QUEUES = ("/queue/", "/amq/queue/", "queue/", "queue://", "jms.queue.")


class Subscription:
    """A subscription, which is restored on each new connection.

    The I/O thread puts messages into `inbox`. Consumers move all of them into `batch` at once, so that threads meet
    once per batch, not once per message.
    """

    stuck = 0  # the `seq` of a message, in mode `client`, that has failed and stays unsettled: none may cover it
    # Of its window, see `Windows`:
    octets_from = 0  # the `seq` after which `octets` are counted
    last: Any = None  # the last message that consumers took, in mode `client`
    asked: Sequence[tuple[str, str]] = ()  # the headers of its SUBSCRIBE on this connection
    is_named = False  # the log has said that it holds messages, and gets none
    stopped_by: Any = None  # the last transaction that the log has named, as its COMMIT has no answer
    place: Any = None  # in its stream: see `Place`
    refusals = 0  # of its further consumers, in a row: see `Windows.refused`

    def __init__(
        self,
        destination: str,
        *,
        id: str,
        ack: str = "auto",
        prefetch: int | None = None,
        selector: str | None = None,
        durable: str | None = None,
        headers: HeaderSource = (),
        confirm: bool = True,
        usual: int | None = None,
        on_unreadable: OnUnreadable = "raise",
        dead_letter: str | None = None,
    ) -> None:
        _check(ack, prefetch, destination=destination, id=id, durable=durable, dead_letter=dead_letter)
        self.destination = destination
        self.id = durable or id
        self.ack = ack
        self.prefetch = usual if prefetch is None else prefetch
        self._is_usual = prefetch is None  # headers may choose another one
        self.selector, self.durable = selector, durable
        self.headers = list(pairs_of("SUBSCRIBE", headers))
        self.confirm, self.dead_letter = confirm, dead_letter
        self.on_unreadable, self.comings = on_unreadable, Comings()
        self.explicit, self.cumulative = ack != "auto", ack == "client"
        self.dialect, self.folds_case = BROKERS["unknown"], False  # of its broker; header names are in lower case
        self.inbox: deque[Any] = deque()
        self.inbox_octets = self.streamed = 0  # of the inbox; and its messages with a body in a file
        self.batch: deque[Any] = deque()
        self.octets, self.may_stall = 0, False  # bytes that consumers took; a program that waits may have to act first
        self.spares: Any = None  # its further consumers on this connection
        self.seq = 0  # number of received messages, over all connections
        self.open = 0  # unsettled messages of this connection, with those in inbox and batch
        self.settled_to = 0  # the `seq` of the last cumulative acknowledgement
        self.reopened: set[int] = set()  # those up to there that an ABORT has made unsettled again
        self.claims: dict[int, Any] = {}  # `seq` -> the transaction that settles the message, or may have settled it
        self.subscribed, self.confirmed, self.receipt_id = False, False, ""  # SUBSCRIBE was sent here, and confirmed
        self.call: Call | None = None  # waits for the first confirmation
        self.touched = False  # it is in the list of those to wake
        self.wake: Callable[[], object] | None = None  # has consumers look for news
        self.waiting: Collection[object] = ()  # threads that wait for messages
        self.in_turn, self.came_at = 0, -math.inf  # messages that came one by one: see `Engine._is_talk`; the last time
        self.deaf = self.closed = False  # no more messages will be accepted; and none can be settled
        self.ended: float = 0  # the broker has all messages up to this `seq` back; infinite once it is closed
        self.deleted = False  # the durable one was ended
        self.is_narrow, self.owed = False, 0  # the window is one, as the handler fails; until so many are handled
        self.is_handled, self.left = False, 0  # it has a handler; the messages that failed ones left unsettled
        self.error: Exception | None = None  # why it ended
        self.news: Exception | None = None  # an ERROR that belongs to no call; raised once

    def __repr__(self) -> str:
        return f"<Subscription {self.id} to {self.destination!r} ack={self.ack}>"

    def subscribe_headers(
        self, dialect: BrokerDialect, client_id: str | None, topic_queues: str, unique: Callable[[], str]
    ) -> list[tuple[str, str]]:
        """Return the headers of SUBSCRIBE in the broker's dialect; LocalProtocolError: it does not support an option.

        `client_id` is the one in CONNECT; `unique` returns a name that no other subscription has. ValueError: with the
        window in its headers no messages come.
        """
        dialect.check_window(self.ack, self.headers)
        headers = [("id", self.id), ("destination", self.destination), ("ack", self.ack)]
        for _argument, pairs in self._written(dialect, client_id):
            headers += pairs
        if self.is_handled and dialect.names_causes:
            headers.append(("attempts", "named"))
        asked = self.headers
        if self.is_narrow:
            names = {name for name, _ in dialect.prefetch_headers(1)}
            asked = [pair for pair in asked if pair[0] not in names]
        given = {name for name, _ in asked}
        headers += dialect.type_headers(self.destination, asked, self.durable is not None)
        if self.durable is None:
            headers += dialect.topic_headers(self.destination, topic_queues, given, unique)
        made = [pair for pair in headers if pair[0] not in given] + asked
        dialect.check_selector(dict(made).get("selector"))
        return made

    @property
    def window(self) -> int | None:
        """The messages that may be unacknowledged on this connection; None if it is not known."""
        return 1 if self.is_narrow else self.prefetch

    @property
    def keeps_messages(self) -> bool:
        """Whether the broker keeps messages while there is no subscription, as far as that is known."""
        is_queue = self.destination.startswith(_QUEUES) and "topic" not in self.destination
        return self.durable is not None or is_queue

    def _is_shared(self, dialect: BrokerDialect) -> bool:
        """Return whether other consumers may take the messages, too, as far as that is known."""
        if self.durable is not None:
            return False
        if not dialect.shared:
            return self.keeps_messages
        types = [*self.headers, *dialect.type_headers(self.destination, self.headers, False)]
        return not set(dialect.shared).isdisjoint(types)

    def _written(self, dialect: BrokerDialect, client_id: str | None) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """Yield arguments and the headers that they write, which `headers` may name as well."""
        if self.selector is not None:
            yield "selector", [("selector", self.selector)]
        window = self.window
        if window is not None:
            yield "prefetch", dialect.prefetch_headers(window, self.ack, wide=not self._is_shared(dialect))
        if self.durable is not None:
            yield "durable", dialect.durable_headers(self.durable, client_id)

    def check(self, dialect: BrokerDialect, client_id: str | None) -> None:
        """Raise ValueError if a header and an argument differ, if the broker would close for the name, or if dead
        letters would come back.
        """
        dialect.check_value("destination", self.destination)
        if self.dead_letter is not None and dialect.is_read(self.destination, self.dead_letter):
            raise ValueError(
                f"dead_letter is {self.dead_letter!r:.60}: messages that are given up would come back, as"
                f" {self.destination!r:.60} is the same queue. Name another one"
            )
        given = dict(reversed(self.headers))  # the first of repeated ones counts
        for argument, pairs in self._written(dialect, client_id):
            if argument == "prefetch" and self._is_usual:
                continue
            for name, value in pairs:
                if given.get(name, value) != value:
                    raise ValueError(
                        f"headers= holds {name!r} as {given[name]!r:.60}, and {argument}= writes it as {value!r:.60}: "
                        "give one of them"
                    )

    def unsubscribe_headers(self, dialect: BrokerDialect, client_id: str | None, delete: bool) -> list[tuple[str, str]]:
        """Return the headers of UNSUBSCRIBE; `delete` deletes a durable subscription."""
        headers = [("id", self.id)]
        if delete and self.durable is not None:
            headers += dialect.durable_headers(self.durable, client_id)
        return headers

    def covered(self, seq: int) -> Sequence[int]:
        """Return the `seq` of the messages that an ACK or NACK of this one settles; in mode `client` with earlier ones,
        and none if it is settled already.
        """
        if not self.cumulative:
            return [seq]
        if seq <= self.settled_to and seq not in self.reopened:
            return []
        earlier = [each for each in self.reopened if each <= seq]
        later = range(self.settled_to + 1, seq + 1)
        return [*sorted(earlier), *later] if earlier else later

    def settle(self, covered: Sequence[int]) -> None:
        """Count messages as settled, or as part of a transaction."""
        self.open -= len(covered)
        if self.cumulative:
            self.settled_to = max(self.settled_to, covered[-1])
            if self.reopened:
                self.reopened.difference_update(covered)

    def reopen(self, covered: Sequence[int]) -> None:
        """Count messages as unsettled again, in any mode: their transaction was aborted."""
        self.open += len(covered)
        if self.cumulative:
            self.reopened.update(covered)

    def is_last_of(self, frame: Frame) -> bool:
        """Count a message that cannot be read; return whether the subscription has to end. See `Comings.is_last`."""
        return self.comings.is_last(frame, self.seq, self.prefetch or _WINDOW, self.dialect)

    def give_back(self) -> None:
        """Count all messages so far as those of the broker."""
        self.open = self.left = self.stuck = 0
        self.ended = self.settled_to = self.seq
        self.reopened.clear()

    def forget(self) -> int:
        """Drop messages that no consumer has taken; return their number."""
        count = len(self.inbox) + len(self.batch)
        self.inbox.clear()
        self.inbox_octets = self.streamed = 0
        self.batch.clear()
        return count


def _check(ack: str, prefetch: int | None, **names: str | None) -> None:
    """Raise ValueError for an argument that cannot be."""
    if "" in names.values():
        raise ValueError(f"{next(name for name, given in names.items() if given == '')} is empty: give a name")
    if ack not in ACK_MODES:
        raise ValueError(f"ack is {ack!r:.60}: use {', '.join(ACK_MODES)}")
    if prefetch is not None and not 0 < prefetch <= MOST:
        raise ValueError(f"prefetch is {prefetch!r:.60}: it must be 1 to {MOST} messages")


class BaseMessage:
    """The base of `Message` and `AsyncMessage`.

    `epoch` is the number of the connection that delivered it: on another one, acknowledging raises StaleAckError.
    """

    __slots__ = ("_failed", "_proof", "_received", "_run", "epoch", "frame", "seq", "settled", "subscription")
    _received: ReceivedBody
    _failed: int  # calls of its handler; set only if there is one
    _run: Run  # for a recorder, if it stands for several messages, of which it is the last
    _proof: Call  # of the ACK or NACK, or of the COMMIT; set only if there is one

    def __init__(self, frame: Frame, subscription: Subscription, epoch: int, seq: int) -> None:
        self.frame = frame
        self.subscription = subscription
        self.epoch = epoch
        self.seq = seq
        self.settled = ""
        """"ACK" or "NACK", also while their transaction is open; "unknown" after a COMMIT without answer; else ""."""

    @property
    def is_confirmed(self) -> bool:
        """True if the broker has confirmed that it is settled: the receipt of its ACK or NACK came."""
        proof = getattr(self, "_proof", None)
        return proof is not None and proof.done and proof.error is None

    def confirm_by(self, call: Call) -> None:
        """Take the outcome of a call as that of its ACK or NACK."""
        self._proof = call

    @property
    def headers(self) -> Headers:
        """The headers; the first entry of a repeated name counts."""
        return self.frame.headers

    @property
    def body(self) -> bytes:
        """The bytes as they were received, before a content-encoding is undone.

        Raises:
            LocalProtocolError: the body is in a file (option `stream_over`): use `open`.
        """
        body: bytes | None = self.frame.body
        if body is None:
            raise LocalProtocolError(f"the body of {self.size} bytes is in a file: read it by message.open()")
        return body

    @property
    def is_streamed(self) -> bool:
        """True if the body is in a file, because it is longer than the option `stream_over`. `open` reads it."""
        return self.frame.body is None

    @property
    def size(self) -> int:
        """The bytes of the body, in memory or in a file."""
        run, received = self.run, self.received
        if run is not None:
            return len(run.octets)
        return len(self.frame.body) if received is None else received.size

    @property
    def run(self) -> Run | None:
        """The messages up to this one that it stands for; None for itself alone. See `Inbound.give_runs`."""
        return getattr(self, "_run", None)

    @run.setter
    def run(self, run: Run) -> None:
        self._run = run

    @property
    def received(self) -> ReceivedBody | None:
        """The body in a file; None for one in memory. For `open` and the receiving half."""
        return self._received if self.frame.body is None else None

    @received.setter
    def received(self, body: ReceivedBody) -> None:
        self._received = body

    def reader(self) -> BodyReader:
        """Return a reader of the body, for `open`; raise OSError if the body could not be kept."""
        received = self.received
        return BodyReader(self.frame.body if received is None else received)

    @property
    def id(self) -> str:
        """The message-id."""
        return self.frame.headers["message-id"]

    @property
    def identity(self) -> str | None:
        """What stays the same when the broker delivers the message again, also after a restart; None if nothing does.

        It tells the messages of one subscription apart: the copies of a topic's message have one identity.
        """
        return lasting_identity(self.subscription.dialect, self.frame.headers)

    @property
    def destination(self) -> str:
        """The destination, in the broker's spelling."""
        return self.frame.headers["destination"]

    def get(self, name: str, default: str | None = None) -> str | None:
        """Return a header's first entry, or `default`.

        Names are case-sensitive, except in the legacy dialect.
        """
        return self.frame.get(name.lower() if self.subscription.folds_case else name, default)

    def value(self, name: str, default: object = None) -> object:
        """Return a header's first entry as a JSON value, as text if it is not valid JSON, or `default`.

        Thus 9 is a number, "9" in quotes a text, and true a bool.
        """
        text = self.get(name)
        return default if text is None else json_value(text)

    def text(self, charset: str | None = None) -> str:
        """Return the body as text, by content-type and charset, after undoing a content-encoding.

        Args:
            charset: that of the body, whatever its content-type says. Without both it is read as UTF-8.

        Raises:
            ContentError: the content-type does not name text, or the bytes are invalid in the charset.
            TypeError, ValueError: `charset` is not a charset that Python knows.
            LocalProtocolError: as `body`.
            FrameError: "bad-content-encoding", or "limit-exceeded" for over 100 MiB.
        """
        self.body  # noqa: B018  # raises if it is in a file
        return text_of(self.frame, charset, untyped="utf_8")

    @checked
    def content(self, max_size: int = 100 * 2**20) -> bytes:
        """Return the body without its content-encoding (gzip, deflate, base64), inflated to at most `max_size` bytes.

        Raises:
            FrameError: "bad-content-encoding", or "limit-exceeded".
            LocalProtocolError: as `body`.
        """
        return decode_content(self.frame.get("content-encoding"), self.body, max_size)

    @property
    def redelivered(self) -> bool:
        """True if the broker says that it was delivered before. ActiveMQ and Artemis do not always say so."""
        return self.frame.get("redelivered") == "true"

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1 on: deliveries, and calls of a handler that failed.

        If the broker does not count deliveries, all later ones count as the second.
        """
        failed = getattr(self, "_failed", 0)
        for name in self.subscription.dialect.attempts:
            count = self.frame.get(name)
            if count is not None and count.isascii() and count.isdigit() and len(count) < 10:
                return int(count) + 1 + failed
        return (2 if self.redelivered else 1) + failed

    def count_calls(self, failed: int) -> None:
        """Note how many calls of its handler have failed."""
        self._failed = failed

    def answer(
        self, body: bytes | str, headers: HeaderSource | None, dialect: BrokerDialect
    ) -> tuple[str, bytes | str, list[tuple[str, str]]]:
        """Return destination, body and headers of a reply. Raises as `Message.reply`."""
        destination = self.frame.get("reply-to")
        if destination is None:
            raise LocalProtocolError("the message has no reply-to header, so it cannot be replied to")
        fault = dialect.fault_of(destination)
        if fault is not None:
            raise LocalProtocolError(f"the reply-to {destination!r:.60} {fault}: the message cannot be replied to")
        destination, types = dialect.place_of(destination)
        key = self.frame.get("correlation-id")
        pairs = [] if headers is None else list(pairs_of("reply", headers))
        given = next((value for name, value in pairs if name == "correlation-id"), key)
        if key is not None and given != key:
            raise ValueError(f"headers= holds 'correlation-id' as {given!r:.60}: the reply has that of the message")
        pairs += () if "destination-type" in dict(pairs) else types
        return destination, body, pairs if key is None else [("correlation-id", key), *pairs]

    def __repr__(self) -> str:
        settled = f" {self.settled}" if self.settled else ""
        return f"<Message{settled} {self.frame!r}>"


class Noted(deque[Any]):
    """An inbox that tells of each message."""

    def __init__(self, note: Callable[[BaseMessage], None], messages: Iterable[Any]) -> None:
        super().__init__(messages)
        self._note = note

    def append(self, message: Any) -> None:
        self._note(message)
        super().append(message)


#: How many settled messages of a stream are kept, beside as many as there are others.
_TIDY = 100


class Place:
    """The place of a subscription in a stream, whose broker keeps acknowledged messages; `header` has the offset."""

    def __init__(self, subscription: Subscription, header: str) -> None:
        self._subscription, self._header = subscription, header
        self._unsettled: list[tuple[int, BaseMessage]] = []  # with their offsets; some may be settled by now
        self._next: int | None = None  # the offset to go on at
        subscription.inbox = Noted(self.note, subscription.inbox)

    def note(self, message: BaseMessage) -> None:
        """Note a message that came."""
        offset = message.get(self._header) or ""
        if offset.isdecimal() and offset.isascii():
            self._next = int(offset) + 1
            self._unsettled.append((int(offset), message))
        if len(self._unsettled) > 2 * (self._subscription.open + len(self._subscription.claims)) + _TIDY:
            self._tidy()

    def _tidy(self) -> None:
        """Drop settled messages, in mode `client` with all before them; not those of open transactions."""
        kept: list[tuple[int, BaseMessage]] = []
        for offset, message in self._unsettled:
            if not message.settled or message.seq in self._subscription.claims:
                kept.append((offset, message))
            elif self._subscription.cumulative:
                kept.clear()
        self._unsettled = kept

    def cut(self) -> None:
        """Go on at the first unsettled message."""
        self._tidy()
        if self._unsettled:
            self._next = self._unsettled[0][0]
            self._unsettled.clear()

    def asked(self, headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return the headers of SUBSCRIBE, with the offset to go on at."""
        if self._next is None:
            return headers
        return [*(pair for pair in headers if pair[0] != self._header), (self._header, f"offset={self._next}")]


#: Why a call of a transaction in this state is refused; the states without an entry have a connection error.
_WHY = {"unknown": "the outcome of the transaction is unknown: its COMMIT was sent, and had no answer"}
#: State -> `settled` of the messages that it acknowledged or refused; else the command.
_SAID = {"aborted": "", "lost": "", "unknown": "unknown"}
#: The open transactions of each thread or task.
_own: ContextVar[tuple[BaseTransaction, ...]] = ContextVar("stompcodec_transactions", default=())
_CONFIRMED = Call("COMMIT", 0.0, done=True)


class Settled(NamedTuple):
    """An ACK or NACK in a transaction."""

    message: BaseMessage
    command: str
    covered: Sequence[int]
    """The `seq` of all messages that it settles: with earlier ones in mode `client`."""
    held: Sequence[tuple[str, str]] | None = None
    """More headers of a frame that is sent after the RECEIPT of COMMIT (`BrokerDialect.acks_transacted`); else None."""


class BaseTransaction:
    """The base of `Transaction` and `AsyncTransaction`: the id, the connection, and the state."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.epoch = 0
        self.begun_for: BaseMessage | None = None  # the message whose handler has begun it
        self.lost: Exception | None = None  # why its connection ended
        self.state = "new"
        """new, open or committing; at last committed, aborted (by ABORT or a refusal), lost (with its connection,
        before COMMIT was sent) or unknown (COMMIT was sent, and no answer came). A late answer resolves unknown."""
        self.settled: list[Settled] = []
        self.finishing: Call | None = None  # the call of COMMIT or ABORT
        self.release: Callable[[Sequence[Settled]], object] = lambda _: None  # sends what is held; set by the core

    def __repr__(self) -> str:
        return f"<Transaction {self.id} {self.state}>"

    def check(self) -> None:
        """Raise ConnectionLostError if it was lost with its connection, else LocalProtocolError if it is not open."""
        if self.state == "lost":
            raise ConnectionLostError(
                f"the transaction was lost with its connection, and took no effect ({self.lost})"
            ) from self.lost
        if self.state != "open":
            raise LocalProtocolError(_WHY.get(self.state, f"the transaction is {self.state}"))

    def settle(self, message: BaseMessage, command: str, covered: Sequence[int]) -> None:
        """Note an ACK or NACK that was sent as part of it: until the end the messages are neither open nor settled."""
        self.settled.append(Settled(message, command, covered))
        message.subscription.claims.update(dict.fromkeys(covered, self))

    def hold(
        self,
        message: BaseMessage,
        command: str,
        covered: Sequence[int],
        more: Sequence[tuple[str, str]],
        call: Call | None,
    ) -> None:
        """Note an ACK or NACK that is sent after COMMIT, as the broker knows none in one; it can have no receipt."""
        if call is not None:
            raise LocalProtocolError(
                f"{command} not sent: it would cover messages whose ACKs wait for the COMMIT of transaction {self.id}, "
                "so it has to wait, too, and cannot have a receipt: commit or abort first"
            )
        message.settled = command
        subscription = message.subscription
        subscription.settle(covered)
        self.settled.append(Settled(message, command, covered, more))
        subscription.claims.update(dict.fromkeys(covered, self))

    def own(self) -> None:
        """Note that the present thread, or task, has begun it."""
        _own.set((*(each for each in _own.get() if each.state == "open"), self))

    @property
    def is_own(self) -> bool:
        """True if it is open, and the present thread or task has begun it: while that waits, it stays open."""
        return self.state == "open" and self in _own.get()

    @property
    def has_more(self) -> bool:
        """True if it holds ACKs or NACKs that are sent after the answer to its COMMIT, which is waited for."""
        return self.state == "committing" and any(each.held is not None for each in self.settled)

    def end(self, state: str) -> None:
        """Enter one of the last states, and tell its messages."""
        self.state = state
        held = [each for each in self.settled if each.held is not None] if state == "committed" else []
        for message, command, covered, more in reversed(self.settled):
            subscription = message.subscription
            message.settled = _SAID.get(state, command)
            if state != "unknown":
                for seq in covered:
                    subscription.claims.pop(seq, None)
            if state == "committed" and more is None:
                message.confirm_by(_CONFIRMED)
            elif state == "aborted":
                subscription.reopen(covered)
        if state != "unknown":
            self.settled.clear()
        self.release(held)

    def cut(self, reason: Exception) -> None:
        """Note the loss of its connection."""
        call = self.finishing
        if self.state in ("open", "committing"):
            self.lost = reason
            self.end("unknown" if self.state == "committing" and call is not None and call.sent else "lost")
        for message, _, covered, _ in self.settled:  # only a late answer could resolve them
            for seq in covered:
                message.subscription.claims.pop(seq, None)
        self.settled.clear()
