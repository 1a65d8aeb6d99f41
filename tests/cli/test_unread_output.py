"""Output that nobody reads, and streams that are closed: the work goes on, and signals end it.

A pipe is full, a terminal is stopped, a reader has gone, a disk is full. Each verb runs as a process.
"""

from __future__ import annotations

import json
import os
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

from cli.running import COMMAND
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

#: Runs the command with a bridge that reports all the time, not each second.
EAGER = """
import stompcodec.bridge.bridge, stompcodec.cli.verbs.bridge
stompcodec.bridge.bridge._TURN, stompcodec.cli.verbs.bridge._REPORT = 0.001, 0.0
stompcodec.cli.main()
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

    def close(self, *ends: str) -> None:
        for end in ends or ("near", "far"):
            if getattr(self, end) >= 0:
                os.close(getattr(self, end))
                setattr(self, end, -1)

    def read(self) -> bytes:
        """All that was written, up to the end of the writers."""
        self.close("far")
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


@contextmanager
def serving(
    folder: Path, *flags: str, before: Sequence[str] = (), **streams: Any
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run a broker, and yield the process and its port. `before` goes before its command."""
    ready = folder / "ready"
    command = [*before, *COMMAND, "broker", "--memory", "--port", "0", "--log-level", "info", *flags]
    command += ["--ready-file", str(ready)]
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


@pytest.mark.parametrize("unbuffered", ["1", ""])
def test_a_log_that_nobody_reads_stops_no_broker_and_is_whole_once_its_reader_is_back(
    unbuffered: str, unread: Pipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)  # as in many images, and as by default
    with serving(tmp_path, stdout=subprocess.DEVNULL, stderr=unread.far) as (process, port):
        is_served(port, 20)
        if unbuffered:
            assert ended(process) == 0
            return
        process.send_signal(signal.SIGTERM)
        lines = unread.read().decode().splitlines()
        assert process.wait(patience(20)) == 0
    assert len([line for line in lines if ": opened (" in line]) == 20
    assert lines[-1].endswith(": stopped")


@pytest.mark.parametrize("what", ["a stopped terminal", "a reader that has gone", "a full disk"])
def test_a_log_that_cannot_be_written_stops_no_broker(what: str, unread: Pipe, tmp_path: Path) -> None:
    if what == "a stopped terminal":  # as by ^S
        near, far = os.openpty()
        termios.tcflow(far, termios.TCOOFF)
    elif what == "a full disk":
        if not os.path.exists("/dev/full"):
            pytest.skip("there is no /dev/full")
        near, far = os.open(os.devnull, os.O_RDONLY), os.open("/dev/full", os.O_WRONLY)
    else:
        near, far = os.open(os.devnull, os.O_RDONLY), os.dup(unread.far)
        unread.close("near")
    with serving(tmp_path, stdout=far, stderr=far) as (process, port):
        is_served(port, 5)
        assert ended(process, signal.SIGINT) == 0
    os.close(near)
    os.close(far)


# ---- the bridge ----


@contextmanager
def bridging(
    at: Runner, fresh: str, *flags: str, source: str | None = None, **streams: Any
) -> Iterator[tuple[subprocess.Popen[bytes], Any]]:
    """Bridge a queue to another broker: the process, and what carries messages one after the other."""
    ends = [source or at.url, at.guarded_url.replace("//", "//guest@")]
    environment = at.environment(STOMPCODEC_TO_PASSCODE="guest")
    command = [sys.executable, "-c", EAGER, "bridge", *ends, "-m", fresh, *flags]
    with subprocess.Popen(command, env=environment, **streams) as process:
        try:
            with connect(at.guarded_url, login="guest", passcode="guest") as client, connect(at.url) as sender:
                arrived = client.subscribe(fresh)

                def carry(count: int) -> None:
                    for number in range(count):
                        sender.send(fresh, b"%d" % number)
                        assert arrived.get(patience(20)).body == b"%d" % number

                yield process, carry
        finally:
            process.kill()


@pytest.mark.parametrize("has_gone", [False, True])
def test_a_bridge_carries_though_nobody_reads_json(at: Runner, fresh: str, unread: Pipe, has_gone: bool) -> None:
    if has_gone:
        unread.close("near")
    with bridging(at, fresh, "--json", stdout=unread.far, stderr=subprocess.PIPE) as (process, carry):
        assert process.stderr is not None
        carry(30)
        assert ended(process) == 0
        said = process.stderr.read()
    assert b"30 messages carried" in said
    assert (b"lines of --json dropped" in said) or not has_gone


def test_a_bridge_carries_though_nobody_reads_its_trouble(at: Runner, fresh: str, unread: Pipe) -> None:
    with FaultProxy(("127.0.0.1", at.broker.port)) as proxy:
        source = f"stomp://127.0.0.1:{proxy.port}"
        with bridging(at, fresh, source=source, stderr=unread.far) as (process, carry):
            carry(1)
            proxy.cut()
            carry(5)
            assert ended(process) == 0


def test_the_reader_of_a_bridge_gets_whole_lines_when_it_is_back(at: Runner, fresh: str, unread: Pipe) -> None:
    with bridging(at, fresh, "--json", stdout=unread.far, stderr=subprocess.DEVNULL) as (process, carry):
        carry(30)
        process.send_signal(signal.SIGTERM)
        lines = [json.loads(line) for line in unread.read().splitlines()]
        assert process.wait(patience(20)) == 0
    assert [line["event"] for line in lines] == ["progress"] * (len(lines) - 1) + ["end"]
    counts = [line["carried"] for line in lines]
    assert counts == sorted(counts)
    assert counts[-1] == 30


# ---- verbs whose output is their job ----


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
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
    verb: str, flags: tuple[str, ...], status: int, at: Runner, fresh: str, small: Pipe, monkeypatch: Any
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


def test_record_and_reply_end_though_nobody_reads_what_they_tell(
    at: Runner, fresh: str, unread: Pipe, tmp_path: Path
) -> None:
    recording = at.process("record", fresh, "-o", tmp_path / "a.stompcap", stderr=unread.far)
    at.good("pub", fresh, "one")
    wait_for(lambda: any(b"MESSAGE" in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()))
    assert ended(recording) == 0
    replying = at.process("reply", f"{fresh}.asked", "pong", stderr=unread.far)
    assert at.good("req", f"{fresh}.asked", "ping", "--timeout", str(patience(20))) == b"pong"
    assert ended(replying) == 0


@pytest.mark.parametrize("which", ["stdout", "stderr"])
def test_a_proxy_carries_and_ends_though_nobody_reads_what_it_tells(which: str, at: Runner, unread: Pipe) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def listens() -> bool:
        with socket.socket() as wire:
            return wire.connect_ex(("127.0.0.1", port)) == 0

    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, which: unread.far}
    process = at.process("proxy", str(port), f"127.0.0.1:{at.broker.port}", "--json", **streams)
    wait_for(listens)
    is_served(port, 10)
    assert ended(process) == 0
    if process.stderr is not None:
        assert b"nobody reads the output" in process.stderr.read()
        process.stderr.close()


# ---- closed streams, as by some supervisors: nothing else gets their descriptors ----

CLOSED = ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"]


def shell(closing: str) -> list[str]:
    return ["sh", "-c", f'exec "$@" {closing}', "sh"]


def run(at: Runner, closing: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [*shell(closing), *COMMAND, *arguments]
    environment = at.environment(**environment)
    return subprocess.run(command, capture_output=True, env=environment, timeout=patience(60), check=False)


@pytest.mark.parametrize("closing", CLOSED)
def test_pub_sends_and_sub_acknowledges_what_it_could_write(closing: str, at: Runner, fresh: str) -> None:
    sent = run(at, closing, "pub", fresh, "body")
    assert (sent.returncode, b"Traceback" in sent.stderr) == (0, False)
    shown = run(at, closing, "sub", fresh, "-n", "1")
    if ">&-" in closing.split():
        assert (shown.returncode, shown.stdout) == (1, b"")
        assert shown.stderr in (b"", b"stompcodec: cannot write: Bad file descriptor\n")
        assert bool(shown.stderr) is ("2>&-" not in closing)
        assert at.good("sub", fresh, "-n", "1") == b"body\n"
    else:
        assert (shown.returncode, shown.stdout, shown.stderr) == (0, b"body\n", b"")


@pytest.mark.parametrize("closing", [">&-", "<&- >&- 2>&-"])
def test_a_broker_serves_and_a_bridge_carries(closing: str, at: Runner, fresh: str, tmp_path: Path) -> None:
    with serving(tmp_path, before=shell(closing), stderr=subprocess.PIPE, stdin=None) as (process, port):
        is_served(port, 3)
        assert ended(process) == 0
        assert process.stderr is not None
        lines = process.stderr.read().splitlines()
    assert (lines != []) == ("2>&-" not in closing)
    assert not any(b"Traceback" in line for line in lines)
    at.good("pub", fresh, "body")
    ends = (at.url, at.guarded_url.replace("//", "//guest@"), "-m", fresh, "-n", "1", "--json")
    done = run(at, closing, "bridge", *ends, STOMPCODEC_TO_PASSCODE="guest")
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)


@pytest.mark.parametrize(("stream", "closing"), [("1", ">&-"), ("2", "2>&-")])
def test_a_command_of_sub_gets_them(stream: str, closing: str, at: Runner, fresh: str) -> None:
    """Else the first file that it opens would."""
    at.good("pub", fresh, "body")
    assert run(at, closing, "sub", fresh, "-n", "1", "--exec", f"test -e /dev/fd/{stream}").returncode == 0
