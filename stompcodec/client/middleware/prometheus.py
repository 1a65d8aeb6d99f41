"""Metrics of a client for Prometheus. docs/tracing.md has their table."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from stompcodec.arguments import checked
from stompcodec.client import middleware
from stompcodec.client.messages import Subscription
from stompcodec.errors import MissingExtraError

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, Metric
    from prometheus_client.core import GaugeMetricFamily
except ImportError as error:
    raise MissingExtraError("metrics", "prometheus-client") from error

#: The buckets of durations, in seconds.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Prometheus(middleware.Middleware):
    """Middleware that counts messages and bytes, and measures durations.

    One instance serves any number of clients. Two in one registry would have the same names, which it refuses.

    Args:
        registry: where the metrics are registered.
        destinations: the most destinations that get a label. Those beyond share `_other`.

    >>> from stompcodec.client import connect
    >>> from stompcodec.testing import StompBroker
    >>> registry = CollectorRegistry()
    >>> with StompBroker() as broker, connect(broker.url, middleware=[Prometheus(registry)]) as client:
    ...     client.send("/queue/a", b"hello", receipt=True)
    >>> labels = {"destination": "/queue/a", "outcome": "ok"}
    >>> registry.get_sample_value("stompcodec_client_sent_messages_total", labels)
    1.0
    """

    @checked
    def __init__(self, registry: CollectorRegistry = REGISTRY, *, destinations: int = 100) -> None:
        self._destinations = middleware.Destinations(destinations)
        self._silence = middleware.Silence(self._destinations)
        registry.register(self)
        by, outcome = ("destination",), ("destination", "outcome")

        def counter(name: str, what: str, labels: tuple[str, ...]) -> Counter:
            return Counter(f"stompcodec_client_{name}", what, labels, registry=registry)

        def histogram(name: str, what: str, labels: tuple[str, ...]) -> Histogram:
            return Histogram(f"stompcodec_client_{name}", what, labels, registry=registry, buckets=BUCKETS)

        self._connects = counter("connects", "Attempts to connect.", ("outcome",))
        self._sent = counter("sent_messages", "Messages that were sent, or could not be.", outcome)
        self._sent_bytes = counter("sent_bytes", "Bytes of the bodies of messages to send.", by)
        self._send_time = histogram("send_duration_seconds", "Time that send takes, with the receipt if it waits.", by)
        self._received = counter("received_messages", "Messages that came to the program.", outcome)
        self._received_bytes = counter("received_bytes", "Bytes of the bodies of these.", by)
        self._processed = counter("processed_messages", "Messages that were handled.", outcome)
        self._process_time = histogram("process_duration_seconds", "Time that handlers and blocks take.", by)
        self._in_process = Gauge(
            "stompcodec_client_messages_in_process", "Messages that are being handled.", by, registry=registry
        )
        self._settled = counter("settled_messages", "ACKs and NACKs.", ("destination", "command", "outcome"))

    def __repr__(self) -> str:
        return "<Prometheus>"

    def collect(self) -> Iterator[Metric]:
        """Yield the silences, for the registry."""
        what = "Seconds since the last message of a subscription came to the program."
        found = GaugeMetricFamily("stompcodec_client_silence_seconds", what, labels=["destination"])
        for destination, seconds in self._silence.seconds().items():
            found.add_metric([destination], seconds)
        yield found

    def subscribed(self, subscription: Subscription) -> None:
        """Begin to tell its silence."""
        self._silence.begin(subscription)

    @contextmanager
    def connect(self, event: middleware.ConnectEvent) -> Iterator[None]:
        """Count an attempt."""
        with _counted(self._connects):
            yield

    @contextmanager
    def send(self, event: middleware.SendEvent) -> Iterator[None]:
        """Count a message. Those of `send_many` are counted when they are put into a block."""
        label = self._destinations.label(event.destination)
        started = time.perf_counter()
        with _counted(self._sent, label):
            yield
        self._sent_bytes.labels(label).inc(event.size)
        if event.batch is None:
            self._send_time.labels(label).observe(time.perf_counter() - started)

    @contextmanager
    def send_many(self, event: middleware.SendManyEvent) -> Iterator[None]:
        """Measure the whole call, as destination `_many`."""
        with self._send_time.labels("_many").time():
            yield

    @contextmanager
    def receive(self, event: middleware.ReceiveEvent) -> Iterator[None]:
        """Count a message, and the bytes that came from the broker."""
        label = self._destinations.label(event.destination)
        self._received_bytes.labels(label).inc(event.size)
        self._silence.note(label)
        with _counted(self._received, label):
            yield

    @contextmanager
    def process(self, event: middleware.ProcessEvent) -> Iterator[None]:
        """Count and measure the handling of a message."""
        label = self._destinations.label(event.destination)
        measured = self._in_process.labels(label).track_inprogress(), self._process_time.labels(label).time()
        with measured[0], measured[1], _counted(self._processed, label):
            yield

    @contextmanager
    def settle(self, event: middleware.SettleEvent) -> Iterator[None]:
        """Count an ACK or NACK."""
        with _counted(self._settled, self._destinations.label(event.destination), event.command.lower()):
            yield


@contextmanager
def _counted(counter: Counter, *labels: str) -> Iterator[None]:
    """Count a step with its outcome, "ok" or "error"."""
    try:
        yield
    except BaseException:
        counter.labels(*labels, "error").inc()
        raise
    counter.labels(*labels, "ok").inc()
