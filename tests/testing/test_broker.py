"""StompBroker: frames on record, waiting, time that is set forward, stopping; and each fault, to no other frame."""

import asyncio
import contextlib
import re
import socket
import threading
import time
from urllib.parse import urlsplit

import pytest
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame, Parser
from stompcodec.broker import Config
from stompcodec.capture import Capture
from stompcodec.testing import FrameFaults, RecordedFrame, StompBroker
from stompcodec.testing.client import MovingClient
from stompcodec.testing.faults import LoopThread
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
        *(({"number": lambda text: int(text) > 6}, True), ({"number": lambda text: text == ""}, False)),
        *(({"body": each}, True) for each in (b"h\xc3\xbc", "hü", re.compile("ü$"), re.compile(b"^h"), len)),
        *(({"body": each}, False) for each in (b"h", "h", re.compile("^ü"), re.compile(b"^x"), None, 5)),
    ],
)
def test_matches(headers, right):
    assert matches(Frame("SEND", {"content-type": "a/b", "number": "7", "x_y": "z"}, "hü".encode()), headers) is right


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


def test_expect_none(broker, client):
    client.send("/queue/a", b"x", receipt=True)
    broker.expect_none("SEND", body=b"y", timeout=0.01)
    with pytest.raises(AssertionError, match=r"SEND destination='/queue/a' was not expected: .* 1 > SEND"):
        broker.expect_none("SEND", destination="/queue/a", timeout=patience(60))
    assert broker.expect("SEND").body == b"x"  # it is still to be expected
    threading.Timer(0.05, client.send, ("/queue/late", b"x")).start()
    with pytest.raises(AssertionError, match="/queue/late"):
        broker.expect_none("SEND", timeout=patience(60))


def test_what_is_near_is_shown_where_its_body_differs(broker, client):
    client.send("/queue/a", b"0123456789" * 50 + b"ab" * 20, receipt=True)
    told = "the body of one differs at byte 500: b'01234567890123456789abababababababababab', not "
    for body, end in ("0123456789" * 50, ""), (b"0123456789" * 50 + b"!", "!"):
        with pytest.raises(AssertionError) as caught:
            broker.expect("SEND", destination="/queue/a", body=body, timeout=0.01)
        assert f"within 0.01 s; {told}b'01234567890123456789{end}'; the recorded" in str(caught.value)
    with pytest.raises(AssertionError, match=r"within 0\.01 s; the recorded"):
        broker.expect("SEND", destination="/queue/b", body=b"x", timeout=0.01)
    for call in (broker.expect, broker.expect_none, broker.faults.lose):
        with pytest.raises(TypeError, match=r"body is dict: it must be bytes, str, .*; send JSON as json.dumps"):
            call("SEND", body={"id": 1})


@pytest.mark.parametrize(
    ("command", "headers", "said"),
    [
        *(("RECIEPT", {}, r"unknown command 'RECIEPT': did you mean RECEIPT\?"), ("send", {}, "did you mean SEND")),
        *(("FLY", {}, "unknown command 'FLY'$"), ("ERROR", {"destination": "/queue/a"}, "only content-length, ")),
        ("RECEIPT", {"destination": "/queue/a"}, "a RECEIPT has no header 'destination', only receipt-id"),
        ("CONNECTED", {"host": "a"}, "a CONNECTED has no header 'host'"),
    ],
)
def test_no_frame_of_such_a_command_or_with_such_a_header_can_come(broker, command, headers, said):
    for call in (broker.expect, broker.expect_none, broker.faults.lose, broker.faults.duplicate, broker.faults.cut):
        with pytest.raises(ValueError, match=said):
            call(command, **headers)


@pytest.mark.parametrize("dialect", ["stompcodec", "activemq", "rabbitmq"])
def test_messages_are_put_and_read_without_a_client(dialect):
    with StompBroker(dialect=dialect) as broker:
        broker.put("/queue/a", b"1", {"persistent": "true", "x": "a:b"})
        broker.put("/queue/a", "zwö")
        assert broker.frames == broker.messages("/queue/none") == []
        with stomp.connect(broker.url, heart_beat=NO_BEATS) as client:
            subscription = client.subscribe("/queue/a", ack="client-individual", prefetch=1)
            assert subscription.get(patience(5)).body == b"1"
            broker.put("/queue/a", b"3")
            seen = broker.messages("/queue/a")
            assert [each.body.decode() for each in seen] == ["1", "zwö", "3"]
            assert (seen[0].command, seen[0].headers["x"], seen[1].headers["content-type"]) == (
                "MESSAGE",
                "a:b",
                "text/plain;charset=utf-8",
            )
            assert (len(seen), broker.queued("/queue/a")) == (3, 3)
        with pytest.raises(ValueError, match="destination is ''"):
            broker.put("", b"")
    with StompBroker(dialect="rabbitmq") as broker, pytest.raises(ValueError, match="exchange"):
        broker.put("/exchange/none/x", b"")


PREFIXES = {"prefixes": {"anycast": "/queue/", "multicast": "/topic/"}}


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"dialect": "artemis", **PREFIXES}, ["/queue/a", "a"]),
        ({"dialect": "rabbitmq"}, ["a", "/queue/a", "/amq/queue/a"]),
        ({"dialect": "activemq"}, ["/queue/a", "a"]),
    ],
)
def test_all_calls_know_a_queue_by_all_its_names(fields, names):
    with StompBroker(**fields) as broker, stomp.connect(broker.url, heart_beat=NO_BEATS) as client:
        client.send(names[0], b"x", receipt=True)
        client.subscribe(names[0], ack="client-individual", confirm=False)
        for count, name in enumerate(names, 1):
            broker.wait_subscribed(name)
            broker.wait_queued(name, count, timeout=0.01)
            assert (broker.queued(name), len(broker.messages(name))) == (count, count)
            said = rf"no 0 messages in {name}, where {count} are \(queues with messages: (/queue/)?a\)"
            with pytest.raises(AssertionError, match=said):
                broker.wait_queued(name, 0, timeout=0.01)
            lost = broker.faults.lose("SEND", destination=name)
            client.send(names[0], b"lost")
            broker.expect("SEND", destination=name, body=b"lost")
            assert broker.inject(lambda fault=lost: fault.happened)
            broker.expect_none("SEND", destination="/topic/a", timeout=0.01)
            with pytest.raises(AssertionError, match="was not expected"):
                broker.expect_none("SEND", destination=name, timeout=0.01)
            broker.put(name, b"y")


def test_what_no_queue_can_be_is_not_empty(broker, client):
    client.send("a", b"x", receipt=True)
    client.subscribe("/temp-queue/t", ack="client-individual")
    client.send("/temp-queue/t", b"y", receipt=True)
    assert [broker.queued(name) for name in ("a", "/queue/a", "/temp-queue/t", "/temp-queue/u")] == [1, 0, 1, 0]
    for call in (broker.queued, broker.messages, lambda name: broker.wait_queued(name, 0)):
        with pytest.raises(ValueError, match="'/topic/a' is a topic, which keeps no messages"):
            call("/topic/a")
        with pytest.raises(ValueError, match="'/management/a': a reserved destination"):
            call("/management/a")
    for dialect, name in (("artemis", "a"), ("stompcodec", "/topic/a")):
        with StompBroker(dialect=dialect) as other, stomp.connect(other.url, heart_beat=NO_BEATS) as client:
            for headers in ({"destination-type": "MULTICAST"}, {}):  # the topic of the second one is already there
                with pytest.raises(ValueError, match="a topic without subscriptions"):
                    other.put(name, b"lost")
                with client.subscribe(name, headers=headers) as subscription:
                    other.put(name, b"for it")
                    assert subscription.get(patience(10)).body == b"for it"
            with pytest.raises(ValueError, match="a topic without subscriptions"):
                other.put(name, b"lost")
    durable = {"durable": "true", "auto-delete": "false", "x-queue-name": "desk"}
    with StompBroker(dialect="rabbitmq") as other, stomp.connect(other.url, heart_beat=NO_BEATS) as client:
        client.subscribe("/topic/a", headers=durable).unsubscribe()
        other.put("/topic/a", b"z")
        assert [other.queued(name) for name in ("desk", "/amq/queue/desk", "/queue/none")] == [1, 1, 0]
    with StompBroker(dialect="activemq") as other:
        other.put("/queue/a,/queue/b", b"z")
        assert [other.queued(name) for name in ("a,b", "/queue/b")] == [2, 1]


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
    assert set(threading.enumerate()) <= before


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


def test_a_client_that_cannot_be_opened_says_why(broker):
    broker.faults.refuse("not today")
    before = set(threading.enumerate())
    with pytest.raises(stomp.RejectedError, match="not today"):
        LoopThread.running("client", MovingClient(broker.url, stomp.Options(heart_beat=NO_BEATS)).open())
    left = set(threading.enumerate()) - before
    for thread in left:  # one that has connected tells so first, and ends then
        thread.join(patience(10))
    assert not any(thread.is_alive() for thread in left)


class Wire:
    """`with Wire(broker) as wire:` connects; `say` sends frames, `frame` reads one, `rest` all up to the end."""

    def __init__(self, broker, *, beats="0,0", connect=True):
        address = urlsplit(broker.url)
        self.sock = socket.create_connection((address.hostname, address.port), timeout=patience(20))
        self.parser, self.frames, self.octets = Parser("1.2"), [], b""
        if connect:
            self.say(f"CONNECT\naccept-version:1.2\nhost:/\nheart-beat:{beats}\n\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def say(self, *frames):
        self.sock.sendall(b"".join(frame.encode() + b"\0" for frame in frames))

    def read(self):
        try:
            data = self.sock.recv(65536)
        except ConnectionResetError:
            data = b""
        self.octets += data
        self.frames += self.parser.feed(data)
        return bool(data)

    def frame(self, *commands):
        while True:
            while not self.frames:
                assert self.read(), "the connection is closed"
            frame = self.frames.pop(0)
            if not commands or frame.command in commands:
                return frame

    def receipts(self, count):
        return [self.frame("RECEIPT").headers["receipt-id"] for _ in range(count)]

    def rest(self):
        while self.read():
            pass
        frames, self.frames = self.frames, []
        return frames

    def is_silent(self, seconds):
        self.sock.settimeout(seconds)
        with contextlib.suppress(TimeoutError):
            return not self.read()
        self.sock.settimeout(20)
        return True


@pytest.fixture
def wire(broker):
    with Wire(broker) as wire:
        assert wire.frame().command == "CONNECTED"
        yield wire


def send(number, destination="/queue/a"):
    return f"SEND\ndestination:{destination}\nreceipt:{number}\n\nbody {number}"


SENDS = [send(1), send(2), send(3)]
SUBSCRIBE = "SUBSCRIBE\nid:1\ndestination:/queue/a\nack:client-individual\n\n"


def told(frame):
    names = {"RECEIPT": "receipt-id", "ERROR": "message"}
    return (
        frame.body.decode() if frame.command == "MESSAGE" else f"{frame.command} {frame.headers[names[frame.command]]}"
    )


@pytest.mark.parametrize(
    ("fault", "said", "came", "queued"),
    [
        (lambda faults: faults.error("SEND", "full", nth=2), SENDS, ["RECEIPT 1", "ERROR full", "end"], 1),
        (lambda faults: faults.lose("SEND", nth=2), SENDS, ["RECEIPT 1", "RECEIPT 3"], 2),
        # What was said before a cut goes out; what the frame leads to does not.
        (lambda faults: faults.cut("SEND", nth=2), SENDS, ["RECEIPT 1", "end"], 1),
        (lambda faults: faults.cut("SEND", nth=2, after=True), SENDS, ["RECEIPT 1", "end"], 2),
        (lambda faults: faults.duplicate("SEND"), SENDS[:2], ["RECEIPT 1", "RECEIPT 1", "RECEIPT 2"], 3),
        (lambda faults: faults.lose("RECEIPT", receipt_id="2"), SENDS, ["RECEIPT 1", "RECEIPT 3"], 3),
        (lambda faults: faults.duplicate("MESSAGE"), [SUBSCRIBE, *SENDS[:2]], ["body 1", "body 1", "body 2"], 2),
        (lambda faults: faults.cut("MESSAGE", nth=2, after=True), [*SENDS, SUBSCRIBE], ["body 1", "body 2", "end"], 3),
    ],
)
def test_what_comes_of_a_fault(broker, wire, fault, said, came, queued):
    made, commands = fault(broker.faults), ("MESSAGE",) if SUBSCRIBE in said else ("RECEIPT", "ERROR")
    wire.say(*said)
    frames = [wire.frame(*commands) for _ in range(len(came) - came.count("end"))]
    found = list(map(told, frames))
    if "end" in came:
        found += [told(frame) for frame in wire.rest() if frame.command in commands] + ["end"]
        broker.wait_disconnected()
    elif said == SENDS:  # all are on record
        assert [seen.body for seen in broker.frames if seen.command == "SEND"] == [b"body 1", b"body 2", b"body 3"]
    assert (found, made.happened, broker.queued("/queue/a")) == (came, 1, queued)
    assert frames[-1].command != "ERROR" or frames[-1].headers["receipt-id"] == "2"


def test_refuse(broker):
    fault = broker.faults.refuse("not today", times=3)
    for command in ("CONNECT", "STOMP"):
        with Wire(broker, connect=False) as wire:
            wire.say(f"{command}\naccept-version:1.2\nhost:/\n\n")
            (error,) = wire.rest()
            assert (error.command, error.headers["message"]) == ("ERROR", "not today")
    with pytest.raises(stomp.RejectedError, match="not today"):
        stomp.connect(broker.url)
    with Wire(broker) as wire:
        assert (wire.frame().command, fault.happened) == ("CONNECTED", 3)


def test_a_cut_lets_go_of_what_was_not_acknowledged(broker, wire):
    wire.say(send(1), SUBSCRIBE)
    assert [wire.frame().command, wire.frame().command] == ["RECEIPT", "MESSAGE"]
    broker.faults.cut("ACK")
    wire.say("ACK\nid:1-1\n\n")
    assert wire.rest() == []
    with Wire(broker) as other:
        other.say(SUBSCRIBE, send(2))
        messages = [other.frame("MESSAGE") for _ in range(2)]
        assert [(each.body, each.get("redelivered")) for each in messages] == [(b"body 1", "true"), (b"body 2", None)]


def test_change_a_clients_frame(broker, wire):
    broker.faults.change(
        "SEND", lambda frame: Frame("SEND", {**frame.headers, "destination": "/queue/b"}, frame.body[::-1])
    )
    wire.say(send(1))
    assert wire.receipts(1) == ["1"]
    assert (broker.queued("/queue/a"), broker.queued("/queue/b")) == (0, 1)


@pytest.mark.parametrize("octets", [0, 20])
def test_cut_in_the_middle_of_a_message(broker, wire, octets):
    wire.say(send(1))
    assert wire.receipts(1) == ["1"]
    before = len(wire.octets)
    broker.faults.cut("MESSAGE", octets=octets)
    wire.say(SUBSCRIBE)
    assert wire.rest() == []
    assert wire.octets[before:].lstrip(b"\n") == b"MESSAGE\nsubscription:1\n"[:octets]
    broker.wait_disconnected()
    assert broker.queued("/queue/a") == 1


def test_what_is_delayed_comes_when_its_time_has_come(broker, wire):
    """Not with the next thing that the broker has to do, which is a second later."""
    broker.faults.delay("RECEIPT", 0.01, times=None)
    started = time.monotonic()
    for number in range(12):
        wire.say(send(number))
        assert wire.receipts(1) == [str(number)]
    assert time.monotonic() - started < patience(6)


def test_frames_and_the_end_of_the_connection_are_delayed(broker, wire):
    broker.faults.delay("RECEIPT", 0.2, nth=2)
    started = time.monotonic()
    wire.say(*SENDS)
    assert wire.receipts(3) == ["1", "2", "3"]
    assert time.monotonic() - started >= 0.2
    broker.faults.delay("RECEIPT", 0.2)
    started = time.monotonic()
    wire.say(send(1), "SEND\n\nno destination")
    assert [frame.command for frame in wire.rest()] == ["RECEIPT", "ERROR"]
    assert time.monotonic() - started >= 0.2


def test_what_is_delayed_when_the_client_goes_is_lost(broker, wire):
    broker.faults.delay("RECEIPT", 0.2)
    wire.say(send(1))
    broker.expect("RECEIPT")
    wire.sock.close()
    broker.wait_disconnected()
    time.sleep(0.3)  # what comes then must do no harm
    with Wire(broker) as other:
        assert other.frame().command == "CONNECTED"


def test_change_what_the_broker_sends(broker, wire):
    broker.faults.change(
        "MESSAGE", lambda frame: Frame("MESSAGE", {**frame.headers, "ack": "no-such"}, frame.body + b" and more")
    )
    broker.faults.lose("RECEIPT", receipt_id="1")
    wire.say(SUBSCRIBE, send(1), send(2))
    message = wire.frame("MESSAGE")
    seen = message.body, message.headers["ack"], message.headers["content-length"]
    assert seen == (b"body 1 and more", "no-such", "15")
    assert broker.expect("MESSAGE").body == b"body 1"  # on record is what the broker meant
    assert wire.receipts(1) == ["2"]
    broker.faults.change("ERROR", lambda frame: Frame("ERROR", {**frame.headers, "x": "y"}, frame.body))
    with Wire(broker) as other:
        other.say("SEND\n\nno destination")
        error = other.frame("ERROR")
        assert (error.headers["x"], "content-length" in error.headers) == ("y", False)
    broker.faults.change("RECEIPT", lambda frame: b"NONSENSE\n\n\0", receipt_id="3")
    wire.say(send(3))
    with pytest.raises(ValueError, match="NONSENSE"):
        wire.frame("RECEIPT")


def test_crlf(broker, wire):
    broker.faults.crlf("RECEIPT")
    broker.faults.crlf("MESSAGE")
    wire.say(SUBSCRIBE, "SEND\ndestination:/queue/a\nreceipt:1\n\none\n\ntwo\n")
    frames = {frame.command: frame for frame in (wire.frame(), wire.frame())}
    assert frames["MESSAGE"].body == b"one\n\ntwo\n"
    assert b"RECEIPT\r\nreceipt-id:1\r\n\r\n\0" in wire.octets
    assert b"\r\n\r\none\n\ntwo\n\0" in wire.octets


def test_several_faults_of_one_frame(broker, wire):
    broker.faults.cut("MESSAGE", octets=11)
    broker.faults.duplicate("MESSAGE")
    broker.faults.crlf("MESSAGE")
    broker.faults.repeat_headers("MESSAGE")
    wire.say(SUBSCRIBE, "SEND\ndestination:/queue/a\n\nbody")
    assert wire.rest() == []
    assert wire.octets.endswith(b"\n\n\0\nMESSAGE\r\nsu")  # of the first one of two


def test_silence_and_clear(broker):
    with Wire(broker, beats="0,500") as wire:
        broker.faults.lose("SEND", times=None, receipt="0")
        broker.faults.silent = True
        wire.say(send(0), send(1))
        assert wire.receipts(1) == ["1"]
        assert wire.is_silent(0.8)
        before = len(wire.octets)
        broker.faults.clear()
        assert not broker.faults.silent
        while len(wire.octets) == before:
            assert wire.read()
        assert wire.octets[before:].strip(b"\n") == b""
        wire.say(send(0))
        assert wire.receipts(1) == ["0"]


@pytest.mark.parametrize(
    ("command", "change", "error", "text"),
    [
        ("SEND", lambda frame: frame.headers["no-such"] and frame, KeyError, "no-such"),
        ("RECEIPT", lambda frame: {}["nothing"], KeyError, "nothing"),
        ("SEND", lambda frame: b"SEND\n\n\0", TypeError, "it must return Frame; lose drops a SEND"),
        ("RECEIPT", lambda frame: None, TypeError, "change returned None: it must return Frame or bytes"),
        ("RECEIPT", lambda frame: Frame("BAD", {}), ValueError, "BAD"),
    ],
)
def test_a_change_into_what_cannot_be_is_told_at_the_end(command, change, error, text):
    broker = StompBroker()
    broker.start()
    broker.faults.change(command, change)
    with Wire(broker) as wire:
        wire.say(send(1), send(2))
        # It goes on as if nothing had been asked, but what cannot be written is lost.
        assert [wire.frame().command, wire.frame().command] == ["CONNECTED", "RECEIPT"]
        assert broker.expect("RECEIPT").headers["receipt-id"] == "1"
    with pytest.raises(error, match=text):
        broker.stop()
    broker.start()
    broker.stop()  # it is told once


def test_what_a_newcomer_writes_first_loses_nothing(tmp_path):
    texts, dead = [], "/queue/ActiveMQ.DLQ"
    with StompBroker(data=str(tmp_path)) as broker:
        with stomp.connect(broker.url, heart_beat=NO_BEATS) as client:
            client.send("/queue/a", b'{"id": 1}', receipt=True)  # neither persistent nor with a content-type
        broker.stop()
        broker.start()
        with stomp.connect(broker.url, heart_beat=NO_BEATS) as client:
            subscription = client.subscribe("/queue/a", handler=lambda message: texts.append(message.text()))
            broker.wait_queued("/queue/a", 0)
            assert (texts, subscription.ack) == (['{"id": 1}'], "client-individual")
    with StompBroker(dialect="activemq") as broker, stomp.connect(broker.url, heart_beat=NO_BEATS) as client:
        client.subscribe("/queue/a", handler=lambda message: 1 / 0, attempts=1)
        client.send("/queue/a", b"1", persistent=True, receipt=True)
        broker.wait_queued(dead, 1, timeout=patience(10))
        assert [broker.expect("NACK").command, *(each.body for each in broker.messages(dead))] == ["NACK", b"1"]
        broker.expect_none("MESSAGE", redelivered="true", timeout=0.01)


def test_a_fault_that_never_happens_fails_the_test():
    said = r"a fault never happened .*: lose\('SEND', nth=3, destination='/q'\), after 2 matching frames$"

    def play(broker):
        broker.faults.duplicate("SEND", body=b"2")
        broker.faults.lose("SEND", nth=3, destination="/q")
        with stomp.connect(broker.url) as client:
            client.send_many([("/q", b"1"), ("/q", b"2"), ("/r", b"3")])
        assert broker.queued("/q") == 3

    with pytest.raises(AssertionError, match=said), StompBroker() as broker:
        play(broker)
    with pytest.raises(ZeroDivisionError), StompBroker() as broker:  # one error is enough
        broker.faults.lose("SEND", nth=1 // len(broker.faults.lose("SEND").headers))
    with StompBroker() as broker, StompBroker() as other:
        broker.faults.lose("SEND")
        broker.faults.clear()
        other.faults.crlf()
        other.faults.keep()
        other.end_test()
        assert len(other.faults.due(Frame("MESSAGE"))) == 1
        other.faults.clear()
        other.end_test()
        assert other.faults.due(Frame("MESSAGE")) == []
        other.faults.lose("SEND")
        other.faults.strict = False


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda faults: faults.error("MESSAGE"), "error is for clients' frames, and MESSAGE is none"),
        (lambda faults: faults.delay("SEND", 1), "delay is for the broker's frames, and SEND is none"),
        (lambda faults: faults.crlf("SEND"), "crlf is for the broker's frames, and SEND is none"),
        (lambda faults: faults.cut("SEND", octets=3), "octets is 3: it counts bytes of frames"),
        (lambda faults: faults.cut("MESSAGE", octets=3, after=True), "octets is 3: it counts bytes of frames"),
        (lambda faults: faults.cut("MESSAGE", octets=-5), "octets is -5: it counts bytes of frames"),
        (lambda faults: faults.lose("SEND", nth=0), "nth is 0 and times 1: both count from 1"),
        (lambda faults: faults.lose("SEND", times=0), "nth is 1 and times 0: both count from 1"),
        (lambda faults: StompBroker().advance(-1), "seconds is -1: time cannot go back"),
        (lambda faults: setattr(faults, "silnt", True), "'silnt'"),
    ],
)
def test_what_makes_no_sense_is_refused(call, says):
    with pytest.raises((AttributeError, ValueError), match=says):
        call(FrameFaults())
