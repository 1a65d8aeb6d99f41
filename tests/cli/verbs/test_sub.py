"""stompcodec sub: what it shows, keeps and runs, and that no message is lost by it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from patience import interval, patience

pytest.importorskip("click")
pytest.importorskip("websockets")

from cli.at_broker import Runner, read_until
from click.testing import CliRunner
from client.broker import BrokerThread
from hypothesis import given
from hypothesis import strategies as st

from stompcodec import Frame
from stompcodec.broker.config.config import DIALECTS
from stompcodec.cli.app import app
from stompcodec.cli.connecting import interrupts
from stompcodec.cli.show.messages import FIELDS, Template
from stompcodec.cli.streams import ENDING
from stompcodec.client.message import BaseMessage
from stompcodec.testing.faults import FaultProxy

pty = pytest.importorskip("pty")  # there are no terminals of POSIX on Windows


def message(body: bytes, **headers: str) -> BaseMessage:
    subscription = SimpleNamespace(folds_case=False)
    return BaseMessage(
        Frame("MESSAGE", {"destination": "/queue/a", "message-id": "7", **headers}, body), subscription, 1, 1
    )


@given(body=st.binary(), value=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_formats_keep_octets(body: bytes, value: str) -> None:
    found = Template("{body}|{headers[k]}|{destination}|{id}|{size}|{number}|%\\t\\\\").render(
        message(body, k=value), 3
    )
    expected = [body, value.encode(), b"/queue/a", b"7", str(len(body)).encode(), b"3", b"%\t\\"]
    assert found == b"|".join(expected)


def test_all_headers_and_absent_ones() -> None:
    assert Template("{headers}").render(message(b""), 1) == b"destination:/queue/a message-id:7"
    assert Template("[{headers[none]}]").render(message(b""), 1) == b"[]"


TEMPLATES = {
    "{body} {destination} {id} {size} {number}": b"red /queue/a 7 3 2",
    "{headers[k]}{headers[none]}": b"v",
    "{headers}": b"destination:/queue/a message-id:7 k:v",
    "{headers[message-id]}\\t\\n\\0\\\\": b"7\t\n\0\\",
    '{{"a": "{body}"}}': b'{"a": "red"}',
    "100% {body} %": b"100% red %",
    "%b": b"%b",
    "plain": b"plain",
}


@pytest.mark.parametrize("form", TEMPLATES)
def test_a_template(form: str) -> None:
    assert Template(form).render(message(b"red", k="v"), 2) == TEMPLATES[form]


#: What str.format would take, and other unknown fields.
REFUSED = (
    *("{}", "{0}", "{nope}", "{BODY}", "{body!r}", "{body:>9}", "{body.__class__}", "{message}", "{headers.pairs}"),
    *(
        "{headers[]}",
        "{headers[a][b]}",
        "{headers[a].x}",
        "{body",
        "{body}}",
        "{ body }",
        "{body} \\q",
    ),
    "{headers[a}]}",
)


@pytest.mark.parametrize("form", REFUSED)
def test_an_unknown_field_is_2_before_connecting(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stompcodec.client.connect", lambda *_arguments, **_options: pytest.fail("connected"))
    result = CliRunner().invoke(app, ["sub", "/queue/a", "-u", "127.0.0.1:1", "-f", form])
    assert result.exit_code == 2, result.output
    assert "'-f' / '--format'" in result.output
    if form == "{nope}":
        assert f"{{nope}} is unknown: use {FIELDS}" in " ".join(result.output.split())


def test_a_template_in_sub(at: Runner, fresh: str) -> None:
    at.good("pub", fresh, "red", "-H", "k:v")
    assert at.good("sub", fresh, "-n", "1", "-f", "{number}:{destination}:{headers[k]}:{body}\\n") == (
        f"1:{fresh}:v:red\n".encode()
    )


def test_messages_stay_that_were_not_asked_for(at: Runner, fresh: str) -> None:
    at.good("pub", fresh, "-l", input=b"1\n2\n3\n4\n5\n")
    assert at.good("sub", fresh, "-n", "2") == b"1\n2\n"
    assert at.good("sub", fresh, "-n", "3", "-w", "10") == b"3\n4\n5\n"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_durable_subscription_gets_what_was_sent_meanwhile(at: Runner, dialect: str) -> None:
    with BrokerThread(dialect=dialect) as broker:
        command = ("sub", "/topic/news", "--durable", "daily", "--client-id", "me", "-u", broker.url)
        assert at.good(*command, "-w", "0") == b""
        at.good("pub", "/topic/news", "meanwhile", "-u", broker.url)
        assert at.good(*command, "-n", "1", "-w", "20") == b"meanwhile\n"


def test_octets_come_as_they_are(at: Runner, fresh: str) -> None:
    at.good("pub", fresh, "-", input=b"\x1b[2J\0\xff\r\n")
    assert at.good("sub", fresh, "-n", "1", "-f", "{body}") == b"\x1b[2J\0\xff\r\n"


def test_a_time_without_messages(at: Runner, fresh: str) -> None:
    assert at.good("sub", fresh, "-w", "0.1") == b""
    at.good("pub", fresh, "one")
    seconds = f"{interval(1000) / 1000:g}"
    result = at("sub", fresh, "-n", "2", "-w", seconds)
    assert result.exit_code == 1
    assert result.stdout == "one\n"
    assert f"1 of 2 messages came in {seconds} s" in result.stderr


def test_several_destinations(at: Runner, fresh: str) -> None:
    at.good("pub", fresh, "a")
    at.good("pub", f"{fresh}2", "b")
    found = at.good("sub", fresh, f"{fresh}2", "-n", "2", "-w", "10", "-f", "{destination} {body}\\n").splitlines()
    assert sorted(found) == [f"{fresh} a".encode(), f"{fresh}2 b".encode()]


def test_pretty(at: Runner, fresh: str) -> None:
    at.good("pub", fresh, '{"a":1}', "-H", "passcode:secret", "-H", "content-type:application/json")
    shown = at.good("sub", fresh, "-n", "1", "--pretty").decode()
    assert '{\n  "a": 1\n}' in shown
    assert "secret" not in shown


def test_exec(at: Runner, fresh: str) -> None:
    at.good("pub", fresh, "body", "-H", "k:v")
    script = 'cat; printf " %s %s" "$STOMP_DESTINATION" "$STOMP_HEADERS"'
    process = at.process("sub", fresh, "-n", "1", "--exec", script, stdout=subprocess.PIPE)
    out, _ = process.communicate(timeout=patience(30))
    assert process.returncode == 0
    body, destination, headers = out.decode().split(" ", 2)
    assert (body, destination) == ("body", fresh)
    assert ["k", "v"] in json.loads(headers)
    assert at("sub", fresh, "-n", "1", "-w", "0.2").exit_code == 1  # it was acknowledged


def test_a_command_that_fails_refuses_its_message(at: Runner, fresh: str) -> None:
    at.good("pub", fresh, "body")
    result = at("sub", fresh, "-n", "2", "-w", "10", "--exec", "exit 3", "--attempts", "1")
    assert result.exit_code == 1
    assert result.stderr.count("the command ended with status 3") == 2  # it came again
    assert at.good("sub", fresh, "-n", "1", "-f", "{body} {headers[redelivered]}") == b"body true"


def test_auto_and_client(at: Runner, fresh: str) -> None:
    for ack in ("auto", "client"):
        at.good("pub", fresh, "-l", input=b"1\n2\n")
        assert at.good("sub", fresh, "-n", "2", "--ack", ack) == b"1\n2\n"
    assert at("sub", fresh, "-n", "1", "-w", "0.2").exit_code == 1


def test_a_lost_connection_is_made_again(at: Runner, fresh: str) -> None:
    with FaultProxy(("127.0.0.1", at.broker.port)) as proxy:
        url = f"stomp://127.0.0.1:{proxy.port}"
        process = at.process("sub", fresh, "-u", url, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None
        at.good("pub", fresh, "before")
        assert process.stdout.readline() == b"before\n"
        proxy.cut()
        at.good("pub", fresh, "after")
        seen = process.stdout.readline()
        if seen == b"before\n":  # its ACK was lost with the connection
            seen = process.stdout.readline()
        assert seen == b"after\n"
        process.send_signal(signal.SIGINT)
        _out, said = process.communicate(timeout=patience(30))
    assert b"connecting again" in said


def test_a_refused_subscription(at: Runner) -> None:
    result = at("sub", "/queue/closed", "-u", at.guarded_url, "--login", "guest", STOMPCODEC_PASSCODE="guest")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1


def test_a_reader_that_goes_away_loses_nothing(at: Runner, fresh: str) -> None:
    at.good("pub", fresh, "-l", input=b"1\n2\n3\n")
    process = at.process("sub", fresh, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"1\n"
    process.stdout.close()
    at.good("pub", fresh, "4")  # sub notices when it writes
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait(patience(30)) == 1
    assert b"Traceback" not in said
    rest = at.good("sub", fresh, "-n", "1", "-w", "10")
    assert rest in (b"2\n", b"3\n", b"4\n")  # what a pipe had taken was acknowledged; the rest is there


@pytest.mark.parametrize("number", ENDING)
def test_interrupted(number: signal.Signals, at: Runner, fresh: str, tmp_path: Path) -> None:
    process = at.process("sub", fresh, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    at.good("pub", fresh, "one")
    assert process.stdout.readline() == b"one\n"
    process.send_signal(number)
    _out, said = process.communicate(timeout=patience(30))
    assert process.returncode == 130
    assert said == b""


def test_sigterm_waits_for_the_command(at: Runner, fresh: str, tmp_path: Path) -> None:
    """So a supervisor that starts another consumer does not have the same message handled by two at once."""
    begun, go, over = (tmp_path / name for name in ("begun", "go", "over"))
    os.mkfifo(begun)
    os.mkfifo(go)
    process = at.process("sub", fresh, "--exec", f"echo > {begun}; read x < {go}; touch {over}")
    at.good("pub", fresh, "one")
    begun.read_text()
    process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    go.write_text("\n")
    assert process.wait(patience(30)) == 130
    assert over.exists()
    assert at("sub", fresh, "-n", "1", "-w", "0.2").exit_code == 1  # it was acknowledged


@pytest.mark.parametrize("number", ENDING)
def test_an_interrupt_is_noted_wherever_it_comes(number: signal.Signals) -> None:
    """Raised, it could come between taking a lock and knowing that; closing would wait for that lock for ever."""

    class SecondError(Exception):
        pass

    def raises(number: int, frame: object) -> None:
        raise SecondError

    before = signal.signal(number, raises)
    try:
        with interrupts() as interrupted:
            assert not interrupted()
            signal.raise_signal(number)
            assert interrupted()
            with pytest.raises(SecondError):
                signal.raise_signal(number)
        assert signal.getsignal(number) is raises
    finally:
        signal.signal(number, before)


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="SIGHUP is missing on this system")
def test_nohup_keeps_its_word() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupts() as interrupted:
            signal.raise_signal(signal.SIGHUP)
            assert not interrupted()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_terminal_obeys_no_message(at: Runner, fresh: str) -> None:
    at.good("pub", fresh, "-", input=b"a\x1b[2Jb")
    near, far = pty.openpty()
    process = at.process("sub", fresh, "-n", "1", "-q", stdin=subprocess.DEVNULL, stdout=far, stderr=far)
    os.close(far)
    try:
        seen = read_until(near, b"\n")
    finally:
        os.close(near)
    assert process.wait(patience(30)) == 0
    assert seen == b"a\\x1b[2Jb\r\n"


def test_wrong_usage(at: Runner) -> None:
    for arguments in ([], ["/queue/a", "-f", "{q}"], ["/queue/a", "-n", "0"], ["/queue/a", "--ack", "never"]):
        assert at("sub", *arguments).exit_code == 2
