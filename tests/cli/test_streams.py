"""Lines for a reader that does not read: what is kept, dropped, counted and told, without a process."""

from __future__ import annotations

import errno
import re
import sys
import threading

import pytest
from client.feeding import wait_for
from patience import patience

pytest.importorskip("click")

from stompcodec.cli import streams
from stompcodec.cli.streams import Outlet

TOLD = re.compile(rb"stompcodec: (\d+) lines? (?:was|were) dropped, because nobody read this output in time")


class Reader:
    """The unbuffered write of a stream, whose reader reads while `reads` is set."""

    def __init__(self) -> None:
        self.reads = threading.Event()
        self.waits = threading.Event()
        self.seen = b""
        self.error: OSError | None = None

    def write(self, data: memoryview) -> int:
        self.waits.set()
        assert self.reads.wait(patience(60))
        if self.error is not None:
            raise self.error
        self.seen += bytes(data)
        return len(data)


@pytest.fixture
def reader() -> Reader:
    return Reader()


def test_what_is_dropped_is_counted_and_told_in_its_place(reader: Reader) -> None:
    outlet = Outlet("test", reader.write, most=10 * (128 + 3))
    outlet.put(b"00\n")
    assert reader.waits.wait(patience(60))
    for number in range(1, 30):
        outlet.put(b"%02d\n" % number)
    assert (outlet.dropped, reader.seen) == (20, b"")
    reader.reads.set()
    assert outlet.close(patience(60))
    *lines, last = reader.seen.splitlines()
    assert lines == [b"%02d" % number for number in range(10)]
    assert TOLD.fullmatch(last)[1] == b"20"  # though no line came afterwards


def test_a_line_that_a_full_disk_has_cut_ends_before_the_next() -> None:
    written: list[bytes] = []
    room = [3]
    full = threading.Event()

    def write(data: memoryview) -> int:
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


def test_a_stream_that_does_not_block_is_waited_for() -> None:
    """Standard error is often one that another program has set so."""
    answers: list[int | None] = [None, 2, None, 100]
    waits: list[int] = []
    written: list[bytes] = []

    def write(data: memoryview) -> int | None:
        count = answers.pop(0)
        if count is not None:
            written.append(bytes(data[:count]))
        return None if count is None else len(written[-1])

    outlet = Outlet("test", write, wait=lambda: waits.append(1))
    outlet.put(b"a line\n")
    assert outlet.close(patience(60))
    assert (b"".join(written), len(waits), outlet.dropped) == (b"a line\n", 2, 0)


def test_closing_does_not_wait_for_a_reader(reader: Reader) -> None:
    outlet = Outlet("test", reader.write)
    outlet.put(b"a line\n")
    assert reader.waits.wait(patience(60))
    assert not outlet.close(0.01)
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "stompcodec-test")
    reader.reads.set()


def test_nothing_is_replaced_in_a_process_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one that embeds a broker, or has a verb run by a test."""
    monkeypatch.setattr(streams, "_process", None)
    before = sys.stdout, sys.stderr
    streams.hand_over("stdout")
    streams.prepare()
    streams.hurry()
    streams.end()
    assert (sys.stdout, sys.stderr) == before
    assert (streams.dropped("stdout"), streams.is_stuck()) == (0, False)
