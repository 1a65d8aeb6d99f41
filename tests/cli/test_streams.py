"""Lines for a reader that does not read, and signals that end a verb: what is kept, dropped, counted and told."""

import errno
import os
import re
import signal
import sys
import threading
from itertools import count
from types import SimpleNamespace

import pytest
from client.feeding import wait_for
from patience import patience

from stompcodec.cli import streams
from stompcodec.cli.streams import ENDING, Outlet, stop_on_signals

posix = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
TOLD = re.compile(rb"stompcodec: (\d+) lines? (?:was|were) dropped, because nobody read this output in time")


class Reader:
    """The unbuffered write of a stream, whose reader reads while `reads` is set."""

    def __init__(self):
        self.reads, self.waits = threading.Event(), threading.Event()
        self.seen = b""

    def write(self, data):
        self.waits.set()
        assert self.reads.wait(patience(60))
        self.seen += bytes(data)
        return len(data)


def test_what_is_dropped_is_counted_and_told_in_its_place():
    reader = Reader()
    outlet = Outlet("test", reader.write, most=10 * (128 + 3))
    outlet.put(b"00\n")
    assert reader.waits.wait(patience(60))
    for number in range(1, 30):
        outlet.put(b"%02d\n" % number)
    assert (outlet.dropped, reader.seen) == (20, b"")
    assert not outlet.close(0.01)  # which does not wait for a reader
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "stompcodec-test")
    reader.reads.set()
    assert outlet.close(patience(60))
    *lines, last = reader.seen.splitlines()
    assert lines == [b"%02d" % number for number in range(10)]
    assert TOLD.fullmatch(last)[1] == b"20"  # though no line came afterwards


def test_a_line_that_a_full_disk_has_cut_ends_before_the_next():
    written, room, full = [], [3], threading.Event()

    def write(data):
        if not room[0]:
            full.set()
            raise OSError(errno.ENOSPC, "full")
        written.append(bytes(data[: room[0]]))
        room[0] -= len(written[-1])
        return len(written[-1])

    outlet = Outlet("test", write)
    outlet.put(b"first\n")
    assert full.wait(patience(60))
    wait_for(lambda: outlet.dropped == 1)
    room[0] = 1000
    outlet.put(b"second\n")
    assert outlet.close(patience(60))
    cut, told, last = b"".join(written).splitlines()
    assert (cut, TOLD.fullmatch(told)[1], last) == (b"fir", b"1", b"second")


def test_a_stream_that_does_not_block_is_waited_for():
    answers, waits, written = [None, 2, None, 100], [], []

    def write(data):
        if (size := answers.pop(0)) is None:
            return None
        written.append(bytes(data[:size]))
        return len(written[-1])

    outlet = Outlet("test", write, wait=lambda: waits.append(1))
    outlet.put(b"a line\n")
    assert outlet.close(patience(60))
    assert (b"".join(written), len(waits), outlet.dropped) == (b"a line\n", 2, 0)


def test_lines_that_wait_get_a_last_second(monkeypatch):
    process, waited = streams._Process(), []
    process.handed["stdout"] = SimpleNamespace(flush=lambda: None, outlet=SimpleNamespace(close=waited.append))
    monkeypatch.setattr(streams, "_process", process)
    streams.end()
    assert 0.0 < waited[0] <= 1.0


@pytest.fixture
def unchanged():
    before, threads = [signal.getsignal(number) for number in ENDING], threading.active_count()
    yield
    assert [signal.getsignal(number) for number in ENDING] == before
    assert signal.set_wakeup_fd(-1) == -1
    assert threading.active_count() == threads


@posix
@pytest.mark.parametrize(
    ("numbers", "other", "stops"),
    [
        *(([number], signal.SIGUSR1, 1) for number in ENDING),
        ([signal.SIGHUP, signal.SIGHUP, signal.SIGTERM], signal.SIGUSR1, 2),  # the shell and the system may send SIGHUP
        ([signal.SIGUSR1], signal.SIGUSR1, 0),
        ([signal.SIGHUP], signal.SIGHUP, 0),  # nohup keeps its word
    ],
)
def test_which_signals_count(numbers, other, stops, unchanged):
    found, handler = [], signal.SIG_IGN if other == signal.SIGHUP else lambda _number, _frame: None
    before = signal.signal(other, handler)
    try:
        with stop_on_signals(lambda: found.append(1)):
            for number in numbers:
                signal.raise_signal(number)
        assert signal.getsignal(other) is handler
    finally:
        signal.signal(other, before)
    assert len(found) == stops


@posix
def test_a_second_signal_does_not_cut_the_end_of_the_process_short(monkeypatch):
    monkeypatch.setattr(streams, "_process", streams._Process())
    before, stopped = signal.getsignal(signal.SIGTERM), threading.Event()
    try:
        with stop_on_signals(stopped.set, output=False):
            signal.raise_signal(signal.SIGTERM)
            assert stopped.wait(patience(10))
        assert [signal.getsignal(number) for number in ENDING] == [signal.SIG_IGN] * len(ENDING)
    finally:
        for number, handler in zip(ENDING, (before, signal.default_int_handler, signal.SIG_DFL)):
            signal.signal(number, handler)


@posix
def test_a_signal_ends_a_wait_that_it_does_not_interrupt(unchanged):
    """As when it arrives just before the wait begins: Python's handler would have to wait for the end of the wait."""
    stopped = threading.Event()

    def receive():
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


@posix
def test_a_signal_arrives_before_any_line_of_a_wait(unchanged):
    """`Event.set` needs a lock that the waiting thread holds at some of these lines."""
    assert next(place for place in count() if not stopped_before(place)) > 10


def stopped_before(place):
    """Wait, and raise a signal before a line of that. Return False if the wait has fewer lines."""
    stopped, raised, lines = threading.Event(), [], iter(range(place, -1, -1))

    def trace(frame, event, _argument):
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
