"""OpenTelemetry: spans and metrics of a client, by the semantic conventions for messaging.

docs/tracing.md has them as tables.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from stompcodec import __version__
from stompcodec.arguments import checked
from stompcodec.client import middleware
from stompcodec.client.messages import BaseMessage, Subscription
from stompcodec.codec import Headers
from stompcodec.errors import MissingExtraError

try:
    from opentelemetry import baggage, metrics, propagate, trace
    from opentelemetry import context as contexts
    from opentelemetry.context import Context
    from opentelemetry.propagators.textmap import Getter, Setter
    from opentelemetry.trace import Link, Span, SpanKind, StatusCode
except ImportError as error:
    raise MissingExtraError("otel", "opentelemetry-api") from error

SYSTEM = "stomp"
#: The name of the instrumentation, and the conventions that it follows.
SCOPE = "stompcodec.client"
SCHEMA = "https://opentelemetry.io/schemas/1.44.0"
#: The buckets of durations in seconds that the conventions recommend.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
#: Attributes of spans that metrics do not have: their values are many.
_OF_SPANS = {
    "messaging.batch.message_count",
    "messaging.client.id",
    "messaging.message.body.size",
    "messaging.message.conversation_id",
    "messaging.message.id",
}


class _HeaderGetter(Getter[Headers]):
    """Reads the context of a message out of its headers."""

    def get(self, carrier: Headers, key: str) -> list[str] | None:
        """Return the entry of a name as a list; None without one."""
        value = carrier.get(key)
        return None if value is None else [value]

    def keys(self, carrier: Headers) -> list[str]:
        """Return all names."""
        return list(carrier)


class _HeaderSetter(Setter[middleware.EditableHeaders]):
    """Writes the context into the headers of a message."""

    def set(self, carrier: middleware.EditableHeaders, key: str, value: str) -> None:
        """Set a header."""
        carrier[key] = value


_GETTER, _SETTER = _HeaderGetter(), _HeaderSetter()


class OpenTelemetry(middleware.Middleware):
    """Middleware for spans and metrics, with the context of a trace in the headers of messages.

    Args:
        tracer_provider, meter_provider: of the SDK; None for the global ones.
        continue_trace: a span of a consumer continues the trace of its message, if no other span is active there.
            Otherwise it only links to it. It always has the link.
        body_size: spans tell the size of bodies, which the conventions leave to the user.
        destinations: the most destinations that metrics name. Those beyond are left out.

    >>> OpenTelemetry()
    <OpenTelemetry>
    """

    @checked
    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        *,
        continue_trace: bool = True,
        body_size: bool = True,
        destinations: int = 100,
    ) -> None:
        self._tracer = trace.get_tracer(SCOPE, __version__, tracer_provider, SCHEMA)
        meter = metrics.get_meter(SCOPE, __version__, meter_provider, SCHEMA)
        self._continues = continue_trace
        self._has_size = body_size
        self._destinations = middleware.Destinations(destinations)
        self._silence = middleware.Silence(self._destinations)
        what = "Seconds since the last message of a subscription came to the application."
        meter.create_observable_gauge("stompcodec.client.silence", [self._silences], "s", what)
        what = "Number of messages producer attempted to send to the broker."
        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}", what)
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages",
            "{message}",
            "Number of messages that were delivered to the application.",
        )
        histogram = partial(meter.create_histogram, unit="s", explicit_bucket_boundaries_advisory=BUCKETS)
        what = "Duration of messaging operation initiated by a producer or consumer client."
        self._operations = histogram("messaging.client.operation.duration", description=what)
        self._processing = histogram("messaging.process.duration", description="Duration of processing operation.")

    def __repr__(self) -> str:
        return "<OpenTelemetry>"

    def _silences(self, _options: object) -> list[metrics.Observation]:
        found, name = self._silence.seconds().items(), "messaging.destination.name"
        return [metrics.Observation(seconds, {"messaging.system": SYSTEM, name: label}) for label, seconds in found]

    # ---- places ----

    def subscribed(self, subscription: Subscription) -> None:
        """Begin to tell its silence."""
        self._silence.begin(subscription)

    def send(self, event: middleware.SendEvent) -> AbstractContextManager[object]:
        """Return a span of a producer, whose context goes into the headers unless they have one."""
        return self._create(event) if event.batch is not None else self._send(event)

    @contextmanager
    def _send(self, event: middleware.SendEvent) -> Iterator[None]:
        given = self._context_of(event.headers)
        attributes = self._attributes(event.session, "send", "send", event.destination)
        attributes |= self._of_message(event.headers, event.size)
        kind = SpanKind.PRODUCER if given is None else SpanKind.CLIENT
        measures = [self._operations], [self._sent]
        with self._step(attributes, kind, given, *measures, continues=given is not None):
            if given is None:
                propagate.inject(event.headers, setter=_SETTER)
            yield

    @contextmanager
    def _create(self, event: middleware.SendEvent) -> Iterator[None]:
        """Around a message of `send_many`: a span of its own, to which the span of the whole links."""
        given = self._context_of(event.headers)
        if given is not None:
            self._link_batch(given)
            yield
            return
        attributes = self._attributes(event.session, "create", "create", event.destination)
        attributes |= self._of_message(event.headers, event.size)
        with self._step(attributes, SpanKind.PRODUCER, None, [], []) as span:
            propagate.inject(event.headers, setter=_SETTER)
            yield
        self._link_batch(trace.set_span_in_context(span, Context()))

    @staticmethod
    def _link_batch(created: Context) -> None:
        trace.get_current_span().add_link(trace.get_current_span(created).get_span_context())

    @contextmanager
    def send_many(self, event: middleware.SendManyEvent) -> Iterator[None]:
        """Return a span around the call, which links to those of its messages."""
        attributes = self._attributes(event.session, "send", "send", None)
        with self._step(attributes, SpanKind.CLIENT, None, [self._operations], []) as span:
            error: BaseException | None = None
            try:
                yield
            except BaseException as failure:
                error = failure
                raise
            finally:
                span.set_attribute("messaging.batch.message_count", event.messages)
                self._sent.add(event.messages, _for_metrics(attributes, error))

    @contextmanager
    def receive(self, event: middleware.ReceiveEvent) -> Iterator[None]:
        """Return a span from when the program began to wait; a handler has none, because it does not ask."""
        self._silence.note(event.destination)
        if event.by == "handler":
            yield
            return
        measures = [self._operations], [self._consumed]
        with self._consuming(event, "receive", "receive", SpanKind.CLIENT, *measures, since=event.since):
            yield

    def process(self, event: middleware.ProcessEvent) -> AbstractContextManager[object]:
        """Return a span of a consumer."""
        counts = [self._consumed] if event.by == "handler" else []
        return self._consuming(event, "process", "process", SpanKind.CONSUMER, [self._processing], counts)

    def settle(self, event: middleware.SettleEvent) -> AbstractContextManager[object]:
        """Return a span around ACK or NACK."""
        return self._consuming(event, event.command.lower(), "settle", SpanKind.CLIENT, [self._operations], [])

    def _consuming(
        self,
        event: middleware.ReceiveEvent | middleware.ProcessEvent | middleware.SettleEvent,
        name: str,
        kind: str,
        span: SpanKind,
        durations: list[metrics.Histogram],
        counts: list[metrics.Counter],
        since: int | None = None,
    ) -> AbstractContextManager[Span]:
        """Return a step with a received message."""
        message, attributes = event.message, self._attributes(event.session, name, kind, event.destination)
        attributes |= self._of_message(message.headers, None if kind == "settle" else message.size, message)
        given = self._context_of(message.headers)
        return self._step(attributes, span, given, durations, counts, continues=True, since=since)

    # ---- spans and metrics ----
    @contextmanager
    def _step(
        self,
        attributes: dict[str, Any],
        kind: SpanKind,
        given: Context | None,
        durations: list[metrics.Histogram],
        counts: list[metrics.Counter],
        *,
        continues: bool = False,
        since: int | None = None,
    ) -> Iterator[Span]:
        """Enter a span, and measure it. `given` is the context of the message, to which the span links."""
        links: list[Link] = []
        parent: Context | None = None
        if given is not None:
            of_message = trace.get_current_span(given).get_span_context()
            links.append(Link(of_message))
            if continues and self._continues and not trace.get_current_span().get_span_context().is_valid:
                parent = trace.set_span_in_context(trace.NonRecordingSpan(of_message))
        start = time.time_ns() if since is None else since
        span = self._tracer.start_span(_name_of(attributes), parent, kind, attributes, links, start)
        token = contexts.attach(trace.set_span_in_context(span, _with_baggage(given) if continues else None))
        error: BaseException | None = None
        try:
            yield span
        except BaseException as failure:
            error = failure
            span.set_attribute("error.type", type(failure).__qualname__)
            span.set_status(StatusCode.ERROR, str(failure))
            raise
        finally:
            contexts.detach(token)
            end = time.time_ns()
            span.end(end)
            labels = _for_metrics(attributes, error)
            destination = labels.pop("messaging.destination.name", None)
            if destination is not None and self._destinations.label(destination) != middleware.Destinations.OTHER:
                labels["messaging.destination.name"] = destination
            for histogram in durations:
                histogram.record(max(end - start, 0) / 1e9, labels)
            for counter in counts:
                counter.add(1, labels)

    def _attributes(self, session: middleware.Session, name: str, kind: str, destination: str | None) -> dict[str, Any]:
        """Return the attributes that all spans have."""
        attributes: dict[str, Any] = {
            "messaging.system": SYSTEM,
            "messaging.operation.name": name,
            "messaging.operation.type": kind,
        }
        if destination is not None:
            attributes["messaging.destination.name"] = destination
        if session.client_id is not None:
            attributes["messaging.client.id"] = session.client_id
        if session.address is not None:
            attributes |= {"server.address": session.address.host, "server.port": session.address.port}
        return attributes

    def _of_message(
        self, headers: Headers | middleware.EditableHeaders, size: int | None, message: BaseMessage | None = None
    ) -> dict[str, Any]:
        """Return the attributes of one message."""
        attributes: dict[str, Any] = {}
        if message is not None and (id := headers.get("message-id")) is not None:
            attributes["messaging.message.id"] = id
        if (conversation := headers.get("correlation-id")) is not None:
            attributes["messaging.message.conversation_id"] = conversation
        if size is not None and self._has_size:
            attributes["messaging.message.body.size"] = size
        return attributes

    @staticmethod
    def _context_of(headers: Any) -> Context | None:
        """Return the context that a message carries; None without a valid one."""
        found = propagate.extract(headers, Context(), _GETTER)
        return found if trace.get_current_span(found).get_span_context().is_valid else None


def _with_baggage(given: Context | None) -> Context | None:
    """Return the present context, with the baggage of a message if it has none of its own."""
    if given is None:
        return None
    present = contexts.get_current()
    if baggage.get_all(present):
        return present
    for name, value in baggage.get_all(given).items():
        present = baggage.set_baggage(name, value, present)
    return present


def _name_of(attributes: dict[str, Any]) -> str:
    """Return the name of a span: the operation, and the destination unless its name is made up."""
    destination = attributes.get("messaging.destination.name")
    if destination is None and "server.address" in attributes:
        destination = f"{attributes['server.address']}:{attributes['server.port']}"
    name = str(attributes["messaging.operation.name"])
    return name if destination is None or middleware.is_temporary(destination) else f"{name} {destination}"


def _for_metrics(attributes: dict[str, Any], error: BaseException | None) -> dict[str, Any]:
    labels = {name: value for name, value in attributes.items() if name not in _OF_SPANS}
    if error is not None:
        labels["error.type"] = type(error).__qualname__
    return labels
