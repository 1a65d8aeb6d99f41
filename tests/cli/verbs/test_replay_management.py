"""stompcodec replay of somebody else's capture gives the broker no orders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import patience

pytest.importorskip("click")

from click.testing import CliRunner, Result
from client.peer import Peer

import stompcodec.client as stomp
from stompcodec import Frame
from stompcodec.capture import CaptureWriter, octets_of
from stompcodec.cli.app import app
from stompcodec.testing import StompBroker


def capture(path: Path, *destinations: str, command: str = "SEND") -> Path:
    with CaptureWriter(path, single=True) as writer:
        for destination in destinations:
            headers = [("destination", destination), ("message-id", "1"), ("reply-to", "/queue/answers")]
            writer.append(octets_of(Frame(command, headers, b'{"destination":"/queue/a"}')), 1_700_000_000_000_000)
    return path


def run(url: str, path: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["replay", str(path), url, "--speed", "max", *options])


@pytest.fixture(params=["/management/", "/ops/"])
def broker(request: pytest.FixtureRequest) -> Iterator[StompBroker]:
    with StompBroker(management_prefix=request.param) as broker:
        with stomp.connect(broker.url) as client:
            client.send("/queue/a", b"x", receipt=True)
        yield broker


@pytest.mark.parametrize("command", ["SEND", "MESSAGE"])
@pytest.mark.parametrize("version", ["1.2", "1.0"])
def test_requests_are_left_out_and_reported(broker: StompBroker, tmp_path: Path, command: str, version: str) -> None:
    prefix = broker.config.management_prefix
    path = capture(
        tmp_path / "a.stompcap", "/queue/b", f"{prefix}purge", f" {prefix}purge", "/queue/b", command=command
    )
    for receipts in ([], ["--receipts"]):
        result = run(broker.url, path, *receipts, "--version", version)
        assert result.exit_code == 1
        assert (
            f"2 messages were left out: they are requests to manage the broker (names with {prefix})" in result.stderr
        )
        assert "2 messages sent, 2 confirmed" in result.stderr
    assert [broker.queued(name) for name in ("/queue/a", "/queue/b", "/queue/answers")] == [1, 4, 0]


def test_a_rule_for_destinations_does_not_lead_there_either(broker: StompBroker, tmp_path: Path) -> None:
    path = capture(tmp_path / "a.stompcap", "/topic/purge")
    result = run(broker.url, path, "-d", f"/topic/*={broker.config.management_prefix}*")
    assert result.exit_code == 1
    assert broker.queued("/queue/a") == 1


def test_they_are_sent_if_the_user_says_so(broker: StompBroker, tmp_path: Path) -> None:
    path = capture(tmp_path / "a.stompcap", f"{broker.config.management_prefix}purge")
    assert run(broker.url, path, "--management").exit_code == 0
    broker.wait_queued("/queue/answers", 1, timeout=patience(20))
    assert broker.queued("/queue/a") == 0


@pytest.mark.parametrize(("server", "sent"), [("RabbitMQ/3.10.8", 1), ("what/1", 0), ("", 0)])
def test_another_broker_may_have_such_a_queue(tmp_path: Path, server: str, sent: int) -> None:
    path = capture(tmp_path / "a.stompcap", "/management/purge")
    with Peer(server=server) as peer:
        run(peer.url, path)
        assert len(peer.got("SEND")) == sent
