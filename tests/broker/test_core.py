"""The broker core from the outside: connecting, errors, time, the end of a turn, and the log."""

import pytest
from broker.harness import Bench, bench_with_two

from stompcodec.spec import Limits


@pytest.mark.req("S12-LIM-04", "S11-LIM-04")
def test_limits_are_stricter_before_connected():
    small = Limits(max_command_line=16, max_header_line=64, max_headers=10, max_body=0)
    bench = Bench(first_limits=small, limits=Limits(max_body=1000))
    peer = bench.peer(connect=False)
    peer.raw(b"CONNECT\naccept-version:1.2\nhost:" + b"x" * 60 + b"\n\n\0")
    assert "limit" in peer.error().headers["message"]
    peer = bench.peer()
    peer.subscribe("/queue/a")
    peer.put("/queue/a", b"x" * 1000)
    assert peer.bodies() == [b"x" * 1000]
    peer.put("/queue/a", b"x" * 1001)
    assert "limit" in peer.error().headers["message"]


def test_a_fault_of_ours_ends_that_session_alone(caplog):
    bench, peer, other = bench_with_two()
    other.subscribe("/queue/a")
    peer.put("/queue/a")
    other.send("UNSUBSCRIBE", id="1")
    tally, bench.queue().tally = bench.queue().tally, None
    peer.put("/queue/a", receipt="r")
    bench.queue().tally = tally
    assert peer.error().headers["message"] == "internal error"
    assert "AttributeError" in caplog.text
    other.put("/queue/a", "later")
    other.subscribe("/queue/a")
    assert other.bodies() == [b"", b"later"]


def test_login_takes_too_long():
    bench = Bench(login_timeout=10.0)
    peer, quick = bench.peer(connect=False), bench.peer()
    peer.raw(b"CONNECT\nacc")
    bench.wait(9.9)
    assert not peer.closed
    bench.wait(0.2)
    assert peer.error().headers["message"] == "login took too long"
    assert not quick.closed


def test_a_stall_of_our_own_and_silence_while_we_do_not_read_are_excused():
    bench = Bench(heart_beat=(0, 1000), max_queue_messages=3)
    peer, consumer = bench.peer(connect=False), bench.peer()
    peer.connect(heart_beat="1000,0")
    bench.now += 60.0  # the loop stood still
    bench.broker.tick(bench.now)
    bench.turn()
    assert not peer.closed
    for number in range(4):
        peer.put("/queue/a", str(number))
    assert peer.session.paused
    bench.wait(100.0)
    assert not peer.closed
    consumer.subscribe("/queue/a")
    assert not peer.session.paused
    bench.wait(1.9)
    assert not peer.closed
    bench.wait(0.2)
    assert peer.closed


def test_times_of_sessions_that_are_gone_do_not_pile_up():
    bench = Bench()
    for _ in range(400):
        peer = bench.peer(connect=False)
        peer.connect(heart_beat="999999999999999999,0")
        peer.lose()
    assert len(bench.broker._deadlines._heap) < 300
    assert not bench.broker.sessions
    assert not bench.broker._deadlines._times


def test_stop_tells_everyone_and_keeps_everything():
    bench = Bench()
    peer, new = bench.peer(), bench.peer(connect=False)
    for number in range(3):
        peer.put("/queue/a", str(number), persistent="true")
    peer.subscribe("/queue/a", ack="client-individual")
    peer.ack(peer.next("MESSAGE"))
    peer.take()
    bench.broker.stop(bench.now)
    bench.turn()
    assert peer.error().headers["message"] == new.error().headers["message"] == "broker is shutting down"
    late = bench.peer(connect=False)
    bench.turn()
    assert late.error()
    again = Bench(bench.store).peer()
    again.subscribe("/queue/a", ack="client-individual")
    got = [(m.body, m.get("redelivered"), m.get("redelivery-count")) for m in again.take()]
    assert got == [(b"1", "true", "1"), (b"2", "true", "1")]


def lines(caplog):
    found = [record.getMessage() for record in caplog.records if "senders wait" in record.getMessage()]
    caplog.clear()
    return found


def test_a_full_queue(caplog):
    """Short waits are not logged."""
    bench, sender, consumer = bench_with_two(max_queue_messages=4)
    for waits in ([1, 3], [1, 3], [5]):
        consumer.subscribe("/queue/a")
        consumer.send("UNSUBSCRIBE", id="1")
        for number in range(5):
            sender.put("/queue/a", str(number))
        assert sender.session.paused
        for seconds in waits:
            bench.wait(seconds)
        assert lines(caplog) == []
    bench.wait(2)
    bench.wait(100)
    assert lines(caplog) == ["senders wait for room in /queue/a (5 messages, 205 bytes in memory, 0 consumers): 1"]
    consumer.subscribe("/queue/a")
    assert not sender.session.paused
    bench.wait(1)
    bench.wait(100)
    (line,) = lines(caplog)
    assert line.startswith("senders waited 10")
    assert line.endswith(" s for room in /queue/a (0 messages, 0 bytes in memory, 1 consumers)")


@pytest.mark.parametrize(
    ("headers", "what"),
    [
        ({}, "/queue/a (3 messages, "),
        ({"destination": "/topic/a", "delay": "1000000"}, "delayed messages for topics ("),
    ],
)
def test_memory_is_short(headers, what, caplog):
    bench, sender, listener = bench_with_two()
    listener.subscribe("/topic/a")
    bench.broker.account.first = bench.broker.account.second = 100_000
    for _ in range(3):
        sender.send("SEND", b"x" * 50_000, **{"destination": "/queue/a", **headers})
    assert sender.session.paused
    for _ in range(8):
        bench.wait(1)
    (line,) = lines(caplog)
    assert line.startswith(f"senders wait for room in {what}")
