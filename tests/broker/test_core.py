"""The broker core from the outside: connecting, errors, time, the end of a turn, and the end of everything."""

import pytest
from broker.harness import Bench

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
    bench = Bench()
    peer, other = bench.peer(), bench.peer()
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


# ---- receipts ----


@pytest.mark.req("S12-RCP-02", "S12-RCP-03", "S11-RCP-02", "S10-RCP-02")
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_every_frame_gets_its_receipt_in_order(version):
    bench = Bench()
    peer = bench.peer(version)
    peer.put("/queue/a", "x", receipt="1")
    peer.subscribe("/queue/a", ack="client", receipt="2")
    messages = [frame for frame in peer.inbox if frame.command == "MESSAGE"]
    peer.send("BEGIN", transaction="t", receipt="3")
    peer.ack(messages[0], transaction="t", receipt="4")
    peer.send("ABORT", transaction="t", receipt="5")
    peer.ack(messages[0], receipt="6")
    peer.send("BEGIN", transaction="t", receipt="7")
    peer.send("COMMIT", transaction="t", receipt="8")
    peer.send("UNSUBSCRIBE", id="1", receipt="9")
    peer.send("DISCONNECT", receipt="10")
    receipts = [frame.headers["receipt-id"] for frame in peer.take() if frame.command == "RECEIPT"]
    assert receipts == [str(number) for number in range(1, 11)]
    assert peer.closed


def test_a_receipt_of_odd_characters():
    peer = Bench().peer()
    peer.put("/queue/a", receipt=" a:b\\c\n é ")
    assert peer.next("RECEIPT").headers["receipt-id"] == " a:b\\c\n é "


@pytest.mark.req("S12-DIS-03", "S12-RCP-04")
def test_disconnect_flushes_before_the_close():
    bench = Bench()
    peer = bench.peer()
    peer.raw(
        b"SUBSCRIBE\nid:1\ndestination:/queue/a\n\n\0SEND\ndestination:/queue/a\n\nx\0DISCONNECT\nreceipt:bye\n\n\0"
        b"SEND\ndestination:/queue/a\n\nlate\0"
    )
    assert [frame.command for frame in peer.take()] == ["MESSAGE", "RECEIPT"]
    assert peer.closed
    assert not bench.broker.queues["/", "/queue/a"].count


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


def test_an_idle_broker_has_no_session_times():
    bench = Bench()
    bench.peer(), bench.peer()
    assert not bench.broker._deadlines._times


def test_times_of_sessions_that_are_gone_do_not_pile_up():
    bench = Bench()
    for _ in range(2000):
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


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_whole_frames(version):
    bench = Bench()
    peer = bench.peer(version, whole_frames=True)
    peer.subscribe("/queue/a")
    peer.subscribe("/topic/a", "2", ack="client")
    for destination in ("/queue/a", "/topic/a"):
        peer.put(destination, b"x" * 100_000, receipt="r")
    for chunk in peer.chunks:
        assert chunk.endswith(b"\0\n")
        assert len(chunk) < 50_000 or chunk.startswith(b"MESSAGE\n")
    assert sum(frame.command == "MESSAGE" for frame in peer.take()) == 2


def test_too_many_connections():
    bench = Bench(max_connections=3)
    peers = [bench.peer() for _ in range(3)]
    fourth = bench.peer(connect=False)
    bench.turn()
    assert fourth.error().headers["message"] == "too many connections"
    fourth.lose()
    peers[0].lose()
    bench.peer()
    assert len(bench.broker.sessions) == 3


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


@pytest.mark.req("S12-CON-05", "S12-LNG-01", "S11-CON-05")
def test_many_connections_leave_nothing_behind():
    bench = Bench()
    for number in range(500):
        peer = bench.peer()
        peer.subscribe("/topic/a")
        peer.subscribe("/temp-queue/a", "2")
        peer.put("/queue/a", str(number))
        peer.lose()
        del bench.peers[peer.session]
    bench.wait(100.0)
    assert not bench.broker.sessions
    assert list(bench.broker.queues) == [("/", "/queue/a")]
    assert not bench.broker.virtual_host("/").topics
    assert not bench.broker.virtual_host("/").owners
