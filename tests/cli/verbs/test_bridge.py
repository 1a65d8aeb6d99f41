"""stompcodec bridge: what is wrong is said before it connects, and what it did at its end."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from client.feeding import wait_for
from patience import interval, patience

pytest.importorskip("click")

from bridge.running import fill, take_all
from cli.test_process import terminal
from click.testing import CliRunner, Result

from stompcodec.bridge import DEAD_LETTER, Way
from stompcodec.cli import connecting
from stompcodec.cli import streams as signals
from stompcodec.cli.app import app
from stompcodec.cli.screen import StatusLine
from stompcodec.cli.verbs import bridge as verb
from stompcodec.testing import StompBroker

#: Nobody listens there: to connect is exit status 1.
AWAY, ELSEWHERE = "stomp://ann:secret@127.0.0.1:1", "stomp://127.0.0.2:2"


def run(*arguments: str | Path, input: str | None = None, **environment: str) -> Result:
    unset = dict.fromkeys(name for name in os.environ if name.startswith("STOMPCODEC_"))
    return CliRunner().invoke(app, ["bridge", *map(str, arguments)], input=input, env={**unset, **environment})


@pytest.fixture
def one():
    with StompBroker() as broker:
        yield broker


@pytest.fixture
def other():
    with StompBroker() as broker:
        yield broker


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have bridges take both for brokers of two machines: they would look whether they are one, and meet the faults."""
    monkeypatch.setattr("stompcodec.bridge.bridge.may_be_one", lambda one, other: False)


# ---- wrong usage: exit status 2, before it connects ----

WRONG = {
    "FROM is TO": ((AWAY, AWAY), "FROM and TO are the same broker, stomp://ann:***@127.0.0.1:1"),
    "FROM is TO, by another name and login": ((AWAY, "localhost:1"), "the same broker"),
    "FROM is one of TO": ((AWAY, f"failover:({ELSEWHERE},{AWAY})"), "the same broker"),
    "the same name": ((AWAY, ELSEWHERE, "--from-name", "a", "--to-name", "a"), "the same name, a"),
    "a name with a comma": ((AWAY, ELSEWHERE, "--to-name", "a,b"), "a name has 1 to 255"),
    "a bad URL": ((AWAY, "gopher://ann:secret@x"), "Invalid value for TO: uri: unknown scheme gopher"),
    "a bad URL of FROM": (("stomp://ann:secret@", AWAY), "Invalid value for FROM: uri: write stomp://"),
    "a file without a name": ((AWAY, ELSEWHERE, "-m", "@"), "@ without the name of a file"),
    "a map without a source": ((AWAY, ELSEWHERE, "-m", "=/queue/a"), "write SOURCE=TARGET"),
    "a map without a target": ((AWAY, ELSEWHERE, "-m", "/queue/a="), "write SOURCE=TARGET"),
    "an empty map": ((AWAY, ELSEWHERE, "-m", ""), "write SOURCE=TARGET"),
    "a star without a star": ((AWAY, ELSEWHERE, "-m", "/queue/a=/queue/*"), "the star of TARGET"),
    "two targets": ((AWAY, ELSEWHERE, "-m", "/queue/a=/queue/b", "-m", "/queue/a=/queue/c"), "mapped twice"),
    "the dead letters": ((AWAY, ELSEWHERE, "-m", DEAD_LETTER), "where refused messages go"),
    "temporary dead letters": (
        (AWAY, ELSEWHERE, "--dead-letter", "/temp-queue/a"),
        "belongs to one session",
    ),
    "no name for dead letters": ((AWAY, ELSEWHERE, "--dead-letter", ""), "'--dead-letter': a destination is missing"),
    "dead letters on two lines": ((AWAY, ELSEWHERE, "--dead-letter", "/queue/a\nb"), "'--dead-letter': '/queue/a"),
    "a temporary queue": ((AWAY, ELSEWHERE, "-m", "/temp-queue/a"), "belongs to one session"),
    "a file that is not there": ((AWAY, ELSEWHERE, "-m", "@/no/such/file"), "/no/such/file: cannot be read"),
    "no names": ((AWAY, ELSEWHERE, "--destinations", "/no/such/file"), "/no/such/file: cannot be read"),
    "a bad key": ((AWAY, ELSEWHERE, "--key", "message-id"), "write header:NAME"),
    "a durable queue": ((AWAY, ELSEWHERE, "-m", "/queue/a", "--durable", "x"), "--durable is for topics"),
    "a durable queue beside a topic": (
        (AWAY, ELSEWHERE, "-m", "/topic/a", "-m", "/queue/b", "--durable", "x"),
        "--durable is for topics: map only those, as in --map /topic/prices, and not /queue/b",
    ),
    "durable without a name": ((AWAY, ELSEWHERE, "-m", "/topic/a", "--durable", ""), "--durable without a name"),
    "idle without drain": ((AWAY, ELSEWHERE, "--idle", "1"), "--idle is for --drain"),
    "a mirror in batches": ((AWAY, ELSEWHERE, "--mirror", "--batch", "5"), "--mirror acknowledges nothing"),
    "a prefetch of 0": ((AWAY, ELSEWHERE, "--prefetch", "0"), "0 is not in the range"),
    "one end": ((AWAY,), "Missing argument 'TO'"),
}


@pytest.mark.parametrize(("arguments", "why"), WRONG.values(), ids=WRONG)
def test_wrong_usage(arguments, why) -> None:
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert why in result.stderr.replace("\n", " ")
    assert "secret" not in result.output
    assert "Traceback" not in result.output


def test_no_name_of_a_list_matches(tmp_path: Path) -> None:
    (tmp_path / "names").write_text("# of rabbitmqctl\norders\n/topic/x\n")
    result = run(AWAY, ELSEWHERE, "-m", "/queue/a.*", "--destinations", tmp_path / "names")
    assert result.exit_code == 2
    assert "matches /queue/a.*" in result.stderr
    assert run(AWAY, ELSEWHERE, "-m", "/queue/o*", "--destinations", tmp_path / "names").exit_code == 1  # it connects
    assert run(AWAY, ELSEWHERE, "-m", "/queue/o*", "--destinations", "-", input="a\n").exit_code == 2


def test_no_destination_matches(one: StompBroker, other: StompBroker) -> None:
    fill(one.url, "/queue/a", 1)
    result = run(one.url, other.url, "-m", "/queue/none.*")
    assert result.exit_code == 2
    assert result.stderr == "stompcodec: no destination of our broker matches /queue/none.*\n"
    assert other.frames == []  # it did not connect to TO


@pytest.mark.parametrize("end", ["FROM", "TO"])
def test_an_end_that_cannot_be_reached(one: StompBroker, end: str) -> None:
    result = run(*((AWAY, one.url) if end == "FROM" else (one.url, AWAY)), "-m", "/queue/a")
    assert result.exit_code == 1
    assert "cannot connect to stomp://ann:***@127.0.0.1:1: Connection refused" in result.stderr
    assert f"(is the broker running there? check {end})" in result.stderr
    assert "secret" not in result.output


@pytest.mark.parametrize("end", ["FROM", "TO"])
def test_a_remedy_names_what_its_end_has(one: StompBroker, other: StompBroker, end: str) -> None:
    fill(one.url, "/queue/a", 1)
    (one if end == "FROM" else other).faults.error("CONNECT", "Bad CONNECT")
    result = run(one.url, other.url, "-m", "/queue/a")
    assert result.exit_code == 1
    assert f"(check the login and the passcode: STOMPCODEC_{end}_PASSCODE, the URL, or a context)" in result.stderr


# ---- carrying ----


def test_names_without_messages_are_listed(one: StompBroker, other: StompBroker) -> None:
    fill(one.url, "/queue/a", 1)
    names = [f"/queue/{name}" for name in "abcde"]
    options = [option for name in names for option in ("-m", name)]
    result = run(one.url, other.url, "--drain", "-m", "/queue/*", "-m", "/topic/x.>", *options[:6])
    assert (result.exit_code, result.stderr.partition("/s, ")[2]) == (0, "none from /queue/b, /queue/c\n")
    result = run(one.url, other.url, "--drain", *options)
    assert result.stderr.endswith(", none from /queue/a, /queue/b, /queue/c and 2 more\n")
    fill(one.url, "/queue/a", 1)
    assert run(one.url, other.url, "--drain", "-m", "/queue/a").stderr.endswith("/s\n")


def test_it_drains_all_queues_by_default(one: StompBroker, other: StompBroker) -> None:
    fill(one.url, "/queue/a", 3)
    fill(one.url, "/queue/b", 2)
    result = run(one.url, other.url, "--drain")
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("5 messages carried, 0.0 MB, ")
    assert [len(take_all(other.url, f"/queue/{name}")) for name in "ab"] == [3, 2]
    assert run(one.url, other.url, "-m", "/queue/a", "--drain", "-q").output == ""


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
@pytest.mark.long
def test_what_a_terminal_shows(one: StompBroker, other: StompBroker) -> None:
    command = ["bridge", one.url, other.url, "-m", "/queue/a", "--drain"]
    shown = terminal(command)
    assert shown.startswith("carrying from ")
    assert "\x1b[K0 messages carried" in shown
    assert "\x1b" not in terminal(command, TERM="dumb")
    assert terminal([*command, "-q"]) == ""


def test_maps_of_a_file(one: StompBroker, other: StompBroker, tmp_path: Path) -> None:
    fill(one.url, "/queue/a", 1)
    (tmp_path / "maps").write_text("# what goes where\n\n/queue/a=/queue/b\n")
    assert run(f"localhost:{one.port}", other.url, "-m", f"@{tmp_path / 'maps'}", "--drain").exit_code == 0
    assert other.queued("/queue/b") == 1


def test_json(one: StompBroker, other: StompBroker) -> None:
    fill(one.url, "/queue/a", 3)
    result = run(f"stomp://ann:secret@127.0.0.1:{one.port}", other.url, "-m", "/queue/a", "--drain", "--json", "-q")
    *_, last = map(json.loads, result.stdout.splitlines())
    assert (last["event"], last["carried"], last["bytes"], last["refused"]) == ("end", 3, 3, 0)
    assert last["destinations"] == {"/queue/a": 3}
    assert last["from"] == f"stomp://ann:***@127.0.0.1:{one.port}"
    assert "secret" not in result.output


def test_refused_messages_are_exit_status_1(one: StompBroker, other: StompBroker) -> None:
    fill(one.url, "/queue/a", 2)
    other.faults.error("SEND", "bad\x1b[2J colour", times=1)
    result = run(one.url, other.url, "-m", "/queue/a", "--drain", "--dead-letter", "/queue/mine")
    assert result.exit_code == 1
    assert "refused: /queue/a " in result.stderr
    assert "\x1b" not in result.stderr
    assert "1 message carried" in result.stderr
    assert "1 refused" in result.stderr
    assert one.queued("/queue/mine") == 1


def test_messages_that_a_drain_leaves_are_exit_status_1(one: StompBroker, other: StompBroker) -> None:
    fill(one.url, "/queue/a", 1)
    fill(one.url, "/queue/a", 1, delay="3600000")
    result = run(one.url, other.url, "-m", "/queue/a", "--drain", "--idle", "0.1", "--json")
    assert result.exit_code == 1
    assert "1 message carried" in result.stderr
    assert "1 left in FROM" in result.stderr
    assert json.loads(result.stdout.splitlines()[-1])["left"] == 1


def test_a_circle_is_refused(one: StompBroker, other: StompBroker) -> None:
    fill(one.url, "/queue/a", 2)
    assert run(one.url, other.url, "-m", "/queue/a", "--drain").exit_code == 0
    result = run(other.url, one.url, "-m", "/queue/a", "--drain")
    assert result.exit_code == 1
    assert "loop: it was carried from" in result.stderr
    assert one.queued("/queue/a") == 0


def test_a_large_body_is_refused_by_name(one: StompBroker, other: StompBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "_MAX_BODY", 2048)
    fill(one.url, "/queue/a", 1)
    import stompcodec.client as stomp

    with stomp.connect(one.url) as client:
        client.send("/queue/a", bytes(3000), receipt=True)
    result = run(one.url, other.url, "-m", "/queue/a")
    assert result.exit_code == 1
    assert "a message of /queue/a exceeds max_body (2048 bytes): it stays at FROM" in result.stderr
    assert one.queued("/queue/a") >= 1


def test_count_and_wait(one: StompBroker, other: StompBroker) -> None:
    fill(one.url, "/queue/a", 5)
    assert run(one.url, other.url, "-m", "/queue/a", "-n", "2").exit_code == 0
    one.wait_queued("/queue/a", 3)
    seconds = f"{interval(500) / 1000:g}"
    result = run(one.url, other.url, "-m", "/queue/a", "-n", "9", "-w", seconds)
    assert result.exit_code == 1
    assert f"3 of 9 messages came in {seconds} s" in result.stderr


@pytest.mark.parametrize("way", ["environment", "url"])
def test_a_login_for_each_end(way: str) -> None:
    from broker.test_auth import users

    with (
        StompBroker(users=users(ann="near")) as one,
        StompBroker(users=users(bob="far")) as other,
    ):
        urls, environment = [one.url, other.url], {}
        for side, name, passcode in (("from", "ann", "near"), ("to", "bob", "far")):
            login = f"{name}:{passcode}" if way == "url" else name
            urls[side == "to"] = urls[side == "to"].replace("//", f"//{login}@")
            environment[f"STOMPCODEC_{side.upper()}_PASSCODE"] = "" if way == "url" else passcode
        environment = environment if way == "environment" else {}
        result = run(*urls, "-m", "/queue/a", "-w", "0", **environment)
        assert result.exit_code == 0, result.output
        result = run(urls[0], urls[1].replace("bob", "eve"), "-m", "/queue/a", "-w", "0", **environment)
        assert result.exit_code == 1
        assert "STOMPCODEC_TO_PASSCODE" in result.output


def test_a_prompt_names_the_login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "_has_terminal", lambda: True)
    result = run("stomp://127.0.0.1:1", ELSEWHERE.replace("//", "//bob@"), input="hidden\n")
    assert "Passcode of bob" in result.output
    assert "hidden" not in result.output


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("number", signals.ENDING)
@pytest.mark.long
def test_a_signal_ends_it_in_good_order(one: StompBroker, other: StompBroker, number: int) -> None:
    fill(one.url, "/queue/a", 20)
    command = [sys.executable, "-m", "stompcodec.cli", "bridge", one.url, other.url, "-m", "/queue/a"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: other.queued("/queue/a") == 20)
        process.send_signal(number)
        _, said = process.communicate(timeout=patience(60))
    assert (process.returncode, said.startswith("20 messages carried")) == (0, True)
    assert one.queued("/queue/a") == 0


#: Runs the rest of its arguments as a shell would: the terminal that is its standard input sends it SIGHUP.
OF_TERMINAL = "import fcntl, os, sys, termios as t; fcntl.ioctl(0, t.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"


@pytest.mark.skipif(os.name != "posix", reason="terminals of POSIX")
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.long
def test_a_closed_terminal_ends_it_in_good_order(one: StompBroker, other: StompBroker, twice: bool) -> None:
    """It shows its progress there, and the shell may send SIGHUP, too. What was sent gets its receipts."""
    import pty

    fill(one.url, "/queue/a", 20)
    bridge = [sys.executable, "-m", "stompcodec.cli", "bridge", one.url, other.url, "-m", "/queue/a"]
    main, side = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", OF_TERMINAL, *bridge],
        stdin=side,
        stdout=side,
        stderr=side,
        env={**os.environ, "TERM": "xterm"},
        start_new_session=True,
    ) as process:
        os.close(side)
        other.wait_queued("/queue/a", 20, timeout=patience(30))
        one.wait_queued("/queue/a", 0, timeout=patience(30))
        other.faults.delay("RECEIPT", 0.3)
        fill(one.url, "/queue/a", 5)
        other.wait_queued("/queue/a", 25, timeout=patience(30))
        os.close(main)
        if twice:
            process.send_signal(signal.SIGHUP)
        assert process.wait(patience(60)) == 0
    assert (one.queued("/queue/a"), other.queued("/queue/a")) == (0, 25)


def test_progress_on_a_closed_terminal_is_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is closed before the process gets SIGHUP."""

    class Closed(io.StringIO):
        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Closed())
    line = StatusLine(True)
    line.update(lambda: "5 messages")
    assert not line.live
    line.clear()


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("end", ["FROM", "TO"])
@pytest.mark.parametrize("number", signals.ENDING)
def test_a_signal_ends_it_while_it_connects(one: StompBroker, end: str, number: int) -> None:
    """A host that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"stomp://127.0.0.1:{mute.getsockname()[1]}"

        def signal_it() -> None:
            with mute.accept()[0] as connection:
                connection.recv(100)
                os.kill(os.getpid(), number)
                connection.recv(100_000)

        thread = threading.Thread(target=signal_it)
        thread.start()
        ends = (url, one.url) if end == "FROM" else (one.url, url)
        result = run(*ends, "-m", "/queue/a", "--timeout", f"{patience(30)}")
        thread.join(patience(60))
    assert result.exit_code == 130
    assert result.stderr == f"stompcodec: ended before it was connected to {end} ({url})\n"


def test_lost_ends_are_reported_once(one: StompBroker, other: StompBroker) -> None:
    results: list[Result] = []
    arguments = (one.url, other.url, "-m", "/queue/a", "-n", "2")
    thread = threading.Thread(target=lambda: results.append(run(*arguments)))
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
    assert result.stderr.count("TO (") == 1
    assert "connecting again" in result.stderr


def test_defaults_are_those_of_the_library() -> None:
    way = Way()
    command = app.get_command(None, "bridge")
    defaults = {option.name: option.default for option in command.params}
    assert {name: defaults[name] for name in ("prefetch", "batch", "dead_letter")} == {
        "prefetch": way.prefetch,
        "batch": way.batch,
        "dead_letter": way.dead_letter,
    }


def test_remedies_are_those_of_the_other_verbs() -> None:
    """An end has no options of its own, and a remedy that is worded anew would name some."""
    source = Path(connecting.__file__).read_text(encoding="utf-8")
    assert [words for words in verb._REMEDIES if words not in source] == []
