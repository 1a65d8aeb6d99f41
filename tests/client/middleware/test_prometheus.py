"""Metrics of a client for Prometheus: each name, what it counts, and that labels are bounded."""

import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from client.feeding import wait_for
from client.middleware.layers import Notes
from client.peer import closed_port
from patience import patience

pytest.importorskip("prometheus_client")
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import stompcodec.client as stomp
from stompcodec.client import middleware
from stompcodec.client.middleware import Destinations
from stompcodec.client.middleware.prometheus import Prometheus

PAGE = Path(__file__).parents[3] / "docs" / "tracing.md"


@pytest.fixture
def registry():
    return CollectorRegistry()


def value(registry, name, *labels):
    samples = [each for metric in registry.collect() for each in metric.samples]
    named = [each for each in samples if each.name == f"stompcodec_client_{name}"]
    return sum(each.value for each in named if set(labels) <= set(each.labels.values()))


def test_each_step_is_counted(shell, broker, queue, registry):
    client = shell.connect(broker.url, middleware=[Prometheus(registry)])
    client.send(queue, b"12345", receipt=True)
    client.send_many([(queue, b"67"), (queue, b"8")])
    subscription = client.subscribe(queue, ack="client-individual")
    for _ in range(2):
        with subscription.get(patience(10)).processing():
            assert value(registry, "messages_in_process", queue) == 1
    with pytest.raises(ValueError, match="wrong"), subscription.get(patience(10)).processing():
        raise ValueError("wrong")
    wait_for(lambda: value(registry, "connects_total", "ok") == 1)
    expected = {
        **{("sent_messages_total", queue, "ok"): 3, ("sent_bytes_total", queue): 8},
        **{("send_duration_seconds_count", queue): 1, ("send_duration_seconds_count", "_many"): 1},
        **{("received_messages_total", queue, "ok"): 3, ("received_bytes_total", queue): 8},
        **{("processed_messages_total", queue, "ok"): 2, ("processed_messages_total", queue, "error"): 1},
        **{("process_duration_seconds_count", queue): 3, ("messages_in_process", queue): 0},
        **{("settled_messages_total", queue, "ack", "ok"): 2, ("settled_messages_total", queue, "nack", "ok"): 1},
    }
    assert {key: value(registry, *key) for key in expected} == expected


def test_the_size_of_a_streamed_body_is_told_to_counters_and_spans(shell, broker, queue, registry):
    telemetry = pytest.importorskip("client.middleware.test_otel").Telemetry()
    client = shell.connect(broker.url, middleware=[telemetry.layer, Prometheus(registry)], stream_over=4096)
    client.send(queue, iter([bytes(3000)] * 2), receipt=True)
    with client.subscribe(queue, ack="client-individual").get(patience(10)).processing() as message:
        assert (message.is_streamed, "traceparent" in message.headers) == (True, True)
    sizes = [(each.name.split()[0], each.attributes.get("messaging.message.body.size")) for each in telemetry.spans()]
    assert sizes == [("send", 6000), ("receive", 6000), ("process", 6000), ("ack", None)]
    assert [value(registry, f"{name}_bytes_total", queue) for name in ("sent", "received")] == [6000, 6000]


def test_errors_are_counted(broker, registry):
    def refuse(event):
        raise PermissionError("no")

    layers = [Prometheus(registry), Notes(before_send=refuse)]
    with stomp.connect(broker.url, middleware=layers) as client, pytest.raises(PermissionError):
        client.send("/queue/a", b"body")
    assert value(registry, "sent_messages_total", "error") == 1
    assert value(registry, "sent_bytes_total", "/queue/a") == 0
    with closed_port() as port, pytest.raises(stomp.ConnectionLostError):
        stomp.connect(f"stomp://127.0.0.1:{port}", middleware=[layers[0]])
    assert value(registry, "connects_total", "error") == 1


def test_labels_are_bounded(broker, registry):
    with stomp.connect(broker.url, middleware=[Prometheus(registry, destinations=2)]) as client:
        for number in range(5):
            client.send(f"/queue/bounded-{number}", b"body")
        for name in ("/temp-queue/mine", "1462d08f-1924-41bd-a0a0-c19a819ad568", "ID:vm-33029-1796023469713-1:1:1"):
            client.send(name, b"body")
    assert value(registry, "sent_messages_total", "_other") == 6
    assert value(registry, "sent_messages_total", "/queue/bounded-1") == 1
    assert Destinations(0).label("/queue/a") == "_other"
    with pytest.raises(ValueError, match="destinations is -1"):
        Prometheus(registry, destinations=-1)


def test_the_silence_of_a_subscription_is_told_before_its_first_message(shell, broker, queue, registry, monkeypatch):
    telemetry, clock = pytest.importorskip("client.middleware.test_otel").Telemetry(), [100.0]
    monkeypatch.setattr(middleware, "time", SimpleNamespace(monotonic=lambda: clock[0], time_ns=time.time_ns))
    client = shell.connect(broker.url, middleware=[Prometheus(registry), telemetry.layer])

    def silences():
        metric = telemetry.metrics().get("stompcodec.client.silence")
        points = () if metric is None else metric.data.data_points
        told = {each.attributes["messaging.destination.name"]: each.value for each in points}
        return registry.get_sample_value("stompcodec_client_silence_seconds", {"destination": queue}), told.get(queue)

    assert silences() == (None, None)
    subscription = client.subscribe(queue)
    clock[0] = 103.0
    assert silences() == (3.0, 3.0)
    client.send(queue, b"1")
    subscription.get(patience(10))
    clock[0] = 105.0
    assert silences() == (2.0, 2.0)
    subscription.unsubscribe()
    assert silences() == (None, None)


def test_prometheus_reads_it(broker, registry):
    with stomp.connect(broker.url, middleware=[Prometheus(registry)]) as client:
        client.send('/queue/strange "name"\\', b"body")
    names = {family.name for family in text_string_to_metric_families(generate_latest(registry).decode())}
    assert all(name.startswith("stompcodec_client_") for name in names)
    if PAGE.exists():
        told = set(re.findall(r"^\| `(stompcodec_client_\w+)`", PAGE.read_text("utf-8"), re.MULTILINE))
        counters = {name for name in told if name.endswith("_total")}
        ours = {name for name in names if not name.endswith("_created")}  # the library's own, beside each
        assert {name.removesuffix("_total") for name in counters} | (told - counters) == ours
