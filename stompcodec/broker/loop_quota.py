"""The loop quota: how long a session may occupy the event loop, and how longer work is split into shares."""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from logging import Logger
from math import inf
from types import TracebackType
from typing import Protocol

from stompcodec.broker.memory import Account, Holder

#: Seconds by which a clock is not set, and more than which a step is logged.
_STEP, _LOGGED = 1.0, 60.0
#: Least decrease of message bytes for which trimming pays.
_LEAST = 16 * 2**20
#: Parameters of `mallopt`, and bytes: a larger buffer is mapped alone, and the heap keeps as many free ones at its end.
#: What a turn writes fits in. With glibc's 128 KiB it is mapped anew each time: a quarter of the CPU of a message.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = (-3, 512 * 1024), (-1, 1024 * 1024)


class Moment(float):
    """A time that was counted from another one. `ahead` is that of its `Wall`, then."""

    __slots__ = ("ahead",)

    ahead: float


class Wall:
    """The seconds since 1970, by a clock that may be set while the broker runs; without `monotonic`, it never is.

    >>> times = [1000.0, 5.0]
    >>> wall = Wall(lambda: times[0], lambda: times[1], Logger(""))
    >>> soon = wall.after(30.0)
    >>> times[0] += 3600
    >>> wall.is_over(1030.0), wall.is_over(soon), wall.ahead
    (True, False, 4595.0)
    """

    __slots__ = ("_log", "_monotonic", "_time", "ahead")

    def __init__(
        self, time: Callable[[], float], monotonic: Callable[[], float] | None = None, log: Logger | None = None
    ) -> None:
        self._time, self._monotonic, self._log = time, monotonic or time, log
        #: Seconds by which the clock is ahead of the monotonic one.
        self.ahead = time() - self._monotonic()

    def __call__(self) -> float:
        now = self._time()
        step = now - self._monotonic() - self.ahead
        if not -_STEP < step < _STEP:
            self.ahead += step
            if abs(step) > _LOGGED and self._log is not None:
                self._log.warning(
                    "the clock was set by %+.0f s: expires follows it; expiration and delays do not", step
                )
        return now

    def after(self, seconds: float) -> Moment:
        """Return the time after some seconds, whatever the clock is set to meanwhile."""
        moment = Moment(self() + seconds)
        moment.ahead = self.ahead
        return moment

    def is_over(self, at: float) -> bool:
        if not isinstance(at, Moment):
            return at <= self._time()
        now = self()
        return at + self.ahead - at.ahead <= now


class Heap:
    """A watch on the bytes held in queues.

    >>> heap = Heap()
    >>> heap.note(100 * 2**20)
    >>> heap.look(90 * 2**20), heap.look(1000), heap.look(1000)
    (False, True, False)
    """

    def __init__(self) -> None:
        self._most = 0

    def note(self, octets: int) -> None:
        """Record how many bytes are held now."""
        if octets > self._most:
            self._most = octets

    def look(self, octets: int) -> bool:
        """Trim the heap if enough was freed, given the bytes held now, and return whether it did."""
        if self._most - octets < _LEAST or octets > self._most // 2:
            return False
        self._most = octets
        _call("malloc_trim", 0)  # takes some milliseconds
        return True


def give_back_large() -> None:
    """Have the C library return large buffers to the system when they are freed, for the rest of the process.

    By default glibc raises the threshold to the largest buffer freed so far. The memory of unfinished frames would then
    not be available for messages, which are small.
    """
    _call("mallopt", *_MMAP_THRESHOLD)
    _call("mallopt", *_TRIM_THRESHOLD)


def _call(name: str, *arguments: int) -> None:
    """Call a function of the C library if it exists, as in glibc."""
    try:
        import ctypes

        getattr(ctypes.CDLL(None), name)(*arguments)
    except (ImportError, OSError, AttributeError, TypeError):
        return


class Deadlines:
    """Names with one time each, in seconds.

    >>> deadlines = Deadlines()
    >>> deadlines.set("a", 1.0), deadlines.set("b", 2.0), deadlines.set("a", 3.0)
    (None, None, None)
    >>> deadlines.pop(2.5), deadlines.pop(2.5), deadlines.next
    (('b', 2.0), None, 3.0)
    """

    __slots__ = ("_heap", "_times")

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        #: Pairs of time and name. Pairs that do not match `_times` are stale.
        self._heap: list[tuple[float, str]] = []

    def set(self, name: str, at: float) -> None:
        self._times[name] = at
        heappush(self._heap, (at, name))
        if len(self._heap) > 2 * len(self._times) + 100:  # most have been replaced or dropped
            self._heap = [(time, other) for other, time in self._times.items()]
            heapify(self._heap)

    def drop(self, name: str) -> None:
        self._times.pop(name, None)

    @property
    def next(self) -> float | None:
        """The first time, or a little earlier if it was replaced; None without any."""
        return self._heap[0][0] if self._heap else None

    def pop(self, now: float) -> tuple[str, float] | None:
        """Remove and return the name with the first time, and that time. Return None if nothing is due."""
        while self._heap and self._heap[0][0] <= now:
            at, name = heappop(self._heap)
            if self._times.get(name) == at:
                del self._times[name]
                return name, at
        return None


#: Python collects after every 10,000 new objects: first these, next time also the survivors, then all objects that are
#: new since the last freeze. That is at most 30,000 objects, or 25 ms.
_THRESHOLDS = (10_000, 0, 0)
#: Below this many bytes on the memory account, all objects are few enough to be examined.
_FEW = 64 * 2**20
#: After this many sessions all objects are examined, however many there are, because most cycles belong to sessions.
_MANY = 20_000


class Garbage:
    """A context in which Python collects cycles in short steps. It changes the settings of the whole process.

    Objects that survive a full collection are frozen (`gc.freeze`) and not examined again, so each collection is short,
    but cycles among them are not freed. Therefore they are unfrozen from time to time, preferably when little is in
    memory.
    """

    def __enter__(self) -> Garbage:
        self._before = gc.get_threshold()
        self._sessions = 0
        self._frozen = False
        gc.set_threshold(*_THRESHOLDS)
        gc.callbacks.append(self._collected)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        gc.callbacks.remove(self._collected)
        gc.set_threshold(*self._before)
        gc.unfreeze()

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == 2:
            gc.freeze()
            self._frozen = True

    def look(self, octets: int, sessions: int) -> None:
        """Unfreeze all objects if the memory account has few bytes, or many sessions have come since the last time."""
        if self._frozen and (octets < _FEW or sessions - self._sessions >= _MANY):
            gc.unfreeze()
            self._frozen, self._sessions = False, sessions


#: Seconds before a wait is logged: short waits are ordinary back-pressure.
_PATIENCE = 5.0
#: Seconds between two such lines about one queue.
_PAUSE = 60.0
#: The most queues whose waits are logged at a time.
_MOST = 20


class WaitLog:
    """The log of queues whose senders wait for room: a line after five seconds, and one when the senders continue."""

    __slots__ = ("_account", "_log", "_logged", "_quiet")

    def __init__(self, account: Account, log: Logger) -> None:
        self._account = account
        self._log = log
        #: The queues with a first line but no second one, and since when their senders wait.
        self._logged: dict[Holder, float] = {}
        #: The time before which a queue gets no further first line.
        self._quiet: dict[Holder, float] = {}

    def look(self, now: float) -> None:
        """Log what has changed. Call it once per second, with the time in seconds."""
        waiting = self._account.waiting
        for holder, since in list(self._logged.items()):
            if waiting.get(holder) != since or not holder.blocked:
                del self._logged[holder]
                self._log.warning("senders waited %.0f s for room in %s", now - since, holder)
        self._quiet = {holder: until for holder, until in self._quiet.items() if until > now}
        for holder, known in waiting.items():
            since = waiting[holder] = now if known is None or not holder.blocked else known
            if now - since < _PATIENCE or holder in self._logged or holder in self._quiet:
                continue
            if len(self._logged) < _MOST:
                self._logged[holder], self._quiet[holder] = since, now + _PAUSE
                self._log.warning("senders wait for room in %s: %d", holder, len(holder.blocked))


#: Messages or sessions processed in one step. The rest waits for the next turn, so that others are served too.
AT_ONCE = 1000
#: That many while other sessions are active, which wait for up to two steps: together less than a millisecond.
FEW = 10
#: Seconds that a step beside active sessions may take if it has more messages than those, which are quick.
_MOMENT = 0.0004
#: Seconds for which a session counts as active after it sent something.
_ACTIVE = 0.1
#: Seconds for which one session may occupy the loop while others wait.
_SHARE = 0.005


class Waiter(Protocol):
    """An object that continues when its turn comes: a session, a queue, or `Work`."""

    def take_turn(self, now: float) -> object:
        """Do one share of the remaining work."""


class Line(Protocol):
    """A place to wait: for the next turn (`LoopQuota`), or for the next write of the store (`Journal`)."""

    def line_up(self, waiter: Waiter) -> None:
        """Have `take_turn` called later."""


class Work:
    """A task that is too long for one turn. `steps` does one share each time it is resumed, and yields where to wait
    for the next one.
    """

    __slots__ = ("_steps",)

    def __init__(self, steps: Iterator[Line]) -> None:
        self._steps = steps

    def take_turn(self, now: float) -> None:
        """Do the next share."""
        line = next(self._steps, None)
        if line is not None:
            line.line_up(self)


class Paused(Exception):
    """Raised when a frame is not finished yet: the next frame of its session has to wait."""


class LoopQuota:
    """The time of the loop, and the sessions that have used their share and wait for the next turn."""

    __slots__ = ("_front_last", "blocked", "clock", "front", "heard", "since", "wake")

    def __init__(self) -> None:
        #: Returns the time in seconds. Set by the shell; a clock that stands still never ends a share.
        self.clock: Callable[[], float] = lambda: 0.0
        #: When the loop began the reads before the next turn. Set by the shell. All reads have one share together; a
        #: session read after that handles a few frames and gets a turn of its own for the rest.
        self.since = inf
        #: When a session was active last: when it sent a message, or another session than before was read. Set by the
        #: shell.
        self.heard = -inf
        #: Sessions and other work that waits for a turn.
        self.blocked: OrderedDict[Waiter, None] = OrderedDict()
        #: The line of work that delays the next commit. Each of the two lines has every second turn.
        self.front = Front(self)
        self._front_last = False
        #: Requests another turn. Set by the broker.
        self.wake: Callable[[], object] = lambda: None

    def used_up(self, began: float) -> bool:
        """Return whether a session that began at that time, or all reads of this turn, have used up their share."""
        return self.clock() - (began if began < self.since else self.since) > _SHARE

    @property
    def step(self) -> int:
        """The number of messages that are processed in one step now."""
        return FEW if self.clock() - self.heard < _ACTIVE else AT_ONCE

    def step_after(self, count: int, began: float) -> int:
        """Return the number of transient messages that are processed in a step that began at that time and has
        processed `count`. Beside active sessions it grows by `FEW` for a moment: a turn costs more than the messages.
        """
        step = self.step
        quick = step <= count < AT_ONCE and self.clock() - began < _MOMENT
        return min(count + FEW, AT_ONCE) if quick else step

    def next(self, now: float) -> None:
        """Continue the one that has waited longest; every second turn goes to the front."""
        front, others = self.front.blocked, self.blocked
        self._front_last = bool(front) and not (self._front_last and others)
        waiter, _ = (front if self._front_last else others).popitem(last=False)
        waiter.take_turn(now)

    @property
    def waiting(self) -> bool:
        """Return whether anybody waits for the next turn."""
        return bool(self.blocked or self.front.blocked)

    def line_up(self, waiter: Waiter) -> None:
        """Have a waiter continue in a later turn, after all that are waiting already."""
        self.blocked[waiter] = None
        self.wake()


class Front:
    """The short line of `LoopQuota`, for work that delays the next commit until it is done.

    >>> quota = LoopQuota()
    >>> quota.line_up(Work(print(text) or quota for text in ("first", "second")))
    >>> quota.front.line_up(Work(print(text) or quota.front for text in ("ahead", "ahead again")))
    >>> while quota.waiting:
    ...     quota.next(0.0)
    ahead
    first
    ahead again
    second
    """

    __slots__ = ("_quota", "blocked")

    def __init__(self, quota: LoopQuota) -> None:
        self._quota = quota
        self.blocked: OrderedDict[Waiter, None] = OrderedDict()

    def line_up(self, waiter: Waiter) -> None:
        """Have a waiter continue in one of the next two turns, however many sessions are waiting."""
        self.blocked[waiter] = None
        self._quota.wake()
