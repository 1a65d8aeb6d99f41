"""Streamed bodies pass the middleware with both shells."""

from __future__ import annotations

import pytest
from client.middleware.layers import layer_for
from patience import patience

from stompcodec.errors import LocalProtocolError

BODY = bytes(range(256)) * 64


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "body"
    path.write_bytes(BODY)
    return path


def body_of(message):
    with message.open() as reader:
        return reader.read()


def transacted(client, queue, source):
    with client.transaction() as transaction:
        transaction.send(queue, source, {"x": "1"})


SENDS = {
    "send": lambda client, queue, source: client.send(queue, source, {"x": "1"}, receipt=True),
    "without receipt": lambda client, queue, source: client.send(queue, source, {"x": "1"}),
    "for receipt": lambda client, queue, source: client.send_for_receipt(queue, source, {"x": "1"}).wait(),
    "transaction": transacted,
}


@pytest.mark.parametrize("way", SENDS)
def test_a_sent_body_can_be_measured_and_left(shell, broker, queue, path, way):
    def change(event):
        assert (event.is_streamed, event.size, event.by) == (True, len(BODY), "send")
        assert (event.receipt, event.transaction is None) == (way in ("send", "for receipt"), way != "transaction")
        with pytest.raises(LocalProtocolError, match="streamed"):
            event.body  # noqa: B018
        event.headers["x"] = "2"

    notes = layer_for(shell, before_send=change)
    client = shell.connect(broker.url, middleware=[notes])
    SENDS[way](client, queue, path)
    SENDS[way](client, queue, iter([BODY[:5], BODY[5:]]))
    subscription = client.subscribe(queue)
    for _ in range(2):
        message = subscription.get(patience(10))
        assert (message.body, message.headers["x"]) == (BODY, "2")
    assert notes.steps.count("a<send") == 2


def test_a_sent_body_can_be_replaced_or_refused(shell, broker, queue, path):
    def replace(event):
        event.body = b"short"
        assert (event.is_streamed, event.size, event.body) == (False, 5, b"short")
        if "bad" in event.headers:
            raise PermissionError("no")

    client = shell.connect(broker.url, middleware=[layer_for(shell, before_send=replace)])
    client.send(queue, path)
    message = client.receive(queue, timeout=patience(10))
    assert (message.body, message.headers["content-length"]) == (b"short", "5")
    with path.open("rb") as file, pytest.raises(PermissionError):
        client.send(queue, file, {"bad": "1"})
    assert client.epoch == 1
    assert client.receive(queue) is None


@pytest.mark.parametrize("headers", [{}, {"odd:\n": "a\\b\r"}])
def test_headers_of_a_received_body_can_be_changed(shell, broker, queue, headers):
    def change(event):
        assert (event.is_streamed, event.size) == (True, len(BODY))
        with pytest.raises(LocalProtocolError, match="in a file"):
            event.body  # noqa: B018
        event.headers["seen"] = "yes"
        assert event.message.reader().read() == BODY

    notes = layer_for(shell, after_receive=change)
    client = shell.connect(broker.url, middleware=[notes], stream_over=4096)
    client.send(queue, BODY, headers, receipt=True)
    client.send(queue, BODY, headers, receipt=True)
    with client.subscribe(queue, ack="client-individual") as subscription:
        for _ in range(2):
            message = subscription.get(patience(10))
            expected = {**headers, "seen": "yes", "content-length": str(len(BODY))}
            assert {name: message.headers[name] for name in expected} == expected
            assert (message.is_streamed, message.size, body_of(message)) == (True, len(BODY), BODY)
            message.ack(receipt=True)
        inner = subscription if shell.name == "sync" else subscription.target
        inbound = inner.link.core.inbound
        assert (inner.streamed, inner.inbox_octets, inbound.backlog, inbound.backlog_octets) == (0, 0, 0, 0)
    assert notes.steps.count("a<receive") == 2


def test_a_received_body_can_be_replaced(shell, broker, queue):
    def replace(event):
        event.body = b"short"
        assert (event.is_streamed, event.size) == (False, 5)

    client = shell.connect(broker.url, middleware=[layer_for(shell, after_receive=replace)], stream_over=4096)
    client.send(queue, BODY, receipt=True)
    message = client.subscribe(queue).get(patience(10))
    assert (message.is_streamed, message.body, message.size, body_of(message)) == (False, b"short", 5, b"short")


def test_spans_and_counters_have_the_size(shell, broker, queue, path):
    pytest.importorskip("opentelemetry.sdk")
    pytest.importorskip("prometheus_client")
    from client.middleware.test_otel import Telemetry
    from prometheus_client import CollectorRegistry

    from stompcodec.client.middleware.prometheus import Prometheus

    telemetry, registry = Telemetry(), CollectorRegistry()
    client = shell.connect(broker.url, middleware=[telemetry.layer, Prometheus(registry)], stream_over=4096)
    client.send(queue, path, receipt=True)
    message = client.subscribe(queue, ack="client-individual").get(patience(10))
    with message.processing():
        assert "traceparent" in message.headers
        assert body_of(message) == BODY
    sizes = {
        span.attributes["messaging.operation.type"]: span.attributes.get("messaging.message.body.size")
        for span in telemetry.spans()
    }
    assert sizes == {"send": len(BODY), "receive": len(BODY), "process": len(BODY), "settle": None}
    for name in ("sent", "received"):
        value = registry.get_sample_value(f"stompcodec_client_{name}_bytes_total", {"destination": queue})
        assert value == len(BODY)
