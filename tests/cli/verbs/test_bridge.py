"""stompcodec bridge: what is wrong is said before it connects, and what it did at its end."""

import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
from bridge.running import fill
from cli.running import COMMAND, ended, objects
from cli.running import run as run_verb
from patience import patience

from stompcodec.cli import connecting
from stompcodec.cli.verbs import bridge as verb
from stompcodec.testing import StompBroker

#: Nobody listens there: to connect is exit status 1.
AWAY, ELSEWHERE = "stomp://ann:secret@127.0.0.1:1", "stomp://127.0.0.2:2"
posix = pytest.mark.skipif(os.name != "posix", reason="signals and terminals of POSIX")


run = partial(run_verb, "bridge")


def carry(one, other, *more):
    return run(one.url, other.url, "-m", "/queue/a", *more)


@pytest.fixture
def brokers(monkeypatch):
    """Two brokers. Bridges take them for those of two machines, and do not look whether they are one."""
    monkeypatch.setattr("stompcodec.bridge.bridge.may_be_one", lambda one, other: False)
    with StompBroker() as one, StompBroker() as other:
        yield one, other


def test_no_name_matches(brokers, tmp_path):
    (tmp_path / "names").write_text("# of rabbitmqctl\norders\n/topic/x\n")
    ended(run(AWAY, ELSEWHERE, "-m", "/queue/a.*", "--destinations", tmp_path / "names"), 2, "matches /queue/a.*")
    assert run(AWAY, ELSEWHERE, "-m", "/queue/o*", "--destinations", tmp_path / "names").exit_code == 1  # it connects
    assert run(AWAY, ELSEWHERE, "-m", "/queue/o*", "--destinations", "-", input="a\n").exit_code == 2
    one, other = brokers
    fill(one.url, "/queue/a", 1)
    result = run(one.url, other.url, "-m", "/queue/none.*")
    said = "stompcodec: no destination of our broker matches /queue/none.*\n"
    assert (result.exit_code, result.stderr, other.frames) == (2, said, [])  # it did not connect to TO


@pytest.mark.parametrize("end", ["FROM", "TO"])
def test_remedies_name_the_end(brokers, end):
    one, other = brokers
    result = run(*((AWAY, one.url) if end == "FROM" else (one.url, AWAY)), "-m", "/queue/a")
    assert (result.exit_code, "secret" in result.output) == (1, False)
    assert "cannot connect to stomp://ann:***@127.0.0.1:1: Connection refused" in result.stderr
    assert f"(is the broker running there? check {end})" in result.stderr
    (one if end == "FROM" else other).faults.error("CONNECT", "Bad CONNECT")
    result = carry(one, other)
    assert result.exit_code == 1
    assert f"(check the login and the passcode: STOMPCODEC_{end}_PASSCODE, the URL, or a context)" in result.stderr
    source = Path(connecting.__file__).read_text(encoding="utf-8")
    assert [words for words in verb._REMEDIES if words not in source] == []  # they are those of the other verbs


def test_maps_of_a_file_and_json(brokers, tmp_path):
    one, other = brokers
    fill(one.url, "/queue/a", 3)
    (tmp_path / "maps").write_text("# what goes where\n\n/queue/a=/queue/b\n")
    source = f"stomp://ann:secret@127.0.0.1:{one.port}"
    result = run(source, other.url, "-m", f"@{tmp_path / 'maps'}", "--drain", "--json", "-q")
    *_, last = objects(result)
    assert (last["event"], last["carried"], last["bytes"], last["refused"]) == ("end", 3, 3, 0)
    assert last["destinations"] == {"/queue/a": 3}
    assert last["from"] == source.replace("secret", "***")
    assert "secret" not in result.output
    assert other.queued("/queue/b") == 3


def test_refused_messages_and_fewer_than_asked_for_are_exit_status_1(brokers):
    one, other = brokers
    fill(one.url, "/queue/a", 2)
    other.faults.error("SEND", "bad\x1b[2J colour", times=1)
    result = carry(one, other, "--drain", "--dead-letter", "/queue/mine")
    said = [words in result.stderr for words in ("refused: /queue/a ", "1 message carried", "1 refused", "\x1b")]
    assert (result.exit_code, said, one.queued("/queue/mine")) == (1, [True, True, True, False], 1)
    one, other = brokers
    fill(one.url, "/queue/a", 1)
    ended(carry(one, other, "-n", "3", "--wait", "0.5"), 1, "1 of 3 messages came in 0.5 s")


@pytest.mark.parametrize(
    ("logins", "environment"),
    [
        (("ann", "bob"), {"STOMPCODEC_FROM_PASSCODE": "near", "STOMPCODEC_TO_PASSCODE": "far"}),
        (("ann:near", "bob:far"), {}),
    ],
)
def test_a_login_for_each_end(logins, environment):
    from broker.test_auth import users

    with StompBroker(users=users(ann="near")) as one, StompBroker(users=users(bob="far")) as other:
        urls = [each.url.replace("//", f"//{login}@") for each, login in zip((one, other), logins)]
        result = run(*urls, "-m", "/queue/a", "-w", "0", **environment)
        assert result.exit_code == 0, result.output
        result = run(urls[0], urls[1].replace("bob", "eve"), "-m", "/queue/a", "-w", "0", **environment)
        assert (result.exit_code, "STOMPCODEC_TO_PASSCODE" in result.output) == (1, True)


#: Runs the rest of its arguments as a shell would: the terminal that is its standard input sends it SIGHUP.
OF_TERMINAL = "import fcntl, os, sys, termios as t; fcntl.ioctl(0, t.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"


@posix
@pytest.mark.parametrize("ending", ["a signal", "a closed terminal"])
@pytest.mark.long
def test_it_ends_in_good_order(brokers, ending):
    one, other = brokers
    fill(one.url, "/queue/a", 20)
    main, side = os.openpty()
    command = [sys.executable, "-c", OF_TERMINAL, *COMMAND, "bridge", one.url, other.url, "-m", "/queue/a"]
    environment = {**os.environ, "TERM": "xterm"}
    streams = {"stdin": side, "stdout": side, "stderr": side}
    with subprocess.Popen(command, env=environment, start_new_session=True, **streams) as process:
        os.close(side)
        other.wait_queued("/queue/a", 20, timeout=patience(30))
        one.wait_queued("/queue/a", 0, timeout=patience(30))
        other.faults.delay("RECEIPT", 0.3)
        fill(one.url, "/queue/a", 5)
        other.wait_queued("/queue/a", 25, timeout=patience(30))
        if ending == "a closed terminal":
            os.close(main)
        process.send_signal(signal.SIGHUP if ending == "a closed terminal" else signal.SIGTERM)
        assert process.wait(patience(60)) == 0
    assert (one.queued("/queue/a"), other.queued("/queue/a")) == (0, 25)


def test_lost_ends_are_reported_once(brokers):
    (one, other), results = brokers, []
    thread = threading.Thread(target=lambda: results.append(carry(one, other, "-n", "2")))
    thread.start()
    one.wait_subscribed("/queue/a", timeout=patience(30))
    fill(one.url, "/queue/a", 1)
    other.wait_queued("/queue/a", 1, timeout=patience(30))
    other.stop()
    fill(one.url, "/queue/a", 1)
    other.start()
    thread.join(patience(60))
    (result,) = results
    assert result.exit_code == 0, result.output
    assert (result.stderr.count("TO ("), "connecting again" in result.stderr) == (1, True)
