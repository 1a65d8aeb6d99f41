"""Standard streams that nobody may read, and the signals that end a verb."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import select
import signal
import socket
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: Bytes that wait for a reader, and what a line costs beside its bytes.
_MOST, _BESIDE = 2**20, 128
#: Seconds at the end for lines that still wait; and, after a signal, for a reader of output that is the verb's job.
_LAST, _GRACE = 1.0, 1.0
#: Bytes that are handed on though no line has ended.
_CHUNK = 2**16


def _told(lines: int) -> bytes:
    return b"stompcodec: %d line%s dropped, because nobody read this output in time\n" % (
        lines,
        b" was" if lines == 1 else b"s were",
    )


class Outlet:
    """A bounded queue of lines, and the thread that writes them.

    A caller never waits. A line that does not fit into `most` bytes is dropped, and so are those behind it until half
    of the queue is free; `told` returns a line that tells how many. Lines that cannot be written, as on a full disk,
    are dropped, too. `write` is the unbuffered write of a stream, as of `io.RawIOBase`; `wait` waits until one that
    does not block has room.
    """

    def __init__(
        self,
        name: str,
        write: Callable[[memoryview], int | None],
        *,
        wait: Callable[[], object] = lambda: time.sleep(0.05),
        most: int = _MOST,
        told: Callable[[int], bytes] = _told,
    ) -> None:
        self._name = name
        self._write = write
        self._wait = wait
        self._most = most
        self._told = told
        self._items: deque[tuple[bytes, int, bool]] = deque()  # bytes, their lines, whether they tell of dropped ones
        self._size = self._untold = 0
        self._cut = self._over = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self.dropped = 0
        """Lines that were dropped."""

    def put(self, data: bytes) -> None:
        lines, size = max(1, data.count(b"\n")), len(data) + _BESIDE
        with self._changed:
            room = self._most // 2 if self._untold else self._most
            if self._over or (self._size and self._size + size > room):
                self.dropped += lines
                self._untold += lines
                return
            self._tell()
            self._add(data, lines)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"stompcodec-{self._name}", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self, seconds: float) -> bool:
        with self._changed:
            self._over = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(seconds)
        return self._thread is None or not self._thread.is_alive()

    def _add(self, data: bytes, lines: int, tells: bool = False) -> None:
        self._items.append((data, lines, tells))
        self._size += len(data) + _BESIDE

    def _tell(self) -> None:
        if self._untold:
            self._add(self._told(self._untold), self._untold, True)
            self._untold = 0

    def _run(self) -> None:
        lost = 0  # lines that could not be written
        while (item := self._next()) is not None:
            data, lines, tells = item
            if lost and self._written(self._told(lost)):
                lost = 0
            done = not lost and self._written(data)
            lost += 0 if done else lines
            with self._changed:
                self._size -= len(data) + _BESIDE
                self.dropped += 0 if done or tells else lines

    def _next(self) -> tuple[bytes, int, bool] | None:
        with self._changed:
            while not self._items:
                self._tell()
                if self._items:
                    break
                if self._over:
                    return None
                self._changed.wait()
            return self._items.popleft()

    def _written(self, data: bytes) -> bool:
        rest = memoryview(b"\n" + data if self._cut else data)
        whole = len(rest)
        try:
            while rest:
                count = self._write(rest)
                if count is None:
                    self._wait()
                else:
                    rest = rest[count:]
        except (OSError, ValueError):  # a full disk, or the reader has gone
            self._cut = self._cut or len(rest) < whole
            return False
        self._cut = False
        return True


class _Stream(io.BufferedIOBase):
    """Bytes of a standard stream, on its unbuffered one. Subclasses have `flush`."""

    def __init__(self, old: Any) -> None:
        self._old = old  # it would close the unbuffered stream when it is deleted
        self._raw: Any = _raw_of(old)
        self._lock = threading.RLock()
        self._bytes = bytearray()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        number: int = self._raw.fileno()
        return number

    def isatty(self) -> bool:
        return bool(self._raw.isatty())

    def write(self, data: Any, /) -> int:
        with self._lock:
            self._bytes += data
            if len(self._bytes) > _CHUNK:
                self.flush()
        return len(data)

    def _wait(self) -> None:
        select.select((), (self._raw,), ())


class _Handed(_Stream):
    """Hands what is flushed to an outlet."""

    def __init__(self, old: Any, name: str, told: Callable[[int], bytes]) -> None:
        super().__init__(old)
        self.outlet = Outlet(name, self._raw.write, wait=self._wait, told=told)

    def flush(self) -> None:
        with self._lock:
            data, self._bytes = self._bytes, bytearray()
            if data:
                self.outlet.put(bytes(data))


class _Waiting(_Stream):
    """Waits for the reader, until `hurry`: from then on not for longer than a second."""

    def __init__(self, old: Any, wake: int, hurried: Callable[[], bool]) -> None:
        super().__init__(old)
        self._wake = wake
        self._hurried = hurried
        self.busy = False
        """A thread is writing, and may wait."""
        self.stuck = False
        """It waited in vain, and writes no more."""
        self._buffers = self._raw is not old.buffer  # not with PYTHONUNBUFFERED

    def write(self, data: Any, /) -> int:
        count = super().write(data)
        if not self._buffers:
            self.flush()
        return count

    def flush(self) -> None:
        with self._lock:
            self.busy = True
            try:
                while self._bytes:
                    self._wait_for_room()
                    count = self._raw.write(bytes(self._bytes[: select.PIPE_BUF]))  # more could block
                    del self._bytes[: count or 0]
            finally:
                self.busy = False

    def discard(self) -> None:
        self._bytes.clear()

    def _wait_for_room(self) -> None:
        until = time.monotonic() + _GRACE if self._hurried() else None
        while not self.stuck:
            rest = None if until is None else max(0.0, until - time.monotonic())
            woken, room, _ = select.select((self._wake,) if until is None else (), (self._raw,), (), rest)
            if room:
                return
            if woken:
                until = time.monotonic() + _GRACE
            else:
                self.stuck = True
        raise OSError(errno.ETIMEDOUT, "nobody reads the output")


class _Process:
    """The standard streams of this process that were replaced."""

    def __init__(self) -> None:
        self.handed: dict[str, _Handed] = {}
        self.waiting: _Waiting | None = None
        self.hurried = False
        self._pipe: tuple[int, int] | None = None

    def wake(self) -> int:
        """Return a descriptor that can be read after `hurry`."""
        if self._pipe is None:
            self._pipe = os.pipe()
        return self._pipe[0]

    def hurry(self) -> None:
        if not self.hurried:
            self.hurried = True
            if self._pipe is not None:
                os.write(self._pipe[1], b"x")


_process: _Process | None = None


def begin() -> None:
    """Allow the functions of this module to replace the standard streams of this process."""
    global _process
    _process = _Process()


def end() -> None:
    """Give lines that wait a last second. What could not be written by then is discarded."""
    if _process is None:
        return
    until = time.monotonic() + _LAST
    for name, stream in _process.handed.items():
        with contextlib.suppress(ValueError):  # it is closed
            getattr(sys, name).flush()  # a line without an end
            stream.flush()
        stream.outlet.close(max(0.0, until - time.monotonic()))
    if _process.waiting is not None and is_stuck():
        _process.waiting.discard()


def hand_over(name: str, told: Callable[[int], bytes] = _told) -> None:
    """Have a thread write what comes to a stream, and drop lines that nobody reads; `told` makes one line of them."""
    old = getattr(sys, name)
    if _process is not None and _raw_of(old) is not None:
        _process.handed[name] = handed = _Handed(old, name, told)
        _replace(name, handed, line_buffering=True, write_through=False)


def dropped(name: str) -> int:
    stream = None if _process is None else _process.handed.get(name)
    return 0 if stream is None else stream.outlet.dropped


def prepare(output: bool = True) -> None:
    """Hand over standard error, before signals come. With `output`, standard output waits for the reader, but after
    `hurry` only for a second: then writing raises OSError.
    """
    if _process is None:
        return
    hand_over("stderr")
    old: Any = sys.stdout
    if output and os.name == "posix" and _raw_of(old) is not None and _can_block(old):
        process = _process
        process.waiting = _Waiting(old, process.wake(), lambda: process.hurried)
        _replace("stdout", process.waiting, line_buffering=old.line_buffering, write_through=old.write_through)


def hurry() -> None:
    """Note that a signal came, after which nothing waits long for a reader."""
    if _process is not None:
        _process.hurry()


def flush_output() -> None:
    """Flush standard output, but not while another thread waits for its reader."""
    if _process is None or _process.waiting is None or not _process.waiting.busy:
        sys.stdout.flush()


def is_stuck() -> bool:
    """Return whether a signal ended a wait for the reader of standard output."""
    return _process is not None and _process.waiting is not None and _process.waiting.stuck


def _raw_of(stream: Any) -> Any:
    """Return the unbuffered stream of a standard one; None if that is not one of Python's, or was replaced."""
    buffer = getattr(stream, "buffer", None)
    return buffer if isinstance(buffer, io.RawIOBase) else getattr(buffer, "raw", None)


def _can_block(stream: Any) -> bool:
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or bool(stream.isatty())


def _replace(name: str, stream: Any, **options: Any) -> None:
    old = getattr(sys, name)
    old.flush()
    setattr(sys, name, io.TextIOWrapper(stream, encoding=old.encoding, errors=old.errors, **options))


#: SIGHUP says that its terminal was closed; Windows does not have it.
_HANGUP = getattr(signal, "SIGHUP", None)
#: Signals that end a verb in good order.
ENDING = [signal.SIGTERM, signal.SIGINT, *([] if _HANGUP is None else [_HANGUP])]


def ending() -> list[signal.Signals]:
    """Return the signals that end a verb in good order; not SIGHUP where it is ignored, as with nohup."""
    return [number for number in ENDING if number != _HANGUP or signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def stop_on_signals(stop: Callable[[], object], *, output: bool = True) -> Iterator[None]:
    """Have SIGTERM, SIGHUP and Ctrl-C call a function instead of ending the process.

    A thread of its own calls it. A handler of Python would run in the main thread: perhaps within a lock that `stop`
    needs, and, if the signal comes just before that thread begins to wait, only after the wait.

    SIGHUP stays ignored if it is, as with nohup. What is written to a terminal that was closed is discarded. Output
    that nobody reads does not delay the end: see `prepare`, also for `output`. Later signals are ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets signals
        return
    prepare(output)
    numbers = ending()
    terminals = [number for number in (1, 2) if os.isatty(number)]
    near, far = socket.socketpair()
    far.setblocking(False)
    thread = threading.Thread(target=_deliver, args=(near, numbers, terminals, stop), daemon=True, name="signals")
    thread.start()
    waker = signal.set_wakeup_fd(far.fileno(), warn_on_full_buffer=False)
    before = [signal.signal(number, _handler(far)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before):  # a further signal must not cut the end of the process short
            signal.signal(number, signal.SIG_IGN if _process is not None and _process.hurried else handler)
        signal.set_wakeup_fd(waker)
        far.close()
        thread.join()
        near.close()


def _handler(far: socket.socket) -> Callable[[int, object], object]:
    """Return a handler of Python. POSIX needs none, but for what it is set instead of."""
    if os.name == "posix":
        return lambda _number, _frame: None
    return lambda number, _frame: far.send(bytes([number]))  # asyncio takes the wake-up there for itself


def _deliver(
    near: socket.socket, numbers: list[signal.Signals], terminals: list[int], stop: Callable[[], object]
) -> None:
    """Call `stop` for each signal whose number arrives, up to the end of the connection."""
    hung_up = False
    while received := near.recv(1):
        if received[0] not in numbers:
            continue
        if received[0] == _HANGUP:
            if hung_up:  # the shell and the system may both send it, which counts once
                continue
            hung_up = True
            _discard_output([number for number in terminals if not os.isatty(number)])
        hurry()
        stop()


def _discard_output(numbers: list[int]) -> None:
    """Discard what is written to these file descriptors from now on."""
    for number in numbers:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, number)
        os.close(null)
