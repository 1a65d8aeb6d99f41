"""stompcodec proxy: its options, its output, its end."""

import contextlib
import re
import signal
import socket
import subprocess

import pytest

pty = pytest.importorskip("pty")

from cli.running import objects, run
from client.peer import closed_port
from patience import patience

CONNECT = b"CONNECT\naccept-version:1.2\nhost:a\nlogin:ann\npasscode:hunter2\nx-secret:hunter2\n\n\0"
BROKEN = b"SEND\npasscode:hunter2\nx:\\q\n\n\0"


class Running:
    """A proxy as a process."""

    def __init__(self, process):
        self.process = process
        self.first = process.stderr.readline().decode()
        self.port = int(re.search(r"://127\.0\.0\.1:(\d+) passes on", self.first)[1])

    def say(self, *parts):
        """Send parts, each after the answer to the one before, and return what came last, up to the end."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=patience(10)) as client:
            data = b""
            for part in parts:
                client.sendall(part)
                data = client.recv(65536)
            client.shutdown(socket.SHUT_WR)
            return data + b"".join(iter(lambda: client.recv(65536), b""))

    def end(self, number=signal.SIGTERM):
        """Status, standard output and standard error."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=patience(30))
        return self.process.returncode, out.decode(), self.first + err.decode()


@contextlib.contextmanager
def running(at, *arguments, target=None, **options):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    with at.process("proxy", "0", target or at.url, *arguments, **pipes) as process:
        try:
            yield Running(process)
        finally:
            process.kill()


def test_rows_and_the_last_lines(at, tmp_path):
    folder = tmp_path / "a.stompcap"
    with running(at, "--record", folder) as proxy:
        assert b"CONNECTED" in proxy.say(CONNECT)
        proxy.say(b"GET / HTTP/1.1\r\nAuthorization: Basic hunter2\r\n\r\n")
        status, out, err = proxy.end(signal.SIGINT)
    time = r"^\d\d:\d\d:\d\d\.\d{3} +1 "
    for text, row in (
        (out, time + r"- opened by 127\.0\.0\.1:\d+$"),
        (out, time + r"> CONNECT +- +accept-v.* 0$"),
        (out, time + r"< CONNECTED "),
        (out, r"2 > not STOMP: it passes unchanged from here on$"),
        (out, r"\|GET / HTTP/1\.1\.\.\|"),
        (out, r"error S12-FRM-06: unknown command"),
        (err, r"^2 connections; from clients 1 frame, \d+ bytes \(48 of them not STOMP\); from the"),
        (err, r"^lint: .*S12-FRM-06 1$"),
    ):
        assert re.search(row, text, re.MULTILINE), row
    assert (status, "\x1b" in out, "hunter2" in out + err) == (0, False, False)
    assert not [path for path in folder.iterdir() if b"hunter2" in path.read_bytes()]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_json(at):
    with running(at, "--json", "--fault", "lose CONNECTED nth=2") as proxy:
        proxy.say(CONNECT, b"SEND\ndestination:/queue/j\nreceipt:1\n\n\xff\0")
        proxy.say(BROKEN)
        status, out, _err = proxy.end()
    lines = objects(out.encode())
    assert (status, "hunter2" in out, b"hunter2".hex() in out) == (0, False, False)
    assert [line["event"] for line in lines[:2]] == ["listening", "opened"]
    connect, send = (next(line for line in lines if line.get("command") == name) for name in ("CONNECT", "SEND"))
    assert connect["from"] == "client"
    assert [pair for pair in connect["headers"] if pair[1] == "***"] == [["passcode", "***"], ["x-secret", "***"]]
    assert send["body_b64"] == "/w=="
    assert {finding["rule"] for finding in send["lint"]} == {"S12-CL-04", "S12-CT-01"}
    broken = next(line for line in lines if line["event"] == "not-stomp")
    assert bytes.fromhex(broken["begin"]).startswith(b"SEND\npasscode***")
    summary = lines[-1]
    assert (summary["event"], summary["connections"], summary["frames"]["client"]) == ("summary", 2, 2)
    assert summary["lint"]["S12-ESC-05"] == 1


def test_quiet_tells_only_of_a_target_that_is_down(at):
    with running(at, "-q") as proxy:
        proxy.say(CONNECT)
        status, out, err = proxy.end()
    assert (status, out, "1 connection; from clients 1 frame" in err) == (0, "", True)
    with closed_port() as port, running(at, "-q", target=f"127.0.0.1:{port}") as proxy:
        with contextlib.suppress(ConnectionError):
            assert proxy.say() == b""
        status, _out, err = proxy.end()
    assert (status, "(1 did not reach the target)" in err) == (0, True)
    assert f"connection 1 closed: cannot connect to stomp://127.0.0.1:{port}: Connection refused" in err


def test_a_port_that_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = run("proxy", str(taken.getsockname()[1]), "localhost:61613")
    assert (result.exit_code, "cannot listen at 127.0.0.1 port" in result.stderr) == (1, True)
