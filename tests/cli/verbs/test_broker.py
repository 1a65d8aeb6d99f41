"""stompcodec broker: flags over config, the line it prints, the ready file, signals, and what goes wrong."""

import json
import os
import signal
import socket
from importlib.util import find_spec
from pathlib import Path

import pytest
from cli.running import ended, run
from client.feeding import wait_for
from crash.process import BrokerProcess
from patience import patience

import stompcodec
from stompcodec.broker import server
from stompcodec.broker.auth import check_hash
from stompcodec.broker.config import KEYS
from stompcodec.cli.verbs.broker import _config
from stompcodec.errors import ConfigError, MissingExtraError

posix = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")


def talk(port, data, count=1):
    """Send octets; the first frames that come, or all if the broker closes before."""
    frames, parser = [], stompcodec.Parser("1.2")
    with socket.create_connection(("127.0.0.1", port), 20) as wire:
        wire.sendall(data)
        while len(frames) < count and (got := wire.recv(65536)):
            frames += parser.feed(got)
    return frames


def connect(login="guest", passcode="guest"):
    return f"CONNECT\naccept-version:1.2\nhost:/\nlogin:{login}\npasscode:{passcode}\n\n\0".encode()


SEND = b"SEND\ndestination:/queue/a\npersistent:true\nreceipt:r\n\nhello\0"
UVLOOP = find_spec("uvloop") is not None
SUBSCRIBE = b"SUBSCRIBE\nid:0\ndestination:/queue/a\nack:client\n\n\0"


@posix
@pytest.mark.parametrize(("number", "place"), [(signal.SIGTERM, "{}/"), (signal.SIGINT, "@")])
def test_a_life(tmp_path, number, place, monkeypatch):
    address = f"{place.format(tmp_path)}{os.getpid()}"
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    systemd.bind(address.replace("@", "\0"))
    systemd.settimeout(20)
    with systemd, BrokerProcess(tmp_path, config="[web]\npage = true\n") as broker:
        assert systemd.recv(100) == b"READY=1"
        assert set(broker.address) == {"pid", "host", "port", "ws_port", "tls_port", "legacy_port"}
        assert broker.address == {**json.loads(broker.ready.read_text()), "pid": broker.pid}
        assert [frame.command for frame in talk(broker.port, connect() + SEND, 2)] == ["CONNECTED", "RECEIPT"]
        with socket.create_connection(("127.0.0.1", broker.port), 20) as wire:
            wire.sendall(connect())
            first = wire.recv(1)  # the broker has accepted the connection
            assert (broker.stop(number), broker.ready.exists()) == (0, False)
            said = stompcodec.parse(first + b"".join(iter(lambda: wire.recv(65536), b"")))
            assert [frame.command for frame in said] == ["CONNECTED", "ERROR"]
        (line,) = [line for line in broker.tail(1000).splitlines() if "listens on" in line]  # a thread writes it
        ws = broker.ws_port
        assert f"stomp://127.0.0.1:{broker.port}, ws://127.0.0.1:{ws}, its page http://127.0.0.1:{ws}/;" in line
        assert "\x1b" not in line
        broker.start()
        os.kill(broker.pid, signal.SIGHUP)
        wait_for(lambda: "SIGHUP is ignored" in broker.tail())
        copy = ("broker", "backup", tmp_path / "copy", "-u", f"stomp://127.0.0.1:{broker.port}")
        assert run(*copy).stdout == f"copied to {tmp_path}/copy\n"
        ended(run(*copy), 1, f"answers: to: {tmp_path}/copy exists already")
        assert "intact: 1 messages (61 bytes)" in run("broker", "check", tmp_path / "copy").stdout
        frames = talk(broker.port, connect() + SUBSCRIBE, 2)
        assert (frames[1].body, frames[1].get("redelivered")) == (b"hello", None)


@pytest.mark.parametrize(
    ("keys", "flags", "way"),
    [
        *(("", "--port {}", "--port {}"), ("", "--port 0 --tls-port {} --tls-cert server.pem", "--tls-port {}")),
        *(("port = 0\nws_port = {}", "", "--ws-port {}"), ("port = 0\nlegacy = {}", "", "listen.legacy = {}")),
        ("port = [0, {}]", "", "listen.port = [0, {}]"),
    ],
)
def test_a_used_port_names_the_way_out(keys, flags, way, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "tls" in flags:
        trustme = pytest.importorskip("trustme")
        trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path("server.pem")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        Path("broker.toml").write_text(f"[listen]\n{keys.format(port)}\n")
        result = run("broker", "--memory", "--config", "broker.toml", *flags.format(port).split())
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line == (
        f"stompcodec broker: cannot listen at 127.0.0.1 port {port}: Address already in use (another program listens "
        f"there: stop it, or use another port with {way.format('N')}; {way.format(0)} picks a free one)"
    )


@posix
def test_a_second_signal_does_not_wait(tmp_path):
    with BrokerProcess(tmp_path, fields={"drain_timeout": 60}) as broker, socket.socket() as deaf:
        deaf.settimeout(20)
        deaf.connect(("127.0.0.1", broker.port))
        deaf.sendall(connect() + SUBSCRIBE.replace(b"ack:client", b"ack:auto"))
        send = b"SEND\ndestination:/queue/a\nreceipt:r\n\n%b\0" % (b"x" * 100_000)
        assert talk(broker.port, connect() + send * 300, 301)[-1].command == "RECEIPT"
        os.kill(broker.pid, signal.SIGTERM)
        wait_for(lambda: "SIGTERM: stopping" in broker.tail())  # two signals that wait are one
        assert broker.stop(signal.SIGTERM, timeout=patience(20)) == 0


@posix
def test_uvloop_and_a_login(tmp_path, monkeypatch):
    """--login makes the one user who may connect. Passcodes are never logged. --uvloop says if it is not there."""
    monkeypatch.setenv("STOMPCODEC_PASSCODE", "love-lace")
    flags = ("--login", "ada", "--log-level", "debug", "--uvloop")
    with BrokerProcess(tmp_path, memory=True, flags=flags) as broker:
        for passcode, answer in (("love-lace", "CONNECTED"), ("wrong-code", "ERROR")):
            assert talk(broker.port, connect("ada", passcode))[0].command == answer
        assert talk(broker.port, connect())[0].command == "ERROR"
        assert broker.stop() == 0
        log = broker.tail(1000)
    assert ("uvloop is not installed" in log) is not UVLOOP
    assert not [word for word in ("love-lace", "wrong-code", "Traceback") if word in log]
    assert not (tmp_path / "stompcodec-data").exists()


def test_flags_win_over_the_config(tmp_path):
    config = tmp_path / "b.toml"

    def merged(file, memory=False, text=None, **flags):
        if text is not None:
            config.write_text(text)
        return _config(file and str(config), memory, None, None, **flags)

    flags = {"host": "127.0.0.1", "port": 0}
    text = '[listen]\nport = 1\nhost = "::1"\n[queues]\nprefetch = 7\n[store]\ndata = "elsewhere"\n'
    made = merged(True, text=text, **flags)
    assert (made.host, made.port, made.prefetch, made.ws_port) == ("127.0.0.1", 0, 7, None)
    assert made.data.endswith("elsewhere")
    assert merged(True, True, **flags).data is None
    assert merged(None, **flags).data == "stompcodec-data"
    made = merged(None, **flags, data="here", force_fs=True)
    assert (made.data, made.force_fs) == ("here", True)
    made = merged(True, True, text, **flags, dialect="activemq")  # what the file says wins over the dialect's defaults
    assert (made.dialect, made.prefetch, made.dead_letter) == ("activemq", 7, "/queue/ActiveMQ.DLQ")
    text = '[broker]\ndialect = "artemis"\n[limits]\nmax_body = 5\n[queues]\nprefetch = 100\n'
    made = merged(True, True, text, dialect="rabbitmq")
    assert (made.limits.max_body, made.limits.max_headers, made.prefetch) == (5, 99, 100)
    tls = merged(None, True, **flags, tls_cert="both.pem")
    assert (tls.tls_port, tls.tls_cert, tls.tls_key) == (61614, "both.pem", "both.pem")
    tls = merged(True, True, '[tls]\ncert = "a.pem"\n', tls_port=0)
    assert (tls.tls_port, tls.tls_cert) == (0, str(tmp_path / "a.pem"))
    for text, port in (
        *(('[tls]\ncert = "a.pem"\n', 61614), ('[tls]\nca = "ca.pem"\n', 61614), ("[listen]\ntls_port = 7\n", 7)),
        ("[listen]\ntls_port = false\n", 61614),
    ):
        tls = merged(True, True, text, tls_cert="b.pem")
        assert (tls.tls_port, tls.tls_cert, tls.tls_key) == (port, "b.pem", "b.pem")
    assert merged(True, text='[store]\ndurable = "none"\n', **flags).data is None
    made = merged(True, True, "[web]\nhealth = true\n", ws_port=0)  # a flag may give what keys of the file need
    assert (made.ws_port, made.web_health) == (0, True)
    with pytest.raises(ConfigError, match=r"listen\.ws_port: .*need it"):
        merged(True, True, ws_port=None)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        *(("--config b.toml", 1, "b.toml"), ("--config b.toml", 1, "prefetsch"), ("--login ada", 2, "_PASSCODE")),
        *(("--login eve", 2, "_PASSCODE"), ("--hash-passcode", 2, "standard input: -: no passcode in the first line")),
        ("--memory --host nohost.invalid", 1, "cannot listen at nohost.invalid: "),
        ("--dialect apollo", 1, "'apollo' is not a dialect: use stompcodec, rabbitmq, activemq, artemis"),
        ("--dialect apollo --config b.toml", 1, "stompcodec broker: dialect: 'apollo' is not a dialect"),
        ("--memory --data x", 2, "--data"),
        ("--memory check x", 2, "check does not take the options of the broker"),
    ],
)
def test_failures_are_one_line(arguments, status, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("b.toml").write_text("[queues]\nprefetsch = 7\n")
    environment = {} if "ada" in arguments else {"STOMPCODEC_PASSCODE": "" if "eve" in arguments else "another verb's"}
    result = run("broker", *arguments.split(), **environment)
    assert (result.exit_code, said in result.stderr) == (status, True), result.output
    assert status == 2 or len(result.stderr.splitlines()) == 1


def test_a_package_that_is_missing_is_wrong_usage(monkeypatch):
    def run_without(*_arguments, **_options):
        raise MissingExtraError("metrics", "prometheus-client")

    monkeypatch.setattr(server, "run", run_without)
    ended(run("broker", "--memory"), 2, "pip install 'stompcodec[metrics]'")


def test_help_of_keys_and_a_hashed_passcode():
    keys = run("broker", "--help-config").output
    assert all(key.name.rpartition(".")[2] in keys for key in KEYS)
    result = run("broker", "--hash-passcode", input="secret\n")
    assert (result.exit_code, check_hash("secret", result.stdout.strip().splitlines()[-1])) == (0, True)
