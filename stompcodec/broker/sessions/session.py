"""Session: one connected peer.

The handlers of frames are in `commands.py`, receipts in `receipts.py`, and commits in
`commit.py`.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from stompcodec.broker.auth import User
from stompcodec.broker.connections import Deliverer, Holder, Maker
from stompcodec.broker.loop_quota import Line, Paused, Work
from stompcodec.broker.memory import below_cost, frame_cost, target_cost
from stompcodec.broker.message import LargeBody, Message
from stompcodec.broker.queues.consumer import Consumer, Source
from stompcodec.broker.queues.outbox import Outbox
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.registry import VirtualHost
from stompcodec.broker.routing.topic import Topic, who_counts
from stompcodec.broker.selectors import Texts
from stompcodec.broker.sessions.host import Handlers, Host, Terms, Windows
from stompcodec.broker.sessions.state import Footprint, SessionState
from stompcodec.broker.storage.journal import Batch
from stompcodec.broker.storage.large import Upload
from stompcodec.broker.values import Refused, Unready
from stompcodec.codec import END_OF_BODY, Frame
from stompcodec.connection import Connection, Role
from stompcodec.errors import ErrorFrame, RemoteProtocolError
from stompcodec.spec import VERSIONS
from stompcodec.states import State

#: Every header name with a capital letter that the broker looks up in client frames.
NAMES = (
    *("JMSXGroupID", "JMSXGroupSeq", "AMQ_SCHEDULED_DELAY", "_AMQ_DUPL_ID"),
    *("activemq.prefetchSize", "activemq.subscriptionName", "activemq.redeliveryDelay", "activemq.noLocal"),
)
_BY_FOLDED = {name.lower(): name for name in NAMES}
_FOLDED = tuple(_BY_FOLDED)


def restored(frame: Frame) -> Frame:
    """Return a legacy frame in which the headers in `NAMES` have their original spelling.

    A frame whose body is still to come is returned unchanged, because the parser fills in that very object.
    """
    if not frame.has_any(*_FOLDED) or frame.body is None:
        return frame
    pairs = [(_BY_FOLDED.get(name, name), value) for name, value in frame.headers.pairs()]
    return Frame(frame.command, pairs, frame.body)


#: Commands of frames that may name the message in whose handling they are sent.
_NAMING = ("SEND", "BEGIN", "COMMIT", "ABORT")


class Refusal(NamedTuple):
    """The refusal that ends a session."""

    frame: ErrorFrame | None = None
    """The refused frame; of a malformed one its beginning, or None."""
    is_whole: bool = True
    """It could be read as a frame."""
    counts: bool = True
    """Some message is at fault. False if the frame was refused for the state of the broker, as on a full disk, and for
    DISCONNECT."""


def at_fault(refusal: Refusal, consumers: Iterable[Consumer]) -> Message | None:
    """Return the message whose handling led to a refused frame; None if no delivery is unacknowledged.

    The frame may name it: those of `_NAMING` by the headers `ack`, its message-id, and `subscription`. Otherwise it is
    the first delivered, of all subscriptions the message that the broker accepted first: clients that handle one
    message after the other have acknowledged those before. Subscriptions with `attempts:named` are left out then, if
    the frame could have named one. A refused SUBSCRIBE blames none: programs subscribe before they handle anything.
    """
    frame = refusal.frame
    if not refusal.counts or (frame is not None and frame.command == "SUBSCRIBE"):
        return None
    holding = [each for each in consumers if each.unacked and each.address is None and not each.request.browser]
    if frame is not None and frame.command in _NAMING:
        named = next(_named(frame, holding), None)
        if named is not None:
            return named
        if refusal.is_whole:
            holding = [each for each in holding if not each.request.is_named]
    return min((each.unacked[min(each.unacked)] for each in holding), key=lambda message: message.seq, default=None)


def _named(frame: ErrorFrame, consumers: list[Consumer]) -> Iterator[Message]:
    name, key = frame.get("ack"), frame.get("subscription")
    if name is None:
        return
    ident = name.encode()
    for consumer in consumers:
        if key is None or consumer.key == key:
            yield from (message for message in consumer.unacked.values() if message.ident == ident)


_LEGACY = ("legacy",)
#: Versions whose sessions may send header names in lower case. Before CONNECT the version is unknown ("").
_MAY_FOLD = ("", "legacy")
#: Frames read between two looks at the clock.
EACH = 8
#: Queues that a session remembers having used.
_MOST_DECLARED = 1000


class Road(Protocol):
    """Reads the plain SENDs and ACKs of a session without frames: `src/hot/road.pyx`."""

    @property
    def left(self) -> int:
        """Frames until the next look at the clock, of both roads."""

    def begin(self, left: int) -> None:
        """Begin a share of the loop."""

    def close(self) -> None:
        """Leave all frames to Python from now on."""


class Session(SessionState):
    """One connected peer. `Broker.attach` makes it.

    The shell passes it received bytes (`receive`), tells it when the transport is full or lost (`writable`, `lost`),
    and writes the chunks from `take_output`. Then it checks two flags: `closing`, to close the transport when
    everything is written, and `paused`, to stop reading for a while.
    """

    __slots__ = (
        *("_blockers", "_early", "_frame", "_is_open", "_paused_at", "_rests", "_targets_cost", "client_id"),
        *("connection", "consumers", "declared", "discard", "exact", "failing", "foreign", "had_odd", "handlers"),
        *("hopeless", "id", "kept", "leaving", "listener", "maker", "more", "next_number", "owner", "paused", "peer"),
        *("refusal", "road", "sample", "secure", "selectors", "shared_batch", "since", "steps", "ttl", "upload"),
        *("user", "version", "virtual_host", "waits_on", "windows"),
    )

    broker: Host

    def __init__(
        self, broker: Host, id: str, now: float, *, peer: str, secure: bool, whole_frames: bool, listener: str
    ) -> None:
        config = broker.config
        self.broker = broker
        self.connection = connection = Connection(
            Role.SERVER,
            versions=_LEGACY if listener == "legacy" else (*VERSIONS, *_LEGACY) if config.detect_legacy else VERSIONS,
            commands=config.commands,
            version_header=config.version_header,
            limits=config.limits,
            first_limits=config.first_limits,
            stream_over=config.large - 1,
            lenient="server",
            heart_beat=config.heart_beat,
            whole_frames=whole_frames,
            now=now,
        )
        self.outbox = Outbox(broker, self, connection.output, whole_frames)
        self.memory = Footprint(broker.account)
        #: The handler of each command.
        self.handlers: Handlers = broker.handlers
        self.id = id
        self.peer, self.secure, self.listener = peer, secure, listener
        self.since = now
        self.received = self.acknowledged = 0
        #: What management keeps to tell rates.
        self.sample: object = None
        #: It is that of a page of another origin than the broker's own, or was passed on by a proxy.
        self.foreign = False
        self._begin_login()
        self._begin_input()
        self._begin_store()
        # Subscriptions, transactions and destinations.
        self.consumers: dict[str, Consumer] = {}
        self.by_number: dict[str, Consumer] = {}
        self.next_number = 1
        self.selectors = Texts()
        #: Unacknowledged messages of subscriptions that have ended, where they come again with the session's end only.
        self.kept: list[tuple[Source, Message]] | None = None
        self.windows = Windows(config.max_unacked, self.consumers)
        self.transactions = {}
        #: The queue or topic of each destination it has sent to.
        self.cached_targets = {}
        self._targets_cost = 0
        #: Queues it has used, recorded where queue arguments are checked; None for none.
        self.declared: dict[str, None] | None = None

    def _begin_login(self) -> None:
        #: "" before CONNECT.
        self.version = ""
        #: Header values are used unchanged; in 1.0 they may have spaces around them.
        self.exact = True
        #: Its SENDs may take the quick road.
        self.plain = False
        #: Takes plain SENDs and ACKs before they are frames: see hot.py. None if all become frames.
        self.road: Road | None = None
        #: The silence after which the peer counts as dead, where the broker sets it; None if only heart-beats count.
        self.ttl: Terms | None = None
        #: The client-id of CONNECT; None without one.
        self.client_id: str | None = None
        self.user: User
        #: The owner of what the session creates; None where all clients are one user.
        self.owner: str | None = None
        self.virtual_host: VirtualHost
        #: Represents the session as a creator of destinations; None until it has created one.
        self.maker: Maker | None = None

    def _begin_input(self) -> None:
        #: A large message being received.
        self.upload: Upload | None = None
        #: The remaining steps of a frame that takes several turns, the frame, and the bytes received meanwhile.
        self.steps: Iterator[Line] | None = None
        self._frame: Frame | None = None
        self._early = b""
        #: Set by the shell: called in the session's turn, when everything passed to `receive` is done.
        self.more: Callable[[], None] | None = None
        #: Set by the shell if there are layers below: makes them drop their buffers and accept no more. A transport may
        #: be read many times before the shell looks at a session that has ended.
        self.discard: Callable[[], None] | None = None
        #: The peer is not read; since when; and what the session waits for.
        self.paused = False
        self._paused_at = 0.0
        self._blockers: set[Holder] = set()
        #: Received frames were left for later.
        self._rests = False
        #: A header had a value that the dialect ignores, and the log says so.
        self.had_odd = False

    def _begin_store(self) -> None:
        #: The commit that receipts wait for, and the batch of an earlier commit that they wait for as well.
        self.pending_commit = None
        self.shared_batch: Batch | None = None
        #: The batch of a transaction that is being committed: later SENDs take effect after it.
        self.behind: Batch | None = None
        #: What took effect by a commit must itself be stored.
        self.waits_on = False
        #: The transport accepts more.
        self._is_open = True
        # The end. The shell closes the transport when everything is written, or at once (hopeless).
        self.closing = False
        self.hopeless = False
        #: The refusal of a frame, which ends the session.
        self.refusal: Refusal | None = None
        #: The transport is lost, but not all that was received from it is done.
        self.leaving = False
        #: A message could not be written to it: it receives no more and ends with this turn.
        self.failing = False
        #: It receives nothing any more.
        self.ended = False

    def __repr__(self) -> str:
        return f"<Session {self.id} {self.peer} {self.version or 'not connected'}>"

    # ---- input ----
    def receive(self, data: Any, now: float) -> None:
        """Process received bytes, which are not kept. After an error the peer gets ERROR, and the session ends."""
        if self.ended:
            return
        self.broker.now = now
        if self.steps is not None:
            self._early += bytes(data)
            self._note_pending(self.connection.buffered)
            return
        frame: Frame | None = None
        handlers = self.handlers
        left, account, road = EACH, self.broker.account, self.road
        if road is not None:
            road.begin(EACH)
        try:
            frames = self.connection.receive(data, now)
            if self.version in _MAY_FOLD:
                frames = map(self._spelled, frames)
            for frame in frames:
                handlers[frame.command](self, frame)
                if self.closing:
                    break
                road = self.road
                left = left - 1 if road is None else road.left
                if left <= 0:
                    if self.broker.quota.used_up(now):
                        self.wait_for_turn()
                        break
                    left = EACH
                    if account.used > account.first:  # memory is short
                        left = 1
                        if self.paused and not self.leaving:
                            self.rest()
                            break
                    if road is not None:
                        road.begin(left)
        except Paused:
            pass
        except Exception as error:
            self.answer_error(error, frame)
        outbox, memory = self.outbox, self.memory
        if outbox.chunks and not outbox.dirty:
            outbox.schedule_flush()
        buffered = self.connection.buffered
        if buffered or memory.pending or memory.below or self.upload is not None:
            self._note_pending(buffered)
        if account.held > account.reserve:
            self.broker.relieve()

    def answer_error(self, error: Exception, frame: Frame | None) -> None:
        """End the session after an error in handling a frame, or in the received bytes (None)."""
        if isinstance(error, RemoteProtocolError):
            self.refusal = Refusal(error.frame, is_whole=False)
        else:
            self.refusal = Refusal(frame, counts=not isinstance(error, Unready))
        if isinstance(error, Refused):
            self.fail(error.message, error.remedy, frame)
        elif isinstance(error, RemoteProtocolError):
            self.refuse(str(error), error.reply)
        else:
            self.broker.log.error("%s: a fault of the broker", self, exc_info=error)
            self.fail("internal error", "See the broker's log.", frame)

    def _spelled(self, frame: Frame) -> Frame:
        """Return a frame with header names spelled as the broker knows them."""
        return restored(frame) if self.connection.version == "legacy" else frame

    def _note_pending(self, buffered: int) -> None:
        """Account for received bytes that are not a complete frame, or that wait for the session's turn."""
        if self.ended:
            return
        if self.waits_for_turn:  # complete frames, and reading has stopped
            pending = buffered + len(self._early)
        else:
            pending = frame_cost(buffered)
        if self.memory.below:
            pending += below_cost(self.memory.below)
        if self.upload is not None:
            pending += self.upload.cost
        self.memory.hold_pending(pending)

    def note_below(self, octets: int) -> None:
        """Set the number of bytes that the layers below have received and not passed on."""
        self.memory.below = octets
        self._note_pending(self.connection.buffered)
        if self.broker.account.is_overheld:
            self.broker.relieve()

    def exhaust(self) -> None:
        """End the session, which holds more memory than any other, because memory is short."""
        holds, unread = self.memory.spare, self.memory.unwritten * 2 > self.memory.spare
        self.broker.log.warning("%s: ended to free memory: it held %d bytes", self, holds)
        remedy = (
            f"The broker's limits.memory is reached, and this session held most: {holds} bytes of unfinished frames, "
            "open transactions and unread output. Send smaller frames, COMMIT sooner, or read faster."
        )
        self.fail("the broker is short of memory", remedy)
        if unread:
            self.hopeless = True
            self.cut()

    def wait_for_turn(self) -> None:
        """Let other sessions run. Unread bytes stay with the connection or the shell, and reading stops."""
        quota = self.broker.quota
        if self.block(quota):
            quota.line_up(self)

    def take_turn(self, now: float) -> None:
        """Continue with received frames, unless memory is short and the session also waits for something else."""
        short = self.broker.account.is_short
        if short and self.is_held_up and not self.leaving and self.steps is None:
            self.rest()
            return
        self.unblock(self.broker.quota)
        if self.steps is not None and not self._is_done():
            return
        if short and self.paused and not self.leaving:
            self.rest()
            return
        early, self._early = self._early, b""
        self.receive(early, now)
        if self.more is not None and not self.waits_for_turn:
            self.more()

    def _is_done(self) -> bool:
        """Do the next step of a frame. Return True if it was the last one."""
        try:
            self._step()
        except Exception as error:
            self.answer_error(error, self._frame)
        if self.outbox.chunks:
            self.outbox.schedule_flush()
        return self.steps is None

    def work(self, frame: Frame, steps: Iterator[Line]) -> None:
        """Process a frame in steps: all of them before the next frame. Raise Paused if some are left."""
        self.steps, self._frame = steps, frame
        self._step()
        if self.steps is not None:
            raise Paused

    def _step(self) -> None:
        steps = self.steps
        assert steps is not None
        line = next(steps, None)
        if line is None:
            self.steps = self._frame = None
        elif self.steps is steps:  # else the session has ended, and the rest is done without it
            self.block(self.broker.quota)
            line.line_up(self)

    def lost(self, now: float, error: BaseException | None = None) -> None:
        """End the session, whose transport was lost or closed. Unacknowledged messages return to their queues."""
        self.broker.now = now
        quota = self.broker.quota
        self.leaving = True
        while self.waits_for_turn:  # frames that were already read from the transport still count
            quota.blocked.pop(self, None)
            self.unblock(quota)
            if self.broker.account.is_full:  # no receipts were sent for them, so they may be dropped
                break
            self.receive(b"", now)
        self.closing = True
        if self.broker.lose(self, error):
            self.outbox.send_budget, self.outbox.flowing = 0, False
        else:
            self.leave(now, error)

    def leave(self, now: float, error: BaseException | None) -> None:
        """Finish `lost`, some turns later if many transports are lost at once."""
        self.end()
        self.broker.detach(self)
        try:
            self.connection.close(now)
        except RemoteProtocolError as truncated:
            error = error or _untraced(truncated)
        if error is not None:
            self.broker.log.info("%s: lost: %s", self, error)
        self.outbox.detach()

    def end(self) -> None:
        """Release everything: transactions first, because they hold deliveries; then all consumers at once."""
        if self.ended:
            return
        self.ended = True
        if self.steps is not None:  # its last frame is completed, in the line where it waits
            quota = self.broker.quota
            ahead = quota.front.blocked.pop(self, self) is None
            (quota.front if ahead else quota).line_up(Work(self.steps))
            self.steps = self._frame = None
        self.outbox.send_budget = 0  # returned messages must not be delivered here again
        if self.road is not None:
            self.road.close()
            self.road = None
        orphans, self.kept = self.kept or [], None
        orphans += [pair for transaction in self.transactions.values() for pair in transaction.abort()]
        self.transactions = {}
        discard, self.discard = self.discard, None
        if discard is not None:
            discard()
        self.memory.release()
        self._targets_cost = 0
        consumers = list(self.consumers.values())
        self.consumers.clear()
        self.by_number, self.cached_targets, self.declared = {}, {}, None
        if self.upload is not None:
            self.upload.drop()
            self.upload = None
        self.more = None
        if self.version:
            refusal = self.refusal
            self.refusal = None if refusal is None else Refusal()  # its frame may be large
            if refusal is None:
                self.virtual_host.stop(consumers, orphans)
            else:
                self.virtual_host.stop(consumers, orphans, True, at_fault(refusal, consumers))
            self.virtual_host.forget(self)
        for blocker in self._blockers:
            blocker.blocked.pop(self, None)
        self._blockers.clear()
        self._rests = False

    # ---- answers ----
    def reply(self, octets: bytes) -> None:
        """Send the answer to a frame."""
        self.outbox.chunks.append(octets)
        self.count_unread(len(octets))

    def count_unread(self, octets: int) -> None:
        """Count an answer that the peer has not read. With too many of them, stop reading the peer."""
        outbox = self.outbox
        if not outbox.flowing:
            outbox.unread += octets
            if outbox.is_clogged:
                self._look_paused()

    def fault(self, queue: Deliverer, message: Message | None, error: Exception) -> None:
        """Record that a message, or an answer (None), could not be written: the session receives no more and ends with
        this turn.

        It does not end at once, because the caller is in the middle of a queue. That queue dispatches again when the
        session has ended.
        """
        self.outbox.send_budget = 0
        if self.failing or self.ended:
            return
        self.failing = True
        self.broker.failing.append((self, queue))
        what = "an answer" if message is None else f"message {message.id}"
        self.broker.log.error(
            "%s: %s from %s cannot be written, the session ends", self, what, queue.name, exc_info=error
        )

    def fail(self, message: str, remedy: str = "", frame: Frame | None = None) -> None:
        """Send ERROR after all pending output, and end the session."""
        if self.ended:
            return
        headers = [("message", message), ("content-type", "text/plain")]
        receipt = None if frame is None or frame.command in ("CONNECT", "STOMP") else self.header(frame, "receipt")
        if receipt is not None:
            headers.append(("receipt-id", receipt))
        self.refuse(message, Frame("ERROR", headers, f"{remedy or message}\n".encode()))

    def too_slow(self, destination: str) -> None:
        """End the session because the backlog of its subscription to a topic is full."""
        self.fail("slow consumer", f"The backlog of the subscription to {destination} is full.")

    def refuse(self, message: str, reply: ErrorFrame | None) -> None:
        """Log a message, send the ERROR frame if there is one, and end the session."""
        if self.closing:
            return
        self.broker.log.info("%s: %s", self, message)
        self.end()
        chunks = self.outbox.chunks
        if self.outbox.downloads:  # inside a body, the peer would not see an ERROR
            self.cut()
            return
        if isinstance(reply, Frame):
            before = len(chunks)
            self.connection.send(reply)
            if self.pending_commit is not None:  # receipts of earlier frames go out first
                self.pending_commit.receipts.extend(chunks[before:])
                del chunks[before:]
        self.close()

    def close(self) -> None:
        """End the session. The transport closes when all output is written, with receipts that wait for a commit."""
        self.end()
        if self.outbox.downloads:
            self.broker.watch(self)
        elif self.pending_commit is None:
            self.closing = True
            self.outbox.schedule_flush()

    def cut(self) -> None:
        """Close the transport now, even in the middle of a large message."""
        self.outbox.discard()
        self.closing = True
        self.outbox.schedule_flush()

    def header(self, frame: Frame, name: str) -> str | None:
        """Return a header value as the session's STOMP version defines it."""
        value = frame.get(name)
        return value if self.exact or value is None else value.strip(" ")

    def take_large(self, frame: Frame, done: Callable[[Frame, LargeBody], object]) -> None:
        """Receive the body of a large SEND in pieces. `done` is called with the SEND and with the complete body."""
        owner = who_counts(self, self.broker.config.users is not None)
        self.upload = Upload(self.broker.spool, frame, done, f"of {owner}")
        self.upload.frame = self._spelled(self.upload.frame)
        self.broker.uploads.add(self)
        self.connection.on_piece = self._take_piece

    def _take_piece(self, piece: Any) -> None:
        upload = self.upload
        if upload is None or self.ended:
            return
        try:
            upload.take(piece)
        except Refused as error:
            self.answer_error(error, upload.frame)
        if piece is END_OF_BODY:
            self.upload = None

    def tick(self, now: float) -> bool:
        """Send and check heart-beats. Return False if the peer is dead."""
        if self.paused:  # while it is not read, its silence means nothing
            self.connection.excuse(now - self._paused_at, now)
            self._paused_at = now
        alive = self.connection.tick(now)
        if self.outbox.chunks:
            self.outbox.schedule_flush()
        return alive

    @property
    def connected(self) -> bool:
        return self.connection.state is State.CONNECTED

    # ---- output, to the shell ----
    def take_output(self) -> list[bytes]:
        """Return the chunks to write, and renew the send budget."""
        if self.paused:
            for holder in list(self._blockers):  # ACKs of its deliveries would free memory
                if getattr(holder, "is_too_large", False) and self.acknowledges(holder):
                    holder.blocked.pop(self, None)
                    self.unblock(holder)
        outbox = self.outbox
        if outbox.downloads:
            return self._take_downloads()
        chunks = self.connection.take_output(self.broker.now)
        if outbox.flowing and not (self.ended or self.failing):
            budget, most = self.broker.send_budget, outbox.most
            outbox.send_budget = budget if budget < most else most
            if outbox.starved:
                self.broker.resume(self)
        return chunks

    def _take_downloads(self) -> list[bytes]:
        if not self._is_open:
            return []
        outbox = self.outbox
        try:
            chunks = outbox.take_download()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):  # the message itself may be intact
                self.broker.lacking_files.append(self)
                return []
            self.broker.log.error("%s: a large message cannot be read: %s", self, error)
            outbox.downloads[0].failed(error)
            self.cut()
            return []
        if outbox.downloads:
            outbox.schedule_flush()
            return chunks
        self.writable(True, self.broker.now)
        self.closing = self.ended and self.pending_commit is None
        return chunks + self.take_output()

    def writable(self, yes: bool, now: float) -> None:
        """Stop deliveries when the transport is full (False), resume them when it has room again (True)."""
        outbox = self.outbox
        self._is_open = yes
        if outbox.downloads:
            if yes:
                outbox.schedule_flush()
            return
        outbox.flowing = yes
        if self.ended or self.failing:
            return
        if not yes:
            outbox.send_budget = 0
            return
        outbox.send_budget = min(self.broker.send_budget, outbox.most)
        outbox.unread = 0
        self._look_paused()
        if outbox.starved:
            self.broker.resume(self)

    def refill(self) -> int:
        """Deliver more to the consumers, since there is room again. Return the number of messages delivered."""
        outbox = self.outbox
        if not outbox.starved or outbox.send_budget <= 0 or self.ended:
            return 0
        outbox.starved = False
        return sum(consumer.queue.offer(consumer) for consumer in list(self.consumers.values()))

    def note_unwritten(self, octets: int) -> None:
        """Set the number of bytes that the transport has not written yet."""
        self.memory.hold_unwritten(octets + self.outbox.waiting, self.ended)

    # ---- destinations ----
    def cache_target(self, destination: str, queue: Queue | Topic) -> None:
        cost = 0 if destination in self.cached_targets else target_cost(destination)
        self.cached_targets[destination] = queue
        self.broker.senders[self] = None
        self._targets_cost += cost
        self.memory.charge(cost)

    def forget_targets(self) -> None:
        """Forget all cached targets, so that the next SENDs look them up again."""
        self.cached_targets.clear()
        if self._targets_cost:
            self.memory.charge(-self._targets_cost)
            self._targets_cost = 0

    def declare(self, queue: str) -> bool:
        """Record that the session uses a queue. Return True if it is known to have used it before."""
        if self.declared is None:
            self.declared = {}
        if queue in self.declared:
            return True
        if len(self.declared) >= _MOST_DECLARED:
            oldest = next(iter(self.declared))
            del self.declared[oldest]
            self.memory.charge(-target_cost(oldest))
        self.declared[queue] = None
        self.memory.charge(target_cost(queue))
        return False

    # ---- waiting ----
    def block(self, holder: Holder) -> bool:
        """Wait until a queue, or the store, has room again. Return False if it already waits there, or must not.

        A session that also consumes the queue must not block: only its own ACKs would free room. Its next SEND is
        refused instead.
        """
        if holder in self._blockers or self.ended or self.acknowledges(holder):
            self.forget_targets()  # so that the next SEND checks the queue again
            return False
        self._blockers.add(holder)
        self._look_paused()
        return True

    def unblock(self, holder: Holder) -> None:
        """Stop waiting: there is room again."""
        self._blockers.discard(holder)
        self._look_paused()

    @property
    def waits_for_turn(self) -> bool:
        """The session has used up its share of the loop, and received frames are left."""
        return self.broker.quota in self._blockers

    @property
    def is_held_up(self) -> bool:
        """A session that waits for its turn also waits for something else."""
        return len(self._blockers) > 1 or self.outbox.is_clogged

    def rest(self) -> None:
        """Leave received frames where they are while the session waits for something."""
        self._rests = True
        self._blockers.add(self.broker.quota)
        self._look_paused()

    def _look_rest(self) -> None:
        """Queue for a turn once the session waits for nothing else."""
        if not self.is_held_up or self.leaving:
            self._rests = False
            self.broker.quota.line_up(self)

    def depart(self) -> None:
        """Record that the transport is lost. Frames already read still count, and wait only for their turn."""
        self.leaving = True
        if self._rests:
            self._look_rest()

    def acknowledges(self, holder: object) -> bool:
        """Return True if the session's own ACKs would free room in a queue, or in memory when that is short."""
        consumers = self.consumers.values()
        if any(consumer.queue.home is holder and consumer.acks for consumer in consumers):
            return True
        short = getattr(holder, "is_too_large", False)
        return short and any(consumer.acks and consumer.unacked for consumer in consumers)

    def _look_paused(self) -> None:
        if self._rests:
            self._look_rest()
        paused = bool(self._blockers) or self.outbox.is_clogged
        if paused is self.paused:
            return
        now = self.broker.now
        if paused:
            self._paused_at = now
        else:
            self.connection.excuse(now - self._paused_at, now)
        self.paused = paused
        self.outbox.schedule_flush()


def _untraced(error: Exception) -> Exception:
    """Drop the tracebacks of an error and its causes, because they form reference cycles with it."""
    chain: list[BaseException | None] = [error]
    while chain:
        each = chain.pop()
        if each is not None:
            each.__traceback__ = None
            chain += [each.__cause__, each.__context__]
    return error
