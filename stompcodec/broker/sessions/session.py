"""Session: one connected peer. What it may do, what it holds, and what waits to be written to it.

What the frames of a peer do is in `commands.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from stompcodec.broker.errors import Refused
from stompcodec.broker.loop_quota import Line, Paused, Work
from stompcodec.broker.memory import CONNECTION, below_cost, frame_cost
from stompcodec.broker.queues.consumer import EOL, Consumer
from stompcodec.broker.queues.texts import Texts
from stompcodec.broker.routing.shares import owner_of
from stompcodec.broker.sessions.connection_ttl import Terms
from stompcodec.broker.sessions.outbox import Outgoing
from stompcodec.broker.sessions.spelling import restored
from stompcodec.broker.sessions.transaction import Transaction
from stompcodec.broker.storage.journal import Batch, Waiting
from stompcodec.broker.storage.large import Intake
from stompcodec.codec import END_OF_BODY, Frame, serialize
from stompcodec.connection import Connection, Role
from stompcodec.errors import ErrorFrame, RemoteProtocolError
from stompcodec.spec import VERSIONS
from stompcodec.states import State

if TYPE_CHECKING:
    from stompcodec.broker.auth import User
    from stompcodec.broker.context import Handlers, Host
    from stompcodec.broker.message import LargeBody, Message
    from stompcodec.broker.peer import Deliverer, Maker
    from stompcodec.broker.routing.virtual_host import Router

__all__ = ["Session"]

_LEGACY = ("legacy",)
#: Versions whose sessions may send header names in lower case. Without one yet, a CONNECT has to tell.
_MAY_FOLD = ("", "legacy")
#: So many frames are read before somebody looks at the clock.
_EACH = 8


class Session(Outgoing):
    """One peer, as the broker and the shell see it. `Broker.attach` makes it.

    The shell gives it what came (`receive`), tells it when the transport is full or gone (`writable`, `lost`), and
    writes what `take_output` hands over. It looks at two flags after that: `closing`, to close the transport once
    all is written, and `paused`, to stop reading for a while.
    """

    __slots__ = (
        *("_also", "ackers", "discard", "overdue", "parts"),
        *("_begun", "behind", "below", "by_number", "client_id", "exact", "id", "intake", "listener", "maker", "more"),
        *("next_number", "owner", "peer", "pending", "plain", "router", "secure", "selectors", "transaction_octets"),
        *("transactions", "ttl", "user", "version"),
        *("_early", "_frame", "handlers", "steps", "waits_on", "window"),
    )

    def __init__(
        self, broker: Host, id: str, now: float, *, peer: str, secure: bool, whole_frames: bool, listener: str
    ) -> None:
        config = broker.config
        connection = Connection(
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
        super().__init__(broker, connection, whole_frames)
        #: What frames do.
        self.handlers: Handlers = broker.handlers
        self.id = id
        self.peer, self.secure, self.listener = peer, secure, listener
        #: "" before CONNECT.
        self.version = ""
        #: Header values are taken as they are; 1.0 has spaces around them.
        self.exact = True
        #: Its SENDs may take the quick road.
        self.plain = False
        #: After how much silence it is dead, where the broker says that; None: by its heart-beats alone.
        self.ttl: Terms | None = None
        #: The client-id of its CONNECT; None without.
        self.client_id: str | None = None
        self.user: User
        #: Whose what it makes and leaves behind is; None where all are one user.
        self.owner: str | None = None
        self.router: Router
        #: What stands for it where it makes destinations; None as long as it has made none.
        self.maker: Maker | None = None
        # What it has.
        self.by_number: dict[str, Consumer] = {}
        self.next_number = 1
        #: Those of its subscriptions.
        self.selectors = Texts()
        #: Unacknowledged messages that its subscriptions may have, together; how many subscriptions those are; the
        #: parts that its allowance is divided into; and what subscriptions had above their share at that time.
        self.window = self.ackers = self.overdue = 0
        self.parts = 1
        self.transactions: dict[str, Transaction] = {}
        self.transaction_octets = self._begun = 0
        #: Bytes of memory that what came of an unfinished frame takes.
        self.pending = 0
        #: Bytes that the layers below have got and not handed over: an unfinished frame, or what waits for a turn.
        self.below = 0
        #: What a commit made take effect has to be stored itself.
        self.waits_on = False
        #: A large message that is coming in.
        self.intake: Intake | None = None
        #: A batch that its receipts wait for, besides.
        self._also: Batch | None = None
        #: What it sends takes effect behind this commit, which its transaction waits for.
        self.behind: Batch | None = None
        #: What is left to do of a frame that takes several turns, that frame, and what came meanwhile.
        self.steps: Iterator[Line] | None = None
        self._frame: Frame | None = None
        self._early = b""
        #: Set by the shell: called when its turn has come and all that `receive` had got is done.
        self.more: Callable[[], None] | None = None
        #: Set by the shell where there are layers below: has them drop what they keep, and take no more. A transport
        #: may be read many times before the shell looks at a session that has ended.
        self.discard: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"<Session {self.id} {self.peer} {self.version or 'not connected'}>"

    # ---- what comes ----

    def receive(self, data: Any, now: float) -> None:
        """Do what the peer's octets ask for. Nothing is raised: what is wrong is answered by ERROR, and ends it.

        Args:
            data: bytes-like; not needed any more afterwards.
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
                    if self.broker.turns.is_over(now):
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
        except Refused as error:
            self.fail(error.message, error.remedy, frame)
        except RemoteProtocolError as error:
            self._refuse(str(error), error.reply)
        except Exception:
            self.broker.log.exception("%s: a fault of the broker", self)
            self.fail("internal error", "The broker's log tells more.", frame)
        if self.outbox and not self.dirty:
            self.mark()
        buffered = self.connection.buffered
        if buffered or self.pending or self.below or self.intake is not None:
            self._note_pending(buffered)
        if account.held > account.reserve:
            self.broker.relieve()

    def _spelled(self, frame: Frame) -> Frame:
        """Return a frame with the spelling of names that the broker knows."""
        return restored(frame) if self.connection.version == "legacy" else frame

    def _note_pending(self, buffered: int) -> None:
        """So many bytes have come that no frame was made of, or that wait for the session's turn."""
        if self.ended:
            return
        if self.waits_for_turn:  # whole frames, of which no more are read
            pending = buffered + len(self._early)
        else:
            pending = frame_cost(buffered)
        if self.below:
            pending += below_cost(self.below)
        if self.intake is not None:
            pending += self.intake.cost
        self.broker.account.hold(pending - self.pending)
        self.pending = pending

    def note_below(self, octets: int) -> None:
        """Count the bytes that the layers below have got and not handed over."""
        self.below = octets
        self._note_pending(self.connection.buffered)
        if self.broker.account.is_overheld:
            self.broker.relieve()

    def hold_transaction(self, octets: int, base: int = 0) -> None:
        """Its transactions take more memory, or less.

        Args:
            octets: of operations, in their bound, too.
            base: of transactions as such.
        """
        self.transaction_octets += octets
        self._begun += base
        self.broker.account.hold(octets + base)

    @property
    def holds(self) -> int:
        """Bytes of memory that it could do without: unfinished frames, transactions, unwritten output."""
        return self.pending + self.transaction_octets + self._begun + self.unwritten

    def exhaust(self) -> None:
        """End it: memory is short, and it holds more than any other session."""
        holds, unread = self.holds, self.unwritten * 2 > self.holds
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
        """Let others have the loop. What is left stays with the connection or the shell, and no more is read."""
        turns = self.broker.turns
        if self.block(turns):
            turns.line_up(self)

    def take_turn(self, now: float) -> None:
        """Go on with what its peer has sent, unless memory is short and the session waits for something else, too."""
        short = self.broker.account.is_short
        if short and self.is_held_up and not self.leaving and self.steps is None:
            self.rest()
            return
        self.unblock(self.broker.turns)
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
        """Do a share of what a frame asks for. Return whether that was the last one."""
        try:
            self._step()
        except Refused as error:
            self.fail(error.message, error.remedy, self._frame)
        except Exception:
            self.broker.log.exception("%s: a fault of the broker", self)
            self.fail("internal error", "The broker's log tells more.", self._frame)
        if self.outbox and not self.dirty:
            self.mark()
        return self.steps is None

    def work(self, frame: Frame, steps: Iterator[Line]) -> None:
        """Do what a frame asks for a share at a time, the first one now, and all of it before the next frame.

        Raises:
            Paused: it is not done yet. To be left to `receive`.
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
        elif self.steps is steps:  # else it has ended, and has left the rest to others
            self.block(self.broker.turns)
            line.line_up(self)

    def lost(self, now: float, error: BaseException | None = None) -> None:
        """The transport is gone. What was not acknowledged goes back to the queues.

        Args:
            now: the time in seconds.
            error: why; None when the peer ended it.
        """
        self.broker.now = now
        turns = self.broker.turns
        self.leaving = True
        while self.waits_for_turn:  # what it has sent counts, and it was read from the transport already
            turns.blocked.pop(self, None)
            self.unblock(turns)
            if self.broker.account.is_full:  # but nobody has a receipt for it
                break
            self.receive(b"", now)
        self.closing = True
        if self.broker.lose(self, error):
            self.room, self.flowing = 0, False  # it gets nothing any more
        else:
            self.leave(now, error)

    def leave(self, now: float, error: BaseException | None) -> None:
        """The end of `lost`, which may come some turns later where many are lost at once."""
        self.end()
        self.broker.detach(self)
        try:
            self.connection.close(now)
        except RemoteProtocolError as truncated:
            error = error or _untraced(truncated)
        if error is not None:
            self.broker.log.info("%s: lost: %s", self, error)
        self._give_up()

    def end(self) -> None:
        """Let everything go: transactions first, for they hold deliveries; then all consumers at once."""
        if self.ended:
            return
        self.ended = True
        if self.steps is not None:  # what it has asked for is done to the end, in the line where it waits
            turns = self.broker.turns
            ahead = turns.front.blocked.pop(self, self) is None
            (turns.front if ahead else turns).line_up(Work(self.steps))
            self.steps = self._frame = None
        self.room = 0  # nothing that goes back may come here again
        orphans = [pair for transaction in self.transactions.values() for pair in transaction.abort()]
        self.transactions = {}
        self._let_go()
        consumers = list(self.consumers.values())
        self.consumers, self.by_number, self.sinks, self.declared = {}, {}, {}, None
        if self.intake is not None:
            self.intake.drop()
            self.intake = None
        self.more = None
        if self.version:
            self.router.stop(consumers, orphans)
            self.router.forget(self)
        for blocker in self._blockers:
            blocker.blocked.pop(self, None)
        self._blockers.clear()
        self._rests = False

    def _let_go(self) -> None:
        """Its memory is free again, but for what is still to be written, and the connection."""
        discard, self.discard = self.discard, None
        if discard is not None:
            discard()
        account = self.broker.account
        account.hold(-self.pending - self.transaction_octets - self._begun)
        account.held -= self.unwritten
        self.pending = self.transaction_octets = self._begun = 0
        if self.fixed:
            self.charge(CONNECTION - self.fixed)
        self._sinks_cost = 0

    # ---- answers ----

    def receipt(self, value: str) -> None:
        """Answer a frame that is done; after the commit, if something of this session waits for it."""
        if self.ended:  # the frame made itself the last one
            return
        if value.isalnum() and value.isascii():
            octets = b"RECEIPT\nreceipt-id:%b\n\n\0\n" % value.encode()
        else:
            octets = serialize(Frame("RECEIPT", {"receipt-id": value}), self.version) + EOL
        if self.waiting is None:
            self.outbox.append(octets)
        else:
            self.waiting.receipts.append(octets)
        if not self.flowing:
            self.unread(len(octets))

    def reply(self, octets: bytes) -> None:
        """A frame that answers one of the peer's."""
        self.outbox.append(octets)
        self.unread(len(octets))

    def answer(self, frame: Frame) -> None:
        """RECEIPT, if the frame asks for one."""
        value = self.header(frame, "receipt")
        if value is not None:
            self.receipt(value)

    def fault(self, queue: Deliverer, message: Message | None, error: Exception) -> None:
        """Note that something could not be written to this session: it gets no more, and ends with this turn.

        Not at once, for whoever delivers is in the middle of a queue.

        Args:
            queue: it is looked at again when the session has ended.
            message: what could not be written; None for an answer.
            error: why.
        """
        self.room = 0
        if self.failing or self.ended:
            return
        self.failing = True
        self.broker.failing.append((self, queue))
        what = "an answer" if message is None else f"message {message.id}"
        self.broker.log.error(
            "%s: %s from %s cannot be written, the session ends", self, what, queue.name, exc_info=error
        )

    def fail(self, message: str, remedy: str = "", frame: Frame | None = None) -> None:
        """ERROR, and the end of the session. What waits to be written goes out before."""
        if self.ended:
            return
        headers = [("message", message), ("content-type", "text/plain")]
        receipt = None if frame is None or frame.command in ("CONNECT", "STOMP") else self.header(frame, "receipt")
        if receipt is not None:
            headers.append(("receipt-id", receipt))
        self._refuse(message, Frame("ERROR", headers, f"{remedy or message}\n".encode()))

    def _refuse(self, message: str, reply: ErrorFrame | None) -> None:
        if self.closing:
            return
        self.broker.log.info("%s: %s", self, message)
        self.end()
        if self.parcels:  # an ERROR inside of a body would be no ERROR
            self.cut()
            return
        if isinstance(reply, Frame):
            before = len(self.outbox)
            self.connection.send(reply)
            if self.waiting is not None:  # receipts of frames before it go out before it
                self.waiting.receipts += self.outbox[before:]
                del self.outbox[before:]
        self.close()

    def close(self) -> None:
        """Write what waits, also for the store, then close the transport."""
        self.end()
        if self.parcels:
            self.broker.watch(self)
        elif self.waiting is None:
            self.closing = True
            if not self.dirty:
                self.mark()

    # ---- the store ----

    def store_waits(self, frame: Frame) -> None:
        """Something of this frame has to be stored: receipts follow the commit at the end of the turn."""
        journal = self.broker.journal
        if self.waiting is None or self.waiting.batch is not journal.batch:
            self.waiting = journal.wait(self, self.header(frame, "receipt"))
        if journal.behind and self.block(journal):
            journal.blocked[self] = None

    def wait_for(self, batch: Batch, frame: Frame) -> None:
        """Receipts follow the commit of a batch that is open, or being written, with what another frame has stored."""
        waiting = self.waiting
        if (waiting is not None and waiting.batch is batch) or self._also is batch:
            return
        new = Waiting(self, batch, self.header(frame, "receipt"))
        batch.waiting.append(new)
        if waiting is None or batch is self.broker.journal.batch:
            self.waiting = new
        else:  # they wait for a later one already, and must not go out if this one fails
            self._also = batch

    def committed(self, waiting: Waiting) -> None:
        """What was stored is on the disk."""
        if self.behind is waiting.batch:
            self.behind = None
            self.plain = self.exact and self.broker.plain
        if self.closing:
            return
        if self.waits_on:
            self._wait_on(waiting)
        self.outbox += waiting.receipts
        if self.waiting is waiting:
            self.waiting = None
            self.closing = self.ended and not self.parcels
        if not self.dirty:
            self.mark()

    def stays_behind(self, waiting: Waiting) -> bool:
        """Return whether its receipts wait for what a commit makes take effect, over turns. Else they go now."""
        if self.behind is not waiting.batch:
            self.committed(waiting)
            return False
        journal = self.broker.journal
        if self.block(journal):  # else it might add to that as fast as it is done
            journal.blocked[self] = None
        return True

    def _wait_on(self, waiting: Waiting) -> None:
        """What took effect by that commit has to be stored itself: its receipts follow the next one."""
        self.waits_on = False
        if self.waiting is waiting or self.waiting is None:
            self.waiting = self.broker.journal.wait(self, waiting.fault)
        self.waiting.receipts[:0] = waiting.receipts
        waiting.receipts = []

    def not_committed(self, waiting: Waiting) -> None:
        """Nothing was stored: no receipt of that turn goes out."""
        if self.closing:
            return
        self.waiting = None
        headers = {"message": "the message could not be stored", "content-type": "text/plain"}
        if waiting.fault is not None:
            headers["receipt-id"] = waiting.fault
        remedy = b"The broker's disk is at fault: send it again later. The broker's log tells more.\n"
        if self.connection.state is State.FAILED:  # its ERROR was to follow the receipts
            self.close()
        else:
            self._refuse(headers["message"], Frame("ERROR", headers, remedy))

    def header(self, frame: Frame, name: str) -> str | None:
        """A header as this session's version means it."""
        value = frame.get(name)
        return value if self.exact or value is None else value.strip(" ")

    # ---- to the shell ----

    def take_large(self, frame: Frame, done: Callable[[Frame, LargeBody], object]) -> None:
        """A SEND has come whose body follows in pieces.

        Args:
            frame: the SEND.
            done: called with it, less its body, and with the body, when that is there.
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
        """Heart-beats. False: the peer is dead."""
        if self.paused:  # we do not read, so its silence says nothing
            self.connection.excuse(now - self._paused_at)
            self._paused_at = now
        alive = self.connection.tick(now)
        if self.outbox and not self.dirty:
            self.mark()
        return alive

    # ---- what frames do ----

    @property
    def connected(self) -> bool:
        """CONNECTED was sent."""
        return self.connection.state is State.CONNECTED

    def too_slow(self, destination: str) -> None:
        """The backlog of a topic's subscription is full."""
        self.fail("slow consumer", f"The backlog of the subscription to {destination} is full.")


def _untraced(error: Exception) -> Exception:
    """Drop the tracebacks of an error and of its causes: they know the frames that know the error, in a cycle."""
    chain: list[BaseException | None] = [error]
    while chain:
        each = chain.pop()
        if each is not None:
            each.__traceback__ = None
            chain += [each.__cause__, each.__context__]
    return error
