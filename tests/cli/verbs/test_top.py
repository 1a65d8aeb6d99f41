"""stompcodec top at brokers: what it shows, each key in a terminal, refusals, restarts, and how it ends."""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from patience import patience

pytest.importorskip("click")
pytest.importorskip("websockets")

from cli.at_broker import Runner
from client.peer import Peer

import stompcodec.client as stomp
from stompcodec.broker.management.schema import REQUESTS
from stompcodec.testing import StompBroker

pytestmark = pytest.mark.long

#: Control characters as in a name that somebody chose to steer terminals.
NASTY = "/queue/be\x9b2Jgin\x85\x1b]0;owned\x07\x7f\u202eevil\u2066\u200b\u2028\ufeffend"
#: Columns of a row that do not change between two questions.
STILL = ("destination", "ready", "unacknowledged", "consumers", "received", "delivered", "dead_letters", "bytes")


@pytest.fixture(scope="module")
def broker() -> Iterator[StompBroker]:
    """A broker in which nothing happens: queues with 1 to 30 messages, a consumer with 30 of them, and a nasty name."""
    with StompBroker() as broker, stomp.connect(broker.url) as client:
        for number in range(1, 31):
            for _ in range(number):
                client.send(f"/queue/top.{number:02}", b"x")
        client.send(NASTY, b"x", receipt=True)
        client.subscribe("/queue/top.30", ack="client-individual", id="taker", prefetch=1000)
        (row,) = asked(client, "destinations", match="/queue/top.30")
        assert row["unacknowledged"] == 30
        yield broker


def asked(client: stomp.Client, name: str, **fields: Any) -> Any:
    answer = json.loads(client.request(f"/management/{name}", json.dumps(fields)).body)
    return answer["rows"] if "rows" in answer else answer["result"]


# ---- once and as a stream ----


def test_json_is_what_management_says(at: Runner, broker: StompBroker) -> None:
    found = json.loads(at.good("top", "--once", "--json", "-u", broker.url, "--match", "/queue/*", "-n", "7"))
    assert list(found) == ["time", "view", "sort", "match", "broker", "store", "rows", "more"]
    with stomp.connect(broker.url) as client:
        rows = asked(client, "destinations", sort="ready", match="/queue/*", limit=7)
        for part in ("broker", "store"):
            assert list(found[part]) == [column.name for column in REQUESTS[part].columns]
            assert all(column.fits(found[part][column.name]) for column in REQUESTS[part].columns)
        assert found["broker"]["queues"] == asked(client, "broker")["queues"]
    assert [[row[name] for name in STILL] for row in found["rows"]] == [[row[name] for name in STILL] for row in rows]
    assert [row["ready"] for row in found["rows"]] == [29, 28, 27, 26, 25, 24, 23]
    assert all(list(row) == list(rows[0]) for row in found["rows"])
    assert (found["view"], found["sort"], found["match"], found["more"]) == ("destinations", "ready", "/queue/*", True)
    assert all(row["received_rate"] is not None for row in found["rows"])  # it has asked twice


def test_a_table_is_what_management_says(at: Runner, broker: StompBroker) -> None:
    shown = at.good("top", "--once", "-u", broker.url).decode()
    with stomp.connect(broker.url) as client:
        rows = asked(client, "destinations", match="/queue/top.*")
    for row in rows:
        (line,) = [line for line in shown.splitlines() if line.startswith(row["destination"])]
        assert line.split()[1:3] == [str(row["ready"]), str(row["unacknowledged"])]
    assert re.search(r"queues \d+", shown)
    assert "\x1b" not in shown


@pytest.mark.parametrize("view", ["sessions", "subscriptions"])
def test_the_other_views(view: str, at: Runner, broker: StompBroker) -> None:
    found = json.loads(at.good("top", "--once", "--json", "--view", view, "-u", broker.url))
    assert list(found["rows"][0]) == [column.name for column in REQUESTS[view].columns]
    assert found["rows"][0]["unacknowledged"] == 30
    (line,) = [
        line
        for line in at.good("top", "--once", "--view", view, "-u", broker.url).decode().splitlines()
        if " 30 " in line
    ]
    assert line.startswith("127.0.0.1:" if view == "sessions" else "/queue/top.30")


@pytest.mark.parametrize("arguments", [["--sort", "oldest"], ["--view", "sessions", "--sort", "ready"]], ids=" ".join)
def test_an_unknown_column_is_refused_before_connecting(arguments: list[str], at: Runner) -> None:
    result = at("top", *arguments, "-u", "127.0.0.1:1")
    assert result.exit_code == 2
    assert "can be sorted by name, " in result.stderr


def test_a_stream_goes_on_after_a_restart() -> None:
    with StompBroker() as broker, running("top", "--json", "-i", "0.1", "-u", broker.url) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first, second = (json.loads(process.stdout.readline()) for _ in range(2))
        assert first["time"] <= second["time"]
        broker.stop()
        assert b"connecting again" in process.stderr.readline()
        broker.start()
        before = [json.loads(process.stdout.readline()) for _ in range(3)][-1]  # two may have been written before
        assert before["time"] >= second["time"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(patience(30)) == 0
        assert process.stdout.read().endswith(b"}\n") or not process.stdout.read()


def test_a_pipe_gets_one_table_after_the_other(broker: StompBroker) -> None:
    with running("top", "-i", "0.1", "-u", broker.url, "--match", "top.07") as process:
        assert process.stdout is not None
        found = [process.stdout.readline().decode() for _ in range(12)]
        assert [line.split()[:2] for line in found if line.startswith("/queue")] == [["/queue/top.07", "7"]] * 2
        process.stdout.close()  # a reader that goes away
        assert process.wait(patience(30)) == 1


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "stompcodec.cli", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


# ---- over TLS and WebSocket ----


def test_over_websocket(at: Runner) -> None:
    url = f"ws://127.0.0.1:{at.broker.ws_port}/stomp"
    assert json.loads(at.good("top", "--once", "--json", "-u", url))["broker"]["pid"] == at.broker.pid


def test_over_tls(at: Runner, tmp_path: Path) -> None:
    trustme = pytest.importorskip("trustme", reason="certificates for TLS are made by trustme")
    authority, file, trusted = trustme.CA(), tmp_path / "server.pem", tmp_path / "ca.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(file)
    authority.cert_pem.write_to_path(trusted)
    with StompBroker(tls_port=0, tls_cert=str(file), tls_key=str(file)) as broker:
        url = f"stomp+ssl://127.0.0.1:{broker.config.tls_port}"
        rows = json.loads(at.good("top", "--once", "--json", "-u", url, "--view", "sessions", "--ca", trusted))["rows"]
        assert [(row["listener"], row["secure"]) for row in rows] == [("tls", True)]
        assert at("top", "--once", "-u", url).exit_code == 1


# ---- those that do not answer ----


def line_of(at: Runner, *arguments: str | Path, **environment: str) -> str:
    result = at("top", *arguments, **environment)
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert isinstance(line, str)
    return line


def test_without_the_right(at: Runner) -> None:
    line = line_of(at, "-u", at.guarded_url, "--login", "guest", STOMPCODEC_PASSCODE="guest")
    assert "/management/broker, /management/store, /management/destinations: not allowed" in line
    assert 'action = "manage"' in line


@pytest.mark.parametrize(
    ("server", "told"),
    [
        ("RabbitMQ/3.10.8", "15672"),
        ("ActiveMQ/5.17.2", "8161 at /admin"),
        ("ActiveMQ-Artemis/2.31.0", "8161 at /console"),
    ],
)
def test_brokers_without_management_are_told_by_name_and_asked_nothing(server: str, told: str, at: Runner) -> None:
    with Peer(server=server) as peer:
        line = line_of(at, "-u", peer.url)
        assert not [frame for frame in peer.frames if "SEND" in str(frame)]
    assert f"{server} has no management over STOMP" in line
    assert told in line


def test_an_unknown_broker_that_is_silent(at: Runner) -> None:
    with Peer(server="be\x1b[2Jgin", rules={"SEND": lambda side, frame: None}) as peer:
        line = line_of(at, "-u", peer.url, "--timeout", "0.3")
    assert "seems to have no management over STOMP: no answer from /management/broker in 0.3 s" in line
    assert "--prefix" in line
    assert "\x1b" not in line


def test_an_unknown_broker_that_refuses(at: Runner) -> None:
    with Peer(server="other/1", rules={"SEND": lambda side, frame: side.error(frame, "no such destination")}) as peer:
        line = line_of(at, "-u", peer.url)
    assert "other/1 seems to have no management over STOMP: /management/broker: " in line
    assert "no such destination" in line


def test_a_prefix_of_its_own(at: Runner) -> None:
    with StompBroker(management_prefix="/ops/") as broker:
        found = json.loads(at.good("top", "--once", "--json", "-u", broker.url, "--prefix", "/ops/"))
        assert found["broker"]["sessions"] == 1
        assert "--prefix" in line_of(at, "--once", "-u", broker.url, "--timeout", "0.5")


# ---- in a terminal ----

pty = pytest.importorskip("pty")
termios = pytest.importorskip("termios")


class Terminal:
    """A terminal that runs top: what it shows at present, and its keys."""

    def __init__(self, *arguments: str, rows: int = 20, columns: int = 130, **environment: str) -> None:
        self.near, self.far = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.far)
        self.seen = b""
        variables = {name: value for name, value in os.environ.items() if not name.startswith("STOMPCODEC_")}
        for name in ("COLUMNS", "LINES"):
            variables.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stompcodec.cli", "top", *arguments],
            stdin=self.far,
            stdout=self.far,
            stderr=self.far,
            env={**variables, "TERM": "xterm-256color", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8", **environment},
            start_new_session=True,
        )

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.near)
        os.close(self.far)

    def resize(self, rows: int, columns: int) -> None:
        import fcntl

        fcntl.ioctl(self.near, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self.near, keys.encode())

    @property
    def shown(self) -> list[str]:
        """The lines since the last one that was the first of the screen."""
        return self.seen.decode(errors="replace").rpartition("\x1b[H")[2].splitlines()

    def until(self, *signs: str, seconds: float = 30) -> str:
        """Read until all signs are on the screen, and return it."""
        give_up = time.monotonic() + patience(seconds)
        while not all(sign in (screen := "\n".join(self.shown)) for sign in signs):
            assert self._read(give_up), f"{signs} not on the screen:\n{screen}"
        return screen

    def _read(self, give_up: float) -> bool:
        with selectors.DefaultSelector() as selector:
            selector.register(self.near, selectors.EVENT_READ)
            if not selector.select(max(0.0, give_up - time.monotonic())):
                return False
        self.seen += os.read(self.near, 65536)
        return True

    def end(self, status: int) -> None:
        """Wait for the end, and check that the terminal is as it was."""
        give_up = time.monotonic() + patience(30)
        while self.process.poll() is None:
            self._read(min(give_up, time.monotonic() + 0.05))
            assert time.monotonic() < give_up, "it does not end"
        assert self.process.returncode == status
        while self._read(0.0):
            pass
        assert termios.tcgetattr(self.far) == self.before
        assert self.seen.count(b"\x1b[?1049h") == self.seen.count(b"\x1b[?1049l")
        assert self.seen.count(b"\x1b[?25l") <= self.seen.count(b"\x1b[?25h")


def names(screen: str) -> list[str]:
    return [line.split()[0] for line in screen.splitlines() if line.startswith("/queue/")]


def test_keys(broker: StompBroker) -> None:
    with Terminal("-u", broker.url, "--match", "/queue/top.*") as top:
        shown = top.until("destinations by ready", "q quit")
        assert names(shown) == [f"/queue/top.{number}" for number in range(29, 14, -1)]
        assert "q quit  ? help  / filter  /queue/top.29" in shown.splitlines()[-1]
        top.press("j\x1b[B")
        top.until("/ filter  /queue/top.27")
        top.press("\x1b[A")
        top.until("/ filter  /queue/top.28")
        top.press("\x1b[6~")
        assert names(top.until("page 2", "/ filter  /queue/top.14"))[0] == "/queue/top.14"
        top.press("\x1b[5~")
        top.until("/ filter  /queue/top.29")
        top.press("U")
        assert names(top.until("by unacknowledged", "q quit"))[0] == "/queue/top.30"
        top.press(">")
        top.until("by received rate", "q quit")
        top.press("<")
        top.until("by unacknowledged", "q quit")
        top.press("N")
        assert names(top.until("by name", "q quit"))[0] == "/queue/top.01"
        top.press("/")
        top.until("/queue/top.*█")
        top.press("\x15top.2\r")
        assert names(top.until("names with top.2", "q quit"))[:2] == ["/queue/top.20", "/queue/top.21"]
        top.press("?")
        top.until("show or hide this help")
        top.press("?")
        top.until("destinations by name", "q quit")
        top.press("\x1b[H/\x15\r")
        top.press("s")
        assert "127.0.0.1:" in top.until("sessions by unacknowledged", "q quit")
        top.press("u")
        assert "/queue/top.30" in top.until("subscriptions by unacknowledged", "q quit")
        top.press("\t")
        top.until("destinations by name", "q quit")
        top.press("q")
        top.end(0)


def test_names_do_not_steer_the_terminal(broker: StompBroker) -> None:
    with Terminal("-u", broker.url, "--match", "*evil*", columns=200) as top:
        shown = top.until("/queue/be", "q quit")
        assert r"/queue/be\x9b2Jgin\x85\x1b]0;owned\x07\x7f\u202eevil\u2066\u200b\u2028\ufeffend" in shown
        top.press("/" + "\x1b]0;x\x07" + "\x9b2J" + "\r")  # what is typed does not, either
        top.press("q")
        top.end(0)
        rest = re.sub(r"\x1b\[(\?1049[hl]|\?25[hl]|H)", "", top.seen.decode())
        assert not set(rest) & set("\x1b\x07\x7f\x85\x9b\u202e\u2066\u200b\u2028\ufeff"), rest


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, "Ctrl-C"], ids=str)
def test_signals_restore_the_terminal(number: Any, broker: StompBroker) -> None:
    with Terminal("-u", broker.url) as top:
        top.until("destinations by ready", "q quit")
        assert termios.tcgetattr(top.far) != top.before
        if number == "Ctrl-C":
            os.kill(top.process.pid, signal.SIGINT)  # the terminal of this test is not the one of its session
        else:
            top.process.send_signal(number)
        top.end(0)


def test_ctrl_z_leaves_the_screen_and_comes_back(broker: StompBroker) -> None:
    with Terminal("-u", broker.url) as top:
        top.until("destinations by ready", "q quit")
        top.press("\x1a")
        stopped = os.waitid(os.P_PID, top.process.pid, os.WSTOPPED)
        assert stopped is not None
        assert stopped.si_status == signal.SIGSTOP
        assert termios.tcgetattr(top.far) == top.before
        top.process.send_signal(signal.SIGCONT)
        top.press("s")
        top.until("sessions by unacknowledged", "q quit")
        top.press("q")
        top.end(0)


def test_it_fits_the_terminal(broker: StompBroker) -> None:
    with Terminal("-u", broker.url, "--match", "/queue/top.*", rows=12, columns=60) as top:
        shown = top.until("destinations by ready", "q quit")
        assert len(names(shown)) == 7
        assert all(len(line) <= 60 for line in top.shown)
        top.resize(30, 150)
        top.process.send_signal(signal.SIGWINCH)  # the terminal would, if it was that of the session
        shown = top.until("state", "q quit", "/queue/top.10")
        assert len(names(shown)) == 25
        top.press("q")
        top.end(0)


def test_it_shows_that_it_reconnects() -> None:
    with StompBroker() as broker, Terminal("-u", broker.url, "-i", "0.2") as top:
        top.until("destinations by ready", "q quit")
        broker.stop()
        top.until("reconnecting: ")
        broker.start()
        top.until("destinations by ready", "q quit", "/temp-queue/")
        top.press("q")
        top.end(0)


def test_a_refusal_is_a_line_on_a_terminal(at: Runner) -> None:
    with Terminal("-u", at.guarded_url, "--login", "guest", STOMPCODEC_PASSCODE="guest") as top:
        top.end(1)
        assert b"\x1b" not in top.seen
        assert b'action = "manage"' in top.seen


def test_a_terminal_that_cannot_move_its_cursor(broker: StompBroker) -> None:
    with Terminal("-u", broker.url, "--match", "top.07", "-i", "0.1", TERM="dumb") as top:
        give_up = time.monotonic() + patience(30)
        while top.seen.count(b"/queue/top.07") < 2:
            assert top._read(give_up)
        assert b"\x1b" not in top.seen
        top.process.send_signal(signal.SIGTERM)
        top.end(0)


def test_colours(broker: StompBroker) -> None:
    with Terminal("-u", broker.url, NO_COLOR="") as top:
        top.until("q quit")
        assert b"\x1b[33m" in top.seen
    with Terminal("-u", broker.url) as top:
        top.until("q quit")
        assert not re.search(rb"\x1b\[[0-9;]*m", top.seen)
