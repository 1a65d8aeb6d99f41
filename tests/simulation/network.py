"""A network: links of two pipes, which deliver late and in pieces, stand still, break at any byte or on one side."""

import heapq
import random
from collections.abc import Callable
from typing import Any

_HIGH, _LOW = 64 * 1024, 16 * 1024  # Bytes in a pipe above which its writer should stop, and below which it may go on.
_KEEPALIVE = 45.0  # Seconds after which the system notices that the other side of a half-open link is gone.


class _Pipe:
    def __init__(self, link) -> None:
        self.link, self.buffer, self.closed, self.reading = link, bytearray(), False, True
        self.stalled_until = 0.0
        self.scheduled = self.full = False
        self.slow = 0  # Most bytes at a time; 0 for any number.

    def write(self, data: bytes) -> None:
        if self.closed or self.link.cut_off:
            return
        self.buffer += data
        if len(self.buffer) > _HIGH and not self.full:
            self.full = True
            self.writer.writable(False)
        self.schedule()

    @property
    def writer(self) -> Any:
        return self.link.broker if self is self.link.down else self.link.client

    @property
    def reader(self) -> Any:
        return self.link.client if self is self.link.down else self.link.broker

    def schedule(self) -> None:
        if self.scheduled or not self.reading or not (self.buffer or self.closed):
            return
        self.scheduled = True
        link = self.link
        delay = link.rng.random() * link.latency
        if self.slow:
            delay += 0.1
        link.clock.after(max(delay, self.stalled_until - link.clock.now), self._deliver)

    def _deliver(self) -> None:
        self.scheduled = False
        link = self.link
        if link.cut_off or not self.reading:
            return
        if link.clock.now < self.stalled_until:
            self.schedule()
            return
        if self.buffer:
            size = len(self.buffer)
            if self.slow:
                size = min(size, self.slow)
            elif link.rng.random() < link.splitting:
                size = link.rng.randint(1, size)
            data = bytes(self.buffer[:size])
            del self.buffer[:size]
            if self.full and len(self.buffer) < _LOW:
                self.full = False
                self.writer.writable(True)
            self.reader.received(data)
        if not self.buffer and self.closed and not link.cut_off:
            link.gone(self.reader)
        else:
            self.schedule()


class Link:
    client: Any
    broker: Any

    def __init__(self, clock, rng: random.Random, latency: float, splitting: float) -> None:
        self.clock, self.rng, self.latency, self.splitting = clock, rng, latency, splitting
        self.up = _Pipe(self)
        self.down, self.cut_off = _Pipe(self), False
        self._told = set()

    def close(self, pipe: _Pipe) -> None:
        """The writer of a pipe has closed: its reader learns of it behind the last byte, and both are done."""
        pipe.closed = True
        pipe.schedule()

    def read(self, pipe: _Pipe, yes: bool) -> None:
        pipe.reading = yes
        if yes:
            pipe.schedule()

    def stall(self, seconds: float, *pipes: _Pipe) -> None:
        for pipe in pipes:
            pipe.stalled_until = max(pipe.stalled_until, self.clock.now + seconds)

    def gone(self, end: Any) -> None:
        """One end learns that the connection is over."""
        if id(end) in self._told:
            return
        self._told.add(id(end))
        end.lost()

    def cut(self, *, half: str = "") -> None:
        """Break it: part of what is on its way still arrives, then both ends notice in their own time."""
        if self.cut_off:
            return
        for pipe in (self.up, self.down):
            if pipe.reading and pipe.buffer and self.rng.random() < 0.5:
                size = self.rng.randint(1, len(pipe.buffer))
                data = bytes(pipe.buffer[:size])
                pipe.reader.received(data)
        self.cut_off = True
        for name, end in (("client", self.client), ("broker", self.broker)):
            delay = _KEEPALIVE if half == name else self.rng.random() * 0.05
            self.clock.after(delay, lambda end=end: self.gone(end))

    def reset(self) -> None:
        """The machine of the broker is gone: the client notices soon, or when it has waited for long."""
        self.cut_off = True
        self._told.add(id(self.broker))
        delay = self.rng.random() * 0.05 if self.rng.random() < 0.8 else 3.0
        self.clock.after(delay, lambda: self.gone(self.client))


EPOCH = 1_000_000.0  # Seconds since 1970 at the beginning.


class Clock:
    """The time in seconds from 0, and what is to happen.

    >>> clock, seen = Clock(), []
    >>> clock.after(2.0, lambda: seen.append(clock.now)); clock.run(10.0); seen, clock.now
    ([2.0], 10.0)
    """

    def __init__(self) -> None:
        self.now, self._events = 0.0, []
        self._count, self.over = 0, False

    def wall(self) -> float:
        return EPOCH + self.now

    def after(self, delay: float, action: Callable[[], object]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + delay, self._count, action))

    def run(self, until: float) -> None:
        events = self._events
        while events and events[0][0] <= until and not self.over:
            at, _, action = heapq.heappop(events)
            self.now = max(self.now, at)
            action()
        self.now = max(self.now, until)
