"""stompcodec req: a question and its answer."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

pytest.importorskip("click")
pytest.importorskip("websockets")

from cli.at_broker import Runner

import stompcodec.client as stomp


@pytest.fixture
def answering(at: Runner, fresh: str) -> Iterator[str]:
    """A queue where somebody answers with the question backwards."""
    with stomp.connect(at.url) as client:
        client.subscribe(
            fresh,
            ack="client-individual",
            handler=lambda message: message.reply(message.body[::-1], {"asked": message.get("asked", "")}),
        )
        yield fresh


def test_an_answer(at: Runner, answering: str) -> None:
    assert at.good("req", answering, "abc") == b"cba"
    assert at.good("req", answering, "-", input=b"\0\xff\n") == b"\n\xff\0"
    assert at.good("req", answering, input=b"12") == b"21"


def test_with_headers_and_as_json(at: Runner, answering: str) -> None:
    found = json.loads(at.good("req", answering, "abc", "-H", "asked:twice", "--json"))
    assert found["body"] == "cba"
    assert dict(found["headers"])["asked"] == "twice"


def test_nobody_answers(at: Runner, fresh: str) -> None:
    for option, seconds in (("-w", "0.2"), ("--timeout", "1")):  # the other one bounds connecting, too
        result = at("req", fresh, "hello?", option, seconds)
        assert result.exit_code == 1
        assert result.stdout == ""
        assert (
            f"no answer came in {seconds} s (does anything answer at {fresh}? wait longer with --timeout)"
            in result.stderr
        )


def test_the_timeout_bounds_connecting_too(at: Runner) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        result = at("req", "/queue/a", "x", "--timeout", "0.2", "-u", f"127.0.0.1:{silent.getsockname()[1]}")
    assert result.exit_code == 1
    assert "no CONNECTED in 0.2 s" in result.stderr


def test_a_refused_question(at: Runner) -> None:
    result = at("req", "/queue/closed", "x", "-u", at.guarded_url, "--login", "guest", STOMPCODEC_PASSCODE="guest")
    assert result.exit_code == 1
    assert "Traceback" not in result.stderr
