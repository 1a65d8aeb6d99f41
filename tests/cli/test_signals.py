"""Signals that end a verb: none is lost, and none meets a lock."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from patience import patience

pytest.importorskip("click")

from stompcodec.cli.streams import ENDING, stop_on_signals

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")


@pytest.fixture(autouse=True)
def unchanged() -> Iterator[None]:
    """What a signal does is as before afterwards."""
    before = [signal.getsignal(number) for number in ENDING]
    threads = threading.active_count()
    yield
    assert [signal.getsignal(number) for number in ENDING] == before
    assert signal.set_wakeup_fd(-1) == -1
    assert threading.active_count() == threads


@pytest.mark.parametrize(
    ("numbers", "stops"),
    [
        *(([number], 1) for number in ENDING),
        ([signal.SIGHUP, signal.SIGHUP, signal.SIGTERM], 2),  # the shell and the system may both send SIGHUP
        ([signal.SIGUSR1], 0),
    ],
)
def test_which_count(numbers: list[int], stops: int) -> None:
    found: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda _number, _frame: None)
    try:
        with stop_on_signals(lambda: found.append(1)):
            for number in numbers:
                signal.raise_signal(number)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(found) == stops


def test_nohup_keeps_its_word() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stops: list[int] = []
    try:
        with stop_on_signals(lambda: stops.append(1)):
            signal.raise_signal(signal.SIGHUP)
        assert not stops
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_it_ends_a_wait_that_it_does_not_interrupt() -> None:
    """As when it arrives just before the wait begins: Python's handler would have to wait for the end of the wait."""
    stopped = threading.Event()

    def receive() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        with stop_on_signals(stopped.set):
            other = threading.Thread(target=receive)
            other.start()
            assert stopped.wait(patience(10))
            other.join()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_it_arrives_before_any_line_of_a_wait() -> None:
    """`Event.set` needs a lock that the waiting thread holds at some of these lines."""
    place = 0
    while stopped_before(place):
        place += 1
    assert place > 10


def stopped_before(place: int) -> bool:
    """Wait, and raise a signal before a line of that. Return False if the wait has fewer lines."""
    stopped = threading.Event()
    lines = iter(range(place, -1, -1))
    raised: list[int] = []

    def trace(frame: FrameType, event: str, _argument: object) -> Callable[..., Any] | None:
        if frame.f_code.co_filename != threading.__file__:
            return None
        if event == "line" and not raised and next(lines) == 0:
            raised.append(place)
            signal.raise_signal(signal.SIGTERM)
        return trace

    before = sys.gettrace()
    with stop_on_signals(stopped.set):
        sys.settrace(trace)
        try:
            stopped.wait(0)
        finally:
            sys.settrace(before)
    assert stopped.is_set() == bool(raised)
    return bool(raised)
