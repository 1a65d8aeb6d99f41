"""The hub: one thread that does the I/O of all clients of this process, and runs no code of users.

Each client has a `Task`, a generator that does a bounded share of work and then yields the time until which it waits.
The hub goes on with it when its socket is ready, when it is woken, or at that time. What blocks, such as connecting,
happens in other threads. The hub starts with the first client and ends with the last one; a forked process makes its
own.
"""

from __future__ import annotations

import atexit
import contextlib
import heapq
import itertools
import logging
import os
import selectors
import threading
import time
import weakref
from collections import deque
from collections.abc import Generator
from sys import is_finalizing as is_finalizing  # for those that ask it beside these
from typing import Any

from stompcodec.errors import LocalProtocolError
from stompcodec.transport.owner import LONGEST_WAIT
from stompcodec.transport.sync import Waker


class Turns:
    """A lock, taken by one thread that may have to wait for it, in a `with` block.

    Whoever releases a lock and takes it again at once is faster than a thread that sleeps until it is free: that one
    would be woken with each message for nothing, at a high price. So while it `waits`, others `let_pass` first.
    """

    __slots__ = ("_gate", "_lock", "waits")

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._gate = threading.Lock()
        self.waits = False

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._gate.acquire()
            self.waits = True
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if self.waits:
            self.waits = False
            self._gate.release()

    def let_pass(self) -> None:
        """Wait until the waiting thread has had its turn. Others call this before they take the lock."""
        with self._gate:
            pass


class _Process:
    """A mark of this process, which differs in each child."""

    def __init__(self) -> None:
        self.mark = object()
        self.watched: weakref.WeakSet[Any] = weakref.WeakSet()
        self.is_ending = False

    def ending(self) -> None:
        """Note that the functions of `atexit` have their turns. Those that follow this one may still use clients."""
        self.is_ending = True
        for each in list(self.watched):
            each.ending()

    def forked(self) -> None:
        """Give the child process its own mark. Its only thread is the one that forked."""
        self.mark = object()
        watched, self.watched = list(self.watched), weakref.WeakSet()
        for each in watched:
            each.forked()


#: `process.mark` stays the same object within a process.
process = _Process()
atexit.register(process.ending)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=process.forked)


def watch(engine: Any) -> None:
    """Call `engine.forked` in child processes, once, where it must not take a lock, and `engine.ending` at the end."""
    process.watched.add(engine)


def refuse() -> LocalProtocolError:
    return LocalProtocolError(
        "this client was opened before a fork, and belongs to the parent process: open another client in the child"
    )


def ended() -> LocalProtocolError:
    """Return the error for a call while the interpreter finalizes."""
    return LocalProtocolError(
        "the interpreter is shutting down, and the client's I/O thread has ended: "
        "close the client before the program ends, by `with` or `atexit`"
    )


log = logging.getLogger("stompcodec.client")
#: If a task goes on this many seconds after the time it waited for, the hub was held up.
LATE = 0.5
#: The most clients of a hub: `select` of Windows takes 512 sockets, other selectors any number.
_MOST = 500 if selectors.DefaultSelector.__name__ == "SelectSelector" else 2**31
#: Outdated timers that are not worth the tidying.
_TIDY = 64
#: The work of a client: yields times (None for never), and gets the events of its socket, or 0.
Steps = Generator["float | None", int, None]


class Task:
    """The work of one client in the hub."""

    __slots__ = ("_has_begun", "_hub", "_is_ready", "due", "ended", "found", "steps", "timer")

    def __init__(self, hub: Hub, steps: Steps) -> None:
        self._hub, self.steps = hub, steps
        self._is_ready = self._has_begun = False
        self.found = 0  # events of its socket
        self.due: float | None = None  # until when it waits
        self.timer: float | None = None  # the time of its entry in the hub's heap, never after `due`
        self.ended = threading.Event()

    @property
    def selector(self) -> selectors.BaseSelector:
        """The selector of the hub, for `SyncWire.join`; this task is the label. Only the task itself may use it."""
        return self._hub.selector

    def wake(self) -> None:
        """Have the hub go on with this task. Any thread may call this, after it has made the work visible."""
        self.make_ready()
        self._hub.waker.wake()  # also if it is ready: an interrupt may have come before this line

    def make_ready(self) -> None:
        """Go on in this turn."""
        if not self._is_ready:
            self._is_ready = True
            self._hub.ready.append(self)

    def fail(self, error: Exception) -> None:
        """End the task by an error of the hub, which its client tells its callers."""
        with contextlib.suppress(Exception):
            self.steps.throw(error)
        self.ended.set()

    def go_on(self) -> bool:
        """Do a share of work; return False at its end. Called by the hub."""
        self._is_ready = False  # before it looks for work, so that no wake is lost
        found, self.found = self.found, 0
        try:
            self.due = self.steps.send(found) if self._has_begun else next(self.steps)
        except StopIteration:
            return False
        except BaseException:  # a bug of the client, which ends its callers itself; others go on
            log.exception("the I/O of a client failed")
            return False
        self._has_begun = True
        return True

    def join(self, timeout: float) -> None:
        """Wait until the task has ended, and the hub if this was the last one; at most `timeout` seconds."""
        until = time.monotonic() + min(timeout, LONGEST_WAIT)
        if not self._hub.is_here() and self.ended.wait(until - time.monotonic()) and self._hub.is_over:
            self._hub.join(max(until - time.monotonic(), 0.0))


class Hub:
    """The I/O thread of a process; one that is `apart` has one client."""

    def __init__(self, apart: bool = False) -> None:
        self._is_apart = apart
        self.selector: selectors.BaseSelector = selectors.DefaultSelector()
        self.waker = Waker()
        self.ready: deque[Task] = deque()  # those to go on with
        self.is_over = False
        self._tasks: set[Task] = set()
        self._timers: list[tuple[float, int, Task]] = []  # a heap; an entry counts if it is its task's `timer`
        self._count = itertools.count()  # decides between equal times
        self.selector.register(self.waker, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="stompcodec-client", daemon=True)

    def add(self, steps: Steps) -> Task:
        """Begin with the work of a client. The caller holds the lock of `_Hubs`."""
        task = Task(self, steps)
        self._tasks.add(task)
        task.wake()
        if self._thread.ident is None:
            self._thread.start()
        return task

    @property
    def has_room(self) -> bool:
        """True if the hub takes another client, whose socket its selector can watch."""
        return not self._is_apart and len(self._tasks) < _MOST

    def is_here(self) -> bool:
        return threading.current_thread() is self._thread

    def join(self, timeout: float) -> None:
        """Wait until the thread has ended."""
        self._thread.join(timeout)

    def close(self) -> None:
        """Close the descriptors: at the end, and of a copy in a child process. Sockets belong to their clients."""
        self.waker.close()
        self.selector.close()

    # ---- the thread ----
    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:  # a bug must not leave callers waiting
            log.exception("the I/O thread failed")
            with _hubs.lock:
                _hubs.leave(self)
                tasks, self._tasks = self._tasks, set()
            for task in tasks:
                task.fail(error)
        self.close()

    def _serve(self) -> None:
        while not self.is_over:
            for key, found in self.selector.select(self._patience()):
                task: Task | None = key.data
                if task is None:
                    self.waker.clear()
                else:
                    task.found |= found
                    task.make_ready()
            self._look_at_the_time()
            for _ in range(len(self.ready)):  # those that become ready meanwhile have the next turn
                self._go_on(self.ready.popleft())

    def _patience(self) -> float:
        if self.ready:
            return 0.0
        if not self._timers:
            return LONGEST_WAIT
        return min(max(self._timers[0][0] - time.monotonic(), 0.0), LONGEST_WAIT)

    def _look_at_the_time(self) -> None:
        """Make those tasks ready whose time has come."""
        timers, now, late = self._timers, time.monotonic(), 0.0
        while timers and timers[0][0] <= now:
            at, _, task = heapq.heappop(timers)
            if task.timer != at:
                continue
            task.timer = None
            if task.due is not None and task.due <= now:
                late = max(late, now - task.due)
                task.make_ready()
            else:
                self._set_timer(task)
        if late > LATE:
            log.warning("the I/O thread was held up for %.1f s: something keeps the interpreter busy", late)

    def _go_on(self, task: Task) -> None:
        if task not in self._tasks:  # it has ended in this turn
            return
        if task.go_on():
            self._set_timer(task)
            return
        with _hubs.lock:
            self._tasks.discard(task)
            if not self._tasks:
                _hubs.leave(self)
        task.due = None
        task.ended.set()

    def _set_timer(self, task: Task) -> None:
        """Have the task go on when it is due. An entry that is too early stays: when it comes, this is called again."""
        due = task.due
        if due is None or (task.timer is not None and task.timer <= due):
            return
        task.timer = due
        timers = self._timers
        heapq.heappush(timers, (due, next(self._count), task))
        if len(timers) > 2 * len(self._tasks) + _TIDY:
            timers[:] = [entry for entry in timers if entry[2].timer == entry[0]]
            heapq.heapify(timers)


class _Here(threading.local):
    apart = False


_here = _Here()


@contextlib.contextmanager
def apart() -> Generator[None]:
    """Give each client that this thread opens in the block a hub of its own, for a recorder, which may have several."""
    _here.apart = True
    try:
        yield
    finally:
        _here.apart = False


class _Hubs:
    """The hubs of this process: one, more if its selector takes a limited number of sockets, and those `apart`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # guards this object, and the tasks of its hubs
        self._hubs: list[Hub] = []
        watch(self)

    def run(self, steps: Steps) -> Task:
        """Begin with the work of a client."""
        with self.lock:
            shared = None if _here.apart else next((hub for hub in self._hubs if hub.has_room), None)
            hub = shared or Hub(_here.apart)
            if hub not in self._hubs:
                self._hubs.append(hub)
            return hub.add(steps)

    def leave(self, hub: Hub) -> None:
        """Forget a hub, which ends. The caller holds the lock."""
        hub.is_over = True
        self._hubs.remove(hub)

    def ending(self) -> None:
        """Do nothing: the hubs work until the interpreter finalizes."""

    def forked(self) -> None:
        """Begin without a hub in a child process. The lock may be held for ever there."""
        self.lock = threading.Lock()
        hubs, self._hubs = self._hubs, []
        for hub in hubs:
            hub.close()
        watch(self)


_hubs = _Hubs()
#: Begin with the work of a client, in the hub of this process.
run = _hubs.run
