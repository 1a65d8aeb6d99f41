"""stompcodec broker: flags over config, the line it prints, the ready file, signals, and what goes wrong."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from patience import patience

pytest.importorskip("click")

from click.testing import CliRunner
from client.feeding import wait_for
from crash.process import BrokerProcess

import stompcodec
from stompcodec.broker.auth import check_hash
from stompcodec.broker.config.config import KEYS
from stompcodec.broker.process import new_loop
from stompcodec.cli.app import app
from stompcodec.cli.verbs import broker as cli
from stompcodec.errors import ConfigError

posix = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")


def talk(port: int, data: bytes, count: int = 1) -> list[stompcodec.Frame]:
    """Send octets; the first frames that come, or all if the broker closes before."""
    frames: list[stompcodec.Frame] = []
    parser = stompcodec.Parser("1.2")
    with socket.create_connection(("127.0.0.1", port), 20) as wire:
        wire.sendall(data)
        while len(frames) < count:
            got = wire.recv(65536)
            if not got:
                break
            frames += parser.feed(got)
    return frames


def connect(login: str = "guest", passcode: str = "guest") -> bytes:
    return f"CONNECT\naccept-version:1.2\nhost:/\nlogin:{login}\npasscode:{passcode}\n\n\0".encode()


SEND = b"SEND\ndestination:/queue/a\npersistent:true\nreceipt:r\n\nhello\0"
SUBSCRIBE = b"SUBSCRIBE\nid:0\ndestination:/queue/a\nack:client\n\n\0"


@posix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_life(tmp_path: Path, number: int) -> None:
    """It listens, says so, stores, ends with 0 at a signal, tells its peers, and has the message the next time."""
    broker = BrokerProcess(tmp_path)
    with broker:
        assert set(broker.address) == {"pid", "host", "port", "ws_port", "tls_port", "legacy_port"}
        assert broker.address["pid"] == broker.pid
        assert [frame.command for frame in talk(broker.port, connect() + SEND, 2)] == ["CONNECTED", "RECEIPT"]
        lines = [line for line in broker.tail(1000).splitlines() if "listens on" in line]
        assert len(lines) == 1
        assert f"stomp://127.0.0.1:{broker.port}, ws://127.0.0.1:{broker.ws_port};" in lines[0]
        with socket.create_connection(("127.0.0.1", broker.port), 20) as wire:
            wire.sendall(connect())
            first = wire.recv(1)  # the broker has accepted the connection
            assert broker.stop(number) == 0
            said = list(stompcodec.Parser("1.2").feed(first + b"".join(iter(lambda: wire.recv(65536), b""))))
            assert [frame.command for frame in said] == ["CONNECTED", "ERROR"]
        broker.start()
        frames = talk(broker.port, connect() + SUBSCRIBE, 2)
        assert frames[1].body == b"hello"
        assert frames[1].get("redelivered") is None


@pytest.mark.parametrize("flag", ["--port", "--ws-port", "--tls-port"])
def test_a_used_port_names_the_way_out(flag: str, tmp_path: Path) -> None:
    more = []
    if flag == "--tls-port":
        trustme = pytest.importorskip("trustme")
        certificate = tmp_path / "server.pem"
        trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(certificate)
        more = ["--tls-cert", str(certificate)]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        free = [] if flag == "--port" else ["--port", "0"]
        result = CliRunner().invoke(app, ["broker", "--memory", *free, flag, str(port), *more])
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line == (
        f"stompcodec broker: cannot listen at 127.0.0.1 port {port}: Address already in use "
        f"(another program listens there: stop it, or use another port with {flag} N; {flag} 0 picks a free one)"
    )


@pytest.mark.parametrize(
    ("key", "way"),
    [
        ("port = {}", "--port {}"),
        ("ws_port = {}", "--ws-port {}"),
        ("legacy = {}", "listen.legacy = {}"),
        ("port = [0, {}]", "listen.port = [0, {}]"),
    ],
)
def test_a_used_port_of_a_configuration_names_the_way_out(key: str, way: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        free = "" if key.startswith("port =") else "port = 0\n"
        (tmp_path / "broker.toml").write_text(f"[listen]\n{free}{key.format(port)}\n")
        result = CliRunner().invoke(app, ["broker", "--memory", "--config", str(tmp_path / "broker.toml")])
    assert result.exit_code == 1
    remedy = f"use another port with {way.format('N')}; {way.format(0)} picks a free one)"
    assert result.stderr.splitlines()[0].endswith(remedy)


@posix
def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, fields={"drain_timeout": 60}) as broker, socket.socket() as deaf:
        deaf.settimeout(20)
        deaf.connect(("127.0.0.1", broker.port))
        deaf.sendall(connect() + SUBSCRIBE.replace(b"ack:client", b"ack:auto"))
        send = b"SEND\ndestination:/queue/a\nreceipt:r\n\n%b\0" % (b"x" * 100_000)
        assert talk(broker.port, connect() + send * 300, 301)[-1].command == "RECEIPT"
        os.kill(broker.pid, signal.SIGTERM)
        wait_for(lambda: "SIGTERM: stopping" in broker.tail())  # two signals that wait are one
        assert broker.stop(signal.SIGTERM, timeout=patience(20)) == 0


@pytest.mark.parametrize("uvloop", [True, False])
def test_the_event_loop(uvloop: bool, caplog: pytest.LogCaptureFixture) -> None:
    """asyncio's, unless uvloop is asked for; asked for and missing, that is told."""
    there = find_spec("uvloop") is not None
    loop = new_loop(uvloop)
    loop.close()
    assert type(loop).__module__.startswith("uvloop") is (there and uvloop)
    assert ("uvloop is not installed" in caplog.text) is (uvloop and not there)


@posix
def test_uvloop(tmp_path: Path) -> None:
    """The same life on its loop, where it is installed; else it says so, and goes on."""
    with BrokerProcess(tmp_path, flags=("--uvloop",)) as broker:
        assert [frame.command for frame in talk(broker.port, connect() + SEND, 2)] == ["CONNECTED", "RECEIPT"]
        assert broker.stop() == 0
        assert ("uvloop is not installed" in broker.tail()) is (find_spec("uvloop") is None)
        assert "Traceback" not in broker.tail(1000)


def test_flags_win_over_the_config(tmp_path: Path) -> None:
    config = tmp_path / "b.toml"
    config.write_text('[listen]\nport = 1\nhost = "::1"\n[queues]\nprefetch = 7\n[store]\ndata = "elsewhere"\n')
    flags = {"host": "127.0.0.1", "port": 0, "ws_port": None, "tls_cert": None, "tls_key": None, "data": None}
    merged = cli._config(str(config), False, None, None, **flags)
    assert (merged.host, merged.port, merged.prefetch, merged.ws_port) == ("127.0.0.1", 0, 7, None)
    assert merged.data is not None
    assert merged.data.endswith("elsewhere")
    assert cli._config(str(config), True, None, None, **flags).data is None
    assert cli._config(None, False, None, None, **flags).data == "stompcodec-data"
    assert cli._config(None, False, None, None, **{**flags, "data": "here"}).data == "here"
    tls = cli._config(None, True, None, None, **{**flags, "tls_cert": "both.pem"})
    assert (tls.tls_port, tls.tls_cert, tls.tls_key) == (61614, "both.pem", "both.pem")
    config.write_text('[store]\ndurable = "none"\n')
    assert cli._config(str(config), False, None, None, **flags).data is None


def test_a_flag_may_give_what_keys_of_the_file_need(tmp_path: Path) -> None:
    (tmp_path / "broker.toml").write_text("[web]\nhealth = true\n")
    config = cli._config(str(tmp_path / "broker.toml"), True, None, None, ws_port=0)
    assert (config.ws_port, config.web_health) == (0, True)
    with pytest.raises(ConfigError, match=r"listen\.ws_port: .*need it"):
        cli._config(str(tmp_path / "broker.toml"), True, None, None, ws_port=None)


def test_login(tmp_path: Path) -> None:
    """--login makes the one user who may connect; the passcode may come from the environment, and is never logged."""
    flags = ("--login", "ada", "--passcode", "love-lace")
    with BrokerProcess(tmp_path, memory=True, flags=(*flags, "--log-level", "debug")) as broker:
        assert talk(broker.port, connect("ada", "love-lace"))[0].command == "CONNECTED"
        assert talk(broker.port, connect("ada", "wrong-code"))[0].command == "ERROR"
        assert talk(broker.port, connect())[0].command == "ERROR"
        log = broker.tail(1000)
    assert "love-lace" not in log
    assert "wrong-code" not in log
    assert not (tmp_path / "stompcodec-data").exists()


def failure(*arguments: str, status: int = 1) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "stompcodec.cli", "broker", *arguments],
        capture_output=True,
        timeout=patience(60),
        check=False,
    )
    text = done.stderr.decode()
    assert done.returncode == status, text
    assert "Traceback" not in text
    return text


def test_failures_are_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        text = failure("--memory", "--port", str(taken.getsockname()[1]))
    assert text.startswith("stompcodec broker: ")
    config = tmp_path / "b.toml"
    config.write_text("[queues]\nprefetsch = 7\n")
    text = failure("--config", str(config))
    assert "b.toml" in text
    assert "prefetsch" in text
    assert "--passcode" in failure("--login", "ada", status=2)
    assert "--data" in failure("--memory", "--data", "x", status=2)
    assert "nowhere.toml" in failure("--config", str(tmp_path / "nowhere.toml"))


def test_help() -> None:
    shown = CliRunner().invoke(app, ["broker", "--help"]).output
    for flag in ("--config", "--ws-port", "--tls-cert", "--tls-key", "--data", "--memory", "--login", "--ready-file"):
        assert flag in shown
    keys = CliRunner().invoke(app, ["broker", "--help-config"]).output
    assert all(key.name.rpartition(".")[2] in keys for key in KEYS)


def test_hashing_a_passcode() -> None:
    result = CliRunner().invoke(app, ["broker", "--hash-passcode"], input="secret\nsecret\n")
    assert result.exit_code == 0
    assert check_hash("secret", result.stdout.strip().splitlines()[-1])


def test_the_ready_file_names_the_version_line(tmp_path: Path) -> None:
    """NO_COLOR and no terminal: the line holds no escape sequence."""
    with BrokerProcess(tmp_path, memory=True) as broker:
        assert "\x1b" not in broker.tail(1000)
        assert json.loads(broker.ready.read_text()) == broker.address
