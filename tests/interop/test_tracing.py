"""One trace from a producer to a consumer through other people's brokers, with the SDK's in-memory exporter."""

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
from opentelemetry import baggage, context
from patience import patience

from stompcodec.testing import StompBroker
from stompcodec.uri import parse_uri

pytestmark = [pytest.mark.peer, pytest.mark.no_asan]

BAGGAGE = "a:b\\c,d;e=f é"  # Characters that headers escape, that others count as the end of a value, and beyond ASCII.
_KINDS = ("send", "process")  # Values of messaging.operation.type.


@pytest.fixture(scope="module")
def urls(start_peer: Any) -> Iterator[dict[str, str]]:
    """Our broker, and then the others."""
    with StompBroker() as ours:
        yield {"stompcodec": ours.url, **{name: start_peer(name).url for name in ("rabbitmq", "activemq")}}


@pytest.fixture(params=["sync", "async"])
def shell(request: pytest.FixtureRequest) -> Iterator[Shell]:
    shell = Shell(request.param)
    yield shell
    shell.stop()


@pytest.mark.parametrize("broker", ["stompcodec", "rabbitmq", "activemq"])
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_trace_is_one(urls: dict[str, str], broker: str, shell: Shell, version: str) -> None:
    telemetry, queue, seen = Telemetry(), f"/queue/trace-{uuid.uuid4().hex[:12]}", threading.Event()
    found: list[object] = []
    options = {"middleware": [telemetry.layer], "versions": (version,)}
    producer, consumer = (shell.connect(urls[broker], **options) for _ in range(2))
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


def test_a_trace_through_all_brokers_is_one(urls: dict[str, str], shell: Shell) -> None:
    """A message goes from the producer to each broker in turn, and a handler between two sends it on."""
    telemetry, queue, arrived = Telemetry(), f"/queue/chain-{uuid.uuid4().hex[:12]}", threading.Event()
    clients = [shell.connect(url, middleware=[telemetry.layer]) for url in urls.values()]

    def passing(further: Any) -> Callable[[Any], Any]:
        if shell.name == "sync":
            return lambda message: further.send(queue, message.body, receipt=True)

        async def handle(message: Any) -> None:  # not by shell.handler: its thread has no context
            await further.target.send(queue, message.body, receipt=True)

        return handle

    for client, further in itertools.pairwise(clients):
        client.subscribe(queue, ack="client-individual", handler=passing(further))
    clients[-1].subscribe(queue, ack="client-individual", handler=shell.handler(lambda message: arrived.set()))
    shell.connect(urls["stompcodec"], middleware=[telemetry.layer]).send(queue, b"body", receipt=True)
    assert arrived.wait(patience(60))
    spans = telemetry.wait(9)
    check_spans(spans)
    assert len({span.context.trace_id for span in spans}) == 1
    ports = [parse_uri(url)[0].port for url in urls.values()]
    sends, processes = ({span.attributes["server.port"]: span for span in telemetry.spans(kind)} for kind in _KINDS)
    assert set(sends) == set(processes) == set(ports)
    for port, before in zip(ports, [None, *ports]):
        assert processes[port].parent.span_id == sends[port].context.span_id
        if before is not None:
            assert sends[port].parent.span_id == processes[before].context.span_id
