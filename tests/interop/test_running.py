"""Brokers by URL: what a URL may say, TLS in between, and `scripts/interop.py --broker NAME=URL` from end to end."""

from __future__ import annotations

import importlib.util
import re
import sys
import time
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("POSIX only", allow_module_level=True)

from client.broker import BrokerThread
from client.peer import Peer
from interop.brokers import server_of
from interop.fields import FIELDS, run_fields
from interop.running import BadAddress, kind_of, named

from stompcodec.broker.auth import User, hash_passcode
from stompcodec.broker.config import DIALECTS
from stompcodec.client import dialects as rows

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "interop.py"


def test_what_a_url_says():
    found = named(
        [
            "rabbit=stomp://us%40er:p%3Ass@h:1234/v%2Fhost",
            "rabbit=ws://user:other@h:15674/ws",
            "tls=stomp+ssl://h",
            "plain=stomp://h/",
        ]
    )
    assert list(found) == ["rabbit", "tls", "plain"]
    assert found["rabbit"].tcp == ("h", 1234, False, "us@er", "p:ss", "v/host")
    assert found["rabbit"].websocket == "ws://h:15674/ws"
    assert found["tls"].tcp == ("h", 61614, True, None, "", "/")
    assert found["plain"].tcp == ("h", 61613, False, None, "", "/")


@pytest.mark.parametrize(
    "texts",
    [
        ["=stomp://h"],
        ["a="],
        ["a=h:61613"],
        ["a=http://u:secret@h"],
        ["a=stomp://u:secret@"],
        ["a=stomp://u:secret@h:port"],
        ["a=stomp://u:secret@h:99999"],
        ["a=stomp://u:secret@h?x=1"],
        ["a=stomp://u:secret@h", "a=stomp://u:secret@h"],
        ["a=ws://u:secret@h"],
        ["a=stomp://u:secret@h", "a=ws://h", "a=ws://h"],
        ["a=stomp://u:secret@[h"],
    ],
)
def test_other_urls_are_refused_without_their_passcode(texts):
    with pytest.raises(BadAddress) as refused:
        named(texts)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("server", "kind"),
    [
        ("RabbitMQ/4.3.0", "rabbitmq"),
        ("ActiveMQ/6.1.7", "activemq"),
        ("ActiveMQ-Artemis/2.37.0 ActiveMQ Artemis Messaging Engine", "activemq-artemis"),
        ("apache-activemq-artemis/2.40", "apache-activemq-artemis"),
        ("artemis-2", "activemq-artemis"),
        ("stompcodec/0.1 as artemis", "stompcodec"),
        ("other/1", ""),
    ],
)
def test_what_is_known_follows_from_what_the_broker_says(server, kind):
    assert kind_of(server) == kind


@pytest.fixture
def files(tmp_path):
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
    return tmp_path


def test_tls_is_checked(files, monkeypatch):
    with BrokerThread(tls_port=0, tls_cert=str(files / "own.pem"), tls_key=str(files / "own.pem")) as broker:
        running = named([f"ours=stomp+ssl://127.0.0.1:{broker.tls_port}"])["ours"]
        with pytest.raises(OSError, match="certificate verify failed"):
            running.__enter__()
        monkeypatch.setenv("SSL_CERT_FILE", str(files / "ca.pem"))
        for _ in range(2):  # it can be entered again
            with running as target:
                assert target.host == "127.0.0.1"
                assert target.port != broker.tls_port
                assert server_of(target).startswith("stompcodec/")
            with pytest.raises(OSError):  # noqa: PT011 - its relay has ended
                server_of(target)


@pytest.fixture
def script(monkeypatch):
    if not SCRIPT.is_file():
        pytest.skip("this is no checkout")
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location("scripts_interop", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module.signal, "signal", lambda *_: None)
    return module


def test_checks_of_a_running_broker(script, files, monkeypatch, capsys):
    """Over TLS, with a login that has to be right; the page says what the broker said it is."""
    monkeypatch.setenv("SSL_CERT_FILE", str(files / "ca.pem"))
    tls = {"tls_port": 0, "tls_cert": str(files / "own.pem"), "tls_key": str(files / "own.pem")}
    with BrokerThread(**tls, users={"me": User("me", hash_passcode("se:cret", n=16))}) as broker:
        url = f"mine=stomp+ssl://me:se%3Acret@127.0.0.1:{broker.tls_port}/"
        page = files / "page.md"
        arguments = ["--broker", url, "--client", "sync 1.2", "--check", "queues", "--check", "bad-credentials"]
        monkeypatch.setattr(sys, "argv", ["interop.py", *arguments, "--markdown", str(page), "-v"])
        assert script.main() == 0
        shown = capsys.readouterr()
        assert "Our client against mine" in shown.out
        assert "2 passed, 0 failed" in shown.out or "2 passed, 0 failed, 2 skipped" in shown.out
        assert "mine: stompcodec " in page.read_text()
        for text in (shown.out, shown.err, page.read_text()):
            assert "se:cret" not in text
            assert "se%3Acret" not in text


def test_the_page_has_its_day_and_the_versions_of_libraries(script, tmp_path, monkeypatch):
    for name in ("proxy_py", "sockjs"):
        info = tmp_path / f"venv/lib/python3.0/site-packages/{name}-7.8.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '.')}\nVersion: 7.8\n")
    monkeypatch.setattr(script, "FOLDER", tmp_path)
    found = script.libraries()
    assert (found["proxy.py"], found["sockjs"]) == ("7.8", "7.8")
    sections = [script.Section("Tools", {"proxy: tunnels": {"our broker": script.Outcome("ok")}}, "what")]
    day = time.strptime("1971-01-01", "%Y-%m-%d")
    monkeypatch.setattr(script.time, "localtime", lambda: day)
    assert "Versions on 1971-01-01: proxy.py 7.8, sockjs 7.8" in script.page(sections, found)


@pytest.fixture
def fields(script, monkeypatch, capsys):
    """Runs the table of fields against URLs; the exit status and what was shown."""

    def run(*brokers):
        urls = [word for broker in brokers for word in ("--broker", broker)]
        monkeypatch.setattr(sys, "argv", ["interop.py", *urls, "--check", "fields"])
        return script.main(), capsys.readouterr().out

    return run


@pytest.mark.parametrize("dialect", DIALECTS)
def test_fields_of_a_running_broker(fields, files, monkeypatch, dialect):
    """By URL, with login, virtual host and TLS; our own broker says in which dialect it is."""
    monkeypatch.setenv("SSL_CERT_FILE", str(files / "ca.pem"))
    tls = {"tls_port": 0, "tls_cert": str(files / "own.pem"), "tls_key": str(files / "own.pem")}
    users = {"me": User("me", hash_passcode("se:cret", n=16))}
    jms = dialect in ("activemq", "artemis")
    with BrokerThread(**tls, users=users, dialect=dialect, jms=jms) as broker:
        status, shown = fields(f"mine=stomp+ssl://me:se%3Acret@127.0.0.1:{broker.tls_port}/shop")
    assert "Our client's dialects, field by field, against mine" in shown
    assert (status, shown.splitlines()[-1]) == (0, f"{len(FIELDS)} passed, 0 failed, 0 skipped"), shown


def test_a_row_that_is_wrong_fails_its_fields(fields, monkeypatch):
    monkeypatch.setitem(rows.BROKERS, "rabbitmq", rows.BROKERS["rabbitmq"]._replace(prefetch=()))
    with BrokerThread(dialect="rabbitmq") as broker:
        status, shown = fields(f"mine=stomp://127.0.0.1:{broker.port}")
    assert status == 1
    assert "FAIL prefetch" in shown


def test_fields_of_brokers_that_our_client_has_no_row_for_are_skipped(fields):
    with Peer(server="other/1") as peer:
        status, shown = fields(f"mine=stomp://127.0.0.1:{peer.port}")
    assert (status, shown.splitlines()[-1]) == (0, f"0 passed, 0 failed, {len(FIELDS)} skipped")


def test_a_broker_that_does_not_say_what_it_is_has_the_row_of_its_name(monkeypatch):
    """As Artemis with disableStompServerHeader."""
    said = []
    monkeypatch.setitem(FIELDS, "name", lambda place: said.append((place.name, place.connect().dialect)))
    with Peer() as peer:
        peer.rules["CONNECT"] = lambda side, frame: (side.connection.accept({}), side.flush())
        with named([f"artemis-2=stomp://127.0.0.1:{peer.port}"])["artemis-2"] as target:
            assert run_fields(target, ["name"])["name"].word == "ok"
    assert said == [("artemis", "artemis")]


def test_a_broker_that_does_not_answer_fails_its_fields(fields):
    status, shown = fields("gone=stomp://u:secret@127.0.0.1:1")
    assert (status, shown.splitlines()[-1]) == (1, f"0 passed, {len(FIELDS)} failed, 0 skipped")
    assert "secret" not in shown


def test_a_broker_that_does_not_answer_fails_its_checks(script, monkeypatch, capsys):
    arguments = ["--broker", "gone=stomp://u:secret@127.0.0.1:1", "--client", "sync 1.2", "--check", "queues"]
    monkeypatch.setattr(sys, "argv", ["interop.py", *arguments])
    assert script.main() == 1
    shown = capsys.readouterr().out
    assert "gone does not answer" in shown
    assert "secret" not in shown


def test_a_broker_may_still_be_starting(monkeypatch):
    """As a container that was begun a moment ago; the clock is the test's."""
    running = named(["a=stomp://127.0.0.1:1"])["a"]
    answers, naps = [ConnectionRefusedError(), ConnectionError("it hung up"), "target"], []

    def connect(self):
        answer = answers.pop(0)
        if isinstance(answer, str):
            return answer
        raise answer

    monkeypatch.setattr(type(running), "_connect", connect)
    monkeypatch.setattr(time, "sleep", naps.append)
    with pytest.raises(ConnectionRefusedError):
        running.__enter__()
    running.wait = 60.0
    assert running.__enter__() == "target"
    assert len(naps) == 1


@pytest.mark.parametrize("text", ["pika", "a=http://h"])
def test_wrong_usage(script, monkeypatch, capsys, text):
    monkeypatch.setattr(sys, "argv", ["interop.py", "--broker", text])
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 2
    assert ("NAME=URL" if text == "pika" else "the scheme") in capsys.readouterr().err


def test_clients_are_installed_once_and_what_failed_is_tried_again(script, monkeypatch, tmp_path):
    called, fails = [], ["aiostomp"]

    def call(command, environment=None):
        called.append(command[-1])
        return command[-1] not in fails

    monkeypatch.setattr(script, "_call", call)
    monkeypatch.setattr(script, "FOLDER", tmp_path / "interop")
    monkeypatch.setattr(script.venv, "create", lambda folder, with_pip: folder.mkdir())
    monkeypatch.setattr(script.shutil, "which", lambda name: name)
    monkeypatch.setattr(script, "section", lambda *_: {"stomp.py 1.2": {"connect": script.Outcome("ok")}})
    everything = [*script.PYTHON, script.NODE[-1]]
    for client, expected in [("sync", []), ("stomp.py", everything), ("stomp.py", everything), ("stomp.py", [])]:
        called.clear()
        monkeypatch.setattr(
            sys, "argv", ["interop.py", "--broker", "stompcodec", "--check", "connect", "--client", client]
        )
        assert script.main() == 0
        assert called == expected
        if fails and expected:  # the second try succeeds
            fails.clear()


def test_a_page_names_only_the_clients_that_were_run(script, monkeypatch, tmp_path):
    monkeypatch.setattr(script, "section", lambda *_: {"sync 1.2": {"connect": script.Outcome("ok")}})
    monkeypatch.setattr(script, "about", lambda rows: {row.client: "1" for row in rows})
    monkeypatch.setattr(script, "install_clients", lambda: None)
    monkeypatch.setattr(script, "SERVERS", {"mine:": "Broker 1"})
    for broker, versions in [
        ("mine=stomp://127.0.0.1:1", "mine: Broker 1"),
        ("stompcodec", "stomp.py 1, mine: Broker 1"),
    ]:
        words = (
            f"--broker {broker} --check connect --client sync --client stomp.py --markdown {tmp_path}/page.md".split()
        )
        monkeypatch.setattr(sys, "argv", ["interop.py", *words])
        assert script.main() == 0
        pattern = rf"\nVersions on \d{{4}}-\d\d-\d\d: {re.escape(versions)}\.\n"
        assert re.search(pattern, (tmp_path / "page.md").read_text())
