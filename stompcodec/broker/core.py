"""Broker: the core, without I/O. It processes received bytes, fills outboxes, and commits once per turn.

The shell (`server.py`) calls `attach` for each connection, and the session's `receive`, `writable` and `lost`. At the
end of each turn of its loop it calls `turn` and writes the output of the sessions that this yields. It keeps one timer,
for `next_deadline`, and calls `tick` when that is due.
"""

from __future__ import annotations

import base64
import itertools
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Concatenate

from stompcodec.arguments import checked
from stompcodec.broker.auth import Auth
from stompcodec.broker.config import Config
from stompcodec.broker.connections import LATER, Connections, Deliverer, Refillable, Stats
from stompcodec.broker.loop_quota import AT_ONCE, Deadlines, Line, LoopQuota, WaitLog, Wall, Work
from stompcodec.broker.memory import CONNECTION, Account
from stompcodec.broker.message import Message, reload_schedule
from stompcodec.broker.queues.dispatcher import PagedExpiry
from stompcodec.broker.queues.heads import ident_of
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.queues.ready import Window
from stompcodec.broker.routing.dead_letters import Retries
from stompcodec.broker.routing.delayed import Delayed
from stompcodec.broker.routing.idempotency import SentKeys
from stompcodec.broker.routing.registry import Destinations, VirtualHost, load_queues
from stompcodec.broker.routing.topic import Topic
from stompcodec.broker.sessions.commands import HANDLERS, LoggedSession, logged
from stompcodec.broker.sessions.host import Handlers, Host, remedy
from stompcodec.broker.sessions.receipts import share_commit
from stompcodec.broker.sessions.session import Session
from stompcodec.broker.sessions.state import BrokerState
from stompcodec.broker.storage.folder import RESERVE, HelperThread, examine_place
from stompcodec.broker.storage.journal import Journal
from stompcodec.broker.storage.large import spool_of, why_stuck
from stompcodec.broker.storage.store import CallSoon, MemoryStore, Store, Stored, restored
from stompcodec.codec import Frame
from stompcodec.disk import Access, access_of
from stompcodec.errors import ConfigError

_LOG = logging.getLogger("stompcodec.broker")
#: Seconds between two sweeps for expired messages, and for idle destinations.
_SWEEP_EXPIRED, _SWEEP_IDLE = 1.0, 30.0
#: Seconds until a failed commit is retried.
_RETRY = 1.0
#: Lost sessions that end in one turn, plus their subscriptions. Sessions without a login do not count. The others
#: receive nothing any more and end in later turns.
_MOST_LOSSES = 2000
#: Seconds. If a timer is later than this, the process was stalled, and peers are not blamed for their silence.
_STALL = 0.25
_LEAST_ROOM = 4096  # the least send budget of a session in bytes, however many sessions there are
#: Random bytes in a session id: 16 letters and digits. Messages with a temporary reply-to keep it in memory.
_ID_SIZE = 10
_RESERVED = 2**20  # seqs at a time, far more than any turn uses
#: Seconds without progress after which an ended session is cut off in the middle of a large message.
_STUCK = 10.0


class Broker(BrokerState):
    """All queues, topics and sessions of one broker, and its time.

    Args:
        config: see `Config`.
        store: the store of persistent messages; None to store nothing.
        wall: returns the time in seconds since 1970, used for expiry only. All other times are arguments, from a
            monotonic clock.
        monotonic: that clock, if `wall` may be set.
        epoch: a word that was never used with this store; message ids begin with it. Only letters, digits, "." and "_".
        log: receives faults and refusals, but never header values.
        call_soon: has the loop call something, from any thread. It allows commits in the background; `wake`, which the
            shell sets, asks for another turn when one is done.
        helper: removes the files of large messages; None for a thread.
        entropy: returns a number of random bytes, so that session ids and temporary destinations cannot be guessed.

    >>> broker = Broker(Config())
    >>> session = broker.attach(0.0, peer="test")
    >>> session.receive(b"CONNECT\\naccept-version:1.2\\nhost:/\\n\\n\\0SEND\\ndestination:/queue/a\\n\\nhi\\0", 0.0)
    >>> [session.take_output()[0][:9] for session in broker.turn(0.0)], len(broker.queues["/", "/queue/a"].messages)
    ([b'CONNECTED'], 1)
    """

    @checked
    def __init__(
        self,
        config: Config,
        store: Store | None = None,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] | None = None,
        epoch: str = "0",
        log: logging.Logger = _LOG,
        call_soon: CallSoon | None = None,
        helper: HelperThread | None = None,
        entropy: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.config = config
        self.wall = Wall(wall, monotonic, log)
        self.epoch = epoch
        self.log = log
        self.auth = Auth(config.users, config.rules)
        self.account = account = Account(config.memory)
        store = None if config.durable == "none" else store
        self.quota = LoopQuota()
        self.quota.wake = lambda: self.wake()
        self.journal = Journal(store, log, call_soon, lambda: self.wake(), account, self.quota)
        #: Idempotency keys.
        self.sent = SentKeys(config, self.journal, account, self.wall, share_commit)
        self.call_soon = call_soon
        self.stores_some = self.journal.store is not None
        self.stores_all = self.journal.keeps and config.durable == "all"
        self.plain = not (config.jms or config.utf8_texts or config.message_id_header)
        self.spool = spool_of(config, access_to(config), helper)
        #: Set by the shell.
        self.wake: Callable[[], None] = lambda: None
        self.stats = Stats()
        self.connections = Connections(config, self.stats, log)
        self._entropy = entropy
        self._virtual_hosts: dict[str, VirtualHost] = {}
        self._opened: list[Topic] = []
        self.ident = epoch.encode() + b"-"
        self.seq = 0
        self.max_transaction_octets = config.max_transaction_octets
        #: The highest seq that the store has recorded as possibly used.
        self._reserved = 0
        self.delayed = Delayed(account, self.wall, self.place, config.max_delayed, self.journal, Window.of(config))
        self.retries = Retries(account, lambda: self.now, config.max_delayed)
        self._begin_sessions(config)
        self._begin_time()

    def _begin_sessions(self, config: Config) -> None:
        #: By their ids.
        self.sessions: dict[str, Session] = {}
        self._numbers = itertools.count(1)
        #: The handler of each command.
        self.handlers: Handlers = HANDLERS
        #: Handles a SEND to a destination with `Config.management_prefix`; None while nothing does.
        self.manage: Callable[[Session, Frame, str], None] | None = None
        #: Makes sessions, with the arguments of `Session`.
        self.session_class: Callable[Concatenate[Host, str, float, ...], Session] = Session
        if config.log_frames != "off":
            self.handlers, self.session_class = logged(HANDLERS), LoggedSession
        self.send_budget = self.write_high = min(config.write_high, max(_LEAST_ROOM, config.memory // 1024))
        #: Set by the shell: lets little output of a session wait below it, see `Outbox.bound`.
        self.bound_output: Callable[[Session], object] = lambda session: None
        self.dirty: list[Session] = []
        #: Sessions that are sending a large message, and some that recently did.
        self.uploads: set[Session] = set()
        #: Sessions that wait for a file descriptor to read a large message.
        self.lacking_files: list[Session] = []
        #: Sessions with `cached_targets`.
        self.senders: dict[Session, None] = {}
        #: Sessions to which a message could not be written, with its queue. They end with the turn.
        self.failing: list[tuple[Session, Deliverer]] = []
        self._resumable: list[Refillable] = []
        #: The number of transports lost since the last turn; and sessions that end later, with the reasons.
        self._losses = 0
        #: The last turn left the work to this one, because there was a commit.
        self._skipped = False
        self._lost: deque[tuple[Session, BaseException | None]] = deque()

    def _begin_time(self) -> None:
        self.now = 0.0
        self._stopping = False
        self._paged_expiry = PagedExpiry(self.journal, self.wall)
        self._wait_log = WaitLog(self.account, self.log)
        #: What management wants to be called about once per second.
        self.each_second: list[Callable[[], object]] = []
        #: The next check of each session, by id.
        self._deadlines = Deadlines()
        self._sweep_at: float | None = None
        self._idle_at = self._retry_at = 0.0
        #: Failed commits counted at the latest turn. A commit in the background fails between turns.
        self._failures = 0

    # ---- destinations ----
    def virtual_host(self, vhost: str) -> VirtualHost:
        """Return the destinations of a virtual host."""
        host = self._virtual_hosts.get(vhost)
        if host is None:
            config, latest = self.config, lambda: self.seq
            destinations = Destinations(
                *(vhost, config, self.account, self.journal, self.wall, self.place, self._forget_targets),
                *(self._opened, latest, self.retries.hold),
            )
            host = VirtualHost(vhost, config, destinations)
            self._virtual_hosts[vhost] = host
        return host

    @property
    def hosts(self) -> dict[str, VirtualHost]:
        """All virtual hosts that have been used, by their names, as a new dict."""
        return dict(self._virtual_hosts)

    @property
    def queues(self) -> dict[tuple[str, str], Queue]:
        """All queues by virtual host and name, as a new dict for inspection."""
        return {
            (vhost, name): queue for vhost, host in self._virtual_hosts.items() for name, queue in host.queues.items()
        }

    def place(self, message: Message) -> None:
        """Number a message, which gives it its place in the order and its message-id."""
        self.seq = message.seq = seq = self.seq + 1
        message.ident = ident_of(self.ident, seq)
        if self.config.message_id_header:
            first = 0 if message.due is None else message.tail.index(b"\n") + 1  # that says when stays in front
            message.tail = b"%bamqMessageId:STOMP%d\n%b" % (message.tail[:first], seq, message.tail[first:])
            message.size = len(message.tail)

    def _forget_targets(self) -> None:
        """Clear the target caches of all sessions that have any, because destinations were removed."""
        senders, self.senders = self.senders, {}
        for session in senders:
            session.forget_targets()

    def open(self, now: float) -> None:
        """Load the store into the queues. Raise StoreError if it cannot be read."""
        self.now, self._sweep_at = now, now + _SWEEP_EXPIRED
        self.spool.open()
        store = self.journal.store
        if store is None:
            return
        self.journal.look_at_space(self.config.store_free)
        for record in store.subscriptions():
            vhost, _, name = record.queue.partition("\0")
            self.virtual_host(vhost).destinations.restore(record, name)
        self.journal.restored = self._restored
        window, destinations = self.config.window_messages, lambda vhost: self.virtual_host(vhost).destinations
        self.seq = load_queues(store, window, self._restored, destinations)
        date = self.wall()
        for key in store.keys():
            self.sent.load(key, now, date)
        for queue in self.queues.values():
            self.delayed.add_all(queue)
        self.delayed.sweep()
        self.seq = max(self.seq, store.mark)
        self._reserve(store)
        store.commit()

    def _restored(self, stored: Stored) -> Message:
        message = restored(stored)
        if stored.body is not None:
            message.body = self.spool.keep(stored.body)
        return reload_schedule(message, self.config.dialect)

    def _reserve(self, store: Store) -> None:
        """Have the store record seqs ahead of use. They must rise across restarts, because readers remember them."""
        self._reserved = self.seq + _RESERVED
        store.reserve(self._reserved)

    # ---- sessions ----
    def attach(
        self, now: float, *, peer: str = "", secure: bool = False, whole_frames: bool = False, listener: str = "stomp"
    ) -> Session:
        """Return a session for a new connection; with `whole_frames`, each chunk of its output is a whole frame."""
        self.now = now
        session = self.session_class(
            self,
            f"{next(self._numbers)}-{base64.b32encode(self._entropy(_ID_SIZE)).decode().lower()}",
            now,
            peer=peer,
            secure=secure,
            whole_frames=whole_frames,
            listener=listener,
        )
        is_short = self._stopping or not self.account.has_room(CONNECTION)
        remedy = LATER if is_short else self.connections.why_not(session, len(self.sessions), now)
        if remedy is not None:
            self.stats.sessions_refused += 1
            session.fail("broker is shutting down" if self._stopping else "too many connections", remedy)
            return session
        self.stats.sessions_total += 1
        self.sessions[session.id] = session
        self.connections.enter(session)
        session.memory.charge(CONNECTION)
        self._share_output()
        self._deadlines.set(session.id, now + self.config.login_timeout)
        return session

    def connected(self, session: Session) -> None:
        """Start heart-beats after CONNECTED was sent."""
        self._deadlines.drop(session.id)  # the deadline of the login
        self._set_beat(session)

    def detach(self, session: Session) -> None:
        """Forget a session whose transport is closed."""
        if self.sessions.pop(session.id, None) is not None:
            session.memory.close()
            self.stats.delivered += session.outbox.delivered
            self.stats.acknowledged += session.acknowledged
            self.connections.leave(session)
            self._share_output()
        self.senders.pop(session, None)
        self._deadlines.drop(session.id)

    def lose(self, session: Session, error: BaseException | None) -> bool:
        """Return True if a session with a lost transport must end later, because too many were lost at once."""
        self._losses += bool(session.version) + len(session.consumers)
        if self._losses <= _MOST_LOSSES:
            return False
        if not self._lost:
            self.quota.line_up(Work(self._losing()))
        self._lost.append((session, error))
        return True

    def _losing(self) -> Iterator[Line]:
        """End sessions with lost transports, some in each turn."""
        while self._lost:
            left = _MOST_LOSSES
            while self._lost and left > 0:
                session, error = self._lost.popleft()
                left -= 1 + len(session.consumers)
                session.leave(self.now, error)
            if self._lost:
                yield self.quota

    def watch(self, session: Session) -> None:
        """Cut off an ended session in the middle of a large message when its peer stops reading."""
        self._deadlines.set(session.id, self.now + _STUCK)

    def _share_output(self) -> None:
        """Divide a quarter of the memory among the outboxes of all sessions."""
        share = self.config.memory // 4 // max(1, len(self.sessions))
        self.send_budget = min(self.write_high, max(_LEAST_ROOM, share))

    def relieve(self) -> None:
        """End the sessions that hold the most memory, until the others can continue."""
        while self.account.is_overheld:
            session = max(self.sessions.values(), key=_holds, default=None)
            if session is None or session.ended:
                break
            session.exhaust()

    def resume(self, peer: Refillable) -> None:
        """Refill a session's consumers when the next turn ends, because it has room again."""
        self._resumable.append(peer)

    @property
    def horizon(self) -> int | None:
        """The lowest seq of a message that takes effect after a commit; None if there is none."""
        return self.journal.horizon

    @property
    def stopping(self) -> bool:
        """The broker is ending its sessions, and accepts no more."""
        return self._stopping

    def watch_horizon(self, action: Callable[[], object]) -> None:
        """Call something once when the horizon may have moved."""
        self.journal.watch(action)

    # ---- the end of a turn ----
    def turn(self, now: float) -> Iterator[Session]:
        """End a turn of the loop, and yield each session to flush. Iterate to the end.

        The commit follows the first sessions, and then come those that waited for it, in this turn or a later one.
        """
        self.now = now
        self._losses = 0
        quota, worked = self.quota, False
        if quota.blocked or quota.front.blocked:
            self._skipped = (yield from self.settle(now)) and not self._skipped
            if worked := not self._skipped:  # a turn commits or works
                quota.next(now)
            if quota.waiting:
                self.wake()
        self._flush_topics()
        if self._resumable:
            self._resume_some()
        if self.account.waiting:
            self.account.release()
        if self.failing:
            self._end_failing()
        if worked and quota.waiting and not self.journal.batch.waiters:
            yield from self._handed_out()
        else:
            yield from self.settle(now)

    def settle(self, now: float) -> Generator[Session, None, bool]:
        """Yield the sessions to flush, and commit. Return whether there was a commit.

        This is the last part of a turn. It also runs between turns when a background commit is done, so that receipts
        are not delayed by sessions that use up their share of the loop, and the next commit starts.
        """
        self.now = now
        if self._opened or self.dirty:  # a receipt must not be sent for a message that is not in the batch yet
            yield from self._handed_out()
        journal = self.journal
        if self._reserved and self.seq > self._reserved - _RESERVED // 2 and journal.store is not None:
            self._reserve(journal.store)
        if journal.failures > self._failures:
            self._put_off_retry(now)
        committed = False
        while journal.may_commit and (journal.batch.waiters or (now >= self._retry_at and not journal.puts_off())):
            is_void = journal.commit()
            committed = True
            if journal.failures > self._failures:
                self._put_off_retry(now)
            if journal.store is not None and journal.store.written >= journal.look_at:
                journal.look_at_space(self.config.store_free)
            self._flush_topics()
            if self.failing:
                self._end_failing()
            yield from self._handed_out()
            if not (journal.batch.waiters or is_void):  # otherwise something took effect that must itself be stored
                break
        return committed

    def _put_off_retry(self, now: float) -> None:
        """Retry later after a failed commit, unless sessions wait for it."""
        self._failures = self.journal.failures
        self.journal.look_at_space(self.config.store_free)
        self._retry_at = now + _RETRY

    def _resume_some(self) -> None:
        """Refill sessions that have room again, up to a limit per turn."""
        resumable, self._resumable = self._resumable, []
        resumable.reverse()
        left = 2 * self.quota.step
        while resumable and left > 0:
            left -= 1 + resumable.pop().refill()
        if resumable:
            resumable.reverse()
            self._resumable[:0] = resumable
            self.wake()

    def _handed_out(self) -> Iterator[Session]:
        self._flush_topics()
        dirty, self.dirty = self.dirty, []
        for session in dirty:
            session.outbox.dirty = False
            yield session

    def _flush_topics(self) -> None:
        while self._opened:
            self._opened.pop().flush()

    def _end_failing(self) -> None:
        """End sessions to which a message could not be written. Returned messages may fail for others as well."""
        while self.failing:
            session, queue = self.failing.pop()
            session.fail("a message could not be written", "It cannot be sent to this session. See the broker's log.")
            if not queue.closed:
                queue.dispatch()
            self._flush_topics()

    # ---- time ----
    def tick(self, now: float) -> None:
        """Do what is due: heart-beats, login timeouts, expiry. A turn must follow."""
        self.now = now
        for _ in range(AT_ONCE):  # the others in the next turn
            found = self._deadlines.pop(now)
            if found is None:
                break
            session = self.sessions.get(found[0])
            if session is not None:
                self._look(session, now, now - found[1])
        self.delayed.release()
        self.retries.release(now)
        if self._sweep_at is not None and now >= self._sweep_at:
            self._sweep(now)

    def _look(self, session: Session, now: float, late: float) -> None:
        """Check a session whose deadline is due."""
        if session.ended:
            if session.outbox.downloads and not session.outbox.is_moving():
                session.cut()
            elif session.outbox.downloads:
                self.watch(session)
            return
        if not session.connected:
            session.fail("login took too long", f"Send CONNECT within {self.config.login_timeout:g} s.")
            return
        if late > _STALL:
            session.connection.excuse(late + _STALL, now)  # bytes that arrived in the meantime are not read yet
        if not session.tick(now):
            session.fail("heart-beats are missing", remedy(session.ttl, session.version))
            return
        self._set_beat(session)

    def _set_beat(self, session: Session) -> None:
        """Set the next check by the connection's deadline."""
        deadline = session.connection.next_deadline()
        if deadline is not None:
            self._deadlines.set(session.id, deadline)

    def _sweep(self, now: float) -> None:
        for host in self._virtual_hosts.values():
            host.destinations.expire(now)
            if now >= self._idle_at:
                host.destinations.sweep()
        if now >= self._idle_at:
            self._idle_at = now + _SWEEP_IDLE
        self._sweep_at = now + _SWEEP_EXPIRED
        self._paged_expiry.sweep(now)
        self.delayed.sweep()
        expiring = self.sent.sweep(now)
        if expiring is not None:
            self.quota.line_up(Work(expiring))
        for action in self.each_second:
            action()
        self.account.release(True)
        self._wait_log.look(now)
        self.journal.look_at_space(self.config.store_free)
        self.journal.tidy()
        self._look_at_uploads(now)
        lacking, self.lacking_files = self.lacking_files, []
        for session in lacking:
            if session.outbox.downloads:
                session.outbox.schedule_flush()

    def _look_at_uploads(self, now: float) -> None:
        """End sessions that stall or crawl in the middle of a large message, which holds a file and a descriptor."""
        timeout, rate = self.config.upload_timeout, self.config.upload_rate
        for session in list(self.uploads):
            upload = session.upload
            if upload is None or session.ended:
                self.uploads.discard(session)
                continue
            why = why_stuck(upload, now, timeout, rate, session.paused)
            if why is not None:
                self.uploads.discard(session)
                session.fail("the large message has stalled", f"{why}: send the whole message again.", upload.frame)

    def next_deadline(self) -> float | None:
        """Return the time in seconds at which `tick`, or a turn, is due, or None. Ask again after every turn."""
        if self._resumable or self.dirty or self._opened or self.failing:
            return self.now
        times = [at for at in (self._sweep_at, self._deadlines.next, self.retries.next) if at is not None]
        if self.delayed.wait is not None:
            times.append(self.now + self.delayed.wait)
        if self.journal.may_commit:
            times.append(self._retry_at)
        return min(times, default=None)

    def stop(self, now: float) -> None:
        """End all sessions with ERROR and accept no more. A turn must follow."""
        self.now = now
        self._stopping = True
        for session in (sessions := list(self.sessions.values())):
            session.outbox.send_budget = 0  # what one gives back is not delivered to those that end next
        for session in sessions:
            session.fail("broker is shutting down", "Connect again when it has restarted.")
        while self.quota.waiting:
            self.quota.next(now)


def _holds(session: Session) -> int:
    return 0 if session.ended else session.memory.spare


def access_to(config: Config) -> Access:
    """Return the access rights of files that hold messages. Raise ConfigError if the group does not exist."""
    try:
        return access_of(config.mode, config.group)
    except ValueError as error:
        raise ConfigError(str(error), key="group") from None


def store_of(config: Config) -> Store:
    """Return the store of a configuration. Raise StoreError if it cannot be used."""
    if config.data is None:
        return MemoryStore(keeps=False)
    from stompcodec.broker.storage.sqlite import SqliteStore

    if not config.force_fs:
        examine_place(config.data)
    reserve = RESERVE if config.store_free else 0
    return SqliteStore(config.data, access=access_to(config), reserve=reserve)
