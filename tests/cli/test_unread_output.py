"""Output that nobody reads, and streams that are closed: the work goes on, and signals end it.

A pipe is full, a terminal is stopped, a reader has gone, a disk is full. Each verb runs as a process.
"""

import json
import os
import select
import signal
import struct
import sys
from contextlib import contextmanager
from subprocess import DEVNULL, PIPE, Popen

import pytest
from cli.running import COMMAND, process
from client.feeding import wait_for
from patience import patience

from stompcodec.client import connect

fcntl, termios = pytest.importorskip("fcntl"), pytest.importorskip("termios")
#: Bytes of a small pipe, on Linux.
PAGE = os.sysconf("SC_PAGE_SIZE")

pytestmark = pytest.mark.long

#: Runs the command with a bridge that reports all the time, not each second.
EAGER = """
import stompcodec.bridge.bridge, stompcodec.cli.verbs.bridge
stompcodec.bridge.bridge._TURN, stompcodec.cli.verbs.bridge._REPORT = 0.001, 0.0
stompcodec.cli.main()
"""


class Pipe:
    """A pipe that nobody reads before `read`. It is full, or a small one with room."""

    def __init__(self, full=True):
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

    def is_full(self):
        """Return whether a writer of more than a page waits for its reader."""
        size = struct.unpack("i", fcntl.ioctl(self.near, termios.FIONREAD, bytes(4)))[0]
        return bool(size >= PAGE and not select.select((), (self.far,), (), 0)[1])

    def close(self, *ends):
        for end in ends or ("near", "far"):
            if getattr(self, end) >= 0:
                os.close(getattr(self, end))
                setattr(self, end, -1)

    def read(self):
        """All that was written, up to the end of the writers."""
        self.close("far")
        with open(self.near, "rb", closefd=False) as stream:
            return stream.read()[self._filled :]


@pytest.fixture
def unread():
    pipe = Pipe()
    yield pipe
    pipe.close()


@pytest.fixture
def small():
    pipe = Pipe(full=False)
    yield pipe
    pipe.close()


@contextmanager
def serving(folder, before=(), **streams):
    """Run a broker, and yield the process and its port. `before` goes before its command."""
    ready = folder / "ready"
    command = [*before, *COMMAND, "broker", "--memory", "--port", "0", "--log-level", "info", "--ready-file", ready]
    with Popen(command, cwd=folder, **{"stdin": DEVNULL, **streams}) as process:
        try:
            wait_for(lambda: ready.exists() or process.poll() is not None)
            yield process, json.loads(ready.read_text())["port"]
        finally:
            process.kill()


def ended(process, number=signal.SIGTERM):
    """The exit status after a signal, and what was read from standard error."""
    process.send_signal(number)
    try:
        status = process.wait(patience(20))
    finally:
        process.kill()
    if process.stderr is None:
        return status, b""
    with process.stderr:
        return status, process.stderr.read()


def is_served(port, count=1):
    """Connect a number of clients, which each send a message and get a receipt."""
    for _ in range(count):
        with connect(f"stomp://127.0.0.1:{port}") as client:
            client.send("/queue/a", b"x", receipt=True)


def filled(at, queue):
    """Put 30 messages into a queue, which are more than a pipe holds; their bodies."""
    bodies = [b"%d." % number * 4000 for number in range(30)]
    at.good("pub", queue, "-l", input=b"\n".join(bodies))
    return bodies


# ---- the broker ----


@pytest.mark.parametrize("unbuffered", ["1", ""])
def test_a_log_that_nobody_reads_stops_no_broker_and_is_whole_once_its_reader_is_back(
    unbuffered, unread, tmp_path, monkeypatch
):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)  # as in many images, and as by default
    with serving(tmp_path, stdout=DEVNULL, stderr=unread.far) as (process, port):
        is_served(port, 20)
        if unbuffered:
            assert ended(process) == (0, b"")
            return
        process.send_signal(signal.SIGTERM)
        lines = unread.read().decode().splitlines()
        assert process.wait(patience(20)) == 0
    assert len([line for line in lines if ": opened (" in line]) == 20
    assert lines[-1].endswith(": stopped")


@pytest.mark.parametrize("what", ["a stopped terminal", "a reader that has gone", "a full disk"])
def test_a_log_that_cannot_be_written_stops_no_broker(what, unread, tmp_path):
    if what == "a stopped terminal":  # as by ^S
        near, far = os.openpty()
        termios.tcflow(far, termios.TCOOFF)
    else:
        if what == "a full disk" and not os.path.exists("/dev/full"):
            pytest.skip("there is no /dev/full")
        near = os.open(os.devnull, os.O_RDONLY)
        far = os.open("/dev/full", os.O_WRONLY) if what == "a full disk" else os.dup(unread.far)
        unread.close("near")
    with serving(tmp_path, stdout=far, stderr=far) as (process, port):
        is_served(port, 5)
        assert ended(process, signal.SIGINT) == (0, b"")
    os.close(near)
    os.close(far)


# ---- the bridge ----


@contextmanager
def bridging(at, fresh, *flags, source=None, **streams):
    """Bridge a queue to another broker: the process, and what carries messages one after the other."""
    ends = [source or at.url, at.guarded_url.replace("//", "//guest@")]
    command = [sys.executable, "-c", EAGER, "bridge", *ends, "-m", fresh, *flags]
    with Popen(command, env=at.environment(STOMPCODEC_TO_PASSCODE="guest"), **streams) as process:
        try:
            with connect(at.guarded_url, login="guest", passcode="guest") as client, connect(at.url) as sender:
                arrived = client.subscribe(fresh)

                def carry(count):
                    for number in range(count):
                        sender.send(fresh, b"%d" % number)
                        assert arrived.get(patience(20)).body == b"%d" % number

                yield process, carry
        finally:
            process.kill()


@pytest.mark.parametrize("has_gone", [False, True])
def test_a_bridge_carries_though_nobody_reads_json(at, fresh, unread, has_gone):
    if has_gone:
        unread.close("near")
    with bridging(at, fresh, "--json", stdout=unread.far, stderr=PIPE) as (process, carry):
        carry(30)
        status, said = ended(process)
    assert (status, b"30 messages carried" in said) == (0, True)
    assert (b"lines of --json dropped" in said) or not has_gone


# ---- verbs whose output is their job ----


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_sub_acknowledges_only_what_was_written(at, fresh, small, number, monkeypatch):
    """It waits for its reader, a signal ends it, and every message was written, or is still there."""
    monkeypatch.setenv("PYTHONUNBUFFERED", "1" if number == signal.SIGTERM else "")
    bodies = filled(at, fresh)
    process = at.process("sub", fresh, stdout=small.far, stderr=PIPE)
    wait_for(small.is_full)
    assert ended(process, number) == (130, b"")
    *written, _cut = small.read().split(b"\n")
    rest = at.good("sub", fresh, "-n", str(30 - len(written)), "-w", str(patience(20))).split()
    assert [*written, *rest] == bodies


@pytest.mark.parametrize(("verb", "status"), [("top --json --limit 100", 0), ("browse {} --json", 130)])
def test_a_signal_ends_a_verb_that_waits_for_its_reader(verb, status, at, fresh, small, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", "")  # so that it writes more than a page at a time
    filled(at, fresh)
    with connect(at.url) as client:
        client.send_many((f"{fresh}.{number}", b"x") for number in range(100))
        client.ping()
    process = at.process(*verb.format(fresh).split(), stdout=small.far, stderr=PIPE)
    wait_for(small.is_full)
    found, said = ended(process)
    assert (found, b"Traceback" in said) == (status, False)


# ---- what other verbs tell ----


# ---- closed streams, as by some supervisors: nothing else gets their descriptors ----


def shell(closing):
    return ["sh", "-c", f'exec "$@" {closing}', "sh"]


def run(at, closing, *arguments, **environment):
    environment = at.environment(**environment)
    return process(*arguments, before=shell(closing), env=environment)


@pytest.mark.parametrize("closing", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_pub_sends_and_sub_acknowledges_what_it_could_write(closing, at, fresh):
    sent = run(at, closing, "pub", fresh, "body")
    assert (sent.returncode, b"Traceback" in sent.stderr) == (0, False)
    shown = run(at, closing, "sub", fresh, "-n", "1")
    if ">&-" not in closing.split():
        assert (shown.returncode, shown.stdout, shown.stderr) == (0, b"body\n", b"")
        return
    said = b"" if "2>&-" in closing else b"stompcodec: cannot write: Bad file descriptor\n"
    assert (shown.returncode, shown.stdout, shown.stderr) == (1, b"", said)
    assert at.good("sub", fresh, "-n", "1") == b"body\n"


@pytest.mark.parametrize("closing", [">&-", "<&- >&- 2>&-"])
def test_a_broker_serves_and_a_bridge_carries(closing, at, fresh, tmp_path):
    with serving(tmp_path, shell(closing), stderr=PIPE, stdin=None) as (process, port):
        is_served(port, 3)
        status, said = ended(process)
    assert (status, said != b"", b"Traceback" in said) == (0, "2>&-" not in closing, False)
    at.good("pub", fresh, "body")
    ends = (at.url, at.guarded_url.replace("//", "//guest@"), "-m", fresh, "-n", "1", "--json")
    done = run(at, closing, "bridge", *ends, STOMPCODEC_TO_PASSCODE="guest")
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
