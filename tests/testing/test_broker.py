"""StompBroker: frames on record, waiting for what happens, time that is set forward, stopping and starting."""

import asyncio
import re
import threading
import time

import pytest
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame
from stompcodec.broker import Config
from stompcodec.capture import Capture
from stompcodec.testing import RecordedFrame, StompBroker
from stompcodec.testing.client import OpenedClient
from stompcodec.testing.record import Record, matches

NO_BEATS = (0, 0)


@pytest.fixture
def client(broker):
    with stomp.connect(broker.url, heart_beat=NO_BEATS) as client:
        yield client


def test_both_directions_are_on_record(broker, client):
    subscription = client.subscribe("/queue/a", ack="client-individual")
    client.send("/queue/a", "hello", {"color": "red"}, receipt=True)
    subscription.get(patience(5)).ack(receipt=True)
    seen = [(frame.direction, frame.command) for frame in broker.frames]
    assert seen[:2] == [("in", "CONNECT"), ("out", "CONNECTED")]
    theirs = [("in", command) for command in ("ACK", "SEND", "SUBSCRIBE")]
    assert sorted(seen[2:]) == [*theirs, ("out", "MESSAGE"), *[("out", "RECEIPT")] * 3]
    message = broker.expect("MESSAGE")
    seen = message.body, message.headers["color"], message.get("color"), message.text()
    assert seen == (b"hello", "red", "red", "hello")
    times = [frame.at for frame in broker.frames]
    assert (times, 0 <= times[0] < 60) == (sorted(times), True)
    with stomp.connect(broker.url, login="ann", passcode="hush-hush", heart_beat=NO_BEATS):
        assert [frame.connection for frame in broker.frames if frame.command == "CONNECTED"] == [1, 2]
        broker.expect("CONNECT", login="ann")
    assert "hush-hush" not in broker.expectations() + repr(broker.frames)
    assert "ann" in broker.expectations()


@pytest.mark.parametrize(
    ("headers", "right"),
    [
        *(({"content_type": "a/b"}, True), ({"content_type": "a"}, False)),
        *(({"content_type": re.compile("b$")}, True), ({"content_type": re.compile("a$")}, False)),
        *(({"content_type": None}, False), ({"receipt": None}, True), ({"receipt": "1"}, False)),
        ({"number": 7, "x_y": "z"}, True),
    ],
)
def test_matches(headers, right):
    assert matches(Frame("SEND", {"content-type": "a/b", "number": "7", "x_y": "z"}), headers) is right


def test_a_wait_ends_though_there_is_always_something_new():
    record = Record(10)
    record.add(RecordedFrame(0, 1, "in", Frame("SEND", {"destination": "a"})))
    record.clear()
    record.wait = lambda version, timeout: not time.sleep(0.01)
    with pytest.raises(AssertionError, match=r"no SEND within 0\.05 s; no frames were recorded"):
        record.expect("SEND", {}, timeout=0.05)


def test_expect_returns_each_frame_once_and_waits_for_the_next(broker, client):
    for body in (b"1", b"2", b"3"):
        client.send("/queue/a", body, {"x-kind": body.decode()})
    assert broker.expect("SEND", x_kind=2, destination=re.compile("^/queue/")).body == b"2"
    assert [broker.expect("SEND").body for _ in range(2)] == [b"1", b"3"]
    timer = threading.Timer(0.1, client.send, ("/queue/late", b"x"))
    timer.start()
    started = time.monotonic()
    assert broker.expect("SEND", timeout=patience(10)).body == b"x"
    assert time.monotonic() - started < patience(5)
    timer.join()


def test_what_did_not_come_is_told_with_what_did(broker, client):
    client.send("/queue/other", b"x", receipt=True)
    with pytest.raises(AssertionError) as caught:
        broker.expect("SEND", destination="/queue/a", timeout=0.01)
    lines = ("no SEND destination='/queue/a' within 0.01 s", "1 > SEND destination='/queue/other'", "1 < RECEIPT")
    assert [line for line in lines if line not in str(caught.value)] == []


def test_wait_subscribed(broker, client):
    with pytest.raises(AssertionError, match="no 1 subscriptions to /topic/a"):
        broker.wait_subscribed("/topic/a", timeout=0.05)
    threading.Timer(0.1, client.subscribe, ("/topic/a",), {"confirm": False}).start()
    broker.wait_subscribed("/topic/a", timeout=patience(10))
    second = client.subscribe("/topic/a", confirm=False)
    broker.wait_subscribed("/topic/a", count=2)
    second.unsubscribe()
    with pytest.raises(AssertionError, match="no 2 subscriptions"):
        broker.wait_subscribed("/topic/a", count=2, timeout=0.05)


def test_wait_connected_and_disconnected(broker):
    with pytest.raises(AssertionError, match="no 1 connected"):
        broker.wait_connected(timeout=0.05)
    client = stomp.connect(broker.url, heart_beat=NO_BEATS)
    broker.wait_connected()
    with pytest.raises(AssertionError, match="no 2 connected"):
        broker.wait_connected(2, timeout=0.05)
    with pytest.raises(AssertionError, match="the end of all connections"):
        broker.wait_disconnected(timeout=0.05)
    client.close()
    broker.wait_disconnected()


def test_waiting_does_not_stop_an_event_loop():
    async def main():
        async with StompBroker(Config(port=0, prefetch=1)) as broker, stomp.connect_async(broker.url) as client:
            assert broker.config.prefetch == 1
            waits = broker.expect_async("SEND", timeout=patience(10)), broker.wait_subscribed_async("/queue/b")
            seen, subscribed = map(asyncio.ensure_future, waits)
            await asyncio.sleep(0.05)
            assert not seen.done()
            assert not subscribed.done()
            await client.subscribe("/queue/b")
            await client.send("/queue/a", b"x")
            await subscribed
            return (await seen).body

    assert asyncio.run(main()) == b"x"


def test_messages_expire_when_time_is_set_forward(broker, client):
    client.send("/queue/a", b"x", {"expires": str(int((time.time() + 600) * 1000))}, receipt=True)
    before = broker.clock.monotonic()
    broker.advance(590)
    assert (broker.clock.monotonic() >= before + 590, broker.queued("/queue/a")) == (True, 1)
    broker.advance(12)
    broker.wait_queued("/queue/a", 0)


def test_a_client_that_owes_a_heart_beat_is_dead(broker):
    states = []
    beats = (60_000, 0)
    with stomp.connect(broker.url, heart_beat=beats, on_state=lambda state, error: states.append(state)) as client:
        broker.advance(119)
        broker.wait_connected()
        assert client.ping() < patience(5)  # which is a sign of life
        broker.advance(121)
        broker.expect("ERROR", message="heart-beats are missing")
        broker.wait_disconnected()
        broker.wait_connected(timeout=patience(20))
    assert "reconnecting" in states


def test_no_thread_is_left():
    before = set(threading.enumerate())
    with StompBroker() as broker:
        assert set(threading.enumerate()) - before
        assert "stomp://127.0.0.1:" in repr(broker)
        with pytest.raises(OSError, match="in use"):
            StompBroker(port=broker.port).start()
    assert "stopped" in repr(broker)
    assert set(threading.enumerate()) == before


def test_stopped_and_started_again_it_is_at_the_same_place(broker, client):
    client.send("/queue/a", b"x", receipt=True)
    url = broker.url
    broker.stop()
    broker.stop()  # does nothing
    with pytest.raises(AssertionError, match="does not run"):
        broker.cut()
    broker.start()
    assert (broker.url, broker.queued("/queue/a")) == (url, 0)
    broker.wait_connected(timeout=patience(20))
    client.wait_connected(20)
    client.send("/queue/a", b"y", receipt=True)
    assert [frame.body for frame in broker.frames if frame.command == "SEND"] == [b"x", b"y"]
    times, epoch = [frame.at for frame in broker.frames], client.epoch
    assert times == sorted(times)
    assert broker.cut() == 1
    broker.wait_connected(timeout=patience(20))
    client.wait_connected(20)
    assert client.epoch > epoch


def test_all_listeners_and_what_is_stored_are_there_after_a_restart(tmp_path):
    with StompBroker(ports=(0,), ws_port=0, legacy_port=0, data=str(tmp_path), durable="all") as broker:
        before = broker.config
        assert all([before.port, before.ports[0], before.ws_port, before.legacy_port])
        with stomp.connect(broker.url, heart_beat=NO_BEATS) as client:
            client.send("/queue/a", b"kept", receipt=True)
        broker.stop()
        broker.start()
        assert broker.config == before
        with stomp.connect(broker.url, heart_beat=NO_BEATS) as client:
            assert client.subscribe("/queue/a").get(patience(5)).body == b"kept"


def test_behind_a_proxy(broker):
    with broker.proxy() as proxy:
        client = stomp.connect(f"stomp://127.0.0.1:{proxy.port}", heart_beat=NO_BEATS, reconnect=None)
        proxy.rules.up.piece = 3
        client.send("/queue/a", b"in small pieces" * 10, receipt=True)
        assert broker.expect("SEND").body == b"in small pieces" * 10
    client.close()


def test_save(broker, client, tmp_path):
    for number in range(3):
        client.send("/queue/a", f"m{number}".encode(), receipt=True)
    before = time.time() * 1e6
    assert broker.save(tmp_path / "in.stompcap") == 4
    assert broker.save(tmp_path / "out.stompcap", "out") == 4
    frames = list(Capture(tmp_path / "in.stompcap").frames())
    found = [(frame.command, frame.body) for _, _, frame in frames]
    assert found == [("CONNECT", b""), ("SEND", b"m0"), ("SEND", b"m1"), ("SEND", b"m2")]
    assert all(before - 60e6 < at <= before + 1e6 for _, at, _ in frames)
    out = [frame.command for _, _, frame in Capture(tmp_path / "out.stompcap").frames()]
    assert out == ["CONNECTED", *["RECEIPT"] * 3]


def test_heart_beats_are_no_frames(broker):
    with stomp.connect(broker.url, heart_beat=(500, 500)):
        time.sleep(0.7)
        assert [frame.command for frame in broker.frames] == ["CONNECT", "CONNECTED"]


def test_states_that_a_loop_has_not_told_are_told_without_one(broker):
    states = []
    options = {"heart_beat": NO_BEATS, "on_state": lambda state, _error: states.append(state)}
    client = OpenedClient(broker.url, reconnect=None, **options)
    client.open_here()
    asyncio.run(client.ping())
    broker.cut()
    client._link.engine.join(patience(30))
    client.close_here()
    assert states == ["connected", "closed"]


def test_a_client_that_cannot_be_opened_says_why(broker):
    broker.faults.refuse("not today")
    before = set(threading.enumerate())
    with pytest.raises(stomp.RejectedError, match="not today"):
        OpenedClient(broker.url, heart_beat=NO_BEATS).open_here()
    left = set(threading.enumerate()) - before
    for thread in left:  # one that has connected tells so first, and ends then
        thread.join(patience(10))
    assert not any(thread.is_alive() for thread in left)
