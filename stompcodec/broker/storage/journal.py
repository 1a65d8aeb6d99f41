"""The journal: changes, their commit and their undoing.

It collects the changes of a turn that must reach the disk into batches, with the sessions that wait for them.

A batch is what one commit of the store writes. There is one open batch; it grows while another one is being written.
Sends and acknowledgements take effect at once, and are undone if the commit fails. A transaction takes effect only
after its commit, because nobody may see half of it before a crash that undoes it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any, Protocol

from stompcodec.broker.connections import Blockable
from stompcodec.broker.loop_quota import AT_ONCE, FEW, Line, LoopQuota, Waiter, Work
from stompcodec.broker.memory import MESSAGE, Account
from stompcodec.broker.message import Message
from stompcodec.broker.storage.store import (
    CallSoon,
    Page,
    PageDone,
    Place,
    Store,
    Stored,
    TimedDone,
    TimedPage,
    restored,
)
from stompcodec.errors import StoreError

#: Seqs are lower: see `Store.append`.
_MOST_SEQ = 1 << 42
#: Operations that may wait while a batch is being written. Above that, senders of persistent messages wait.
_MOST_PENDING = 5000
#: Messages that may leave their queues in one batch without an ACK, and bytes of all that leave. Beyond that,
#: deliveries from a backlog and expiry wait for the next batch, since writing this one would take too long.
_MOST_GONE, _MOST_COST_GONE = 2000, 8 * 2**20
#: That many messages while sessions wait for commits, until _CALM batches in a row had no session that waited.
_FEW_GONE, _CALM = 250, 50
#: Commits whose times are kept.
_TIMES = 100
#: Turns by which a commit without waiting sessions is put off while there is other work.
_MOST_PUT_OFF = 10


class Undoable(Protocol):
    """A queue whose stored messages can be undone if a commit fails."""

    key: str

    def withdraw(self, messages: list[Message]) -> None:
        """Take out messages that could not be stored, unless a consumer has received them."""

    def unsettle(self, messages: list[Message]) -> None:
        """Make messages READY again whose acknowledgement could not be stored."""

    def came_late(self, seq: int) -> None:
        """Note that a message was put after others that came later."""

    def put_in_order(self) -> None:
        """Sort the READY messages from the first one that came late."""

    def seqs(self) -> set[int]:
        """Return the seqs of its messages in memory: READY, held and UNACKED."""

    def is_paged(self, message: Message) -> bool:
        """Return whether a message is READY in the store only."""


class PagedMessages(Protocol):
    """The messages of a queue that are in the store only."""

    def expire(self, stored: Stored) -> None:
        """Remove an expired message, if it is one of them."""

    def comes(self, message: Message) -> None:
        """Note that the open batch writes one of them."""

    def leaves(self, seq: int, batch: Batch) -> None:
        """Note that the batch removes a message."""

    def leave_later(self, batch: Batch, later: Batch) -> None:
        """Note that a later batch removes the messages which the batch was to remove."""


class CommitWaiter(Protocol):
    """The receipts of a session that wait for a commit, described at `PendingCommit`."""

    batch: Batch
    receipts: list[bytes]

    def stop(self) -> None: ...
    def stays_behind(self) -> bool: ...
    def committed(self) -> None: ...
    def not_committed(self) -> None: ...


class Intake:
    """How new messages of one queue are appended to the open batch without a call of the store.

    A batch has one only while it is open, no other is being written, and messages may be stored. `puts` are the
    messages that the store is to write, by their keys: a seq and `base`. New messages have seqs above `top`.

    >>> Intake(None, {}, 1 << 45, 0).base == 1 << 45
    True
    """

    __slots__ = ("base", "puts", "queue", "top")

    def __init__(self, queue: Undoable | None, puts: dict[int, Any], base: int, top: int) -> None:
        self.queue, self.puts, self.base, self.top = queue, puts, base, top


class Batch:
    """The changes of one commit, recorded so that they can be undone if it fails.

    >>> Batch().waiters
    []
    """

    __slots__ = (
        *("actions", "cost", "first", "gone", "intake", "is_long", "keys", "moved", "put", "settled", "updated"),
        "waiters",
    )

    def __init__(self) -> None:
        #: Messages that were put into queues.
        self.put: list[tuple[Undoable, Message]] = []
        #: Messages that were acknowledged.
        self.settled: list[tuple[Undoable, Message]] = []
        #: Messages that are gone for good, sent in auto mode or expired, by the key of the queue.
        self.gone: list[tuple[str, Message]] = []
        #: Messages that replaced others: the old queue, the old message, the new queue, the new message.
        self.moved: list[tuple[Undoable, Message, Undoable, Message]] = []
        #: Messages whose redelivery state changed, by the key of the queue.
        self.updated: list[tuple[str, Message]] = []
        #: Bytes of messages that no queue holds, no longer or not yet.
        self.cost = 0
        #: Actions to take after the commit, in order; called with whether it succeeded. An action of several turns
        #: returns its steps.
        self.actions: list[Callable[[bool], Iterator[Line] | None]] = []
        #: True if the batch includes a long transaction.
        self.is_long = False
        #: The lowest seq of a message that takes effect after the commit; None if there is none.
        self.first: int | None = None
        self.waiters: list[CommitWaiter] = []
        #: Idempotency keys that it stores and deletes; None if there are none.
        self.keys: Any = None
        #: Takes new messages of one queue; None if there is none.
        self.intake: Intake | None = None

    def release(self) -> None:
        """Release the messages, which take memory. Sessions may refer to the batch until they are collected as
        garbage."""
        for what in (self.put, self.settled, self.gone, self.moved, self.updated, self.actions, self.waiters):
            if what:
                what.clear()


class Journal:
    """The link between the queues and the store. Without a store, nothing is stored.

    `call_soon` runs a function in the loop, from any thread; None to write synchronously. `wake` is called when a batch
    was written in the background, since sessions may have output. Work that waits for a new batch continues in `quota`.
    `account` is charged with messages that have left their queues until that is written.
    """

    __slots__ = (
        *("_account", "_call_soon", "_calm", "_inside", "_late", "_lined_up", "_log", "_most_gone", "_times_put_off"),
        *("_wake", "_watchers", "batch", "began", "blocked", "busy", "commits", "failing", "failures", "is_tight"),
        *("kept", "look_at", "lost", "on_lost", "paged", "quota", "restored", "short", "staging", "store", "times"),
    )

    def __init__(
        self,
        store: Store | None,
        log: logging.Logger,
        call_soon: CallSoon | None,
        wake: Callable[[], None],
        account: Account,
        quota: LoopQuota | None = None,
    ) -> None:
        self.quota, self.store = quota or LoopQuota(), store
        #: Why nothing is stored any more: the files were removed or replaced. `on_lost` is called once.
        self.lost: StoreError | None = None
        self.on_lost: Callable[[StoreError], object] | None = None
        self._log, self._call_soon = log, call_soon
        #: The open batch, and the one being written.
        self.batch = Batch()
        self.busy: Batch | None = None
        self.blocked: dict[Blockable, None] = {}  # sessions that wait for the disk
        self.failures = 0
        #: When the present commit began, and the seconds that the last ones took.
        self.commits, self.began, self.times = 0, 0.0, deque[float](maxlen=_TIMES)
        #: The last commit has failed, less than a second ago.
        self.failing = False
        #: Makes a message of a stored one.
        self.restored: Callable[[Stored], Message] = restored
        #: The queues that have messages in the store only, by key.
        self.paged: dict[str, PagedMessages] = {}
        #: A long transaction is being added to the open batch, a share in each turn. The batch is written once it is
        #: complete.
        self.staging = False
        #: Messages that may leave their queues in the open batch.
        self._most_gone = _MOST_GONE
        #: Turns by which the next commit was put off.
        self._times_put_off = 0
        #: Batches since one for which a session waited.
        self._calm = _CALM
        #: Bytes of long transactions that are being added to a batch, or take effect without one.
        self.kept = 0
        #: The disk is nearly full, so messages to be stored are refused; or what is left is for persistent ones.
        self.short = self.is_tight = False
        #: The free space is checked again when this many bytes were written in total.
        self.look_at = 2**20
        self._account = account
        #: Queues that a delayed message was put into.
        self._late: dict[Undoable, None] = {}
        #: Actions to call when the horizon moves.
        self._watchers: dict[Callable[[], object], None] = {}
        self._inside, self._wake = False, wake
        #: Work that waits for a new batch.
        self._lined_up: dict[Waiter, None] = {}

    @property
    def keeps(self) -> bool:
        """True if what was stored can be read."""
        return self.store is not None and self.store.keeps

    @property
    def open(self) -> bool:
        """True if something waits for `commit`."""
        return self.store is not None and bool(self.batch.waiters or self.store.pending or self._lined_up)

    @property
    def may_commit(self) -> bool:
        """True if something waits for `commit`, and no other commit or long transaction is in progress."""
        if self.staging or self.store is None:
            return False
        if self.busy is not None:
            return self._is_void
        return bool(self.batch.waiters or self.store.pending or self._lined_up)

    @property
    def _is_void(self) -> bool:
        """True if the waiting sessions need no write, since their messages have left, and no earlier ones wait."""
        batch, busy = self.batch, self.busy
        if not (batch.waiters and batch.gone) or self.store is None or not self.store.only_removes or batch.actions:
            return False
        return (busy is None or not (busy.waiters or busy.actions)) and self._is_plain(batch)

    def _is_plain(self, batch: Batch) -> bool:
        """Return whether no session waits for the removals of a batch."""
        return not (batch.settled or batch.moved or batch.is_long) and self._call_soon is not None

    def puts_off(self) -> bool:
        """Return whether a commit without waiting sessions is put off to a later turn, which has more to write."""
        if self.is_full or not self.quota.waiting or self._times_put_off >= _MOST_PUT_OFF:
            self._times_put_off = 0
            return False
        self._times_put_off += 1
        return True

    @property
    def behind(self) -> bool:
        """True if the disk is slower than the senders."""
        return self.busy is not None and self.store is not None and self.store.pending > _MOST_PENDING

    @property
    def is_full(self) -> bool:
        """True if so much has left the queues in the open batch that the rest has to wait for the next one."""
        batch = self.batch
        return len(batch.gone) >= self._most_gone or batch.cost >= _MOST_COST_GONE or self.behind

    @property
    def line(self) -> Line:
        """The place to wait before removing more from the store: the next turn, or a new batch."""
        return self if self.store is not None and self.is_full else self.quota

    def line_up(self, waiter: Waiter) -> None:
        """Have work continue when there is a new batch."""
        self._lined_up[waiter] = None

    @property
    def horizon(self) -> int | None:
        """The lowest seq of a message that takes effect later; None if there is none. Higher ones may be READY already.

        Readers of a queue by seq must stop there, or they would miss messages that come late.
        """
        firsts = [batch.first for batch in (self.busy, self.batch) if batch is not None]
        return min((first for first in firsts if first is not None), default=None)

    def watch(self, action: Callable[[], object]) -> None:
        """Have a function called, once, when the horizon may have moved."""
        self._watchers[action] = None

    # ---- changes ----
    def append(self, queue: Undoable, message: Message) -> None:
        """Record a persistent message that was put into a queue."""
        batch, seq = self.batch, message.seq
        intake = batch.intake
        if intake is not None and intake.queue is queue and intake.top < seq < _MOST_SEQ:
            intake.puts[intake.base + seq] = message
        elif self.store is None:
            return
        else:
            self.store.append(queue.key, message)
            if batch.put:  # a batch of a single message does without
                self._open_intake(queue)
        batch.put.append((queue, message))

    def _open_intake(self, queue: Undoable) -> None:
        """Let further messages of a queue be appended to the open batch directly, if that is possible."""
        if self.store is not None and self.busy is None and not self.short:
            found = self.store.intake(queue.key)
            if found is not None:
                self.batch.intake = Intake(queue, *found)

    def may_write(self, seq: int) -> bool:
        """Return whether the open batch may be the one that stores a message, which came behind a transaction."""
        put = self.batch.put
        return bool(put) and put[0][1].seq <= seq

    def settle(self, queue: Undoable, message: Message) -> None:
        """Record that a persistent message was acknowledged."""
        if self.store is not None:
            self.store.remove(queue.key, message)
            if self.paged:
                self._note(queue.key, message)
            self.batch.settled.append((queue, message))
            self.charge(self.batch, message.size + MESSAGE)

    def remove(self, key: str, message: Message) -> None:
        """Record that a persistent message has left a queue for good."""
        if self.store is not None:
            self.store.remove(key, message)
            if self.paged:
                self._note(key, message)
            self.batch.gone.append((key, message))
            self.charge(self.batch, message.size + MESSAGE)

    def _note(self, key: str, message: Message) -> None:
        paging = self.paged.get(key)
        if paging is not None:
            paging.leaves(message.seq, self.batch)

    def clear(self, key: str, after: int, upto: int, most: int, held: Collection[int]) -> None:
        """Remove the first messages of a queue whose seq is above `after` and at most `upto`, which were stored, except
        for those that are still `held`.
        """
        if self.store is not None:
            self.store.clear(key, after, upto, most, held)

    def update(self, key: str, message: Message) -> None:
        """Record a failed delivery of a persistent message. Nothing depends on it, so nobody waits for it."""
        if self.store is not None:
            self.store.update(key, message)
            self.batch.updated.append((key, message))

    def move(self, queue: Undoable, message: Message, sink: Undoable, fresh: Message) -> None:
        """Record that a stored message was replaced by another one (`fresh`) in `sink`.

        The old one has left by `settle` or `remove` in the open batch, in which the new one was put. If the commit
        fails, this is not undone, because a consumer may have received the new message. It is written again, both parts
        or none.
        """
        if self.store is not None and message.persistent:
            self.batch.moved.append((queue, message, sink, fresh))

    def set_aside(self, key: str, message: Message, *, left: bool = False) -> None:
        """Keep a message with a damaged body, which is not delivered any more, in the store, which checks it again at
        the next start. If it had `left` the store on delivery, it is stored again.
        """
        if self.store is None:
            self._log.error("message %s is lost: its body is damaged", message.id)
            return
        if message.persistent:
            (self.store.append if left else self.store.update)(key, message.again())
        self.store.report(message)

    def read(
        self,
        queue: str,
        after: int,
        upto: int,
        most: int,
        octets: int,
        done: PageDone,
        priority: int | None,
        *,
        at_once: bool = False,
    ) -> None:
        """Read stored messages, as `Store.read` describes; in this turn if `at_once`. An error is logged."""
        if self.store is not None:
            call_soon = None if at_once else self._call_soon
            self.store.read(queue, after, upto, most, octets, partial(self._read, done), call_soon, priority)

    def expired(self, before: float, after: Place, done: TimedDone) -> None:
        """Read stored messages that have expired, as `Store.expired` describes. An error is logged."""
        if self.store is not None:
            self.store.expired(before, after, AT_ONCE, 2**20, partial(self._read, done), self._call_soon)

    @property
    def reads_at_once(self) -> bool:
        """True if a step of messages should be read at once: others are active, which the helper's thread disturbs."""
        return self.store is not None and self.store.reads_fast and self.quota.step == FEW

    def report_missing(self, queue: str, count: int) -> None:
        """Log that pages did not have all messages of a queue."""
        name = queue.rpartition("\0")[2]
        self._log.error(
            "%d messages of %s were not found (stop the broker, and run stompcodec broker check)", count, name
        )

    def deferred(self, after: Place, most: int, octets: int, done: TimedDone) -> None:
        """Read stored messages with a due time, as `Store.deferred` describes. An error is logged."""
        if self.store is not None:
            self.store.deferred(after, most, octets, partial(self._read, done), self._call_soon)

    def messages(self, page: Iterable[Stored]) -> list[Message]:
        """Return the messages of a page. Those whose files are missing are logged and left out. Raise StoreError, which
        is logged, if files cannot be read at present.
        """
        found = []
        for stored in page:
            try:
                found.append(self.restored(stored))
            except StoreError as error:
                self._log.error("message %s cannot be read: %s", stored.id, error)
                if not isinstance(error.__cause__, FileNotFoundError):
                    raise
        return found

    def _read(self, done: Callable[[Any], None], page: Page | TimedPage | StoreError) -> None:
        if isinstance(page, StoreError):
            self._log.error("stored messages cannot be read: %s", page)
        done(page)
        if not self._inside:
            self._wake()

    def tidy(self) -> None:
        """Have the store give space back, unless something has to be written. To be called once per second."""
        self.failing = False
        self._look()
        if self.store is not None and self._call_soon is not None and self.busy is None and not self.open:
            self.store.tidy(self._call_soon, self.short)

    def _look(self) -> None:
        """Check that the files of the store are where they were opened."""
        if self.lost is None and self.store is not None:
            self.lost = self.store.look()
            if self.lost is not None:
                self._log.critical("everything stops: %s", self.lost)
                if self.on_lost is not None:
                    self.on_lost(self.lost)

    def look_at_space(self, least: int) -> None:
        """Check how much space the store has. With less than `least` bytes, new messages are refused, but settling
        continues."""
        room = None if self.store is None or not least else self.store.room()
        short = room is not None and room < least
        self.is_tight = room is not None and room < 2 * least
        if short is not self.short:
            self.short = short
            self.batch.intake = None
            if short:
                self._log.warning(
                    "the disk is nearly full: messages are not stored (%s bytes are free, %d are needed)", room, least
                )
            else:
                self._log.warning("the disk has enough free space: messages are stored again")
        left = least if room is None else max(room - (least if self.is_tight else 2 * least), 0)
        self.look_at = (0 if self.store is None else self.store.written) + max(left // 4, 2**20)

    def charge(self, batch: Batch, cost: int) -> None:
        """Charge messages that stay in memory until a batch is written, though no queue holds them."""
        batch.cost += cost
        self._account.used += cost

    def keep(self, cost: int) -> None:
        """Charge a long transaction that neither its session nor a batch holds; a negative cost gives it back."""
        self.kept += cost
        self._account.used += cost

    def stage(self) -> Batch:
        """Return the open batch, for a long transaction. Reset `staging` when the last operation is in it.

        A batch takes one long transaction, so that the next commit is never far away. Further ones wait in this line.
        """
        assert not self.batch.is_long
        self.staging = self.batch.is_long = True
        return self.batch

    def late(self, queue: Undoable, seq: int) -> None:
        """Note that a message was put after others that came later."""
        queue.came_late(seq)
        self._late[queue] = None

    # ---- the end of a turn ----
    def commit(self) -> bool:
        """Write the open batch, unless one is being written. Receipts, or ERRORs, are sent when it is done.

        Return True if nothing had to be written for those who wait, though removals may be left to write.
        """
        is_void = bool(self.batch.gone) and self._is_void
        if self.store is None or self.staging or (self.busy is not None and not is_void):
            return False
        holds = bool(self.batch.gone and (self.store.pending if is_void else self._hold_removals()))
        batch, self.batch = self.batch, Batch()
        batch.intake = None
        if holds:
            self._leave_removals(batch, self.batch)
        if is_void:
            self._committed(batch)
            self._over(batch)
            return True
        self._calm = 0 if batch.waiters else self._calm + 1
        self._most_gone = _FEW_GONE if self._calm < _CALM else _MOST_GONE
        if self._lined_up and not holds:
            lined_up, self._lined_up = self._lined_up, {}
            for waiter in lined_up:
                self.quota.line_up(waiter)
        self.busy, self._inside = batch, True
        self.began = perf_counter()
        self.store.commit_later(partial(self._done, batch), self._call_soon)
        self._inside = False
        return False

    def _hold_removals(self) -> bool:
        """Leave removals without waiting sessions to the next batch if they are many, so that this one is small.

        What takes effect after the commit, such as a transaction, has removals that must not wait.
        """
        batch = self.batch
        if not batch.waiters or batch.actions or len(batch.gone) < FEW or self.is_full or not self._is_plain(batch):
            return False
        return self.store is not None and self.store.hold_removals()

    def _leave_removals(self, batch: Batch, later: Batch) -> None:
        """Leave the messages that are gone for good to a later batch."""
        later.gone, batch.gone = batch.gone, []
        later.cost = sum(message.size + MESSAGE for _, message in later.gone)
        batch.cost -= later.cost
        for key in {key for key, _ in later.gone}:
            if key in self.paged:
                self.paged[key].leave_later(batch, later)

    def _done(self, batch: Batch, error: StoreError | None) -> None:
        self.commits += 1
        self.times.append(perf_counter() - self.began)
        if batch.is_long and error is None:
            self._part(batch)
            self.quota.front.line_up(Work(self._taking_effect(batch)))
        else:
            self.busy = None
            if error is None:
                self._committed(batch)
            else:
                self.failures += 1
                self.failing = True
                self._log.error("the store failed, and %d sessions get an ERROR: %s", len(batch.waiters), error)
                self._look()
                self._failed(batch)
            self._over(batch)
        if not self._inside:
            self._wake()

    def _taking_effect(self, batch: Batch) -> Iterator[Line]:
        """Do what follows a commit, some of it in each turn. The batch stays busy, so that no later one overtakes
        it."""
        left = AT_ONCE
        try:
            for action in batch.actions:
                left -= 1
                for line in action(True) or (() if left else (self.quota.front,)):
                    left = AT_ONCE
                    yield line
            for waiter in batch.waiters:
                waiter.committed()
        finally:
            self.busy = None
        self._over(batch)

    def _part(self, batch: Batch) -> None:
        """Send receipts to the sessions that wait only for the disk. The others are not read until all is done."""
        batch.waiters = [waiter for waiter in batch.waiters if waiter.stays_behind()]

    def _over(self, batch: Batch) -> None:
        late, self._late = self._late, {}
        for queue in late:
            queue.put_in_order()
        watchers, self._watchers = self._watchers, {}
        for action in watchers:
            action()
        if self.blocked:
            Work(self._releasing()).take_turn(0.0)
        batch.release()
        self._account.used -= batch.cost
        batch.cost = 0

    def _releasing(self) -> Iterator[Line]:
        """Let sessions that waited for the disk continue, some in each turn."""
        while self.blocked and not self.behind:
            for session in list(islice(self.blocked, AT_ONCE)):
                del self.blocked[session]
                session.unblock(self)
            if self.blocked:
                yield self.quota

    def _committed(self, batch: Batch) -> None:
        for action in batch.actions:
            action(True)
        for waiter in batch.waiters:
            waiter.committed()

    def _failed(self, batch: Batch) -> None:
        """Undo the batch, and end the sessions that waited for it."""
        for waiter in batch.waiters:
            waiter.stop()
        for action in batch.actions:
            action(False)
        moved = {(sink, fresh.seq) for _, _, sink, fresh in batch.moved}
        moved |= {(queue, message.seq) for queue, message, _, _ in batch.moved}
        put = [pair for pair in batch.put if (pair[0], pair[1].seq) not in moved]
        for queue, messages in _by_queue(put).items():
            queue.withdraw(messages)
        new = moved | {(queue, message.seq) for queue, message in batch.put}
        for queue, messages in _by_queue(pair for pair in batch.settled if (pair[0], pair[1].seq) not in new).items():
            queue.unsettle(messages)
        for key, message in batch.gone:
            self.remove(key, message)
        self._move_again(batch)
        newer = {(key, message.seq) for key, message in self.batch.updated}
        for key, message in batch.updated:
            if (key, message.seq) not in newer:
                self.update(key, message)
        for waiter in batch.waiters:
            waiter.not_committed()

    def _move_again(self, batch: Batch) -> None:
        there: dict[Undoable, set[int]] = {}
        for queue, message, sink, fresh in batch.moved:
            self.remove(queue.key, message)
            if sink not in there:
                there[sink] = sink.seqs()
            is_paged = sink.is_paged(fresh)
            if fresh.seq in there[sink] or is_paged:
                self.append(sink, fresh)
            if is_paged:
                self.paged[sink.key].comes(fresh)
            self.batch.moved.append((queue, message, sink, fresh))


def _by_queue(pairs: Iterable[tuple[Undoable, Message]]) -> dict[Undoable, list[Message]]:
    found: dict[Undoable, list[Message]] = {}
    for queue, message in pairs:
        found.setdefault(queue, []).append(message)
    return found
