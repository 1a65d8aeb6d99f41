"""The pause between a NACK and the next delivery: a message waits for it, in its place, and nothing else does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from broker.harness import Bench, Peer
from hypothesis import given
from hypothesis import strategies as st

from stompcodec.broker.config import Config, parse_config
from stompcodec.broker.settings import Pauses, Setting, pauses
from stompcodec.errors import ConfigError

GROWING = Pauses(1.0, 2.0, 30.0)


def consumer(bench: Bench, *bodies: str, **headers: str) -> Peer:
    peer = bench.peer()
    for body in bodies:
        peer.put("/queue/a", body, **headers)
    peer.subscribe("/queue/a", ack="client-individual")
    return peer


def times(bench: Bench, peer: Peer, **headers: str) -> list[float]:
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
def test_the_pauses_of_one_message_grow(version: str, persistent: str) -> None:
    bench = Bench(redelivery_delay=GROWING)
    sender, peer = bench.peer(), bench.peer(version)
    sender.put("/queue/a", "x", persistent=persistent)
    peer.subscribe("/queue/a", ack="client-individual")
    assert times(bench, peer) == pytest.approx([0, 1, 3, 7, 15, 31], abs=0.5)
    assert len(bench.broker.retries) == 0
    peer.subscribe("/queue/DLQ.a", "2")
    assert peer.next("MESSAGE").get("dead-letter-attempts") == "6"


def test_others_are_delivered_meanwhile_and_it_comes_back_in_its_place() -> None:
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


def test_a_consumer_that_is_away_for_two_seconds_makes_no_dead_letters() -> None:
    bench = Bench(redelivery_delay=Config().redelivery_delay)
    peer = consumer(bench, *map(str, range(20)))
    done: list[bytes] = []
    while len(done) < 20 and bench.now < 60:
        for frame in peer.take():
            if bench.now < 2:
                peer.nack(frame)
            else:
                peer.ack(frame)
                done.append(frame.body)
        bench.wait(0.1)
    assert len(set(done)) == 20
    peer.subscribe("/queue/DLQ.a", "2")
    assert peer.take() == []


@pytest.mark.parametrize("name", ["redelivery-delay", "activemq.redeliveryDelay"])
@pytest.mark.parametrize("transaction", [False, True])
def test_a_subscription_and_a_nack_may_ask_for_another_pause(name: str, transaction: bool) -> None:
    bench = Bench(redelivery_delay=GROWING)
    peer = bench.peer()
    inside = {"transaction": "t"} if transaction else {}
    peer.put("/queue/a", "x")
    peer.subscribe("/queue/a", ack="client-individual", **{name: "5000"})
    if transaction:
        peer.send("BEGIN", transaction="t")
    peer.nack(peer.next("MESSAGE"), **inside)
    if transaction:
        peer.send("COMMIT", transaction="t")
    bench.wait(4.9)
    assert peer.take() == []
    bench.wait(0.2)
    peer.nack(peer.next("MESSAGE"), **{name: "0"})
    assert peer.next("MESSAGE").get("redelivery-count") == "2"


@pytest.mark.parametrize("value", ["-1", "soon", "1.5", "31536000001", "9" * 30, ""])
def test_another_value_is_refused_by_name(value: str) -> None:
    bench = Bench()
    peer = consumer(bench, "x")
    peer.nack(peer.next("MESSAGE"), **{"redelivery-delay": value})
    assert "redelivery-delay" in peer.error().headers["message"]


def test_the_settings_of_an_address_come_first() -> None:
    setting = Setting("/queue/a", redelivery_delay=Pauses(9.0, 1.0, 9.0))
    bench = Bench(redelivery_delay=GROWING, address_settings=(setting,))
    peer = consumer(bench, "x")
    peer.nack(peer.next("MESSAGE"))
    bench.wait(8.9)
    assert peer.take() == []
    bench.wait(0.2)
    assert peer.next("MESSAGE").body == b"x"


def test_it_stays_while_its_consumer_leaves_and_is_ready_after_a_restart() -> None:
    bench = Bench(redelivery_delay=GROWING)
    peer = consumer(bench, "x", persistent="true")
    peer.nack(peer.next("MESSAGE"))
    peer.lose()
    assert [(count.count, len(count.returned.held)) for count in bench.broker.queues.values()] == [(1, 1)]
    again = Bench(bench.store, redelivery_delay=GROWING)
    other = again.peer()
    other.subscribe("/queue/a", ack="client-individual")
    assert other.next("MESSAGE").get("redelivery-count") == "1"


def test_waiting_messages_are_bounded_and_end_with_their_queue() -> None:
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
    ("text", "wanted"),
    [
        ("1s x2 up to 30s", GROWING),
        ("0s", Pauses()),
        ("250ms", Pauses(0.25, 1.0, 0.25)),
        ("1 m x1.5 up to 1h", Pauses(60.0, 1.5, 3600.0)),
        ("365d", Pauses(31_536_000.0, 1.0, 31_536_000.0)),
    ],
)
def test_texts(text: str, wanted: Pauses) -> None:
    assert pauses(text) == wanted
    assert pauses(str(wanted)) == wanted


@pytest.mark.parametrize(
    "text",
    ["1s x0 up to 30s", "-1s", "366d", "5s x2 up to 1s", "5s x0.5 up to 9s", "5s x2", "1e3s", "inf", 5, "", True],
)
def test_other_texts_are_refused_with_the_name_of_the_key(text: Any) -> None:
    with pytest.raises(ConfigError, match=r"queues\.redelivery_delay"):
        parse_config(f"[queues]\nredelivery_delay = {json.dumps(text)}\n")


@given(st.floats(0.001, 10**6), st.floats(1, 100), st.integers(1, 10**6))
def test_a_pause_never_shrinks_and_ends_at_the_longest(first: float, factor: float, failures: int) -> None:
    found = Pauses(first, factor, first * 50)
    assert found.after(1) == first
    assert found.after(failures) <= found.after(failures + 1) <= first * 50


def test_the_pause_begins_with_the_nack_however_long_the_broker_was_idle() -> None:
    bench = Bench(redelivery_delay=GROWING)
    peer = consumer(bench, "x")
    frame = peer.next("MESSAGE")
    bench.now += 50  # no turn in between
    peer.nack(frame)
    bench.wait(0.9)
    assert peer.take() == []
    bench.wait(0.2)
    assert peer.next("MESSAGE").body == b"x"
