"""Spans and metrics of OpenTelemetry, compared with the tables of the conventions; and one trace through a broker."""

import pytest
from patience import patience

pytest.importorskip("opentelemetry.sdk")
from client.feeding import wait_for
from client.shells import Seen
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.trace import StatusCode

import stompcodec.client as stomp
from stompcodec import Frame
from stompcodec.client.middleware.otel import BUCKETS, OpenTelemetry

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
# The tables of the semantic conventions for messaging (1.44), as far as they concern a client.
_ALWAYS = {"messaging.operation.name", "messaging.system", "messaging.operation.type", "server.address", "server.port"}
_MAY = _ALWAYS | {
    *("error.type", "messaging.batch.message_count", "messaging.client.id", "messaging.destination.name"),
    *("messaging.destination.partition.id", "messaging.destination.template", "messaging.message.body.size"),
    *("messaging.message.conversation_id", "messaging.message.envelope.size", "messaging.message.id"),
    *("network.peer.address", "network.peer.port"),
}
#: Operation type -> the kinds of its span, and what its attributes may be; it has those that are always there.
SPANS = {
    "create": ({"PRODUCER"}, _MAY - {"messaging.batch.message_count", "network.peer.address"}),
    **{"send": ({"PRODUCER", "CLIENT"}, _MAY), "receive": ({"CLIENT"}, _MAY)},
    "process": ({"CONSUMER"}, _MAY - {"network.peer.address"}),
    "settle": ({"CLIENT"}, _MAY - {"messaging.message.body.size"}),
}
_METRIC = _ALWAYS | {
    *("error.type", "messaging.destination.name", "messaging.destination.template", "messaging.consumer.group.name"),
    *("messaging.destination.partition.id", "messaging.destination.subscription.name"),
}
SENT, CONSUMED = "messaging.client.sent.messages", "messaging.client.consumed.messages"
#: Metric -> unit. Those in seconds are histograms with these buckets:
METRICS = {SENT: "{message}", CONSUMED: "{message}"}
METRICS |= dict.fromkeys(("messaging.client.operation.duration", "messaging.process.duration"), "s")
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)


class Telemetry:
    def __init__(self, **options):
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("test")
        self.layer = OpenTelemetry(provider, MeterProvider([self.reader]), **options)

    def spans(self, kind=None):
        found = [span for span in self.exporter.get_finished_spans() if "messaging.system" in span.attributes]
        return [span for span in found if kind in (None, span.attributes["messaging.operation.type"])]

    def wait(self, count, kind=None):
        wait_for(lambda: len(self.spans(kind)) >= count)
        assert len(self.spans(kind)) == count
        return self.spans(kind)

    def metrics(self):
        data = self.reader.get_metrics_data()
        scopes = [] if data is None else [scope for each in data.resource_metrics for scope in each.scope_metrics]
        return {metric.name: metric for scope in scopes for metric in scope.metrics}


@pytest.fixture
def telemetry():
    return Telemetry()


def exchange(shell, url, queue, telemetry):
    client = shell.connect(url, middleware=[telemetry.layer])
    client.send(queue, b"body", receipt=True)
    client.subscribe(queue, ack="client-individual", handler=shell.handler(lambda message: None))
    telemetry.wait(1, "settle")
    return telemetry.wait(3)


def test_a_trace_from_producer_to_consumer_is_one(shell, broker, queue, telemetry):
    send, process, settle = exchange(shell, broker.url, queue, telemetry)
    assert [span.name for span in (send, process, settle)] == [f"{name} {queue}" for name in ("send", "process", "ack")]
    assert [span.kind.name for span in (send, process, settle)] == ["PRODUCER", "CONSUMER", "CLIENT"]
    assert {span.context.trace_id for span in telemetry.spans()} == {send.context.trace_id}
    assert (send.parent, process.parent.span_id) == (None, send.context.span_id)
    for span in (process, settle):
        assert [link.context.span_id for link in span.links] == [send.context.span_id]


def check_spans(spans):
    for span in spans:
        kinds, allowed = SPANS[span.attributes["messaging.operation.type"]]
        assert _ALWAYS <= set(span.attributes) <= allowed, span.name
        assert {"messaging.batch.message_count", "messaging.destination.name"} & set(span.attributes), span.name
        assert (span.kind.name in kinds, span.attributes["messaging.system"]) == (True, "stomp")
        assert ("error.type" in span.attributes) is (span.status.status_code is StatusCode.ERROR)


def test_spans_and_metrics_follow_the_tables(shell, broker, queue, telemetry):
    client = shell.connect(broker.url, middleware=[telemetry.layer], client_id="me")
    client.send(queue, b"1", receipt=True)
    client.send_many([(queue, b"2"), (queue, b"3")])
    subscription = client.subscribe(queue, ack="client-individual")
    for _ in range(2):
        with subscription.get(patience(10)).processing():
            pass
    with pytest.raises(ValueError, match="wrong"), subscription.get(patience(10)).processing():
        raise ValueError("wrong")
    with pytest.raises(stomp.LocalProtocolError):
        client.transaction().send(queue, b"4")  # it was not begun
    client.subscribe(f"{queue}-asked", handler=shell.handler(lambda message: message.reply(b"answer")))
    client.request(f"{queue}-asked", b"?", patience(10))

    def total(name):
        return sum(point.value for point in telemetry.metrics()[name].data.data_points)

    wait_for(lambda: total(CONSUMED) >= 5)  # counted behind the end of the span, in the handler's thread
    wait_for(lambda: len(telemetry.spans("process")) == 4)
    spans, found = telemetry.spans(), telemetry.metrics()
    check_spans(spans)
    assert {span.attributes["messaging.operation.type"] for span in spans} == set(SPANS)
    names = ("messaging.client.id", "server.address", "server.port")
    assert {tuple(map(span.attributes.get, names)) for span in spans} == {("me", "127.0.0.1", broker.port)}
    names = ("messaging.operation.name", "error.type")
    failed = {tuple(map(span.attributes.get, names)) for span in spans if span.status.status_code is StatusCode.ERROR}
    assert failed == {("process", "ValueError"), ("send", "LocalProtocolError")}
    known = {value for name, value in vars(messaging_attributes).items() if name.startswith("MESSAGING_")}
    assert {name for span in spans for name in span.attributes if name.startswith("messaging.")} <= known
    assert not [span.name for span in spans if "temp" in span.name]
    known = {value for name, value in vars(messaging_metrics).items() if name.startswith("MESSAGING_")}
    assert set(found) - {"stompcodec.client.silence"} == set(METRICS) <= known
    for name, unit in METRICS.items():
        assert found[name].unit == unit
        for point in found[name].data.data_points:
            assert {"messaging.operation.name", "messaging.system"} <= set(point.attributes) <= _METRIC, name
            assert unit != "s" or tuple(point.explicit_bounds) == _BUCKETS == BUCKETS
    # Sent: one, two at once, one that failed, the request and its reply. Consumed: three, the request and its reply.
    assert (total(SENT), total(CONSUMED)) == (6, 5)
    points = found["messaging.process.duration"].data.data_points
    failed = [(point.count, point.attributes["error.type"]) for point in points if "error.type" in point.attributes]
    assert failed == [(1, "ValueError")]


def taken(shell, broker, queue, count):
    subscription = shell.connect(broker.url).subscribe(queue)
    return [subscription.get(patience(10)) for _ in range(count)]


def test_many_have_spans_of_their_own_and_one_of_the_call(shell, broker, queue, telemetry):
    client = shell.connect(broker.url, middleware=[telemetry.layer])
    client.send_many([(queue, b"%d" % number) for number in range(3)])
    create, (send,) = telemetry.spans("create"), telemetry.spans("send")
    assert (len(create), send.kind.name) == (3, "CLIENT")
    assert send.attributes["messaging.batch.message_count"] == 3
    assert send.name == f"send 127.0.0.1:{broker.port}"
    assert [link.context.span_id for link in send.links] == [span.context.span_id for span in create]
    assert {span.parent.span_id for span in create} == {send.context.span_id}
    parents = [message.headers["traceparent"].split("-")[2] for message in taken(shell, broker, queue, 3)]
    assert parents == [f"{span.context.span_id:016x}" for span in create]


def test_a_context_that_a_message_has_stays(shell, broker, queue, telemetry):
    client = shell.connect(broker.url, middleware=[telemetry.layer])
    client.send(queue, b"1", {"traceparent": TRACEPARENT})
    client.send_many([Frame("SEND", {"destination": queue, "traceparent": TRACEPARENT}, b"2")])
    assert [message.headers["traceparent"] for message in taken(shell, broker, queue, 2)] == [TRACEPARENT] * 2
    one, many = telemetry.spans("send")
    assert (one.kind.name, len(telemetry.spans("create"))) == ("CLIENT", 0)
    assert [f"{link.context.span_id:016x}" for span in (one, many) for link in span.links] == ["b7ad6b7169203331"] * 2


@pytest.mark.parametrize("versions", [("1.0",), ("1.1",), ("1.2",)])
def test_context_and_baggage_pass_in_each_version(broker, queue, telemetry, versions):
    strange, seen = "a:b\\c\nd=e,é", Seen()
    with stomp.connect(broker.url, middleware=[telemetry.layer], versions=versions) as client:
        token = context.attach(baggage.set_baggage("key", strange))
        try:
            with telemetry.tracer.start_as_current_span("ambient") as ambient:
                client.send(queue, b"body", {"tracestate": "x=a:b"} if versions == ("1.2",) else None, receipt=True)
        finally:
            context.detach(token)

        def handle(message):
            seen.add((baggage.get_baggage("key"), trace.get_current_span().get_span_context().trace_id))

        client.subscribe(queue, handler=handle)
        assert seen.wait(1) == [(strange, ambient.get_span_context().trace_id)]


def test_traces_that_are_not_continued_are_linked(shell, broker, queue):
    telemetry = Telemetry(continue_trace=False, body_size=False)
    send, process, _ = exchange(shell, broker.url, queue, telemetry)
    assert process.parent is None
    assert process.context.trace_id != send.context.trace_id
    assert [link.context.span_id for link in process.links] == [send.context.span_id]
    assert all("messaging.message.body.size" not in span.attributes for span in telemetry.spans())


def test_a_hostile_context_is_no_context(shell, broker, queue, telemetry):
    hostile = {"traceparent": "00-" + "f" * 5000, "baggage": "=" * 9000}
    shell.connect(broker.url).send(queue, b"body", hostile, receipt=True)
    client = shell.connect(broker.url, middleware=[telemetry.layer])
    assert client.subscribe(queue).get(patience(10)).body == b"body"
    (receive,) = telemetry.spans("receive")
    assert (receive.parent, receive.links) == (None, ())
