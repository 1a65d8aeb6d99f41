"""Session: one connected peer. What it may do, what it holds, and what waits to be written to it.

What the frames of a peer do is in `commands.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stompcodec.broker.bounds import Pool
from stompcodec.broker.commands import HANDLERS
from stompcodec.broker.consumer import EOL, Consumer
from stompcodec.broker.journal import Batch, Journal, Waiting
from stompcodec.broker.message import Refused
from stompcodec.broker.queue import Queue
from stompcodec.broker.topic import Topic
from stompcodec.broker.transaction import Transaction
from stompcodec.codec import Frame, serialize
from stompcodec.connection import Connection, Role
from stompcodec.errors import RemoteProtocolError
from stompcodec.states import State

if TYPE_CHECKING:
    from stompcodec.broker.auth import User
    from stompcodec.broker.core import Broker
    from stompcodec.broker.router import Router

__all__ = ["Session"]

#: Octets of answers that may wait for a peer that does not read. Above, it is not read either.
_MOST_UNREAD = 2**20


class Session:
    """One peer, as the broker and the shell see it. `Broker.attach` makes it.

    The shell gives it what came (`receive`), tells it when the transport is full or gone (`writable`, `lost`), and
    writes what `take_output` hands over. It looks at two flags after that: `closing`, to close the transport once
    all is written, and `paused`, to stop reading for a while.
    """

    __slots__ = (
        *("_blockers", "_paused_at", "_unread", "_waiting", "behind", "broker", "by_number", "closing", "connection"),
        *("consumers", "dirty", "ended", "exact", "flowing", "id", "listener", "next_number", "outbox", "paused"),
        *(
            "peer",
            "plain",
            "room",
            "router",
            "secure",
            "sinks",
            "stalled",
            "transaction_octets",
            "transactions",
            "user",
        ),
        *("version", "whole_frames", "window"),
    )

    def __init__(
        self, broker: Broker, id: str, now: float, *, peer: str, secure: bool, whole_frames: bool, listener: str
    ) -> None:
        config = broker.config
        self.broker = broker
        self.id = id
        self.peer, self.secure, self.whole_frames, self.listener = peer, secure, whole_frames, listener
        self.connection = Connection(
            Role.SERVER,
            limits=config.limits,
            first_limits=config.first_limits,
            heart_beat=config.heart_beat,
            whole_frames=whole_frames,
            now=now,
        )
        #: "" before CONNECT.
        self.version = ""
        #: Header values are taken as they are; 1.0 has spaces around them.
        self.exact = True
        #: Its SENDs may take the quick road.
        self.plain = False
        self.user: User
        self.router: Router
        # What it has.
        self.consumers: dict[str, Consumer] = {}
        self.by_number: dict[str, Consumer] = {}
        self.next_number = 1
        #: Unacknowledged messages that its subscriptions may have, together.
        self.window = 0
        self.transactions: dict[str, Transaction] = {}
        self.transaction_octets = 0
        #: Destinations that it may send to, as far as it has.
        self.sinks: dict[str, Queue | Topic] = {}
        # What goes out.
        self.outbox = self.connection.output
        self.dirty = False
        #: Octets of messages that fit into the outbox in this turn. 0 or less: its consumers have to wait.
        self.room = config.write_high
        self.flowing = True
        #: A consumer was passed over for lack of room.
        self.stalled = False
        self._unread = 0
        #: Its receipts follow this commit.
        self._waiting: Waiting | None = None
        #: What it sends takes effect behind this commit, which its transaction waits for.
        self.behind: Batch | None = None
        # What the shell looks at.
        self.closing = False
        self.paused = False
        self._paused_at = 0.0
        self._blockers: set[Queue | Pool | Journal] = set()
        self.ended = False

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
        frame: Frame | None = None
        try:
            for frame in self.connection.receive(data, now):
                HANDLERS[frame.command](self, frame)
                if self.closing:
                    break
        except Refused as error:
            self.fail(error.message, error.remedy, frame)
        except RemoteProtocolError as error:
            self._refuse(str(error), error.reply)
        except Exception:
            self.broker.log.exception("%s: a fault of the broker", self)
            self.fail("internal error", "The broker's log tells more.", frame)
        if self.outbox and not self.dirty:
            self.mark()

    def lost(self, now: float, error: BaseException | None = None) -> None:
        """The transport is gone. What was not acknowledged goes back to the queues.

        Args:
            now: the time in seconds.
            error: why; None when the peer ended it.
        """
        self.broker.now = now
        self.closing = True
        self.end()
        self.broker.detach(self)
        try:
            self.connection.close(now)
        except RemoteProtocolError as truncated:
            error = error or truncated
        if error is not None:
            self.broker.log.info("%s: lost: %s", self, error)
        self.outbox.clear()

    def end(self) -> None:
        """Let everything go: transactions first, for they hold deliveries; then all consumers at once."""
        if self.ended:
            return
        self.ended = True
        self.room = 0  # nothing that goes back may come here again
        orphans = [pair for transaction in self.transactions.values() for pair in transaction.abort()]
        self.transactions = {}
        consumers = list(self.consumers.values())
        self.consumers, self.by_number, self.sinks = {}, {}, {}
        if self.version:
            self.router.stop(consumers, orphans)
            self.router.forget(self)
        for blocker in self._blockers:
            blocker.blocked.remove(self)
        self._blockers.clear()

    # ---- answers ----

    def mark(self) -> None:
        """There is something for the shell to do at the end of this turn."""
        self.dirty = True
        self.broker.dirty.append(self)

    def receipt(self, value: str) -> None:
        """Answer a frame that is done; after the commit, if something of this session waits for it."""
        if self.ended:  # the frame made itself the last one
            return
        if value.isalnum() and value.isascii():
            octets = b"RECEIPT\nreceipt-id:%b\n\n\0\n" % value.encode()
        else:
            octets = serialize(Frame("RECEIPT", {"receipt-id": value}), self.version) + EOL
        if self._waiting is None:
            self.outbox.append(octets)
        else:
            self._waiting.receipts.append(octets)
        if not self.flowing:
            self._unread += len(octets)
            if self._unread > _MOST_UNREAD:
                self._look_paused()

    def answer(self, frame: Frame) -> None:
        """RECEIPT, if the frame asks for one."""
        value = self.header(frame, "receipt")
        if value is not None:
            self.receipt(value)

    def fail(self, message: str, remedy: str = "", frame: Frame | None = None) -> None:
        """ERROR, and the end of the session. What waits to be written goes out before."""
        if self.ended:
            return
        headers = [("message", message), ("content-type", "text/plain")]
        receipt = None if frame is None or frame.command in ("CONNECT", "STOMP") else self.header(frame, "receipt")
        if receipt is not None:
            headers.append(("receipt-id", receipt))
        self._refuse(message, Frame("ERROR", headers, f"{remedy or message}\n".encode()))

    def _refuse(self, message: str, reply: Frame | None) -> None:
        if self.closing:
            return
        self.broker.log.info("%s: %s", self, message)
        self.end()
        if reply is not None:
            before = len(self.outbox)
            self.connection.send(reply)
            if self._waiting is not None:  # receipts of frames before it go out before it
                self._waiting.receipts += self.outbox[before:]
                del self.outbox[before:]
        self.close()

    def close(self) -> None:
        """Write what waits, also for the store, then close the transport."""
        self.end()
        if self._waiting is None:
            self.closing = True
            if not self.dirty:
                self.mark()

    # ---- the store ----

    def store_waits(self, frame: Frame) -> None:
        """Something of this frame has to be stored: receipts follow the commit at the end of the turn."""
        journal = self.broker.journal
        if self._waiting is None or self._waiting.batch is not journal.batch:
            self._waiting = journal.wait(self, self.header(frame, "receipt"))
        if journal.behind and self.block(journal):
            journal.blocked.append(self)

    def committed(self, waiting: Waiting) -> None:
        """What was stored is on the disk."""
        if self.behind is waiting.batch:
            self.behind = None
            self.plain = self.exact and not self.broker.stores_all
        if self.closing:
            return
        self.outbox += waiting.receipts
        if self._waiting is waiting:
            self._waiting = None
            self.closing = self.ended
        if not self.dirty:
            self.mark()

    def not_committed(self, waiting: Waiting) -> None:
        """Nothing was stored: no receipt of that turn goes out."""
        if self.closing:
            return
        self._waiting = None
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

    def take_output(self) -> list[bytes]:
        """Hand over what is to be written, and make room for more."""
        chunks = self.connection.take_output(self.broker.now)
        self.outbox = self.connection.output
        if self.flowing and not self.ended:
            self.room = self.broker.config.write_high
            if self.stalled:
                self.broker.resume(self)
        return chunks

    def writable(self, yes: bool, now: float) -> None:
        """The transport has taken enough (False), or has room again (True).

        Args:
            yes: whether messages may come.
            now: the time in seconds.
        """
        self.flowing = yes
        if self.ended:
            return
        if yes:
            self.room = self.broker.config.write_high
            self._unread = 0
            self._look_paused()
            if self.stalled:
                self.broker.resume(self)
        else:
            self.room = 0

    def refill(self) -> None:
        """There is room again: its consumers may have more."""
        if not self.stalled or self.room <= 0 or self.ended:
            return
        self.stalled = False
        for consumer in list(self.consumers.values()):
            consumer.queue.offer(consumer)

    def block(self, holder: Queue | Pool | Journal) -> bool:
        """Wait until a queue, or the store, has room again. False: it does so already, or cannot.

        One that consumes the queue itself would wait for its own ACKs, for ever: its next SEND is refused.
        """
        if holder in self._blockers or self.ended or self.acknowledges(holder):
            self.sinks.clear()  # it is looked at again
            return False
        self._blockers.add(holder)
        self._look_paused()
        return True

    def acknowledges(self, holder: object) -> bool:
        """Whether its own ACKs would make room there: in a queue that it consumes, or in all queues together."""
        consumers = self.consumers.values()
        if isinstance(holder, Pool):
            return any(consumer.acks and consumer.unacked for consumer in consumers)
        return any(consumer.queue is holder and consumer.acks for consumer in consumers)

    def unblock(self, holder: Queue | Pool | Journal) -> None:
        """There is room again."""
        self._blockers.discard(holder)
        self._look_paused()

    def _look_paused(self) -> None:
        paused = bool(self._blockers) or (not self.flowing and self._unread > _MOST_UNREAD)
        if paused is self.paused:
            return
        now = self.broker.now
        if paused:
            self._paused_at = now
        else:
            self.connection.excuse(now - self._paused_at)
        self.paused = paused
        if not self.dirty:
            self.mark()

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

    def too_slow(self, consumer: Consumer) -> None:
        """The backlog of a topic's subscription is full."""
        self.fail("slow consumer", f"The backlog of the subscription to {consumer.destination} is full.")
