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
    """`with Wire(broker) as wire:` connects; `say` sends frames, `frame` reads one, `rest` all up to the end."""

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
    """The session gets no more messages, though its socket is still open."""
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
    broker.faults.change("SEND", lambda frame: None, times=None)
    wire.say(send(2), SUBSCRIBE, "UNSUBSCRIBE\nid:1\nreceipt:u\n\n")
    assert wire.receipts(1) == ["u"]
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
    """Also into octets and into nothing. An ERROR keeps to its form, without a content-length."""
    broker.faults.change(
        "MESSAGE", lambda frame: Frame("MESSAGE", {**frame.headers, "ack": "no-such"}, frame.body + b" and more")
    )
    broker.faults.change("RECEIPT", lambda frame: None, receipt_id="1")
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
    """In the order of the table: changed, then its lines, then twice, then the cut."""
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
        ("SEND", lambda frame: b"SEND\n\n\0", TypeError, "into a frame only"),
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


@pytest.mark.parametrize(
    "call",
    [
        *(lambda faults: faults.error("MESSAGE"), lambda faults: faults.delay("SEND", 1)),
        *(lambda faults: faults.crlf("SEND"), lambda faults: faults.cut("SEND", octets=3)),
        *(lambda faults: faults.cut("MESSAGE", octets=3, after=True), lambda faults: faults.lose("SEND", nth=0)),
        lambda faults: faults.lose("SEND", times=0),
    ],
)
def test_what_makes_no_sense_is_refused(call):
    with pytest.raises(ValueError, match=r"frames|count from 1"):
        call(FrameFaults())
