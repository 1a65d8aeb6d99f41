"""What Artemis makes of messages of STOMP for JMS: text and bytes, and a message-id of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker.harness import Bench
from broker.large import settle

from stompcodec.broker.storage.sqlite import SqliteStore

QUEUE = "/queue/a"
TEXT = b"SEND\ndestination:/queue/a\n\ntext\0"
BYTES = b"SEND\ndestination:/queue/a\ncontent-length:5\n\nby\0es\0"
EMPTY = b"SEND\ndestination:/queue/a\n\n\0SEND\ndestination:/queue/a\ncontent-length:0\n\n\0"


@pytest.mark.req("ART-JMS-01", "ART-JMS-02", "ART-JMS-03")
@pytest.mark.parametrize("consumer_version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("sender_version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("destination", ["/queue/a", "/topic/a"])
def test_content_length_tells_text_from_bytes(destination: str, sender_version: str, consumer_version: str) -> None:
    bench = Bench(jms=True)
    sender, consumer = bench.peer(sender_version), bench.peer(consumer_version)
    consumer.subscribe(destination)
    for octets in (TEXT, BYTES, EMPTY):
        sender.raw(octets.replace(b"/queue/a", destination.encode()))
    found = [(frame.body, frame.get("content-length")) for frame in consumer.take()]
    assert found == [(b"text", None), (b"by\0es", "5"), (b"", None), (b"", "0")]


def test_without_the_key_both_are_alike() -> None:
    bench = Bench()
    sender, consumer = bench.peer("1.0"), bench.peer("1.0")
    consumer.subscribe(QUEUE)
    sender.raw(TEXT + BYTES)
    assert [frame.get("content-length") for frame in consumer.take()] == ["4", "5"]


@pytest.mark.req("ART-JMS-01", "ART-JMS-03")
def test_text_stays_text_with_escapes_and_through_redelivery() -> None:
    bench = Bench(jms=True)
    sender, consumer = bench.peer("1.2"), bench.peer("1.0")
    consumer.subscribe(QUEUE, ack="client")
    sender.raw(b"SEND\ndestination:/queue/a\nodd:a\\cb\n\ntext\0")
    for _ in range(2):
        message = consumer.next("MESSAGE")
        assert (message.headers["odd"], message.body, message.get("content-length")) == ("a:b", b"text", None)
        consumer.lose()
        consumer = bench.peer("1.0")
        consumer.subscribe(QUEUE, ack="client")


def test_text_stays_text_on_the_disk_and_in_a_transaction(tmp_path: Path) -> None:
    bench = Bench(SqliteStore(tmp_path), jms=True)
    sender = bench.peer("1.0")
    sender.raw(b"BEGIN\ntransaction:t\n\n\0SEND\ndestination:/queue/a\npersistent:true\ntransaction:t\n\ntext\0")
    sender.raw(b"COMMIT\ntransaction:t\n\n\0")
    settle(bench)
    bench.store.close()
    again = Bench(SqliteStore(tmp_path), jms=True)
    consumer = again.peer("1.0")
    consumer.subscribe(QUEUE)
    message = consumer.next("MESSAGE")
    assert (message.body, message.get("content-length")) == (b"text", None)
    again.store.close()


# ---- amqMessageId ----


@pytest.mark.req("ART-MID-01")
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("destination", ["/queue/a", "/topic/a"])
def test_every_message_has_a_number(destination: str, version: str) -> None:
    bench = Bench(message_id_header=True)
    sender, consumer = bench.peer(version), bench.peer(version)
    consumer.subscribe(destination)
    sender.put(destination, "one")
    sender.put(destination, "two", amqMessageId="STOMP0", priority="7")
    sender.send("BEGIN", transaction="t")
    sender.put(destination, "three", transaction="t")
    sender.send("COMMIT", transaction="t")
    frames = consumer.take()
    ids = [frame.headers["amqMessageId"] for frame in frames]
    assert [frame.body for frame in frames] == [b"one", b"two", b"three"]
    assert len(set(ids)) == 3
    for name in ids:
        assert name.startswith("STOMP")
        assert int(name.removeprefix("STOMP")) > 0, "not that of the sender"


@pytest.mark.req("ART-MID-01")
def test_it_is_off_by_default() -> None:
    bench = Bench()
    sender, consumer = bench.peer(), bench.peer()
    consumer.subscribe(QUEUE)
    sender.put(QUEUE, "one")
    assert consumer.next("MESSAGE").get("amqMessageId") is None


def test_the_number_of_a_large_one() -> None:
    bench = Bench(message_id_header=True, large=1000)
    sender, consumer = bench.peer(), bench.peer()
    consumer.subscribe(QUEUE)
    sender.put(QUEUE, b"x" * 2000)
    message = consumer.next("MESSAGE")
    assert message.headers["amqMessageId"].startswith("STOMP")
    assert message.body == b"x" * 2000


def test_the_number_of_one_that_waits(tmp_path: Path) -> None:
    """What says until when is read after a restart, too."""
    bench = Bench(SqliteStore(tmp_path), message_id_header=True)
    bench.peer().put(QUEUE, "later", persistent="true", delay="5000")
    settle(bench)
    bench.store.close()
    again = Bench(SqliteStore(tmp_path), message_id_header=True)
    consumer = again.peer()
    consumer.subscribe(QUEUE)
    assert consumer.take() == []
    again.date += 6
    again.wait(6)
    assert consumer.next("MESSAGE").headers["amqMessageId"].startswith("STOMP")
    again.store.close()
