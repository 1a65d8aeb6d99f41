"""One trace from a producer to a consumer through other people's brokers, with the SDK's in-memory exporter."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("click")
pytest.importorskip("opentelemetry.sdk")

from client.middleware.test_otel import Telemetry, check_spans
from client.shells import Shell
from interop.brokers import BROKERS
from interop.driver import Target
from opentelemetry import baggage, context
from patience import patience

pytestmark = [pytest.mark.slow, pytest.mark.no_asan]

#: Characters that headers escape, that others count as the end of a value, and beyond ASCII.
BAGGAGE = "a:b\\c,d;e=f é"


@pytest.fixture(scope="module", params=["stompcodec", "rabbitmq", "activemq"])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    candidate = BROKERS[request.param]()
    missing = getattr(candidate, "missing", "")
    if missing:
        pytest.skip(missing)
    with candidate as target:
        yield target


def url_of(target: Target) -> str:
    return f"stomp://guest:guest@127.0.0.1:{target.port}/%2F"


@pytest.fixture(params=["sync", "async"])
def shell(request: pytest.FixtureRequest) -> Iterator[Shell]:
    shell = Shell(request.param)
    yield shell
    shell.stop()


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_trace_is_one(target: Target, shell: Shell, version: str) -> None:
    telemetry, queue, seen = Telemetry(), f"/queue/trace-{uuid.uuid4().hex[:12]}", threading.Event()
    found: list[object] = []
    options = {"middleware": [telemetry.layer], "versions": (version,)}
    producer, consumer = (shell.connect(url_of(target), **options) for _ in range(2))
    if shell.name == "sync":
        token = context.attach(baggage.set_baggage("key", BAGGAGE))
        producer.send(queue, b"body", receipt=True)
        context.detach(token)
    else:  # the loop's thread has no context of this one
        producer.send(queue, b"body", receipt=True)

    def handle(message: Any) -> None:
        found.append((message.body, baggage.get_baggage("key")))
        seen.set()

    consumer.subscribe(queue, ack="client-individual", handler=shell.handler(handle))
    assert seen.wait(patience(30))
    send, process, settle = telemetry.wait(3)
    names = [span.attributes["messaging.operation.name"] for span in (send, process, settle)]
    assert names == ["send", "process", "ack"]
    assert {span.context.trace_id for span in (send, process, settle)} == {send.context.trace_id}
    assert process.parent.span_id == send.context.span_id
    assert found == [(b"body", BAGGAGE if shell.name == "sync" else None)]
    check_spans(telemetry.spans())
