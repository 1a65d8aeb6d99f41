"""Large messages: bodies that are files from the first octet to the last, in and out."""

from __future__ import annotations

import os
from typing import Any

import pytest
from broker.harness import Bench, Peer
from broker.large import LARGE, QUEUE, Slow, assert_empty, bench_of, files, pattern
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from stompcodec.broker.auth import Rule
from stompcodec.broker.config.config import Config

# ---- in and out ----


@pytest.mark.req("ART-LRG-01")
def test_a_body_of_that_size_is_a_file_and_a_smaller_one_is_not() -> None:
    bench = bench_of()
    sender = bench.peer()
    for size, count in ((LARGE - 1, 0), (LARGE, 1), (LARGE + 1, 2)):
        sender.put(QUEUE, b"x" * size)
        assert files(bench) == count
    assert bench.broker.spool.octets == 2 * LARGE + 1
    queue = bench.broker.queues["/", QUEUE]
    assert queue.octets < LARGE + 500, "what lies on the disk counts nothing in the bounds for memory"


def test_the_default_is_that_of_artemis() -> None:
    assert Config().large == 102_400


@pytest.mark.req("ART-LRG-02")
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_it_is_delivered_as_an_ordinary_frame(version: str, ack: str) -> None:
    bench = bench_of()
    sender, consumer = bench.peer(version), bench.peer(version)
    consumer.subscribe(QUEUE, ack=ack)
    body = pattern(700_000)
    sender.put(QUEUE, body, receipt="r", color="red")
    assert sender.next("RECEIPT").headers["receipt-id"] == "r"
    message = consumer.next("MESSAGE")
    assert message.body == body
    assert message.headers["color"] == "red"
    assert message.headers["content-length"] == "700000"
    assert message.headers.getall("content-length") == ["700000"]
    if ack != "auto":
        assert files(bench) == 1
        consumer.ack(message)
    assert consumer.take() == []
    assert_empty(bench)


@given(st.integers(LARGE, 3000), st.booleans(), st.lists(st.integers(1, 700), min_size=1, max_size=8), st.booleans())
@settings(max_examples=examples(15))
def test_however_it_comes(size: int, counted: bool, cuts: list[int], odd: bool) -> None:
    """With content-length or up to its NUL, in chunks of any size, with other frames around it in the same chunk."""
    bench = bench_of()
    sender, consumer = bench.peer(), bench.peer()
    consumer.subscribe(QUEUE)
    body = pattern(size) if counted else pattern(size).replace(b"\0", b".")
    length = b"content-length:%d\n" % size if counted else b""
    name = b"odd:a\\nb\\c\n" if odd else b""
    octets = b"SEND\ndestination:/queue/a\n\nbefore\0" + b"SEND\ndestination:/queue/a\n" + name + length + b"\n" + body
    octets += b"\0\nSEND\ndestination:/queue/a\nreceipt:r\n\nafter\0"
    at = turn = 0
    while at < len(octets):
        end = at + cuts[turn % len(cuts)]
        sender.raw(octets[at:end])
        at, turn = end, turn + 1
    frames = consumer.take()
    assert [frame.body for frame in frames] == [b"before", body, b"after"]
    assert frames[1].get("odd") == ("a\nb:" if odd else None)
    assert sender.next("RECEIPT").headers["receipt-id"] == "r"
    assert_empty(bench)


@pytest.mark.parametrize("pieces", [1, 2])
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_bodies_about_as_long_as_what_is_read_at_once(pieces: int, more: int) -> None:
    bench, sender, slow = slow_bench()
    body = pattern(pieces * 256 * 1024 + more)
    sender.put(QUEUE, body)
    sender.put(QUEUE, "after")
    for _ in range(pieces + 3):
        slow.drain()
    assert slow.bodies() == [body, b"after"]
    assert_empty(bench)


def test_versions_without_escapes() -> None:
    bench = bench_of()
    sender, consumer = bench.peer("1.2"), bench.peer("1.0")
    consumer.subscribe(QUEUE)
    sender.raw(b"SEND\ndestination:/queue/a\nodd:a\\cb\n\n" + b"x" * LARGE + b"\0")
    message = consumer.next("MESSAGE")
    assert (message.headers["odd"], message.body) == ("a:b", b"x" * LARGE)


def test_a_message_is_seen_only_when_all_of_it_is_there() -> None:
    bench = bench_of()
    sender, consumer = bench.peer(), bench.peer()
    consumer.subscribe(QUEUE)
    octets = sender.octets_of("SEND", pattern(5000), destination=QUEUE, receipt="r")
    sender.raw(octets[:-1])
    assert (consumer.take(), sender.take(), files(bench)) == ([], [], 1)
    sender.raw(octets[-1:])
    assert len(consumer.take()) == 1 == len(sender.take())


def test_whose_body_never_ends_leaves_nothing() -> None:
    bench = bench_of()
    senders = [bench.peer() for _ in range(3)]
    for sender in senders:
        sender.raw(sender.octets_of("SEND", pattern(50_000), destination=QUEUE)[:40_000])
    assert files(bench) == 3
    assert bench.broker.spool.octets > 100_000
    senders[0].lose()
    senders[1].session.fail("for a reason")
    assert files(bench) == 1
    senders[2].raw(b"x" * 100_000)  # no NUL where the body ends
    assert senders[2].error().headers["message"].startswith("malformed frame")
    assert_empty(bench)


def test_the_limit_of_bodies_holds() -> None:
    limits = Config().limits._replace(max_body=5000)
    bench = bench_of(limits=limits)
    for octets in (b"content-length:5001\n\n", b"\n" + b"x" * 5001):
        sender = bench.peer()
        sender.raw(b"SEND\ndestination:/queue/a\n" + octets)
        assert "malformed frame (limit" in sender.error().headers["message"]
    assert_empty(bench)


def test_there_is_room_for_so_much_only() -> None:
    bench = bench_of(max_large_octets=5000)
    sender, other = bench.peer(), bench.peer()
    sender.put(QUEUE, b"x" * 3000, receipt="1")
    assert sender.next("RECEIPT").headers["receipt-id"] == "1"
    sender.put(QUEUE, b"x" * 3000, receipt="2")
    error = sender.error()
    assert error.headers["message"] == "no room for large messages"
    assert error.headers["receipt-id"] == "2"
    other.subscribe(QUEUE)
    assert other.bodies() == [b"x" * 3000]
    other.put(QUEUE, b"y" * 5000)
    assert other.bodies() == [b"y" * 5000]
    assert_empty(bench)


def test_a_disk_that_fails_is_told() -> None:
    bench = bench_of(large_folder="/dev/null/nowhere")
    sender = bench.peer()
    sender.put(QUEUE, b"x" * 3000, receipt="2")
    error = sender.error()
    assert error.headers["message"] == "the large message could not be kept"
    assert error.headers["receipt-id"] == "2"


def test_who_may_not_send_there_is_refused_before_the_body_comes() -> None:
    bench = bench_of(rules=(Rule(who="*", action="subscribe"),))
    sender = bench.peer()
    sender.raw(sender.octets_of("SEND", pattern(5000), destination=QUEUE)[:2000])
    assert sender.error().headers["message"] == "not allowed to send there"
    assert_empty(bench)


def test_a_body_of_another_frame_is_dropped() -> None:
    """1.0 allows bodies everywhere."""
    bench = bench_of()
    peer = bench.peer("1.0")
    peer.raw(b"BEGIN\ntransaction:t\nreceipt:r\n\n" + b"x" * 5000 + b"\0ABORT\ntransaction:t\nreceipt:s\n\n\0")
    assert [frame.headers["receipt-id"] for frame in peer.take()] == ["r", "s"]
    assert_empty(bench)


# ---- on the way to a slow consumer ----


def slow_bench(ack: str = "auto", **config: Any) -> tuple[Bench, Peer, Slow]:
    bench = bench_of(**config)
    consumer = Slow(bench)
    consumer.connect()
    consumer.drain()
    consumer.subscribe(QUEUE, ack=ack)
    consumer.drain()
    return bench, bench.peer(), consumer


def test_it_goes_out_as_the_transport_takes_it_and_others_are_served() -> None:
    bench, sender, slow = slow_bench()
    other = bench.peer()
    other.subscribe("/queue/b")
    body = pattern(2_000_000)
    sender.put(QUEUE, body)
    taken = len(slow.octets)
    assert 0 < taken < 600_000, "a part of it, and no more than fits into the transport"
    for turn in range(8):
        sender.put("/queue/b", str(turn))
        assert other.bodies() == [str(turn).encode()]
        assert len(slow.octets) == taken, "it is full, so nothing more is read from the file"
    while not slow.inbox:
        slow.drain()
        assert len(slow.octets) - taken < 600_000
        taken = len(slow.octets)
    assert slow.next("MESSAGE").body == body
    assert_empty(bench)


def test_nothing_comes_into_the_middle_of_it() -> None:
    """Answers, heart-beats and other messages wait behind it."""
    bench = bench_of(heart_beat=(500, 0))
    sender, slow = bench.peer(), Slow(bench)
    slow.connect(heart_beat="0,500")
    slow.drain()
    slow.subscribe(QUEUE)
    slow.drain()
    body = pattern(1_000_000)
    for content in (b"first", body, b"third", body, b"fifth"):
        sender.put(QUEUE, content)
    slow.drain()
    taken = len(slow.octets)
    slow.send("BEGIN", transaction="t", receipt="r")
    slow.send("ABORT", transaction="t", receipt="s")
    bench.wait(3.0)
    assert len(slow.octets) == taken
    for _ in range(30):
        slow.drain()
    frames = slow.take()
    assert [frame.body for frame in frames if frame.command == "MESSAGE"] == [b"first", body, b"third", body, b"fifth"]
    assert [frame.get("receipt-id") for frame in frames if frame.command == "RECEIPT"] == ["r", "s"]
    assert_empty(bench)


def test_answers_that_pile_up_behind_it_stop_the_reading() -> None:
    _bench, sender, slow = slow_bench()
    sender.put(QUEUE, pattern(1_000_000))
    for _ in range(40):
        slow.raw(b"BEGIN\ntransaction:t\nreceipt:%b\n\n\0ABORT\ntransaction:t\n\n\0" % (b"r" * 30_000))
    assert slow.session.paused
    for _ in range(30):
        slow.drain()
    assert not slow.session.paused
    assert len(slow.take()) == 41


def test_what_was_under_way_when_the_peer_is_lost_is_redelivered() -> None:
    bench, sender, slow = slow_bench(ack="client-individual")
    body = pattern(1_000_000)
    sender.put(QUEUE, body)
    slow.lose()
    assert files(bench) == 1
    consumer = bench.peer()
    consumer.subscribe(QUEUE, ack="client-individual")
    message = consumer.next("MESSAGE")
    assert (message.headers["redelivered"], message.body) == ("true", body)
    consumer.ack(message)
    assert_empty(bench)


def test_an_error_in_the_middle_of_it_cuts_the_session_off() -> None:
    """There is no place for an ERROR inside of a body."""
    bench, sender, slow = slow_bench(ack="client-individual")
    sender.put(QUEUE, pattern(1_000_000))
    octets = slow.octets
    slow.send("ACK", id="77-77")
    assert slow.closed
    assert slow.octets == octets
    assert bench.broker.queues["/", QUEUE].count == 1


def test_goodbye_waits_for_it() -> None:
    bench, sender, slow = slow_bench()
    body = pattern(1_000_000)
    sender.put(QUEUE, body)
    slow.send("DISCONNECT", receipt="bye")
    assert not slow.closed
    for _ in range(10):
        bench.wait(9.0)  # longer than a peer may stand still, in all
        slow.drain()
    assert slow.next("MESSAGE").body == body
    assert slow.next("RECEIPT").headers["receipt-id"] == "bye"
    assert slow.closed


def test_goodbye_of_a_peer_that_takes_nothing_is_not_waited_for() -> None:
    bench, sender, slow = slow_bench()
    sender.put(QUEUE, pattern(1_000_000))
    slow.send("DISCONNECT", receipt="bye")
    bench.wait(25.0)
    assert slow.closed
    assert_empty(bench)


def test_a_file_that_is_gone_ends_the_session() -> None:
    bench, sender, slow = slow_bench(ack="client-individual")
    sender.put("/queue/b", pattern(1_000_000))
    folder = bench.broker.spool._folder
    assert folder is not None
    for path in folder.path.iterdir():
        if path.name != "lock":
            os.truncate(path, 300_000)
    slow.subscribe("/queue/b", id="2")
    for _ in range(10):
        if not slow.closed:
            slow.drain()
    assert slow.closed
    assert not [frame for frame in slow.take() if frame.command == "MESSAGE"]


def test_over_websocket_a_chunk_is_a_frame_or_a_part_of_one() -> None:
    bench = bench_of()
    sender, consumer = bench.peer(), bench.peer(whole_frames=True)
    consumer.whole_frames = False  # they may be parts here
    consumer.subscribe(QUEUE)
    consumer.chunks.clear()
    sender.put(QUEUE, pattern(900_000))
    assert len(consumer.chunks) == 1
    assert type(consumer.chunks[0]) is bytes, "a message of its own, as small ones are"
    sender.put(QUEUE, pattern(1_500_000))
    kinds = [type(chunk).__name__ for chunk in consumer.chunks[1:]]
    assert kinds == ["Part"] * (len(kinds) - 1) + ["bytes"]
    assert len(kinds) > 3
    assert consumer.bodies() == [pattern(900_000), pattern(1_500_000)]
    assert_empty(bench)
