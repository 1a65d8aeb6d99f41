"""What ends a verb in good order: Ctrl-C, SIGTERM, and SIGHUP."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stompcodec.cli import streams

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
    that nobody reads does not delay the end: see `streams.prepare`, also for `output`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets signals
        return
    streams.prepare(output)
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
        for number, handler in zip(numbers, before):
            signal.signal(number, handler)
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
        stop()
        streams.hurry()


def _discard_output(numbers: list[int]) -> None:
    """Discard what is written to these file descriptors from now on."""
    for number in numbers:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, number)
        os.close(null)
