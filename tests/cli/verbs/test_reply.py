"""stompcodec reply: the answers to req."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from patience import patience

pytest.importorskip("click")
pytest.importorskip("websockets")

from cli.at_broker import Runner
from click.testing import CliRunner, Result

import stompcodec.client as stomp
from stompcodec.cli.app import app


@contextmanager
def replying(at: Runner, destination: str, *arguments: str, **environment: str) -> Iterator[list[Result]]:
    """`reply` in a thread, which ends by --count; its result afterwards."""
    results: list[Result] = []
    whole = ["reply", destination, "-u", at.url, "--wait", str(patience(60)), *arguments]
    # CliRunner replaces the standard streams, so requests are sent by a client.
    thread = threading.Thread(target=lambda: results.append(CliRunner().invoke(app, whole, env=environment)))
    thread.start()
    yield results
    thread.join(patience(60))
    assert results


@pytest.mark.parametrize(
    ("arguments", "answers"),
    [
        (["pong"], [b"pong", b"pong"]),
        (["--format", "{number}: {body} {headers[k]}"], [b"1: a v", b"2: b v"]),
        (["--exec", "tr ab xy"], [b"x", b"y"]),
        (["--exec", 'printf %s "$STOMP_NUMBER"'], [b"1", b"2"]),
    ],
    ids=["body", "template", "command", "environment"],
)
def test_answers(at: Runner, fresh: str, arguments: list[str], answers: list[bytes]) -> None:
    with replying(at, fresh, *arguments, "-n", "2", "-H", "by:me") as results, stomp.connect(at.url) as client:
        for question, answer in zip((b"a", b"b"), answers):
            found = client.request(fresh, question, patience(30), {"k": "v"})
            assert (found.body, found.get("by")) == (answer, "me")
    assert (results[0].exit_code, results[0].stderr) == (0, "2 requests answered\n")


def test_requests_without_an_address_are_taken_and_counted_as_failed(at: Runner, fresh: str) -> None:
    at.good("pub", fresh, "nowhere")
    with replying(at, fresh, "x", "-n", "1", "-q") as results:
        pass
    assert results[0].exit_code == 1
    assert "it has no reply-to" in results[0].stderr
    assert at.good("sub", fresh, "-w", "0.1") == b""


def test_a_command_that_fails_rejects_the_request(at: Runner, fresh: str) -> None:
    with stomp.connect(at.url) as client:
        client.send(fresh, b"x", {"reply-to": "/queue/answers"}, receipt=True)
    with replying(at, fresh, "--exec", "exit 3", "--attempts", "1", "-n", "1", "-q") as results:
        pass
    assert results[0].exit_code == 1
    assert "the command ended with status 3" in results[0].stderr
    (kept,) = at.good("sub", fresh, "-n", "1", "--json").splitlines()
    assert dict(json.loads(kept)["headers"])["redelivered"] == "true"


def test_a_refused_answer_does_not_come_round_for_ever(at: Runner, fresh: str) -> None:
    """Our broker ends the session with its ERROR, so the request is delivered again."""
    with stomp.connect(at.guarded_url, login="guest", passcode="guest") as client:
        client.send(fresh, b"x", {"reply-to": "/queue/closed"}, receipt=True)
        login = ["--login", "guest", "-u", at.guarded_url]
        with replying(at, fresh, "y", "-n", "3", *login, STOMPCODEC_PASSCODE="guest") as results:
            assert client.request(fresh, b"z", patience(30)).body == b"y"
        assert results[0].exit_code == 1
        assert "the answer was refused" in results[0].stderr
        assert client.receive(fresh) is None


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_good_order(at: Runner, fresh: str, number: int) -> None:
    process = at.process("reply", fresh, "pong", stderr=subprocess.PIPE)
    with stomp.connect(at.url) as client:
        assert client.request(fresh, b"", patience(60)).body == b"pong"
    process.send_signal(number)
    _out, said = process.communicate(timeout=patience(60))
    assert (process.returncode, said) == (0, b"1 request answered\n")


@pytest.mark.parametrize(
    "arguments",
    [[], ["x", "--exec", "date"], ["x", "-f", "{body}"], ["-f", "{nope}"], ["-f", "{body}", "--exec", "date"]],
    ids=" ".join,
)
def test_wrong_answers_are_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, ["reply", "/queue/a", "-u", "127.0.0.1:1", *arguments]).exit_code == 2
