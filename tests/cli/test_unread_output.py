"""Output that nobody reads: a pipe that is full, a terminal that is stopped, a reader that has gone, a full disk.

Each verb runs as a process. Its work goes on, and signals end it.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from patience import patience

pytest.importorskip("click")

from client.feeding import wait_for

import stompcodec
from stompcodec.client import connect
from stompcodec.testing import FaultProxy

fcntl, termios = pytest.importorskip("fcntl"), pytest.importorskip("termios")
#: Bytes of a small pipe, on Linux.
PAGE = os.sysconf("SC_PAGE_SIZE")

if TYPE_CHECKING:
    from cli.at_broker import Runner

pytestmark = [pytest.mark.long, pytest.mark.skipif(os.name != "posix", reason="pipes and terminals of POSIX")]

COMMAND = [sys.executable, "-m", "stompcodec.cli"]
#: Runs the command with a bridge that reports all the time, not each second.
EAGER = """
import stompcodec.bridge.bridge, stompcodec.cli.verbs.bridge
stompcodec.bridge.bridge._TURN, stompcodec.cli.verbs.bridge._REPORT = 0.001, 0.0
stompcodec.cli.main()
"""
#: Logs lines as a broker does, says on standard output when all are logged, and ends when its input does.
LOGS = """
import logging, sys
from stompcodec.cli import streams
streams.begin()
streams.hand_over("stderr")
logging.basicConfig(stream=sys.stderr, format="%(message)s")
for number in range(30_000):
    logging.warning("%d", number)
print("logged", streams.dropped("stderr"), flush=True)
sys.stdin.read()
logging.warning("last")
streams.end()
"""


class Pipe:
    """A pipe that nobody reads before `read`. It is full, or a small one with room."""

    def __init__(self, full: bool = True) -> None:
        self.near, self.far = os.pipe()
        if not full and hasattr(fcntl, "F_SETPIPE_SZ"):
            fcntl.fcntl(self.far, fcntl.F_SETPIPE_SZ, PAGE)
        self._filled = 0
        if full:
            os.set_blocking(self.far, False)
            for size in (4096, 1):
                try:
                    while True:
                        self._filled += os.write(self.far, b"." * size)
                except BlockingIOError:
                    pass
            os.set_blocking(self.far, True)

    def is_full(self) -> bool:
        """Return whether a writer of more than a page waits for its reader."""
        size = struct.unpack("i", fcntl.ioctl(self.near, termios.FIONREAD, bytes(4)))[0]
        return bool(size >= PAGE and not select.select((), (self.far,), (), 0)[1])

    def close_far(self) -> None:
        if self.far >= 0:
            os.close(self.far)
            self.far = -1

    def close(self) -> None:
        self.close_far()
        if self.near >= 0:
            os.close(self.near)
            self.near = -1

    def read(self) -> bytes:
        """All that was written, up to the end of the writers."""
        self.close_far()
        with open(self.near, "rb", closefd=False) as stream:
            return stream.read()[self._filled :]


@pytest.fixture
def small() -> Iterator[Pipe]:
    pipe = Pipe(full=False)
    yield pipe
    pipe.close()


@pytest.fixture
def unread() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


class Stopped:
    """A terminal whose output is stopped, as by ^S."""

    def __init__(self) -> None:
        import pty

        self.near, self.far = pty.openpty()
        termios.tcflow(self.far, termios.TCOOFF)

    def close(self) -> None:
        os.close(self.near)
        os.close(self.far)


@contextmanager
def serving(
    folder: Path, *flags: str, before: Sequence[str] = (), **streams: Any
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run a broker, and yield the process and its port. `before` goes before its command."""
    ready = folder / "ready"
    command = [*before, *COMMAND, "broker", "--memory", "--port", "0", "--ready-file", str(ready), *flags]
    with subprocess.Popen(command, cwd=folder, **{"stdin": subprocess.DEVNULL, **streams}) as process:
        try:
            wait_for(lambda: ready.exists() or process.poll() is not None)
            yield process, json.loads(ready.read_text())["port"]
        finally:
            process.kill()


def ended(process: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> int:
    """The exit status after a signal."""
    process.send_signal(number)
    try:
        return process.wait(patience(20))
    finally:
        process.kill()


def is_served(port: int, count: int = 1) -> None:
    """Connect a number of clients, which each send a message and get a receipt."""
    frames = b"CONNECT\naccept-version:1.2\nhost:/\n\n\0SEND\ndestination:/queue/a\nreceipt:r\n\nx\0"
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", port), patience(20)) as wire:
            wire.sendall(frames)
            parser, commands = stompcodec.Parser("1.2"), []
            while "RECEIPT" not in commands:
                data = wire.recv(65536)
                assert data
                commands += [frame.command for frame in parser.feed(data)]


# ---- the broker ----


@pytest.mark.parametrize("level", ["info", "debug"])
def test_a_log_that_nobody_reads_stops_no_broker(
    level: str, unread: Pipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", "1" if level == "info" else "")  # as in many images, and as by default
    with serving(tmp_path, "--log-level", level, stdout=unread.far, stderr=unread.far) as (process, port):
        is_served(port, 20)
        assert ended(process) == 0


def test_a_log_is_whole_once_its_reader_is_back(unread: Pipe, tmp_path: Path) -> None:
    with serving(tmp_path, "--log-level", "info", stdout=subprocess.DEVNULL, stderr=unread.far) as (process, port):
        is_served(port, 20)
        process.send_signal(signal.SIGTERM)
        lines = unread.read().decode().splitlines()
        assert process.wait(patience(20)) == 0
    assert len([line for line in lines if ": opened (" in line]) == 20
    assert lines[-1].endswith(": stopped")


def test_a_terminal_that_is_stopped_stops_no_broker(tmp_path: Path) -> None:
    terminal = Stopped()
    with serving(tmp_path, "--log-level", "info", stdout=terminal.far, stderr=terminal.far) as (process, port):
        is_served(port, 5)
        assert ended(process, signal.SIGINT) == 0
    terminal.close()


@pytest.mark.parametrize("what", ["a reader that has gone", "a full disk"])
def test_a_log_that_cannot_be_written_stops_no_broker(what: str, unread: Pipe, tmp_path: Path) -> None:
    if what == "a full disk" and not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full")
    far = unread.far if what == "a reader that has gone" else os.open("/dev/full", os.O_WRONLY)
    if far == unread.far:
        os.close(unread.near)
        unread.near = -1
    else:
        unread.close()
    with serving(tmp_path, "--log-level", "info", stdout=far, stderr=far) as (process, port):
        is_served(port, 5)
        assert ended(process) == 0


def test_dropped_lines_are_told_when_the_reader_is_back() -> None:
    """In their place: what is told and what was written is all that was logged."""
    with subprocess.Popen(
        [sys.executable, "-c", LOGS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        word, dropped = process.stdout.readline().split()
        assert word == b"logged"
        assert int(dropped) > 1000
        at, told = 0, []
        while at + sum(told) < 30_000:
            line = process.stderr.readline()
            if found := re.fullmatch(rb"stompcodec: (\d+) lines were dropped, .*\n", line):
                told.append(int(found[1]))
            else:
                assert line == b"%d\n" % (at + sum(told))
                at += 1
        assert sum(told) == int(dropped)
        process.stdin.close()
        assert process.stderr.read() == b"last\n"
        assert process.wait(patience(20)) == 0


# ---- the bridge ----


@contextmanager
def bridging(at: Runner, fresh: str, *flags: str, **streams: Any) -> Iterator[tuple[subprocess.Popen[bytes], Any]]:
    """Bridge a queue to another broker, which is yielded with the process."""
    command = [sys.executable, "-c", EAGER, "bridge", at.url, at.guarded_url.replace("//", "//guest@"), "-m", fresh]
    environment = at.environment(STOMPCODEC_TO_PASSCODE="guest")
    with subprocess.Popen([*command, *flags], env=environment, **streams) as process:
        try:
            with connect(at.guarded_url, login="guest", passcode="guest") as client:
                yield process, client.subscribe(fresh)
        finally:
            process.kill()


def carried(at: Runner, fresh: str, arrived: Any, count: int) -> None:
    """Have messages carried, one after the other, so that the bridge reports meanwhile."""
    with connect(at.url) as client:
        for number in range(count):
            client.send(fresh, b"%d" % number)
            assert arrived.get(patience(20)).body == b"%d" % number


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_bridge_carries_though_nobody_reads_json(at: Runner, fresh: str, unread: Pipe, number: int) -> None:
    with bridging(at, fresh, "--json", stdout=unread.far, stderr=subprocess.PIPE) as (process, arrived):
        assert process.stderr is not None
        carried(at, fresh, arrived, 30)
        assert ended(process, number) == 0
        assert process.stderr.read().startswith(b"30 messages carried")


def test_a_bridge_carries_though_nobody_reads_its_trouble(at: Runner, fresh: str, unread: Pipe) -> None:
    with FaultProxy(("127.0.0.1", at.broker.port)) as proxy:
        command = [*COMMAND, "bridge", f"stomp://127.0.0.1:{proxy.port}", at.guarded_url.replace("//", "//guest@")]
        environment = at.environment(STOMPCODEC_TO_PASSCODE="guest")
        with (
            subprocess.Popen([*command, "-m", fresh], env=environment, stderr=unread.far) as process,
            connect(at.guarded_url, login="guest", passcode="guest") as client,
        ):
            arrived = client.subscribe(fresh)
            try:
                carried(at, fresh, arrived, 1)
                proxy.cut()
                carried(at, fresh, arrived, 5)
                assert ended(process) == 0
            finally:
                process.kill()


def test_the_reader_of_a_bridge_gets_whole_lines_when_it_is_back(at: Runner, fresh: str, unread: Pipe) -> None:
    with bridging(at, fresh, "--json", stdout=unread.far, stderr=subprocess.DEVNULL) as (process, arrived):
        carried(at, fresh, arrived, 30)
        process.send_signal(signal.SIGTERM)
        lines = [json.loads(line) for line in unread.read().splitlines()]
        assert process.wait(patience(20)) == 0
    assert [line["event"] for line in lines] == ["progress"] * (len(lines) - 1) + ["end"]
    counts = [line["carried"] for line in lines]
    assert counts == sorted(counts)
    assert counts[-1] == 30


def test_a_bridge_carries_after_the_reader_of_json_has_gone(at: Runner, fresh: str, unread: Pipe) -> None:
    os.close(unread.near)
    unread.near = -1
    with bridging(at, fresh, "--json", stdout=unread.far, stderr=subprocess.PIPE) as (process, arrived):
        carried(at, fresh, arrived, 10)
        assert ended(process) == 0
        assert process.stderr is not None
        assert b"lines of --json dropped" in process.stderr.read()


# ---- verbs whose output is their job ----


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_sub_acknowledges_only_what_was_written(
    at: Runner, fresh: str, small: Pipe, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for its reader, a signal ends it, and every message was written, or is still there."""
    monkeypatch.setenv("PYTHONUNBUFFERED", "1" if number == signal.SIGTERM else "")
    bodies = [b"%d." % number * 4000 for number in range(30)]
    at.good("pub", fresh, "-l", input=b"\n".join(bodies))
    process = at.process("sub", fresh, stdout=small.far, stderr=subprocess.PIPE)
    assert process.stderr is not None
    wait_for(small.is_full)
    assert ended(process, number) == 130
    assert process.stderr.read() == b""
    process.stderr.close()
    *written, _cut = small.read().split(b"\n")
    rest = at.good("sub", fresh, "-n", str(30 - len(written)), "-w", str(patience(20))).split()
    assert [*written, *rest] == bodies


def test_sub_connects_again_while_it_waits_for_its_reader(at: Runner, fresh: str, small: Pipe) -> None:
    """Nothing that tells of the lost connection waits with it."""
    at.good("pub", fresh, "-l", input=b"\n".join(b"%d." % number * 4000 for number in range(30)))
    with FaultProxy(("127.0.0.1", at.broker.port)) as proxy:
        url = f"stomp://127.0.0.1:{proxy.port}"
        process = at.process("sub", fresh, "-u", url, stdout=small.far, stderr=subprocess.PIPE)
        assert process.stderr is not None
        wait_for(small.is_full)
        for count in (2, 3):

            def connects_again(count: int = count) -> bool:
                proxy.cut()  # a connection that has only just come may not be cut yet
                return proxy.accepted >= count

            wait_for(connects_again)
        assert ended(process) == 130
        assert b"connecting again" in process.stderr.read()
        process.stderr.close()


@pytest.mark.parametrize(
    ("verb", "flags", "status"),
    [("top", ("--json", "--limit", "100"), 0), ("browse", ("--json",), 130)],
)
def test_a_signal_ends_a_verb_that_waits_for_its_reader(
    verb: str,
    flags: tuple[str, ...],
    status: int,
    at: Runner,
    fresh: str,
    small: Pipe,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", "")  # so that it writes more than a page at a time
    at.good("pub", fresh, "-l", input=b"\n".join(b"%d." % number * 4000 for number in range(30)))
    with connect(at.url) as client:
        client.send_many((f"{fresh}.{number}", b"x") for number in range(100))
        client.ping()
    where = [fresh] if verb == "browse" else ["-u", at.url]
    process = at.process(verb, *where, *flags, stdout=small.far, stderr=subprocess.PIPE)
    assert process.stderr is not None
    wait_for(small.is_full)
    assert ended(process) == status
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()


# ---- what other verbs tell ----


def test_record_ends_though_nobody_reads_what_it_tells(at: Runner, fresh: str, unread: Pipe, tmp_path: Path) -> None:
    process = at.process("record", fresh, "-o", tmp_path / "a.stompcap", stderr=unread.far)
    at.good("pub", fresh, "one")
    wait_for(lambda: stored(tmp_path))
    assert ended(process) == 0


def stored(folder: Path) -> bool:
    return any(b"MESSAGE" in file.read_bytes() for file in folder.rglob("*") if file.is_file())


def test_reply_ends_though_nobody_reads_what_it_tells(at: Runner, fresh: str, unread: Pipe) -> None:
    process = at.process("reply", fresh, "pong", stderr=unread.far)
    assert at.good("req", fresh, "ping", "--timeout", str(patience(20))) == b"pong"
    assert ended(process) == 0


@pytest.mark.parametrize("which", ["stdout", "stderr"])
def test_a_proxy_carries_and_ends_though_nobody_reads_what_it_tells(which: str, at: Runner, unread: Pipe) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with open(os.devnull, "wb") as null:
        streams = {"stdout": null, "stderr": null, which: unread.far}
        process = at.process("proxy", str(port), f"127.0.0.1:{at.broker.port}", "--json", **streams)
        wait_for(lambda: listens(port))
        is_served(port, 10)
        assert ended(process) == 0


def listens(port: int) -> bool:
    with socket.socket() as wire:
        return wire.connect_ex(("127.0.0.1", port)) == 0
