"""What a broker in a test does wrong: each fault, to the frame that is meant and to no other."""

import contextlib
import socket
import time
from urllib.parse import urlsplit

import pytest
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame, Parser
from stompcodec.testing import FrameFaults, StompBroker


class Wire:
    """`with Wire(broker) as wire:` connects; `say` sends a frame, `frame` reads one, `rest` all up to the end."""

    def __init__(self, broker, *, beats="0,0", connect=True):
        address = urlsplit(broker.url)
        self.sock = socket.create_connection((address.hostname, address.port), timeout=patience(20))
        self.parser = Parser("1.2")
        self.frames = []
        self.octets = b""
        if connect:
            self.say(f"CONNECT\naccept-version:1.2\nhost:/\nheart-beat:{beats}\n\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def say(self, text):
        self.sock.sendall(text.encode() + b"\0")

    def read(self):
        try:
            data = self.sock.recv(65536)
        except ConnectionResetError:
            data = b""
        self.octets += data
        self.frames += self.parser.feed(data)
        return bool(data)

    def frame(self):
        while not self.frames:
            assert self.read(), "the connection is closed"
        return self.frames.pop(0)

    def commands(self, count):
        return [self.frame().command for _ in range(count)]

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
def broker():
    with StompBroker() as broker:
        yield broker


@pytest.fixture
def wire(broker):
    with Wire(broker) as wire:
        assert wire.frame().command == "CONNECTED"
        yield wire


def send(number, destination="/queue/a"):
    return f"SEND\ndestination:{destination}\nreceipt:{number}\n\nbody {number}"


def subscribe(destination="/queue/a", ack="client-individual"):
    return f"SUBSCRIBE\nid:1\ndestination:{destination}\nack:{ack}\n\n"


# ---- clients' frames ----


def test_refuse(broker):
    """Also the command STOMP."""
    fault = broker.faults.refuse("not today", times=3)
    for command in ("CONNECT", "STOMP"):
        with Wire(broker, connect=False) as wire:
            wire.say(f"{command}\naccept-version:1.2\nhost:/\n\n")
            (error,) = wire.rest()
            assert (error.command, error.headers["message"]) == ("ERROR", "not today")
    with pytest.raises(stomp.RejectedError, match="not today"):
        stomp.connect(broker.url)
    with Wire(broker) as wire:
        assert wire.frame().command == "CONNECTED"
    assert fault.happened == 3


def test_error_at_the_nth(broker, wire):
    broker.faults.error("SEND", "full", nth=2)
    for number in (1, 2, 3):
        wire.say(send(number))
    receipt, error = wire.rest()
    assert receipt.headers["receipt-id"] == "1"
    assert (error.command, error.headers["message"], error.headers["receipt-id"]) == ("ERROR", "full", "2")
    assert broker.queued("/queue/a") == 1


def test_lose_a_clients_frame(broker, wire):
    broker.faults.lose("SEND", nth=2)
    for number in (1, 2, 3):
        wire.say(send(number))
    assert [wire.frame().headers["receipt-id"] for _ in range(2)] == ["1", "3"]
    assert broker.queued("/queue/a") == 2
    assert [seen.body for seen in broker.frames if seen.command == "SEND"] == [b"body 1", b"body 2", b"body 3"]


@pytest.mark.parametrize(("after", "pending"), [(False, 1), (True, 2)])
def test_cut_at_a_clients_frame(broker, wire, after, pending):
    """What was said before goes out; what the frame leads to does not."""
    broker.faults.cut("SEND", nth=2, after=after)
    wire.say(send(1) + "\0" + send(2) + "\0" + send(3))
    assert [frame.headers["receipt-id"] for frame in wire.rest()] == ["1"]
    broker.wait_disconnected()
    assert broker.queued("/queue/a") == pending


def test_cut_after_a_stored_message_loses_its_receipt_only(tmp_path):
    with StompBroker(data=str(tmp_path), durable="all") as broker, Wire(broker) as wire:
        broker.faults.cut("SEND", after=True)
        wire.say(send(1))
        assert [frame.command for frame in wire.rest()] == ["CONNECTED"]
        assert broker.queued("/queue/a") == 1


def test_a_cut_lets_go_of_what_was_not_acknowledged(broker, wire):
    """The session gets no more messages, though its socket is still open."""
    wire.say(send(1) + "\0" + subscribe())
    assert wire.commands(2) == ["RECEIPT", "MESSAGE"]
    broker.faults.cut("ACK")
    wire.say("ACK\nid:1-1\n\n")
    assert wire.rest() == []
    with Wire(broker) as other:
        other.say(subscribe() + "\0" + send(2))
        assert other.frame().command == "CONNECTED"
        messages = [frame for frame in (other.frame() for _ in range(3)) if frame.command == "MESSAGE"]
        assert [(frame.body, frame.get("redelivered")) for frame in messages] == [
            (b"body 1", "true"),
            (b"body 2", None),
        ]


def test_duplicate_a_clients_frame(broker, wire):
    broker.faults.duplicate("SEND")
    wire.say(send(1))
    wire.say(send(2))
    assert [wire.frame().headers["receipt-id"] for _ in range(3)] == ["1", "1", "2"]
    assert broker.queued("/queue/a") == 3


def test_change_a_clients_frame(broker, wire):
    """Also into nothing."""
    broker.faults.change(
        "SEND", lambda frame: Frame("SEND", {**frame.headers, "destination": "/queue/b"}, frame.body[::-1])
    )
    wire.say(send(1))
    assert wire.frame().command == "RECEIPT"
    broker.faults.change("SEND", lambda frame: None, times=None)
    wire.say(send(2) + "\0" + subscribe() + "\0" + "UNSUBSCRIBE\nid:1\nreceipt:u\n\n")
    assert wire.frame().headers["receipt-id"] == "u"
    assert (broker.queued("/queue/a"), broker.queued("/queue/b")) == (0, 1)


# ---- the broker's frames ----


def test_lose_a_receipt(broker, wire):
    broker.faults.lose("RECEIPT", receipt_id="2")
    for number in (1, 2, 3):
        wire.say(send(number))
    assert [wire.frame().headers["receipt-id"] for _ in range(2)] == ["1", "3"]
    assert broker.queued("/queue/a") == 3
    assert broker.expect("RECEIPT", receipt_id="2")


def test_duplicate_a_message(broker, wire):
    broker.faults.duplicate("MESSAGE")
    wire.say(subscribe() + "\0" + send(1) + "\0" + send(2))
    frames = [wire.frame() for _ in range(5)]
    bodies = [frame.body for frame in frames if frame.command == "MESSAGE"]
    assert bodies == [b"body 1", b"body 1", b"body 2"]


@pytest.mark.parametrize("octets", [0, 20])
def test_cut_in_the_middle_of_a_message(broker, wire, octets):
    wire.say(send(1))
    assert wire.frame().command == "RECEIPT"
    before = len(wire.octets)
    broker.faults.cut("MESSAGE", octets=octets)
    wire.say(subscribe())
    assert wire.rest() == []
    assert wire.octets[before:].lstrip(b"\n") == b"MESSAGE\nsubscription:1\n"[:octets]
    broker.wait_disconnected()
    assert broker.queued("/queue/a") == 1


def test_cut_after_a_message(broker, wire):
    broker.faults.cut("MESSAGE", after=True, nth=2)
    wire.say(send(1) + "\0" + send(2) + "\0" + send(3) + "\0" + subscribe())
    assert [frame.body for frame in wire.rest() if frame.command == "MESSAGE"] == [b"body 1", b"body 2"]


def test_delay(broker, wire):
    broker.faults.delay("RECEIPT", 0.3, nth=2)
    started = time.monotonic()
    for number in (1, 2, 3):
        wire.say(send(number))
    assert [wire.frame().headers["receipt-id"] for _ in range(3)] == ["1", "2", "3"]
    assert time.monotonic() - started >= 0.3


def test_what_is_delayed_comes_when_its_time_has_come(broker, wire):
    """Not with the next thing that the broker has to do, which is a second later."""
    broker.faults.delay("RECEIPT", 0.01, times=None)
    started = time.monotonic()
    for number in range(12):
        wire.say(send(number))
        assert wire.frame().headers["receipt-id"] == str(number)
    assert time.monotonic() - started < patience(6)


def test_the_end_of_the_connection_is_delayed_too(broker, wire):
    broker.faults.delay("RECEIPT", 0.2)
    started = time.monotonic()
    wire.say(send(1))
    wire.say("SEND\n\nno destination")
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


def test_change_a_message(broker, wire):
    def change(frame):
        return Frame(frame.command, {**frame.headers, "ack": "no-such"}, frame.body + b" and more")

    broker.faults.change("MESSAGE", change)
    wire.say(subscribe() + "\0" + send(1))
    message = next(frame for frame in (wire.frame(), wire.frame()) if frame.command == "MESSAGE")
    seen = message.body, message.headers["ack"], message.headers["content-length"]
    assert seen == (b"body 1 and more", "no-such", "15")
    assert broker.expect("MESSAGE").body == b"body 1"  # on record is what the broker meant


def test_change_into_octets_and_into_nothing(broker, wire):
    broker.faults.change("RECEIPT", lambda frame: None, receipt_id="1")
    broker.faults.change("RECEIPT", lambda frame: b"NONSENSE\n\n\0", receipt_id="3")
    wire.say(send(1) + "\0" + send(2))
    assert wire.frame().headers["receipt-id"] == "2"
    wire.say(send(3))
    with pytest.raises(ValueError, match="NONSENSE"):
        wire.frame()


def test_an_error_keeps_to_its_form_when_it_is_changed(broker, wire):
    broker.faults.change("ERROR", lambda frame: Frame("ERROR", {**frame.headers, "x": "y"}, frame.body))
    wire.say("SEND\n\nno destination")
    error = wire.frame()
    assert error.headers["x"] == "y"
    assert "content-length" not in error.headers


def test_crlf(broker, wire):
    broker.faults.crlf("RECEIPT")
    broker.faults.crlf("MESSAGE")
    wire.say(subscribe() + "\0" + "SEND\ndestination:/queue/a\nreceipt:1\n\none\n\ntwo\n")
    frames = {frame.command: frame for frame in (wire.frame(), wire.frame())}
    assert frames["MESSAGE"].body == b"one\n\ntwo\n"
    assert b"RECEIPT\r\nreceipt-id:1\r\n\r\n\0" in wire.octets
    assert b"\r\n\r\none\n\ntwo\n\0" in wire.octets


def test_repeat_headers(broker, wire):
    broker.faults.repeat_headers()
    wire.say(subscribe() + "\0" + "SEND\ndestination:/queue/a\n\nbody")
    message = wire.frame()
    assert message.headers.getall("destination") == ["/queue/a", "the second entry"]
    assert message.headers.getall("content-length") == ["4"]


def test_several_faults_of_one_frame(broker, wire):
    """In the order of the table: changed, then its lines, then twice, then the cut."""
    broker.faults.cut("MESSAGE", octets=11)
    broker.faults.duplicate("MESSAGE")
    broker.faults.crlf("MESSAGE")
    broker.faults.repeat_headers("MESSAGE")
    wire.say(subscribe() + "\0" + "SEND\ndestination:/queue/a\n\nbody")
    assert wire.rest() == []
    assert wire.octets.endswith(b"\n\n\0\nMESSAGE\r\nsu")  # of the first one of two


def test_silence(broker):
    with Wire(broker, beats="0,500") as wire:
        assert wire.frame().command == "CONNECTED"
        broker.faults.silent = True
        wire.say(send(1))
        assert wire.frame().command == "RECEIPT"
        assert wire.is_silent(0.8)
        broker.faults.silent = False
        before = len(wire.octets)
        while len(wire.octets) == before:
            assert wire.read()
        assert wire.octets[before:].strip(b"\n") == b""


def test_clear(broker, wire):
    broker.faults.lose("SEND", times=None)
    broker.faults.silent = True
    wire.say(send(1))
    broker.expect("SEND")
    broker.faults.clear()
    assert not broker.faults.silent
    wire.say(send(2))
    assert wire.frame().headers["receipt-id"] == "2"


# ---- what a test asks for that cannot be done ----


@pytest.mark.parametrize(
    ("command", "change", "error", "text"),
    [
        ("SEND", lambda frame: frame.headers["no-such"] and frame, KeyError, "no-such"),
        ("RECEIPT", lambda frame: {}["nothing"], KeyError, "nothing"),
        ("SEND", lambda frame: b"SEND\n\n\0", TypeError, "into a frame only"),
        ("RECEIPT", lambda frame: Frame("BAD", {}), ValueError, "BAD"),
    ],
)
def test_a_change_into_what_cannot_be_is_told_at_the_end(command, change, error, text):
    broker = StompBroker()
    broker.start()
    broker.faults.change(command, change)
    with Wire(broker) as wire:
        wire.say(send(1) + "\0" + send(2))
        # It goes on as if nothing had been asked, but what cannot be written is lost.
        assert wire.commands(2) == ["CONNECTED", "RECEIPT"]
        assert broker.expect("RECEIPT").headers["receipt-id"] == "1"
    with pytest.raises(error, match=text):
        broker.stop()
    broker.start()
    broker.stop()  # it is told once


def test_what_makes_no_sense_is_refused():
    faults = FrameFaults()
    for call in (
        lambda: faults.error("MESSAGE"),
        lambda: faults.delay("SEND", 1),
        lambda: faults.crlf("SEND"),
        lambda: faults.cut("SEND", octets=3),
        lambda: faults.cut("MESSAGE", octets=3, after=True),
        lambda: faults.lose("SEND", nth=0),
        lambda: faults.lose("SEND", times=0),
    ):
        with pytest.raises(ValueError, match=r"frames|count from 1"):
            call()


def test_counting():
    faults = FrameFaults()
    fault = faults.lose("SEND", nth=2, times=2, destination="/queue/a")
    mine, other = (Frame("SEND", {"destination": f"/queue/{name}"}) for name in "ab")
    hits = [bool(faults.due(frame)) for frame in (mine, other, mine, other, mine, mine)]
    assert hits == [False, False, True, False, True, False]
    assert (fault.matched, fault.happened) == (4, 2)
    always = faults.lose("ACK", times=None)
    assert all(faults.due(Frame("ACK", {"id": "1"})) for _ in range(50))
    assert always.happened == 50
