"""Readdressed: a message of a topic becomes one of a queue."""

from __future__ import annotations

import pytest

from stompcodec.broker.bodies.convert import Readdressed
from stompcodec.broker.message import Message

QUEUE = "/queue/Consumer.a.VirtualTopic.b"
#: As it is written in a header: with an escaped colon.
TOPIC, WRITTEN = "/topic/VirtualTopic.b:c", b"/topic/VirtualTopic.b\\cc"
BODY = b"destination:" + WRITTEN + b"\n\nhi\0"


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"", b""), (b"a:b\n", b""), (b"a:b\n", b"c:d\n"), (b"x-destination:" + WRITTEN + b"\n", b"")],
)
def test_the_destination_is_replaced_wherever_it_stands(before: bytes, after: bytes) -> None:
    message = Message(b"m-1", 1, TOPIC, before + b"destination:" + WRITTEN + b"\n" + after + b"\n" + BODY)
    found = Readdressed(QUEUE, None).apply(message)
    lines = b"destination:" + QUEUE.encode() + b"\noriginal-destination:" + WRITTEN + b"\n"
    assert (found.destination, found.tail) == (QUEUE, before + lines + after + b"\n" + BODY)
    assert (found.ident, found.seq) == (b"m-1", 1)


@pytest.mark.parametrize(
    ("destination", "headers"), [(QUEUE, b"destination:" + QUEUE.encode() + b"\n"), (TOPIC, b"a:b\n")]
)
def test_a_message_without_the_topic_in_its_headers_stays(destination: str, headers: bytes) -> None:
    message = Message(b"m-1", 1, destination, headers + b"\n" + BODY)
    assert Readdressed(QUEUE, None).apply(message).tail == message.tail
