"""The pause between a NACK and the next delivery: a message waits for it, in its place, and nothing else does."""

import json

import pytest
from broker.harness import Bench

from stompcodec.broker.config import parse_config
from stompcodec.broker.settings import Pauses
from stompcodec.errors import ConfigError

GROWING = Pauses(1.0, 2.0, 30.0)


def consumer(bench, *bodies, **headers):
    peer = bench.peer()
    for body in bodies:
        peer.put("/queue/a", body, **headers)
    peer.subscribe("/queue/a", ack="client-individual")
    return peer


def times(bench, peer, **headers):
    """When a message comes that is refused each time, until it comes no more."""
    found = []
    for _ in range(400):
        for frame in peer.take():
            found.append(round(bench.now, 3))
            peer.nack(frame, **headers)
        bench.wait(0.1)
    return found


@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize("persistent", ["true", "false"])
def test_the_pauses_of_one_message_grow(version, persistent):
    bench = Bench(redelivery_delay=GROWING)
    sender, peer = bench.peer(), bench.peer(version)
    sender.put("/queue/a", "x", persistent=persistent)
    peer.subscribe("/queue/a", ack="client-individual")
    assert times(bench, peer) == pytest.approx([0, 1, 3, 7, 15, 31], abs=0.5)
    assert len(bench.broker.retries) == 0
    peer.subscribe("/queue/DLQ.a", "2")
    assert peer.next("MESSAGE").get("dead-letter-attempts") == "6"


def test_others_are_delivered_meanwhile_and_it_comes_back_in_its_place():
    bench = Bench(redelivery_delay=GROWING, prefetch=1)
    peer = consumer(bench, "1", "2", "3")
    peer.nack(first := peer.next("MESSAGE"))
    second = peer.next("MESSAGE")
    assert second.body == b"2"
    bench.wait(1.5)
    peer.ack(second)
    back = peer.next("MESSAGE")
    assert (back.body, back.headers["message-id"]) == (b"1", first.headers["message-id"])
    assert back.get("redelivery-count") == "1"


def test_waiting_messages_are_bounded_and_end_with_their_queue():
    bench = Bench(redelivery_delay=GROWING, max_delayed=3)
    peer = consumer(bench, "1", "2", "3", "4")
    for frame in peer.take():
        peer.nack(frame)
    assert peer.bodies() == [b"4"]  # there was no room to wait
    assert len(bench.broker.retries) == 3
    (queue,) = bench.broker.queues.values()
    queue.delete()
    assert not queue.returned.held
    peer.lose()
    sender = consumer(bench, "5")
    sender.subscribe("/temp-queue/t", "2", ack="client-individual")
    sender.put("/temp-queue/t", "6")
    sender.nack(next(frame for frame in sender.take() if frame.body == b"6"))
    assert len(bench.broker.retries) == 1  # the others are forgotten


@pytest.mark.parametrize(
    "text",
    ["1s x0 up to 30s", "-1s", "366d", "5s x2 up to 1s", "5s x0.5 up to 9s", "5s x2", "1e3s", "inf", 5, "", True],
)
def test_other_texts_are_refused_with_the_name_of_the_key(text):
    with pytest.raises(ConfigError, match=r"queues\.redelivery_delay"):
        parse_config(f"[queues]\nredelivery_delay = {json.dumps(text)}\n")
