"""Dialects: sets of defaults that make the broker behave like others. Values in a file take precedence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stompcodec.broker.config.settings import EXCHANGES, Pauses

#: Values by dialect and field of `Config`.
DIALECTS: Mapping[str, Mapping[str, Any]] = {
    "stompcodec": {},
    "rabbitmq": {
        "redelivery_delay": Pauses(),
        "durable": "persistent",
        "wildcards": "rabbitmq",
        "exchanges": EXCHANGES,
        "exclusive": "session",
        "reply_to_subscribes": True,
        "refuse_message_id": True,
        "same_client": "allow",
        "routing_headers": False,
        "prefetch": 100_000,
        "heart_beat": (1000, 1000),
        "heart_beat_answer": "seconds",
        "queue_arguments": "refuse",
    },
    "activemq": {
        "redelivery_delay": Pauses(),
        "durable": "persistent",
        "wildcards": "activemq",
        "composite": True,
        "virtual_topics": True,
        "routing_headers": False,
        "prefetch": 1000,
        # ActiveMQ offers heart-beats every millisecond on request; we offer at least 100 ms.
        "heart_beat": (100, 100),
        "heart_beat_answer": "mirror",
        "queue_arguments": "ignore",
    },
    "artemis": {
        "redelivery_delay": Pauses(),
        "durable": "persistent",
        "wildcards": "artemis",
        "routing": "MULTICAST",
        "transactional_acks": False,
        "prefetch_octets": True,
        "window": 10_240,
        "ttl": 60_000,
        "queue_arguments": "ignore",
    },
}
