"""A thread that waits for a receipt or a message reads it itself; the I/O thread reads whatever else comes."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from functools import partial

import pytest
from client.busy import busy_hub
from client.feeding import wait_for
from client.test_interrupts import interrupted, is_sound
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame, Limits, serialize
from stompcodec.client import engine
from stompcodec.client.core import ClientCore
from stompcodec.client.messages import Subscription
from stompcodec.client.owner import WireOwner
from stompcodec.client.sync import waiting
from stompcodec.transport.sync import AHEAD

pytestmark = pytest.mark.skipif(not hasattr(waiting.select, "poll"), reason="no poll here")
LONG = 60.0
OPTIONS = {"heart_beat": (0, 0), "receipt_timeout": LONG, "reconnect": stomp.Backoff(first=0.01, most=0.02)}


@pytest.fixture
def kept(monkeypatch):
    """A lent socket stays with the waiting threads, and callers always write themselves.

    Not for ever: a poll may begin just after the I/O thread took the socket back, and then finds nothing.
    """
    monkeypatch.setattr(engine, "_IDLE", patience(5))
    monkeypatch.setattr(engine, "_GATHER", -1.0)


@pytest.fixture
def client(peer):
    with stomp.connect(peer.url, **OPTIONS) as client:
        yield client


def is_lent(client) -> bool:
    return client._link.engine.look(lambda: (owner := client._link.engine._owner) and owner.wire.is_lent)


def talk(client) -> None:
    """Have a conversation until waiting threads read."""
    wait_for(lambda: is_lent(client) or client.send("/queue/a", b"x", receipt=True))


@contextlib.contextmanager
def polling(client):
    """At the end, the thread that was started inside polls the socket, for a call made inside or for messages."""
    engine, delivery, calls = client._link.engine, client._link.delivery, client._link.core.link.calls
    before, poll = (delivery.read, calls.read), delivery.selector.poll

    def patient_poll(timeout):
        while True:
            with contextlib.suppress(RuntimeError):  # this function's thread has the poll below
                return poll(timeout)

    delivery.read, calls.read = partial(engine.read_messages, patient_poll), partial(engine.read_for, patient_poll)
    yield
    until = time.monotonic() + patience(LONG)
    with contextlib.suppress(RuntimeError):  # that thread polls
        while True:
            poll(0)
            time.sleep(0.001)  # else it hardly gets a chance
            assert time.monotonic() < until
    delivery.read, calls.read = before


def has_ended(side) -> bool:
    """Return whether the client has ended this connection."""
    try:
        while not side.closed and side.sock.recv(65536, socket.MSG_DONTWAIT):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def reconnect_in_the_middle_of_a_body(client, peer) -> list[bool]:
    """Break off an upload; return what `has_ended` said of the earlier connections at the next CONNECT."""
    ended: list[bool] = []

    def on_connect(side, frame) -> None:
        ended.extend(has_ended(each) for each in peer.sides if each is not side)
        peer.on_connect(side, frame)

    peer.rules["CONNECT"] = on_connect
    with pytest.raises(stomp.BodySourceError):
        client.send("/queue/b", iter([b"x"]), length=2)
    peer.wait(lambda _: ended)
    return ended


def test_a_connection_has_ended_before_the_next_one_begins(kept, client, peer) -> None:
    """Also while a thread waits in the system for its bytes: else the broker may send messages there."""
    lost, held = [], []
    talk(client)
    peer.rules["SEND"] = lambda side, frame: held.append(frame)

    def wait() -> None:
        try:
            client.send("/queue/a", b"x", receipt=True)
        except stomp.ConnectionLostError as error:
            lost.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    with polling(client):
        thread.start()
    assert reconnect_in_the_middle_of_a_body(client, peer) == [True]
    thread.join(patience(LONG))
    assert len(lost) == 1
    assert client.epoch == 2


def test_an_interrupt_at_each_place_loses_nothing(client, peer, monkeypatch) -> None:
    """Neither the connection nor a frame; each message is sent at most once, in order."""
    monkeypatch.setattr(engine, "_GATHER", -1.0)
    place, lent, going_on = 1, 0, True
    while going_on:
        talk(client)
        text = b"%d" % place
        going_on = interrupted(lambda text=text: client.send("/queue/b", text, receipt=True), place)
        lent += is_lent(client)
        is_sound(client)
        place += 1
        assert place < 1500
    client.send("/queue/b", b"last", receipt=True)
    *numbers, last = [frame.body for frame in peer.got("SEND", destination="/queue/b")]
    assert last == b"last"
    assert [int(number) for number in numbers] == sorted({int(number) for number in numbers})
    assert int(numbers[-1]) == place - 1
    assert lent > 5
    assert client.epoch == 1
    assert not client._link.core.link.calls.sent


class Ahead:
    """A wire that has read these bytes ahead."""

    def __init__(self, octets: bytes) -> None:
        self.octets = octets
        self.ahead = [len(octets)]

    def read_ahead(self) -> bytes:
        return self.octets


@pytest.mark.parametrize("behind", [b"", b"x"])
@pytest.mark.parametrize("subscription", ["s", "gone"])
def test_a_streamed_body_may_look_like_a_receipt(subscription, behind) -> None:
    """The head of its frame, and perhaps some of it, was read before."""
    core = ClientCore(stomp.Options(heart_beat=(0, 0), stream_over=4096), lambda: "id")
    core.link.opened(0.0, host="h", login=None, passcode=None, whole_frames=False)
    core.inbound.receive(b"CONNECTED\nversion:1.2\n\n\0", 0.1)
    core.inbound.subscribe(Subscription("/queue/a", id="s"), 0.1, core.link.calls.make("SUBSCRIBE", 30.0, "SUBSCRIBE"))
    call = core.link.calls.make("SEND", 30.0, "SEND")
    core.send(Frame("SEND", {"destination": "/queue/a", "receipt": call.id}, b"x"), 0.1, call)
    receipt = b"RECEIPT\nreceipt-id:%b\n\n\0" % call.id.encode()
    size = 4096 + len(receipt)
    head = f"MESSAGE\nsubscription:{subscription}\nmessage-id:1\ndestination:/queue/a\ncontent-length:{size}\n\n"
    core.inbound.receive(head.encode() + behind, 0.2)
    owner = WireOwner(core)
    owner.connection, owner.wire = core.link.connection, Ahead(receipt)
    assert not owner.take_receipt(call, 0.3)
    core.inbound.receive(receipt + b"x" * (4096 - len(behind)) + b"\0", 0.4)
    assert not call.done
    assert owner.take_receipt(call, 0.5) is (subscription == "gone")  # else a message waits to be taken


# ---- messages ----


@pytest.fixture
def subscription(client):
    return client.subscribe("/queue/b", id="s", ack="client-individual")


def take(subscription):
    message = subscription.get(patience(LONG))
    assert message is not None
    return message.body


def converse(client, subscription, peer) -> None:
    """Get messages one by one until the waiting thread reads."""
    peer.rules.setdefault("SEND", lambda side, frame: side.deliver("s", b"talk"))
    until = time.monotonic() + patience(LONG)
    while not is_lent(client):
        assert time.monotonic() < until
        client.send("/queue/a", b"x")
        assert take(subscription) == b"talk"


def message(body, **headers) -> bytes:
    pairs = {"subscription": "s", "message-id": "m", "destination": "/queue/b", "ack": "a", **headers}
    return serialize(Frame("MESSAGE", {name: value for name, value in pairs.items() if value is not None}, body))


def is_lost(client, subscription, epoch) -> None:
    """The thread that waits ends up with the next connection."""
    wait_for(lambda: subscription.get(0.01) is None and client.epoch != epoch)
    client.wait_connected()
    assert client.epoch == epoch + 1


def sends(peer, octets) -> None:
    """Have the server send these bytes at once."""
    peer.do(lambda: peer.side().sock.sendall(octets))


def test_a_conversation_of_messages_needs_no_other_thread(kept, client, subscription, peer) -> None:
    converse(client, subscription, peer)
    open_before, seq = subscription.open, subscription.seq
    with busy_hub():
        sends(peer, b"".join(message(b"%d" % number) for number in range(3)))
        assert [take(subscription) for _ in range(3)] == [b"0", b"1", b"2"]
        peer.deliver("s", b"with headers", headers={"a": "b\n:c"})
        last = subscription.get(patience(LONG))
        assert last.headers["a"] == "b\n:c"
    assert (subscription.open, subscription.seq) == (open_before + 4, seq + 4)
    last.ack(receipt=True)
    (settled,) = peer.got("ACK")
    assert settled.get("id") == last.headers["ack"]
    assert client.epoch == 1


@pytest.mark.parametrize(
    "octets",
    [
        message(b"x", destination=None),
        message(b"x", **{"message-id": None}),
        message(b"x" * 10_001),  # limits hold
        b"NONSENSE\n\n\0",
        b"MESSAGE\nno colon\n\n\0",
        b"ERROR\nmessage:no\n\n\0",
        None,
    ],
)
def test_wrong_frames_errors_and_cuts_end_the_connection(kept, peer, octets) -> None:
    with stomp.connect(peer.url, **OPTIONS, limits=Limits(max_body=10_000)) as client:
        subscription = client.subscribe("/queue/b", id="s", ack="client-individual")
        for number in range(1, 3):
            converse(client, subscription, peer)
            peer.cut() if octets is None else sends(peer, octets)
            is_lost(client, subscription, number)
        assert isinstance(client.error, stomp.StompError)


CONNECTED = b"CONNECTED\nversion:1.2\n\n\0"


@pytest.mark.parametrize(
    ("before", "taken"),
    [
        (b"", True),
        (message(b"before"), False),  # it waits in the inbox
        (message(b"before")[:20], False),
        (message(b"x" * 5000, subscription="gone")[:-10], False),  # a streamed body
    ],
)
def test_only_what_begins_with_a_frame_is_taken(before, taken) -> None:
    core = ClientCore(stomp.Options(heart_beat=(0, 0), stream_over=AHEAD), lambda: "id")
    core.link.opened(0.0, host="h", login=None, passcode=None, whole_frames=False)
    core.inbound.receive(CONNECTED, 0.1)
    subscription = Subscription("/queue/a", id="s")
    core.inbound.subscribe(subscription, 0.1, core.link.calls.make("SUBSCRIBE", 30.0, "SUBSCRIBE"))
    subscription.confirmed = True
    core.inbound.receive(before, 0.2)
    wire_owner = WireOwner(core)
    wire_owner.connection, wire_owner.wire = core.link.connection, Ahead(message(b"x"))
    assert wire_owner.take_messages(subscription, 0.3) is taken
    assert [each.body for each in subscription.batch] == [b"x"] * taken
    assert wire_owner.wire.ahead == [len(message(b"x"))] * (not taken)
    wire_owner.wire.ahead = [1]
    subscription.deaf = True
    assert not wire_owner.take_messages(subscription, 0.3)


def waits(subscription, got):
    """A thread that waits for a message, and does not read itself."""
    thread = threading.Thread(target=lambda: got.append(take(subscription)), daemon=True)
    thread.start()
    wait_for(lambda: subscription.waiting)
    return thread


def test_who_is_left_with_a_message_is_woken(kept, client, subscription, peer) -> None:
    """The thread that reads takes one of two; the other one sleeps, and nothing else would wake it."""
    got, gate = [], threading.Event()
    converse(client, subscription, peer)

    def work() -> None:
        got.append(take(subscription))
        gate.wait(patience(LONG))

    threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(subscription.waiting) == 2)
    with busy_hub():
        sends(peer, message(b"1") + message(b"2"))
        wait_for(lambda: len(got) == 2)
    gate.set()
    for thread in threads:
        thread.join(patience(LONG))
    assert sorted(got) == [b"1", b"2"]


def test_an_interrupt_at_each_place_loses_no_message(kept, client, subscription, peer) -> None:
    """Neither the connection nor a message, and none comes twice."""
    place, fired, lent = 1, True, 0
    while fired:
        converse(client, subscription, peer)
        sends(peer, message(b"%d" % place, ack=None))
        fired = interrupted(lambda: subscription._refill(time.monotonic() + patience(LONG)), place)
        is_sound(client)
        lent += is_lent(client)
        if not subscription.batch:
            client._link.engine.stop_reading()  # as the I/O thread does after a while
        assert take(subscription) == b"%d" % place
        place += 1
        assert place < 1500
    assert subscription.get(0.001) is None
    assert lent > 20
    assert client.epoch == 1
