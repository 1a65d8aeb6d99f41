"""Session: one connected peer, in more than 600 lines, for its input, output, waiting and end depend on each other.

`commands.py` has what the frames of a peer do, `outbox.py` what waits to be written, `receipts.py` what waits for a
commit, and `footprint.py` what the session takes of the memory.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from stompcodec.broker.errors import Refused
from stompcodec.broker.loop_quota import Line, Paused, Work
from stompcodec.broker.memory import below_cost, frame_cost, target_cost
from stompcodec.broker.queues.texts import Texts
from stompcodec.broker.routing.shares import owner_of
from stompcodec.broker.sessions.connection_ttl import Terms
from stompcodec.broker.sessions.footprint import Footprint
from stompcodec.broker.sessions.outbox import Outbox
from stompcodec.broker.sessions.spelling import restored
from stompcodec.broker.sessions.transaction import Transaction
from stompcodec.broker.sessions.windows import Windows
from stompcodec.broker.storage.large import Intake
from stompcodec.codec import END_OF_BODY, Frame
from stompcodec.connection import Connection, Role
from stompcodec.errors import ErrorFrame, RemoteProtocolError
from stompcodec.spec import VERSIONS
from stompcodec.states import State

if TYPE_CHECKING:
    from stompcodec.broker.auth import User
    from stompcodec.broker.context import Handlers, Host
    from stompcodec.broker.message import LargeBody, Message
    from stompcodec.broker.peer import Deliverer, Holder, Maker
    from stompcodec.broker.queues.consumer import Consumer
    from stompcodec.broker.queues.queue import Queue
    from stompcodec.broker.routing.topic import Topic
    from stompcodec.broker.routing.virtual_host import VirtualHost
    from stompcodec.broker.storage.journal import Batch, CommitWaiter

__all__ = ["Session"]

_LEGACY = ("legacy",)
#: Versions whose sessions may send header names in lower case. Without one yet, a CONNECT has to tell.
_MAY_FOLD = ("", "legacy")
#: Frames that are read between two looks at the clock.
_EACH = 8
#: Queues that a session remembers to have used.
_MOST_DECLARED = 1000


class Session:
    """One peer, as the broker and the shell see it. `Broker.attach` makes it.

    The shell gives it what came (`receive`), tells it when the transport is full or gone (`writable`, `lost`), and
    writes what `take_output` hands over. It looks at two flags after that: `closing`, to close the transport once
    all is written, and `paused`, to stop reading for a while.
    """

    __slots__ = (
        *("_blockers", "_early", "_frame", "_is_open", "_paused_at", "_rests", "_targets_cost", "behind", "broker"),
        *("by_number", "cached_targets", "client_id", "closing", "connection", "consumers", "declared", "discard"),
        *("ended", "exact", "failing", "handlers", "hopeless", "id", "intake", "leaving", "listener", "maker"),
        *("memory", "more", "next_number", "outbox", "owner", "paused", "peer", "pending_commit", "plain"),
        *("secure", "selectors", "shared_batch", "steps", "transactions", "ttl", "user", "version", "waits_on"),
        *("virtual_host", "windows"),
    )

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
            heart_beat=config.heart_beat,
            whole_frames=whole_frames,
            now=now,
        )
        self.outbox = Outbox(broker, self, connection.output, whole_frames)
        self.memory = Footprint(broker.account)
        #: Command -> what a frame of it does.
        self.handlers: Handlers = broker.handlers
        self.id = id
        self.peer, self.secure, self.listener = peer, secure, listener
        self._begin_login()
        self._begin_input()
        self._begin_store()
        # Subscriptions, transactions, and the destinations that it uses.
        self.consumers: dict[str, Consumer] = {}
        self.by_number: dict[str, Consumer] = {}
        self.next_number = 1
        self.selectors = Texts()
        self.windows = Windows(config.max_unacked, self.consumers)
        self.transactions: dict[str, Transaction] = {}
        #: Where its SENDs go, for destinations that it has sent to.
        self.cached_targets: dict[str, Queue | Topic] = {}
        self._targets_cost = 0
        #: Queues that it has used, where their arguments are checked; None for none.
        self.declared: dict[str, None] | None = None

    def _begin_login(self) -> None:
        #: "" before CONNECT.
        self.version = ""
        #: Header values are taken as they are; 1.0 has spaces around them.
        self.exact = True
        #: Its SENDs may take the quick road.
        self.plain = False
        #: The silence after which it counts as dead, where the broker sets that; None for its heart-beats alone.
        self.ttl: Terms | None = None
        #: The client-id of its CONNECT; None without.
        self.client_id: str | None = None
        self.user: User
        #: The owner of what it makes and leaves behind; None where all clients are one user.
        self.owner: str | None = None
        self.virtual_host: VirtualHost
        #: What stands for it where it makes destinations; None as long as it has made none.
        self.maker: Maker | None = None

    def _begin_input(self) -> None:
        #: A large message that is coming in.
        self.intake: Intake | None = None
        #: What is left to do of a frame that takes several turns, that frame, and what came meanwhile.
        self.steps: Iterator[Line] | None = None
        self._frame: Frame | None = None
        self._early = b""
        #: Set by the shell: called when its turn has come and all that `receive` had got is done.
        self.more: Callable[[], None] | None = None
        #: Set by the shell where there are layers below: has them drop what they keep, and take no more. A transport
        #: may be read many times before the shell looks at a session that has ended.
        self.discard: Callable[[], None] | None = None
        #: It is not read, since when, and what it waits for.
        self.paused = False
        self._paused_at = 0.0
        self._blockers: set[Holder] = set()
        #: Something that its peer has sent was left for later.
        self._rests = False

    def _begin_store(self) -> None:
        #: The commit that its receipts follow; and the batch of an earlier one that they follow, too.
        self.pending_commit: CommitWaiter | None = None
        self.shared_batch: Batch | None = None
        #: What it sends takes effect behind this commit, which its transaction waits for.
        self.behind: Batch | None = None
        #: What took effect by a commit has to be stored itself.
        self.waits_on = False
        #: The transport takes more.
        self._is_open = True
        # How it ends. The shell closes the transport: when all is written, or at once.
        self.closing = False
        self.hopeless = False
        #: Its transport is gone, but not all that came from there is done.
        self.leaving = False
        #: A message could not be written to it: it gets no more, and ends with this turn.
        self.failing = False
        #: It gets nothing any more.
        self.ended = False

    def __repr__(self) -> str:
        return f"<Session {self.id} {self.peer} {self.version or 'not connected'}>"

    # ---- input ----

    def receive(self, data: Any, now: float) -> None:
        """Do what the peer asks for. Faults of the peer are answered by ERROR, which ends the session; none is raised.

        Args:
            data: bytes-like. It is not kept.
            now: the time in seconds.
        """
        if self.ended:
            return
        self.broker.now = now
        if self.steps is not None:
            self._early += bytes(data)
            self._note_pending(self.connection.buffered)
            return
        frame: Frame | None = None
        handlers = self.handlers
        left, account = _EACH, self.broker.account
        try:
            frames = self.connection.receive(data, now)
            if self.version in _MAY_FOLD:
                frames = map(self._spelled, frames)
            for frame in frames:
                handlers[frame.command](self, frame)
                if self.closing:
                    break
                left -= 1
                if not left:
                    if self.broker.quota.used_up(now):
                        self.wait_for_turn()
                        break
                    left = _EACH
                    if account.used > account.first:  # memory is short
                        left = 1
                        if self.paused and not self.leaving:
                            self.rest()
                            break
        except Paused:
            pass
        except Exception as error:
            self._answer_error(error, frame)
        outbox, memory = self.outbox, self.memory
        if outbox.chunks and not outbox.dirty:
            outbox.schedule_flush()
        buffered = self.connection.buffered
        if buffered or memory.pending or memory.below or self.intake is not None:
            self._note_pending(buffered)
        if account.held > account.reserve:
            self.broker.relieve()

    def _answer_error(self, error: Exception, frame: Frame | None) -> None:
        if isinstance(error, Refused):
            self.fail(error.message, error.remedy, frame)
        elif isinstance(error, RemoteProtocolError):
            self.refuse(str(error), error.reply)
        else:
            self.broker.log.exception("%s: a fault of the broker", self)
            self.fail("internal error", "The broker's log tells more.", frame)

    def _spelled(self, frame: Frame) -> Frame:
        """Return a frame with the spelling of names that the broker knows."""
        return restored(frame) if self.connection.version == "legacy" else frame

    def _note_pending(self, buffered: int) -> None:
        """Account for bytes that have come and are not a frame yet, or wait for the session's turn."""
        if self.ended:
            return
        if self.waits_for_turn:  # whole frames, of which no more are read
            pending = buffered + len(self._early)
        else:
            pending = frame_cost(buffered)
        if self.memory.below:
            pending += below_cost(self.memory.below)
        if self.intake is not None:
            pending += self.intake.cost
        self.memory.hold_pending(pending)

    def note_below(self, octets: int) -> None:
        """Count the bytes that the layers below have received and not handed over."""
        self.memory.below = octets
        self._note_pending(self.connection.buffered)
        if self.broker.account.is_overheld:
            self.broker.relieve()

    def exhaust(self) -> None:
        """End the session: memory is short, and it holds more than any other."""
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
        """Let other sessions run. What is left stays with the connection or the shell, and no more is read."""
        quota = self.broker.quota
        if self.block(quota):
            quota.line_up(self)

    def take_turn(self, now: float) -> None:
        """Go on with what its peer has sent, unless memory is short and the session waits for something else, too."""
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
        """Do a share of what a frame asks for. Return True if that was the last one."""
        try:
            self._step()
        except Exception as error:
            self._answer_error(error, self._frame)
        if self.outbox.chunks:
            self.outbox.schedule_flush()
        return self.steps is None

    def work(self, frame: Frame, steps: Iterator[Line]) -> None:
        """Do what a frame asks for in shares: the first one now, and all of them before the next frame.

        Raises:
            Paused: shares are left. `receive` catches it.
        """
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
        elif self.steps is steps:  # else the session has ended, and others do the rest
            self.block(self.broker.quota)
            line.line_up(self)

    def lost(self, now: float, error: BaseException | None = None) -> None:
        """End the session: its transport is gone. What it did not acknowledge goes back to the queues.

        Args:
            now: the time in seconds.
            error: why; None when the peer ended it.
        """
        self.broker.now = now
        quota = self.broker.quota
        self.leaving = True
        while self.waits_for_turn:  # what it has sent counts, and it was read from the transport already
            quota.blocked.pop(self, None)
            self.unblock(quota)
            if self.broker.account.is_full:  # but nobody has a receipt for it
                break
            self.receive(b"", now)
        self.closing = True
        if self.broker.lose(self, error):
            self.outbox.send_budget, self.outbox.flowing = 0, False  # it gets nothing any more
        else:
            self.leave(now, error)

    def leave(self, now: float, error: BaseException | None) -> None:
        """Finish `lost`: some turns later where many transports are lost at once."""
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
        """Give everything back: transactions first, for they hold deliveries; then all consumers at once."""
        if self.ended:
            return
        self.ended = True
        if self.steps is not None:  # what it has asked for is done to the end, in the line where it waits
            quota = self.broker.quota
            ahead = quota.front.blocked.pop(self, self) is None
            (quota.front if ahead else quota).line_up(Work(self.steps))
            self.steps = self._frame = None
        self.outbox.send_budget = 0  # nothing that goes back may come here again
        orphans = [pair for transaction in self.transactions.values() for pair in transaction.abort()]
        self.transactions = {}
        discard, self.discard = self.discard, None
        if discard is not None:
            discard()
        self.memory.release()
        self._targets_cost = 0
        consumers = list(self.consumers.values())
        self.consumers.clear()
        self.by_number, self.cached_targets, self.declared = {}, {}, None
        if self.intake is not None:
            self.intake.drop()
            self.intake = None
        self.more = None
        if self.version:
            self.virtual_host.stop(consumers, orphans)
            self.virtual_host.forget(self)
        for blocker in self._blockers:
            blocker.blocked.pop(self, None)
        self._blockers.clear()
        self._rests = False

    # ---- answers ----

    def reply(self, octets: bytes) -> None:
        """Send a frame that answers one of the peer's."""
        self.outbox.chunks.append(octets)
        self.count_unread(len(octets))

    def count_unread(self, octets: int) -> None:
        """Count an answer that waits for the peer. Do not read a peer that makes too many of them and reads none."""
        outbox = self.outbox
        if not outbox.flowing:
            outbox.unread += octets
            if outbox.is_clogged:
                self._look_paused()

    def fault(self, queue: Deliverer, message: Message | None, error: Exception) -> None:
        """Note that something could not be written: the session gets no more, and ends with this turn.

        It does not end at once, for whoever delivers is in the middle of a queue.

        Args:
            queue: where the message came from. It delivers again when the session has ended.
            message: what could not be written; None for an answer.
            error: why.
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
        """Send ERROR, behind what waits to be written, and end the session."""
        if self.ended:
            return
        headers = [("message", message), ("content-type", "text/plain")]
        receipt = None if frame is None or frame.command in ("CONNECT", "STOMP") else self.header(frame, "receipt")
        if receipt is not None:
            headers.append(("receipt-id", receipt))
        self.refuse(message, Frame("ERROR", headers, f"{remedy or message}\n".encode()))

    def too_slow(self, destination: str) -> None:
        """End the session: the backlog of its subscription to a topic is full."""
        self.fail("slow consumer", f"The backlog of the subscription to {destination} is full.")

    def refuse(self, message: str, reply: ErrorFrame | None) -> None:
        """Send a frame, if there is one, and end the session; `message` is for the log."""
        if self.closing:
            return
        self.broker.log.info("%s: %s", self, message)
        self.end()
        chunks = self.outbox.chunks
        if self.outbox.parcels:  # an ERROR inside of a body would be no ERROR
            self.cut()
            return
        if isinstance(reply, Frame):
            before = len(chunks)
            self.connection.send(reply)
            if self.pending_commit is not None:  # receipts of frames before it go out before it
                self.pending_commit.receipts.extend(chunks[before:])
                del chunks[before:]
        self.close()

    def close(self) -> None:
        """End the session. The transport is closed when what waits, also for the store, is written."""
        self.end()
        if self.outbox.parcels:
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
        """Return a header as the version of this session means it."""
        value = frame.get(name)
        return value if self.exact or value is None else value.strip(" ")

    def take_large(self, frame: Frame, done: Callable[[Frame, LargeBody], object]) -> None:
        """Receive the body of a large SEND in pieces.

        Args:
            frame: the SEND.
            done: called with the SEND, without its body, and with the body, when all of it is there.
        """
        owner = owner_of(self, self.broker.config.users is not None)
        self.intake = Intake(self.broker.spool, frame, done, f"of {owner}")
        self.intake.frame = self._spelled(self.intake.frame)
        self.broker.uploads.add(self)
        self.connection.on_piece = self._take_piece

    def _take_piece(self, piece: Any) -> None:
        intake = self.intake
        if intake is None or self.ended:
            return
        try:
            intake.take(piece)
        except Refused as error:
            self.fail(error.message, error.remedy, intake.frame)
        if piece is END_OF_BODY:
            self.intake = None

    def tick(self, now: float) -> bool:
        """Send and check heart-beats. Return False if the peer is dead."""
        if self.paused:  # we do not read, so its silence says nothing
            self.connection.excuse(now - self._paused_at)
            self._paused_at = now
        alive = self.connection.tick(now)
        if self.outbox.chunks:
            self.outbox.schedule_flush()
        return alive

    @property
    def connected(self) -> bool:
        """CONNECTED was sent."""
        return self.connection.state is State.CONNECTED

    # ---- output, to the shell ----

    def take_output(self) -> list[bytes]:
        """Hand over what is to be written, and let consumers have more."""
        if self.paused:
            self._look_blockers()
        outbox = self.outbox
        if outbox.parcels:
            return self._take_parcels()
        chunks = self.connection.take_output(self.broker.now)
        if outbox.flowing and not (self.ended or self.failing):
            outbox.send_budget = self.broker.send_budget
            if outbox.starved:
                self.broker.resume(self)
        return chunks

    def _take_parcels(self) -> list[bytes]:
        if not self._is_open:
            return []
        outbox = self.outbox
        try:
            chunks = outbox.take_parcel()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):  # that says nothing of the message
                self.broker.lacking_files.append(self)
                return []
            self.broker.log.error("%s: a large message cannot be read: %s", self, error)
            outbox.parcels[0].failed(error)
            self.cut()
            return []
        if outbox.parcels:
            outbox.schedule_flush()
            return chunks
        self.writable(True, self.broker.now)
        self.closing = self.ended and self.pending_commit is None
        return chunks + self.take_output()

    def writable(self, yes: bool, now: float) -> None:
        """Stop or resume deliveries: the transport has taken enough (False), or has room again (True)."""
        outbox = self.outbox
        self._is_open = yes
        if outbox.parcels:
            if yes:
                outbox.schedule_flush()
            return
        outbox.flowing = yes
        if self.ended or self.failing:
            return
        if not yes:
            outbox.send_budget = 0
            return
        outbox.send_budget = self.broker.send_budget
        outbox.unread = 0
        self._look_paused()
        if outbox.starved:
            self.broker.resume(self)

    def refill(self) -> int:
        """Let its consumers have more, since there is room again. Return the number of messages delivered."""
        outbox = self.outbox
        if not outbox.starved or outbox.send_budget <= 0 or self.ended:
            return 0
        outbox.starved = False
        return sum(consumer.queue.offer(consumer) for consumer in list(self.consumers.values()))

    def note_unwritten(self, octets: int) -> None:
        """Count the bytes that the transport has not written yet."""
        self.memory.hold_unwritten(octets + self.outbox.waiting, self.ended)

    # ---- destinations that it uses ----

    def cache_target(self, destination: str, queue: Queue | Topic) -> None:
        """Note where SENDs to a destination go."""
        cost = 0 if destination in self.cached_targets else target_cost(destination)
        self.cached_targets[destination] = queue
        self.broker.senders[self] = None
        self._targets_cost += cost
        self.memory.charge(cost)

    def forget_targets(self) -> None:
        """Look up anew where SENDs go."""
        self.cached_targets.clear()
        if self._targets_cost:
            self.memory.charge(-self._targets_cost)
            self._targets_cost = 0

    def declare(self, queue: str) -> bool:
        """Note that it uses a queue. Return True if it has done so before, as far as that is remembered."""
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
        """Wait until a queue, or the store, has room again. Return False for one that waits there, or cannot wait.

        A session that also consumes the queue must not wait: only its own ACKs would free room. Its next SEND is
        refused instead.
        """
        if holder in self._blockers or self.ended or self.acknowledges(holder):
            self.forget_targets()  # it is looked at again
            return False
        self._blockers.add(holder)
        self._look_paused()
        return True

    def unblock(self, holder: Holder) -> None:
        """Go on: there is room again."""
        self._blockers.discard(holder)
        self._look_paused()

    @property
    def waits_for_turn(self) -> bool:
        """It has had its share of the loop, and not done all that its peer has sent."""
        return self.broker.quota in self._blockers

    @property
    def is_held_up(self) -> bool:
        """A session that waits for its turn waits for something else, too."""
        return len(self._blockers) > 1 or self.outbox.is_clogged

    def rest(self) -> None:
        """Leave what its peer has sent where it is, as long as the session waits for something."""
        self._rests = True
        self._blockers.add(self.broker.quota)
        self._look_paused()

    def _look_rest(self) -> None:
        """Have a turn when the session waits for nothing else any more."""
        if not self.is_held_up or self.leaving:
            self._rests = False
            self.broker.quota.line_up(self)

    def depart(self) -> None:
        """Note that the transport is gone. What was read from it before still counts, and waits only for its turn."""
        self.leaving = True
        if self._rests:
            self._look_rest()

    def acknowledges(self, holder: object) -> bool:
        """Return True if its own ACKs would make room: in a queue that it consumes; where memory is short, in any."""
        consumers = self.consumers.values()
        if any(consumer.queue.home is holder and consumer.acks for consumer in consumers):
            return True
        short = getattr(holder, "is_too_large", False)
        return short and any(consumer.acks and consumer.unacked for consumer in consumers)

    def _look_blockers(self) -> None:
        """Stop waiting for memory if by now there is something to acknowledge that would make room."""
        for holder in list(self._blockers):
            if getattr(holder, "is_too_large", False) and self.acknowledges(holder):
                holder.blocked.pop(self, None)
                self.unblock(holder)

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
            self.connection.excuse(now - self._paused_at)
        self.paused = paused
        self.outbox.schedule_flush()


def _untraced(error: Exception) -> Exception:
    """Drop the tracebacks of an error and of its causes: they know the frames that know the error, in a cycle."""
    chain: list[BaseException | None] = [error]
    while chain:
        each = chain.pop()
        if each is not None:
            each.__traceback__ = None
            chain += [each.__cause__, each.__context__]
    return error
