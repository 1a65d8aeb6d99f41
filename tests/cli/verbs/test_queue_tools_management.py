"""move and dlq retry at a broker of ours whose management has another prefix."""

from __future__ import annotations

import pytest

pytest.importorskip("click")

from click.testing import CliRunner, Result
from patience import patience

import stompcodec.client as stomp
from stompcodec.cli.app import app
from stompcodec.testing import StompBroker


def run(broker: StompBroker, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "-u", broker.url, "--timeout", str(patience(10))])


def test_no_message_becomes_a_request() -> None:
    """Our broker answers what is sent to `management_prefix`, to the reply-to of the message, and keeps nothing."""
    request = {"original-destination": "/ops/broker", "reply-to": "/queue/answers"}
    with StompBroker(management_prefix="/ops/") as broker:
        with stomp.connect(broker.url) as client:
            for headers in (request, request, {"original-destination": "/queue/a"}):
                client.send("/queue/DLQ.a", b"x", headers, receipt=True)
        for verb in (["move", "/queue/DLQ.a", "/ops/broker"], ["dlq", "retry", "/queue/DLQ.a", "--to", "/ops/broker"]):
            for how in ("--yes", "--dry-run"):
                result = run(broker, *verb, how)
                assert result.exit_code == 2
                assert "'/ops/broker' is not a queue: names with /ops/ are requests to the broker" in result.stderr
        assert "2 would stay" in run(broker, "dlq", "retry", "/queue/DLQ.a", "--dry-run").stdout
        result = run(broker, "dlq", "retry", "/queue/DLQ.a", "--only", "*", "--yes")
        assert result.exit_code == 1
        assert "2 messages stayed in /queue/DLQ.a" in result.stderr
        assert [broker.queued(name) for name in ("/queue/DLQ.a", "/queue/a", "/queue/answers")] == [2, 1, 0]
