"""stompcodec ping: what it tells of a broker, and its exit status."""

from __future__ import annotations

import json
import socket

import pytest

pytest.importorskip("click")
pytest.importorskip("websockets")

from cli.at_broker import Runner


def test_for_people(at: Runner) -> None:
    shown = at.good("ping", "-c", "2", "-i", "0").decode()
    assert "STOMP 1.2" in shown
    assert "receipt 1: " in shown
    assert "receipt 2: " in shown
    assert "min " in shown


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_for_programs(at: Runner, version: str) -> None:
    found = json.loads(at.good("ping", "--json", "-c", "2", "-i", "0", "--version", version))
    assert found["version"] == version
    assert found["dialect"] == "stompcodec"
    assert found["server"].startswith("stompcodec/")
    assert len(found["round_trips_ms"]) == 2
    assert all(trip > 0 for trip in found["round_trips_ms"])


def test_over_websocket(at: Runner) -> None:
    assert json.loads(at.good("ping", f"ws://127.0.0.1:{at.broker.ws_port}/any/path", "--json"))["version"] == "1.2"


def test_the_address_wins_over_the_environment(at: Runner) -> None:
    assert at("ping", at.url, "-c", "0", STOMPCODEC_URL="stomp://127.0.0.1:1").exit_code == 0
    assert at("ping", "-c", "0", STOMPCODEC_URL="stomp://127.0.0.1:1").exit_code == 1
    assert at("ping", f"127.0.0.1:{at.broker.port}", "-c", "0").exit_code == 0  # without a scheme


def test_what_speaks_no_stomp(at: Runner) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        result = at("ping", f"stomp://127.0.0.1:{silent.getsockname()[1]}", "--timeout", "0.3")
    assert result.exit_code == 1
    assert "is it a STOMP broker" in result.stderr


@pytest.mark.parametrize("scheme", ["ws", "stomp+ssl"])
def test_another_scheme(at: Runner, scheme: str) -> None:
    result = at("ping", f"{scheme}://127.0.0.1:{at.broker.port}", "--timeout", "2")
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert "the right scheme" in line


def test_a_login_that_is_refused(at: Runner) -> None:
    result = at("ping", at.guarded_url, "--login", "guest", STOMPCODEC_PASSCODE="wrong")
    assert result.exit_code == 1
    assert "check --login" in result.stderr
    assert result.stdout == ""
