"""The broker core from the outside: connecting, errors, time, the end of a turn, and the end of everything."""

import pytest
from broker.harness import Bench, bench_with_two

from stompcodec.broker.queues.queue import Queue
from stompcodec.spec import Limits

# ---- errors ----


@pytest.mark.req("S12-ERR-02", "S12-ERR-03", "S12-ERR-04", "S11-ERR-02", "S11-ERR-03", "S12-SND-05", "S11-SND-05")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_an_error_names_the_frame_and_ends_the_session(version):
    bench = Bench()
    peer, other = bench.peer(version), bench.peer()
    peer.subscribe("/queue/a")
    peer.raw(
        b"SEND\ndestination:/queue/b\nreceipt:1\n\n\0"
        b"ABORT\ntransaction:none\nreceipt:a\\cb\n\n\0"
        b"SEND\ndestination:/queue/b\nreceipt:3\n\n\0"
    )
    receipt, error = peer.take()
    assert (receipt.command, receipt.headers["receipt-id"]) == ("RECEIPT", "1")
    assert (error.command, error.headers["receipt-id"]) == ("ERROR", "a:b")
    assert error.headers["content-type"] == "text/plain"
    assert error.get("content-length") is None
    assert b"\0" not in error.body
    assert peer.closed
    other.put("/queue/a", "x")
    assert peer.take() == []
    peer.raw(b"SEND\ndestination:/queue/b\n\n\0")
    assert bench.broker.queues["/", "/queue/b"].count == 1
    assert other.take() == []


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


def test_a_fault_of_ours_ends_that_session_alone(monkeypatch, caplog):
    _bench, peer, other = bench_with_two()
    other.subscribe("/queue/a")
    peer.put("/queue/a")
    other.send("UNSUBSCRIBE", id="1")
    monkeypatch.setattr(Queue, "put_plain", None)  # also called by the road in C if no message was READY before
    peer.put("/queue/a", receipt="r")
    monkeypatch.undo()
    assert peer.error().headers["message"] == "internal error"
    assert "TypeError" in caplog.text
    other.put("/queue/a", "later")
    other.subscribe("/queue/a")
    assert other.bodies() == [b"", b"later"]


# ---- time ----


def test_login_takes_too_long():
    bench = Bench(login_timeout=10.0)
    peer, quick = bench.peer(connect=False), bench.peer()
    peer.raw(b"CONNECT\nacc")
    bench.wait(9.9)
    assert not peer.closed
    bench.wait(0.2)
    assert peer.error().headers["message"] == "login took too long"
    assert not quick.closed


@pytest.mark.req("S12-HB-09", "S12-HB-10", "S12-HB-12", "S11-HB-09", "S11-HB-10")
def test_heart_beats_are_sent_and_wanted():
    bench = Bench(heart_beat=(500, 1000))
    peer = bench.peer(connect=False)
    assert peer.connect(heart_beat="1000,2000").headers["heart-beat"] == "500,1000"
    for _ in range(20):
        before = len(peer.octets)
        bench.wait(1.0)
        peer.raw(b"\n")
        bench.wait(1.0)
        assert b"\n" in peer.octets[before:]
        peer.raw(b"\n")
    assert not peer.closed
    bench.wait(1.9)
    assert not peer.closed
    bench.wait(0.2)
    assert peer.error().headers["message"] == "heart-beats are missing"


@pytest.mark.req("S12-HB-06", "S11-HB-06")
def test_no_heart_beats_unless_agreed():
    bench = Bench()
    peers = [bench.peer(), bench.peer(connect=False), bench.peer("1.0")]
    peers[1].connect(heart_beat="0,0")
    before = [len(peer.octets) for peer in peers]
    bench.wait(1000.0)
    assert [len(peer.octets) for peer in peers] == before
    assert not any(peer.closed for peer in peers)
    assert not bench.broker._deadlines._times


def test_messages_are_as_good_as_heart_beats():
    bench = Bench(heart_beat=(1000, 1000))
    peer, other = bench.peer(connect=False), bench.peer()
    peer.connect(heart_beat="0,1000")
    peer.subscribe("/queue/a")
    for _ in range(50):
        other.put("/queue/a", "x")
        bench.wait(0.3)
    assert b"\0\n\n" not in peer.octets
    assert len(peer.bodies()) == 50


def test_silence_while_we_do_not_read_is_excused():
    bench = Bench(heart_beat=(0, 1000), max_queue_messages=3)
    peer, consumer = bench.peer(connect=False), bench.peer()
    peer.connect(heart_beat="1000,0")
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


def test_a_stall_of_our_own_is_excused():
    bench = Bench(heart_beat=(0, 1000))
    peer = bench.peer(connect=False)
    peer.connect(heart_beat="1000,0")
    bench.now += 60.0  # the loop stood still
    bench.broker.tick(bench.now)
    bench.turn()
    assert not peer.closed
    bench.wait(2.1)
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


# ---- the shell ----


def test_a_session_is_handed_out_once_a_turn():
    bench = Bench()
    peer = bench.peer(connect=False)
    peer.session.receive(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0", 0.0)
    for _ in range(3):
        peer.session.receive(b"SEND\ndestination:/queue/a\nreceipt:1\n\n\0", 0.0)
    assert list(bench.broker.turn(0.0)) == [peer.session]
    assert list(bench.broker.turn(0.0)) == []
    assert b"".join(peer.session.take_output()).count(b"RECEIPT") == 3


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
    assert [(m.body, m.get("redelivered"), m.get("redelivery-count")) for m in again.take()] == [
        (b"1", "true", "1"),
        (b"2", "true", "1"),
    ]


def test_lost_is_taken_at_any_time_and_twice():
    bench = Bench()
    for octets in (b"", b"CONN", b"CONNECT\naccept-version:1.2\nhost:/\n\n\0", b"BAD\n"):
        peer = bench.peer(connect=False)
        peer.raw(octets)
        peer.lose()
        peer.lose()
        peer.raw(b"CONNECT\n\n\0")
        peer.session.writable(True, 0.0)
        peer.session.writable(False, 0.0)
        assert peer.session.take_output() == []
    assert not bench.broker.sessions
