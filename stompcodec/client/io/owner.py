"""The owner of one wire of a client: it hands what is read to the core, or takes receipts and messages out of it."""

from __future__ import annotations

import time
from collections.abc import Callable

from stompcodec.client.backoff import SOON
from stompcodec.client.core import ClientCore
from stompcodec.client.message import BaseMessage
from stompcodec.client.receipts import Call
from stompcodec.client.subscription import Subscription
from stompcodec.codec import Frame, Parser, parse
from stompcodec.connection import Connection
from stompcodec.errors import StompError
from stompcodec.spec import Limits
from stompcodec.transport.sync import SyncWire

#: After a session of this many seconds (for those without heart-beats), its address is tried first again.
_GOOD = 5.0
#: Bytes of a WebSocket message beside one body: headers, or other frames in the same message.
_BESIDE_BODY = 2**20
#: Bytes of a body in one WebSocket frame, if bodies are streamed. A frame is in memory as a whole.
_WHOLE_BODY = 16 * 2**20
#: The commands of calls that a RECEIPT accepts, and does nothing else.
_SIMPLE = ("SEND", "ACK", "NACK", "PING")


class WireOwner:
    """The owner of one wire. It ignores events of a wire whose connection is not the core's any more."""

    wire: SyncWire

    def __init__(self, core: ClientCore) -> None:
        self._core = core
        self.connection: Connection | None = None
        self.paused = False
        self.up_at: float | None = None  # when its session began
        self.octets = 0  # of the last read
        self.begun: Callable[[Frame | None], object] = lambda server: None
        """Called with CONNECTED when the session begins."""
        self._shape = (b"", b"")  # what stood before and behind the id in the last RECEIPT of `take_receipt`
        self._parser: Parser | None = None  # of `take_messages`; it holds no bytes of earlier reads
        self.beat = 0.0  # the longer interval of its heart-beats, in seconds; 0 without

    @property
    def was_up(self) -> bool:
        """True if there was a session."""
        return self.up_at is not None

    def _beat(self) -> float:
        return 0.0 if self.connection is None else max(self.connection.heartbeat) / 1000

    def has_lasted(self, now: float) -> bool:
        """Return whether the session lasted so long that delays start from the first again: a second is enough."""
        return self.up_at is not None and now - self.up_at >= min(self.beat or _GOOD, SOON)

    def is_good(self, now: float) -> bool:
        """Return whether the session lasted for a heart-beat. One that broke sooner may do so each time."""
        return self.up_at is not None and now - self.up_at >= (self.beat or _GOOD)

    def opened(self, wire: SyncWire) -> None:
        self.wire = wire
        options = self._core.link.options
        most = (options.limits or Limits()).max_body
        if options.stream_over is not None:  # what does not come in frames of WebSocket would be in memory
            most = min(most, max(options.stream_over, _WHOLE_BODY))
        wire.bound(most + _BESIDE_BODY)

    def received(self, data: bytes | memoryview) -> None:
        core, connection = self._core, self.connection
        if connection is not None and core.link.connection is connection:
            now = time.monotonic()
            self.octets = len(data)
            core.inbound.receive(data, now)
            if self.up_at is None and core.link.in_session:
                self.up_at = now
                self.beat = self._beat()
                self.begun(core.link.server)

    def take_receipt(self, call: Call, now: float) -> bool:
        """Read in the thread that waits for a call, under the engine's lock; return True if its receipt came, alone.

        Whatever else was read stays in the wire, for `SyncWire.handle` in the I/O thread. An interrupt (Ctrl-C) leaves
        the receipt there, too, or the call has its outcome.
        """
        core, connection, wire = self._core, self.connection, self.wire
        link = core.link
        finished, sent, ahead = link.calls.finished, link.calls.sent, wire.ahead
        if call.done:
            return True
        octets = wire.read_ahead()
        if (
            not octets
            or connection is None
            or not self._is_between(connection)
            or call.id not in sent
            or call.command not in _SIMPLE
            or call.needs_reply  # its receipt is not its outcome
            or not self._is_receipt(octets, call.id, connection.version)
        ):
            return False
        finished.append(call)  # others who wait for it are woken, if not below
        # No call stands between these, so that an interrupt cannot separate them.
        call.done = True
        call.frame = None
        del sent[call.id]
        del ahead[:]
        link.now = link.heard_at = now
        connection.skip(len(octets), now)
        if call.wake is not None:
            call.wake()
        if len(finished) == 1:
            finished.clear()
        return not finished

    def take_messages(self, subscription: Subscription, now: float) -> bool:
        """Do what `take_receipt` does for messages of a subscription: they go to its batch, for this thread.

        After an interrupt they are in the wire or in the batch.
        """
        core, connection, wire = self._core, self.connection, self.wire
        link, batch, ahead = core.link, subscription.batch, wire.ahead
        octets = wire.read_ahead()
        if (
            not octets
            or connection is None
            or not self._is_between(connection)
            or link.phase != "up"
            or link.is_watched
            or subscription.deaf
            or subscription.spares is not None
            or not subscription.confirmed
            or core.inbound.subscriptions.get(subscription.id) is not subscription
        ):
            return False
        messages = self._messages(octets, connection, subscription)
        if not messages:
            subscription.in_turn = 0
            return False
        count = len(messages)
        if len(subscription.waiting) > 1 and subscription.wake is not None:  # the others get what this thread leaves
            subscription.wake()
        # No call stands between these, so that an interrupt cannot separate them.
        subscription.seq += count
        subscription.open += count
        subscription.octets += len(octets)
        batch += messages
        core.inbound.before = messages[-1].frame
        del ahead[:]
        link.now = link.heard_at = now
        connection.skip(len(octets), now)
        if subscription.cumulative:
            subscription.last = messages[-1]
        return True

    def _is_between(self, connection: Connection) -> bool:
        """Return whether everything received has been handled, so that the next bytes begin a frame."""
        core = self._core
        return not (
            connection is not core.link.connection
            or connection.buffered
            or core.inbound.in_body  # whose bytes may look like a frame
            or core.inbound.backlog
        )

    def _messages(self, octets: bytes, connection: Connection, subscription: Subscription) -> list[BaseMessage]:
        """Return the messages in these bytes; none if there is anything else in them, or the end of one is missing.

        The bytes, at most `AHEAD`, are too few for a body that is streamed: see `options.SHORT`.
        """
        core = self._core
        options, make, epoch, seq = core.link.options, core.inbound.message_class, core.link.epoch, subscription.seq
        # It is taken out while in use, and dropped after an error or interrupt.
        parser, self._parser = self._parser, None
        if parser is None:
            parser = Parser(connection.version, limits=options.limits, lenient=options.lenient)
        try:
            frames = list(parser.feed(octets))
        except StompError:  # the I/O thread says so
            return []
        if parser.buffered:
            return []
        self._parser = parser
        if any(
            frame.command != "MESSAGE"
            or frame.get("subscription") != subscription.id
            or frame.get("message-id") is None
            or frame.get("destination") is None
            for frame in frames
        ):
            return []
        return [make(frame, subscription, epoch, at) for at, frame in enumerate(frames, seq + 1)]

    def _is_receipt(self, octets: bytes, id: str, version: str | None) -> bool:
        """Return whether these bytes are a RECEIPT with this id and no more."""
        name, (before, after) = id.encode(), self._shape
        if octets == b"%b%b%b" % (before, name, after):
            return True
        options = self._core.link.options
        try:
            (frame,) = parse(octets, version, lenient=options.lenient, limits=options.limits)
        except (StompError, ValueError):
            return False
        if frame.command != "RECEIPT" or frame.get("receipt-id") != id:
            return False
        before, line, after = octets.partition(b"\nreceipt-id:" + name)
        if line:  # else the header is not written plainly
            self._shape = (before + b"\nreceipt-id:", after)
        return True

    def writable(self, yes: bool) -> None:
        self._core.link.writable(yes)

    def lost(self, error: BaseException | None) -> None:
        core = self._core
        if self.connection is not None and core.link.connection is self.connection:
            core.link.lost(error, time.monotonic())
