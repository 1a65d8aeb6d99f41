"""A client's connections, one after the other, without I/O: asking for a session, what is sent, and what is lost.

Every call gets its outcome here: accepted, rejected, or unknown because the connection or the time ran out.
"""

from __future__ import annotations

import logging
from typing import Protocol

from stompcodec.client.dialects import BrokerDialect, row_of
from stompcodec.client.options import Options
from stompcodec.client.outbox import Block, Outbox, Waiting
from stompcodec.client.receipts import Call, Calls, Group
from stompcodec.client.states import CLIENT, CONNECTION, follow
from stompcodec.client.transaction import BaseTransaction
from stompcodec.codec import Frame, serialize
from stompcodec.connection import Connection, Role
from stompcodec.errors import (
    ConnectionLostError,
    LocalProtocolError,
    ReceiptTimeoutError,
    RemoteProtocolError,
    StaleAckError,
    StompError,
)

__all__ = ["DELETE", "ClientLink", "Inbox", "log"]

log = logging.getLogger("stompcodec.client")

#: Commands that a broker may offer beside those of STOMP, and their answers.
_COMMANDS = ("PING", "PONG", "RECEIVE", "EMPTY")
#: What the call of an UNSUBSCRIBE is that ends a durable subscription for good: the end of a connection does not do it.
DELETE = "UNSUBSCRIBE for good"
#: Octets that are moved from the outbox to the connection in one go.
_FLUSH = 256 * 1024


class Inbox(Protocol):
    """The receiving half of a client, as its link sees it."""

    def restore_all(self) -> None:
        """Subscribe again on a new session; `restored` is the link's once that is done."""

    def cut(self) -> None:
        """Drop what a lost connection has delivered and nobody took."""

    def end(self, error: Exception | None) -> None:
        """End all subscriptions."""

    def weigh(self) -> None:
        """Decide whether reading goes on."""

    def unread(self) -> float:
        """Return the seconds of not reading that are not excused yet."""


class ClientLink:
    """A client's connections, one after the other: what it sends, and the outcomes of calls."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.inbox: Inbox
        self.state = "connecting"
        self.phase = "down"
        self.now = 0.0
        self.epoch = 1  # counts connections
        self.connection: Connection | None = None
        self.version: str | None = None
        self.dialect: BrokerDialect = row_of(options.dialect, None)
        self.server: Frame | None = None  # the last CONNECTED
        self.error: Exception | None = None  # why the last connection ended
        self.calls = Calls()
        self.outbox = Outbox(options.outbox_frames, options.outbox_octets)
        self.events: list[tuple[str, Exception | None]] = []
        self.trace: list[tuple[str, Frame]] | None = [] if options.on_frame else None
        self.broken: Exception | None = None
        self.is_writable = True
        self._whole_frames = False
        self._connected_by: float | None = None
        self._patience = options.connect_timeout
        self.transactions: dict[str, BaseTransaction] = {}
        self.waiters: list[Call] = []  # for a connection
        self.room: list[tuple[Call, int, int]] = []  # for room in the outbox, for so many octets and frames
        self.closers: list[Call] = []

    # ---- the transport ----

    def opened(
        self,
        now: float,
        *,
        host: str,
        login: str | None,
        passcode: str | None,
        whole_frames: bool,
        patience: float | None = None,
    ) -> None:
        """There is a transport: ask for a session.

        `patience`: seconds to wait for CONNECTED, if fewer than `connect_timeout`.

        Raises:
            FrameError: CONNECT, which has no escapes, cannot carry the credentials.
        """
        options = self.options
        self.now = now
        self.happened("opened")
        self.is_writable, self.broken = True, None
        self._patience = options.connect_timeout if patience is None else min(patience, options.connect_timeout)
        self._connected_by = now + self._patience
        self._whole_frames = whole_frames
        self.connection = Connection(
            Role.CLIENT,
            versions=options.versions,
            limits=options.limits,
            lenient=options.lenient,
            heart_beat=options.heart_beat,
            commands=_COMMANDS,
            whole_frames=whole_frames,
            now=now,
        )
        name = "username" if "legacy" in options.versions else "login"
        given = [("host", host), (name, login), ("passcode", passcode), ("client-id", options.client_id)]
        headers = [(name, value) for name, value in given if value is not None and name not in options.headers]
        headers += options.headers.items()
        self.connection.send(Frame("CONNECT", headers))
        if self.trace is not None:
            self.trace.append(("out", Frame("CONNECT", [(k, "***" if k == "passcode" else v) for k, v in headers])))

    @property
    def in_session(self) -> bool:
        """CONNECTED came, and the connection is not lost."""
        return self.phase in ("restoring", "up")

    def writable(self, yes: bool) -> None:
        """The transport takes more, or no more."""
        self.is_writable = yes

    def take_output(self, now: float) -> list[bytes]:
        """What the transport has to write now. Ask again as long as there is some."""
        connection = self.connection
        if connection is None:
            return []
        self.now = now
        if self.phase == "up" and self.is_writable and self.outbox:
            self._flush()
        chunks = connection.take_output(now)
        self.outbox.flushed()
        if self.room and self.outbox.is_half_empty():
            self._admit()
        return chunks

    def tick(self, now: float, late: float = 0.0) -> None:
        """Do what is due. `late`: seconds in which the shell was held up; they are not held against the peer."""
        self.now = now
        for call in list(self.calls.deadlines.expired(now)):
            self._expire(call)
        connection = self.connection
        if connection is None:
            return
        connection.excuse(late + self.inbox.unread())
        if self._connected_by is not None and now >= self._connected_by:
            self.break_off(ConnectionLostError(f"no CONNECTED came in {self._patience:.3g} s", sent=False))
        elif not connection.tick(now):
            every = connection.heartbeat.receive_every / 1000
            self.break_off(ConnectionLostError(f"the server was silent for more than twice {every} s"))
        self.leave_broken()

    def next_deadline(self) -> float | None:
        """When `tick` has something to do."""
        times = [self.calls.deadlines.next(), self._connected_by]
        if self.connection is not None:
            times.append(self.connection.next_deadline())
        return min((time for time in times if time is not None), default=None)

    def lost(self, error: BaseException | None, now: float) -> None:
        """The transport is gone, or an attempt to open one has failed."""
        connection, self.connection = self.connection, None
        self.now = now
        if connection is not None:
            try:
                connection.close(now)
            except RemoteProtocolError as cut:
                error = error or cut
        reason = ConnectionLostError(f"the connection was lost: {error or 'closed by the server'}")
        reason.__cause__ = error
        self.error = error if isinstance(error, StompError) else reason
        self._cut(reason)
        if self.state == "closing":
            self.end(None)
        elif self.state == "connected":
            log.warning("%s", reason)
            if self.options.reconnect is None:
                self.end(self.error)
            else:
                self.happened("lost", self.error)

    def end(self, error: Exception | None) -> None:
        """The client is over: closed (None), or it gave up. Whatever waits gets its outcome."""
        if self.state == "closed":
            return
        self._cut(ConnectionLostError("the client was closed"))
        self.connection = None
        self.error = error
        reason = ConnectionLostError("the client was closed" if error is None else str(error), sent=False)
        reason.__cause__ = error
        unsent = self.outbox.discard(everything=True)
        for waiting in unsent:
            if waiting.call is not None:
                again = ConnectionLostError(f"{waiting.call.what}: {reason}", sent=waiting.call.sent)
                again.__cause__ = error
                self.finish(waiting.call, again)
        frames = sum(getattr(waiting.frame, "count", 1) for waiting in unsent if waiting.call is None)
        if frames:
            log.error("%d frames were never sent: %s", frames, reason)
        final = error if error is None or isinstance(error, StompError) else reason
        self.happened("end", error)
        self.inbox.end(final)
        for call in [*self.waiters, *(call for call, *_ in self.room)]:
            self.finish(call, final or reason)
        self.waiters.clear()
        self.room.clear()
        self.wake(self.closers)

    # ---- sending ----

    def connected(self, frame: Frame) -> None:
        """CONNECTED came."""
        assert self.connection is not None
        self.server, self.version, self._connected_by = frame, self.connection.version, None
        self.dialect = row_of(self.options.dialect, frame.get("server"))
        log.info("connected: STOMP %s, broker dialect %s", self.version, self.dialect.name)
        self.happened("accepted")
        self.inbox.restore_all()

    def restored(self) -> None:
        """Let the outbox flow: the subscriptions are back."""
        self.happened("restored")
        self.wake(self.waiters)

    def put(self, frame: Frame | Block, call: Call | None, *, bound: bool = False, text: bool = False) -> None:
        """Send a frame now, or behind what waits already. `bound`: it means nothing on another connection.

        Raises:
            FrameError: it cannot be written in this version.
        """
        if call is not None:
            self.calls.open(call, self.now)
        try:
            if self.phase == "up" and self.is_writable and not self.outbox:
                self.transmit(frame, call, text)
                return
            if not isinstance(frame, Block):
                serialize(frame, self.version or "1.2", commands=_COMMANDS)  # the caller shall hear of it, not the log
        except StompError:
            if call is not None:
                call.done = True
            raise
        self.outbox.push(Waiting(frame, call, self.epoch if bound else 0, text))

    def transmit(self, frame: Frame | Block, call: Call | None = None, text: bool = False) -> None:
        """Hand a frame to the connection, or a block."""
        connection = self.connection
        assert connection is not None
        if isinstance(frame, Block):
            connection.output += frame.chunks(self.version, self._whole_frames)
        elif text and self.dialect.jms:
            connection.output.append(serialize(frame, self.version, content_length="never"))
        else:
            connection.send(frame)
        self.outbox.passed(frame)
        if call is not None:
            self.calls.sent[call.id] = call
            call.sent = True
            if call.resend:
                call.frame = (frame, text)
            self.inbox.weigh()
        if self.trace is not None:
            self.trace += [("out", each) for each in (frame.frames() if isinstance(frame, Block) else [frame])]

    def _flush(self) -> None:
        """Move what waits to the connection, in its order."""
        moved = 0
        while self.outbox and moved < _FLUSH:
            waiting = self.outbox.pop()
            moved += len(waiting.frame.body) + 1
            if waiting.call is not None and waiting.call.done:  # its time is over, and its caller told so
                continue
            try:
                self.transmit(waiting.frame, waiting.call, waiting.text)
            except StompError as error:  # another version than when it was put there
                if waiting.call is not None:
                    self.finish(waiting.call, error)
                else:
                    log.error("%s was not sent: %s", waiting.frame.command, error)

    def _admit(self) -> None:
        """Those who wait for room may try again, if there is enough for them."""
        room, self.room = self.room, []
        for call, octets, frames in room:
            if self.outbox.has_room(octets, frames):
                self.finish(call)
            elif not call.done:
                self.room.append((call, octets, frames))

    # ---- outcomes ----

    def finish(self, call: Call, error: Exception | None = None, result: object = None) -> None:
        """Give a call its outcome, once."""
        if call.command == "RECEIVE" and call.result is not None:  # whatever became of the receipt, the message came
            error, result = None, call.result
        if not self.calls.finish(call, error, result):
            return
        if call.after is not None:
            call.after(call)
        if error is not None and call.group is not None and call.group.failed is None:
            call.group.failed = error
            self._withdraw(call.group)

    def _withdraw(self, group: Group) -> None:
        """One of the group has failed: what of it has not left stays here, or it would overtake."""
        for call in [each.call for each in self.outbox if each.call is not None and each.call.group is group]:
            self.outbox.remove(call)
            self.finish(call, ConnectionLostError(f"{call.what}: not sent, since what came before failed", sent=False))

    def _expire(self, call: Call) -> None:
        """Time is up for a call."""
        message = f"{call.what}: nothing came back in {call.timeout} s"
        if call.id not in self.calls.sent:
            self.outbox.remove(call)
        self.finish(call, ReceiptTimeoutError(message, sent=call.sent))
        if call.command == "DISCONNECT":
            log.info("the server did not answer DISCONNECT")
            self.end(None)

    def _cut(self, reason: ConnectionLostError) -> None:
        """Nothing more can come on this connection: settle all that depended on it."""
        self.inbox.cut()
        self.happened("cut")
        self.broken = self._connected_by = None
        self.epoch += 1
        for transaction in self.transactions.values():
            transaction.state, transaction.lost = "lost", reason
        self.transactions.clear()
        again: list[Waiting] = []
        for call in list(self.calls.sent.values()):
            if call.command == "SUBSCRIBE" and call.subject.call is call:
                continue  # it is sent again with the next connection
            stopped = call.group is not None and call.group.failed is not None
            if call.resend and self.state != "closed" and call.frame is not None and not stopped:
                frame, text = call.frame
                again.append(Waiting(frame, call, 0, text))
            elif call.command in ("UNSUBSCRIBE", "DISCONNECT", "ABORT"):
                self.finish(call)  # the end of the connection did it
            else:
                lost = ConnectionLostError(f"{call.what}: the outcome is unknown: {reason}")
                lost.__cause__ = reason.__cause__
                self.finish(call, lost)
        self.calls.sent.clear()
        self.outbox.flushed()
        for waiting in self.outbox.discard():
            if waiting.call is not None:
                self.finish(waiting.call, self._unsent(waiting))
        self.outbox.push_front(again)

    def _unsent(self, waiting: Waiting) -> Exception | None:
        """The outcome of what was bound to a connection, and did not leave in time."""
        command = waiting.frame.command
        if waiting.call is not None and waiting.call.command == DELETE:
            return ConnectionLostError(f"{waiting.call.what} was not sent before the connection was lost", sent=False)
        if command in ("UNSUBSCRIBE", "DISCONNECT", "ABORT"):
            return None
        if command in ("ACK", "NACK"):
            return StaleAckError(f"{command} was not sent before the connection was lost: the message comes again")
        return ConnectionLostError(f"{command} was not sent before the connection was lost", sent=False)

    def check_open(self) -> None:
        if self.state in ("closing", "closed"):
            raise LocalProtocolError("the client is closed")

    def break_off(self, error: Exception) -> None:
        """The connection cannot go on; it is lost as soon as what came is handled (`leave_broken`)."""
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
            self.events.append((state, error))

    def wake(self, calls: list[Call]) -> None:
        for call in calls:
            self.finish(call)
        calls.clear()
