"""A client's connections without I/O: frames, calls and bodies end with their connection.

The connections follow one another: CONNECT, frames that are sent, and losses. Every call gets its outcome here:
accepted, rejected, or unknown because of a lost connection or a timeout.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from stompcodec.client.backoff import BUGS, Item, Pace, is_refusal, name_of
from stompcodec.client.bodies import BodySourceError
from stompcodec.client.dialects import BrokerDialect, caution_session, is_login_refused, row_of
from stompcodec.client.handlers import cause
from stompcodec.client.headers import ANYCAST
from stompcodec.client.messages import BaseTransaction
from stompcodec.client.options import Options
from stompcodec.client.outbox import ANSWERED, KEPT, Block, Call, Calls, Group, Outbox, Upload, Waiting
from stompcodec.codec import Frame, serialize
from stompcodec.connection import Connection, Role
from stompcodec.errors import (
    ConnectionLostError,
    FrameError,
    LocalProtocolError,
    ReceiptTimeoutError,
    RejectedError,
    RemoteProtocolError,
    StaleAckError,
    StompError,
    excerpt,
    stranger,
)
from stompcodec.spec import SERVER
from stompcodec.transport.owner import BIG, Part
from stompcodec.uri import Address


class State(NamedTuple):
    """One row: what the state means, and the states that follow. Any other event changes nothing."""

    meaning: str
    after: Mapping[str, str]
    """Event -> the next state."""


#: What programs see in `client.state` and `on_state`.
CLIENT = {
    "connecting": State(
        "no session yet: addresses are tried in turn", {"restored": "connected", "close": "closing", "end": "closed"}
    ),
    "connected": State(
        "there is a session, and all subscriptions are back",
        {"lost": "reconnecting", "close": "closing", "end": "closed"},
    ),
    "reconnecting": State(
        "the connection was lost; calls wait, or are bounded by their timeouts",
        {"restored": "connected", "close": "closing", "end": "closed"},
    ),
    "closing": State("DISCONNECT waits behind all that was to be sent, or for its receipt", {"end": "closed"}),
    "closed": State("the end: every call has its outcome", {}),
}
CONNECTION = {
    "down": State("there is no transport", {"opened": "connecting"}),
    "connecting": State("CONNECT was sent, CONNECTED has not come", {"accepted": "restoring", "cut": "down"}),
    "restoring": State(
        "SUBSCRIBE was sent for each subscription, and nothing else; receipts are waited for",
        {"restored": "up", "cut": "down"},
    ),
    "up": State("the outbox flows", {"cut": "down"}),
}


def follow(table: Mapping[str, State], state: str, event: str) -> str:
    return table[state].after.get(event, state)


log = logging.getLogger("stompcodec.client")
#: How the first bytes of a server begin.
_ANSWERS = [command.encode() for command in SERVER]
_BACKSLASH_HINT = " (RabbitMQ and others unescape CONNECT: name the broker by dialect=, or write each backslash twice)"
#: Commands and answers that some brokers add to STOMP.
_COMMANDS = ("PING", "PONG", "RECEIVE", "EMPTY")
#: The command of calls that delete a durable subscription, which a lost connection, unlike others, does not do.
DELETE = "UNSUBSCRIBE for good"
#: The most destinations whose heads are kept, and the characters of the longest one.
_HEADS, _LONGEST = 1000, 1000
#: The end of such a head.
_LENGTH = b"content-length:"
#: A client that is late with its work by more seconds than this is stuck.
_STUCK = 5.0
#: The seconds for which a frame without a receipt may be why the connection ends.
_RECENT = 60.0
#: The bytes that one turn moves from the outbox to the connection.
_FLUSH = 256 * 1024


def lost_by(cause: BaseException | None, text: str, *, sent: bool = True) -> ConnectionLostError:
    """Return the error of a connection that was lost by another one."""
    error = ConnectionLostError(text, sent=sent)
    error.__cause__ = cause
    return error


class _Wire(NamedTuple):
    """What the transport demands of the bytes: whole frames in each chunk; frames that are UTF-8."""

    whole_frames: bool
    text_only: bool


class ClientLink:
    """The sending half of a client: its connections, its outbox, and the outcomes of calls."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.inbox: Any  # the receiving half, `Inbound`; set by the core
        self.state = "connecting"
        self.phase = "down"
        self.now = 0.0
        self.epoch = 1  # counts connections
        self.connection: Connection | None = None
        self.version: str | None = None
        self._said_type = False
        self.address: Address | None = None  # of the last connection
        self.choose(None)
        self.server: Frame | None = None  # the last CONNECTED
        self.first = b""  # bytes that came before it
        self._hint = ""  # why CONNECT may have failed
        self.error: Exception | None = None  # why the last connection ended
        self.heard_at: float | None = None  # when bytes were last received
        self.lost_at: float | None = None  # when the connection was lost that is being restored
        self.pace = Pace()
        self._told = ""  # the last error in `events`
        self._is_repeating = False  # subscriptions are back, and messages are sent again one at a time
        self.calls = Calls(options.receipts)
        self.unknown: set[str] = set()  # the commands that the server offers, and a relay before it does not know
        self.outbox = Outbox(options.outbox_frames, options.outbox_octets)
        self.events: list[tuple[str, Exception | None]] = []
        self.trace: list[tuple[str, Frame]] | None = [] if options.on_frame else None
        self.is_watched = bool(options.on_frame or options.middleware)  # no fast path: each frame is shown or changed
        self.has_handlers = False  # messages may be in hand: see `handlers`
        self.looks = self.is_watched  # or it has handlers
        #: What the option `persistent` adds to each SEND.
        self._usual = [] if options.persistent is None else [("persistent", str(options.persistent).lower())]
        self.broken: Exception | None = None
        self.is_writable = True
        self._fatal: tuple[str, str, Call | None, float] = ("", "", None, 0.0)  # the last that may end it; why; when
        self.upload: Upload | None = None  # its body is being sent; it stays the first of the outbox until the end
        self._wire = _Wire(False, False)
        self._connected_by: float | None = None
        self._patience = options.connect_timeout
        self.transactions: dict[str, BaseTransaction] = {}
        self.waiters: list[Call] = []  # for a connection
        self.room: list[tuple[Call, int, int]] = []  # for room in the outbox: bytes, frames
        self.closers: list[Call] = []
        self._heads: dict[str, bytes] = {}  # destination -> what precedes the length and body of its SEND

    # ---- the transport ----
    def opened(
        self,
        now: float,
        *,
        host: str,
        login: str | None,
        passcode: str | None,
        whole_frames: bool,
        text_only: bool = False,
        patience: float | None = None,
        more: list[tuple[str, str]] | None = None,
    ) -> None:
        """Send CONNECT on a new transport, and wait `patience` seconds for CONNECTED, if fewer than `connect_timeout`.

        `more` are its other headers; None for the option `headers`. FrameError: CONNECT cannot carry the credentials.
        """
        options = self.options
        self.now = now
        self.happened("opened")
        self.is_writable, self.broken = True, None
        self._patience = options.connect_timeout if patience is None else min(patience, options.connect_timeout)
        self._connected_by = now + self._patience
        self._wire = _Wire(whole_frames, text_only)
        self.connection = Connection(
            Role.CLIENT,
            versions=options.versions,
            limits=options.limits,
            lenient=options.lenient,
            heart_beat=options.heart_beat,
            commands=_COMMANDS,
            stream_over=options.stream_over,
            whole_frames=whole_frames,
            now=now,
        )
        self.connection.on_piece = self.inbox.piece
        name = "username" if "legacy" in options.versions else "login"
        given = [("host", host), (name, login), ("passcode", passcode), ("client-id", options.client_id)]
        headers = [(name, value) for name, value in given if value is not None and name not in options.headers]
        headers += options.headers.items() if more is None else more
        self.first, self._hint = b"", ""
        if any("\\" in value for _, value in headers):
            if row_of(options.dialect, None).unescapes:
                headers = [(name, value.replace("\\", "\\\\")) for name, value in headers]
            elif options.dialect == "auto":
                self._hint = _BACKSLASH_HINT
        self.connection.send(Frame("CONNECT", headers))
        if self.trace is not None:
            self.trace.append(("out", Frame("CONNECT", [(k, "***" if k == "passcode" else v) for k, v in headers])))

    @property
    def pieces(self) -> str:
        """How the transport sends large frames now; that of the URL counts if the option `websocket_pieces` is auto."""
        said = {} if self.address is None else self.address.options
        pieces: str = self.options.websocket_pieces
        pieces = said.get("websocket_pieces", pieces) if pieces == "auto" else pieces
        if pieces != "auto":
            return pieces
        if not self.in_session or self.server is None:
            return "whole"
        small = self._wire.text_only or self.is_relayed or self.server.get("server") is None
        return "messages" if small else self.dialect.pieces

    @property
    def is_relayed(self) -> bool:
        """Whether CONNECTED came through Spring's relay, which adds `user-name` if its user has a name."""
        return self.server is not None and self.server.get("user-name") is not None

    @property
    def client_id(self) -> str | None:
        """The option `client_id`."""
        return self.options.client_id

    @property
    def dialect_name(self) -> str:
        """The name of the broker's dialect, or "unknown"."""
        return self.dialect.name

    @property
    def in_session(self) -> bool:
        """True between CONNECTED and the loss of the connection."""
        return self.phase in ("restoring", "up")

    def writable(self, yes: bool) -> None:
        """Note that the transport takes more, or no more."""
        self.is_writable = yes
        if self.upload is not None:
            self.look(self.upload)

    def take_output(self, now: float) -> list[bytes]:
        """Return the bytes that the transport has to write now. Call it until it returns nothing."""
        connection = self.connection
        if connection is None:
            return []
        self.now = now
        if self._is_repeating and self.is_writable:
            self._repeat()
        if self.phase == "up" and self.is_writable:
            if self.outbox:
                self._flush()
            if self.inbox.late:
                self.inbox.go_on()
        chunks = connection.take_output(now)
        self.outbox.flushed()
        if self.room and self.outbox.is_half_empty():
            self._admit()
        if self.upload is not None:
            self.look(self.upload)
        return chunks

    def written(self) -> None:
        """Note that the caller of a method has written all output of the connection, while the outbox was empty."""
        assert self.connection is not None
        self.connection.written(self.now)
        self.outbox.flushed()
        if self.room and self.outbox.is_half_empty():
            self._admit()

    def has_output(self) -> bool:
        """Return whether `take_output` would return more at once."""
        return self.phase == "up" and self.is_writable and bool(self.outbox) and self.upload is None

    def tick(self, now: float, late: float = 0.0) -> None:
        """Do what is due. The `late` seconds for which the shell was held up do not count as silence of the peer."""
        self.now = now
        late_calls = list(self.calls.deadlines.expired(now))
        for call in late_calls:
            self._expire(call)
        if late_calls:  # nobody waits for these any more
            self.waiters = [call for call in self.waiters if not call.done]
            self.room = [entry for entry in self.room if not entry[0].done]
            self.closers = [call for call in self.closers if not call.done]
        if now >= self.pace.until:
            self._pass_over()
        connection = self.connection
        if connection is None:
            return
        self.inbox.windows.look(now)
        connection.excuse(max(late, self.inbox.unread()), now)  # both end now, so the longer one has the other in it
        if self._connected_by is not None and now >= self._connected_by:
            hint = ": some servers do not answer STOMP 1.0 alone" if [*self.options.versions] == ["1.0"] else ""
            self.break_off(ConnectionLostError(f"no CONNECTED in {self._patience:.3g} s{hint}", sent=False))
        elif not connection.tick(now, None if self.upload is None else self._beat):
            every = connection.heartbeat.receive_every / 1000
            self.break_off(ConnectionLostError(f"the server was silent for more than twice {every} s"))
        self.leave_broken()

    def next_deadline(self) -> float | None:
        """Return when `tick` has something to do; None for never."""
        times = [self.calls.deadlines.next(), self._connected_by, None if self.pace.is_free else self.pace.until]
        if self.connection is not None:
            times.append(self.connection.next_deadline())
            if self.inbox.windows.look_at < math.inf:
                times.append(self.inbox.windows.look_at)
        return min((time for time in times if time is not None), default=None)

    def lost(self, error: BaseException | None, now: float) -> None:
        """Handle the loss of the transport, or a failed attempt to open one."""
        connection, self.connection = self.connection, None
        self.now = now
        during, was_in_session = self._judge(error), self.in_session
        if connection is not None:
            try:
                connection.close(now)
            except RemoteProtocolError as cut:
                error = error or cut
        if self.phase == "connecting":
            error = self._unanswered(error)
        what = "no session" if connection is None else "the connection was lost"
        reason = lost_by(error, f"{what}: {error or 'closed by the server'}{during}")
        self.error = error if isinstance(error, StompError) and not during else reason
        self._cut(reason)
        if self.state == "closing":
            self.end(None)
        elif self.state == "connected":
            log.warning("%s", reason)
            if self.options.reconnect is None:
                self.end(self.error)
            else:
                self.happened("lost", self.error)
        elif self.state == "reconnecting":
            if was_in_session:
                log.warning("%s", reason)
            self.tell(self.error)

    def _unanswered(self, error: BaseException | None) -> StompError:
        """Return why a connection ended before CONNECTED: also what answered, if that was not STOMP."""
        first = self.first.lstrip(b"\r\n")
        if first and not any(first.upper().startswith(word) or word.startswith(first) for word in _ANSWERS):
            near = excerpt(first, 0)
            what = "the server does not speak STOMP" + (f", it sent {near!r}" if near else "")
            cause = error.cause if isinstance(error, RemoteProtocolError) else None
            return RemoteProtocolError(f"{what} ({stranger(first) or 'check the port'})", cause=cause)
        if self._hint and isinstance(error, RejectedError) and is_login_refused(error):
            return RejectedError(f"{error}{self._hint}", error.frame)
        if isinstance(error, StompError):
            return error
        what = str(error or "closed by the server without an answer to CONNECT")
        return lost_by(error, what + self._hint, sent=False)

    def tell(self, error: Exception) -> None:
        """Report why the session is not back yet, unless that is what was reported last."""
        if str(error) != self._told:
            self._told = str(error)
            self.events.append((self.state, error))

    def _judge(self, error: BaseException | None) -> str:
        """Note how a session ended. What ends each connection is not sent again: those who wait for it get an error.

        Returns:
            What was under way alone, and what the server may have refused, as the end of a sentence.
        """
        if not self.in_session or self.state in ("closing", "closed"):
            return ""
        # An end that this side made, also after an ERROR that names a call, says nothing about what was under way.
        is_theirs = error is None or is_refusal(error) or not isinstance(error, StompError)
        pace = self.pace
        item, culprit = pace.item, pace.lost(error, self.now, is_theirs)
        what, why = ("", "") if isinstance(error, StompError) else self._closed_for()
        if culprit is not None:
            self._convict(culprit, pace.refusal, why)
        if item is not None and is_theirs:
            return f" while {name_of(item)} was under way{why}"
        return why and f", perhaps for {what}{why}"

    def _closed_for(self) -> tuple[str, str]:
        """Return what the server may have refused by closing without ERROR, and why, as the end of a sentence."""
        what, reason, call, at = self._fatal
        if not reason or (self.now - at > _RECENT if call is None else call.done):
            what = next((call.what for call in self.calls.sent.values() if call.command == "SEND"), "")
            reason = self.dialect.refusals(what)
        return what, reason and f": {self.dialect.name} closes without ERROR {reason}"

    def _convict(self, item: Item, refusal: BaseException | None, why: str) -> None:
        """End what has ended two connections while it was under way alone."""
        what = f"{name_of(item)} has ended two connections: {refusal or 'closed by the server'}{why}"
        error: StompError = ConnectionLostError(what)
        if isinstance(refusal, RejectedError):
            words = str(refusal).removeprefix("the server sent an ERROR: ")
            error = RejectedError(f"{name_of(item)} was rejected: {words}", refusal.frame)
        error.__cause__ = refusal
        log.error("%s", error)
        if not isinstance(item, Call):
            self.inbox.close_subscription(item, error)
        elif isinstance(refusal, RejectedError):
            item.resend = False
            self.finish(item, error)
        else:
            item.resend = False  # `_cut` says that its outcome is unknown

    def end(self, error: Exception | None) -> None:
        """End the client: it was closed (None), or it gave up. All open calls get their outcome."""
        if self.state == "closed":
            return
        self._cut(ConnectionLostError("the client was closed"))
        self.connection = None
        self.error = error
        reason = lost_by(error, "the client was closed" if error is None else str(error), sent=False)
        unsent = self.outbox.discard(everything=True)
        for waiting in unsent:
            if isinstance(waiting.frame, Upload):
                self.fail(waiting.frame, ConnectionLostError(f"{waiting.frame.what}: {reason}", sent=False))
            elif waiting.call is not None:
                self.finish(waiting.call, lost_by(error, f"{waiting.call.what}: {reason}", sent=waiting.call.sent))
        frames = sum(
            getattr(waiting.frame, "count", 1)
            for waiting in unsent
            if waiting.call is None and not isinstance(waiting.frame, Upload)  # whose caller knows
        )
        if frames:
            log.error("%d frames were never sent: %s", frames, reason)
        final = error if error is None or isinstance(error, (StompError, *BUGS)) else reason
        self.happened("end", error)
        self.inbox.end(final)
        for call in [*self.waiters, *(call for call, *_ in self.room)]:
            self.finish(call, final or reason)
        self.waiters.clear()
        self.room.clear()
        self.wake(self.closers)

    # ---- sending ----
    def connected(self, frame: Frame) -> None:
        assert self.connection is not None
        self.server, self.version, self._connected_by = frame, self.connection.version, None
        self.choose(frame.get("server"))
        self._heads.clear()
        self._fatal = ("", "", None, 0.0)
        log.info("connected: STOMP %s, broker dialect %s", self.version, self.dialect.name)
        caution_session(self.dialect, self.version)
        self.happened("accepted")
        self.pace.begin(self.now)
        self.inbox.restore_all()

    def choose(self, server: str | None) -> None:
        """Choose the dialect by the `server` header of CONNECTED."""
        row = row_of(self.options.dialect, server)
        said = {} if self.address is None else self.address.options
        if not self.options.artemis_types or said.get("artemis_types") == "false":
            row = row._replace(types=False)
        self.dialect: BrokerDialect = row
        self.suits = row.types or bool(row.values or row.only_true)  # it changes or checks the headers of SENDs

    def suit(self, pairs: list[tuple[str, str]], is_reply: bool = False) -> None:
        """Complete the headers of a SEND for the broker; raise ValueError for a value that loses the message."""
        kind = self.dialect.suit(pairs, is_reply)
        if kind == ANYCAST and not self._said_type:
            self._said_type = True
            name = next(value for name, value in pairs if name == "destination")
            log.info(
                "SEND to %.100s has destination-type:%s from now on, as all names of queues and topics have their type "
                "on Artemis: a consumer that subscribes without a type may get none of them (artemis_types=False "
                "writes none)",
                name,
                kind,
            )

    def restored(self) -> None:
        """Let the outbox flow: the subscriptions are back. At a pace, messages are sent again one at a time before."""
        self._is_repeating = self.pace.is_slow and self._again() is not None
        if self._is_repeating:
            return
        self.pace.end(self.now)
        self.happened("restored")
        self.wake(self.waiters)

    def _again(self) -> Call | None:
        """Return the call of the first message in the outbox if it was sent before; None if all are new."""
        call = self.outbox.waiting[0].call if self.outbox else None
        return call if call is not None and call.sent else None

    def _repeat(self) -> None:
        """Send the first message of the outbox again, alone; let the outbox flow once there is none to be repeated."""
        while self.pace.is_free:
            call = self._again()
            if call is None:
                self.inbox.restore()  # perhaps others have subscribed meanwhile
                return
            frame = self.outbox.waiting[0].frame
            if self._begin(frame) if isinstance(frame, Upload) else self._send_first():
                self.pace.start(call, self.now)

    def _pass_over(self) -> None:
        """Go on with the next frame: the one that is under way alone was not answered in its time."""
        item, pace = self.pace.item, self.pace
        if item is None:  # nothing was sent yet
            pace.rest()
            self.inbox.restore()
        elif self.upload is not None:  # its body is still being sent
            pace.start(item, self.now)
        else:
            pace.passed(item)
            if not isinstance(item, Call):
                self.inbox.pass_over(item)

    def put_plain(self, destination: str, body: bytes, call: Call | None = None) -> bool:
        """Send a SEND without other headers by a fast path; return False if `put` has to do it.

        Invariant: it sends what `put` would, since the outbox is empty, and the head is one that `serialize` wrote.
        """
        connection, size = self.connection, len(body)
        if (
            self.phase != "up"
            or self.state != "connected"
            or connection is None
            or not self.is_writable
            or self.outbox.waiting
            or (self.looks and (self.is_watched or self.cause()))
            or not 0 < size < BIG
        ):
            return False
        try:
            head = self._heads.get(destination) or self._head_of(destination)
        except TypeError:  # no str; `put` says so
            return False
        if not head or not self.outbox.pass_one(size):
            return False
        if call is None:
            connection.output.append(b"%b%d\n\n%b\0" % (head, size, body))
        else:
            self.calls.open(call, self.now)
            before = head[: -len(_LENGTH)]
            connection.output.append(b"%breceipt:%b\n%b%d\n\n%b\0" % (before, call.id.encode(), _LENGTH, size, body))
            self.calls.sent[call.id] = call  # after what an interrupt may prevent: no receipt comes without the frame
            call.sent = True
            self.inbox.weigh()
        return True

    def expect_handlers(self) -> None:
        """Note that messages may be in hand from now on."""
        self.has_handlers = self.looks = True

    def cause(self) -> list[tuple[str, str]]:
        """Return the headers that name the message in whose handling a frame is sent, if the broker reads them."""
        return cause(self.epoch) if self.has_handlers and self.dialect.names_causes else []

    def _head_of(self, destination: str) -> bytes:
        """Return the head of a SEND up to the number in content-length; nothing if it cannot be written."""
        if self._wire.text_only or not destination:  # each body has to be looked at; `outgoing` refuses it
            return b""
        try:
            pairs = [("destination", destination), *self._usual]
            if self.suits:
                self.suit(pairs)
            octets = serialize(Frame("SEND", pairs, b"x"), self.version)
        except (StompError, TypeError, ValueError):  # `put` says why
            return b""
        if len(destination) <= _LONGEST:
            if len(self._heads) >= _HEADS:
                self._heads.clear()
            self._heads[destination] = octets[:-5]
        return octets[:-5]

    def put(self, frame: Frame | Block, call: Call | None, *, bound: bool = False, text: bool | str = False) -> None:
        """Send a frame now, or behind those in the outbox. A `bound` one must not be sent on the next connection."""
        if call is not None:
            self.calls.open(call, self.now)
        try:
            if self.phase == "up" and self.is_writable and not self.outbox:
                self.transmit(frame, call, text)
                return
            if not isinstance(frame, Block):
                self.try_out(frame)
        except Exception:
            if call is not None:
                call.done = True  # it has no deadline any more
            raise
        self.outbox.push(Waiting(frame, call, self.epoch if bound else 0, text))

    def try_out(self, frame: Frame) -> None:
        """Raise FrameError if a frame cannot be written: errors go to the caller, not to the log of the I/O thread."""
        serialize(frame, self.version or "1.2", commands=_COMMANDS)
        if self._wire.text_only:
            _check_text(frame)

    def transmit(self, frame: Frame | Block, call: Call | None = None, text: bool | str = False) -> None:
        """Pass a frame or a block to the connection."""
        connection = self.connection
        assert connection is not None
        if self._wire.text_only:
            for each in frame.frames() if isinstance(frame, Block) else (frame,):
                _check_text(each)
        if isinstance(frame, Block):
            connection.output += frame.chunks(self.version, self._wire.whole_frames)
        elif text and (self.dialect.jms or text is KEPT):
            connection.output.append(serialize(frame, self.version, content_length="never"))
        else:
            connection.send(frame)
        self.outbox.passed(frame)
        if self.dialect.largest or self.dialect.ending:
            # A block is small, but for one large frame.
            pairs = [] if isinstance(frame, Block) else frame.headers.pairs()
            self._note_fatal(frame.command, pairs, len(frame.body), call)
        if call is not None:
            self.calls.sent[call.id] = call
            call.sent = True
            if call.resend:
                call.frame = (frame, text)
            self.inbox.weigh()
        if self.trace is not None:
            self.trace += [("out", each) for each in (frame.frames() if isinstance(frame, Block) else [frame])]
        if call is not None and not (call.asks or call.needs_reply):
            self.finish(call)

    def _note_fatal(self, command: str, pairs: list[tuple[str, str]], octets: int, call: Call | None) -> None:
        """Note a frame at which the broker may close without ERROR."""
        if reason := self.dialect.excess(pairs, octets):
            destination = next((value for name, value in pairs if name == "destination"), "")
            self._fatal = (f"{command} to {destination}" if call is None else call.what, reason, call, self.now)

    def _flush(self) -> None:
        """Move frames from the outbox to the connection, in order."""
        moved = 0
        while self.outbox and moved < _FLUSH:
            first = self.outbox.waiting[0].frame
            if isinstance(first, Upload):
                if self._begin(first):
                    return
                continue
            moved += len(first.body) + 1
            self._send_first()

    def _send_first(self) -> bool:
        """Move the first frame of the outbox to the connection, unless it is an upload; return whether it was sent."""
        waiting = self.outbox.pop()
        assert not isinstance(waiting.frame, Upload)
        if waiting.call is not None and waiting.call.done:  # it has timed out
            return False
        try:
            self.transmit(waiting.frame, waiting.call, waiting.text)
        except StompError as error:  # the version has changed since it was put there
            if waiting.call is not None:
                self.finish(waiting.call, error)
            else:
                log.error("%s was not sent: %s", waiting.frame.command, error)
            return False
        return True

    def _admit(self) -> None:
        """Have callers try again for whom the outbox now has room."""
        room, self.room = self.room, []
        for call, octets, frames in room:
            if self.outbox.has_room(octets, frames):
                self.finish(call)
            elif not call.done:
                self.room.append((call, octets, frames))

    # ---- bodies that are sent piece by piece ----
    def _begin(self, upload: Upload) -> bool:
        """Send the head of the upload that is the first of the outbox; return whether its body is to follow."""
        if upload is self.upload:
            return True
        try:
            head = upload.head(self.version)
        except StompError as error:  # the version has changed since it was put there
            self.outbox.pop()
            self.fail(upload, error)
            return False
        self.upload, upload.state, call = upload, "open", upload.call
        self._note_fatal("SEND", upload.pairs, upload.size, call)
        self._pass_on(head)
        if call is not None:
            self.calls.sent[call.id] = call
            call.sent = True
            call.frame = (upload, False) if call.resend else None
            self.inbox.weigh()
        if self.trace is not None:
            self.trace.append(("out", upload.frame()))
        return True

    def _pass_on(self, octets: bytes) -> None:
        """Pass bytes to the connection that are not the end of their frame."""
        assert self.connection is not None
        if octets:
            self.connection.output.append(Part(octets) if self._wire.whole_frames else octets)

    def _beat(self) -> bytes:
        octets = b"" if self.upload is None else self.upload.dribble()
        return Part(octets) if octets and self._wire.whole_frames else octets

    def look(self, upload: Upload) -> None:
        """Answer the call `asked` of an upload: with the offset of the next piece, -1 to ask again, None at the end."""
        asked, connection = upload.asked, self.connection
        if asked is None or asked.done:
            return
        if upload.state == "over":
            self.finish(asked, upload.error)
        elif upload.state == "sent":
            if not upload.to_the_end:
                self.finish(asked)
        elif upload is self.upload and self.is_writable and connection is not None and not connection.output:
            self._watch(upload, upload.timeout)
            self.finish(asked, result=upload.at)

    def feed(self, upload: Upload, at: int, piece: bytes) -> None:
        """Send the next piece of a body, which begins at this offset. One for an earlier connection is dropped."""
        if upload is self.upload and upload.at == at:
            self._pass_on(upload.take(piece))

    def end_body(self, upload: Upload) -> None:
        connection = self.connection
        if upload is not self.upload or connection is None or upload.at != upload.size:
            return
        connection.output.append(upload.rest() + b"\0")
        self.upload, upload.state = None, "sent"
        self.outbox.pop()
        if upload.call is None:
            upload.over(None)
        elif upload.call.asks:
            self._watch(upload, upload.call.timeout)
        else:
            self.finish(upload.call)
        self.look(upload)
        self.inbox.go_on()

    def fail(self, upload: Upload, error: Exception) -> None:
        """End an upload by an error. In the middle of its body the connection has to end, too."""
        if upload is self.upload:
            self.break_off(ConnectionLostError(f"a body broke off after {upload.at} of {upload.size} bytes: {error}"))
        elif upload.state == "waiting":
            self.outbox.remove(upload)
        upload.over(error)
        if upload.call is not None:
            upload.call.resend = False
            self.finish(upload.call, error)
        self.look(upload)

    def answered(self, upload: Upload) -> None:
        """Note the outcome of the call that waits for the receipt of an upload."""
        error = upload.call.error if upload.call is not None else None
        if upload is self.upload:  # it was refused in the middle of its body
            self.fail(upload, error or RemoteProtocolError("a RECEIPT came before the end of the body"))
        upload.over(error)
        self.look(upload)

    def _watch(self, upload: Upload, seconds: float) -> None:
        """Bound the time until the next piece, or the receipt."""
        watch = upload.watch = self.calls.make(upload.what, seconds)
        watch.after = lambda call: self._late(upload) if call.error is not None else None
        self.calls.open(watch, self.now)

    def _late(self, upload: Upload) -> None:
        if upload.state == "open":
            self.fail(upload, BodySourceError(f"{upload.what}: the source gave no bytes in {upload.timeout:g} s"))
        elif upload.call is not None:
            self.finish(upload.call, self._overdue(upload.call))

    def _cut_upload(self, reason: ConnectionLostError) -> bool:
        """Take the upload out of the outbox that the loss has cut; return whether uploads may be sent again."""
        upload, self.upload = self.upload, None
        refused = reason.__cause__ if isinstance(reason.__cause__, RejectedError) else None
        if upload is None:
            return refused is None
        self.outbox.pop()
        if upload.state == "open" and (refused or upload.call is None or not upload.call.resend):
            what = f"{upload.what}: not sent to the end of its body: {reason}"
            self.fail(upload, refused or lost_by(reason.__cause__, what, sent=False))
        return refused is None

    # ---- outcomes ----
    def finish(self, call: Call, error: Exception | None = None, result: object = None) -> None:
        """Give a call its outcome, once."""
        if call.command == "RECEIVE" and call.result is not None:  # also without its receipt
            error, result = None, call.result
        if not self.calls.finish(call, error, result):
            return
        if call is self.pace.item:
            self.pace.passed(call)
        if call.after is not None:
            call.after(call)
        if error is not None and call.group is not None and call.group.failed is None:
            call.group.failed = error
            self._withdraw(call.group)

    def answered_late(self, receipt: str, state: str) -> None:
        """Resolve a transaction whose COMMIT had no answer in time: it comes now."""
        for transaction in self.transactions.values():
            if transaction.state == "unknown" and transaction.finishing and transaction.finishing.id == receipt:
                transaction.end(state)
                del self.transactions[transaction.id]
                return

    def _withdraw(self, group: Group) -> None:
        """Drop unsent blocks of a group in which a block has failed: sending them would break the order."""
        for call in [each.call for each in self.outbox if each.call is not None and each.call.group is group]:
            self.outbox.remove(call)
            how = "the outcome is unknown" if call.sent else "not sent"
            self.finish(call, ConnectionLostError(f"{call.what}: {how}, an earlier block failed", sent=call.sent))

    def _expire(self, call: Call) -> None:
        if call.id not in self.calls.sent:
            self.outbox.remove(call)
        self.finish(call, self._overdue(call))
        if call.command == "DISCONNECT":
            log.info("the server did not answer DISCONNECT")
            self.end(None)

    def _overdue(self, call: Call) -> ReceiptTimeoutError:
        """Return the error of a call without an answer. It names the remedy until one of its kind had an answer."""
        ended, command = str(self.error or ""), call.command
        message = f"{call.what}: no answer in {call.timeout:g} s"
        if call.what in ended:
            message += f": {ended}"
        elif call.sent and command and not call.needs_reply and command not in (*ANSWERED, *self.calls.answered):
            message += (
                f"; no {command} has been answered yet: if the server sends no receipts, connect with receipts=False"
            )
        return ReceiptTimeoutError(message, sent=call.sent)

    def _cut(self, reason: ConnectionLostError) -> None:
        """Give an outcome to all that depended on the lost connection."""
        self.inbox.cut()
        self.happened("cut")
        self.broken = self._connected_by = None
        self._is_repeating = False
        self.pace.rest()
        self.epoch += 1
        for transaction in self.transactions.values():
            transaction.cut(reason)
        self.transactions.clear()
        again: list[Waiting] = []
        may_repeat = self._cut_upload(reason)
        for call in list(self.calls.sent.values()):
            if call.command == "SUBSCRIBE" and call.subject.call is call:
                continue  # it is sent again on the next connection
            stopped = call.group is not None and call.group.failed is not None
            stopped |= not may_repeat and call.frame is not None and isinstance(call.frame[0], Upload)
            if call.resend and self.state != "closed" and call.frame is not None and not stopped:
                frame, text = call.frame
                if isinstance(frame, Upload):
                    frame.restart()
                    if frame.asked is not None:  # its caller asks again, with another timeout
                        self.finish(frame.asked, result=-1)
                again.append(Waiting(frame, call, 0, text))
            elif call.command in ("UNSUBSCRIBE", "DISCONNECT", "ABORT"):
                self.finish(call)  # the end of the connection did it
            else:
                self.finish(call, lost_by(reason.__cause__, f"{call.what}: the outcome is unknown: {reason}"))
        self.calls.sent.clear()
        self.outbox.flushed()
        for waiting in self.outbox.discard():
            error = self._unsent(waiting)
            if isinstance(waiting.frame, Upload) and error is not None:
                self.fail(waiting.frame, error)
            elif waiting.call is not None:
                self.finish(waiting.call, error)
        self.outbox.push_front(again)

    def _unsent(self, waiting: Waiting) -> Exception | None:
        """Return the outcome of an unsent frame that was bound to the lost connection."""
        command = waiting.frame.command
        if waiting.call is not None and waiting.call.command == DELETE:
            return ConnectionLostError(f"{waiting.call.what} was not sent before the connection was lost", sent=False)
        if command in ("UNSUBSCRIBE", "DISCONNECT", "ABORT"):
            return None
        if command in ("ACK", "NACK"):
            return StaleAckError(f"{command} not sent: the connection was lost, and the message comes again")
        return ConnectionLostError(f"{command} was not sent before the connection was lost", sent=False)

    def check_open(self) -> None:
        if self.state in ("closing", "closed"):
            raise LocalProtocolError("the client is closed")

    def break_off(self, error: Exception) -> None:
        """Mark the connection as broken; `leave_broken` drops it once all received frames are handled."""
        if self.broken is None:
            self.broken = error

    def leave_broken(self) -> None:
        if self.broken is not None:
            self.lost(self.broken, self.now)

    def happened(self, event: str, error: Exception | None = None) -> None:
        """Enter the states that an event leads to."""
        self.phase = follow(CONNECTION, self.phase, event)
        state = follow(CLIENT, self.state, event)
        if state != self.state:
            self.state = state
            self.lost_at = self.now if state == "reconnecting" else None
            self._told = "" if error is None else str(error)
            self.events.append((state, error))

    def wake(self, calls: list[Call]) -> None:
        for call in calls:
            self.finish(call)
        calls.clear()


def _check_text(frame: Frame) -> None:
    """Raise FrameError if the body cannot be sent as text, as SockJS does."""
    try:
        frame.body.decode()
    except UnicodeDecodeError:
        why = "SockJS carries text, and the body is not UTF-8: encode it, for example by content_encoding='base64'"
        raise FrameError("unencodable", detail=why) from None


# ---- what a probe asks ----
@dataclass(frozen=True, slots=True)
class Health:
    """The answer of `is_alive`, true if messages can be sent and received now.

    Ages and not points in time, in seconds, so that no clock has to be known.

    >>> health = Health(alive=False, state="reconnecting", last_received=12.5, outstanding=3, reconnecting_since=2.5)
    >>> bool(health), health.outstanding
    (False, 3)
    """

    alive: bool
    """Whether there is a session, and the I/O thread does its work in time. Heart-beats end a session with a server
    that is silent."""
    state: str
    """`client.state`."""
    last_received: float | None
    """How many seconds ago the server last sent something, a heart-beat included; None if it never did."""
    outstanding: int
    """Frames that were not sent yet, and calls, such as a send with a receipt, that wait for an answer."""
    reconnecting_since: float | None
    """How many seconds ago the connection was lost; None while there is one, and when the client is closed."""

    def __bool__(self) -> bool:
        return self.alive


def health_of(link: ClientLink, now: float, running: bool) -> Health:
    """Return how a client is doing. `running` says whether the I/O thread works for it."""
    due = link.next_deadline()
    in_time = due is None or now <= due + _STUCK
    heard, lost = link.heard_at, link.lost_at
    return Health(
        alive=running and in_time and link.state == "connected",
        state=link.state,
        last_received=None if heard is None else max(now - heard, 0.0),
        outstanding=link.outbox.unsent + len(link.calls.sent),
        reconnecting_since=None if lost is None else max(now - lost, 0.0),
    )
