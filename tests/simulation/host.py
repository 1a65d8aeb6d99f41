"""The machine that the broker runs on: its loop, its clock, its helper thread, and its deaths."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from simulation.network import Link

from stompcodec.broker.core import Broker
from stompcodec.broker.sessions.session import Session
from stompcodec.broker.storage.folder import APPLICATION, DATABASE, MARKER
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.errors import StoreError


class _Helper:
    def __init__(self, host) -> None:
        self.host, self.life = host, host.life
        self.jobs, self.busy = deque(), False

    def give(self, job: Callable[[], object]) -> None:
        self.jobs.append(job)
        self._next()

    def _next(self) -> None:
        if not self.busy and self.jobs:
            self.busy = True
            host = self.host
            host.clock.after(host.rng.random() * host.helper_delay, self._run)

    def _run(self) -> None:
        if self.life != self.host.life or not self.busy:
            return
        disk = self.host.disk
        disk.take_spent()
        if self.jobs:
            self.jobs.popleft()()
        spent = disk.take_spent()
        self.host.clock.after(spent, self._rested)
        self.host.look()

    def _rested(self) -> None:
        self.busy = False
        self._next()

    def wait(self) -> None:
        while self.jobs:
            self.jobs.popleft()()

    def stop(self) -> None:
        self.wait()


class Peer:
    def __init__(self, host, link: Link, **options: Any) -> None:
        assert host.broker is not None
        self.host, self.link = host, link
        self.paused, link.broker = False, self
        self.session = host.broker.attach(host.clock.now, **options)
        host.peers[self.session] = self
        host.watcher.opened(self.session)
        host.schedule_turn()

    def received(self, data: bytes) -> None:
        host = self.host
        if host.peers.get(self.session) is self:
            host.watcher.reads(self.session, data)
            self.session.receive(data, host.clock.now)
            host.watcher.has_read(self.session)
            host.look()
            host.schedule_turn()

    def writable(self, yes: bool) -> None:
        if self.host.peers.get(self.session) is self:
            self.session.writable(yes, self.host.clock.now)
            self.host.schedule_turn()

    def lost(self) -> None:
        host = self.host
        if host.peers.pop(self.session, None) is self:
            # What is in its outbox counts as delivered: it has to be seen, as if it was flushed just before.
            host.watcher.writes(self.session, self.session.take_output())
            self.session.lost(host.clock.now, None)
            host.watcher.ended(self.session, "lost")
            host.watcher.closed(self.session)
            host.look()
            host.schedule_turn()

    def note_unwritten(self) -> None:
        session, unwritten = self.session, len(self.link.down.buffer)
        if unwritten or session.memory.unwritten:
            session.note_unwritten(unwritten)

    def flush(self) -> None:
        session = self.session
        output = session.take_output()
        if session.hopeless:
            self.link.cut()
            return
        if output:
            self.host.watcher.writes(session, output)
            self.link.down.write(b"".join(output))
        self.note_unwritten()
        if session.closing:
            self.link.close(self.link.down)
        elif session.paused is not self.paused:
            self.paused = session.paused
            self.link.read(self.link.up, not self.paused)


class Host:
    def __init__(self, clock, rng, disk, folder, config, watcher, log):
        self.clock, self.rng, self.disk, self.folder = clock, rng, disk, folder  # a real folder, for the lock
        self.config, self.watcher, self.log = config, watcher, log
        watcher.is_dying = lambda: self.dying or self.broker is None
        self.broker, self.store, self.peers = None, None, {}
        self.life = self.boots = 0
        self.turn_delay, self.helper_delay, self.dying, self.turns = 0.001, 0.005, False, 0
        self._marked, self._timer_at, self._soon = False, None, deque()

    # ---- life and death ----
    def boot(self) -> bool:
        """Start the broker. False: it could not, for the disk is broken or full."""
        assert self.broker is None
        self.life += 1
        self.boots += 1
        disk = self.disk
        disk.down = False
        self.helper = _Helper(self)
        store = None
        self._show_database()
        try:
            store = SqliteStore(
                self.folder, self.log, helper=self.helper, page_helper=_Helper(self),
                space=lambda _writer, _idle: None, clock=lambda: self.clock.now + disk.spent,
            )  # fmt: skip
            broker = Broker(
                self.config, store, wall=self.clock.wall, epoch=f"b{self.boots}", entropy=self.rng.randbytes,
                log=self.log, call_soon=partial(self._call_soon, self.life),
            )  # fmt: skip
            broker.wake = self.schedule_turn
            broker.open(self.clock.now)
        except StoreError:
            if store is not None:
                with suppress(StoreError):
                    store.close()
            self.life += 1
            self.watcher.rules.boot_failed()
            return False
        self.broker, self.store = broker, store
        self.watcher.booted(broker)
        self._pass_time()
        self.schedule_turn()
        return True

    def _show_database(self) -> None:
        """Put the head of a database where the simulated disk has one: a start looks at it without SQLite."""
        if (Path(self.folder) / MARKER).exists():
            head = b"SQLite format 3\0" + bytes(52) + APPLICATION.to_bytes(4, "big") + bytes(28)
            (Path(self.folder) / DATABASE).write_bytes(head)

    def crash(self) -> None:
        if self.broker is None:
            return
        self.disk.crash()
        self._die(clean=False)

    def crash_at_sync(self, count: int) -> None:
        """The power goes in the middle of that sync from now on."""
        left = count

        def on_sync() -> None:
            nonlocal left
            left -= 1
            if left <= 0 and not self.dying and self.broker is not None:
                self.dying = True
                self.disk.on_sync = None
                self.disk.crash()

        self.disk.on_sync = on_sync

    def stop(self, turns: int = 100, full: int = 0) -> None:
        """A tidy end, as `Server.stop` makes it."""
        disk, was_full = self.disk, self.disk.full
        if full:
            disk.full, disk.full_for = True, full
        try:
            self._stop(turns)
        finally:
            disk.full, disk.full_for = was_full, 0

    def _stop(self, turns: int) -> None:
        broker, store = self.broker, self.store
        if broker is None or store is None:
            return
        broker.stop(self.clock.now)
        self._turn()
        journal = broker.journal
        for _ in range(turns):
            if self.broker is None:  # the power went meanwhile
                return
            if not journal.open and journal.busy is None:
                break
            self.clock.now += 0.005
            self.helper.wait()
            while self._soon:
                self._soon.popleft()()
            self._turn()
        for peer in list(self.peers.values()):
            peer.flush()
        for peer in list(self.peers.values()):
            peer.lost()
        clean = True
        try:
            store.close()
        except StoreError:
            clean = False
        clean = clean and store._writer.failures <= journal.failures  # of more the loop has not seen the end
        self._die(clean=clean and not self.dying, closing=True)

    def _die(self, clean: bool, closing: bool = False) -> None:
        store, self.broker, self.store = self.store, None, None
        self.dying = False
        self.disk.on_sync = None
        self.life += 1
        self._marked, self._timer_at = False, None
        self._soon.clear()
        peers, self.peers = self.peers, {}
        for peer in peers.values():
            if clean:
                peer.link.close(peer.link.down)
            else:
                peer.link.reset()
        if store is not None:
            generation = self.disk.generation
            with suppress(StoreError):
                store.close()  # lets go of the lock; its disk is gone
            assert generation == self.disk.generation
        self.watcher.died(clean, closing)

    def look(self) -> None:
        """Whether the power went in the middle of what was just done; and the time that the disk took."""
        if self.dying:
            self._die(clean=False)
        else:
            self._pass_time()

    def _pass_time(self) -> None:
        self.clock.now += self.disk.take_spent()

    # ---- the loop ----
    def _call_soon(self, life: int, action: Callable[[], None]) -> None:
        if life == self.life:
            self._soon.append(action)
            self.clock.after(self.disk.spent + self.rng.random() * self.turn_delay, partial(self._run_soon, life))

    def _run_soon(self, life: int) -> None:
        if life == self.life and self._soon:
            self._soon.popleft()()
            if self.broker is not None and not self.dying:
                self._flush(self.broker.settle(self.clock.now))
            self.look()

    def schedule_turn(self) -> None:
        if not self._marked:
            self._marked = True
            self.clock.after(self.rng.random() * self.turn_delay, partial(self._marked_turn, self.life))

    def _marked_turn(self, life: int) -> None:
        if life == self.life:
            self._turn()

    def _turn(self) -> None:
        broker = self.broker
        if broker is None:
            return
        self._marked = False
        self.turns += 1
        self._flush(broker.turn(self.clock.now))
        self.look()
        if self.broker is broker:
            self.watcher.turned()
            self._arm()

    def _flush(self, sessions: Iterator[Session]) -> None:
        for session in sessions:
            if self.dying:
                break
            peer = self.peers.get(session)
            if peer is not None:
                peer.flush()

    def _arm(self) -> None:
        assert self.broker is not None
        deadline = self.broker.next_deadline()
        if deadline is None or (self._timer_at is not None and self._timer_at <= deadline):
            return
        self._timer_at = deadline
        self.clock.after(max(0.0, deadline - self.clock.now), partial(self._tick, self.life, deadline))

    def _tick(self, life: int, deadline: float) -> None:
        if life != self.life or self._timer_at != deadline:
            return
        self._timer_at = None
        assert self.broker is not None
        for peer in list(self.peers.values()):
            peer.note_unwritten()
        self.broker.tick(self.clock.now)
        self.watcher.ticked()
        self._turn()
