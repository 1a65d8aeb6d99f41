"""The I/O thread: it owns the transport, and runs no code of users.

Both shells use it, so that heart-beats go on while a handler computes or sleeps, in a thread or in an event loop. Other
threads change the core under `lock`, by `do`, which wakes the I/O thread. Messages are handed over once per chunk that
was read, not one by one.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from stompcodec.client.backoff import Backoff
from stompcodec.client.core import ClientCore
from stompcodec.client.forks import refuse, watch
from stompcodec.client.message import BaseMessage
from stompcodec.client.options import Credential, Options
from stompcodec.client.receipts import Call
from stompcodec.client.subscription import Subscription
from stompcodec.codec import Frame
from stompcodec.errors import ConnectionLostError, RejectedError, StompError
from stompcodec.heartbeat import Heartbeat
from stompcodec.spec import Limits
from stompcodec.transport.owner import LINGER
from stompcodec.transport.sync import SyncWire, Waker, connect
from stompcodec.uri import Address

log = logging.getLogger("stompcodec.client")

_T = TypeVar("_T")
#: If the I/O thread wakes up this many seconds late, it was held up.
_LATE = 0.5
#: No attempt begins when fewer seconds of `startup_timeout` than this are left.
_LAST_CHANCE = 0.05
#: After a session of this many seconds (for those without heart-beats), delays start from the first again.
_GOOD = 5.0
#: Bytes of a WebSocket message beside one body: headers, or other frames in the same message.
_BESIDE_BODY = 2**20


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
        for call in self.calls:
            if call.wake is not None:
                call.wake()
        for subscription in self.subscriptions:
            if subscription.wake is not None:
                subscription.wake()

    def __bool__(self) -> bool:
        return bool(self.calls or self.subscriptions or self.events or self.frames)


class Delivery(Protocol):
    """The engine's way to those who wait."""

    def deliver(self, news: News) -> None:
        """Wake all who wait for these news. Called in any thread, under no lock; it must not block."""

    def credential(self, ask: Callable[[], Any], timeout: float) -> Any:
        """Return the login or passcode that a function of the user gives. Called in a thread that may block."""


class Engine:
    """The I/O thread of one client. `delivery` wakes those who wait."""

    def __init__(self, core: ClientCore, addresses: Sequence[Address], delivery: Delivery) -> None:
        self.core = core
        self.lock = threading.Lock()
        self.addresses = list(addresses)
        self._delivery = delivery
        self._options: Options = core.link.options
        self._idle: Waker
        self._waker: Waker | None = None  # ends the wait of the I/O thread
        self._owner: _Owner | None = None  # of the present connection
        self.is_copy = False
        """Whether this process was forked from the one that opened the client."""
        self._was_good = False  # the last session lasted long enough for delays to start from the first again
        self._thread = threading.Thread(target=self._main, name="stompcodec-client", daemon=True)

    def start(self) -> None:
        """Start the thread, which connects."""
        with self.lock:
            self._idle = self._waker = Waker()
        watch(self)
        self._thread.start()

    def forked(self) -> None:
        """Note that this is a copy in a child process, without I/O thread; its lock may be held for ever."""
        self.is_copy = True
        self.core.link.state = "closed"
        for subscription in self.core.inbound.subscriptions.values():
            subscription.batch.clear()  # else both processes would handle them

    def check(self) -> None:
        """Raise LocalProtocolError in a child process."""
        if self.is_copy:
            raise refuse()

    def let_go(self) -> None:
        """Close the descriptors that a child process has inherited. The parent's connection goes on."""
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.wire.let_go()
            owner.waker.close()
        self._idle.close()

    def do(self, work: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
        """Call a method of the core, from any thread, and wake the I/O thread."""
        if self.is_copy:
            raise refuse()
        core = self.core
        with self.lock:
            result = work(*args, **kwargs)
            waker = self._waker
            news = News(core) if core.link.calls.finished or core.inbound.touched or core.link.events else None
        if news is not None:
            self._delivery.deliver(news)
        if waker is not None:
            waker.wake()
        return result

    def look(self, work: Callable[[], _T]) -> _T:
        """Call a method of the core that changes nothing."""
        with self.lock:
            return work()

    def acknowledge(self, message: BaseMessage) -> bool:
        """Acknowledge a message by the core's fast path; return False if it does not apply."""
        if self.is_copy:
            raise refuse()
        with self.lock:
            done = self.core.acknowledge(message)
            waker = self._waker
        if done and waker is not None:
            waker.wake()
        return done

    def take(self, subscription: Subscription) -> None:
        """Move the messages of an inbox to the batch. The caller holds the lock."""
        was = self.core.inbound.paused
        self.core.inbound.take(subscription)
        if was and not self.core.inbound.paused and self._waker is not None:
            self._waker.wake()

    @property
    def running(self) -> bool:
        """True while the thread runs."""
        return self._thread.is_alive()

    def join(self, timeout: float) -> None:
        """Wait until the thread has ended, at most `timeout` seconds."""
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join(min(timeout, threading.TIMEOUT_MAX))

    # ---- the I/O thread runs everything below ----

    def _main(self) -> None:
        try:
            self._supervise()
        except Exception as error:  # a bug must not leave callers waiting
            log.exception("the I/O thread failed")
            with self.lock:
                self.core.link.end(error)
        finally:
            self._tell()
            with self.lock:
                self._waker = None
            self._idle.close()

    def _tell(self) -> None:
        with self.lock:
            news = News(self.core)
        if news:
            self._delivery.deliver(news)

    def _turn(self, owner: _Owner | None) -> float | None:
        """Write output, and deliver news; return when the next turn is due."""
        core = self.core
        now = time.monotonic()
        while True:
            with self.lock:
                chunks = core.link.take_output(now)
                if not chunks or owner is None:
                    due = core.link.next_deadline()
                    news = News(core)
                    paused = core.inbound.paused
                    break
            owner.wire.write(chunks)
        if owner is not None and owner.paused is not paused:
            owner.paused = paused
            (owner.wire.pause_reading if paused else owner.wire.resume_reading)()
        if news:
            self._delivery.deliver(news)
        return due

    def _tick(self, due: float | None, wire: SyncWire | None) -> None:
        """Call the core's `tick` if it is due."""
        now = time.monotonic()
        if due is None or now < due:
            return
        late = now - due
        if late > _LATE:
            log.warning("the I/O thread was held up for %.1f s: something keeps the interpreter busy", late)
            if wire is not None:
                wire.poll(0)  # bytes received in the meantime prove that the peer lives
        with self.lock:
            self.core.link.tick(now, late if late > _LATE else 0.0)

    def _wait(self, until: float | None, attempt: _Attempt | None = None) -> bool:
        """Do what is due without a connection, until a time or the end of an attempt; return False once closed."""
        while self.core.link.state not in ("closing", "closed"):
            due = self._turn(None)
            now = time.monotonic()
            if (until is not None and now >= until) or (attempt is not None and attempt.done):
                return True
            times = [time - now for time in (due, until) if time is not None]
            self._idle.wait(max(min(times), 0.0) if times else None)
            self._tick(due, None)
        return False

    # ---- connecting ----

    def _supervise(self) -> None:
        """Connect, and connect again, until the client is closed or gives up."""
        options = self._options
        until = time.monotonic() + options.startup_timeout if options.startup_timeout else None
        delays: Iterator[float] | None = None
        first = True
        refused: RejectedError | None = None  # says more than a timeout
        while True:
            error: BaseException | None = None
            for address in list(self.addresses):
                error = self._session(address, until)
                if self.core.link.state in ("closing", "closed"):
                    return
                if error is None:  # there was a session, and it was lost
                    first, until = False, None
                    good = self._was_good
                    delays = None if good else delays
                    self._begin_with(address, after=not good)
                    break
                refused = error if isinstance(error, RejectedError) else refused
                log.log(logging.INFO if first else logging.WARNING, "no session at %s: %s", address, error)
                if until is not None and time.monotonic() >= until:
                    break
            left = 0.0 if until is None else until - time.monotonic()
            if first and error is not None and left <= _LAST_CHANCE:
                self._give_up(refused or error)
                return
            backoff = options.reconnect or (Backoff(most=1.0) if first else None)  # for `startup_timeout`
            delays = delays or (backoff.delays(random.Random().random) if backoff else iter(()))
            delay = next(delays, None)
            if delay is None:
                self._give_up(error or self.core.link.error or ConnectionLostError("the connection was lost"))
                return
            if first:
                # A broker that starts late gets more attempts before the timeout.
                delay = min(delay, left / 2)
            if not self._wait(time.monotonic() + delay):
                return

    def _begin_with(self, address: Address, after: bool) -> None:
        """Reorder the addresses, to begin with this one or the one after it."""
        at = self.addresses.index(address) + after
        self.addresses = self.addresses[at:] + self.addresses[:at]

    def _give_up(self, error: BaseException) -> None:
        if isinstance(error, StompError):
            reason: Exception = error
        else:
            reason = ConnectionLostError(f"cannot connect to {self.addresses[0]}: {error}", sent=False)
            reason.__cause__ = error
        if self.core.link.server is not None:  # else `connect` raises it
            log.error("no more attempts to connect: %s", reason)
        with self.lock:
            self.core.link.end(reason)

    def _session(self, address: Address, until: float | None) -> BaseException | None:
        """Connect, and carry the session to its end; return the error if none began.

        The session must begin before `until`; with None only `connect_timeout` bounds it.
        """
        core = self.core
        attempt = _Attempt(self, address)
        attempt.start()
        if not self._wait(until, attempt):
            attempt.abandon()
            return None
        owner, error = attempt.owner, attempt.error
        if not attempt.done:
            error = TimeoutError(f"no connection within startup_timeout, {self._options.startup_timeout:g} s")
        try:
            if error is None:
                with self.lock:
                    if core.link.state in ("closing", "closed"):
                        return None
                    now = time.monotonic()
                    core.link.opened(
                        now,
                        host=self._options.vhost or address.vhost or address.host,
                        login=attempt.login,
                        passcode=attempt.passcode,
                        whole_frames=owner.wire.whole_frames,
                        patience=None if until is None else max(until - now, _LAST_CHANCE),
                    )
                    owner.connection = core.link.connection
                    self._waker, self._owner = owner.waker, owner
                self._serve(owner)
        except StompError as refused:  # CONNECT cannot be written
            error = refused
        finally:
            attempt.abandon()
            with self.lock:
                self._waker, self._owner = self._idle, None
        if error is not None:
            with self.lock:
                core.link.lost(error, time.monotonic())
            return error
        self._was_good = owner.is_good(time.monotonic())
        return None if owner.was_up else core.link.error or ConnectionLostError("closed by the server", sent=False)

    def _serve(self, owner: _Owner) -> None:
        """Carry one connection to its end."""
        core, wire = self.core, owner.wire
        while True:
            due = self._turn(owner)
            if core.link.connection is not owner.connection:
                break
            if not wire.poll(None if due is None else max(due - time.monotonic(), 0.0)):
                return
            self._tick(due, wire)
        if core.link.state == "closed" and core.link.error is None:
            wire.close()
            until = time.monotonic() + 2 * LINGER
            while wire.poll(LINGER / 4):
                if time.monotonic() >= until:
                    break


class _Owner:
    """The owner of one wire. It ignores events of a wire whose connection is not the core's any more."""

    wire: SyncWire

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.waker = Waker()
        self.connection: Any = None
        self.paused = False
        self.up_at: float | None = None  # when its session began
        self.beat = 0.0  # the longer interval of its heart-beats, in seconds; 0 without

    @property
    def was_up(self) -> bool:
        """True if there was a session."""
        return self.up_at is not None

    def _beat(self) -> float:
        heartbeat: Heartbeat = self.connection.heartbeat
        return max(heartbeat) / 1000

    def is_good(self, now: float) -> bool:
        """Return whether the session lasted for a heart-beat. One that broke sooner may do so each time."""
        return self.up_at is not None and now - self.up_at >= (self.beat or _GOOD)

    def opened(self, wire: SyncWire) -> None:
        self.wire = wire
        limits = self._engine._options.limits or Limits()
        wire.bound(limits.max_body + _BESIDE_BODY)

    def received(self, data: bytes | memoryview) -> None:
        engine = self._engine
        core, connection = engine.core, self.connection
        with engine.lock:
            if connection is not None and core.link.connection is connection:
                now = time.monotonic()
                core.inbound.receive(data, now)
                if self.up_at is None and core.link.in_session:
                    self.up_at = now
                    self.beat = self._beat()

    def writable(self, yes: bool) -> None:
        with self._engine.lock:
            self._engine.core.link.writable(yes)

    def lost(self, error: BaseException | None) -> None:
        core = self._engine.core
        with self._engine.lock:
            if self.connection is not None and core.link.connection is self.connection:
                core.link.lost(error, time.monotonic())


class _Attempt(threading.Thread):
    """A thread that asks for credentials and connects, so that slow ones do not hold up timeouts and `close`."""

    def __init__(self, engine: Engine, address: Address) -> None:
        super().__init__(name="stompcodec-connect", daemon=True)
        self._engine = engine
        self._address = address
        self._lock = threading.Lock()
        self._abandoned = False
        self.owner = _Owner(engine)
        self.login: str | None = None
        self.passcode: str | None = None
        self.error: BaseException | None = None
        self.done = False

    def run(self) -> None:
        options = self._engine._options
        try:
            self.login = self._credential(options.login, self._address.login)
            self.passcode = self._credential(options.passcode, self._address.passcode)
            timeout, waker = options.connect_timeout, self.owner.waker
            connect(self._address, self.owner, ssl=options.ssl, timeout=timeout, waker=waker)
        except Exception as error:
            self.error = error
        with self._lock:
            self.done = True
            if self._abandoned:
                self._drop()
            else:
                self._engine._idle.wake()

    def abandon(self) -> None:
        """End the attempt, also while it runs, and close its wire."""
        with self._lock:
            self._abandoned = True
            if self.done:
                self._drop()

    def _drop(self) -> None:
        if self.error is None:
            self.owner.wire.abort()
        self.owner.waker.close()

    def _credential(self, own: Credential | None, address: str | None) -> str | None:
        if own is None:
            return address
        if isinstance(own, str):
            return own
        try:
            text = self._engine._delivery.credential(own, self._engine._options.connect_timeout)
        except Exception as error:
            why = type(error).__name__  # the text of the error may hold a secret
            raise ConnectionLostError(f"asking for the credentials failed: {why}", sent=False) from error
        if not isinstance(text, str):
            raise ConnectionLostError(f"the credentials are {type(text).__name__}: they must be str", sent=False)
        return text
