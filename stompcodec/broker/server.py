"""The broker's shell: listeners, turns of the loop and an orderly shutdown share its state; `run` is the whole process.

`Broker` makes all decisions and does no I/O. This file moves the bytes: received bytes go into a session, and once per
turn the output of each session is written with one call. So a thousand messages received in one turn cost one commit
and one write per peer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from stompcodec.arguments import checked
from stompcodec.broker.auth import Gate, has_origin, is_forwarded, is_loopback, is_own_origin, own_names
from stompcodec.broker.config import Config, largest_frame
from stompcodec.broker.connections import Guest, Lobby, most_before_login, refusal
from stompcodec.broker.core import Broker, store_of
from stompcodec.broker.loop_quota import Garbage, Heap, give_back_large
from stompcodec.broker.management.management import Management, OverStomp
from stompcodec.broker.sessions.session import Session
from stompcodec.broker.storage.store import Store
from stompcodec.transport import aio, tls
from stompcodec.transport.aio import descriptor_limit, reserve_of
from stompcodec.transport.owner import Part, Visitor

#: Bytes of memory for each unwritten byte: the transport's buffer grows by copying.
_UNWRITTEN = 2
#: Bytes read at a time from a connection while memory is short.
_LITTLE = 4096
log = logging.getLogger("stompcodec.broker.server")
#: Seconds. If a timer is later than this, the process was stalled, and received bytes are read first.
_LATE = 0.05


class Clock(Protocol):
    """A source of time in seconds, such as the module `time`."""

    def monotonic(self) -> float:
        """Return a time that never goes back."""

    def time(self) -> float:
        """Return the time since 1970, for expiry."""


def _without_eol(chunk: bytes) -> bytes:
    """Return a whole frame, or a part of one, without the EOL behind its NUL."""
    return chunk[:-1] if chunk.endswith(b"\0\n") and not isinstance(chunk, Part) else chunk


class _Peer:
    """One connection: owner of a wire, with its session."""

    __slots__ = ("gone", "listener", "new", "paused", "read_in", "server", "session", "wire")

    def __init__(self, server: Server, listener: str) -> None:
        self.server = server
        self.listener = listener
        self.paused = False
        self.new = True
        """It has not logged in: it is in the lobby, and only small WebSocket messages are accepted."""
        self.gone: tuple[BaseException | None] | None = None
        """The reason why the wire was lost, while the session waits for its turn with bytes read before."""
        self.read_in = -1
        """The number of turns at the time of the latest read."""
        self.wire: aio.Wire
        self.session: Session

    def opened(self, wire: aio.Wire) -> None:
        self.wire = wire
        server = self.server
        whole = wire.whole_frames or not server.config.trailing_lf
        self.session = server.broker.attach(
            server.now(), peer=wire.peer, secure=wire.secure, whole_frames=whole, listener=self.listener
        )
        if wire.handshake:
            page = has_origin(wire.handshake) and not (server.config.web_page and is_own_origin(wire.handshake))
            self.session.foreign = page or is_forwarded(wire.handshake)
        if wire.whole_frames or wire.secure:  # there are layers
            self.session.discard = wire.discard
        server.peers[self.session] = self
        server.deserted.clear()
        if wire.whole_frames:
            wire.bound(min(largest_frame(server.config.first_limits), server.config.ws_frame))
        log.info("%s: opened (%s)", wire.peer, self.listener)
        server.schedule_turn()

    def received(self, data: bytes | memoryview) -> None:
        server = self.server
        account = server.broker.account
        if account.used > account.first and not server.reads_little:
            server.read_little(True)
        if server.turning:  # called by the session in its turn, so its share began with the turn
            self.session.receive(data, server.broker.now)
            return
        broker = server.broker
        quota, sent, now = broker.quota, broker.seq, server.now()
        alone = server.latest is self
        server.latest = self
        if not server.scheduled:
            quota.since = now
        self.session.receive(data, now)
        if not alone or broker.seq != sent:
            # A lone consumer that acknowledges is left out: small steps would slow it down and help no other session.
            quota.heard = now
        if self.read_in != server.passes:
            self.read_in = server.passes
        elif quota.used_up(now):
            self.stop_reading()
        if server.scheduled:
            return
        if alone:  # it need not wait for others
            server.turn()
        else:
            server.schedule_turn()

    def writable(self, yes: bool) -> None:
        self.session.writable(yes, self.server.now())
        self.server.schedule_turn()

    def stop_reading(self) -> None:
        """Pause reading until the session's next turn, because the loop would read a busy wire again and again."""
        self.session.wait_for_turn()
        self.paused = True
        self.wire.pause_reading()

    def wait(self) -> None:
        """Continue with buffered bytes in the session's next turn."""
        self.session.more = self.go_on
        self.session.wait_for_turn()

    def go_on(self) -> None:
        """Pass on the next share of buffered bytes, after the session has processed the last one."""
        self.wire.go_on()
        if self.gone is not None and not self.session.waits_for_turn:
            self._leave(*self.gone)

    def lost(self, error: BaseException | None) -> None:
        if self.session.waits_for_turn and not self.server.broker.account.is_full:
            # Bytes read before still count, a share at a time.
            self.session.depart()
            self.gone = (error,)
            self.session.more = self.go_on
            self.session.writable(False, self.server.now())
        else:
            self._leave(error)

    def _leave(self, error: BaseException | None) -> None:
        self.gone = None
        server = self.server
        server.peers.pop(self.session, None)
        server.writing.discard(self)
        if server.latest is self:
            server.latest = None
        self.session.lost(server.now(), error)
        log.info("%s: %s", self.wire.peer, "closed" if error is None else f"lost: {error}")
        server.schedule_turn()
        if not server.peers:
            server.deserted.set()

    def note_unwritten(self) -> None:
        """Tell the session how many bytes are unwritten."""
        unwritten = _UNWRITTEN * self.wire.buffered
        self.session.note_unwritten(unwritten)
        if not unwritten:
            self.server.writing.discard(self)

    def flush(self) -> None:
        """Write the session's output, and close or pause as it asks. A fault ends this connection only."""
        try:
            self._flush()
        except Exception:
            log.exception("%s: cannot be written to, the connection ends", self.wire.peer)
            self.wire.abort()

    def _flush(self) -> None:
        session, wire = self.session, self.wire
        output = session.take_output()
        if session.hopeless:
            wire.abort()
            return
        if output:
            wire.write(output if self.server.config.trailing_lf else list(map(_without_eol, output)))
        unwritten = _UNWRITTEN * wire.buffered
        if unwritten or session.memory.unwritten:
            session.note_unwritten(unwritten)
            self.server.writing.add(self)
        if self.new and session.connected:
            self.new = False
            self.server.lobby.leave(wire)
            if wire.whole_frames:
                wire.bound(min(largest_frame(self.server.config.limits), self.server.config.ws_frame))
        if session.closing:
            wire.close(drain=self.server.drain)
            if self.gone is not None:
                self._leave(*self.gone)
        elif session.paused is not self.paused:
            self.paused = session.paused
            if self.paused:
                wire.pause_reading()
            else:
                wire.resume_reading()


class Server:
    """A broker with listeners: `async with Server(config) as server`. `serve` makes one.

    Args:
        config: the broker's configuration.
        store: the store of persistent messages; by default chosen by the config. The server closes it.
        ready: a file that has pid, host and the ports, null for those that are off, as JSON while all are open.
        clock: replaces the module `time`. After setting it forward, call `catch_up`.
        sessions: makes sessions, instead of the class `Session`.
    """

    def __init__(
        self,
        config: Config,
        *,
        store: Store | None = None,
        ready: str | os.PathLike[str] | None = None,
        clock: Clock = time,
        sessions: Callable[..., Session] | None = None,
    ):
        self.config = config
        self.clock = clock
        self.sessions = sessions
        self.now = clock.monotonic
        self.ready = None if ready is None else Path(ready)
        self.port: int | None = None
        self.ws_port: int | None = None
        self.tls_port: int | None = None
        self.legacy_port: int | None = None
        self.ports: list[int] = []
        """Further ports of plain STOMP."""
        self.peers: dict[Session, _Peer] = {}
        #: Connections that have not logged in.
        self.lobby = Lobby(most_before_login(config, config.max_connections), _dismiss)
        self.writing: set[_Peer] = set()
        """Peers with unwritten bytes."""
        self.reads_little = False
        self.drain = 0.0  # seconds that peers have to read while the broker stops
        self.deserted = asyncio.Event()
        """Set when no peer is connected."""
        self.deserted.set()
        self.scheduled = False
        self.turning, self.passes = False, 0
        """A turn is running; the number of turns so far."""
        self.latest: _Peer | None = None
        """The peer that sent bytes last."""
        self.store = store
        #: Called when the files of the store were removed or replaced. Nothing is served any more, and `stop` raises.
        self.on_lost: Callable[[], object] = lambda: None
        self.broker: Broker
        self.management: Management
        #: The heap of everything held; and of frames and transactions, whose large blocks do not serve small objects.
        self._heap, self._frames = Heap(), Heap()
        self._gate = _gate(config, False)  # until the listening address is known
        self._listeners: list[aio.Listener] = []
        #: Takes connections to the WebSocket port until they turn out to be WebSocket; None without plain HTTP.
        self._site: Callable[[aio.Wire], Visitor] | None = None
        self._loop: asyncio.AbstractEventLoop
        self._timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None
        self._timer_at = 0.0

    async def __aenter__(self) -> Server:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # ---- start and stop ----
    async def start(self) -> None:
        """Open the store, then the listeners. Raise OSError if an address or a certificate cannot be used, StoreError
        if the store cannot be used, for instance because another broker has it.
        """
        self._loop = asyncio.get_running_loop()
        if self.ready is not None:
            self.ready.unlink(missing_ok=True)  # it may be left from an earlier broker
        if self.store is None:
            self.store = store_of(self.config)
        try:
            self.broker = Broker(
                *(self.config, self.store),
                wall=self.clock.time,
                monotonic=self.now,
                epoch=f"{time.time_ns() // 1_000_000:x}",  # of no earlier broker of this store: ids never repeat
                call_soon=self._call_soon,
            )
            self.broker.wake = self.schedule_turn
            self.broker.journal.on_lost = lambda error: self._loop.call_soon(self._end_without_store)
            self.broker.bound_output = self._bound_output
            self.broker.connections.make_room = lambda peer: self.lobby.make_room(peer, _counts)
            if self.sessions is not None:
                self.broker.session_class = self.sessions
            self.broker.quota.clock = self.now
            self.broker.open(self.now())
            self.management = Management(self.broker)
            OverStomp(self.management)
            descriptors = descriptor_limit()
            if descriptors is not None:
                self.broker.spool.most = min(self.broker.spool.most, max(1, descriptors // 4))
                most = min(self.config.max_connections, max(1, descriptors - reserve_of(descriptors)))
                self.broker.connections.most(most)
                self.lobby.most = most_before_login(self.config, most)
            await self._listen()
            if self.ready is not None:
                beside = self.ready.with_name(f"{self.ready.name}.{os.getpid()}")
                beside.write_text(json.dumps(self.address) + "\n", encoding="utf-8")
                beside.replace(self.ready)
        except BaseException:
            await self._close_listeners()
            self.store.close()
            raise
        self._arm()

    async def stop(self, drain: float | None = None) -> None:
        """Close the listeners, end all sessions, flush, and close the store. Peers have `drain` seconds to read pending
        output, by default those of the config. Raise StoreError if the last commit failed, or the files of the store
        were removed or replaced while it ran.
        """
        if self.ready is not None:
            try:
                self.ready.unlink(missing_ok=True)
            except OSError as error:  # the store must be closed all the same
                log.warning("%s: the ready file is left: %s", self.ready, error.strerror)
        await self._close_listeners()
        self.drain = self.config.drain_timeout if drain is None else drain
        give_up = time.monotonic() + self.drain
        self.broker.stop(self.now())
        self.turn()
        journal = self.broker.journal
        while journal.lost is None and (journal.open or journal.busy is not None) and time.monotonic() < give_up:
            await asyncio.sleep(0 if self.broker.quota.waiting else 0.005)
            self.turn()
        for peer in list(self.peers.values()):
            peer.flush()
            peer.wire.close(drain=self.drain)
        await self._wait_deserted(give_up - time.monotonic())
        for peer in list(self.peers.values()):
            peer.wire.abort()
        if self.peers:
            self.deserted.clear()
            await self._wait_deserted(1.0)
        self.turn()
        if self._timer is not None:
            self._timer.cancel()
        while journal.staging:  # otherwise half of a transaction would be stored
            self.turn()
        assert self.store is not None
        try:
            self.store.close()
        finally:
            self.broker.spool.close()
        log.info("stopped")

    def _end_without_store(self) -> None:
        """End all sessions, and accept no more: the files of the store are gone. `stop` does the rest."""
        for listener in self._listeners:
            listener.close()
        self.broker.stop(self.now())
        self.schedule_turn()
        self.on_lost()

    async def _wait_deserted(self, seconds: float) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.deserted.wait(), seconds)

    async def _listen(self) -> None:
        config = self.config
        secure = None
        if config.tls_port is not None:
            assert config.tls_cert is not None
            secure = tls.server_context(config.tls_cert, config.tls_key, config.tls_ca)
        if config.port is not None:
            self.port = await self._listener("stomp", config.port)
        self.ports = [await self._listener("stomp", port) for port in config.ports]
        if config.web_health or config.web_metrics or config.web_page:
            from stompcodec.broker.web.site import Site

            self._site = Site(self.management).visit
        if config.ws_port is not None:
            self.ws_port = await self._listener("ws", config.ws_port, websocket=True)
        if config.tls_port is not None:
            self.tls_port = await self._listener("tls", config.tls_port, context=secure)
        if config.legacy_port is not None:
            self.legacy_port = await self._listener("legacy", config.legacy_port)
        addresses = [address for listener in self._listeners for address in listener.addresses]
        local = all(is_loopback(address) for address in addresses)
        self._gate = _gate(config, local)
        if "null" in (config.ws_origins or ()):
            log.warning("websocket.origins lists null: pages in files have it, and sandboxed frames of any site, too")
        others = (config.port, *config.ports, config.ws_port, config.legacy_port)
        certified = config.tls_ca is not None and all(port is None for port in others)
        if not local and not config.users and not certified:
            log.warning(
                "listening on %s without users: whoever reaches this machine may read and write everything. Set users "
                "(--login, or [users] in the configuration), or listen on 127.0.0.1 only",
                config.host,
            )

    async def _listener(
        self, name: str, port: int, *, context: ssl.SSLContext | None = None, websocket: bool = False
    ) -> int:
        config = self.config
        listener = await aio.listen(
            config.host,
            port,
            lambda: _Peer(self, name),
            ssl=context,
            websocket=websocket,
            max_message=largest_frame(config.limits),
            high=self.broker.write_high,
            note=_note_below,
            pace=_pace,
            admit=lambda *request: self._gate.refusal(*request),
            visits=self._site if websocket else None,
            refusal=refusal(name),
            lobby=self.lobby,
        )
        self._listeners.append(listener)
        log.info("listening on %s:%d (%s)", config.host, listener.port, name)
        return listener.port

    async def _close_listeners(self) -> None:
        self.lobby.close()
        for listener in self._listeners:
            listener.close()
        for listener in self._listeners:
            await listener.wait_closed()
        self._listeners.clear()

    @property
    def address(self) -> dict[str, Any]:
        """The content of the ready file."""
        return {
            "pid": os.getpid(),
            "host": self.config.host,
            "port": self.port,
            "ws_port": self.ws_port,
            "tls_port": self.tls_port,
            "legacy_port": self.legacy_port,
            **({"ports": self.ports} if self.ports else {}),
        }

    # ---- turns ----
    def schedule_turn(self) -> None:
        """Schedule one turn soon, unless one is scheduled."""
        if not self.scheduled:
            self.scheduled = True
            self.broker.quota.since = self.now()
            self._soon = self._loop.call_soon(self.turn)

    def turn(self) -> None:
        """End a turn: commit, and write pending output to every peer."""
        if self.scheduled and self._soon is not None:
            self._soon.cancel()  # this turn replaces the scheduled one
        self.scheduled = False
        self.passes += 1
        self.broker.quota.since = now = self.now()
        self._flush_all(self.broker.turn(now))
        account = self.broker.account
        self._heap.note(account.used)
        self._frames.note(account.held)
        if self.reads_little and account.used < account.first:
            self.read_little(False)
        self._arm()

    def _flush_all(self, sessions: Iterator[Session]) -> None:
        """Write the pending output of sessions."""
        peers = self.peers
        self.turning = True
        try:
            for session in sessions:
                peer = peers.get(session)
                if peer is not None:
                    peer.flush()
        finally:
            self.turning = False

    def _bound_output(self, session: Session) -> None:
        """Let an eighth of `write_high` wait in the transport, and as much in the kernel: see `Outbox.bound`."""
        peer = self.peers.get(session)
        if peer is not None:
            peer.wire.bound_unsent(self.broker.write_high // 8)

    def _call_soon(self, done: Callable[[], object]) -> None:
        """Tell the loop from another thread that a commit is done."""
        self._loop.call_soon_threadsafe(self._committed, done)

    def _committed(self, done: Callable[[], object]) -> None:
        done()
        self._flush_all(self.broker.settle(self.now()))

    def read_little(self, yes: bool) -> None:
        """Limit reads to a few bytes while memory is short, because bytes read from blocked senders are kept."""
        self.reads_little = yes
        for listener in self._listeners:
            listener.read_at_most(_LITTLE if yes else None)

    def _arm(self) -> None:
        """Set the timer for the next deadline. A timer that is early does no harm, so it stays."""
        deadline = self.broker.next_deadline()
        if deadline is None:
            return
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_later(max(0.0, deadline - self.now()), self._tick, False)

    def _tick(self, late: bool) -> None:
        now = self.now()
        if not late and now > self._timer_at + _LATE:
            # Before peers are called silent, bytes that arrived during the stall are read.
            self._timer = self._loop.call_later(0.001, self._tick, True)
            return
        self.catch_up()

    def catch_up(self) -> None:
        """Do what is due, and set the timer for the next deadline."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for peer in list(self.writing):
            peer.note_unwritten()
        self.broker.tick(self.now())
        self.turn()
        account = self.broker.account
        self._heap.look(account.used)
        self._frames.look(account.held)


@checked
def serve(
    config: Config | None = None,
    *,
    store: Store | None = None,
    ready: str | os.PathLike[str] | None = None,
    clock: Clock = time,
    sessions: Callable[..., Session] | None = None,
) -> Server:
    """Return a broker over sockets that runs for the time of an `async with` block.

    Args:
        config: by default `Config()`: port 61613 of 127.0.0.1, without a store. Port 0 picks a free port.
        store, ready, clock, sessions: see `Server`.

    Its errors are those of `Server.start`, when the block is entered.

    >>> import asyncio
    >>> async def main():
    ...     async with serve(Config(port=0)) as server:
    ...         return server.port > 0, server.ws_port
    >>> asyncio.run(main())
    (True, None)
    """
    return Server(Config() if config is None else config, store=store, ready=ready, clock=clock, sessions=sessions)


def _gate(config: Config, local: bool) -> Gate:
    """Make the gate that decides about WebSocket requests."""
    hosts = [*config.ws_hosts, *own_names(config.host)]
    return Gate(config.ws_origins, hosts, local=local, own=config.web_page)


def _dismiss(guest: Guest) -> None:
    """Tell a connection whose handshakes are done why it is closed."""
    assert isinstance(guest, aio.Wire)
    peer = guest.owner
    if isinstance(peer, _Peer):
        remedy = (
            "It has not logged in, and others need room (a quarter of sessions.max_connections): send CONNECT at once."
        )
        peer.session.fail("too many connections", remedy)
        peer.flush()


def _counts(guest: Guest) -> bool:
    """Return whether a connection that has not logged in counts among the sessions, so that its end makes room."""
    assert isinstance(guest, aio.Wire)
    peer = guest.owner
    session = getattr(peer, "session", None)  # a connection that is just opened has none yet
    return isinstance(peer, _Peer) and session is not None and session.id in peer.server.broker.sessions


def _pace(peer: aio.Owner) -> None:
    assert isinstance(peer, _Peer)
    peer.wait()


def _note_below(peer: aio.Owner, octets: int) -> None:
    assert isinstance(peer, _Peer)
    peer.session.note_below(octets)
    if peer.server.broker.dirty:
        peer.server.schedule_turn()


#: Seconds a busy thread may make another wait. The helper that writes to disk needs the interpreter several times for
#: each commit.
_SWITCH = 0.00005
#: Seconds between two checks of memory.
_LOOK = 10.0


@checked
def run(
    config: Config,
    *,
    ready: str | os.PathLike[str] | None = None,
    uvloop: bool = False,
    started: Callable[[Server], None] = lambda server: None,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain and return. A second one stops waiting for clients. SIGHUP counts like
    them if standard input or standard error is a terminal; otherwise it is ignored, and always under nohup.

    Args:
        config, ready: see `Server`.
        uvloop: use uvloop's event loop, if it is installed (docs/decisions.md compares both).
        started: called once all listeners are open.

    Raises:
        OSError, StoreError: see `Server.start` and `Server.stop`.

    >>> import signal
    >>> run(Config(port=0), started=lambda server: signal.raise_signal(signal.SIGTERM))
    """
    if config.data is not None:
        from stompcodec.broker.storage.tables import warn_of_wal_fault

        warn_of_wal_fault(log)
    _raise_file_limit()
    sys.setswitchinterval(_SWITCH)
    give_back_large()
    loop = new_loop(uvloop)
    try:
        asyncio.set_event_loop(loop)
        with Garbage() as garbage:
            loop.run_until_complete(_serve_until_signal(config, ready, started, garbage))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def _serve_until_signal(
    config: Config, ready: str | os.PathLike[str] | None, started: Callable[[Server], None], garbage: Garbage
) -> None:
    loop = asyncio.get_running_loop()
    signals: asyncio.Queue[str] = asyncio.Queue()

    def arrived(number: int, frame: object = None) -> None:
        if number not in (signal.SIGTERM, signal.SIGINT):  # the shell and the system send SIGHUP, which counts once
            signal.signal(number, signal.SIG_IGN)
        loop.call_soon_threadsafe(signals.put_nowait, signal.Signals(number).name)

    old = {number: signal.signal(number, arrived) for number in (signal.SIGTERM, signal.SIGINT)}
    if hasattr(signal, "SIGHUP"):
        told = "SIGHUP is ignored: the configuration is read at the start only"
        old[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda *_: loop.call_soon_threadsafe(log.warning, told))
        if (os.isatty(0) or os.isatty(2)) and old[signal.SIGHUP] is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, arrived)
    try:
        server = serve(config, ready=ready)
        server.on_lost = lambda: signals.put_nowait("the store is gone")
        await server.start()
        started(server)

        def look() -> None:
            garbage.look(server.broker.account.used, server.broker.stats.sessions_total)
            loop.call_later(_LOOK, look)

        look()
        log.info("%s: stopping", await signals.get())
        stopping = asyncio.ensure_future(server.stop())
        hurry = asyncio.ensure_future(signals.get())
        await asyncio.wait((stopping, hurry), return_when=asyncio.FIRST_COMPLETED)
        if not hurry.cancel():
            server.deserted.set()
        await stopping
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def new_loop(uvloop: bool) -> asyncio.AbstractEventLoop:
    """Return an event loop: asyncio's, or uvloop's if asked for and installed."""
    if uvloop:
        try:
            import uvloop as module
        except ImportError:
            log.warning("uvloop is not installed: using asyncio's loop")
        else:
            loop: asyncio.AbstractEventLoop = module.new_event_loop()
            return loop
    return asyncio.new_event_loop()


def _raise_file_limit() -> None:
    """Raise the limit of open files as far as allowed, because every connection needs one."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
