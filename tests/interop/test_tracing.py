"""One trace from a producer to a consumer through other people's brokers, with the SDK's in-memory exporter."""

from __future__ import annotations

import contextlib
import itertools
import threading
import uuid
from collections.abc import Callable, Iterator
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
#: Values of messaging.operation.type.
_KINDS = ("send", "process")


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


@pytest.fixture(scope="module")
def chain() -> Iterator[list[Target]]:
    """Our broker, and then all others."""
    with contextlib.ExitStack() as stack:
        candidates = [make() for make in BROKERS.values()]
        if missing := [word for candidate in candidates if (word := getattr(candidate, "missing", ""))]:
            pytest.skip(", ".join(missing))
        yield [stack.enter_context(candidate) for candidate in candidates]


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


def test_a_trace_through_all_brokers_is_one(chain: list[Target], shell: Shell) -> None:
    """A message goes from the producer to each broker in turn, and a handler between two sends it on."""
    telemetry, queue, arrived = Telemetry(), f"/queue/chain-{uuid.uuid4().hex[:12]}", threading.Event()
    assert [target.name for target in chain] == ["stompcodec", "rabbitmq", "activemq"]
    clients = [shell.connect(url_of(target), middleware=[telemetry.layer]) for target in chain]

    def passing(further: Any) -> Callable[[Any], Any]:
        if shell.name == "sync":
            return lambda message: further.send(queue, message.body, receipt=True)

        async def handle(message: Any) -> None:  # not by shell.handler: its thread has no context
            await further.target.send(queue, message.body, receipt=True)

        return handle

    for client, further in itertools.pairwise(clients):
        client.subscribe(queue, ack="client-individual", handler=passing(further))
    clients[-1].subscribe(queue, ack="client-individual", handler=shell.handler(lambda message: arrived.set()))
    shell.connect(url_of(chain[0]), middleware=[telemetry.layer]).send(queue, b"body", receipt=True)
    assert arrived.wait(patience(60))
    spans = telemetry.wait(9)
    check_spans(spans)
    assert len({span.context.trace_id for span in spans}) == 1
    ports = [target.port for target in chain]
    sends, processes = ({span.attributes["server.port"]: span for span in telemetry.spans(kind)} for kind in _KINDS)
    assert set(sends) == set(processes) == set(ports)
    for port, before in zip(ports, [None, *ports]):
        assert processes[port].parent.span_id == sends[port].context.span_id
        if before is not None:
            assert sends[port].parent.span_id == processes[before].context.span_id
