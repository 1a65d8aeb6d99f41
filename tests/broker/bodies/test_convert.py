"""What a broker makes of messages: text and bytes for JMS, a message-id of its own, another destination."""

import pytest
from broker.harness import Bench

from stompcodec.broker.bodies import Readdressed
from stompcodec.broker.message import Message

QUEUE = "/queue/a"
TEXT = b"SEND\ndestination:/queue/a\n\ntext\0"
BYTES = b"SEND\ndestination:/queue/a\ncontent-length:5\n\nby\0es\0"
EMPTY = b"SEND\ndestination:/queue/a\n\n\0SEND\ndestination:/queue/a\ncontent-length:0\n\n\0"


@pytest.mark.req("ART-JMS-01", "ART-JMS-02", "ART-JMS-03")
@pytest.mark.parametrize(
    ("destination", "sender_version", "consumer_version"),
    [("/queue/a", "1.0", "1.2"), ("/queue/a", "1.2", "1.0"), ("/topic/a", "1.1", "1.1"), ("/topic/a", "1.0", "1.0")],
)
def test_content_length_tells_text_from_bytes(destination, sender_version, consumer_version):
    for jms in (True, False):  # without the key both are alike
        bench = Bench(jms=jms)
        sender, consumer = bench.peer(sender_version), bench.peer(consumer_version)
        consumer.subscribe(destination)
        for octets in (TEXT, BYTES, EMPTY):
            sender.raw(octets.replace(b"/queue/a", destination.encode()))
        found = [(frame.body, frame.get("content-length")) for frame in consumer.take()]
        assert found[:2] == [(b"text", None if jms else "4"), (b"by\0es", "5")]
        assert not jms or found[2:] == [(b"", None), (b"", "0")]


@pytest.mark.req("ART-MID-01")
@pytest.mark.parametrize(("destination", "version"), [("/queue/a", "1.0"), ("/topic/a", "1.1"), ("/queue/a", "1.2")])
def test_every_message_has_a_number(destination, version):
    off = Bench().peer()
    off.subscribe(QUEUE)
    off.put(QUEUE, "one")
    assert off.next("MESSAGE").get("amqMessageId") is None
    bench = Bench(message_id_header=True, large=1000)
    sender, consumer = bench.peer(version), bench.peer(version)
    consumer.subscribe(destination)
    sender.put(destination, "one")
    sender.put(destination, "two", amqMessageId="STOMP0", priority="7")
    sender.send("BEGIN", transaction="t")
    sender.put(destination, b"x" * 2000, transaction="t")
    sender.send("COMMIT", transaction="t")
    frames = consumer.take()
    ids = [frame.headers["amqMessageId"] for frame in frames]
    assert ([frame.body for frame in frames], len(set(ids))) == ([b"one", b"two", b"x" * 2000], 3)
    for name in ids:
        assert name.startswith("STOMP")
        assert int(name.removeprefix("STOMP")) > 0, "not that of the sender"


VIRTUAL = "/queue/Consumer.a.VirtualTopic.b"
#: As it is written in a header: with an escaped colon.
TOPIC, WRITTEN = "/topic/VirtualTopic.b:c", b"/topic/VirtualTopic.b\\cc"
BODY = b"destination:" + WRITTEN + b"\n\nhi\0"


@pytest.mark.parametrize(
    ("before", "after"), [(b"", b""), (b"a:b\n", b""), (b"a:b\n", b"c:d\n"), (b"x-destination:" + WRITTEN + b"\n", b"")]
)
def test_the_destination_is_replaced_wherever_it_stands(before, after):
    message = Message(b"m-1", 1, TOPIC, before + b"destination:" + WRITTEN + b"\n" + after + b"\n" + BODY)
    found = Readdressed(VIRTUAL, None).apply(message)
    lines = b"destination:" + VIRTUAL.encode() + b"\noriginal-destination:" + WRITTEN + b"\n"
    assert (found.destination, found.tail) == (VIRTUAL, before + lines + after + b"\n" + BODY)
    assert (found.ident, found.seq) == (b"m-1", 1)
    for destination, headers in ((VIRTUAL, b"destination:" + VIRTUAL.encode() + b"\n"), (TOPIC, b"a:b\n")):
        stays = Message(b"m-1", 1, destination, headers + b"\n" + BODY)  # the topic is not in its headers
        assert Readdressed(VIRTUAL, None).apply(stays).tail == stays.tail
