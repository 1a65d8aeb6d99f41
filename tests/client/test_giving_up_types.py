"""The type of the queue that gets a copy of a message that is given up, and the key that its type allows."""

import json

import pytest
from client.peer import Peer

from stompcodec import Frame
from stompcodec.client.dialects import BROKERS
from stompcodec.client.giving_up import key_of
from stompcodec.client.message import BaseMessage
from stompcodec.client.subscription import Subscription

ARTEMIS = "ActiveMQ-Artemis/2.40.0 ActiveMQ Artemis Messaging Engine"


@pytest.mark.parametrize(
    ("dead_letter", "types", "expected"),
    [
        (None, True, "ANYCAST"),
        (None, False, "ANYCAST"),  # DLQ is a queue, whatever a program says of its own names
        ("DLQ", False, "ANYCAST"),
        ("/queue/dead", True, "ANYCAST"),
        ("/queue/dead", False, None),
        ("/topic/dead", True, "MULTICAST"),
        ("/topic/dead", False, None),
        ("dead", True, "ANYCAST"),  # else Artemis drops it where there is no such queue
    ],
)
def test_a_named_dead_letter_queue_has_the_type_that_every_send_writes(shell, dead_letter, types, expected):
    def fail(message):
        raise json.JSONDecodeError("bad", "", 0)

    with Peer(server=ARTEMIS) as peer:
        peer.rules["SEND"] = lambda side, frame: side.receipt(frame)
        client = shell.connect(peer.url, artemis_types=types)
        client.subscribe("/queue/a", dead_letter=dead_letter, handler=shell.handler(fail))
        peer.deliver("s1", b"x")
        peer.wait(lambda peer: peer.got("ACK"))
        (copy,) = peer.got("SEND")
        kinds = [value for name, value in copy.headers.pairs() if name == "destination-type"]
        assert (copy.get("destination"), kinds) == (dead_letter or "DLQ", [expected] if expected else [])


@pytest.mark.parametrize(
    ("destination", "headers", "durable", "has_key"),
    [
        ("/queue/a", {}, None, True),
        ("/queue/a", {"subscription-type": "MULTICAST"}, None, False),
        ("jms.queue.a", {"subscription-type": "MULTICAST"}, None, False),
        ("a", {"subscription-type": "ANYCAST"}, None, True),
        ("a", {}, None, False),
        ("/topic/a", {}, None, False),
        ("/topic/a", {}, "daily", True),
    ],
)
def test_a_copy_has_a_key_if_the_type_that_was_asked_for_keeps_the_message(destination, headers, durable, has_key):
    row = BROKERS["artemis"]
    subscription = Subscription(destination, id="s1", ack="client-individual", headers=headers, durable=durable)
    subscription.asked = subscription.subscribe_headers(row, "me", "transient", lambda: "")
    pairs = [("destination", destination), ("message-id", "8,7"), ("timestamp", "1"), ("subscription", "s1")]
    message = BaseMessage(Frame("MESSAGE", pairs, b"x"), subscription, 1, 1)
    assert bool(key_of(message, row, "DLQ", "me")) is has_key
