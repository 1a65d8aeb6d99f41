"""The tables of the OpenTelemetry semantic conventions for messaging (1.44), as far as they concern a client.

docs/messaging/messaging-spans.md and messaging-metrics.md of the conventions have them.
"""

from __future__ import annotations

_REQUIRED = {"messaging.operation.name", "messaging.system"}
_ALWAYS = _REQUIRED | {"messaging.operation.type", "server.address", "server.port"}
_ONE = {"messaging.destination.name"}
_MAY = {
    *("error.type", "messaging.batch.message_count", "messaging.client.id", "messaging.destination.name"),
    *("messaging.destination.partition.id", "messaging.destination.template", "messaging.message.body.size"),
    *("messaging.message.conversation_id", "messaging.message.envelope.size", "messaging.message.id"),
    *("network.peer.address", "network.peer.port"),
}

#: Operation type -> the kinds of its span.
KINDS = {
    "create": {"PRODUCER"},
    "send": {"PRODUCER", "CLIENT"},
    "receive": {"CLIENT"},
    "process": {"CONSUMER"},
    "settle": {"CLIENT"},
}
#: Operation type -> attributes that must be there, if the operation is about one message; those that may be.
SPANS = {
    "create": (_ALWAYS | _ONE, _ALWAYS | _MAY - {"messaging.batch.message_count", "network.peer.address"}),
    "send": (_ALWAYS | _ONE, _ALWAYS | _MAY),
    "receive": (_ALWAYS | _ONE, _ALWAYS | _MAY),
    "process": (_ALWAYS | _ONE, _ALWAYS | _MAY - {"network.peer.address"}),
    "settle": (_ALWAYS | _ONE, _ALWAYS | _MAY - {"messaging.message.body.size"}),
}
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_METRIC = _ALWAYS | {"error.type", "messaging.destination.name", "messaging.destination.template"}
_METRIC |= {"messaging.consumer.group.name", "messaging.destination.partition.id"}
_METRIC |= {"messaging.destination.subscription.name"}
#: Metric -> unit, description, buckets of a histogram, attributes that may be there.
METRICS = {
    "messaging.client.sent.messages": (
        "{message}",
        "Number of messages producer attempted to send to the broker.",
        None,
        _METRIC - {"messaging.consumer.group.name"},
    ),
    "messaging.client.consumed.messages": (
        "{message}",
        "Number of messages that were delivered to the application.",
        None,
        _METRIC,
    ),
    "messaging.client.operation.duration": (
        "s",
        "Duration of messaging operation initiated by a producer or consumer client.",
        BUCKETS,
        _METRIC,
    ),
    "messaging.process.duration": ("s", "Duration of processing operation.", BUCKETS, _METRIC),
}
