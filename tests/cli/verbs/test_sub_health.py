"""stompcodec sub --health-file and --health-port: what supervisors are told."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from patience import patience

pytest.importorskip("click")
pytest.importorskip("websockets")

import click
from cli.at_broker import Runner
from client.feeding import wait_for

from stompcodec.cli import health
from stompcodec.cli.health import Probes
from stompcodec.client import Health

ALIVE = Health(True, "connected", 0.25, 1, None)
LOST = Health(False, "reconnecting", 9.0, 0, 2.0)


def client(answer: Health) -> SimpleNamespace:
    return SimpleNamespace(is_alive=lambda: answer)


@contextmanager
def asked(probes: Probes, method: str, path: str) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", probes.port or 0, timeout=patience(20))
    connection.request(method, path)
    yield connection.getresponse()
    connection.close()


def test_the_port_answers_by_the_state() -> None:
    with Probes(None, ("127.0.0.1", 0)) as probes:
        for told, status in ((None, 503), (ALIVE, 200), (LOST, 503)):
            if told is not None:
                probes.watch(client(told))  # type: ignore[arg-type]
            with asked(probes, "GET", "/healthz") as answer:
                found = json.loads(answer.read())
                assert (answer.status, found["alive"]) == (status, status == 200)
                assert set(found) == set(Health.__dataclass_fields__)
        with asked(probes, "HEAD", "/healthz?x=1") as answer:
            assert (answer.status, answer.read()) == (503, b"")


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/", 404), ("GET", "/healthz/", 404), ("POST", "/healthz", 501)]
)
def test_other_requests_are_refused(method: str, path: str, status: int) -> None:
    with Probes(None, ("127.0.0.1", 0)) as probes, asked(probes, method, path) as answer:
        assert answer.status == status


def test_a_prober_that_says_nothing_does_not_stop_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_MOST", 0.05)
    with Probes(None, ("127.0.0.1", 0)) as probes:
        probes.watch(client(ALIVE))  # type: ignore[arg-type]
        with socket.create_connection(("127.0.0.1", probes.port or 0)), asked(probes, "GET", "/healthz") as answer:
            assert answer.status == 200


def test_the_file_is_written_again_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_EVERY", 0.01)
    file = tmp_path / "health"
    with Probes(str(file), None) as probes:
        assert json.loads(file.read_text())["state"] == "connecting"
        probes.watch(client(ALIVE))  # type: ignore[arg-type]
        wait_for(lambda: json.loads(file.read_text())["alive"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["", "absent/health", os.devnull])
def test_a_file_that_cannot_be_written_is_wrong_usage(tmp_path: Path, path: str) -> None:
    with pytest.raises(click.UsageError, match="--health-file"), Probes(str(tmp_path / path), None):
        pass
    assert list(tmp_path.iterdir()) == []


def test_wrong_usage_ends_with_status_2_before_connecting(at: Runner, fresh: str, tmp_path: Path) -> None:
    before = len(at.good("sub", fresh, "-w", "0"))
    assert before == 0
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        port = str(used.getsockname()[1])
        nowhere = ("-u", "stomp://127.0.0.1:1")  # connecting would end with status 1
        for options in (
            ("--health-port", port),
            ("--health-port", "65536"),
            ("--health-port", "-1"),
            ("--health-port", ":80"),
            ("--health-port", "x"),
            ("--health-file", str(tmp_path / "absent" / "file")),
        ):
            result = at("sub", fresh, *nowhere, *options)
            assert result.exit_code == 2, options
            assert options[0] in result.stderr


def test_sub_tells_of_its_own_connection(at: Runner, fresh: str, tmp_path: Path) -> None:
    file = tmp_path / "health"
    process = at.process("sub", fresh, "-n", "1", "--health-file", file, stdout=subprocess.PIPE)
    wait_for(lambda: file.exists() and json.loads(file.read_text())["alive"])
    at.good("pub", fresh, "one")
    out, _ = process.communicate(timeout=patience(30))
    assert (process.returncode, out) == (0, b"one\n")
    assert not file.exists()
