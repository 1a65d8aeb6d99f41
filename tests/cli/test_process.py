"""The command as a process: pipes, terminals, streams that are closed or that nobody reads, missing extras, memory."""

import json
import os
import select
import signal
import struct
import subprocess
import sys
from contextlib import contextmanager
from subprocess import DEVNULL, PIPE, Popen

import pytest
import railway
from cli.running import COMMAND, process, started, terminal
from client.feeding import wait_for
from client.peer import Peer
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame, serialize
from stompcodec.cli.screen import escape_json
from stompcodec.client import connect
from stompcodec.testing import StompBroker

pytestmark = pytest.mark.long
posix = pytest.mark.skipif(os.name != "posix", reason="pipes and terminals of POSIX")
ONE = b"SEND\ndestination:/q\n\nx\0"


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    file = tmp_path_factory.mktemp("cli") / "railway.stomp"
    with file.open("wb") as stream:
        for _ in range(2):
            stream.writelines(railway.capture(2300))
    return file


def program(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=patience(60), check=False)


def test_help_and_version():
    result = process("--help")
    assert result.returncode == 0
    package = subprocess.run([sys.executable, "-m", "stompcodec", "--help"], capture_output=True, timeout=patience(60))
    assert (package.returncode, package.stdout) == (0, result.stdout)
    assert b"backend" in process("--version").stdout


@pytest.mark.parametrize("package", ["click", "rich"])
def test_a_missing_extra_is_named(package):
    result = program(f"import sys; sys.modules[{package!r}] = None\nfrom stompcodec.cli import main\nmain()")
    assert result.returncode == 2
    text = f"stompcodec: this needs the package {package}: pip install 'stompcodec[cli]'"
    assert result.stderr.decode().splitlines() == [text]


@posix
def test_frames_are_shown_as_they_come():
    with started("decode", "--json", stdin=PIPE, stdout=PIPE) as running:
        for number in range(3):
            running.stdin.write(b"ACK\nid:%d\n\n\0\n" % number)
            running.stdin.flush()
            assert b'["id","%d"]' % number in running.stdout.readline()
        running.stdin.close()
        assert running.wait(patience(60)) == 0


@posix
@pytest.mark.parametrize("verb", [["decode"], ["decode", "--summary"], ["lint"]], ids=" ".join)
def test_colours_on_a_terminal_only(verb, tmp_path):
    small = tmp_path / "small.stomp"
    small.write_bytes(b"".join(list(railway.capture(100))[:5]) + ONE)
    assert "\x1b[" in terminal(*verb, small)
    assert "\x1b[" not in terminal(*verb, small, NO_COLOR="1")
    assert b"\x1b[" not in process(*verb, small).stdout


@posix
def test_the_progress_bar_disturbs_nobody(capture, tmp_path):
    with open(tmp_path / "out", "wb") as out:
        assert "MB" in terminal("decode", "--json", capture, stdout=out.fileno())
    assert b"\x1b[" not in (tmp_path / "out").read_bytes()
    assert "━" in terminal("decode", "--summary", capture)
    assert "━" not in terminal("decode", capture, NO_COLOR="1")
    read, write = os.pipe()
    with open(read, "rb") as pipe:
        reader = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.buffer.read()"], stdin=pipe)
        assert terminal("decode", "--json", capture, stdout=write) == ""
        os.close(write)
        assert reader.wait(patience(60)) == 0


@posix
@pytest.mark.slow
@pytest.mark.no_asan
@pytest.mark.parametrize("arguments", [["--json"], ["--summary", "--limit", "max_body=1G"]], ids=" ".join)
def test_memory_stays_flat(arguments, capture):
    """A stream of 120 MB, the last time as one frame, takes no more memory than a small one."""
    # A process of its own measures its only child.
    code = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[2:], stdin=sys.stdin, stdout=subprocess.DEVNULL, check=True)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // int(sys.argv[1]))"
    )
    unit = str(2**20 if sys.platform == "darwin" else 2**10)
    whole = [b"SEND\n\n", *[b"x" * 2**20] * 120, b"\0"] if "--limit" in arguments else [capture.read_bytes()] * 20
    command = [sys.executable, "-c", code, unit, *COMMAND, "decode", *arguments]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE) as running:
        with running.stdin as stdin:
            stdin.writelines(whole)
        assert int(running.stdout.read()) < 60
        assert running.wait(patience(60)) == 0


@pytest.mark.parametrize("module", ["click", "stompcodec.cli.app"])
def test_ctrl_c_while_the_command_is_loaded_ends_it_without_a_traceback(module):
    done = program(f"""
import sys
import stompcodec.cli

class Interrupted:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "{module}":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted)
stompcodec.cli.main()
""")
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize(
    ("run", "status", "out", "last"),
    [
        ("1 / 0", 1, b"", b"ZeroDivisionError: division by zero"),  # told though a thread has the log, which has ended
        ("[each.write('no end') for each in (sys.stdout, sys.stderr)]", 0, b"no end", b"no end"),
    ],
    ids=["a fault", "no end of line"],
)
def test_the_last_line_of_a_broker_is_written(run, status, out, last):
    result = program(f"""
import sys
from stompcodec.broker import server
from stompcodec.cli import main
server.run = lambda *args, **options: {run}
sys.argv = ["stompcodec", "broker", "--memory", "--port", "0"]
main()
""")
    assert (result.returncode, result.stdout, result.stderr.splitlines()[-1]) == (status, out, last)


# ---- what peers wrote cannot steer a terminal ----
pytest.importorskip("pty")  # there are no terminals of POSIX on Windows
#: 8-bit CSI, NEL, an escape sequence, a bell, DEL, overrides and isolates of direction, no width, a line separator.
CONTROLS = "\x9b\x85\x1b\x07\x7f\u202e\u202a\u2066\u2069\u200b\u200f\u2028\ufeff\U000e0001"
NASTY = "be\x9b2Jgin\x85\x1b]0;owned\x07\x7f\u202eevil\u202a\u2066\u2069\u200b\u200f\u2028\ufeff\U000e0001end"


def shown(*arguments, status=0):
    """What a command writes to a terminal. No colours, so that any control character is somebody else's."""
    text = terminal(*arguments, status=status, NO_COLOR="1", COLUMNS="300", TERM="xterm")
    assert not set(text) & set(CONTROLS), text
    return text


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    headers = {"destination": NASTY, "subscription": "s" + NASTY, "message-id": NASTY, NASTY: NASTY}
    data = serialize(Frame("MESSAGE", headers, json.dumps({"a": NASTY}, ensure_ascii=False).encode()), "1.2")
    path = tmp_path_factory.mktemp("frames") / "begin.stomp"
    path.write_bytes(data + data.replace(b"message-id", b"x"))
    return path


@pytest.mark.parametrize("verb", ["decode", "decode --json", "decode --pretty", "lint", "inspect"])
def test_verbs_that_read_files(verb, file):
    shown(*verb.split(), file, status=1 if verb == "lint" else 0)


@pytest.fixture(scope="module")
def broker():
    with StompBroker() as broker:
        yield broker


@pytest.mark.parametrize(
    "view", [[], ["--json"], ["-f", "{destination} {id} {headers} {headers[nasty]} {body}\\n"]], ids=" ".join
)
def test_sub(view, broker):
    with stomp.connect(broker.url) as client:
        client.send("/queue/sub", NASTY, {"nasty": NASTY, NASTY: "x"}, receipt=True)
    text = shown("sub", "/queue/sub", "-n", "1", "-u", broker.url, *view)
    assert "evil" in text
    if view == ["--json"]:
        found = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
        assert found["body"] == NASTY
        assert ["nasty", NASTY] in found["headers"]


def test_queue_tools(broker):
    letter = {"original-destination": NASTY, "dead-letter-reason": NASTY, "dead-letter-attempts": NASTY, NASTY: "x"}
    with stomp.connect(broker.url) as client:
        client.send("/queue/letters", NASTY, letter, receipt=True)
    for verb in ("browse", "browse --json", "dlq show", "dlq list"):
        shown(*verb.split(), "/queue/letters", "-u", broker.url)
    shown("dlq", "retry", "/queue/letters", "--dry-run", "-u", broker.url)


def refuse(side, frame):
    headers = {"message": NASTY, "content-type": "text/plain"}
    if frame.get("receipt") is not None:
        headers["receipt-id"] = frame.headers["receipt"]
    side.send("ERROR", headers, NASTY.encode())


@pytest.mark.parametrize(
    ("verb", "command", "status"),
    [
        *(("pub /queue/a x", "SEND", 1), ("sub /queue/a -n 1 -w 1", "SUBSCRIBE", 1)),
        *(("req /queue/a x --timeout 2", "CONNECT", 1), ("ping", "BEGIN", 1)),
        ("ping", "SEND", 0),  # which it does not send: what it shows is the name of the broker
    ],
)
def test_what_a_broker_answers(verb, command, status):
    with Peer(server=NASTY, rules={command: refuse}) as peer:
        shown(*verb.split(), "-u", peer.url, status=status)


def test_json_means_the_same():
    for text in (NASTY, "", "plain", '"\\\n\t', "caf\xe9 \U0001f600", "\ud800"):
        line = json.dumps({"a": text}, ensure_ascii=False)
        assert json.loads(escape_json(line)) == {"a": text}
        assert escape_json(line).isprintable()
    assert escape_json('{"a":"caf\xe9"}') == '{"a":"caf\xe9"}'


# ---- output that nobody reads, and streams that are closed ----
fcntl, termios = pytest.importorskip("fcntl"), pytest.importorskip("termios")
#: Bytes of a small pipe, on Linux.
PAGE = os.sysconf("SC_PAGE_SIZE")
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
        size = struct.unpack("i", fcntl.ioctl(self.near, termios.FIONREAD, bytes(4)))[0]
        return bool(size >= PAGE and not select.select((), (self.far,), (), 0)[1])

    def close(self, *ends):
        for end in ends or ("near", "far"):
            if getattr(self, end) >= 0:
                os.close(getattr(self, end))
                setattr(self, end, -1)

    def read(self):
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
    for _ in range(count):
        with connect(f"stomp://127.0.0.1:{port}") as client:
            client.send("/queue/a", b"x", receipt=True)


def filled(at, queue):
    bodies = [b"%d." % number * 4000 for number in range(30)]
    at.good("pub", queue, "-l", input=b"\n".join(bodies))
    return bodies


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
        unread._filled -= len(os.read(unread.near, unread._filled))  # room for all, however late the reader is
        process.send_signal(signal.SIGTERM)
        lines = unread.read().decode().splitlines()
        assert process.wait(patience(20)) == 0
    assert len([line for line in lines if ": opened (" in line]) == 20
    assert lines[-1].endswith(": stopped")


@contextmanager
def bridging(at, fresh, **streams):
    """Bridge a queue to another broker: the process, and what carries messages one after the other."""
    ends = [at.url, at.guarded_url.replace("//", "//guest@")]
    command = [sys.executable, "-c", EAGER, "bridge", *ends, "-m", fresh, "--json"]
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
    with bridging(at, fresh, stdout=unread.far, stderr=PIPE) as (process, carry):
        carry(30)
        status, said = ended(process)
    assert (status, b"30 messages carried" in said) == (0, True)
    assert (b"lines of --json dropped" in said) or not has_gone


#: Runs the rest of its arguments with standard error, a terminal, as the one that sends SIGHUP when it is closed.
OF_TERMINAL = "import fcntl, os, sys, termios as t; fcntl.ioctl(2, t.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
NOHUP = ("sh", "-c", 'trap "" HUP; exec "$@"', "sh")


@pytest.mark.parametrize("nohup", [(), NOHUP])
def test_a_closed_terminal_ends_a_broker_but_not_one_under_nohup(nohup, tmp_path):
    near, far = os.openpty()
    before = (*nohup, sys.executable, "-c", OF_TERMINAL)
    with serving(tmp_path, before, stdout=far, stderr=far, start_new_session=True) as (process, port):
        os.close(far)
        os.close(near)
        process.send_signal(signal.SIGHUP)  # the shell sends it, too
        if nohup:
            is_served(port)
            process.terminate()
        assert process.wait(patience(20)) == 0
    assert not (tmp_path / "ready").exists()


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


@pytest.mark.parametrize(("verb", "status"), [("top --json", 0), ("browse {} --json", 130)])
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
