"""The engine: what the I/O thread does for one client, and how others use its core and wire.

Both shells use it, so that heart-beats go on while a handler computes or sleeps, in a thread or in an event loop. Other
threads change the core under `lock`, by `do`, which wakes the I/O thread. Messages are handed over once per chunk that
was read, not one by one.

Invariant: the core and the wire are used under `lock` only, and no code of users runs under it.
"""

from __future__ import annotations

import logging
import math
import queue
import random
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from stompcodec.client.backoff import BUGS, SPAN, Backoff, Refusals
from stompcodec.client.core import ClientCore
from stompcodec.client.hub import LATE, Steps, Task, Turns, ended, is_finalizing, process, refuse, run, watch
from stompcodec.client.link import Health, health_of, lost_by
from stompcodec.client.messages import BaseMessage, Subscription
from stompcodec.client.options import Options
from stompcodec.client.outbox import Call
from stompcodec.client.owner import Attempt, WireOwner
from stompcodec.codec import Frame
from stompcodec.errors import ConnectionLostError, RejectedError, RemoteProtocolError, StompError
from stompcodec.transport.owner import LINGER
from stompcodec.transport.sync import AHEAD, READ, Borrower, SyncWire
from stompcodec.uri import Address

log = logging.getLogger("stompcodec.client")
_T = TypeVar("_T")
_A = TypeVar("_A", Call, Subscription)
#: Callers that send again within this many seconds leave the writing to the I/O thread: a burst is written at once.
_GATHER = 50e-6
#: After the I/O thread has written, it comes again in this many seconds, so that callers in a burst need not wake it.
_BURST = 0.001
#: If an event loop, or the threads that wait, have read nothing for this many seconds, the I/O thread reads again.
_IDLE = 0.02
#: More bytes than these in one read are no conversation: the I/O thread reads such a stream.
_MUCH = 16 * 1024
#: A thread begins to read its messages itself once this many have come one by one while it waited.
_TALK = 3
#: No attempt begins when fewer seconds of `startup_timeout` than this are left.
_LAST_CHANCE = 0.05
#: The shortest delay in seconds before a broker is asked again that has refused CONNECT within `startup_timeout`.
_REFUSED = 1.0
#: The most turns of the I/O thread whose frames wait for `on_frame`; the frames of others are left out.
_MOST_SEEN = 1000


class News:
    """The outcomes, messages and events of one turn of the I/O thread, taken out of the core."""

    __slots__ = ("calls", "events", "frames", "subscriptions")

    def __init__(self, core: ClientCore) -> None:
        # Empty lists stay with the core: no list may have two owners.
        self.calls: list[Call] = []
        self.subscriptions: list[Subscription] = []
        self.events: list[tuple[str, Exception | None]] = []
        self.frames: list[tuple[str, Frame]] = []
        if core.link.calls.finished:
            self.calls, core.link.calls.finished = core.link.calls.finished, []
        if core.inbound.touched:
            self.subscriptions, core.inbound.touched = core.inbound.touched, []
            for subscription in self.subscriptions:
                subscription.touched = False
        if core.link.events:
            self.events, core.link.events = core.link.events, []
        if core.link.trace:
            self.frames, core.link.trace = core.link.trace, []

    def wake(self) -> None:
        """Wake all who wait for these calls or messages."""
        each: Any
        for each in (*self.calls, *self.subscriptions):
            if each.wake is not None:
                each.wake()

    def show(self, options: Options) -> None:
        """Call `on_frame` and `on_state`, and log what they raise."""
        hooks: Any = (("on_frame", options.on_frame, self.frames), ("on_state", options.on_state, self.events))
        for name, hook, found in hooks:
            for each in found if hook is not None else ():
                try:
                    hook(*each)
                except Exception:
                    log.exception("%s failed", name)

    def __bool__(self) -> bool:
        return bool(self.calls or self.subscriptions or self.events or self.frames)


class Watcher:
    """A thread that runs the callbacks. If they are too slow, frames are left out, but no states."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._queue: queue.SimpleQueue[News | None] = queue.SimpleQueue()
        self._missed = 0
        self._thread = threading.Thread(target=self._run, name="stompcodec-hooks", daemon=True)
        self._thread.start()

    def put(self, news: News) -> None:
        """Queue events and frames for the callbacks."""
        if news.frames and self._queue.qsize() >= _MOST_SEEN:
            self._missed += len(news.frames)
            news.frames = []
        if news.events or news.frames:
            self._queue.put(news)

    def stop(self, timeout: float) -> None:
        """End the thread after all callbacks; wait at most `timeout` seconds for that."""
        self._queue.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(min(timeout, threading.TIMEOUT_MAX))

    def _run(self) -> None:
        while (news := self._queue.get()) is not None:
            news.show(self._options)
            if self._missed:
                log.warning("on_frame is too slow: %d frames were left out", self._missed)
                self._missed = 0


class Delivery(Protocol):
    """The engine's way to those who wait."""

    selector: Borrower | None
    """Watches the socket while the wire is lent. An event loop watches it, and calls `Engine.read`; a thread that waits
    polls it, in `Engine.read_for` or `read_messages`. None: only the I/O thread reads."""
    reads_all: bool
    """True for an event loop, which reads whatever comes; False for threads, which only read while they wait."""

    def note(self, news: News) -> None:
        """Queue these news for the callbacks, in order. Called before `deliver`, under the lock; it must not block."""

    def deliver(self, news: News) -> None:
        """Wake all who wait for these news. Called in any thread, under no lock; it must not block."""

    def credential(self, ask: Callable[[], Any], timeout: float) -> Any:
        """Return the login or passcode that a function of the user gives. Called in a thread that may block."""


class Engine:
    """The I/O of one client. `delivery` wakes those who wait."""

    def __init__(self, core: ClientCore, addresses: Sequence[Address], delivery: Delivery) -> None:
        self.core = core
        self.lock = threading.Lock()
        self._turns = Turns(self.lock)  # the I/O thread takes the lock by it, where others may be busy
        self.addresses = list(addresses)
        self._delivery = delivery
        self._options: Options = core.link.options
        self._task: Task | None = None  # in the hub; None before `start` and at the end
        self._work: Task | None = None  # the same, also at the end
        self._attempt: Attempt | None = None  # the present one
        self._last: Attempt | None = None  # also after its connection
        self._owner: WireOwner | None = None  # of the present connection
        self.is_copy = False
        """Whether this process was forked from the one that opened the client."""
        self._is_guarded = process.is_ending
        """Whether calls have to look first at `is_gone`."""
        # Invariant: a time is one of the clock, or infinite, which means always or never; those are never waited for.
        self._called = -math.inf  # when a caller last had output
        self._comes_by = -math.inf  # when the I/O thread looks for the output of a burst
        self._due = math.inf  # when the I/O thread goes on at the latest
        self._read_at = -math.inf  # when the event loop, or a thread that waits, last read or began to wait for bytes
        self._was_good = self._has_lasted = False  # the last session: see `WireOwner`

    def start(self) -> None:
        """Have the I/O thread connect."""
        watch(self)
        with self.lock:
            self._task = self._work = run(self._main())

    def forked(self) -> None:
        """Note that this is a copy in a child process, without I/O thread; its lock may be held for ever."""
        self.is_copy = self._is_guarded = True
        self.core.link.state = "closed"
        for subscription in self.core.inbound.subscriptions.values():
            subscription.batch.clear()  # else both processes would handle them

    def ending(self) -> None:
        """Note that the interpreter begins to end."""
        self._is_guarded = True

    @property
    def is_gone(self) -> bool:
        """True if there is no I/O thread any more: in a child process, and while the interpreter finalizes."""
        return self._is_guarded and (self.is_copy or is_finalizing())

    def check(self) -> None:
        """Raise LocalProtocolError if there is no I/O thread any more."""
        if self.is_gone:
            raise refuse() if self.is_copy else ended()

    def let_go(self) -> None:
        """Close the descriptors of a client without I/O thread. The connection of a parent process goes on."""
        if not self.is_copy and (unsent := self.core.link.outbox.frames):
            log.warning("%d frames were never sent: %s", unsent, "the client was closed as the interpreter shuts down")
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.wire.let_go()

    def do(self, work: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
        """Call a method of the core, from any thread; write its output, and wake the I/O thread if that has work."""
        if self._is_guarded:
            self.check()
        core = self.core
        if self._turns.waits:
            self._turns.let_pass()
        with self.lock:
            result = work(*args, **kwargs)
            task = self._task if core.link.events or not self._write() else None
            news = News(core) if core.link.calls.finished or core.inbound.touched or core.link.events else None
            if news is not None:
                self._delivery.note(news)
        if news is not None:
            self._delivery.deliver(news)
        if task is not None:
            task.wake()
        return result

    def _write(self) -> bool:
        """Write the output if nothing waits before it; return False if the I/O thread has something to do."""
        owner, link = self._owner, self.core.link
        connection = link.connection
        if owner is None or connection is None or connection is not owner.connection or link.outbox.waiting:
            return False
        is_burst, self._called = link.now - self._called < _GATHER, link.now
        if is_burst:
            if link.now >= self._comes_by:
                return False
        elif owner.wire.send_now(connection.output):
            link.written()
        else:
            return False
        return self._is_settled(owner)

    def _is_settled(self, owner: WireOwner) -> bool:
        """Return whether the I/O thread knows all that it has to: whether to read, and when to come again."""
        link = self.core.link
        soonest = min(link.calls.deadlines.soonest, link.pace.until)
        return owner.paused is self.core.inbound.paused and soonest >= self._due

    def read(self) -> None:
        """Read in the event loop's thread, while the wire is lent to it: see `_lend`."""
        core = self.core
        if self.is_copy:
            return
        is_done, task = False, self._task
        try:
            with self.lock:
                owner = self._owner
                if owner is None or not owner.wire.is_lent or core.inbound.paused:  # the I/O thread takes it back
                    return
                try:
                    is_done = owner.wire.read_now() and self._was_talk(owner)
                except Exception as error:  # a bug must not leave callers waiting
                    log.exception("the I/O of the client failed")
                    core.link.end(error)
                news = News(core)
                self._delivery.note(news)
            if news.events or news.frames:  # behind those that the I/O thread has delivered
                self._delivery.deliver(news)
            else:
                news.wake()
        finally:
            if not is_done and task is not None:
                task.wake()

    def read_for(self, poll: Callable[[float], object], call: Call) -> None:
        """Read in the thread that waits for a call, while the wire is lent to such threads: see `_lend`.

        `poll` waits for bytes, at most so many milliseconds. This returns at the outcome, or when the I/O thread has to
        read: something else was received, or nothing for a while. Then the caller waits to be woken. For a call
        that was not sent, such as one that waits for room, the I/O thread reads. An interrupt (Ctrl-C) anywhere in this
        loses nothing: the I/O thread takes back the wire, and handles what was read, after `_IDLE` seconds at the
        latest.
        """
        if call.done:
            return
        if call.id in self.core.link.calls.sent:
            self._read_by(poll, _IDLE, WireOwner.take_receipt, call)
        elif (owner := self._owner) is not None and owner.wire.is_lent:
            self.stop_reading()

    def read_messages(self, poll: Callable[[float], object], subscription: Subscription, until: float | None) -> bool:
        """Do what `read_for` does in a thread that waits for messages; return True if there are some now."""
        seconds = _IDLE if until is None else min(until - time.monotonic(), _IDLE)
        return seconds > 0 and self._read_by(poll, seconds, WireOwner.take_messages, subscription)

    def _read_by(
        self, poll: Callable[[float], object], seconds: float, take: Callable[[WireOwner, _A, float], bool], awaited: _A
    ) -> bool:
        owner, task = self._owner, self._task
        if owner is None or task is None or not owner.wire.is_lent:
            return False
        self._read_at = time.monotonic()
        try:
            if not poll(seconds * 1000):
                return False
        except RuntimeError:  # another thread polls
            return False
        with self.lock:
            if owner is not self._owner or not owner.wire.is_lent:
                return False
            self._read_at = now = time.monotonic()
            self._called = -math.inf  # what follows is no burst
            took = take(owner, awaited, now)
            if took and not self.core.link.calls.sent and not self._others_wait(awaited):
                return True
            owner.wire.give_back()
        task.wake()
        return took

    def _others_wait(self, awaited: object) -> bool:
        """Return whether threads wait for messages of another subscription: the I/O thread has to read those."""
        return any(each.waiting for each in self.core.inbound.subscriptions.values() if each is not awaited)

    def stop_reading(self) -> None:
        """Have the I/O thread read again. The event loop's thread also calls this before it closes its selector."""
        with self.lock:
            owner, task = self._owner, self._task
            if owner is not None:
                owner.wire.give_back()
        if task is not None:
            task.wake()

    def _was_talk(self, owner: WireOwner) -> bool:
        """Note what the event loop has read; return whether it is done, and reads on."""
        link = self.core.link
        if owner.octets > _MUCH:
            owner.wire.give_back()
            return False
        self._read_at, self._called = link.now, -math.inf  # what is sent next is no burst
        connection = link.connection
        if connection is None or connection is not owner.connection or connection.output or link.outbox:
            return False
        return self._is_settled(owner)

    def send(self, destination: str, body: bytes, call: Call | None = None) -> bool:
        """Send a message without other headers by a fast path; return False if `do` and the core's `send` have to."""
        if self._is_guarded:
            return False
        link = self.core.link
        if self._turns.waits:
            self._turns.let_pass()
        with self.lock:
            link.now = now = time.monotonic()
            if not link.put_plain(destination, body, call):
                return False
            if call is None and now < self._comes_by and now - self._called < _GATHER:
                self._called = now  # as `_write` would; what the I/O thread knows is as it was
                return True
            task = None if self._write() else self._task
        if task is not None:
            task.wake()
        return True

    def look(self, work: Callable[[], _T]) -> _T:
        """Call a method of the core that changes nothing."""
        with self.lock:
            return work()

    def acknowledge(self, message: BaseMessage) -> bool:
        """Acknowledge a message by the core's fast path; return False if it does not apply."""
        if self._is_guarded:
            self.check()
        if self._turns.waits:
            self._turns.let_pass()
        with self.lock:
            self.core.link.now = time.monotonic()
            done = self.core.acknowledge(message)
            task = self._task if done else None
            # With no more messages at hand the consumer waits for what this ACK brings, so it is written at once, also
            # in a burst: 85 us of CPU per message instead of 150. Otherwise the I/O thread gathers the ACKs of a batch.
            if task is not None and not message.subscription.batch:
                self._called = -math.inf
                task = None if self._write() else task
                self._called = -math.inf  # an ACK starts no burst: a reply that follows is written at once
        if task is not None:
            task.wake()
        return done

    def take(self, subscription: Subscription) -> None:
        """Move the messages of an inbox to the batch. The caller holds the lock."""
        self._tell_room()
        self.core.inbound.take(subscription)

    def take_one(self, subscription: Subscription) -> Any:
        """Take the first message of an inbox, if there is one. The caller holds the lock."""
        inbound, inbox = self.core.inbound, subscription.inbox
        if not inbox:
            return None
        if len(inbox) == 1:
            self._tell_room()
        message = inbound.take_one(subscription)
        if not inbound.paused:
            self._tell_room()
        return message

    def _tell_room(self) -> None:
        """Have the I/O thread check whether it may read again; before the inbox is empty, in case of an interrupt."""
        owner, task = self._owner, self._task
        if owner is not None and owner.paused and task is not None:
            self.core.link.now = time.monotonic()  # up to which the server is excused
            task.wake()

    @property
    def running(self) -> bool:
        """True while the I/O thread works for this client."""
        return self._work is not None and not self._work.ended.is_set()

    @property
    def is_leaving(self) -> bool:
        """True while the thread of the last attempt is inside of middleware, which may need the event loop."""
        return bool(self._options.middleware) and self._last is not None and self._last.is_alive()

    def health(self) -> Health:
        """Return how the client is doing. Any thread may call this."""
        if self.is_gone:
            return Health(False, "closed", None, 0, None)
        with self.lock:
            return health_of(self.core.link, time.monotonic(), self.running)

    def join(self, timeout: float) -> None:
        """Wait until the I/O thread is done with this client, at most `timeout` seconds."""
        if self._work is not None:
            self._work.join(timeout)

    # ---- the I/O thread runs everything below ----
    def _main(self) -> Steps:
        """Do all the work of the client. The hub may drop a generator at any `yield`, so none has a `finally`."""
        with self.lock:  # until `start` is done
            assert self._work is not None
        try:
            yield from self._supervise()
        except Exception as error:  # a bug must not leave callers waiting
            log.exception("the I/O of the client failed")
            with self.lock:
                self.core.link.end(error)
            self._leave()
        with self.lock:
            self._task = None
            news = News(self.core)
            self._delivery.note(news)
        if news:
            self._delivery.deliver(news)

    def _turn(self, owner: WireOwner | None) -> float | None:
        """Write output, and deliver news; return when the next turn is due."""
        core = self.core
        now = time.monotonic()
        with self._turns:
            if owner is not None and core.link.connection is not None:
                owner.wire.settle(core.link.connection.output)
            chunks = core.link.take_output(now)
            due = core.link.next_deadline()
            self._comes_by = now + _BURST if chunks else -math.inf
            if owner is not None:
                if chunks:
                    owner.wire.write(chunks)
                    due = self._comes_by if due is None else min(due, self._comes_by)
                due = self._watch(owner, now, due)
                due = self._lend(owner, now, due)
            # A time that was set stays, also if its call has ended: with each later call the same would happen again.
            if now < self._due < math.inf:
                due = self._due if due is None else min(due, self._due)
            self._due = math.inf if due is None else due
            core.link.calls.deadlines.soonest = math.inf
            news = News(core)
            if news:
                self._delivery.note(news)
        if news:
            self._delivery.deliver(news)
        return due

    def _watch(self, owner: WireOwner, now: float, due: float | None) -> float | None:
        """Have the selector look for what matters now; return when the next turn is due, at the latest at `due`."""
        wire, inbound = owner.wire, self.core.inbound
        if inbound.paused:  # an interrupt may have kept the consumer that has made room from saying so
            inbound.weigh()
        paused = inbound.paused
        if owner.paused is not paused:
            owner.paused = paused
            (wire.pause_reading if paused else wire.resume_reading)()
        wire.watch()
        if self.core.link.has_output():  # others have their turns before the rest is written
            return now
        times = [time for time in (due, wire.deadline) if time is not None]
        return min(times, default=None)

    def _lend(self, owner: WireOwner, now: float, due: float | None) -> float | None:
        """Have the event loop, or a waiting thread, read during a conversation; return when the next turn is due.

        What it reads needs no other thread. If it is blocked, or nothing comes, the I/O thread takes the wire back.
        """
        core, wire, selector = self.core, owner.wire, self._delivery.selector
        if wire.is_lent:
            if now >= self._read_at + _IDLE or not (self._delivery.reads_all or self._is_simple()):
                wire.lend(None)
        elif (
            selector is not None
            and (core.inbound.touched or any(call.sent for call in core.link.calls.finished))
            and core.link.phase == "up"
            and not (core.link.events or core.link.trace or owner.paused)  # `on_frame` gets frames in their order
            and owner.octets <= _MUCH
            and (self._delivery.reads_all or (self._is_simple() and self._is_talk(owner, now)))
        ):
            self._read_at = now
            wire.lend(selector)
        if not wire.is_lent:
            return due
        until = self._read_at + _IDLE
        return until if due is None else min(due, until)

    def _is_simple(self) -> bool:
        """Return whether only receipts and messages of one subscription can come.

        A thread that waits for one of these reads it itself; for others it would give the wire back each time.
        """
        inbound = self.core.inbound
        return len(inbound.subscriptions) <= 1 and inbound.reply_subscription is None and self.core.link.trace is None

    def _is_talk(self, owner: WireOwner, now: float) -> bool:
        """Return whether the thread that waits for messages should read the next ones itself; only one may wait.

        It does so where messages come one by one, each soon after the last. In a stream the I/O thread reads the next
        ones while that thread is busy.
        """
        link = self.core.link
        for each in self.core.inbound.subscriptions.values():
            if link.is_watched:  # middleware sees each message before its batch
                return False
            if each.touched:
                is_next = len(each.inbox) == 1 == len(each.waiting) and owner.octets < AHEAD
                is_next = is_next and now < each.came_at + _IDLE
                each.in_turn, each.came_at = each.in_turn + 1 if is_next else 0, now
                if each.in_turn < _TALK:
                    return False
            elif each.waiting:
                return False
        return not link.calls.sent

    def _tick(self, due: float | None, wire: SyncWire | None) -> None:
        now = time.monotonic()
        if due is None or now < due:
            return
        late = now - due if now - due > LATE else 0.0
        with self._turns:
            if wire is not None and late:
                wire.handle(READ)  # bytes received in the meantime prove that the peer lives
            self.core.link.tick(now, late)

    def _wait(self, until: float | None, attempt: Attempt | None = None) -> Generator[float | None, int, bool]:
        """Do what is due without a connection, until a time or the end of an attempt; return False once closed."""
        while self.core.link.state not in ("closing", "closed"):
            due = self._turn(None)
            now = time.monotonic()
            if (until is not None and now >= until) or (attempt is not None and attempt.done):
                return True
            times = [time for time in (due, until) if time is not None]
            yield min(times, default=None)
            self._tick(due, None)
        return False

    # ---- connecting ----
    def _supervise(self) -> Steps:
        """Connect, and connect again, until the client is closed or gives up."""
        options = self._options
        until = time.monotonic() + options.startup_timeout if options.startup_timeout else None
        delays: Iterator[float] | None = None
        first = True
        refused: RejectedError | None = None  # says more than a timeout
        refusals = Refusals(options.login_attempts, 0.0)
        while True:
            error: Exception | None = None
            for address in list(self.addresses):
                failed = yield from self._session(address, until)
                if self.core.link.state in ("closing", "closed"):
                    return
                if failed is None:  # there was a session, and it was lost
                    error, first, until = None, False, None
                    refusals = Refusals(options.login_attempts, SPAN)
                    delays = None if self._has_lasted else delays
                    self._begin_with(address, after=not self._was_good)
                    break
                bug = failed if isinstance(failed, BUGS) else None
                if first and bug is not None:
                    self._give_up(bug)
                    return
                level = logging.INFO if first else logging.WARNING
                log.log(level, "no session at %s%s: %s", address, self._named(), failed, exc_info=bug)
                error = _at(address, failed, was_open=self._last is None or self._last.error is None)
                refused = error if isinstance(error, RejectedError) else refused
                if self._is_refused(failed, refusals) and not first:
                    self._give_up(error)
                    return
                if until is not None and time.monotonic() >= until:
                    break
            left = 0.0 if until is None else until - time.monotonic()
            if first and error is not None and (left <= _LAST_CHANCE or refusals.are_enough):
                self._give_up(refused or error)
                return
            backoff = options.reconnect or (Backoff(most=1.0) if first else None)  # for `startup_timeout`
            delays = delays or (backoff.delays(random.Random().random) if backoff else iter(()))
            delay = next(delays, None)
            if delay is None:
                self._give_up(error or self.core.link.error or ConnectionLostError("the connection was lost"))
                return
            if first and refused is None:
                # A broker that starts late gets more attempts before the timeout.
                delay = min(delay, left / 2)
            elif first:  # one that refuses is asked once more
                delay = min(max(delay, _REFUSED), left - _LAST_CHANCE)
            if not (yield from self._wait(time.monotonic() + delay)):
                return

    def _named(self) -> str:
        """Return the client's name in a log: its client-id, or its last session."""
        server = self.core.link.server
        who = self._options.client_id or (None if server is None else server.get("session"))
        return f" for {who!r:.60}" if who else ""

    def _is_refused(self, failed: BaseException, refusals: Refusals) -> bool:
        """Count refused logins; return whether to give up."""
        if not isinstance(failed, RejectedError):  # the broker did not answer
            return False
        if self.core.link.dialect.refuses_login(str(failed)):
            return refusals.note(time.monotonic())
        refusals.forget()
        return False

    def _begin_with(self, address: Address, after: bool) -> None:
        """Reorder the addresses, to begin with this one or the one after it."""
        at = self.addresses.index(address) + after
        self.addresses = self.addresses[at:] + self.addresses[:at]

    def _give_up(self, error: Exception) -> None:
        if self.core.link.server is not None:  # else `connect` raises it
            log.error("no more attempts to connect: %s", error)
        with self.lock:
            self.core.link.end(error)

    def _session(self, address: Address, until: float | None) -> Generator[float | None, int, BaseException | None]:
        """Carry a session to its end, which begins before `until`, or in `connect_timeout`; return the error if not."""
        owner = WireOwner(self.core)
        assert self._work is not None
        attempt = Attempt(address, self._options, owner, self._delivery.credential, self._work.wake)
        self._attempt = self._last = attempt
        owner.begun = attempt.begin
        attempt.start()
        if not (yield from self._wait(until, attempt)):
            self._leave()
            attempt.end(None)
            return None
        error = attempt.error
        if not attempt.done:
            error = TimeoutError(f"no connection within startup_timeout, {self._options.startup_timeout:g} s")
        try:
            if error is None and self._open(owner, attempt, until):
                yield from self._serve(owner)
        except StompError as refused:  # CONNECT cannot be written
            error = refused
        self._leave()
        if error is not None:
            with self.lock:
                self.core.link.lost(error, time.monotonic())
            attempt.end(error)
            return error
        attempt.end(self.core.link.error)
        now, restored = time.monotonic(), self.core.link.pace.is_restored
        self._was_good = owner.is_good(now) and restored
        self._has_lasted = owner.has_lasted(now) and restored
        if owner.up_at is not None:
            return None
        return self.core.link.error or ConnectionLostError("closed by the server", sent=False)

    def _open(self, owner: WireOwner, attempt: Attempt, until: float | None) -> bool:
        """Send CONNECT on a new transport; return False if the client was closed meanwhile."""
        link, address = self.core.link, attempt.address
        assert self._work is not None
        with self.lock:
            if link.state in ("closing", "closed"):
                return False
            now = time.monotonic()
            link.opened(
                now,
                host=self._options.vhost or address.vhost or address.host,
                login=attempt.login,
                passcode=attempt.passcode,
                whole_frames=owner.wire.whole_frames,
                text_only=owner.wire.text_only,
                patience=None if until is None else max(until - now, _LAST_CHANCE),
                more=attempt.headers,
            )
            link.address = address
            owner.wire.split(link.pieces)
            owner.connection = link.connection
            self._owner = owner
            owner.wire.join(self._work.selector, self._work)
        return True

    def _leave(self) -> None:
        """Close the transport, also one that is not open yet."""
        attempt, self._attempt = self._attempt, None
        with self.lock:
            self._owner = None
            if attempt is not None:
                attempt.abandon()

    def _serve(self, owner: WireOwner) -> Steps:
        """Carry one connection to its end."""
        core, wire = self.core, owner.wire
        while True:
            due = self._turn(owner)
            if core.link.connection is not owner.connection:
                break
            found = yield due
            with self._turns:
                going_on = wire.handle(found)
            if not going_on:
                return
            self._tick(due, wire)
        if core.link.state == "closed" and core.link.error is None:
            yield from self._hang_up(wire)

    def _hang_up(self, wire: SyncWire) -> Steps:
        """Wait until the server has closed, too, or for a while."""
        with self.lock:
            wire.close()
        until, found = time.monotonic() + 2 * LINGER, 0
        while time.monotonic() < until:
            with self.lock:
                if not wire.handle(found):
                    return
                due = wire.deadline
            found = yield until if due is None else min(due, until)


def _at(address: Address, error: BaseException, was_open: bool) -> Exception:
    """Return the error of an attempt to connect with its address. `was_open`: it is none of middleware."""
    text = f"cannot connect to {address}: {error}"
    asked = " and ".join(["TLS"] * address.tls + ["WebSocket"] * address.websocket)
    if asked and any(sign in text for sign in ("the handshake", "WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")):
        text += f" (does this port speak {asked}?)"
    if was_open and isinstance(error, RemoteProtocolError):
        return RemoteProtocolError(text, cause=error.cause)
    if not isinstance(error, StompError) or (was_open and isinstance(error, ConnectionLostError)):
        return lost_by(error, text, sent=False)
    if not getattr(error, "__notes__", None):  # middleware may raise one object again and again
        error.add_note(f"There was no session at {address}.")
    return error
